# SPDX-License-Identifier: MIT
"""samekey in front of samekey, and in front of servers whose receipt paths answer anything but receipts."""

import threading

import pytest

from support.gateway import Gateway
from support.house import House, Step
from support.poll import unique, until
from support.upstream import Upstream


class Tower:
    """Upper gateway, lower gateway, service."""

    def __init__(self, folder, lower=None, upper=None):
        self.upstream = Upstream()
        self.lower = Gateway(folder / "lower", {"orders": {"path": ["/orders/{*}"], "upstream": [self.upstream.url],
                                                           "receipt": "http GET /receipts/{call_id}", **(lower or {})}})
        self.upper = Gateway(folder / "upper", {"orders": {"path": ["/orders/{*}"], "upstream": [f"http://127.0.0.1:{self.lower.port}"],
                                                           "receipt": "samekey", **(upper or {})}})

    def send(self, path, call_id, key, body=b"x", **headers):
        return self.upper.ask("POST", path, {"X-Call-Id": call_id, "Idempotency-Key": key, **headers}, body)

    def close(self):
        for gateway in (self.upper, self.lower):
            gateway.stop()
        self.upstream.close()


@pytest.fixture
def tower(tmp_path, started):
    def build(**more):
        started.append(Tower(tmp_path, **more))
        return started[-1]

    return build


SLOW = {"attempt_timeout": "1500ms", "deadline": "20s", "lease": "9s", "wait_in_progress": "5s"}


def test_one_call_through_two(tower):
    both = tower()
    both.upstream.script("/orders/1", Step(201, b"made", {"Location": "/o/1", "Content-Type": "a/b"}))
    first = both.send("/orders/1", "c-1", "k-1")
    assert (first.status, first.body, first.outcome, first.get("Location")) == (201, b"made", "success", "/o/1")
    again = both.send("/orders/1", "c-1", "k-1")
    assert again.replayed and again.body == b"made" and len(both.upstream.posts("/orders/1")) == 1
    seen = both.upstream.posts("/orders/1")[0]
    assert (seen.get("X-Call-Id"), seen.get("Idempotency-Key"), seen.get("Host")) == ("c-1", "k-1", "api.example.test")
    assert both.upper.state("c-1") == both.lower.state("c-1") == "SUCCESS"


def test_the_lower_one_is_asked_and_its_result_is_the_answer(tower):
    """The upper one gives its attempt up; the lower one's goes on."""
    both = tower(lower=SLOW, upper={"backoff_base": "100ms", "backoff_cap": "500ms"})
    both.upstream.script("/orders/1", Step(201, b"late", {"Content-Type": "a/b"}, delay=0.8))
    answer = both.send("/orders/1", "c-1", "k-1")
    assert (answer.status, answer.body, answer.outcome) == (201, b"late", "success")
    assert [a["outcome"] for a in both.upper.receipt("c-1").json()["attempts"]] == ["unknown"]
    assert len(both.upstream.posts("/orders/1")) == 1 == both.upstream.effects("/orders/1")


def test_retries_of_both_do_not_multiply_an_effect(tower):
    both = tower()
    both.upstream.script("/orders/1", Step(then="rst"), Step(503), Step(then="rst", effect=True), Step(201))
    answer = both.send("/orders/1", "c-1", "k-1")
    assert answer.outcome == "success" and both.upstream.effects("/orders/1") == 1
    assert {p.get("X-Call-Id") for p in both.upstream.posts("/orders/1")} == {"c-1"}


def test_unavailable_below_is_not_retried_above(tower):
    both = tower(lower={"upstream": ["http://127.0.0.1:1"], "retries": 2})
    answer = both.send("/orders/1", "c-1", "k-1")
    assert (answer.status, answer.slug, answer.outcome) == (503, "upstream-unavailable", "not-executed")
    assert len(both.upper.receipt("c-1").json()["attempts"]) == 1
    assert len(both.lower.receipt("c-1").json()["attempts"]) == 3


@pytest.mark.parametrize("status, outcome", [(400, "rejected"), (422, "rejected")])
def test_a_rejection_below_is_one_above(tower, status, outcome):
    both = tower()
    both.upstream.script("/orders/1", Step(status, b"no"))
    assert (both.send("/orders/1", "c-1", "k-1").outcome, both.send("/orders/1", "c-1", "k-1").body) == (outcome, b"no")
    assert both.upper.state("c-1") == "FAILED" and len(both.upstream.posts("/orders/1")) == 1


