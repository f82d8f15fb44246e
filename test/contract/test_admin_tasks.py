# SPDX-License-Identifier: MIT
"""Compensation tasks over the admin API: listed, settled by hand with evidence, one or many, and what is kept of it."""

import json
import threading

import pytest

from support.house import House, Step
from test_admin_lists import Desk


@pytest.fixture
def house(tmp_path, started):
    built = House(tmp_path, {"plain": {"rounds": 4}, "other": {}}, drain="1s")
    started.append(built)
    return built


@pytest.fixture
def desk(house):
    return Desk(house.gateway)


def unknown(house, route="plain"):
    order = house.order(route, Step(then="rst"))
    order.send()
    return order


def task_of(desk, order):
    return desk.get(f"/v1/calls/{order.call_id}")["compensation"]


def test_tasks_are_listed_with_their_calls(house, desk):
    orders = [unknown(house, "other" if i % 2 else "plain") for i in range(5)]
    items = desk.pages("/v1/compensations", limit=2)
    assert [item["call_id"] for item in items] == [order.call_id for order in reversed(orders)]
    item = items[0]
    assert item["status"] == "PENDING" and item["call_state"] == "UNKNOWN" and item["key"] == orders[4].key
    assert item["round"] == 0 and item["rounds"] == 4 and item["due_at"] > item["created_at"] and item["id"].isdigit()
    assert [i["call_id"] for i in desk.pages("/v1/compensations", route="other")] == [orders[3].call_id, orders[1].call_id]
    assert desk.pages("/v1/compensations", status="MANUAL") == []
    assert len(desk.pages("/v1/compensations", status="PENDING")) == 5
    assert desk.pages("/v1/compensations", until=items[-1]["created_at"]) == []
    assert desk.get("/v1/compensations", 400, status="DONE")["parameter"] == "status"
    assert desk.get("/v1/compensations/999999", 404)["type"] == "urn:samekey:no-such-task"
    assert desk.get("/v1/compensations/x1", 404)["type"] == "urn:samekey:no-such-task"


@pytest.mark.parametrize("outcome, status", [("SUCCESS", 200), ("FAILED", 409)])
def test_a_person_settles_a_call_with_evidence(house, desk, outcome, status):
    order = unknown(house)
    task = task_of(desk, order)["id"]
    verdict = {"outcome": outcome, "evidence": "ledger line 17", "operator": "mei"}
    shown = desk.post(f"/v1/compensations/{task}/resolve", verdict)
    assert shown["status"] == "RESOLVED" and shown["call_state"] == outcome and shown["call"]["reason"] == "person"
    assert [(a["action"], a["outcome"], a["operator"], a["evidence"]) for a in shown["audit"]] == \
        [("resolve", outcome, "mei", "ledger line 17")]
    assert order.state == outcome and order.receipt().json()["final"] is True
    # The caller's repeat is answered by what the person said, and nothing is sent.
    again = order.send()
    assert again.status == status and len(order.posts) == 1
    assert (again.outcome, again.slug) == (("success", None) if outcome == "SUCCESS" else ("failed", "call-failed"))
    second = desk.post(f"/v1/compensations/{task}/resolve", {**verdict, "outcome": "SUCCESS"}, 409)
    assert second["type"] == "urn:samekey:already-settled" and second["state"] == outcome
    assert len(desk.get(f"/v1/compensations/{task}")["audit"]) == 1


@pytest.mark.parametrize("change, parameter", [
    ({"outcome": "UNKNOWN"}, "outcome"), ({"outcome": None}, "outcome"), ({"evidence": ""}, "evidence"),
    ({"evidence": " \n"}, "evidence"), ({"evidence": "\u3000\u00a0\u200b"}, "evidence"), ({"operator": None}, "operator"), ({"evidence": "e" * 2049}, "evidence"),
    ({"evidence": ["x"]}, "evidence"), ({"sure": True}, "sure"),
])
def test_a_verdict_without_who_and_why_changes_nothing(house, desk, change, parameter):
    order = unknown(house)
    task = task_of(desk, order)["id"]
    body = {"outcome": "SUCCESS", "evidence": "ledger", "operator": "mei", **change}
    refused = desk.post(f"/v1/compensations/{task}/resolve", {k: v for k, v in body.items() if v is not None}, 400)
    assert refused["parameter"] == parameter and order.state == "UNKNOWN"
    assert desk.get("/v1/audit")["items"] == []


def test_a_round_can_be_asked_for_now(house, desk):
    order = unknown(house)
    before = task_of(desk, order)
    after = desk.post(f"/v1/compensations/{before['id']}/run", {"operator": "mei"})
    assert after["due_at"] is None or after["due_at"] < before["due_at"]
    assert [a["action"] for a in after["audit"]] == ["run"]
    assert desk.post(f"/v1/compensations/{before['id']}/run", {}, 400)["parameter"] == "operator"
    assert desk.post("/v1/compensations/4711/run", {"operator": "mei"}, 404)["type"] == "urn:samekey:no-such-task"


