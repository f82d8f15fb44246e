# SPDX-License-Identifier: MIT
"""kill -9 of the gateway at random moments, under load from clients that retry until they have an ending.

What must hold, judged at the service and from outside: no key takes effect twice; every answered success is still
answered the same; no call is left PROCESSING past its lease; every call comes to an ending."""

import os
import random
import threading
import time

import pytest

from support.gateway import Gateway, post
from support.house import Step
from support.poll import unique, until
from support.upstream import Upstream, receipt
from support.wire import Wire

CLIENTS = 16
LEASE_S = 2.0


class Service:
    """Behaves as the path says: done, done but lost, lost before, slow, refused for good, or busy the first time."""

    def __init__(self):
        self.upstream = Upstream()
        self.kinds = {
            "plain": [Step(201, lambda seen: seen.path)],
            "lost": [Step(then="rst", effect=True), Step(201)],
            "never": [Step(then="fin"), Step(201, lambda seen: seen.path)],
            "slow": [Step(201, lambda seen: seen.path, delay=0.05)],
            "busy": [Step(503), Step(201, lambda seen: seen.path)],
            "no": [Step(422, b"no")],
        }

    def order(self, number):
        kind = list(self.kinds)[number % len(self.kinds)]
        path = f"/orders/{kind}/{unique('o')}"
        self.upstream.script(path, *self.kinds[kind])
        return kind, path


class Client(threading.Thread):
    """Sends calls one after the other, each again and again under the same names until it has ended."""

    def __init__(self, service, gateway, number, stop):
        super().__init__(daemon=True)
        self.service, self.gateway, self.number, self.stop_now = service, gateway, number, stop
        self.ended, self.failed, self.sent = [], None, 0
        self.patience_s = 60

    def run(self):
        try:
            count = self.number
            while not self.stop_now.is_set():
                self.one(*self.service.order(count))
                count += 1
        except Exception as error:  # told by the test
            self.failed = error

    def one(self, kind, path):
        call_id, key = unique("c"), unique("k")
        data = post(path, call_id, key, '{"path":"%s"}' % path)
        if kind == "no":  # an honest service has a receipt of what it refused, too
            self.service.upstream.answer_receipt(call_id, lambda seen: receipt(
                "FAILED" if self.service.upstream.posts(path) else "NOT_RECEIVED", call_id, final=True))
        end = time.monotonic() + self.patience_s
        while True:
            if time.monotonic() > end:
                raise AssertionError(f"{kind} {call_id} has no ending after {self.patience_s} s")
            self.sent += 1
            try:
                with Wire(self.gateway.port, timeout=20) as wire:
                    wire.send(data)
                    answer = wire.answer()
            except Exception:  # it was killed, or is not there yet
                time.sleep(0.02)
                continue
            if answer.outcome in ("success", "rejected", "failed"):
                self.ended.append((kind, path, call_id, data, answer))
                return
            time.sleep(0.02)


def kills(count, tmp_path, seed):
    print(f"seed {seed}")
    draw = random.Random(seed)
    service = Service()
    gateway = Gateway(tmp_path, {"orders": {
        "path": ["/orders/{*}"], "upstream": [service.upstream.url], "receipt": "http GET /receipts/{call_id}",
        "lease": f"{int(LEASE_S * 1000)}ms", "attempt_timeout": "1s", "deadline": "10s", "key_missing": "refuse",
        "resend_after": "200ms",  # a request may lie unread in the socket of a busy service
        "concurrency": 256}}, log_level="warning")
    stop = threading.Event()
    clients = [Client(service, gateway, n, stop) for n in range(CLIENTS)]
    try:
        for client in clients:
            client.start()
        for _ in range(count):
            time.sleep(draw.uniform(0.01, 0.35))
            gateway.restart()
        time.sleep(0.2)
        stop.set()
        for client in clients:
            client.join(90)
        twice = {path: n for path, n in service.upstream.effects_by_path.items() if n > 1}
        assert not twice, "took effect more than once\n" + "\n".join(
            line for path in twice for line in [path, *service.upstream.tale(path)])
        for client in clients:
            assert not client.is_alive() and client.failed is None, client.failed
        ended = [one for client in clients for one in client.ended]
        assert len(ended) >= count
        # Every answered success still is that success, also after one more kill.
        gateway.restart()
        for kind, path, call_id, data, answer in ended:
            assert service.upstream.effects(path) == (1 if answer.outcome == "success" else 0), (kind, path)
            again = gateway.send(data)
            assert (again.status, again.body, again.outcome) == (answer.status, answer.body, answer.outcome), (kind, call_id)
            assert again.replayed or again.slug == "call-failed"
        # Nobody is left behind: not in the store, not in a receipt.
        until(lambda: gateway.rows("select call_id from call where state = 2") == [], LEASE_S + 10, every=0.2)
        print(f"{count} kills, {len(ended)} calls, {sum(c.sent for c in clients)} requests,"
              f" {len(service.upstream.posts())} at the service")
    finally:
        stop.set()
        gateway.kill()
        service.upstream.close()


