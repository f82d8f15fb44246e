# SPDX-License-Identifier: MIT
"""CONTRACT section 3, ask first: what each answer of a receipt endpoint permits, and when a repeat is safe."""

import json
import time

import pytest

from support.house import House, Step
from support.poll import unique, until
from support.upstream import receipt

TICK = 0.005  # clocks of two programs, read at two moments


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    asks = {"receipt": "http GET /receipts/{call_id}"}
    built = House(tmp_path_factory.mktemp("ask"), {
        "plain": asks,
        "bare": {},
        "twice": {"callee_idempotent": True},
        "askedtwice": {**asks, "callee_idempotent": True, "resend_after": "3s"},
        "slow": {**asks, "resend_after": "700ms"},
        "short": {**asks, "upstream_key_life": "50ms"},
        "once": {**asks, "retries": 0},
        "mapped": {**asks, "receipt_map": "DONE=SUCCESS, OPEN=PROCESSING, GONE=FAILED",
                   "receipt_header": ["X-Api-Key: s3cret", "Accept: application/json"]},
        "query": {"receipt": "http POST /ask/{call_id}?full=1"},
        "below": {"receipt": "samekey"},
        "belowonce": {"receipt": "samekey", "retries": 0},
        "job": {**asks, "deadline": "2600ms"},
        "jobtwice": {**asks, "callee_idempotent": True, "deadline": "3s"},
        "jobbelow": {"receipt": "samekey", "deadline": "2600ms", "retries": 0},
    })
    yield built
    assert built.close() == 0


LOST = Step(then="rst", effect=True)
NEVER = Step(then="rst", effect=False)


def test_success_ends_it_and_nothing_is_sent(house):
    order = house.order("plain", LOST, Step(201))
    answer = order.send()
    assert order.story == "P?"
    # A bare receipt: our own document is the answer, and stays it.
    assert (answer.status, answer.outcome, answer.replayed) == (200, "success", False)
    document = answer.json()
    assert (document["call_id"], document["state"], document["final"]) == (order.call_id, "SUCCESS", True)
    assert document["attempts"][0]["outcome"] == "unknown"
    for again in (order.send(), order.send(unique("c"))):
        assert (again.status, again.body, again.replayed, again.outcome) == (200, answer.body, True, "success")
    assert order.story == "P?"


def test_success_with_a_result_is_answered_with_it(house):
    order = house.order("plain", LOST)
    order.receipts(receipt("SUCCESS", order.call_id, result={
        "status": 201, "headers": [["content-type", "text/x"], ["Location", "/orders/9"], ["Set-Cookie", "a=b"]],
        "body": "stored", "body_encoding": "utf8"}))
    answer = order.send()
    assert (answer.status, answer.body, answer.outcome) == (201, b"stored", "success")
    assert (answer.get("Content-Type"), answer.get("Location"), answer.all("Set-Cookie")) == ("text/x", "/orders/9", [])
    again = order.send()
    assert (again.status, again.body, again.get("Location"), again.replayed) == (201, b"stored", "/orders/9", True)


def test_success_with_a_result_in_base64(house):
    order = house.order("plain", LOST)
    order.receipts(receipt("SUCCESS", order.call_id, result={
        "status": 200, "headers": [["content-type", "application/octet-stream"]], "body": "AAH/", "body_encoding": "base64"}))
    assert order.send().body == b"\x00\x01\xff" == order.send().body


@pytest.mark.parametrize("more", [{"final": True}, {"final": True, "reason": "fenced"}])
def test_failed_for_good_ends_it_failed(house, more):
    order = house.order("plain", NEVER, Step(201))
    order.receipts(receipt("FAILED", order.call_id, **more))
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (409, "call-failed", "failed")
    document = order.receipt().json()
    assert (document["state"], document["final"], document["reason"]) == ("FAILED", True, "receipt")
    assert document["safe_new_key"] is True
    again = order.send()
    assert (again.status, again.slug, again.outcome) == (409, "call-failed", "failed")
    assert order.story == "P?"
    # The key is free for a new call.
    assert order.send(unique("c")).status == 201


