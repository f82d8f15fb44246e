# SPDX-License-Identifier: MIT
"""The guard's functions in PostgreSQL beyond the race: endings, receipts, fences, lives, events, roles, installing."""

import base64
import json
import subprocess
import threading
import time

import psycopg2
import pytest

import guard
from guard import begin, connect, finish, receipt
from support.gateway import BINARY
from support.poll import until


@pytest.fixture
def db(url):
    connection = connect(url)
    yield connection
    connection.close()


@pytest.fixture
def sql(db):
    return db.cursor()


def place(db, call_id, key=None, **ending):
    """A whole guarded transaction."""
    with db, db.cursor() as cursor:
        said = begin(cursor, call_id, key, "f", route="orders")
        if said["verdict"] == "run":
            finish(cursor, call_id, **ending)
    return said


# ---- endings


def test_bytes_come_back_as_they_went_in(db, url):
    body = bytes(range(256)) * 3
    headers = json.dumps([["content-type", "application/octet-stream"], ["x-Two", "a"], ["x-Two", "b"]])
    place(db, "c-1", "k", body=body, status=207, result_headers=headers)
    again = place(db, "c-1", "k")
    assert (again["verdict"], again["state"], again["final"]) == ("replay", "SUCCESS", True)
    assert (again["result_status"], bytes(again["result_body"])) == (207, body)
    assert again["result_headers"] == json.loads(headers)
    result = receipt(url, "c-1")["result"]
    assert (result["body_encoding"], base64.b64decode(result["body"])) == ("base64", body)
    place(db, "c-2", body="héllo\n".encode())
    assert receipt(url, "c-2")["result"]["body"] == "héllo\n"
    assert receipt(url, "c-2")["result"]["body_encoding"] == "utf8"


def test_another_call_on_the_key_shares_the_effect_and_has_its_own_row(db, url):
    place(db, "c-1", "k", body=b"first")
    shared = place(db, "c-2", "k")
    assert (shared["verdict"], shared["original_call_id"], bytes(shared["result_body"])) == ("replay", "c-1", b"first")
    document = receipt(url, "c-2")
    assert (document["state"], document["reason"], document["original_call_id"]) == ("SUCCESS", "shared", "c-1")
    assert document["result"]["body"] == "first"
    assert bytes(place(db, "c-2", "k")["result_body"]) == b"first"  # and again, from its own row


def test_failed_for_good_is_replayed_and_its_key_is_free(db, url):
    place(db, "c-1", "k", state="FAILED", status=422, body=b"no")
    again = place(db, "c-1", "k")
    assert (again["verdict"], again["state"], again["result_status"]) == ("replay", "FAILED", 422)
    document = receipt(url, "c-1")
    assert (document["final"], document["reason"], document["safe_new_key"], document["next_action"]) == (True, "rejected", True, "fix_request")
    assert place(db, "c-2", "k")["verdict"] == "run"
    assert receipt(url, "c-1")["safe_new_key"] is False  # the operation took effect, through the other call


def test_a_new_key_is_not_safe_while_a_transaction_holds_the_old_one(db, url):
    place(db, "c-1", "k", state="FAILED", status=422)
    with connect(url) as other, other.cursor() as cursor:
        assert begin(cursor, "c-2", "k", "f", route="orders")["verdict"] == "run"
        assert receipt(url, "c-1")["safe_new_key"] is False
        other.rollback()
    assert receipt(url, "c-1")["safe_new_key"] is True


def test_failed_and_open_may_run_again(db, url):
    place(db, "c-1", "k", state="FAILED", final=False, status=None, body=None)
    document = receipt(url, "c-1")
    assert (document["state"], document["final"], document["next_action"]) == ("FAILED", False, "retry_same_call")
    assert place(db, "c-1", "k")["verdict"] == "run"
    assert receipt(url, "c-1")["state"] == "SUCCESS"


def test_two_transactions_take_an_open_call_up_and_one_runs(db, url):
    place(db, "c-1", "k", state="FAILED", final=False, status=None, body=None)
    first, said = connect(url), []
    cursor = first.cursor()
    assert begin(cursor, "c-1", "k", "f", route="orders")["verdict"] == "run"
    thread = threading.Thread(target=lambda: said.append(place(db, "c-1", "k")["verdict"]))
    thread.start()
    with connect(url) as watcher, watcher.cursor() as watch:
        def waits():
            watch.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
            return watch.fetchone()[0]
        until(lambda: waits() == 1)
    finish(cursor, "c-1")
    first.commit()
    thread.join(10)
    first.close()
    assert said == ["replay"]