def bulk(**more):
    return {"filter": {"status": "PENDING", "route": "plain"}, "outcome": "FAILED", "evidence": "ledger has none of them",
            "operator": "mei", **more}


def test_many_are_settled_after_a_dry_run_that_named_them(house, desk):
    orders = [unknown(house) for _ in range(60)]
    others = [unknown(house, "other") for _ in range(3)]
    dry = desk.post("/v1/compensations/resolve", bulk())
    assert dry["dry_run"] is True and dry["count"] == 60 and len(dry["items"]) == 50
    assert all(order.state == "UNKNOWN" for order in orders[:3]) and desk.get("/v1/audit")["items"] == []
    # Without the dry run's name nothing happens; nor when the set is another one meanwhile.
    assert desk.post("/v1/compensations/resolve", bulk(dry_run=False), 400)["parameter"] == "set"
    orders.append(unknown(house))
    changed = desk.post("/v1/compensations/resolve", bulk(dry_run=False, set=dry["set"]), 409)
    assert changed["type"] == "urn:samekey:set-changed" and orders[0].state == "UNKNOWN"
    dry = desk.post("/v1/compensations/resolve", bulk())
    done = desk.post("/v1/compensations/resolve", bulk(dry_run=False, set=dry["set"]))
    assert (done["count"], done["resolved"], done["skipped"], done["failed"]) == (61, 61, 0, 0) and done["problems"] == []
    assert {order.state for order in orders} == {"FAILED"} and {order.state for order in others} == {"UNKNOWN"}
    audit = desk.pages("/v1/audit", operator="mei")
    assert len(audit) == 61 and {row["evidence"] for row in audit} == {"ledger has none of them"}
    empty = desk.post("/v1/compensations/resolve", bulk())
    assert empty["count"] == 0 and empty["items"] == []


@pytest.mark.parametrize("change, parameter", [
    ({"filter": {}}, "filter"), ({"filter": None}, "filter"), ({"filter": {"status": "RESOLVED"}}, "status"),
    ({"filter": {"colour": "red"}}, "colour"), ({"filter": {"since": "x"}}, "since"), ({"filter": {"route": 1}}, "route"),
    ({"dry_run": "no"}, "dry_run"), ({"dry_run": False, "set": "abc"}, "set"), ({"evidence": ""}, "evidence"),
])
def test_a_wrong_bulk_is_refused_by_name(house, desk, change, parameter):
    order = unknown(house)
    body = {k: v for k, v in {**bulk(), **change}.items() if v is not None}
    assert desk.post("/v1/compensations/resolve", body, 400)["parameter"] == parameter
    assert order.state == "UNKNOWN"


def test_two_people_at_once_settle_each_task_once(house, desk):
    orders = [unknown(house) for _ in range(40)]
    answers, names = [], {}
    for outcome in ("FAILED", "SUCCESS"):
        names[outcome] = desk.post("/v1/compensations/resolve", bulk(outcome=outcome))["set"]

    def settle(outcome):
        answer = house.gateway.admin("POST", "/v1/compensations/resolve", {"Content-Type": "application/json"},
                                     json.dumps(bulk(outcome=outcome, dry_run=False, set=names[outcome])))
        answers.append((outcome, answer))

    people = [threading.Thread(target=settle, args=(outcome,)) for outcome in names]
    for person in people:
        person.start()
    for person in people:
        person.join(30)
    resolved = {outcome: answer.json().get("resolved", 0) for outcome, answer in answers}
    states = [order.state for order in orders]
    assert states.count("FAILED") == resolved["FAILED"] and states.count("SUCCESS") == resolved["SUCCESS"]
    assert resolved["FAILED"] + resolved["SUCCESS"] == 40
    assert len(desk.pages("/v1/audit")) == 40


def test_a_stop_in_the_middle_of_many_leaves_each_task_whole(house, desk):
    orders = [unknown(house) for _ in range(150)]
    dry = desk.post("/v1/compensations/resolve", bulk())
    answers = []

    def settle():
        try:
            answers.append(house.gateway.admin("POST", "/v1/compensations/resolve", {"Content-Type": "application/json"},
                                               json.dumps(bulk(dry_run=False, set=dry["set"]))))
        except Exception as hung_up:  # the stop may come first
            answers.append(hung_up)

    person = threading.Thread(target=settle)
    person.start()
    assert house.gateway.stop() == 0
    person.join(30)
    assert len(answers) == 1
    settled = house.gateway.rows("select count(*) from audit")[0][0]
    states = [state for state, in house.gateway.rows("select state from call")]
    assert states.count(4) == settled == house.gateway.rows("select count(*) from compensation where status = 2")[0][0]
    house.gateway.start()
    again = desk.post("/v1/compensations/resolve", bulk())
    assert again["count"] == 150 - settled
    assert len(orders) == 150
