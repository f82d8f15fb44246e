# SPDX-License-Identifier: MIT
"""samekey reconcile: every kind of difference planted and found, none invented, whatever the sides are made of; and
corrections that go only through the gateway, only where one row proves them."""
import contextlib
import csv
import json
import os
import pathlib
import pty
import pwd
import random
import re
import signal
import sqlite3
import subprocess
import time
import urllib.request

import pytest
from logs import SAMEKEY, codes, diagnose, run, write_jsonl
from test_programs import free_port, has_gateway, post, service, started


def reconcile(*arguments, expect=None, cwd=None):
    done = run("reconcile", "--format", "json", *arguments, cwd=cwd)
    assert done.returncode in (0, 1), (done.returncode, done.stderr.decode())
    if expect is not None:
        assert done.returncode == expect, done.stdout.decode()[-2000:]
    return json.loads(done.stdout)


def found(document):
    return sorted((f["code"], f["key"]) for f in document["findings"])


def write_csv(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(header)
        writer.writerows(rows)
    return path


RECEIPTS = [  # key, state, call_id, amount, reversed
    ("fine", "SUCCESS", "c-1", "100.00", ""), ("failed", "FAILED", "c-2", "5", ""), ("no-row", "SUCCESS", "c-3", "5", ""),
    ("two", "SUCCESS", "c-4", "5", ""), ("open", "PROCESSING", "c-5", "5", ""), ("done", "UNKNOWN", "c-6", "5", ""),
    ("undone", "SUCCESS", "c-7", "5", "r-7"), ("undone-well", "SUCCESS", "c-8", "5", "r-8"), ("wrong", "SUCCESS", "c-9", "5.10", ""),
    ("failed-row", "FAILED", "c-10", "5", ""), ("twice-open", "UNKNOWN", "c-11", "5", ""),
    ("retried", "FAILED", "c-12", "5", ""), ("retried", "SUCCESS", "c-13", "5", ""),
    ("not-there", "SUCCESS", "c-14", "5", ""), ("charged-twice", "SUCCESS", "c-15", "5", ""), ('odd "key", ü', "SUCCESS", "c-16", "0005.0", ""),
]
ROWS = [  # key, amount, reversed
    ("fine", "100", ""), ("two", "5", ""), ("two", "5", ""), ("done", "5", ""), ("undone", "5", ""), ("undone-well", "5", "1"),
    ("wrong", "5.1000", ""), ("wrong", "50", "1"), ("failed-row", "5", ""), ("alone", "5", ""), ("twice-open", "5", ""),
    ("twice-open", "5", ""), ("retried", "5", ""), ("not-there", "5", ""), ("charged-twice", "5", ""), ('odd "key", ü', "5", ""),
]
PROVIDER = [("fine", "100"), ("two", "5"), ("two", "5"), ("done", "5"), ("wrong", "6"), ("failed-row", "5"), ("alone", "5"),
            ("twice-open", "5"), ("retried", "5"), ("charged-twice", "5"), ("charged-twice", "5"), ("stranger", "9"),
            ('odd "key", ü', "5"), ("undone", "5"), ("no-row", "5")]
TWO_SIDES = sorted([("receipt-without-row", "no-row"), ("two-rows", "two"), ("still-open", "open"), ("done-but-open", "done"),
                    ("effect-after-reversal", "undone"), ("effect-after-failure", "failed-row"), ("row-without-receipt", "alone"),
                    ("two-rows", "twice-open"), ("done-but-open", "twice-open")])
THREE_SIDES = sorted([*TWO_SIDES, ("provider-twice", "two"), ("amount-differs", "wrong"), ("success-without-effect", "not-there"),
                      ("provider-twice", "charged-twice"), ("provider-without-row", "stranger")])


def as_csv(tmp_path, chance):
    sides = [list(RECEIPTS), list(ROWS), list(PROVIDER)]
    for side in sides:
        chance.shuffle(side)
    return (write_csv(tmp_path / "receipts.csv", ("key", "state", "call_id", "amount", "reversed"), sides[0]),
            write_csv(tmp_path / "rows.csv", ("order_no", "total", "reversed"), sides[1]),
            write_csv(tmp_path / "provider.csv", ("Idempotency_Key", "amount"), sides[2]))


@pytest.mark.parametrize("seed", range(3))
def test_every_difference_and_no_other(tmp_path, seed):
    receipts, rows, provider = as_csv(tmp_path, random.Random(seed))
    two = ("--receipts", receipts, "--rows", rows, "--column", "rows.key=order_no")
    document = reconcile(*two, expect=1)
    assert found(document) == TWO_SIDES
    assert document["keys"] == 16 and document["sides"]["rows"]["read"] == 16 and document["corrections"] == 1
    document = reconcile(*two, "--provider", provider, expect=1)
    assert found(document) == THREE_SIDES
    text = run("reconcile", *two).stdout.decode()
    assert "Remedy:" in text and "done: receipt UNKNOWN, row (c-6)" in text


def test_sides_that_agree(tmp_path):
    receipts = write_csv(tmp_path / "a.csv", ("key", "state"), [(f"k-{i}", "SUCCESS") for i in range(100)] + [("k-x", "FAILED")])
    rows = write_csv(tmp_path / "b.csv", ("key",), [(f"k-{99 - i}",) for i in range(100)])
    document = reconcile("--receipts", receipts, "--rows", rows, expect=0)
    assert document["agree"] == 101 and document["findings"] == []


def test_a_file_against_a_database(tmp_path):
    """JSON lines as receipts are archived, rows by SQL on SQLite; the same differences."""
    with open(tmp_path / "receipts.jsonl", "w") as out:
        for key, state, call, amount, undone in RECEIPTS:
            out.write(json.dumps({"key": key, "state": state, "call_id": call, "amount": float(amount),
                                  "reversed_by": undone or None, "result": {"status": 201}}) + "\n")
        out.write('{"half')
    db = sqlite3.connect(tmp_path / "shop.db")
    db.execute("CREATE TABLE orders(no TEXT, total TEXT, undone INT)")
    db.executemany("INSERT INTO orders VALUES(?, ?, ?)", [(key, amount, 1 if undone else 0) for key, amount, undone in ROWS])
    db.execute("INSERT INTO orders VALUES(NULL, '1', 0)")
    db.commit()
    document = reconcile("--receipts", tmp_path / "receipts.jsonl", "--rows", tmp_path / "shop.db", "--rows-sql",
                         "SELECT no AS key, total AS amount, undone AS reversed FROM orders", expect=1)
    assert found(document) == TWO_SIDES
    assert document["sides"]["receipts"]["unreadable"] == 1 and document["sides"]["rows"]["without_key"] == 1


def test_tenants_keep_their_keys_apart(tmp_path):
    receipts = write_csv(tmp_path / "a.csv", ("key", "tenant", "state"), [("k", "A", "SUCCESS"), ("k", "B", "FAILED")])
    scoped = write_csv(tmp_path / "b.csv", ("key", "tenant"), [("k", "B")])
    assert [code for code, _ in found(reconcile("--receipts", receipts, "--rows", scoped))] == ["effect-after-failure",
                                                                                               "receipt-without-row"]
    plain = write_csv(tmp_path / "c.csv", ("key",), [("k",)])
    assert found(reconcile("--receipts", receipts, "--rows", plain, expect=0)) == []


def test_large_sides_from_disk(tmp_path):
    """More than --memory holds: planted differences found, none invented, nothing left behind."""
    chance = random.Random(11)
    keys = [f"order:{i}:create" for i in range(60000)]
    planted = dict(zip(chance.sample(keys, 60), ["no-row", "alone", "two", "open", "amount", "failed"] * 10))
    receipts, rows = [], []
    for key in keys:
        what = planted.get(key)
        if what != "alone":
            receipts.append((key, {"open": "UNKNOWN", "failed": "FAILED"}.get(what, "SUCCESS"), "c-" + key, "10.50"))
        if what != "no-row":
            rows += [(key, "99" if what == "amount" else "10.5")] * (2 if what == "two" else 1)
    chance.shuffle(receipts)
    chance.shuffle(rows)
    a = write_csv(tmp_path / "a.csv", ("key", "state", "call_id", "amount"), receipts)
    b = write_csv(tmp_path / "b.csv", ("key", "amount"), rows)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    document = reconcile("--receipts", a, "--rows", b, "--memory", "1m", "--tmp", scratch, expect=1)
    names = {"no-row": "receipt-without-row", "alone": "row-without-receipt", "two": "two-rows", "open": "done-but-open",
             "amount": "amount-differs", "failed": "effect-after-failure"}
    assert found(document) == sorted((names[what], key) for key, what in planted.items())
    assert document["keys"] == 60000 and document["agree"] == 59940
    assert list(scratch.iterdir()) == []


def at_a_terminal(*arguments):
    """What a person sees on stderr; stdout is not theirs."""
    master, slave = pty.openpty()
    process = subprocess.Popen([SAMEKEY, *map(str, arguments)], stdout=subprocess.PIPE, stderr=slave, stdin=subprocess.DEVNULL)
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # the terminal's end is an error on Linux
        while piece := os.read(master, 65536):
            seen += piece
    os.close(master)
    process.communicate(timeout=60)
    return seen.decode(), process.returncode


@pytest.mark.parametrize("receipts_from", ["csv", "pipe"])
def test_the_progress_tells_how_long_it_takes(tmp_path, receipts_from):
    count = 1_500_000
    db = sqlite3.connect(tmp_path / "shop.db")
    db.execute("CREATE TABLE orders(key TEXT)")
    db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO orders SELECT "
               "'order:' || i || ':create' FROM n", (count,))
    db.commit()
    with open(tmp_path / "a.csv", "w") as out:
        out.write("key,state\n")
        out.writelines(f"order:{i + 1}:create,SUCCESS\n" for i in range(count))
    source = tmp_path / "a.csv"
    if receipts_from == "pipe":  # nobody knows how much will come
        source = tmp_path / "pipe"
        os.mkfifo(source)
        feeder = subprocess.Popen(["cp", tmp_path / "a.csv", source])
    seen, code = at_a_terminal("reconcile", "--receipts", source, "--rows", tmp_path / "shop.db", "--rows-sql",
                               "SELECT key FROM orders", "--memory", "8m")
    assert code == 0
    looks = [look for look in seen.split("\r") if " s" in look]
    told = [re.search(r"(\d+) % of all(?:, (\d+) s left)?", look) for look in looks]
    reading = [look for look in looks if look.startswith(("rows:", "receipts:"))]
    assert reading, looks
    shares = [int(t[1]) for t in told if t]
    assert shares and shares == sorted(shares) and shares[-1] > 75, "it never goes back, and comes to the end"
    assert all(t[2] for t in told if t and int(t[1]) > 1)
    assert all(" left" in look for look in reading[1:]) if receipts_from == "csv" else not any(" left" in l for l in reading)
    assert seen.endswith("\r\x1b[K"), "and goes when the report comes"
    if receipts_from == "pipe":
        feeder.wait(10)


