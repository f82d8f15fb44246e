# SPDX-License-Identifier: MIT
"""The evidence of a report: who says that a call ended so, and why, is kept among what people changed."""

import json

import pytest

from support.gateway import Gateway
from support.poll import until
from support.upstream import Step, Upstream, receipt

TOKEN = "open-sesame-open-sesame"


@pytest.fixture
def gateway(tmp_path, started):
    upstream = Upstream()
    started.append(upstream)
    upstream.script("/orders/1", Step(202))
    (tmp_path / "token").write_text(TOKEN + "\n")
    gw = Gateway(tmp_path / "gw", {"orders": {"upstream": [upstream.url], "receipt": "http GET /receipts/{call_id}"}},
                 report_token_file=str(tmp_path / "token"))
    started.append(gw)
    for call_id in ("r-1", "r-2", "r-3"):
        upstream.answer_receipt(call_id, receipt("PROCESSING", call_id))
        assert gw.ask("POST", "/orders/1", {"X-Call-Id": call_id, "Idempotency-Key": call_id}).status == 202
    return gw


def audit(gw):
    return json.loads(gw.admin("GET", "/v1/audit").body)["items"]


def test_who_and_why_are_kept_with_the_ending(gateway):
    told = {"state": "SUCCESS", "evidence": 'row 7 of "orders" stands', "operator": "lena"}
    assert gateway.report("r-1", told, TOKEN).json()["state"] == "SUCCESS"
    row, = audit(gateway)
    assert (row["call_id"], row["operator"], row["action"], row["outcome"]) == ("r-1", "lena", "report", "SUCCESS")
    assert row["evidence"] == told["evidence"]
    line, = until(lambda: [e for e in list(gateway.log) if e.get("event") == "reported"])
    assert line["evidence"] == told["evidence"] and line["by"] == "lena" and line["key"] == "r-1"
    # Told twice is told once.
    assert gateway.report("r-1", told, TOKEN).status == 200
    assert len(audit(gateway)) == 1


def test_a_report_without_evidence_is_as_before(gateway):
    assert gateway.report("r-2", {"state": "FAILED"}, TOKEN).json()["state"] == "FAILED"
    assert audit(gateway) == []
    assert gateway.report("r-1", {"state": "FAILED", "evidence": "no row"}, TOKEN).status == 200
    row, = audit(gateway)
    assert row["operator"] == "report token"


def test_a_report_that_contradicts_is_kept_as_one(gateway):
    assert gateway.report("r-3", {"state": "SUCCESS"}, TOKEN).status == 200
    answer = gateway.report("r-3", {"state": "FAILED", "evidence": "the row is gone", "operator": "lena"}, TOKEN)
    assert answer.status == 409 and answer.json()["type"] == "urn:samekey:report-contradicts"
    assert gateway.state("r-3") == "SUCCESS"
    row, = audit(gateway)
    assert (row["action"], row["outcome"], row["evidence"]) == ("contradict", "FAILED", "the row is gone")


@pytest.mark.parametrize("bad", [{"evidence": 7}, {"evidence": "x" * 4001}, {"operator": ["lena"]}, {"operator": "x" * 256}])
def test_evidence_is_a_text_of_bounded_length(gateway, bad):
    answer = gateway.report("r-1", {"state": "SUCCESS", **bad}, TOKEN)
    assert answer.status == 400 and "4000 and 255 bytes" in answer.json()["detail"]
    assert gateway.state("r-1") == "PROCESSING" and audit(gateway) == []
