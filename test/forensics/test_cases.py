# SPDX-License-Identifier: MIT
"""Two logs with known answers: one with lines shipped twice, executions logged twice and two operations that really ran
twice; one where seven requests came again for seven different reasons."""
import html
import json
import pathlib
import random
import re

import pytest
from logs import diagnose, run, write_jsonl
from test_steps import post

HERE = pathlib.Path(__file__).parent
EXPECTED_25 = json.loads((HERE / "case25" / "expected.json").read_text())
EXPECTED_27 = json.loads((HERE / "case27" / "expected.json").read_text())
LABELS = {"declared-retry": "declared-retry", "hidden-retry-after-timeout": "hidden-retry",
          "hidden-resend-on-dead-connection": "connection-resend", "proxy-failover": "proxy-failover",
          "new-call-for-same-intention": "new-call", "double-dispatch": "double-dispatch", "single": "single"}


def check_25(document):
    assert document["lines"] == {"read": EXPECTED_25["lines"], "unreadable": 0,
                                 "shipped_twice": EXPECTED_25["lines_shipped_twice"]}
    assert document["events"] == EXPECTED_25["distinct_events"]
    assert document["business_keys"] == EXPECTED_25["business_keys"]
    assert document["call_ids"] == EXPECTED_25["callIds"]
    assert document["replays"] == EXPECTED_25["replays"]
    assert [(run["key"], run["call_ids"], run["exec_ids"], run["cause"]) for run in document["double_runs"]] == [
        (run["bizKey"], run["callIds"], run["execIds"], run["why"]) for run in EXPECTED_25["double_runs"]]
    verdicts = {call["call_id"]: call["verdict"] for call in document["calls"]}
    assert [call for call, verdict in verdicts.items() if verdict == "UNKNOWN"] == EXPECTED_25["unknown_calls"]
    assert verdicts["c-2507"] == "SUCCESS"
    notes = {call["call_id"]: call["notes"] for call in document["calls"]}
    assert "shipped twice" in notes["c-2504"] and "shipped twice" in notes["c-2505"]
    assert "logged more than once" in notes["c-2506"]
    assert "3 replays" in notes["c-2509"] and "rolled back" in notes["c-2510"]


def named(document, path):
    """The text of every line a double run names."""
    lines = pathlib.Path(path).read_text().splitlines()
    return {run["key"]: [json.loads(lines[int(place.rsplit(":", 1)[1]) - 1]) for place in run["lines"]]
            for run in document["double_runs"]}


def test_ran_twice_or_logged_twice():
    document, code = diagnose(HERE / "case25" / "log.jsonl")
    assert code == 1
    check_25(document)
    shown = named(document, HERE / "case25" / "log.jsonl")
    for run in EXPECTED_25["double_runs"]:
        events = shown[run["bizKey"]]
        assert {event.get("execId") for event in events} - {None} == set(run["execIds"])
        assert {event["bizKey"] for event in events} == {run["bizKey"]}
        assert "attempt.timeout" in [event["event"] for event in events]


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_lines_and_any_cut(tmp_path, seed):
    """Shuffled, and cut in two or more files read in any order: the same result."""
    chance = random.Random(seed)
    lines = (HERE / "case25" / "log.jsonl").read_text().splitlines(keepends=True)
    chance.shuffle(lines)
    cuts = sorted(chance.sample(range(1, len(lines)), seed % 4))
    files = []
    for i, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(lines)])):
        files.append(tmp_path / f"part{i}.jsonl")
        files[-1].write_text("".join(lines[begin:end]))
    chance.shuffle(files)
    document, code = diagnose(*files)
    assert code == 1
    check_25(document)


def test_one_file_cut_in_two():
    lines = (HERE / "case25" / "log.jsonl").read_text().splitlines(keepends=True)
    whole, _ = diagnose("-", stdin="".join(lines).encode())
    for cut in (1, 20, 43, 80, 86):
        document, _ = diagnose("-", stdin="".join(lines[cut:] + lines[:cut]).encode())
        for part in ("events", "business_keys", "call_ids", "replays", "calls"):
            assert document[part] == whole[part]


