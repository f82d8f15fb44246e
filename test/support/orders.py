# SPDX-License-Identifier: MIT
"""The sample service as a process, told what to do wrong, and asked what it did."""

import json
import pathlib
import signal
import subprocess
import sys

from .wire import ask

SERVICE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "orders" / "orders.py"


class Orders:
    def __init__(self, db, *options):
        self.process = subprocess.Popen([sys.executable, str(SERVICE), "--port", "0", "--db", str(db), *options],
                                        stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert "listening on http://" in line, line
        self.port = int(line.rsplit(":", 1)[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def ask(self, method, path, document=None, **headers):
        body = b"" if document is None else json.dumps(document).encode()
        return ask(self.port, method, path, {"Content-Type": "application/json", **headers}, body)

    def switch(self, **wanted):
        assert self.ask("POST", "/switches", wanted).status == 200

    def receipt(self, call_id):
        return self.ask("GET", f"/receipts/{call_id}").json()["state"]

    def counts(self, number):
        """Effects, cancellations and POSTs (creations, counted on arrival) of one order."""
        document = self.ask("GET", f"/effects/{number}").json()
        return document["effects"], document["cancels"], document["posts"]

    def requests(self, name):
        """Requests of one kind, as "GET /receipts/{x}", counted on arrival."""
        return self.ask("GET", "/effects").json()["requests"].get(name, 0)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(10)
        self.process.stdout.close()
