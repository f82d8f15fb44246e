# SPDX-License-Identifier: MIT
"""Case 05: one key text, another tenant, another route."""

import json

import pytest

from support.cases import Stage
from support.house import House, Step

NAME = "05-same-key-other-tenant-other-route"


@pytest.fixture
def house(tmp_path, started):
    """The case's callee answers with the request's own body, which its stub cannot: a scripted one does."""
    built = House(tmp_path, {
        "orders": {"path": ["/orders", "/orders/{id}/cancel"]},
        "tickets": {"path": ["/tickets/{id}"], "methods": ["POST", "PUT"]},
    }, tenant="{header.X-Tenant}")
    started.append(built)
    for path in ("/orders", "/orders/o-51/cancel", "/tickets/1", "/tickets/2"):
        built.upstream.script(path, Step(201, lambda seen: seen.body))
    return built


def test_the_case(house):
    from support.stub import case_bytes
    gateway, answers = house.gateway, {}
    for n in range(1, 7):
        answers[n] = gateway.send(case_bytes(NAME, f"{n}.http"))
    sent = [s.target for s in house.upstream.posts()]
    # 1: 1 to 4 are executed; 5 is executed or refused, never the answer of 4; 6 is a replay of 1.
    for n in range(1, 5):
        assert (answers[n].status, answers[n].replayed) == (201, False)
        assert answers[n].body == case_bytes(NAME, f"{n}.http").split(b"\r\n\r\n", 1)[1]
    assert answers[5].status == 422 and answers[5].slug == "key-reused" or \
        answers[5].status == 201 and not answers[5].replayed and "/tickets/2" in sent
    assert answers[6].replayed and (answers[6].status, answers[6].body) == (201, answers[1].body)
    assert sent[:4] == ["/orders", "/orders", "/orders/o-51/cancel", "/tickets/1"] and len(sent) in (4, 5)
    # 2: nothing of T1's order in the answer to T2.
    assert b"o-51" not in answers[2].body and b"o-51" not in repr(answers[2].headers).encode()
    # 3: T2 cannot learn that c-51 exists.
    t2 = {"X-Tenant": "T2"}
    known, never = gateway.receipt("c-51", headers=t2), gateway.receipt("c-none", headers=t2)
    assert known.status == never.status == 404
    assert sorted(k.lower() for k, _ in known.headers) == sorted(k.lower() for k, _ in never.headers)
    assert json.loads(known.body.replace(b"c-51", b"ID")) == json.loads(never.body.replace(b"c-none", b"ID"))
    assert gateway.receipt("c-51", headers={"X-Tenant": "T1"}).json()["state"] == "SUCCESS"
    # 4: no tenant, no service.
    raw = case_bytes(NAME, "1.http").replace(b"X-Tenant: T1\r\n", b"")
    refused = gateway.send(raw)
    assert (refused.status, refused.slug, refused.outcome) == (400, "tenant-missing", "rejected")
    assert gateway.receipt("c-51").status == 400
    assert len(house.upstream.posts()) == len(sent)


def test_each_effect_once_at_the_stub(tmp_path, started):
    stage = Stage(NAME, tmp_path, {"receipts": "honest", "nodes": {"A": {"script": []}}}, routes={
        "orders": {"path": ["/orders", "/orders/{id}/cancel"]},
        "tickets": {"path": ["/tickets/{id}"], "methods": ["POST", "PUT"]}}, tenant="{header.X-Tenant}")
    started.append(stage)
    for n in range(1, 7):
        stage.send(f"{n}.http")
    effects = stage.stub.counters()["effects"]
    assert (effects["o-51"], effects["o-52"]) == (1, 1)


def test_without_its_credential_a_request_is_refused(tmp_path, started):
    house = House(tmp_path, {"orders": {}}, credential="{header.X-User}")
    started.append(house)
    order = house.order("orders")
    refused = order.send()
    assert (refused.status, refused.slug, refused.outcome) == (400, "credential-missing", "rejected")
    assert not order.posts
