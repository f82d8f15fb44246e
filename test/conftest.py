# SPDX-License-Identifier: MIT
"""Puts test/support within reach and keeps what a test starts from outliving it."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


@pytest.fixture
def started():
    """A list of things with close() or stop(); they are ended, last one first, however the test went."""
    things = []
    yield things
    for thing in reversed(things):
        (getattr(thing, "close", None) or thing.stop)()
