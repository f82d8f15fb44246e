# SPDX-License-Identifier: MIT
"""Who may do as they like with the database: somebody locks a table for long, or ends connections. Calls are told within a
bound, and what follows finds the store as it was."""

import concurrent.futures
import subprocess
import time

from support import postgres
from support.poll import until
from support.upstream import Upstream
from test_postgres import database, gateway_on, name_of, pytestmark, send, server  # noqa: F401

BOUND_S = 15  # what runs, what waits behind it, and a busy machine


def timed(ask):
    began = time.monotonic()
    answer = ask()
    return answer, time.monotonic() - began


def test_a_locked_table_refuses_calls_within_a_bound(tmp_path, server, database, started):
    upstream = Upstream()
    started.append(upstream)
    gateway = gateway_on(tmp_path, database, upstream, started)
    assert send(gateway, "/orders/first", "c-first", "k-first").status == 201
    locker = subprocess.Popen([postgres.BIN / "psql", "-X", "-q", database], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        locker.stdin.write(b"BEGIN; LOCK TABLE samekey_store.call IN ACCESS EXCLUSIVE MODE;\n")
        locker.stdin.flush()
        until(lambda: server.value("SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted"
                                   " AND relation = 'samekey_store.call'::regclass", name_of(database)) == "1", 10)
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            calls = [pool.submit(timed, lambda n=n: send(gateway, f"/orders/{n}", f"c-{n}", f"k-{n}", timeout=60))
                     for n in range(12)]
            asks = [pool.submit(timed, lambda n=n: gateway.receipt(f"nobody-{n}", timeout=60)) for n in range(12)]
            for _ in range(10):
                answer, took = timed(lambda: gateway.admin("GET", "/healthz"))
                assert answer.status == 200 and took < 2
                time.sleep(.1)
            for answer, took in [call.result() for call in calls]:
                assert took < BOUND_S and answer.slug == "store-unavailable" and answer.outcome == "not-executed"
            for answer, took in [ask.result() for ask in asks]:
                assert took < BOUND_S and answer.status == 503
        assert int(server.value("SELECT count(*) FROM pg_locks WHERE NOT granted", name_of(database))) < 8, "nobody piles up"
        assert len(upstream.posts()) == 1
    finally:
        locker.stdin.close()
        locker.wait(10)
    until(lambda: gateway.admin("GET", "/readyz").status == 200, 10)
    for n in range(12):
        assert send(gateway, f"/orders/{n}", f"c-{n}", f"k-{n}").status == 201
        assert upstream.effects(f"/orders/{n}") == 1


def test_the_first_call_after_connections_were_ended_runs(tmp_path, server, database, started):
    upstream = Upstream()
    started.append(upstream)
    gateway = gateway_on(tmp_path, database, upstream, started)
    for n in range(8):
        for way in range(4):  # on every lane
            assert send(gateway, f"/orders/{n}-{way}", f"c-{n}-{way}", f"k-{n}-{way}").status == 201
            assert gateway.receipt(f"nobody-{n}-{way}").status == 404
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'samekey'"
                   f" AND datname = '{name_of(database)}'")