def test_a_call_that_is_not_finished_cannot_be_committed(db, sql, url):
    assert begin(sql, "c-1", "k")["verdict"] == "run"
    with pytest.raises(psycopg2.IntegrityError, match="c-1 was begun and not finished"):
        db.commit()
    assert receipt(url, "c-1")["state"] == "NOT_RECEIVED"


def test_an_ending_needs_a_beginning_and_a_form(db, sql):
    for arguments, code in ((("c-1", "SUCCESS"), "55000"), (("c-1", "DONE"), "22023"), (("c-1", "SUCCESS", 20), "22023")):
        with pytest.raises(psycopg2.Error) as wrong:
            sql.execute(f"SELECT samekey.finish({', '.join(['%s'] * len(arguments))})", arguments)
        assert wrong.value.pgcode == code
        db.rollback()
    place(db, "c-1")
    with pytest.raises(psycopg2.Error):
        finish(sql, "c-1")
    db.rollback()


@pytest.mark.parametrize("headers", ["{}", "[1]", '[["a"]]', '[["a", 1]]', '[["a", "b", "c"]]', '[{"a": "b"}]', "null"])
def test_headers_are_pairs_of_texts(db, sql, headers):
    begin(sql, "c-1")
    with pytest.raises(psycopg2.Error, match="list of pairs"):
        finish(sql, "c-1", result_headers=headers)
    db.rollback()
    place(db, "c-1", result_headers='[["a", "b"], ["a", ""]]')


@pytest.mark.parametrize("names", [{"call_id": ""}, {"call_id": "a b"}, {"call_id": "x" * 129}, {"key": ""}, {"key": "a b"},
                                   {"key": "x" * 256}, {"fingerprint": "x" * 256}, {"tenant": None}, {"wait_ms": 0}])
def test_names_out_of_form_are_refused_by_name(sql, names):
    with pytest.raises(psycopg2.Error, match="samekey: ") as wrong:
        begin(sql, **{"call_id": "c-1", **names})
    assert wrong.value.pgcode == "22023"


def test_tenants_and_routes_do_not_meet(db, url):
    with db, db.cursor() as cursor:
        for tenant, route in (("a", "r"), ("b", "r"), ("a", "s")):
            call_id = "c-1" if route == "r" else "c-2"
            assert begin(cursor, call_id, "k", route=route, tenant=tenant)["verdict"] == "run"
            finish(cursor, call_id, tenant=tenant)
    assert receipt(url, "c-1")["state"] == "NOT_RECEIVED"
    assert receipt(url, "c-1", "b")["state"] == "SUCCESS"


# ---- fences and receipts


def fence(url, call_id, **more):
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT samekey.fence(%s" + "".join(f", {name} => %s" for name in more) + ")", (call_id, *more.values()))
        return cursor.fetchone()[0]


def test_a_fenced_call_never_runs(db, url):
    document = fence(url, "c-1")
    assert (document["state"], document["final"], document["reason"], document["received"]) == ("FAILED", True, "fenced", False)
    assert document["safe_new_key"] is False  # it named no key
    assert place(db, "c-1", "k")["verdict"] == "fenced"
    assert fence(url, "c-2", route="orders", key="k")["safe_new_key"] is True
    place(db, "c-3", "k", state="FAILED", final=False, status=None, body=None)
    assert fence(url, "c-3")["reason"] == "fenced" and place(db, "c-3", "k")["verdict"] == "fenced"
    place(db, "c-4", "k4")
    assert fence(url, "c-4")["state"] == "SUCCESS" and place(db, "c-4", "k4")["verdict"] == "replay"


def test_a_fence_waits_for_the_transaction_that_has_the_call(db, sql, url):
    assert begin(sql, "c-1", "k")["verdict"] == "run"
    document = fence(url, "c-1", wait_ms=50)
    assert (document["state"], document["next_action"], document["executed"]) == ("PROCESSING", "wait", None)
    finish(sql, "c-1")
    db.commit()
    assert fence(url, "c-1")["state"] == "SUCCESS"


