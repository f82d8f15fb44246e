# SPDX-License-Identifier: MIT
"""The measurements behind the target table, one function a kind. Each yields or returns plain data; a measurement
whose counts do not add up raises harness.Wrong and does not count."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import socket
import sqlite3
import subprocess
import threading
import time

import harness

SMALL_STORE = 100_000  # receipts in the store that growth is compared with
IDLE_CONNECTIONS = 10_000
SAME_AT_ONCE = 64

# A turn of each repeat: the kind of work, the connections, and the programs that do it directly after each other.
UNIQUE = ("nginx", "gateway", "floor", "lua-redis-always", "node-idempotency")
SPEED = [
    ("unique", 1, ("nginx", "gateway")),
    ("unique", 16, UNIQUE),
    ("unique", 64, ("callee", "haproxy", "lua-redis-everysec", *UNIQUE)),
    ("unique", 256, UNIQUE),
    ("replay", 64, ("gateway",)),
    ("receipt", 64, ("gateway",)),
    ("get", 64, ("nginx", "gateway")),
    ("unique", 256, ("gateway-postgres", "pg-middleware")),
    ("unique", 64, ("restate",)),  # last: it works by itself even when nobody calls
]
# Started when their turn comes: they work by themselves too, even when nobody calls.
LATE = {"restate", "gateway-postgres", "pg-middleware"}
# Started for each repeat anew on empty stores; the plain proxies and the callee stay.
PEERS = {
    "lua-redis-always": lambda work, port, n: harness.start_lua(work, port, "always", n),
    "lua-redis-everysec": lambda work, port, n: harness.start_lua(work, port, "everysec", n),
    "node-idempotency": harness.start_node_idempotency,
    "pg-middleware": harness.start_pg_middleware,
    "restate": harness.start_restate,
}


def speed(options, work, callee, needed, number, say):
    """One repeat of the load generator's runs, those in `needed`: {"unique-64-nginx": result or {"wrong": why}}."""
    results = {}
    wanted = {program for _, _, program in needed}
    with contextlib.ExitStack() as stack:
        running = {"callee": callee}

        def program_of(name):
            if name not in running:
                if name == "nginx":
                    start = harness.start_nginx(work, callee.port)
                elif name == "haproxy":
                    start = harness.start_haproxy(work, callee.port)
                elif name == "floor":
                    start = harness.start_floor(options.build, work, callee.port, number)
                elif name == "gateway":
                    start = harness.start_gateway(options.samekey, work, callee.port, number)
                elif name == "gateway-postgres":
                    start = harness.start_gateway_on_postgres(options.samekey, work, callee.port, number)
                else:
                    start = PEERS[name](work, callee.port, number)
                running[name] = stack.enter_context(start)
            return running[name]

        for name in sorted(wanted - LATE):
            program_of(name)
        for mode, connections, programs in SPEED:
            turn = number % len(programs)
            for name in programs[turn:] + programs[:turn]:
                if (mode, connections, name) not in needed:
                    continue
                run = f"{mode}-{connections}-{name}"
                try:
                    # One call of Restate's takes a while, the first ones longer.
                    slow = name == "restate"
                    results[run] = harness.measured(
                        options.build, callee, program_of(name), mode, connections,
                        max(options.seconds, 2) if slow else options.seconds, warmup=3 if slow else options.warmup)
                    latency = results[run]["latency_us"]
                    say(f"  {run:30} {results[run]['per_s']:9,.0f}/s   p50 {latency['p50']:9,.0f} µs"
                        f"   p99 {latency['p99']:9,.0f} µs"
                        f"   own CPU {results[run]['program_cpu_us_per_request']:7.1f} µs")
                except harness.Wrong as wrong:
                    results[run] = {"wrong": str(wrong)}
                    say(f"  {run:30} DOES NOT COUNT: {wrong}")
    return results


# -- a store that was filled -------------------------------------------------------------------------------------

def bench_fill(options, place, count, seed):
    filled = subprocess.run([str(options.build / "bench_fill"), str(place), str(count), str(seed)],
                            stdout=subprocess.PIPE, text=True)
    if filled.returncode != 0:
        raise harness.Wrong(f"bench_fill ended with {filled.returncode}")
    return json.loads(filled.stdout)


def fill(options, place, count):
    """A store of `count` receipts at `place`; returns its seed and what filling took. A store that is already there,
    with the note of what it holds beside it, is used as it is."""
    note = place.with_suffix(".json")
    if note.exists() and json.loads(note.read_text())["rows"] >= count:
        return json.loads(note.read_text())
    seed = random.getrandbits(62)
    place.parent.mkdir(parents=True, exist_ok=True)
    told = {**bench_fill(options, place, count, seed), "seed": seed}
    note.write_text(json.dumps(told) + "\n")
    return told


