# SPDX-License-Identifier: MIT
"""CONTRACT section 5, the table of problems: each slug with its status, Call-Outcome and document."""

import json
import threading
import time

import pytest

from support.gateway import post
from support.house import House, Step
from support.poll import unique, until
from support.wire import request

ACTIONS = {"none", "wait", "query_receipt", "retry_same_call", "fix_request", "ask_operator"}
# The first ones speak about another call: a new key is never safe with them.
ABOUT_OTHER = {"key-expired", "key-reused", "call-id-reused", "operation-reversed", "credential-mismatch", "suspected-duplicate"}


def problem(answer, slug, status, outcome, call_id=None, state=None, safe=None, action=None, headers=None):
    """The answer is this problem, whole and well-formed."""
    assert (answer.status, answer.slug, answer.outcome) == (status, slug, outcome), answer
    assert answer.get("Content-Type").split(";")[0] == "application/problem+json"
    document = answer.json()
    assert {"type", "title", "status", "detail", "call_id", "original_call_id", "state", "safe_new_key", "next_action",
            "retry_after_s", "receipt"} <= set(document)
    assert document["status"] == status and document["type"] == "urn:samekey:" + slug
    assert document["title"] and document["detail"] and document["next_action"] in ACTIONS
    assert isinstance(document["safe_new_key"], bool)
    if slug in ABOUT_OTHER:
        assert document["safe_new_key"] is False
    if call_id is not None:
        assert document["call_id"] == call_id == answer.get("X-Call-Id")
        assert document["receipt"] in (None, f"/.samekey/receipts/{call_id}")
    if state is not None:
        assert document["state"] == state
    if safe is not None:
        assert document["safe_new_key"] is safe
    if action is not None:
        assert document["next_action"] in action.split("|")
    seconds = answer.get("Retry-After")
    assert document["retry_after_s"] == (int(seconds) if seconds else None)
    assert not answer.replayed
    return document


SMALL = {"attempt_timeout": "100ms", "connect_timeout": "100ms", "deadline": "600ms", "retries": 0, "rounds": 1,
         "round_gap": "100ms", "round_gap_max": "100ms", "tolerated_delay": "0ms", "receipt_timeout": "100ms"}


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("problems"), {
        "plain": {}, "strict": {"key_missing": "refuse"},
        "slow": {"attempt_timeout": "20s", "deadline": "100s", "lease": "60s", "wait_in_progress": "150ms"},
        "blocking": {"swapped_keys": "block"}, "warning": {"swapped_keys": "warn"}, "silent": {"swapped_keys": "off"},
        "blockslow": {"swapped_keys": "block", "attempt_timeout": "20s", "deadline": "100s", "lease": "60s"},
        "rated": {"rate": 2}, "narrow": {"concurrency": 1, "queue": 1, "attempt_timeout": "20s", "deadline": "100s", "lease": "60s"},
        "refused": {"upstream": ["http://127.0.0.1:1"], "retries": 0},
        "breaking": {"breaker_failures": 50, "breaker_calls": 4, "breaker_open": "1s", "retries": 0},
        "mortal": {**SMALL, "key_life": "1500ms", "result_life": "1500ms", "tombstone_life": "1h"},
        "paling": {**SMALL, "key_life": "1h", "result_life": "1s", "tombstone_life": "2h"},
        "little": {"result_bytes_max": "1k"}, "tight": {"body_bytes_max": "1k"},
    }, drain="1s", purge_every="1s")
    yield built
    assert built.close() == 0


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


# ---- limits and identity

def test_no_route(house):
    problem(house.gateway.send(post("/nowhere", unique("c"), unique("k"), "{}")), "no-route", 404, "rejected")
    assert house.gateway.ask("GET", "/nowhere").status == 404


@pytest.mark.parametrize("slug, route, headers, body", [
    ("call-id-invalid", "plain", {"X-Call-Id": "a b"}, b"{}"),
    ("key-missing", "strict", {"X-Call-Id": "c"}, b"{}"),
    ("key-invalid", "plain", {"Idempotency-Key": "a b"}, b"{}"),
    ("body-invalid", "plain", {"Idempotency-Key": "k"}, b"{"),
])
def test_what_is_wrong_with_the_request(house, slug, route, headers, body):
    order = house.order(route)
    answer = house.gateway.send(request("POST", order.path, {"Content-Type": "application/json", **headers}, body))
    problem(answer, slug, 400, "rejected", action="fix_request")
    assert not order.posts


