# SPDX-License-Identifier: MIT
"""A service for tests: does to each path what a script says, tells the truth (or not) about it, and notes every byte.

A script is a list of steps; the n-th request to its path plays the n-th step, later ones the last. Effects happen
when the whole request was read, before any delay. Nothing here knows samekey: what is noted is what arrived."""

import collections
import json
import re
import socket
import ssl
import struct
import threading
import time


class Step:
    """What one request meets. `then`: respond, fin, rst, hang, partial (head and `cut` bytes of the body, then the
    end), rst_mid_request (after `cut` bytes of the request's body), rst_after (the whole answer, then a reset).
    `raw`: these bytes instead of an answer. `gate`: an Event to wait for, after the effect and before the answer.
    `pause`: an Event to wait for after `cut` bytes of the body, which are sent.
    `body` and `headers` may be functions of the request."""

    def __init__(self, status=201, body=b'{"ok":true}', headers=None, effect=None, then="respond", delay=0.0,
                 gate=None, pause=None, cut=0, raw=None, chunked=False, close=False, interim=b"", reason="X"):
        self.status, self.body, self.then, self.delay, self.gate = status, body, then, delay, gate
        self.headers = headers if headers is not None else {"Content-Type": "application/json"}
        self.cut, self.raw, self.chunked, self.close = cut, raw, chunked, close
        self.interim, self.reason, self.pause = interim, reason, pause
        self.effect = effect if effect is not None else (200 <= status < 300 and then in ("respond", "rst_after"))


class Seen:
    """One request as it arrived."""

    def __init__(self, method, target, headers, conn, nth, raw_head):
        self.method, self.target, self.headers, self.conn, self.nth = method, target, headers, conn, nth
        self.raw_head, self.body, self.t, self.node = raw_head, b"", time.monotonic(), None
        self.ended = None  # when its answer was out or its connection closed
        self.unread = 0.0  # so long it had lain in the socket when its head was read, in seconds

    def all(self, name):
        return [v for k, v in self.headers if k.lower() == name.lower()]

    def get(self, name, default=None):
        values = self.all(name)
        return values[0] if values else default

    @property
    def path(self):
        return self.target.split("?")[0]

    def __repr__(self):
        return f"<{self.method} {self.target} {self.get('X-Call-Id')} #{self.get('X-Call-Attempt')}>"


def receipt(state, call_id, status=None, **more):
    """The answer of an honest receipt endpoint."""
    document = {"callId": call_id, "state": state, **more}
    status = status or (404 if state in ("NONE", "NOT_RECEIVED") else 200)
    return Step(status, json.dumps(document).encode(), effect=False)


def _since_data(sock):
    """How long ago the last bytes came in, in seconds: tcpi_last_data_recv of linux/tcp.h."""
    try:
        return struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64), 52)[0] / 1000
    except OSError:
        return 0.0


