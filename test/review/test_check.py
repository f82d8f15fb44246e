# SPDX-License-Identifier: MIT
"""`samekey check` as a user runs it: the corpus beside this file, call paths, our own samekey.conf, Debian's default
configurations, exit codes, and that the SARIF is SARIF.

NAME.expect holds the findings of NAME, "LINE RULE" each (or "FILE:LINE RULE"). Nothing is skipped: what has to be
fetched (test/review/peers) and cannot be, fails."""
import glob
import json
import os
import subprocess

import jsonschema
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("SAMEKEY_BIN", os.path.join(ROOT, "build", "samekey"))
PEERS = os.environ.get("SAMEKEY_PEERS", os.path.join(ROOT, "build", "review-peers"))
CASES = sorted(glob.glob(f"{HERE}/*/*.expect"))
PATHS = sorted(os.path.dirname(f) for f in glob.glob(f"{HERE}/path/*/layers"))


def check(*arguments, cwd=None, env=None):
    return subprocess.run([BIN, "check", *arguments], capture_output=True, text=True, timeout=60, cwd=cwd,
                          env={**os.environ, **(env or {})})


def findings(run, folder, silenced=False):
    return sorted(f"{os.path.relpath(f['file'], folder)}:{f['line']} {f['rule']}"
                  for f in json.loads(run.stdout)["findings"] if silenced or not f["silenced"])


def expected(path, name=None):
    with open(path) as f:
        return sorted(line if ":" in line else f"{name}:{line}" for line in f.read().splitlines())


@pytest.fixture(scope="session")
def peers():
    subprocess.run([f"{HERE}/peers", PEERS], check=True, timeout=300)
    return PEERS


@pytest.fixture(scope="session")
def schema(peers):
    with open(f"{peers}/sarif-2.1.0.json") as f:
        document = json.load(f)
    return jsonschema.Draft7Validator(document)


@pytest.mark.parametrize("case", CASES, ids=lambda c: os.path.relpath(c, HERE).removesuffix(".expect"))
def test_each_file_gives_exactly_its_findings(case):
    folder, source = os.path.dirname(case), case.removesuffix(".expect")
    run = check("--format", "json", source)
    want = expected(case, os.path.basename(source))
    assert findings(run, folder) == want, run.stdout + run.stderr
    assert run.returncode == (1 if want else 0), run.stderr


@pytest.mark.parametrize("folder", PATHS, ids=os.path.basename)
def test_each_path_gives_exactly_its_findings(folder):
    with open(f"{folder}/layers") as f:
        layers = ",".join(os.path.join(folder, line) for line in f.read().split())
    run = check("--format", "json", "--path", layers)
    want = expected(f"{folder}/expect")
    assert findings(run, folder) == want, run.stdout + run.stderr
    assert run.returncode == (1 if want else 0)


def test_every_rule_and_every_reader_has_a_case():
    seen = {line.split()[1] for case in CASES + glob.glob(f"{HERE}/path/*/expect") for line in open(case)}
    page = check("--explain", "all").stdout
    rules = {line.split()[0] for line in page.splitlines() if line.startswith("SK")}
    assert rules and rules - seen == set()
    read = {os.path.basename(os.path.dirname(case)) for case in CASES}
    assert {"samekey", "nginx", "haproxy", "envoy", "istio", "ingress", "grpc", "spring", "properties", "rabbitmq",
            "celery", "shell", "mcp"} <= read
    assert len(CASES) + len(PATHS) >= 60


def test_stacked_retries_show_the_product():
    folder = f"{HERE}/path/02-stacked"
    run = check("--path", f"{folder}/client.yaml,{folder}/mesh.yaml,{folder}/nginx.conf")
    assert "4 (client.yaml) x 3 (mesh.yaml) x 2 (nginx.conf) = 24 requests for one call" in run.stdout


def test_the_text_shows_line_danger_remedy_and_arithmetic():
    run = check(f"{HERE}/envoy/02-retry-5xx.yaml")
    assert "02-retry-5xx.yaml:7: error SK301 over-budget (route /orders)" in run.stdout
    assert "      7 | timeout: 5s" in run.stdout
    assert "6 x 3 s + waits 625 ms = 18.625 s, the budget is 5 s" in run.stdout
    assert "danger: The caller gives up" in run.stdout and "remedy: Lower the attempts" in run.stdout
    assert "\x1b" not in run.stdout


def test_our_figures_are_shown():
    run = check(f"{HERE}/samekey/01-good.conf")
    assert "4 attempts; worst case 4 x 3 s" in run.stdout
    assert "86400 rows" in run.stdout and "key lives 7 d" in run.stdout
    assert "old key could run again" in run.stderr


