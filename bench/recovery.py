#!/usr/bin/python3
"""What clients feel of a failure, of recovery, of scrubs and of each other, beside real Ceph in one run.

    bench/recovery.py CASE… [--only ceph|spirula] [--repeat 1] [--bytes 2147483648] [--object 4194304] [--write 0] [--away 60]
        [--coded K+M] [--large 1]

return: an OSD is killed under a load of writes and comes back --away seconds later. Tells the longest write around its death, and
        throughput and latency while it is away, while it gets what it lacks, and after.
out:    of four OSDs one is marked out under load.
idle:   the same without load, so how fast a cluster copies that has nothing else to do.
scrub:  all PGs are deep-scrubbed under load. Tells of the load before and after, and meanwhile.
still:  the same without load, so how fast a cluster scrubs that has nothing else to do, and what processor time that takes.
fair:   clients write to one pool: one 4 KiB at a time, --large others --object bytes 64 at a time.
leader: of three monitors the leader is killed, five times. Tells the time to the next command that a monitor answers.

The pool holds --bytes in objects of --object bytes, three copies of each or coded. The load has 16 writes in flight: of whole objects,
or of --write bytes somewhere in one. SPIRULA is the binary (target/release/spirula). Needs Debian's ceph, librados-dev, python3-rados and a C compiler.
"""

import argparse
import json
import os
import statistics
import subprocess
import threading
import time

import rados

from clusters import HERE, Ceph, Spirula, clear, sh

CLEAN_WITHIN = 900


