# SPDX-License-Identifier: MIT
"""CONTRACT section 7, `key_life = forever`: the answer goes to the archive when its result_life is over, is never dropped
before it is there, and is read back by `samekey receipt --store`; the key stays known."""

import base64
import json
import os
import subprocess

import pytest

from support import postgres
from support.gateway import BINARY
from support.house import House, Step
from support.poll import unique, until
from support.postgres import Postgres

EVER = {"attempt_timeout": "2s", "deadline": "6s", "retries": 0, "result_life": "1s", "key_life": "forever",
        "result_bytes_max": "1m"}
WEEK = {**EVER, "key_life": "7d"}
BINARY_BODY = bytes(range(256)) * 40 + b"\x28\xb5\x2f\xfd"  # a frame's first bytes, too
TENANTS = {"tenant": "{header.X-Tenant}"}


@pytest.fixture(scope="module")
def server():
    if not postgres.BIN:
        pytest.skip("PostgreSQL is not installed (scripts/deps test installs it)")
    built = Postgres()
    yield built
    built.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request):
    if request.param == "sqlite":
        return None
    return request.getfixturevalue("server").create_database(unique("db").replace("-", "_"))


@pytest.fixture
def archive(tmp_path):
    folder = tmp_path / "archive"
    folder.mkdir()
    return folder


@pytest.fixture
def house(tmp_path, store, archive):
    (tmp_path / "gateway").mkdir()
    built = House(tmp_path / "gateway", {"ever": EVER, "week": WEEK}, store=store, archive=str(archive), purge_every="1s",
                  drain="1s", **TENANTS)
    yield built
    built.close()


def send(order, tenant="a"):
    return order.send(headers={"X-Tenant": tenant})


def is_gone(order, tenant="a", seconds=30):
    """Until its answer has left the store; PostgreSQL's too late row is no excuse to tell it."""
    return until(lambda: order.receipt(headers={"X-Tenant": tenant}).json()["result"]["body"] is None, seconds, .2)


def logged(house, event, *words):
    return any(all(word in str(line) for word in (event, *words)) for line in house.gateway.log)


def lines(archive):
    """What zstd's own tool reads of the archive."""
    read = []
    for file in sorted(archive.glob("receipts-*.jsonl.zst")):
        done = subprocess.run(["zstd", "-dcq", file], capture_output=True, check=False)
        read += [json.loads(line) for line in done.stdout.decode("utf-8").split("\n") if line]
    return read


def archived(archive, order):
    return [line for line in lines(archive) if line["call_id"] == order.call_id]


def receipt(house, order, *more, tenant="a", form="json", store=True):
    where = ["--store", house.gateway.store_url] if store else []
    done = subprocess.run([BINARY, "receipt", order.call_id, *where, "--tenant", tenant, "--format", form, *map(str, more)],
                          capture_output=True, check=False)
    return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")


def body_of(document):
    result = json.loads(document)["result"]
    if result["body_encoding"] == "base64":
        return base64.b64decode(result["body"])
    return result["body"].encode("utf-8")


@pytest.mark.parametrize("body", [b'{"paid": true}', BINARY_BODY, b"", "a\0b \u00e4\u2028".encode("utf-8"), b"x" * 900_000],
                         ids=["json", "binary", "empty", "text", "big"])
def test_an_answer_past_its_life_is_read_back_byte_for_byte(house, archive, body):
    order = house.order("ever", Step(201, body, {"Content-Type": "application/x-thing"}))
    first = send(order)
    assert (first.status, first.body) == (201, body)
    code, document, _ = receipt(house, order, "--archive", archive)  # still in the store
    assert code == 0 and body_of(document) == body
    assert is_gone(order)
    [line] = archived(archive, order)
    assert (line["tenant"], line["state"], line["final"], line["key"]) == ("a", "SUCCESS", True, order.key)
    code, document, said = receipt(house, order, "--archive", archive)
    assert (code, said) == (0, "") and body_of(document) == body
    told = json.loads(document)
    assert told["result"]["status"] == 201 and ["content-type", "application/x-thing"] in told["result"]["headers"]
    assert told["expires_at"] is None and "tenant" not in told and told["call_id"] == order.call_id
    # A repeat learns that it is done, is not run again, and the archive is no answer to it.
    again = send(order)
    assert (again.slug, again.outcome, len(order.posts)) == ("result-not-kept", "success", 1)


