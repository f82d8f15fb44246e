# SPDX-License-Identifier: MIT
"""Case 07: the same JSON in other bytes; other JSON in nearly the same bytes."""

import pytest

from support.cases import Stage
from support.gateway import post
from support.stub import case_json

NAME = "07-same-json-different-bytes"


def rows():
    pairs = case_json(NAME, "pairs.json")
    return [(r["name"], "base", r) for r in pairs["repeats"]] + [(pairs["big_repeat"]["name"], "big_base", pairs["big_repeat"])]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("case07")
    stage = Stage(NAME, folder, {"receipts": "honest", "nodes": {"A": {"script": [
        {"on": 1, "effect": True, "then": "respond", "status": 201, "body": '{"first":"o-71"}'},
        {"on": 2, "effect": True, "then": "respond", "status": 201, "body": '{"first":"o-72"}'}]}}})
    pairs = case_json(NAME, "pairs.json")
    for base, key, call_id in (("base", "base_key", "c-71"), ("big_base", "big_key", "c-72")):
        answer = stage.gateway.send(post("/orders", call_id, pairs[key], pairs[base].encode()))
        assert (answer.status, answer.replayed) == (201, False)
    yield stage, pairs
    stage.close()


@pytest.mark.parametrize("name, base, row", rows(), ids=[r[0] for r in rows()])
def test_row(played, name, base, row):
    stage, pairs = played
    key, call_id = (pairs["base_key"], "c-71") if base == "base" else (pairs["big_key"], "c-72")
    answer = stage.gateway.send(post("/orders", call_id, key, row["body"].encode()))
    then = row["then"]
    if then.startswith("either"):
        # Exact decimals: 100.0 is 100 here, and the manual says so.
        then = "same"
    if then == "same":
        assert answer.replayed and answer.status == 201 and b'"first"' in answer.body
    elif then == "different":
        assert (answer.status, answer.slug, answer.outcome) == (422, "call-id-reused", "rejected")
        assert b'"first"' not in answer.body
    else:
        assert then == "invalid"
        assert (answer.status, answer.slug, answer.outcome) == (400, "body-invalid", "rejected")
        assert b'"first"' not in answer.body
    assert len(stage.stub.posts()) == 2
