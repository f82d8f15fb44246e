# SPDX-License-Identifier: MIT
"""Starts the gateway in front of a service and shows what it is for.

    scripts/run                       in front of examples/orders, with a call whose reply is lost
    scripts/run http://127.0.0.1:9000 in front of your own service

Everything it writes is under ./run: samekey.conf (yours to read and change a copy of), receipts.db, orders.db and
the logs. Ctrl-C or SIGTERM ends what was started. --once shows the point and stops; its exit code says whether
everything was as it should be."""

import argparse
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[1]
PR_SET_PDEATHSIG = 1
READY_S = 20
STOP_S = 35  # the gateway's own drain is at most 30 s

CONFIGURATION = """\
# The gateway of `make run`, written anew each time. Copy it before you change it.
listen = {{"127.0.0.1:{port}"}}
admin  = "127.0.0.1:{admin_port}"
store  = "sqlite:{store}"

route "orders" {{
  path     = {{"/orders", "/orders/{{no}}/cancel"}}
  methods  = {{"POST"}}
  upstream = {{"{upstream}"}}
  call_id  = "header"                # X-Call-Id: the caller's intention, the same over all its retries
  key      = "header"                # Idempotency-Key: the business action, takes effect at most once
  key_missing  = refuse
  business_ref = "{{json.order_no}}"
  receipt      = "http GET /receipts/{{call_id}}"   # what is asked when a reply is missing
  receipt_fence = "POST /receipts/{{call_id}}/fence" # what keeps a call that never came from coming late
  reversal     = "POST /orders/{{json.order_no}}/cancel"   # what undoes an order: POST .../CALLID/cancel
  attempt_timeout = 1s   retries = 3   deadline = 15s
  backoff_base = 500ms   backoff_cap = 4s
}}

route "rest" {{                        # reading passes through
  path     = {{"/{{*}}"}}
  mode     = off
  upstream = {{"{upstream}"}}
}}
"""


class Trouble(Exception):
    """Something the person in front of the terminal can mend; its text says how."""


def say(text=""):
    print(text, flush=True)


def die_with_parent():
    """So that a killed script leaves no gateway behind on the port of the next one (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Program:
    """One started program, with its talk in a file. Its own session, so that Ctrl-C reaches only this script,
    which then ends things in order."""

    def __init__(self, name, command, log):
        self.name, self.log = name, log
        with open(log, "ab") as talk:
            self.begin = talk.tell()
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=talk, stderr=talk, start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def talk(self):
        with open(self.log, "rb") as talk:
            talk.seek(self.begin)
            return talk.read().decode(errors="replace")

    def trouble(self, what):
        lines = "\n".join("  " + line for line in self.talk().splitlines()[-12:])
        return Trouble(f"{self.name} {what}. The end of {show_path(self.log)}:\n{lines}")

    def check(self):
        if self.process.poll() is not None:
            raise self.trouble(f"ended with exit code {self.process.returncode}")

    def wait_until(self, ready):
        end = time.monotonic() + READY_S
        while not (result := ready()):
            self.check()
            if time.monotonic() > end:
                raise self.trouble(f"was not ready within {READY_S} s")
            time.sleep(0.03)
        return result

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


def show_path(path):
    with contextlib.suppress(ValueError):
        return f"./{pathlib.Path(path).relative_to(ROOT)}"
    return str(path)


def ask(port, method, path, document=None, headers=(), timeout=30):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        body = None if document is None else json.dumps(document)
        connection.request(method, path, body, {"Content-Type": "application/json", **dict(headers)})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read().decode(errors="replace")
    finally:
        connection.close()


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def need_free(port, setting, other):
    """A plain bind, without SO_REUSEPORT: two gateways on one port would share its connections in silence."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except PermissionError:
            raise Trouble(f"127.0.0.1:{port} needs rights you do not have: make run {setting}={other}") from None
        except OSError:
            raise Trouble(
                f"127.0.0.1:{port} is in use by another program (ss -ltnp 'sport = :{port}' names it).\n"
                f"Stop it, or choose another port: make run {setting}={other}"
            ) from None


