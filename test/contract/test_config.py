# SPDX-License-Identifier: MIT
"""Configuration through the binary (CONTRACT section 7): every mistake with file, line and remedy; nothing starts."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BIN = os.environ.get("SAMEKEY_BIN", "build/samekey")
ROOT = Path(__file__).resolve().parents[2]

DESIGN = """
listen  = {"0.0.0.0:8080"}            # also unix:/run/samekey/gw.sock
admin   = "127.0.0.1:8081"
admin_token_file = ""   report_token_file = ""
store   = "sqlite:/var/lib/samekey/receipts.db"
cache   = ""                          # redis://...
node    = "node07"
tenant  = "{header.X-Tenant}"         # empty: one tenant; set and missing: 400
credential = ""
drain   = 30s
purge_every = 1m   purge_batch = 2000

route "orders" {
  path     = {"/orders", "/orders/{id}/cancel"}
  methods  = {"POST", "PATCH"}
  mode     = guard                    # guard | observe | off
  upstream = {"http://127.0.0.1:9000"}   upstream_order = round
  call_id  = "header"
  key      = "header"
  key_missing = refuse
  business_ref = "{json.order_no}"
  compare  = "body"
  ignore   = {"json.sent_at", "json.nonce"}
  key_life = 7d        result_life = 7d      tombstone_life = 30d   tolerated_delay = 1h   upstream_key_life = 24h
  attempt_timeout = 3s  deadline = 30s  retries = 3   lease = 60s
  backoff_base = 500ms  backoff_cap = 4s  jitter = "0.5:1"
  retry_after_max = 300s
  retry_budget = 20
  retries_in_flight = 10
  retry_budget_floor = 10
  breaker_failures = 50
  breaker_calls = 20   breaker_window = 10s   breaker_open = 5s   breaker_probes = 1
  receipt  = "http GET /receipts/{call_id}"
  receipt_header = {}  receipt_map = ""
  receipt_timeout = 1s  receipt_queries = 5   resend_after = 3s
  callee_idempotent = false
  server_error = unknown
  accepted = pending   redirect_303 = unknown   success_when = ""
  swapped_keys = warn
  wait_in_progress = 2s
  concurrency = 256    queue = 1024    rate = 0
  body_bytes_max = 1m  result_bytes_max = 256k
  rounds = 5           round_gap = 30s  round_gap_max = 1h  still_wanted = false  on_failed = nothing
  reversal = ""
  notify   = ""
}
"""


def run(*arguments, **options):
    return subprocess.run([BIN, "gateway", *arguments], capture_output=True, text=True, timeout=30, **options)


@pytest.fixture
def conf(tmp_path):
    def write(text):
        path = tmp_path / "samekey.conf"
        path.write_text(text)
        return str(path)
    return write


def test_the_example_of_the_design_is_good(conf):
    r = run("--check", "-c", conf(DESIGN))
    assert r.returncode == 0, r.stderr
    assert "warning" not in r.stderr and "error" not in r.stderr


def test_the_defaults_are_those_of_the_design(conf):
    minimal = 'tenant = "{header.X-Tenant}"\nroute "orders" {\n path = {"/orders"}\n upstream = {"http://h"}\n}\n'
    given = run("--print-config", "-c", conf(DESIGN)).stdout
    default = run("--print-config", "-c", conf(minimal)).stdout
    chosen = {"node", "business_ref", "ignore", "path", "upstream", "receipt"}

    def values(text):
        return {m[1]: m[2].strip() for m in re.finditer(r"^ *(\w+) += (.*?) +# ", text, re.M)}
    one, other = values(given), values(default)
    assert one.keys() == other.keys() and len(one) > 70
    for name in one.keys() - chosen:
        assert one[name] == other[name], name


def test_flags_alone_are_enough():
    r = run("--print-config", "--upstream", "http://127.0.0.1:9000")
    assert r.returncode == 0
    assert 'route "default" {' in r.stdout
    for line in (r'path += \{"/\{\*\}"\}', r"key_missing += pass", r'receipt += "none"',
                 r'upstream += \{"http://127.0.0.1:9000"\} +# flag'):
        assert re.search(line, r.stdout), line
    assert "warning: tenant: neither tenant nor credential is set" in r.stderr


def test_every_value_says_where_it_came_from(conf):
    path = conf(DESIGN)
    line = DESIGN[:DESIGN.index("lease = 60s")].count("\n") + 1
    r = run("--print-config", "-c", path, "--set", "drain=9s", "--set", "orders.retries=2")
    assert r.returncode == 0
    assert re.search(r"^drain += 9s +# flag$", r.stdout, re.M)
    assert re.search(r"^ +retries += 2 +# flag$", r.stdout, re.M)
    assert re.search(r"^ +lease += 1m +# %s:%d$" % (re.escape(path), line), r.stdout, re.M)
    assert re.search(r"^loops += 0 +# default$", r.stdout, re.M)


def test_what_is_printed_reads_back_to_the_same(conf):
    first = run("--print-config", "-c", conf(DESIGN)).stdout
    again = run("--print-config", "-c", conf(first))
    assert again.returncode == 0

    def strip(text):
        return re.sub(r" *#.*", "", text)
    assert strip(first) == strip(again.stdout)


@pytest.mark.parametrize("change,said", [
    (("retries = 3", "retires = 3"), r": error: route \"orders\": `retires` is not a setting here; did you mean `retries`\?"),
    (("retries = 3", "retries = 99"), r": error: route \"orders\": retries: 99 is more than allowed; choose between 0 and 20"),
    (("deadline = 30s", "deadline = 30"), r": error: .*deadline: `30` is not a duration; write a whole number with its unit"),
    (("deadline = 30s", "deadline = 18s"), r": error: .*deadline: deadline 18s cannot hold the longest call, 18500ms"),
    (("lease = 60s", "lease = 1s"), r": error: .*lease: lease 1s is shorter than one attempt, 3s"),
    (("key_life = 7d", "key_life = 1h"), r": error: .*key_life: key_life 1h is shorter than .*tolerated_delay 1h"),
    (("breaker_probes = 1", "breaker_probes = 0"), r": error: .*breaker_probes: with 0 probes"),
    (("receipt  = \"http GET /receipts/{call_id}\"", "receipt = \"sql mysql://x\""), r": error: .*receipt: .*sql postgres://USER@HOST/DATABASE"),
    (("store   = \"sqlite:/var/lib/samekey/receipts.db\"", "store = \"postgres:x\""), r": error: .*store: a store is sqlite:PATH.*or postgres://USER@HOST/DATABASE"),
    (("cache   = \"\"", "cache = \"rediss://x\""), r": error: .*cache: TLS to Redis is not available"),
    (("cache   = \"\"", "cache = \"redis://pw@x\""), r": error: .*cache: before the @ stands USER:PASSWORD or :PASSWORD"),
    (("cache   = \"\"", "cache = \"memcached://x\""), r": error: .*cache: a cache is redis://HOST"),
    (("route \"orders\" {", "routes \"orders\" {"), r": error: "),
    (("success_when = \"\"", "success_when = \"json.code == 0\""), r": error: .*success_when: a condition is json.PATH = VALUE"),
    (("receipt_header = {}", "receipt_header = {\"X: ${NO_SUCH_NAME}\"}"), r": error: \$\{NO_SUCH_NAME\}: there is no NO_SUCH_NAME in the environment"),
    (("rounds = 5", "rounds = 2"), r": warning: .*rounds 2 is outside 3 to 5"),
    (("key      = \"header\"", "key = \"order:{uuid}\""), r": error: .*key: at byte"),
    (("\"/orders/{id}/cancel\"}", "\"/orders/\"}"), r": error: .*path: pattern `/orders/` differs from `/orders`"),
])
def test_mistakes_are_told_with_line_and_remedy(conf, change, said):
    assert change[0] in DESIGN
    line = DESIGN[:DESIGN.index(change[0])].count("\n") + 1
    path = conf(DESIGN.replace(change[0], change[1], 1))
    r = run("--check", "-c", path)
    assert r.returncode == (0 if "warning" in said else 78)
    assert re.search("%s:%d%s" % (re.escape(path), line, said), r.stderr), r.stderr


def test_nothing_starts_and_all_mistakes_are_told(conf):
    text = DESIGN.replace("retries = 3", "retries = x").replace("drain   = 30s", "drain = 0x").replace("node ", "nod ")
    r = run("-c", conf(text))
    assert r.returncode == 78 and r.stdout == ""
    assert r.stderr.count(": error: ") == 3


@pytest.mark.parametrize("arguments,code", [
    ([], 64), (["-c"], 64), (["--colour"], 64), (["samekey.conf"], 64), (["--set", "x"], 64), (["--set", "=1"], 64),
    (["-c", "a", "-c", "b"], 64), (["-c", "/nonexistent"], 78), (["--upstream", "nonsense"], 78),
    (["--upstream", "http://h", "--set", "retires=1"], 78), (["--upstream", "http://h", "--set", "other.retries=1"], 78)])
def test_usage_and_configuration_errors_have_their_codes(arguments, code):
    r = run(*arguments)
    assert r.returncode == code and r.stdout == "" and r.stderr


def test_the_page_of_all_settings_is_up_to_date():
    page = run("--print-settings-doc")
    assert page.returncode == 0
    assert page.stdout == (ROOT / "docs" / "configuration.md").read_text(), \
        "make it again: samekey gateway --print-settings-doc > docs/configuration.md"


def test_every_problem_is_on_the_page_of_errors():
    page = (ROOT / "docs" / "errors.md").read_text()
    table = (ROOT / "src" / "core" / "problem.def").read_text()
    rows = re.findall(r'^PROBLEM\(\w+,\s*"([^"]+)",\s*(\d+),\s*(\w+)', table, re.M)
    assert len(rows) > 25
    for slug, status, outcome in rows:
        outcome = outcome.lower().replace("_", "-")
        assert re.search(r"^\| `%s` \| [^|]*%s[^|]* \| %s \|" % (slug, status, outcome), page, re.M), slug
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.M)) == {row[0] for row in rows}


def test_the_manual_pages_are_up_to_date(tmp_path):
    subprocess.run([sys.executable, str(ROOT / "docs/man/make.py"), BIN, str(tmp_path)], check=True, timeout=60)
    made = {p.name: p.read_text() for p in tmp_path.iterdir()}
    callers = {"samekey-call.1", "samekey-calls.1"}  # made by docs/make-caller.py; test/caller holds them to that
    kept = {p.name: p.read_text() for p in (ROOT / "docs/man").glob("samekey*") if p.name not in callers}
    assert made == kept, "make them again: docs/man/make.py build/samekey docs/man"
    commands = re.findall(r"^  (\w+) ", subprocess.run([BIN, "help"], capture_output=True, text=True, check=True).stdout, re.M)
    assert {f"samekey-{c}.1" for c in commands} == set(made) - {"samekey.1", "samekey.conf.5"} | callers
