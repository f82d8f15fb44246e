# SPDX-License-Identifier: MIT
"""Case 11: which answers are final."""

import pytest

from support.cases import Stage
from support.gateway import post
from support.stub import case_json

NAME = "11-which-answers-are-final"
ROWS = case_json(NAME, "rows.json")
TICK = 0.005


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_row(row, tmp_path, started):
    first = {"on": 1, "effect": row["effect_on_first"], "then": "respond", "status": row["first_answer"],
             "body": '{"answer":"first"}', "headers": {"Content-Type": "application/json"}}
    if row["retry_after"]:
        first["headers"]["Retry-After"] = row["retry_after"]
    stage = Stage(NAME, tmp_path, {"receipts": "honest", "nodes": {"A": {"script": [first], "default": {
        "then": "respond", "status": 201, "effect": True, "body": '{"answer":"later"}'}}}}, policy={"retries": 2})
    started.append(stage)
    call = post("/orders", "c-11", "order:o-11", '{"order":"o-11"}', {"Authorization": "old"})
    answer = stage.gateway.send(call)
    if row["name"] == "401 then 201":
        # Not an end of the call: after the credential is mended the same callId goes through.
        assert (answer.status, answer.outcome) == (401, "not-executed")
        assert stage.gateway.receipt("c-11").json()["final"] is False
        call = call.replace(b"Authorization: old", b"Authorization: new")
        answer = stage.gateway.send(call)
    document = stage.gateway.receipt("c-11").json()
    assert document["final"] is True
    again = stage.gateway.send(call)
    assert again.replayed and (again.status, again.body) == (answer.status, answer.body)
    final = row["final"].split()[0]
    assert stage.gateway.state("c-11") == final == document["state"]
    assert len(stage.stub.posts()) == row["posts"]
    assert stage.stub.counters()["effects"].get("o-11", 0) == row["effects"]
    if final == "FAILED":
        assert (answer.status, answer.body) == (row["first_answer"], b'{"answer":"first"}')
    elif row["first_answer"] >= 300:
        # No body of a 5xx, or of any answer that was no ending, is ever replayed once it is SUCCESS.
        assert b"first" not in again.body and again.status in (200, 201)
    log = stage.stub.counters()["log"]
    if row["first_answer"] in (503, 500, 502, 504):
        assert [e["kind"] for e in log][:2] == ["request", "receipt"]
    if row["retry_after"]:
        sent = [e["t"] for e in log if e["kind"] == "request"]
        assert sent[1] - sent[0] >= int(row["retry_after"]) - TICK
