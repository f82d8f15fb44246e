# SPDX-License-Identifier: MIT
"""Traces: spans of calls as OTLP JSON, in a file and at a collector, with the ids that the upstream really saw; and the
ids in every log line about a call."""

import http.server
import json
import os
import re
import threading
import time

import pytest

from support.gateway import Gateway
from support.poll import free_port, until
from support.upstream import Step, Upstream, receipt

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{CALLER}-01"
NOT_SAMPLED = f"00-{TRACE}-{CALLER}-00"
ROUTE = {"receipt": "http GET /receipts/{call_id}", "callee_idempotent": "true"}


class Collector(http.server.ThreadingHTTPServer):
    """Takes what a collector takes, keeps it, and answers as it is told."""

    daemon_threads = True

    def __init__(self, port=0):
        self.taken, self.answers, self.gate = [], [], threading.Event()
        self.gate.set()
        super().__init__(("127.0.0.1", port), type("Handler", (_Handler,), {}))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    def spans(self):
        return [span for request in list(self.taken) for span in spans_of(request["document"])]

    def stop(self):
        self.gate.set()
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.gate.wait(30)
        status, answer = self.server.answers.pop(0) if self.server.answers else (200, b"{}")
        if status == 200:
            self.server.taken.append({"path": self.path, "headers": dict(self.headers), "document": json.loads(body)})
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def spans_of(document):
    assert list(document) == ["resourceSpans"]
    for resource in document["resourceSpans"]:
        about = values(resource["resource"]["attributes"])
        assert about["service.name"] == "samekey" and about["service.instance.id"] == "node07"
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and re.fullmatch("[0-9a-f]{16}", span["spanId"])
                assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
                assert abs(int(span["endTimeUnixNano"]) / 1e9 - time.time()) < 120
                yield {**span, "about": values(span["attributes"])}


def values(attributes):
    found = {}
    for one in attributes:
        (kind, what), = one["value"].items()
        assert one["key"] not in found
        found[one["key"]] = int(what) if kind == "intValue" else what
    return found


def in_file(path):
    """Spans of the file, whole lines only."""
    if not os.path.exists(path):
        return []
    text = path.read_text()
    assert not text or text.endswith("\n")
    return [span for line in text.splitlines() for span in spans_of(json.loads(line))]


def named(spans, name):
    return [s for s in spans if s["name"] == name]


@pytest.fixture
def upstream(started):
    up = Upstream()
    started.append(up)
    return up


def gateway(tmp_path, started, upstream, **top):
    gw = Gateway(tmp_path / "gw", {"orders": {"upstream": [upstream.url], **ROUTE}}, **top)
    started.append(gw)
    return gw


def lost_then_found(upstream, path="/orders/1"):
    """The first attempt is lost, its receipt says it never came, the second is answered."""
    upstream.script(path, Step(then="hang", effect=False), Step(201))
    upstream.answer_receipt("t-1", receipt("NOT_RECEIVED", "t-1"))


def check_the_story(spans, upstream):
    call, = named(spans, "call orders")
    attempts = sorted(named(spans, "attempt orders"), key=lambda s: s["about"]["samekey.attempt"])
    question, = named(spans, "receipt orders")
    assert {s["traceId"] for s in spans} == {TRACE}
    assert call["parentSpanId"] == CALLER and call["kind"] == 2 and "status" not in call
    assert call["about"]["samekey.call_id"] == "t-1" and call["about"]["samekey.key"] == "k-1"
    assert call["about"]["samekey.state"] == "SUCCESS" and call["about"]["samekey.attempts"] == 2
    assert [a["about"]["samekey.outcome"] for a in attempts] == ["unknown", "success"]
    assert attempts[0]["status"]["code"] == 2 and "no reply" in attempts[0]["status"]["message"]
    assert "status" not in attempts[1] and attempts[1]["about"]["http.response.status_code"] == 201
    assert all(a["parentSpanId"] == call["spanId"] and a["kind"] == 3 for a in [*attempts, question])
    assert question["about"]["samekey.answer"] == "not_received"
    # The very ids that the upstream saw.
    seen = [s.get("traceparent") for s in upstream.posts("/orders/1")]
    assert seen == [f"00-{TRACE}-{a['spanId']}-01" for a in attempts]
    assert [s.get("traceparent") for s in upstream.queries("t-1")] == [f"00-{TRACE}-{question['spanId']}-01"]
    # One after the other, and all within the call.
    times = [(int(s["startTimeUnixNano"]), int(s["endTimeUnixNano"])) for s in (attempts[0], question, attempts[1])]
    assert times[0][1] <= times[1][0] + 1e6 and times[1][1] <= times[2][0] + 1e6
    assert int(call["startTimeUnixNano"]) <= times[0][0] and times[2][1] <= int(call["endTimeUnixNano"])