def test_what_cannot_be_asked(tmp_path):
    good = write_csv(tmp_path / "a.csv", ("key", "state"), [("k", "SUCCESS")])
    keyless = write_csv(tmp_path / "b.csv", ("number", "state"), [("k", "SUCCESS")])
    for sides in ((good, tmp_path / "none.csv"), (good, keyless), ("sqlite:" + str(tmp_path / "no.db"), good),
                  ("mysql://x/y", good), ("postgres://127.0.0.1:1/x", good)):
        done = run("reconcile", "--receipts", sides[0], "--rows", sides[1], "--receipts-sql", "SELECT 1 AS key") \
            if "://" in str(sides[0]) else run("reconcile", "--receipts", sides[0], "--rows", sides[1])
        assert done.returncode == 69, sides
        assert b"rows" in done.stderr or b"receipts" in done.stderr
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t(a)")
    done = run("reconcile", "--receipts", tmp_path / "other.db", "--rows", good)
    assert done.returncode == 69 and b"--receipts-sql" in done.stderr
    assert run("reconcile", "--rows", good).returncode == 64
    assert run("reconcile", "--receipts", good, "--rows", good, "--column", "rows.colour=x").returncode == 64
    assert run("reconcile", "--apply", good).returncode == 64
    full = run("reconcile", "--receipts", good, "--rows", good, "--plan", tmp_path / "no" / "plan")
    assert full.returncode == 74


