# SPDX-License-Identifier: MIT
"""The sample service keeps its promises: receipts are as true as effects, and each fault does what it says."""

import concurrent.futures
import http.client
import json
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

SERVICE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "orders" / "orders.py"


class Service:
    def __init__(self, db, *options):
        self.process = subprocess.Popen(
            [sys.executable, str(SERVICE), "--port", "0", "--db", str(db), *options], stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        assert "listening on http://" in line, line
        self.port = int(line.rsplit(":", 1)[1])

    def connect(self, timeout=5):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, document=None, timeout=5, **headers):
        connection = self.connect(timeout)
        body = None if document is None else json.dumps(document)
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        return reply.status, reply.headers, json.loads(text) if text else None

    def order(self, number, call_id=None, fault=None, **more):
        headers = {"X_Call_Id": call_id} if call_id else {}
        if fault:
            headers["X_Orders_Fault"] = fault
        return self.ask("POST", "/orders", {"order_no": number, "amount": "12.50"}, **headers, **more)

    def count(self, number):
        document = self.ask("GET", f"/effects/{number}")[2]
        return document["effects"], document["posts"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=10)
        self.process.stdout.close()
        return code


@pytest.fixture
def start(tmp_path):
    running = []

    def starter(*options, db=None):
        running.append(Service(db or tmp_path / "orders.db", *options))
        return running[-1]

    yield starter
    for service in running:
        if service.process.poll() is None:
            service.stop()


def test_an_order_and_its_receipt(start):
    service = start()
    status, headers, order = service.order("a/1", "c-1")
    assert (status, headers["Location"], headers["X-Call-Id"]) == (201, "/orders/a%2F1", "c-1")
    assert service.ask("GET", headers["Location"])[2]["amount"] == "12.50"
    status, _, receipt = service.ask("GET", "/receipts/c-1")
    assert (status, receipt["call_id"], receipt["state"], receipt["effects"]) == (200, "c-1", "SUCCESS", 1)
    assert receipt["result"]["status"] == 201 and json.loads(receipt["result"]["body"]) == order


def test_no_receipt_is_404_with_a_document(start):
    status, headers, receipt = start().ask("GET", "/receipts/never")
    assert (status, receipt["state"], receipt["call_id"]) == (404, "NOT_RECEIVED", "never")
    assert receipt["covers_since"].endswith("Z") and headers["Cache-Control"] == "no-store"


def test_it_is_naive(start):
    service = start()
    for call_id in ("c-1", "c-2", "c-2"):
        assert service.order("7", call_id)[0] == 201
    assert service.count("7") == (3, 3)
    assert service.ask("GET", "/receipts/c-2")[2]["effects"] == 2


def test_dedupe_runs_a_call_id_once_even_in_a_race(start):
    service = start("--dedupe")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: service.order("7", "c-1"), range(16)))
    assert {a[0] for a in answers} == {201} and len({json.dumps(a[2]) for a in answers}) == 1
    assert sum(a[1].get("Idempotent-Replayed") == "true" for a in answers) == 15
    assert service.count("7") == (1, 16)


@pytest.mark.parametrize("fault, effects, answered", [
    ("drop-before-effect", 0, None), ("drop-after-effect", 1, None),
    ("hang-before-effect", 0, None), ("hang-after-effect", 1, None),
    ("status=503", 0, 503), ("status-after-effect=500", 1, 500), ("slow=50", 1, 201), ("slow-after-effect=50", 1, 201),
])
@pytest.mark.parametrize("by", ["header", "switch"])
def test_faults(start, fault, effects, answered, by):
    service = start()
    if by == "switch":
        assert service.ask("POST", "/switches", {"fault": fault, "times": 1})[0] == 200
        fault = None
    if answered:
        assert service.order("7", "c-1", fault)[0] == answered
    else:
        with pytest.raises((http.client.RemoteDisconnected, TimeoutError)):
            service.order("7", "c-1", fault, timeout=0.5)
    assert service.count("7") == (effects, 1)
    receipt = service.ask("GET", "/receipts/c-1")[2]
    assert receipt["state"] == ("SUCCESS" if effects else "NOT_RECEIVED")
    # A switch that was used up, and a header of another request, leave the next one alone.
    assert service.order("7", "c-2")[0] == 201


def test_a_slow_effect_is_not_received_until_it_is(start):
    service = start()
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        late = pool.submit(service.order, "7", "c-1", "slow=700")
        while service.count("7")[1] == 0:
            assert time.monotonic() - began < 5
        assert service.ask("GET", "/receipts/c-1")[2]["state"] == "NOT_RECEIVED"
        assert late.result()[0] == 201
    assert time.monotonic() - began >= 0.7
    assert service.ask("GET", "/receipts/c-1")[2]["state"] == "SUCCESS"


def test_a_fence_refuses_what_comes_late_even_what_waits_inside(start):
    service = start()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        late = pool.submit(service.order, "7", "c-1", "slow=500")
        end = time.monotonic() + 5
        while service.count("7")[1] == 0:
            assert time.monotonic() < end
        status, _, receipt = service.ask("POST", "/receipts/c-1/fence")
        assert (status, receipt["state"], receipt["final"], receipt["reason"]) == (200, "FAILED", True, "fenced")
        status, headers, _ = late.result()
    assert (status, headers["Call-Outcome"]) == (409, "rejected")
    assert service.order("7", "c-1")[0] == 409
    assert service.count("7") == (0, 2)


def test_a_fence_of_a_done_call_changes_nothing(start):
    service = start()
    service.order("7", "c-1")
    status, _, receipt = service.ask("POST", "/receipts/c-1/fence")
    assert (status, receipt["state"]) == (200, "SUCCESS")


