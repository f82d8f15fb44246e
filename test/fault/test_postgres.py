# SPDX-License-Identifier: MIT
"""The PostgreSQL store's bad days, through real gateways: the database stops, crashes, fails over, is cut off in the middle
of a message; gateways are killed, share it, and disagree about the time.

What must hold is judged at the service and from outside: no key takes effect twice, every call comes to an ending, and no
answer contradicts an earlier one."""

import json
import os
import pathlib
import random
import threading
import time

import pytest

from support import postgres
from support.cut import CutProxy
from support.gateway import Gateway, post
from support.house import Step
from support.poll import unique, until
from support.postgres import Pooler, Postgres
from support.upstream import Upstream, receipt
from support.wire import Wire
from test_kill import Client, Service

pytestmark = pytest.mark.skipif(not postgres.BIN, reason="PostgreSQL is not installed (scripts/deps test installs it)")


@pytest.fixture(scope="module")
def server():
    built = Postgres()
    yield built
    built.close()


@pytest.fixture
def database(server):
    """A database of the test's own on the shared server: its URL."""
    server.start() if server.process.poll() is not None else server.wait_ready()
    return server.create_database(unique("db").replace("-", "_"))


def name_of(url):
    return url.split("?")[0].rsplit("/", 1)[1]


ROUTE = {"receipt": "http GET /receipts/{call_id}", "lease": "1500ms", "attempt_timeout": "1s", "deadline": "10s",
         "concurrency": 256}


def gateway_on(folder, url, upstream, started=None, node="node07", prefix=(), env=None, **settings):
    gateway = Gateway(folder, {"orders": {"upstream": [upstream.url], "path": ["/orders/{*}"], **ROUTE, **settings}}, store=url,
                      node=node, prefix=prefix, env=env, log_level="warning")
    if started is not None:
        started.append(gateway)
    return gateway


def send(gateway, path, call_id=None, key=None, body="{}", timeout=15):
    return gateway.send(post(path, call_id or unique("c"), key or unique("k"), body), timeout=timeout)


def ended(gateway, data, seconds=30):
    """The ending of a call that its caller repeats until it has one."""
    def again():
        try:
            answer = gateway.send(data)
        except Exception:
            return None
        return answer if answer.outcome in ("success", "rejected", "failed") else None
    return until(again, seconds, .02)


def in_state(server, url, state):
    return int(server.value(f"SELECT count(*) FROM samekey_store.call WHERE state = {state}", name_of(url)))


# ---- the database goes and comes

def test_a_database_that_stops_refuses_calls_and_one_that_starts_takes_them(tmp_path, server, database, started):
    upstream = Upstream()
    started.append(upstream)
    gateway = gateway_on(tmp_path, database, upstream, started)
    first = post("/orders/1", "c-1", "k-1", "{}")
    assert gateway.send(first).status == 201
    server.stop()
    began = time.monotonic()
    answer = send(gateway, "/orders/2", "c-2", "k-2")
    assert answer.status == 503 and answer.slug == "store-unavailable" and answer.outcome == "not-executed"
    assert time.monotonic() - began < 3, "what is not there is told at once"
    assert gateway.receipt("unheard-of").status == 503
    until(lambda: gateway.admin("GET", "/readyz").status == 503, 10)
    assert not upstream.posts("/orders/2")
    server.start()
    assert ended(gateway, post("/orders/2", "c-2", "k-2", "{}")).status == 201
    until(lambda: gateway.admin("GET", "/readyz").status == 200, 10)
    again = gateway.send(first)
    assert again.status == 201 and again.replayed
    assert upstream.effects("/orders/1") == upstream.effects("/orders/2") == 1


def test_a_gateway_does_not_start_without_its_database(tmp_path, server, database, started):
    upstream = Upstream()
    started.append(upstream)
    gateway = Gateway(tmp_path, {"orders": {"upstream": [upstream.url]}}, store=server.url("no_such_database"), start=False)
    gateway.start(wait=False)
    assert gateway.wait() == 69
    assert any("no_such_database" in line for line in gateway.said())