@pytest.mark.parametrize("facts", [False, True])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_which_layer_repeated_it(tmp_path, facts, seed):
    path = HERE / "case27" / "requests.jsonl"
    if seed is not None:
        lines = path.read_text().splitlines(keepends=True)
        random.Random(seed).shuffle(lines)
        path = tmp_path / "shuffled.jsonl"
        path.write_text("".join(lines))
    document, code = diagnose(*(["--facts", HERE / "case27" / "facts.json"] if facts else []), path)
    assert code == 1
    keys = {key["key"]: key for key in document["keys"]}
    wanted = {name: value for name, value in EXPECTED_27.items() if name.startswith("order:")}
    assert set(keys) == set(wanted)
    text = path.read_text().splitlines()
    for name, value in wanted.items():
        key = keys[name]
        assert (key["posts"], key["label"]) == (value["posts"], LABELS[value["label"]]), name
        likely = name in ("order:o-71", "order:o-75") and not facts
        assert key["certainty"] == ("likely" if likely else "certain"), name
        shown = [json.loads(text[int(place.rsplit(":", 1)[1]) - 1]) for place in key["lines"]]
        assert {event["bizKey"] for event in shown} == {name}
        assert sum(event["event"] == "request" for event in shown) == value["posts"], "every POST is named"
    assert keys["order:o-73"]["lawful"] and keys["order:o-77"]["lawful"]
    assert not any(keys[name]["lawful"] for name in keys if name not in ("order:o-73", "order:o-77"))
    assert {finding["key"] for finding in document["findings"]} == set(wanted) - {"order:o-73", "order:o-77"}
    assert all(finding["remedy"] and finding["lines"] for finding in document["findings"])


@pytest.mark.parametrize("seed", range(10))
def test_cut_at_any_byte(tmp_path, seed):
    """Pieces that end and begin in the middle of a line: nothing is lost and nothing is unreadable."""
    chance = random.Random(seed)
    data = (HERE / "case25" / "log.jsonl").read_bytes()
    cuts = sorted(chance.sample(range(300, len(data), 400), 1 + seed % 5))
    files = []
    for i, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(data)])):
        files.append(tmp_path / f"part{i}.jsonl")
        files[-1].write_bytes(data[begin:end])
    chance.shuffle(files)
    document, code = diagnose(*files)
    assert code == 1
    check_25(document)
    lost, code = diagnose(*[file for file in files if file.name != "part0.jsonl"])
    assert code & 1 == 0 or lost["lines"]["unreadable"] <= 1, "a half whose other half is missing is damaged, once"


def test_the_report_is_ordered_by_harm(tmp_path):
    """What cost money comes first, in all three forms; each kind stands once, with its remedy."""
    events = []
    for n in range(40):  # eager callers: a rejection repeated four times, always after the same second
        for attempt in range(1, 6):
            events.append(post(5000 + n * .001 + attempt * 1.1, call=f"e-{n}", key=f"e:{n}", attempt=attempt, ua="eager/1"))
            events.append(dict(t=5000.1 + n * .001 + attempt * 1.1, event="answer", status=422 if n % 2 else 429,
                               callId=f"e-{n}", bizKey=f"e:{n}"))
    log = write_jsonl(tmp_path / "policy.jsonl", events)
    files = [HERE / "case25" / "log.jsonl", log, *sorted((HERE / "case27").glob("*.jsonl"))]
    document, _ = diagnose(*files)
    harm = {finding["remedy"]: finding["harm"] for finding in document["findings"]}
    kinds = {finding["code"] for finding in document["findings"]}
    harms = [finding["harm"] for finding in document["findings"]]
    assert harms == sorted(harms) and len(set(harms)) >= 3, harms
    text = run("diagnose", "--all", *files).stdout.decode()
    told = re.findall(r"^  Remedy: (.*)$", text, re.MULTILINE)
    assert len(told) == len(set(told)) == len(kinds)
    assert [harm[remedy] for remedy in told] == sorted(harm.values())
    short = run("diagnose", *files).stdout.decode()
    assert re.findall(r"^  Remedy: (.*)$", short, re.MULTILINE) == told, "shortening changes no order"
    page = html.unescape(run("diagnose", "--format", "html", *files).stdout.decode())
    places = [page.index(remedy) for remedy in told]
    assert places == sorted(places)
