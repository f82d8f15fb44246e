# SPDX-License-Identifier: MIT
"""A gateway that reads the service's own receipts: `receipt = "sql …"`, in front of the services of examples/guard."""

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading

import psycopg2
import pytest

from guard import begin, finish, install, receipt, schema
from lossy import Lossy
from support.gateway import BINARY, ROOT, Gateway, post
from support.house import House, Step
from support.poll import free_port, unique, until
from support.postgres import Postgres
from support.wire import ask

POLICY = {"path": ["/orders"], "key_missing": "refuse", "attempt_timeout": "2s", "deadline": "20s", "receipt_timeout": "1s"}


class Service:
    """A guarded service as a process."""

    def __init__(self, command, url, port=None):
        self.command, self.url, self.port = command, url, port or free_port()
        self.start()

    def start(self):
        self.process = subprocess.Popen([*self.command, str(self.port), self.url], stderr=subprocess.DEVNULL)
        until(self._listens, 20)

    def _listens(self):
        assert self.process.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def close(self):
        if self.process.poll() is None:
            self.kill()


EXAMPLES = ROOT / "examples/guard"
PYTHON = [sys.executable, str(EXAMPLES / "python/service.py")]
NODE = ["node", str(EXAMPLES / "node/service.mjs")]


@pytest.fixture(scope="session")
def node_modules():
    """npm writes that file last, so it is there exactly when an installation was finished."""
    if not (EXAMPLES / "node/node_modules/.package-lock.json").exists():
        subprocess.run(["npm", "ci", "--ignore-scripts"], cwd=EXAMPLES / "node", check=True, capture_output=True)


@pytest.fixture
def tables(server, name, url):
    server.sql("CREATE TABLE orders (order_no text PRIMARY KEY, amount bigint NOT NULL)", name)
    return url


@pytest.fixture
def shop(tables, tmp_path, started):
    """The Python service behind a proxy that can lose replies, behind a gateway that reads its receipts."""
    return Shop(tables, PYTHON, tmp_path, started, backoff_base="500ms", backoff_cap="1s")


class Shop:
    def __init__(self, url, command, folder, started, receipt=None, **route):
        self.url = url
        self.service = Service(command, url)
        started.append(self.service)
        self.proxy = Lossy(self.service.port)
        started.append(self.proxy)
        self.gateway = Gateway(folder, {"orders": {**POLICY, "upstream": [self.proxy.url],
                                                   "receipt": receipt or f"sql {url}", **route}})
        started.append(self.gateway)

    def order(self, call_id, order=None, amount=10, timeout=30):
        order = order or call_id.replace("c-", "o-")
        body = json.dumps({"order": order, "amount": amount})
        return self.gateway.send(post("/orders", call_id, f"order:{order}", body), timeout=timeout)

    def begin_order(self, call_id):
        """The same on a thread of its own; its answer, once there is one."""
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.order(call_id)))
        thread.start()
        return lambda: thread.join(40) or answers[0]

    def hold(self):
        """Keeps handlers before their COMMIT, until the connection given back is closed."""
        blocker = psycopg2.connect(self.url)
        blocker.cursor().execute("LOCK TABLE orders IN EXCLUSIVE MODE")
        return blocker

    def held(self):
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO orders%'"
        return self.rows(waits)[0][0] == 1

    def asked(self, call_id):
        """What the receipt queries of a call answered, once there is one; the log is written by a thread of its own."""
        return until(lambda: [e["answer"] for e in list(self.gateway.log) if e.get("call_id") == call_id and e.get("event") == "receipt_asked"])

    def rows(self, sql="SELECT order_no FROM orders"):
        with psycopg2.connect(self.url) as db, db.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()


