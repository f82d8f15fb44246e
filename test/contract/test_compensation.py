# SPDX-License-Identifier: MIT
"""CONTRACT section 6 in front of the sample service: a call that ended UNKNOWN is asked about in rounds, settled by the
service's word or by a fence there, and handed to a person when the rounds are used up. Nothing is sent twice."""

import hashlib
import hmac
import json
import sqlite3
import stat

import pytest

from support.gateway import Gateway, post
from support.orders import Orders
from support.poll import unique, until
from support.upstream import Step, Upstream, receipt
from support.webhook import Webhook

PENDING, RUNNING, RESOLVED, REVERSED, MANUAL, CLOSED = range(6)
ROUTE = {"path": ["/orders"], "key_missing": "refuse", "receipt": "http GET /receipts/{call_id}", "retries": 0,
         "receipt_queries": 1, "attempt_timeout": "400ms", "rounds": 3, "round_gap": "100ms", "round_gap_max": "400ms"}
FENCE = {"receipt_fence": "POST /receipts/{call_id}/fence"}


class Shop:
    """The sample service with a gateway in front."""

    def __init__(self, folder, options=(), top=None, **route):
        self.orders = Orders(folder / "orders.db", *options)
        self.gateway = Gateway(folder, {"orders": {**ROUTE, "upstream": [self.orders.url], **route}}, **(top or {}))

    def order(self, **headers):
        return Purchase(self, headers)

    def close(self):
        code = self.gateway.stop()
        self.orders.stop()
        return code


class Purchase:
    def __init__(self, shop, headers):
        self.shop, self.headers = shop, headers
        self.number, self.call_id, self.key = unique("n"), unique("c"), unique("k")

    def send(self, call_id=None, fault=None):
        headers = {**self.headers, **({"X-Orders-Fault": fault} if fault else {})}
        body = json.dumps({"order_no": self.number, "amount": "12.50"})
        return self.shop.gateway.send(post("/orders", call_id or self.call_id, self.key, body, headers=headers))

    def receipt(self):
        return self.shop.gateway.receipt(self.call_id).json()

    @property
    def state(self):
        return self.receipt()["state"]

    @property
    def counts(self):
        return self.shop.orders.counts(self.number)

    def task(self):
        """Status and round, or None."""
        rows = self.shop.gateway.rows("select t.status, t.round from compensation t join call c on c.id = t.call"
                                      " where c.call_id = ?", self.call_id)
        return rows[0] if rows else None

    def rounds(self):
        return self.shop.gateway.rows(
            "select n, asked, answer, ours, difference, decision, evidence from compensation_round r"
            " join compensation t on t.id = r.task join call c on c.id = t.call where c.call_id = ? order by n", self.call_id)

    def await_status(self, status, seconds=20):
        return until(lambda: (self.task() or (None,))[0] == status, seconds)


@pytest.fixture
def open_shop(tmp_path):
    opened = []

    def opener(*arguments, **more):
        opened.append(Shop(tmp_path, *arguments, **more))
        return opened[-1]

    yield opener
    for shop in opened:
        assert shop.close() == 0


def test_a_reply_lost_after_the_effect_is_found_by_a_later_round(open_shop):
    shop = open_shop(rounds=5)
    order = shop.order()
    shop.orders.switch(receipts="down")
    asked = shop.orders.requests("GET /receipts/{x}")
    assert order.send(fault="drop-after-effect").slug == "outcome-unknown"
    until(lambda: len(order.rounds()) >= 2, 20)
    assert order.state == "UNKNOWN"
    shop.orders.switch(receipts="up")
    order.await_status(RESOLVED)
    assert order.state == "SUCCESS" and order.counts == (1, 0, 1)
    assert shop.orders.requests("GET /receipts/{x}") > asked + 2
    answer = order.send()
    assert (answer.status, answer.replayed) == (201, True) and order.counts == (1, 0, 1)
    rows = order.rounds()
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert {row[2] for row in rows[:-1]} == {"query_failed"} and rows[-1][2] == "success"
    assert rows[-1][4] == "our record says UNKNOWN, the callee SUCCESS" and rows[-1][5] == "settle"
    until(lambda: shop.gateway.metric("samekey_compensations_open") == 0, 15)


