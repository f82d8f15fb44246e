# SPDX-License-Identifier: MIT
"""The admin listener and the log: health, metrics, calls, and who may ask."""

import json
import re

import pytest

from support.gateway import Gateway
from support.house import House, Step
from support.poll import free_port, until
from support.upstream import Upstream, receipt

TOKEN = "admin-token-for-tests"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("admin"), {"plain": {}}, tenant="{header.X-Tenant}", drain="1s")
    yield built
    assert built.close() == 0


T = {"X-Tenant": "t1"}


def test_health_and_readiness(house):
    for path in ("/healthz", "/readyz"):
        assert house.gateway.admin("GET", path).status == 200


def test_the_admin_is_not_on_the_public_address(house):
    for path in ("/metrics", "/healthz", "/readyz", "/v1/calls"):
        assert house.gateway.ask("GET", path, T).status == 404


def test_metrics_are_well_formed_and_count(house):
    before = {name: house.gateway.metric(name) for name in ("samekey_requests_total", "samekey_replays_total", "samekey_attempts_total",
                                                           "samekey_refusals_total")}
    order = house.order("plain", Step(421), Step(201))
    order.send(headers=T)
    order.send(headers=T)
    order.send(body="{}", headers=T)
    answer = house.gateway.admin("GET", "/metrics")
    assert answer.status == 200 and answer.get("Content-Type").startswith("text/plain")
    typed = set()
    for line in answer.body.decode().splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in typed and kind in ("counter", "gauge", "histogram")
            typed.add(name)
        elif not line.startswith("#"):
            match = re.fullmatch(r'([a-z_]+)(\{([a-z_]+="[^"\n]*",?)*\})? -?[0-9.e+-]+(Inf|NaN)?', line)
            assert match, line
            assert match[1] in typed or re.sub("_(bucket|sum|count)$", "", match[1]) in typed, line
    assert house.gateway.metric("samekey_requests_total") == before["samekey_requests_total"] + 3
    assert house.gateway.metric("samekey_replays_total") == before["samekey_replays_total"] + 1
    assert house.gateway.metric("samekey_attempts_total") == before["samekey_attempts_total"] + 2
    assert house.gateway.metric("samekey_refusals_total") == before["samekey_refusals_total"] + 1
    assert house.gateway.metric("samekey_refusals_total", problem="call-id-reused") >= 1


def test_every_line_of_the_log_is_json_with_the_call_id_first(house):
    order = house.order("plain", Step(then="rst"))
    order.send(headers={**T, "X-Business-Ref": 'quote " and \u00e9'.encode().decode("latin-1")})
    entries = house.gateway.logged(order.call_id)
    until(lambda: any(e.get("event") == "call_ended" for e in house.gateway.logged(order.call_id)))
    for entry in list(house.gateway.log):
        members = list(json.loads(entry["_line"]))
        assert members[:2] == ["call_id", "time"] and {"level", "event"} <= set(members)
    assert entries and not [line for line in house.gateway.noise if "warning:" not in line]


def test_the_log_never_holds_a_credential_or_a_body(house):
    order = house.order("plain", Step(201, b"the-secret-answer"))
    order.send(headers={**T, "Authorization": "Bearer the-secret-token", "Cookie": "the-secret-cookie"}, body='{"a":"the-secret-body"}')
    house.gateway.logged(order.call_id)
    assert not [e for e in list(house.gateway.log) if "the-secret" in e["_line"]]


def test_the_admin_reports_for_a_tenant(house):
    for tenant in ("t1", "t2"):
        order = house.order("plain", Step(202, b"", effect=False))
        house.upstream.answer_receipt("both", receipt("PROCESSING", "both"))
        assert order.send("both", headers={"X-Tenant": tenant}).outcome == "pending"
    document = json.dumps({"state": "SUCCESS"})
    path = "/.samekey/receipts/both"
    assert house.gateway.admin("PUT", path, {}, document).status == 409
    assert house.gateway.admin("PUT", path + "?tenant=t2", {}, document).status == 200
    until(lambda: house.gateway.state("both", {"X-Tenant": "t2"}) == "SUCCESS", 2)
    assert house.gateway.state("both", T) == "PROCESSING"
    assert house.gateway.admin("GET", path).status == 409
    assert house.gateway.admin("GET", path + "?tenant=t1").json()["state"] == "PROCESSING"


def test_a_token_guards_the_admin(tmp_path, started):
    upstream = Upstream()
    (tmp_path / "token").write_text(TOKEN + "\n", encoding="ascii")
    gateway = Gateway(tmp_path, {"plain": {"upstream": [upstream.url]}}, admin_token_file=str(tmp_path / "token"), start=False)
    started.extend([upstream, gateway])
    gateway.start(wait=False)
    until(lambda: gateway.process.poll() is not None or any(e.get("event") == "ready" for e in list(gateway.log)))
    assert gateway.process.poll() is None
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer "}):
        answer = gateway.admin("GET", "/metrics", headers)
        assert answer.status == 401, headers
    assert gateway.admin("GET", "/metrics", {"Authorization": f"Bearer {TOKEN}"}).status == 200


def test_an_address_others_can_reach_needs_a_token(tmp_path, started):
    gateway = Gateway(tmp_path, {"plain": {"upstream": ["http://127.0.0.1:1"]}}, admin=True, start=False)
    gateway.port = gateway.admin_port = free_port()
    gateway.top["admin"] = f"0.0.0.0:{free_port()}"
    gateway.start(wait=False)
    assert gateway.wait() == 78 and any("admin_token_file" in line for line in gateway.noise)


@pytest.mark.parametrize("way", [{"host": "evil.test"}, {"headers": {"Origin": "https://evil.test"}}])
def test_a_page_from_elsewhere_does_not_speak_for_an_operator(house, way):
    """Without a token: no other Host (a name rebound to loopback), and no write that a page sent."""
    order = house.order("plain", Step(202, b"", effect=False))
    house.upstream.answer_receipt(order.call_id, receipt("PROCESSING", order.call_id))
    order.send(headers=T)
    answer = house.gateway.admin("PUT", f"/.samekey/receipts/{order.call_id}?tenant=t1", way.get("headers"),
                                 json.dumps({"state": "SUCCESS"}), host=way.get("host"))
    assert answer.status in (401, 403, 421) and order.receipt(headers=T).json()["state"] == "PROCESSING"