def test_an_amount_that_cannot_be_compared_is_told(tmp_path):
    receipts = write_csv(tmp_path / "a.csv", ("key", "state", "amount"), [("1", "SUCCESS", "12 EUR"), ("2", "SUCCESS", ""),
                                                                          ("3", "SUCCESS", "1.50")])
    rows = write_csv(tmp_path / "b.csv", ("key", "amount"), [("1", "99 EUR"), ("2", "1"), ("3", "1,5")])
    told = run("reconcile", "--receipts", receipts, "--rows", rows).stdout
    assert b"receipts: 3 read, 1 with an amount that is no decimal number" in told
    assert b"rows: 3 read, 2 with an amount that is no decimal number" in told
    sides = reconcile("--receipts", receipts, "--rows", rows, expect=0)["sides"]
    assert (sides["receipts"]["no_amount"], sides["rows"]["no_amount"]) == (1, 2)


def test_a_plan_takes_no_place_but_a_file_s(tmp_path):
    """A plan is moved to its place whole. Of /dev/null or /dev/stdout that would make a plain file."""
    good = tmp_path / "good.csv"
    good.write_text("key,state\n1,SUCCESS\n")
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(good)
    for place in (pipe, link, tmp_path):
        refused = run("reconcile", "--receipts", good, "--rows", good, "--plan", place)
        assert refused.returncode == 74 and b"is not a regular file" in refused.stderr
    assert pipe.is_fifo() and link.is_symlink() and not list(tmp_path.glob("*.part"))


