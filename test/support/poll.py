# SPDX-License-Identifier: MIT
"""Waiting for something that will be true soon, never for an amount of time."""

import itertools
import os
import random
import socket
import time

_numbers = itertools.count(1)
_given = set()  # ports are given out once
_run = f"{random.SystemRandom().randrange(16**5):05x}"


def until(what, seconds=10, every=0.01):
    """The first true value that what() gives; fails after `seconds`, and names the last value."""
    end = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(f"still {value!r} after {seconds} s: {getattr(what, '__name__', what)}")
        time.sleep(every)


def unique(prefix="t"):
    """A name no other test has, in this run or beside it."""
    return f"{prefix}-{_run}-{next(_numbers)}"


def free_port(neighbours=0):
    """A port with `neighbours` free ones after it, below the range that the system hands to clients."""
    for _ in range(200):
        first = random.SystemRandom().randrange(12000, 31000)
        if not _given.isdisjoint(range(first, first + neighbours + 1)):
            continue
        held = []
        try:
            for port in range(first, first + neighbours + 1):
                held.append(socket.socket())
                held[-1].bind(("127.0.0.1", port))
            _given.update(range(first, first + neighbours + 1))
            return first
        except OSError:
            continue
        finally:
            for sock in held:
                sock.close()
    raise AssertionError("no free port between 12000 and 31000")


def memory_kb(pid, field="VmHWM"):
    """A line of /proc/PID/status in kB; VmHWM is the most it ever held, VmRSS what it holds."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":"))


def forget_peak(pid):
    """Starts VmHWM anew."""
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as refs:
        refs.write("5")


def root_only():
    return os.geteuid() == 0
