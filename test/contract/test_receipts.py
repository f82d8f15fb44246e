# SPDX-License-Identifier: MIT
"""CONTRACT section 4 through the socket: reading receipts, fencing, cancelling and reporting."""

import base64
import json
import re
import threading
import time

import pytest

from support.house import House, Step
from support.poll import unique, until
from support.upstream import receipt

TOKEN = "report-token-for-tests"
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
MEMBERS = {"call_id", "state", "final", "reason", "received", "executed", "key", "route", "business_ref", "trace_id",
           "call_id_source", "attempts", "result", "original_call_id", "reverses", "reversed_by", "proof",
           "safe_new_key", "next_action", "covers_since", "created_at", "updated_at", "expires_at"}
LAG = 2  # a running call's receipt may be 250 ms old


def routes():
    return {
        "plain": {"attempt_timeout": "5s", "deadline": "30s", "receipt": "http GET /receipts/{call_id}"},
        "bare": {},
        "below": {"receipt": "samekey"},
        "refused": {"upstream": ["http://127.0.0.1:1"], "retries": 0},
    }


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("receipts")
    (folder / "token").write_text(TOKEN + "\n", encoding="ascii")
    built = House(folder, routes(), report_token_file=str(folder / "token"), drain="1s")
    yield built
    assert built.close() == 0


