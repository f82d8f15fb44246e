# SPDX-License-Identifier: MIT
"""One story in every format the reader knows: a call timed out after 3 s, was sent again without asking for a receipt and
took effect twice; another went through at once. However it is written, packed, cut or damaged, the finding is the same."""
import gzip
import json
import random
import subprocess

import pytest
from logs import START, at, diagnose, labels, run, write_jsonl

STORY = [
    dict(t=0.000, event="attempt.sent", call_id="c-1", key="k-1", attempt=1, node="gw"),
    dict(t=3.000, event="attempt.timeout", call_id="c-1", key="k-1", attempt=1, node="gw"),
    dict(t=3.500, event="attempt.sent", call_id="c-1", key="k-1", attempt=2, node="gw"),
    dict(t=3.540, event="effect.committed", call_id="c-1", key="k-1", exec_id="x-2", node="svc"),
    dict(t=3.560, event="attempt.answered", call_id="c-1", key="k-1", attempt=2, status=201, node="gw"),
    dict(t=4.000, event="effect.committed", call_id="c-1", key="k-1", exec_id="x-1", node="svc"),
    dict(t=5.000, event="attempt.sent", call_id="c-2", key="k-2", attempt=1, node="gw"),
    dict(t=5.040, event="effect.committed", call_id="c-2", key="k-2", exec_id="x-3", node="svc"),
    dict(t=5.060, event="attempt.answered", call_id="c-2", key="k-2", attempt=1, status=201, node="gw"),
]


def check(document, events=len(STORY)):
    assert document["events"] == events
    assert [(r["key"], r["exec_ids"]) for r in document["double_runs"]] == [("k-1", ["x-1", "x-2"])]
    assert "after a timeout with no receipt query" in document["double_runs"][0]["cause"]
    assert labels(document) == {"k-1": (2, "declared-retry"), "k-2": (1, "single")}


def rows(style):
    for event in STORY:
        event = dict(event)
        yield style(event.pop("t")), event


def logfmt(time, event):
    return f'time={time} level=info event={event.pop("event")} ' + " ".join(f"{k}={v}" for k, v in event.items())


def spoken(time, event):
    return f'{time} INFO orders {event.pop("event")}: ' + ", ".join(f'{k}="{v}"' for k, v in event.items())


def prefixed(time, event):
    return f'{time} [INFO] orders {json.dumps(event)}'


def csv(time, event):
    columns = ("event", "call_id", "key", "exec_id", "attempt", "status", "node")
    return ";".join([time, *(f'"{event[c]}"' if c == "key" else str(event.get(c, "")) for c in columns)])


@pytest.mark.parametrize("writer", [logfmt, spoken, prefixed, csv])
def test_text_formats(tmp_path, writer):
    lines = [writer(time, event) for time, event in rows(at)]
    if writer is csv:
        lines.insert(0, "Time;Event;X-Call-Id;Idempotency-Key;exec_id;attempt;status;node")
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    check(diagnose(tmp_path / "a.log", expect=1)[0])


def test_a_pattern_for_any_line(tmp_path):
    lines = [f'<{time}> {e["node"]} did {e["event"]} of call {e["call_id"]}/{e["key"]} try {e.get("attempt", "-")} run '
             f'{e.get("exec_id", "-")} got {e.get("status", "-")}' for time, e in rows(at)]
    (tmp_path / "a.log").write_text("\n".join(lines) + "\nsomething else\n")
    pattern = (r"^<(?<time>[^>]+)> (?<node>\S+) did (?<event>\S+) of call (?<call_id>[^/]+)/(?<key>\S+) try (?<attempt>\S+)"
               r" run (?<exec_id>\S+) got (?<status>\S+)$")
    document, code = diagnose("--pattern", pattern, tmp_path / "a.log", expect=3)
    check(document)
    assert document["lines"]["unreadable"] == 1 and document["files"][0]["unreadable_lines"] == [10]


def test_a_wrong_pattern_is_told(tmp_path):
    (tmp_path / "a.log").write_text("x\n")
    done = run("diagnose", "--pattern", "(?<time>", tmp_path / "a.log")
    assert done.returncode == 64 and b"at character" in done.stderr
    done = run("diagnose", "--pattern", "(?<colour>.)", tmp_path / "a.log")
    assert done.returncode == 64 and b"no named group is a field" in done.stderr
    bad = run("diagnose", "--pattern", "^(a+)+(?<call_id>b)$", "-", stdin=b"a" * 60 + b"\n")
    assert bad.returncode == 2, "a pattern that never ends costs its line and not the run"


