# SPDX-License-Identifier: MIT
"""A proxy for PostgreSQL's protocol that cuts its first connection at a chosen message, and passes all later ones.

The messages of that connection are numbered from 1 as they arrive, both ways together. `cut=n, way="before"`: message n is
not passed on. `way="after"`: it is passed on, and whatever would come back is thrown away; when it went to the server, the
server is given until `settled(type, body)` of that message says that it has acted. Then both ends are closed. No TLS: connect with sslmode=disable."""

import socket
import struct
import threading
import time


class Cut:
    def __init__(self, port, cut=0, way="before", settled=None, at=None):
        """`at`: instead of a number, a function of (to_server, type, body) that is true for the message to cut at."""
        self.target, self.cut, self.way, self.settled, self.at = port, cut, way, settled, at
        self.lock, self.seen, self.first, self.fired = threading.Lock(), [], True, threading.Event()
        self.refusing = False  # once it has cut, nobody gets through any more
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                watched, self.first = self.first, False
            if not watched and self.refusing:
                caller.close()
                continue
            server = socket.create_connection(("127.0.0.1", self.target))
            for end in (caller, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = Pair(self, caller, server, watched)
            for to_server in (True, False):
                threading.Thread(target=pair.pump, args=(to_server,), daemon=True).start()

    def close(self):
        self.listener.close()


class Pair:
    def __init__(self, proxy, caller, server, watched):
        self.proxy, self.caller, self.server, self.watched = proxy, caller, server, watched
        self.muted = False

    def pump(self, to_server):
        source, sink = (self.caller, self.server) if to_server else (self.server, self.caller)
        started = not to_server  # the first message of a caller has no type
        try:
            while True:
                kind = b"" if not started else self._take(source, 1)
                head = self._take(source, 4)
                body = self._take(source, struct.unpack("!I", head)[0] - 4)
                started = True
                self._pass(sink, to_server, kind, kind + head + body, body)
        except (OSError, EOFError):
            self._end()

    def _pass(self, sink, to_server, kind, data, body):
        proxy = self.proxy
        if not self.watched:
            sink.sendall(data)
            return
        with proxy.lock:
            if self.muted:
                raise EOFError
            proxy.seen.append((to_server, kind))
            hit = proxy.at(to_server, kind, body) if proxy.at else len(proxy.seen) == proxy.cut
            self.muted = bool(hit)
        if not hit:
            sink.sendall(data)
            return
        if proxy.way == "after":
            sink.sendall(data)
            end = time.monotonic() + 5
            while to_server and proxy.settled and not proxy.settled(kind, body) and time.monotonic() < end:
                time.sleep(0.005)
        proxy.fired.set()
        raise EOFError

    @staticmethod
    def _take(source, count):
        data = b""
        while len(data) < count:
            piece = source.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def _end(self):
        for end in (self.caller, self.server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
