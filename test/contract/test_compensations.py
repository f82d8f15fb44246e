# SPDX-License-Identifier: MIT
"""samekey compensations and samekey receipt --trace, against a gateway: what they print, what they return."""

import json
import os
import subprocess

import pytest

from support.gateway import BINARY
from support.house import House, Step

TOKEN, READER = "operator-token-for-tests", "reader-token-for-tests"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    (folder / "operator").write_text(TOKEN + "\n", encoding="ascii")
    (folder / "reader").write_text(READER + "\n", encoding="ascii")
    built = House(folder, {"plain": {}, "many": {}}, drain="1s", admin_token_file=str(folder / "operator"),
                  admin_read_token_file=str(folder / "reader"))
    yield built
    assert built.close() == 0


def run(*arguments, **environment):
    env = {name: value for name, value in os.environ.items() if name != "SAMEKEY_ADMIN_TOKEN_FILE"}
    return subprocess.run([str(BINARY), *arguments], capture_output=True, text=True, timeout=60, env={**env, **environment})


@pytest.fixture
def samekey(house):
    """The command at this house, as its operator."""
    def ask(*arguments, **environment):
        return run("compensations", *arguments, "--at", f"127.0.0.1:{house.gateway.admin_port}", "--token-file",
                   str(house.gateway.folder / "operator"), **environment)
    return ask


def unknown(house, route="plain"):
    order = house.order(route, Step(then="rst"))
    order.send()
    return order


def number(samekey, order):
    listed = json.loads(samekey("list", "--all", "--format", "json").stdout)["items"]
    return next(item["id"] for item in listed if item["call_id"] == order.call_id)


def test_tasks_are_listed_and_shown(house, samekey):
    order, later = unknown(house), unknown(house)
    listed = samekey("list")
    lines = listed.stdout.splitlines()
    assert listed.returncode == 0 and listed.stderr == ""
    assert later.call_id in lines[0] and order.call_id in lines[1] and "PENDING" in lines[0] and "0/5" in lines[0]
    assert len(samekey("list", "--limit", "1").stdout.splitlines()) == 1
    assert samekey("list", "--status", "MANUAL").stdout == ""
    shown = samekey("show", number(samekey, order))
    assert shown.returncode == 0 and order.call_id in shown.stdout and order.key in shown.stdout and "UNKNOWN" in shown.stdout
    document = json.loads(samekey("show", number(samekey, order), "--format", "json").stdout)
    assert document["call_id"] == order.call_id and document["history"] == []
    missing = samekey("show", "999999")
    assert missing.returncode == 1 and "no such compensation task" in missing.stderr and missing.stdout == ""


def test_a_task_is_settled_with_evidence(house, samekey):
    order = unknown(house)
    task = number(samekey, order)
    done = samekey("resolve", task, "--outcome", "SUCCESS", "--evidence", "ledger line 17", "--operator", "mei")
    assert done.returncode == 0 and "RESOLVED" in done.stdout and "by mei: ledger line 17" in done.stdout
    assert order.state == "SUCCESS"
    again = samekey("resolve", task, "--outcome", "FAILED", "--evidence", "no", "--operator", "mei")
    assert again.returncode == 1 and "nothing was changed" in again.stderr and order.state == "SUCCESS"
    assert samekey("run", task, "--operator", "mei").returncode == 1


def test_a_round_is_asked_for(house, samekey):
    order = unknown(house)
    done = samekey("run", number(samekey, order), "--operator", "mei")
    assert done.returncode == 0 and "by mei" in done.stdout


def test_many_are_settled_only_as_the_dry_run_named_them(house, samekey):
    orders = [unknown(house, "many") for _ in range(55)]
    verdict = ("resolve", "--status", "PENDING", "--route", "many", "--outcome", "FAILED", "--evidence", "none is in the ledger",
               "--operator", "mei")
    dry = samekey(*verdict)
    assert dry.returncode == 0 and "55 tasks would be settled as FAILED. Nothing was changed." in dry.stdout
    assert "... and 5 more" in dry.stdout and orders[0].state == "UNKNOWN"
    named = dry.stdout.split("--set ")[1].split()[0]
    assert samekey(*verdict, "--yes").returncode == 64
    orders.append(unknown(house, "many"))
    changed = samekey(*verdict, "--set", named, "--yes")
    assert changed.returncode == 1 and "dry run" in changed.stderr and orders[0].state == "UNKNOWN"
    named = json.loads(samekey(*verdict, "--format", "json").stdout)["set"]
    done = samekey(*verdict, "--set", named, "--yes")
    assert done.returncode == 0 and "56 of 56 settled as FAILED" in done.stdout
    assert {order.state for order in orders} == {"FAILED"}


