# SPDX-License-Identifier: MIT
"""The command in front of a real gateway: its default receipts, its problems, one effect from many nodes."""

import json
import re
import subprocess
import threading

import pytest

from caller import BODY, ROOT, Home, answers, outcomes
from support.gateway import BINARY, Gateway
from support.poll import until
from support.upstream import Step, Upstream, refused_port


@pytest.fixture
def street(tmp_path, started):
    """A service, and a gateway in front of it that asks nobody behind it."""
    service = Upstream()
    started.append(service)
    gateway = Gateway(tmp_path / "gateway", {"orders": {"upstream": [service.url], "receipt": "none", "methods": ["POST"],
                                                        "attempt_timeout": "2s", "deadline": "9s"}})
    started.append(gateway)
    return service, gateway, f"http://127.0.0.1:{gateway.port}"


def test_through_the_gateway_and_again(tmp_path, street):
    service, _, url = street
    run = Home(tmp_path).call(url + "/orders/1", "--prefix", "ord")
    assert run.code == 0 and outcomes(run) == ["success"]
    assert service.posts("/orders/1")[0].get("X-Call-Id") == run.json["call_id"]
    # Another node with the same key: its own callId, the first one's result.
    other = Home(tmp_path, "other").call(url + "/orders/1", "--node", "other")
    assert other.code == 0 and len(service.posts("/orders/1")) == 1 and other.json["call_id"] != run.json["call_id"]
    headers = dict(other.json["result"]["headers"])
    assert headers["x-original-call-id"] == run.json["call_id"] and headers["idempotent-replayed"] == "true"


def test_our_timeout_while_the_gateway_goes_on(tmp_path, street):
    """The answer comes too late for us; the default receipt tells it, and the POST is one."""
    service, _, url = street
    gate = threading.Event()
    service.script("/orders/1", Step(gate=gate, body=b'{"made":1}'))
    home = Home(tmp_path)
    process = home.start("call", url + "/orders/1", "--key", "k-1", "--data", BODY, "--attempt-timeout", "300ms", "--format",
                         "json", "--backoff-base", "20ms", "--receipt-queries", "50")
    until(lambda: service.posts("/orders/1"))
    threading.Timer(0.8, gate.set).start()
    out, err = process.communicate(timeout=20)
    document = json.loads(out)
    assert process.returncode == 0, (out, err)
    assert document["reason"] == "receipt" and "PROCESSING" in answers(document) and document["result"]["body"] == '{"made":1}'
    assert len(service.posts("/orders/1")) == 1


def test_a_call_that_never_arrived_is_sent_again_and_in_the_end_fenced(tmp_path, started):
    """Each request is lost on the way to the gateway, and NOT_RECEIVED from it is enough to send again at once."""
    service = Upstream()
    started.append(service)
    gateway = Gateway(tmp_path / "gateway", {"orders": {"upstream": [service.url], "receipt": "none"}})
    started.append(gateway)
    lossy = Upstream()
    started.append(lossy)
    lossy.script("/orders/1", Step(then="rst", effect=False))
    run = Home(tmp_path).call(lossy.url + "/orders/1", "--receipt", f"http://127.0.0.1:{gateway.port}"
                              "/.samekey/receipts/{call_id}", "--retries", "1", "--attempt-timeout", "500ms")
    # Nothing ever arrived there, so at the end the callId is fenced at the gateway: FAILED is certain.
    assert run.code == 3 and run.json["final"] and run.json["reason"] == "fenced_at_callee"
    assert set(answers(run)) == {"NOT_RECEIVED"} and outcomes(run) == ["unknown", "unknown"]
    late = gateway.send(f"POST /orders/1 HTTP/1.1\r\nHost: x\r\nX-Call-Id: {run.json['call_id']}\r\nIdempotency-Key: k-1\r\n"
                        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}".encode())
    assert late.status == 409 and late.slug == "call-fenced" and not service.posts("/orders/1")


def test_an_upstream_that_is_away_is_the_gateways_to_retry(tmp_path, started):
    port, held = refused_port()
    gateway = Gateway(tmp_path / "gateway", {"orders": {"upstream": [f"http://127.0.0.1:{port}"], "receipt": "none"}})
    started.append(gateway)
    with held:
        run = Home(tmp_path).call(f"http://127.0.0.1:{gateway.port}/orders/1")
    assert run.code == 3 and not run.json["final"] and len(run.json["attempts"]) == 1


def test_a_swapped_body_is_refused_by_the_gateway_and_no_new_key_is_allowed(tmp_path, street):
    service, _, url = street
    assert Home(tmp_path).call(url + "/orders/1").code == 0
    run = Home(tmp_path, "other").call(url + "/orders/1", data='{"order":"o-1","amount":9}')
    assert run.code == 3 and run.json["attempts"][0]["status"] == 422 and not run.json["safe_new_key"]


def test_the_cron_example_on_three_nodes_is_one_effect(tmp_path, started):
    service = Upstream()
    started.append(service)
    gateway = Gateway(tmp_path / "gateway", {"reports": {"path": ["/reports"], "upstream": [service.url], "receipt": "none"}})
    started.append(gateway)
    service.script("/reports", Step(delay=0.2))
    jobs = [subprocess.Popen([str(ROOT / "examples/shell/nightly-report"), f"http://127.0.0.1:{gateway.port}/reports", "--node",
                              f"node{n}"], env={**Home(tmp_path, f"node{n}").env, "SAMEKEY_BIN": str(BINARY)},
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for n in range(3)]
    for job in jobs:
        out, err = job.communicate(timeout=30)
        assert job.returncode == 0 and out == b'{"ok":true}', err
    [post] = service.posts("/reports")
    assert re.fullmatch(r"report:20\d\d-\d\d-\d\d", post.get("Idempotency-Key")) and service.effects("/reports") == 1
