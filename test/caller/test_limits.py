# SPDX-License-Identifier: MIT
"""What keeps many callers from hurting a service: the retry budget, the breaker and the places in flight are one user's,
over all his processes, and what a killed process held is free again. The long form is scripts/soak.d/50-caller."""

import os
import signal
import sqlite3
import subprocess
import threading
import time

import pytest

from caller import BODY, Home, outcomes
from support.poll import until
from support.upstream import Step, Upstream, refused_port

CALLS = int(os.environ.get("SAMEKEY_DEAD_SERVER_CALLS", "150"))


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def test_a_dead_server_a_loop_of_calls_and_its_recovery(home, started):
    """A shell loop against a dead server does not retry each call three times; the breaker opens; one probe closes it."""
    port, held = refused_port()
    url, attempts, reasons = f"http://127.0.0.1:{port}/x", 0, []
    began = time.monotonic()
    for number in range(CALLS):
        run = home.call(url, key=f"k{number}")
        assert run.code == 3 and run.json["state"] == "FAILED" and not run.json["final"], run
        attempts += len(run.json["attempts"])
        reasons.append(run.json["reason"])
    took = time.monotonic() - began
    assert attempts <= 1.2 * CALLS + 10 * (took + 1)
    # Far below even that: once the breaker is open a call ends at once as not sent.
    assert reasons.count("breaker_open") > CALLS * 0.8 and attempts < 60, (attempts, reasons[:20])
    assert run.json["elapsed_ms"] < 200 and "Not sent: the breaker of this service is open" in run.err
    assert run.json["next_action"] == "retry_same_call" and 0 < run.json["retry_in_ms"] <= 6000

    held.close()
    service = Upstream(port)
    started.append(service)
    until(lambda: home.call(url, key="again").code == 0, seconds=15, every=0.2)
    assert len(service.posts("/x")) == 1, "one probe, and then it is closed"
    for number in range(20):
        assert home.call(url, key=f"after{number}").code == 0


def test_the_breaker_is_one_for_all_processes_of_a_user_and_one_for_each_origin(home, started):
    port, held = refused_port()
    with held:
        for number in range(6):
            home.call(f"http://127.0.0.1:{port}/x", key=f"k{number}")
        assert home.call(f"http://127.0.0.1:{port}/other", key="z").json["reason"] == "breaker_open"
        service = Upstream()
        started.append(service)
        assert home.call(service.url + "/x", key="elsewhere").code == 0
        # Without the journal each process has counts of its own.
        assert home.call(f"http://127.0.0.1:{port}/x", "--no-journal", "--retries", "0").json["reason"] != "breaker_open"


def test_a_probe_whose_process_is_killed_gives_its_place_back(home, started):
    port, held = refused_port()
    url = f"http://127.0.0.1:{port}/x"
    for number in range(6):
        home.call(url, key=f"k{number}")
    assert home.call(url, key="open").json["reason"] == "breaker_open"
    held.close()
    service = Upstream(port)
    started.append(service)
    service.script("/x", Step(then="hang", effect=True), Step())

    def probe_is_out():
        process = home.start("call", url, "--key", "probe", "--data", BODY, "--attempt-timeout", "30s")
        try:
            process.wait(0.3)
            process.communicate()
            return None
        except subprocess.TimeoutExpired:
            return process
    process = until(probe_is_out, seconds=15)
    until(lambda: service.posts("/x"))
    waiting = home.call(url, key="second")
    assert waiting.json["reason"] == "breaker_open" and "probes it" in waiting.err
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert home.call(url, key="third").code == 0


def test_places_in_flight_of_a_killed_process_are_free_again(home, started, tmp_path):
    """256 attempts at once by default; here the library with a limit of two shows it."""
    pytest.importorskip("ctypes")
    import caller
    import samekey
    if "asan" in caller.LIB or "tsan" in caller.LIB:
        pytest.skip("a sanitizer's library cannot be loaded into Python")
    service = Upstream()
    started.append(service)
    gate = threading.Event()
    service.script("/hold", Step(gate=gate))
    journal = tmp_path / "j" / "journal.db"
    with samekey.Caller(journal=journal, lib=caller.lib(), calls_in_flight=1) as one, \
            samekey.Caller(journal=journal, lib=caller.lib(), calls_in_flight=1) as two:
        ends = []
        thread = threading.Thread(target=lambda: ends.append(one.call(service.url + "/hold", key="a")))
        thread.start()
        until(lambda: service.posts("/hold"))
        refused = two.call(service.url + "/x", key="b")
        assert refused["state"] == "FAILED" and "too many attempts are in flight" in refused["sentence"]
        gate.set()
        thread.join(20)
        assert ends[0]["state"] == "SUCCESS" and two.call(service.url + "/x", key="b")["state"] == "SUCCESS"


def test_retries_stay_within_the_budget_over_processes(home, started):
    """Without breaker or floor to help: 20 % of the calls may be retried."""
    service = Upstream()
    started.append(service)
    service.script("/x", Step(429, effect=False))
    ends = [home.call(service.url + "/x", "--receipt", "none", "--retries", "1", "--backoff-base", "1ms", key=f"k{n}")
            for n in range(60)]
    retried = sum(len(e.json["attempts"]) == 2 for e in ends)
    seconds = sum(e.json["elapsed_ms"] for e in ends) / 1000 + 60 * 0.05
    assert all(e.code == 3 for e in ends) and retried <= 0.2 * 60 + 10 * (seconds + 1)
    assert all(set(outcomes(e)) == {"not_executed"} for e in ends)


def test_a_damaged_limits_file_is_made_anew(home, started):
    service = Upstream()
    started.append(service)
    assert home.call(service.url + "/x").code == 0
    limits = home.journal.parent / "limits.db"
    for name in limits.parent.glob("limits.db-*"):
        name.unlink()
    limits.write_bytes(b"this was a database" * 300)
    assert home.call(service.url + "/x", key="k2").code == 0
    with sqlite3.connect(limits) as db:
        assert db.execute("SELECT count(*) FROM counts").fetchone()[0] >= 2
    assert limits.stat().st_mode & 0o777 == 0o600