@pytest.mark.parametrize("state", ["RECEIVED", "PROCESSING"])
def test_a_running_call_is_waited_for_and_never_sent_again(house, state):
    order = house.order("plain", NEVER, Step(201))
    order.receipts(*[receipt(state, order.call_id)] * 3, receipt("SUCCESS", order.call_id))
    assert (order.send().outcome, order.story, len(order.queries)) == ("success", "P?", 4)


@pytest.mark.parametrize("words", [("NOT_RECEIVED", {}), ("NONE", {}), ("FAILED", {"final": False}),
                                   ("NOT_RECEIVED", {"covers_since": "2020-01-01T00:00:00Z"})])
def test_not_received_permits_another_send(house, words):
    order = house.order("plain", NEVER, Step(201, b"second"))
    order.receipts(receipt(words[0], order.call_id, **words[1]))
    answer = order.send()
    assert (answer.status, answer.body, order.story, order.effects) == (201, b"second", "P?P", 1)
    assert {p.get("X-Call-Id") for p in order.posts} == {order.call_id}
    # It was sent only after the answer had come, and after resend_after.
    assert order.posts[1].t >= order.queries[-1].ended
    assert order.posts[1].t - order.posts[0].ended >= 0.06 - TICK


def test_call_id_in_either_spelling(house):
    order = house.order("plain", LOST)
    order.receipts(Step(200, json.dumps({"call_id": order.call_id, "state": "SUCCESS"})))
    assert (order.send().outcome, order.story) == ("success", "P?")


def no_receipts(call_id):
    def answer(body, status=200, kind="application/json"):
        return Step(status, body, {"Content-Type": kind}, effect=False)

    def document(**members):
        return answer(json.dumps(members).encode())

    whole = json.dumps({"call_id": call_id, "state": "SUCCESS"}).encode()
    return {
        "UNKNOWN": document(call_id=call_id, state="UNKNOWN"),
        "no JSON": answer(b"SUCCESS"),
        "cut JSON": answer(whole[:-1]),
        "JSON and more": answer(whole + b" and more"),
        "a list": answer(b"[" + whole + b"]"),
        "a text": answer(b'"SUCCESS"'),
        "empty": answer(b""),
        "an unknown state": document(call_id=call_id, state="DONE"),
        "a state in small letters": document(call_id=call_id, state="success"),
        "a state that is a number": document(call_id=call_id, state=3),
        "no state": document(call_id=call_id),
        "another callId": document(call_id="somebody-else", state="SUCCESS"),
        "another callId, not received": document(call_id="somebody-else", state="NOT_RECEIVED"),
        "no callId": document(state="SUCCESS"),
        "no callId, not received": document(state="NOT_RECEIVED"),
        "two callIds": document(call_id=call_id, callId="somebody-else", state="NOT_RECEIVED"),
        "a 404 page": answer(b"<html>Not Found</html>", 404, "text/html"),
        "a 404 without a body": answer(b"", 404),
        "a 404 of a framework": answer(b'{"detail":"Not Found"}', 404),
        "a catch-all page": answer(b"<!doctype html><div id=app></div>", 200, "text/html"),
        "a catch-all document": answer(b'{"ok":true}'),
        "a redirect": Step(302, b"", {"Location": "/login"}, effect=False),
        "401": answer(b'{"error":"token"}', 401),
        "500": answer(b'{"error":"boom"}', 500),
        "a cut answer": Step(200, whole, then="partial", cut=20, effect=False),
        "a reset": Step(then="rst", effect=False),
        "silence": Step(then="hang", effect=False),
        "it does not reach back": document(call_id=call_id, state="NOT_RECEIVED", covers_since="2999-01-01T00:00:00Z"),
    }


@pytest.mark.parametrize("kind", no_receipts("x"))
def test_what_is_no_receipt_permits_nothing(house, kind):
    """Never a re-send, never a SUCCESS, never a FAILED, on an answer that is not a receipt."""
    order = house.order("plain", LOST, Step(201))
    order.receipts(no_receipts(order.call_id)[kind])
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (504, "outcome-unknown", "unknown")
    assert (len(order.posts), order.state) == (1, "UNKNOWN")
    assert 1 <= len(order.queries) <= 5
    # Its repeat asks again, and is not sent again either.
    asked = len(order.queries)
    again = order.send()
    assert (again.status, again.slug) == (409, "outcome-unknown") and len(order.queries) > asked
    # Once there is a receipt, the repeat gets the ending.
    order.receipts(receipt("SUCCESS", order.call_id))
    assert (order.send().outcome, order.state, len(order.posts)) == ("success", "SUCCESS", 1)


