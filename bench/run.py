#!/usr/bin/python3
"""Measures Spirula beside real Ceph with the official `rados bench`, a program on librados, fio's rbd engine, and S3 through Ceph's gateway.

Debian's Ceph and Spirula run at once on the same disk. Case by case the two take turns, as often as --repeat says, so that what
drifts on this machine meets both. Reads are of the same number of objects on both. Prints the ratio of the medians, writes
results.csv (every run), summary.json and results.svg (the ratios). Rows called "cold" need root: they empty all caches before.

    bench/run.py [--repeat 3] [--seconds 10] [--cases all|rados|librados|rbd|s3] [--work DIR] [--out bench/results]
    bench/run.py --before BINARY --out DIR         # beside an earlier build of Spirula: what a change costs
    bench/run.py --encrypted --out DIR             # encrypted stores beside others: what that costs
"""

import argparse
import csv
import dataclasses
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
from typing import Callable

import fio
import rados_bench
import s3
from clusters import Before, Ceph, Encrypted, Plain, Spirula, clear, sh

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
# What `rados bench` has no case for, by `librados.c` on three replicas: case, its name there, the first bar of the plan.
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
# What a ratio is a multiple of.
PEERS = {"ceph": "Ceph 16.2 (red: the first bar)", "before": "the build before", "plain": "stores that are not encrypted"}


def nothing(_cluster):
    pass


def is_coded(pool, case):
    """Whether a row is about an erasure-coded pool."""
    return pool in rados_bench.CODED or case.startswith(fio.CODED)


def replicated(pool, case):
    """The row on three replicas that a row about an erasure-coded pool corresponds to."""
    return "rep3" if pool in rados_bench.CODED else pool, case.removeprefix(f"{fio.CODED} ")


@dataclasses.dataclass
class Row:
    """A case on a pool: what is run, what reads its output, and what each cluster needs around it."""
    pool: str
    case: str
    bar: float | None
    argv: list[str]
    line: Callable[[str], dict]
    # Once, before the first run; before and after each run; once, after the last run.
    prepare: Callable = nothing
    before: Callable = nothing
    after: Callable = nothing
    finish: Callable = nothing
    # What is added to the environment of what is run.
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    # Whether it prints "ready" when the measured part begins.
    says_ready: bool = False


def wanted(args, pool, case):
    return re.search(args.match, f"{pool}: {case}")


def rados_rows(args):
    for pool in [*rados_bench.POOLS, *rados_bench.CODED]:
        # The last row that reads each set of objects.
        last = {}
        rows = []
        for case, argv, objects, cold, bars in rados_bench.ROWS:
            if not wanted(args, pool, case):
                continue
            if cold and os.geteuid():
                print(f"{pool} {case}: left out, as only root can empty the page cache")
                continue
            row = Row(pool, case, bars.get(pool), [], rados_bench.line, before=rados_bench.empty_caches if cold else nothing)
            if objects is None:
                row.argv = rados_bench.bench(pool, args.seconds, [*argv, "--no-cleanup"], rados_bench.WRITTEN)
                row.after = functools.partial(rados_bench.clean, pool=pool, run_name=rados_bench.WRITTEN)
            else:
                row.argv = rados_bench.bench(pool, args.seconds, argv, objects[0])
                if objects not in last:
                    row.prepare = functools.partial(rados_bench.fill, pool=pool, objects=objects)
                last[objects] = row
            rows.append(row)
        for (name, _, _), row in last.items():
            row.finish = functools.partial(rados_bench.clean, pool=pool, run_name=name)
        yield from rows


def librados_rows(args):
    for case, name, bar in LIBRADOS:
        if not wanted(args, "rep3", case):
            continue
        yield Row("rep3", case, bar, [f"{args.work}/librados", name, "rep3", str(args.seconds), str(args.list_objects)], librados_line,
                  says_ready=True)