def test_unknown_below_is_unknown_above(tower):
    both = tower(lower={"receipt": "none"})
    both.upstream.script("/orders/1", Step(then="rst", effect=True))
    answer = both.send("/orders/1", "c-1", "k-1")
    assert (answer.slug, answer.outcome) == ("outcome-unknown", "unknown")
    assert both.upper.state("c-1") == both.lower.state("c-1") == "UNKNOWN" and len(both.upstream.posts("/orders/1")) == 1


@pytest.mark.parametrize("slug", ["key-reused", "call-id-reused"])
def test_a_new_key_is_never_called_safe_above_when_it_is_not_below(tower, slug):
    both = tower()
    both.upstream.script("/orders/1", Step(201))
    below = {"X-Call-Id": "c-1", "Idempotency-Key": "k-1"}
    assert both.lower.ask("POST", "/orders/1", below, b"x").status == 201
    call_id, key = ("c-2", "k-1") if slug == "key-reused" else ("c-1", "k-2")
    answer = both.send("/orders/1", call_id, key, b"another")
    assert answer.slug == slug and answer.json()["safe_new_key"] is False
    assert both.upper.receipt(call_id).json()["safe_new_key"] is False


def test_a_lower_one_that_does_not_guard_is_not_believed(tower):
    """The path goes through the lower gateway unguarded: its receipts know nothing of it."""
    both = tower(lower={"mode": "off"})
    both.upstream.script("/orders/1", Step(then="rst", effect=True), Step(201))
    answer = both.send("/orders/1", "c-1", "k-1")
    assert answer.outcome == "unknown" and both.upper.state("c-1") == "UNKNOWN"
    assert len(both.upstream.posts("/orders/1")) == 1


def test_the_lower_one_is_killed_and_comes_back(tower):
    both = tower(lower={**SLOW, "lease": "1500ms"}, upper={"deadline": "20s", "retries": 5, "receipt_queries": 50, "backoff_cap": "200ms"})
    gate = threading.Event()
    both.upstream.script("/orders/1", Step(201, b"made", gate=gate, effect=True))
    answers = []
    caller = threading.Thread(target=lambda: answers.append(both.send("/orders/1", "c-1", "k-1")))
    caller.start()
    until(lambda: both.upstream.posts("/orders/1"))
    both.lower.kill()
    gate.set()
    both.lower.start()
    caller.join(30)
    until(lambda: both.send("/orders/1", "c-1", "k-1").outcome == "success", 15, every=0.2)
    assert both.upstream.effects("/orders/1") == 1 and len(both.upstream.posts("/orders/1")) == 1


def test_a_waiting_receipt_goes_through_a_tower(tower):
    both = tower(lower=SLOW, upper=SLOW)
    both.upstream.script("/orders/1", Step(201, b"made", delay=0.3))
    caller = threading.Thread(target=lambda: both.send("/orders/1", "c-1", "k-1"))
    caller.start()
    until(lambda: both.upper.receipt("c-1").status == 200)
    assert both.upper.receipt("c-1", "?wait=10s").json()["state"] == "SUCCESS"
    caller.join(10)


# ---- receipt paths that are none

PAGES = {
    "404 pages": Step(404, b"<html><h1>Not Found</h1></html>", {"Content-Type": "text/html"}, effect=False),
    "a catch-all 200": Step(200, b"<!doctype html><title>shop</title>", {"Content-Type": "text/html"}, effect=False),
    "a catch-all 200 in JSON": Step(200, b'{"status":"ok","state":"SUCCESS"}', effect=False),
}


@pytest.mark.parametrize("source", ["http GET /receipts/{call_id}", "samekey"])
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("effect", [True, False])
def test_a_page_is_never_taken_for_a_receipt(tmp_path, started, source, page, effect):
    house = House(tmp_path, {"orders": {"receipt": source}})
    started.append(house)
    order = house.order("orders", Step(then="rst", effect=effect), Step(201))
    order.receipts(PAGES[page])
    assert order.send().slug == "outcome-unknown"
    assert order.send().slug == "outcome-unknown" and order.send(unique("c")).slug == "outcome-unknown"
    assert (len(order.posts), order.state) == (1, "UNKNOWN") and order.queries
