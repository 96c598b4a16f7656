#!/usr/bin/python3
"""What clients feel of recovery: throughput and latency second by second while an OSD is away, comes back, or is emptied; and
how fast an idle cluster copies.

    bench/recovery.py return|out|idle [--size 4096] [--bytes 2147483648] [--away 20] [--dir DIR]

return: an OSD is killed under load, and started again after --away seconds. out: of four OSDs one is marked out under load. idle:
the same without load. SPIRULA is the binary (target/release/spirula). Needs Debian's ceph-common, librados-dev and a C compiler.
"""

import argparse
import os
import signal
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def run(*argv):
    return subprocess.run(argv, check=True, text=True, capture_output=True).stdout


class Load:
    """The writer, and what it has told: (writes, 99th percentile in ms) of each second, and when that was."""

    def __init__(self, args, seconds):
        objects = max(args.bytes // args.size, 1)
        command = [f"{args.dir}/load", "bench", str(args.size), str(objects), str(seconds)]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.rows = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            _, count, _, p99, most = line.split()
            self.rows.append((time.time(), int(count), float(p99), float(most)))


def tell(what, rows, base=None):
    if not rows:
        return None
    mean = sum(r[1] for r in rows) / len(rows)
    p99 = sorted(r[2] for r in rows)[len(rows) // 2]
    least = min(r[1] for r in rows)
    text = f"{what:12} {len(rows):3} s: {mean:8.1f}/s (least {least}), p99 {p99:7.2f} ms, longest {max(r[3] for r in rows):.0f} ms"
    if base:
        text += f"; {100 * mean / base[0]:.0f} % of undisturbed, p99 {p99 / base[1]:.1f} times"
    print(text, flush=True)
    return mean, p99


def is_clean():
    return subprocess.run(
        "ceph pg stat -f json | grep -q '\"num_pgs\"' && ! ceph pg dump pgs_brief 2>/dev/null | awk 'NR > 1 && $2 != \"active+clean\"' | grep -q .",
        shell=True, check=False,
    ).returncode == 0


def until_clean(most=600):
    begun = time.time()
    while time.time() - begun < most:
        if is_clean():
            return time.time()
        time.sleep(0.5)
    raise SystemExit("not clean: " + run("ceph", "-s"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["return", "out", "idle"])
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--bytes", type=int, default=2 << 30)
    parser.add_argument("--away", type=int, default=20)
    parser.add_argument("--dir", default="")
    args = parser.parse_args()
    spirula = os.path.realpath(os.environ.get("SPIRULA", "target/release/spirula"))
    args.dir = args.dir or tempfile.mkdtemp(prefix="recovery.")
    os.makedirs(args.dir, exist_ok=True)
    run("cc", "-O2", "-o", f"{args.dir}/load", f"{HERE}/load.c", "-lrados", "-lpthread")
    osds = "3" if args.case == "return" else "4"
    cluster = f"{args.dir}/cluster"
    up = [spirula, "up", "--detach", "--dir", cluster, "--osds", osds, "--osd-size", "12G", "--no-respawn"]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
    os.environ["CEPH_CONF"] = f"{cluster}/ceph.conf"
    try:
        run("ceph", "osd", "pool", "create", "bench", "32", "32", "replicated")
        run("ceph", "osd", "pool", "application", "enable", "bench", "test")
        Load(args, 0).child.wait()
        until_clean()
        time.sleep(5)
        measure(args, cluster, up)
    finally:
        subprocess.run([spirula, "down", "--dir", cluster], check=False, stdout=subprocess.DEVNULL)


def measure(args, cluster, up):
    if args.case == "idle":
        held = sum(int(line.split()[0]) for line in
                   run("sh", "-c", "ceph pg ls-by-osd 0 -f json | jq '.pg_stats[].stat_sum.num_bytes'").splitlines())
        begun = time.time()
        run("ceph", "osd", "out", "0")
        time.sleep(1)
        took = until_clean() - begun
        print(f"idle: {held >> 20} MiB in {took:.1f} s: {held / took / 1e6:.0f} MB/s, {held / args.size / took:.0f} objects/s")
        return
    load = Load(args, 3600)
    time.sleep(12)
    base = tell("undisturbed", load.rows[2:])
    if args.case == "return":
        with open(f"{cluster}/run/osd.2.pid", encoding="ascii") as f:
            os.kill(int(f.read()), signal.SIGKILL)
        killed = len(load.rows)
        time.sleep(args.away)
        tell("away", load.rows[killed + 2:], base)
        begun, at = time.time(), len(load.rows)
        # It returns when all is well again, or gives up.
        subprocess.Popen(up, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2)
    else:
        begun, at = time.time(), len(load.rows)
        run("ceph", "osd", "out", "0")
        time.sleep(1)
    while time.time() - begun < 600:
        if len(load.rows) % 5 == 0:
            print(run("sh", "-c", "ceph pg stat").strip()[:150], flush=True)
        if is_clean():
            break
        time.sleep(1)
    done = len(load.rows)
    print(f"clean after {time.time() - begun:.1f} s")
    tell("recovering", load.rows[at:done], base)
    print("second by second:", " ".join(f"{r[1]}({r[2]:.0f})" for r in load.rows[at:done]))
    time.sleep(8)
    tell("afterwards", load.rows[done + 1:], base)
    load.child.kill()


main()
