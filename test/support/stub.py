# SPDX-License-Identifier: MIT
"""The field cases and the fake service that comes with them, from the shared folder beside the checkout."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from .gateway import ROOT
from .poll import free_port
from .wire import ask

SHARED = pathlib.Path(os.environ.get("SAMEKEY_SHARED") or ROOT.parent / "shared")


def case(name):
    """The folder of a case; that it is missing is a failure, never a skip."""
    folder = SHARED / "cases" / name
    if not folder.is_dir():
        pytest.fail(f"{folder} is missing; set SAMEKEY_SHARED to the folder that holds cases/")
    return folder


def case_json(name, file):
    return json.loads((case(name) / file).read_text(encoding="utf-8"))


def case_bytes(name, file):
    return (case(name) / file).read_bytes()


class Stub:
    """stub_upstream.py, playing a case's file or a document of ours (with the case's folder for its bodies)."""

    def __init__(self, spec):
        tool = case("tools") / "stub_upstream.py"
        base = free_port(neighbours=3)
        self.control, self.port = base, base + 1
        self.process = subprocess.Popen([sys.executable, str(tool), str(spec), "--port-base", str(self.port)],
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().strip() == "ready"

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def counters(self):
        return ask(self.control, "GET", "/__stub/counters").json()

    def posts(self, biz=None):
        return [entry for entry in self.counters()["log"] if entry["kind"] == "request"
                and entry["method"] not in ("GET", "HEAD", "OPTIONS") and biz in (None, entry["biz"])]

    def queries(self, call_id):
        return [entry for entry in self.counters()["log"] if entry["kind"] == "receipt" and entry["callId"] == call_id]

    def close(self):
        self.process.kill()
        self.process.wait(10)
        self.process.stdout.close()
