# SPDX-License-Identifier: MIT
"""The store's bad days: the disk is full, the file is missing, unreadable, somebody else's or of a later version."""

import contextlib
import os
import socket
import sqlite3
import subprocess
import threading

import pytest

from support.gateway import Gateway, post
from support.house import Step
from support.poll import free_port, unique, until
from support.upstream import Upstream
from support.wire import Wire


@pytest.fixture
def small_disk(tmp_path):
    """16 MB of their own, as a tmpfs."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder):
    """Takes every byte that is left."""
    ballast = os.open(folder / "ballast", os.O_CREAT | os.O_WRONLY)
    for size in (65536, 4096, 64, 1):
        with contextlib.suppress(OSError):
            while os.write(ballast, b"z" * size):
                pass
    os.close(ballast)


def send(gateway, path, call_id=None, key=None, body="{}"):
    return gateway.send(post(path, call_id or unique("c"), key or unique("k"), body))


def test_a_full_disk(tmp_path, small_disk, started):
    upstream = Upstream()
    # Answers of 60 kB, so that a few of them find the disk's end.
    gateway = Gateway(tmp_path, {"orders": {"upstream": [upstream.url]}}, store=small_disk / "receipts.db")
    started.extend([upstream, gateway])
    assert send(gateway, "/orders/before", "c-before", "k-before").status == 201
    fill(small_disk)
    sizes = 0
    refused = None
    for n in range(200):
        path = f"/orders/{n}"
        answer = send(gateway, path, body='{"pad":"%s"}' % ("p" * 3000), key="k" * 200 + unique(""))
        sizes += 1
        if answer.slug == "store-unavailable":
            refused = (path, answer)
            break
        assert answer.outcome in ("success", "unknown"), answer
    assert refused, f"{sizes} calls on a full disk and none refused"
    path, answer = refused
    assert (answer.status, answer.outcome) == (503, "not-executed") and int(answer.get("Retry-After")) >= 1
    # Nothing was sent upstream; what is known is still answered.
    assert not upstream.posts(path)
    again = send(gateway, "/orders/before", "c-before", "k-before")
    assert again.replayed and gateway.state("c-before") == "SUCCESS"
    for n in range(3):
        assert send(gateway, f"/orders/later-{n}").slug == "store-unavailable" and not upstream.posts(f"/orders/later-{n}")
    # The log says so, once, however many calls are refused.
    events = lambda: [e["event"] for e in list(gateway.log) if e.get("event") in ("store_unavailable", "store_back")]
    until(lambda: send(gateway, "/orders/again").slug == "store-unavailable" and events())
    assert events() == ["store_unavailable"]
    # Room again: it recovers by itself.
    (small_disk / "ballast").unlink()
    until(lambda: send(gateway, "/orders/after").status == 201, 20, every=0.1)
    assert gateway.process.poll() is None
    until(lambda: events() == ["store_unavailable", "store_back"])


def test_an_ending_that_cannot_be_stored_is_not_answered(tmp_path, small_disk, started):
    upstream, gate = Upstream(), threading.Event()
    gateway = Gateway(tmp_path, {"orders": {"upstream": [upstream.url], "attempt_timeout": "9s", "deadline": "60s", "lease": "20s",
                                            "receipt": "http GET /receipts/{call_id}"}}, store=small_disk / "receipts.db")
    started.extend([upstream, gateway])
    upstream.script("/orders/1", Step(201, os.urandom(200000), {"Content-Type": "a/b"}, gate=gate))
    with Wire(gateway.port) as wire:
        wire.send(post("/orders/1", "c-1", "k-1", "{}"))
        until(lambda: upstream.posts("/orders/1"))
        fill(small_disk)
        gate.set()
        try:
            answer = wire.answer()
            assert answer.outcome == "unknown" and answer.slug == "outcome-unknown", answer
        except Exception as error:
            if isinstance(error, AssertionError):
                raise  # a cut answer is fine: its caller knows nothing either
    (small_disk / "ballast").unlink()
    # Its ending is found again, and the effect stays one.
    until(lambda: send(gateway, "/orders/1", "c-1", "k-1").outcome == "success", 30, every=0.2)
    assert len(upstream.posts("/orders/1")) == 1 == upstream.effects("/orders/1")


# ---- files

def refuses_to_start(gateway, *words, codes=(69,)):
    gateway.start(wait=False)
    assert gateway.wait(20) in codes
    said = "\n".join(gateway.said())
    assert str(gateway.store) in said or str(gateway.store.parent) in said, said
    for word in words:
        assert word in said.lower(), said


@pytest.fixture
def stopped(tmp_path, started):
    """A gateway whose store has one call in it, stopped."""
    upstream = Upstream()
    gateway = Gateway(tmp_path, {"orders": {"upstream": [upstream.url]}})
    started.extend([upstream, gateway])
    assert send(gateway, "/orders/1", "c-1", "k-1").status == 201
    assert gateway.stop() == 0
    return gateway


def test_a_store_is_made_where_none_is(tmp_path, started):
    gateway = Gateway(tmp_path, {"orders": {"upstream": ["http://127.0.0.1:1"]}})
    started.append(gateway)
    assert gateway.store.exists() and gateway.rows("select count(*) from call") == [(0,)]


@pytest.mark.parametrize("lost", ["receipts.db", "receipts.db-wal"])
def test_a_file_that_is_removed_while_it_is_written(tmp_path, started, lost):
    upstream = Upstream()
    gateway = Gateway(tmp_path, {"orders": {"upstream": [upstream.url]}})
    started.extend([upstream, gateway])
    assert send(gateway, "/orders/1", "c-1", "k-1").status == 201
    (gateway.store.parent / lost).unlink()
    refused = until(lambda: (a := send(gateway, f"/orders/{unique('n')}")).status == 503 and a, 10, every=0.05)
    assert refused.slug == "store-unavailable" and refused.outcome == "not-executed"
    sent = len(upstream.posts())
    assert send(gateway, "/orders/2").status == 503 and len(upstream.posts()) == sent
    assert send(gateway, "/orders/1", "c-1", "k-1").replayed
    until(lambda: any("store_unavailable" in line for line in gateway.said()))
    assert gateway.stop() == 0
    if lost == "receipts.db":
        refuses_to_start(gateway, "is missing")
    else:
        gateway.start()
        assert send(gateway, "/orders/1", "c-1", "k-1").replayed
        assert upstream.effects("/orders/1") == 1


def test_an_empty_file_that_was_a_store(stopped):
    os.truncate(stopped.store, 0)
    refuses_to_start(stopped, "empty", "--restored")


def test_a_folder_that_is_missing(stopped):
    stopped.store = stopped.folder / "nowhere" / "receipts.db"
    refuses_to_start(stopped)


def test_a_file_that_is_no_database(stopped):
    stopped.store.write_bytes(b"this is not a database, whatever its name says" * 100)
    for side in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(str(stopped.store) + side)
    refuses_to_start(stopped)
    assert stopped.store.read_bytes().startswith(b"this is not")


def test_a_folder_in_its_place(stopped):
    stopped.store = stopped.folder / "dir.db"
    stopped.store.mkdir()
    refuses_to_start(stopped)


def test_a_file_that_may_not_be_read(stopped, tmp_path):
    if os.geteuid() == 0:
        # Root may read everything; a user that may not is what is meant.
        stopped.prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        for folder in [tmp_path, *tmp_path.parents]:
            if str(folder).startswith("/tmp/"):
                folder.chmod(0o777)
        if subprocess.run([*stopped.prefix, *stopped.command()[:1], "--version"], capture_output=True).returncode:
            pytest.skip("nobody may not run the program where it is built")
    stopped.store.chmod(0)
    refuses_to_start(stopped)


def test_a_store_of_a_later_version(stopped):
    with contextlib.closing(sqlite3.connect(stopped.store)) as db:
        version = db.execute("pragma user_version").fetchone()[0]
        db.execute(f"pragma user_version = {version + 1}")
        db.commit()
    refuses_to_start(stopped, "version", codes=(69, 78))


def test_a_database_of_somebody_else(stopped):
    stopped.store = stopped.folder / "other.db"
    with contextlib.closing(sqlite3.connect(stopped.store)) as db:
        db.execute("create table theirs(x)")
        db.execute("pragma user_version = 1")
        db.commit()
    refuses_to_start(stopped, codes=(69, 78))  # the wrong file is a wrong setting, too
    with contextlib.closing(sqlite3.connect(stopped.store)) as db:
        assert [r[0] for r in db.execute("select name from sqlite_master")] == ["theirs"]


def test_one_store_has_one_gateway(tmp_path, started):
    upstream = Upstream()
    first = Gateway(tmp_path / "one", {"orders": {"upstream": [upstream.url]}})
    started.extend([upstream, first])
    second = Gateway(tmp_path / "two", {"orders": {"upstream": [upstream.url]}}, store=first.store, start=False)
    second.port, second.admin_port = free_port(), free_port()
    refuses_to_start(second)
    assert send(first, "/orders/1").status == 201


def test_one_address_has_one_gateway(tmp_path, started):
    """Two stores behind one address would run a call twice."""
    upstream = Upstream()
    first = Gateway(tmp_path / "one", {"orders": {"upstream": [upstream.url]}})
    started.extend([upstream, first])
    for port, admin_port in ((first.port, free_port()), (free_port(), first.admin_port)):
        second = Gateway(tmp_path / "two", {"orders": {"upstream": [upstream.url]}}, start=False)
        second.port, second.admin_port = port, admin_port
        second.start(wait=False)
        assert second.wait(20) == 69
    assert {send(first, "/orders/1").status for _ in range(10)} == {201}


def test_nobody_else_may_read_what_was_answered(stopped):
    files = [p for p in stopped.folder.iterdir() if p.name.startswith("receipts.db")]
    assert files and not [p.name for p in files if p.stat().st_mode & 0o007]


def test_a_restored_store_denies_nothing_it_may_have_lost(stopped):
    stopped.more_flags = ["--restored"]
    stopped.start()
    covers = stopped.receipt(unique("never")).json()["covers_since"]
    created = stopped.receipt("c-1").json()["created_at"]
    assert covers > created and stopped.receipt(unique("never"), f"?since={created}").status == 410
    assert stopped.state("c-1") == "SUCCESS" and send(stopped, "/orders/1", "c-1", "k-1").replayed


def test_an_address_that_is_taken(tmp_path, started):
    """Another program's port, not another gateway's."""
    held = socket.create_server(("127.0.0.1", 0))
    gateway = Gateway(tmp_path, {"orders": {"upstream": ["http://127.0.0.1:1"]}}, start=False)
    gateway.port, gateway.admin_port = held.getsockname()[1], free_port()
    gateway.start(wait=False)
    assert gateway.wait(20) == 69 and any(str(gateway.port) in line for line in gateway.said())
    held.close()