def test_only_keys_that_live_for_ever_are_archived(house, archive):
    ever, week = house.order("ever", Step(201, b"ever")), house.order("week", Step(201, b"week"))
    send(ever), send(week)
    assert is_gone(ever) and is_gone(week)
    assert len(archived(archive, ever)) == 1 and not archived(archive, week)
    code, document, said = receipt(house, week, "--archive", archive)
    assert code == 0 and json.loads(document)["result"]["body"] is None and "not in the archive" in said


def test_where_it_is_looked_for(house, archive, tmp_path):
    order = house.order("ever", Step(422, b"no such account"))
    assert send(order).status == 422
    assert is_gone(order)
    code, document, _ = receipt(house, order)  # the store alone: the ending, not the answer
    assert (code, json.loads(document)["result"]["body"]) == (3, None)
    code, document, _ = receipt(house, order, "--conf", house.gateway.file, store=False)
    assert code == 3 and body_of(document) == b"no such account"
    code, document, _ = receipt(house, order, "--archive", archive, store=False)
    told = json.loads(document)
    assert (code, told["state"], told["key"]) == (3, "FAILED", order.key) and body_of(document) == b"no such account"
    assert "tenant" not in told and "call_digest" not in told
    code, text, _ = receipt(house, order, "--archive", archive, form="text")
    assert code == 3 and "status 422, 15 bytes" in text
    # Another tenant's question is about another call.
    code, document, _ = receipt(house, order, "--archive", archive, tenant="b")
    assert code in (4, 5) and order.key not in document
    code, _, said = receipt(house, order, "--archive", archive, store=False, tenant="b")
    assert code == 4 and "not in the archive" in said
    code, _, said = receipt(house, order, "--archive", tmp_path / "nowhere", store=False)
    assert code == 4 and "cannot be read" in said
    code, _, said = receipt(house, order, "--at", "http://127.0.0.1:1")
    assert code == 64 and "ask no gateway" in said


def test_a_repeat_under_another_call_id_finds_the_answer_of_its_effect(house, archive):
    order = house.order("ever", Step(201, b"shared"))
    send(order)
    twin = house.order("ever")
    twin.path, twin.key, twin.body = order.path, order.key, order.body
    assert send(twin).body == b"shared"
    assert is_gone(order)
    assert [line["call_id"] for line in lines(archive)] == [order.call_id]
    code, document, _ = receipt(house, twin, "--archive", archive)
    assert code == 0 and body_of(document) == b"shared" and json.loads(document)["original_call_id"] == order.call_id


def test_an_archive_that_is_gone_drops_nothing_and_goes_on(house, archive, tmp_path):
    away = tmp_path / "away"
    archive.rename(away)
    ever, week = house.order("ever", Step(201, b"held")), house.order("week", Step(201, b"goes"))
    send(ever), send(week)
    # What the archive does not want is purged all the same.
    assert is_gone(week)
    until(lambda: house.gateway.metric("samekey_archive_errors_total") >= 1, 20, .2)
    assert body_of(receipt(house, ever)[1]) == b"held"
    assert logged(house, "archive_unavailable", "make the folder")
    away.rename(archive)
    assert is_gone(ever, seconds=150)
    assert body_of(receipt(house, ever, "--archive", archive)[1]) == b"held"
    until(lambda: house.gateway.metric("samekey_archived_total") >= 1, 10, .1)
    until(lambda: logged(house, "archive_back"), 10, .1)