def test_what_never_arrived_is_fenced_and_its_late_original_is_refused(open_shop):
    shop = open_shop(**FENCE)
    order = shop.order()
    shop.orders.switch(receipts="down")
    assert order.send(fault="drop-before-effect").slug == "outcome-unknown"
    shop.orders.switch(receipts="up")
    order.await_status(RESOLVED)
    document = order.receipt()
    assert (document["state"], document["final"], document["reason"]) == ("FAILED", True, "fenced_at_callee")
    assert document["safe_new_key"] is True
    assert shop.orders.receipt(order.call_id) == "FAILED"
    assert order.rounds()[-1][1] == "ask, fence" and order.rounds()[-1][5] == "settle"
    # The late original, which the network had kept, reaches the service only now.
    late = shop.orders.ask("POST", "/orders", {"order_no": order.number, "amount": "12.50"}, **{"X-Call-Id": order.call_id})
    assert late.status == 409 and order.counts[0] == 0
    assert order.send().slug == "call-failed"  # the callId has its ending
    assert order.send(call_id=unique("c")).status == 201 and order.counts[0] == 1


def test_a_callee_that_cannot_fence_never_gives_failed(open_shop):
    shop = open_shop(options=("--no-fence",))
    order = shop.order()
    assert order.send(fault="drop-before-effect").slug == "outcome-unknown"
    order.await_status(MANUAL)
    assert order.state == "UNKNOWN" and order.counts == (0, 0, 1)
    rows = order.rounds()
    assert [row[0] for row in rows] == [1, 2, 3] and {row[2] for row in rows} == {"not_received"}
    assert rows[-1][5] == "manual"
    assert order.send(call_id=unique("c")).slug == "outcome-unknown"  # nobody runs it beside


def test_a_fence_that_the_callee_does_not_know_is_no_fence(open_shop):
    shop = open_shop(options=("--no-fence",), **FENCE)
    order = shop.order()
    order.send(fault="drop-before-effect")
    order.await_status(MANUAL)
    assert order.state == "UNKNOWN" and {row[1] for row in order.rounds()} == {"ask, fence"}


