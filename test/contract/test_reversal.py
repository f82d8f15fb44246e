# SPDX-License-Identifier: MIT
"""Cancelling: before a call, while it runs, after, twice, of a failed one. What undoes an operation is a call of its own,
made at most once however many ask; the key stays bound afterwards."""

import concurrent.futures
import json
import subprocess

import pytest

from support.gateway import BINARY, Gateway, post
from support.orders import Orders
from support.poll import unique, until
from support.webhook import Webhook
from test_compensation import FENCE, MANUAL, RESOLVED, REVERSED, ROUTE, Shop

UNDO = {"reversal": "POST /orders/{json.order_no}/cancel", "rounds": 5}


@pytest.fixture
def open_shop(tmp_path):
    opened = []

    def opener(*arguments, **more):
        opened.append(Shop(tmp_path, *arguments, **{**UNDO, **more}))
        return opened[-1]

    yield opener
    for shop in opened:
        assert shop.close() == 0


def cancel(shop, order):
    return shop.gateway.cancel(order.call_id)


def reversal_of(shop, order):
    return shop.gateway.receipt(order.receipt()["reversed_by"]).json()


def await_reversal(shop, order, state="SUCCESS"):
    """Its document once it says so: another loop may tell of a running call for a moment longer."""
    def says():
        document = reversal_of(shop, order)
        return document if document["state"] == state else None
    return until(says, 30)


def test_a_call_that_took_effect_is_undone_by_a_linked_call(open_shop):
    shop = open_shop()
    order = shop.order()
    assert order.send().status == 201
    answer = cancel(shop, order)
    document = answer.json()
    assert answer.status == 200 and document["state"] == "SUCCESS" and document["reversed_by"]
    reversal = await_reversal(shop, order)
    assert reversal["reverses"] == order.call_id and reversal["call_id"] == document["reversed_by"]
    assert reversal["call_id_source"] == "gateway" and reversal["result"]["status"] == 200
    assert order.counts == (1, 1, 1)
    assert shop.orders.receipt(reversal["call_id"]) == "SUCCESS"  # a receipt of its own, at the service too
    until(lambda: shop.gateway.tasks(reversal["call_id"]) == [(REVERSED,)], 10)
    # The key stays bound, and the callId keeps its ending.
    refused = order.send(call_id=unique("c"))
    assert (refused.status, refused.slug) == (409, "operation-reversed")
    assert refused.json()["safe_new_key"] is False
    again = order.send()
    assert (again.status, again.replayed) == (201, True)
    assert order.counts == (1, 1, 1)
    assert shop.gateway.rows("select count(*) from kept where body is not null") == [(0,)]


def test_asked_for_twice_it_is_one(open_shop):
    shop = open_shop()
    order = shop.order()
    order.send()
    first = cancel(shop, order).json()["reversed_by"]
    assert cancel(shop, order).json()["reversed_by"] == first
    await_reversal(shop, order)
    assert cancel(shop, order).json()["reversed_by"] == first
    assert order.counts == (1, 1, 1)


def test_raced_by_eight_it_is_one(open_shop):
    shop = open_shop()
    order = shop.order()
    order.send()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: cancel(shop, order), range(24)))
    assert {a.status for a in answers} == {200} and len({a.json()["reversed_by"] for a in answers}) == 1
    await_reversal(shop, order)
    assert order.counts == (1, 1, 1)
    assert shop.gateway.rows("select count(*) from call where reverses is not null") == [(1,)]


def test_while_it_runs_the_operation_is_in_progress(open_shop):
    shop = open_shop(attempt_timeout="5s", deadline="20s")
    order = shop.order()
    order.send()
    shop.orders.switch(fault="slow=1500", times=1)
    cancel(shop, order)
    await_reversal(shop, order, "PROCESSING")
    meanwhile = order.send(call_id=unique("c"))
    assert (meanwhile.status, meanwhile.slug) == (409, "operation-in-progress")
    await_reversal(shop, order)
    assert order.send(call_id=unique("c")).slug == "operation-reversed"
    assert order.counts == (1, 1, 1)


