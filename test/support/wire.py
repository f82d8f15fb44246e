# SPDX-License-Identifier: MIT
"""An HTTP/1.1 client that hides nothing: it sends the bytes it is given and reads answers strictly."""

import json
import socket
import time


class Answer:
    """One answer. `headers` are (name, value) pairs in their order; `raw` is all its bytes."""

    def __init__(self, status, reason, headers, body, raw, interim):
        self.status, self.reason, self.headers, self.body = status, reason, headers, body
        self.raw, self.interim = raw, interim

    def all(self, name):
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def get(self, name, default=None):
        values = self.all(name)
        return values[0] if values else default

    def json(self):
        return json.loads(self.body)

    @property
    def slug(self):
        """The problem's slug, or None where the answer is no problem of samekey's."""
        if self.get("Content-Type", "").split(";")[0] != "application/problem+json":
            return None
        kind = self.json().get("type", "")
        return kind[len("urn:samekey:"):] if kind.startswith("urn:samekey:") else None

    @property
    def outcome(self):
        return self.get("Call-Outcome")

    @property
    def replayed(self):
        return self.get("Idempotent-Replayed") == "true"

    def __repr__(self):
        return f"<{self.status} {self.slug or ''} {self.outcome} {self.body[:300]!r}>"


class Hangup(Exception):
    """The peer closed or reset; `.data` is what came before."""

    def __init__(self, data, how):
        super().__init__(f"{how} after {data[:200]!r}")
        self.data, self.how = data, how


class Wire:
    """One connection."""

    def __init__(self, address, timeout=15):
        if isinstance(address, str):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(timeout)
            self.sock.connect(address)
        else:
            self.sock = socket.create_connection(("127.0.0.1", address), timeout=timeout)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.sock.sendall(data)

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with a reset instead of an end."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def _more(self):
        try:
            piece = self.sock.recv(262144)
        except ConnectionError as error:
            raise Hangup(self.left, type(error).__name__) from error
        if not piece:
            raise Hangup(self.left, "end")
        self.left += piece

    def take(self, count):
        pieces, missing = [], count
        while missing > len(self.left):  # gathered piece by piece: a large body is not copied for each of them
            pieces.append(self.left)
            missing -= len(self.left)
            self.left = b""
            try:
                self._more()
            except Hangup as end:
                raise Hangup(b"".join(pieces), end.how) from end
        pieces.append(self.left[:missing])
        self.left = self.left[missing:]
        return b"".join(pieces)

    def line(self):
        while b"\r\n" not in self.left:
            assert len(self.left) < 1 << 20, "a line without an end"
            self._more()
        piece, self.left = self.left.split(b"\r\n", 1)
        return piece

    def rest(self):
        """Everything up to the end of the connection."""
        try:
            while True:
                self._more()
        except Hangup:
            pass
        piece, self.left = self.left, b""
        return piece

    def head(self):
        """Status, reason and headers of the next answer, interim ones too."""
        first = self.line().decode("latin-1")
        version, status, reason = (first + " ").split(" ", 2)
        assert version == "HTTP/1.1" and status.isdigit(), f"no status line: {first!r}"
        headers = []
        while line := self.line():
            name, colon, value = line.decode("latin-1").partition(":")
            assert colon and name and name == name.strip() and name[0] not in " \t", f"no header: {line!r}"
            headers.append((name, value.strip(" \t")))
        return int(status), reason.strip(), headers

    def answer(self, to="POST"):
        """The next final answer, whole; `to` is the method it answers."""
        interim, raw_left = [], None
        while True:
            status, reason, headers = self.head()
            if status >= 200:
                break
            interim.append((status, headers))
        lengths = [v for k, v in headers if k.lower() == "content-length"]
        coding = [v for k, v in headers if k.lower() == "transfer-encoding"]
        assert len(lengths) + len(coding) <= 1, f"two lengths: {headers}"
        assert len([1 for k, _ in headers if k.lower() == "date"]) <= 1, f"two dates: {headers}"
        if to == "HEAD" or status in (204, 304):
            assert not coding and (status != 204 or not lengths), f"{status} with a length: {headers}"
            body = b""
        elif coding:
            assert coding == ["chunked"]
            body = b""
            while size := int(self.line(), 16):
                body += self.take(size)
                assert self.take(2) == b"\r\n"
            while self.line():
                pass
        elif lengths:
            body = self.take(int(lengths[0]))
        else:
            body = self.rest()
        return Answer(status, reason, headers, body, raw_left, interim)


def lines(headers):
    """Header lines from a dict or a list of pairs; a list as a value is that many lines; None is left out."""
    pairs = headers.items() if isinstance(headers, dict) else headers or []
    out = ""
    for name, value in pairs:
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None:
                out += f"{name}: {one}\r\n"
    return out


def request(method, path, headers=None, body=b"", host="api.example.test", chunked=False):
    """The bytes of a request. A body is given its length, or sent as chunks of at most 1000 bytes."""
    body = body.encode() if isinstance(body, str) else body
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{lines(headers)}"
    if chunked:
        head += "Transfer-Encoding: chunked\r\n"
        pieces = [body[i:i + 1000] for i in range(0, len(body), 1000)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
    elif body or method in ("POST", "PUT", "PATCH"):
        head += f"Content-Length: {len(body)}\r\n"
    return head.encode("latin-1") + b"\r\n" + body


def ask(address, method, path, headers=None, body=b"", timeout=15, **more):
    """One request on a connection of its own."""
    with Wire(address, timeout) as wire:
        wire.send(request(method, path, headers, body, **more))
        return wire.answer(to=method)


def hang_up_after(address, data, seconds):
    """Sends the bytes, waits that long for an answer and goes away. True: no byte of an answer had come."""
    with Wire(address) as wire:
        wire.send(data)
        wire.sock.settimeout(seconds)
        end = time.monotonic() + seconds
        try:
            wire._more()
        except TimeoutError:
            return time.monotonic() >= end - 0.05
        return False
