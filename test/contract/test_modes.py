# SPDX-License-Identifier: MIT
"""CONTRACT section 5: routes that observe or stand aside, several upstreams, reloading, draining, flags alone."""

import json
import signal
import threading
import time

import pytest

from support.gateway import Gateway
from support.house import House, Step
from support.poll import unique, until
from support.upstream import Upstream, refused_port
from support.wire import Wire, request


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


# ---- observe and off

@pytest.fixture(scope="module")
def house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("modes"), {
        "watch": {"mode": "observe", "key_missing": "refuse"}, "off": {"mode": "off"}, "plain": {}}, drain="1s")
    yield built
    assert built.close() == 0


def test_observe_records_and_never_refuses_or_replays(house):
    order = house.order("watch", Step(201, b"1"), Step(201, b"2"), Step(400, b"3"))
    answers = [order.send(), order.send(), order.send(body='{"other":1}')]
    assert [(a.status, a.body) for a in answers] == [(201, b"1"), (201, b"2"), (400, b"3")]
    assert not any(a.replayed for a in answers) and len(order.posts) == 3
    # Whatever the guard would have refused goes through too.
    for more in ({"key": None}, {"call_id": "a b"}, {"key": "a b"}, {"body": "{"}):
        assert order.send(**more).status == 400 and order.posts[-1].body is not None
    assert len(order.posts) == 7


def test_observe_reports_what_it_would_have_done(house):
    order = house.order("watch", Step(201))
    order.send()
    order.send()
    # The record is made beside the passage, so a moment later.
    until(lambda: order.state == "SUCCESS")
    until(lambda: len(house.gateway.logged(order.call_id)) >= 2)


def test_off_passes_everything(house):
    order = house.order("off", Step(201, b"1"), Step(201, b"2"))
    assert [order.send().body, order.send().body] == [b"1", b"2"]
    assert order.receipt().status == 404


# ---- several upstreams

def several(tmp_path, started, urls, **settings):
    gateway = Gateway(tmp_path, {"many": {"upstream": urls, **settings}}, loops=1)
    started.append(gateway)
    return gateway


def send(gateway, n, path="/many/x"):
    return gateway.send(request("POST", path, {"X-Call-Id": f"c-{n}", "Idempotency-Key": f"k-{n}"}, b"x"))


def test_round_takes_them_in_turn(tmp_path, started):
    nodes = [Upstream(), Upstream(), Upstream()]
    started.extend(nodes)
    gateway = several(tmp_path, started, [n.url for n in nodes])
    for n in range(9):
        assert send(gateway, n).status == 201
    assert [len(n.posts("/many/x")) for n in nodes] == [3, 3, 3]


def test_listed_takes_the_first_that_answers(tmp_path, started):
    refused, held = refused_port()
    nodes = [Upstream(), Upstream()]
    started.extend(nodes)
    gateway = several(tmp_path, started, [f"http://127.0.0.1:{refused}"] + [n.url for n in nodes], upstream_order="listed")
    answers = [send(gateway, n) for n in range(4)]
    assert {a.status for a in answers} == {201}
    assert [len(n.posts("/many/x")) for n in nodes] == [4, 0]
    held.close()


def test_not_executed_tries_the_next_and_unknown_does_not(tmp_path, started):
    nodes = [Upstream(), Upstream()]
    started.extend(nodes)
    for node in nodes:
        node.script("/many/busy", Step(421), Step(201))
        node.script("/many/lost", Step(then="rst", effect=True))
    gateway = several(tmp_path, started, [n.url for n in nodes], upstream_order="listed")
    assert send(gateway, 1, "/many/busy").status in (201,)
    assert sum(len(n.posts("/many/busy")) for n in nodes) >= 2
    assert len(nodes[1].posts("/many/busy")) >= 1
    assert send(gateway, 2, "/many/lost").slug == "outcome-unknown"
    assert sum(len(n.posts("/many/lost")) for n in nodes) == 1


@pytest.mark.parametrize("order", ["round", "listed"])
def test_the_next_one_is_no_retry(tmp_path, started, order):
    """A connection that was refused used up none of the call's attempts upstream: also without retries."""
    refused, held = refused_port()
    alive = Upstream()
    started.append(alive)
    gateway = several(tmp_path, started, [f"http://127.0.0.1:{refused}", alive.url], upstream_order=order, retries=0)
    assert {send(gateway, n).status for n in range(4)} == {201} and len(alive.posts("/many/x")) == 4
    held.close()


# ---- layers

def test_upstream_unavailable_from_a_samekey_below_is_handed_on(house):
    body = json.dumps({"type": "urn:samekey:upstream-unavailable", "title": "t", "status": 503})
    order = house.order("plain", Step(503, body, {"Content-Type": "application/problem+json", "Call-Outcome": "not-executed",
                                                 "Retry-After": "1"}, effect=False), Step(201))
    answer = order.send()
    assert (answer.status, answer.slug, answer.outcome) == (503, "upstream-unavailable", "not-executed")
    assert len(order.posts) == 1
    # Nothing ran; the caller's own repeat may.
    assert order.receipt().json()["final"] is False and order.send().status == 201


# ---- reload and drain

def reloading(tmp_path, started):
    upstream = Upstream()
    gateway = Gateway(tmp_path, {"one": {"upstream": [upstream.url]}}, drain="3s")
    started.extend([upstream, gateway])
    return upstream, gateway