def test_a_reversal_whose_reply_is_lost_is_asked_and_not_repeated(open_shop):
    shop = open_shop()
    order = shop.order()
    order.send()
    shop.orders.switch(fault="drop-after-effect", times=1, receipts="down")
    cancel(shop, order)
    await_reversal(shop, order, "UNKNOWN")
    assert order.send(call_id=unique("c")).slug == "operation-in-progress"
    shop.orders.switch(receipts="up")
    await_reversal(shop, order)
    assert order.counts == (1, 1, 1)
    assert shop.gateway.tasks(order.receipt()["reversed_by"]) == [(REVERSED,)]
    assert shop.orders.requests("POST /orders/{x}/cancel") == 1


def test_a_reversal_that_never_came_is_sent_again_when_its_receipt_says_so(open_shop):
    shop = open_shop(resend_after="100ms")
    order = shop.order()
    order.send()
    shop.orders.switch(fault="drop-before-effect", times=1)
    cancel(shop, order)
    await_reversal(shop, order)
    assert order.counts == (1, 1, 1)


def test_a_reversal_the_service_refuses_goes_to_a_person_and_the_effect_stands(open_shop):
    shop = open_shop()
    order = shop.order()
    order.send()
    shop.orders.switch(fault="status=422", times=1)
    cancel(shop, order)
    await_reversal(shop, order, "FAILED")
    until(lambda: shop.gateway.tasks(order.receipt()["reversed_by"]) == [(MANUAL,)], 10)
    attached = order.send(call_id=unique("c"))
    assert (attached.status, attached.replayed) == (201, True)
    assert order.counts == (1, 0, 1)


def test_killed_right_after_the_answer_it_is_done_by_the_next_process(open_shop):
    shop = open_shop()
    order = shop.order()
    order.send()
    shop.orders.switch(fault="slow=400", times=5)
    assert cancel(shop, order).status == 200
    shop.gateway.restart()
    await_reversal(shop, order)
    assert order.counts == (1, 1, 1)


def test_before_the_call_it_is_a_fence(open_shop):
    shop = open_shop()
    order = shop.order()
    answer = cancel(shop, order)
    assert (answer.status, answer.json()["reason"], answer.json()["reversed_by"]) == (200, "fenced", None)
    late = order.send()
    assert (late.status, late.slug) == (409, "call-fenced") and order.counts == (0, 0, 0)


def test_while_the_call_runs_nothing_is_changed(open_shop):
    shop = open_shop(attempt_timeout="5s", deadline="20s")
    order = shop.order()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        sent = pool.submit(order.send, fault="slow-after-effect=1000")
        until(lambda: order.state == "PROCESSING", 10)
        assert cancel(shop, order).status == 409
        assert sent.result().status == 201
    assert order.receipt()["reversed_by"] is None and order.counts == (1, 0, 1)


def test_of_a_failed_or_unknown_call(open_shop):
    shop = open_shop(round_gap="30s", round_gap_max="1h")
    failed, unknown = shop.order(), shop.order()
    assert failed.send(fault="status=400").status == 400
    assert cancel(shop, failed).json()["state"] == "FAILED" and failed.receipt()["reversed_by"] is None
    shop.orders.switch(receipts="down")
    unknown.send(fault="drop-after-effect")
    assert cancel(shop, unknown).status == 409 and unknown.state == "UNKNOWN"


def test_a_shared_effect_is_undone_once_for_all(open_shop):
    shop = open_shop()
    order, second = shop.order(), unique("c")
    order.send()
    assert order.send(call_id=second).replayed
    first = shop.gateway.cancel(second).json()
    await_reversal(shop, order)
    assert first["reversed_by"] == order.receipt()["reversed_by"] and order.counts == (1, 1, 1)


def test_a_route_or_a_request_without_a_reversal(open_shop):
    shop = open_shop(reversal="POST /orders/{json.no_such_member}/cancel")
    order = shop.order()
    order.send()
    answer = cancel(shop, order)
    assert (answer.status, answer.slug) == (409, "reversal-not-available") and order.counts == (1, 0, 1)


def test_a_failed_call_is_fenced_and_undone_where_the_route_says_so(open_shop):
    shop = open_shop(on_failed="compensate", **FENCE)
    order = shop.order()
    assert order.send(fault="status=400").status == 400
    until(lambda: order.receipt()["reversed_by"], 20)
    await_reversal(shop, order, "FAILED")  # there is no such order to cancel
    assert shop.orders.receipt(order.call_id) == "FAILED"