@pytest.mark.parametrize("slug, headers", [("tenant-missing", {"X-User": "u"}), ("tenant-missing", {"X-Tenant": "", "X-User": "u"}),
                                           ("credential-missing", {"X-Tenant": "t"}), ("credential-missing", {"X-Tenant": "t", "X-User": ""})])
def test_who_is_asking(tmp_path, started, slug, headers):
    house = House(tmp_path, {"plain": {}}, tenant="{header.X-Tenant}", credential="{header.X-User}")
    started.append(house)
    order = house.order("plain")
    problem(order.send(headers=headers), slug, 400, "rejected")
    assert not order.posts


def test_credential_mismatch(tmp_path, started):
    house = House(tmp_path, {"plain": {}}, tenant="{header.X-Tenant}", credential="{header.X-User}")
    started.append(house)
    order = house.order("plain", Step(201, b"secret"))
    order.send(headers={"X-Tenant": "t", "X-User": "ann"})
    answer = order.send(headers={"X-Tenant": "t", "X-User": "bob"})
    document = problem(answer, "credential-mismatch", 409, "unknown", order.call_id, safe=False)
    assert "secret" not in json.dumps(document) and order.key not in json.dumps(document)
    assert document["state"] in ("UNKNOWN", None) and not answer.all("X-Original-Call-Id")


def test_limits(house):
    order = house.order("tight", Step())
    problem(order.send(body="x" * 1025, headers={"Content-Type": "text/plain"}), "body-too-large", 413, "rejected")
    problem(order.send(body="x" * 1025, headers={"Content-Type": "text/plain"}, chunked=True), "body-too-large", 413, "rejected")
    problem(order.send(headers={"X-Big": "y" * 40000}), "headers-too-large", 431, "rejected")
    problem(order.send(headers={"X-Many": ["y"] * 200}), "headers-too-large", 431, "rejected")
    assert not order.posts
    assert order.send(body="x" * 1024, headers={"Content-Type": "text/plain"}).status == 201


# ---- swapped keys

def test_call_id_reused(house):
    order = house.order("plain", Step(201, b"first"))
    order.send()
    for more in ({"key": unique("k")}, {"key": None}, {"body": '{"order":"other"}'}, {"path": order.path + "/x"}):
        answer = order.send(**more)
        problem(answer, "call-id-reused", 422, "rejected", order.call_id, safe=False, action="fix_request")
        assert b"first" not in answer.body
    assert len(order.posts) == 1 and not house.upstream.posts(order.path + "/x")


def test_key_reused(house):
    order = house.order("plain", Step(201, b"first"))
    order.send()
    answer = order.send(unique("c"), body='{"order":"other"}')
    problem(answer, "key-reused", 422, "rejected", safe=False, action="fix_request")
    assert b"first" not in answer.body and len(order.posts) == 1


def test_a_mismatch_is_told_before_in_progress(house, gate):
    order = house.order("slow", Step(201, gate=gate))
    wire = order.open()
    until(lambda: order.posts)
    began = time.monotonic()
    problem(order.send(body="{}"), "call-id-reused", 422, "rejected")
    problem(order.send(unique("c"), body="{}"), "key-reused", 422, "rejected")
    assert time.monotonic() - began < 2
    gate.set()
    assert wire.answer().status == 201


@pytest.mark.parametrize("route, flagged", [("warning", True), ("silent", False)])
def test_a_swapped_key_runs_and_is_flagged(house, route, flagged):
    order = house.order(route, Step(then="rst", effect=True), Step(201))
    assert order.send().slug == "outcome-unknown"
    before = house.gateway.metric("samekey_swapped_keys_total")
    second, key = unique("c"), unique("k")
    answer = order.send(second, key)
    assert (answer.status, answer.outcome) == (201, "success") and len(order.posts) == 2
    assert answer.all("X-Suspected-Duplicate") == ([order.call_id] if flagged else [])
    if flagged:
        assert house.gateway.metric("samekey_swapped_keys_total") == before + 1, house.gateway.admin("GET", "/metrics").body[:300]
        assert any(order.call_id in entry["_line"] for entry in house.gateway.logged(second))


