# SPDX-License-Identifier: MIT
"""CONTRACT section 3, the outcome table and the join rule: what each event on the upstream's side proves."""

import ssl
import subprocess
import time

import pytest

from support.gateway import post
from support.house import House, Order, Step
from support.poll import unique, until
from support.upstream import Upstream, deaf_port, receipt, refused_port

TICK = 0.005  # clocks of two programs, read at two moments


def certificate(folder, name):
    """A self-signed certificate for 127.0.0.1, and the server side of TLS with it."""
    key, cert = folder / f"{name}.key", folder / f"{name}.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(cert), str(key))
    return str(cert), context


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outcomes")
    refused, held = refused_port()
    deaf, queue = deaf_port()
    known, known_tls = certificate(folder, "known")
    _, strange_tls = certificate(folder, "strange")
    secure, strange = Upstream(tls=known_tls), Upstream(tls=strange_tls)
    plain = Upstream()
    built = House(folder, {
        "plain": {"receipt": "http GET /receipts/{call_id}"},
        "bare": {},
        "twice": {"callee_idempotent": True},
        "oneshot": {"callee_idempotent": True, "server_error": "failed"},
        "failing": {"server_error": "failed", "receipt": "http GET /receipts/{call_id}"},
        "done202": {"accepted": "success"},
        "see303": {"redirect_303": "success"},
        "coded": {"success_when": "json.code = 0"},
        "refused": {"upstream": [f"http://127.0.0.1:{refused}"], "receipt": "http GET /receipts/{call_id}"},
        "deaf": {"upstream": [f"http://127.0.0.1:{deaf}"], "connect_timeout": "60ms"},
        "nameless": {"upstream": ["http://nothing.invalid:80"], "retries": 1, "attempt_timeout": "1s", "connect_timeout": "1s"},
        "secure": {"upstream": [secure.url], "upstream_ca_file": known},
        "strange": {"upstream": [strange.url], "upstream_ca_file": known},
        "notls": {"upstream": [plain.url.replace("http:", "https:")], "retries": 1},
        "patient": {"retry_after_max": "1s", "retries": 1},
    })
    built.extra = {"secure": secure, "strange": strange, "plain": plain}
    yield built
    assert built.close() == 0
    for one in built.extra.values():
        one.close()
    for one in [held, *queue]:
        one.close()


def attempts(order):
    return [a["outcome"] for a in order.receipt().json()["attempts"]]


# ---- proved: it never ran

@pytest.mark.parametrize("route", ["refused", "deaf", "nameless", "notls"])
def test_no_connection_means_it_never_ran_and_may_be_tried_again(house, route):
    order = house.order(route)
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (503, "upstream-unavailable", "not-executed")
    assert int(answer.get("Retry-After")) >= 1
    document = order.receipt().json()
    assert (document["state"], document["final"], document["executed"]) == ("FAILED", False, False)
    assert document["next_action"] == "retry_same_call"
    assert {a["outcome"] for a in document["attempts"]} == {"not_executed"}
    assert len(document["attempts"]) == (2 if route in ("nameless", "notls") else 4)
    # Nothing was asked before the next attempt: there was nothing to ask about.
    assert not order.queries


def test_a_bad_certificate_is_not_retried(house):
    order = house.order("strange")
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (503, "upstream-unavailable", "not-executed")
    document = order.receipt().json()
    assert (document["state"], document["final"]) == ("FAILED", False)
    assert [a["outcome"] for a in document["attempts"]] == ["not_executed"]
    assert "certificate" in document["attempts"][0]["evidence"].lower()
    assert not house.extra["strange"].requests()


def test_a_good_certificate_is_a_good_connection(house):
    order = house.order("secure")
    house.extra["secure"].script(order.path, Step(201, b"over TLS"))
    answer = order.send()
    assert (answer.status, answer.body, answer.outcome) == (201, b"over TLS", "success")
    assert order.send().replayed and len(house.extra["secure"].posts(order.path)) == 1


