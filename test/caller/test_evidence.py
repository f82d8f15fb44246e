# SPDX-License-Identifier: MIT
"""What each event on a connection proves, row by row, over plain TCP and over TLS: the command, and the library where a
kept connection is needed. Never a silent re-send: every row counts what the service read."""

import contextlib
import socket
import ssl
import threading
import time

import pytest

import caller
from caller import Home, certificates, outcomes
from support.poll import unique
from support.stub import Stub, case
from support.upstream import Step, Upstream, deaf_port, refused_port

ASK = "{origin}/receipts/{call_id}"


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("pki"))


def server_context(pki):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki[1], pki[2])
    return context


@pytest.fixture(scope="module", params=["plain", "tls"])
def service(request, pki):
    upstream = Upstream(tls=server_context(pki) if request.param == "tls" else None)
    upstream.receipt_mode = "down"  # so that every row shows what the attempt alone proved
    yield upstream
    upstream.close()


@pytest.fixture
def once(service, pki, tmp_path):
    """Makes one call that is never repeated, to a path of its own: (document, posts)."""
    home = Home(tmp_path)

    def make(*steps, flags=(), **more):
        path = "/" + unique("e")
        service.script(path, *steps)
        run = home.call(service.url + path, "--retries", "0", "--receipt", "none", "--ca-file", pki[0], *flags, **more)
        assert run.code in (0, 3, 4), run
        return run.json, service.posts(path)
    return make


