# SPDX-License-Identifier: MIT
"""A TCP proxy in front of a service that can lose replies: the request arrives, and the answer does not come back."""

import socket
import threading


class Lossy:
    def __init__(self, port):
        self.target, self.losing, self.posts = port, 0, 0
        self.when_lost = None  # called when a reply that is to be lost has come: the service has committed
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def _accept(self):
        while True:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller):
        try:
            service = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            caller.close()
            return
        with caller, service:
            mute = False
            down = threading.Thread(target=self._down, args=(service, caller, lambda: mute), daemon=True)
            down.start()
            try:
                while data := caller.recv(65536):
                    with self.lock:
                        if data.startswith(b"POST "):
                            self.posts += 1
                            mute, self.losing = self.losing > 0, max(0, self.losing - 1)
                    service.sendall(data)
            except OSError:
                pass

    def _down(self, service, caller, mute):
        try:
            while data := service.recv(65536):
                if mute():
                    if self.when_lost:
                        self.when_lost()
                    caller.shutdown(socket.SHUT_RDWR)
                    return
                caller.sendall(data)
        except OSError:
            pass
        try:
            caller.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self):
        self.listener.close()
