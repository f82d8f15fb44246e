# SPDX-License-Identifier: MIT
"""Case 03: a replay is the first answer, byte for byte."""

import hashlib

import pytest

from support.cases import Stage
from support.wire import hang_up_after

NAME = "03-replay-is-byte-exact"
POLICY = {"attempt_timeout": "3s", "deadline": "30s"}


@pytest.fixture
def stage(tmp_path, started):
    built = Stage(NAME, tmp_path, policy=POLICY)
    started.append(built)
    return built


def the_same(first, again, expected):
    assert again.status == first.status == expected["status"]
    assert len(again.body) == expected["body_len"]
    if "body_sha256" in expected:
        assert hashlib.sha256(again.body).hexdigest() == expected["body_sha256"]
    assert again.body == first.body
    for name in expected.get("same_headers", ["Content-Type"]):
        assert [v for v in again.all(name)] == [v for v in first.all(name)], name
    for name in expected.get("absent_in_replay", []):
        assert first.all(name) and not again.all(name), name
    assert len(again.all("Date")) <= 1 and len(first.all("Date")) <= 1


def test_replays_are_the_first_answer_also_after_a_restart(stage):
    expected = stage.json("expected.json")
    first = {}
    for call in expected:
        first[call] = stage.send(call + ".http")
        assert not first[call].replayed and hashlib.sha256(first[call].body).hexdigest() == \
            expected[call].get("body_sha256", hashlib.sha256(b"").hexdigest())
    assert first["call-1"].get("Location") == "/orders/o-1003" and first["call-1"].get("ETag") == '"v1"'
    assert first["call-1"].get("Content-Encoding") == "gzip"
    assert "</orders/o-1003/items>; rel=items" in first["call-1"].all("Link")
    for restart in (False, True):
        if restart:
            stage.gateway.restart()
        for call, facts in expected.items():
            for _ in range(2):
                again = stage.send(call + ".http")
                assert again.replayed and again.outcome == "success"
                the_same(first[call], again, facts)
    assert len(stage.stub.posts()) == 3
    assert stage.stub.counters()["effects"] == {"o-1003": 1, "o-1004": 1, "o-1005": 1}


def test_a_caller_that_hung_up_gets_the_same_later(tmp_path, started):
    from support.stub import case, case_json
    document = case_json(NAME, "upstream.json")
    step = document["nodes"]["A"]["script"][0]
    step.update(delay_ms=400, body_file=str(case(NAME) / step["body_file"]))
    document["nodes"]["A"]["script"][1]["body_file"] = str(case(NAME) / "answer-2.json")
    stage = Stage(NAME, tmp_path, document, policy=POLICY)
    started.append(stage)
    assert hang_up_after(stage.gateway.port, stage.file("call-1.http"), 0.1)
    again = stage.send("call-1.http")
    facts = stage.json("expected.json")["call-1"]
    assert again.status == 201 and hashlib.sha256(again.body).hexdigest() == facts["body_sha256"]
    assert (again.get("Location"), again.get("ETag")) == ("/orders/o-1003", '"v1"')
    assert stage.send("call-1.http").replayed and len(stage.stub.posts()) == 1