@pytest.mark.threads
def test_a_reply_lost_after_commit_is_success_without_a_second_post(shop):
    call = unique("c")
    shop.proxy.losing = 1
    answer = shop.order(call)
    assert answer.status == 201
    assert answer.json() == {"placed": call.replace("c-", "o-")}
    assert shop.proxy.posts == 1
    assert len(shop.rows()) == 1
    receipt = shop.gateway.receipt(call).json()
    assert receipt["state"] == "SUCCESS" and receipt["proof"] == "transaction"
    assert [attempt["outcome"] for attempt in receipt["attempts"]] == ["unknown"]
    # Again: a replay, from the gateway's own store.
    assert shop.order(call).status == 201 and shop.proxy.posts == 1


def test_killed_before_commit_is_sent_again_and_runs_once(shop):
    call = unique("c")
    blocker = shop.hold()
    answer = shop.begin_order(call)
    until(shop.held)
    shop.service.kill()
    blocker.close()
    shop.service.start()
    assert answer().status == 201
    assert shop.proxy.posts >= 2
    assert shop.rows() == [(call.replace("c-", "o-"),)]
    assert "not_received" in shop.asked(call) and "success" not in shop.asked(call)


def test_through_a_pooler(tables, pooler, name, tmp_path, started):
    shop = Shop(pooler.url(name), PYTHON, tmp_path, started)
    shop.proxy.losing = 1
    call = unique("c")
    assert shop.order(call).status == 201
    assert shop.proxy.posts == 1 and shop.asked(call) == ["success"]


@pytest.fixture
def fragile(tmp_path, started):
    """A shop on a server of its own, which a test may stop; what ended UNKNOWN is asked about after a second."""
    server = Postgres({"fsync": "off"})
    started.append(server)
    url = install(server, "shop")
    server.sql("CREATE TABLE orders (order_no text PRIMARY KEY, amount bigint NOT NULL)", "shop")
    shop = Shop(url, PYTHON, tmp_path, started, retries=1, deadline="6s", receipt_queries=1, round_gap="1s")
    shop.server = server
    return shop


def test_unknown_while_the_database_is_away_then_settled_by_a_round(fragile):
    call = unique("c")
    fragile.proxy.losing, fragile.proxy.when_lost = 1, lambda: fragile.server.stop("immediate")
    assert fragile.order(call).slug == "outcome-unknown"  # committed, not told, and nobody to ask
    assert fragile.gateway.receipt(call).json()["state"] == "UNKNOWN"
    fragile.server.start()
    until(lambda: fragile.gateway.state(call) == "SUCCESS", 30)
    assert fragile.proxy.posts == 1 and len(fragile.rows()) == 1
    assert fragile.order(call).status == 201  # its stored answer


def test_lost_with_the_database_then_fenced_by_a_round(fragile):
    call = unique("c")
    blocker = fragile.hold()  # the lock is held as long as this lives
    answer = fragile.begin_order(call)
    until(fragile.held)
    fragile.server.stop("immediate")  # before COMMIT
    blocker.close()
    assert answer().slug == "outcome-unknown"
    fragile.server.start()
    until(lambda: fragile.gateway.state(call) == "FAILED", 30)
    document = fragile.gateway.receipt(call).json()
    assert document["final"] and document["safe_new_key"]
    assert receipt(fragile.url, call)["reason"] == "fenced" and fragile.rows() == []


def test_a_service_in_node(tables, tmp_path, started, node_modules):
    shop = Shop(tables, NODE, tmp_path, started, backoff_base="500ms", backoff_cap="1s")
    shop.proxy.losing = 1
    call = unique("c")
    assert shop.order(call).json() == {"placed": call.replace("c-", "o-")}
    assert shop.proxy.posts == 1 and shop.gateway.receipt(call).json()["proof"] == "transaction"
    # Killed before COMMIT.
    call = unique("c")
    blocker = shop.hold()
    answer = shop.begin_order(call)
    until(shop.held)
    shop.service.kill()
    blocker.close()
    shop.service.start()
    assert answer().status == 201 and len(shop.rows()) == 2
    # The same order by another call, straight to the service: its effect is shared.
    again = ask(shop.service.port, "POST", "/orders", {"X-Call-Id": unique("c"), "Idempotency-Key": f"order:{call.replace('c-', 'o-')}"},
                json.dumps({"order": call.replace("c-", "o-"), "amount": 10}).encode())
    assert again.status == 201 and len(shop.rows()) == 2