@pytest.mark.parametrize("status", [417, 421, 425])
@pytest.mark.parametrize("route", ["plain", "bare"])
def test_statuses_that_prove_it_never_ran(house, status, route):
    order = house.order(route, Step(status), Step(201))
    answer = order.send()
    assert (answer.status, answer.outcome, len(order.posts), order.effects) == (201, "success", 2, 1)
    assert attempts(order) == ["not_executed", "success"]
    assert not answer.replayed and order.send().replayed


@pytest.mark.parametrize("route, story", [("plain", "P?P"), ("bare", "PP")])
def test_429_is_waited_out_and_asked_about_where_receipts_are(house, route, story):
    order = house.order(route, Step(429, headers={"Retry-After": "1"}), Step(201))
    answer = order.send()
    assert (answer.status, answer.outcome, order.story) == (201, "success", story)
    assert order.posts[1].t - order.posts[0].ended >= 1.0 - TICK
    assert attempts(order) == ["not_executed", "success"]


@pytest.mark.parametrize("status", [401, 407])
@pytest.mark.parametrize("route", ["plain", "bare"])
def test_a_credential_is_mended_by_the_caller_and_never_retried_by_us(house, status, route):
    order = house.order(route, Step(status, b"who are you", {"WWW-Authenticate": "Basic", "Content-Type": "text/plain"}),
                        Step(201, b"welcome"))
    answer = order.send(headers={"Authorization": "old"})
    assert (answer.status, answer.body, answer.outcome) == (status, b"who are you", "not-executed")
    document = order.receipt().json()
    assert (document["state"], document["final"], document["next_action"]) == ("FAILED", False, "retry_same_call")
    assert document["safe_new_key"] is False and len(order.posts) == 1
    answer = order.send(headers={"Authorization": "new"})
    assert (answer.status, answer.body, answer.outcome, answer.replayed) == (201, b"welcome", "success", False)
    assert [p.get("Authorization") for p in order.posts] == ["old", "new"]
    assert [p.get("X-Call-Attempt") for p in order.posts] == ["1", "2"]
    assert order.state == "SUCCESS"


def test_429_to_the_end_is_given_on_and_never_replayed(house):
    order = house.order("bare", Step(429, b"slow down", {"Content-Type": "text/plain"}))
    answer = order.send()
    assert (answer.status, answer.body, answer.outcome) == (429, b"slow down", "not-executed")
    assert len(order.posts) == 4
    document = order.receipt().json()
    assert (document["state"], document["final"]) == ("FAILED", False)
    again = order.send()
    assert not again.replayed and len(order.posts) == 8


def test_a_retry_after_that_does_not_fit_ends_at_once_and_says_when(house):
    order = house.order("bare", Step(429, headers={"Retry-After": "60"}), Step(201))
    began = time.monotonic()
    answer = order.send()
    assert time.monotonic() - began < 2
    assert (answer.status, answer.outcome, len(order.posts)) == (429, "not-executed", 1)
    assert answer.get("Retry-After") == "60"


def test_retry_after_is_bounded(house):
    order = house.order("patient", Step(429, headers={"Retry-After": "3600"}), Step(201))
    assert order.send().status == 201
    assert 1.0 - TICK <= order.posts[1].t - order.posts[0].ended < 3


# ---- done

@pytest.mark.parametrize("status", [200, 201, 203, 204, 205, 206, 299])
def test_2xx_is_success(house, status):
    order = house.order("bare", Step(status, b"" if status in (204, 205) else b"yes"))
    answer = order.send()
    assert (answer.status, answer.outcome) == (status, "success")
    document = order.receipt().json()
    assert (document["state"], document["final"], document["executed"], document["received"]) == ("SUCCESS", True, True, True)
    assert document["result"]["status"] == status and document["next_action"] == "none"
    assert attempts(order) == ["success"]