def test_what_a_later_call_did_is_not_undone_for_one_that_failed(open_shop):
    shop = open_shop(on_failed="compensate", round_gap="2s", round_gap_max="2s", **FENCE)
    order = shop.order()
    shop.orders.switch(fault="status=400", times=1)
    assert order.send().status == 400
    assert order.send(call_id=unique("c")).status == 201
    order.await_status(RESOLVED)
    assert order.receipt()["reversed_by"] is None and "another call has its key" in order.rounds()[-1][6]
    assert order.counts == (1, 0, 2) and shop.orders.receipt(order.call_id) == "FAILED"


def test_while_a_failed_call_is_undone_nothing_runs_that_this_might_undo(open_shop):
    shop = open_shop(on_failed="compensate", attempt_timeout="5s", deadline="20s", **FENCE)
    order = shop.order()
    shop.orders.switch(fault="status=400", times=1)
    assert order.send().status == 400
    shop.orders.switch(fault="slow=1500", times=1)
    until(lambda: order.receipt()["reversed_by"], 20)
    assert order.receipt()["safe_new_key"] is False
    assert order.send(call_id=unique("c")).slug == "operation-in-progress"
    await_reversal(shop, order, "FAILED")  # there is nothing to cancel
    assert order.send(call_id=unique("c")).status == 201 and order.counts == (1, 0, 2)


def test_nothing_is_sent_or_answered_under_the_callid_of_a_reversal(open_shop):
    shop = open_shop()
    order = shop.order()
    order.send()
    undo = cancel(shop, order).json()["reversed_by"]
    await_reversal(shop, order)
    for answer in (order.send(call_id=undo), shop.order().send(call_id=undo)):
        assert (answer.status, answer.slug) == (422, "call-id-reused")
    assert order.counts == (1, 1, 1)


def test_that_a_reversal_failed_is_told_although_its_silence_was(open_shop, tmp_path):
    hook = Webhook()
    for name in ("secret", "token"):
        (tmp_path / name).write_text("t0ken-0123456789abcdef", encoding="ascii")
    shop = open_shop(rounds=1, notify=hook.url, top={"notify_secret_file": str(tmp_path / "secret"),
                                                     "report_token_file": str(tmp_path / "token")})
    order = shop.order()
    order.send()
    shop.orders.switch(fault="drop-after-effect", times=1, receipts="down")
    undo = cancel(shop, order).json()["reversed_by"]
    until(lambda: len(hook.came) == 1, 20)
    assert shop.gateway.report(undo, {"state": "FAILED"}, "t0ken-0123456789abcdef").status == 200
    until(lambda: len(hook.came) == 2, 20)
    first, second = (headers["Idempotency-Key"] for headers, _ in hook.came)
    assert second == f"{first}-ended"
    hook.close()


def test_the_command(open_shop):
    shop = open_shop()
    order = shop.order()
    order.send()

    def run():
        return subprocess.run([str(BINARY), "cancel", order.call_id, "--at", f"http://127.0.0.1:{shop.gateway.port}"],
                              capture_output=True, text=True, timeout=20)

    first = run()
    assert first.returncode == 0, first.stdout + first.stderr
    await_reversal(shop, order)
    assert run().returncode == 0 and order.counts == (1, 1, 1)


def test_a_name_with_slashes_stays_one_segment(tmp_path):
    orders = Orders(tmp_path / "orders.db")
    gateway = Gateway(tmp_path, {"orders": {**ROUTE, **UNDO, "upstream": [orders.url]}})
    number, call_id = unique("a/../b ?"), unique("c")
    body = json.dumps({"order_no": number, "amount": "1"})
    assert gateway.send(post("/orders", call_id, unique("k"), body)).status == 201
    gateway.cancel(call_id)
    until(lambda: gateway.receipt(gateway.receipt(call_id).json()["reversed_by"]).json()["state"] == "SUCCESS", 20)
    assert orders.ask("GET", "/effects").json()["cancels"] == {number: 1}
    assert gateway.stop() == 0
    orders.stop()
