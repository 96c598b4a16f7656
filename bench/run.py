#!/usr/bin/python3
"""Measures Spirula beside real Ceph with the official `rados bench` and fio's rbd engine, on the same disk, in one run.

Starts Debian's Ceph, runs the matrix, stops it; the same for Spirula; as often as --repeat says, in turns.
Prints the ratio of the medians, writes results.csv (every run) and results.svg (the ratios).

    bench/run.py [--repeat 3] [--seconds 10] [--cases all|rados|librados|rbd] [--work DIR] [--out bench/results]
    bench/run.py --before BINARY --out DIR         # beside an earlier build of Spirula: what a change costs
    bench/run.py --encrypted --out DIR             # encrypted stores beside others: what that costs
"""

import argparse
import csv
import datetime
import functools
import glob
import json
import os
import platform
import re
import statistics
import subprocess
import time

import fio
from clusters import Before, Ceph, Encrypted, Plain, Spirula, clear, sh

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
# pool, case, `rados bench` arguments, the first bar of the plan (ratio to Ceph 16.2)
MATRIX = [
    ("rep1", "write 4 MiB, 16", ["write", "-t", "16", "--no-cleanup"], 1.6),
    ("rep1", "seq read 4 MiB, 16", ["seq", "-t", "16"], None),
    ("rep1", "write 4 KiB, 1", ["write", "-b", "4096", "-t", "1", "--no-cleanup"], None),
    ("rep1", "write 4 KiB, 16", ["write", "-b", "4096", "-t", "16", "--no-cleanup"], 3.5),
    ("rep1", "rand read 4 KiB, 16", ["rand", "-t", "16"], None),
    ("rep3", "write 4 MiB, 16", ["write", "-t", "16", "--no-cleanup"], 1.4),
    ("rep3", "seq read 4 MiB, 16", ["seq", "-t", "16"], 1.2),
    ("rep3", "write 4 KiB, 1", ["write", "-b", "4096", "-t", "1", "--no-cleanup"], 3.5),
    ("rep3", "write 4 KiB, 16", ["write", "-b", "4096", "-t", "16", "--no-cleanup"], 5),
    ("rep3", "rand read 4 KiB, 16", ["rand", "-t", "16"], None),
]
# What `rados bench` has no case for, by `librados.c` on three replicas: case, its name there, the bar.
LIBRADOS = [
    ("omap: set 8 keys, 16", "omap-set", 2),
    ("omap: get 64 keys, 16", "omap-get", 2),
    ("xattr: set, 16", "setxattr", 2),
    ("xattr: get, 16", "getxattr", 2),
    ("delete 4 KiB objects, 16", "delete", 2),
    ("notify round trip, 1", "notify", 2),
    ("overwrite 4 KiB after a snapshot, 16", "snap-overwrite", 2),
    ("list objects", "list", 2),
]
CASES = (MATRIX + [("rep3", case, None, bar) for case, _, bar in LIBRADOS]
         + [(fio.POOL, case, None, bar) for case, _, _, bar in fio.ROWS])
# What a ratio is a multiple of.
PEERS = {"ceph": "Ceph 16.2 (red: the first bar)", "before": "the build before", "plain": "stores that are not encrypted"}
# Cases after which the objects go: the next one writes its own.
CLEAN_AFTER = {"seq read 4 MiB, 16", "write 4 KiB, 1", "rand read 4 KiB, 16"}


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def status(pid, key):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(rf"^{key}:\s+(\d+)", f.read(), re.M).group(1))


def bench_line(text):
    def number(label):
        m = re.search(rf"^{label}[^:]*:\s+([\d.]+)", text, re.M)
        return float(m.group(1)) if m else 0.0

    ops = number(r"Total (?:writes|reads) made")
    return {"rate": number("Bandwidth"), "unit": "MB/s", "iops": number("Average IOPS"), "avg_ms": number("Average Latency") * 1e3,
            "max_ms": number("Max latency") * 1e3, "ops": ops}


def librados_line(text):
    ops, seconds, avg_ms, max_ms = map(float, text.split())
    rate = ops / seconds
    return {"rate": rate, "unit": "op/s", "iops": rate, "avg_ms": avg_ms, "max_ms": max_ms, "ops": ops}


