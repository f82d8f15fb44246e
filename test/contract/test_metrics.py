# SPDX-License-Identifier: MIT
"""/metrics of a running gateway, and what is shipped to be read with it: the alert rules and the Grafana dashboard.

promtool lints the text and runs the rules' own tests; a real Prometheus scrapes the gateway and answers every query of
the dashboard; and every query names only metrics and labels that the gateway has."""

import json
import os
import re
import shutil
import subprocess
import urllib.parse

import pytest

from support.gateway import ROOT, Gateway
from support.poll import free_port, until
from support.upstream import Step, Upstream
from support.wire import ask

ALERTS = ROOT / "packaging" / "prometheus" / "alerts.yml"
ALERTS_TEST = ROOT / "packaging" / "prometheus" / "alerts_test.yml"
DASHBOARD = ROOT / "packaging" / "grafana" / "samekey.json"
PROMTOOL = shutil.which("promtool")
PROMETHEUS = shutil.which("prometheus")

needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed (package prometheus)")
GIVEN_BY_PROMETHEUS = {"job", "instance"}


@pytest.fixture
def gateway(tmp_path, started):
    """A gateway in which something of everything happened."""
    upstream = Upstream()
    started.append(upstream)
    upstream.script("/orders/1", Step(201))
    upstream.script("/orders/2", Step(then="hang"))
    gw = Gateway(tmp_path / "gw", {"orders": {"upstream": [upstream.url], "receipt": "http GET /receipts/{call_id}",
                                              "key_missing": "refuse", "deadline": "2s", "retries": 0}})
    started.append(gw)
    upstream.receipt_mode = "down"
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "m-1", "Idempotency-Key": "k-1"}).status == 201
    assert gw.ask("POST", "/orders/1", {"X-Call-Id": "m-1", "Idempotency-Key": "k-1"}).status == 201
    assert gw.ask("POST", "/orders/2", {"X-Call-Id": "m-2", "Idempotency-Key": "k-2"}).status == 504
    assert gw.ask("POST", "/orders/3", {"X-Call-Id": "m-3"}).status == 400
    return gw


def series_of(text):
    """name -> the set of its labels, from the text format."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels = re.match(r"([a-z0-9_]+)(?:\{(.*?)\})? ", line).groups()
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels or ""))
    return found


def named_in(expr):
    """(metric, labels it is asked by) of a query, labels of the groupings around it too."""
    groupings = set()
    for inside in re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expr):
        groupings.update(one.strip() for one in inside.split(",") if one.strip())
    bare = re.sub(r'"[^"]*"', '""', expr)
    for name, labels in re.findall(r"\b(samekey_[a-z0-9_]+)(?:\{([^}]*)\})?", bare):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels)) | groupings


def dashboard_queries():
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']}", target["expr"]
    for variable in dashboard["templating"]["list"]:
        inner = re.match(r"label_values\((.*), (\w+)\)$", str(variable.get("definition", "")))
        if inner:
            yield f"variable {variable['name']}", f"count by ({inner[2]}) ({inner[1]})"


def filled_in(expr):
    """A query as Grafana sends it with "All" chosen."""
    return expr.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*").replace("$route", ".*")


def alert_rules():
    """(alert, expr): the file's own layout, one-line and folded expressions; promtool reads it as YAML besides."""
    text = ALERTS.read_text()
    for block in re.split(r"\n      - alert: ", text)[1:]:
        expr = re.search(r"\n        expr: (\|\n(?:          .*\n)+|.*\n)", block)[1]
        yield block.split("\n", 1)[0], expr.removeprefix("|\n")


@needs_promtool
def test_promtool_finds_nothing_to_mend_in_the_metrics(gateway):
    text = gateway.admin("GET", "/metrics").body
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


