# SPDX-License-Identifier: MIT
"""Two gateways, one PostgreSQL, one Redis: what one gateway ended, the other tells from Redis, and where Redis lies or is
gone, from the store."""

import pytest

from support.house import House
from support.poll import unique, until
from support.postgres import Postgres
from support.redis import Redis
from support.upstream import Upstream

ROUTES = {"orders": {"attempt_timeout": "5s", "deadline": "30s", "lease": "10s", "wait_in_progress": "5s"}}


@pytest.fixture(scope="module")
def database():
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="module")
def redis():
    server = Redis()
    yield server
    server.close()


@pytest.fixture
def pair(database, redis, tmp_path, started):
    redis("FLUSHALL")
    upstream, houses = Upstream(), []
    for name in ("a", "b"):
        house = House(tmp_path / name, ROUTES, upstream=upstream, store=database.url(), cache=redis.url,
                      memory_bytes_max=0, cache_timeout="1s", node=f"node-{name}")
        started.append(house)
        until(lambda house=house: b"cache: reachable\n" in house.gateway.admin("GET", "/readyz").body)
        houses.append(house)
    return houses


def hits(house):
    return house.gateway.metric("samekey_cache_hits_total", layer="redis")


def test_one_ends_it_and_the_other_tells_it_from_redis(pair, redis):
    a, b = pair
    order = a.order("orders")
    first = order.send()
    names = until(redis.names)
    again = b.gateway.send(order.bytes())
    assert (again.status, again.body, again.replayed) == (first.status, first.body, True)
    assert hits(b) == 1 and b.gateway.state(order.call_id) == "SUCCESS" and hits(b) == 2
    # A lie, then nothing at all: from the store.
    for lie in (b"x" * 300, b""):
        redis("SET", names[0], lie)
        assert b.gateway.send(order.bytes()).body == first.body
        redis("FLUSHALL")
        assert b.gateway.send(order.bytes()).body == first.body
    assert hits(b) == 2 and len(order.posts) == 1


def test_another_calls_entry_lets_the_call_run(pair, redis):
    a, b = pair
    done, new = a.order("orders"), a.order("orders")
    done.send()
    name = until(redis.names)[0]
    entry = redis.read(name)
    new.send()
    other = next(n for n in until(lambda: len(redis.names()) == 2 and redis.names()) if n != name)
    redis("SET", other, entry)
    assert b.gateway.send(new.bytes()).replayed and len(new.posts) == 1
    assert b.gateway.receipt(new.call_id).json()["key"] == new.key


def test_with_the_database_gone_redis_tells_what_is_done_and_nothing_runs(pair, database):
    a, b = pair
    order, new = a.order("orders"), a.order("orders")
    first = order.send()
    assert b.gateway.send(order.bytes()).replayed
    database.kill()
    try:
        again = b.gateway.send(order.bytes())
        assert (again.status, again.body, again.replayed) == (first.status, first.body, True)
        assert b.gateway.state(order.call_id) == "SUCCESS"
        refused = b.gateway.send(new.bytes(), timeout=60)
        assert (refused.status, refused.slug) == (503, "store-unavailable") and not new.posts
        assert b.gateway.receipt(unique("c"), timeout=60).status == 503
    finally:
        database.start()
    until(lambda: b.gateway.send(new.bytes(), timeout=60).status == 201, 60)
    assert new.effects == 1


def test_a_restored_database_seals_anew(pair, redis):
    a, b = pair
    order = a.order("orders")
    order.send()
    name = until(redis.names)[0]
    b.gateway.stop()
    a.gateway.stop()
    a.gateway.more_flags = ["--restored"]
    a.gateway.start()
    until(lambda: b"cache: reachable\n" in a.gateway.admin("GET", "/readyz").body)
    assert order.state == "SUCCESS" and hits(a) == 0  # the old entry is there, and nobody looks at it
    new = until(lambda: [n for n in redis.names() if n != name])[0]
    assert new.split(b":")[2] != name.split(b":")[2] and new.split(b":")[3] == name.split(b":")[3]
    a.gateway.more_flags = []
    a.gateway.restart()
    b.gateway.start()
    until(lambda: b"cache: reachable\n" in b.gateway.admin("GET", "/readyz").body)
    assert b.gateway.state(order.call_id) == "SUCCESS" and hits(b) == 1  # both have the new one
