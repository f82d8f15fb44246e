# SPDX-License-Identifier: MIT
"""What the tests of the caller share: the command with a home of its own, the library, certificates."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "python"))
BIN = os.environ.get("SAMEKEY_BIN") or str(ROOT / "build" / "samekey")
LIB = str(pathlib.Path(BIN).resolve().parent / "libsamekey.so")
BODY = '{"order":"o-1","amount":1200}'


def lib():
    import samekey
    return samekey.load(LIB)


class Run:
    """One finished `samekey`."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"<exit {self.code}\n{self.out.decode(errors='replace')[:2000]}\n{self.err[:2000]}>"


class Home:
    """A user's state directory, in which calls are made."""

    def __init__(self, folder, name="state"):
        self.state = folder / name
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.state), "NO_COLOR": "1"}
        self.env.pop("TRACEPARENT", None)

    @property
    def journal(self):
        return self.state / "samekey" / "journal.db"

    def start(self, *arguments, **more):
        return subprocess.Popen([BIN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                stdin=subprocess.DEVNULL, env=self.env, **more)

    def run(self, *arguments, timeout=60, stdin=None):
        run = subprocess.run([BIN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, input=stdin,
                             env=self.env, timeout=timeout, check=False)
        return Run(run.returncode, run.stdout, run.stderr.decode())

    def call(self, url, *flags, data=BODY, key="k-1", **more):
        """`samekey call --format json` with quick waits; flags given later win."""
        return self.run("call", url, "--format", "json", "--backoff-base", "20ms", "--backoff-cap", "40ms",
                        *(["--key", key] if key else []), *(["--data", data] if data is not None else []), *flags, **more)

    def calls(self, *arguments, **more):
        return self.run("calls", *arguments, **more)


def outcomes(run):
    document = run.json if isinstance(run, Run) else run
    return [a["outcome"] for a in document["attempts"]]


def answers(run):
    document = run.json if isinstance(run, Run) else run
    return [q["answer"] for q in document["receipt_queries"]]


def certificates(folder):
    """A CA of our own and a server's certificate for 127.0.0.1: (ca, certificate, key)."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out",
            "ca.pem", "-days", "2", "-subj", "/CN=test CA")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "server.key", "-out",
            "server.csr", "-subj", "/CN=127.0.0.1")
    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out",
            "server.pem", "-days", "2", "-extfile", "ext")
    return folder / "ca.pem", folder / "server.pem", folder / "server.key"
