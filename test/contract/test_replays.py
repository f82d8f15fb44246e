# SPDX-License-Identifier: MIT
"""CONTRACT section 5: replays, duplicates that wait for the running call, callers that go away."""

import concurrent.futures
import threading
import time

import pytest

from support.house import House, Step
from support.poll import unique, until
from support.wire import Wire, hang_up_after


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("replays"), {
        "plain": {"attempt_timeout": "20s", "deadline": "100s", "lease": "60s", "wait_in_progress": "20s"},
        "kept": {"replay_headers": ["X-Request-Id", "X-Odd"], "result_bytes_max": "64k"},
        "idle": {"attempt_timeout": "400ms", "callee_idempotent": True},
    }, drain="1s")
    yield built
    assert built.close() == 0


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def together(count, what):
    """what(n) for n in range(count), all at once."""
    barrier = threading.Barrier(count)

    def one(n):
        barrier.wait(30)
        return what(n)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [f.result(60) for f in [pool.submit(one, n) for n in range(count)]]


# ---- byte for byte

BODIES = [b"", b"\x00\x01\xff" * 50, b'{ "zeta":1,\r\n "n":1.0 }  ', "\u00e9\u4e2d".encode(), b"x" * 60000]


@pytest.mark.parametrize("body", BODIES, ids=[str(len(b)) for b in BODIES])
@pytest.mark.parametrize("status", [200, 201, 206, 400, 404, 422])
@pytest.mark.parametrize("chunked", [False, True])
def test_status_and_body_are_the_first_ones(house, status, body, chunked):
    order = house.order("kept", Step(status, body, {"Content-Type": "a/b"}, chunked=chunked))
    first = order.send()
    assert (first.status, first.body, first.replayed) == (status, body, False)
    again = order.send()
    assert (again.status, again.body, again.replayed, again.outcome) == (status, body, True, first.outcome)
    assert again.get("Content-Type") == "a/b" and len(order.posts) == 1


def test_the_headers_of_a_replay(house):
    upstream = [("Content-Type", "text/plain; charset=x"), ("Content-Language", "fr"), ("Content-Disposition", "inline"),
                ("Content-Encoding", "odd"), ("Location", "/a"), ("ETag", 'W/"1"'), ("Link", "</a>; rel=a"),
                ("Link", "</b>; rel=b"), ("Last-Modified", "Sun, 01 Mar 2026 12:00:00 GMT"), ("Retry-After", "7"),
                ("X-Request-Id", "r-1"), ("x-odd", "1"), ("X-ODD", "2"), ("Set-Cookie", "a=b"), ("Set-Cookie", "c=d"),
                ("Date", "Sun, 01 Mar 2026 12:00:00 GMT"), ("Cache-Control", "no-cache"), ("X-Other", "1"),
                ("Keep-Alive", "timeout=9"), ("Server", "s/1")]
    order = house.order("kept", Step(201, b"body", upstream))
    first, again = order.send(), order.send()
    for name, value in upstream:
        if name not in ("Date", "Keep-Alive", "Link"):
            assert first.all(name) == [v for k, v in upstream if k.lower() == name.lower()], name
    receipt = f'</.samekey/receipts/{order.call_id}>; rel="receipt"'
    assert sorted(first.all("Link")) == sorted(["</a>; rel=a", "</b>; rel=b", receipt]) == sorted(again.all("Link"))
    for name in ("Content-Type", "Content-Language", "Content-Disposition", "Content-Encoding", "Location", "ETag",
                 "Last-Modified", "Retry-After", "X-Request-Id", "X-Odd"):
        assert again.all(name) == [v for k, v in upstream if k.lower() == name.lower()], name
    for name in ("Set-Cookie", "Cache-Control", "X-Other", "Server", "Keep-Alive"):
        assert again.all(name) == [], name
    assert len(again.all("Date")) <= 1 and "Sun, 01 Mar 2026 12:00:00 GMT" not in again.all("Date")
    assert not first.all("Keep-Alive")


def test_the_receipt_link_is_a_line_of_its_own(house):
    order = house.order("kept", Step(201, b"", {"Link": "</a>; rel=a"}))
    order.send()
    assert all("," not in value for value in order.send().all("Link"))


def test_a_body_over_the_limit_is_streamed_whole_and_not_kept(house):
    body = bytes(range(256)) * 4096  # 1 MB
    order = house.order("kept", Step(200, body))
    assert order.send().body == body
    assert order.send().slug == "result-not-kept" and len(order.posts) == 1
    chunked = house.order("kept", Step(200, body, chunked=True))
    assert chunked.send().body == body and chunked.send().slug == "result-not-kept"


def test_a_large_answer_that_is_cut_is_unknown(house):
    body = b"y" * 500000
    order = house.order("kept", Step(200, body, then="partial", cut=400000, effect=True))
    try:
        answer = order.send()
        whole = len(answer.body) == len(body)
    except Exception:  # its caller sees it cut as well
        whole = False
    assert not whole
    until(lambda: order.state == "UNKNOWN", 2)
    assert order.send().slug == "outcome-unknown" and len(order.posts) == 1


def test_a_replay_for_another_call_says_whose_it_is(house):
    order = house.order("plain", Step(201, b"the effect"))
    order.send()
    other = unique("c")
    for _ in range(2):
        again = order.send(other)
        assert (again.status, again.body, again.replayed) == (201, b"the effect", True)
        assert again.get("X-Original-Call-Id") == order.call_id and again.all("X-Call-Id") == [other]
    assert not order.send().all("X-Original-Call-Id")
    # It has a row of its own.
    assert house.gateway.rows("select count(*) from call where call_id = ?", other) == [(1,)]


