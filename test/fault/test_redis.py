# SPDX-License-Identifier: MIT
"""Redis in front of the store, on the real server: what it may say, every way in which it lies, and that its going away
costs time and never an effect. No memory cache stands before it here, so that every question reaches it."""

import concurrent.futures
import json
import random
import signal
import socketserver
import subprocess
import threading
import time

import pytest

from support.gateway import BINARY
from support.house import House, Step
from support.poll import free_port, unique, until
from support.redis import Redis
from support.wire import Wire, request

ROUTES = {
    "orders": {"attempt_timeout": "5s", "deadline": "30s", "lease": "10s", "wait_in_progress": "10s"},
    "brief": {"result_life": "2s"},
    "large": {"result_bytes_max": "1m"},
}


def cached_house(folder, url, routes=None, **top):
    return House(folder, routes or ROUTES, **{"cache": url, "memory_bytes_max": 0, "cache_timeout": "1s", **top})


def reachable(gateway, yes=True):
    word = b"cache: reachable" if yes else b"cache: not reachable;"
    until(lambda: word in gateway.admin("GET", "/readyz").body, 20)


def hits(gateway):
    return gateway.metric("samekey_cache_hits_total", layer="redis")


def errors(gateway):
    return gateway.metric("samekey_cache_errors_total", layer="redis")


@pytest.fixture(scope="module")
def redis():
    server = Redis()
    yield server
    server.close()


@pytest.fixture(scope="module")
def house(tmp_path_factory, redis):
    built = cached_house(tmp_path_factory.mktemp("redis"), redis.url)
    reachable(built.gateway)
    yield built
    assert built.close() == 0


@pytest.fixture
def empty(redis):
    redis("FLUSHALL")
    return redis


def entry_of(redis):
    names = until(redis.names)
    assert len(names) == 1
    return names[0]


def done(house, redis, route="orders", *steps):
    """An order that ended, and the name of its entry."""
    order = house.order(route, *steps)
    first = order.send()
    name = entry_of(redis)
    return order, first, name


# ---- what it says when it is well

def test_a_hit_is_the_first_answer_and_asks_no_store(house, empty):
    order, first, _ = done(house, empty, "orders", Step(201, b"\x00\xff{}", {"Content-Type": "a/b", "ETag": '"1"'}))
    before = hits(house.gateway)
    again = order.send()
    assert (again.status, again.body, again.get("ETag"), again.replayed) == (201, first.body, '"1"', True)
    document = order.receipt().json()
    assert (document["state"], document["safe_new_key"], document["key"]) == ("SUCCESS", False, order.key)
    assert hits(house.gateway) == before + 2 and len(order.posts) == 1
    assert house.gateway.metric("samekey_cache_hit_percent", layer="redis") > 0


def test_the_document_is_the_stores(house, empty):
    order, _, _ = done(house, empty)
    before = hits(house.gateway)
    cached = order.receipt()
    assert hits(house.gateway) == before + 1
    empty("FLUSHALL")
    stored = order.receipt()
    assert cached.status == stored.status == 200
    a, b = cached.json(), stored.json()
    assert a.pop("covers_since") <= b.pop("covers_since") and a == b


@pytest.mark.parametrize("steps,kept", [
    ([Step(422, b"no")], True),                          # rejected: final
    ([Step(503, b"", effect=False, then="rst")], False),  # unknown
    ([Step(401, b"who")], False),                        # not executed: may run again
], ids=["rejected", "unknown", "not-executed"])
def test_only_final_endings_are_kept(house, empty, steps, kept):
    order = house.order("orders", *steps)
    order.receipts(*[Step(503)])
    answer = order.send()
    if kept:
        entry_of(empty)
        again = order.send()
        assert (again.status, again.body, again.replayed) == (answer.status, answer.body, True)
    else:
        order.receipt()
        order.receipt()
        assert empty.names() == []


