# SPDX-License-Identifier: MIT
"""What happens to a call that ended UNKNOWN when nobody repeats it: it is counted, and its receipt is asked when a round is
due. And an answer that its caller takes slowly."""

import time

import pytest

from support.house import House
from support.poll import until
from support.upstream import Step, receipt


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("rounds"), {
        "asked": {"receipt": "http GET /receipts/{call_id}", "round_gap": "1s", "rounds": 5, "receipt_queries": 1,
                  "retries": 0},
        "large": {"result_bytes_max": "64k", "attempt_timeout": "400ms"}})
    yield built
    assert built.close() == 0


def test_an_unknown_call_is_counted_and_settled_by_a_round(house):
    order = house.order("asked", Step(then="rst", effect=True))
    order.receipts(Step(then="rst"))
    assert order.send().slug == "outcome-unknown"
    assert order.state == "UNKNOWN" and order.receipt().json()["next_action"] == "retry_same_call"
    until(lambda: house.gateway.metric("samekey_unknown_calls") == 1, 15)
    order.receipts(receipt("SUCCESS", order.call_id))
    until(lambda: order.state == "SUCCESS", 20)
    assert len(order.posts) == 1 and order.send().replayed
    until(lambda: house.gateway.metric("samekey_unknown_calls") == 0, 15)
    assert house.gateway.tasks(order.call_id)[0][0] != "PENDING"


def test_a_caller_that_reads_slowly_gets_its_large_answer_whole(house):
    size = 8 << 20
    order = house.order("large", Step(200, b"x" * size))
    wire = order.open()
    wire.sock.settimeout(20)
    got = 0
    begin = time.monotonic()
    while got < size:  # some megabytes a second: far slower than the service, far longer than attempt_timeout
        piece = wire.sock.recv(1 << 16)
        assert piece, f"cut after {got} bytes"
        got += len(piece)
        if time.monotonic() - begin < got / (4 << 20):
            time.sleep(0.01)
    wire.close()
    until(lambda: order.state == "SUCCESS", 10)