@pytest.mark.parametrize("style", [
    lambda t: at(t).replace("T", " ").replace("Z", "+00:00"),
    lambda t: at(t).replace("T", " ").replace(".", ",").replace("Z", " +0000"),
    lambda t: (START.timestamp() + t),
    lambda t: int((START.timestamp() + t) * 1000),
    lambda t: str(int(round((START.timestamp() + t) * 1e6))),
    lambda t: int(round((START.timestamp() + t) * 1e6)) * 1000,
    lambda t: at(t + 7200).replace("Z", "+02:00"),
    lambda t: at(t - 19800).replace("Z", "-05:30"),
], ids=["space", "comma", "epoch-s", "epoch-ms", "epoch-us", "epoch-ns", "east", "west"])
def test_times(tmp_path, style):
    events = [{"time": time, **event} for time, event in rows(style)]
    document, _ = diagnose(write_jsonl(tmp_path / "a.jsonl", events), expect=1)
    check(document)
    assert all(source["clock_offset_s"] == 0 for source in document["sources"])


def test_local_times_need_their_zone(tmp_path):
    """The service logs local time of Berlin; the gateway UTC. Without --tz the order is found by the messages or not at
    all; with it, it is right."""
    gateway = [{"ts": time, **event} for time, event in rows(at) if event["node"] == "gw"]
    service = [{"ts": time, **event} for time, event in rows(lambda t: at(t + 3600).rstrip("Z")) if event["node"] == "svc"]
    a, b = write_jsonl(tmp_path / "gw.jsonl", gateway), write_jsonl(tmp_path / "svc.jsonl", service)
    for zone in ("Europe/Berlin", "+01:00"):
        document, _ = diagnose("--tz", f"svc.jsonl={zone}", a, b, expect=1)
        check(document)
        assert [s["clock_offset_s"] for s in document["sources"]] == [0, 0]
    document, _ = diagnose(a, b, expect=1)
    offset = {s["file"]: s["clock_offset_s"] for s in document["sources"]}
    assert abs(offset[str(b)] - 3600) < 0.1, "c-2 was sent, ran and was answered: its effect lies between"
    lonely, _ = diagnose(a, write_jsonl(tmp_path / "other.jsonl", [{"ts": "2026-03-01 10:00:00.100", "event": "commit",
                                                                   "call_id": "c-9", "key": "k-9", "node": "far"}]))
    assert [s.get("clock") for s in lonely["sources"]] == [None, "cannot be placed"]
    assert run("diagnose", "--tz", "svc.jsonl=Mars/Olympus", a, b).returncode == 64
    assert run("diagnose", "--tz", "nothere=UTC", a, b).returncode == 64


@pytest.mark.parametrize("skew", [-40.0, -2.5, 0, 0.01, 2.5, 300.0])
def test_clock_offsets_from_messages(tmp_path, skew):
    events = []
    for i in range(20):
        call = dict(call_id=f"c-{i}", key=f"k-{i}")
        events += [dict(t=i, event="attempt.sent", node="gw", attempt=1, **call),
                   dict(t=i + 0.02 + skew, event="effect.committed", node="svc", exec_id=f"x-{i}", **call),
                   dict(t=i + 0.06, event="attempt.answered", node="gw", status=201, attempt=1, **call)]
    document, _ = diagnose(write_jsonl(tmp_path / "a.jsonl", events), expect=0)
    found = {source["node"]: source["clock_offset_s"] for source in document["sources"]}
    assert found["gw"] == 0 and abs(found["svc"] - skew) <= 0.04


def test_a_clock_that_jumped_cannot_be_placed(tmp_path):
    events = []
    for i in range(20):
        call = dict(call_id=f"c-{i}", key=f"k-{i}")
        events += [dict(t=i, event="attempt.sent", node="gw", attempt=1, **call),
                   dict(t=i + 0.02 + (30 if i % 2 else -30), event="effect.committed", node="svc", exec_id=f"x-{i}", **call),
                   dict(t=i + 0.06, event="attempt.answered", node="gw", status=201, attempt=1, **call)]
    document, _ = diagnose(write_jsonl(tmp_path / "a.jsonl", events))
    assert {s["node"]: s["clock_offset_s"] for s in document["sources"]} == {"gw": 0, "svc": None}
    assert document["double_runs"] == []