def test_nothing_is_kept_of_a_running_call_or_of_none(house, empty):
    gate = threading.Event()
    order = house.order("orders", Step(201, gate=gate))
    wire = order.open()
    until(lambda: order.posts)
    assert order.state == "PROCESSING"
    assert house.gateway.state(unique("c")) == "NOT_RECEIVED"
    assert empty.names() == []
    gate.set()
    assert wire.answer().status == 201
    wire.close()


def test_safe_new_key_is_the_stores_word(house, empty):
    """A FAILED receipt in Redis does not say whether another call has the key by now."""
    order, _, _ = done(house, empty, "orders", Step(422, b"no"), Step(201))
    assert order.receipt().json()["safe_new_key"] is True
    assert order.send(call_id=unique("c")).status == 201
    assert order.receipt().json()["safe_new_key"] is False


def test_not_received_is_told_by_a_read_of_now(house, empty):
    order = house.order("orders")
    assert order.state == "NOT_RECEIVED"
    order.send()
    assert order.state == "SUCCESS"


def test_an_entry_lives_as_long_as_it_may(house, empty):
    order, _, name = done(house, empty)
    assert 0 < empty("PTTL", name) <= 600_000
    empty("FLUSHALL")
    order, _, name = done(house, empty, "brief")
    assert 0 < empty("PTTL", name) <= 2100
    empty("PERSIST", name)  # somebody takes the end off it
    assert order.send().replayed
    ended = time.monotonic()

    def is_told():
        before = hits(house.gateway)
        order.receipt()
        return hits(house.gateway) > before

    until(lambda: not is_told(), 10, 0.05)
    assert 1 < time.monotonic() - ended < 4 and empty("EXISTS", name) == 1


def test_an_answer_too_long_for_it_is_the_stores(house, empty):
    body = random.Random(1).randbytes(300_000)
    order = house.order("large", Step(200, body, {"Content-Type": "a/b"}))
    assert order.send().body == body
    again = order.send()
    assert again.replayed and again.body == body and empty.names() == []


def test_a_call_shared_by_key_is_found_by_its_own_id(house, empty):
    order, first, _ = done(house, empty)
    second = unique("c")
    shared = order.send(call_id=second)
    assert shared.replayed and shared.get("X-Original-Call-Id") == order.call_id
    until(lambda: len(empty.names()) == 2)
    before = hits(house.gateway)
    again = order.send(call_id=second)
    assert hits(house.gateway) == before + 1
    assert again.get("X-Original-Call-Id") == order.call_id and again.body == first.body


# ---- what is taken back

@pytest.mark.parametrize("memory", ["64m", 0])
def test_an_erased_answer_is_told_by_nobody(empty, tmp_path, started, memory):
    house = cached_house(tmp_path, empty.url, memory_bytes_max=memory, loops=4)
    started.append(house)
    reachable(house.gateway)
    order, first, name = done(house, empty)
    for _ in range(30):  # every loop has it in its memory
        assert order.send().body == first.body
    erased = house.gateway.admin("POST", f"/v1/calls/{order.call_id}/erase", {"Content-Type": "application/json"},
                                 json.dumps({"operator": "mei", "evidence": "asked for"}))
    assert erased.status == 200

    def all_refuse():
        return all(order.send().slug == "result-not-kept" for _ in range(20))

    until(all_refuse)
    until(lambda: empty.read(name) == b"-")  # and nobody may write it again
    assert order.receipt().json()["result"]["body"] is None and len(order.posts) == 1


def test_an_erasure_is_made_up_for_when_redis_is_back(tmp_path, started):
    redis = Redis(tmp_path / "r", appendonly="yes", appendfsync="always")
    started.append(redis)
    house = cached_house(tmp_path / "g", redis.url, cache_timeout="10ms")
    started.append(house)
    reachable(house.gateway)
    order, _, name = done(house, redis)
    redis.kill()
    reachable(house.gateway, False)
    erased = house.gateway.admin("POST", f"/v1/calls/{order.call_id}/erase", {"Content-Type": "application/json"},
                                 json.dumps({"operator": "mei", "evidence": "asked for"}))
    assert erased.status == 200
    redis.start()
    reachable(house.gateway)
    until(lambda: redis.read(name) == b"-")
    assert order.send().slug == "result-not-kept"


