# SPDX-License-Identifier: MIT
"""The built gateway as a process: configured, started, watched, killed and started again over the same store."""

import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import threading
import time

from .poll import free_port, until
from .wire import Wire, ask, request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("SAMEKEY_BIN") or ROOT / "build" / "samekey").resolve()

# A policy in which everything that can happen happens within a second.
QUICK = {
    "key_missing": "pass", "attempt_timeout": "400ms", "connect_timeout": "200ms", "deadline": "5s", "retries": 3,
    "backoff_base": "20ms", "backoff_cap": "40ms", "receipt_timeout": "300ms", "resend_after": "60ms",
    "retry_budget": 100, "retry_budget_floor": 10000, "retries_in_flight": 10000, "breaker_failures": 0,
    "wait_in_progress": "1s", "lease": "5s", "round_gap": "1h",
}


def value(what):
    """A value as the configuration file spells it."""
    if isinstance(what, bool):
        return "true" if what else "false"
    if isinstance(what, int):
        return str(what)
    if isinstance(what, (list, tuple)):
        return "{" + ", ".join(json.dumps(str(one)) for one in what) + "}"
    text = str(what)
    if text and text[0].isdigit() and text.isalnum():
        return text  # 250ms, 64k
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def config(routes, **top):
    """The text of samekey.conf. `routes`: name -> settings, over QUICK."""
    out = "".join(f"{name} = {value(what)}\n" for name, what in top.items() if what is not None)
    for name, settings in routes.items():
        merged = {"path": [f"/{name}/{{*}}"], **QUICK, **settings}
        out += f'route "{name}" {{\n'
        out += "".join(f"  {key} = {value(what)}\n" for key, what in merged.items() if what is not None)
        out += "}\n"
    return out


def cached():
    """With SAMEKEY_TEST_CACHE=redis every gateway of the run has one real Redis in front of its store, and no memory before
    it. Each store has entries of its own there."""
    if os.environ.get("SAMEKEY_TEST_CACHE") != "redis":
        return {}
    from .redis import shared
    return {"cache": shared().url, "memory_bytes_max": 0, "cache_timeout": "500ms"}