def test_runs_on_a_schedule(tmp_path):
    good = write_csv(tmp_path / "a.csv", ("key", "state"), [("k", "SUCCESS")])
    done = run("reconcile", "--receipts", good, "--rows", good, "--every", "10ms", "--runs", "3")
    assert done.returncode == 0 and done.stdout.count(b"1 agree") == 3
    loop = subprocess.Popen([SAMEKEY, "reconcile", "--receipts", str(good), "--rows", str(good), "--every", "1h"],
                            stdout=subprocess.PIPE)
    assert b"read" in loop.stdout.readline()
    end = time.monotonic() + 10
    while loop.poll() is None and time.monotonic() < end:
        loop.send_signal(signal.SIGTERM)
        time.sleep(.05)
    assert loop.wait(5) == 0
    loop.stdout.close()


CONF = """
listen = {{"127.0.0.1:{port}"}}
admin  = "127.0.0.1:{admin}"
store  = "sqlite:{folder}/receipts.db"
report_token_file = "{folder}/token"
route "orders" {{
  path = {{"/orders"}}   methods = {{"POST"}}   upstream = {{"http://127.0.0.1:{upstream}"}}
  call_id = "header"   key = "header"   key_missing = refuse
  receipt = "none"   attempt_timeout = 300ms   retries = 0   deadline = 1s
}}
"""