def test_the_document_has_every_member_of_the_contract(db, url):
    place(db, "c-1", "k")
    members = ["call_id", "state", "final", "reason", "received", "executed", "key", "route", "business_ref", "trace_id",
               "call_id_source", "attempts", "result", "original_call_id", "reverses", "reversed_by", "proof", "safe_new_key",
               "next_action", "covers_since", "created_at", "updated_at", "expires_at"]
    for call_id in ("c-1", "c-none"):
        document = receipt(url, call_id)
        assert list(document) == members
        assert document["proof"] == "transaction"
    assert document["state"] == "NOT_RECEIVED" and document["next_action"] == "retry_same_call"


def test_a_receipt_can_be_read_where_nothing_can_be_written(db, url):
    place(db, "c-1", "k", state="FAILED", status=422)
    with psycopg2.connect(url) as connection:
        connection.set_session(readonly=True)
        with connection.cursor() as cursor:
            cursor.execute("SELECT samekey.receipt('c-1'), samekey.receipt('c-2', wait_ms => 50)")
            known, unknown = cursor.fetchone()
    assert known["state"] == "FAILED" and known["safe_new_key"] is False  # not proved here
    assert unknown["state"] == "PROCESSING"  # nor is absence


# ---- races that cost more than a wait


def test_a_deadlock_between_two_batches_is_an_answer(db, sql, url):
    other = connect(url)
    begin(sql, "c-1", "k1")
    with other.cursor() as cursor:
        begin(cursor, "c-2", "k2")
        said = []
        thread = threading.Thread(target=lambda: said.append(begin(cursor, "c-1", "k1", wait_ms=4000)["verdict"]))
        thread.start()
        time.sleep(.05)
        mine = begin(sql, "c-2", "k2", wait_ms=4000)["verdict"]
        for call_id in ("c-1", *(["c-2"] if mine == "run" else [])):
            finish(sql, call_id)
        db.commit()  # usable, whoever was chosen
        thread.join(10)
        assert "in_progress" in (mine, *said)
        finish(cursor, "c-2")
        other.commit()
    other.close()
    assert receipt(url, "c-1")["state"] == receipt(url, "c-2")["state"] == "SUCCESS"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_race_lost_above_read_committed_runs_the_transaction_again(db, url, level):
    late = connect(url, level)
    with late.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.execute("SELECT count(*) FROM samekey.call")  # its view of the world begins here
        place(db, "c-1", "k")
        assert begin(cursor, "c-1", "k", "f", route="orders")["verdict"] == "retry_transaction"
        late.rollback()
        assert begin(cursor, "c-1", "k", "f", route="orders")["verdict"] == "replay"
        late.rollback()
    late.close()


# ---- lives


def age(db, days):
    with db, db.cursor() as cursor:
        for column in ("created_at", "ended_at", "key_expires_at"):
            cursor.execute(f"UPDATE samekey.call SET {column} = {column} - %s * interval '1 day'", (days,))


def purge(db):
    with db, db.cursor() as cursor:
        cursor.execute("SELECT samekey.purge(10)")
        return cursor.fetchone()[0]


def test_what_is_past_its_life_goes_and_never_runs_again(db, url):
    made = "ord-%d-0123456789ab-n1" % (time.time() * 1000 - 40 * 86400_000)
    place(db, made, "k")
    place(db, "c-open", "k2", state="FAILED", final=False, status=None, body=None)
    assert purge(db) == 0
    age(db, 8)
    assert place(db, "c-2", "k")["verdict"] == "expired"
    assert purge(db) == 2 and purge(db) == 0  # a body, and an open call that nobody repeated
    again = place(db, made, "k")
    assert (again["verdict"], again["result_kept"]) == ("replay", False)
    assert receipt(url, "c-open")["reason"] == "abandoned"
    assert receipt(url, made)["state"] == "SUCCESS" and receipt(url, made)["result"] is None
    age(db, 30)
    assert purge(db) == 2
    assert place(db, made, "k")["verdict"] == "expired"
    gone = receipt(url, made)
    assert (gone["state"], gone["reason"], gone["next_action"]) == ("UNKNOWN", "beyond-retention", "ask_operator")
    assert fence(url, made)["state"] == "UNKNOWN"  # of what may have run nobody says that it did not
    assert place(db, "c-new", "k")["verdict"] == "run"


# ---- events