def test_a_newer_schema_is_left_alone(tmp_path, server, database, started):
    upstream = Upstream()
    started.append(upstream)
    gateway = gateway_on(tmp_path, database, upstream, started)
    gateway.stop()
    server.sql("UPDATE samekey_store.meta SET version = 999", name_of(database))
    gateway.start(wait=False)
    assert gateway.wait() == 78
    assert any("version 999" in line for line in gateway.said())


def test_an_older_schema_is_brought_up_to_date_with_the_receipts_in_it(tmp_path, server, database, started):
    upstream = Upstream()
    started.append(upstream)
    gateway = gateway_on(tmp_path, database, upstream, started)
    calls = [post("/orders/1", f"c-{n}", f"k-{n}", json.dumps({"n": n})) for n in range(20)]
    told = [gateway.send(call) for call in calls]
    assert {answer.status for answer in told} == {201}
    gateway.stop()
    # Version 2, as it was: digests were bytes of any length.
    back = ", ".join(f"ALTER {name} TYPE bytea USING decode(replace({name}::text, '-', ''), 'hex')"
                     for name in ("call_digest", "operation_digest", "slot_digest"))
    server.sql(f"ALTER TABLE samekey_store.call {back}; UPDATE samekey_store.meta SET version = 2", name_of(database))
    assert server.value("SELECT min(length(slot_digest)) FROM samekey_store.call", name_of(database)) == "16"
    gateway.start()
    for call, answer in zip(calls, told):
        again = gateway.send(call)
        assert again.replayed and (again.status, again.body) == (answer.status, answer.body)
    stranger = send(gateway, "/orders/1", key="k-7", body=json.dumps({"n": 7}))
    assert stranger.replayed and stranger.body == told[7].body, "a key is found under another callId too"
    assert upstream.effects("/orders/1") == len(calls)


@pytest.mark.parametrize("granted", ["USAGE ON SCHEMA samekey_store", "USAGE, CREATE ON SCHEMA samekey_store"])
def test_a_user_without_the_rights_is_refused_at_the_start_and_not_after_an_effect(tmp_path, server, database, started, granted):
    upstream = Upstream()
    started.append(upstream)
    gateway_on(tmp_path, database, upstream, started).stop()
    user = unique("guest").replace("-", "_")
    server.sql(f"CREATE ROLE {user} LOGIN; GRANT {granted} TO {user};"
               f" GRANT SELECT ON ALL TABLES IN SCHEMA samekey_store TO {user};", name_of(database))
    if "CREATE" not in granted:
        server.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA samekey_store TO {user}", name_of(database))
    gateway = Gateway(tmp_path / "guest", {"orders": {"upstream": [upstream.url]}}, start=False,
                      store=database.replace("//samekey@", f"//{user}@"))
    started.append(gateway)
    gateway.start(wait=False)
    assert gateway.wait() == 69
    assert any("schema samekey_store" in line for line in gateway.said())


def test_two_gateways_that_start_at_once_make_one_schema(tmp_path, server, database, started):
    upstream = Upstream()
    started.append(upstream)
    gateways = [Gateway(tmp_path / str(n), {"orders": {"upstream": [upstream.url]}}, store=database, start=False) for n in range(3)]
    for gateway in gateways:
        gateway.start(wait=False)
        started.append(gateway)
    for gateway in gateways:
        assert gateway.ready(), gateway.said()
        assert send(gateway, f"/orders/{unique('o')}").status == 201


# ---- one call, cut at every message

@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_at_every_message_of_a_call(tmp_path, server, database, started, when):
    upstream = Upstream()
    proxy = CutProxy(server.port)
    started.extend([proxy, upstream])
    gateway = gateway_on(tmp_path, proxy.url(name_of(database)), upstream, started, lease="700ms", attempt_timeout="400ms",
                         deadline="4s", receipt_timeout="200ms")
    assert send(gateway, "/orders/warm").status == 201
    cuts = []
    for n in range(1, 41):
        call_id, path = unique("c"), f"/orders/{unique('o')}"
        data = post(path, call_id, unique("k"), "{}")
        upstream.answer_receipt(call_id, lambda seen, path=path, call_id=call_id: receipt(
            "SUCCESS" if upstream.effects(path) else "NOT_RECEIVED", call_id))
        proxy.arm(n, when)
        answer = ended(gateway, data)
        cuts.append(proxy.disarm())
        assert answer.outcome == "success", (n, cuts[-1], answer)
        assert upstream.effects(path) == 1, (n, cuts[-1])
        again = gateway.send(data)
        assert (again.status, again.body) == (answer.status, answer.body), (n, cuts[-1])
    hit = [cut for cut in cuts if cut]
    assert len(hit) > 25 and {cut[0] for cut in hit} == {"<", ">"}, cuts
    assert until(lambda: in_state(server, database, 2) == 0, 15)


