# SPDX-License-Identifier: MIT
"""Logs that real programs wrote while something really ran twice: nginx with and without non_idempotent, HAProxy with and without retry-on, curl --retry,
Python's logging, our own gateway. What samekey diagnose says is held against what the service counted."""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest
from logs import SAMEKEY, diagnose, labels, run

HERE = pathlib.Path(__file__).parent
ZONE = "Europe/Berlin"
NGINX = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
HAPROXY = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port):
    end = time.monotonic() + 15
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(.02)
    raise AssertionError(f"nothing listens on {port}")


@contextlib.contextmanager
def started(*command, port, **more):
    process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, **more)
    try:
        wait_for(port)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def service(folder, name, *actions):
    """Started when entered; gives its port."""
    @contextlib.contextmanager
    def inner():
        port = free_port()
        with started(sys.executable, HERE / "service.py", port, folder / f"{name}.log", name, *actions, port=port,
                     env={**os.environ, "TZ": ZONE}):
            yield port
    return inner()


def post(port, call, key, timeout=20):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", "/orders", b'{"amount":100}', {"X-Call-Id": call, "Idempotency-Key": key,
                                                                  "Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def zoned(folder, *names):
    return [part for name in names for part in ("--tz", f"{name}.log={ZONE}")] + [folder / f"{name}.log" for name in names]


NGINX_CONF = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
  log_format calls escape=json '{{"ts":"$msec","method":"$request_method","path":"$request_uri","status":$status,'
    '"request_time":$request_time,"call_id":"$http_x_call_id","key":"$http_idempotency_key","upstream_addr":"$upstream_addr",'
    '"upstream_status":"$upstream_status","node":"edge","peer":"$remote_addr"}}';
  access_log {folder}/access.log calls;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream orders {{ server 127.0.0.1:{a}; server 127.0.0.1:{b}; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://orders; proxy_read_timeout 1s; proxy_next_upstream error timeout{more}; }}
  }}
}}
"""


@pytest.mark.skipif(not NGINX, reason="nginx is not installed")
@pytest.mark.parametrize("more,doubled", [("", False), (" non_idempotent", True)])
def test_nginx_doubles_a_post_only_when_told_to(tmp_path, more, doubled):
    with service(tmp_path, "A", "hang", "ok") as a, service(tmp_path, "B", "ok") as b:
        port = free_port()
        (tmp_path / "nginx.conf").write_text(NGINX_CONF.format(folder=tmp_path, port=port, a=a, b=b, more=more))
        with started(NGINX, "-c", tmp_path / "nginx.conf", "-p", tmp_path, "-e", tmp_path / "error.log", port=port):
            statuses = [post(port, f"c-{n}", f"order:{n}") for n in range(4)]
    ran = sum(line.count("effect.committed") for name in "AB" for line in (tmp_path / f"{name}.log").read_text().splitlines())
    assert ran == (5 if doubled else 4), "what really happened"
    assert statuses.count(504) == (0 if doubled else 1)
    document, code = diagnose(*zoned(tmp_path, "A", "B"), tmp_path / "access.log")
    assert document["lines"]["unreadable"] == 0
    twice = {key: label for key, label in labels(document).items() if label[0] > 1}
    if doubled:
        assert code == 1 and list(twice.values()) == [(2, "proxy-failover")]
        assert len(document["double_runs"]) == 1 and len(document["double_runs"][0]["exec_ids"]) == 2
        assert {f["code"] for f in document["findings"]} == {"proxy-failover", "ran-twice"}
        assert all(f["certainty"] == "certain" for f in document["findings"])
        alone, _ = diagnose(tmp_path / "access.log")
        assert [(k["posts"], k["label"]) for k in alone["keys"] if k["posts"] > 1] == [(2, "proxy-failover")]
        without, _ = diagnose(*zoned(tmp_path, "A", "B"))
        assert [(k["posts"], k["label"]) for k in without["keys"] if k["posts"] > 1] == [(2, "proxy-failover")] or \
            [(k["posts"], k["certainty"]) for k in without["keys"] if k["posts"] > 1] == [(2, "likely")]
        assert len(without["double_runs"]) == 1
    else:
        assert code == 0 and twice == {} and document["double_runs"] == []


HAPROXY_CONF = """
global
  log stdout format raw local0
defaults
  mode http
  log global
  option http-buffer-request
  timeout connect 2s
  timeout client 20s
  timeout server 1s
  retries 1
  option redispatch 1
frontend edge
  bind 127.0.0.1:{port}
  http-request capture req.hdr(X-Call-Id) len 64
  http-request capture req.hdr(Idempotency-Key) len 64
  {format}
  default_backend orders
backend orders
  balance roundrobin
  {more}
  server A 127.0.0.1:{a}
  server B 127.0.0.1:{b}
