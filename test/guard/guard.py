# SPDX-License-Identifier: MIT
"""A PostgreSQL database with the guard in it, and the small steps that the tests of this folder share."""

import subprocess

import psycopg2
import psycopg2.extensions

from support.gateway import BINARY

LEVELS = {"read committed": psycopg2.extensions.ISOLATION_LEVEL_READ_COMMITTED,
          "repeatable read": psycopg2.extensions.ISOLATION_LEVEL_REPEATABLE_READ,
          "serializable": psycopg2.extensions.ISOLATION_LEVEL_SERIALIZABLE}


def schema(kind="postgres"):
    """What `samekey schema` prints."""
    return subprocess.run([BINARY, "schema", kind], check=True, capture_output=True, text=True).stdout


def install(server, name):
    """A database of that name with the guard in it; its URL."""
    url = server.create_database(name)
    server.sql("BEGIN;\n" + schema() + "\nCOMMIT;", name)
    return url


def connect(url, level="read committed"):
    """A connection that opens a transaction with its first statement."""
    connection = psycopg2.connect(url)
    connection.set_session(isolation_level=LEVELS[level])
    return connection


def begin(cursor, call_id, key=None, fingerprint=None, **more):
    """The row of samekey.begin() as a dictionary."""
    names = {"call_id": call_id, "key": key, "fingerprint": fingerprint, **more}
    cursor.execute("SELECT * FROM samekey.begin(" + ", ".join(f"{name} => %({name})s" for name in names) + ")", names)
    return dict(zip([column.name for column in cursor.description], cursor.fetchone()))


def finish(cursor, call_id, state="SUCCESS", status=201, body=b"{}", **more):
    cursor.execute("SELECT samekey.finish(%s, %s, %s, %s" + "".join(f", {name} => %s" for name in more) + ")",
                   (call_id, state, status, body, *more.values()))


def receipt(url, call_id, tenant="", wait_ms=0):
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT samekey.receipt(%s, %s, %s)", (call_id, tenant, wait_ms))
        return cursor.fetchone()[0]
