# SPDX-License-Identifier: MIT
"""The admin API as docs/admin-api.md says: lists by filter and page, one call with all that belongs to it, erasing."""

import datetime
import json
import re
import urllib.parse

import pytest

from support.gateway import ROOT
from support.house import House, Step
from support.poll import unique, until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SHAPES = ["<script>alert(1)</script>", '"><img/src=x/onerror=alert(1)>', "'};alert(1)//", "{{7*7}}", "%3Cscript%3E"]


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("lists"),
                  {"plain": {"business_ref": "{header.X-Order}"}, "other": {}, "block": {"swapped_keys": "block"}},
                  tenant="{header.X-Tenant}", credential="{header.X-User}", drain="1s")
    yield built
    assert built.close() == 0


class Desk:
    """Somebody at the admin listener."""

    def __init__(self, gateway, headers=None):
        self.gateway, self.headers = gateway, dict(headers or {})

    def get(self, path, expect=200, **query):
        filled = {name: value for name, value in query.items() if value is not None}
        answer = self.gateway.admin("GET", path + ("?" + urllib.parse.urlencode(filled) if filled else ""), self.headers)
        assert answer.status == expect, answer
        return answer.json()

    def post(self, path, body, status=200, headers=None):
        answer = self.gateway.admin("POST", path, {"Content-Type": "application/json", **self.headers, **(headers or {})},
                                    json.dumps(body))
        assert answer.status == status, answer
        return answer.json()

    def pages(self, path, **query):
        """All items over all pages."""
        items, cursor = [], None
        for _ in range(1000):
            page = self.get(path, cursor=cursor, **query)
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return items
        raise AssertionError("the pages do not end")


@pytest.fixture
def desk(house):
    return Desk(house.gateway)


def headers(tenant="t1", user="u1", **more):
    return {"X-Tenant": tenant, "X-User": user, **more}


def send(house, route="plain", tenant="t1", *steps, **more):
    order = house.order(route, *(steps or (Step(201),)))
    order.send(headers=headers(tenant, **{name.replace("_", "-"): value for name, value in more.items()}))
    return order


def test_the_page_of_the_api_names_every_address(house):
    """Each address that the listener knows is on the page, and answers a method it does not have as one of ours."""
    page = (ROOT / "docs" / "admin-api.md").read_text()
    source = (ROOT / "src" / "gateway" / "admin.c").read_text()
    addresses = re.findall(r'\{"(GET|POST|DELETE)", "(/v1/[^"]+)"', source)
    assert len(addresses) > 10
    for method, path in addresses:
        shown = path.replace("calls/*", "calls/{call_id}").replace("*", "{id}")
        assert re.search(rf"^\| `[A-Z ]*\b{method}\b[A-Z ]* {re.escape(shown)}` \|", page, re.M), (method, path)
        answer = house.gateway.admin("PATCH", path.replace("*", "1"), {"Content-Type": "application/json"}, "{}")
        assert answer.status == 405 and answer.slug == "method-not-allowed", path
        assert method in answer.get("Allow").split(", "), path
    assert house.gateway.admin("GET", "/v1/nothing").slug == "no-route"


def test_calls_are_listed_newest_first_with_all_they_are(house, desk):
    order = send(house, "plain", "t7", traceparent=f"00-{TRACE}-00f067aa0ba902b7-01", X_Order="ref 7")
    item = desk.get("/v1/calls", limit=1)["items"][0]
    assert item["call_id"] == order.call_id and item["key"] == order.key and item["tenant"] == "t7"
    assert item["route"] == "plain" and item["state"] == "SUCCESS" and item["final"] is True
    assert item["business_ref"] == "ref 7" and item["trace_id"] == TRACE and item["result_status"] == 201
    assert item["attempt_count"] == 1 and item["reason"] is None and item["call_id_source"] == "caller"
    assert item["id"].isdigit() and item["created_at"].endswith("Z") and item["ended_at"] >= item["created_at"]