class Load:
    """The writer, and what it has told: (when, writes, 99th percentile in ms, longest in ms) of each second."""

    def __init__(self, cluster, args, seconds, size=None, write=None, in_flight=16):
        size = size or args.object
        command = [f"{args.work}/load", "bench", str(size), str(args.bytes // size), str(seconds)]
        command += [str(write or args.write or size), str(in_flight)]
        self.child = subprocess.Popen(command, env=cluster.env, stdout=subprocess.PIPE, text=True)
        self.rows = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            _, count, _, p99, longest = line.split()
            self.rows.append((time.time(), int(count), float(p99), float(longest)))

    def between(self, begun, ended):
        """Of whole seconds."""
        return [r for r in self.rows if begun + 1 <= r[0] <= ended]


class Phase:
    """Some seconds of load, all told."""

    def __init__(self, rows, base=None):
        self.seconds = len(rows)
        self.rate = sum(r[1] for r in rows) / max(len(rows), 1)
        self.least = min((r[1] for r in rows), default=0)
        self.p99 = statistics.median(r[2] for r in rows) if rows else 0.0
        self.longest = max((r[3] for r in rows), default=0.0)
        self.base = base

    def __str__(self):
        text = f"{self.rate:7.0f}/s (least {self.least}), p99 {self.p99:.1f} ms, longest {self.longest:.0f} ms, {self.seconds} s"
        if self.base:
            text += f"; {100 * self.rate / self.base.rate:.0f} % of undisturbed, p99 {self.p99 / max(self.base.p99, 1e-3):.1f} times"
        return text


CLIENTS = {}


def ask(cluster, **words):
    """What a command answers. While a load runs no process begins for it: `ceph` every half a second took a tenth of two
    processors."""
    if cluster not in CLIENTS:
        CLIENTS[cluster] = rados.Rados(conffile=cluster.env["CEPH_CONF"])
        CLIENTS[cluster].connect()
    command = json.dumps(words | {"format": "json"})
    # Some commands are the manager's, where there is one.
    for send in (CLIENTS[cluster].mon_command, CLIENTS[cluster].mgr_command):
        result, answer, why = send(command, b"", 30)
        if result == 0:
            return json.loads(answer)
    raise SystemExit(f"{words}: {result} {why}")


def is_clean(cluster):
    """Whether all OSDs are in and every PG is `active+clean`, of which nothing moves any more."""
    status = ask(cluster, prefix="status")
    states = status["pgmap"].get("pgs_by_state", [])
    return bool(states) and all(s["state_name"].split("+")[:2] == ["active", "clean"] for s in states)


def until_clean(cluster):
    begun = time.time()
    while time.time() - begun < CLEAN_WITHIN:
        if is_clean(cluster):
            return time.time()
        time.sleep(0.3)
    raise SystemExit("not clean: " + sh("ceph", "-s", env=cluster.env))


def until_seen(cluster, up):
    """Waits until the map tells what happened to an OSD."""
    while ask(cluster, prefix="osd stat")["num_up_osds"] != up:
        time.sleep(0.2)


def fill(cluster, args):
    kind = ["replicated"]
    if args.coded:
        k, m = args.coded.split("+")
        kind = ["erasure", "coded"]
        sh("ceph", "osd", "erasure-code-profile", "set", "coded", f"k={k}", f"m={m}", "crush-failure-domain=osd", env=cluster.env)
    sh("ceph", "osd", "pool", "create", "bench", "32", "32", *kind, env=cluster.env)
    if args.coded:
        sh("ceph", "osd", "pool", "set", "bench", "allow_ec_overwrites", "true", env=cluster.env)
    sh("ceph", "osd", "pool", "application", "enable", "bench", "test", env=cluster.env)
    Load(cluster, args, 0).child.wait()
    until_clean(cluster)
    time.sleep(5)


def under_load(cluster, args, say, trouble):
    load = Load(cluster, args, 7200)
    try:
        time.sleep(15)
        base = Phase(load.rows[3:])
        say("undisturbed", str(base))
        begun = trouble(load, base)
        done = until_clean(cluster)
        say("clean after", f"{done - begun:.1f} s")
        say("recovering", str(Phase(load.between(begun, done), base)))
        time.sleep(10)
        say("afterwards", str(Phase(load.between(done, time.time()), base)))
    finally:
        load.child.kill()


def case_return(cluster, args, say):
    def trouble(load, base):
        killed = time.time()
        cluster.kill("osd.2")
        until_seen(cluster, 2)
        time.sleep(args.away - (time.time() - killed))
        say("kill to next write", f"{max(r[3] for r in load.rows if r[0] >= killed):.0f} ms")
        say("away", str(Phase(load.between(killed + 5, time.time()), base)))
        begun = time.time()
        cluster.start("osd.2")
        until_seen(cluster, 3)
        return begun

    under_load(cluster, args, say, trouble)


def out(cluster):
    begun = time.time()
    sh("ceph", "osd", "out", "0", env=cluster.env)
    while is_clean(cluster) and time.time() < begun + 10:
        time.sleep(0.1)
    return begun


def case_out(cluster, args, say):
    under_load(cluster, args, say, lambda _load, _base: out(cluster))


def case_idle(cluster, args, say):
    pgs = ask(cluster, prefix="pg ls-by-osd", osd="0")["pg_stats"]
    held = sum(pg["stat_sum"]["num_bytes"] for pg in pgs)
    begun = out(cluster)
    took = until_clean(cluster) - begun
    say("copied", f"{held / 1e6:.0f} MB in {took:.1f} s, {held / took / 1e6:.0f} MB/s, {held / args.object / took:.0f} objects/s")


def stamps(cluster):
    pgs = ask(cluster, prefix="pg dump", dumpcontents=["pgs"])["pg_stats"]
    return [pg["last_deep_scrub_stamp"] for pg in pgs], sum(pg["stat_sum"]["num_bytes"] for pg in pgs)


def processor_time(cluster):
    """Seconds of all OSDs, and the largest one's MiB in memory at most."""
    seconds, largest = 0.0, 0
    for osd in range(int(cluster.osds)):
        pid = cluster.pid(f"osd.{osd}")
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            largest = max(largest, next(int(line.split()[1]) >> 10 for line in f if line.startswith("VmHWM")))
    return seconds, largest


def scrub_all(cluster, say):
    """Has everything scrubbed and read; returns when that began and ended."""
    newest, held = max(stamps(cluster)[0]), stamps(cluster)[1]
    before, begun = processor_time(cluster)[0], time.time()
    sh("ceph", "osd", "deep-scrub", "all", env=cluster.env)
    while min(stamps(cluster)[0]) <= newest:
        if time.time() - begun > CLEAN_WITHIN:
            say("scrubbing", "does not end")
            break
        time.sleep(0.5)
    done = time.time()
    seconds, largest = processor_time(cluster)
    read = held * 3 / 2**30
    say("scrubbed", f"{read:.1f} GiB in {done - begun:.1f} s, {1024 * read / (done - begun):.0f} MiB/s; {(seconds - before) / read:.2f} s of "
        f"processor time for a GiB, load included; largest OSD {largest} MiB")
    return begun, done


def case_scrub(cluster, args, say):
    load = Load(cluster, args, 7200)
    try:
        time.sleep(18)
        undisturbed = load.rows[3:]
        begun, done = scrub_all(cluster, say)
        time.sleep(18)
        # Before and after, as rates drift.
        base = Phase(undisturbed + load.between(done + 2, time.time()))
        say("undisturbed", str(base))
        say("scrubbing", str(Phase(load.between(begun, done), base)))
    finally:
        load.child.kill()
    said = sh("ceph", "log", "last", "1000", "info", "cluster", env=cluster.env)
    say("slow requests", f"{said.count('slow request')} lines, {said.count(' errors')} scrubs with errors")


def case_still(cluster, _args, say):
    scrub_all(cluster, say)


def case_fair(cluster, args, say):
    def small(in_flight):
        return Load(cluster, args, 7200, 64 << 10, 4096, in_flight)

    alone = {}
    for in_flight in (1, 16):
        load = small(in_flight)
        time.sleep(15)
        load.child.kill()
        alone[in_flight] = Phase(load.rows[3:])
        say(f"{in_flight} small alone", str(alone[in_flight]))
    large = [Load(cluster, args, 7200, in_flight=64) for _ in range(args.large)]
    try:
        time.sleep(20)
        base = [Phase(load.rows[3:]) for load in large]
        for phase in base:
            say("64 large alone", str(phase))
        for in_flight in (1, 16):
            load, begun = small(in_flight), time.time()
            time.sleep(23)
            load.child.kill()
            say(f"{in_flight} small beside", str(Phase(load.rows[3:], alone[in_flight])))
            for load, phase in zip(large, base):
                say("64 large beside", str(Phase(load.between(begun + 3, time.time()), phase)))
    finally:
        for load in large:
            load.child.kill()


def case_leader(cluster, _args, say):
    took = []
    with rados.Rados(conffile=cluster.env["CEPH_CONF"]) as client:
        def command(**words):
            result, answer, why = client.mon_command(json.dumps(words), b"", 30)
            if result:
                raise SystemExit(f"{words}: {result} {why}")
            return answer

        for turn in range(5):
            leader = json.loads(command(prefix="quorum_status", format="json"))["quorum_leader_name"]
            cluster.kill(f"mon.{leader}")
            begun = time.time()
            command(prefix="config-key set", key="bench", val=str(turn))
            took.append(time.time() - begun)
            cluster.start(f"mon.{leader}")
            while len(json.loads(command(prefix="quorum_status", format="json"))["quorum"]) < 3:
                time.sleep(0.5)
            time.sleep(5)
    say("to next command", f"{statistics.median(took):.2f} s, longest {max(took):.2f} s")


# The case, and the OSDs and monitors that it wants.
CASES = {"return": (case_return, 3, 1), "out": (case_out, 4, 1), "idle": (case_idle, 4, 1), "scrub": (case_scrub, 3, 1),
         "still": (case_still, 3, 1), "fair": (case_fair, 3, 1), "leader": (case_leader, 3, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", choices=CASES, nargs="+")
    parser.add_argument("--only", choices=["ceph", "spirula"])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=2 << 30)
    parser.add_argument("--object", type=int, default=4 << 20)
    parser.add_argument("--write", type=int, default=0)
    parser.add_argument("--away", type=int, default=60)
    parser.add_argument("--coded", metavar="K+M", help="a coded pool rather than three copies")
    parser.add_argument("--large", type=int, default=1, help="clients of large writes beside the one of small ones")
    parser.add_argument("--work", default="/var/tmp/spirula-recovery")
    args = parser.parse_args()
    spirula = os.path.realpath(os.environ.get("SPIRULA", f"{HERE}/../target/release/spirula"))
    os.makedirs(args.work, exist_ok=True)
    sh("cc", "-O2", "-o", f"{args.work}/load", f"{HERE}/load.c", "-lrados", "-lpthread", env=os.environ)
    for case in args.cases:
        run, osds, mons = CASES[case]
        for _ in range(args.repeat):
            for kind in (Ceph, Spirula):
                if args.only not in (None, kind.name):
                    continue
                cluster = kind(args.work, 8, spirula, osds, mons)
                clear(cluster.dir)
                cluster.up()
                try:
                    if case != "leader":
                        fill(cluster, args)
                    run(cluster, args, lambda what, text, name=kind.name: print(f"{case:7} {name:8} {what:18} {text}", flush=True))
                finally:
                    if cluster in CLIENTS:
                        CLIENTS.pop(cluster).shutdown()
                    cluster.down()
                    clear(cluster.dir)


if __name__ == "__main__":
    main()