@pytest.mark.skipif(not has_gateway(), reason="this program has no gateway")
def test_corrections_go_through_the_gateway(tmp_path):
    """Two calls end UNKNOWN at a running gateway. For one the row is there: a plan corrects its receipt, with evidence;
    the other stays as it is. A second plan finds nothing to correct."""
    (tmp_path / "token").write_text("secret-token-of-the-report\n")
    os.chmod(tmp_path / "token", 0o600)
    with service(tmp_path, "shop", "hang", "hang", "ok") as upstream:
        port, admin = free_port(), free_port()
        (tmp_path / "samekey.conf").write_text(CONF.format(folder=tmp_path, port=port, admin=admin, upstream=upstream))
        with open(tmp_path / "gateway.log", "wb") as talk, \
                started(SAMEKEY, "gateway", "-c", tmp_path / "samekey.conf", port=port, stderr=talk, stdout=talk):
            for n in (1, 2):
                assert post(port, f"c-{n}", f"order:{n}") in (504, 409)
            assert post(port, "c-3", "order:3") == 201
            rows = write_csv(tmp_path / "rows.csv", ("key",), [("order:1",), ("order:3",)])
            sides = ("--receipts", f"sqlite:{tmp_path}/receipts.db", "--rows", rows, "--grace", "0")
            assert reconcile(*sides[:-1], "1h", expect=1)["sides"]["receipts"]["too_fresh"] == 3
            document = reconcile(*sides, "--plan", tmp_path / "plan.jsonl", expect=1)
            assert found(document) == [("done-but-open", "order:1"), ("still-open", "order:2")]
            plan = [json.loads(line) for line in (tmp_path / "plan.jsonl").read_text().splitlines()]
            assert [(fix["call_id"], fix["from"], fix["to"]) for fix in plan] == [("c-1", "UNKNOWN", "SUCCESS")]
            assert "exactly one row" in plan[0]["evidence"]
            at = ("--at", f"http://127.0.0.1:{port}", "--token-file")
            (tmp_path / "wrong").write_text("guess\n")
            refused = run("reconcile", "--apply", tmp_path / "plan.jsonl", *at, tmp_path / "wrong")
            assert refused.returncode == 69 and b"not changed" in refused.stdout
            assert found(reconcile(*sides)) == found(document), "a dry run and a refused one changed nothing"
            done = run("reconcile", "--apply", tmp_path / "plan.jsonl", *at, tmp_path / "token")
            assert done.returncode == 0 and b"c-1: SUCCESS (reconcile:" in done.stdout, done.stdout
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/v1/audit") as answer:
                kept, = json.load(answer)["items"]
            assert (kept["call_id"], kept["operator"], kept["action"], kept["outcome"]) == ("c-1", "samekey reconcile", "report", "SUCCESS")
            assert kept["evidence"] == plan[0]["evidence"]
            document = reconcile(*sides, "--plan", tmp_path / "plan.jsonl", expect=1)
            assert found(document) == [("still-open", "order:2")] and (tmp_path / "plan.jsonl").read_text() == ""


# ---- PostgreSQL ----

POSTGRES = next((folder for folder in map(str, sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))), None)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """A server of our own for these tests, by the user postgres when root runs them; its URL."""
    if not POSTGRES:
        pytest.skip("PostgreSQL is not installed")
    folder = tmp_path_factory.mktemp("pg")
    port = free_port()
    who = {}
    if os.geteuid() == 0:
        account = pwd.getpwnam("postgres")
        for path in (folder, folder.parent, folder.parent.parent):
            os.chmod(path, 0o755)
        os.chown(folder, account.pw_uid, account.pw_gid)
        who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    data = folder / "data"
    subprocess.run([f"{POSTGRES}/initdb", "-D", data, "-A", "trust", "-U", "shop", "--locale", "C.UTF-8", "-N"], check=True,
                   capture_output=True, cwd=folder, **who)
    with started(f"{POSTGRES}/postgres", "-D", data, "-p", port, "-h", "127.0.0.1", "-k", folder, "-c", "fsync=off", port=port,
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **who) as server:
        url = f"postgres://shop@127.0.0.1:{port}/postgres"
        end = time.monotonic() + 20
        while subprocess.run(["psql", url, "-c", "SELECT 1"], capture_output=True).returncode:
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(.05)
        yield url
        server.send_signal(signal.SIGINT)


def sql(url, text):
    subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", url], input=text.encode(), check=True, capture_output=True)


def test_rows_from_postgresql(tmp_path, postgres):
    receipts, _, _ = as_csv(tmp_path, random.Random(1))
    values = ", ".join(f"('{key}', {amount}, {'true' if undone else 'false'})" for key, amount, undone in ROWS)
    sql(postgres, f"CREATE TABLE orders(no text, total numeric, undone boolean); INSERT INTO orders VALUES {values}")
    query = "SELECT no AS key, total AS amount, undone AS reversed FROM orders"
    document = reconcile("--receipts", receipts, "--rows", postgres, "--rows-sql", query, expect=1)
    assert found(document) == TWO_SIDES
    for wrong in ("SELECT nope FROM orders", "SELECT no FROM orders", "DELETE FROM orders RETURNING no AS key"):
        done = run("reconcile", "--receipts", receipts, "--rows", postgres, "--rows-sql", wrong)
        assert done.returncode == 69 and b"rows (postgres" in done.stderr
    assert found(reconcile("--receipts", receipts, "--rows", postgres, "--rows-sql", query)) == TWO_SIDES, "nothing was deleted"


