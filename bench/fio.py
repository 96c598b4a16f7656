"""The rows of block images: fio's rbd engine, without librbd's cache, on an image with three replicas, and on one whose data is
erasure-coded."""

import json
import os
import time

from clusters import sh

POOL = "rep3"
MIB = 1 << 20
SIZE = 2048 * MIB
# What images are made from: the image, and what `rbd` does before.
FULL, CLONE, EMPTY, CODED = "full", "clone", "empty", "coded"
# The pool of the data of CODED.
DATA_POOL = "ec21"
# case, image, what fio does, the first bar of the plan (ratio to Ceph 16.2)
ROWS = [
    ("image: write 4 MiB, 16", FULL, ["--rw=write", "--bs=4m", "--iodepth=16"], 1.4),
    ("image: read 4 MiB, 16", FULL, ["--rw=read", "--bs=4m", "--iodepth=16"], 1.5),
    ("image: rand write 4 KiB, 1", FULL, ["--rw=randwrite", "--bs=4k", "--iodepth=1"], 4.5),
    ("image: rand write 4 KiB, 16", FULL, ["--rw=randwrite", "--bs=4k", "--iodepth=16"], 5),
    ("image: rand write 64 KiB, 16", FULL, ["--rw=randwrite", "--bs=64k", "--iodepth=16"], None),
    ("image: rand read 4 KiB, 1", FULL, ["--rw=randread", "--bs=4k", "--iodepth=1"], 1.8),
    ("image: rand read 4 KiB, 16", FULL, ["--rw=randread", "--bs=4k", "--iodepth=16"], 2),
    ("new clone: rand read 4 KiB, 16", CLONE, ["--rw=randread", "--bs=4k", "--iodepth=16"], None),
    ("after a snapshot: rand write 4 KiB, 16", FULL, ["--rw=randwrite", "--bs=4k", "--iodepth=16"], None),
    ("empty image: rand write 4 KiB, 16", EMPTY, ["--rw=randwrite", "--bs=4k", "--iodepth=16"], None),
    ("coded image: write 4 MiB, 16", CODED, ["--rw=write", "--bs=4m", "--iodepth=16"], 2),
    ("coded image: read 4 MiB, 16", CODED, ["--rw=read", "--bs=4m", "--iodepth=16"], 1.2),
    ("coded image: rand write 4 KiB, 1", CODED, ["--rw=randwrite", "--bs=4k", "--iodepth=1"], 3),
    ("coded image: rand write 4 KiB, 16", CODED, ["--rw=randwrite", "--bs=4k", "--iodepth=16"], 5),
    ("coded image: rand write 64 KiB, 16", CODED, ["--rw=randwrite", "--bs=64k", "--iodepth=16"], None),
    ("coded image: rand read 4 KiB, 1", CODED, ["--rw=randread", "--bs=4k", "--iodepth=1"], 1.2),
    ("coded image: rand read 4 KiB, 16", CODED, ["--rw=randread", "--bs=4k", "--iodepth=16"], 1.2),
]


def fio(image, argv):
    return ["fio", "--name=bench", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}", f"--rbdname={image}", "--direct=1",
            "--randrepeat=1", "--output-format=json", *argv]


def environment(env):
    """librbd's cache would answer writes itself."""
    return dict(env, CEPH_ARGS="--rbd_cache=false")


def rbd(env, *argv, check=True):
    sh("rbd", *argv, env=env, check=check)


def prepare(first, case, image, env):
    """What a row needs once, before its first run; the first row of all, and the first about CODED, makes the image."""
    if first:
        made = CODED if image == CODED else FULL
        coded = ["--data-pool", DATA_POOL] if made == CODED else []
        rbd(env, "create", "--size", f"{SIZE // MIB}M", *coded, f"{POOL}/{made}")
        sh(*fio(made, ["--rw=write", "--bs=4m", "--iodepth=16"]), env=environment(env))
        # Once more, so that no row finds it as it was laid down first.
        sh(*fio(made, ["--rw=randwrite", "--bs=4k", "--iodepth=16", "--time_based", "--runtime=2"]), env=environment(env))
        rbd(env, "snap", "create", f"{POOL}/{made}@cloned")
    if "image: rand read" in case:
        # Both have read all of it before, in pieces that both keep.
        sh(*fio(image, ["--rw=read", "--bs=64k", "--iodepth=16"]), env=environment(env))


def before(image, case, env):
    """What each run of a row needs."""
    if image == CLONE:
        rbd(env, "rm", f"{POOL}/{CLONE}", check=False)
        rbd(env, "clone", "--rbd-default-clone-format=2", f"{POOL}/{FULL}@cloned", f"{POOL}/{CLONE}")
    elif image == EMPTY:
        rbd(env, "rm", f"{POOL}/{EMPTY}", check=False)
        rbd(env, "create", "--size", f"{SIZE // MIB}M", f"{POOL}/{EMPTY}")
    elif case.startswith("after a snapshot"):
        rbd(env, "snap", "create", f"{POOL}/{FULL}@before-{time.monotonic_ns()}")


def command(image, argv, seconds):
    return fio(image, [*argv, "--time_based", f"--runtime={seconds}"])


def line(text):
    # What librbd logs comes first.
    job = json.loads(text[text.index("{\n"):])["jobs"][0]
    io = max(job["read"], job["write"], key=lambda io: io["total_ios"])
    large = io["io_bytes"] >= MIB * io["total_ios"]
    rate, unit = (io["bw_bytes"] / 1e6, "MB/s") if large else (io["iops"], "op/s")
    return {"rate": rate, "unit": unit, "iops": io["iops"], "avg_ms": io["lat_ns"]["mean"] / 1e6, "max_ms": io["lat_ns"]["max"] / 1e6,
            "ops": io["total_ios"]}
