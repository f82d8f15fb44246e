#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""orders: a small order service with true receipts and honest ways to fail.

It is what a service looks like before anybody thought about duplicates: every POST it lets through makes an
effect, the same order_no twice makes two. What it does right is the receipt: the row that says "this callId took
effect, with this answer" is written in the same SQLite transaction as the effect. So

  (1) a receipt with state SUCCESS exists if and only if its effect was committed;
  (2) NOT_RECEIVED means that at this moment no effect of that callId is committed: a request that is still on
      its way, or still waiting in here, may add one later, unless the callId is fenced;
  (3) a fenced callId never takes effect after the fence was answered.

The switches (a header for one request, POST /switches for the next N writes) lose answers before or after the
effect, delay them or replace them, so that a test can make on purpose what networks do by chance.

One file, Python 3 standard library only. See README.md beside it.
"""

import argparse
import datetime
import decimal
import http.server
import json
import os
import re
import select
import signal
import socket
import sqlite3
import sys
import threading
import time
import urllib.parse

BODY_BYTES_MAX = 1 << 20
CHUNK_LINE_BYTES_MAX = 256
TRAILER_LINES_MAX = 64
IDLE_TIMEOUT_S = 120
DRAIN_S = 5.0
TEXT_CHARACTERS_MAX = 128
LISTED_ORDERS_MAX = 1000
CALL_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
  id INTEGER PRIMARY KEY, order_no TEXT NOT NULL, amount TEXT NOT NULL, document TEXT NOT NULL,
  status TEXT NOT NULL, call_id TEXT, created_at TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS orders_by_no ON orders(order_no);
CREATE TABLE IF NOT EXISTS effects (
  id INTEGER PRIMARY KEY, order_no TEXT NOT NULL, kind TEXT NOT NULL, call_id TEXT, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS receipts (
  call_id TEXT PRIMARY KEY, state TEXT NOT NULL, reason TEXT, status INTEGER, headers TEXT, body TEXT,
  created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


def now_text():
    """The wall clock as RFC 3339 with milliseconds, UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Refused(Exception):
    """A request that is answered with a 4xx and has no effect."""

    def __init__(self, status, detail, outcome=None, allow=None):
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.outcome = outcome
        self.allow = allow


class Answer:
    """A status, headers and a JSON body, kept as bytes so that a receipt can repeat them."""

    def __init__(self, status, document, headers=()):
        self.status = status
        self.headers = [("Content-Type", "application/json"), *headers]
        self.body = (json.dumps(document, ensure_ascii=False) + "\n").encode()


