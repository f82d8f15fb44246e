# SPDX-License-Identifier: MIT
"""The four steps, one story each, and beside each story the lawful one that looks like it."""
import os
import shutil
import sqlite3
import subprocess
import sys
import uuid

import pytest
from logs import ROOT, codes, diagnose, labels, run, write_jsonl


def post(t, call="c-1", key="k-1", **more):
    return dict(t=t, event="request", method="POST", callId=call, bizKey=key, **more)


def told(tmp_path, *events, arguments=()):
    document, code = diagnose(*arguments, write_jsonl(tmp_path / "a.jsonl", events))
    assert code == (1 if document["findings"] else 0)
    return document


# ---- step 1 ----

def test_who_changed_the_call_id(tmp_path):
    story = [post(0), dict(t=3, event="attempt.timeout", callId="c-1", bizKey="k-1"), post(5, call="c-2")]
    document = told(tmp_path, *story)
    assert codes(document) == ["new-call-id"] and document["findings"][0]["layer"] == "caller"
    proved = [post(0), dict(t=.1, event="answer", callId="c-1", bizKey="k-1", status=422), post(5, call="c-2")]
    document = told(tmp_path, *proved)
    assert codes(document) == [] and labels(document) == {"k-1": (2, "new-call")} and document["keys"][0]["lawful"]


def test_a_second_click_after_success_and_a_schedule(tmp_path):
    def ran(t, n):
        return [post(t, call=f"c-{n}"), dict(t=t + .1, event="effect.committed", callId=f"c-{n}", bizKey="k-1", execId=f"x-{n}"),
                dict(t=t + .2, event="answer", callId=f"c-{n}", bizKey="k-1", status=201)]
    document = told(tmp_path, *ran(0, 1), *ran(4, 2))
    assert "ran-twice" in codes(document) and document["double_runs"][0]["call_ids"] == ["c-1", "c-2"]
    assert codes(told(tmp_path, *ran(0, 1), *ran(3600, 2))) == [], "an hour later it is another occasion"
    assert codes(told(tmp_path, *[e for n in range(30) for e in ran(n * 37, n)])) == [], "every 37 s: a schedule"


# ---- step 2 ----

@pytest.mark.parametrize("first,second,what", [
    ("order:7:create:1710000000000", "order:7:create:1710000003121", "a timestamp"),
    ("order-7-1710000000", "order-7-1710000003", "a timestamp"),
    (f"order:7:{uuid.UUID(int=5 << 64 | 77)}", f"order:7:{uuid.UUID(int=9 << 64 | 3)}", "a UUID"),
    (str(uuid.UUID(int=5 << 64 | 77)), str(uuid.UUID(int=9 << 64 | 3)), "a UUID"),
    ("order:7:attempt:1", "order:7:attempt:2", "a counter"),
    ("order/7/a9f3c2", "order/7/77b0e1", "a random part"),
])
def test_keys_that_cannot_work(tmp_path, first, second, what):
    document = told(tmp_path, dict(t=0, event="attempt.sent", call_id="c-1", attempt=1, idempotency_key=first),
                    dict(t=3, event="attempt.timeout", call_id="c-1"), dict(t=3.1, event="receipt.answer", call_id="c-1", state="NONE"),
                    dict(t=4, event="attempt.sent", call_id="c-1", attempt=2, idempotency_key=second))
    assert codes(document) == ["volatile-key"]
    assert what in document["findings"][0]["text"] and document["findings"][0]["certainty"] == "certain"
    assert len(document["findings"][0]["lines"]) == 2


def test_another_key_for_the_same_call(tmp_path):
    document = told(tmp_path, dict(t=0, event="attempt.sent", call_id="c-1", attempt=1, idempotency_key="order:7"),
                    dict(t=1, event="attempt.sent", call_id="c-1", attempt=2, idempotency_key="basket of Anna"))
    assert "key-changed" in codes(document)


def test_two_actions_on_one_order_are_two_keys(tmp_path):
    document = told(tmp_path, dict(t=0, event="attempt.sent", call_id="c-1", order_id="7", idempotency_key="order:7:create"),
                    dict(t=.1, event="attempt.answered", call_id="c-1", order_id="7", status=201, idempotency_key="order:7:create"),
                    dict(t=900, event="attempt.sent", call_id="c-2", order_id="7", idempotency_key="order:7:cancel"),
                    dict(t=901, event="attempt.answered", call_id="c-2", order_id="7", status=200, idempotency_key="order:7:cancel"))
    assert codes(document) == []


