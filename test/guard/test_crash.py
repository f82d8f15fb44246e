# SPDX-License-Identifier: MIT
"""PostgreSQL crashes while orders are placed: each call ends, each order has one row, and no COMMIT is taken for failed."""

import threading
import time

import psycopg2
import pytest

import guard
from guard import begin, finish, receipt
from support.poll import until
from support.postgres import Postgres

CLIENTS, ORDERS, CRASHES = 6, 15, 3


@pytest.fixture
def server(started):
    postgres = Postgres()  # with fsync: what was answered must outlive a crash
    started.append(postgres)
    return postgres


class Client(threading.Thread):
    """Places its orders one after the other, as a careful service would; each has a rival that sends the same call."""

    def __init__(self, url, name):
        super().__init__(daemon=True)
        self.url, self.name, self.ended, self.unknown, self.wrong = url, name, {}, 0, []

    def run(self):
        for number in range(ORDERS):
            call_id = f"c-{self.name}-{number}"
            try:
                self.ended[call_id] = self.place(call_id)
            except AssertionError as wrong:
                self.wrong.append(f"{call_id}: {wrong}")

    def place(self, call_id):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                told = self.once(call_id)
                if told:
                    return told
            except psycopg2.OperationalError:
                time.sleep(0.02)  # the server is away; nothing was committed
        raise AssertionError("it never ended")

    def once(self, call_id):
        """What the call ended as; None: nothing of this transaction happened, try again."""
        db = psycopg2.connect(self.url)
        try:
            cursor = db.cursor()
            said = begin(cursor, call_id, f"order:{call_id}", "f", route="orders")
            if said["verdict"] == "replay":
                db.commit()
                return "replay"
            if said["verdict"] != "run":
                return None
            cursor.execute("INSERT INTO orders VALUES (%s, 1)", (call_id,))
            finish(cursor, call_id)
            try:
                db.commit()
                return "done"
            except psycopg2.Error:
                self.unknown += 1
                settled = until(lambda: self.settled(call_id, said["run"]), 60)
                return {"committed": "done", "not_committed": None}[settled]
        finally:
            db.close()

    def settled(self, call_id, run):
        try:
            with psycopg2.connect(self.url) as db, db.cursor() as cursor:
                cursor.execute("SELECT samekey.settled(%s, %s)", (call_id, run))
                word = cursor.fetchone()[0]
                return word if word != "unknown" else None
        except psycopg2.OperationalError:
            return None


def test_the_server_crashes_under_load(server):
    url = guard.install(server, "shop")
    # No primary key: a second effect would be a second row, and not an error that hides it.
    server.sql("CREATE TABLE orders (order_no text NOT NULL, amount bigint NOT NULL)", "shop")
    # Two clients of each name: the same calls from two sides.
    clients = [Client(url, str(number // 2)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for crash in range(1, CRASHES + 1):
        until(lambda: sum(len(client.ended) for client in clients) >= crash * CLIENTS * ORDERS // (CRASHES + 2), 60)
        server.restart("immediate")
    for client in clients:
        client.join(120)
    assert [client.wrong for client in clients if client.wrong] == []
    rows = dict(server.sql("SELECT order_no, count(*) FROM orders GROUP BY 1", "shop"))
    names = {f"c-{number}-{order}" for number in range(CLIENTS // 2) for order in range(ORDERS)}
    assert set(rows) == names and set(rows.values()) == {"1"}
    done = [call_id for client in clients for call_id, told in client.ended.items() if told == "done"]
    assert len(done) == len(set(done)), "two clients were told that they did it"
    assert {receipt(url, call_id)["state"] for call_id in names} == {"SUCCESS"}