def grown_once(options, work, callee, stores, number, nginx):
    """One repeat: start-up, lookups and unique calls on the small and on the full store, in an order that turns. The
    small one is a copy, so that it does not grow from repeat to repeat. Nothing is answered from memory here: the
    gateway's cache of ended receipts is off. Both are at rest: what the repeat before has written has its sketches. The
    files are in the system's page cache, read once before; what the store does where a tenth of its pages is not is
    measured besides, on the full one."""
    result = {}
    place, told = stores["small"]
    copy = pathlib.Path(work) / f"small-{number}.db"
    shutil.copyfile(place, copy)
    os.sync()
    stores = stores | {"small": (copy, told)}
    order = ["small", "full"] if number % 2 == 0 else ["full", "small"]
    for size in order:
        place, told = stores[size]
        bench_fill(options, place, 0, 0)
        read_once(place)
        with harness.start_gateway(options.samekey, work, callee.port, f"{size}-{number}", store=place,
                                   settings="memory_bytes_max = 0") as gateway:
            lookups = harness.measured(options.build, callee, gateway, "receipt", 64, options.seconds,
                                       warmup=options.warmup, set=told["rows"], seed=told["seed"], no_prime=True)
            calls = harness.measured(options.build, callee, gateway, "unique", 256, options.seconds,
                                     warmup=options.warmup)
            result[size] = {"start_s": gateway.ready_s, "receipt": lookups, "unique": calls}
            if size == "full":
                put_out(place, 10, number)
                result["cold"] = harness.measured(options.build, callee, gateway, "receipt", 64, options.seconds,
                                                  set=told["rows"], seed=told["seed"], no_prime=True)
        if size == order[0]:
            result["nginx"] = harness.measured(options.build, callee, nginx, "get", 64, options.seconds,
                                               warmup=options.warmup)
    return result


PIECE_BYTES = 64 * 1024


