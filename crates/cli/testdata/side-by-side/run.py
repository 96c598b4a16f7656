#!/usr/bin/env python3
"""Runs the official tool and ours with the same arguments on the same cluster and shows where they differ.

    run.py {ceph|rados} SPIRULA < LINES

Each line is a command line; ceph.txt and rados.txt hold some, good and bad. CEPH_CONF names the cluster, in which
the pool `sbs` is used. Every command runs twice, the official tool first, so it must tolerate that.
"""
import re
import shlex
import subprocess
import sys
import tempfile


def run(command):
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def stable(output):
    """Without the official tool's path, times, and librados' log lines."""
    output = re.sub(rb"/usr/bin/(ceph|rados)", rb"\1", output)
    output = re.sub(rb"\d{4}-\d\d-\d\dT[0-9:.+Z]+", b"TIME", output)
    return re.sub(rb"(?m)^TIME [0-9a-f]+ -1 .*\n+", b"", output)


def main():
    tool, spirula = sys.argv[1:]
    differ = total = 0
    with tempfile.NamedTemporaryFile() as data:
        data.write(bytes(i * 7919 % 251 for i in range(5_000_000)))
        data.flush()
        for line in map(str.strip, sys.stdin):
            if not line or line.startswith("#"):
                continue
            words = [word.replace("INPUT", data.name) for word in shlex.split(line)]
            official, ours = run([tool, *words]), run([spirula, tool, *words])
            total += 1
            pairs = [(a, b) for a, b in zip(official, ours)]
            pairs[1:] = [(stable(a), stable(b)) for a, b in pairs[1:]]
            if all(a == b for a, b in pairs):
                continue
            differ += 1
            print(f"{tool} {line}")
            for what, (a, b) in zip(("exit code", "output", "errors"), pairs):
                if a != b:
                    print(f"  {what}\n    official {a!r:.400}\n    ours     {b!r:.400}")
    print(f"{total} command lines, {differ} differ")
    sys.exit(differ > 0)


main()
