# SPDX-License-Identifier: MIT
"""The rows of HTTP/2: a refused stream proves that nothing ran; GOAWAY and resets prove nothing to this libcurl."""

import socket
import ssl
import threading

import h2.config
import h2.connection
import h2.errors
import h2.events
import pytest

from caller import Home, certificates, outcomes


class Service:
    """An HTTP/2 server that does to each request, in their order, what `script` says."""

    def __init__(self, script, tls=None):
        self.script, self.tls, self.requests = script, tls, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
            connection.initiate_connection()
            sock.sendall(connection.data_to_send())
            heads = {}
            while data := sock.recv(65536):
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        heads[event.stream_id] = {k.decode(): v.decode() for k, v in event.headers}
                    elif isinstance(event, h2.events.StreamEnded) and event.stream_id in heads:
                        if self._play(sock, connection, event.stream_id, heads) == "close":
                            sock.close()
                            return
                sock.sendall(connection.data_to_send())
        except (OSError, ssl.SSLError, h2.exceptions.ProtocolError):
            pass

    def _step(self):
        return self.script[min(len(self.requests), len(self.script) - 1)]

    def _play(self, sock, connection, stream, heads):
        step = self._step()
        self.requests.append(heads.pop(stream))
        if step == "refuse":
            connection.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
        elif step in ("CANCEL", "INTERNAL_ERROR", "ENHANCE_YOUR_CALM"):
            connection.reset_stream(stream, h2.errors.ErrorCodes[step])
        elif step == "goaway before":
            connection.close_connection(last_stream_id=0)
        elif step == "goaway after":
            connection.close_connection(last_stream_id=stream)
        elif step == "fin":
            return "close"
        elif step == "cut":
            connection.send_headers(stream, [(":status", "200")])
            connection.send_data(stream, b"half")
            sock.sendall(connection.data_to_send())
            return "close"
        else:
            connection.send_headers(stream, [(":status", str(step)), ("content-type", "text/plain")])
            connection.send_data(stream, b"hello", end_stream=True)
        if step in ("goaway before", "goaway after"):
            sock.sendall(connection.data_to_send())
            return "close"
        return None


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture(params=["plain", "tls"])
def play(request, tmp_path, started, pki):
    def make(*script, flags=()):
        context = None
        if request.param == "tls":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pki[1], pki[2])
            context.set_alpn_protocols(["h2"])
        service = Service(script, context)
        started.append(service)
        run = Home(tmp_path).call(service.url + "/orders", "--http2", "--receipt", "none", "--ca-file", pki[0],
                                  "--attempt-timeout", "2s", *flags)
        return run, service.requests
    return make


def test_an_answer(play):
    run, requests = play(200)
    assert run.code == 0 and run.json["result"]["body"] == "hello" and len(requests) == 1
    assert requests[0]["x-call-id"] == run.json["call_id"] and requests[0]["idempotency-key"] == "k-1"


def test_a_refused_stream_did_not_run_and_is_sent_again_by_us_not_by_libcurl(play):
    run, requests = play("refuse", 200)
    assert run.code == 0 and outcomes(run) == ["not_executed", "success"] and len(requests) == 2
    assert "refused the stream" in run.json["attempts"][0]["evidence"]
    assert [r["x-call-attempt"] for r in requests] == ["1", "2"]


def test_streams_that_are_always_refused(play):
    run, requests = play("refuse", flags=["--retries", "2"])
    assert run.code == 3 and not run.json["final"] and outcomes(run) == ["not_executed"] * 3
    assert len(requests) == 3


@pytest.mark.parametrize("step", ["CANCEL", "INTERNAL_ERROR", "ENHANCE_YOUR_CALM", "goaway before", "goaway after", "fin",
                                  "cut"])
def test_everything_else_is_unknown_and_sent_once(play, step):
    run, requests = play(step, 200)
    assert run.code == 4 and outcomes(run) == ["unknown"] and len(requests) == 1, run


@pytest.mark.parametrize("status, outcome", [(202, "pending"), (422, "rejected"), (421, "not_executed"), (503, "unknown")])
def test_statuses(play, status, outcome):
    run, requests = play(status, flags=["--retries", "0"])
    assert outcomes(run) == [outcome] and len(requests) == 1