def read_once(place):
    """Into the system's page cache, as far as that takes it."""
    with open(place, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def put_out(place, percent, seed):
    """So much of the file goes out of the system's page cache, in pieces chosen anew for each seed."""
    pieces = place.stat().st_size // PIECE_BYTES
    file = os.open(place, os.O_RDONLY)
    try:
        for piece in random.Random(seed).sample(range(pieces), pieces * percent // 100):
            os.posix_fadvise(file, piece * PIECE_BYTES, PIECE_BYTES, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def stored_bytes(place, samples=5000):
    """Bytes on disk of a receipt, and the bytes that it stores: its texts and blobs, and its numbers as short as
    SQLite can write them. Indexes, page heads and free space are what the first has and the second has not."""
    db = sqlite3.connect(f"file:{place}?mode=ro", uri=True)
    try:
        rows, = db.execute("SELECT count(*) FROM asked").fetchone()
        last, = db.execute("SELECT max(id) FROM asked").fetchone()
        chosen = random.Random(1).sample(range(1, last + 1), min(samples, last))
        stored = counted = 0
        for id_ in chosen:
            call = db.execute("SELECT * FROM call WHERE id = ?", (id_,)).fetchone()
            if call:
                counted += 1
                stored += sum(map(value_bytes, call))
    finally:
        db.close()
    disk = sum(path.stat().st_size for path in place.parent.glob(place.name + "*") if not path.name.endswith(".lock"))
    return {"rows": rows, "disk": disk / rows, "stored": stored / counted}


def value_bytes(value):
    if value is None or value in (0, 1):
        return 0
    if isinstance(value, int):
        return next(n for n in (1, 2, 3, 4, 6, 8) if -(1 << 8 * n - 1) <= value < 1 << 8 * n - 1)
    return len(value.encode() if isinstance(value, str) else value)


# -- the others --------------------------------------------------------------------------------------------------

def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise harness.Wrong(f"process {pid} tells no VmRSS")


@contextlib.contextmanager
def beside(work, every_s):
    """Calls work() every so often on a thread while the block runs."""
    over = threading.Event()

    def loop():
        while not over.wait(every_s):
            work()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def memory(options, work, callee, number):
    """Resident memory of a gateway that was just started, with many idle connections that each asked once, and
    at its most under unique calls on 256 connections. Its cache of ended receipts, whose size is a setting, is off."""
    with harness.start_gateway(options.samekey, work, callee.port, f"memory-{number}", settings=(
            f"memory_bytes_max = 0\nconnections = {IDLE_CONNECTIONS * 2}\nidle_timeout = 10m")) as gateway:
        pid = gateway.process.pid
        time.sleep(0.5)  # whatever it still does at its start
        idle = resident_bytes(pid)
        most = [idle]
        with beside(lambda: most.append(resident_bytes(pid)), 0.05):
            harness.measured(options.build, callee, gateway, "unique", 256, options.seconds, warmup=options.warmup)
    with harness.start_gateway(options.samekey, work, callee.port, f"idle-{number}", settings=(
            f"memory_bytes_max = 0\nconnections = {IDLE_CONNECTIONS * 2}\nidle_timeout = 10m")) as gateway:
        time.sleep(0.5)
        before = resident_bytes(gateway.process.pid)
        question = b"GET /.samekey/receipts/nobody-sent-this HTTP/1.1\r\nHost: bench\r\n\r\n"
        with contextlib.ExitStack() as stack:
            for _ in range(IDLE_CONNECTIONS):
                peer = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 10))
                peer.sendall(question)
                if not peer.recv(65536).startswith(b"HTTP/1.1 404 "):
                    raise harness.Wrong("a receipt nobody sent was found")
            connection = (resident_bytes(gateway.process.pid) - before) / IDLE_CONNECTIONS
    return {"idle": idle, "busy": max(most), "connection": connection}


ON = """tenant = "{header.X-Tenant}"
log_level = info"""
ON_ROUTE = 'key = "order:{json.order_no}:create"'


def features(options, work, callee, number):
    """Unique calls with a tenant, a key from a template over the body, the fingerprint of JSON, one log line a call
    and metrics read each second; and with none of these: the header's key, a body that is compared as bytes, a
    quiet log, no admin listener."""
    result = {}
    with harness.start_gateway(options.samekey, work, callee.port, f"on-{number}", settings=ON,
                               route=ON_ROUTE) as on, \
            harness.start_gateway(options.samekey, work, callee.port, f"off-{number}", admin=False,
                                  settings="log_level = error") as off:
        for connections in (64, 256):
            kinds = ["on", "off"] if (number + connections // 64) % 2 else ["off", "on"]
            for kind in kinds:
                more = {"header": "X-Tenant: tenant-7"} if kind == "on" else {"content_type": "application/octet-stream"}
                watch = beside(lambda: harness.ask(on.admin, "GET", "/metrics"), 1) if kind == "on" else \
                    contextlib.nullcontext()
                with watch:
                    result[f"{kind}-{connections}"] = harness.measured(
                        options.build, callee, on if kind == "on" else off, "unique", connections, options.seconds,
                        warmup=options.warmup, **more)
        lines = sum(1 for line in open(on.log, "rb") if b'"call' in line or b"call_id" in line)
        if lines == 0:
            raise harness.Wrong("the gateway with all features on wrote no line about a call")
    return result


def same(options, work, number, rounds):
    """One call sent 64 times at once, over and over: how often the callee ran it at most, and how many of the 64
    answers were equal at least. Half of the rounds run a call that takes 50 ms, so that all 64 meet while it runs."""
    most, least = 0, SAME_AT_ONCE
    with harness.start_callee(options.build, work, slow_ms=50) as callee, \
            harness.start_gateway(options.samekey, work, callee.port, f"same-{number}") as gateway:
        for turn in range(rounds):
            call_id = f"{random.getrandbits(128):032x}"
            before = harness.count(callee)
            answers = at_once(gateway.port, "/orders" if turn % 2 else "/slow/order", call_id)
            after = harness.count(callee)
            most = max(most, after["executions"] - before["executions"])
            least = min(least, max(map(answers.count, answers)))
            if answers[0][0] != 201 or after["executions"] == before["executions"]:
                raise harness.Wrong(f"one call sent {SAME_AT_ONCE} times was answered {answers[0]}")
    return {"rounds": rounds, "executions_most": most, "equal_least": least}


def at_once(port, path, call_id):
    """The same request on 64 connections that stand already; status and body of each answer."""
    body = b'{"order_no": "' + call_id.encode() + b'", "amount": "12.50"}'
    request = (f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nX-Call-Id: {call_id}\r\n"
               f"Idempotency-Key: k-{call_id}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(SAME_AT_ONCE)]
        for peer in peers:
            peer.sendall(request)
        answers = []
        for peer in peers:
            reply = http.client.HTTPResponse(peer)
            reply.begin()
            answers.append((reply.status, reply.read()))
    return answers
