# SPDX-License-Identifier: MIT
"""Two gateways, one PostgreSQL, one Redis, 32 clients; gateways and Redis are killed with SIGKILL, Redis is flushed,
frozen and lied into, PostgreSQL is restarted as after a crash, at random. Then: effects per key never over 1, every call
ends, and no answer contradicts an earlier one."""

import http.server
import json
import random
import threading
import time

import pytest

from support.gateway import Gateway, post
from support.poll import free_port, unique, until
from support.postgres import Postgres
from support.redis import Redis

CLIENTS = 32
ROUTES = {"orders": {
    "receipt": "http GET /receipts/{call_id}", "attempt_timeout": "2s", "connect_timeout": "1s", "deadline": "20s",
    "retries": 2, "resend_after": "3s", "lease": "4s", "wait_in_progress": "2s", "receipt_timeout": "1s",
    "backoff_base": "50ms", "backoff_cap": "200ms"}}


class Service(http.server.ThreadingHTTPServer):
    """Does what it is told, once for each request that it is sent, counts it, and keeps honest receipts."""
    daemon_threads = True
    request_queue_size = 512

    def __init__(self):
        self.port = free_port()
        self.effects, self.done, self.lock, self.draw = {}, set(), threading.Lock(), random.Random(5)
        super().__init__(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """A caller that was killed."""

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *_):
        pass

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        call_id = self.path.rsplit("/", 1)[1]
        with self.server.lock:
            done = call_id in self.server.done
        self.answer(200 if done else 404, {"call_id": call_id, "state": "SUCCESS" if done else "NOT_RECEIVED"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if len(body) < int(self.headers["Content-Length"]):
            self.close_connection = True
            return
        service = self.server
        with service.lock:
            service.done.add(self.headers["X-Call-Id"])
            nth = service.effects[self.path] = service.effects.get(self.path, 0) + 1
            delay = service.draw.choice((0, 0, 0, 0.02, 0.1, 0.4))
        if delay:
            threading.Event().wait(delay)
        self.answer(201, {"path": self.path, "effect": nth})


class Client:
    """Makes calls, sends each until it has ended, and goes back to old ones."""

    def __init__(self, crowd, number):
        self.crowd, self.draw = crowd, random.Random(number)
        self.calls = []  # path, callId, key, what its first answer was
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def gateway(self):
        return self.draw.choice(self.crowd.gateways)

    def run(self):
        try:
            while not self.crowd.stop.is_set():
                what = self.draw.random()
                if what < 0.5 or not self.calls:
                    self.new()
                elif what < 0.7:
                    self.again(self.draw.choice(self.calls[-50:]))
                elif what < 0.85:
                    self.shared(self.draw.choice(self.calls[-50:]))
                else:
                    self.ask(self.draw.choice(self.calls[-50:]))
        except Exception as error:  # told by the test's own thread
            self.crowd.wrong.append(repr(error))

    def new(self):
        name = unique("o")
        call = {"path": f"/orders/{name}", "call_id": unique("c"), "key": unique("k"), "body": None}
        call["body"] = self.until_ended(call, call["call_id"])
        if call["body"] is not None:
            self.calls.append(call)

    def again(self, call):
        body = self.until_ended(call, call["call_id"])
        if body not in (None, call["body"]):
            self.crowd.wrong.append(("another answer", call, body))

    def shared(self, call):
        body = self.until_ended(call, unique("c"))
        if body not in (None, call["body"]):
            self.crowd.wrong.append(("another answer to the same key", call, body))

    def ask(self, call):
        try:
            answer = self.gateway().receipt(call["call_id"], timeout=20)
        except Exception:  # killed meanwhile
            return
        if answer.status == 503 and answer.json()["reason"] == "store-unavailable":
            return
        if answer.json()["state"] != "SUCCESS":
            self.crowd.wrong.append(("a receipt that forgot", call, answer))

    def until_ended(self, call, call_id):
        """The body of its success; None once everybody gives up."""
        while time.monotonic() < self.crowd.give_up:
            try:
                answer = self.gateway().send(post(call["path"], call_id, call["key"], b'{"a":1}'), timeout=30)
            except Exception:  # nobody there, or it went in the middle
                self.crowd.hangups += 1
                threading.Event().wait(self.draw.uniform(0.02, 0.2))
                continue
            if answer.status in (200, 201):  # 200: ended by its receipt, which is then the answer for good
                self.crowd.ended += 1
                return answer.body
            if answer.slug not in ("call-in-progress", "operation-in-progress", "outcome-unknown", "store-unavailable",
                                   "upstream-unavailable", "overloaded"):
                self.crowd.wrong.append(("an answer", call, call_id, answer))
                return None
            threading.Event().wait(self.draw.uniform(0.02, 0.2))
        self.crowd.wrong.append(("never ended", call, call_id))
        return None


class Crowd:
    def __init__(self, gateways, seconds, grace):
        self.gateways, self.stop, self.wrong = gateways, threading.Event(), []
        self.ended = self.hangups = 0
        self.end = time.monotonic() + seconds
        self.give_up = self.end + grace
        self.clients = [Client(self, n) for n in range(CLIENTS)]


def lie(redis, draw):
    """Entries change places, and one is cut."""
    names = redis.names()
    if len(names) < 3:
        return
    one, other, third = draw.sample(names, 3)
    entry = redis.read(one)
    if entry:
        redis("SET", other, entry)
        redis("SET", third, entry[:-1])


def disturb(crowd, redis, database, seed):
    draw, done = random.Random(seed), {}
    while time.monotonic() < crowd.end and not crowd.wrong:
        what = draw.choice(("gateway", "gateway", "redis", "flush", "freeze", "lie", "lie", "database"))
        done[what] = done.get(what, 0) + 1
        if what == "gateway":
            gateway = draw.choice(crowd.gateways)
            gateway.kill()
            gateway.start()
        elif what == "redis":
            redis.kill()
            redis.start()
        elif what == "flush":
            redis("FLUSHALL")
        elif what == "freeze":
            redis.pause()
            threading.Event().wait(draw.uniform(0.05, 1.5))
            redis.resume()
        elif what == "lie":
            lie(redis, draw)
        else:
            database.restart("immediate")
        before = crowd.ended
        until(lambda before=before: crowd.ended > before + 20 or crowd.wrong or time.monotonic() > crowd.end, 60)
    return done


@pytest.mark.parametrize("seconds", [30, pytest.param(300, marks=pytest.mark.soak)])
@pytest.mark.no_sanitizer
def test_shaken(seconds, tmp_path, started):
    database, redis, service = Postgres(), Redis(), Service()
    started += [database, redis, service]
    gateways = []
    for name in ("a", "b"):
        routes = {n: {**r, "upstream": [f"http://127.0.0.1:{service.port}"]} for n, r in ROUTES.items()}
        gateways.append(Gateway(tmp_path / name, routes, store=database.url(), cache=redis.url, node=f"node-{name}",
                                memory_bytes_max=0))
        started.append(gateways[-1])
    crowd = Crowd(gateways, seconds, grace=60)
    try:
        done = disturb(crowd, redis, database, seed=seconds)
    finally:
        crowd.stop.set()
        for client in crowd.clients:
            client.thread.join(120)
    print("disturbed:", done, "ended:", crowd.ended, "hangups:", crowd.hangups)
    assert not crowd.wrong, crowd.wrong[:3]
    calls = [call for client in crowd.clients for call in client.calls]
    assert len(calls) > 50
    assert {path: n for path, n in service.effects.items() if n > 1} == {}
    assert {call["path"] for call in calls} <= set(service.effects)
    for gateway in gateways:
        assert gateway.metric("samekey_cache_errors_total", layer="redis") >= 0
