# SPDX-License-Identifier: MIT
"""The guard's C libraries as a service meets them: headers, names, what they need, and what they do on a real server."""

import pathlib
import re
import subprocess

import pytest

import guard
from support.gateway import BINARY, ROOT
from support.poll import until
from support.postgres import Postgres

BUILD = BINARY.parent
HERE = pathlib.Path(__file__).parent
DATABASES = ("postgres", "sqlite")


@pytest.fixture(scope="module")
def tool():
    subprocess.run(["ninja", "-C", str(BUILD), "guard_tools"], check=True, stdout=subprocess.DEVNULL)
    return BUILD / "guard_tool_postgres"


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("database", DATABASES)
def test_every_name_is_listed_declared_and_nothing_else_is_shown(database):
    shown = {line.split()[-1].replace("@@", " ") for line in run("nm", "-D", "--defined-only", BUILD / f"libsamekey_guard_{database}.so")
             .splitlines() if "@@" in line}
    listed = {line for line in (HERE / f"symbols_{database}.txt").read_text().splitlines() if not line.startswith("#")}
    assert shown == listed
    header = (ROOT / f"include/samekey/guard_{database}.h").read_text()
    assert {name.split()[0] for name in listed} == set(re.findall(r"\b(samekey_guard_\w+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.S)))


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("database", DATABASES)
def test_who_uses_one_database_needs_nothing_of_the_other(database):
    needs = run("ldd", BUILD / f"libsamekey_guard_{database}.so")
    assert ("libpq" in needs) == (database == "postgres")
    assert ("sqlite" in needs) == (database == "sqlite")
    assert "jansson" not in needs and "curl" not in needs


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("compiler", [["gcc", "-xc", "-std=c17"], ["gcc", "-xc", "-std=c99"], ["g++", "-xc++", "-std=c++17"]])
def test_the_headers_stand_alone_and_both_libraries_go_into_one_program(compiler, tmp_path):
    source = tmp_path / "use"
    source.write_text("#include <samekey/guard_sqlite.h>\n#include <samekey/guard_postgres.h>\n#include <samekey/samekey.h>\n"
                      "int main(void) { samekey_guard_sqlite_answer_clear(0); samekey_guard_postgres_receipt_clear(0);"
                      " return SAMEKEY_GUARD_OK; }\n")
    for kind in ("so", "a"):
        made = tmp_path / f"use.{kind}"
        run(*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", f"-I{ROOT}/include", source, "-o", made, "-xnone",
            *(BUILD / f"libsamekey_guard_{database}.{kind}" for database in DATABASES), f"-Wl,-rpath,{BUILD}", "-lpq", "-lsqlite3",
            "-lm", "-pthread")
        run(made)


def test_the_library_on_a_server(server, tool, url):
    run(tool, url, "api")


def test_the_library_says_what_the_table_says(server, tool, url):
    run(tool, url, "decisions")


def test_through_a_pooler(server, pooler, tool, name):
    run(tool, pooler.url(name), "api")


def test_a_standby_that_does_not_answer_leaves_the_commit_unknown(tool, started):
    server = Postgres({"fsync": "off"})
    started.append(server)
    guard.install(server, "shop")
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.sql("SELECT pg_reload_conf()")
    until(lambda: server.value("SHOW synchronous_standby_names") == "nobody")
    process = subprocess.Popen([str(tool), server.url("shop"), "standby"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    until(lambda: server.value(f"SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}") == "SyncRep")
    server.sql(f"SELECT pg_cancel_backend({pid})")
    assert process.wait(20) == 0, process.stderr.read()
