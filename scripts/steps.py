# SPDX-License-Identifier: MIT
"""Runs steps that depend on each other, two at a time, and counts what they prove.

What is always true:
 1. A step that fails stops nothing but the steps that need it; those count as skipped.
 2. The last line is `N passed, N failed, N skipped`, summed over all tests of all steps. A step that reports no
    tests of its own counts as one.
 3. The exit code is 0 only if something passed and nothing failed.
 4. No step outlives its time or this program: it runs in a process group of its own, which is killed.

How a step's tests are counted, in this order: its JUnit file, if it wrote one; a last line of the form of rule 2;
one for its exit code. A step whose exit code says failure never counts as all passed."""
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import xml.etree.ElementTree

import tree

LANES = 2
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)
LOG_TAIL_BYTES = 12000
LOGS = os.path.join(tree.ROOT, "build", "logs")


@dataclasses.dataclass
class Step:
    name: str
    command: list
    after: tuple = ()        # names of steps that must have passed
    env: dict = dataclasses.field(default_factory=dict)
    timeout_s: int = 600
    junit: bool = False      # {junit} in the command is where it writes its results
    empty_ok: bool = False   # no tests is no failure (pytest's exit code 5)
    alone: bool = False      # shares the machine with no other step
    must_be_empty: str = ""  # a directory where sanitizers report; a file there fails the step

    @property
    def log(self):
        return os.path.join(LOGS, self.name + ".log")

    @property
    def results(self):
        return os.path.join(LOGS, self.name + ".xml")


@dataclasses.dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    why: str = ""
    failures: list = dataclasses.field(default_factory=list)


running = {}  # step name -> Popen
stopping = threading.Event()


def read_junit(path):
    """(passed, failed, skipped, names of the failed) of a JUnit file of CTest or pytest."""
    passed, skipped, failures = 0, 0, []
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failures.append(f"{case.get('classname') or ''}::{case.get('name')}")
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped += 1
        else:
            passed += 1
    return passed, len(failures), skipped, failures


def run(step):
    """Runs one step to its end; never raises because the step misbehaved."""
    outcome, started = Outcome(), time.monotonic()
    for leftover in (step.results, step.log):
        if os.path.exists(leftover):
            os.unlink(leftover)
    if step.must_be_empty:
        shutil.rmtree(step.must_be_empty, ignore_errors=True)
        os.makedirs(step.must_be_empty)
    command = [part.replace("{junit}", step.results) for part in step.command]
    with open(step.log, "wb") as log:
        process = subprocess.Popen(command, cwd=tree.ROOT, env={**os.environ, **step.env}, start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        running[step.name] = process
        try:
            process.wait(step.timeout_s)
        except subprocess.TimeoutExpired:
            outcome.why = f"not done after {step.timeout_s} s"
        finally:
            kill_group(process)
            running.pop(step.name, None)
    outcome.seconds = time.monotonic() - started
    with open(step.log, encoding="utf-8", errors="replace") as log:
        counts = COUNTS.findall(log.read())
    if os.path.exists(step.results):
        try:
            outcome.passed, outcome.failed, outcome.skipped, outcome.failures = read_junit(step.results)
        except xml.etree.ElementTree.ParseError as e:
            outcome.why = outcome.why or f"its results cannot be read: {e}"
    elif counts:
        outcome.passed, outcome.failed, outcome.skipped = map(int, counts[-1])
    elif process.returncode == 0 and not step.junit:
        outcome.passed = 1
    if step.must_be_empty and os.listdir(step.must_be_empty):
        outcome.why = outcome.why or f"a sanitizer reported; see {os.path.relpath(step.must_be_empty, tree.ROOT)}"
    no_tests = not (outcome.passed or outcome.failed or outcome.skipped)
    if process.returncode and not outcome.failed and not (step.empty_ok and process.returncode == 5):
        outcome.why = outcome.why or f"exit code {process.returncode}"
    elif no_tests and not step.empty_ok:
        outcome.why = outcome.why or "it ran no tests"
    if outcome.why:
        outcome.failed += 1
        if not counts and not os.path.exists(step.results):
            outcome.passed = 0
    return outcome


def signal_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_group(process):
    signal_group(process)
    process.wait()


def show(step, outcome):
    """Tells how a step ended, with the end of its log if it failed."""
    word = "FAIL" if outcome.failed else "ok  " if outcome.passed else "skip"
    print(f"{word} {step.name:<16} {outcome.passed:>5} passed {outcome.failed:>3} failed {outcome.skipped:>3} skipped "
          f"{outcome.seconds:>6.1f} s {outcome.why}", flush=True)
    if not outcome.failed:
        return
    for failure in outcome.failures:
        print(f"     {failure}")
    with open(step.log, "rb") as log:
        log.seek(max(0, os.path.getsize(step.log) - LOG_TAIL_BYTES))
        tail = log.read().decode(errors="replace")
    reports = sorted(os.listdir(step.must_be_empty)) if step.must_be_empty else []
    for report in reports[:3]:
        tail += f"\n{report}:\n" + tree.read(os.path.join(step.must_be_empty, report))[:LOG_TAIL_BYTES]
    print("\n".join("   | " + line for line in tail.splitlines()), flush=True)


def run_all(steps):
    """Runs the steps, earlier ones first where there is a choice; returns the exit code."""
    os.makedirs(LOGS, exist_ok=True)
    outcomes, waiting, lock = {}, list(steps), threading.Condition()
    started = time.monotonic()
    busy = []

    def stop(number, _frame):
        # No waiting here: a second signal (Ctrl-C reaches a whole group) would wait for the first one's lock.
        stopping.set()
        for process in list(running.values()):
            signal_group(process)
        os._exit(128 + number)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)

    def good(name):
        return outcomes[name].failed == 0 and not outcomes[name].why

    def take():
        """The next step that can run now; drops those that never can."""
        for step in list(waiting):
            if all(name in outcomes for name in step.after):
                bad = [name for name in step.after if not good(name)]
                if bad:
                    waiting.remove(step)
                    outcomes[step.name] = Outcome(skipped=1, why=f"needs {', '.join(bad)}")
                    show(step, outcomes[step.name])
                    return take()
                if (step.alone and busy) or any(other.alone for other in busy):
                    continue
                waiting.remove(step)
                busy.append(step)
                return step
        return None

    def lane():
        while True:
            with lock:
                step = take()
                while step is None and waiting and busy:
                    lock.wait()
                    step = take()
                if step is None:
                    assert not waiting or busy, f"nothing can run: {[s.name for s in waiting]}"
                    return
            outcome = run(step)
            with lock:
                if not stopping.is_set():
                    show(step, outcome)
                outcomes[step.name] = outcome
                busy.remove(step)
                lock.notify_all()

    known = {step.name for step in steps}
    assert all(name in known for step in steps for name in step.after), "a step needs one that does not exist"
    lanes = [threading.Thread(target=lane) for _ in range(LANES)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()

    passed, failed, skipped = (sum(getattr(o, field) for o in outcomes.values())
                               for field in ("passed", "failed", "skipped"))
    print(f"{len(steps)} steps in {time.monotonic() - started:.0f} s; logs are in build/logs")
    for step in steps:
        if outcomes[step.name].failed:
            print(f"failed: {step.name} (build/logs/{step.name}.log)")
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if passed and not failed else 1