def test_killed_for_good_is_fenced_where_the_effect_would_be(tables, tmp_path, started):
    shop = Shop(tables, PYTHON, tmp_path, started)
    call = unique("c")
    blocker = shop.hold()
    answer = shop.begin_order(call)
    until(shop.held)
    shop.service.kill()
    blocker.close()
    said = answer()
    assert (said.status, said.json()["state"], said.json()["safe_new_key"]) == (409, "FAILED", True)
    assert shop.rows() == []
    assert receipt(tables, call)["reason"] == "fenced"
    # A copy of the request that still travels finds the fence.
    shop.service.start()
    late = ask(shop.service.port, "POST", "/orders", {"X-Call-Id": call, "Idempotency-Key": "k"}, b'{"order": "late", "amount": 1}')
    assert (late.status, late.json()) == (409, {"refused": "fenced"})
    assert shop.rows() == []


def test_a_transaction_that_still_runs_is_not_sent_again(shop):
    """The attempt's time is over, the handler is not: told as running, waited for, and answered from the receipt."""
    call = unique("c")
    blocker = shop.hold()
    answer = shop.begin_order(call)
    until(lambda: "running" in shop.asked(call), 15)
    blocker.close()
    assert answer().status == 201 and shop.proxy.posts == 1
    assert set(shop.asked(call)) <= {"running", "success"}


def test_the_database_gone_is_a_failed_query_and_an_unknown_call(tables, tmp_path, started):
    nowhere = f"sql postgres://samekey@127.0.0.1:{free_port()}/none"
    shop = Shop(tables, PYTHON, tmp_path, started, receipt=nowhere,
                retries=1, deadline="6s", receipt_queries=2)
    shop.proxy.losing = 1
    call = unique("c")
    answer = shop.order(call)
    assert (answer.status, answer.json()["type"]) == (504, "urn:samekey:outcome-unknown")
    assert shop.proxy.posts == 1  # nothing is sent on a guess
    assert set(shop.asked(call)) == {"query_failed"}
    assert len(shop.rows()) == 1


@pytest.mark.threads
def test_a_database_that_does_not_answer_costs_its_time_and_no_more(tables, tmp_path, started):
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections and says nothing
    started.append(silent)
    shop = Shop(tables, PYTHON, tmp_path, started,
                receipt=f"sql postgres://samekey@127.0.0.1:{silent.getsockname()[1]}/none", retries=1, deadline="6s", receipt_queries=2)
    shop.proxy.losing = 1
    call = unique("c")
    assert shop.order(call).status == 504
    assert any("in time" in e.get("why", "") for e in shop.gateway.logged(call) if e.get("event") == "receipt_asked")
    # Nobody else waited for it.
    assert shop.order(unique("c")).status == 201
    assert shop.gateway.stop() == 0


# ---- whose receipt it is, and a guard that is not there


def test_a_receipt_is_read_under_the_tenant_of_the_call(url, tmp_path, started):
    house = House(tmp_path, {"orders": {"receipt": f"sql {url}", "retries": 1, "receipt_queries": 1}}, tenant="{header.X-Tenant}")
    started.append(house)
    order = house.order("orders", Step(then="rst", effect=True), Step(then="rst"))
    with psycopg2.connect(url) as db, db.cursor() as cursor:
        begin(cursor, order.call_id, order.key, tenant="one", route="orders")
        finish(cursor, order.call_id, body=b"of one", tenant="one")
    db.close()
    mine = order.send(headers={"X-Tenant": "one"})
    assert (mine.status, mine.body) == (201, b"of one") and len(order.posts) == 1
    # Another tenant's call of the same id is another call, of which the guard knows nothing: it is sent again, and fenced.
    other = order.send(headers={"X-Tenant": "two"})
    assert other.status == 409 and receipt(url, order.call_id, "two")["reason"] == "fenced"