@pytest.mark.parametrize("arguments, words", [
    (("show",), "which task"), (("show", "x1"), "number"), (("list", "4"), "list takes no number"), (("erase", "4"), "list, show"),
    (("resolve", "4"), "--outcome"), (("resolve", "--outcome", "SUCCESS", "--evidence", "e", "--operator", "o"), "which tasks"),
    (("resolve", "4", "--outcome", "MAYBE"), "SUCCESS or FAILED"), (("run", "4"), "--operator"),
    (("resolve", "4", "--route", "r", "--outcome", "SUCCESS", "--evidence", "e", "--operator", "o"), "do not go together"),
    (("list", "--limit", "0"), "--limit"), (("list", "--format", "xml"), "--format"), (("list", "--colour"), "not one of its flags"),
    (("show", "4", "5"), "one task"), (("list", "--yes"), "belong to resolve"),
])
def test_wrong_usage_is_told_and_nothing_is_asked(samekey, arguments, words):
    r = samekey(*arguments)
    assert r.returncode == 64 and words in r.stderr and r.stdout == ""


def test_the_token_comes_from_a_file_the_environment_or_the_configuration(house):
    at, folder = f"127.0.0.1:{house.gateway.admin_port}", house.gateway.folder
    nobody = run("compensations", "list", "--at", at)
    assert nobody.returncode == 1 and "--token-file" in nobody.stderr
    assert run("compensations", "list", "--at", at, SAMEKEY_ADMIN_TOKEN_FILE=str(folder / "operator")).returncode == 0
    assert run("compensations", "list", "-c", str(house.gateway.file)).returncode == 0
    reads = run("compensations", "run", "1", "--operator", "mei", "--at", f"http://{at}/", "--token-file", str(folder / "reader"))
    assert reads.returncode == 1 and "may only read" in reads.stderr
    gone = run("compensations", "list", "--at", at, "--token-file", str(folder / "no-such-file"))
    assert gone.returncode == 1 and "no-such-file" in gone.stderr
    nowhere = run("compensations", "list", "--at", "127.0.0.1:1")
    assert nowhere.returncode == 1 and "cannot be asked" in nowhere.stderr
    public = run("compensations", "list", "--at", f"127.0.0.1:{house.gateway.port}")
    assert public.returncode == 1 and public.stdout == ""


def test_what_callers_wrote_cannot_rewrite_the_terminal(house, samekey):
    order = unknown(house)
    task = number(samekey, order)
    evil = "\x1b[2Jall clear\r\n"
    shown = samekey("resolve", task, "--outcome", "FAILED", "--evidence", evil, "--operator", "mei")
    assert shown.returncode == 0 and "\x1b" not in shown.stdout and "all clear" in shown.stdout


def test_the_calls_of_a_trace_are_shown_together(house):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    parent = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    at = ("--at", f"127.0.0.1:{house.gateway.admin_port}", "--token-file", str(house.gateway.folder / "operator"))
    none = run("receipt", "--trace", trace, *at)
    assert none.returncode == 5 and none.stdout == ""
    orders = [house.order("plain", Step(201)) for _ in range(3)]
    for order in orders:
        order.send(headers=parent)
    shown = run("receipt", "--trace", trace, *at)
    assert shown.returncode == 0
    assert [line.split()[3] for line in shown.stdout.splitlines()] == [order.call_id for order in orders]
    failed = house.order("plain", Step(422))
    failed.send(headers=parent)
    assert run("receipt", "--trace", trace, *at).returncode == 3
    unclear = house.order("plain", Step(then="rst"))
    unclear.send(headers=parent)
    document = run("receipt", "--trace", trace, "--format", "json", *at)
    assert document.returncode == 4
    assert [item["state"] for item in json.loads(document.stdout)["items"]] == ["UNKNOWN", "FAILED", "SUCCESS", "SUCCESS", "SUCCESS"]
    assert run("receipt", "--trace", trace).returncode == 4  # nobody at the default address
    assert run("receipt", "some-call", "--trace", trace, *at).returncode == 64