class Book:
    """The orders, the effects and the receipts: one SQLite file, one connection, one writer at a time."""

    def __init__(self, path, dedupe):
        self.dedupe = dedupe
        self.lock = threading.Lock()
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.executescript(SCHEMA)
        self.db.execute("INSERT OR IGNORE INTO about VALUES ('covers_since', ?)", (now_text(),))
        (self.covers_since,) = self.db.execute("SELECT value FROM about WHERE name = 'covers_since'").fetchone()

    def close(self):
        with self.lock:
            self.db.close()

    def transaction(self, work):
        """Runs work(db) as one immediate transaction: all of it is on disk afterwards, or none of it."""
        with self.lock:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                result = work(self.db)
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise
            return result

    def write(self, call_id, make):
        """One effect and its receipt. make(db) makes the effect and returns its Answer."""

        def work(db):
            if call_id:
                row = db.execute(
                    "SELECT state, status, headers, body FROM receipts WHERE call_id = ?", (call_id,)
                ).fetchone()
                if row and row[0] == "FAILED":
                    raise Refused(409, "this callId was fenced", outcome="rejected")
                if row and self.dedupe:
                    answer = Answer(row[1], {})
                    answer.headers = [tuple(pair) for pair in json.loads(row[2])]
                    answer.headers.append(("Idempotent-Replayed", "true"))
                    answer.body = row[3].encode()
                    return answer
            answer = make(db)
            if call_id:
                # A naive second run keeps the first receipt: it is the first run that the caller may have missed.
                db.execute(
                    "INSERT OR IGNORE INTO receipts VALUES (?, 'SUCCESS', NULL, ?, ?, ?, ?)",
                    (call_id, answer.status, json.dumps(answer.headers), answer.body.decode(), now_text()),
                )
            return answer

        return self.transaction(work)

    def create(self, call_id, order):
        document = json.dumps(order, default=str)
        number, amount = str(order["order_no"]), str(order["amount"])

        def make(db):
            at = now_text()
            identity = db.execute(
                "INSERT INTO orders (order_no, amount, document, status, call_id, created_at)"
                " VALUES (?, ?, ?, 'created', ?, ?)",
                (number, amount, document, call_id, at),
            ).lastrowid
            db.execute(
                "INSERT INTO effects (order_no, kind, call_id, at) VALUES (?, 'create', ?, ?)", (number, call_id, at)
            )
            place = "/orders/" + urllib.parse.quote(number, safe="")
            return Answer(
                201,
                {"id": identity, "order_no": number, "amount": amount, "status": "created", "created_at": at},
                [("Location", place)],
            )

        return self.write(call_id, make)

    def cancel(self, call_id, number):
        def make(db):
            if not db.execute("SELECT 1 FROM orders WHERE order_no = ?", (number,)).fetchone():
                raise Refused(404, "there is no such order")
            db.execute("UPDATE orders SET status = 'cancelled' WHERE order_no = ?", (number,))
            db.execute(
                "INSERT INTO effects (order_no, kind, call_id, at) VALUES (?, 'cancel', ?, ?)",
                (number, call_id, now_text()),
            )
            return Answer(200, {"order_no": number, "status": "cancelled"})

        return self.write(call_id, make)

    def orders(self, number=None):
        where, values = ("WHERE order_no = ?", (number,)) if number is not None else ("", ())
        with self.lock:
            rows = self.db.execute(
                "SELECT id, order_no, amount, status, call_id, created_at FROM orders"
                f" {where} ORDER BY id DESC LIMIT {LISTED_ORDERS_MAX}",
                values,
            ).fetchall()
        names = ("id", "order_no", "amount", "status", "call_id", "created_at")
        return [dict(zip(names, row)) for row in rows]

    def effects(self, number=None):
        """Counts by order: ({order_no: creations}, {order_no: cancellations})."""
        where, values = ("WHERE order_no = ?", (number,)) if number is not None else ("", ())
        with self.lock:
            rows = self.db.execute(
                f"SELECT kind, order_no, count(*) FROM effects {where} GROUP BY kind, order_no", values
            ).fetchall()
        created = {no: n for kind, no, n in rows if kind == "create"}
        cancelled = {no: n for kind, no, n in rows if kind == "cancel"}
        return created, cancelled

    def receipt(self, call_id):
        """The receipt document of a callId, as a fact about this moment."""
        with self.lock:
            row = self.db.execute(
                "SELECT state, reason, status, headers, body, created_at FROM receipts WHERE call_id = ?", (call_id,)
            ).fetchone()
            (effects,) = self.db.execute("SELECT count(*) FROM effects WHERE call_id = ?", (call_id,)).fetchone()
        document = {"call_id": call_id, "covers_since": self.covers_since, "proof": "transaction"}
        if not row:
            document.update(state="NOT_RECEIVED", final=False, reason=None, received=False, executed=False)
            return document
        state, reason, status, headers, body, created_at = row
        document.update(
            state=state, final=True, reason=reason, received=state == "SUCCESS", executed=state == "SUCCESS",
            created_at=created_at, effects=effects,
        )
        if state == "SUCCESS":
            document["result"] = {
                "status": status, "headers": json.loads(headers), "body": body, "body_encoding": "utf8"
            }
        return document

    def fence(self, call_id):
        """Makes a callId without an effect unable to have one; one with an effect stays as it is."""
        self.transaction(
            lambda db: db.execute(
                "INSERT OR IGNORE INTO receipts VALUES (?, 'FAILED', 'fenced', NULL, NULL, NULL, ?)",
                (call_id, now_text()),
            )
        )
        return self.receipt(call_id)


# What may go wrong with a write, and whether the word takes a number.
FAULTS = {
    "slow": True,                 # milliseconds to wait before the effect
    "slow-after-effect": True,    # milliseconds to wait between the effect and its answer
    "hang-after-effect": False,   # the effect, then silence on an open connection
    "drop-after-effect": False,   # the effect, then end of stream without a byte of answer
    "drop-before-effect": False,  # end of stream, no effect
    "hang-before-effect": False,  # silence, no effect
    "status": True,               # this status, no effect
    "status-after-effect": True,  # the effect, answered with this status
}


def parse_fault(text):
    """"slow=1500, drop-after-effect" as a dict; raises Refused for anything unknown."""
    faults = {}
    for part in filter(None, (p.strip() for p in (text or "").split(","))):
        name, _, number = part.partition("=")
        if name not in FAULTS or FAULTS[name] != bool(number) or (number and not re.fullmatch(r"\d{1,7}", number)):
            raise Refused(400, f"unknown fault '{part}'; known: {', '.join(sorted(FAULTS))}")
        faults[name] = int(number) if number else True
        if name.startswith("status") and not 200 <= faults[name] <= 599:
            raise Refused(400, f"'{part}' is not a status from 200 to 599")
    return faults