@pytest.fixture(scope="module")
def tenants(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tenants")
    (folder / "token").write_text(TOKEN + "\n", encoding="ascii")
    built = House(folder, routes(), tenant="{header.X-Tenant}", credential="{header.X-User}",
                  report_token_file=str(folder / "token"), drain="1s")
    yield built
    assert built.close() == 0


A = {"X-Tenant": "t1", "X-User": "ann"}
B = {"X-Tenant": "t1", "X-User": "bob"}
C = {"X-Tenant": "t2", "X-User": "ann"}


@pytest.fixture
def running(house):
    """An order whose upstream waits for .gate, with its caller's connection open."""
    order = house.order("plain")
    order.gate = threading.Event()
    order.script(Step(201, b"done at last", gate=order.gate))
    order.wire = order.open()
    until(lambda: order.posts)
    yield order
    order.gate.set()
    order.wire.close()


# ---- the document

def test_the_document(house):
    order = house.order("plain", Step(201, b'{"id":9}', {"Content-Type": "application/json", "Location": "/o/9",
                                                       "Set-Cookie": "a=b"}))
    order.send(headers={"X-Business-Ref": "ref 7"})
    answer = order.receipt()
    assert answer.status == 200 and answer.get("Content-Type").startswith("application/json")
    assert answer.all("Cache-Control") == ["no-store"]
    document = answer.json()
    assert set(document) == MEMBERS
    assert {k: document[k] for k in ("call_id", "state", "final", "reason", "received", "executed", "key", "business_ref",
                                     "call_id_source", "original_call_id", "reverses", "reversed_by", "safe_new_key",
                                     "next_action")} == {
        "call_id": order.call_id, "state": "SUCCESS", "final": True, "reason": None, "received": True, "executed": True,
        "key": order.key, "business_ref": "ref 7", "call_id_source": "caller", "original_call_id": None,
        "reverses": None, "reversed_by": None, "safe_new_key": False, "next_action": "none"}
    assert document["route"].split()[0] == "plain" and document["proof"] == "beside"
    assert document["result"] == {"status": 201, "headers": [["content-type", "application/json"], ["location", "/o/9"]],
                                  "body": '{"id":9}', "body_encoding": "utf8"}
    attempt, = document["attempts"]
    assert (attempt["n"], attempt["outcome"]) == (1, "success") and attempt["evidence"]
    for when in (attempt["started_at"], attempt["ended_at"], document["covers_since"], document["created_at"],
                 document["updated_at"], document["expires_at"]):
        assert UTC.fullmatch(when), when
    assert document["covers_since"] <= document["created_at"] <= document["updated_at"] < document["expires_at"]


def test_a_body_that_is_no_text_is_base64(house):
    body = bytes(range(256))
    order = house.order("bare", Step(200, body, {"Content-Type": "application/octet-stream"}))
    order.send()
    result = order.receipt().json()["result"]
    assert result["body_encoding"] == "base64" and base64.b64decode(result["body"]) == body
    assert order.receipt().json()["proof"] == "none"


def test_head_is_get_without_the_body(house):
    order = house.order("plain", Step())
    order.send()
    for call_id in (order.call_id, unique("never")):
        get = house.gateway.receipt(call_id)
        head = house.gateway.ask("HEAD", f"/.samekey/receipts/{call_id}")
        assert head.status == get.status and head.body == b""
        assert {k.lower() for k, _ in head.headers} >= {"content-type", "cache-control"}


def test_not_received_is_404_with_a_document(house):
    call_id = unique("never")
    answer = house.gateway.receipt(call_id)
    assert answer.status == 404 and answer.all("Cache-Control") == ["no-store"]
    document = answer.json()
    assert (document["call_id"], document["state"], document["final"], document["received"]) == \
        (call_id, "NOT_RECEIVED", False, False)
    assert document["executed"] is False and document["safe_new_key"] is False
    assert UTC.fullmatch(document["covers_since"])
    assert document["next_action"] in ("retry_same_call", "query_receipt", "wait", "none")


def test_other_methods_are_told_so(house):
    for method in ("DELETE", "PATCH", "POST"):
        answer = house.gateway.ask(method, f"/.samekey/receipts/{unique('c')}")
        assert answer.status == 405 and answer.outcome == "rejected" and answer.get("Allow") == "GET, HEAD, PUT"
    answer = house.gateway.ask("GET", f"/.samekey/receipts/{unique('c')}/fence")
    assert answer.status == 405 and answer.get("Allow") == "POST"


def test_a_bad_call_id_is_refused(house):
    answer = house.gateway.receipt("a%20b")
    assert answer.status == 400 and answer.slug == "call-id-invalid"


def test_reading_calls_no_upstream(house):
    order = house.order("plain", Step(then="rst"))
    order.receipts(Step(503, b""))
    order.send()
    asked = len(order.queries)
    for _ in range(20):
        assert order.state == "UNKNOWN"
    assert len(order.queries) == asked


def test_every_state_says_what_to_do(house, running):
    document = running.receipt().json()
    assert (document["state"], document["final"], document["received"], document["executed"]) == ("PROCESSING", False, True, None)
    assert document["next_action"] in ("wait", "query_receipt") and document["safe_new_key"] is False
    assert document["result"] is None
    lost = house.order("bare", Step(then="rst"))
    lost.send()
    document = lost.receipt().json()
    assert (document["state"], document["executed"], document["safe_new_key"]) == ("UNKNOWN", None, False)
    assert document["next_action"] in ("query_receipt", "retry_same_call", "ask_operator")
    wrong = house.order("bare", Step(400))
    wrong.send()
    document = wrong.receipt().json()
    assert (document["state"], document["final"], document["executed"], document["reason"]) == ("FAILED", True, False, "rejected")
    assert (document["next_action"], document["safe_new_key"]) == ("fix_request", True)
    refused = house.order("refused")
    refused.send()
    document = refused.receipt().json()
    assert (document["state"], document["final"], document["next_action"]) == ("FAILED", False, "retry_same_call")


def test_safe_new_key_is_worked_out_over_the_whole_operation(house):
    order = house.order("bare", Step(400), Step(201))
    assert order.send().outcome == "rejected"
    assert order.receipt().json()["safe_new_key"] is True
    second = unique("c")
    assert order.send(second).status == 201
    # The first call is FAILED for good, but its key has taken effect by another.
    document = order.receipt().json()
    assert (document["state"], document["final"], document["safe_new_key"]) == ("FAILED", True, False)


def test_a_shared_result_names_the_call_it_is_from(house):
    order = house.order("bare", Step(201, b"one"))
    order.send()
    other = unique("c")
    assert order.send(other).get("X-Original-Call-Id") == order.call_id
    document = house.gateway.receipt(other).json()
    assert (document["state"], document["final"], document["original_call_id"]) == ("SUCCESS", True, order.call_id)
    assert document["executed"] is True and document["call_id"] == other


# ---- waiting for an ending

def test_wait_returns_at_the_ending(house, running):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(running.receipt("?wait=20s")))
    thread.start()
    began = time.monotonic()
    thread.join(0.2)
    assert not answers
    running.gate.set()
    thread.join(10)
    assert answers[0].json()["state"] == "SUCCESS" and time.monotonic() - began < 5


