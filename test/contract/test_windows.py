# SPDX-License-Identifier: MIT
"""Time windows in a key, over midnight: the wall clock of the gateway is moved, all waiting stays real."""

import calendar
import json
import pathlib
import subprocess
import time

import pytest

import support
from support.gateway import Gateway, post
from support.poll import unique
from support.upstream import Step, Upstream

# What is preloaded would take the sanitizers' places in the loader from them.
pytestmark = pytest.mark.no_sanitizer


class Watch:
    """A wall clock that goes on from where it is set."""

    def __init__(self, folder):
        library, self.file = folder / "wallclock.so", folder / "clock"
        source = pathlib.Path(support.__file__).parent / "wallclock.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
        self.env = {"LD_PRELOAD": str(library), "WALLCLOCK": str(self.file)}

    def set(self, when):
        offset = calendar.timegm(time.strptime(when, "%Y-%m-%d %H:%M:%S")) - time.time()
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{round(offset)}\n", encoding="ascii")
        fresh.rename(self.file)


@pytest.fixture
def night(tmp_path, started):
    watch, upstream = Watch(tmp_path), Upstream()
    watch.set("2026-03-01 23:59:58")
    gateway = Gateway(tmp_path, {
        "daily": {"upstream": [upstream.url], "key": "checkin:{json.user}:{date}", "key_missing": "refuse"},
        "tokyo": {"upstream": [upstream.url], "key": "checkin:{json.user}:{date:+09:00}", "key_missing": "refuse"},
        "hourly": {"upstream": [upstream.url], "key": "poll:{json.user}:{hour}", "key_missing": "refuse"},
        "asked": {"upstream": [upstream.url], "key": "checkin:{json.user}:{date}", "key_missing": "refuse",
                  "receipt": "http GET /receipts/{call_id}"},
    }, env=watch.env)
    started.extend([upstream, gateway])
    return watch, upstream, gateway


def check_in(gateway, route, call_id, user):
    return gateway.send(post(f"/{route}/in", call_id, None, json.dumps({"user": user})))


def test_the_first_attempt_before_midnight_the_retry_after_it(night):
    watch, upstream, gateway = night
    first = check_in(gateway, "daily", "c-1", "ann")
    assert (first.status, first.replayed) == (201, False)
    assert upstream.posts("/daily/in")[0].get("Idempotency-Key") == "checkin:ann:2026-03-01"
    watch.set("2026-03-02 00:00:03")
    # The same call: a replay, no 422 and no second run.
    again = check_in(gateway, "daily", "c-1", "ann")
    assert (again.status, again.body, again.replayed) == (201, first.body, True)
    assert len(upstream.posts("/daily/in")) == 1
    # A new call is a new day's.
    assert not check_in(gateway, "daily", "c-2", "ann").replayed
    assert [p.get("Idempotency-Key") for p in upstream.posts("/daily/in")][1] == "checkin:ann:2026-03-02"
    assert gateway.receipt("c-1").json()["key"] == "checkin:ann:2026-03-01"


def test_an_open_call_keeps_its_window_over_midnight_and_a_restart(night):
    watch, upstream, gateway = night
    upstream.script("/asked/in", Step(then="rst"))
    upstream.answer_receipt("c-3", Step(503, b"", effect=False))
    assert check_in(gateway, "asked", "c-3", "bob").slug == "outcome-unknown"
    watch.set("2026-03-02 00:00:03")
    gateway.restart()
    upstream.script("/asked/in", Step(201, b"done"))
    upstream.answer_receipt("c-3", Step(404, json.dumps({"call_id": "c-3", "state": "NOT_RECEIVED"}), effect=False))
    assert check_in(gateway, "asked", "c-3", "bob").body == b"done"
    assert {p.get("Idempotency-Key") for p in upstream.posts("/asked/in")} == {"checkin:bob:2026-03-01"}


def test_the_offset_of_a_window_counts(night):
    watch, upstream, gateway = night
    check_in(gateway, "tokyo", "c-4", "eve")
    check_in(gateway, "hourly", "c-5", "eve")
    assert upstream.posts("/tokyo/in")[0].get("Idempotency-Key") == "checkin:eve:2026-03-02"
    assert "2026-03-01" in upstream.posts("/hourly/in")[0].get("Idempotency-Key")
    watch.set("2026-03-02 00:00:03")
    # Past midnight in UTC, the same day in Tokyo; another hour.
    assert check_in(gateway, "tokyo", "c-6", "eve").get("X-Original-Call-Id") == "c-4"
    assert not check_in(gateway, "hourly", "c-7", "eve").replayed


def test_within_a_window_a_second_call_is_the_same_operation(night):
    watch, upstream, gateway = night
    check_in(gateway, "daily", "c-8", "kim")
    again = check_in(gateway, "daily", "c-9", "kim")
    assert again.replayed and again.get("X-Original-Call-Id") == "c-8" and len(upstream.posts("/daily/in")) == 1
    assert check_in(gateway, "daily", unique("c"), "lee").replayed is False
