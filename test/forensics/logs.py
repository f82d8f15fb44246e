# SPDX-License-Identifier: MIT
"""Running `samekey diagnose` and `samekey reconcile` for the tests, and a small maker of logs."""
import datetime
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMEKEY = os.environ.get("SAMEKEY_BIN", str(ROOT / "build" / "samekey"))
START = datetime.datetime(2026, 3, 1, 9, 0, 0, tzinfo=datetime.timezone.utc)


def run(*arguments, stdin=None, cwd=None):
    """The finished process; its output as bytes."""
    environment = {name: value for name, value in os.environ.items() if name != "TZ"}
    return subprocess.run([SAMEKEY, *map(str, arguments)], input=stdin, capture_output=True, cwd=cwd, timeout=300,
                          env=environment)


def diagnose(*arguments, stdin=None, cwd=None, expect=None):
    """The JSON document of a run, and its exit code."""
    done = run("diagnose", "--format", "json", *arguments, stdin=stdin, cwd=cwd)
    assert done.returncode in (0, 1, 2, 3), (done.returncode, done.stderr.decode())
    if expect is not None:
        assert done.returncode == expect, (done.returncode, done.stdout.decode()[-2000:], done.stderr.decode())
    return json.loads(done.stdout), done.returncode


def labels(document):
    return {key["key"]: (key["posts"], key["label"]) for key in document["keys"]}


def codes(document):
    return sorted({finding["code"] for finding in document["findings"]})


def at(seconds):
    """An RFC 3339 time so many seconds after the start."""
    return (START + datetime.timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_jsonl(path, events):
    """Events are dictionaries; `t` in seconds becomes `ts`."""
    with open(path, "w", encoding="utf-8") as out:
        for event in events:
            event = dict(event)
            if "t" in event:
                event = {"ts": at(event.pop("t")), **event}
            out.write(json.dumps(event) + "\n")
    return path