def test_each_filter_finds_what_fits_and_nothing_else(house, desk):
    ref, trace = unique("ref "), TRACE[:-4] + "f00d"
    mine = [send(house, "other" if i % 2 else "plain", "t2" if i % 3 else "t3", X_Order=f"{ref}{i % 2}",
                 traceparent=f"00-{trace}-00f067aa0ba902b7-01") for i in range(8)]
    unknown = send(house, "plain", "t2", Step(then="rst"), traceparent=f"00-{trace}-00f067aa0ba902b7-01")
    refused = send(house, "plain", "t2", Step(422), traceparent=f"00-{trace}-00f067aa0ba902b7-01")

    def ids(**query):
        return [item["call_id"] for item in desk.pages("/v1/calls", **query)]

    newest_first = [order.call_id for order in reversed(mine)]
    assert ids(trace_id=trace) == [refused.call_id, unknown.call_id, *newest_first]
    assert ids(trace_id=trace, state="UNKNOWN") == [unknown.call_id]
    assert ids(trace_id=trace, state="FAILED") == [refused.call_id]
    assert ids(trace_id=trace, route="other") == [order.call_id for order in reversed(mine[1::2])]
    assert ids(trace_id=trace, tenant="t3") == [mine[6].call_id, mine[3].call_id, mine[0].call_id]
    assert ids(trace_id=trace, state="RECEIVED") == [] and ids(trace_id=trace, tenant="") == []
    assert ids(key=mine[4].key) == [mine[4].call_id] and ids(call_id=mine[5].call_id) == [mine[5].call_id]
    assert ids(business_ref=f"{ref}0") == [order.call_id for order in reversed(mine[0::2])]
    created = desk.get("/v1/calls", call_id=mine[4].call_id)["items"][0]["created_at"]
    assert ids(trace_id=trace, since=created)[-1] in (mine[4].call_id, mine[3].call_id)
    assert mine[5].call_id not in ids(trace_id=trace, until=created)
    later = (datetime.datetime.fromisoformat(created.replace("Z", "+00:00")) + datetime.timedelta(days=1)).isoformat()
    assert ids(trace_id=trace, since=later) == []
    assert ids(key="no-such-key") == [] and ids(route="no-such-route") == []


def test_pages_stay_good_while_calls_come(house, desk):
    trace = TRACE[:-4] + "beef"
    parent = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    there = [send(house, **parent).call_id for _ in range(23)]
    seen, cursor = [], None
    while True:
        page = desk.get("/v1/calls", trace_id=trace, limit=5, cursor=cursor)
        assert len(page["items"]) <= 5
        seen += [item["call_id"] for item in page["items"]]
        send(house, **parent)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == there[::-1]


@pytest.mark.parametrize("query, parameter", [
    ("state=DONE", "state"), ("state=NOT_RECEIVED", "state"), ("limit=0", "limit"), ("limit=201", "limit"), ("limit=x", "limit"),
    ("cursor=abc", "cursor"), ("cursor=-1", "cursor"), ("since=yesterday", "since"), ("until=2026-02-31T00:00:00Z", "until"),
    ("colour=red", "colour"), ("key=%zz", "key"), ("route=a&route=b", "route"), ("key=" + "k" * 3000, "key"),
])
def test_a_wrong_parameter_is_named_with_what_it_must_be(house, query, parameter):
    answer = house.gateway.admin("GET", f"/v1/calls?{query}")
    assert answer.status == 400 and answer.slug == "request-invalid", answer
    problem = answer.json()
    assert problem["parameter"] == parameter and parameter in problem["detail"]
    assert answer.get("X-Content-Type-Options") == "nosniff"


def test_one_call_shows_its_attempts_its_trace_and_what_was_changed(house, desk):
    trace = TRACE[:-4] + "cafe"
    parent = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    first, order = send(house, **parent), send(house, "plain", "t1", Step(421), Step(201), **parent)
    call = desk.get(f"/v1/calls/{order.call_id}")
    assert call["state"] == "SUCCESS" and call["result"]["status"] == 201 and call["tenant"] == "t1"
    assert [a["outcome"] for a in call["attempts"]] == ["not_executed", "success"]
    assert all(a["evidence"] for a in call["attempts"]) and call["state_sentence"] and call["credential"]
    assert [other["call_id"] for other in call["same_trace"]] == [first.call_id]
    assert call["compensation"] is None and call["audit"] == []
    unknown = send(house, "plain", "t1", Step(then="rst"))
    call = desk.get(f"/v1/calls/{unknown.call_id}")
    assert call["state"] == "UNKNOWN" and call["reason_sentence"] and call["maybe_ran"] is True
    assert call["compensation"]["status"] == "PENDING" and call["compensation"]["history"] == []


def test_a_call_that_nobody_knows_and_one_that_two_tenants_have(house, desk):
    nobody = desk.get(f"/v1/calls/{unique('nobody')}", expect=404)
    assert nobody["state"] == "NOT_RECEIVED" and nobody["id"] is None and nobody["same_trace"] == []
    order = house.order("plain", Step(201), Step(201))
    for tenant in ("t1", "t2"):
        order.send(headers=headers(tenant))
    assert desk.get(f"/v1/calls/{order.call_id}", expect=409)["type"] == "urn:samekey:ambiguous-call-id"
    assert desk.get(f"/v1/calls/{order.call_id}", tenant="t2")["tenant"] == "t2"
    assert house.gateway.admin("GET", "/v1/calls/no%20id").slug == "call-id-invalid"