def test_a_failed_query_is_asked_again(house):
    order = house.order("plain", LOST, Step(201))
    order.receipts(Step(then="rst", effect=False), Step(503, b"", effect=False), receipt("SUCCESS", order.call_id))
    assert (order.send().outcome, order.story, len(order.queries)) == ("success", "P?", 3)


def test_503_with_retry_after_is_asked_about_and_waited_out(house):
    order = house.order("plain", Step(503, headers={"Retry-After": "1"}), Step(201))
    assert (order.send().status, order.story) == (201, "P?P")
    assert order.posts[1].t - order.posts[0].ended >= 1.0 - TICK


def test_each_unknown_attempt_is_asked_about_before_the_next(house):
    order = house.order("plain", NEVER, Step(502, effect=False), Step(then="fin", effect=False), Step(201))
    assert (order.send().status, order.story) == (201, "P?P?P?P")


def test_retries_end_and_it_stays_unknown(house):
    order = house.order("plain", NEVER)
    answer = order.send()
    assert (answer.status, answer.slug) == (504, "outcome-unknown")
    assert len(order.posts) == 4 and order.state == "UNKNOWN"


def test_without_retries_not_received_ends_unknown_where_nothing_can_fence(house):
    order = house.order("once", NEVER)
    assert (order.send().slug, len(order.posts), order.state) == ("outcome-unknown", 1, "UNKNOWN")
    # The caller's own repeat goes on by the same rules.
    order.script(NEVER, Step(201))
    assert (order.send().status, len(order.posts)) == (201, 2)


# ---- pending

def test_pending_waits_and_asks_and_is_not_sent_again_on_not_received(house):
    order = house.order("job", Step(202, b"queued", effect=False), Step(201))
    assert order.send().outcome == "pending"
    until(lambda: len(order.queries) >= 2)
    assert order.state == "PROCESSING" and len(order.posts) == 1
    document = until(lambda: (d := order.receipt().json())["state"] == "UNKNOWN" and d, 10)
    assert document["reason"] == "accepted" and len(order.posts) == 1
    assert len(order.queries) <= 5  # receipt_queries, after one attempt


def test_pending_is_sent_again_where_the_callee_runs_a_call_once(house):
    order = house.order("jobtwice", Step(202, b"queued", effect=False), Step(201))
    assert order.send().outcome == "pending"
    until(lambda: order.state == "SUCCESS")
    assert order.effects == 1 and len(order.posts) == 2


def test_pending_is_never_fenced(house):
    order = house.order("jobbelow", Step(202, b"queued", effect=False))
    assert order.send().outcome == "pending"
    until(lambda: order.state == "UNKNOWN", 10)
    assert not [q for q in order.queries if q.method == "POST"]


# ---- when a repeat is safe

def test_no_receipts_and_no_promise_means_no_repeat(house):
    order = house.order("bare", NEVER, Step(201))
    assert (order.send().slug, len(order.posts)) == ("outcome-unknown", 1)


def test_a_callee_that_runs_a_call_once_is_asked_again_at_once(house):
    order = house.order("askedtwice", NEVER, Step(201))
    assert order.send().status == 201
    assert order.posts[1].t - order.posts[0].ended < 1.5  # not resend_after


def test_another_callee_only_after_resend_after(house):
    order = house.order("slow", NEVER, Step(201))
    assert (order.send().status, order.story) == (201, "P?P")
    assert order.posts[1].t - order.posts[0].ended >= 0.7 - TICK


@pytest.mark.parametrize("first", [NEVER, Step(503), Step(421), Step(429)], ids=["rst", "503", "421", "429"])
def test_a_call_without_any_identity_is_sent_once(house, first):
    order = house.order("twice", first, Step(201))
    answer = order.send(None, None)
    assert len(order.posts) == 1 and answer.outcome in ("unknown", "not-executed")
    made = answer.get("X-Call-Id")
    assert answer.get("X-Call-Id-Source") == "gateway"
    assert house.gateway.receipt(made).json()["state"] in ("UNKNOWN", "FAILED")


