# SPDX-License-Identifier: MIT
"""A proxy before PostgreSQL that knows where messages begin, and cuts a connection at the one it is told.

arm(n, when): the n-th message from now on, whoever sends it, is the last one: "before" it is passed on, or "after" (then
the other side may act on it, and its answer is lost). Only the connection that carries it is cut."""

import socket
import struct
import threading
import time

from .poll import free_port


class CutProxy:
    def __init__(self, port):
        self.target, self.port = port, free_port()
        self.lock = threading.Lock()
        self.left, self.when, self.cut = 0, "before", None  # what was cut: "> Q", "< C"
        self.open = set()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.port))
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, database="postgres", user="samekey"):
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}?sslmode=disable&gssencmode=disable"

    def arm(self, n, when):
        with self.lock:
            self.left, self.when, self.cut = n, when, None

    def disarm(self):
        """What was cut, or None."""
        with self.lock:
            self.left = 0
            return self.cut

    def close(self):
        self.listener.close()
        for sock in list(self.open):
            _shut(sock)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                if self.listener.fileno() < 0:
                    return
                _shut(client)
                continue
            self.open |= {client, server}
            threading.Thread(target=self._pump, args=(client, server, ">"), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, "<"), daemon=True).start()

    def _falls(self, direction, kind):
        """Whether this message is the one: "before", "after", or None."""
        with self.lock:
            if not self.left:
                return None
            self.left -= 1
            if self.left:
                return None
            self.cut = f"{direction} {kind}"
            return self.when

    def _pump(self, source, sink, direction):
        data, startup = b"", direction == ">"
        try:
            while True:
                more = source.recv(65536)
                if not more:
                    break
                data += more
                out, fall = b"", None
                while fall is None:
                    head = 0 if startup else 1
                    if len(data) < head + 4:
                        break
                    length = head + struct.unpack(">I", data[head:head + 4])[0]
                    if len(data) < length:
                        break
                    message, data = data[:length], data[length:]
                    fall = self._falls(direction, "startup" if startup else chr(message[0]))
                    startup = False
                    if fall != "before":
                        out += message
                if out:
                    sink.sendall(out)
                if fall:
                    if fall == "after":
                        time.sleep(0.02)  # time to act on it
                    break
        except OSError:
            pass
        _shut(source)
        _shut(sink)
        self.open -= {source, sink}


def _shut(sock):
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()
