# SPDX-License-Identifier: MIT
"""libsamekey as a program meets it: its header, its names, its packages, its examples, its memory."""

import os
import pathlib
import re
import shutil
import subprocess
import textwrap

import pytest

import caller
from caller import BIN, BODY, LIB, ROOT, Home
from support.upstream import Step, Upstream

BUILD = pathlib.Path(BIN).resolve().parent
HEADER = "include/samekey/samekey.h"
ASK = "{origin}/receipts/{call_id}"
pytestmark = pytest.mark.no_sanitizer


@pytest.fixture(scope="module")
def tools():
    """The examples, compiled beside the program under test."""
    subprocess.run(["ninja", "-C", str(BUILD), "caller_tools"], check=True, stdout=subprocess.DEVNULL)
    return BUILD


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    root = tmp_path_factory.mktemp("installed")
    subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(root / "usr")], check=True, stdout=subprocess.DEVNULL)
    return root / "usr"


@pytest.fixture
def service(started):
    upstream = Upstream()
    started.append(upstream)
    return upstream


def run(*command, **more):
    return subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          **more)


# ---- the header


@pytest.mark.parametrize("compiler", [["gcc", "-xc", "-std=c17"], ["clang", "-xc", "-std=c17"], ["gcc", "-xc", "-std=c99"],
                                      ["g++", "-xc++", "-std=c++17"], ["clang++", "-xc++", "-std=c++17"]])
def test_the_header_stands_alone(compiler, tmp_path):
    source = tmp_path / "use"
    source.write_text('#include <samekey/samekey.h>\n#include <samekey/samekey.h>\n'
                      'int main(void) { struct samekey_options o; samekey_options_init(&o); return (int)o.retries - 3; }\n')
    made = run(*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", f"-I{ROOT}/include", source, "-o",
               tmp_path / "use.out", "-xnone", LIB, f"-Wl,-rpath,{BUILD}")
    assert made.returncode == 0, made.stderr
    assert run(tmp_path / "use.out").returncode == 0


def test_the_header_names_nothing_but_the_c_library():
    includes = re.findall(r"#\s*include\s*[<\"]([^>\"]+)", (ROOT / HEADER).read_text())
    assert sorted(includes) == ["stddef.h", "stdint.h"]


def test_every_name_that_is_shown_is_listed_and_declared():
    shown = sorted(line.split()[2].replace("@@", " ") for line in run("nm", "-D", "--defined-only", LIB).stdout.splitlines()
                   if line.split()[1] == "T")
    listed = [line for line in (ROOT / "test/caller/symbols.txt").read_text().splitlines() if not line.startswith("#")]
    assert shown == sorted(listed)
    declared = set(re.findall(r"\b(samekey_\w+)\(", (ROOT / HEADER).read_text()))
    assert {name.split()[0] for name in shown} <= declared
    assert all(name.endswith(" SAMEKEY_0") for name in shown)


def test_the_shared_library_has_its_soname_and_hides_jansson():
    dynamic = run("readelf", "-d", LIB).stdout
    assert "Library soname: [libsamekey.so.0]" in dynamic
    assert "json" not in (ROOT / HEADER).read_text().replace("samekey_result_json", "").replace("JSON", "").replace(
        "--format json", "").lower()


def test_structs_grow_at_their_end():
    """A program compiled with fewer members still works: the library reads no further than its size."""
    import samekey
    lib = caller.lib()
    small = samekey.Options()
    size = samekey.Options.retries.offset
    lib.samekey_options_init_sized(samekey.ctypes.byref(small), samekey.Z(size))
    assert small.size == size and small.retries == 0, "nothing is written behind the size"
    whole = samekey.Options()
    lib.samekey_options_init_sized(samekey.ctypes.byref(whole), samekey.Z(samekey.ctypes.sizeof(whole)))
    assert (whole.retries, whole.jitter_low, whole.jitter_high, whole.resend_after_ms, whole.result_bytes_max) == (
        3, 0.5, 1.0, -1, 16 << 20)


@pytest.mark.parametrize("page", ["api.md", "man/libsamekey.3", "man/samekey-call.1", "man/samekey-calls.1"])
def test_the_pages_are_what_the_header_and_the_program_say(page, tmp_path):
    made = run("/usr/bin/python3", ROOT / "docs/make-caller.py", BIN, tmp_path)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / page).read_text() == (ROOT / "docs" / page).read_text(), "run docs/make-caller.py"


