# SPDX-License-Identifier: MIT
"""CONTRACT section 4: leases that are renewed, calls that are abandoned, what is known after everything was purged."""

import json
import threading
import time

import pytest

from support.house import House, Step
from support.poll import unique, until
from support.upstream import refused_port

BRIEF = {"attempt_timeout": "100ms", "connect_timeout": "100ms", "deadline": "600ms", "retries": 0, "rounds": 1,
         "round_gap": "100ms", "round_gap_max": "100ms", "tolerated_delay": "0ms", "receipt_timeout": "100ms", "key_life": "1500ms",
         "result_life": "1500ms"}


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    refused, held = refused_port()
    built = House(tmp_path_factory.mktemp("lives"), {
        "mortal": {**BRIEF, "tombstone_life": "1500ms"},
        "dying": {**BRIEF, "tombstone_life": "1h", "upstream": [f"http://127.0.0.1:{refused}"]},
        "long": {"lease": "500ms", "attempt_timeout": "450ms", "callee_idempotent": True},
        "narrow": {"concurrency": 1, "queue": 4, "attempt_timeout": "20s", "deadline": "100s", "lease": "60s"},
    }, purge_every="1s", drain="1s")
    yield built
    assert built.close() == 0
    held.close()


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def test_a_lease_is_renewed_while_its_owner_works(house):
    order = house.order("long", Step(then="hang"), Step(then="hang"), Step(201, b"third"))
    before = house.gateway.metric("samekey_leases_expired_total")
    answer = order.send()
    assert (answer.status, answer.body, len(order.posts)) == (201, b"third", 3)
    assert house.gateway.metric("samekey_leases_expired_total") == before
    assert order.state == "SUCCESS"


def test_what_never_ran_is_abandoned_after_the_life_of_its_key(house):
    order = house.order("dying")
    assert order.send().outcome == "not-executed"
    document = order.receipt().json()
    assert (document["state"], document["final"]) == ("FAILED", False)
    document = until(lambda: (d := order.receipt().json())["final"] and d, 15, every=0.2)
    assert (document["state"], document["reason"], document["executed"]) == ("FAILED", "abandoned", False)
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (409, "call-failed", "failed")


def test_after_the_purge_nothing_is_denied_that_may_have_been(house):
    order = house.order("mortal", Step(201, b"gone soon"))
    answer = order.send(None)
    made = answer.get("X-Call-Id")
    began = house.gateway.receipt(made).json()["created_at"]
    gone = until(lambda: (a := house.gateway.receipt(made)).status == 410 and a, 20, every=0.2)
    document = gone.json()
    assert (document["state"], document["reason"], document["safe_new_key"]) == ("UNKNOWN", "beyond-retention", False)
    assert document["covers_since"] > began
    assert house.gateway.rows("select count(*) from call where call_id = ?", made) == [(0,)]
    # An id without a time of its own is told by ?since=, which an asking samekey adds.
    assert house.gateway.receipt(order.call_id, f"?since={began}").status == 410
    # It is not run either.
    again = order.send(made)
    assert (again.status, again.slug) == (409, "outcome-unknown") and len(order.posts) == 1


def test_an_unknown_call_is_never_purged(house):
    order = house.order("mortal", Step(then="rst"))
    order.send()
    other = house.order("mortal", Step(201))
    made = other.send(None).get("X-Call-Id")
    until(lambda: house.gateway.receipt(made).status == 410, 20, every=0.2)
    assert order.state == "UNKNOWN" and house.gateway.tasks(order.call_id)


def test_receipts_do_not_wait_behind_calls(house, gate):
    orders = [house.order("narrow", Step(201, gate=gate)) for _ in range(4)]
    wires = [order.open() for order in orders]
    until(lambda: any(order.posts for order in orders))
    ended = house.order("long", Step(201))
    ended.send()
    began = time.monotonic()
    for _ in range(20):
        assert ended.state == "SUCCESS"
        assert house.gateway.receipt(unique("never")).status == 404
    assert time.monotonic() - began < 2
    gate.set()
    assert [wire.answer().status for wire in wires] == [201] * 4


def test_a_storm_of_questions_about_one_running_call(house, gate):
    order = house.order("narrow", Step(201, b"x", gate=gate))
    wire = order.open()
    until(lambda: order.posts)
    answers = []

    def ask():
        for _ in range(25):
            answers.append(order.receipt().json()["state"])

    askers = [threading.Thread(target=ask) for _ in range(16)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(30)
    assert answers == ["PROCESSING"] * 400 and not order.queries
    gate.set()
    assert wire.answer().body == b"x"
    until(lambda: order.state == "SUCCESS", 2)


def test_not_received_is_never_kept(house):
    order = house.order("long", Step(201))
    for _ in range(3):
        assert order.receipt().status == 404
    assert order.send().status == 201
    assert order.receipt().status == 200  # at once


def test_safe_new_key_is_never_kept(house):
    order = house.order("long", Step(400), Step(201))
    order.send()
    for _ in range(3):
        assert order.receipt().json()["safe_new_key"] is True
    order.send(unique("c"), body=json.dumps({"order": order.name, "amount": 10}))
    assert order.receipt().json()["safe_new_key"] is False  # at once