def test_exit_codes(tmp_path):
    unknown = tmp_path / "list.txt"
    unknown.write_text("milk\neggs\n")
    assert check(f"{HERE}/nginx/01-default-is-safe.conf").returncode == 0
    assert check(f"{HERE}/nginx/02-non-idempotent.conf").returncode == 1
    run = check(f"{HERE}/nginx/02-non-idempotent.conf", str(unknown))
    assert run.returncode == 66 and "SK101" in run.stdout and "list.txt: not reviewed" in run.stderr
    assert check("/nowhere/x.conf").returncode == 66
    for wrong in ((), ("--as", "fax", "x"), ("--format", "pdf", "x"), ("--explain", "SK000"), ("--bogus",),
                  ("--path", "a,b", "c"), ("--path", ",,")):
        assert check(*wrong).returncode == 64, wrong


def test_as_overrides_what_the_content_says(tmp_path):
    odd = tmp_path / "odd"
    odd.write_text("retry-on 503\n")
    assert check(str(odd)).returncode == 66
    odd.write_text("[[ -n $X ]] && curl -m 5 --retry 2 -d a http://x\n")
    assert "SK202" in check("--as", "shell", str(odd)).stdout


def test_explain_by_id_and_name():
    assert check("--explain", "sk101").stdout == check("--explain", "retry-without-asking").stdout
    assert "Silence:  # samekey-ignore SK101" in check("--explain", "SK101").stdout


def test_silenced_findings_stay_visible():
    run = check("--format", "json", f"{HERE}/nginx/10-silenced.conf")
    assert run.returncode == 0
    reasons = [f["silenced"] for f in json.loads(run.stdout)["findings"]]
    assert reasons == ["the orders service runs an Idempotency-Key once", "six servers, see runbook"]


def test_what_cannot_be_read_says_why(tmp_path):
    (tmp_path / "huge.yaml").touch()
    os.truncate(tmp_path / "huge.yaml", 50 << 20)
    (tmp_path / "program").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "wrong.yaml").write_text("virtual_hosts: [\n  }")
    (tmp_path / "a.conf").write_text("include b.conf;\nserver { listen 80; }\n")
    (tmp_path / "b.conf").write_text("include a.conf;\n")
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    for name, words in (("huge.yaml", "larger than 4 MiB"), ("program", "not a text file"), ("wrong.yaml", "not YAML"),
                        ("a.conf", "include loop"), ("x", "loop of symbolic links")):
        run = check(str(tmp_path / name))
        assert run.returncode == 66 and words in run.stderr, (name, run.stderr)


@pytest.mark.parametrize("path", ["/etc/nginx/nginx.conf", "/etc/nginx/sites-available/default",
                                  "/etc/nginx/proxy_params", "/etc/nginx/fastcgi_params", "/etc/haproxy/haproxy.cfg"])
def test_debian_defaults_raise_no_alarm(path):
    run = check("--format", "json", path)
    assert run.returncode == 0, run.stdout + run.stderr


def test_debian_rabbitmq_defaults_raise_no_alarm(peers):
    files = [f"{peers}/rabbitmq/etc/default/rabbitmq-server", f"{peers}/rabbitmq/usr/share/rabbitmq/rabbitmq-env.conf"]
    run = check("--format", "json", *files)
    assert run.returncode == 0, run.stdout + run.stderr


def test_our_own_examples_are_clean():
    shipped = sorted(f for top in ("examples", "packaging") for f in glob.glob(f"{ROOT}/{top}/**/*.conf", recursive=True))
    assert shipped
    for path in shipped:
        run = check(path)
        assert run.returncode == 0, run.stdout + run.stderr


def test_the_page_is_what_the_rules_say():
    with open(f"{ROOT}/docs/check.md") as f:
        assert check("--page").stdout == f.read(), "run: build/samekey check --page > docs/check.md"


def valid(schema, run):
    document = json.loads(run.stdout)
    assert [e.message for e in schema.iter_errors(document)] == []
    return document


def test_the_schema_can_refuse(schema):
    assert list(schema.iter_errors({"version": "2.1.0", "runs": [{"tool": {}}]}))


@pytest.mark.parametrize("folder", sorted({os.path.dirname(case) for case in CASES}), ids=os.path.basename)
def test_the_sarif_is_sarif(schema, folder):
    files = sorted(c.removesuffix(".expect") for c in CASES if os.path.dirname(c) == folder)
    document = valid(schema, check("--format", "sarif", *files))
    run = document["runs"][0]
    assert run["invocations"][0]["executionSuccessful"] is True
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] >= 1


def test_the_sarif_of_odd_names_bytes_and_failures(schema, tmp_path):
    odd = tmp_path / "a b#%é.conf"
    odd.write_bytes(b"server { location /\xff\x1b[1m { proxy_pass http://a;\nproxy_next_upstream error non_idempotent; } }\n")
    document = valid(schema, check("--format", "sarif", os.path.basename(odd), "missing.conf", cwd=tmp_path))
    run = document["runs"][0]
    assert run["invocations"][0]["executionSuccessful"] is False
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b%23%25%C3%A9.conf" and place["region"]["startLine"] == 2
    silenced = valid(schema, check("--format", "sarif", f"{HERE}/nginx/10-silenced.conf"))
    assert silenced["runs"][0]["results"][0]["suppressions"][0]["kind"] == "inSource"
