# SPDX-License-Identifier: MIT
"""Case 17: a cache that forgets, is down, or lies. Each step from a fresh state, with a real redis-server; once with the
gateway's own memory in front of it, as it is delivered, and once without, so that every question goes to Redis."""

import threading
import time

import pytest

from support.cases import Stage
from support.poll import until
from support.redis import Redis

NAME = "17-cache-that-forgets-or-lies"
KEY, CALL = b"order:o-171", b"c-171"


@pytest.fixture
def redis(started):
    server = Redis()
    started.append(server)
    return server


@pytest.fixture(params=["64m", 0], ids=["memory", "redis-alone"])
def stage(request, redis, tmp_path, started):
    return make(redis, tmp_path, started, request.param)


def make(redis, folder, started, memory=0, spec="upstream.json", **policy):
    stage = Stage(NAME, folder, spec, tenant="{header.X-Tenant}", cache=redis.url, memory_bytes_max=memory,
                  cache_timeout="250ms", policy=policy)
    started.append(stage)
    until(lambda: b"cache: reachable" in stage.gateway.admin("GET", "/readyz").body)
    return stage


def other(stage, number):
    """The case's call as another order's: c-17N, order:o-17N."""
    n = str(number).encode()
    return stage.file("call.http").replace(b"171", n)


def entry_of(redis):
    """The one entry there is."""
    return until(lambda: redis.names())[0]


def test_a_emptied(stage, redis):
    first = stage.send("call.http")
    entry_of(redis)
    redis("FLUSHALL")
    again = stage.send("call.http")
    assert (first.status, first.replayed) == (201, False)
    assert (again.status, again.body, again.replayed) == (201, first.body, True)
    assert len(stage.stub.posts()) == 1


def test_b_pushed_out(stage, redis):
    redis("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    redis("CONFIG", "SET", "maxmemory", redis.used() + (1 << 20))
    first = stage.send("call.http")
    name = entry_of(redis)
    redis.many([("SET", f"other:{n}", "x" * 1024) for n in range(5000)])
    until(lambda: redis("EXISTS", name) == 0 or redis.many([("SET", f"more:{time.monotonic()}:{n}", "x" * 1024)
                                                            for n in range(500)]) is None)
    again = stage.send("call.http")
    assert (again.status, again.body, again.replayed) == (201, first.body, True)
    assert len(stage.stub.posts()) == 1


def test_c_stopped_for_ten_seconds(stage, redis):
    first = stage.send("call.http")
    entry_of(redis)
    redis.pause()
    began, n = time.monotonic(), 0
    while time.monotonic() < began + 10:
        n += 1
        at = time.monotonic()
        again, new = stage.send("call.http"), stage.gateway.send(other(stage, 200 + n))
        assert (again.status, again.body, again.replayed) == (201, first.body, True)
        assert (new.status, new.replayed) == (201, False)
        assert time.monotonic() - at < 2  # two calls
        threading.Event().wait(0.5)
    redis.resume()
    until(lambda: b"cache: reachable" in stage.gateway.admin("GET", "/readyz").body)
    for number in (171, 201, 200 + n):
        assert stage.gateway.send(other(stage, number)).replayed
    assert stage.gateway.send(other(stage, 200 + n + 1)).status == 201
    assert len(stage.stub.posts()) == n + 2
    assert set(stage.stub.counters()["effects"].values()) == {1}


def test_d_entries_lost_while_the_call_runs(redis, tmp_path, started):
    spec = {"receipts": "honest", "nodes": {"A": {"default": {
        "then": "respond", "status": 201, "effect": True, "delay_ms": 3000, "body": '{"order":"o-171"}'}}}}
    stage = make(redis, tmp_path, started, 0, spec, attempt_timeout="8s", deadline="60s", lease="20s",
                 wait_in_progress="10s", resend_after="8s")
    answers, began = {}, time.monotonic()

    def send(which):
        answers[which] = stage.send("call.http", timeout=30)

    first = threading.Thread(target=send, args=("first",))
    first.start()
    until(lambda: stage.stub.posts() and time.monotonic() > began + 1)
    redis("FLUSHALL")
    until(lambda: time.monotonic() > began + 1.5)
    second = threading.Thread(target=send, args=("second",))
    second.start()
    first.join(30)
    second.join(30)
    assert answers["first"].status == answers["second"].status == 201
    assert answers["first"].body == answers["second"].body
    assert len(stage.stub.posts()) == 1


def test_e_success_for_a_call_that_never_ran(redis, tmp_path, started):
    # What the name of c-172 ends with, learned from a gateway of its own.
    scout = make(redis, tmp_path / "scout", started)
    scout.gateway.send(other(scout, 172))
    suffix = entry_of(redis).rsplit(b":", 1)[1]
    redis("FLUSHALL")
    stage = make(redis, tmp_path / "stage", started)
    stage.send("call.http")
    name = entry_of(redis)
    forged = name.rsplit(b":", 1)[0] + b":" + suffix
    redis("SET", forged, redis.read(name))
    answer = stage.gateway.send(other(stage, 172))
    assert (answer.status, answer.replayed) == (201, False)
    assert len(stage.stub.posts("o-172")) == 1
    assert stage.gateway.metric("samekey_cache_errors_total", layer="redis") >= 1
    until(lambda: [e for e in stage.gateway.log if e.get("event") == "cache_entry_refused"])
    # The lie is gone and the truth is where it was.
    assert stage.gateway.send(other(stage, 172)).replayed
    until(lambda: redis.read(forged) not in (None, redis.read(name)))


def test_f_other_amount_while_hot(stage, redis):
    stage.send("call.http")
    entry_of(redis)
    assert stage.send("call.http").replayed  # hot
    refused = stage.send("call-other-amount.http")
    assert (refused.status, refused.slug, refused.outcome) == (422, "call-id-reused", "rejected")
    # The same key under a callId of its own.
    changed = stage.file("call-other-amount.http").replace(b"c-171", b"c-174")
    refused = stage.gateway.send(changed)
    assert (refused.status, refused.slug) == (422, "key-reused")
    assert len(stage.stub.posts()) == 1