"""
HAPROXY_WITH_IDS = ('log-format "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %{+Q}r '
                    'call_id=%[capture.req.hdr(0)] key=%[capture.req.hdr(1)]"')


@pytest.mark.skipif(not HAPROXY, reason="HAProxy is not installed")
@pytest.mark.parametrize("more,doubled", [("", False), ("retry-on response-timeout", True)])
@pytest.mark.parametrize("format,told", [("option httplog", ("--map", "call_id=capture.1", "--map", "key=capture.2")),
                                         (HAPROXY_WITH_IDS, ())])
def test_haproxy_doubles_a_post_only_when_told_to(tmp_path, more, doubled, format, told):
    """Lines that a real HAProxy wrote, as `option httplog` makes them and with the ids behind. (Envoy is no package of
    Debian's; its lines in test_formats.py are made by hand after its documentation.)"""
    with service(tmp_path, "A", "hang", "ok") as a, service(tmp_path, "B", "ok") as b:
        port = free_port()
        (tmp_path / "haproxy.cfg").write_text(HAPROXY_CONF.format(port=port, a=a, b=b, more=more, format=format))
        with open(tmp_path / "edge.log", "wb") as lines, \
                started(HAPROXY, "-db", "-f", tmp_path / "haproxy.cfg", port=port, stdout=lines, stderr=subprocess.DEVNULL,
                        env={**os.environ, "TZ": ZONE}):
            statuses = [post(port, f"c-{n}", f"order:{n}") for n in range(4)]
    ran = sum((tmp_path / f"{name}.log").read_text().count("effect.committed") for name in "AB")
    assert ran == (5 if doubled else 4), "what really happened"
    assert statuses.count(504) == (0 if doubled else 1)
    document, code = diagnose(*told, *zoned(tmp_path, "A", "B", "edge"))
    assert document["lines"]["unreadable"] == 0
    edge, = [f for f in document["files"] if f["file"].endswith("edge.log")]
    assert edge["format"] == "access log" and edge["lines"] >= 4
    twice = {key: label for key, label in labels(document).items() if label[0] > 1}
    if doubled:
        assert code == 1 and list(twice.values()) == [(2, "proxy-failover")]
        assert len(document["double_runs"]) == 1 and len(document["double_runs"][0]["exec_ids"]) == 2
        assert {f["code"] for f in document["findings"]} == {"proxy-failover", "ran-twice"}
        assert all(f["certainty"] == "certain" for f in document["findings"])
        # Its line alone counts a retry, which may have been one of a connection that nothing was sent on.
        alone, code = diagnose(*told, *zoned(tmp_path, "edge"))
        assert code == 0 and alone["findings"] == []
    else:
        assert code == 0 and twice == {} and document["double_runs"] == []


def test_curl_retry(tmp_path):
    with service(tmp_path, "shop", "503", "ok") as port:
        subprocess.run(["curl", "-sS", "--retry", "2", "--retry-delay", "1", "-H", "X-Call-Id: c-1", "-H",
                        "Idempotency-Key: order:1", "-d", "{}", f"http://127.0.0.1:{port}/orders"], check=True, capture_output=True)
        subprocess.run(["curl", "-sS", "-H", "X-Call-Id: c-2", "-H", "Idempotency-Key: order:2", "-d", "{}",
                        f"http://127.0.0.1:{port}/orders"], check=True, capture_output=True)
    document, _ = diagnose(*zoned(tmp_path, "shop"), expect=1)
    assert document["lines"]["unreadable"] == 0 and document["events"] == 9
    assert labels(document) == {"order:1": (2, "hidden-retry"), "order:2": (1, "single")}
    assert [(r["key"], r["exec_ids"]) for r in document["double_runs"]] == [("order:1", ["shop-1", "shop-2"])]
    assert document["keys"][0]["certainty"] == "likely", "the log has no attempt numbers: who sent it again is a conclusion"


def test_python_logging_and_refusals(tmp_path):
    """429 twice, then done: lawful, whoever repeats."""
    with service(tmp_path, "shop", "refuse", "refuse", "ok") as port:
        assert [post(port, "c-1", "order:1") for _ in range(3)] == [429, 429, 201]
    document, _ = diagnose(*zoned(tmp_path, "shop"))
    assert document["double_runs"] == [] and labels(document)["order:1"][0] == 3
    assert document["files"][0]["format"] == "text with name=value"


RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"


@contextlib.contextmanager
def broker(folder):
    """A RabbitMQ of this test's own; gives its port. Its port mapper is ended with it."""
    port, mapper, distribution = free_port(), free_port(), free_port()
    (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.file = false\n")
    environment = {**os.environ, "HOME": str(folder), "RABBITMQ_NODENAME": "samekey@localhost", "ERL_EPMD_PORT": str(mapper),
                   "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_DIST_PORT": str(distribution), "RABBITMQ_MNESIA_BASE": str(folder / "db"),
                   "RABBITMQ_LOG_BASE": str(folder / "log"), "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
                   "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"), "RABBITMQ_PID_FILE": str(folder / "pid"),
                   "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"), "RABBITMQ_FEATURE_FLAGS_FILE": str(folder / "flags")}
    (folder / "plugins").write_text("[].\n")
    process = subprocess.Popen([RABBITMQ], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(.1)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        subprocess.run(["epmd", "-port", str(mapper), "-kill"], capture_output=True)


@pytest.mark.skipif(not os.access(RABBITMQ, os.X_OK), reason="RabbitMQ is not installed")
def test_rabbitmq_redelivers(tmp_path):
    """Consumers that die before the acknowledgement: the broker delivers again and says so. One kind of consumer runs
    what it has run before; the other knows the callId. Both are honest redeliveries; only one of them is a double run."""
    pika = pytest.importorskip("pika")
    import logging
    log = logging.getLogger("consumer")
    handler = logging.FileHandler(tmp_path / "consumer.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    handler.formatter.converter = time.gmtime
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    known, runs = set(), 0

    def consume(channel, careful, acknowledge):
        nonlocal runs
        end = time.monotonic() + 10
        method = None
        while method is None and time.monotonic() < end:
            method, properties, _ = channel.basic_get("orders")
        key = properties.headers["x-idempotency-key"]
        ids = f"message_id={properties.message_id} key={key}"
        log.info("delivery %s redelivered=%s queue=orders", ids, str(method.redelivered).lower())
        if not (careful and properties.message_id in known):
            runs += 1
            known.add(properties.message_id)
            log.info("effect.committed %s exec_id=run-%d", ids, runs)
        if acknowledge:
            channel.basic_ack(method.delivery_tag)
            log.info("ack %s", ids)

    with broker(tmp_path) as port:
        def connect():
            connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, connection_attempts=20, retry_delay=.5))
            return connection, connection.channel()
        for n, careful in ((1, False), (2, True)):
            connection, channel = connect()
            channel.queue_declare("orders", durable=True)
            channel.basic_publish("", "orders", b"{}", pika.BasicProperties(message_id=f"m-{n}", headers={"x-idempotency-key": f"order:{n}"}))
            consume(channel, careful, acknowledge=False)
            connection.close()  # unacknowledged: the broker takes it back
            connection, channel = connect()
            consume(channel, careful, acknowledge=True)
            connection.close()
    log.removeHandler(handler)
    handler.close()
    assert runs == 3
    document, _ = diagnose("--tz", "consumer.log=UTC", tmp_path / "consumer.log", expect=1)
    assert labels(document) == {"order:1": (2, "declared-retry"), "order:2": (2, "declared-retry")}
    assert [(r["key"], r["exec_ids"]) for r in document["double_runs"]] == [("order:1", ["run-1", "run-2"])]
    assert "broker" in document["double_runs"][0]["cause"]
    assert sorted((f["code"], f["key"]) for f in document["findings"]) == [("ran-twice", "order:1"), ("redelivered", "order:1")]