def test_a_service_that_cannot_fence(start):
    assert start("--no-fence").ask("POST", "/receipts/c-1/fence")[0] == 404


def test_cancel_is_an_effect_with_a_receipt(start):
    service = start()
    assert service.ask("POST", "/orders/7/cancel", X_Call_Id="c-0")[0] == 404
    service.order("7", "c-1")
    assert service.ask("POST", "/orders/7/cancel", X_Call_Id="c-2")[0] == 200
    document = service.ask("GET", "/effects")[2]
    assert (document["effects"], document["cancels"]) == ({"7": 1}, {"7": 1})
    assert service.ask("GET", "/receipts/c-2")[2]["state"] == "SUCCESS"
    assert service.ask("GET", "/receipts/c-0")[2]["state"] == "NOT_RECEIVED"


def test_receipts_down_and_hanging(start):
    service = start()
    service.order("7", "c-1")
    service.ask("POST", "/switches", {"receipts": "down"})
    with pytest.raises(http.client.RemoteDisconnected):
        service.ask("GET", "/receipts/c-1")
    service.ask("POST", "/switches", {"receipts": "hang"})
    with pytest.raises(TimeoutError):
        service.ask("GET", "/receipts/c-1", timeout=0.3)
    service.ask("POST", "/switches", {"receipts": "up"})
    assert service.ask("GET", "/receipts/c-1")[0] == 200


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"order_no":"7"}', b'{"amount":1}', b'{"order_no":"","amount":1}',
                                  b'{"order_no":"7","amount":"-1"}', b'{"order_no":"7","amount":true}',
                                  b'{"order_no":"\\ud800","amount":1}', b"\xff"])
def test_bad_orders_are_refused_without_effect(start, body):
    service = start()
    connection = service.connect()
    connection.request("POST", "/orders", body)
    assert connection.getresponse().status == 400
    assert service.ask("GET", "/effects")[2]["effects"] == {}


def test_bad_words_are_refused(start):
    service = start()
    assert service.order("7", "c 1")[0] == 400
    assert service.order("7", "c-1", "explode")[0] == 400
    assert service.order("7", "c-1", "slow")[0] == 400
    assert service.ask("POST", "/switches", {"receipts": "sideways"})[0] == 400
    assert service.ask("POST", "/switches", {"fault": "drop-after-effect", "times": -1})[0] == 400
    assert service.count("7")[0] == 0


def exchange(port, data):
    """Sends raw bytes, then reads until the end of stream."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
        peer.sendall(data)
        received = b""
        while part := peer.recv(65536):
            received += part
        return received


def test_http_11_as_a_gateway_speaks_it(start):
    service = start()
    order = b'{"order_no":"7","amount":1}'
    chunked = b"%x;x=y\r\n" % 5 + order[:5] + b"\r\n%x\r\n" % (len(order) - 5) + order[5:] + b"\r\n0\r\nT: 1\r\n\r\n"
    received = exchange(service.port, (
        b"POST /orders HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked
        + b"HEAD /orders HTTP/1.1\r\nHost: x\r\n\r\n"
        + b"OPTIONS /orders HTTP/1.1\r\nHost: x\r\n\r\n"
        + b"DELETE /orders HTTP/1.1\r\nHost: x\r\n\r\n"
        + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    ))
    lines = [line for line in received.split(b"\r\n") if b"HTTP/1.1 " in line]
    assert [line[-40:].split(b"HTTP/1.1 ")[1][:3] for line in lines] == [b"201", b"200", b"204", b"405", b"200"]
    assert b"Allow: GET, HEAD, OPTIONS, POST" in received
    assert service.count("7")[0] == 1


def test_expect_100_continue(start):
    service = start()
    order = b'{"order_no":"7","amount":1}'
    with socket.create_connection(("127.0.0.1", service.port), timeout=5) as peer:
        head = b"POST /orders HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        peer.sendall(head % len(order))
        assert peer.recv(65536).startswith(b"HTTP/1.1 100 ")
        peer.sendall(order)
        assert peer.recv(65536).startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("head, status", [
    (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"400"),
    (b"Content-Length: 5\r\nContent-Length: 6\r\n", b"400"),
    (b"Content-Length: +5\r\n", b"400"),
    (b"Content-Length: 99999999\r\n", b"413"),
    (b"Transfer-Encoding: gzip\r\n", b"501"),
])
def test_doubtful_lengths_are_refused_and_the_connection_closed(start, head, status):
    received = exchange(start().port, b"POST /orders HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n")
    assert received.split(b" ")[1] == status


def test_a_restart_keeps_receipts_and_what_they_cover(start, tmp_path):
    first = start()
    first.order("7", "c-1")
    covers_since = first.ask("GET", "/receipts/none")[2]["covers_since"]
    assert first.stop() == 0
    second = start()
    assert second.ask("GET", "/receipts/c-1")[2]["state"] == "SUCCESS"
    assert second.ask("GET", "/receipts/none")[2]["covers_since"] == covers_since
    assert second.count("7") == (1, 0)


def test_sigterm_lets_a_running_request_finish(start):
    service = start()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(service.order, "7", "c-1", "slow-after-effect=10")
        end = time.monotonic() + 5
        while service.count("7")[1] == 0:
            assert time.monotonic() < end
        assert service.stop() == 0
        assert running.exception() is None or isinstance(running.exception(), http.client.RemoteDisconnected)


def test_a_busy_port_is_named(start, tmp_path):
    service = start()
    second = subprocess.run(
        [sys.executable, str(SERVICE), "--port", str(service.port), "--db", str(tmp_path / "b.db")],
        capture_output=True, text=True, timeout=10,
    )
    assert second.returncode != 0 and str(service.port) in second.stderr and "Traceback" not in second.stderr