def start_orders(run, programs):
    command = [sys.executable, str(ROOT / "examples/orders/orders.py"), "--port", "0", "--db", str(run / "orders.db")]
    orders = Program("orders", command, run / "orders.log")
    programs.append(orders)
    mark = "listening on http://127.0.0.1:"
    line = orders.wait_until(lambda: next((t for t in orders.talk().splitlines() if mark in t), None))
    return int(line.split(mark)[1])


def start_gateway(options, run, programs, upstream, with_configuration):
    store = run / "receipts.db"
    if with_configuration:
        path = run / "samekey.conf"
        path.write_text(CONFIGURATION.format(
            port=options.port, admin_port=options.admin_port, store=store, upstream=upstream))
        arguments = ["-c", str(path)]
    else:
        arguments = ["--upstream", upstream, "--listen", f"127.0.0.1:{options.port}",
                     "--admin", f"127.0.0.1:{options.admin_port}", "--store", f"sqlite:{store}"]
    gateway = Program("samekey gateway", [str(options.samekey), "gateway", *arguments], run / "gateway.log")
    programs.append(gateway)
    gateway.wait_until(lambda: accepts(options.port) and accepts(options.admin_port))
    return ["samekey", "gateway", *arguments]


def show_the_point(options, orders_port):
    """A call whose reply is lost after its effect. Returns whether it went as it should."""
    tag = secrets.token_hex(4)
    number, call_id, key = f"demo-{tag}", f"call-{tag}", f"create-{tag}"
    say("A call whose reply is lost after the effect")
    say(f"  caller    POST /orders   order_no {number}, X-Call-Id {call_id}, Idempotency-Key {key}")
    say("  orders    told to commit the order and then to drop the connection without a byte of reply")
    began = time.monotonic()
    status, headers, body = ask(
        options.port, "POST", "/orders", {"order_no": number, "amount": "12.50"},
        {"X-Call-Id": call_id, "Idempotency-Key": key, "X-Orders-Fault": "drop-after-effect"})
    took = time.monotonic() - began
    _, _, text = ask(options.port, "GET", f"/.samekey/receipts/{call_id}")
    receipt = json.loads(text)
    for attempt in receipt.get("attempts") or []:
        outcome = attempt["outcome"].upper()
        say(f"  gateway   attempt {attempt['n']}: {outcome}: {attempt['evidence']}")
        if attempt["outcome"] == "unknown":
            say("            not sent again: the effect may have happened. The service's own receipt is asked.")
    _, _, text = ask(orders_port, "GET", "/effects")
    counts = json.loads(text)
    effects, posts = counts["effects"].get(number, 0), counts["posts"].get(number, 0)
    queries = counts["requests"].get("GET /receipts/{x}", 0)
    say(f"  gateway   the receipt of {call_id} says {receipt['state']} (asked {queries} x)")
    say(f"  caller    gets {status}, Call-Outcome: {headers['Call-Outcome']}, after {took:.1f} s")
    say(f"  orders    effects {effects}, POSTs seen {posts}")
    good = (receipt["state"], headers["Call-Outcome"], effects, posts) == ("SUCCESS", "success", 1, 1) and queries > 0
    say("  One order, one POST, and the caller knows." if good else
        "  THIS IS NOT AS IT SHOULD BE: expected SUCCESS by a receipt, effects 1, POSTs seen 1.")
    say()
    return good


def curl(comment, *arguments):
    say(f"  # {comment}")
    say("  " + shlex.join(["curl", "-i", *arguments]))


def write(url, call_id, key, body, *more):
    return (url, "-H", f"X-Call-Id: {call_id}", "-H", f"Idempotency-Key: {key}", "-H",
            "Content-Type: application/json", "-d", body, *more)


def show_orders_lines(options):
    base, tag = f"http://127.0.0.1:{options.port}", secrets.token_hex(4)
    call_id, key = f"call-{tag}", f"create-{tag}"
    body = json.dumps({"order_no": f"A-{tag}", "amount": "12.50"})
    say("Try it:")
    curl("a first POST: 201", *write(f"{base}/orders", call_id, key, body))
    curl("the same call again: the same answer from the store, Idempotent-Replayed: true",
         *write(f"{base}/orders", call_id, key, body))
    curl("the same call with a swapped key: 422 call-id-reused, nothing runs",
         *write(f"{base}/orders", call_id, f"{key}-swapped", body))
    curl("its receipt", f"{base}/.samekey/receipts/{call_id}")
    curl("how many times each order took effect", f"{base}/effects")