def signed(secret, headers, body):
    parts = dict(part.split("=", 1) for part in headers["X-Samekey-Signature"].split(","))
    good = hmac.new(secret, f"{parts['t']}.".encode() + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(good, parts["v1"])


def test_a_receipt_that_never_answers_goes_to_a_person_who_is_told_once(open_shop, tmp_path):
    hook = Webhook()
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123\n", encoding="ascii")
    shop = open_shop(top={"notify_secret_file": str(secret)}, notify=hook.url)
    order = shop.order()
    shop.orders.switch(receipts="hang")
    assert order.send(fault="drop-after-effect").slug == "outcome-unknown"
    order.await_status(MANUAL)
    until(lambda: hook.came, 15)
    rows = order.rounds()
    assert len(rows) == 3 and order.task() == (MANUAL, 3)
    headers, body = hook.came[0]
    assert signed(b"0123456789abcdef0123", headers, body) and headers["Content-Type"] == "application/json"
    document = json.loads(body)
    assert document["event"] == "compensation.manual"
    assert document["call"]["call_id"] == order.call_id and document["call"]["state"] == "UNKNOWN"
    assert document["task"]["round"] == 3 and document["call"]["key"] == order.key
    assert order.counts == (1, 0, 1)
    until(lambda: shop.gateway.rows("select tell from compensation")[0][0] == 2, 10)
    shop.gateway.restart()
    until(lambda: shop.gateway.metric("samekey_compensations_open", status="MANUAL") == 1, 15)
    assert len(hook.came) == 1 and len(order.rounds()) == 3 and order.counts == (1, 0, 1)
    hook.close()


def test_a_receiver_that_fails_is_told_again_under_the_same_key(open_shop, tmp_path):
    hook = Webhook([503, 500, 200])
    secret = tmp_path / "secret"
    secret.write_text("x" * 20, encoding="ascii")
    shop = open_shop(options=("--no-fence",), top={"notify_secret_file": str(secret)}, notify=hook.url, rounds=1)
    shop.order().send(fault="drop-before-effect")
    until(lambda: len(hook.came) == 3, 30)
    assert len({headers["Idempotency-Key"] for headers, _ in hook.came}) == 1
    until(lambda: shop.gateway.rows("select tell, tell_tries from compensation") == [(2, 3)], 10)
    assert shop.gateway.metric("samekey_notifications_failed_total") == 2
    hook.close()


def test_who_was_not_told_before_the_process_died_is_told_by_the_next(open_shop, tmp_path):
    hook = Webhook()
    secret = tmp_path / "secret"
    secret.write_text("x" * 20, encoding="ascii")
    shop = open_shop(options=("--no-fence",), rounds=1)
    order = shop.order()
    order.send(fault="drop-before-effect")
    order.await_status(MANUAL)
    shop.gateway.kill()
    with sqlite3.connect(shop.gateway.store) as db:  # as if it had died before anybody was told
        db.execute("update compensation set tell = 1, tell_due_ms = 0")
    shop.gateway.top["notify_secret_file"] = str(secret)
    shop.gateway.routes["orders"]["notify"] = hook.url
    shop.gateway.start()
    until(lambda: hook.came, 20)
    assert json.loads(hook.came[0][1])["call"]["call_id"] == order.call_id
    hook.close()


def test_a_command_gets_the_task_on_its_standard_input(open_shop, tmp_path):
    told = tmp_path / "told.json"
    command = tmp_path / "tell.sh"
    command.write_text(f"#!/bin/sh\ncat > {told}.tmp && mv {told}.tmp {told}\n", encoding="ascii")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    shop = open_shop(options=("--no-fence",), notify=f"command {command}", rounds=1)
    order = shop.order()
    order.send(fault="drop-before-effect")
    until(told.exists, 20)
    assert json.loads(told.read_text(encoding="utf-8"))["call"]["call_id"] == order.call_id
    until(lambda: shop.gateway.metric("samekey_notifications_total") == 1, 10)


def run_one_more(shop, order):
    task = shop.gateway.rows("select t.id from compensation t join call c on c.id = t.call where c.call_id = ?", order.call_id)
    return shop.gateway.admin("POST", f"/v1/compensations/{task[0][0]}/run", {"Content-Type": "application/json"},
                              b'{"operator":"mei"}')


def test_a_round_that_a_person_asks_for_is_done_although_the_route_gives_fewer_now(open_shop):
    shop = open_shop(options=("--no-fence",), rounds=3)
    order = shop.order()
    order.send(fault="drop-before-effect")
    order.await_status(MANUAL)
    shop.gateway.routes["orders"]["rounds"] = 1
    shop.gateway.restart()
    for done in (4, 5):
        assert run_one_more(shop, order).status == 200
        until(lambda done=done: order.task() == (MANUAL, done), 20)
    assert [(row[1], row[2]) for row in order.rounds()] == [("ask", "not_received")] * 5


def test_a_round_that_a_person_asks_for_is_done_after_a_last_one_that_was_cut_short(open_shop):
    shop = open_shop(options=("--no-fence",), rounds=1, receipt_timeout="5s", deadline="20s")
    order = shop.order()
    shop.orders.switch(receipts="down")
    order.send(fault="drop-after-effect")
    shop.orders.switch(receipts="hang")
    until(lambda: (order.task() or (0,))[0] == RUNNING, 20)
    shop.gateway.kill()
    shop.orders.switch(receipts="up")
    shop.gateway.start()
    order.await_status(MANUAL)
    assert order.state == "UNKNOWN"
    assert run_one_more(shop, order).status == 200
    order.await_status(RESOLVED)
    assert order.state == "SUCCESS" and order.counts == (1, 0, 1)


def test_what_a_command_writes_is_no_part_of_the_log_and_says_why_it_failed(open_shop, tmp_path):
    command = tmp_path / "tell.sh"
    command.write_text("#!/bin/sh\nprintf 'no pager\\377' >&2\nhead -c 300000 /dev/zero >&2\nhead -c 300000 /dev/zero\nexit 1\n",
                       encoding="ascii")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    shop = open_shop(options=("--no-fence",), notify=f"command {command}", rounds=1)
    shop.order().send(fault="drop-before-effect")
    failed = until(lambda: [e for e in list(shop.gateway.log) if e.get("event") == "notification_failed"], 20)
    assert failed[0]["why"].startswith("it ended with status 1: no pager")
    assert not [line for line in shop.gateway.noise if "\0" in line or "pager" in line]


def test_a_command_that_hangs_is_killed_with_what_it_started(open_shop, tmp_path):
    command, started = tmp_path / "tell.sh", tmp_path / "started"
    command.write_text(f"#!/bin/sh\nsleep 300 &\necho $! > {started}\nwait\n", encoding="ascii")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    shop = open_shop(options=("--no-fence",), notify=f"command {command}", rounds=1)
    shop.order().send(fault="drop-before-effect")
    until(lambda: [e for e in list(shop.gateway.log) if e.get("event") == "notification_failed"], 30)
    assert shop.order().send().status == 201  # meanwhile nobody waited for it

    def gone():
        try:
            with open(f"/proc/{int(started.read_text(encoding='ascii'))}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0] in "ZX"
        except FileNotFoundError:
            return True
    until(gone, 5)


def test_a_call_still_wanted_is_sent_again_in_each_round_that_hears_it_never_came(open_shop):
    shop = open_shop(still_wanted=True, resend_after="100ms")
    order = shop.order()
    shop.orders.switch(receipts="down")
    order.send(fault="drop-before-effect")  # the header is part of the request: whenever it is sent, it is lost
    assert order.state == "UNKNOWN"
    assert shop.gateway.rows("select count(*) from kept where body is not null") == [(1,)]
    shop.orders.switch(receipts="up")
    order.await_status(MANUAL)
    assert order.state == "UNKNOWN" and order.counts[0] == 0
    sent = [row[1] for row in order.rounds() if "send again" in row[1]]
    assert 1 <= len(sent) <= 3 and order.counts[2] == 1 + len(sent)


def test_a_call_not_wanted_any_more_is_never_sent_again(open_shop):
    shop = open_shop()
    order = shop.order()
    order.send(fault="drop-before-effect")
    assert shop.gateway.rows("select count(*) from kept") == [(0,)]
    order.await_status(MANUAL)
    assert order.counts == (0, 0, 1)


def test_a_repeat_that_takes_effect_settles_the_call(open_shop):
    shop = open_shop(still_wanted=True, resend_after="100ms")
    order = shop.order()
    shop.orders.switch(fault="drop-before-effect", times=1, receipts="down")
    assert order.send().slug == "outcome-unknown"
    shop.orders.switch(receipts="up")
    order.await_status(RESOLVED)
    assert order.state == "SUCCESS" and order.counts == (1, 0, 2)
    answer = order.send()
    assert (answer.status, answer.replayed) == (201, True)
    attempts = order.receipt()["attempts"]
    assert [attempt["n"] for attempt in attempts] == [1, 2] and attempts[1]["outcome"] == "success"
    assert shop.gateway.rows("select count(*) from kept") == [(0,)]  # settled: nothing of it is kept


def test_killed_between_rounds_the_count_goes_on(open_shop):
    shop = open_shop(round_gap="300ms")
    order = shop.order()
    shop.orders.switch(receipts="down")
    order.send(fault="drop-after-effect")
    until(lambda: len(order.rounds()) == 1, 20)
    shop.gateway.restart()
    order.await_status(MANUAL)
    rows = order.rounds()
    assert [row[0] for row in rows] == [1, 2, 3] and order.counts == (1, 0, 1)


def test_killed_during_a_round_the_count_goes_on_and_nothing_is_twice(open_shop):
    shop = open_shop(receipt_timeout="5s", deadline="20s")
    order = shop.order()
    shop.orders.switch(receipts="down")
    order.send(fault="drop-after-effect")
    shop.orders.switch(receipts="hang")
    until(lambda: (order.task() or (0,))[0] == RUNNING, 20)
    shop.gateway.kill()
    shop.orders.switch(receipts="up")
    shop.gateway.start()
    order.await_status(RESOLVED)
    rows = order.rounds()
    assert "interrupted" in {row[2] for row in rows} and rows[-1][2] == "success"
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert order.state == "SUCCESS" and order.counts == (1, 0, 1)


def test_an_accepted_call_is_not_fenced_on_not_received(tmp_path):
    upstream = Upstream()
    path, call_id = "/q/1", unique("c")
    gateway = Gateway(tmp_path, {"q": {"upstream": [upstream.url], "receipt": "http GET /receipts/{call_id}", **FENCE,
                                       "rounds": 1, "round_gap": "100ms", "retries": 0, "deadline": "1s",
                                       "attempt_timeout": "300ms"}})
    upstream.script(path, Step(202, b"{}"))
    upstream.answer_receipt(call_id, receipt("NOT_RECEIVED", call_id))
    gateway.send(post(path, call_id, unique("k"), b"{}"))
    until(lambda: gateway.tasks(call_id) == [(MANUAL,)], 20)
    assert gateway.state(call_id) == "UNKNOWN"
    assert not [seen for seen in upstream.queries(call_id) if seen.target.endswith("/fence")]
    assert gateway.stop() == 0
    upstream.close()


def test_a_report_that_contradicts_is_asked_about_and_goes_to_a_person(tmp_path):
    upstream = Upstream()
    token = tmp_path / "token"
    token.write_text("t0ken-0123456789abcdef", encoding="ascii")
    gateway = Gateway(tmp_path, {"q": {"upstream": [upstream.url], "receipt": "http GET /receipts/{call_id}",
                                       "retries": 0}}, report_token_file=str(token))
    for says, status in (("SUCCESS", RESOLVED), ("FAILED", MANUAL)):
        path, call_id = f"/q/{says}", unique("c")
        upstream.answer_receipt(call_id, receipt(says, call_id))
        gateway.send(post(path, call_id, unique("k"), b"{}"))
        assert gateway.state(call_id) == "SUCCESS"
        assert gateway.report(call_id, {"state": "FAILED"}, "t0ken-0123456789abcdef").status == 409
        until(lambda: gateway.tasks(call_id) == [(status,)], 20)
        assert gateway.state(call_id) == "SUCCESS"
    assert gateway.stop() == 0
    upstream.close()


def test_a_failed_call_is_compensated_where_the_route_says_so(open_shop):
    shop = open_shop(on_failed="compensate", **FENCE)
    order = shop.order()
    assert order.send(fault="status=400").status == 400
    order.await_status(RESOLVED)
    assert order.state == "FAILED" and shop.orders.receipt(order.call_id) == "FAILED"
    assert [row[1] for row in order.rounds()] == ["ask, fence"]


def test_a_callers_own_repeat_resolves_the_task(open_shop):
    shop = open_shop(round_gap="30s", round_gap_max="1h")
    order = shop.order()
    shop.orders.switch(receipts="down")
    order.send(fault="drop-after-effect")
    assert order.task()[0] == PENDING
    shop.orders.switch(receipts="up")
    assert order.send().status == 201
    assert order.task()[0] == RESOLVED and not order.rounds() and order.counts == (1, 0, 1)


def test_settings_that_cannot_work_are_refused(tmp_path):
    for settings, words in (({"reversal": "cancel it"}, "reversal"), ({"notify": "mail me"}, "notify"),
                            ({"receipt_fence": "GET /x"}, "receipt_fence"),
                            ({"notify": "https://example.org/hook"}, "notify_secret_file")):
        gateway = Gateway(tmp_path / unique("g"), {"a": {"upstream": ["http://127.0.0.1:9"], **settings}}, start=False)
        gateway.start(wait=False)
        assert gateway.wait() == 78
        assert any(words in line for line in gateway.said()), gateway.said()


@pytest.fixture
def asked_later(tmp_path):
    """A call of tenant t1 and user ann whose receipt cannot be had until its rounds, in a gateway with such headers: its
    callId, the service, and a wait for a status that gives the questions of the rounds."""
    upstream, gateways = Upstream(), []

    def begin(answer, top=None, **route):
        route = {**ROUTE, "upstream": [upstream.url], "receipt_header": ["X-Asked: by a gateway"], "rounds": 4, **route}
        gateway = Gateway(tmp_path, {"orders": route}, **(top or {"tenant": "{header.X-Tenant}"}))
        gateways.append(gateway)
        call_id = unique("c")
        begin.upstream, begin.gateway, begin.call_id = upstream, gateway, call_id
        upstream.script("/orders", Step(then="fin", effect=True))
        upstream.receipt_mode = "down"
        headers = {"X-Tenant": "t1", "X-User": "ann"}
        assert gateway.send(post("/orders", call_id, unique("k"), "{}", headers=headers)).slug == "outcome-unknown"
        first = len(upstream.queries(call_id))
        said = receipt("FAILED", call_id, final=False) if answer == "FAILED_OPEN" else receipt(answer, call_id)
        upstream.answer_receipt(call_id, said)

        def rounds(status=MANUAL):
            until(lambda: gateway.rows("select status from compensation") == [(status,)], 20)
            return upstream.queries(call_id)[first:], gateway.rows("select asked, answer, evidence from compensation_round")
        return rounds

    yield begin
    for gateway in gateways:
        assert gateway.stop() == 0
    upstream.close()


@pytest.mark.parametrize("kept", [True, False])
def test_a_round_asks_as_whoever_called_and_leaves_the_connection_clean(asked_later, kept):
    top = {"tenant": "{header.X-Tenant}", **({"credential": "{header.X-User}"} if kept else {})}
    asked, _ = asked_later("PROCESSING", top, **({"reversal": "POST /orders/1/cancel"} if kept else {}))()
    assert len(asked) >= 3
    for query in asked:
        assert query.raw_head.startswith(b"GET /receipts/") and query.raw_head.endswith(b"\r\n\r\n")
        assert (query.all("X-Tenant"), query.all("X-Asked")) == (["t1"], ["by a gateway"])
        assert query.all("X-User") == (["ann"] if kept else [])  # nothing of the credential but a digest is stored
    assert len({query.conn for query in asked[1:]}) == 1  # nothing is left over that a service would have to close for


def test_not_received_said_to_nobody_is_not_believed(asked_later):
    """A callee that keeps its callers apart looks for the call among those of whoever asks. The credential of the caller is
    not kept, so it is asked by nobody: it does not know the call, and must not fence another one of that name."""
    asked, rows = asked_later("NOT_RECEIVED", {"credential": "{header.X-User}"}, **FENCE)()
    assert asked and {query.method for query in asked} == {"GET"}
    assert {row[:2] for row in rows} == {("ask", "query_failed")}
    assert all("asked without the header that says who called" in row[2] for row in rows)


def test_a_gateway_that_says_who_it_is_asks_for_its_callers(asked_later):
    route = {"receipt_header": ["X-User: gateway"], "receipt_fence": "POST /receipts/{call_id}/fence"}
    asked, rows = asked_later("NOT_RECEIVED", {"credential": "{header.X-User}"}, **route)()
    # Its own name alone, also where the caller's is at hand: two of a name are a third caller to many a service.
    assert asked_later.upstream.queries(asked_later.call_id) and {
        tuple(query.all("X-User")) for query in asked_later.upstream.queries(asked_later.call_id)} == {("gateway",)}
    assert asked and {row[0] for row in rows} == {"ask, fence"} and {row[1] for row in rows} == {"not_received"}


def test_failed_for_now_said_to_nobody_is_not_believed(asked_later):
    asked, rows = asked_later("FAILED_OPEN", {"credential": "{header.X-User}"}, **FENCE)()
    assert asked and {query.method for query in asked} == {"GET"}
    assert {row[:2] for row in rows} == {("ask", "query_failed")}


@pytest.mark.parametrize("later", [{}, {"tenant": "{header.X-Tenant}"}], ids=["nobody", "tenant"])
def test_who_called_by_other_settings_is_nobody(asked_later, later):
    """The callers were told apart by their credential; since then by nothing, or by a tenant. The digest that stands for
    that credential's tenant in the record is no tenant's name."""
    answers = asked_later("NOT_RECEIVED", {"credential": "{header.X-User}"}, round_gap="2s", round_gap_max="2s", **FENCE)
    asked_later.gateway.stop()
    asked_later.gateway.top = later
    asked_later.gateway.start()
    asked, rows = answers()
    assert asked and {query.method for query in asked} == {"GET"} and not [q for q in asked if q.all("X-Tenant")]
    assert {row[:2] for row in rows} == {("ask", "query_failed")}