def test_suspected_duplicate(house):
    order = house.order("blocking", Step(then="rst", effect=True), Step(201))
    assert order.send().slug == "outcome-unknown"
    second = unique("c")
    answer = order.send(second, unique("k"))
    document = problem(answer, "suspected-duplicate", 409, "rejected", second, safe=False)
    assert order.call_id in (document["original_call_id"], answer.get("X-Original-Call-Id"), answer.get("X-Suspected-Duplicate"))
    assert len(order.posts) == 1
    # Refused requests leave no row.
    assert house.gateway.receipt(second).status == 404


def test_suspected_duplicate_while_the_first_runs(house, gate):
    order = house.order("blockslow", Step(201, gate=gate))
    wire = order.open()
    until(lambda: order.posts)
    problem(order.send(unique("c"), unique("k")), "suspected-duplicate", 409, "rejected")
    gate.set()
    assert wire.answer().status == 201 and len(order.posts) == 1


@pytest.mark.parametrize("route", ["blocking", "warning"])
def test_two_honest_equal_orders_both_run(house, route):
    order = house.order(route, Step(201))
    assert order.send().status == 201
    second = order.send(unique("c"), unique("k"))
    assert (second.status, second.all("X-Suspected-Duplicate"), len(order.posts)) == (201, [], 2)


def test_another_payload_is_no_suspect(house):
    order = house.order("blocking", Step(then="rst"), Step(201))
    order.send()
    assert order.send(unique("c"), unique("k"), body='{"other":1}').status == 201


# ---- fences and lives

def test_call_fenced(house):
    order = house.order("plain")
    house.gateway.fence(order.call_id)
    problem(order.send(), "call-fenced", 409, "rejected", order.call_id, "FAILED")
    assert not order.posts


def test_key_expired_and_its_tombstone(house):
    good, bad = house.order("mortal", Step(201, b"kept")), house.order("mortal", Step(then="rst"))
    failed = house.order("mortal", Step(400, b"no"))
    assert good.send().body == b"kept" and failed.send().status == 400
    assert bad.send().outcome == "unknown"
    until(lambda: good.send(unique("c")).slug == "key-expired", 15, every=0.2)
    problem(good.send(unique("c")), "key-expired", 409, "rejected", safe=False)
    # A known callId is answered by its tombstone.
    until(lambda: good.send().slug, 5, every=0.1)
    problem(good.send(), "result-not-kept", 409, "success", good.call_id, "SUCCESS", safe=False)
    until(lambda: failed.send().slug, 15, every=0.2)
    problem(failed.send(), "call-failed", 409, "failed", failed.call_id, "FAILED")
    assert len(good.posts) == 1 and len(failed.posts) == 1
    document = good.receipt().json()
    assert document["state"] == "SUCCESS" and (document["result"] or {}).get("body") is None
    # UNKNOWN never expires.
    assert bad.state == "UNKNOWN" and bad.send().slug == "outcome-unknown" and len(bad.posts) == 1


# ---- running

def test_in_progress(house, gate):
    order = house.order("slow", Step(201, b"at last", gate=gate))
    wire = order.open()
    until(lambda: order.posts)
    began = time.monotonic()
    answer = order.send()
    assert 0.15 - 0.005 <= time.monotonic() - began < 3
    problem(answer, "call-in-progress", 409, "pending", order.call_id, "PROCESSING", safe=False, action="wait|query_receipt|retry_same_call")
    assert int(answer.get("Retry-After")) >= 1
    other = unique("c")
    answer = order.send(other)
    document = problem(answer, "operation-in-progress", 409, "pending", other, safe=False, action="wait|query_receipt|retry_same_call")
    assert int(answer.get("Retry-After")) >= 1 and document["original_call_id"] in (None, order.call_id)
    gate.set()
    assert wire.answer().body == b"at last" and order.send().body == b"at last" and len(order.posts) == 1
    assert order.send(other).get("X-Original-Call-Id") == order.call_id


def test_the_callers_budget_ends_while_it_runs(house, gate):
    order = house.order("slow", Step(201, b"at last", gate=gate))
    began = time.monotonic()
    answer = order.send(headers={"X-Call-Budget-Ms": "300"})
    assert 0.29 <= time.monotonic() - began < 3
    problem(answer, "call-in-progress", 504, "pending", order.call_id, "PROCESSING", action="query_receipt")
    # It never shortens an attempt already sent.
    gate.set()
    until(lambda: order.state == "SUCCESS")
    assert order.send().body == b"at last" and len(order.posts) == 1