class Switches:
    """The faults of the next writes, and whether receipts can be asked at all."""

    def __init__(self):
        self.lock = threading.Lock()
        self.fault = ""
        self.times = 0
        self.receipts = "up"

    def set(self, wanted):
        with self.lock:
            if "fault" in wanted:
                text = wanted["fault"] or ""
                times = wanted.get("times", 1)
                if not isinstance(text, str) or isinstance(times, bool) or not isinstance(times, int) or times < 0:
                    raise Refused(400, "fault is a text or null, times a number from 0 on")
                parse_fault(text)
                self.fault, self.times = text, times if text else 0
            if "receipts" in wanted:
                if wanted["receipts"] not in ("up", "down", "hang"):
                    raise Refused(400, "receipts is up, down or hang")
                self.receipts = wanted["receipts"]

    def take(self):
        """The fault of this write; counts it down."""
        with self.lock:
            if not self.times:
                return {}
            self.times -= 1
            return parse_fault(self.fault)

    def document(self):
        with self.lock:
            return {"fault": self.fault or None, "times": self.times, "receipts": self.receipts}


class Tally:
    """Requests as they arrived, counted before any fault; lives as long as the process."""

    def __init__(self):
        self.lock = threading.Lock()
        self.requests = {}
        self.posts = {}
        self.active = 0

    def request(self, name):
        with self.lock:
            self.requests[name] = self.requests.get(name, 0) + 1

    def post(self, number):
        with self.lock:
            self.posts[number] = self.posts.get(number, 0) + 1

    def document(self):
        with self.lock:
            return dict(sorted(self.requests.items())), dict(sorted(self.posts.items()))