# ---- through a pooler

def test_through_a_pooler_in_transaction_mode(tmp_path, server, database, started):
    if not postgres.POOLER:
        pytest.skip("pgbouncer is not installed (scripts/deps test installs it)")
    upstream, pooler = Upstream(), Pooler(server, default_pool_size=3)
    started.extend([upstream, pooler])
    gateways = [gateway_on(tmp_path / str(n), pooler.url(name_of(database)), upstream, started, node=f"n{n}") for n in range(2)]
    done = []

    def work(number):
        for n in range(20):
            path, data = f"/orders/{number}-{n}", post(f"/orders/{number}-{n}", f"c-{number}-{n}", f"k-{number}-{n}", "{}")
            one = gateways[n % 2].send(data)
            two = gateways[(n + 1) % 2].send(data)
            done.append((one.status, two.status, two.replayed, upstream.effects(path)))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 160 and set(done) == {(201, 201, True, 1)}


# ---- several gateways

def test_a_call_that_runs_on_one_gateway_is_joined_on_the_other(tmp_path, server, database, started):
    upstream, gate = Upstream(), threading.Event()
    started.append(upstream)
    one = gateway_on(tmp_path / "a", database, upstream, started, node="a", wait_in_progress="5s", attempt_timeout="8s",
                     deadline="40s", lease="9s")
    two = gateway_on(tmp_path / "b", database, upstream, started, node="b", wait_in_progress="5s", attempt_timeout="8s",
                     deadline="40s", lease="9s")
    upstream.script("/orders/1", Step(201, lambda seen: f"answer {seen.nth} {time.monotonic()}".encode(), gate=gate))
    data = post("/orders/1", "c-1", "k-1", "{}")
    first = Wire(one.port, 20)
    first.send(data)
    until(lambda: upstream.posts("/orders/1"))
    same, other = Wire(two.port, 20), Wire(two.port, 20)
    same.send(data)
    other.send(post("/orders/1", "c-2", "k-1", "{}"))
    assert two.state("c-1") == "PROCESSING"
    gate.set()
    answers = [wire.answer() for wire in (first, same, other)]
    assert [a.status for a in answers] == [201, 201, 201]
    assert len({a.body for a in answers}) == 1, "everyone got the very answer of the one run"
    assert answers[2].get("X-Original-Call-Id") == "c-1"
    assert len(upstream.posts("/orders/1")) == 1


def test_what_a_killed_gateway_ran_is_taken_over_when_its_lease_ends(tmp_path, server, database, started):
    upstream = Upstream()
    started.append(upstream)
    one = gateway_on(tmp_path / "a", database, upstream, started, node="a")
    two = gateway_on(tmp_path / "b", database, upstream, started, node="b")
    gate = threading.Event()
    upstream.script("/orders/1", Step(201, b"once", gate=gate))
    upstream.answer_receipt("c-1", lambda seen: receipt("SUCCESS", "c-1"))
    wire = Wire(one.port)
    wire.send(post("/orders/1", "c-1", "k-1", "{}"))
    until(lambda: upstream.posts("/orders/1"))
    one.kill()
    wire.close()
    gate.set()
    assert two.state("c-1") == "PROCESSING" and not upstream.queries("c-1"), "nobody takes what may still run"
    until(lambda: two.state("c-1") == "SUCCESS", 15)
    assert upstream.queries("c-1") and len(upstream.posts("/orders/1")) == 1


def test_a_rolling_restart_loses_nothing(tmp_path, server, database, started):
    service = Service()
    started.append(service.upstream)
    gateways = [gateway_on(tmp_path / str(n), database, service.upstream, started, node=f"n{n}") for n in range(2)]
    stop = threading.Event()
    clients = [Client(service, gateways[n % 2], n, stop) for n in range(8)]
    for client in clients:
        client.start()
    for gateway in gateways:
        time.sleep(.3)
        assert gateway.stop() == 0
        gateway.start()
    stop.set()
    for client in clients:
        client.join(60)
    assert not any(client.failed for client in clients)
    for kind, path, call_id, data, answer in [one for client in clients for one in client.ended]:
        again = gateways[0].send(data)
        assert (again.status, again.body, again.outcome) == (answer.status, answer.body, answer.outcome), (kind, call_id)
        assert service.upstream.effects(path) == (answer.outcome == "success")