# ---- packages


PROGRAM = """
#include <samekey/samekey.h>
#include <stdio.h>
int budget_take(void) { return 7; } /* a name of the library's inside */
int main(void) {
    struct samekey *handle; char id[SAMEKEY_CALL_ID_SIZE];
    if (samekey_open(&handle, 0)) return 1;
    int status = samekey_make_id(handle, "ord", id);
    samekey_close(handle);
    puts(id);
    return status || budget_take() != 7;
}
"""


def test_pkg_config(installed, tmp_path):
    (tmp_path / "p.c").write_text(PROGRAM)
    env = {**os.environ, "PKG_CONFIG_PATH": str(next(installed.rglob("samekey.pc")).parent)}
    flags = run("pkg-config", "--cflags", "--libs", "samekey", env=env)
    assert flags.returncode == 0, flags.stderr
    made = run("cc", tmp_path / "p.c", *flags.stdout.split(), "-o", tmp_path / "p")
    assert made.returncode == 0, made.stderr
    libdir = next(installed.rglob("libsamekey.so.0")).parent
    assert re.fullmatch(r"ord-\d{13}-[0-9a-f]{12}-\S+\n", run(tmp_path / "p", env={"LD_LIBRARY_PATH": str(libdir)}).stdout)


@pytest.mark.parametrize("target", ["samekey::samekey", "samekey::static"])
def test_the_cmake_package(installed, tmp_path, target):
    (tmp_path / "p.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(textwrap.dedent(f"""
        cmake_minimum_required(VERSION 3.25)
        project(p C)
        find_package(samekey 0.1 REQUIRED)
        add_executable(p p.c)
        target_link_libraries(p {target})
        """))
    made = run("cmake", "-S", tmp_path, "-B", tmp_path / "b", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    assert made.returncode == 0, made.stderr
    made = run("ninja", "-C", tmp_path / "b")
    assert made.returncode == 0, made.stdout
    assert run(tmp_path / "b" / "p").stdout.startswith("ord-")


def test_the_static_library_shows_only_its_own_names():
    names = {line.split()[2] for line in run("nm", "--defined-only", "-g", BUILD / "libsamekey.a").stdout.splitlines()
             if len(line.split()) == 3}
    assert names and all(name.startswith("samekey_") for name in names), sorted(names)[:10]


# ---- examples


def test_the_c_example(tools, service, tmp_path):
    env = Home(tmp_path).env
    service.script("/orders", Step(then="rst", effect=True))
    first = run(tools / "caller_charge", service.url + "/orders", "order-42", ASK, env=env)
    assert first.returncode == 0 and "attempt 1: unknown" in first.stdout
    again = run(tools / "caller_charge", service.url + "/orders", "order-42", ASK, env=env)
    assert again.returncode == 0 and service.effects("/orders") == 1 and len(service.posts("/orders")) == 1
    assert run(tools / "caller_charge").returncode == 64


class Daily(Upstream):
    """A service that files one report for a key, as a real one does by its unique index."""

    def __init__(self):
        super().__init__()
        self.filed = {}
        self.script("/reports", Step(201, self.file, effect=False))

    def file(self, seen):
        with self.lock:
            self.filed.setdefault(seen.get("Idempotency-Key"), []).append(seen.get("X-Call-Id"))
        return b'{"filed":true}'


def test_the_cron_example_on_three_nodes(tmp_path, started):
    """Three nodes with a state of their own run it at once, twice: one key, so one effect at a service that keeps keys."""
    service = Daily()
    started.append(service)
    for _ in range(2):
        jobs = [subprocess.Popen([str(ROOT / "examples/shell/nightly-report"), service.url + "/reports", "--node",
                                  f"node{n}", "--receipt", ASK],
                                 env={**Home(tmp_path, f"node{n}").env, "SAMEKEY_BIN": BIN}, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE) for n in range(3)]
        for job in jobs:
            out, err = job.communicate(timeout=30)
            assert job.returncode == 0 and out == b'{"filed":true}' and b"filed" in err
    [(key, call_ids)] = service.filed.items()
    assert re.fullmatch(r"report:20\d\d-\d\d-\d\d", key)
    # One POST a node: the second round was answered from each node's journal.
    assert sorted(call_id.rsplit("-", 1)[1] for call_id in call_ids) == ["node0", "node1", "node2"]


def test_the_python_example_that_calls_the_command(tmp_path, service):
    service.script("/reports", Step(then="rst", effect=True))
    env = {**Home(tmp_path).env, "SAMEKEY_BIN": BIN}
    made = run("/usr/bin/python3", ROOT / "examples/python/report.py", service.url + "/reports", "--receipt", ASK, env=env)
    assert made.returncode == 0 and made.stdout.startswith("SUCCESS: It took effect, once") and service.effects("/reports") == 1


def test_the_ctypes_sketch_with_a_journal(tmp_path, service):
    import samekey
    with samekey.Caller(journal=tmp_path / "j" / "journal.db", lib=caller.lib(), node="node07") as handle:
        steps, json_type = [], [("Content-Type", "application/json")]
        result = handle.call(service.url + "/orders", key="order:42", body=BODY.encode(), prefix="ord",
                             headers=json_type, on_progress=lambda p: steps.append(p.what))
        assert result["state"] == "SUCCESS" and result["call_id"].startswith("ord-") and result["call_id"].endswith("-node07")
        assert steps == [3, 4, 10]
        assert handle.call(service.url + "/orders", key="order:42", headers=json_type, body=BODY.encode())["resumed"]
        with pytest.raises(samekey.Refused, match="bound to one request"):
            handle.call(service.url + "/orders", key="order:42", body=b"other")
        with pytest.raises(samekey.Refused, match="http://"):
            handle.call("nonsense")
        service.receipt_mode = "down"
        service.script("/late", Step(then="rst", effect=True))
        late = handle.call(service.url + "/late", key="k", receipt=ASK, receipt_queries=1)
        service.receipt_mode = "honest"
        assert late["state"] == "UNKNOWN" and handle.resume(late["call_id"])["state"] == "SUCCESS"
        with pytest.raises(samekey.Refused):
            handle.resume("no-such-call")


@pytest.mark.parametrize("mode, story", [("", ["send 1"]), ("lose-reply", ["send 1", "ask SUCCESS"]),
                                         ("lose-request", ["send 1", "ask NOT_RECEIVED", "send 2"])])
def test_the_rpc_example(tools, tmp_path, mode, story):
    """The step interface over a Unix socket: the callId in the frame's attachments, one effect whatever is lost."""
    path = tmp_path / "rpc.sock"
    server = subprocess.Popen([str(tools / "caller_rpc_server"), str(path), *([mode] if mode else [])],
                              stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline() == "ready\n"
        client = run(tools / "caller_rpc_client", path, "charge:42")
        assert client.returncode == 0, client
        lines = client.stdout.splitlines()
        told = [re.sub(r" \S+:", "", line) if line.startswith("ask") else " ".join(line.split()[:2]) for line in lines[:-1]]
        assert told == story and lines[-1].startswith("SUCCESS")
        ids = {line.split()[2] for line in lines if line.startswith("send")}
        assert len(ids) == 1
    finally:
        server.kill()
        out, _ = server.communicate()
    assert out == "effect charge:42\n"


# ---- memory


def test_valgrind(tools, service, tmp_path):
    if not shutil.which("valgrind"):
        pytest.fail("valgrind is missing; scripts/deps test installs it")
    env = Home(tmp_path).env
    service.script("/orders", Step(then="rst", effect=False), Step(422, effect=False), Step())
    check = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]
    flags = ["--backoff-base", "20ms", "--backoff-cap", "20ms", "--attempt-timeout", "2s", "--resend-after", "10ms"]
    command = [*check, BIN, "call", service.url + "/orders", "--key", "k", "--receipt", ASK, "-v", "--format", "json", *flags]
    first = run(*command, env=env)
    assert first.returncode == 4, first.stderr  # the 422 does not settle what the reset left open
    again = run(*command, env=env)
    assert again.returncode == 0, again.stderr
    assert run(*check, BIN, "calls", "list", "--all", env=env).returncode == 0
    assert run(*check, tools / "caller_charge", service.url + "/orders", "order-1", ASK, env=env).returncode == 0
