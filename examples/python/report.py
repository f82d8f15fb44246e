#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Files today's report by the `samekey call` command, as any language can that starts programs:

    report.py http://127.0.0.1:8080/reports

Run it as often as you like, from as many machines as you like: the key holds the day, so there is one report a day."""
import json
import os
import subprocess
import sys

SAMEKEY = os.environ.get("SAMEKEY_BIN", "samekey")


def file_report(url, *flags):
    run = subprocess.run([SAMEKEY, "call", url, "--key", "report:{date}", "--prefix", "rep", "--format", "json",
                          "--data", json.dumps({"report": "daily"}), *flags], stdout=subprocess.PIPE, check=False)
    if run.returncode not in (0, 3, 4):
        sys.exit(run.returncode)  # nothing was sent, and standard error says why
    return run.returncode, json.loads(run.stdout)


if __name__ == "__main__":
    code, result = file_report(*sys.argv[1:])
    print(f"{result['state']}: {result['sentence']}")
    if code == 4:
        print("Not known: this same command again will ask first. Never file it under another key.")
    sys.exit(code)