def nothing(_env):
    pass


def commands(args):
    """What is run: pool, case, command, what reads its output, and what is done before."""
    found = []
    if args.cases in ("all", "rados"):
        found += [(pool, case, ["rados", "bench", "-p", pool, str(args.seconds), *argv], bench_line, nothing) for pool, case, argv, _ in MATRIX]
    if args.cases in ("all", "librados"):
        found += [("rep3", case, [f"{args.work}/librados", name, "rep3", str(args.seconds), str(args.list_objects)], librados_line, nothing)
                  for case, name, _ in LIBRADOS]
    if args.cases in ("all", "rbd"):
        found += [(fio.POOL, case, fio.command(image, argv, args.seconds), fio.line, functools.partial(fio.prepare, case, image))
                  for case, image, argv, _ in fio.ROWS]
    return found


def measure(cluster, args, run):
    env = dict(os.environ, CEPH_CONF=f"{cluster.dir}/ceph.conf")
    clear(cluster.dir)
    started = time.monotonic()
    cluster.up()
    up_seconds = time.monotonic() - started
    sh("ceph", "config", "set", "global", "mon_allow_pool_size_one", "true", env=env, check=False)
    for pool in ("rep1", "rep3"):
        sh("ceph", "osd", "pool", "create", pool, "32", "32", "replicated", env=env)
        size = pool[-1]
        sh("ceph", "osd", "pool", "set", pool, "min_size", "1" if size == "1" else "2", env=env)
        sh("ceph", "osd", "pool", "set", pool, "size", size, "--yes-i-really-mean-it", env=env)
    time.sleep(5)
    pids = [int(open(f).read()) for f in sorted(glob.glob(f"{cluster.dir}/run/osd.*.pid"))]
    rows = []
    for pool, case, argv, line, prepare in commands(args):
        prepare(env)
        client0 = os.times()
        run_env = fio.environment(env) if line == fio.line else env
        with subprocess.Popen(argv, env=run_env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
            if line == librados_line and p.stdout.readline() != "ready\n":
                raise SystemExit(f"{' '.join(argv)} did not begin")
            before = cpu_seconds(pids)
            out = p.stdout.read()
        if p.returncode:
            raise SystemExit(f"{' '.join(argv)}: {p.returncode}\n{out}")
        client = os.times()
        row = line(out)
        ops = max(row["ops"], 1)
        client_cpu = (client.children_user + client.children_system
                      - client0.children_user - client0.children_system)
        row.update(cluster=cluster.name, run=run, pool=pool, case=case, up_s=round(up_seconds, 2),
                   osd_us_per_op=(cpu_seconds(pids) - before) * 1e6 / ops, client_us_per_op=client_cpu * 1e6 / ops,
                   rss_mib=max(status(p, "VmHWM") for p in pids) / 1024,
                   threads=max(status(p, "Threads") for p in pids))
        rows.append(row)
        print(f"{cluster.name:8} {run} {pool} {case:36} {row['rate']:8.1f} {row['unit']:5} {row['iops']:8.0f} IOPS "
              f"{row['avg_ms']:7.2f} ms  osd {row['osd_us_per_op']:6.0f} us/op  rss {row['rss_mib']:5.0f} MiB", flush=True)
        if case in CLEAN_AFTER:
            sh("rados", "-p", pool, "cleanup", env=env)
    cluster.down()
    clear(cluster.dir)
    return rows


def summary(rows, peer):
    out = []
    measured = {(r["pool"], r["case"]) for r in rows}
    for pool, case, _, bar in CASES:
        if (pool, case) not in measured:
            continue

        def med(cluster, key):
            return statistics.median(r[key] for r in rows if (r["cluster"], r["pool"], r["case"]) == (cluster, pool, case))
        out.append({"pool": pool, "case": case, "bar": bar, "unit": next(r["unit"] for r in rows if (r["pool"], r["case"]) == (pool, case)),
                    "ratio": med("spirula", "rate") / max(med(peer, "rate"), 1e-9),
                    **{f"{c}_{k}": med(c, k) for c in (peer, "spirula")
                       for k in ("rate", "iops", "avg_ms", "osd_us_per_op", "client_us_per_op", "rss_mib", "threads")}})
    return out


def plot(table, path, where, peer):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    fig, ax = plt.subplots(figsize=(9, 0.45 * len(table) + 1.4))
    labels = [f"{r['pool']}: {r['case']}" for r in table]
    ax.barh(labels, [r["ratio"] for r in table], color="#3b7a8c")
    for i, r in enumerate(table):
        ax.text(r["ratio"], i, f" {r['ratio']:.1f}×", va="center", fontsize=8)
        if r["bar"]:
            ax.plot([r["bar"], r["bar"]], [i - 0.4, i + 0.4], color="#c0392b")
    ax.axvline(1, color="#888", linewidth=0.8)
    ax.invert_yaxis()
    ax.set_xlabel(f"throughput as a multiple of {PEERS[peer]}")
    ax.set_title(where, fontsize=8)
    fig.tight_layout()
    fig.savefig(path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--seconds", type=int, default=10)
    p.add_argument("--list-objects", type=int, default=100_000, help="objects that are listed")
    p.add_argument("--osd-gib", type=int, default=10)
    p.add_argument("--work", default="/var/tmp/spirula-bench")
    p.add_argument("--out", default=f"{HERE}/results")
    p.add_argument("--spirula", default=f"{ROOT}/target/release/spirula")
    p.add_argument("--cases", choices=["all", "rados", "librados", "rbd"], default="all",
                   help="those of `rados bench`, of `librados.c`, of block images, or all")
    p.add_argument("--before", help="an earlier build of Spirula, measured in Ceph's place")
    p.add_argument("--encrypted", action="store_true", help="encrypted stores, beside plain ones in Ceph's place")
    p.add_argument("--only", choices=["ceph", "spirula"], help="measure one side and print no ratio")
    args = p.parse_args()
    peer, ours = (Before, Spirula) if args.before else (Plain, Encrypted) if args.encrypted else (Ceph, Spirula)
    if peer is not Ceph and os.path.abspath(args.out) == f"{HERE}/results":
        raise SystemExit("--before and --encrypted want an --out of their own: results/ is beside Ceph")
    os.makedirs(args.work, exist_ok=True)
    os.makedirs(args.out, exist_ok=True)
    # Of the development files of Debian's librados.
    sh("cc", "-O2", "-o", f"{args.work}/librados", f"{HERE}/librados.c", "-lrados", "-lpthread", env=os.environ)
    rows = []
    for run in range(1, args.repeat + 1):
        for kind in (peer, ours):
            if args.only in (None, kind.name):
                rows += measure(kind(args.work, args.osd_gib, args.before if kind is Before else args.spirula), args, run)
    if args.only:
        return
    with open(f"{args.out}/results.csv", "w", newline="") as f:
        w = csv.DictWriter(f, fieldnames=sorted(rows[0]))
        w.writeheader()
        w.writerows(rows)
    peer = peer.name
    table = summary(rows, peer)
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    where = (f"{datetime.date.today()}, {os.cpu_count()} × {model}, "
             f"{args.repeat} runs of {args.seconds} s, 3 OSDs and the client on one machine")
    print(f"\n{where}\n{'case':42} {'ratio':>6} {'bar':>5} {'rate':>8} {peer:>8} {'unit':5} {'us/op':>7} {peer:>7} {'RSS':>5} {peer:>6}")
    for r in table:
        print(f"{r['pool'] + ': ' + r['case']:42} {r['ratio']:6.2f} {r['bar'] or '':>5} {r['spirula_rate']:8.1f} {r[f'{peer}_rate']:8.1f} {r['unit']:5} "
              f"{r['spirula_osd_us_per_op']:7.0f} {r[f'{peer}_osd_us_per_op']:7.0f} {r['spirula_rss_mib']:5.0f} {r[f'{peer}_rss_mib']:6.0f}")
    with open(f"{args.out}/summary.json", "w") as f:
        json.dump({"where": where, "cases": table}, f, indent=1)
    plot(table, f"{args.out}/results.svg", where, peer)


if __name__ == "__main__":
    main()
