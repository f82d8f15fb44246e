# SPDX-License-Identifier: MIT
"""Temporary files: they are where they should be, a disk that fills up ends the run with a clear word, and nothing is left
behind however it ends."""
import os
import resource
import signal
import subprocess
import time

import pytest
from logs import SAMEKEY, write_jsonl


def many_lines(path, count=40000):
    return write_jsonl(path, [dict(ts=f"2026-01-01T00:00:{i % 60:02d}.000Z", event="request", call_id=f"c-{i}", key=f"order:{i}",
                                   path="/orders", status=201) for i in range(count)])


def many_rows(path, count=60000):
    path.write_text("key,state\n" + "".join(f"order:{i},SUCCESS\n" for i in range(count)))
    return path


def commands(folder):
    log, rows = many_lines(folder / "a.jsonl"), many_rows(folder / "a.csv")
    return {"diagnose": ["diagnose", "--memory", "1m", log],
            "reconcile": ["reconcile", "--memory", "1m", "--receipts", rows, "--rows", rows]}


def small_disk():
    """A file may not grow beyond 64 kB: a write goes half way and then fails, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))


@pytest.mark.parametrize("command", ["diagnose", "reconcile"])
def test_a_disk_that_fills_up(tmp_path, command):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    line = [SAMEKEY, *map(str, commands(tmp_path)[command]), "--tmp", str(scratch)]
    good = subprocess.run(line, capture_output=True)
    assert good.returncode in (0, 1), good.stderr
    full = subprocess.run(line, capture_output=True, preexec_fn=small_disk)
    assert full.returncode == 74
    assert full.stdout == b"", "no half report"
    assert b"a temporary file in " + os.fsencode(scratch) in full.stderr and b"File too large" in full.stderr
    assert b"--tmp FOLDER" in full.stderr
    assert list(scratch.iterdir()) == []
    line[-1] = str(tmp_path / "none")
    nowhere = subprocess.run(line, capture_output=True)
    assert nowhere.returncode == 74 and b"No such file or directory" in nowhere.stderr


def kept_open(process, folder):
    """Temporary files that the process holds in the folder, though they have no names there."""
    held = []
    for fd in os.listdir(f"/proc/{process.pid}/fd"):
        try:
            held.append(os.readlink(f"/proc/{process.pid}/fd/{fd}"))
        except FileNotFoundError:
            pass
    return [path for path in held if path.startswith(str(folder))]


@pytest.mark.parametrize("command", ["diagnose", "reconcile"])
def test_kill_9_leaves_nothing(tmp_path, command):
    scratch, pipe = tmp_path / "scratch", tmp_path / "pipe"
    scratch.mkdir()
    os.mkfifo(pipe)
    line = commands(tmp_path)[command]
    source = line[-1]
    process = subprocess.Popen([SAMEKEY, *map(str, [*line[:-1], pipe]), "--tmp", str(scratch)], stdout=subprocess.DEVNULL)
    with open(pipe, "wb") as feed:  # it waits for more, with its files open
        feed.write(source.read_bytes())
        feed.flush()
        end = time.monotonic() + 20
        while not kept_open(process, scratch):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(.01)
        assert list(scratch.iterdir()) == [], "they have no names"
        process.kill()
        assert process.wait(10) == -signal.SIGKILL
    assert list(scratch.iterdir()) == []


def test_a_side_may_be_a_pipe(tmp_path):
    """Process substitution: `--rows <(psql --csv ...)`. Nothing of it is lost to looking what it is."""
    done = subprocess.run(["bash", "-c", '"$0" reconcile --receipts <(printf "key,state\\nk-1,SUCCESS\\n") --rows '
                           '<(printf "key\\nk-1\\nk-2\\n")', SAMEKEY], capture_output=True, timeout=30)
    assert done.returncode == 1 and b"2 keys: 1 agree, 1 difference" in done.stdout, done.stdout + done.stderr


def test_a_log_may_be_a_named_pipe(tmp_path):
    """Who writes into it finds one reader, that stays."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for _ in range(20):
        process = subprocess.Popen([SAMEKEY, "diagnose", pipe], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with open(pipe, "wb") as feed:
            time.sleep(.005)  # were it opened for a look only, the write would meet its end
            feed.write(b'{"ts":"2026-03-01T00:00:00Z","event":"attempt.sent","callId":"c-1","bizKey":"k-1"}\n')
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0 and b"1 lines read" in out, out + err