def test_a_reversal_is_in_the_document_at_once(empty, tmp_path, started):
    house = cached_house(tmp_path, empty.url, memory_bytes_max="64m", routes={
        "orders": {**ROUTES["orders"], "reversal": "POST /orders/{call_id}/undo", "receipt": "http GET /receipts/{call_id}"}})
    started.append(house)
    reachable(house.gateway)
    order, first, name = done(house, empty)
    assert order.receipt().json()["reversed_by"] is None
    by = house.gateway.cancel(order.call_id).json()["reversed_by"]
    assert by
    for _ in range(20):
        assert order.receipt().json()["reversed_by"] == by
        assert order.send().body == first.body  # the callId keeps its ending
    until(lambda: house.gateway.state(by) == "SUCCESS", 20)
    refused = order.send(call_id=unique("c"))
    assert (refused.status, refused.slug) == (409, "operation-reversed")
    until(lambda: empty.read(name) == b"-")


# ---- every check is made on it

def test_swapped_keys_and_bodies_are_seen(house, empty):
    order, _, _ = done(house, empty)
    for change in ({"key": unique("k")}, {"key": None}, {"body": order.body.replace("10", "11")},
                   {"path": order.path + "x"}):
        refused = order.send(**change)
        assert (refused.status, refused.slug) == (422, "call-id-reused"), change
    assert len(order.posts) == 1


def test_tenants_and_credentials_stay_apart(empty, tmp_path, started):
    house = cached_house(tmp_path, empty.url, tenant="{header.X-Tenant}", credential="{header.X-User}")
    started.append(house)
    reachable(house.gateway)
    order = house.order("orders")
    mine = {"X-Tenant": "T1", "X-User": "u1"}
    assert order.send(headers=mine).status == 201
    entry_of(empty)
    assert order.send(headers=mine).replayed
    stranger = order.send(headers={**mine, "X-User": "u2"})
    assert (stranger.status, stranger.slug) == (409, "credential-mismatch")
    asked = house.gateway.receipt(order.call_id, headers={**mine, "X-User": "u2"})
    assert (asked.status, asked.slug) == (409, "credential-mismatch")
    assert house.gateway.receipt(order.call_id, headers={**mine, "X-Tenant": "T2"}).status == 404
    assert order.send(headers={**mine, "X-Tenant": "T2"}).status == 201 and len(order.posts) == 2


# ---- lies

def lies(entry, other):
    flip = bytearray(entry)
    flip[40] ^= 1
    mac = bytearray(entry)
    mac[0] ^= 1
    older = bytearray(entry)
    older[32] = 0
    return {
        "empty": b"", "garbage": b"\xff" * 200, "text": b"SUCCESS", "one byte": b"\0", "cut": entry[:-1],
        "only a mac": entry[:32], "longer": entry + b"\0", "a changed field": bytes(flip), "another mac": bytes(mac),
        "an older version": bytes(older), "another call's": other, "zeros": bytes(len(entry)),
        "large": b"x" * (8 << 20),
    }


def test_no_lie_is_believed(house, empty):
    other, _, name_of_other = done(house, empty)
    foreign = empty.read(name_of_other)
    empty("FLUSHALL")
    order, first, name = done(house, empty)
    for what, lie in lies(empty.read(name), foreign).items():
        empty("SET", name, lie, timeout=20)
        again = order.send()
        assert (again.status, again.body, again.replayed) == (201, first.body, True), what
        empty("SET", name, lie, timeout=20)
        assert order.state == "SUCCESS", what
        refused = order.send(body=order.body.replace("10", "11"))
        assert refused.slug == "call-id-reused", what
    for kind in (("LPUSH", name, "x"), ("HSET", name, "a", "b"), ("SADD", name, "x")):
        empty("DEL", name)
        empty(*kind)
        assert order.send().replayed
        until(lambda: empty("TYPE", name) == b"string")  # the wrong one went, the true one came
    assert len(order.posts) == 1 and errors(house.gateway) >= 10