# ---- clocks

FAKETIME = next(map(str, pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


@pytest.mark.no_sanitizer  # which wants to be preloaded first
@pytest.mark.skipif(not FAKETIME, reason="faketime is not installed (scripts/deps test installs it)")
@pytest.mark.parametrize("shift", ["+10m", "-10m"])
def test_a_gateway_whose_clock_is_wrong_takes_nothing_over_and_purges_nothing_early(tmp_path, server, database, started, shift):
    upstream, gate = Upstream(), threading.Event()
    started.append(upstream)
    right = gateway_on(tmp_path / "a", database, upstream, started, node="a", attempt_timeout="6s", lease="8s", deadline="30s")
    # Whatever it judges by its own clock is ten minutes off.
    wrong = Gateway(tmp_path / "b", {"orders": {"upstream": [upstream.url], "path": ["/orders/{*}"], **ROUTE,
                                                "result_life": "5m"}}, store=database, node="b", purge_every="1s",
                    env={"LD_PRELOAD": FAKETIME, "FAKETIME": shift, "DONT_FAKE_MONOTONIC": "1"}, log_level="warning")
    started.append(wrong)
    upstream.script("/orders/slow", Step(201, b"slow", gate=gate))
    wire = Wire(right.port, 20)
    wire.send(post("/orders/slow", "c-slow", "k-slow", "{}"))
    until(lambda: upstream.posts("/orders/slow"))
    mine = post("/orders/mine", "c-mine", "k-mine", "{}")
    theirs = post("/orders/theirs", "c-theirs", "k-theirs", "{}")
    assert right.send(mine).status == 201 and wrong.send(theirs).status == 201
    time.sleep(3.5)  # three rounds of leases and of purging
    assert right.state("c-slow") == "PROCESSING", "the lease runs by the database's clock"
    for data in (mine, theirs):
        for gateway in (right, wrong):
            again = gateway.send(data)
            assert again.status == 201 and again.replayed and again.body == b'{"ok":true}'
    assert server.value("SELECT count(*) FROM samekey_store.call WHERE flags & 4 = 0 AND state = 3", name_of(database)) == "0"
    gate.set()
    assert wire.answer().body == b"slow"
    now = int(time.time() * 1000)
    for row in server.sql("SELECT created_ms, result_expires_ms - ended_ms FROM samekey_store.call", name_of(database)):
        assert abs(int(row[0]) - now) < 60000
        assert abs(int(row[1]) - (300000 if int(row[1]) < 400000 else 7 * 86400000)) < 60000, row


# ---- crashes under load

def crashes(tmp_path, server, url, seed, seconds, clients_count=32, kill_gateways=True):
    print(f"seed {seed}")
    draw, service, stop = random.Random(seed), Service(), threading.Event()
    # A request may lie unread in the socket of a busy service, longer than the 60 ms of the other tests.
    gateways = [gateway_on(tmp_path / str(n), url, service.upstream, node=f"n{n}", resend_after="500ms") for n in range(2)]
    clients = [Client(service, gateways[n % 2], n, stop) for n in range(clients_count)]
    for client in clients:
        client.patience_s = seconds + 60  # a call may meet one crash after the other; when they stop, it ends
    try:
        for client in clients:
            client.start()
        end = time.monotonic() + seconds
        kills = restarts = 0
        log = []  # what was killed, from when to when
        while time.monotonic() < end:
            time.sleep(draw.uniform(.2, 1.2))
            began = time.monotonic()
            if draw.random() < .3 or not kill_gateways:
                server.restart("immediate")
                restarts += 1
                log.append((began, time.monotonic(), "PostgreSQL"))
            else:
                gateway = draw.choice(gateways)
                gateway.kill()
                until(lambda: start_again(gateway), 30)
                kills += 1
                log.append((began, time.monotonic(), gateway.top["node"]))
        stop.set()
        for client in clients:
            client.join(90)
        twice = {path: n for path, n in service.upstream.effects_by_path.items() if n > 1}
        assert not twice, "took effect more than once\n" + "\n".join(
            line for path in twice for line in [path, *service.upstream.tale(path), *happened(log, service, path),
                                                *asked(gateways[0], service, path)])
        stuck = [str(client.failed) for client in clients if client.failed or client.is_alive()]
        assert not stuck, (stuck, server.sql(
            "SELECT r.*, c.reason, c.lease_end_ms - samekey_store.now_ms(), c.updated_ms - samekey_store.now_ms(), o.id"
            " FROM samekey_store.receipt r JOIN samekey_store.call c ON c.id = r.id LEFT JOIN samekey_store.open_call o"
            " ON o.id = r.id WHERE NOT r.final", name_of(url)), [gateway.said()[-5:] for gateway in gateways])
        done = [one for client in clients for one in client.ended]
        assert len(done) > seconds * 2
        for kind, path, call_id, data, answer in done:
            assert service.upstream.effects(path) == (1 if answer.outcome == "success" else 0), (kind, path)
        for kind, path, call_id, data, answer in draw.sample(done, min(len(done), 400)):
            again = gateways[draw.randrange(2)].send(data)
            assert (again.status, again.body, again.outcome) == (answer.status, answer.body, answer.outcome), (kind, call_id)
        until(lambda: in_state(server, url, 2) == 0, 20, every=.2)
        print(f"{kills} gateways killed, {restarts} crashes of PostgreSQL, {len(done)} calls,"
              f" {sum(c.sent for c in clients)} requests")
    finally:
        stop.set()
        for gateway in gateways:
            gateway.kill()
        service.upstream.close()


def asked(gateway, service, path):
    """What the gateway has written down about the calls of a path."""
    calls = {post.get("X-Call-Id") for post in service.upstream.posts(path)}
    return [f"{time.time() - time.monotonic():.3f} is 0.000"] + [
        gateway.receipt(call).body.decode() for call in calls]


def happened(log, service, path):
    """What was killed around the effects of a path."""
    times = service.upstream.effect_times[path]
    return [f"{began:.3f} to {over:.3f} {what} was gone" for began, over, what in log
            if began < max(times) + 1 and over > min(times) - 5]


def start_again(gateway):
    """Starts it, however often the database is not there yet."""
    try:
        gateway.start()
        return True
    except AssertionError:
        return False


def seed_of_today():
    return int(os.environ.get("SAMEKEY_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)


def test_postgresql_crashes_under_load(tmp_path, server, database):
    crashes(tmp_path, server, database, seed_of_today(), 8, clients_count=16, kill_gateways=False)


def test_gateways_and_postgresql_crash_under_load(tmp_path, server, database):
    crashes(tmp_path, server, database, seed_of_today(), 30)


@pytest.mark.soak
def test_gateways_and_postgresql_crash_for_five_minutes(tmp_path, server, database):
    crashes(tmp_path, server, database, seed_of_today(), 300)


# ---- failover

def test_a_failover_to_a_synchronous_standby_loses_no_answered_receipt(tmp_path, started):
    primary = Postgres()
    started.append(primary)
    standby = primary.standby()
    started.append(standby)
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    primary.sql("SELECT pg_reload_conf()")
    until(lambda: primary.value("SELECT sync_state FROM pg_stat_replication") == "sync", 10)
    url = (f"postgres://samekey@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
           "?target_session_attrs=read-write")
    service, stop = Service(), threading.Event()
    gateway = gateway_on(tmp_path, url, service.upstream, started)
    started.append(service.upstream)
    clients = [Client(service, gateway, n, stop) for n in range(8)]
    for client in clients:
        client.start()
    until(lambda: sum(len(client.ended) for client in clients) > 40, 30)
    primary.kill()
    before = sum(len(client.ended) for client in clients)
    standby.promote()
    until(lambda: sum(len(client.ended) for client in clients) > before + 40, 40)
    stop.set()
    for client in clients:
        client.join(60)
    assert not any(client.failed for client in clients), [c.failed for c in clients]
    done = [one for client in clients for one in client.ended]
    for kind, path, call_id, data, answer in done:
        again = gateway.send(data)
        assert (again.status, again.body, again.outcome) == (answer.status, answer.body, answer.outcome), (kind, call_id)
        assert service.upstream.effects(path) == (1 if answer.outcome == "success" else 0), (kind, path)


def test_a_cancelled_wait_for_the_standby_is_not_taken_for_a_commit(tmp_path, started):
    """The row would be visible, and lost with its server: nothing may be sent on it."""
    server = Postgres()
    upstream = Upstream()
    started.extend([server, upstream])
    gateway = gateway_on(tmp_path, server.url(), upstream, started, lease="1500ms")
    assert send(gateway, "/orders/before").status == 201
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.sql("SELECT pg_reload_conf()")
    until(lambda: server.value("SHOW synchronous_standby_names") == "nobody")
    wire = Wire(gateway.port, 30)
    wire.send(post("/orders/1", "c-1", "k-1", "{}"))
    waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'samekey'"
    cancel = f"SELECT count(pg_cancel_backend(pid)) FROM ({waits}) w"
    until(lambda: server.value(cancel) != "0" and server.value(
        "SELECT count(*) FROM samekey_store.call WHERE call_id = 'c-1'::bytea") == "1", 20)
    server.value(cancel)
    answer = wire.answer()
    assert answer.status == 503 and answer.outcome in ("not-executed", "unknown"), answer
    assert not upstream.posts("/orders/1")
    server.sql("ALTER SYSTEM RESET synchronous_standby_names")
    server.sql("SELECT pg_reload_conf()")
    upstream.answer_receipt("c-1", lambda seen: receipt("SUCCESS" if upstream.effects("/orders/1") else "NOT_RECEIVED", "c-1"))
    assert ended(gateway, post("/orders/1", "c-1", "k-1", "{}")).outcome == "success"
    assert upstream.effects("/orders/1") == 1


def test_a_claim_whose_commit_took_longer_than_its_lease_is_sent_by_one_gateway_at_most(tmp_path, started):
    """When its row becomes visible its lease is over: another gateway may take it in that very moment."""
    server, upstream = Postgres(), Upstream()
    started.extend([server, upstream])
    one = gateway_on(tmp_path / "a", server.url(), upstream, started, node="a", lease="1000ms")
    two = gateway_on(tmp_path / "b", server.url(), upstream, started, node="b", lease="1000ms")
    for number in range(4):
        path, call_id = f"/orders/{number}", f"c-{number}"
        data = post(path, call_id, f"k-{number}", "{}")
        upstream.answer_receipt(call_id, lambda seen, path=path, call_id=call_id: receipt(
            "SUCCESS" if upstream.effects(path) else "NOT_RECEIVED", call_id))
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        server.sql("SELECT pg_reload_conf()")
        until(lambda: server.value("SHOW synchronous_standby_names") == "nobody")
        wires = [Wire(gateway.port, 40) for gateway in (one, two)]
        for wire in wires:
            wire.send(data)
        time.sleep(1.5 + .1 * number)
        server.sql("ALTER SYSTEM RESET synchronous_standby_names")
        server.sql("SELECT pg_reload_conf()")
        for wire in wires:
            wire.answer()
        answers = {ended(gateway, data).body for gateway in (one, two, one)}
        assert len(answers) == 1 and upstream.effects(path) == 1, (number, answers, upstream.posts(path))


def test_a_database_that_does_not_answer_costs_time_and_no_effect(tmp_path, server, database, started):
    upstream = Upstream()
    started.append(upstream)
    gateway = gateway_on(tmp_path, database, upstream, started)
    assert send(gateway, "/orders/1", "c-1", "k-1").status == 201
    server.pause()
    try:
        wire = Wire(gateway.port, 30)
        wire.send(post("/orders/2", "c-2", "k-2", "{}"))
        time.sleep(1)
        assert not upstream.posts("/orders/2"), "nothing is sent without a claim on disk"
    finally:
        server.resume()
    answer = wire.answer()
    assert answer.outcome in ("success", "not-executed", "pending")
    assert ended(gateway, post("/orders/2", "c-2", "k-2", "{}")).outcome == "success"
    assert upstream.effects("/orders/2") == 1
    assert json.loads(gateway.receipt("c-1").body)["state"] == "SUCCESS"
