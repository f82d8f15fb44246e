# SPDX-License-Identifier: MIT
"""What the benchmarks share: they start the callee, nginx and the gateway on free loopback ports, run the load
generator, and refuse a run whose counts do not add up.

The rule of a run: nothing was lost, nothing was refused, and the callee executed each unique call exactly once. A
run that breaks it raises Wrong, whatever its speed was."""

import contextlib
import http.client
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
READY_S = 15
STOP_S = 20
LOAD_EXTRA_S = 120  # priming, settling and a busy machine, on top of the measured time


class Wrong(Exception):
    """The counts of a run do not add up, or a program did not start."""


def programs(build):
    """The build folder and the samekey program in it. Without a folder named, build/ is brought up to date."""
    if build is None:
        build = ROOT / "build"
        if subprocess.run([str(ROOT / "scripts" / "build"), "gcc", "all", "bench_tools"]).returncode != 0:
            raise SystemExit("bench: the build failed")
    build = build.resolve()
    return build, build / "samekey"


@contextlib.contextmanager
def work_folder():
    """A folder for this run's databases and logs on the checkout's own disk; gone afterwards."""
    place = ROOT / "bench" / "work"
    place.mkdir(exist_ok=True)
    kind = file_system(place)
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"bench: this checkout is on {kind}, where a sync costs nothing; use a real disk")
    work = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=place))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def save(name, document):
    """Keeps raw results under bench/results/; returns the path, relative to the checkout."""
    place = ROOT / "bench" / "results" / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(document, indent=1) + "\n")
    return place.relative_to(ROOT)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, method, path, body=None, timeout=10):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def many_files():
    """Thousands of connections need thousands of descriptors, in the programs under test too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def file_system(path):
    """The type of the file system that holds path, from the longest mount point above it."""
    path = str(pathlib.Path(path).resolve())
    best, kind = "", "unknown"
    for line in open("/proc/self/mounts", encoding="utf8"):
        _, point, fs, *_ = line.split()
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fs
    return kind


def sync_floor_us(folder, times=200):
    """The median time of a 4 KiB write and fdatasync in this folder: what one durable commit costs at least."""
    path = pathlib.Path(folder) / "sync-probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        spans = []
        for n in range(times):
            began = time.perf_counter()
            os.pwrite(fd, b"x" * 4096, n % 64 * 4096)
            os.fdatasync(fd)
            spans.append((time.perf_counter() - began) * 1e6)
        return statistics.median(spans)
    finally:
        os.close(fd)
        path.unlink()


def cpu_seconds(pid):
    """User and system time of a process and its children that still run."""
    pids, seen = [pid], 0.0
    while pids:
        one = pids.pop()
        try:
            fields = open(f"/proc/{one}/stat", encoding="utf8").read().rsplit(")", 1)[1].split()
            children = open(f"/proc/{one}/task/{one}/children", encoding="utf8").read().split()
        except FileNotFoundError:
            continue
        seen += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        pids += map(int, children)
    return seen


class Program:
    """A process that serves a port, with its talk in a file; a context manager that stops it."""

    def __init__(self, name, command, port, work, ready="/", pass_fds=()):
        self.name, self.port = name, port
        self.log = pathlib.Path(work) / f"{name}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=pass_fds
            )
        end = time.monotonic() + READY_S
        while True:
            if self.process.poll() is not None:
                raise Wrong(f"{name} ended with {self.process.returncode}:\n{self.tail()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                ask(port, "GET", ready, timeout=1)
                return
            if time.monotonic() > end:
                self.stop()
                raise Wrong(f"{name} did not answer within {READY_S} s:\n{self.tail()}")
            time.sleep(0.02)

    def tail(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def cpu_s(self):
        return cpu_seconds(self.process.pid)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def start_callee(build, work, slow_ms=1000):
    port = free_port()
    command = [str(build / "bench_callee"), "--port", str(port), "--slow-ms", str(slow_ms)]
    return Program("callee", command, port, work, ready="/count")


def start_nginx(work, callee_port, workers=2):
    """nginx as what people put in front of a service today: a plain proxy with kept upstream connections."""
    port, place = free_port(), pathlib.Path(work) / "nginx"
    place.mkdir(parents=True, exist_ok=True)
    temporary = "\n".join(
        f"    {kind}_temp_path {place}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = f"""# made by bench/harness.py
{"user root;" if os.geteuid() == 0 else ""}
daemon off;
worker_processes {workers};
worker_rlimit_nofile 65536;
pid {place}/nginx.pid;
error_log {place}/error.log warn;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
{temporary}
    upstream callee {{
        server 127.0.0.1:{callee_port};
        keepalive 512;
        keepalive_requests 1000000000;
        keepalive_timeout 300s;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://callee;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
        }}
    }}
}}
"""
    (place / "nginx.conf").write_text(configuration)
    command = ["nginx", "-p", str(place), "-e", f"{place}/error.log", "-c", f"{place}/nginx.conf"]
    return Program("nginx", command, port, work, ready="/count")


def start_gateway(samekey, work, callee_port, number=0):
    """The gateway on a fresh SQLite file. Nothing durable is turned off; limits are set so that none refuses."""
    port, admin, place = free_port(), free_port(), pathlib.Path(work) / f"gateway-{number}"
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("receipts.db*"):
        old.unlink()
    configuration = f"""# made by bench/harness.py
