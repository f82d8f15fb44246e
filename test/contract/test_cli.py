# SPDX-License-Identifier: MIT
"""The commands through the binary (CONTRACT section 8): what they print, what they return, what they believe."""
import http.server
import json
import os
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

BIN = os.environ.get("SAMEKEY_BIN", "build/samekey")
CALL = "ord-1710000000000-a3f91c07b2e4-node07"


def run(*arguments, **options):
    return subprocess.run([BIN, *arguments], capture_output=True, text=True, timeout=60, **options)


class Keeper(http.server.ThreadingHTTPServer):
    """Answers every request with what the test put into `answer`, and remembers the requests."""

    daemon_threads = True

    def __init__(self):
        self.answer = (200, "application/json", "{}")
        self.requests = []
        keeper = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                length = int(self.headers.get("Content-Length") or 0)
                keeper.requests.append((self.command, self.path, dict(self.headers), self.rfile.read(length)))
                status, kind, body = keeper.answer
                data = body if isinstance(body, bytes) else body.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = serve

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server_address[1]

    def says(self, document, status=200, kind="application/json"):
        self.answer = (status, kind, json.dumps(document))


@pytest.fixture
def keeper():
    k = Keeper()
    yield k
    k.shutdown()
    k.server_close()


def document(state, **more):
    base = {"call_id": CALL, "state": state, "final": state in ("SUCCESS", "FAILED"), "reason": None,
            "received": True, "executed": state == "SUCCESS", "key": "k-1", "route": "orders", "attempts": [],
            "result": None, "safe_new_key": False, "next_action": "none"}
    base.update(more)
    return base


# ---- the program


def test_version_names_program_and_number():
    r = run("--version")
    assert r.returncode == 0 and re.fullmatch(r"samekey \d+\.\d+\.\d+\n", r.stdout)


def test_help_lists_every_command_and_each_explains_itself():
    r = run("help")
    assert r.returncode == 0 and r.stderr == ""
    commands = re.findall(r"^  (\w+) ", r.stdout, re.M)
    assert {"gateway", "receipt", "fence", "cancel", "id"} <= set(commands)
    for command in commands:
        by_help, by_flag = run("help", command), run(command, "--help")
        assert by_help.returncode == 0 and by_help.stdout.startswith("usage: samekey " + command)
        assert by_help.stdout == by_flag.stdout


def test_no_command_is_a_usage_error():
    r = run()
    assert r.returncode == 64 and r.stdout == "" and "usage:" in r.stderr


@pytest.mark.parametrize("word,meant", [("recipt", "receipt"), ("getaway", "gateway"), ("ids", "id")])
def test_an_unknown_command_is_told_what_may_be_meant(word, meant):
    for r in (run(word), run("help", word)):
        assert r.returncode == 64 and r.stdout == "" and "did you mean '%s'?" % meant in r.stderr