def test_a_kill_at_any_moment_loses_no_answer(house, archive):
    orders = []
    for round in range(4):
        for n in range(12):
            orders.append(house.order("ever", Step(201, os.urandom(3000))))
            orders[-1].want = send(orders[-1]).body
        if round == 3:
            break
        until(lambda: lines(archive), 20, .02)
        house.gateway.kill()
        for file in archive.glob("receipts-*"):  # as a machine that went down in the middle of a frame
            if round == 1:
                with open(file, "ab") as torn:
                    torn.write(file.read_bytes()[:40])
        house.gateway.start()
    for order in orders:
        assert is_gone(order, seconds=60)
        code, document, said = receipt(house, order, "--archive", archive)
        assert (code, said) == (0, "") and body_of(document) == order.want, order.call_id
    assert len(list(archive.glob("receipts-*"))) >= 2  # a file for each process


def test_a_folder_that_is_not_there_is_told_at_the_start(house, archive):
    house.gateway.stop()
    archive.rmdir() if not any(archive.iterdir()) else archive.rename(archive.with_name("moved"))
    house.gateway.start(wait=False)
    assert house.gateway.wait() != 0
    assert any("make the folder" in line for line in house.gateway.said())
    archive.mkdir()
    house.gateway.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_drops_nothing_and_goes_on(tmp_path, store, archive):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "samekey-test", archive], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    (tmp_path / "gateway").mkdir()
    house = None
    try:
        house = House(tmp_path / "gateway", {"ever": EVER}, store=store, archive=str(archive), purge_every="1s", drain="1s",
                      **TENANTS)
        filler = archive / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while file.write(b"\1" * 4096) == 4096:
                    pass
            except OSError:
                pass
        order = house.order("ever", Step(201, os.urandom(20_000)))
        want = send(order).body
        until(lambda: house.gateway.metric("samekey_archive_errors_total") >= 1, 30, .2)
        assert logged(house, "archive_unavailable", "free some space")
        assert body_of(receipt(house, order)[1]) == want
        filler.unlink()
        assert is_gone(order, seconds=150)
        assert body_of(receipt(house, order, "--archive", archive)[1]) == want
    finally:
        if house:
            house.close()
        subprocess.run(["umount", archive], check=False)


def test_a_day_is_dropped_only_when_the_archive_has_it(server, tmp_path, archive):
    """PostgreSQL drops the bodies of a day at once: here of a day that was made to be five days ago."""
    url = server.create_database(unique("db").replace("-", "_"))
    database = url.rsplit("/", 1)[1]
    (tmp_path / "gateway").mkdir()
    house = House(tmp_path / "gateway", {"ever": EVER}, store=url, archive=str(archive), purge_every="1s", drain="1s", **TENANTS)
    try:
        away = tmp_path / "away"
        archive.rename(away)
        order = house.order("ever", Step(201, b"of an old day"))
        send(order)
        until(lambda: house.gateway.metric("samekey_archive_errors_total") >= 1, 20, .2)
        house.gateway.kill()
        day = int(server.value("SELECT result_day FROM samekey_store.call", database))
        old = day - 5
        server.sql(f"ALTER TABLE samekey_store.result_{day} RENAME TO result_{old};"
                   f"UPDATE samekey_store.call SET result_day = {old};"
                   f"UPDATE samekey_store.due SET minute = -{old} WHERE minute = -{day}", database)
        archive.mkdir()
        archive.rename(tmp_path / "unused")
        (tmp_path / "unused").rename(archive)
        house.gateway.start()
        assert is_gone(order, seconds=150)
        assert body_of(receipt(house, order, "--archive", archive)[1]) == b"of an old day"
        house.gateway.restart()  # the first step of purging looks for days that are over
        until(lambda: server.value(f"SELECT count(*) FROM pg_class WHERE relname = 'result_{old}'", database) == "0", 20, .2)
        assert server.value("SELECT count(*) FROM samekey_store.due WHERE minute < 0", database) == "0"
    finally:
        house.close()
