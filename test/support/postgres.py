# SPDX-License-Identifier: MIT
"""A PostgreSQL server of a test's own: started on a free port in a temporary folder, stopped, killed and started again
over the same data; with a pooler in front, and a standby behind, where a test asks for them."""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading

from .poll import free_port, until

_folders = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
BIN = _folders[-1] if _folders else None
POOLER = shutil.which("pgbouncer") or next((p for p in ("/usr/sbin/pgbouncer",) if os.path.exists(p)), None)
USER = "samekey"


def _identity():
    """PostgreSQL refuses to run as root: then as the user of the Debian package, else as nobody."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    raise AssertionError("root needs a user postgres or nobody to run PostgreSQL as")


def _folder(prefix):
    who = _identity()
    folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
    if who:
        os.chown(folder, who["user"], who["group"])
    os.chmod(folder, 0o700)
    return folder


class Postgres:
    """One server. `settings` go to its command line, e.g. synchronous_standby_names. fsync stays on."""

    def __init__(self, settings=None, primary=None, start=True):
        if not BIN:
            raise FileNotFoundError("PostgreSQL is not installed")
        self.settings, self.primary = dict(settings or {}), primary
        self.folder = _folder("samekey-pg-")
        self.data = self.folder / "data"
        self.port = free_port()
        self.process = None
        self.log = self.folder / "log"
        if primary:
            self._tool("pg_basebackup", "-D", self.data, "-h", "127.0.0.1", "-p", primary.port, "-U", USER, "-R", "-X",
                       "stream", "-c", "fast")
        else:
            self._tool("initdb", "-D", self.data, "-A", "trust", "-U", USER, "--locale", "C.UTF-8", "-E", "UTF8")
        if start:
            self.start()

    def _tool(self, name, *arguments, check=True):
        done = subprocess.run([BIN / name, *map(str, arguments)], cwd=self.folder, capture_output=True, **_identity())
        if check and done.returncode:
            raise AssertionError(f"{name} failed: {done.stderr.decode()}\n{self.said()}")
        return done

    # ---- its life

    def start(self, wait=True):
        options = [f"-c{name}={value}" for name, value in self.settings.items()]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [BIN / "postgres", "-D", self.data, "-p", str(self.port), "-h", "127.0.0.1", "-k", self.folder,
                 "-cmax_connections=200", *options],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_identity())
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, seconds=60):
        def ready():
            assert self.process.poll() is None, f"the server ended\n{self.said()}"
            return self._tool("pg_isready", "-q", "-h", "127.0.0.1", "-p", self.port, check=False).returncode == 0
        until(ready, seconds, .05)
        return self

    def stop(self, how="fast", seconds=60):
        """smart, fast or immediate (as a crash: what was not synced is lost)."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[how])
        self.process.wait(seconds)

    def restart(self, how="fast"):
        self.stop(how)
        return self.start()

    def kill(self):
        """SIGKILL for the postmaster; its children notice that it is gone and leave."""
        if self.process is None or self.process.poll() is not None:
            return
        children = self._children()
        self.process.kill()
        self.process.wait(30)
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        until(lambda: not any(_runs(child) for child in children), 30)

    def _children(self):
        path = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in path.read_text(encoding="ascii").split()]

    def pause(self):
        """Nothing answers any more, and no connection breaks."""
        for pid in [self.process.pid, *self._children()]:
            os.kill(pid, signal.SIGSTOP)

    def resume(self):
        for pid in [*self._children(), self.process.pid]:
            os.kill(pid, signal.SIGCONT)

    def promote(self):
        self._tool("pg_ctl", "promote", "-w", "-D", self.data)
        return self

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:] if self.log.exists() else ""

    # ---- what one asks of it

    def url(self, database="postgres", user=USER, **parameters):
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}" + (f"?{query}" if query else "")

    def sql(self, text, database="postgres", url=None):
        """The rows of the last statement, as lists of texts; NULL is an empty text."""
        done = subprocess.run([BIN / "psql", "-X", "-q", "-A", "-t", "-F", "\x1f", "-v", "ON_ERROR_STOP=1",
                               url or self.url(database)], input=text.encode(), capture_output=True)
        if done.returncode:
            raise AssertionError(f"psql: {done.stderr.decode()}")
        return [line.split("\x1f") for line in done.stdout.decode().splitlines()]

    def value(self, text, database="postgres"):
        return self.sql(text, database)[0][0]

    def create_database(self, name):
        self.sql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def standby(self, name="standby", **settings):
        """A streaming replica, started. The primary waits for it once its synchronous_standby_names says so."""
        replica = Postgres({"cluster_name": name, **settings}, primary=self)
        until(lambda: self.value(f"SELECT count(*) FROM pg_stat_replication WHERE application_name = '{name}'") == "1", 30)
        return replica


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Pooler:
    """pgbouncer in transaction mode in front of a server."""

    def __init__(self, server, **settings):
        if not POOLER:
            raise FileNotFoundError("pgbouncer is not installed")
        self.folder = _folder("samekey-pool-")
        self.port = free_port()
        self.server = server
        options = {"listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "", "auth_type": "any",
                   "pool_mode": "transaction", "max_client_conn": 500, "default_pool_size": 20,
                   "ignore_startup_parameters": "extra_float_digits", **settings}
        text = f"[databases]\n* = host=127.0.0.1 port={server.port} user={USER}\n[pgbouncer]\n"
        text += "".join(f"{name} = {value}\n" for name, value in options.items())
        file = self.folder / "pgbouncer.ini"
        file.write_text(text, encoding="utf-8")
        os.chmod(file, 0o644)
        self.lines = []
        self.process = subprocess.Popen([POOLER, file], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, **_identity())
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True)
        self.reader.start()

        def ready():
            assert self.process.poll() is None, b"".join(self.lines[-10:]).decode("utf-8", "replace")
            return subprocess.run([BIN / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]).returncode == 0
        until(ready, 30, .05)

    def url(self, database="postgres", user=USER, **parameters):
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}" + (f"?{query}" if query else "")

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        self.reader.join(5)
        shutil.rmtree(self.folder, ignore_errors=True)