def show_own_lines(options):
    base, tag = f"http://127.0.0.1:{options.port}", secrets.token_hex(4)
    call_id, key = f"call-{tag}", f"create-{tag}"
    say("Try it (put a path and a body of your service):")
    curl("a first POST", *write(f"{base}/your/path", call_id, key, '{"your": "body"}'))
    curl("the same call again: the same answer from the store, nothing sent to your service",
         *write(f"{base}/your/path", call_id, key, '{"your": "body"}'))
    curl("the same call with a swapped key: 422 call-id-reused",
         *write(f"{base}/your/path", call_id, f"{key}-swapped", '{"your": "body"}'))
    curl("its receipt", f"{base}/.samekey/receipts/{call_id}")


def read_options():
    def port(text):
        if not text.isdigit() or not 0 < int(text) < 65536:
            raise argparse.ArgumentTypeError(f"'{text}' is not a port")
        return int(text)

    parser = argparse.ArgumentParser(
        prog="scripts/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("upstream", nargs="?", default=os.environ.get("UPSTREAM") or None, metavar="http://HOST:PORT")
    parser.add_argument("--port", type=port, default=os.environ.get("PORT") or "8080")
    parser.add_argument("--admin-port", type=port, default=os.environ.get("ADMIN_PORT") or "8081")
    parser.add_argument("--run-dir", type=pathlib.Path, default=ROOT / "run")
    parser.add_argument("--once", action="store_true", help="show the point and stop")
    options = parser.parse_args()
    options.samekey = pathlib.Path(os.environ.get("SAMEKEY_BIN") or ROOT / "build/samekey").resolve()
    if options.upstream:
        parts = urllib.parse.urlsplit(options.upstream)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise Trouble(f"UPSTREAM is an address as http://127.0.0.1:9000, not '{options.upstream}'")
    if options.port == options.admin_port:
        raise Trouble(f"PORT and ADMIN_PORT are both {options.port}; choose two")
    if not options.samekey.exists():
        raise Trouble(f"there is no {show_path(options.samekey)}: make build")
    return options


def present(options, programs):
    """Starts, shows, waits. Returns the exit code."""
    need_free(options.port, "PORT", 8090)
    need_free(options.admin_port, "ADMIN_PORT", 8091)
    run = options.run_dir.resolve()
    run.mkdir(parents=True, exist_ok=True)
    good = True
    if options.upstream:
        command = start_gateway(options, run, programs, options.upstream.rstrip("/"), with_configuration=False)
        say(f"samekey is in front of {options.upstream}:  {shlex.join(command)}\n")
        say("Writes with an Idempotency-Key or an X-Call-Id are guarded; the rest passes through. Without a receipt")
        say("source a lost reply ends UNKNOWN: see `receipt` in examples and docs to let it ask your service.\n")
        show_own_lines(options)
    else:
        orders_port = start_orders(run, programs)
        start_gateway(options, run, programs, f"http://127.0.0.1:{orders_port}", with_configuration=True)
        say(f"samekey gateway on http://127.0.0.1:{options.port}, in front of examples/orders on port {orders_port}\n")
        good = show_the_point(options, orders_port)
        show_orders_lines(options)
    say()
    say(f"Admin   http://127.0.0.1:{options.admin_port}/metrics   (/healthz, /readyz)")
    more = "" if options.upstream else ", samekey.conf, orders.db, orders.log"
    say(f"Files   {show_path(run)}: receipts.db, gateway.log{more}")
    if options.once:
        return 0 if good else 1
    say("Stop    Ctrl-C")
    while True:
        for program in programs:
            program.check()
        time.sleep(0.2)


def main():
    programs = []

    def interrupted(number, _frame):
        # A second Ctrl-C must not break the orderly end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    code = 1
    try:
        code = present(read_options(), programs)
    except KeyboardInterrupt:
        say("\nStopping.")
        code = 0
    except Trouble as trouble:
        print(f"scripts/run: {trouble}", file=sys.stderr, flush=True)
    finally:
        # The gateway first: it still finishes what it sent to the service.
        for program in reversed(programs):
            program.stop()
    return code


if __name__ == "__main__":
    sys.exit(main())