def fio_rows(args):
    rows = [row for row in fio.ROWS if wanted(args, fio.POOL, row[0])]
    made = set()
    for case, image, argv, bar in rows:
        first = (image == fio.CODED) not in made
        made.add(image == fio.CODED)
        yield Row(fio.POOL, case, bar, fio.command(image, argv, args.seconds), fio.line,
                  prepare=lambda cluster, first=first, case=case, image=image: fio.prepare(first, case, image, cluster.env),
                  before=lambda cluster, case=case, image=image: fio.before(image, case, cluster.env),
                  env=fio.environment({}))


def s3_rows(args):
    for case, method, size, count, at_once, bar in s3.ROWS:
        if not wanted(args, s3.POOL, case):
            continue
        if not s3.is_installed():
            print(f"{s3.POOL} {case}: left out, as radosgw or curl is not installed")
            continue
        what = {"method": method, "size": size, "count": count, "work": args.work}
        yield Row(s3.POOL, case, bar, s3.command(at_once=at_once, **what), functools.partial(s3.line, size=0 if method == s3.LIST else size),
                  prepare=functools.partial(s3.gateway, work=args.work), before=functools.partial(s3.before, **what),
                  after=functools.partial(s3.after, **what))


def rows_of(args):
    for cases, rows in (("rados", rados_rows), ("librados", librados_rows), ("rbd", fio_rows), ("s3", s3_rows)):
        if args.cases in ("all", cases):
            yield from rows(args)


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def status(pid, key):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(rf"^{key}:\s+(\d+)", f.read(), re.M).group(1))


def librados_line(text):
    ops, seconds, avg_ms, max_ms = map(float, text.split())
    rate = ops / seconds
    return {"rate": rate, "unit": "op/s", "iops": rate, "avg_ms": avg_ms, "max_ms": max_ms, "ops": ops}


def start(cluster, with_coded):
    """Starts a cluster with its pools, erasure-coded ones if they are asked for, and notes how long that took and which processes are
    its OSDs."""
    clear(cluster.dir)
    started = time.monotonic()
    cluster.up()
    cluster.up_seconds = time.monotonic() - started
    env = cluster.env
    sh("ceph", "config", "set", "global", "mon_allow_pool_size_one", "true", env=env, check=False)
    for pool, size in rados_bench.POOLS.items():
        sh("ceph", "osd", "pool", "create", pool, "32", "32", "replicated", env=env)
        sh("ceph", "osd", "pool", "set", pool, "min_size", "1" if size == 1 else "2", env=env)
        sh("ceph", "osd", "pool", "set", pool, "size", str(size), "--yes-i-really-mean-it", env=env)
    for pool, code in rados_bench.CODED.items() if with_coded else ():
        sh("ceph", "osd", "erasure-code-profile", "set", pool, *code, "crush-failure-domain=osd", env=env)
        sh("ceph", "osd", "pool", "create", pool, "32", "32", "erasure", pool, env=env)
        sh("ceph", "osd", "pool", "set", pool, "allow_ec_overwrites", "true", env=env)
    cluster.osd_pids = [int(open(f, encoding="ascii").read()) for f in sorted(glob.glob(f"{cluster.dir}/run/osd.*.pid"))]