def test_10_kills_under_load(tmp_path):
    kills(10, tmp_path, int(os.environ.get("SAMEKEY_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31))


@pytest.mark.soak
def test_200_kills_under_load(tmp_path):
    kills(200, tmp_path, int(os.environ.get("SAMEKEY_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31))


@pytest.mark.parametrize("moment", ["before the claim", "while it runs", "after the answer"])
def test_killed_at_the_three_moments_that_matter(tmp_path, started, moment):
    upstream = Upstream()
    gateway = Gateway(tmp_path, {"orders": {"upstream": [upstream.url], "receipt": "http GET /receipts/{call_id}",
                                            "lease": "600ms"}})
    started.extend([upstream, gateway])
    path, gate = "/orders/1", threading.Event()
    upstream.script(path, Step(201, b"once", gate=gate))
    data = post(path, "c-1", "k-1", "{}")
    wire = Wire(gateway.port)
    if moment == "before the claim":
        wire.send(data[:-1])
    else:
        wire.send(data)
        until(lambda: upstream.posts(path))
    if moment == "after the answer":
        gate.set()
        assert wire.answer().body == b"once"
    gateway.kill()
    gate.set()
    wire.close()
    gateway.start()
    if moment == "before the claim":
        assert gateway.receipt("c-1").status == 404 and not upstream.posts(path)
        assert gateway.send(data).body == b"once"
    elif moment == "while it runs":
        until(lambda: gateway.state("c-1") == "SUCCESS", 10)  # the lease ends, the receipt is asked once
        answer = gateway.send(data)
        assert answer.outcome == "success" and gateway.send(data).body == answer.body
    else:
        again = gateway.send(data)
        assert again.replayed and again.body == b"once"
    assert len(upstream.posts(path)) == 1 == upstream.effects(path)


def test_a_lease_that_ran_out_is_asked_about_once_and_never_sent_again_by_us(tmp_path, started):
    upstream = Upstream()
    gateway = Gateway(tmp_path, {"orders": {"upstream": [upstream.url], "receipt": "http GET /receipts/{call_id}",
                                            "lease": "600ms"}})
    started.extend([upstream, gateway])
    upstream.script("/orders/1", Step(then="hang"), Step(201, b"by its caller"))
    wire = Wire(gateway.port)
    wire.send(post("/orders/1", "c-1", "k-1", "{}"))
    until(lambda: upstream.posts("/orders/1"))
    gateway.kill()
    wire.close()
    gateway.start()
    document = until(lambda: (d := gateway.receipt("c-1").json())["state"] == "UNKNOWN" and upstream.queries("c-1") and d, 10)
    assert document["next_action"] == "retry_same_call" and document["safe_new_key"] is False
    assert document["reason"] == "lease_expired"
    time.sleep(1.0)  # long enough for whatever would have been sent
    assert len(upstream.posts("/orders/1")) == 1 and len(upstream.queries("c-1")) == 1
    answer = gateway.send(post("/orders/1", "c-1", "k-1", "{}"))
    assert (answer.status, answer.body) == (201, b"by its caller")
    assert upstream.effects("/orders/1") == 1 and gateway.tasks("c-1")
