# SPDX-License-Identifier: MIT
"""Case 13: twenty at once on a real PostgreSQL, directly and through a pooler, at every isolation level."""

import hashlib
import json
import subprocess
import threading
import time

import psycopg2
import pytest

from guard import LEVELS, begin, connect, finish, receipt
from support.stub import case, case_json
from support.poll import until

NAME = "13-race-on-postgres"
WAYS = [(way, level) for way in ("direct", "pooler") for level in LEVELS]


@pytest.fixture
def calls():
    return case_json(NAME, "calls.json")


@pytest.fixture(params=WAYS, ids=[f"{way}-{level.replace(' ', '-')}" for way, level in WAYS])
def shop(request, server, name):
    """Where the handler connects, and at which level."""
    server.sql((case(NAME) / "setup.sql").read_text(encoding="utf-8"), name)
    way, level = request.param
    front = request.getfixturevalue("pooler") if way == "pooler" else server
    return Shop(front.url(name), level)


class Shop:
    """A guarded handler: inserts the order, and takes as long as it is told."""

    def __init__(self, url, level):
        self.url, self.level, self.runs, self.lock = url, level, 0, threading.Lock()

    def connect(self):
        return connect(self.url, self.level)

    def call(self, call_id, key, body, takes_ms=0, began=None):
        """One transaction; what the caller is told: a verdict, and the answer of a call that is done."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                text = json.dumps(body, sort_keys=True).encode()
                said = begin(cursor, call_id, key, hashlib.sha256(text).hexdigest(), route="orders")
                if said["verdict"] != "run":
                    connection.commit()  # a usable transaction, whatever was said
                    return said["verdict"], said["result_body"] and bytes(said["result_body"])
                with self.lock:
                    self.runs += 1
                if began:
                    began.set()
                cursor.execute("INSERT INTO orders VALUES (%s, %s)", (body["order"], body["amount"]))
                time.sleep(takes_ms / 1000)  # the handler's work
                finish(cursor, call_id, body=text)
            connection.commit()
            return "done", text
        finally:
            connection.close()

    def until_told(self, *arguments):
        """As a caller does: an in-progress answer is asked again, and so is a transaction that is to be run again."""
        first = None
        for _ in range(50):
            told = self.call(*arguments)
            first = first or told[0]
            if told[0] not in ("in_progress", "retry_transaction"):
                return first, told
        raise AssertionError(f"never told: {told}")

    def rows(self, sql):
        with psycopg2.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()


def test_twenty_at_the_same_instant(shop, calls):
    race = calls["a_race"]
    barrier, told = threading.Barrier(race["parallel"]), []

    def caller():
        barrier.wait()
        told.append(shop.until_told(race["callId"], race["business_key"], race["body"], race["handler_takes_ms"]))

    threads = [threading.Thread(target=caller) for _ in range(race["parallel"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(told) == race["parallel"]  # nobody fell over an error of the database
    assert shop.runs == 1
    assert shop.rows("SELECT order_no, amount FROM orders") == [("o-131", 10)]
    assert {answer for _, (_, answer) in told} == {json.dumps(race["body"], sort_keys=True).encode()}
    assert [last for _, (last, _) in told].count("done") == 1
    allowed = {"done", "replay", "in_progress"} | ({"retry_transaction"} if shop.level != "read committed" else set())
    assert {first for first, _ in told} <= allowed


@pytest.mark.parametrize("way", ["direct", "pooler"])
def test_twenty_programs_in_c(request, server, name, order_tool, way):
    server.sql((case(NAME) / "setup.sql").read_text(encoding="utf-8"), name)
    url = (request.getfixturevalue("pooler") if way == "pooler" else server).url(name)
    programs = [subprocess.Popen([order_tool, url, "c-131", "o-131", "10"], stdout=subprocess.PIPE, text=True) for _ in range(20)]
    said = [program.communicate(timeout=60)[0].splitlines() for program in programs]
    assert [program.returncode for program in programs] == [0] * 20
    assert sorted(said) == sorted([["handler ran", "commit committed, then committed"]] + [['replay 201 {"placed":true}']] * 19)
    assert server.sql("SELECT order_no, amount FROM orders", name) == [["o-131", "10"]]


def test_another_body_while_the_first_runs(shop, calls):
    race = calls["b_other_body_while_running"]
    began, first = threading.Event(), []
    thread = threading.Thread(target=lambda: first.append(
        shop.call(race["callId"], race["business_key"], race["first"], race["first_takes_ms"], began)))
    thread.start()
    assert began.wait(10)
    asked = time.monotonic()
    _, told = shop.until_told(race["callId"], race["business_key"], race["second"])
    assert told == ("mismatch", None)
    assert time.monotonic() - asked > race["first_takes_ms"] / 1000 * .5  # it waited for the first to end
    thread.join(10)
    assert first[0][0] == "done"
    assert shop.rows("SELECT order_no, amount FROM orders") == [("o-132", 10)]
    # A new callId on the same key with another body is told the same.
    assert shop.call("c-132x", race["business_key"], race["second"]) == ("mismatch", None)
    assert shop.runs == 1


def test_one_duplicate_of_three_in_one_transaction(shop, calls):
    batch = calls["c_one_duplicate_of_three"]
    for call_id in batch["before"]:
        assert shop.call(call_id, f"order:{call_id}", {"order": call_id, "amount": 1})[0] == "done"
    connection = shop.connect()
    verdicts = {}
    with connection, connection.cursor() as cursor:
        for call_id in batch["in_one_transaction"]:
            said = begin(cursor, call_id, f"order:{call_id}", route="orders")
            verdicts[call_id] = said["verdict"]
            if said["verdict"] == "run":
                cursor.execute("INSERT INTO orders VALUES (%s, 2)", (call_id,))
                finish(cursor, call_id)
        cursor.execute(batch["then_run"])
    connection.close()
    assert verdicts == {"c-133a": "run", "c-133b": "replay", "c-133c": "run"}
    assert sorted(shop.rows("SELECT order_no, amount FROM orders")) == [("c-133a", 2), ("c-133b", 1), ("c-133c", 2)]
    assert shop.rows("SELECT note FROM audit") == [("after",)]


def test_a_rolled_back_winner_lets_the_waiter_run(shop):
    winner = shop.connect()
    cursor = winner.cursor()
    assert begin(cursor, "c-134", "order:o-134", route="orders")["verdict"] == "run"
    told = []
    thread = threading.Thread(target=lambda: told.append(shop.until_told("c-134", "order:o-134", {"order": "o-134", "amount": 1})))
    thread.start()
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    until(lambda: shop.rows(waits)[0][0] == 1)
    winner.rollback()
    winner.close()
    thread.join(10)
    assert told[0][1][0] == "done" and shop.runs == 1
    assert receipt(shop.url, "c-134")["state"] == "SUCCESS"


def test_a_wait_over_its_limit_is_in_progress(shop):
    winner = shop.connect()
    cursor = winner.cursor()
    assert begin(cursor, "c-135", "order:o-135", route="orders")["verdict"] == "run"
    loser = shop.connect()
    with loser, loser.cursor() as other:
        other.execute("SET LOCAL lock_timeout = '7s'")
        for call_id, key in (("c-135", "order:o-135"), ("c-136", "order:o-135")):  # by its callId, and by its key
            assert begin(other, call_id, key, route="orders", wait_ms=80)["verdict"] == "in_progress"
        other.execute("SHOW lock_timeout")
        assert other.fetchone() == ("7s",)  # as the service had it
        other.execute("SET LOCAL statement_timeout = '300ms'")  # which would abort the transaction
        assert begin(other, "c-135", "order:o-135", route="orders")["verdict"] == "in_progress"
        other.execute("INSERT INTO audit(note) VALUES ('usable')")
    loser.close()
    assert shop.rows("SELECT note FROM audit") == [("usable",)]
    winner.close()
