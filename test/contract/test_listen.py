# SPDX-License-Identifier: MIT
"""An address belongs to one gateway: a second one of the same user says so and starts nothing, although both share
their address between their own loops (SO_REUSEPORT)."""

import subprocess

from support.gateway import BINARY, Gateway


def test_a_busy_address_is_named(tmp_path):
    first = Gateway(tmp_path / "one", {"r": {"upstream": ["http://127.0.0.1:9"]}})
    try:
        other = subprocess.run(
            [str(BINARY), "gateway", "--upstream", "http://127.0.0.1:9", "--listen", f"127.0.0.1:{first.port}",
             "--admin", "", "--store", f"sqlite:{tmp_path}/two.db"], capture_output=True, text=True, timeout=30)
        assert other.returncode == 69
        assert f"127.0.0.1:{first.port}" in other.stderr and "in use" in other.stderr
    finally:
        first.kill()
