# SPDX-License-Identifier: MIT
"""A real redis-server in a folder of its own, and a client that says RESP to it and nothing cleverer."""

import atexit
import functools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

from .poll import free_port, until


class RedisError(Exception):
    pass


class Redis:
    """`options`: lines of its configuration. It listens on `port` and on the unix socket `socket`."""

    def __init__(self, folder=None, start=True, **options):
        self.own_folder = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="redis-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.port, self.process = free_port(), None
        self.socket = self.folder / "s"
        if start:
            self.start()

    # ---- its life

    def start(self):
        lines = {"port": self.port, "bind": "127.0.0.1", "unixsocket": self.socket, "save": '""', "appendonly": "no",
                 "dir": self.folder, "daemonize": "no", "enable-debug-command": "yes", **self.options}
        conf = self.folder / "redis.conf"
        conf.write_text("".join(f"{k.replace('_', '-')} {v}\n" for k, v in lines.items()), encoding="utf-8")
        self.process = subprocess.Popen(["redis-server", str(conf)], stdin=subprocess.DEVNULL,
                                        stdout=open(self.folder / "log", "ab"), stderr=subprocess.STDOUT)
        until(self.answers, 20)
        return self

    def answers(self):
        assert self.process.poll() is None, (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-2000:]
        try:
            return self("PING") == b"PONG"
        except (OSError, RedisError, AssertionError):
            return False

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(10)

    def pause(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self):
        if self.process:
            self.kill()
        if self.own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- what one asks of it

    @property
    def url(self):
        password = self.options.get("requirepass")
        return f"redis://{':' + password + '@' if password else ''}127.0.0.1:{self.port}"

    def __call__(self, *words, timeout=5, db=0):
        """One command on a connection of its own; a list of commands in one go with many()."""
        return self.many([words], timeout, db)[0]

    def many(self, commands, timeout=30, db=0):
        before = []
        if self.options.get("requirepass"):
            before.append(("AUTH", self.options["requirepass"]))
        if db:
            before.append(("SELECT", db))
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as sock:
            sock.sendall(b"".join(encode(words) for words in [*before, *commands]))
            reader = sock.makefile("rb")
            answers = [read(reader) for _ in [*before, *commands]]
        return answers[len(before):]

    def names(self, pattern="samekey:*", **more):
        return sorted(self("KEYS", pattern, **more))

    def read(self, name):
        return self("GET", name)

    def used(self):
        info = self("INFO", "memory").decode()
        return int(next(line.split(":")[1] for line in info.splitlines() if line.startswith("used_memory:")))


@functools.cache
def shared():
    """One server for the whole run, for tests that only want one to be there."""
    server = Redis()
    atexit.register(server.close)
    return server


def encode(words):
    pieces = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(pieces) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in pieces)


def read(reader):
    line = reader.readline()
    assert line.endswith(b"\r\n"), f"cut: {line!r}"
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest
    if kind == b"-":
        raise RedisError(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else reader.read(int(rest) + 2)[:-2]
    assert kind == b"*", line
    return None if rest == b"-1" else [read(reader) for _ in range(int(rest))]
