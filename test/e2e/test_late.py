# SPDX-License-Identifier: MIT
"""libcurl and libpq are loaded by whoever calls them, not at the start (src/cli/late.h): a gateway that was just started
is small, and a library that cannot be used is named."""

import os
import pathlib
import re
import subprocess

import pytest

from support.gateway import BINARY, Gateway
from support.poll import free_port

LATE = re.compile(r"lib(?:curl|pq)(?:-\w+)?\.so")
IDLE_BYTES_MAX = 15 << 20


def test_the_program_is_not_linked_to_them():
    headers = subprocess.run(["objdump", "-p", BINARY], capture_output=True, text=True, check=True).stdout
    needed = [line.split()[1] for line in headers.splitlines() if line.split()[:1] == ["NEEDED"]]
    assert any(name.startswith("libsqlite3.so") for name in needed)
    assert [name for name in needed if LATE.match(name)] == []


@pytest.mark.no_sanitizer
def test_an_idle_gateway_is_small(tmp_path, started):
    gateway = Gateway(tmp_path, {"orders": {"upstream": [f"http://127.0.0.1:{free_port()}"]}})
    started.append(gateway)
    process = pathlib.Path(f"/proc/{gateway.process.pid}")
    assert "libsqlite3.so" in (maps := (process / "maps").read_text())
    assert LATE.findall(maps) == []
    resident = int(re.search(r"^VmRSS:\s+(\d+) kB$", (process / "status").read_text(), re.M)[1]) << 10
    assert resident < IDLE_BYTES_MAX


def test_a_library_that_cannot_be_used_is_named(tmp_path):
    for name in ("libcurl.so.4", "libcurl-gnutls.so.4"):
        (tmp_path / name).write_text("not a library")
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    command = [BINARY, "compensations", "list", "--at", f"127.0.0.1:{free_port()}"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 69
    assert re.match(r"samekey: libcurl(-gnutls)?\.so\.4 is needed here and cannot be used \(.+\); install the package",
                    done.stderr)