def test_sighup_takes_a_good_configuration(tmp_path, started, gate):
    upstream, gateway = reloading(tmp_path, started)
    upstream.script("/one/slow", Step(201, b"under the old one", gate=gate, delay=0.05))
    assert send(gateway, 1, "/one/x").status == 201
    assert send(gateway, 2, "/two/x").status == 404
    wire = Wire(gateway.port)
    wire.send(request("POST", "/one/slow", {"X-Call-Id": "c-slow", "Idempotency-Key": "k-slow"}, b"x"))
    until(lambda: upstream.posts("/one/slow"))
    gateway.routes = {"one": {"upstream": [upstream.url]}, "two": {"upstream": [upstream.url], "path": ["/two/{*}"]}}
    gateway.write_config()
    gateway.signal(signal.SIGHUP)
    until(lambda: send(gateway, unique("n"), "/two/x").status == 201)
    # What ran goes on; what ended is still known.
    gate.set()
    assert wire.answer().body == b"under the old one"
    assert send(gateway, 1, "/one/x").replayed


def test_sighup_refuses_a_bad_configuration_whole(tmp_path, started):
    upstream, gateway = reloading(tmp_path, started)
    good = gateway.file.read_text(encoding="utf-8")
    for bad in (good.replace("retries = 3", "retries = -1"), good + "\nnonsense = 1\n", good[:-3],
                good.replace("/one/", "/two/").replace("lease = 5s", "lease = 100ms")):
        lines = len(gateway.log) + len(gateway.noise)
        gateway.file.write_text(bad, encoding="utf-8")
        gateway.signal(signal.SIGHUP)
        until(lambda: len(gateway.log) + len(gateway.noise) > lines)
        until(lambda: any(str(gateway.file) in line for line in gateway.said()))
        assert send(gateway, unique("n"), "/one/x").status == 201 and send(gateway, unique("n"), "/two/x").status == 404
    assert gateway.process.poll() is None


def test_sighup_warns_about_a_changed_route_name(tmp_path, started):
    upstream, gateway = reloading(tmp_path, started)
    gateway.routes = {"uno": {"upstream": [upstream.url], "path": ["/one/{*}"]}}
    gateway.write_config()
    gateway.signal(signal.SIGHUP)
    until(lambda: any("uno" in line and ("scope" in line or "new" in line) for line in gateway.said()))
    assert send(gateway, 9, "/one/x").status == 201


def test_sigterm_finishes_what_runs(tmp_path, started, gate):
    upstream = Upstream()
    gateway = Gateway(tmp_path, {"one": {"upstream": [upstream.url], "attempt_timeout": "5s", "deadline": "30s", "lease": "9s"}})
    started.extend([upstream, gateway])
    upstream.script("/one/slow", Step(201, b"finished", gate=gate))
    wire, idle = Wire(gateway.port), Wire(gateway.port)
    wire.send(request("POST", "/one/slow", {"X-Call-Id": "c-1", "Idempotency-Key": "k-1"}, b"x"))
    until(lambda: upstream.posts("/one/slow"))
    gateway.signal(signal.SIGTERM)

    def refused():
        try:
            Wire(gateway.port, 1).close()
            return False
        except OSError:
            return True

    until(refused)
    assert gateway.process.poll() is None
    gate.set()
    answer = wire.answer()
    assert (answer.status, answer.body) == (201, b"finished")
    assert gateway.wait() == 0
    idle.close()
    gateway.start()
    assert send(gateway, 1, "/one/slow").body == b"finished" and len(upstream.posts("/one/slow")) == 1


def test_sigterm_leaves_within_drain(tmp_path, started, gate):
    upstream = Upstream()
    gateway = Gateway(tmp_path, {"one": {"upstream": [upstream.url], "attempt_timeout": "20s", "deadline": "100s", "lease": "60s"}},
                      drain="500ms")
    started.extend([upstream, gateway])
    upstream.script("/one/slow", Step(201, gate=gate))
    wire = Wire(gateway.port)
    wire.send(request("POST", "/one/slow", {"X-Call-Id": "c-1", "Idempotency-Key": "k-1"}, b"x"))
    until(lambda: upstream.posts("/one/slow"))
    began = time.monotonic()
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0 and 0.4 < time.monotonic() - began < 5
    wire.close()
    gate.set()
    gateway.start()
    assert gateway.state("c-1") in ("PROCESSING", "UNKNOWN")


# ---- flags alone

def test_flags_alone_are_enough(tmp_path, started):
    upstream = Upstream()
    gateway = Gateway(tmp_path, flags=["--upstream", upstream.url])
    started.extend([upstream, gateway])
    first = gateway.ask("POST", "/any/path", {"X-Call-Id": "c-1", "Idempotency-Key": "k"}, b"x")
    assert first.status == 201 and first.outcome == "success"
    assert gateway.ask("POST", "/any/path", {"X-Call-Id": "c-1", "Idempotency-Key": "k"}, b"x").replayed
    assert gateway.ask("POST", "/", {}, b"x").status == 201  # key_missing = pass
    assert gateway.receipt("c-1").json()["route"].split()[0] == "default"
    assert gateway.receipt("c-1").json()["proof"] == "none"