class Upstream:
    def __init__(self, port=0, tls=None, backlog=256):
        self.lock = threading.Lock()
        self.scripts, self.receipts, self.seen = {}, {}, []
        self.effects_by_path, self.done, self.connections = {}, {}, 0
        self.came = collections.Counter()  # requests to each path, and questions to each address
        self.effect_times = {}  # of each path: when its effects happened
        self.receipt_mode = "honest"  # honest, none, down; `receipts` are for one callId
        self.closing = False
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(backlog)
        self.port = self.listener.getsockname()[1]
        self.tls = tls
        self.open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    # ---- what a test says

    def script(self, path, *steps):
        with self.lock:
            self.scripts[path] = list(steps)

    def answer_receipt(self, call_id, *steps):
        """What queries for this callId meet: Steps, or functions of the query that give one."""
        with self.lock:
            self.receipts[call_id] = list(steps)

    # ---- what a test asks

    def requests(self, path=None, call_id=None, method=None):
        with self.lock:
            return [s for s in self.seen if (path is None or s.path == path) and s.ask is None
                    and (call_id is None or s.get("X-Call-Id") == call_id)
                    and (method is None or s.method == method)]

    def posts(self, path=None, call_id=None):
        return [s for s in self.requests(path, call_id) if s.method not in ("GET", "HEAD", "OPTIONS")]

    def queries(self, call_id):
        with self.lock:
            return [s for s in self.seen if s.ask == call_id]

    def story(self, path, call_id):
        """POST and ? (receipt query) in the order of arrival."""
        with self.lock:
            return "".join("?" if s.ask else "P" for s in self.seen
                           if s.ask == call_id or (s.ask is None and s.path == path))

    def tale(self, path):
        """All that came for a path and about its calls, with times: what to read when it took effect twice."""
        with self.lock:
            calls = {s.get("X-Call-Id") for s in self.seen if s.ask is None and s.path == path}
            mine = [s for s in self.seen if s.path == path or s.ask in calls]
            effects = list(self.effect_times.get(path, ()))
        lines = [(s.t, f"head read: {s.method} {s.target} attempt {s.get('X-Call-Attempt')} connection {s.conn}"
                       f" request {s.nth}, unread for {s.unread:.3f} s, over at {s.ended and round(s.ended, 3)}") for s in mine]
        lines += [(t, "EFFECT") for t in effects]
        return [f"{t:.3f} {what}" for t, what in sorted(lines)]

    def effects(self, path):
        with self.lock:
            return self.effects_by_path.get(path, 0)

    def close(self):
        self.closing = True
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        with self.lock:
            for sock in list(self.open):
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    # ---- the service

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                number = self.connections
                self.open.add(sock)
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock, number):
        plain = sock
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            reader = sock.makefile("rb")
            nth = 0
            while self._one(sock, plain, reader, number, nth := nth + 1):
                pass
        except (OSError, ssl.SSLError, ValueError):
            pass
        finally:
            with self.lock:
                self.open.discard(plain)
            for each in (sock, plain):
                try:
                    each.close()
                except OSError:
                    pass

    def _one(self, sock, plain, reader, number, nth):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = reader.readline(70000)
            if not line:
                return False
            head += line
        first, *rest = head[:-4].decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = []
        for line in rest:
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))
        seen = Seen(method, target, headers, number, nth, head)
        seen.unread = _since_data(plain)
        # /receipts/ID, /.samekey/receipts/ID and ID/fence are questions; everything else is work.
        asked = re.fullmatch(r"(?:/\.samekey)?/receipts/([^/?]+)(/fence)?(?:\?.*)?", target)
        seen.ask = asked[1] if asked else None
        length = int(seen.get("Content-Length", "0"))
        step = None
        if not asked:
            with self.lock:
                steps = self.scripts.get(seen.path) or [Step()]
                step = steps[min(self.came[seen.path], len(steps) - 1)]
                if step.then == "rst_mid_request":
                    self._note(seen)
        if step is not None and step.then == "rst_mid_request":
            seen.body = reader.read(min(step.cut, length))
            return self._reset(sock)
        if "100-continue" in seen.get("Expect", "").lower():
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in seen.get("Transfer-Encoding", "").lower():
            while size := int(reader.readline().split(b";")[0], 16):
                seen.body += reader.read(size)
                reader.readline()
            while reader.readline().strip():
                pass
        elif length:
            seen.body = reader.read(length)
            if len(seen.body) < length:
                return False
        if asked:
            return self._play(sock, seen, self._receipt_step(seen, asked[2]))
        with self.lock:
            self._note(seen)
            if step.effect and method not in ("GET", "HEAD", "OPTIONS"):
                self.effects_by_path[seen.path] = self.effects_by_path.get(seen.path, 0) + 1
                self.effect_times.setdefault(seen.path, []).append(time.monotonic())
                if seen.get("X-Call-Id"):
                    self.done[seen.get("X-Call-Id")] = True
        return self._play(sock, seen, step)

    def _note(self, seen):
        self.seen.append(seen)
        self.came[seen.target if seen.ask else seen.path] += 1

    def _receipt_step(self, seen, fence):
        with self.lock:
            came = self.came[seen.target]
            self._note(seen)
            steps = self.receipts.get(seen.ask)
            done = seen.ask in self.done
        if steps:
            step = steps[min(came, len(steps) - 1)]
            return step(seen) if callable(step) else step
        if self.receipt_mode == "down":
            return Step(then="rst", effect=False)
        if fence:
            return Step(404, b"no such thing", {"Content-Type": "text/plain"}, effect=False)
        return receipt("SUCCESS" if done and self.receipt_mode == "honest" else "NOT_RECEIVED", seen.ask)

    def _reset(self, sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        return False

    def _play(self, sock, seen, step):
        try:
            return self._act(sock, seen, step)
        finally:
            seen.ended = time.monotonic()

    def _act(self, sock, seen, step):
        if step.gate is not None and not step.gate.wait(60):
            return False
        if step.delay:
            time.sleep(step.delay)
        if step.interim:
            sock.sendall(step.interim)
        if step.then == "hang":
            sock.settimeout(120)
            try:
                while sock.recv(4096):
                    pass
            except OSError:
                pass
            return False
        if step.then == "rst":
            return self._reset(sock)
        if step.then == "fin":
            return False
        if step.raw is not None:
            sock.sendall(step.raw)
            return not step.close
        body = step.body(seen) if callable(step.body) else step.body
        body = body.encode() if isinstance(body, str) else body
        headers = step.headers(seen) if callable(step.headers) else step.headers
        pairs = headers.items() if isinstance(headers, dict) else headers
        out = f"HTTP/1.1 {step.status} {step.reason}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in pairs)
        if step.close:
            out += "Connection: close\r\n"
        if step.status in (204, 304):
            body = b""
        elif step.chunked:
            out += "Transfer-Encoding: chunked\r\n"
        else:
            out += f"Content-Length: {len(body)}\r\n"
        cut = body[:step.cut] if step.then == "partial" else body
        if step.pause is not None:
            first = b"%x\r\n%b\r\n" % (step.cut, body[:step.cut]) if step.chunked else body[:step.cut]
            sock.sendall(out.encode("latin-1") + b"\r\n" + first)
            if not step.pause.wait(60):
                return False
            cut, out = body[step.cut:], None
        if step.chunked and step.status not in (204, 304):
            cut = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in
                           (cut[i:i + 4096] for i in range(0, len(cut), 4096)))
            cut += b"" if step.then == "partial" else b"0\r\n\r\n"
        head = b"" if out is None else out.encode("latin-1") + b"\r\n"
        sock.sendall(head + (b"" if seen.method == "HEAD" else cut))
        if step.then == "partial":
            return False
        if step.then == "rst_after":
            return self._reset(sock)
        return not step.close


def refused_port():
    """A port that nobody listens on; the socket that keeps it so must be held."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    return held.getsockname()[1], held


def deaf_port():
    """A port whose connections are never taken: the system drops what comes once its queue is full. The sockets must
    be held."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    held = [listener]
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(listener.getsockname())
        held.append(one)
    return listener.getsockname()[1], held
