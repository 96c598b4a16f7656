"""The rows of `rados bench`: what it writes, and what it reads of objects that are the same on both clusters."""

import os
import re
import time

from clusters import sh

# Replicated pools by their size, and erasure-coded ones by their profile.
POOLS = {"rep1": 1, "rep3": 3}
CODED = {"ec21": ["k=2", "m=1"]}
# Sets of objects that are read: their size in bytes, and their number.
SMALL = ("small", 4096, 12_000)
LARGE = ("large", 4 << 20, 256)
# case, what `rados bench` does, the set that it reads (None: it writes), whether the caches are empty before,
# and the first bar of the plan (ratio to Ceph 16.2), by pool
ROWS = [
    ("write 4 MiB, 16", ["write", "-t", "16"], None, False, {"rep1": 1.6, "rep3": 1.4, "ec21": 2}),
    ("seq read 4 MiB, 16", ["seq", "-t", "16"], LARGE, False, {"rep1": 1.5, "rep3": 1.5, "ec21": 1.2}),
    ("seq read 4 MiB, 16, cold", ["seq", "-t", "16"], LARGE, True, {}),
    ("write 4 KiB, 1", ["write", "-b", "4096", "-t", "1"], None, False, {"rep3": 3.5, "ec21": 3}),
    ("write 4 KiB, 16", ["write", "-b", "4096", "-t", "16"], None, False, {"rep1": 3.5, "rep3": 6, "ec21": 5}),
    ("rand read 4 KiB, 1", ["rand", "-t", "1"], SMALL, False, {"rep1": 1.5, "rep3": 1.5, "ec21": 1.2}),
    ("rand read 4 KiB, 16", ["rand", "-t", "16"], SMALL, False, {"rep1": 2, "rep3": 2, "ec21": 1.2}),
    ("rand read 4 KiB, 1, cold", ["rand", "-t", "1"], SMALL, True, {"rep1": 1, "rep3": 1}),
    ("rand read 4 KiB, 16, cold", ["rand", "-t", "16"], SMALL, True, {}),
]
WRITTEN = "written"


def bench(pool, seconds, argv, run_name):
    return ["rados", "bench", "-p", pool, str(seconds), *argv, "--run-name", run_name]


def fill(cluster, pool, objects):
    """Writes a set of objects, and reads all of it once."""
    name, size, count = objects
    sh(*bench(pool, 600, ["write", "-b", str(size), "-t", "16", "--max-objects", str(count), "--no-cleanup"], name), env=cluster.env)
    sh(*bench(pool, 600, ["seq", "-t", "16"], name), env=cluster.env)


def clean(cluster, pool, run_name):
    sh("rados", "-p", pool, "cleanup", "--run-name", run_name, env=cluster.env)


def empty_caches(cluster):
    """Empties the caches of the OSDs, and the page cache of this machine."""
    for osd in range(int(cluster.osds)):
        sh("ceph", "tell", f"osd.{osd}", "cache", "drop", env=cluster.env)
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
        f.write("3\n")
    # What was asked of the disk for that ends.
    time.sleep(1)


def line(text):
    def number(label):
        m = re.search(rf"^{label}[^:]*:\s+([\d.]+)", text, re.M)
        return float(m.group(1)) if m else 0.0

    ops, seconds = number(r"Total (?:writes|reads) made"), number("Total time run")
    size = number("Object size") or number(r"Read size")
    rate = ops / max(seconds, 1e-9)
    large = size >= 1 << 20
    return {"rate": rate * size / 1e6 if large else rate, "unit": "MB/s" if large else "op/s", "iops": rate,
            "avg_ms": number("Average Latency") * 1e3, "max_ms": number("Max latency") * 1e3, "ops": ops}
