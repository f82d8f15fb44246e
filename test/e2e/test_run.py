# SPDX-License-Identifier: MIT
"""`make run`, from the script it calls: the demonstration ends well, a busy port is named with its remedy, a
service of one's own can stand behind it, and one signal ends everything that was started."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMEKEY = os.environ.get("SAMEKEY_BIN") or str(ROOT / "build" / "samekey")
STARTED = []


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(autouse=True)
def nothing_left_running():
    """A test that failed half way leaves no gateway for the next one."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        process.stdout.close()
        process.stderr.close()


def start(tmp_path, *arguments, port=None, upstream=None):
    environment = {**os.environ, "SAMEKEY_BIN": SAMEKEY, "PORT": str(port or free_port()),
                   "ADMIN_PORT": str(free_port())}
    environment.pop("UPSTREAM", None)
    if upstream:
        environment["UPSTREAM"] = upstream
    command = [str(ROOT / "scripts" / "run"), "--run-dir", str(tmp_path / "run"), *arguments]
    STARTED.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return STARTED[-1]


def finish(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def read_until(process, mark):
    """What the script printed up to the line with mark; the test's own timeout bounds it."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if mark in line:
            return "".join(lines)
    pytest.fail("ended before '%s':\n%s%s" % (mark, "".join(lines), process.stderr.read()))


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def play(line):
    """Runs one printed curl line: (status, headers and body)."""
    text = subprocess.run(["bash", "-c", line.replace("curl -i", "curl -s -i", 1)], capture_output=True, text=True,
                          timeout=30, check=True).stdout
    return int(text.split()[1]), text


def test_it_shows_the_point(tmp_path):
    code, out, err = finish(start(tmp_path, "--once"))
    assert code == 0, out + err
    assert re.search(r"attempt 1: UNKNOWN: \S+", out)
    assert "effects 1, POSTs seen 1" in out and "says SUCCESS" in out
    # And again on what the first run left behind, with other ids.
    code, second, err = finish(start(tmp_path, "--once"))
    assert code == 0, second + err
    assert set(re.findall(r"call-[0-9a-f]+", out)).isdisjoint(re.findall(r"call-[0-9a-f]+", second))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_printed_lines_do_what_they_say_and_one_signal_ends_it(tmp_path, number):
    port = free_port()
    process = start(tmp_path, port=port)
    out = read_until(process, "Ctrl-C")
    first, again, swapped, receipt, effects = [line.strip() for line in out.splitlines() if line.startswith("  curl")]
    status, text = play(first)
    assert status == 201 and "idempotent-replayed" not in text.lower()
    status, text = play(again)
    assert status == 201 and "idempotent-replayed: true" in text.lower()
    status, text = play(swapped)
    assert status == 422 and "call-id-reused" in text
    status, text = play(receipt)
    assert status == 200 and json.loads(text.split("\n\n", 1)[1])["state"] == "SUCCESS"
    status, text = play(effects)
    number_of = re.search(r"A-[0-9a-f]+", first)[0]
    counts = json.loads(text.split("\n\n", 1)[1])
    assert (status, counts["effects"][number_of], counts["posts"][number_of]) == (200, 1, 1)
    orders_port = int(re.search(r"orders on port (\d+)", out)[1])

    process.send_signal(number)
    code, _, err = finish(process)
    assert code == 0, err
    assert not accepts(port) and not accepts(orders_port)


def test_a_busy_port_is_named_with_the_remedy(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = finish(start(tmp_path, "--once", port=port))
    assert code == 1 and f"127.0.0.1:{port} is in use" in err and "make run PORT=" in err
    assert "Traceback" not in err


def test_a_service_of_ones_own(tmp_path):
    orders = subprocess.Popen(
        [sys.executable, str(ROOT / "examples/orders/orders.py"), "--port", "0", "--db", str(tmp_path / "own.db")],
        stdout=subprocess.PIPE, text=True)
    try:
        own = int(orders.stdout.readline().rsplit(":", 1)[1])
        port = free_port()
        process = start(tmp_path, port=port, upstream=f"http://127.0.0.1:{own}")
        out = read_until(process, "Ctrl-C")
        assert "examples/orders" not in out
        first = next(line.strip() for line in out.splitlines() if line.startswith("  curl"))
        first = first.replace("/your/path", "/orders").replace('{"your": "body"}', '{"order_no": "7", "amount": 1}')
        assert play(first)[0] == 201
        assert "idempotent-replayed: true" in play(first)[1].lower()
        connection = http.client.HTTPConnection("127.0.0.1", own, timeout=5)
        connection.request("GET", "/effects/7")
        assert json.loads(connection.getresponse().read())["effects"] == 1
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert finish(process)[0] == 0
        assert not accepts(port) and accepts(own)
    finally:
        orders.terminate()
        orders.wait(10)
        orders.stdout.close()


def test_a_script_that_is_killed_leaves_nothing_behind(tmp_path):
    port = free_port()
    process = start(tmp_path, port=port)
    read_until(process, "Ctrl-C")
    process.kill()
    finish(process)
    end = time.monotonic() + 40
    while accepts(port):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("arguments, word", [(["ftp://x"], "UPSTREAM"), (["not-a-url"], "UPSTREAM")])
def test_a_wrong_address_is_said(tmp_path, arguments, word):
    code, _, err = finish(start(tmp_path, *arguments))
    assert code == 1 and word in err and "Traceback" not in err
