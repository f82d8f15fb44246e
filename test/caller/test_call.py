# SPDX-License-Identifier: MIT
"""`samekey call` and `samekey calls` as a shell meets them: what is sent, what is asked, what is said, what is left."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import threading
import time

import pytest

from caller import BIN, BODY, Home, answers, outcomes
from support.poll import until
from support.stub import Stub, case, case_json
from support.upstream import Step, Upstream, receipt, refused_port

ASK = "{origin}/receipts/{call_id}"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


@pytest.fixture
def service(started):
    upstream = Upstream()
    started.append(upstream)
    return upstream


# ---- the article's cases


def test_success_is_the_body_on_stdout_and_nothing_else(home, service):
    run = home.run("call", service.url + "/orders", "--key", "k", "--data", BODY)
    assert (run.code, run.out, run.err) == (0, b'{"ok":true}', "")
    [post] = service.posts("/orders")
    assert post.get("Idempotency-Key") == "k" and post.get("X-Call-Attempt") == "1"
    assert post.get("Content-Type") == "application/json" and post.body == BODY.encode()
    assert re.fullmatch(r"call-\d{13}-[0-9a-f]{12}-[\w.-]+", post.get("X-Call-Id"))


def test_timeout_but_done_is_success_with_one_post(home, service):
    service.script("/orders", Step(then="hang", effect=True))
    run = home.call(service.url + "/orders", "--receipt", ASK, "--attempt-timeout", "300ms")
    assert run.code == 0 and run.json["state"] == "SUCCESS" and run.json["reason"] == "receipt"
    assert outcomes(run) == ["unknown"] and answers(run) == ["SUCCESS"]
    assert service.story("/orders", run.json["call_id"]) == "P?" and service.effects("/orders") == 1
    assert "no reply within 300 ms after the whole request was sent" in run.json["attempts"][0]["evidence"]


def test_timeout_and_not_received_is_sent_again_after_resend_after_with_the_same_names(home, service):
    service.script("/orders", Step(then="hang", effect=False), Step())
    run = home.call(service.url + "/orders", "--receipt", ASK, "--attempt-timeout", "300ms", key='"k quoted"'.replace(" ", "-"))
    assert run.code == 0 and outcomes(run) == ["unknown", "success"]
    assert set(answers(run)) == {"NOT_RECEIVED"}
    first, second = service.posts("/orders")
    assert first.get("X-Call-Id") == second.get("X-Call-Id") and first.body == second.body
    assert first.get("Idempotency-Key") == second.get("Idempotency-Key") == '"k-quoted"'
    assert [p.get("X-Call-Attempt") for p in (first, second)] == ["1", "2"]
    # resend_after is the attempt timeout, counted from the closing of the first connection.
    assert second.t - first.t >= 0.6 - 0.02
    # A query lies between them, the last of them after that time.
    assert service.story("/orders", run.json["call_id"]).strip("P").count("?") >= 2


def test_a_hanging_receipt_endpoint_leaves_it_unknown_within_the_deadline(home, service):
    service.script("/orders", Step(then="hang", effect=True))
    call_id = "hang-1"
    service.answer_receipt(call_id, Step(then="hang"))
    began = time.monotonic()
    run = home.call(service.url + "/orders", "--receipt", ASK, "--attempt-timeout", "300ms", "--deadline", "1500ms",
                    "--call-id", call_id)
    took = time.monotonic() - began
    assert run.code == 4 and run.json["state"] == "UNKNOWN" and run.json["next_action"] == "query_receipt"
    assert not run.json["safe_new_key"] and set(answers(run)) == {"query_failed"}
    assert run.json["elapsed_ms"] <= 1700 and took < 2.5
    assert len(service.posts("/orders")) == 1
    assert call_id in run.err and "new key" in run.err


@pytest.mark.parametrize("page", ["html", "json", "catch-all"])
def test_a_server_that_knows_no_receipts_proves_nothing(home, service, page):
    """The default receipt URL meets a 404 of its own, or a page that answers everything with 200."""
    pages = {"html": Step(404, b"<h1>Not Found</h1>", {"Content-Type": "text/html"}),
             "json": Step(404, b'{"error":"not found","state":"NOT_RECEIVED"}'),
             "catch-all": Step(200, b"<html>Welcome</html>", {"Content-Type": "text/html"})}
    service.script("/orders", Step(then="rst", effect=True))
    service.answer_receipt("c-404", pages[page])
    run = home.call(service.url + "/orders", "--call-id", "c-404")
    assert run.code == 4 and outcomes(run) == ["unknown"] and set(answers(run)) == {"query_failed"}
    assert len(service.posts("/orders")) == 1
    [first, *_] = service.queries("c-404")
    assert first.target.startswith("/.samekey/receipts/c-404?method=POST&path=%2Forders&since=20")


# ---- case 01 and 29


@pytest.mark.parametrize("receipts, code", [("honest", 0), ("down", 4)])
def test_case_01(home, started, tmp_path, receipts, code):
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({**case_json("01-reused-connection-resend", "upstream.json"), "receipts": receipts}))
    stub = Stub(spec)
    started.append(stub)
    for number, expected in ((1, 0), (2, code)):
        head, _, body = (case("01-reused-connection-resend") / f"call-{number}.http").read_bytes().partition(b"\r\n\r\n")
        run = home.call(stub.url + "/orders", "--call-id", f"c-100{number}", "--receipt", ASK, data=body.decode(),
                        key=f"order:o-100{number}")
        assert run.code == expected, run
    assert outcomes(run) == ["unknown"] and run.json["state"] == ("SUCCESS" if code == 0 else "UNKNOWN")
    log = [e for e in stub.counters()["log"] if e["callId"] == "c-1002"]
    assert [e["kind"] for e in log][:2] == ["request", "receipt"] and len(stub.posts("o-1002")) == 1
    assert {e["key"] for e in stub.posts("o-1002")} == {"order:o-1002"}
    assert stub.counters()["effects"] == {"o-1001": 1, "o-1002": 1}


@pytest.mark.parametrize("value, low, high", [("0", .02, 1.2), ("-5", .02, 1.2), ("1", 1.0, 2.1)])
def test_case_29_on_a_real_clock(home, service, value, low, high):
    service.script("/orders", Step(429, headers={"Retry-After": value}, effect=False), Step())
    run = home.call(service.url + "/orders", "--receipt", ASK, "--jitter", "1:1")
    first, second = service.posts("/orders")
    assert run.code == 0 and low <= second.t - first.t <= high


def test_a_retry_after_past_the_deadline_ends_at_once_and_says_when(home, service):
    service.script("/orders", Step(429, headers={"Retry-After": "200"}, effect=False))
    run = home.call(service.url + "/orders", "--receipt", ASK, "--deadline", "150s")
    assert run.code == 3 and not run.json["final"] and run.json["elapsed_ms"] < 2000
    assert run.json["retry_in_ms"] in range(195000, 200001) and run.json["next_action"] == "retry_same_call"
    assert "200 s" in run.err


# ---- endings


@pytest.mark.parametrize("status, state, code, next_action", [
    (400, "FAILED", 3, "fix_request"), (422, "FAILED", 3, "fix_request"), (401, "FAILED", 3, "retry_same_call")])
def test_refusals(home, service, status, state, code, next_action):
    service.script("/orders", Step(status, b'{"why":"no"}', effect=False))
    run = home.call(service.url + "/orders")
    assert (run.code, run.json["state"], run.json["next_action"]) == (code, state, next_action)
    assert len(service.posts("/orders")) == 1 and run.json["result"]["status"] == status
    assert run.json["final"] == (status != 401)


def test_a_body_of_a_refusal_goes_to_stdout_too(home, service):
    service.script("/orders", Step(422, b"no such article", {"Content-Type": "text/plain"}, effect=False))
    run = home.run("call", service.url + "/orders", "--key", "k")
    assert (run.code, run.out) == (3, b"no such article") and "FAILED" in run.err


@pytest.mark.parametrize("flag, code, state", [("unknown", 4, "UNKNOWN"), ("failed", 3, "FAILED")])
def test_server_errors(home, service, flag, code, state):
    service.script("/orders", Step(500, effect=False))
    run = home.call(service.url + "/orders", "--receipt", "none", "--server-error", flag, "--retries", "1")
    assert (run.code, run.json["state"]) == (code, state)
    assert len(service.posts("/orders")) == (1 if flag == "unknown" else 2)


def test_a_callee_that_runs_a_key_once_is_sent_the_same_again(home, service):
    service.script("/orders", Step(then="fin", effect=False), Step())
    run = home.call(service.url + "/orders", "--receipt", "none", "--callee-idempotent")
    assert run.code == 0 and outcomes(run) == ["unknown", "success"] and answers(run) == []


def test_without_a_key_nothing_is_sent_again_after_unknown(home, service):
    service.script("/orders", Step(then="rst", effect=False))
    run = home.call(service.url + "/orders", "--receipt", ASK, "--callee-idempotent", "--call-id", "c-nokey", key=None)
    assert run.code == 4 and len(service.posts("/orders")) == 1 and "NOT_RECEIVED" in answers(run)


def test_accepted_work_is_waited_for(home, service):
    service.script("/orders", Step(202, effect=False))
    service.answer_receipt("c-202", receipt("PROCESSING", "c-202"), receipt("PROCESSING", "c-202"), receipt(
        "SUCCESS", "c-202", result={"status": 201, "headers": [["content-type", "text/plain"]], "body": "made",
                                    "body_encoding": "utf8"}))
    run = home.call(service.url + "/orders", "--receipt", ASK, "--call-id", "c-202")
    assert run.code == 0 and outcomes(run) == ["pending"] and answers(run) == ["PROCESSING", "PROCESSING", "SUCCESS"]
    assert run.json["result"] == {"status": 201, "headers": [["content-type", "text/plain"]], "body": "made",
                                  "body_encoding": "utf8"}
    assert len(service.posts("/orders")) == 1


def test_accepted_work_that_nobody_can_be_asked_about_ends_at_once(home, service):
    service.script("/orders", Step(202, effect=False))
    run = home.call(service.url + "/orders", "--receipt", "none")
    assert run.code == 4 and run.json["reason"] == "accepted" and run.json["elapsed_ms"] < 1000
    assert run.json["next_action"] == "ask_operator"
    assert home.call(service.url + "/now", "--receipt", "none", "--accepted", "success", key="k-2").code == 0


def test_a_samekey_receipt_that_says_not_received_at_the_end_is_fenced(home, service):
    """With the default source nothing is left open that the callee can give up for us."""
    service.script("/orders", Step(then="rst", effect=False))
    said = {"call_id": "c-fence", "final": False}
    service.answer_receipt("c-fence", lambda seen: Step(200, json.dumps(
        {**said, "state": "FAILED", "final": True, "reason": "fenced", "safe_new_key": True} if seen.method == "POST"
        else {**said, "state": "NOT_RECEIVED"}).encode(), effect=False))
    run = home.call(service.url + "/orders", "--call-id", "c-fence", "--retries", "1")
    assert run.code == 3 and run.json["final"] and run.json["safe_new_key"]
    assert outcomes(run) == ["unknown", "unknown"]
    assert [q.method for q in service.queries("c-fence")][-1] == "POST"


def test_problems_of_a_samekey_about_another_call_never_allow_a_new_key(home, service):
    problem = {"type": "urn:samekey:key-reused", "status": 422, "safe_new_key": True, "next_action": "fix_request"}
    service.script("/orders", Step(422, json.dumps(problem).encode(), {"Content-Type": "application/problem+json",
                                                                       "Call-Outcome": "rejected"}, effect=False))
    run = home.call(service.url + "/orders")
    assert run.code == 3 and run.json["final"] and not run.json["safe_new_key"]


def test_what_a_samekey_below_could_not_reach_is_handed_on(home, service):
    problem = {"type": "urn:samekey:upstream-unavailable", "status": 503, "safe_new_key": False,
               "next_action": "retry_same_call"}
    service.script("/orders", Step(503, json.dumps(problem).encode(), {
        "Content-Type": "application/problem+json", "Call-Outcome": "not-executed", "Retry-After": "7"}, effect=False))
    run = home.call(service.url + "/orders", "--receipt", ASK)
    assert run.code == 3 and not run.json["final"] and len(service.posts("/orders")) == 1
    assert run.json["retry_in_ms"] == 7000


# ---- the journal


def test_the_journal_is_its_owners_only(home, service):
    home.call(service.url + "/orders")
    for path in [*home.journal.parent.iterdir()]:
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert home.journal.parent.stat().st_mode & 0o777 == 0o700


def test_a_success_is_told_from_the_journal_and_nothing_is_sent(home, service):
    first = home.call(service.url + "/orders")
    again = home.call(service.url + "/orders", data=' {"amount":1200, "order":"o-1"}')  # the same meaning
    assert again.code == 0 and again.json["resumed"] and again.json["call_id"] == first.json["call_id"]
    assert again.json["result"] == first.json["result"] and len(service.posts("/orders")) == 1
    assert "nothing was sent now" in again.err


def test_a_key_is_bound_to_one_request(home, service):
    home.call(service.url + "/orders")
    run = home.call(service.url + "/orders", data='{"order":"o-1","amount":9}')
    assert run.code == 64 and "bound to one request" in run.err and run.out == b""
    assert len(service.posts("/orders")) == 1


def test_a_call_id_is_bound_to_one_request(home, service):
    assert home.call(service.url + "/orders", "--call-id", "c-1").code == 0
    assert home.call(service.url + "/orders", "--call-id", "c-1", key="k-2").code == 64
    assert len(service.posts("/orders")) == 1


def test_after_a_final_failure_the_key_gets_a_new_call(home, service):
    service.script("/orders", Step(422, effect=False), Step())
    first = home.call(service.url + "/orders", data="{}")
    second = home.call(service.url + "/orders")
    assert (first.code, second.code) == (3, 0) and first.json["call_id"] != second.json["call_id"]


def test_not_executed_goes_on_under_the_same_call_id(home, started):
    port, held = refused_port()
    first = home.call(f"http://127.0.0.1:{port}/orders", "--retries", "1")
    assert first.code == 3 and not first.json["final"] and outcomes(first) == ["not_executed"] * 2
    held.close()
    service = Upstream(port)
    started.append(service)
    second = home.call(f"http://127.0.0.1:{port}/orders", "--retries", "1")
    assert second.code == 0 and second.json["call_id"] == first.json["call_id"] and second.json["resumed"]
    assert [a["n"] for a in second.json["attempts"]] == [1, 2, 3]
    assert [p.get("X-Call-Attempt") for p in service.posts("/orders")] == ["3"]


def test_an_unknown_call_is_asked_about_first_when_run_again(home, service):
    service.script("/orders", Step(then="rst", effect=True))
    service.receipt_mode = "down"
    first = home.call(service.url + "/orders", "--receipt", ASK)
    assert first.code == 4
    service.receipt_mode = "honest"
    second = home.call(service.url + "/orders", "--receipt", ASK)
    assert second.code == 0 and second.json["call_id"] == first.json["call_id"] and "resumed" in second.err
    assert len(service.posts("/orders")) == 1 and second.json["rounds"] == 1


def test_no_journal_no_file(home, service):
    assert home.call(service.url + "/orders", "--no-journal").code == 0
    assert not home.state.exists()


@pytest.mark.parametrize("place", ["a file in the way", "not a database"])
def test_a_journal_that_cannot_be_written_sends_nothing(home, service, tmp_path, place):
    path = tmp_path / "j"
    path.write_text("this is no database, and longer than a header of one hundred bytes" * 3)
    run = home.call(service.url + "/orders", "--journal", path / "journal.db" if place.startswith("a file") else path)
    assert run.code == 74 and "nothing was sent" in run.err and not service.posts("/orders")
    assert path.read_text().startswith("this is no database")


def test_a_journal_that_takes_nothing_sends_nothing(home, service):
    home.call(service.url + "/warm")
    with sqlite3.connect(home.journal) as other:  # a writer that never lets go
        other.execute("BEGIN IMMEDIATE")
        before = time.monotonic()
        run = home.call(service.url + "/orders", key="k-2")
    assert run.code == 74 and not service.posts("/orders") and time.monotonic() - before < 30


def test_no_journal_body(home, service):
    secret = '{"card":"4000-0000-0000-0002"}'
    service.script("/orders", Step(then="rst", effect=False))
    service.receipt_mode = "down"
    run = home.call(service.url + "/orders", "--receipt", ASK, "--no-journal-body", data=secret)
    assert run.code == 4
    assert b"4000-0000" not in b"".join(p.read_bytes() for p in home.journal.parent.iterdir())
    service.receipt_mode = "honest"  # NOT_RECEIVED: but without its body it cannot be sent again from the journal
    resumed = home.calls("resume", run.json["call_id"], "--format", "json")
    assert resumed.code == 4 and len(service.posts("/orders")) == 1
    service.script("/orders", Step(), Step())
    again = home.call(service.url + "/orders", "--receipt", ASK, "--no-journal-body", "--attempt-timeout", "100ms",
                      data=secret)
    assert again.code == 0 and again.json["call_id"] == run.json["call_id"]


def test_calls_list_show_resume_forget(home, service):
    service.receipt_mode = "down"
    service.script("/a", Step(then="rst", effect=True))
    opened = home.call(service.url + "/a", "--receipt", ASK, key="open").json["call_id"]
    done = home.call(service.url + "/b", key="done").json["call_id"]
    listed = json.loads(home.calls("list", "--format", "json").out)["calls"]
    assert [c["call_id"] for c in listed] == [opened] and listed[0]["state"] == "UNKNOWN"
    assert done.encode() in home.calls("list", "--all").out and done.encode() not in home.calls().out
    assert json.loads(home.calls("show", done).out)["state"] == "SUCCESS"
    refused = home.calls("forget", opened)
    assert refused.code == 4 and "--force" in refused.err
    assert home.calls("forget", done).code == 0 and home.calls("show", done).code == 66
    service.receipt_mode = "honest"
    resumed = home.calls("resume")
    assert resumed.code == 0 and resumed.out.decode().split() == [opened, "SUCCESS"]
    assert home.calls("list").out == b"" and len(service.posts("/a")) == 1


def test_resume_counts_its_rounds_and_then_says_manual(home, service):
    service.receipt_mode = "down"
    service.script("/a", Step(then="rst", effect=True))
    call_id = home.call(service.url + "/a", "--receipt", ASK, "--receipt-queries", "1").json["call_id"]
    for round_number in range(1, 6):
        run = home.calls("resume", "--format", "json")
        assert run.code == 4 and run.json["rounds"] == round_number and run.json["call_id"] == call_id
    assert run.json["next_action"] == "ask_operator"
    asked = len(service.queries(call_id))
    last = home.calls("resume")
    assert last.code == 4 and last.out.decode().split() == [call_id, "MANUAL"] and "person" in last.err
    assert len(service.queries(call_id)) == asked and len(service.posts("/a")) == 1


def test_concurrent_runs_of_one_key_one_works_and_all_get_its_ending(home, service):
    gate = threading.Event()
    service.script("/orders", Step(gate=gate, body=b'{"made":1}'))
    runs = [home.start("call", service.url + "/orders", "--key", "k", "--data", BODY, "--format", "json", "-v",
                       "--attempt-timeout", "20s") for _ in range(6)]
    until(lambda: service.posts("/orders"))
    time.sleep(0.3)
    gate.set()
    ends = [(p.communicate(timeout=30), p.returncode) for p in runs]
    assert [code for _, code in ends] == [0] * 6
    documents = [json.loads(out) for (out, _), _ in ends]
    assert len({d["call_id"] for d in documents}) == 1 and len(service.posts("/orders")) == 1
    assert all(d["result"]["body"] == '{"made":1}' for d in documents)


def test_waiting_for_another_run_ends_at_the_deadline_as_still_running(home, service):
    gate = threading.Event()
    service.script("/orders", Step(gate=gate))
    worker = home.start("call", service.url + "/orders", "--key", "k-1", "--data", BODY, "--attempt-timeout", "20s")
    until(lambda: service.posts("/orders"))
    waiting = home.call(service.url + "/orders", "--deadline", "400ms")
    gate.set()
    assert worker.wait(20) == 0
    assert waiting.code == 4 and waiting.json["state"] == "PROCESSING" and waiting.json["next_action"] == "wait"
    worker.stdout.close(), worker.stderr.close()


def test_the_wait_for_another_run_counts_for_the_deadline(home, service):
    service.script("/orders", Step(then="hang", effect=True), Step(then="hang"))
    worker = home.start("call", service.url + "/orders", "--key", "k-1", "--data", BODY, "--attempt-timeout", "20s")
    until(lambda: service.posts("/orders"))
    waiting = home.start("call", service.url + "/orders", "--key", "k-1", "--data", BODY, "--deadline", "1200ms",
                         "--receipt", ASK, "--callee-idempotent", "--format", "json")
    time.sleep(0.6)
    service.receipt_mode = "down"
    worker.kill()
    out, _ = waiting.communicate(timeout=10)
    assert waiting.returncode == 4 and json.loads(out)["elapsed_ms"] <= 1400 + 100
    worker.communicate()


def test_a_call_without_a_key_that_still_runs_is_not_resumed_beside_itself(home, started):
    port, held = refused_port()
    worker = home.start("call", f"http://127.0.0.1:{port}/x", "--data", BODY, "--backoff-base", "1s", "--jitter", "1:1",
                        "--retries", "2")
    listed = until(lambda: [c for c in json.loads(home.calls("--format", "json").out)["calls"] if c["attempts"]])
    held.close()
    service = Upstream(port)
    started.append(service)
    resumed = home.calls("resume", listed[0]["call_id"], "--format", "json")
    assert worker.wait(20) == 0 and resumed.code == 0 and len(service.posts("/x")) == 1
    worker.stdout.close(), worker.stderr.close()


def test_many_first_runs_at_once_share_one_new_journal(home, service):
    runs = [home.start("call", service.url + f"/n{n}", "--key", f"k{n}", "--data", BODY) for n in range(24)]
    ends = [(p.communicate(timeout=60), p.returncode) for p in runs]
    assert [code for _, code in ends] == [0] * 24, ends
    assert home.calls("list", "--all").out.count(b"SUCCESS") == 24


# ---- kill -9


KILLS = int(os.environ.get("SAMEKEY_KILLS", "50"))
OFFSETS = [i * 200 / KILLS for i in range(KILLS)]  # milliseconds after the start


def test_killed_at_any_moment_it_is_taken_up_under_the_same_call_id(tmp_path, service):
    """Calls that are each killed at another moment; the same command again ends each with one effect."""
    service.scripts.clear()
    homes, again = [], []
    for number, offset in enumerate(OFFSETS):
        home, path = Home(tmp_path, f"s{number}"), f"/k{number}"
        service.script(path, Step(delay=0.08, effect=True), Step(effect=True))
        process = home.start("call", service.url + path, "--key", f"k{number}", "--data", BODY, "--receipt", ASK,
                             "--format", "json", "--attempt-timeout", "500ms")
        time.sleep(offset / 1000)
        process.kill()
        process.communicate()
        homes.append((home, path, number, process.returncode))
    seen_before = {path: [p.get("X-Call-Id") for p in service.posts(path)] for _, path, _, _ in homes}
    killed = sum(code == -signal.SIGKILL for *_, code in homes)
    for home, path, number, _ in homes:
        run = home.call(service.url + path, "--receipt", ASK, "--attempt-timeout", "500ms", key=f"k{number}")
        assert run.code == 0, run
        again.append(run)
        posts = service.posts(path)
        assert service.effects(path) == 1 and len({p.get("X-Call-Id") for p in posts} | {run.json["call_id"]}) == 1
        if seen_before[path]:
            assert len(posts) == 1 and run.json["resumed"] and run.json["call_id"] == seen_before[path][0]
    # The sweep means something only if it met calls in the middle.
    assert killed >= 10 and sum(bool(r.json["resumed"]) for r in again) >= 10


def test_a_killed_call_says_that_it_resumed_and_a_signal_ends_as_what_is_known(home, service):
    service.script("/orders", Step(then="hang", effect=True))
    process = home.start("call", service.url + "/orders", "--key", "k-1", "--data", BODY, "--receipt", ASK,
                         "--attempt-timeout", "20s")
    until(lambda: service.posts("/orders"))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 4 and b"given up by us" in err
    run = home.call(service.url + "/orders", "--receipt", ASK)
    assert run.code == 0 and "resumed" in run.err and len(service.posts("/orders")) == 1


# ---- talk, formats, usage


def test_the_timeline(home, service):
    service.script("/orders", Step(then="rst", effect=True))
    run = home.run("call", service.url + "/orders", "--key", "k", "--receipt", ASK, "-v", "--call-id", "c-9")
    story = re.sub(r"^\[ *\d+\] ", "", run.err, flags=re.M).splitlines()
    assert story[0] == "send      attempt 1 of c-9"
    assert story[1].startswith("attempt   1 unknown: the connection was reset after the whole request was sent")
    assert story[2:4] == ["ask       the receipt of c-9", "receipt   SUCCESS"]
    assert story[4].startswith("samekey: SUCCESS: It took effect, once: the service's receipt says so")


def test_bytes_arrive_as_they_are(home, service, tmp_path):
    body = bytes(range(256)) * 40
    service.script("/b", Step(200, body, {"Content-Type": "application/octet-stream"}))
    assert home.run("call", service.url + "/b", "--key", "k1").out == body
    out = tmp_path / "out.bin"
    assert home.run("call", service.url + "/b", "--key", "k2", "-o", out).code == 0 and out.read_bytes() == body
    run = home.call(service.url + "/b", key="k3")
    assert run.json["result"]["body_encoding"] == "base64"
    # From the journal too.
    assert home.run("call", service.url + "/b", "--key", "k1").out == body


def test_data_from_file_and_stdin(home, service, tmp_path):
    file = tmp_path / "data"
    file.write_bytes(b"\x00\xff" * 50000)
    assert home.call(service.url + "/f", data=f"@{file}").code == 0
    assert service.posts("/f")[0].body == file.read_bytes() and service.posts("/f")[0].get("Content-Type") is None
    assert home.call(service.url + "/s", data="-", key="k2", stdin=b"by stdin").code == 0
    assert service.posts("/s")[0].body == b"by stdin"


def test_methods_headers_and_business_ref(home, service):
    run = home.run("call", "DELETE", service.url + "/orders/1?x=1", "--key", "k", "-H", "Authorization: Bearer t", "-H",
                   "X-Tenant:acme", "--business-ref", "order-1", "--prefix", "ord", "--node", "node07", "--traceparent",
                   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    assert run.code == 0
    [seen] = service.requests("/orders/1")
    assert seen.method == "DELETE" and seen.target == "/orders/1?x=1" and seen.get("Content-Length") is None
    assert seen.get("Authorization") == "Bearer t" and seen.get("X-Business-Ref") == "order-1"
    assert re.fullmatch(r"ord-\d{13}-[0-9a-f]{12}-node07", seen.get("X-Call-Id"))
    trace = seen.get("traceparent").split("-")
    assert trace[1] == "0af7651916cd43dd8448eb211c80319c" and trace[2] != "b7ad6b7169203331"
    assert int(seen.get("X-Call-Budget-Ms")) in range(1, 3001)


def test_the_receipt_is_asked_with_the_same_credential_but_not_elsewhere(home, service, started):
    other = Upstream()
    started.append(other)
    service.script("/orders", Step(then="rst", effect=True))
    flags = ["-H", "Authorization: Bearer t", "-H", "X-Tenant: acme", "--receipt-queries", "1"]
    home.call(service.url + "/orders", "--call-id", "c-1", "--receipt", ASK, *flags)
    [query] = service.queries("c-1")
    assert query.get("Authorization") == "Bearer t" and query.get("X-Tenant") == "acme"
    assert query.get("Content-Type") is None and query.get("X-Call-Id") == "c-1"
    service.script("/other", Step(then="rst", effect=True))
    home.call(service.url + "/other", "--call-id", "c-2", "--receipt", other.url + "/receipts/{call_id}", *flags, key="k2")
    assert other.queries("c-2")[0].get("Authorization") is None


def test_redirects_are_not_followed(home, service):
    service.script("/orders", Step(307, headers={"Location": service.url + "/elsewhere"}, effect=False))
    run = home.call(service.url + "/orders", "--receipt", "none")
    assert run.code == 4 and not service.requests("/elsewhere")


def test_windows_in_a_key(home, service):
    assert home.call(service.url + "/r", key="report:{date}").code == 0
    day = service.posts("/r")[0].get("Idempotency-Key")
    assert re.fullmatch(r"report:20\d\d-\d\d-\d\d", day)
    for bad in ("k:{uuid}", "k:{json.x}", "k:{date"):
        run = home.call(service.url + "/r", key=bad)
        assert run.code == 64 and "--key" in run.err


@pytest.mark.parametrize("arguments, word", [
    (["ftp://127.0.0.1/x"], "http://"), (["http:///x"], "host"), ([], "URL"), (["http://127.0.0.1/x", "--retries", "x"], "number"),
    (["http://127.0.0.1/x", "--deadline", "soon"], "250ms"), (["http://127.0.0.1/x", "-H", "X-Call-Id: 1"], "option"),
    (["http://127.0.0.1/x", "-H", "nocolon"], "Name: value"), (["http://127.0.0.1/x", "--call-id", "a b"], "callId"),
    (["http://127.0.0.1/x", "--key", "two words"], "key"), (["http://127.0.0.1/x y"], "%20"),
    (["http://127.0.0.1/x", "--receipt", "{origin}/r"], "call_id"), (["http://127.0.0.1/x", "--nonsense"], "nonsense"),
    (["GET", "http://127.0.0.1/x", "more"], "URL"), (["http://127.0.0.1/x", "-H", "X: a\rb"], "control")])
def test_usage(home, arguments, word):
    run = home.run("call", *arguments)
    assert run.code == 64 and word in run.err and run.out == b""


def test_help_and_the_lists_of_commands(home):
    for command in ("call", "calls"):
        run = home.run("help", command)
        assert run.code == 0 and b"usage: samekey " + command.encode() in run.out
    for bad in (["calls", "nonsense"], ["calls", "show"], ["calls", "list", "x"], ["calls", "--format", "xml"]):
        assert home.run(*bad).code == 64


def test_a_result_that_cannot_be_written_is_told_apart_from_one_not_sent(home, service, tmp_path):
    with open("/dev/full", "wb") as full:
        run = subprocess.run([BIN, "call",
                              service.url + "/orders", "--key", "k", "--no-journal"], stdout=full, stderr=subprocess.PIPE,
                             env=home.env, check=False)
    assert run.returncode == 73 and b"ended SUCCESS" in run.stderr
    assert home.run("call", service.url + "/o", "--key", "k2", "-o", tmp_path / "no" / "such").code == 73
    assert not service.posts("/o")


def test_a_long_answer_is_complete_even_where_it_is_not_kept(home, service):
    service.script("/big", Step(200, b"x" * (17 << 20), {"Content-Type": "text/plain"}))
    run = home.call(service.url + "/big", "--attempt-timeout", "20s")
    assert run.code == 0 and run.json["result"]["body"] is None and "too long" in run.err