@pytest.mark.parametrize("body, outcome, state", [
    (b'{"code":0}', "success", "SUCCESS"), (b'{"code":7,"why":"stock"}', "rejected", "FAILED"),
    (b'{}', "rejected", "FAILED"), (b'{"code":"0x"}', "rejected", "FAILED"), (b'not json', "rejected", "FAILED")])
def test_success_when_decides_over_2xx(house, body, outcome, state):
    order = house.order("coded", Step(200, body))
    answer = order.send()
    assert (answer.status, answer.body, answer.outcome) == (200, body, outcome)
    document = order.receipt().json()
    assert (document["state"], document["final"]) == (state, True)
    again = order.send()
    assert again.replayed and (again.body, again.outcome) == (body, outcome) and len(order.posts) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_in_chunks_is_whole_when_its_end_came(house, chunked):
    order = house.order("bare", Step(200, b"x" * 9000, chunked=chunked))
    assert order.send().body == b"x" * 9000 == order.send().body and len(order.posts) == 1


def test_interim_answers_are_no_answer(house):
    order = house.order("bare", Step(201, b"after", interim=b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"))
    answer = order.send()
    assert (answer.status, answer.body, answer.outcome) == (201, b"after", "success")


# ---- definite and pointless to repeat

@pytest.mark.parametrize("status", [400, 402, 403, 404, 405, 406, 410, 411, 412, 413, 414, 415, 416, 418, 422, 423, 424,
                                    426, 428, 431, 451])
def test_4xx_is_rejected_for_good(house, status):
    order = house.order("bare", Step(status, b"no: " + str(status).encode(), {"Content-Type": "text/plain"}), Step(201))
    answer = order.send()
    assert (answer.status, answer.body, answer.outcome) == (status, b"no: " + str(status).encode(), "rejected")
    document = order.receipt().json()
    assert (document["state"], document["final"], document["executed"]) == ("FAILED", True, False)
    assert document["reason"] == "rejected" and document["safe_new_key"] is True
    again = order.send()
    assert (again.status, again.body, again.replayed, again.outcome) == (answer.status, answer.body, True, "rejected")
    assert len(order.posts) == 1


# ---- definite, nothing took effect, may be repeated

@pytest.mark.parametrize("status", [500, 501, 505, 599])
def test_5xx_is_failed_where_the_route_says_so(house, status):
    order = house.order("failing", Step(status), Step(201))
    answer = order.send()
    assert (answer.status, answer.outcome, order.effects) == (201, "success", 1)
    assert attempts(order) == ["failed", "success"]


def test_failed_to_the_end_is_failed(house):
    order = house.order("oneshot", Step(500, b"rolled back", {"Content-Type": "text/plain"}))
    answer = order.send()
    assert answer.outcome == "failed" and len(order.posts) == 4
    document = order.receipt().json()
    assert (document["state"], document["executed"]) == ("FAILED", False)
    assert set(attempts(order)) == {"failed"}


@pytest.mark.parametrize("status", [502, 503, 504, 520, 522, 524, 529])
def test_what_an_intermediary_may_have_written_stays_unknown(house, status):
    order = house.order("failing", Step(status, effect=True), Step(201))
    answer = order.send()
    assert order.story == "P?" and order.effects == 1
    assert (answer.outcome, order.state) == ("success", "SUCCESS")
    assert attempts(order) == ["unknown"]


# ---- accepted

def test_202_is_passed_on_at_once_as_pending(house):
    order = house.order("plain", Step(202, b"queued", effect=False))
    order.receipts(receipt("PROCESSING", order.call_id))
    began = time.monotonic()
    answer = order.send()
    assert (answer.status, answer.body, answer.outcome) == (202, b"queued", "pending")
    assert time.monotonic() - began < 2
    document = order.receipt().json()
    assert (document["state"], document["final"], document["safe_new_key"]) == ("PROCESSING", False, False)
    order.receipts(receipt("SUCCESS", order.call_id))
    until(lambda: order.state == "SUCCESS")
    assert len(order.posts) == 1 and order.send().outcome == "success"


def test_202_is_done_by_choice(house):
    order = house.order("done202", Step(202, b"queued"))
    assert (order.send().outcome, order.state) == ("success", "SUCCESS")
    assert order.send().replayed


# ---- silence and contradiction

SILENCE = {
    "no answer in time": Step(then="hang", effect=True),
    "reset": Step(then="rst", effect=True),
    "end of stream": Step(then="fin", effect=True),
    "reset within the request": Step(then="rst_mid_request", cut=10),
    "a head that is cut": Step(raw=b"HTTP/1.1 201 Created\r\nContent-Le", close=True, effect=True),
    "a body that is cut": Step(201, b"0123456789", then="partial", cut=4, effect=True),
    "chunks that are cut": Step(201, b"0123456789", then="partial", cut=4, chunked=True, effect=True),
    "a body that stops": Step(raw=b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n0123", effect=True),
    "no HTTP": Step(raw=b"SSH-2.0-OpenSSH_9.2\r\n\r\n", close=True, effect=True),
    "two lengths": Step(raw=b"HTTP/1.1 201 X\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", close=True, effect=True),
    "a bad length": Step(raw=b"HTTP/1.1 201 X\r\nContent-Length: two\r\n\r\nab", close=True, effect=True),
    "a bad chunk": Step(raw=b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n", close=True, effect=True),
    "length and chunks": Step(raw=b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
                              close=True, effect=True),
    "a reset after 102": Step(interim=b"HTTP/1.1 102 Processing\r\n\r\n", then="rst", effect=True),
    "another callId": Step(201, headers={"X-Call-Id": "somebody-else"}),
    "408": Step(408, effect=True),
    "409": Step(409, effect=True),
    **{str(status): Step(status, headers={"Location": "/moved/on"}, effect=True) for status in (300, 301, 302, 303, 307, 308)},
    **{str(status): Step(status, effect=True) for status in (500, 501, 502, 503, 504, 505, 507, 520, 522, 524)},
}


@pytest.mark.parametrize("event", SILENCE)
def test_everything_else_is_unknown_and_not_sent_again(house, event):
    order = house.order("bare", SILENCE[event], Step(201))
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (504, "outcome-unknown", "unknown")
    assert answer.json()["state"] == "UNKNOWN" and answer.json()["safe_new_key"] is False
    document = order.receipt().json()
    assert (document["state"], document["final"], document["safe_new_key"]) == ("UNKNOWN", False, False)
    assert document["executed"] is None
    assert [a["outcome"] for a in document["attempts"]] == ["unknown"] and document["attempts"][0]["evidence"]
    again = order.send()
    assert (again.status, again.slug, again.outcome) == (409, "outcome-unknown", "unknown")
    other = order.send(unique("c"))
    assert (other.status, other.slug) == (409, "outcome-unknown")
    assert len(order.posts) == 1 and not house.upstream.requests("/moved/on")


@pytest.mark.parametrize("event", SILENCE)
def test_an_unknown_attempt_is_asked_about(house, event):
    order = house.order("plain", SILENCE[event], Step(201, b"second"))
    answer = order.send()
    # The receipt says whether it is done.
    assert order.story == ("P?P" if event == "reset within the request" else "P?")
    assert (answer.outcome, order.effects, order.state) == ("success", 1, "SUCCESS")
    assert attempts(order)[0] == "unknown"


def test_303_is_success_by_choice(house):
    order = house.order("see303", Step(303, b"", {"Location": "/orders/7"}, effect=True))
    answer = order.send()
    assert (answer.status, answer.outcome, answer.get("Location")) == (303, "success", "/orders/7")
    assert order.send().get("Location") == "/orders/7" and len(order.posts) == 1
    assert not house.upstream.requests("/orders/7")


def test_an_own_call_id_that_comes_back_is_fine(house):
    order = house.order("bare")
    order.script(Step(201, headers={"X-Call-Id": order.call_id}))
    answer = order.send()
    assert (answer.outcome, answer.all("X-Call-Id")) == ("success", [order.call_id])


# ---- the callee's own word comes before the status

@pytest.mark.parametrize("status", [200, 202, 400, 409, 500, 503])
@pytest.mark.parametrize("word, state, final", [
    ("success", "SUCCESS", True), ("rejected", "FAILED", True), ("unknown", "UNKNOWN", False)])
def test_call_outcome_decides_before_the_status(house, word, state, final, status):
    order = house.order("bare", Step(status, b"said", {"Call-Outcome": word}))
    answer = order.send()
    assert answer.all("Call-Outcome") == [word]
    if word != "unknown":
        assert (answer.status, answer.body) == (status, b"said")
    document = order.receipt().json()
    assert (document["state"], document["final"]) == (state, final)
    assert [a["outcome"] for a in document["attempts"]] == [word] and len(order.posts) == 1


@pytest.mark.parametrize("status", [200, 409, 500, 503])
@pytest.mark.parametrize("word", ["failed", "not-executed"])
def test_call_outcomes_that_permit_another_attempt(house, word, status):
    order = house.order("bare", Step(status, b"said", {"Call-Outcome": word}, effect=False), Step(201))
    answer = order.send()
    assert (answer.status, answer.outcome, len(order.posts)) == (201, "success", 2)
    assert attempts(order) == [word.replace("-", "_"), "success"]


@pytest.mark.parametrize("status", [200, 409, 500])
def test_call_outcome_pending(house, status):
    order = house.order("plain", Step(status, b"said", {"Call-Outcome": "pending"}, effect=False))
    order.receipts(receipt("PROCESSING", order.call_id), receipt("SUCCESS", order.call_id))
    answer = order.send()
    if status == 200:
        assert (answer.body, answer.outcome) == (b"said", "pending")
    else:  # no answer to give on; it may wait for the ending
        assert answer.outcome in ("pending", "success")
    until(lambda: order.state == "SUCCESS")
    assert len(order.posts) == 1


# ---- the join rule

@pytest.mark.parametrize("second", [Step(429), Step(400), Step(404), Step(421), Step(401), Step(500, headers={"Call-Outcome": "failed"}),
                                    Step(503, headers={"Call-Outcome": "not-executed"})],
                         ids=["429", "400", "404", "421", "401", "failed", "not-executed"])
def test_an_unknown_attempt_is_not_undone_by_a_later_one(house, second):
    order = house.order("twice", Step(then="rst", effect=True), second)
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (504, "outcome-unknown", "unknown")
    assert order.state == "UNKNOWN" and attempts(order)[0] == "unknown" and len(order.posts) >= 2


def test_a_later_success_is_the_ending(house):
    order = house.order("twice", Step(then="rst"), Step(503), Step(201, b"done"))
    answer = order.send()
    assert (answer.status, answer.body, answer.outcome) == (201, b"done", "success")
    assert attempts(order) == ["unknown", "unknown", "success"]


def test_a_later_refused_connection_changes_nothing(house, started, tmp_path):
    upstream = Upstream()
    started.append(upstream)
    small = House(tmp_path, {"one": {"callee_idempotent": True}}, upstream)
    started.append(small)

    def last_words(seen):
        upstream.listener.shutdown(2)
        upstream.listener.close()
        return {}

    order = small.order("one", Step(201, headers=last_words, then="partial", cut=1, effect=True))
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (504, "outcome-unknown", "unknown")
    assert attempts(order) == ["unknown"] + ["not_executed"] * 3
    assert order.state == "UNKNOWN"


def test_unknown_writes_a_compensation_task_and_other_endings_none(house):
    order = house.order("bare", Step(then="rst"))
    order.send()
    assert house.gateway.tasks(order.call_id) == [(0,)]
    for step in (Step(201), Step(400)):
        other = house.order("bare", step)
        other.send()
        assert house.gateway.tasks(other.call_id) == []