class Gateway:
    """One gateway; its folder holds its configuration and its store, which outlive a restart."""

    def __init__(self, folder, routes=None, text=None, flags=None, env=None, prefix=(), store=None, start=True,
                 admin=True, **top):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = pathlib.Path(store) if store and "://" not in str(store) else self.folder / "receipts.db"
        self.shared_store = store if store and "://" in str(store) else None
        self.routes, self.text, self.flags, self.top, self.with_admin = routes, text, flags, top, admin
        self.env, self.prefix, self.more_flags = dict(env or {}), list(prefix), []
        self.file = self.folder / "samekey.conf"
        self.process, self.log, self.noise = None, [], []
        self.port = self.admin_port = None
        if start:
            self.start()

    # ---- its life

    @property
    def store_url(self):
        return self.shared_store or f"sqlite:{self.store}"

    def write_config(self):
        top = {"listen": [f"127.0.0.1:{self.port}"], "admin": f"127.0.0.1:{self.admin_port}" if self.with_admin else "",
               "store": self.store_url, "loops": 2, "node": "node07", **cached(), **self.top}
        self.file.write_text(self.text.format(**top) if self.text else config(self.routes, **top), encoding="utf-8")

    def command(self):
        if self.flags is not None:
            return [str(BINARY), "gateway", "--listen", f"127.0.0.1:{self.port}",
                    "--admin", f"127.0.0.1:{self.admin_port}", "--store", self.store_url, *self.flags]
        return [str(BINARY), "gateway", "-c", str(self.file), *self.more_flags]

    def start(self, wait=True, same_ports=True):
        """Starts it; with `wait` returns when it answers. A port that somebody took in between is left to them."""
        for _ in range(5):
            if not (self.port and same_ports):
                self.port, self.admin_port = free_port(), free_port()
            if self.flags is None:
                self.write_config()
            self.log, self.noise = [], []
            env = {**os.environ, **self.env}
            self.process = subprocess.Popen([*self.prefix, *self.command()], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
            self.reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
            self.reader.start()
            if not wait:
                return self
            if self.ready():
                return self
            if self.process.returncode != 69 or same_ports and _ > 0:
                break
            same_ports = False
        raise AssertionError(f"the gateway did not start: exit {self.process.returncode}\n" + "\n".join(self.said()))

    def ready(self, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.reader.join(5)
                return False
            try:
                # A port of somebody else's does not become ready by mistake: the process must be alive after it.
                if (self.admin("GET", "/readyz").status == 200 if self.with_admin
                        else Wire(self.port).close() is None):
                    return self.process.poll() is None
            except (OSError, AssertionError, Exception):  # not yet
                pass
            time.sleep(0.01)
        self.kill()
        return False

    def _read(self, pipe):
        for line in pipe:
            text = line.decode("utf-8", "replace").rstrip("\n")
            try:
                entry = json.loads(text)
                self.log.append(entry if isinstance(entry, dict) else {})
                self.log[-1]["_line"] = text
            except ValueError:
                self.noise.append(text)

    def said(self):
        return self.noise + [entry["_line"] for entry in self.log[-40:]]

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        return self.wait()

    def wait(self, seconds=40):
        code = self.process.wait(seconds)
        self.reader.join(10)
        if code not in (0, -signal.SIGKILL):
            print(f"the gateway ended with {code}:", *self.said()[-30:], sep="\n  ")
        return code

    def signal(self, what):
        self.process.send_signal(what)

    def stop(self):
        """SIGTERM, and its exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("SIGTERM did not end it within 40 s") from None

    def restart(self):
        self.kill()
        return self.start()

    @property
    def pid(self):
        return self.process.pid

    # ---- what one asks of it

    def ask(self, method, path, headers=None, body=b"", **more):
        return ask(self.port, method, path, headers, body, **more)

    def send(self, data, to="POST", timeout=15):
        """Raw bytes on a connection of their own, and the answer."""
        with Wire(self.port, timeout) as wire:
            wire.send(data)
            return wire.answer(to)

    def receipt(self, call_id, query="", headers=None, **more):
        return self.ask("GET", f"/.samekey/receipts/{call_id}{query}", headers, **more)

    def state(self, call_id, headers=None):
        return self.receipt(call_id, headers=headers).json()["state"]

    def fence(self, call_id, headers=None, body=b""):
        return self.ask("POST", f"/.samekey/receipts/{call_id}/fence", headers, body)

    def cancel(self, call_id, headers=None, body=b""):
        return self.ask("POST", f"/.samekey/receipts/{call_id}/cancel", headers, body)

    def report(self, call_id, document, token=None, query=""):
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return self.ask("PUT", f"/.samekey/receipts/{call_id}{query}", headers, json.dumps(document))

    def admin(self, method, path, headers=None, body=b"", host=None):
        return ask(self.admin_port, method, path, headers, body, host=host or f"127.0.0.1:{self.admin_port}")

    def metric(self, name, **labels):
        """Sum of a metric over the lines that have these labels."""
        total = 0.0
        for line in self.admin("GET", "/metrics").body.decode().splitlines():
            head, _, number = line.rpartition(" ")
            if (head == name or head.startswith(name + "{")) and all(f'{k}="{v}"' in head for k, v in labels.items()):
                total += float(number)
        return total

    def rows(self, sql, *values):
        """What the store holds, read beside the gateway."""
        with contextlib.closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=10)) as db:
            return db.execute(sql, values).fetchall()

    def tasks(self, call_id):
        """Compensation tasks of a call."""
        return self.rows("select t.status from compensation t join call c on c.id = t.call where c.call_id = ?", call_id)

    def logged(self, call_id, seconds=5):
        """The log lines of a call, once there are any."""
        return until(lambda: [e for e in list(self.log) if e.get("call_id") == call_id], seconds)


def post(path, call_id=None, key=None, body=b"", headers=None, method="POST", **more):
    """The bytes of a guarded JSON request."""
    pairs = {"Content-Type": "application/json", "X-Call-Id": call_id, "Idempotency-Key": key, **(headers or {})}
    return request(method, path, pairs, body, **more)
