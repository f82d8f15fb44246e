# SPDX-License-Identifier: MIT
"""What the checks share: where the tree is, which files are ours, and how a finding is told."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def files(root=ROOT, under=()):
    """Our files, relative to root and sorted: what git knows or would add; without git (a tarball) all there is."""
    listing = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if listing.returncode == 0:
        found = listing.stdout.decode().split("\0")
    else:
        found = [os.path.relpath(os.path.join(folder, name), root)
                 for folder, _, names in os.walk(root) for name in names
                 if not os.path.relpath(folder, root).startswith(("build", ".git", "run"))]
    return sorted({f for f in found if f and os.path.isfile(os.path.join(root, f))
                   and (not under or f.startswith(tuple(u + "/" for u in under)))})


def read(path, root=ROOT):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def tell(name, findings, looked_at):
    """Prints each finding and a last line; returns the exit code. A check that looked at nothing has failed."""
    for finding in findings:
        print(finding)
    if not looked_at:
        findings = ["nothing to look at"]
        print(f"{name}: found nothing to look at")
    else:
        print(f"{name}: {looked_at} looked at, {len(findings)} wrong", file=sys.stderr)
    return 1 if findings else 0