def test_a_call_in_the_file_is_what_the_upstream_saw(tmp_path, started, upstream):
    path = tmp_path / "traces.jsonl"
    gw = gateway(tmp_path, started, upstream, trace=f"file:{path}")
    lost_then_found(upstream)
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "t-1", "Idempotency-Key": "k-1", "traceparent": SAMPLED}).status == 201
    spans = until(lambda: named(in_file(path), "call orders") and in_file(path))
    check_the_story(spans, upstream)
    # A repeat is answered from the store: a span that says so, and no attempt.
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "t-1", "Idempotency-Key": "k-1", "traceparent": SAMPLED}).status == 201
    replay, = until(lambda: named(in_file(path), "answer orders"))
    assert replay["parentSpanId"] == CALLER and replay["about"]["samekey.outcome"] == "success"
    assert len(in_file(path)) == len(spans) + 1
    assert until(lambda: gw.metric("samekey_trace_spans_total") == len(spans) + 1)
    assert gw.metric("samekey_trace_spans_dropped_total") == 0
    assert oct(path.stat().st_mode & 0o777) == "0o640"


def test_a_call_at_a_collector(tmp_path, started, upstream):
    collector = Collector()
    started.append(collector)
    gw = gateway(tmp_path, started, upstream, trace=collector.url, trace_header=["Authorization: Bearer sesame"])
    lost_then_found(upstream)
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "t-1", "Idempotency-Key": "k-1", "traceparent": SAMPLED}).status == 201
    check_the_story(until(lambda: named(collector.spans(), "call orders") and collector.spans()), upstream)
    request = collector.taken[0]
    assert request["path"] == "/v1/traces" and request["headers"]["Content-Type"] == "application/json"
    assert request["headers"]["Authorization"] == "Bearer sesame"


def test_a_call_that_came_without_a_trace_begins_one(tmp_path, started, upstream):
    path = tmp_path / "traces.jsonl"
    gw = gateway(tmp_path, started, upstream, trace=f"file:{path}")
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "t-2", "Idempotency-Key": "k-2"}).status == 201
    call, = until(lambda: named(in_file(path), "call orders"))
    attempt, = named(in_file(path), "attempt orders")
    assert "parentSpanId" not in call and attempt["parentSpanId"] == call["spanId"]
    sent, = upstream.posts("/orders/1")
    assert sent.get("traceparent")[:-3] == f"00-{call['traceId']}-{attempt['spanId']}"
    assert gw.receipt("t-2").json()["trace_id"] == call["traceId"]


def test_a_trace_that_is_not_sampled_is_passed_on_and_not_written(tmp_path, started, upstream):
    path = tmp_path / "traces.jsonl"
    gw = gateway(tmp_path, started, upstream, trace=f"file:{path}")
    ids = {"Idempotency-Key": "k-3", "X-Call-Id": "t-3"}
    assert gw.ask("POST", "/orders/1", {**ids, "traceparent": NOT_SAMPLED}).status == 201
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "t-4", "Idempotency-Key": "k-4", "traceparent": SAMPLED}).status == 201
    call, = until(lambda: named(in_file(path), "call orders"))
    assert call["about"]["samekey.call_id"] == "t-4"
    assert upstream.posts("/orders/1")[0].get("traceparent").startswith(f"00-{TRACE}-")
    assert upstream.posts("/orders/1")[0].get("traceparent").endswith("-00")