def test_wait_returns_when_its_time_is_over(house, running):
    began = time.monotonic()
    assert running.receipt("?wait=300ms").json()["state"] == "PROCESSING"
    assert 0.29 <= time.monotonic() - began < 5


def test_wait_on_an_ended_call_returns_at_once(house):
    order = house.order("plain", Step())
    order.send()
    began = time.monotonic()
    assert order.receipt("?wait=30s").json()["state"] == "SUCCESS"
    assert time.monotonic() - began < 5


# ---- tenants and credentials

def test_another_tenants_receipt_is_like_none(tenants):
    order = tenants.order("plain", Step())
    assert order.send(headers=A).status == 201
    never = unique("c")
    known, none = order.receipt(headers=C), tenants.gateway.receipt(never, headers=C)
    assert known.status == none.status == 404
    assert [k for k, _ in known.headers] == [k for k, _ in none.headers]
    assert json.loads(known.body.replace(order.call_id.encode(), b"X")) == json.loads(none.body.replace(never.encode(), b"X"))
    assert order.receipt(headers=A).status == 200


def test_another_credential_of_the_tenant_is_told_so(tenants):
    order = tenants.order("plain", Step(201, b"secret of ann"))
    assert order.send(headers=A).status == 201
    for answer in (order.receipt(headers=B), tenants.gateway.fence(order.call_id, B), tenants.gateway.cancel(order.call_id, B),
                   order.send(headers=B)):
        assert (answer.status, answer.slug, answer.outcome) == (409, "credential-mismatch", "unknown")
        assert b"secret" not in answer.body and answer.json()["safe_new_key"] is False
    assert len(order.posts) == 1


def test_another_credential_cannot_fence_what_is_to_come(tenants):
    order = tenants.order("plain", Step())
    assert tenants.gateway.fence(order.call_id, B).status == 200
    # Whose fence it is counts: for ann the id is another's.
    answer = order.send(headers=A)
    assert answer.status == 409 and not order.posts


def test_a_credential_alone_is_the_tenant(tmp_path, started):
    house = House(tmp_path, {"plain": {}}, credential="{header.X-User}")
    started.append(house)
    first, second = house.order("plain", Step()), house.order("plain", Step())
    assert first.send("one-id", headers={"X-User": "ann"}).status == 201
    assert second.send("one-id", headers={"X-User": "bob"}).status == 201
    assert house.gateway.receipt("one-id", headers={"X-User": "eve"}).status == 404
    assert house.gateway.receipt("one-id", headers={"X-User": "bob"}).status == 200


# ---- beyond what is kept

OLD = "ord-1500000000000-abcdef123456-node01"


@pytest.mark.parametrize("call_id, query", [(OLD, ""), ("plain-id", "?since=2017-07-14T02:40:00Z")])
def test_what_may_have_been_forgotten_is_not_denied(house, call_id, query):
    answer = house.gateway.receipt(call_id, query)
    assert answer.status == 410
    document = answer.json()
    assert (document["state"], document["reason"], document["safe_new_key"]) == ("UNKNOWN", "beyond-retention", False)
    assert UTC.fullmatch(document["covers_since"])


def test_a_call_from_before_is_not_run(house):
    order = house.order("plain", Step())
    answer = order.send(OLD)
    assert (answer.status, answer.slug, answer.outcome) == (409, "outcome-unknown", "unknown")
    assert not order.posts


def test_since_after_the_beginning_is_answered(house):
    call_id = unique("never")
    covers = house.gateway.receipt(call_id).json()["covers_since"]
    assert house.gateway.receipt(call_id, f"?since={covers}").status == 404


# ---- what a gateway does not guard

