# SPDX-License-Identifier: MIT
"""Where two words about one call or one number differ: what is believed, and what is kept of the difference."""

import json
import threading

import pytest

from support.gateway import Gateway, post
from support.house import House
from support.poll import unique, until
from support.upstream import Step
from test_windows import Watch

TOKEN = "a-token-of-sixteen-bytes-or-more"


@pytest.fixture
def house(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    built = House(tmp_path / "h", {"plain": {}, "numbers": {"key": "order:{json.no}", "key_missing": "refuse"},
                                   "when": {"success_when": "json.code = 0"}},
                  report_token_file=str(tmp_path / "token"))
    yield built
    assert built.close() == 0


def test_one_number_is_one_key_however_it_is_written(house):
    order = house.order("numbers", Step(201, b"once"))
    bodies = ['{"no":100}', '{"no":1e2}', '{"no": 100.0}', '{"no":1000e-1}']
    answers = [order.send(unique("c"), None, body) for body in bodies]
    assert {(a.status, a.body) for a in answers} == {(201, b"once")} and len(order.posts) == 1
    assert order.posts[0].get("Idempotency-Key") == "order:100"
    # The same call with the number written otherwise is the same call; as a text it is another one.
    call = unique("c")
    assert [order.send(call, None, body).status for body in ('{"no":7.50}', '{"no":7.5}', '{"no":"7.5"}')] == \
        [201, 201, 422]


def test_success_when_compares_numbers_as_numbers(house):
    order = house.order("when", Step(200, b'{"code":0.0}'), Step(200, b'{"code":1}'))
    assert order.send().outcome == "success"
    assert order.send(unique("c"), unique("k")).outcome == "rejected"


def test_a_report_against_an_answer_in_hand_is_kept_as_a_difference(house):
    gate = threading.Event()
    order = house.order("plain", Step(201, gate=gate))
    wire = order.open()
    until(lambda: order.posts)
    report = house.gateway.ask("PUT", f"/.samekey/receipts/{order.call_id}",
                               {"Authorization": f"Bearer {TOKEN}"}, json.dumps({"state": "FAILED"}).encode())
    assert report.status == 200
    gate.set()
    answer = wire.answer()
    assert (answer.slug, answer.outcome) == ("outcome-unknown", "unknown") and answer.json()["safe_new_key"] is False
    until(lambda: [e for e in house.gateway.log if e.get("event") == "ending_contradicted"])
    assert house.gateway.rows("SELECT count(*) FROM compensation")[0][0] == 1


def test_two_words_of_the_service_that_differ_prove_nothing(house):
    order = house.order("plain", Step(raw=b"HTTP/1.1 200 OK\r\nCall-Outcome: success\r\nCall-Outcome: failed\r\n"
                                          b"Content-Length: 2\r\n\r\nok", effect=True))
    assert order.send().slug == "outcome-unknown"


def test_accepted_with_another_status_is_passed_on_where_nobody_can_be_asked(house):
    order = house.order("plain", Step(409, headers={"Call-Outcome": "pending"}, effect=False))
    answer = order.send(timeout=4)
    assert (answer.status, answer.outcome) == (409, "pending")


@pytest.mark.no_sanitizer
def test_a_clock_that_steps_forward_purges_nothing(tmp_path, started):
    watch = Watch(tmp_path)
    watch.set("2026-03-01 12:00:00")
    from support.upstream import Upstream
    upstream = Upstream()
    gateway = Gateway(tmp_path / "g", {"r": {"upstream": [upstream.url]}}, env=watch.env, purge_every="1s")
    started.extend([upstream, gateway])
    call, key = unique("c"), unique("k")
    assert gateway.send(post("/r/x", call, key, b"{}")).status == 201
    watch.set("2026-06-01 12:00:00")
    until(lambda: [e for e in gateway.log if e.get("event") == "clock_stepped"])
    again = gateway.send(post("/r/x", call, key, b"{}"))
    assert again.outcome in ("success",) and len(upstream.posts("/r/x")) == 1
    watch.set("2026-03-01 12:00:10")
    until(lambda: [e for e in gateway.log if e.get("event") == "clock_back"])
