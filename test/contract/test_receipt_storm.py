# SPDX-License-Identifier: MIT
"""CONTRACT section 4: a storm of askers about running calls is served by few reads of the store, counted and not timed;
and nobody is told NOT_RECEIVED by a read that began before he asked."""

import resource
import threading
import time

import pytest

from support.house import House, Step
from support.poll import until
from support.wire import Wire, request

LOOPS, KEPT_S = 2, 0.25


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("storm"), {
        "slow": {"attempt_timeout": "60s", "deadline": "300s", "lease": "120s", "wait_in_progress": "60s"}}, loops=LOOPS)
    yield built
    assert built.close() == 0


class Storm:
    """`count` connections that ask for one receipt again and again."""

    def __init__(self, gateway, call_id, count, query=""):
        self.states, self.asked, self.lock = set(), 0, threading.Lock()
        self.stop, self.gateway = threading.Event(), gateway
        self.ask = request("GET", f"/.samekey/receipts/{call_id}{query}")
        self.threads = [threading.Thread(target=self.client) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def client(self):
        with Wire(self.gateway.port, 70) as wire:
            while not self.stop.is_set():
                wire.send(self.ask)
                state = wire.answer("GET").json()["state"]
                with self.lock:
                    self.states.add(state)
                    self.asked += 1

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(90)


def reads(gateway):
    return gateway.metric("samekey_cache_misses_total", layer="running")


def shared(gateway):
    return gateway.metric("samekey_cache_hits_total", layer="running")


def running(house):
    gate = threading.Event()
    order = house.order("slow", Step(201, gate=gate))
    wire = order.open()
    until(lambda: order.posts)
    return order, wire, gate


@pytest.mark.threads
def test_a_storm_about_one_call_is_few_reads(house):
    order, wire, gate = running(house)
    before, shared_before, began = reads(house.gateway), shared(house.gateway), time.monotonic()
    storm = Storm(house.gateway, order.call_id, 300)
    until(lambda: storm.asked > 3000, 60)
    storm.end()
    lasted = time.monotonic() - began
    made = reads(house.gateway) - before
    gate.set()
    assert wire.answer().status == 201
    wire.close()
    assert storm.states == {"PROCESSING"} and storm.asked > 3000
    assert 1 <= made <= LOOPS * (lasted / KEPT_S + 2), (made, lasted)
    assert made + shared(house.gateway) - shared_before == storm.asked


@pytest.mark.no_sanitizer
def test_five_thousand_askers_about_fifty_calls(house):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(20000, hard), hard))
    calls = [running(house) for _ in range(50)]
    wires = [Wire(house.gateway.port, 70) for _ in range(5000)]
    try:
        before, began = reads(house.gateway), time.monotonic()
        for _ in range(2):
            for n, one in enumerate(wires):
                one.send(request("GET", f"/.samekey/receipts/{calls[n % 50][0].call_id}"))
            states = {one.answer("GET").json()["state"] for one in wires}
            assert states == {"PROCESSING"}
        lasted, made = time.monotonic() - began, reads(house.gateway) - before
        assert 50 <= made <= 50 * LOOPS * (lasted / KEPT_S + 2), (made, lasted)
    finally:
        for _, wire, gate in calls:
            gate.set()
            wires.append(wire)
        assert {wire.answer().status for _, wire, _ in calls} == {201}
        for one in wires:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_waiting_askers_share_them_too_and_all_hear_the_end(house):
    order, wire, gate = running(house)
    before, began = reads(house.gateway), time.monotonic()
    wires = [Wire(house.gateway.port, 70) for _ in range(200)]
    for one in wires:
        one.send(request("GET", f"/.samekey/receipts/{order.call_id}?wait=60s"))
    until(lambda: reads(house.gateway) > before)
    # Each has asked by the time that one more, behind them on the same loops, was answered.
    until(lambda: reads(house.gateway) + shared(house.gateway) >= before + 200 or order.state != "PROCESSING")
    made, lasted = reads(house.gateway) - before, time.monotonic() - began
    gate.set()
    assert wire.answer().status == 201
    states = [one.answer("GET").json()["state"] for one in wires]
    for one in [*wires, wire]:
        one.close()
    assert set(states) == {"SUCCESS"} and made <= LOOPS * (lasted / KEPT_S + 3), (made, lasted)


def test_nobody_is_told_not_received_by_an_older_read(house):
    """While others ask for its id all the time, a call is claimed: whoever asks after that is told that it is there."""
    for _ in range(25):
        gate = threading.Event()
        order = house.order("slow", Step(201, gate=gate))
        storm = Storm(house.gateway, order.call_id, 8)
        until(lambda storm=storm: storm.asked > 20)
        wire = order.open()
        until(lambda order=order: order.posts)  # its claim is on disk
        told = [order.state for _ in range(5)]
        gate.set()
        assert wire.answer().status == 201
        wire.close()
        storm.end()
        assert set(told) == {"PROCESSING"}
        assert storm.states <= {"NOT_RECEIVED", "PROCESSING", "SUCCESS"}


def test_a_storm_about_no_call_is_read_by_read_no_longer_than_it_must(house):
    from support.poll import unique
    before, shared_before = reads(house.gateway), shared(house.gateway)
    storm = Storm(house.gateway, unique("c"), 200)
    until(lambda: storm.asked > 2000, 60)
    storm.end()
    assert storm.states == {"NOT_RECEIVED"}
    assert reads(house.gateway) - before <= storm.asked
    assert shared(house.gateway) > shared_before  # those who come while one read runs share the next