def test_the_asker_of_another_samekey_is_told_when_a_path_is_not_guarded(house):
    for query in ("?method=GET&path=/plain/x", "?method=POST&path=/nowhere"):
        answer = house.gateway.receipt(unique("c"), query)
        assert answer.status == 503
        document = answer.json()
        assert (document["state"], document["reason"], document["safe_new_key"]) == ("UNKNOWN", "not-guarded", False)
    assert house.gateway.receipt(unique("c"), "?method=POST&path=/plain/x").status == 404


# ---- fence

def test_a_fence_on_nothing_holds_for_what_comes_later(house):
    order = house.order("plain", Step())
    answer = house.gateway.fence(order.call_id)
    assert answer.status == 200
    document = answer.json()
    assert (document["state"], document["final"], document["reason"]) == ("FAILED", True, "fenced")
    assert document["safe_new_key"] is False  # its key is not known
    late = order.send()
    assert (late.status, late.slug, late.outcome) == (409, "call-fenced", "rejected") and not order.posts
    assert house.gateway.fence(order.call_id).json()["state"] == "FAILED"
    # The key is free for another call.
    assert order.send(unique("c")).status == 201


def test_a_fence_that_names_its_key_knows_whether_a_new_one_is_safe(house):
    order = house.order("plain", Step())
    route = json.dumps({"route": "plain", "key": order.key})
    answer = house.gateway.fence(order.call_id, {"Content-Type": "application/json"}, route)
    assert answer.status == 200 and answer.json()["safe_new_key"] is True
    order.send(unique("c"))
    assert house.gateway.receipt(order.call_id).json()["safe_new_key"] is False


def test_a_fence_on_what_never_ran(house):
    order = house.order("refused")
    assert order.send().outcome == "not-executed"
    document = house.gateway.fence(order.call_id).json()
    assert (document["state"], document["final"], document["reason"]) == ("FAILED", True, "fenced")
    assert order.send().slug == "call-fenced"


@pytest.mark.parametrize("status, state", [(201, "SUCCESS"), (400, "FAILED")])
@pytest.mark.parametrize("what", ["fence", "cancel"])
def test_a_fence_on_an_ended_call_changes_nothing(house, status, state, what):
    order = house.order("plain", Step(status))
    order.send()
    answer = getattr(house.gateway, what)(order.call_id)
    if (what, state) == ("cancel", "SUCCESS"):
        assert answer.status == 409  # until reversals exist
    else:
        assert answer.status == 200 and answer.json()["state"] == state
    document = order.receipt().json()
    assert document["state"] == state and document["reason"] != "fenced" and order.send().replayed


@pytest.mark.parametrize("what", ["fence", "cancel"])
def test_a_fence_on_a_running_call_is_refused(house, running, what):
    answer = getattr(house.gateway, what)(running.call_id)
    assert answer.status == 409
    assert running.state == "PROCESSING"
    running.gate.set()
    assert running.wire.answer().body == b"done at last"
    until(lambda: running.state == "SUCCESS", LAG)


@pytest.mark.parametrize("what", ["fence", "cancel"])
def test_a_fence_on_an_unknown_call_is_refused(house, what):
    order = house.order("bare", Step(then="rst"))
    order.send()
    assert getattr(house.gateway, what)(order.call_id).status == 409
    assert order.state == "UNKNOWN"


def test_cancel_on_nothing_is_a_fence(house):
    order = house.order("plain", Step())
    answer = house.gateway.cancel(order.call_id)
    assert answer.status == 200 and answer.json()["reason"] == "fenced"
    assert order.send().slug == "call-fenced" and not order.posts


# ---- reports

def accepted(house, headers=None):
    order = house.order("plain", Step(202, b"queued", effect=False))
    order.receipts(receipt("PROCESSING", order.call_id))
    assert order.send(headers=headers or {}).outcome == "pending"
    return order


def test_a_report_ends_an_accepted_call(house):
    order = accepted(house)
    document = {"state": "SUCCESS", "result": {"status": 201, "headers": [["content-type", "text/plain"]],
                                               "body": "made", "body_encoding": "utf8"}}
    answer = house.gateway.report(order.call_id, document, TOKEN)
    assert answer.status == 200 and answer.json()["state"] == "SUCCESS"
    again = order.send()
    assert (again.status, again.body, again.outcome, again.replayed) == (201, b"made", "success", True)
    # The same word again is no contradiction.
    assert house.gateway.report(order.call_id, document, TOKEN).status == 200