@pytest.mark.parametrize("identity", [{"key": None}, {"call_id": None}])
def test_either_identity_is_enough(house, identity):
    order = house.order("twice", NEVER, Step(201))
    answer = order.send(**identity)
    assert (answer.status, len(order.posts)) == (201, 2)
    assert len({p.get("X-Call-Id") for p in order.posts}) == 1


def test_nothing_is_sent_again_past_the_upstreams_key_life(house):
    order = house.order("short", NEVER, Step(201))
    assert (order.send().slug, len(order.posts), order.state) == ("outcome-unknown", 1, "UNKNOWN")
    assert order.send().slug == "outcome-unknown" and len(order.posts) == 1


# ---- other sources

@pytest.mark.parametrize("word, state", [("DONE", "SUCCESS"), ("SUCCESS", "SUCCESS")])
def test_foreign_states_are_mapped_and_the_query_has_its_headers(house, word, state):
    order = house.order("mapped", LOST)
    order.receipts(receipt("OPEN", order.call_id), receipt(word, order.call_id))
    assert (order.send().outcome, order.state, order.story) == ("success", state, "P?")
    assert len(order.queries) == 2
    assert order.queries[0].get("X-Api-Key") == "s3cret" and order.queries[0].get("Accept") == "application/json"


def test_the_query_is_made_as_the_route_says(house):
    order = house.order("query", LOST)
    house.upstream.script(f"/ask/{order.call_id}", Step(200, json.dumps({"call_id": order.call_id, "state": "SUCCESS"}),
                                                        effect=False))
    assert order.send().outcome == "success"
    asked = house.upstream.requests(f"/ask/{order.call_id}")
    assert [(q.method, q.target) for q in asked] == [("POST", f"/ask/{order.call_id}?full=1")]
    assert len(order.posts) == 1


def test_a_samekey_below_is_asked_with_method_path_and_since(house):
    order = house.order("below", NEVER, Step(201))
    assert (order.send().status, order.story) == (201, "P?P")
    target = order.queries[0].target
    assert target.startswith(f"/.samekey/receipts/{order.call_id}?")
    assert "method=POST" in target and "path=" in target and "since=" in target
    assert order.posts[1].t - order.posts[0].ended < 1


def test_a_samekey_below_that_does_not_guard_proves_nothing(house):
    order = house.order("below", LOST, Step(201))
    order.receipts(Step(503, json.dumps({"call_id": order.call_id, "state": "UNKNOWN", "reason": "not-guarded"}), effect=False))
    assert (order.send().slug, len(order.posts), order.state) == ("outcome-unknown", 1, "UNKNOWN")


def fenced(call_id, seen):
    if seen.method == "POST":
        return receipt("FAILED", call_id, final=True, reason="fenced")
    return receipt("NOT_RECEIVED", call_id)


def test_not_received_without_a_retry_is_fenced_where_the_callee_can(house):
    order = house.order("belowonce", NEVER, Step(201))
    order.receipts(lambda seen: fenced(order.call_id, seen))
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (409, "call-failed", "failed")
    document = order.receipt().json()
    assert (document["state"], document["final"]) == ("FAILED", True)
    assert [q.method for q in order.queries] == ["GET", "POST"] and order.queries[1].path.endswith("/fence")
    assert len(order.posts) == 1


def test_a_fence_that_is_refused_proves_nothing(house):
    order = house.order("belowonce", NEVER)
    order.receipts(lambda seen: Step(409, json.dumps({"call_id": order.call_id, "state": "PROCESSING"}), effect=False)
                   if seen.method == "POST" else receipt("NOT_RECEIVED", order.call_id))
    assert (order.send().slug, order.state) == ("outcome-unknown", "UNKNOWN")


def test_the_budget_of_retries_bounds_them(house, started, tmp_path):
    small = House(tmp_path, {"tight": {"callee_idempotent": True, "retry_budget": 0, "retry_budget_floor": 2}})
    started.append(small)
    order = small.order("tight", Step(421))
    began = time.monotonic()
    answers = [order.send(unique("c"), unique("k"), body=json.dumps({"n": n})) for n in range(6)]
    seconds = time.monotonic() - began
    assert {a.outcome for a in answers} == {"not-executed"}
    assert 6 <= len(order.posts) <= 6 + 2 + 2 * (seconds + 1)
    assert small.gateway.metric("samekey_retries_denied_total") >= 1
