# SPDX-License-Identifier: MIT
"""Who may ask the admin listener what: tokens and their roles, sessions, forged requests, and wrong tokens."""

import json
import threading
import time

import pytest

from support.gateway import Gateway
from support.house import House, Step
from support.poll import free_port, until
from support.wire import Wire, ask, request

OPERATOR, READER = "operator-token-for-tests", "reader-token-for-tests"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("access")
    (folder / "operator").write_text(OPERATOR + "\n", encoding="ascii")
    (folder / "reader").write_text(READER + "\n", encoding="ascii")
    built = House(folder, {"plain": {}}, drain="1s", admin_token_file=str(folder / "operator"),
                  admin_read_token_file=str(folder / "reader"))
    yield built
    assert built.close() == 0


@pytest.fixture(scope="module")
def open_house(tmp_path_factory):
    built = House(tmp_path_factory.mktemp("open"), {"plain": {}}, drain="1s")
    yield built
    assert built.close() == 0


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def post(house, path, body, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
    return house.gateway.admin("POST", path, {"Content-Type": "application/json", **names}, json.dumps(body))


def sign_in(house, token=OPERATOR, **headers):
    answer = post(house, "/v1/session", {"token": token}, **headers)
    assert answer.status == 200, answer
    cookie = answer.get("Set-Cookie")
    return cookie.split(";")[0], answer.json()["csrf"], cookie


def a_task(house):
    order = house.order("plain", Step(then="rst"))
    order.send()
    listed = house.gateway.admin("GET", "/v1/compensations?limit=1", bearer(OPERATOR)).json()["items"]
    assert listed[0]["call_id"] == order.call_id
    return listed[0]["id"]


def test_a_reader_reads_and_changes_nothing(house):
    task = a_task(house)
    for path in ("/v1/overview", "/v1/calls", "/v1/compensations", f"/v1/compensations/{task}", "/v1/audit", "/v1/suspects",
                 "/metrics"):
        assert house.gateway.admin("GET", path, bearer(READER)).status == 200, path
    changes = [("POST", f"/v1/compensations/{task}/resolve"), ("POST", f"/v1/compensations/{task}/run"),
               ("POST", "/v1/compensations/resolve"), ("POST", "/v1/calls/x/erase"), ("PUT", "/.samekey/receipts/x"),
               ("POST", "/.samekey/receipts/x/fence"), ("POST", "/.samekey/receipts/x/cancel"), ("DELETE", "/v1/calls"),
               ("POST", "/v1/nothing")]
    body = json.dumps({"outcome": "SUCCESS", "evidence": "e", "operator": "mei", "state": "SUCCESS"})
    for method, path in changes:
        answer = house.gateway.admin(method, path, {**bearer(READER), "Content-Type": "application/json"}, body)
        assert answer.status == 403 and answer.slug == "read-only", (method, path, answer)
    cookie, csrf, _ = sign_in(house, READER)
    answer = post(house, f"/v1/compensations/{task}/resolve", json.loads(body), Cookie=cookie, X_CSRF_Token=csrf)
    assert answer.slug == "read-only"
    shown = house.gateway.admin("GET", f"/v1/compensations/{task}", bearer(OPERATOR)).json()
    assert shown["status"] == "PENDING" and shown["audit"] == []


def test_a_session_reads_by_cookie_and_changes_only_with_its_second_secret(house):
    task = a_task(house)
    cookie, csrf, line = sign_in(house)
    assert "HttpOnly" in line and "SameSite=Strict" in line and "Path=/" in line and "Secure" not in line
    assert "Max-Age=28800" in line and len(cookie.split("=")[1]) == 64 and csrf not in line
    who = house.gateway.admin("GET", "/v1/session", {"Cookie": f"theme=dark; {cookie}"}).json()
    assert who["role"] == "operator" and who["by"] == "session" and who["csrf"] == csrf and who["expires_at"]
    assert house.gateway.admin("GET", "/v1/calls", {"Cookie": cookie}).status == 200
    run = f"/v1/compensations/{task}/run"
    for wrong in ({}, {"X_CSRF_Token": "0" * 64}, {"X_CSRF_Token": csrf[:-1]},
                  {"X_CSRF_Token": csrf, "Origin": "https://evil.test"},
                  {"X_CSRF_Token": csrf, "Sec_Fetch_Site": "cross-site"}, {"X_CSRF_Token": csrf, "Origin": "null"}):
        answer = post(house, run, {"operator": "mei"}, Cookie=cookie, **wrong)
        assert answer.status == 403 and answer.slug == "csrf-missing", wrong
    assert house.gateway.admin("GET", f"/v1/compensations/{task}", bearer(OPERATOR)).json()["audit"] == []
    own = f"http://127.0.0.1:{house.gateway.admin_port}"
    assert post(house, run, {"operator": "mei"}, Cookie=cookie, X_CSRF_Token=csrf, Origin=own,
                Sec_Fetch_Site="same-origin").status == 200


def test_signing_out_ends_the_session(house):
    cookie, csrf, _ = sign_in(house)
    assert house.gateway.admin("DELETE", "/v1/session", {"Cookie": cookie}).slug == "csrf-missing"
    answer = house.gateway.admin("DELETE", "/v1/session", {"Cookie": cookie, "X-CSRF-Token": csrf})
    assert answer.status == 200 and answer.json()["role"] == "none" and "Max-Age=0" in answer.get("Set-Cookie")
    assert house.gateway.admin("GET", "/v1/calls", {"Cookie": cookie}).status == 401
    assert house.gateway.admin("GET", "/v1/session", {"Cookie": cookie}).json()["role"] == "none"


def test_behind_tls_the_cookie_is_secure(house):
    for header in ({"X_Forwarded_Proto": "https"}, {"Forwarded": "for=10.0.0.1;proto=https"}):
        assert "; Secure" in sign_in(house, **header)[2]


def test_sessions_are_few_and_the_longest_silent_goes(house):
    first = sign_in(house)[0]
    later = [sign_in(house)[0] for _ in range(64)]
    assert house.gateway.admin("GET", "/v1/calls", {"Cookie": first}).status == 401
    assert all(house.gateway.admin("GET", "/v1/calls", {"Cookie": cookie}).status == 200 for cookie in later)


def test_who_am_i_needs_no_token_and_everything_else_does(house):
    who = house.gateway.admin("GET", "/v1/session").json()
    assert who["role"] == "none" and who["by"] is None and who["token_required"] is True and who["csrf"] is None
    assert house.gateway.admin("GET", "/healthz").status == 200 and house.gateway.admin("GET", "/readyz").status == 200
    assert house.gateway.admin("GET", "/").status == 200
    for path in ("/metrics", "/v1/calls", "/v1/overview", "/v1/nothing", "/.samekey/receipts/x"):
        answer = house.gateway.admin("GET", path)
        assert answer.status == 401 and answer.slug == "unauthorized" and answer.get("WWW-Authenticate") == "Bearer", path
    assert house.gateway.admin("DELETE", "/v1/session").status == 401


def test_a_changed_token_ends_the_sessions_of_the_old_one(tmp_path, started):
    (tmp_path / "operator").write_text(OPERATOR + "\n", encoding="ascii")
    house = House(tmp_path, {"plain": {}}, drain="1s", admin_token_file=str(tmp_path / "operator"))
    started.append(house)
    cookie, _, _ = sign_in(house)
    (tmp_path / "operator").write_text("another-token-for-tests\n", encoding="ascii")
    house.gateway.signal(1)
    until(lambda: house.gateway.admin("GET", "/v1/calls", {"Cookie": cookie}).status == 401, 5)
    assert house.gateway.admin("GET", "/v1/calls", bearer("another-token-for-tests")).status == 200


def test_wrong_tokens_are_logged_and_slowed_and_nobody_else_is(tmp_path, started):
    (tmp_path / "operator").write_text(OPERATOR + "\n", encoding="ascii")
    house = House(tmp_path, {"plain": {}}, drain="1s", admin_token_file=str(tmp_path / "operator"))
    started.append(house)
    waits = []
    for i in range(4):
        began = time.monotonic()
        answer = (post(house, "/v1/session", {"token": f"wrong-{i}"}) if i % 2
                  else house.gateway.admin("GET", "/v1/calls", bearer(f"wrong-{i}")))
        waits.append(time.monotonic() - began)
        assert answer.status == 401 and answer.slug == "unauthorized"
    assert all(wait >= 0.09 * 2 ** i for i, wait in enumerate(waits)), waits
    refused = [e for e in list(house.gateway.log) if e.get("event") == "admin_token_refused"]
    assert len(refused) == 4 and refused[0]["peer"] == "127.0.0.1"
    assert not any("wrong-" in e["_line"] for e in list(house.gateway.log))
    began = time.monotonic()
    assert house.gateway.admin("GET", "/v1/calls", bearer(OPERATOR)).status == 200
    assert time.monotonic() - began < 0.09


def test_many_wrong_tokens_at_once_are_not_even_looked_at(tmp_path, started):
    (tmp_path / "operator").write_text(OPERATOR + "\n", encoding="ascii")
    house = House(tmp_path, {"plain": {}}, drain="1s", admin_token_file=str(tmp_path / "operator"))
    started.append(house)
    cookie, _, _ = sign_in(house)
    answers = []
    for i in range(3):  # so that the waits are long enough for all to meet
        house.gateway.admin("GET", "/v1/calls", bearer("wrong"))
    guesses = [threading.Thread(target=lambda: answers.append(house.gateway.admin("GET", "/v1/calls", bearer("wrong")).status))
               for _ in range(8)]
    for guess in guesses:
        guess.start()
    crowded = until(lambda: (lambda a: a if a.status == 429 else None)(house.gateway.admin("GET", "/v1/calls", bearer(OPERATOR))), 3)
    assert crowded.slug == "rate-limited" and int(crowded.get("Retry-After")) >= 1
    # Sessions and the probes go on, and no loop stands.
    assert house.gateway.admin("GET", "/v1/calls", {"Cookie": cookie}).status == 200
    assert house.gateway.admin("GET", "/healthz").status == 200
    order = house.order("plain", Step(201))
    assert order.send().status == 201
    for guess in guesses:
        guess.join(20)
    assert answers == [401] * 8
    assert house.gateway.admin("GET", "/v1/calls", bearer(OPERATOR)).status == 200


def test_a_guess_that_hangs_up_is_forgotten(tmp_path, started):
    (tmp_path / "operator").write_text(OPERATOR + "\n", encoding="ascii")
    house = House(tmp_path, {"plain": {}}, drain="1s", admin_token_file=str(tmp_path / "operator"))
    started.append(house)
    for _ in range(12):
        with Wire(house.gateway.admin_port) as wire:
            wire.send(request("GET", "/v1/calls", {"Authorization": "Bearer wrong"}, b""))
    until(lambda: house.gateway.admin("GET", "/v1/calls", bearer(OPERATOR)).status == 200, 5)


def test_a_stop_does_not_wait_for_wrong_tokens(tmp_path, started):
    (tmp_path / "operator").write_text(OPERATOR + "\n", encoding="ascii")
    house = House(tmp_path, {"plain": {}}, drain="1s", admin_token_file=str(tmp_path / "operator"))
    started.append(house)
    with Wire(house.gateway.admin_port) as wire:
        for _ in range(5):
            house.gateway.admin("GET", "/v1/calls", bearer("wrong"))
        wire.send(request("GET", "/v1/calls", {"Authorization": "Bearer wrong"}, b""))
        until(lambda: sum(e.get("event") == "admin_token_refused" for e in list(house.gateway.log)) == 6, 5)
        began = time.monotonic()
        assert house.gateway.stop() == 0
        assert time.monotonic() - began < 2.5


def test_without_a_token_a_local_program_may_do_everything(open_house):
    who = open_house.gateway.admin("GET", "/v1/session").json()
    assert who["role"] == "operator" and who["by"] == "local" and who["token_required"] is False
    order = open_house.order("plain", Step(then="rst"))
    order.send()
    task = open_house.gateway.admin("GET", "/v1/compensations?limit=1").json()["items"][0]["id"]
    own = f"http://127.0.0.1:{open_house.gateway.admin_port}"
    assert post(open_house, f"/v1/compensations/{task}/run", {"operator": "mei"}, Origin=own).status == 200
    for wrong in ({"Origin": "https://evil.test"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
                  {"Origin": f"http://localhost:{open_house.gateway.admin_port}"}):
        answer = post(open_house, f"/v1/compensations/{task}/run", {"operator": "mei"}, **wrong)
        assert answer.status == 403 and answer.slug == "csrf-missing", wrong
    # A form of another page can send no JSON.
    assert open_house.gateway.admin("POST", f"/v1/compensations/{task}/run", {"Content-Type": "text/plain"},
                                    json.dumps({"operator": "mei"})).slug == "body-invalid"


@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1.evil.test", "localhost.evil.test", "10.0.0.1"])
def test_a_name_pointed_at_this_address_reads_nothing(open_house, host):
    for path in ("/v1/calls", "/v1/session", "/metrics"):
        assert open_house.gateway.admin("GET", path, host=host).status == 401, path


def test_the_console_asks_nobody_outside(open_house):
    answer = open_house.gateway.admin("GET", "/")
    assert answer.status == 200
    policy = answer.get("Content-Security-Policy")
    if answer.get("Content-Type").startswith("text/plain"):
        assert b"without its console" in answer.body  # built without npm
        return
    for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:",
                 "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"):
        assert part in policy
    assert "unsafe" not in policy and answer.get("X-Content-Type-Options") == "nosniff"
    assert answer.get("Content-Encoding") == "gzip"
    again = open_house.gateway.admin("GET", "/", {"If-None-Match": answer.get("ETag")})
    assert again.status == 304 and again.body == b""


def test_a_token_that_only_reads_does_not_open_an_address_to_others(tmp_path, started):
    (tmp_path / "reader").write_text(READER + "\n", encoding="ascii")
    gateway = Gateway(tmp_path, {"plain": {"upstream": ["http://127.0.0.1:1"]}}, start=False,
                      admin_read_token_file=str(tmp_path / "reader"))
    gateway.port, gateway.admin_port = free_port(), free_port()
    gateway.top["admin"] = f"0.0.0.0:{gateway.admin_port}"
    gateway.start(wait=False)
    assert gateway.wait() == 78 and any("admin_token_file" in line for line in gateway.noise)


def test_a_unix_socket_is_local(tmp_path, started):
    socket = tmp_path / "admin.sock"
    house = House(tmp_path, {"plain": {}}, drain="1s")
    started.append(house)
    house.gateway.stop()
    house.gateway.top["admin"] = f"unix:{socket}"
    house.gateway.start(wait=False)
    until(lambda: any(e.get("event") == "ready" for e in list(house.gateway.log)), 10)
    answer = ask(str(socket), "GET", "/v1/session", {}, b"", host="localhost")
    assert answer.json()["by"] == "local"