def test_an_event_is_there_exactly_when_its_transaction_is(db, sql, url):
    begin(sql, "c-1", "k")
    sql.execute("SELECT samekey.outbox_add('orders', 'lost'::bytea, 'c-1')")
    db.rollback()
    for number in range(3):
        begin(sql, f"c-{number}", f"k{number}")
        sql.execute("SELECT samekey.outbox_add('orders', %s, %s, %s)", (f"m{number}".encode(), f"c-{number}", '{"x-a": "1"}'))
        assert sql.fetchone()[0].startswith(f"c-{number}:")
        finish(sql, f"c-{number}")
        db.commit()
    relays = [connect(url), connect(url)]
    first, second = (relay.cursor() for relay in relays)
    first.execute("SELECT id, message_id, topic, payload, headers FROM samekey.outbox_unsent(2)")
    taken = first.fetchall()
    assert [bytes(row[3]) for row in taken] == [b"m0", b"m1"] and taken[0][4] == {"x-a": "1"}
    second.execute("SELECT payload FROM samekey.outbox_unsent(2)")
    assert [bytes(row[0]) for row in second.fetchall()] == [b"m2"]  # nobody gets what another one holds
    first.execute("SELECT samekey.outbox_sent(%s)", ([row[0] for row in taken],))
    relays[0].commit()
    relays[1].rollback()
    second.execute("SELECT payload FROM samekey.outbox_unsent()")
    assert [bytes(row[0]) for row in second.fetchall()] == [b"m2"]
    for relay in relays:
        relay.close()


# ---- who may, and installing


def test_each_role_may_do_its_own_and_no_more(server, name, db):
    place(db, "c-1", "k")
    calls = {"begin": "samekey.begin('c-2')", "finish": "samekey.finish('c-2', 'SUCCESS')", "receipt": "samekey.receipt('c-1')",
             "fence": "samekey.fence('c-9')", "add": "samekey.outbox_add('t', '')", "unsent": "samekey.outbox_unsent()",
             "purge": "samekey.purge()", "free": "samekey.free('', 'c-8', '', NULL, 10)", "rows": "* FROM samekey.call"}
    may = {"service": {"begin", "finish", "receipt", "fence", "add"}, "gateway": {"receipt", "fence"}, "relay": {"unsent"},
           "reader": {"receipt", "rows"}, None: set()}
    server.sql("DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'somebody') THEN CREATE ROLE somebody; END IF; END $$")
    for role, allowed in may.items():
        with psycopg2.connect(server.url(name)) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET ROLE {'samekey_' + role if role else 'somebody'}")
            for what, text in calls.items():
                cursor.execute("SAVEPOINT here")
                try:
                    cursor.execute("SELECT " + text)
                    assert what in allowed, (role, what)
                except psycopg2.errors.InsufficientPrivilege:
                    assert what not in allowed, (role, what)
                    cursor.execute("ROLLBACK TO here")
                if what == "begin" and what not in allowed:
                    continue
            connection.rollback()


def test_installing_again_loses_nothing_and_a_newer_schema_is_left_alone(server, name, db, url):
    place(db, "c-1", "k")
    with db, db.cursor() as cursor:
        cursor.execute("UPDATE samekey.setting SET key_life = '1 day'")
    server.sql("BEGIN;\n" + guard.schema() + "\nCOMMIT;", name)
    assert receipt(url, "c-1")["state"] == "SUCCESS"
    assert server.sql("SELECT key_life, samekey.version() FROM samekey.setting", name) == [["1 day", "1"]]
    server.sql("UPDATE samekey.setting SET version = 2", name)
    with pytest.raises(AssertionError, match="newer than this file"):
        server.sql("BEGIN;\n" + guard.schema() + "\nCOMMIT;", name)


def test_installing_again_waits_for_no_call(server, name, db, sql, url):
    begin(sql, "c-1", "k", "f", route="orders")
    server.sql("BEGIN;\nSET lock_timeout = '2s';\n" + guard.schema() + "\nCOMMIT;", name)
    finish(sql, "c-1")
    db.commit()
    assert receipt(url, "c-1")["state"] == "SUCCESS"


def test_without_a_run_nothing_is_proved(db, sql):
    place(db, "c-1", "k")
    with pytest.raises(psycopg2.Error) as wrong:
        sql.execute("SELECT samekey.settled('c-1', NULL)")
    assert wrong.value.pgcode == "22023"
    db.rollback()


def test_schema_says_which_database_it_wants():
    for arguments in ([], ["mysql"], ["postgres", "sqlite"], ["--what"]):
        done = subprocess.run([BINARY, "schema", *arguments], capture_output=True, text=True)
        assert done.returncode == 64 and done.stdout == "" and "schema" in done.stderr
    assert subprocess.run([BINARY, "schema", "--help"], capture_output=True).returncode == 0