def test_outcome_unknown_first_504_then_409(house):
    order = house.order("plain", Step(then="rst"))
    problem(order.send(), "outcome-unknown", 504, "unknown", order.call_id, "UNKNOWN", safe=False)
    problem(order.send(), "outcome-unknown", 409, "unknown", order.call_id, "UNKNOWN", safe=False)
    other = unique("c")
    problem(order.send(other), "outcome-unknown", 409, "unknown", other, safe=False)
    assert house.gateway.receipt(other).status == 404 and len(order.posts) == 1


# ---- no answer to replay

def test_result_not_kept_because_it_is_too_large(house):
    order = house.order("little", Step(201, b"z" * 5000))
    assert order.send().body == b"z" * 5000
    problem(order.send(), "result-not-kept", 409, "success", order.call_id, "SUCCESS", safe=False)
    other = unique("c")
    problem(order.send(other), "result-not-kept", 409, "success", other, safe=False)
    document = order.receipt().json()
    assert (document["state"], document["final"], document["executed"]) == ("SUCCESS", True, True)
    assert len(order.posts) == 1


def test_result_not_kept_past_its_life(house):
    order = house.order("paling", Step(201, b"fades"))
    assert order.send().body == b"fades"
    until(lambda: order.send().slug == "result-not-kept", 15, every=0.2)
    problem(order.send(), "result-not-kept", 409, "success", order.call_id, "SUCCESS", safe=False)
    assert len(order.posts) == 1


# ---- admission

def test_rate_limited(house):
    order = house.order("rated", Step(201))
    answers = [order.send(unique("c"), unique("k"), body=json.dumps({"n": n})) for n in range(12)]
    refused = [a for a in answers if a.status == 429]
    assert refused and len(order.posts) == 12 - len(refused) <= 12
    for answer in refused:
        problem(answer, "rate-limited", 429, "not-executed", action="retry_same_call|wait")
        assert int(answer.get("Retry-After")) >= 1
        assert house.gateway.receipt(answer.get("X-Call-Id")).status == 404  # refused requests leave no row


def test_replays_cost_no_admission(house):
    order = house.order("rated", Step(201))
    until(lambda: order.send(body="{}").status == 201, 5, every=0.1)
    assert all(order.send(body="{}").replayed for _ in range(30))


def test_overloaded(house, gate):
    orders = [house.order("narrow", Step(201, gate=gate)) for _ in range(6)]
    wires = [order.open() for order in orders]
    until(lambda: any(order.posts for order in orders))
    refused = until(lambda: (a := house.order("narrow").send(timeout=5)).status == 503 and a)
    problem(refused, "overloaded", 503, "not-executed", action="retry_same_call|wait")
    assert int(refused.get("Retry-After")) >= 1
    gate.set()
    statuses = [wire.answer().status for wire in wires]
    assert sorted(statuses) == [201, 201, 503, 503, 503, 503]
    assert sum(len(order.posts) for order in orders) == 2


def test_upstream_unavailable_refused(house):
    order = house.order("refused")
    answer = order.send()
    problem(answer, "upstream-unavailable", 503, "not-executed", order.call_id, "FAILED", action="retry_same_call|wait")
    assert int(answer.get("Retry-After")) >= 1


def test_upstream_unavailable_breaker(house):
    orders = [house.order("breaking", Step(500)) for _ in range(8)]
    answers = [order.send() for order in orders]
    broken = [(o, a) for o, a in zip(orders, answers) if a.slug == "upstream-unavailable"]
    assert broken and answers[0].slug == "outcome-unknown"
    for order, answer in broken:
        problem(answer, "upstream-unavailable", 503, "not-executed")
        assert not order.posts and int(answer.get("Retry-After")) >= 1
    # A probe closes it again.
    until(lambda: house.order("breaking", Step(201)).send().status == 201, 10, every=0.1)
    assert house.order("breaking", Step(201)).send().status == 201


def test_a_refused_call_may_be_sent_again_and_then_runs(house):
    order = house.order("breaking", Step(201))
    assert until(lambda: (a := order.send()).status == 201 and a, 10, every=0.1).outcome == "success"
    assert len(order.posts) == 1
