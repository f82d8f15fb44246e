# SPDX-License-Identifier: MIT
"""Case 01, the gateway's part: a kept-alive upstream connection dies after the POST was read."""

import pytest

from support.cases import Stage

NAME = "01-reused-connection-resend"


@pytest.fixture
def stage(tmp_path, started, request):
    document = None
    if request.param != "honest":
        from support.stub import case_json
        document = {**case_json(NAME, "upstream.json"), "receipts": request.param}
    # One loop, so that both calls meet the one kept connection.
    built = Stage(NAME, tmp_path, document or "upstream.json", loops=1)
    started.append(built)
    return built


def play(stage):
    assert stage.send("call-1.http").status == 201
    answer = stage.send("call-2.http")
    log = stage.stub.counters()["log"]
    of_two = [e for e in log if e["callId"] == "c-1002" or e.get("biz") == "o-1002"]
    return answer, of_two


@pytest.mark.parametrize("stage", ["honest"], indirect=True)
def test_the_receipt_decides_and_nothing_is_sent_twice(stage):
    answer, story = play(stage)
    # 1: before the first receipt query exactly one POST was read, on the connection that was kept.
    assert [e["kind"] for e in story][:2] == ["request", "receipt"] and story[0]["nth"] == 2
    # 2: written down as UNKNOWN, asked, ended SUCCESS; one POST, one effect.
    assert answer.outcome == "success"
    document = stage.gateway.receipt("c-1002").json()
    assert [a["outcome"] for a in document["attempts"]] == ["unknown"]
    assert (document["state"], document["final"]) == ("SUCCESS", True)
    assert len([e for e in story if e["kind"] == "request"]) == 1
    assert stage.stub.counters()["effects"] == {"o-1001": 1, "o-1002": 1}
    # 3: everything on the wire bears the caller's own names.
    assert {e["callId"] for e in story} == {"c-1002"}
    assert {e["key"] for e in story if e["kind"] == "request"} == {"order:o-1002"}


@pytest.mark.parametrize("stage", ["down"], indirect=True)
def test_without_receipts_it_stays_unknown(stage):
    answer, story = play(stage)
    # 4: still one POST; the ending is UNKNOWN, which is not FAILED.
    assert (answer.status, answer.slug, answer.outcome) == (504, "outcome-unknown", "unknown")
    assert stage.gateway.state("c-1002") == "UNKNOWN"
    assert len([e for e in story if e["kind"] == "request"]) == 1
    assert any(e["kind"] == "receipt" for e in story)


@pytest.mark.parametrize("stage", ["honest"], indirect=True)
def test_connections_are_still_kept(stage):
    """Never reusing connections at all would pass the above and cost a handshake a call."""
    from support.wire import Wire, request
    stage.send("call-1.http")
    stage.send("call-2.http")  # ends that connection
    with Wire(stage.gateway.port) as wire:
        for n in range(300):
            wire.send(request("GET", f"/orders?n={n}"))
            assert wire.answer(to="GET").status == 201
    log = stage.stub.counters()["log"]
    assert len({e["conn"] for e in log if e.get("method") == "GET"}) <= 3