def test_without_the_setting_nothing_is_traced_and_the_trace_goes_on(tmp_path, started, upstream):
    gw = gateway(tmp_path, started, upstream)
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "t-5", "Idempotency-Key": "k-5", "traceparent": SAMPLED}).status == 201
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "t-6", "Idempotency-Key": "k-6"}).status == 201
    traced, untraced = upstream.posts("/orders/1")
    assert re.fullmatch(f"00-{TRACE}-(?!{CALLER})[0-9a-f]{{16}}-01", traced.get("traceparent"))
    assert untraced.get("traceparent") is None
    assert gw.metric("samekey_trace_spans_total") == 0


def test_a_round_hangs_under_the_call_it_settles(tmp_path, started, upstream):
    path = tmp_path / "traces.jsonl"
    gw = Gateway(tmp_path / "gw", {"orders": {"upstream": [upstream.url], **ROUTE, "deadline": "3s", "retries": 0,
                                              "round_gap": "1s", "receipt_queries": 1}}, trace=f"file:{path}")
    started.append(gw)
    upstream.script("/orders/1", Step(then="hang", effect=False))
    answers = [Step(503, b"", effect=False)]
    upstream.answer_receipt("t-7", lambda _: answers[-1])
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "t-7", "Idempotency-Key": "k-7", "traceparent": SAMPLED}).status == 504
    call, = until(lambda: named(in_file(path), "call orders"))
    assert call["about"]["samekey.state"] == "UNKNOWN" and call["status"]["code"] == 2
    answers.append(receipt("SUCCESS", "t-7"))
    assert until(lambda: gw.state("t-7") == "SUCCESS", 30)
    told = until(lambda: [s for s in named(in_file(path), "receipt orders") if s["about"]["samekey.answer"] == "success"])
    assert {(s["traceId"], s["parentSpanId"]) for s in told} == {(TRACE, call["spanId"])}


def test_a_reversal_hangs_under_the_call_it_undoes(tmp_path, started, upstream):
    path = tmp_path / "traces.jsonl"
    gw = Gateway(tmp_path / "gw", {"orders": {"upstream": [upstream.url], **ROUTE, "reversal": "POST /orders/1/undo"}},
                 trace=f"file:{path}")
    started.append(gw)
    upstream.script("/orders/1", Step(201))
    upstream.script("/orders/1/undo", Step(200))
    ids = {"X-Call-Id": "t-8", "Idempotency-Key": "k-8", "traceparent": SAMPLED}
    assert gw.ask("POST", "/orders/1", ids).status == 201
    assert gw.cancel("t-8").status == 200
    calls = until(lambda: (found := named(in_file(path), "call orders")) and len(found) == 2 and found, 30)
    call, = [c for c in calls if c["about"]["samekey.call_id"] == "t-8"]
    undo, = [c for c in calls if c is not call]
    assert undo["traceId"] == TRACE and undo["parentSpanId"] == call["spanId"] != undo["spanId"]
    sent, = upstream.posts("/orders/1/undo")
    attempt, = [s for s in named(in_file(path), "attempt orders") if s["parentSpanId"] == undo["spanId"]]
    assert sent.get("traceparent") == f"00-{TRACE}-{attempt['spanId']}-01"


def test_a_collector_that_is_away_costs_spans_and_no_call(tmp_path, started, upstream):
    port = free_port()
    gw = gateway(tmp_path, started, upstream, trace=f"http://127.0.0.1:{port}/v1/traces", trace_buffer_bytes_max="64k")
    for i in range(200):
        assert gw.ask("POST", "/orders/1", {"X-Call-Id": f"a-{i}", "Idempotency-Key": f"a-{i}"}).status == 201
    assert until(lambda: gw.metric("samekey_trace_spans_dropped_total") > 0, 30)
    failed, = [e for e in gw.log if e.get("event") == "trace_failed"]
    assert f"port {port}" in failed["detail"] and failed["spans"] > 0
    # When it is back, what comes from then on is taken.
    collector = Collector(port)
    started.append(collector)
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "back", "Idempotency-Key": "back"}).status == 201
    assert until(lambda: [s for s in collector.spans() if s["about"]["samekey.call_id"] == "back"], 60)
    assert until(lambda: [e for e in gw.log if e.get("event") == "trace_back"])
    assert until(lambda: gw.metric("samekey_trace_spans_total") == len(collector.spans()) > 0)
    assert gw.stop() == 0