def test_packed_and_piped(tmp_path):
    plain = write_jsonl(tmp_path / "a.jsonl", STORY).read_bytes()
    packed = gzip.compress(plain[:400]) + gzip.compress(plain[400:])  # two members, cut in a line
    (tmp_path / "a.gz").write_bytes(packed)
    check(diagnose(tmp_path / "a.gz", expect=1)[0])
    zstd = subprocess.run(["zstd", "-q", "-c"], input=plain, capture_output=True)
    if zstd.returncode == 0:
        (tmp_path / "a.zst").write_bytes(zstd.stdout)
        check(diagnose(tmp_path / "a.zst", expect=1)[0])
    check(diagnose("-", stdin=packed, expect=1)[0])
    check(diagnose("-", stdin=plain, expect=1)[0])
    (tmp_path / "cut.gz").write_bytes(gzip.compress(plain * 50)[:-30])
    done = run("diagnose", tmp_path / "cut.gz")
    assert done.returncode & 2 and b"compressed file is cut" in done.stderr


def test_names_are_guessed_shown_and_mapped(tmp_path):
    strange = {"call_id": "cid", "key": "wanted", "exec_id": "tx", "event": "happened", "node": "box"}
    events = []
    for event in STORY:
        out = {"t": event["t"], "req": {}}
        for name, value in event.items():
            if name in ("call_id", "attempt"):
                out["req"][strange.get(name, name)] = value
            elif name != "t":
                out[strange.get(name, name)] = value
        events.append(out)
    path = write_jsonl(tmp_path / "a.jsonl", events)
    blind, _ = diagnose(path)
    assert blind["double_runs"] == []
    maps = ["--map", "call_id=req.cid", "--map", "key=wanted", "--map", "exec_id=tx", "--map", "event=happened", "--map",
            "node=box"]
    document, _ = diagnose(*maps, path, expect=1)
    check(document)
    assert document["files"][0]["fields"]["call_id"] == "req.cid"
    assert b"call_id=req.cid" in run("diagnose", *maps, path).stdout
    assert run("diagnose", "--map", "colour=x", path).returncode == 64


def test_damaged_lines_are_counted_named_and_never_fatal(tmp_path):
    lines = [json.dumps({"ts": at(e["t"]), **{k: v for k, v in e.items() if k != "t"}}).encode() for e in STORY]
    half = json.dumps({"ts": at(6), "event": "attempt.sent", "call_id": "c-2", "key": "k-2", "note": "x" * 50}).encode()[:90]
    bad = b'{"ts": "' + at(6).encode() + b'", "call_id": "c-2", "key": "k-2", "who": "M\xfcller"}'
    noise = bytes(random.Random(5).randrange(1, 256) for _ in range(400)).replace(b"\n", b"?")
    data = lines[:3] + [half, b"", b"{}}", noise] + lines[3:] + [bad, b'{"ts"']
    (tmp_path / "a.jsonl").write_bytes(b"\r\n".join(data))
    document, code = diagnose(tmp_path / "a.jsonl", expect=3)
    check(document)
    assert document["lines"]["unreadable"] == 5
    assert document["files"][0]["unreadable_lines"] == [4, 6, 7, 14, 15]
    notes = {call["call_id"]: call["notes"] for call in document["calls"]}
    assert "could not be read" in notes["c-2"] and "could not be read" not in notes["c-1"]


def test_escapes_and_nesting(tmp_path):
    text = r'{"ts":"%s","event":"commit","call_id":"c\u002d1","key":"k\/\"1\"","exec_id":"x-1","deep":{"a":[{"b":"}]"}]}}'
    (tmp_path / "a.jsonl").write_text(text % at(0) + "\n")
    document, _ = diagnose(tmp_path / "a.jsonl", expect=0)
    assert [(c["call_id"], c["key"]) for c in document["calls"]] == [("c-1", 'k/"1"')]


def test_lines_without_an_origin_shipped_twice(tmp_path):
    """The same bytes at the same millisecond are one line; the same bytes within one second may be two."""
    line = dict(t=0, event="effect.committed", call_id="c-1", key="k-1", exec_id="x-1")
    document, _ = diagnose(write_jsonl(tmp_path / "a", [line, line]), write_jsonl(tmp_path / "b", [line]))
    assert document["lines"]["shipped_twice"] == 2 and document["events"] == 1
    added = {**line, "ingested_at": at(99)}
    document, _ = diagnose(write_jsonl(tmp_path / "a", [line, added]))
    assert document["lines"]["shipped_twice"] == 1
    coarse = dict(ts="2026-03-01T09:00:00Z", method="POST", status=201, call_id="c-1", key="k-1")
    document, _ = diagnose(write_jsonl(tmp_path / "a", [coarse, coarse]))
    assert document["lines"]["shipped_twice"] == 0


COMBINED = '{peer} - - [01/Mar/2026:{time} +0000] "POST /orders HTTP/1.1" {status} 12 "-" "curl/7.88.1"{more}'