listen = {{"127.0.0.1:{port}"}}
admin  = "127.0.0.1:{admin}"
store  = "sqlite:{place}/receipts.db"
store_queue = 65536
drain  = 1s

route "slow" {{
  path = {{"/slow/{{*}}"}}   methods = {{"POST"}}   upstream = {{"http://127.0.0.1:{callee_port}"}}
  attempt_timeout = 10m   deadline = 15m   lease = 20m   retries = 0   receipt = "none"
  concurrency = 4096   breaker_failures = 0
}}
route "orders" {{
  path = {{"/orders"}}       methods = {{"POST"}}   upstream = {{"http://127.0.0.1:{callee_port}"}}
  attempt_timeout = 20s   deadline = 30s   retries = 0   receipt = "none"
  concurrency = 4096   queue = 65536   breaker_failures = 0
}}
route "rest" {{
  path = {{"/{{*}}"}}        mode = off             upstream = {{"http://127.0.0.1:{callee_port}"}}
}}
"""
    (place / "samekey.conf").write_text(configuration)
    command = [str(samekey), "gateway", "-c", f"{place}/samekey.conf"]
    return Program("gateway", command, port, work, ready="/count")


def count(callee):
    return json.loads(ask(callee.port, "GET", "/count", timeout=30)[1])


def call_id(seed, index):
    """The load generator's callId number `index` under this seed (bench/ids.h)."""
    ones = (1 << 64) - 1

    def mix(x):
        x = (x + 0x9E3779B97F4A7C15) & ones
        x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & ones
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & ones
        return x ^ x >> 31

    high = mix(mix(seed) ^ index)
    return f"{high:016x}{mix(high ^ seed):016x}"


def load_command(build, port, mode, connections, seconds, **more):
    command = [str(build / "bench_load"), "--mode", mode, "--connections", str(connections), "--seconds", str(seconds)]
    for name, value in more.items():
        command += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return command + [str(port)]


def finished(process, seconds):
    """The JSON of a load generator that was started, or Wrong."""
    try:
        out, err = process.communicate(timeout=seconds + LOAD_EXTRA_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Wrong("the load generator did not end") from None
    if process.returncode != 0:
        raise Wrong(err.strip() or f"the load generator ended with {process.returncode}")
    return json.loads(out)


def start_load(*arguments, **more):
    return subprocess.Popen(load_command(*arguments, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_answers(result, allowed):
    """Every send was answered, and answered as it should be."""
    problems = [f"{result[name]} {name}" for name in ("errors", "unanswered") if result[name]]
    problems += [f"{n} answers {status}" for status, n in result["status"].items() if int(status) not in allowed]
    if problems:
        raise Wrong(", ".join(problems))


def check_counts(mode, result, before, after, through_samekey):
    """The callee executed what it should, once for each callId."""
    gained = {name: after[name] - before[name] for name in ("executions", "distinct", "repeats", "gets")}
    if after["overflow"] or after["odd"] or after["without_id"]:
        raise Wrong(f"the callee cannot count exactly: {after}")
    unique = result["sent"] if mode == "unique" else result["primed"]
    if mode == "replay" and not through_samekey:
        raise Wrong("a replay without samekey is a second execution")
    if gained["executions"] != unique or gained["distinct"] != unique or gained["repeats"]:
        raise Wrong(f"{unique} unique calls, but the callee counted {gained}")
    if mode == "get" and gained["gets"] < result["completed"]:
        raise Wrong(f"{result['completed']} GETs, but the callee counted {gained['gets']}")


def measured(build, callee, program, mode, connections, seconds, **more):
    """One run against one program: the load generator's result with the CPU the program took for it. Raises
    Wrong if the counts do not add up."""
    ask(callee.port, "POST", "/reset", timeout=30)
    before, cpu = count(callee), program.cpu_s()
    result = finished(start_load(build, program.port, mode, connections, seconds, **more), seconds)
    cpu = program.cpu_s() - cpu
    after = count(callee)
    check_answers(result, {"unique": {201}, "replay": {201}, "receipt": {200}, "get": {200}}[mode])
    check_counts(mode, result, before, after, program.name == "gateway")
    result["program"] = program.name
    result["program_cpu_us_per_request"] = cpu * 1e6 / max(1, result["completed"] + result["primed"])
    result["callee"] = after
    return result