GATEWAY_CONF = """
listen = {{"127.0.0.1:{port}"}}
admin  = "127.0.0.1:{admin}"
store  = "sqlite:{folder}/receipts.db"
route "orders" {{
  path = {{"/orders"}}   methods = {{"POST"}}   upstream = {{"http://127.0.0.1:{upstream}"}}
  call_id = "header"   key = "header"   key_missing = refuse
  receipt = "http GET /receipts/{{call_id}}"
  attempt_timeout = 1s   retries = 2   deadline = 12s
}}
"""


def has_gateway():
    return b"gateway" in run("help").stdout


@pytest.mark.skipif(not has_gateway(), reason="this program has no gateway")
def test_our_gateway_does_not_run_it_twice(tmp_path):
    """The service runs the first POST and cuts the connection: the gateway asks for the receipt and sends nothing more.
    A repeat by the caller is a replay. Nothing ran twice, and the report says so."""
    with service(tmp_path, "shop", "reset", "ok") as upstream:
        port, admin = free_port(), free_port()
        (tmp_path / "samekey.conf").write_text(GATEWAY_CONF.format(folder=tmp_path, port=port, admin=admin, upstream=upstream))
        with open(tmp_path / "gateway.log", "wb") as talk, \
                started(SAMEKEY, "gateway", "-c", tmp_path / "samekey.conf", port=port, stderr=talk, stdout=talk):
            first = post(port, "c-1", "order:1")
            assert [post(port, "c-1", "order:1"), post(port, "c-2", "order:2")] == [first, 201]
    ran = (tmp_path / "shop.log").read_text().count("effect.committed")
    assert ran == 2
    document, code = diagnose(*zoned(tmp_path, "shop"), tmp_path / "gateway.log")
    assert document["double_runs"] == [] and code & 1 == 0, document["findings"]
    verdicts = {call["call_id"]: call["verdict"] for call in document["calls"]}
    assert verdicts == {"c-1": "SUCCESS", "c-2": "SUCCESS"}
    assert labels(document) == {"order:1": (1, "single"), "order:2": (1, "single")}
    assert document["replays"] == 1
    alone, code = diagnose(tmp_path / "gateway.log")  # what it says before its log begins is no JSON, and is told so
    assert code & 1 == 0
    assert {call["call_id"]: call["verdict"] for call in alone["calls"]} == verdicts, "its log tells it without the service's"