@pytest.mark.parametrize("shape", SHAPES)
def test_what_callers_write_is_data(house, desk, shape):
    """Keys, references and evidence with markup in them come back as JSON texts, typed as such and not to be guessed at."""
    order = house.order("plain", Step(201, shape.encode()))
    order.key = order.name + shape
    order.send(headers=headers(**{"X-Order": shape}))
    answer = house.gateway.admin("GET", "/v1/calls?" + urllib.parse.urlencode({"key": order.key}))
    assert answer.get("Content-Type") == "application/json" and answer.get("X-Content-Type-Options") == "nosniff"
    item = answer.json()["items"][0]
    assert item["key"] == order.key and item["business_ref"] == shape
    assert desk.get(f"/v1/calls/{order.call_id}")["result"]["body"] == shape
    desk.post(f"/v1/calls/{order.call_id}/erase", {"operator": shape, "evidence": shape})
    audit = desk.get("/v1/audit", call_id=order.call_id)["items"][0]
    assert audit["operator"] == shape and audit["evidence"] == shape
    answer = house.gateway.admin("GET", "/v1/" + urllib.parse.quote(shape, safe=""))
    assert answer.status == 404 and answer.get("Content-Type") == "application/problem+json"


def test_erasing_drops_the_answer_and_keeps_what_is_known(house, desk):
    order = send(house)
    path = f"/v1/calls/{order.call_id}/erase"
    for body, parameter in (({}, "operator"), ({"operator": "mei"}, "evidence"), ({"operator": " ", "evidence": "x"}, "operator"),
                            ({"operator": "mei", "evidence": "x", "force": True}, "force")):
        assert desk.post(path, body, 400)["parameter"] == parameter
    erased = desk.post(path, {"operator": "mei", "evidence": "request 17"})
    assert erased["state"] == "SUCCESS" and erased["result"]["body"] is None
    assert [(a["action"], a["operator"], a["evidence"]) for a in erased["audit"]] == [("erase", "mei", "request 17")]
    assert not house.gateway.rows("select 1 from call where call_id = ? and result_body is not null", order.call_id)
    # Other loops may have the answer in memory for a minute; the store has none.
    assert until(lambda: order.send(headers=headers()).slug == "result-not-kept", 70)
    assert order.effects == 1
    desk.post(path, {"operator": "mei", "evidence": "again"})
    unknown = send(house, "plain", "t1", Step(then="rst"))
    refused = desk.post(f"/v1/calls/{unknown.call_id}/erase", {"operator": "mei", "evidence": "x"}, 409)
    assert refused["type"] == "urn:samekey:call-in-progress" and refused["state"] == "UNKNOWN"


def test_suspects_are_told_with_examples(house, desk):
    first = house.order("block", Step(then="rst"), Step(201))
    first.send(headers=headers(user="swapper"))
    second = first.bytes(call_id=unique("c"), key=unique("k"), headers=headers(user="swapper"))
    assert house.gateway.send(second).slug == "suspected-duplicate"
    reused = first.bytes(body=json.dumps({"order": "another"}), headers=headers(user="swapper"))
    assert house.gateway.send(reused).slug == "call-id-reused"
    mark = desk.get(f"/v1/calls/{first.call_id}")["credential"]
    suspect = next(s for s in desk.get("/v1/suspects")["items"] if s["client"] == mark)
    assert suspect["kind"] == "credential" and suspect["tenant"] == "t1" and suspect["routes"] == ["block"]
    assert suspect["count"] == 2 and suspect["suspected_duplicate"] == 1 and suspect["call_id_reused"] == 1
    newest, oldest = suspect["examples"]
    assert newest["problem"] == "call-id-reused" and oldest["problem"] == "suspected-duplicate"
    assert oldest["other_call_id"] == first.call_id and oldest["other_key"] == first.key


def test_the_overview_counts(house, desk):
    before = desk.get("/v1/overview")
    order = send(house)
    order.send(headers=headers())
    send(house, "plain", "t1", Step(then="rst"))
    now = desk.get("/v1/overview")
    assert now["totals"]["requests"] == before["totals"]["requests"] + 3
    assert now["totals"]["replays"] == before["totals"]["replays"] + 1
    assert now["totals"]["outcomes"]["unknown"] == before["totals"]["outcomes"]["unknown"] + 1
    assert now["tasks"]["PENDING"] == before["tasks"]["PENDING"] + 1
    assert now["at"] > before["at"] and now["started_at"] == before["started_at"] and now["ready"] is True
    assert now["latency"]["request"]["count"] >= 3 and now["latency"]["commit"]["p95_s"] > 0
    assert {route["route"] for route in now["routes"]} == {"plain", "other", "block"}
    assert all(route["breaker"] == "closed" and route["upstreams"] == 1 for route in now["routes"])
    assert now["now"]["calls_stored"] > 0 and now["now"]["bytes_on_disk"] > 0
    assert house.gateway.admin("GET", "/v1/overview?x=1").slug == "request-invalid"


def test_bodies_are_bounded_typed_and_read_strictly(house):
    def post(body, kind="application/json"):
        return house.gateway.admin("POST", "/v1/compensations/resolve", {"Content-Type": kind}, body)

    assert post("{}" + " " * (64 << 10)).slug == "body-too-large"
    assert post("{}", "text/plain").slug == "body-invalid" and post("[]").slug == "body-invalid"
    assert post('{"a": 1, "a": 2}').slug == "body-invalid" and post("{").slug == "body-invalid"
    assert post("[" * 5000).slug == "body-invalid"