def test_a_call_that_never_ran_is_run_whatever_redis_says(house, empty):
    order, _, name = done(house, empty)
    entry, prefix = empty.read(name), name.rsplit(b":", 1)[0]
    new = house.order("orders")
    assert new.state == "NOT_RECEIVED"
    asked = []
    # Every name that the gateway asks for is filled with the other call's entry before it asks again.
    with Monitor(empty) as monitor:
        new.receipt()
        asked = until(lambda: [n for n in monitor.names() if n.startswith(prefix) and n != name])
    empty("SET", asked[0], entry)
    assert new.state == "NOT_RECEIVED"
    empty("SET", asked[0], entry)
    answer = new.send()
    assert (answer.status, answer.replayed) == (201, False) and len(new.posts) == 1


class Monitor:
    """What clients ask of the server while this is open."""

    def __init__(self, redis):
        import socket
        self.sock = socket.create_connection(("127.0.0.1", redis.port), timeout=10)
        self.sock.sendall(b"MONITOR\r\n")
        self.text = b""
        until(lambda: self._more() and b"+OK" in self.text)

    def _more(self):
        self.sock.settimeout(0.05)
        try:
            self.text += self.sock.recv(65536)
        except TimeoutError:
            pass
        return True

    def names(self):
        self._more()
        return [word.strip(b'"') for line in self.text.splitlines() if b"GETRANGE" in line
                for word in line.split() if word.startswith(b'"samekey:')]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()


class Liar(socketserver.ThreadingTCPServer):
    """Speaks as much RESP as a greeting needs and answers every question with `says`."""
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, says):
        self.port = free_port()
        self.says = says
        super().__init__(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2])
            try:
                self.wfile.write(b"+PONG\r\n" if words[0] == b"PING" else self.server.says)
            except OSError:
                return
            if self.server.says == b"":
                return


@pytest.mark.parametrize("says", [
    b":1\r\n", b"*-1\r\n", b"$-1\r\n", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"-LOADING busy\r\n", b"-NOPERM no\r\n",
    b"-READONLY replica\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$5\r\nab", b"$999999999\r\n", b"", b"+\r\n",
    b"-MOVED 1 127.0.0.1:1\r\n",
], ids=lambda says: says[:9].decode().strip() or "nothing")
def test_a_server_that_speaks_nonsense(says, tmp_path, started):
    liar = Liar(says)
    started.append(liar)
    house = cached_house(tmp_path, f"redis://127.0.0.1:{liar.port}", cache_timeout="20ms")
    started.append(house)
    order = house.order("orders")
    assert order.send().status == 201
    for _ in range(5):
        assert order.send().replayed and order.state == "SUCCESS"
    assert len(order.posts) == 1


# ---- its life and ours

def test_it_is_shared_by_the_starts_of_one_store(empty, tmp_path, started):
    house = cached_house(tmp_path, empty.url)
    started.append(house)
    reachable(house.gateway)
    order, first, name = done(house, empty)
    house.gateway.restart()
    reachable(house.gateway)
    again = order.send()
    assert (again.body, again.replayed) == (first.body, True) and hits(house.gateway) == 1
    # Another store on the same Redis knows nothing of it.
    other = cached_house(tmp_path / "other", empty.url, upstream=None)
    started.append(other)
    reachable(other.gateway)
    assert other.gateway.state(order.call_id) == "NOT_RECEIVED"


def test_a_restore_leaves_it_behind(empty, tmp_path, started):
    """An entry from before a restore must not tell what the restored store has forgotten."""
    house = cached_house(tmp_path, empty.url)
    started.append(house)
    reachable(house.gateway)
    house.gateway.stop()
    backup = house.gateway.store.read_bytes()
    house.gateway.start()
    reachable(house.gateway)
    order, _, name = done(house, empty)
    house.gateway.stop()
    house.gateway.store.write_bytes(backup)
    house.gateway.more_flags = ["--restored"]
    house.gateway.start()
    reachable(house.gateway)
    assert order.state == "NOT_RECEIVED" and hits(house.gateway) == 0
    assert empty("EXISTS", name) == 1


