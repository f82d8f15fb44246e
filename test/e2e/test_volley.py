# SPDX-License-Identifier: MIT
"""`io_uring`: many answers and requests at once are sent by it where the kernel has it, and without it where it is switched
off; what callers get is the same."""

import os
import threading

import pytest

from support.gateway import Gateway, post
from support.poll import until
from support.upstream import Upstream


def rings(gateway):
    folder = f"/proc/{gateway.process.pid}/fd"
    found = 0
    for name in os.listdir(folder):
        try:
            found += "io_uring" in os.readlink(f"{folder}/{name}")
        except FileNotFoundError:
            pass
    return found


def kernel_has_rings():
    try:
        with open("/proc/sys/kernel/io_uring_disabled", encoding="ascii") as file:
            return file.read().strip() == "0"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("wanted", [True, False])
def test_what_leaves_together(tmp_path, started, wanted):
    if wanted and not kernel_has_rings():
        pytest.skip("this kernel has no io_uring, or forbids it")
    upstream = Upstream()
    started.append(upstream)
    gateway = Gateway(tmp_path, {"orders": {"upstream": [upstream.url], "concurrency": 256}}, io_uring=wanted, loops=1)
    started.append(gateway)
    wrong = []

    def work(number):
        for n in range(20):
            path = f"/orders/{number}-{n}"
            answer = gateway.send(post(path, f"c-{number}-{n}", f"k-{number}-{n}", "{}"))
            if answer.status != 201 or upstream.effects(path) != 1:
                wrong.append((path, answer))

    def storm():
        threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return True
    storm()
    assert not wrong and len(upstream.posts()) == 24 * 20
    if wanted:
        assert until(lambda: rings(gateway) == 1 or not storm(), 20)
    else:
        assert rings(gateway) == 0