@pytest.mark.skipif(not has_gateway(), reason="this program has no gateway")
def test_receipts_of_a_gateway_whose_store_is_in_postgresql(tmp_path, postgres):
    """The URL of its store is enough; a route may be named."""
    sql(postgres, "CREATE DATABASE receipts")
    url = postgres.rsplit("/", 1)[0] + "/receipts"
    (tmp_path / "token").write_text("secret-token-of-the-report\n")
    os.chmod(tmp_path / "token", 0o600)
    with service(tmp_path, "shop", "hang", "ok") as upstream:
        port, admin = free_port(), free_port()
        text = CONF.format(folder=tmp_path, port=port, admin=admin, upstream=upstream)
        (tmp_path / "samekey.conf").write_text(text.replace(f"sqlite:{tmp_path}/receipts.db", url))
        with open(tmp_path / "gateway.log", "wb") as talk, \
                started(SAMEKEY, "gateway", "-c", tmp_path / "samekey.conf", port=port, stderr=talk, stdout=talk):
            assert post(port, "c-1", "order:1") in (504, 409)
            assert [post(port, f"c-{n}", f"order:{n}") for n in (2, 3)] == [201, 201]
            rows = write_csv(tmp_path / "rows.csv", ("key",), [("order:1",), ("order:2",)])
            sides = ("--receipts", url, "--rows", rows, "--grace", "0")
            document = reconcile(*sides, "--plan", tmp_path / "plan.jsonl", expect=1)
            assert found(document) == [("done-but-open", "order:1"), ("receipt-without-row", "order:3")]
            assert found(reconcile(*sides, "--route", "orders")) == found(document)
            assert found(reconcile(*sides, "--route", "other'; --")) == [("row-without-receipt", "order:1"),
                                                                        ("row-without-receipt", "order:2")]
            done = run("reconcile", "--apply", tmp_path / "plan.jsonl", "--at", f"http://127.0.0.1:{port}", "--token-file",
                       tmp_path / "token")
            assert done.returncode == 0, done.stdout
            assert found(reconcile(*sides)) == [("receipt-without-row", "order:3")]


@pytest.mark.parametrize("name,schema,good", [
    ("pg_unique", "CREATE TABLE {t}(key text UNIQUE, day text)", True),
    ("pg_primary", "CREATE TABLE {t}(key text PRIMARY KEY, day text)", True),
    ("pg_including", "CREATE TABLE {t}(key text, day text); CREATE UNIQUE INDEX ON {t}(key) INCLUDE (day)", True),
    ("pg_none", "CREATE TABLE {t}(key text, day text)", False),
    ("pg_plain", "CREATE TABLE {t}(key text, day text); CREATE INDEX ON {t}(key)", False),
    ("pg_wider", "CREATE TABLE {t}(key text, day text, UNIQUE(key, day))", False),
    ("pg_partial", "CREATE TABLE {t}(key text, day text); CREATE UNIQUE INDEX ON {t}(key) WHERE day = 'x'", False),
    ("pg_lower", "CREATE TABLE {t}(key text, day text); CREATE UNIQUE INDEX ON {t}(lower(key))", False),
])
def test_is_the_unique_index_there_in_postgresql(tmp_path, postgres, name, schema, good):
    sql(postgres, schema.format(t=name) + f"; INSERT INTO {name} VALUES('a', 'y'), ('b', 'y')"
        + ("" if good or name == "pg_lower" else f"; INSERT INTO {name} VALUES('a', 'z')"))
    log = write_jsonl(tmp_path / "a.jsonl", [dict(t=0, event="request", callId="c-1", bizKey="k-1")])
    document, _ = diagnose("--db", postgres, "--table", name, "--column", "key", log)
    expected = [] if good else ["no-unique-index"] if name == "pg_lower" else ["duplicates-in-table", "no-unique-index"]
    assert codes(document) == expected
