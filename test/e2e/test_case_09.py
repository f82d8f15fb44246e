# SPDX-License-Identifier: MIT
"""Case 09: the gateway is killed between the effect and its own store."""

import threading
import time

import pytest

from support.cases import Stage
from support.poll import until
from support.wire import Hangup

NAME = "09-killed-between-effect-and-store"
POLICY = {"lease": "2s", "attempt_timeout": "1800ms", "deadline": "20s", "resend_after": "200ms", "wait_in_progress": "3s",
          "retries": 2}


def send_and_forget(stage):
    def play():
        try:
            stage.send("call.http")
        except (Hangup, OSError):
            pass

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    return thread


class Clock:
    """The case's timeline: moments after the first byte."""

    def __init__(self):
        self.began = time.monotonic()

    def at(self, ms):
        time.sleep(max(0.0, self.began + ms / 1000 - time.monotonic()))


def play(stage):
    clock = Clock()
    moments = {event["do"].split()[0] + str(n): event["t_ms"] for n, event in enumerate(stage.json("timeline.json"))}
    sent, killed, started, again, read = moments.values()
    clock.at(sent)
    send_and_forget(stage)
    clock.at(killed)
    stage.gateway.kill()
    posts = len(stage.stub.posts())
    clock.at(started)
    stage.gateway.start()
    # After the restart and before any new sending: seen as it is, not absent, not FAILED.
    assert stage.gateway.state("c-91") in ("PROCESSING", "UNKNOWN") or \
        len(stage.stub.queries("c-91")) and stage.gateway.state("c-91") == "SUCCESS"
    assert len(stage.stub.posts()) == posts == 1
    clock.at(again)
    answer = stage.send("call.http", timeout=20)
    state = lambda: stage.gateway.state("c-91") == "SUCCESS"
    until(state, max(0.1, clock.began + read / 1000 - time.monotonic()), every=0.1)
    return answer


def test_a_the_effect_has_happened(tmp_path, started):
    stage = Stage(NAME, tmp_path, "upstream-effect-then-slow.json", policy=POLICY)
    started.append(stage)
    assert play(stage).outcome == "success"
    assert len(stage.stub.posts()) == 1
    assert stage.stub.counters()["effects"] == {"o-91": 1}
    assert len(stage.stub.queries("c-91")) >= 1
    assert stage.gateway.receipt("c-91").json()["final"] is True


def test_b_nothing_has_happened(tmp_path, started):
    stage = Stage(NAME, tmp_path, "upstream-no-effect.json", policy=POLICY)
    started.append(stage)
    assert play(stage).outcome == "success"
    log = [e["kind"] for e in stage.stub.counters()["log"]]
    assert log.count("request") == 2 and stage.stub.counters()["effects"] == {"o-91": 1}
    # The second only after a receipt had answered NONE.
    second = len(log) - 1 - log[::-1].index("request")
    assert "receipt" in log[1:second]


def killed_at(ms, tmp_path, started):
    stage = Stage(NAME, tmp_path, "upstream-effect-then-slow.json", policy={**POLICY, "lease": "1900ms"})
    started.append(stage)
    clock = Clock()
    send_and_forget(stage)
    clock.at(ms)
    stage.gateway.kill()
    stage.gateway.start()

    def ended():
        answer = stage.send("call.http", timeout=20)
        return answer if answer.outcome == "success" else None

    answer = until(ended, 15, every=0.1)
    assert stage.stub.counters()["effects"] == {"o-91": 1}
    assert stage.gateway.state("c-91") == "SUCCESS" and answer.status in (200, 201)


@pytest.mark.parametrize("ms", [50, 750, 1450, 1550])
def test_killed_at(ms, tmp_path, started):
    killed_at(ms, tmp_path, started)


@pytest.mark.soak
@pytest.mark.parametrize("ms", range(50, 2000, 100))
def test_killed_at_every_moment(ms, tmp_path, started):
    killed_at(ms, tmp_path, started)