def test_it_need_not_be_there_at_the_start(tmp_path, started):
    redis = Redis(start=False)
    started.append(redis)
    house = cached_house(tmp_path, redis.url, cache_timeout="10ms")
    started.append(house)
    reachable(house.gateway, False)
    assert house.gateway.admin("GET", "/readyz").status == 200
    said = until(lambda: [e for e in house.gateway.log if e.get("event") == "cache_unavailable"])
    assert len(said) == 1 and "refused" in said[0]["why"]
    order, before = house.order("orders"), errors(house.gateway)
    assert order.send().status == 201 and order.send().replayed
    assert errors(house.gateway) == before + 2  # questions that it could not be asked
    redis.start()
    reachable(house.gateway)
    until(lambda: [e for e in house.gateway.log if e.get("event") == "cache_ready"])
    assert order.send().replayed
    entry_of(redis)
    house.gateway.stop()


@pytest.mark.parametrize("options,url", [
    ({"requirepass": "s3cret"}, "redis://:s3cret@127.0.0.1:{port}/3"),
    ({"requirepass": "s3cret"}, "redis://default:s3%63ret@localhost:{port}"),
    ({"requirepass": "s3cret"}, "unix://:s3cret@{socket}?db=2"),
    ({}, "unix:{socket}"),
], ids=["password-db", "user-name", "unix-password-db", "unix"])
def test_where_it_may_be(options, url, tmp_path, started):
    redis = Redis(tmp_path / "r", **options)
    started.append(redis)
    url = url.format(port=redis.port, socket=redis.socket)
    house = cached_house(tmp_path / "g", url)
    started.append(house)
    reachable(house.gateway)
    order = house.order("orders")
    order.send()
    db = 3 if "/3" in url else 2 if "db=2" in url else 0
    until(lambda: redis.names(db=db))
    assert order.send().replayed and hits(house.gateway) == 1
    assert not any("s3cret" in line for line in house.gateway.said())


def test_a_wrong_password_is_told_and_costs_nothing(tmp_path, started):
    redis = Redis(tmp_path / "r", requirepass="right")
    started.append(redis)
    house = cached_house(tmp_path / "g", f"redis://:not-this-one@127.0.0.1:{redis.port}")
    started.append(house)
    said = until(lambda: [e for e in house.gateway.log if e.get("event") == "cache_unavailable"])
    assert "WRONGPASS" in said[0]["why"]
    order = house.order("orders")
    assert order.send().status == 201 and order.send().replayed
    assert not any("not-this-one" in line for line in house.gateway.said())


def test_no_password_is_printed(tmp_path, started):
    redis = Redis(tmp_path / "r", requirepass="hidden1")
    started.append(redis)
    house = cached_house(tmp_path / "g", redis.url)
    started.append(house)
    gateway = house.gateway
    reachable(gateway)
    printed = subprocess.run([BINARY, "gateway", "--print-config", "-c", gateway.file], capture_output=True, text=True,
                             timeout=30, check=True).stdout
    assert f"redis://:***@127.0.0.1:{redis.port}" in printed
    gateway.top["cache"] = redis.url.replace("hidden1", "hidden2")
    gateway.write_config()
    gateway.signal(signal.SIGHUP)
    said = until(lambda: [e for e in gateway.log if e.get("event") == "reload_warning"])
    assert "cache stays" in said[0]["detail"] and said[0]["detail"].count("***") == 2
    assert "hidden" not in printed + "".join(gateway.said())


# ---- its going away, under load

