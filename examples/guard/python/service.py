#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Orders, each placed once: a whole service guarded by samekey's functions in its own database.

    service.py PORT postgres://USER@HOST/DATABASE
"""
import hashlib
import http.server
import json
import sys

import psycopg2

REFUSED = {"in_progress": (409, "pending"), "mismatch": (422, "rejected"), "fenced": (409, "rejected"), "expired": (409, "rejected")}


class Orders(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        order, call_id, outcome = json.loads(body), self.headers["X-Call-Id"], "success"
        with psycopg2.connect(sys.argv[2]) as db, db.cursor() as sql:  # commits; rolls back on an exception
            sql.execute("SELECT verdict, result_status, result_body FROM samekey.begin(%s, %s, %s, 'orders')",
                        (call_id, self.headers["Idempotency-Key"], hashlib.sha256(body).hexdigest()))
            verdict, status, answer = sql.fetchone()
            if verdict == "run":
                sql.execute("INSERT INTO orders VALUES (%s, %s)", (order["order"], order["amount"]))
                status, answer = 201, json.dumps({"placed": order["order"]}).encode()
                sql.execute("SELECT samekey.finish(%s, 'SUCCESS', %s, %s)", (call_id, status, answer))
        if verdict in REFUSED:
            (status, outcome), answer = REFUSED[verdict], json.dumps({"refused": verdict}).encode()
        self.send_response(status)
        self.send_header("Call-Outcome", outcome)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Orders).serve_forever()
