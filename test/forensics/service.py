#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A small service that really runs and really logs, with Python's own logging: `service.py PORT LOG NAME ACTION...`.

Each POST takes the next ACTION (the last one stays): ok (201), 503 (runs it and says 503 all the same), refuse (429, runs
nothing), hang (runs it and never answers), reset (runs it and cuts the connection). GET /receipts/ID tells the truth.
The log has the times and the form that logging.basicConfig gives: local time, no zone."""
import http.server
import logging
import socket
import struct
import sys
import threading
import time

port, log, name, *actions = sys.argv[1:]
logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
out = logging.getLogger(name)
lock = threading.Lock()
ran = {}
runs = 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"{}"):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        call = self.path.rsplit("/", 1)[-1].split("?")[0]
        state = "SUCCESS" if call in ran else "NOT_RECEIVED"
        self.answer(200, f'{{"call_id":"{call}","state":"{state}"}}'.encode())

    def do_POST(self):
        global runs
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        call, key = self.headers.get("X-Call-Id", "-"), self.headers.get("Idempotency-Key", "-")
        ids = f"call_id={call} key={key} node={name}"
        agent, conn = self.headers.get("User-Agent", "-"), self.client_address[1]
        out.info("request %s method=POST peer=%s conn=%s ua=%s attempt=%s", ids, self.client_address[0], conn, agent,
                 self.headers.get("X-Call-Attempt", "-"))
        with lock:
            action = actions.pop(0) if len(actions) > 1 else actions[0]
            if action != "refuse":
                runs += 1
                ran[call] = runs
                out.info("effect.committed %s exec_id=%s-%d", ids, name, runs)
        status = {"ok": 201, "503": 503, "refuse": 429}.get(action)
        if status:
            out.info("answer %s status=%d", ids, status)
            self.answer(status)
        elif action == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            time.sleep(30)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


Server(("127.0.0.1", int(port)), Handler).serve_forever()