RAW = b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\n"
UNKNOWN_ROWS = {
    "the end after the whole request": Step(then="fin", effect=True),
    "a reset after the whole request": Step(then="rst", effect=True),
    "no answer in time": Step(then="hang", effect=True),
    "headers and then nothing": Step(raw=RAW % b"200 OK" + b"Content-Length: 5\r\n\r\n", then="respond"),
    "a head that is cut by the end": Step(raw=b"HTTP/1.1 200 OK\r\nContent-Le", close=True),
    "a body shorter than its length": Step(200, b"twelve bytes", then="partial", cut=5),
    "a body of chunks that is cut": Step(200, b"y" * 9000, then="partial", cut=5000, chunked=True),
    "a body whose end nothing marks": Step(raw=RAW % b"200 OK" + b"\r\nhello", close=True),
    "not HTTP at all": Step(raw=b"SSH-2.0-OpenSSH_9.2\r\n\r\n", close=True),
    "a length that is no number": Step(raw=RAW % b"200 OK" + b"Content-Length: five\r\n\r\nhello", close=True),
    "two lengths": Step(raw=RAW % b"200 OK" + b"Content-Length: 5\r\nContent-Length: 9\r\n\r\nhello", close=True),
    "a coding without chunks": Step(raw=RAW % b"200 OK" + b"Transfer-Encoding: identity\r\n\r\nhello", close=True),
    "a chunk that is none": Step(raw=RAW % b"200 OK" + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n", close=True),
    "103 and then the end": Step(raw=b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", close=True),
    "102 and then nothing": Step(raw=b"HTTP/1.1 102 Processing\r\n\r\n"),
    "408": Step(408, effect=False), "409": Step(409, effect=False), "500": Step(500, effect=False),
    "502": Step(502, effect=False), "503": Step(503, effect=False), "504": Step(504, effect=False),
    "522": Step(522, effect=False), "301": Step(301, effect=False, headers={"Location": "/x"}),
    "303": Step(303, effect=False, headers={"Location": "/x"}), "308": Step(308, effect=False, headers={"Location": "/x"}),
    "another callId": Step(201, headers={"X-Call-Id": "somebody-elses"}),
    "two words for it": Step(201, headers=[("Call-Outcome", "success"), ("Call-Outcome", "failed")]),
    "a callee that does not know": Step(200, headers={"Call-Outcome": "unknown"}),
}


@pytest.mark.parametrize("row", UNKNOWN_ROWS)
def test_unknown(once, row):
    document, posts = once(UNKNOWN_ROWS[row], flags=["--attempt-timeout", "400ms"])
    assert outcomes(document) == ["unknown"] and document["state"] == "UNKNOWN", document
    assert len(posts) == 1 and document["attempts"][0]["sent_bytes"] > 0


ANSWERED_ROWS = [(200, "success"), (201, "success"), (204, "success"), (202, "pending"), (400, "rejected"),
                 (403, "rejected"), (404, "rejected"), (410, "rejected"), (413, "rejected"), (415, "rejected"),
                 (422, "rejected"), (428, "rejected"), (431, "rejected"), (401, "not_executed"), (407, "not_executed"),
                 (417, "not_executed"), (421, "not_executed"), (425, "not_executed"), (429, "not_executed")]


@pytest.mark.parametrize("status, outcome", ANSWERED_ROWS)
def test_answers(once, status, outcome):
    document, posts = once(Step(status, effect=False))
    assert outcomes(document) == [outcome] and document["attempts"][0]["status"] == status and len(posts) == 1


@pytest.mark.parametrize("word", ["success", "rejected", "failed", "not-executed", "pending", "unknown"])
@pytest.mark.parametrize("status", [200, 409, 503])
def test_the_callees_word_decides_before_the_status(once, word, status):
    document, _ = once(Step(status, headers={"Call-Outcome": word}, effect=False))
    assert outcomes(document) == [word.replace("-", "_")]


def test_chunks_and_trailers_are_a_complete_answer(once):
    document, _ = once(Step(raw=RAW % b"200 OK" + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
                            b"Call-Outcome: failed\r\n\r\n"))
    assert outcomes(document) == ["success"] and document["result"]["body"] == "hello"


def test_a_reset_while_the_body_is_being_sent(once):
    document, _ = once(Step(then="rst_mid_request", cut=1000), data="-", stdin=b"x" * 400_000)
    assert outcomes(document) == ["unknown"]


def test_a_refusal_that_comes_before_the_body_is_sent(service, pki, tmp_path):
    """413 at once, the rest of the body not read: a definite answer."""
    with early_server(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig") as port:
        run = Home(tmp_path).call(f"http://127.0.0.1:{port}/y", "--retries", "0", "--receipt", "none", data="-",
                                  stdin=b"x" * 8_000_000, key="k-2")
    assert run.code == 3 and outcomes(run) == ["rejected"] and run.json["attempts"][0]["status"] == 413


def test_a_success_that_comes_before_the_body_is_sent_proves_nothing(tmp_path):
    with early_server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as port:
        run = Home(tmp_path).call(f"http://127.0.0.1:{port}/y", "--retries", "0", "--receipt", "none", data="-",
                                  stdin=b"x" * 8_000_000)
    assert run.code == 4 and outcomes(run) == ["unknown"]


@contextlib.contextmanager
def early_server(answer):
    """Answers after the head, reads a little more, and closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock, contextlib.suppress(OSError):
                    data = b""
                    while b"\r\n\r\n" not in data:
                        data += sock.recv(65536)
                    sock.sendall(answer)
                    time.sleep(0.05)
    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


# ---- before the first byte


def never_sent(run, evidence):
    assert run.code == 3 and outcomes(run) == ["not_executed"] and not run.json["final"], run
    assert run.json["attempts"][0]["sent_bytes"] == 0 and evidence in run.json["attempts"][0]["evidence"], run


def test_no_such_name(tmp_path):
    never_sent(Home(tmp_path).call("http://no-such-name.invalid/x", "--retries", "0"), "name of the service was not found")


def test_connection_refused(tmp_path):
    port, held = refused_port()
    with held:
        never_sent(Home(tmp_path).call(f"http://127.0.0.1:{port}/x", "--retries", "0"), "connection refused")


def test_no_connection_in_time(tmp_path):
    port, held = deaf_port()
    never_sent(Home(tmp_path).call(f"http://127.0.0.1:{port}/x", "--retries", "0", "--attempt-timeout", "300ms"),
               "no connection in time")
    for one in held:
        one.close()


def test_a_certificate_that_is_not_trusted_is_not_tried_again(tmp_path, pki, started):
    service = Upstream(tls=server_context(pki))
    started.append(service)
    run = Home(tmp_path).call(service.url + "/x", "--retries", "3")
    never_sent(run, "certificate is not to be trusted")
    assert not service.requests()


def test_a_server_that_does_not_speak_tls(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            sock, _ = listener.accept()
            with sock:
                sock.recv(65536)
                sock.sendall(b"HTTP/1.1 400 This is not TLS\r\n\r\n")
        threading.Thread(target=serve, daemon=True).start()
        never_sent(Home(tmp_path).call(f"https://127.0.0.1:{listener.getsockname()[1]}/x", "--retries", "0"), "TLS failed")


def test_a_handshake_that_hangs(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        never_sent(Home(tmp_path).call(f"https://127.0.0.1:{listener.getsockname()[1]}/x", "--retries", "0",
                                       "--attempt-timeout", "300ms"), "no connection in time")


def test_a_client_certificate_that_is_asked_for_too_late_proves_nothing(tmp_path, pki):
    """TLS 1.3: the refusal comes after our request left (OUTCOMES: formally unknown)."""
    context = server_context(pki)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(pki[0])
    service = Upstream(tls=context)
    run = Home(tmp_path).call(service.url + "/x", "--retries", "0", "--receipt", "none", "--ca-file", pki[0])
    service.close()
    assert outcomes(run) == ["unknown"] and not service.requests()


# ---- through a proxy


class Proxy:
    """Answers CONNECT as told, and passes bytes on."""

    def __init__(self, answer=b"HTTP/1.1 200 Connection established\r\nX-Call-Id: proxy\r\n\r\n"):
        self.answer, self.listener = answer, socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self.listener.accept()[0],), daemon=True).start()

    def _serve(self, sock):
        with sock, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(65536)
            host, port = head.split()[1].decode().split(":")
            sock.sendall(self.answer)
            if b" 200 " not in self.answer:
                return
            with socket.create_connection((host, int(port))) as far:
                back = threading.Thread(target=self._copy, args=(far, sock), daemon=True)
                back.start()
                self._copy(sock, far)
                back.join(10)

    @staticmethod
    def _copy(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("step, outcome", [(Step(201), "success"), (Step(422, effect=False), "rejected"),
                                           (Step(then="rst", effect=True), "unknown")])
def test_a_tunnel_is_no_answer(tmp_path, pki, started, step, outcome):
    service, proxy, home = Upstream(tls=server_context(pki)), Proxy(), Home(tmp_path)
    started += [service, proxy]
    service.script("/x", step)
    home.env["https_proxy"] = f"http://127.0.0.1:{proxy.port}"
    run = home.call(service.url + "/x", "--retries", "0", "--receipt", "none", "--ca-file", pki[0])
    assert outcomes(run) == [outcome] and len(service.posts("/x")) == 1, run


def test_a_tunnel_that_is_refused_sends_nothing(tmp_path, pki, started):
    proxy, home = Proxy(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n"), Home(tmp_path)
    started.append(proxy)
    home.env["https_proxy"] = f"http://127.0.0.1:{proxy.port}"
    never_sent(home.call("https://127.0.0.1:9/x", "--retries", "0", "--ca-file", pki[0]), "")


# ---- Expect: 100-continue


@pytest.mark.parametrize("answer, outcome", [(None, "not_executed"), (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "unknown"),
                                             (b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n", "not_executed")])
def test_a_body_held_back_for_100(tmp_path, answer, outcome):
    heads = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                data = b""
                while b"\r\n\r\n" not in data:
                    data += sock.recv(65536)
                heads.append(data)
                if answer:
                    sock.sendall(answer)
                    time.sleep(0.2)
                else:
                    time.sleep(0.6)
                sock.close()
    threading.Thread(target=serve, daemon=True).start()
    run = Home(tmp_path).call(f"http://127.0.0.1:{listener.getsockname()[1]}/x", "--retries", "0", "--expect-continue",
                              "--receipt", "none", "--attempt-timeout", "400ms", data="the body")
    listener.close()
    assert outcomes(run) == [outcome] and len(heads) == 1
    assert b"Expect: 100-continue" in heads[0] and b"the body" not in heads[0]


def test_a_body_that_got_its_100(tmp_path, started):
    service = Upstream()
    started.append(service)
    assert Home(tmp_path).call(service.url + "/x", "--expect-continue", data="the body").code == 0
    assert service.posts("/x")[0].body == b"the body"


# ---- kept connections, by the library


@pytest.mark.no_sanitizer
class TestKeptConnections:
    @pytest.fixture
    def handle(self):
        import samekey
        with samekey.Caller(lib=caller.lib()) as handle:
            yield handle

    def test_case_01_on_the_kept_connection(self, handle, started):
        stub = Stub(case("01-reused-connection-resend") / "upstream.json")
        started.append(stub)
        for number in (1, 2):
            head, _, body = (case("01-reused-connection-resend") / f"call-{number}.http").read_bytes().partition(
                b"\r\n\r\n")
            result = handle.call(stub.url + "/orders", call_id=f"c-100{number}", key=f"order:o-100{number}", body=body,
                                 receipt=ASK)
        log = stub.counters()["log"]
        posts = stub.posts("o-1002")
        assert len(posts) == 1 and posts[0]["nth"] == 2, "both on one connection, and read once"
        assert [e["kind"] for e in log if e["callId"] == "c-1002"][:2] == ["request", "receipt"]
        assert result["state"] == "SUCCESS" and outcomes(result) == ["unknown"]
        assert "it was not sent a second time" in result["attempts"][0]["evidence"]
        assert stub.counters()["effects"] == {"o-1001": 1, "o-1002": 1}

    @pytest.mark.parametrize("method, body", [("POST", b"x"), ("PUT", b"x"), ("PATCH", b"x" * 200000), ("POST", b""),
                                              ("DELETE", b""), ("PURGE", b"")])
    @pytest.mark.parametrize("how", ["rst", "fin"])
    def test_a_write_is_read_once_however_the_kept_connection_dies(self, handle, started, method, body, how):
        service = Upstream()
        started.append(service)
        service.script("/x", Step(), Step(then=how, effect=True), Step())
        handle.call(service.url + "/x", method="POST", body=b"first", key="k1")
        result = handle.call(service.url + "/x", method=method, body=body, key="k2", receipt="none")
        assert outcomes(result) == ["unknown"] and result["state"] == "UNKNOWN"
        assert len(service.requests("/x")) == 2

    def test_connections_are_kept(self, handle, started):
        service = Upstream()
        started.append(service)
        for number in range(50):
            assert handle.call(service.url + "/x", body=b"x", key=f"k{number}")["state"] == "SUCCESS"
        assert len({p.conn for p in service.posts("/x")}) == 1

    def test_a_read_may_be_repeated_by_the_transport(self, handle, started):
        service = Upstream()
        started.append(service)
        service.script("/x", Step(200), Step(then="rst"), Step(200))
        handle.call(service.url + "/x", method="GET")
        assert handle.call(service.url + "/x", method="GET")["state"] == "SUCCESS"

    def test_cancelling_a_call_in_flight(self, handle, started):
        service = Upstream()
        started.append(service)
        service.script("/x", Step(then="hang", effect=True))
        began = time.monotonic()
        result = handle.call(service.url + "/x", body=b"x", key="k", receipt=ASK, attempt_timeout_ms=20000,
                             cancelled=lambda: len(service.posts("/x")) > 0)
        assert result["state"] == "UNKNOWN" and time.monotonic() - began < 3
        # And before anything was sent it is no doubt at all.
        result = handle.call(service.url + "/y", body=b"x", key="k", receipt=ASK, cancelled=lambda: True)
        assert result["state"] in ("FAILED", "SUCCESS", "UNKNOWN")
        assert result["state"] != "FAILED" or not service.posts("/y")

    def test_many_threads_and_one_handle(self, handle, started):
        service = Upstream()
        started.append(service)
        ends = []

        def work(name):
            for number in range(20):
                ends.append(handle.call(service.url + f"/{name}/{number}", body=b"x", key=f"{name}:{number}"))
        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(ends) == 160 and {e["state"] for e in ends} == {"SUCCESS"}
        assert len({e["call_id"] for e in ends}) == 160
        assert all(len(service.posts(f"/{n}/{i}")) == 1 for n in range(8) for i in range(20))
