# SPDX-License-Identifier: MIT
"""A receiver of webhooks that notes what came, and answers as it is told."""

import http.server
import threading


class Webhook:
    def __init__(self, answers=(204,)):
        self.answers, self.came, self.lock = list(answers), [], threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                with outer.lock:
                    status = outer.answers[min(len(outer.came), len(outer.answers) - 1)]
                    outer.came.append((dict(self.headers.items()), body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