def test_access_log_with_ids(tmp_path):
    more = ' call_id="c-1" key="k-1" rt={}'
    (tmp_path / "access.log").write_text("\n".join([
        COMBINED.format(peer="10.0.0.9", time="10:00:03", status=504, more=more.format("3.000")),
        COMBINED.format(peer="10.0.0.9", time="10:00:05", status=201, more=more.format("0.100"))]) + "\n")
    document, _ = diagnose(tmp_path / "access.log", expect=1)
    assert labels(document) == {"k-1": (2, "hidden-retry")}
    assert "1.9 s after" not in document["keys"][0]["evidence"], "the gap is between beginnings"
    assert "4.9 s after" in document["keys"][0]["evidence"]


def test_access_log_without_ids(tmp_path):
    """Only who asked for what: two orders of one client are two orders, unless the first one's ending was not clear."""
    fine = [COMBINED.format(peer="10.0.0.9", time=f"10:00:{i:02}", status=201, more="") for i in range(20)]
    (tmp_path / "fine.log").write_text("\n".join(fine) + "\n")
    assert diagnose(tmp_path / "fine.log", expect=0)[0]["keys"] == []
    odd = [COMBINED.format(peer="10.0.0.9", time="10:00:03", status=504, more=""),
           COMBINED.format(peer="10.0.0.9", time="10:00:05", status=201, more="")]
    (tmp_path / "odd.log").write_text("\n".join(odd) + "\n")
    document, _ = diagnose(tmp_path / "odd.log", expect=1)
    assert [(k["label"], k["certainty"]) for k in document["keys"]] == [("hidden-retry", "likely")]


@pytest.mark.parametrize("inner", ["json", "pairs"])
@pytest.mark.parametrize("wrapper", ["docker", "journal", "cri"])
def test_lines_within_lines(tmp_path, wrapper, inner):
    """What Docker's json-file driver, journalctl -o json and containerd make of a program's lines: read as the lines they
    were, with what only the wrapper knows."""
    lines = []
    for n, second in enumerate((0, 1, 4, 5)):
        event = dict(ts=f"2026-03-01T10:00:0{second}.000Z", msg="request" if n % 2 == 0 else "effect.committed", call_id="c-1", key="k-1")
        event.update(dict(method="POST") if n % 2 == 0 else dict(exec_id=f"x-{n}"))
        text = json.dumps(event) if inner == "json" else \
            f"{event['ts']} {event['msg']} " + " ".join(f"{k}={v}" for k, v in event.items() if k not in ("ts", "msg"))
        if wrapper == "docker":
            lines.append(json.dumps(dict(log=text + "\n", stream="stdout", time=event["ts"])))
        elif wrapper == "journal":
            lines.append(json.dumps({"__REALTIME_TIMESTAMP": str(1772359200000000 + second * 1000000), "_HOSTNAME": "shop-1",
                                     "_PID": "7", "MESSAGE": text.replace(event["ts"] + " ", "")}))
        else:
            lines.append(f"{event['ts']} stdout F {text}")
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    document, _ = diagnose(tmp_path / "a.log", expect=1)
    assert document["lines"]["unreadable"] == 0 and document["files"][0]["without_time"] == 0
    assert [(r["key"], r["exec_ids"]) for r in document["double_runs"]] == [("k-1", ["x-1", "x-3"])]
    assert labels(document) == {"k-1": (2, "hidden-retry")}


def test_an_access_log_in_a_container(tmp_path):
    lines = [COMBINED.format(peer="10.0.0.9", time="10:00:03", status=504, more=""),
             COMBINED.format(peer="10.0.0.9", time="10:00:05", status=201, more="")]
    (tmp_path / "a.log").write_text("".join(json.dumps(dict(log=line + "\n", stream="stdout", time="2026-03-01T10:00:05.5Z")) + "\n"
                                            for line in lines))
    document, _ = diagnose(tmp_path / "a.log", expect=1)
    assert [(k["label"], k["certainty"]) for k in document["keys"]] == [("hidden-retry", "likely")]


def test_an_answer_by_any_name(tmp_path):
    """A status without a request is an answer, whatever the log calls it."""
    (tmp_path / "a.log").write_text("ts=2026-03-01T10:00:00Z msg=\"sending request\" call_id=c-1 key=k-1 attempt=1 method=POST\n"
                                    "ts=2026-03-01T10:00:01Z msg=finished call_id=c-1 key=k-1 status=201\n")
    document, _ = diagnose(tmp_path / "a.log", expect=0)
    assert [c["verdict"] for c in document["calls"]] == ["SUCCESS"]