def test_output_that_does_not_arrive_is_no_success():
    with open("/dev/full", "w") as full:
        for arguments in (["--version"], ["id"], ["gateway", "--print-settings-doc"]):
            r = subprocess.run([BIN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            assert r.returncode == 74, arguments


# ---- id

ID = re.compile(r"([A-Za-z0-9._:-]+)-(\d{13})-([0-9a-f]{12})-([A-Za-z0-9._:-]+)")


def test_an_id_has_the_form_of_the_contract():
    before = time.time() * 1000
    r = run("id", "--prefix", "ord", "--node", "node07")
    m = ID.fullmatch(r.stdout.strip())
    assert r.returncode == 0 and m
    assert m[1] == "ord" and m[4] == "node07"
    assert before - 2 <= int(m[2]) <= time.time() * 1000 + 2


def test_the_node_is_the_host_without_what_an_id_may_not_have():
    r = run("id")
    assert re.fullmatch(r"call-\d{13}-[0-9a-f]{12}-[A-Za-z0-9_-]{1,32}\n", r.stdout)


def test_ids_of_many_processes_at_once_are_all_different():
    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(lambda _: run("id", "-n", "5000", "--node", "n").stdout.split(), range(16)))
    ids = [i for output in outputs for i in output]
    assert len(ids) == 80000 and len(set(ids)) == 80000


@pytest.mark.parametrize("arguments", [["-n", "0"], ["-n", "x"], ["-n", "1x"], ["--prefix", ""], ["--prefix", "a b"],
                                       ["--node", "a/b"], ["--prefix", "p" * 101], ["extra"], ["--colour"]])
def test_id_refuses_what_it_cannot_do(arguments):
    r = run("id", *arguments)
    assert r.returncode == 64 and r.stdout == "" and r.stderr


# ---- receipt

STATES = [("SUCCESS", 0), ("FAILED", 3), ("UNKNOWN", 4), ("RECEIVED", 4), ("PROCESSING", 4), ("NOT_RECEIVED", 5)]


@pytest.mark.parametrize("state,code", STATES)
def test_receipt_returns_by_state(keeper, state, code):
    keeper.says(document(state), 404 if state == "NOT_RECEIVED" else 200)
    for extra in ([], ["--format", "json"]):
        r = run("receipt", CALL, "--at", keeper.url, *extra)
        assert r.returncode == code, r.stderr
    assert json.loads(r.stdout)["state"] == state
    assert keeper.requests[0][:2] == ("GET", "/.samekey/receipts/" + CALL)


def test_receipt_is_readable_for_a_worried_operator(keeper):
    keeper.says(document("UNKNOWN", executed=None, next_action="ask_operator", attempts=[
        {"n": 1, "started_at": "2026-03-01T12:00:00.000Z", "outcome": "unknown",
         "evidence": "no reply within 3 s after the whole request was sent"}]))
    r = run("receipt", CALL, "--at", keeper.url)
    assert r.returncode == 4
    assert r.stdout.startswith(CALL + ": UNKNOWN\n")
    assert "no reply within 3 s after the whole request was sent" in r.stdout
    assert re.search(r"executed +not known", r.stdout)
    assert "until then do not send it under a new key" in r.stdout
    assert re.search(r"new call +not safe", r.stdout)


def test_receipt_says_when_a_failure_is_not_final_and_when_a_new_call_is_safe(keeper):
    keeper.says(document("FAILED", final=False, next_action="retry_same_call"))
    assert "not final" in run("receipt", CALL, "--at", keeper.url).stdout
    keeper.says(document("FAILED", safe_new_key=True))
    assert re.search(r"new call +safe:", run("receipt", CALL, "--at", keeper.url).stdout)


def test_receipt_waits_sends_headers_and_takes_whole_addresses(keeper):
    keeper.says(document("SUCCESS"))
    run("receipt", CALL, "--at", keeper.url + "/", "--wait", "5s", "-H", "X-One: 1", "-H", "X-Two: 2", "--tenant", "t1")
    method, path, headers, _ = keeper.requests[-1]
    assert path == "/.samekey/receipts/%s?wait=5s" % CALL
    assert headers["X-One"] == "1" and headers["X-Two"] == "2" and headers["X-Tenant"] == "t1"
    run("receipt", CALL, "--at", keeper.url + "/r/{call_id}/x?v=1", "--wait", "5s", "--tenant", "t", "--tenant-header",
        "X-Shop")
    assert keeper.requests[-1][1] == "/r/%s/x?v=1&wait=5s" % CALL
    assert keeper.requests[-1][2]["X-Shop"] == "t"


UNBELIEVABLE = {
    "page": (404, "text/html", "<html>not found</html>"),
    "catch-all": (200, "text/html", "<html>welcome</html>"),
    "catch-all-json": (200, "application/json", "{\"ok\":true}"),
    "bare-404": (404, "application/json", ""),
    "other-call": (200, "application/json", json.dumps(document("SUCCESS", call_id="other"))),
    "no-call": (200, "application/json", json.dumps({"state": "SUCCESS"})),
    "unknown-state": (200, "application/json", json.dumps(document("DONE"))),
    "state-no-text": (200, "application/json", json.dumps(document(7))),
    "cut": (200, "application/json", json.dumps(document("SUCCESS"))[:-1]),
    "twice": (200, "application/json", '{"call_id":"%s","state":"FAILED","state":"SUCCESS"}' % CALL),
    "list": (200, "application/json", "[]"),
    "behind": (200, "application/json", json.dumps(document("SUCCESS")) + "x"),
    "binary": (200, "application/json", b"\xff\x00"),
}


@pytest.mark.parametrize("name", UNBELIEVABLE)
@pytest.mark.parametrize("command", ["receipt", "fence", "cancel"])
def test_what_is_not_a_receipt_of_this_call_is_not_believed(keeper, name, command):
    keeper.answer = UNBELIEVABLE[name]
    r = run(command, CALL, "--at", keeper.url)
    assert r.returncode == 4 and r.stdout == ""
    assert "nothing was learned about " + CALL in r.stderr and "do not send it under a new key" in r.stderr
    r = run(command, CALL, "--at", keeper.url, "--format", "json")
    assert r.returncode == 4
    assert json.loads(r.stdout)["state"] == "UNKNOWN" and json.loads(r.stdout)["safe_new_key"] is False


def test_nobody_at_the_address_is_not_known(keeper):
    url = keeper.url
    keeper.shutdown()
    keeper.server_close()
    r = run("receipt", CALL, "--at", url)
    assert r.returncode == 4 and "nothing was learned" in r.stderr


def test_a_problem_is_told_in_its_words(keeper):
    keeper.says({"type": "urn:samekey:credential-mismatch", "title": "The call belongs to another credential",
                 "status": 409, "call_id": CALL, "safe_new_key": False}, 409, "application/problem+json")
    r = run("receipt", CALL, "--at", keeper.url)
    assert r.returncode == 4 and "belongs to another credential" in r.stdout


def test_foreign_text_cannot_move_the_cursor(keeper):
    keeper.says(document("SUCCESS", route="a\x1b[2Jb"))
    r = run("receipt", CALL, "--at", keeper.url)
    assert "\x1b" not in r.stdout and "a?[2Jb" in r.stdout


@pytest.mark.parametrize("arguments", [
    ["receipt"], ["receipt", CALL], ["receipt", "a b", "--at", "http://h"], ["receipt", CALL, "--at", "ftp://h"],
    ["receipt", CALL, CALL, "--at", "http://h"], ["receipt", CALL, "--at", "http://h", "--wait", "5"],
    ["receipt", CALL, "--at", "http://h", "--wait", "61s"], ["receipt", CALL, "--at", "http://h", "--wait", "forever"],
    ["receipt", CALL, "--at", "http://h", "--format", "xml"], ["receipt", CALL, "--at", "http://h", "-H", "x"],
    ["receipt", CALL, "--at", "http://h", "-H", "a: b\r\nc: d"], ["receipt", CALL, "--at", "http://h", "--key", "k"],
    ["fence", CALL, "--at", "http://h", "--key", "k"], ["fence", CALL, "--at", "http://h", "--wait", "1s"],
    ["cancel", CALL, "--at", "http://h", "--route", "r"], ["receipt", CALL, "--bad"]])
def test_usage_errors_ask_nobody(arguments):
    r = run(*arguments)
    assert r.returncode == 64 and r.stdout == "" and r.stderr


# ---- fence and cancel


@pytest.mark.parametrize("command,answer,status,code", [
    ("fence", {"state": "FAILED", "reason": "fenced"}, 200, 0),
    ("fence", {"state": "FAILED", "reason": "rejected"}, 200, 3),
    ("fence", {"state": "SUCCESS"}, 200, 1),
    ("fence", {"state": "PROCESSING"}, 409, 4),
    ("fence", {"state": "UNKNOWN"}, 409, 4),
    ("cancel", {"state": "FAILED", "reason": "fenced"}, 200, 0),
    ("cancel", {"state": "FAILED", "reason": None}, 200, 3),
    ("cancel", {"state": "SUCCESS"}, 409, 1),
    ("cancel", {"state": "SUCCESS", "reversed_by": "ord-2"}, 200, 0),
    ("cancel", {"state": "PROCESSING"}, 409, 4),
])
def test_fence_and_cancel_return_by_what_holds_now(keeper, command, answer, status, code):
    keeper.says(document(**answer), status)
    r = run(command, CALL, "--at", keeper.url)
    assert r.returncode == code, r.stdout + r.stderr
    method, path, _, body = keeper.requests[-1]
    assert (method, path, body) == ("POST", "/.samekey/receipts/%s/%s" % (CALL, command), b"")


def test_fence_can_name_the_operation(keeper):
    keeper.says(document("FAILED", reason="fenced", safe_new_key=True))
    r = run("fence", CALL, "--at", keeper.url, "--route", "orders", "--key", 'k"1')
    assert r.returncode == 0
    _, _, headers, body = keeper.requests[-1]
    assert json.loads(body) == {"route": "orders", "key": 'k"1'}
    assert headers["Content-Type"] == "application/json" and "Expect" not in headers
    assert "can never run" in r.stdout and re.search(r"new call +safe", r.stdout)


def test_too_late_to_fence_is_said_plainly(keeper):
    keeper.says(document("SUCCESS"))
    assert "Too late to give it up: the operation took effect" in run("fence", CALL, "--at", keeper.url).stdout
