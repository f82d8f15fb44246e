# SPDX-License-Identifier: MIT
"""The HTTP side: shapes that two readers could read in two ways, limits, pipelining, streaming, slow clients."""

import socket
import threading
import time

import pytest

from support.gateway import Gateway
from support.house import House, Step
from support.poll import forget_peak, free_port, memory_kb, unique, until
from support.upstream import Upstream
from support.wire import Hangup, Wire, ask, request

MB = 1 << 20


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("http"), {
        "plain": {"attempt_timeout": "20s", "deadline": "100s", "lease": "60s", "wait_in_progress": "20s"},
        "exposed": {"expose_headers": True},
    }, headers_timeout="700ms", body_timeout="700ms", idle_timeout="1500ms", drain="1s")
    yield built
    assert built.close() == 0


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


# ---- smuggling shapes

def raw(path, head, body=b""):
    return b"POST " + path.encode() + b" HTTP/1.1\r\nHost: a.test\r\nX-Call-Id: " + unique("c").encode() + b"\r\n" + head + b"\r\n" + body


SHAPES = {
    "two lengths": (b"Content-Length: 2\r\nContent-Length: 3\r\n", b"abc"),
    "two equal lengths": (b"Content-Length: 2\r\nContent-Length: 2\r\n", b"ab"),
    "a list of lengths": (b"Content-Length: 2, 2\r\n", b"ab"),
    "length and chunked": (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "chunked and length": (b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", b"0\r\n\r\n"),
    "a length with a sign": (b"Content-Length: +2\r\n", b"ab"),
    "a negative length": (b"Content-Length: -1\r\n", b""),
    "a hex length": (b"Content-Length: 0x2\r\n", b"ab"),
    "a length with a blank inside": (b"Content-Length: 1 2\r\n", b"ab"),
    "a length past 64 bits": (b"Content-Length: 99999999999999999999\r\n", b"ab"),
    "another coding": (b"Transfer-Encoding: gzip\r\n", b"ab"),
    "chunked not last": (b"Transfer-Encoding: chunked, gzip\r\n", b"0\r\n\r\n"),
    "chunked twice": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "a coding that looks like chunked": (b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    "a coding behind a vertical tab": (b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"),
    "bare LF after a header": (b"X-A: 1\nContent-Length: 2\r\n", b"ab"),
    "bare CR in a header": (b"X-A: 1\rX-B: 2\r\nContent-Length: 2\r\n", b"ab"),
    "obs-fold": (b"X-A: 1\r\n  2\r\nContent-Length: 2\r\n", b"ab"),
    "obs-fold of the length": (b"Content-Length:\r\n 2\r\n", b"ab"),
    "a blank before the colon": (b"Content-Length : 2\r\n", b"ab"),
    "a header without a colon": (b"Content-Length 2\r\n", b"ab"),
    "a header without a name": (b": 2\r\nContent-Length: 2\r\n", b"ab"),
    "a zero byte in a value": (b"X-A: a\x00b\r\nContent-Length: 2\r\n", b"ab"),
    "a second host": (b"Host: b.test\r\nContent-Length: 2\r\n", b"ab"),
    "a 0-prefixed chunk size": (b"Transfer-Encoding: chunked\r\n", b"0x2\r\nab\r\n0\r\n\r\n"),
    "a chunk size with a sign": (b"Transfer-Encoding: chunked\r\n", b"+2\r\nab\r\n0\r\n\r\n"),
    "a chunk size past 64 bits": (b"Transfer-Encoding: chunked\r\n", b"10000000000000002\r\nab\r\n0\r\n\r\n"),
    "bare LF after a chunk size": (b"Transfer-Encoding: chunked\r\n", b"2\nab\r\n0\r\n\r\n"),
    "no line end after a chunk": (b"Transfer-Encoding: chunked\r\n", b"2\r\nabXX0\r\n\r\n"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_request_that_can_be_read_in_two_ways_is_refused(house, shape):
    order = house.order("plain", Step())
    head, body = SHAPES[shape]
    with Wire(house.gateway.port) as wire:
        # A second request hides behind it: whoever reads lengths otherwise would run it.
        wire.send(raw(order.path, head, body) + raw(order.path + "/hidden", b"Content-Length: 0\r\n"))
        left = wire.rest()
    assert left.startswith(b"HTTP/1.1 400 ") or left.startswith(b"HTTP/1.1 501 ") or left == b"", left[:200]
    assert left.count(b"HTTP/1.1 ") <= 1
    assert not order.posts and not house.upstream.posts(order.path + "/hidden")


@pytest.mark.parametrize("first", [b"POST /plain/x HTTP/1.1\nHost: a\r\n\r\n", b"POST  /plain/x HTTP/1.1\r\nHost: a\r\n\r\n",
                                   b"POST /plain/x\r\nHost: a\r\n\r\n", b"POST /plain/x HTTP/2.0\r\nHost: a\r\n\r\n",
                                   b"POST /plain/ x HTTP/1.1\r\nHost: a\r\n\r\n", b"PO ST /plain/x HTTP/1.1\r\nHost: a\r\n\r\n",
                                   b"POST /plain/x HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n"])
def test_no_request_at_all(house, first):
    with Wire(house.gateway.port) as wire:
        wire.send(first)
        left = wire.rest()
    assert left == b"" or left.split(b" ")[1] in (b"400", b"408", b"501", b"505"), left[:200]


def test_a_prefixed_size_of_zeros_is_refused_or_read_exactly(house):
    """000002 is a legal chunk size; what must not happen is another reading of it."""
    order = house.order("plain", Step())
    with Wire(house.gateway.port) as wire:
        wire.send(raw(order.path, b"Transfer-Encoding: chunked\r\n", b"000002\r\nab\r\n0\r\n\r\n"))
        status = wire.answer().status
    assert status == 400 and not order.posts or status == 201 and [p.body for p in order.posts] == [b"ab"]


@pytest.mark.parametrize("path", ["/plain/../exposed/x", "/plain/%2e%2e/exposed/x", "/plain//x", "/plain/x%00", "/plain/a%2fb", "/plain/./x",
                                  "/PLAIN/x", "/plain\\x"])
def test_a_path_that_could_be_another_is_not_guessed_at(house, path):
    """Either refused, or run once under exactly these bytes."""
    call_id = unique("c")
    answer = house.gateway.send(request("POST", path, {"X-Call-Id": call_id}, b"x"))
    seen = house.upstream.posts(call_id=call_id)
    assert answer.status in (400, 404) and not seen or [p.target for p in seen] == [path] and answer.status == 201


# ---- connections

def test_keep_alive_and_pipelining_answer_in_order(house, gate):
    slow, fast = house.order("plain", Step(201, b"slow", gate=gate)), house.order("plain", Step(201, b"fast"))
    house.upstream.script("/plain/get", Step(200, b"got"))
    with Wire(house.gateway.port) as wire:
        wire.send(slow.bytes() + fast.bytes() + request("GET", "/plain/get") + fast.bytes() + slow.bytes())
        until(lambda: slow.posts)
        gate.set()
        answers = [wire.answer(to) for to in ("POST", "POST", "GET", "POST", "POST")]
    assert [a.body for a in answers] == [b"slow", b"fast", b"got", b"fast", b"slow"]
    assert [a.replayed for a in answers] == [False, False, False, True, True]


def test_a_hundred_in_one_breath(house):
    orders = [house.order("plain", Step(201, lambda seen: seen.path)) for _ in range(100)]
    with Wire(house.gateway.port) as wire:
        wire.send(b"".join(order.bytes() for order in orders))
        assert [wire.answer().body.decode() for _ in orders] == [order.path for order in orders]


def test_a_request_in_single_bytes(house):
    order = house.order("plain", Step(201, b"whole"))
    with Wire(house.gateway.port) as wire:
        for byte in order.bytes(chunked=True):
            wire.send(bytes([byte]))
        assert wire.answer().body == b"whole"
    assert [p.body for p in order.posts] == [order.body.encode()]


def test_connection_close_is_honoured(house):
    order = house.order("plain", Step())
    with Wire(house.gateway.port) as wire:
        wire.send(order.bytes(headers={"Connection": "close"}))
        answer = wire.answer()
        assert answer.status == 201 and answer.get("Connection", "").lower() == "close" and wire.rest() == b""


def test_http_1_0(house):
    order = house.order("plain", Step(201, b"old", chunked=True))
    with Wire(house.gateway.port) as wire:
        wire.send(order.bytes().replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        left = wire.rest()
    assert left.startswith(b"HTTP/1.1 201 ") or left.startswith(b"HTTP/1.0 201 ") or left.startswith(b"HTTP/1.1 505 ")
    assert b"chunked" not in left.lower()


def test_expect_100_continue(house):
    order = house.order("plain", Step(201, b"ok"))
    whole = order.bytes(headers={"Expect": "100-continue"})
    head, body = whole.split(b"\r\n\r\n", 1)
    with Wire(house.gateway.port) as wire:
        wire.send(head + b"\r\n\r\n")
        assert wire.line() == b"HTTP/1.1 100 Continue"
        while wire.line():
            pass
        wire.send(body)
        assert wire.answer().body == b"ok"
    assert order.posts[0].body == body


def test_expect_with_a_body_too_large_gets_its_413_at_once(house):
    order = house.order("plain", Step())
    head = request("POST", order.path, {"Expect": "100-continue", "Content-Length": str(100 * MB)}, b"").replace(b"Content-Length: 0\r\n", b"")
    with Wire(house.gateway.port) as wire:
        wire.send(head)
        answer = wire.answer()
        assert (answer.status, answer.slug, answer.interim) == (413, "body-too-large", [])


def test_a_client_that_stops_within_its_headers_is_cut_off(house):
    with Wire(house.gateway.port) as wire:
        wire.send(b"POST /plain/x HTTP/1.1\r\nHost: a\r\nX-Call")
        began = time.monotonic()
        left = wire.rest()
    assert time.monotonic() - began < 5 and (left == b"" or left.split(b" ")[1] in (b"408", b"400"))


def test_a_client_that_drips_its_headers_is_cut_off(house):
    with Wire(house.gateway.port) as wire:
        wire.sock.settimeout(0.1)
        wire.send(b"GET /plain/x HTTP/1.1\r\nHost: a\r\nX-Long: ")
        began = time.monotonic()
        while time.monotonic() - began < 6:
            try:
                wire.send(b"g")
                if not wire.sock.recv(1000):
                    return
            except TimeoutError:
                pass
            except OSError:
                return
    pytest.fail("a client that drips is never cut off")


def test_a_client_that_stops_within_its_body_is_cut_off_and_nothing_runs(house):
    order = house.order("plain", Step())
    with Wire(house.gateway.port) as wire:
        wire.send(order.bytes()[:-3])
        began = time.monotonic()
        wire.rest()
    assert time.monotonic() - began < 5 and not order.posts and order.receipt().status == 404


def test_an_idle_connection_ends(house):
    with Wire(house.gateway.port) as wire:
        wire.send(request("GET", "/plain/get"))
        wire.answer("GET")
        began = time.monotonic()
        assert wire.rest() == b"" and time.monotonic() - began < 6


def test_many_connections(house):
    wires = [Wire(house.gateway.port) for _ in range(300)]
    order = house.order("plain", Step(201, b"x"))
    try:
        assert order.send().status == 201
        for wire in wires[::37]:
            wire.send(order.bytes())
            assert wire.answer().replayed
    finally:
        for wire in wires:
            wire.close()


# ---- memory

@pytest.mark.no_sanitizer
@pytest.mark.parametrize("chunked", [False, True])
def test_a_100_mb_body_costs_less_than_2_mb(house, chunked):
    order = house.order("plain", Step())
    order.send()  # warm
    forget_peak(house.gateway.pid)
    before = memory_kb(house.gateway.pid)
    piece = b"z" * 65536
    head = {"X-Call-Id": unique("c"), **({"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(100 * MB)})}
    data = request("POST", order.path, head).replace(b"Content-Length: 0\r\n", b"")
    left = b""
    with Wire(house.gateway.port) as wire:
        wire.send(data)
        try:
            for _ in range(100 * MB // len(piece)):
                wire.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        except OSError:
            pass
        try:
            left = wire.answer()
        except Hangup:
            pass
    assert left == b"" or (left.status, left.slug) == (413, "body-too-large")
    assert memory_kb(house.gateway.pid) - before < 2048
    assert len(order.posts) == 1


@pytest.mark.no_sanitizer
def test_a_large_body_that_nobody_reads_is_not_gathered(house):
    """40 MB from the upstream to a caller that takes none of it."""
    house.upstream.script("/plain/large", Step(200, b"q" * (40 * MB), {"Content-Type": "a/b"}))
    forget_peak(house.gateway.pid)
    before = memory_kb(house.gateway.pid)
    with Wire(house.gateway.port) as wire:
        wire.send(request("GET", "/plain/large"))
        time.sleep(0.5)  # as much as wants to come, comes
        assert memory_kb(house.gateway.pid) - before < 8 * 1024
        assert len(wire.answer("GET").body) == 40 * MB
    assert memory_kb(house.gateway.pid) - before < 8 * 1024


# ---- what passes through

@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PROPFIND"])
def test_unguarded_methods_pass(house, method):
    path = f"/plain/{unique('p')}"
    house.upstream.script(path, Step(200, b"passed", {"Content-Type": "a/b", "X-Up": "1", "Set-Cookie": "a=b", "X-Call-Id": "theirs"}))
    body = b"some body" if method in ("PUT", "PROPFIND") else b""
    for _ in range(2):
        answer = house.gateway.send(request(method, path, {"X-Call-Id": "c-pass", "Idempotency-Key": "k", "X-Mine": "1",
                                                           "Range": "bytes=0-1"}, body), method)
        assert answer.status == 200 and answer.body == (b"" if method == "HEAD" else b"passed")
        assert answer.get("X-Up") == "1" and answer.get("Set-Cookie") == "a=b"
        assert not answer.replayed and not answer.all("Call-Outcome")
    seen = house.upstream.requests(path)
    assert len(seen) == 2 and {(s.method, s.body, s.get("X-Mine"), s.get("Range")) for s in seen} == {(method, body, "1", "bytes=0-1")}
    assert seen[0].get("X-Call-Id") == "c-pass" and not seen[0].all("X-Call-Attempt")
    # Unstored.
    assert house.gateway.receipt("c-pass").status == 404


def test_a_passed_answer_is_streamed(house, gate):
    path = f"/plain/{unique('p')}"
    house.upstream.script(path, Step(200, b"first-second", cut=6, pause=gate, chunked=True))
    with Wire(house.gateway.port) as wire:
        wire.send(request("GET", path))
        status, _, headers = wire.head()
        assert status == 200 and wire.line() == b"6" and wire.take(6) == b"first-"
        gate.set()
        assert wire.line() == b"" and wire.line() == b"6" and wire.take(6) == b"second"


def test_a_passed_request_is_streamed(house, tmp_path, started):
    listener = socket.create_server(("127.0.0.1", 0))
    small = House(tmp_path, {"up": {"upstream": [f"http://127.0.0.1:{listener.getsockname()[1]}"]}})
    started.append(small)
    with Wire(small.gateway.port) as wire:
        wire.send(b"PUT /up/x HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + b"a" * 100000)
        listener.settimeout(10)
        upstream, _ = listener.accept()
        upstream.settimeout(10)
        got = b""
        while got.count(b"a") < 90000:  # half of it arrives before the other half is sent
            got += upstream.recv(65536)
        wire.send(b"a" * 100000)
        while len(got) - got.index(b"\r\n\r\n") - 4 < 200000:
            got += upstream.recv(65536)
        upstream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert wire.answer("PUT").body == b"ok"
        upstream.close()
    listener.close()


def test_a_passed_request_is_never_sent_twice(house):
    path = f"/plain/{unique('p')}"
    house.upstream.script(path, Step(then="rst"))
    for method in ("PUT", "GET"):
        answer = house.gateway.send(request(method, path, {}, b"x" if method == "PUT" else b""), method)
        assert answer.status in (502, 503, 504)
    assert [s.method for s in house.upstream.requests(path)].count("PUT") == 1


# ---- browsers

def test_exposed_headers(house):
    order = house.order("exposed", Step(201))
    for answer in (order.send(headers={"Origin": "https://shop.test"}), order.send()):
        exposed = ",".join(answer.all("Access-Control-Expose-Headers")).lower()
        for name in ("x-call-id", "call-outcome", "link", "idempotent-replayed", "x-original-call-id"):
            assert name in exposed
    other = house.order("plain", Step(201))
    assert not other.send().all("Access-Control-Expose-Headers")


def test_options_always_passes(house):
    path = f"/exposed/{unique('p')}"
    house.upstream.script(path, Step(204, b"", {"Access-Control-Allow-Origin": "*"}))
    answer = house.gateway.send(request("OPTIONS", path, {"Origin": "https://shop.test", "Access-Control-Request-Method": "POST"}), "OPTIONS")
    assert (answer.status, answer.get("Access-Control-Allow-Origin")) == (204, "*")


def test_a_unix_socket_listens_too(tmp_path, started):
    upstream = Upstream()
    started.append(upstream)
    port = free_port()
    gateway = Gateway(tmp_path, {"plain": {"upstream": [upstream.url]}}, listen=[f"127.0.0.1:{port}", f"unix:{tmp_path}/gw.sock"])
    started.append(gateway)
    assert ask(f"{tmp_path}/gw.sock", "POST", "/plain/x", {"X-Call-Id": "c", "Idempotency-Key": "k"}, b"x").status == 201
    assert ask(f"{tmp_path}/gw.sock", "POST", "/plain/x", {"X-Call-Id": "c", "Idempotency-Key": "k"}, b"x").replayed