SCHEMAS = {
    "unique": ("CREATE TABLE orders(id INTEGER PRIMARY KEY, idempotent_key TEXT UNIQUE)", []),
    "primary": ("CREATE TABLE orders(idempotent_key TEXT PRIMARY KEY)", []),
    "none": ("CREATE TABLE orders(id INTEGER PRIMARY KEY, idempotent_key TEXT)", ["no-unique-index"]),
    "plain": ("CREATE TABLE orders(idempotent_key TEXT); CREATE INDEX i ON orders(idempotent_key)", ["no-unique-index"]),
    "wider": ("CREATE TABLE orders(idempotent_key TEXT, day TEXT, UNIQUE(idempotent_key, day))", ["no-unique-index"]),
    "partial": ("CREATE TABLE orders(idempotent_key TEXT, paid INT); CREATE UNIQUE INDEX p ON orders(idempotent_key) WHERE paid = 1",
                ["no-unique-index"]),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_is_the_unique_index_there(tmp_path, name):
    schema, expected = SCHEMAS[name]
    db = sqlite3.connect(tmp_path / "shop.db")
    db.executescript(schema)
    db.execute("INSERT INTO orders(idempotent_key) VALUES ('a'), ('b')")
    if expected:
        db.execute("INSERT INTO orders(idempotent_key) VALUES ('a'), ('a')")
        expected = ["duplicates-in-table", *expected]
    db.commit()
    ask = ("--db", tmp_path / "shop.db", "--table", "orders", "--column", "idempotent_key")
    document = told(tmp_path, post(0), arguments=ask)
    assert codes(document) == expected
    if expected:
        assert "a (3 times)" in document["findings"][1]["text"] + document["findings"][0]["text"]
    if name == "wider":
        assert "(idempotent_key,day)" in [f["text"] for f in document["findings"] if f["code"] == "no-unique-index"][0]
    for wrong in (("--column", "nope"), ("--table", "nope"), ("--db", tmp_path / "no.db")):
        done = run("diagnose", *ask, *wrong, tmp_path / "a.jsonl")
        assert done.returncode == 66 and b"--db" in done.stderr


def test_cache_asked_before_or_after(tmp_path):
    def events(ask):
        return (post(0), dict(t=.5, event="effect.committed", callId="c-1", bizKey="k-1", execId="x"),
                dict(t=ask, event="cache.miss", callId="c-1", bizKey="k-1"))
    assert codes(told(tmp_path, *events(.9))) == ["cache-asked-late"]
    assert codes(told(tmp_path, *events(.1))) == []


# ---- step 3 ----

@pytest.mark.parametrize("state,code", [("PROCESSING", "receipt-open-but-done"), ("NONE", "receipt-lost")])
def test_receipt_and_effect_disagree(tmp_path, state, code):
    story = [post(0), dict(t=.5, event="effect.committed", callId="c-1", bizKey="k-1", execId="x"),
             dict(t=.4, event="receipt.written", callId="c-1", bizKey="k-1", state="PROCESSING"),
             dict(t=9, event="receipt.answer", callId="c-1", bizKey="k-1", state=state)]
    document = told(tmp_path, *story)
    assert codes(document) == [code]
    assert "written before the effect" in document["findings"][0]["text"]
    later = told(tmp_path, *story, dict(t=12, event="receipt.answer", callId="c-1", bizKey="k-1", state="SUCCESS"))
    assert codes(later) == [] or code == "receipt-lost"


def test_success_without_an_effect(tmp_path):
    def call(n, effect):
        ids = dict(callId=f"c-{n}", bizKey=f"k-{n}")
        yield post(n, call=f"c-{n}", key=f"k-{n}")
        if effect:
            yield dict(t=n + .1, event="effect.committed", execId=f"x-{n}", **ids)
        yield dict(t=n + .2, event="call.done", state="SUCCESS", **ids)
    events = [e for n in range(30) for e in call(n, n != 13)]
    document = told(tmp_path, *events)
    assert [(f["code"], f["key"]) for f in document["findings"]] == [("success-without-effect", "k-13")]
    assert codes(told(tmp_path, *[e for n in range(30) for e in call(n, False)])) == [], "a log that never tells of effects"


# ---- step 4 ----

@pytest.mark.parametrize("between,lawful,code", [
    ([dict(event="answer", status=503)], False, "retry-before-receipt"),
    ([dict(event="answer", status=429)], True, None),
    ([dict(event="answer", status=422)], False, "retry-after-rejection"),
    ([dict(event="answer", status=201)], False, "retry-after-success"),
    ([dict(event="answer", status=401)], True, None),
    ([dict(event="answer", status=409)], False, "retry-before-receipt"),
    ([dict(event="connection.reset")], False, "retry-before-receipt"),
    ([dict(event="connection.refused")], True, None),
    ([dict(event="attempt.timeout")], False, "retry-before-receipt"),
    ([dict(event="attempt.timeout"), dict(event="receipt.answer", state="NOT_RECEIVED")], True, None),
    ([dict(event="attempt.timeout"), dict(event="receipt.answer", state="FAILED")], True, None),
    ([dict(event="attempt.timeout"), dict(event="receipt.query"), dict(event="receipt.timeout")], False, "retry-before-receipt"),
    ([dict(event="attempt.timeout"), dict(event="receipt.answer", state="PROCESSING")], False, "retry-before-receipt"),
    ([dict(event="attempt.timeout"), dict(event="receipt.answer", state="SUCCESS")], False, "retry-after-success"),
    ([dict(event="attempt.timeout"), dict(event="answer", status=429)], False, "retry-before-receipt"),
])
def test_lawful_and_unlawful_retries(tmp_path, between, lawful, code):
    events = [post(0, attempt=1), *[dict(t=1 + i / 10, callId="c-1", bizKey="k-1", **e) for i, e in enumerate(between)],
              post(2.5, attempt=2)]
    document = told(tmp_path, *events)
    assert labels(document) == {"k-1": (2, "declared-retry")}
    assert document["keys"][0]["lawful"] is lawful
    assert codes(document) == ([code] if code else [])


def test_policy_of_many(tmp_path):
    """A caller that waits exactly 1 s each time, and an outage after which all callers come back at once."""
    events = []
    for n in range(40):
        ids = dict(callId=f"c-{n}", bizKey=f"k-{n}")
        for attempt in range(1, 6):
            events.append(post(n * .001 + (attempt - 1) * 1.1, call=f"c-{n}", key=f"k-{n}", attempt=attempt, ua="eager/1"))
            events.append(dict(t=n * .001 + (attempt - 1) * 1.1 + .1, event="answer", status=429, **ids))
    document = told(tmp_path, *events)
    assert set(codes(document)) == {"no-jitter", "waits-do-not-grow", "synchronised-wave", "too-many-retries"}
    assert {f["key"] for f in document["findings"] if f["code"] == "no-jitter"} == {"eager/1"}


def test_two_layers_retry(tmp_path):
    def sent(t, node, attempt):
        return dict(t=t, event="attempt.sent", callId="c-1", bizKey="k-1", attempt=attempt, node=node)

    def refused(t, node):
        return dict(t=t, event="attempt.answered", status=429, callId="c-1", bizKey="k-1", node=node)
    document = told(tmp_path, sent(0, "app", 1), sent(.1, "mesh", 1), refused(.2, "mesh"), sent(.3, "mesh", 2), refused(.4, "mesh"),
                    refused(.5, "app"), sent(1, "app", 2), sent(1.1, "mesh", 1), refused(1.2, "mesh"), sent(1.3, "mesh", 2))
    assert "stacked-retries" in codes(document)


def test_a_reversed_effect_may_run_anew(tmp_path):
    def ran(t, n):
        return [post(t, call=f"c-{n}"), dict(t=t + .1, event="effect.committed", callId=f"c-{n}", bizKey="k-1", execId=f"x-{n}"),
                dict(t=t + .2, event="answer", callId=f"c-{n}", bizKey="k-1", status=201)]
    reversal = dict(t=2, event="refunded", callId="r-1", bizKey="k-1")
    assert [r["key"] for r in told(tmp_path, *ran(0, 1), *ran(4, 2))["double_runs"]] == ["k-1"]
    assert told(tmp_path, *ran(0, 1), reversal, *ran(4, 2))["double_runs"] == []


# ---- quiet days ----

@pytest.mark.parametrize("seed", [1, 42])
def test_a_quiet_day_raises_no_alarm(tmp_path, seed):
    with open(tmp_path / "day.jsonl", "wb") as out:
        subprocess.run([sys.executable, ROOT / "test/forensics/day.py", "30000", str(seed)], stdout=out, check=True)
    document, _ = diagnose(tmp_path / "day.jsonl", expect=0)
    assert document["double_runs"] == [] and document["findings"] == []
    assert document["call_ids"] > 30000 and document["lines"]["shipped_twice"] == 6
    assert sum(key["label"] == "declared-retry" for key in document["keys"]) > 400


def test_planted_duplicates_are_found_and_no_other(tmp_path):
    with open(tmp_path / "day.jsonl", "wb") as out:
        subprocess.run([sys.executable, ROOT / "test/forensics/day.py", "20000", "7", "30"], stdout=out, check=True)
    document, _ = diagnose("--memory", "2m", tmp_path / "day.jsonl", expect=1)
    assert len(document["double_runs"]) == 30
    causes = [run["cause"] for run in document["double_runs"]]
    assert sum("no receipt query" in cause for cause in causes) == 10
    assert sum("while the first was UNKNOWN" in cause for cause in causes) == 10
    assert sum("the service ran one request 2 times" in cause for cause in causes) == 10
    assert {f["key"] for f in document["findings"]} == {run["key"] for run in document["double_runs"]}


# ---- reports ----

def test_reports_for_people(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [
        post(0, key="<b>&\x1b[31m"), dict(t=3, event="attempt.timeout", callId="c-1", bizKey="<b>&\x1b[31m"),
        *[post(5 + i, call=f"c-{i + 2}", key="<b>&\x1b[31m") for i in range(3)]])
    done = run("diagnose", "--html", tmp_path / "r.html", path)
    text, page = done.stdout.decode(), (tmp_path / "r.html").read_text()
    assert done.returncode == 1 and "\x1b" not in text and f"{path}:1" in text and "Remedy:" in text
    assert "<svg" in page and "<b>" not in page and "&lt;b&gt;&amp;" in page
    assert "http" not in page.replace("http-equiv", "") and "<script" not in page, "nothing is loaded from anywhere"
    assert run("diagnose", "--format", "html", path).stdout.decode() == page
    assert run("diagnose", "--html", tmp_path / "no" / "r.html", path).returncode == 74