def test_a_collector_that_is_silent_holds_up_nothing(tmp_path, started, upstream):
    collector = Collector()
    started.append(collector)
    collector.gate.clear()
    gw = gateway(tmp_path, started, upstream, trace=collector.url)
    began = time.monotonic()
    for i in range(50):
        assert gw.ask("POST", "/orders/1", {"X-Call-Id": f"s-{i}", "Idempotency-Key": f"s-{i}"}).status == 201
    assert gw.stop() == 0
    assert time.monotonic() - began < 15


def test_what_a_collector_refuses_is_counted(tmp_path, started, upstream):
    collector = Collector()
    started.append(collector)
    gw = gateway(tmp_path, started, upstream, trace=collector.url)
    collector.answers = [(400, b"{}")]
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "r-1", "Idempotency-Key": "r-1"}).status == 201
    assert until(lambda: gw.metric("samekey_trace_spans_dropped_total") == 2)
    collector.answers = [(503, b""), (200, b'{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}')]
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "r-2", "Idempotency-Key": "r-2"}).status == 201
    assert until(lambda: gw.metric("samekey_trace_spans_dropped_total") == 3)
    assert gw.metric("samekey_trace_spans_total") == 1
    assert [s["about"]["samekey.call_id"] for s in collector.spans()] == ["r-2", "r-2"]


def test_a_file_that_is_moved_away_is_begun_anew(tmp_path, started, upstream):
    path = tmp_path / "traces.jsonl"
    gw = gateway(tmp_path, started, upstream, trace=f"file:{path}")
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "m-1", "Idempotency-Key": "m-1"}).status == 201
    assert until(lambda: named(in_file(path), "call orders"))
    path.rename(tmp_path / "traces.jsonl.1")
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "m-2", "Idempotency-Key": "m-2"}).status == 201
    assert gw.stop() == 0
    assert [s["about"]["samekey.call_id"] for s in in_file(path)] == ["m-2", "m-2"]
    assert [s["about"]["samekey.call_id"] for s in in_file(tmp_path / "traces.jsonl.1")] == ["m-1", "m-1"]


def test_a_full_disk_leaves_whole_lines(tmp_path, started, upstream):
    """RLIMIT_FSIZE stands for the full disk: a write goes half way and then fails."""
    path = tmp_path / "traces.jsonl"
    path.write_text("x" * 99_000 + "\n")  # the limit is 100,000 bytes: half a span document has room
    limit = 'import os,resource,signal,sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); '\
            'os.set_inheritable(0, True); os.execvp(sys.argv[1], sys.argv[1:])'
    gw = Gateway(tmp_path / "gw", {"orders": {"upstream": [upstream.url], **ROUTE}}, trace=f"file:{path}", start=False)
    started.append(gw)
    gw.prefix = ["/usr/bin/python3", "-c", limit]
    gw.start()
    import resource
    resource.prlimit(gw.pid, resource.RLIMIT_FSIZE, (100_000, 100_000_000))
    for i in range(3):
        # The store is a file too: it may refuse, which is not what this test is about.
        gw.ask("POST", "/orders/1", {"X-Call-Id": f"f-{i}", "Idempotency-Key": f"f-{i}", "traceparent": SAMPLED})
    assert until(lambda: [e for e in gw.log if e.get("event") == "trace_failed"])
    assert path.read_text() == "x" * 99_000 + "\n"
    resource.prlimit(gw.pid, resource.RLIMIT_FSIZE, (100_000_000, 100_000_000))
    assert until(lambda: path.stat().st_size > 99_001, 60)
    first, *lines = path.read_text().splitlines()
    assert all(json.loads(line) for line in lines)