class Dropped(Exception):
    """The connection ends here without an answer."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "orders"
    sys_version = ""
    timeout = IDLE_TIMEOUT_S
    # Head and body leave in one write: two small ones would meet a delayed acknowledgement.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    ROUTES = [
        ("/orders", {"GET": "list_orders", "POST": "create_order"}),
        ("/orders/{}", {"GET": "show_order"}),
        ("/orders/{}/cancel", {"POST": "cancel_order"}),
        ("/receipts/{}", {"GET": "show_receipt"}),
        ("/receipts/{}/fence", {"POST": "fence"}),
        ("/effects", {"GET": "list_effects"}),
        ("/effects/{}", {"GET": "show_effects"}),
        ("/switches", {"GET": "show_switches", "POST": "set_switches"}),
        ("/healthz", {"GET": "health"}),
    ]

    # -- bytes in and out ------------------------------------------------------------------------------------

    def do_any(self):
        tally = self.server.tally
        with tally.lock:
            tally.active += 1
        try:
            self.call_id = None
            try:
                self.read_body()
                answer = self.route()
            except Refused as refusal:
                headers = [("Call-Outcome", refusal.outcome)] if refusal.outcome else []
                headers += [("Allow", refusal.allow)] if refusal.allow else []
                answer = Answer(refusal.status, {"error": refusal.detail}, headers)
            except sqlite3.Error as error:
                answer = Answer(500, {"error": f"the database: {error}"})
            if self.call_id:
                answer.headers.append(("X-Call-Id", self.call_id))
            self.send(answer)
        except (Dropped, ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            with tally.lock:
                tally.active -= 1

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_any

    def handle_expect_100(self):
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def send(self, answer):
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.status not in (204, 304):
            self.send_header("Content-Length", str(len(answer.body)))
        if self.server.stopping.is_set():
            self.close_connection = True
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD" and answer.status not in (204, 304):
            self.wfile.write(answer.body)
        self.wfile.flush()

    def read_body(self):
        coding = self.headers.get_all("Transfer-Encoding") or []
        lengths = self.headers.get_all("Content-Length") or []
        # RFC 9112 section 6.3: both, or two lengths, is how requests are smuggled.
        if (coding and lengths) or len(lengths) > 1 or len(coding) > 1:
            self.close_connection = True
            raise Refused(400, "the length of this request is ambiguous")
        if coding:
            if coding[0].strip().lower() != "chunked":
                self.close_connection = True
                raise Refused(501, "only chunked is understood")
            self.body = self.read_chunks()
            return
        text = lengths[0].strip() if lengths else "0"
        if not re.fullmatch(r"[0-9]{1,18}", text):
            self.close_connection = True
            raise Refused(400, "Content-Length is not a number")
        if int(text) > BODY_BYTES_MAX:
            self.close_connection = True
            raise Refused(413, f"a body has at most {BODY_BYTES_MAX} bytes")
        self.body = self.read_exactly(int(text))

    def read_exactly(self, count):
        data = self.rfile.read(count)
        if len(data) != count:
            raise Dropped
        return data

    def read_chunks(self):
        body = b""
        while True:
            line = self.rfile.readline(CHUNK_LINE_BYTES_MAX)
            if not line:
                raise Dropped
            size = line.split(b";", 1)[0].strip()
            if not line.endswith(b"\n") or not re.fullmatch(rb"[0-9A-Fa-f]{1,8}", size):
                self.close_connection = True
                raise Refused(400, "a chunk size is malformed")
            count = int(size, 16)
            if len(body) + count > BODY_BYTES_MAX:
                self.close_connection = True
                raise Refused(413, f"a body has at most {BODY_BYTES_MAX} bytes")
            if count == 0:
                for _ in range(TRAILER_LINES_MAX):
                    trailer = self.rfile.readline(65536)
                    if not trailer:
                        raise Dropped
                    if trailer in (b"\r\n", b"\n"):
                        return body
                self.close_connection = True
                raise Refused(400, "too many trailers")
            body += self.read_exactly(count)
            if self.rfile.readline(CHUNK_LINE_BYTES_MAX) not in (b"\r\n", b"\n"):
                self.close_connection = True
                raise Refused(400, "a chunk is longer than its size")

    def pause(self, milliseconds):
        if self.server.stopping.wait(milliseconds / 1000):
            raise Dropped

    def hang(self):
        """Says nothing until the peer goes away or the service stops."""
        self.connection.settimeout(None)
        while not self.server.stopping.is_set():
            readable, _, _ = select.select([self.connection], [], [], 0.2)
            if readable and not self.connection.recv(65536):
                break
        raise Dropped

    def log_message(self, format, *args):
        if self.server.verbose:
            sys.stderr.write(f"{now_text()} {self.client_address[0]} {format % args}\n")

    # -- routes ----------------------------------------------------------------------------------------------

    def route(self):
        segments = urllib.parse.urlsplit(self.path).path.split("/")
        for pattern, methods in self.ROUTES:
            wanted = pattern.split("/")
            if len(wanted) != len(segments) or any(w != "{}" and w != s for w, s in zip(wanted, segments)):
                continue
            arguments = [urllib.parse.unquote(s) for w, s in zip(wanted, segments) if w == "{}"]
            self.server.tally.request(f"{self.command} {pattern.replace('{}', '{x}')}")
            allow = ", ".join(sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}))
            if self.command == "OPTIONS":
                return Answer(204, {}, [("Allow", allow)])
            method = "GET" if self.command == "HEAD" else self.command
            if method not in methods:
                raise Refused(405, "this method is not allowed here", allow=allow)
            return getattr(self, methods[method])(*arguments)
        self.server.tally.request(f"{self.command} other")
        raise Refused(404, "there is nothing here")

    def json_body(self):
        try:
            document = json.loads(self.body, parse_float=decimal.Decimal)
        except (ValueError, RecursionError):
            raise Refused(400, "the body is not JSON") from None
        if not isinstance(document, dict):
            raise Refused(400, "the body is not a JSON object")
        return document

    def read_call_id(self):
        text = self.headers.get("X-Call-Id")
        if text is not None and not CALL_ID.match(text):
            raise Refused(400, "X-Call-Id is 1 to 128 of A-Z a-z 0-9 . _ : -")
        self.call_id = text
        return text

    def with_faults(self, effect):
        """The effect, and around it whatever the header or the switches ask for."""
        header = self.headers.get("X-Orders-Fault")
        faults = parse_fault(header) if header is not None else self.server.switches.take()
        if "slow" in faults:
            self.pause(faults["slow"])
        if "drop-before-effect" in faults:
            raise Dropped
        if "hang-before-effect" in faults:
            self.hang()
        if "status" in faults:
            return Answer(faults["status"], {"error": "told to answer so; there was no effect"})
        answer = effect()
        if "slow-after-effect" in faults:
            self.pause(faults["slow-after-effect"])
        if "drop-after-effect" in faults:
            raise Dropped
        if "hang-after-effect" in faults:
            self.hang()
        if "status-after-effect" in faults:
            return Answer(faults["status-after-effect"], {"error": "told to answer so, after the effect"})
        return answer

    def create_order(self):
        call_id = self.read_call_id()
        order = self.json_body()
        number, amount = order.get("order_no"), order.get("amount")
        if isinstance(number, bool) or not isinstance(number, (str, int)) or not str(number):
            raise Refused(400, "order_no is missing")
        if len(str(number)) > TEXT_CHARACTERS_MAX or re.search("[\ud800-\udfff]", str(number)):
            raise Refused(400, f"order_no has at most {TEXT_CHARACTERS_MAX} characters, no half surrogates")
        if isinstance(amount, bool) or not isinstance(amount, (str, int, decimal.Decimal)):
            raise Refused(400, "amount is missing")
        if not re.fullmatch(r"\d{1,15}(\.\d{1,6})?", str(amount)):
            raise Refused(400, "amount is a decimal number, as 12 or 12.50")
        self.server.tally.post(str(number))
        return self.with_faults(lambda: self.server.book.create(call_id, order))

    def cancel_order(self, number):
        call_id = self.read_call_id()
        return self.with_faults(lambda: self.server.book.cancel(call_id, number))

    def list_orders(self):
        return Answer(200, {"orders": self.server.book.orders()})

    def show_order(self, number):
        rows = self.server.book.orders(number)
        if not rows:
            raise Refused(404, "there is no such order")
        return Answer(200, {**rows[0], "effects": len(rows)})

    def list_effects(self):
        created, cancelled = self.server.book.effects()
        requests, posts = self.server.tally.document()
        return Answer(200, {"effects": created, "cancels": cancelled, "posts": posts, "requests": requests})

    def show_effects(self, number):
        created, cancelled = self.server.book.effects(number)
        _, posts = self.server.tally.document()
        return Answer(200, {
            "order_no": number, "effects": created.get(number, 0), "cancels": cancelled.get(number, 0),
            "posts": posts.get(number, 0),
        })

    def receipts_reachable(self):
        receipts = self.server.switches.document()["receipts"]
        if receipts == "down":
            raise Dropped
        if receipts == "hang":
            self.hang()

    def receipt_answer(self, document):
        status = 404 if document["state"] == "NOT_RECEIVED" else 200
        return Answer(status, document, [("Cache-Control", "no-store")])

    def show_receipt(self, call_id):
        self.receipts_reachable()
        if not CALL_ID.match(call_id):
            raise Refused(400, "this is not a callId")
        return self.receipt_answer(self.server.book.receipt(call_id))

    def fence(self, call_id):
        self.receipts_reachable()
        if not self.server.can_fence:
            raise Refused(404, "there is nothing here")
        if not CALL_ID.match(call_id):
            raise Refused(400, "this is not a callId")
        return self.receipt_answer(self.server.book.fence(call_id))

    def show_switches(self):
        return Answer(200, self.server.switches.document())

    def set_switches(self):
        self.server.switches.set(self.json_body())
        return self.show_switches()

    def health(self):
        return Answer(200, {"status": "ok"})


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, address, book, options):
        super().__init__(address, Handler)
        self.book = book
        self.switches = Switches()
        self.tally = Tally()
        self.stopping = threading.Event()
        self.verbose = options.verbose
        self.can_fence = not options.no_fence

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError, socket.timeout)):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description="A small order service with true receipts.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000, help="0 picks a free one; the first line of stdout names it")
    parser.add_argument("--db", default="orders.db", metavar="PATH", help="SQLite file, made if missing")
    parser.add_argument("--dedupe", action="store_true", help="the same callId again gets the first answer, no effect")
    parser.add_argument("--no-fence", action="store_true", help="a service that cannot fence: 404")
    parser.add_argument("--verbose", action="store_true", help="one line on stderr for each request")
    options = parser.parse_args()

    try:
        book = Book(options.db, options.dedupe)
    except sqlite3.Error as error:
        sys.exit(f"orders: cannot open {options.db}: {error}")
    try:
        server = Server((options.host, options.port), book, options)
    except OSError as error:
        sys.exit(f"orders: cannot listen on {options.host}:{options.port}: {os.strerror(error.errno)}")

    def stop(_number, _frame):
        server.stopping.set()
        # shutdown() waits for serve_forever(), which runs in the thread this handler interrupts.
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    print(f"orders: listening on http://{options.host}:{server.server_address[1]}", flush=True)
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    end = time.monotonic() + DRAIN_S
    while server.tally.active and time.monotonic() < end:
        time.sleep(0.02)
    book.close()


if __name__ == "__main__":
    main()
