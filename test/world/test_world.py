# SPDX-License-Identifier: MIT
"""The simulated world through the binary: fresh seeds for a while, the same story for the same seed, and what a
failing seed prints. SAMEKEY_WORLD_SEED names the first seed, to see a failure of another machine again."""
import json
import os
import re
import subprocess
import time

import pytest

BIN = os.environ.get("SAMEKEY_BIN", "build/samekey")
SECONDS = 45


def world(*arguments, timeout=60):
    return subprocess.run([BIN, "simulate", "world", *arguments], capture_output=True, text=True, timeout=timeout)


def test_fresh_seeds_hold():
    seed = os.environ.get("SAMEKEY_WORLD_SEED") or str(int(time.time() * 1000))
    done = world("--seed", seed, "--for", f"{SECONDS}s", "--format", "json", timeout=4 * SECONDS)
    if done.returncode:
        lines = done.stdout.splitlines()
        pytest.fail("\n".join(["a world broke; its last lines:", *lines[-40:], done.stderr]))
    told = json.loads(done.stdout)
    assert told["broken"] is False
    assert told["seeds"] > 5
    assert told["steps"] > told["seeds"] * 2000
    assert told["crashes"] > 0 and told["effects"] > 0
    speed = re.search(r"([0-9.]+) seeds a second, ([0-9]+) steps a second", done.stderr)
    assert speed
    print(f"{told['seeds']} seeds from {seed}: {speed.group(0)}")


def test_one_seed_is_one_story():
    first, second = (world("--seed", "4242", "--steps", "2000", "--transcript") for _ in range(2))
    assert first.returncode == 0
    assert first.stdout == second.stdout
    lines = first.stdout.splitlines()
    assert re.match(r"\[ +0\] world +seed 4242: callee ", lines[0])
    assert sum(" sends attempt " in line for line in lines) > 20
    assert lines[-1].startswith("1 seeds from 4242 hold")
    assert world("--seed", "4243", "--steps", "2000", "--transcript").stdout != first.stdout


def test_faults_can_be_left_out():
    calm = world("--seed", "3", "--without", "kill,power,stop,disk,full", "--transcript")
    assert calm.returncode == 0
    assert "is killed" not in calm.stdout and "loses its power" not in calm.stdout and "disk " not in calm.stdout
    assert "0 crashes" in calm.stdout.splitlines()[-1]
    for wrong in (["--without", "kill,rain"], ["--format", "csv"], ["--steps", "0"], ["--seed", "-1"], ["--bug", "no-such"]):
        refused = world(*wrong)
        assert refused.returncode == 64, wrong
        assert refused.stdout == "" and refused.stderr.startswith("samekey simulate: ")


def test_a_world_that_breaks_prints_how_to_see_it_again():
    broken = world("--seed", "1", "--seeds", "50", "--bug", "lease-expiry-is-free", "--minimise")
    if broken.returncode == 64:
        assert "SAMEKEY_PLANTED_BUGS" in broken.stderr
        pytest.skip("this build makes no mistakes on request")
    assert broken.returncode == 1
    *story, verdict, again = broken.stdout.splitlines()
    assert verdict.startswith("BROKEN seed ")
    assert re.search(r"^\[ *\d+\] judge +BROKEN: ", "\n".join(story), re.M)
    command = re.fullmatch(r"again: samekey simulate world (.*)", again).group(1).split()
    assert "--without" in command and int(command[command.index("--steps") + 1]) < 5000
    same = world(*command)
    assert same.returncode == 1
    assert same.stdout == broken.stdout