@pytest.mark.parametrize("target, words", [
    ("file:/no/such/folder/traces.jsonl", "/no/such/folder/traces.jsonl: No such file or directory"),
    ("file:/dev/null", "/dev/null: it is not a regular file"),
    ("traces.jsonl", "file:/PATH or a collector's http://HOST:4318/v1/traces"),
    ("file:traces.jsonl", "file:/PATH"),
])
def test_a_target_that_cannot_be_is_told_at_the_start(tmp_path, started, upstream, target, words):
    gw = Gateway(tmp_path / "gw", {"orders": {"upstream": [upstream.url], **ROUTE}}, trace=target, start=False)
    started.append(gw)
    gw.start(wait=False)
    assert gw.wait() == 78
    assert any(words in line for line in gw.said()), gw.said()


def test_every_log_line_about_a_call_has_its_ids(tmp_path, started, upstream):
    token = tmp_path / "token"
    token.write_text("open-sesame-open-sesame\n")
    gw = Gateway(tmp_path / "gw", {"orders": {"upstream": [upstream.url], **ROUTE, "retries": 1, "wait_in_progress": "200ms",
                                              "receipt_queries": 1, "deadline": "3s", "swapped_keys": "warn"}},
                 log_level="debug", report_token_file=str(token))
    started.append(gw)
    lost_then_found(upstream)
    upstream.script("/orders/2", Step(then="hang", effect=False))
    upstream.answer_receipt("t-2", Step(503, b"", effect=False))
    upstream.script("/orders/3", Step(202))
    upstream.answer_receipt("t-3", receipt("PROCESSING", "t-3"))
    traced = {"traceparent": SAMPLED}
    # Tried again, replayed; never known, and another call for the same key and another key for the same thing; reported,
    # and reported otherwise; refused; given up.
    assert gw.ask("POST", "/orders/1", {**traced, "X-Call-Id": "t-1", "Idempotency-Key": "k-1"}).status == 201
    assert gw.ask("POST", "/orders/1", {**traced, "X-Call-Id": "t-1", "Idempotency-Key": "k-1"}).status == 201
    assert gw.ask("POST", "/orders/2", {**traced, "X-Call-Id": "t-2", "Idempotency-Key": "k-2"}).status == 504
    gw.ask("POST", "/orders/2", {**traced, "X-Call-Id": "t-2b", "Idempotency-Key": "k-2"})
    gw.ask("POST", "/orders/2", {**traced, "X-Call-Id": "t-2c", "Idempotency-Key": "k-2c"})
    assert gw.ask("POST", "/orders/3", {**traced, "X-Call-Id": "t-3", "Idempotency-Key": "k-3"}).status == 202
    gw.ask("POST", "/orders/3", {**traced, "X-Call-Id": "t-3", "Idempotency-Key": "k-3"})
    assert gw.report("t-3", {"state": "SUCCESS"}, "open-sesame-open-sesame").status == 200
    assert gw.report("t-3", {"state": "FAILED"}, "open-sesame-open-sesame").status == 409
    assert gw.ask("POST", "/orders/1", {**traced, "X-Call-Id": "t-1", "Idempotency-Key": "k-other"}).status == 422
    fenced = {**traced, "X-Call-Id": "t-9", "Idempotency-Key": "k-9"}
    assert gw.fence("t-9", body=b'{"route":"orders","key":"k-9"}').status == 200
    assert gw.ask("POST", "/orders/1", fenced).status == 409
    wanted = {"answered", "attempt_ended", "call_ended", "receipt_asked", "joined", "suspected_duplicate", "fenced",
              "reported", "report_contradicts"}
    until(lambda: not wanted - {e["event"] for e in list(gw.log) if e.get("call_id")}, 10)
    about = [e for e in list(gw.log) if e.get("call_id")]
    for entry in about:
        assert {"key", "route", "trace_id"} <= set(entry), entry["_line"]
        # A fence that came before its call knows no trace.
        assert entry["trace_id"] == TRACE or entry["event"] == "fenced", entry["_line"]
        assert entry["key"], entry["_line"]