class Load:
    """Clients that make calls, repeat them, and hold every answer against the first of its call."""

    def __init__(self, house, clients=6):
        self.house, self.stop, self.wrong, self.slowest = house, threading.Event(), [], 0.0
        self.orders = []
        self.pool = concurrent.futures.ThreadPoolExecutor(clients)
        self.jobs = [self.pool.submit(self.client, n) for n in range(clients)]

    def client(self, n):
        draw, mine = random.Random(n), []
        while not self.stop.is_set():
            if not mine or draw.random() < 0.3:
                body = json.dumps({"n": unique("b")}).encode()
                order = self.house.order("orders", Step(201, body))
                order.answer = body
                mine.append(order)
                self.orders.append(order)
            else:
                order = draw.choice(mine[-20:])
            at = time.monotonic()
            if draw.random() < 0.3:
                document = order.receipt().json()
                if document["state"] not in (("SUCCESS",) if getattr(order, "sent", 0) else ("NOT_RECEIVED",)):
                    self.wrong.append((order.call_id, document["state"]))
            else:
                answer = order.send()
                if (answer.status, answer.body) != (201, order.answer):
                    self.wrong.append((order.call_id, answer))
                order.sent = True
            self.slowest = max(self.slowest, time.monotonic() - at)

    def end(self):
        self.stop.set()
        for job in self.jobs:
            job.result(60)
        self.pool.shutdown()
        assert not self.wrong, self.wrong[:3]
        twice = [(o.call_id, o.effects) for o in self.orders if o.effects != (1 if getattr(o, "sent", 0) else 0)]
        assert not twice, twice[:3]
        return len(self.orders)


def grown(load, by=15):
    """Waits until so many more calls were made."""
    begun = len(load.orders)
    until(lambda: len(load.orders) >= begun + by or load.wrong, 30)


@pytest.fixture
def shaken(tmp_path, started):
    redis = Redis(tmp_path / "r")
    started.append(redis)
    house = cached_house(tmp_path / "g", redis.url, cache_timeout="10ms")
    started.append(house)
    reachable(house.gateway)
    return redis, house, Load(house)


@pytest.mark.threads
def test_flushed_all_the_time(shaken):
    redis, house, load = shaken
    for _ in range(15):
        grown(load, 3)
        redis("FLUSHALL")
    assert load.end() > 30


def test_evicting_all_the_time(shaken):
    redis, house, load = shaken
    redis("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    redis("CONFIG", "SET", "maxmemory", redis.used() + 4096)
    grown(load, 60)
    load.end()


def test_full_and_refusing_writes(shaken):
    redis, house, load = shaken
    redis("CONFIG", "SET", "maxmemory-policy", "noeviction")
    redis("CONFIG", "SET", "maxmemory", 1 << 20)
    grown(load, 60)
    load.end()
    until(lambda: errors(house.gateway) > 0)
    reachable(house.gateway)


@pytest.mark.threads
def test_stopped_and_woken(shaken):
    redis, house, load = shaken
    for _ in range(3):
        redis.pause()
        grown(load)
        reachable(house.gateway, False)
        redis.resume()
        reachable(house.gateway)
        grown(load)
    load.end()
    assert load.slowest < 3  # a second of silence ends a link; nobody waits for that


def test_asleep_for_a_while(shaken):
    redis, house, load = shaken
    for seconds in ("0.05", "0.3", "2"):
        redis("DEBUG", "SLEEP", seconds, timeout=20)
        grown(load)
    load.end()
    assert load.slowest < 3


@pytest.mark.threads
def test_killed_and_started_again(shaken):
    redis, house, load = shaken
    for _ in range(4):
        grown(load)
        redis.kill()
        grown(load)
        redis.start()
        reachable(house.gateway)
    load.end()
    said = [e["event"] for e in house.gateway.log if e.get("event") in ("cache_ready", "cache_unavailable")]
    assert said[:3] == ["cache_ready", "cache_unavailable", "cache_ready"]


def test_a_gateway_stops_while_redis_does_not_answer(tmp_path, started):
    redis = Redis(tmp_path / "r")
    started.append(redis)
    house = cached_house(tmp_path / "g", redis.url)
    started.append(house)
    reachable(house.gateway)
    order, _, _ = done(house, redis)
    redis.pause()
    wires = [Wire(port) for port in (house.gateway.port, house.gateway.admin_port) for _ in range(4)]
    for wire in wires:
        wire.send(request("GET", f"/.samekey/receipts/{order.call_id}", host="127.0.0.1"))
    assert house.gateway.stop() == 0
    for wire in wires:
        wire.close()
