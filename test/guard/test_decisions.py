# SPDX-License-Identifier: MIT
"""The table of the guard's decisions against the functions in PostgreSQL."""

import pathlib

import psycopg2

from guard import begin

TABLE = pathlib.Path(__file__).with_name("decisions.txt")
OLD_ID = "c-1700000000000-0123456789ab-n"
STATES = {"running": "PROCESSING", "done": "SUCCESS", "shared": "SUCCESS", "expired": "SUCCESS"}
REASONS = {"rejected": "rejected", "open": "not_executed", "fenced": "fenced", "fence": "fenced", "shared": "shared"}


def rows():
    for number, line in enumerate(TABLE.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("#"):
            yield number, [part.split() for part in line.split("|")]


def none(text):
    return None if text == "-" else text


def put(cursor, call_id, kind, key, print_, route, holds):
    if kind == "none":
        return
    cursor.execute("INSERT INTO samekey.call (tenant, call_id, route, key, fingerprint, state, final, holds, came, reason, run, "
                   "result_kept, original_call_id, ended_at, key_expires_at) "
                   "VALUES ('', %s, %s, %s, %s, %s, %s, %s, %s, %s, gen_random_uuid(), false, %s, now(), %s)",
                   (call_id, "r" if route == "-" else route, none(key), none(print_), STATES.get(kind, "FAILED"),
                    kind not in ("running", "open"), holds and key != "-", kind != "fence", REASONS.get(kind),
                    "h" if kind == "shared" else None, "-infinity" if kind == "expired" else "infinity"))


def test_the_functions_say_what_the_table_says(url):
    played, wrong = 0, []
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        for number, (arriving, own, holder, (verdict,)) in rows():
            key, print_, route, age = arriving
            call_id = OLD_ID if age == "old" else "c-9"
            cursor.execute("UPDATE samekey.setting SET refuse_before = to_timestamp(1700000000.001)")
            put(cursor, "h", holder[0], "A", holder[1], "r", True)
            put(cursor, call_id, *own, own[0] in ("done", "running"))
            said = begin(cursor, call_id, none(key), none(print_), route=route)
            if said["verdict"] != verdict:
                wrong.append((number, said["verdict"], verdict))
            assert (said["state"] is not None) == (verdict == "replay")
            assert said["run"] if verdict == "run" else True
            connection.rollback()
            played += 1
    assert played > 300 and wrong == []