def test_a_report_of_failure(house):
    order = accepted(house)
    assert house.gateway.report(order.call_id, {"state": "FAILED"}, TOKEN).status == 200
    document = order.receipt().json()
    assert (document["state"], document["final"], document["reason"]) == ("FAILED", True, "reported")
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (409, "call-failed", "failed")


def test_a_report_settles_an_unknown_call(house):
    order = house.order("bare", Step(then="rst"))
    order.send()
    assert house.gateway.report(order.call_id, {"state": "SUCCESS"}, TOKEN).status == 200
    assert order.state == "SUCCESS" and order.send().status == 200 and len(order.posts) == 1


def test_a_report_wakes_those_who_wait(house):
    order = accepted(house)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(order.receipt("?wait=20s")))
    thread.start()
    thread.join(0.1)
    house.gateway.report(order.call_id, {"state": "SUCCESS"}, TOKEN)
    thread.join(10)
    assert answers[0].json()["state"] == "SUCCESS"


@pytest.mark.parametrize("token", [None, "wrong-token-for-tests"])
def test_a_report_needs_the_token(house, token):
    order = accepted(house)
    answer = house.gateway.report(order.call_id, {"state": "SUCCESS"}, token)
    assert answer.status == 401 and order.state == "PROCESSING"


def test_without_a_token_file_no_report_is_taken(tmp_path, started):
    house = House(tmp_path, routes(), drain="1s")
    started.append(house)
    order = accepted(house)
    for token in (None, "", TOKEN):
        assert house.gateway.report(order.call_id, {"state": "SUCCESS"}, token).status in (401, 403)
    assert order.state == "PROCESSING"


@pytest.mark.parametrize("document", [{"state": "PROCESSING"}, {"state": "success"}, {}, [], {"state": "SUCCESS", "result": 7}])
def test_a_report_that_says_no_ending_is_refused(house, document):
    order = accepted(house)
    assert house.gateway.report(order.call_id, document, TOKEN).status == 400
    assert order.state == "PROCESSING"


def test_a_contradiction_changes_nothing_and_becomes_a_task(house):
    order = house.order("plain", Step(201, b"as it was"))
    order.send()
    answer = house.gateway.report(order.call_id, {"state": "FAILED"}, TOKEN)
    assert answer.status == 409 and answer.slug == "report-contradicts" and answer.json()["state"] == "SUCCESS"
    assert order.state == "SUCCESS" and order.send().body == b"as it was"
    assert len(house.gateway.tasks(order.call_id)) == 1


def test_an_id_of_two_tenants_must_be_told_apart(tenants):
    call_id = unique("both")
    for headers in (A, C):
        order = tenants.order("plain", Step(202, b"", effect=False))
        tenants.upstream.answer_receipt(call_id, receipt("PROCESSING", call_id))
        assert order.send(call_id, headers=headers).outcome == "pending"
    answer = tenants.gateway.report(call_id, {"state": "SUCCESS"}, TOKEN)
    assert answer.status == 409
    assert {tenants.gateway.state(call_id, headers) for headers in (A, C)} == {"PROCESSING"}
    assert tenants.gateway.report(call_id, {"state": "SUCCESS"}, TOKEN, "?tenant=t2").status == 200
    until(lambda: tenants.gateway.state(call_id, C) == "SUCCESS", LAG)
    assert tenants.gateway.state(call_id, A) == "PROCESSING"


def test_receipts_survive_a_restart(tmp_path, started):
    house = House(tmp_path, routes())
    started.append(house)
    orders = [house.order("bare", Step(201, b"one")), house.order("bare", Step(400, b"two")), house.order("bare", Step(then="rst"))]
    for order in orders:
        order.send()
    before = [order.receipt().json() for order in orders]
    house.gateway.restart()
    assert [order.receipt().json() for order in orders] == before
    assert [order.send().replayed for order in orders] == [True, True, False]
