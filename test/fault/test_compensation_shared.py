# SPDX-License-Identifier: MIT
"""Two gateways on one PostgreSQL: a round is one gateway's, and an operation has one reversal, whoever asks where."""

import concurrent.futures

import pytest

from support.gateway import Gateway, post
from support.orders import Orders
from support.poll import unique, until
from support.postgres import Postgres

ROUTE = {"path": ["/orders"], "receipt": "http GET /receipts/{call_id}", "retries": 0, "receipt_queries": 1,
         "attempt_timeout": "1s", "rounds": 3, "round_gap": "100ms", "round_gap_max": "400ms",
         "reversal": "POST /orders/{json.order_no}/cancel"}


@pytest.fixture(scope="module")
def database():
    server = Postgres()
    yield server
    server.close()


@pytest.fixture
def pair(database, tmp_path):
    name = unique("db").replace("-", "_")
    database.create_database(name)
    orders = Orders(tmp_path / "orders.db")
    gateways = [Gateway(tmp_path / node, {"orders": {**ROUTE, "upstream": [orders.url]}}, store=database.url(name),
                        node=f"node-{node}") for node in ("a", "b")]
    yield orders, gateways
    for gateway in gateways:
        assert gateway.stop() == 0
    orders.stop()


def order(gateway, call_id, number, fault=None):
    return gateway.send(post("/orders", call_id, f"k-{number}", f'{{"order_no":"{number}","amount":"1"}}',
                             headers={"X-Orders-Fault": fault} if fault else {}))


def reversal(gateway, call_id):
    return gateway.receipt(gateway.receipt(call_id).json()["reversed_by"]).json()


def test_eight_who_cancel_at_two_gateways_make_one_reversal(pair):
    orders, gateways = pair
    for number in (unique("n"), unique("n"), unique("n")):
        call_id = unique("c")
        assert order(gateways[0], call_id, number).status == 201
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: gateways[i % 2].cancel(call_id), range(16)))
        assert {a.status for a in answers} == {200}, [a.body for a in answers]
        assert len({a.json()["reversed_by"] for a in answers}) == 1
        until(lambda: reversal(gateways[1], call_id)["state"] == "SUCCESS", 30)
        assert orders.counts(number) == (1, 1, 1)
        assert order(gateways[1], unique("c"), number).slug == "operation-reversed"


def test_a_round_is_one_gateways(pair):
    orders, gateways = pair
    orders.switch(receipts="down")
    calls = [(unique("c"), unique("n")) for _ in range(6)]
    for call_id, number in calls:
        order(gateways[0], call_id, number, "drop-after-effect")
    asked = orders.requests("GET /receipts/{x}")
    assert asked == len(calls)  # once each, by the call itself
    until(lambda: all(g.metric("samekey_compensations_open", status="MANUAL") == len(calls) for g in gateways), 60)
    assert orders.requests("GET /receipts/{x}") == asked + 3 * len(calls)
    for call_id, number in calls:
        assert gateways[1].state(call_id) == "UNKNOWN" and orders.counts(number) == (1, 0, 1)
    orders.switch(receipts="up")
    assert order(gateways[1], calls[0][0], calls[0][1]).status == 201
