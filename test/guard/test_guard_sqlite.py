# SPDX-License-Identifier: MIT
"""The guard's views in SQLite, as any language uses them."""

import base64
import json
import os
import sqlite3
import time

import pytest

import guard


@pytest.fixture
def db(tmp_path):
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.executescript(guard.schema("sqlite"))
    yield connection
    connection.close()


def begin(db, **call):
    db.execute(f"INSERT INTO samekey_begin({', '.join(call)}) VALUES ({', '.join('?' * len(call))})", list(call.values()))
    return db.execute("SELECT verdict FROM samekey_begun").fetchone()[0]


def finish(db, call_id, body=None, headers=None):
    db.execute("INSERT INTO samekey_finish(call_id, state, result_status, result_body, result_headers) "
               "VALUES (?, 'SUCCESS', 200, ?, ?)", (call_id, body, headers))


@pytest.mark.parametrize("call", [{"key": b"k"}, {"call_id": b"c-2"}, {"route": b"orders"}, {"tenant": b""}, {"key": "k\0"},
                                  {"call_id": "c-2\0"}])
def test_a_key_has_one_spelling(db, call):
    """Python's bytes are a blob, which equals no text: one key in both forms would run twice."""
    db.execute("BEGIN IMMEDIATE")
    assert begin(db, call_id="c-1", key="k", route="orders", tenant="") == "run"
    finish(db, "c-1")
    with pytest.raises(sqlite3.Error, match="texts without NUL"):
        begin(db, **{"call_id": "c-2", "key": "k", "route": "orders", "tenant": "", **call})
    fence = {"call_id": "c-3", **call}
    with pytest.raises(sqlite3.Error, match="texts without NUL"):
        db.execute(f"INSERT INTO samekey_fence({', '.join(fence)}) VALUES ({', '.join('?' * len(fence))})", list(fence.values()))
    assert begin(db, call_id="c-4", key="k", route="orders", tenant="") == "replay"  # the transaction is usable
    db.execute("COMMIT")


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1535, 1536, 1537, 300_000])
def test_a_body_comes_back_in_the_document_and_in_time(db, size):
    body = (b"\xff" + os.urandom(size))[:size]  # not ASCII, which is said as it is
    db.execute("BEGIN IMMEDIATE")
    begin(db, call_id="c-1")
    finish(db, "c-1", body)
    db.execute("COMMIT")
    started = time.monotonic()
    document, = db.execute("SELECT document FROM samekey_receipt WHERE tenant = '' AND call_id = 'c-1'").fetchone()
    assert time.monotonic() - started < 10  # it was a minute when every byte cost a look at all of them
    assert base64.b64decode(json.loads(document)["result"]["body"]) == body


@pytest.mark.parametrize("headers", ["{}", "[1]", '[["a"]]', '[["a", 1]]', '[["a", "b", "c"]]', '[{"a": "b"}]', "no"])
def test_headers_are_pairs_of_texts(db, headers):
    db.execute("BEGIN IMMEDIATE")
    begin(db, call_id="c-1")
    with pytest.raises(sqlite3.Error, match="list of pairs"):
        finish(db, "c-1", headers=headers)
    finish(db, "c-1", headers='[["a", "b"], ["a", ""]]')
    db.execute("COMMIT")


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16"])
@pytest.mark.parametrize("body, said", [(b'{"a":"b"}\n', "utf8"), (b"z" * (1 << 20), "utf8"), (b"a\0b", "base64"), ("hé".encode(), "base64"),
                                        (b"ab\xc3", "base64"), (b"\x80", "base64")],
                         ids=["json", "large", "nul", "utf8", "cut", "byte"])
def test_a_body_of_ascii_says_itself(tmp_path, encoding, body, said):
    """In a file of UTF-16, too, no byte gets lost."""
    db = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    db.execute(f"PRAGMA encoding = '{encoding}'")
    db.executescript(guard.schema("sqlite"))
    db.execute("BEGIN IMMEDIATE")
    begin(db, call_id="c-1", key="k")
    body = body[:1000] if encoding == "UTF-16" else body  # there it is base64
    finish(db, "c-1", body)
    db.execute("COMMIT")
    result = json.loads(db.execute("SELECT document FROM samekey_receipt WHERE call_id = 'c-1'").fetchone()[0])["result"]
    assert result["body_encoding"] == said or encoding == "UTF-16"
    told = result["body"].encode() if result["body_encoding"] == "utf8" else base64.b64decode(result["body"])
    assert told == body
    db.close()
