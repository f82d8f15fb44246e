# SPDX-License-Identifier: MIT
"""One server, and a pooler in front of it, for all tests of this folder; each test has a database of its own."""

import subprocess

import pytest

import guard
from support.gateway import BINARY
from support.poll import unique
from support.postgres import Pooler, Postgres


@pytest.fixture(scope="session")
def server():
    postgres = Postgres({"fsync": "off", "deadlock_timeout": "200ms"})
    yield postgres
    postgres.close()


@pytest.fixture(scope="session")
def pooler(server):
    between = Pooler(server)
    yield between
    between.close()


@pytest.fixture(scope="session")
def order_tool():
    """examples/guard/c, built where the program was."""
    subprocess.run(["ninja", "-C", str(BINARY.parent), "guard_tools"], check=True, stdout=subprocess.DEVNULL)
    return BINARY.parent / "guard_order"


@pytest.fixture
def name(server):
    """The name of a database with the guard in it."""
    made = unique("guard").replace("-", "_")
    guard.install(server, made)
    return made


@pytest.fixture
def url(server, name):
    return server.url(name)