def test_a_log_that_names_nothing_says_so(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"ts":"2026-03-01T10:00:00Z","note":"all is well","vorgang":"v-1"}\n' * 3)
    done = run("diagnose", tmp_path / "a.jsonl")
    assert done.returncode == 0 and b"--map call_id=NAME" in done.stderr
    told = run("diagnose", "--map", "call_id=vorgang", tmp_path / "a.jsonl")
    assert b"--map" not in told.stderr and b"1 callIds" in told.stdout


def test_haproxy_and_envoy(tmp_path):
    """By hand; HAProxy's own are in test_programs.py. Envoy is no package of Debian's."""
    haproxy = ('Mar  1 10:00:0{s} lb haproxy[7]: 10.0.0.9:4001{s} [01/Mar/2026:10:00:0{s}.123] fe be/s1 0/0/1/69/70 {status} 2750 - -'
               ' ---- 1/1/1/1/0 0/0 "POST /orders HTTP/1.1"')
    (tmp_path / "ha.log").write_text("\n".join(haproxy.format(s=s, status=status) for s, status in ((1, 504), (4, 201))) + "\n")
    document, _ = diagnose("--tz", "ha.log=UTC", tmp_path / "ha.log")
    assert document["events"] == 2 and document["lines"]["unreadable"] == 0
    assert document["files"][0]["format"] == "access log"
    envoy = ('[2026-03-01T10:00:0{s}.000Z] "POST /orders HTTP/1.1" {status} - 12 34 67 66 "10.0.0.9" "sdk/1" "rid-{s}" "api" '
             '"10.1.0.{s}:80"')
    (tmp_path / "envoy.log").write_text("\n".join(envoy.format(s=s, status=status) for s, status in ((1, 503), (4, 201))) + "\n")
    document, _ = diagnose(tmp_path / "envoy.log")
    assert document["events"] == 2 and document["files"][0]["format"] == "access log"


def test_end_times(tmp_path):
    """A log written at the end of each request: with --end-time the beginning is counted back by the duration."""
    events = [dict(t=60.0, method="POST", call_id="c-1", key="k-1", status=504, duration_ms=60000, node="A", conn="1"),
              dict(t=61.0, method="POST", call_id="c-1", key="k-1", status=201, duration_ms=900, node="A", conn="2")]
    path = write_jsonl(tmp_path / "a.jsonl", events)
    document, _ = diagnose("--end-time", "a.jsonl", path, expect=1)
    assert "60.1 s after" in document["keys"][0]["evidence"] and "usual limit of 60 s" in document["keys"][0]["evidence"]


def test_missing_files_and_usage(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", STORY)
    assert run("diagnose", path, tmp_path / "none").returncode == 66
    assert run("diagnose").returncode == 64
    assert run("diagnose", "--format", "xml", path).returncode == 64
    assert run("diagnose", tmp_path).returncode == 66
    (tmp_path / "empty").write_text("")
    assert run("diagnose", tmp_path / "empty").returncode == 0
    assert b"usage" in run("diagnose", "--help").stdout


@pytest.mark.parametrize("memory", ["1m", "2m"])
def test_the_same_from_disk(tmp_path, memory):
    """Beyond --memory the records go through temporary files: the same document, and nothing is left behind."""
    chance = random.Random(3)
    events = []
    for i in range(8000):
        call = dict(call_id=f"c-{i}", bizKey=f"order:{i}") if i % 3 else dict(call_id=f"c-{i}")
        events += [dict(t=i, event="attempt.sent", attempt=1, node="gw", **call),
                   dict(t=i + .1, event="effect.committed", exec_id=f"x-{i}", call_id=f"c-{i}", key=f"k-{i}", node="svc"),
                   dict(t=i + .2, event="attempt.answered", status=201, attempt=1, node="gw", **call)]
        if i % 1000 == 7:
            events.append(dict(t=i + 5, event="effect.committed", exec_id=f"y-{i}", call_id=f"c-{i}", node="svc"))
    chance.shuffle(events)
    path = write_jsonl(tmp_path / "a.jsonl", events)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    whole, _ = diagnose(path, expect=1)
    spilled, _ = diagnose("--memory", memory, "--tmp", scratch, path, expect=1)
    assert whole == spilled
    assert len(whole["double_runs"]) == 8 and whole["call_ids"] == 8000 and whole["business_keys"] == 8000
    assert list(scratch.iterdir()) == []
    refused = run("diagnose", "--memory", memory, "--tmp", tmp_path / "nowhere", path)
    assert refused.returncode == 74 and b"--tmp" in refused.stderr
