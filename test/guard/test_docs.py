# SPDX-License-Identifier: MIT
"""What docs/guard.md says, done: its queries for samekey reconcile, and the SQL it shows."""

import json
import re
import sqlite3
import subprocess

import pytest

from guard import begin, connect, finish, schema
from support.gateway import BINARY, ROOT

PAGE = (ROOT / "docs/guard.md").read_text(encoding="utf-8")


def reconcile(receipts, receipts_sql, rows, rows_sql, code):
    done = subprocess.run([BINARY, "reconcile", "--format", "json", "--grace", "0s", "--receipts", receipts, "--receipts-sql", receipts_sql,
                           "--rows", rows, "--rows-sql", rows_sql], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return {(found["code"], found["key"]) for found in json.loads(done.stdout)["findings"]}


def queries():
    """The two queries of the page's example, and the one for SQLite."""
    example = re.search(r"--receipts-sql \"(.*?)\".*?--rows-sql \"(.*?)\"", PAGE, re.S)
    sqlite = re.search(r"In SQLite the receipts are `(SELECT.*?)`", PAGE, re.S)
    return [" ".join(text.split()) for text in (*example.groups(), sqlite.group(1))]


def test_receipts_against_rows(server, name, url):
    receipts, rows, _ = queries()
    server.sql("CREATE TABLE orders (order_no text PRIMARY KEY, amount bigint NOT NULL)", name)
    with connect(url) as db, db.cursor() as cursor:
        for number in range(3):
            assert begin(cursor, f"c-{number}", f"order:o-{number}", route="orders")["verdict"] == "run"
            cursor.execute("INSERT INTO orders VALUES (%s, 1)", (f"o-{number}",))
            finish(cursor, f"c-{number}")
        assert begin(cursor, "c-again", "order:o-1", route="orders")["verdict"] == "replay"
    db.close()
    assert reconcile(url, receipts, url, rows, 0) == set()
    server.sql("DELETE FROM orders WHERE order_no = 'o-1'; INSERT INTO orders VALUES ('o-9', 1)", name)
    assert reconcile(url, receipts, url, rows, 1) == {("receipt-without-row", "order:o-1"), ("row-without-receipt", "order:o-9")}


def test_receipts_against_rows_in_sqlite(tmp_path):
    _, rows, receipts = queries()
    file = tmp_path / "shop.db"
    db = sqlite3.connect(file, isolation_level=None)
    db.executescript(schema("sqlite") + "CREATE TABLE orders (order_no TEXT PRIMARY KEY);")
    for number in range(2):
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO samekey_begin(call_id, key, route) VALUES (?, ?, 'orders')", (f"c-{number}", f"order:o-{number}"))
        db.execute("INSERT INTO orders VALUES (?)", (f"o-{number}",))
        db.execute("INSERT INTO samekey_finish(call_id, state) VALUES (?, 'SUCCESS')", (f"c-{number}",))
        db.execute("COMMIT")
    address = f"sqlite:{file}"
    assert reconcile(address, receipts, address, rows, 0) == set()
    db.execute("DELETE FROM orders WHERE order_no = 'o-0'")
    assert reconcile(address, receipts, address, rows, 1) == {("receipt-without-row", "order:o-0")}


@pytest.mark.parametrize("text", re.findall(r"^(?:SELECT|UPDATE) samekey[^;\n]*", PAGE, re.M))
def test_the_statements_it_shows_exist(text, server, name):
    """Each is prepared by the server, its names as parameters."""
    words = {"call_id": "'c-1'", "run": "'00000000-0000-0000-0000-000000000000'", "tenant": "''", "route": "'orders'", "key": "'k'",
             "payload": "''::bytea", "headers": "'{}'::jsonb", "body": "''::bytea"}
    call = text.split("  ")[0].split(" --")[0]
    if call.startswith("SELECT"):
        head, arguments = re.fullmatch(r"(SELECT samekey\.\w+)\((.*)\)", call.strip()).groups()
        call = f"{head}({', '.join(words.get(one.strip(), one) for one in arguments.split(','))})"
    server.sql(call, name)