def measure(cluster, row, run):
    pids = cluster.osd_pids
    row.before(cluster)
    client0, before = os.times(), cpu_seconds(pids)
    with subprocess.Popen(row.argv, env=cluster.env | row.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
        if row.says_ready:
            if p.stdout.readline() != "ready\n":
                raise SystemExit(f"{' '.join(row.argv)} did not begin")
            before = cpu_seconds(pids)
        out = p.stdout.read()
    if p.returncode:
        raise SystemExit(f"{' '.join(row.argv)}: {p.returncode}\n{out}")
    client = os.times()
    osd_cpu = cpu_seconds(pids) - before
    client_cpu = client.children_user + client.children_system - client0.children_user - client0.children_system
    result = row.line(out)
    ops = max(result["ops"], 1)
    result.update(cluster=cluster.name, run=run, pool=row.pool, case=row.case, up_s=round(cluster.up_seconds, 2),
                  osd_us_per_op=osd_cpu * 1e6 / ops, client_us_per_op=client_cpu * 1e6 / ops,
                  rss_mib=max(status(p, "VmHWM") for p in pids) / 1024, threads=max(status(p, "Threads") for p in pids))
    print(f"{cluster.name:8} {run} {row.pool} {row.case:36} {result['rate']:8.1f} {result['unit']:5} {result['iops']:8.0f} IOPS "
          f"{result['avg_ms']:7.2f} ms  osd {result['osd_us_per_op']:6.0f} us/op  rss {result['rss_mib']:5.0f} MiB", flush=True)
    row.after(cluster)
    return result


def measure_all(clusters, args):
    """Every row on every cluster, in turns; the cluster that comes first changes from run to run."""
    results = []
    for row in rows_of(args):
        for cluster in clusters:
            row.prepare(cluster)
        for run in range(1, args.repeat + 1):
            for cluster in clusters if run % 2 else reversed(clusters):
                results.append(measure(cluster, row, run))
        for cluster in clusters:
            row.finish(cluster)
    return results


def summary(rows, results, peer):
    out = []
    for row in rows:
        def med(cluster, key):
            return statistics.median(r[key] for r in results if (r["cluster"], r["pool"], r["case"]) == (cluster, row.pool, row.case))
        unit = next(r["unit"] for r in results if (r["pool"], r["case"]) == (row.pool, row.case))
        out.append({"pool": row.pool, "case": row.case, "bar": row.bar, "unit": unit,
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
    p.add_argument("--cases", choices=["all", "rados", "librados", "rbd", "s3"], default="all",
                   help="those of `rados bench`, of `librados.c`, of block images, of S3, or all")
    p.add_argument("--match", default="", metavar="REGEX", help="of these, those whose pool and case match, such as 'rep3: .* 4 KiB'")
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
    kinds = [kind for kind in (peer, ours) if args.only in (None, kind.name)]
    clusters = [kind(args.work, args.osd_gib, args.before if kind is Before else args.spirula) for kind in kinds]
    try:
        with_coded = any(is_coded(row.pool, row.case) for row in rows_of(args))
        for cluster in clusters:
            start(cluster, with_coded)
        time.sleep(5)
        results = measure_all(clusters, args)
    finally:
        for cluster in clusters:
            if cluster.gateway:
                cluster.gateway.kill()
            cluster.down()
    for cluster in clusters:
        clear(cluster.dir)
    if args.only:
        return
    with open(f"{args.out}/results.csv", "w", newline="", encoding="utf-8") as f:
        w = csv.DictWriter(f, fieldnames=sorted(results[0]))
        w.writeheader()
        w.writerows(results)
    peer = peer.name
    table = summary(list(rows_of(args)), results, peer)
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo", encoding="utf-8") if l.startswith("model name")), platform.machine())
    where = (f"{datetime.date.today()}, {os.cpu_count()} × {model}, "
             f"{args.repeat} runs of {args.seconds} s, both clusters up, each of 3 OSDs; clients on the same machine")
    print(f"\n{where}\n{'case':42} {'ratio':>6} {'bar':>5} {'rate':>8} {peer:>8} {'unit':5} {'us/op':>7} {peer:>7} {'RSS':>5} {peer:>6}")
    for r in table:
        print(f"{r['pool'] + ': ' + r['case']:42} {r['ratio']:6.2f} {r['bar'] or '':>5} {r['spirula_rate']:8.1f} {r[f'{peer}_rate']:8.1f} {r['unit']:5} "
              f"{r['spirula_osd_us_per_op']:7.1f} {r[f'{peer}_osd_us_per_op']:7.1f} {r['spirula_rss_mib']:5.0f} {r[f'{peer}_rss_mib']:6.0f}")
    rates = {(r["pool"], r["case"]): r["spirula_rate"] for r in table}
    for r in table:
        own = rates.get(replicated(r["pool"], r["case"])) if is_coded(r["pool"], r["case"]) else None
        if own:
            r["of_own_replicas"] = r["spirula_rate"] / own
            print(f"{r['pool'] + ': ' + r['case']:42} {r['of_own_replicas']:6.2f} of our own three replicas")
    with open(f"{args.out}/summary.json", "w", encoding="utf-8") as f:
        json.dump({"where": where, "cases": table}, f, indent=1)
    plot(table, f"{args.out}/results.svg", where, peer)


if __name__ == "__main__":
    main()