def test_a_failed_key_may_run_for_a_new_call(house):
    order = house.order("plain", Step(400, b"no"), Step(201, b"yes"))
    assert order.send().status == 400
    second = unique("c")
    answer = order.send(second)
    assert (answer.status, answer.body, answer.replayed) == (201, b"yes", False)
    # Each call keeps its own ending; the key is bound to the effect.
    assert (order.send().status, order.send(second).body) == (400, b"yes")
    third = order.send(unique("c"))
    assert third.body == b"yes" and third.get("X-Original-Call-Id") == second and len(order.posts) == 2


# ---- waiting for the running call

def test_those_who_wait_get_the_very_answer(house, gate):
    order = house.order("plain", Step(201, lambda seen: unique("made-once"), {"Content-Type": "a/b", "X-Own": "1"}, gate=gate))
    wires = [order.open() for _ in range(6)]
    other = unique("c")
    wires += [order.open(other) for _ in range(3)]
    until(lambda: order.posts)
    time.sleep(0.1)  # the others are on their way in
    gate.set()
    answers = [wire.answer() for wire in wires]
    assert {a.status for a in answers} == {201} and len({a.body for a in answers}) == 1 and len(order.posts) == 1
    assert [a.get("X-Original-Call-Id") for a in answers] == [None] * 6 + [order.call_id] * 3
    assert sum(not a.replayed for a in answers) >= 1


def test_of_those_who_wait_on_a_failure_one_claims(house, gate):
    order = house.order("plain", Step(400, b"not so", gate=gate), Step(201, b"but so"))
    same = [order.open() for _ in range(3)]
    until(lambda: order.posts)
    others = [unique("c") for _ in range(4)]
    waiting = [order.open(call_id) for call_id in others]
    time.sleep(0.1)  # they are on their way in
    gate.set()
    assert [(w.answer().status) for w in same] == [400] * 3
    answers = [w.answer() for w in waiting]
    assert {(a.status, a.body) for a in answers} == {(201, b"but so")}
    own = [a for a in answers if not a.all("X-Original-Call-Id")]
    assert len(own) == 1 and len(order.posts) == 2 and order.effects == 1
    assert {a.get("X-Original-Call-Id") for a in answers} - {None} == {own[0].get("X-Call-Id")}


@pytest.mark.threads
def test_64_clients_one_call(house):
    order = house.order("plain", Step(201, lambda seen: unique("made-once"), delay=0.05))
    answers = together(64, lambda n: order.send(timeout=60))
    assert {a.status for a in answers} == {201} and len({a.body for a in answers}) == 1
    assert {a.outcome for a in answers} == {"success"} and not any(a.all("X-Original-Call-Id") for a in answers)
    assert (order.effects, len(order.posts)) == (1, 1)


@pytest.mark.threads
def test_64_clients_one_key(house):
    order = house.order("plain", Step(201, lambda seen: unique("made-once"), delay=0.05))
    ids = [unique("c") for _ in range(64)]
    answers = together(64, lambda n: order.send(ids[n], timeout=60))
    assert {a.status for a in answers} == {201} and len({a.body for a in answers}) == 1
    runner, = [a.get("X-Call-Id") for a in answers if not a.all("X-Original-Call-Id")]
    assert [a.get("X-Original-Call-Id") for a in answers].count(runner) == 63
    assert (order.effects, len(order.posts)) == (1, 1)
    assert {house.gateway.state(call_id) for call_id in ids} == {"SUCCESS"}
    assert all(order.send(call_id).body == answers[0].body for call_id in ids[:5])


# ---- callers that go away

def test_the_caller_hangs_up_and_the_ending_is_stored(house):
    order = house.order("plain", Step(201, b"late", delay=1.0))
    assert hang_up_after(house.gateway.port, order.bytes(), 0.1)
    until(lambda: order.state == "SUCCESS")
    again = order.send()
    assert (again.status, again.body, again.replayed) == (201, b"late", True)
    assert (order.effects, len(order.posts)) == (1, 1)


def test_a_reset_by_the_caller_does_not_stop_the_retries(house):
    order = house.order("idle", Step(then="hang"), Step(201, b"second"))
    wire = order.open()
    until(lambda: order.posts)
    wire.reset()
    until(lambda: order.state == "SUCCESS")
    assert order.send().body == b"second" and len(order.posts) == 2


def test_half_a_request_is_no_call(house):
    order = house.order("plain")
    with Wire(house.gateway.port) as wire:
        wire.send(order.bytes()[:-5])
        assert order.receipt().status == 404
    assert order.receipt().status == 404 and not order.posts


def test_the_memory_answers_only_its_own(house):
    """An ended call is answered from memory; whatever differs is still told apart."""
    order = house.order("plain", Step(201, b"mine"))
    order.send()
    assert order.send().replayed and order.send().replayed
    assert order.send(body="{}").slug == "call-id-reused"
    assert order.send(key=unique("k")).slug == "call-id-reused"
    assert order.send(unique("c"), body="{}").slug == "key-reused"
    assert len(order.posts) == 1


# ---- without a key

def test_without_a_key_a_call_is_guarded_by_its_id(house):
    order = house.order("plain", Step(201, b"once"))
    assert order.send(key=None).body == b"once"
    assert order.send(key=None).replayed and len(order.posts) == 1
    assert not order.posts[0].all("Idempotency-Key")


def test_without_either_it_is_sent_once_and_has_a_receipt(house):
    order = house.order("plain", Step(201, b"once"))
    first, second = order.send(None, None), order.send(None, None)
    assert len(order.posts) == 2 and not second.replayed
    for answer in (first, second):
        assert answer.get("X-Call-Id-Source") == "gateway"
        assert house.gateway.state(answer.get("X-Call-Id")) == "SUCCESS"
    assert first.get("X-Call-Id") != second.get("X-Call-Id")