@needs_promtool
def test_promtool_accepts_the_alert_rules():
    done = subprocess.run([PROMTOOL, "check", "rules", str(ALERTS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(list(alert_rules()))} rules found" in done.stdout


@needs_promtool
def test_every_alert_fires_on_its_samples_and_on_no_others():
    done = subprocess.run([PROMTOOL, "test", "rules", ALERTS_TEST.name], capture_output=True, text=True,
                          cwd=ALERTS_TEST.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    tested = ALERTS_TEST.read_text()
    for alert, _ in alert_rules():
        fires = re.search(rf"alertname: {alert}\n\s+exp_alerts:\n", tested)
        rests = re.search(rf"{{eval_time: \w+, alertname: {alert}}}", tested)
        assert fires and rests, f"alerts_test.yml does not show {alert} both firing and at rest"


def test_queries_name_only_what_the_gateway_has(gateway):
    has = series_of(gateway.admin("GET", "/metrics").body.decode())
    queries = [*dashboard_queries(), *((f"alert {name}", expr) for name, expr in alert_rules())]
    assert len(queries) > 40
    for where, expr in queries:
        named = list(named_in(expr))
        assert named or "up{" in expr, f"{where} asks about nothing of ours: {expr}"
        for metric, labels in named:
            assert metric in has, f"{where} names {metric}, which the gateway does not have"
            unknown = labels - has[metric] - GIVEN_BY_PROMETHEUS
            assert not unknown, f"{where} asks {metric} for the labels {unknown}, which it does not have"
            values = re.findall(r'(\w+)="(\w+)"', expr)
            for label, value in values:
                if label in has[metric]:
                    assert gateway.admin("GET", "/metrics").body.decode().count(f'{label}="{value}"'), \
                        f"{where}: {metric} never has {label}={value}"


def test_the_age_of_the_oldest_unknown_call_is_told(gateway):
    assert gateway.state("m-2") == "UNKNOWN"
    assert until(lambda: gateway.metric("samekey_unknown_oldest_seconds") >= 1, 30)
    assert gateway.metric("samekey_unknown_calls") == 1
    assert gateway.metric("samekey_store_queue_limit") > 0


def test_the_check_of_names_would_see_a_wrong_one():
    assert list(named_in('sum by (le) (rate(samekey_x_bucket{job=~"$job",a="b{c=d}"}[5m])) > samekey_y')) == [
        ("samekey_x_bucket", {"job", "a", "le"}), ("samekey_y", {"le"})]


def test_the_dashboard_can_be_laid_out():
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({p["id"] for p in panels}) == len(panels)
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not taken & cells, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"], panel["title"]
        assert all(t["datasource"]["uid"] == "${datasource}" for t in panel.get("targets", []))


@pytest.mark.skipif(not PROMETHEUS, reason="prometheus is not installed")
def test_a_real_prometheus_answers_every_query(gateway, tmp_path, started):
    port = free_port()
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\nrule_files: ['{ALERTS}']\nscrape_configs:\n"
        f"  - job_name: samekey\n    static_configs: [{{targets: ['127.0.0.1:{gateway.admin_port}']}}]\n")
    process = subprocess.Popen(
        [PROMETHEUS, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb",
         f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL,
        stderr=open(tmp_path / "prometheus.log", "wb"), env={**os.environ, "GOMAXPROCS": "1"})
    started.append(type("Ended", (), {"stop": lambda self: (process.terminate(), process.wait(20))})())

    def query(expr):
        answer = ask(port, "GET", "/api/v1/query?query=" + urllib.parse.quote(expr), host=f"127.0.0.1:{port}")
        document = json.loads(answer.body)
        assert document["status"] == "success", document
        return document["data"]["result"]

    def scraped_twice():
        try:
            found = query("count_over_time(samekey_connections[1m])")
        except (OSError, ValueError):  # not yet listening; "Service Unavailable" while it starts
            return False
        return bool(found) and float(found[0]["value"][1]) >= 2

    assert until(scraped_twice, 60), (tmp_path / "prometheus.log").read_text()[-2000:]
    empty = [where for where, expr in dashboard_queries() if not query(filled_in(expr))]
    # `> 0` leaves out what did not happen within the minute that was seen.
    assert empty in ([], ["panel Refused here, by problem"])

    def loaded():
        rules = json.loads(ask(port, "GET", "/api/v1/rules", host=f"127.0.0.1:{port}").body)
        return [r for group in rules["data"]["groups"] for r in group["rules"] if r["health"] != "unknown"]

    rules = until(lambda: len(loaded()) == len(list(alert_rules())) and loaded(), 30)
    assert all(rule["health"] == "ok" for rule in rules), rules