def test_a_database_without_the_guard_is_told_in_the_log(server, tmp_path, started):
    url = server.create_database(unique("empty").replace("-", "_"))
    house = House(tmp_path, {"orders": {"receipt": f"sql {url}", "retries": 1, "receipt_queries": 1, "deadline": "3s"}})
    started.append(house)
    order = house.order("orders", Step(then="rst", effect=True))
    assert order.send().slug == "outcome-unknown"
    why = until(lambda: [e["why"] for e in house.gateway.logged(order.call_id) if e.get("event") == "receipt_asked"])
    assert 'schema "samekey" does not exist' in why[0]


# ---- the guard in SQLite

SQLITE_SERVICE = """
import hashlib, http.server, json, sqlite3, sys
class Orders(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        order, call_id = json.loads(body), self.headers["X-Call-Id"]
        db = sqlite3.connect(sys.argv[2], isolation_level=None, timeout=20)
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO samekey_begin(call_id, key, fingerprint, route) VALUES (?, ?, ?, 'orders')",
                   (call_id, self.headers["Idempotency-Key"], hashlib.sha256(body).hexdigest()))
        verdict, status, answer = db.execute("SELECT verdict, result_status, result_body FROM samekey_begun").fetchone()
        if verdict == "run":
            db.execute("INSERT INTO orders VALUES (?, ?)", (order["order"], order["amount"]))
            status, answer = 201, json.dumps({"placed": order["order"]}).encode()
            db.execute("INSERT INTO samekey_finish(call_id, state, result_status, result_body) VALUES (?, 'SUCCESS', ?, ?)",
                       (call_id, status, answer))
        db.execute("COMMIT")
        if verdict not in ("run", "replay"):
            status, answer = 409, verdict.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Call-Outcome", "success" if status == 201 else "rejected")
        self.end_headers()
        self.wfile.write(answer)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Orders).serve_forever()
"""


@pytest.mark.threads
def test_a_guard_in_sqlite_is_asked_and_fenced(tmp_path, started):
    file = tmp_path / "shop.db"
    db = sqlite3.connect(file, isolation_level=None)
    db.executescript("PRAGMA journal_mode = WAL; CREATE TABLE orders (order_no TEXT PRIMARY KEY, amount INTEGER);" + schema("sqlite"))
    db.executescript(schema("sqlite"))  # again is no harm
    program = tmp_path / "service.py"
    program.write_text(SQLITE_SERVICE)
    shop = Shop(str(file), [sys.executable, str(program)], tmp_path / "gateway", started, receipt=f"sql sqlite:{file}")
    call = unique("c")
    shop.proxy.losing = 1
    answer = shop.order(call)
    assert (answer.status, answer.json()) == (201, {"placed": call.replace("c-", "o-")})
    assert shop.proxy.posts == 1 and db.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    assert shop.asked(call) == ["success"]
    # Held before its COMMIT, then killed for good: nothing is there, and the call is fenced in the service's file.
    call = unique("c")
    db.execute("BEGIN IMMEDIATE")
    answer = shop.begin_order(call)
    until(lambda: shop.proxy.posts == 2)
    shop.service.kill()
    db.execute("ROLLBACK")
    assert answer().json()["state"] == "FAILED"
    assert db.execute("SELECT reason FROM samekey_call WHERE call_id = ?", (call,)).fetchone() == ("fenced",)
    assert "not_received" in shop.asked(call)


def test_an_address_may_be_shown_without_its_password(tmp_path):
    file = tmp_path / "samekey.conf"
    file.write_text('route "orders" {\n path = {"/orders"}\n upstream = {"http://127.0.0.1:1"}\n'
                    ' receipt = "sql postgres://gw:s3cret@db/shop?password=s3cret&sslmode=require"\n}\n')
    done = subprocess.run([BINARY, "gateway", "--print-config", "-c", file], capture_output=True, text=True)
    assert "sql postgres://gw:***@db/shop?password=***&sslmode=require" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr
