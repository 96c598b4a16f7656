#!/usr/bin/python3
"""Where the time of one small request goes: system calls of the official client and of the OSDs, one request at a time.

    bench/stages.py CLUSTER_DIR POOL read|write [--seconds 4]

Needs root, `perf` and `rados`, and a cluster made by `spirula up`. `rados bench` runs with one request at a time on objects of
4 KiB; perf notes when the processes enter and leave the system calls that move the request on. Prints the medians of the stages
as a table. Tracing itself takes a little in each call, so the rate with and without it is printed too.
"""

import argparse
import collections
import glob
import os
import re
import statistics
import subprocess
import tempfile
import time

CALLS = ("sendmsg", "read", "readv", "writev", "preadv2", "io_uring_enter")
EVENTS = [f"syscalls:sys_{edge}_{call}" for call in CALLS for edge in ("enter", "exit")]
LINE = re.compile(r"^\s*(.+?)\s+(\d+)/(\d+)\s+([\d.]+):\s+syscalls:sys_(enter|exit)_(\w+):\s+(.*)$")
RUN = "stages"


def bench(pool, seconds, kind, *more):
    return ["rados", "bench", "-p", pool, str(seconds), kind, "-t", "1", "--run-name", RUN, *more]


def rate(text):
    return float(re.search(r"Average IOPS:\s+([\d.]+)", text)[1])


class Call:
    """A system call: process, thread, name, begin and end in seconds, result."""
    __slots__ = ("pid", "tid", "name", "begin", "end", "result")

    def __init__(self, pid, tid, name, begin):
        self.pid, self.tid, self.name, self.begin, self.end, self.result = pid, tid, name, begin, None, None


def calls(data):
    """The complete calls, by their begin."""
    script = subprocess.run(["perf", "script", "-i", data, "-F", "comm,pid,tid,time,event,trace"], text=True, capture_output=True, check=True).stdout
    under_way, found = {}, []
    for line in script.splitlines():
        m = LINE.match(line)
        if not m:
            continue
        _, pid, tid, at, edge, name, rest = m.groups()
        pid, tid, at = int(pid), int(tid), float(at)
        if edge == "enter":
            under_way[tid] = Call(pid, tid, name, at)
        elif (call := under_way.pop(tid, None)) and call.name == name:
            call.end, call.result = at, int(rest.split()[-1], 0)
            if call.result >= 1 << 63:
                call.result -= 1 << 64
            found.append(call)
    return sorted(found, key=lambda c: c.begin)


def requests(found, client):
    """The calls of each request: from the client's sending it to its reading the answer."""
    request, last = [], None
    for call in found:
        if call.pid == client and call.name == "sendmsg" and call.result > 200:
            if request and last:
                yield request, last, call
            request, last = [call], None
        elif request:
            if call.pid == client and call.name == "read" and call.result > 100:
                last = last or call
            request.append(call)


def first(request, pid, name, after, least=1):
    return next((c for c in request if c.pid == pid and c.name == name and c.begin >= after and c.result >= least), None)


def of_read(request, answer):
    sent = request[0]
    got = next((c for c in request if c.pid != sent.pid and c.name == "readv" and c.result > 200), None)
    found = got and first(request, got.pid, "preadv2", got.begin)
    reply = found and first(request, got.pid, "writev", found.begin)
    if not reply:
        return None
    return [
        ("client: send", sent.end - sent.begin), ("network, the OSD wakes", max(0, got.begin - sent.end)),
        ("OSD: receive", got.end - got.begin), ("OSD: decode, check, find the object", found.begin - got.end),
        ("OSD: read from the page cache", found.end - found.begin), ("OSD: verify, make the reply", reply.begin - found.end),
        ("OSD: send", reply.end - reply.begin), ("network, the client wakes", answer.begin - reply.end),
    ]


def of_write(request, answer):
    sent = request[0]
    got = next((c for c in request if c.pid != sent.pid and c.name == "readv" and c.result > 4000), None)
    if not got:
        return None
    primary = got.pid
    copies = [c for c in request if c.pid == primary and c.name == "writev" and c.result > 4000]
    log = first(request, primary, "io_uring_enter", got.end)
    replicas = {c.pid for c in request if c.pid not in (primary, sent.pid) and c.name == "readv" and c.result > 4000}
    if len(copies) != 2 or len(replicas) != 2 or not log:
        return None
    there, flushed, acked = [], [], []
    for pid in replicas:
        arrived = first(request, pid, "readv", got.end, 4000)
        begun = arrived and first(request, pid, "io_uring_enter", arrived.end, 0)
        ack = begun and first(request, pid, "writev", begun.end)
        if not ack:
            return None
        there.append(arrived)
        flushed.append((begun, ack))
        acked.append(ack)
    slow = max(range(2), key=lambda i: acked[i].end)
    reply = [c for c in request if c.pid == primary and c.name == "writev" and c.begin > copies[-1].end]
    reply = next((c for c in reply if c.begin > acked[slow].begin), None)
    if not reply:
        return None
    arrived, (begun, ack) = there[slow], flushed[slow]
    return [
        ("client: send", sent.end - sent.begin), ("network, the primary wakes", max(0, got.begin - sent.end)),
        ("primary: receive", got.end - got.begin), ("primary: decode, check, execute", min(copies[0].begin, log.begin) - got.end),
        ("primary: send to both replicas, begin its own log write", max(copies[-1].end, log.end) - min(copies[0].begin, log.begin)),
        ("network, the slower replica wakes (from the primary's last sending)", arrived.begin - max(copies[-1].end, log.end)),
        ("replica: receive, check", begun.begin - arrived.begin), ("replica: the log write is durable", ack.begin - begun.begin),
        ("replica: send", ack.end - ack.begin), ("network, primary: receive, count, make the reply", reply.begin - ack.end),
        ("primary: send", reply.end - reply.begin), ("network, the client wakes", answer.begin - reply.end),
    ]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir")
    p.add_argument("pool")
    p.add_argument("kind", choices=["read", "write"])
    p.add_argument("--seconds", type=int, default=4)
    args = p.parse_args()
    os.environ["CEPH_CONF"] = f"{args.dir}/ceph.conf"
    kind = ["rand"] if args.kind == "read" else ["write", "-b", "4096", "--no-cleanup"]
    if args.kind == "read":
        subprocess.run(["rados", "bench", "-p", args.pool, "60", "write", "-b", "4096", "-t", "16", "--max-objects", "3000", "--no-cleanup", "--run-name", RUN],
                       check=True, capture_output=True)
        subprocess.run(["rados", "bench", "-p", args.pool, "60", "seq", "-t", "16", "--run-name", RUN], check=True, capture_output=True)
    free = rate(subprocess.run(bench(args.pool, args.seconds, *kind), text=True, capture_output=True, check=True).stdout)
    osds = [int(open(f, encoding="ascii").read()) for f in glob.glob(f"{args.dir}/run/osd.*.pid")]
    with tempfile.NamedTemporaryFile(suffix=".perf") as data:
        client = subprocess.Popen(bench(args.pool, args.seconds, *kind), text=True, stdout=subprocess.PIPE)
        time.sleep(1)
        perf = ["perf", "record", "-q", "-o", data.name, "-m", "16M", "-p", ",".join(map(str, [client.pid, *osds]))]
        for event in EVENTS:
            perf += ["-e", event]
        subprocess.run([*perf, "--", "sleep", "1"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        traced = rate(client.communicate()[0])
        found = calls(data.name)
    subprocess.run(["rados", "-p", args.pool, "cleanup", "--run-name", RUN], check=True, capture_output=True)
    stages, whole, own = collections.OrderedDict(), [], []
    for request, answer, following in requests(found, client.pid):
        parts = (of_read if args.kind == "read" else of_write)(request, answer)
        if parts is None:
            continue
        for name, seconds in [*parts, ("client: receive, complete, begin the next", following.begin - answer.begin)]:
            stages.setdefault(name, []).append(seconds * 1e6)
        whole.append((following.begin - request[0].begin) * 1e6)
    if not whole:
        raise SystemExit("no complete request was seen")
    print(f"{len(whole)} requests; {free:.0f} requests/s without tracing, {traced:.0f} in a run of which a part was traced\n")
    print("| stage | median, µs |\n|---|---|")
    for name, values in stages.items():
        print(f"| {name} | {statistics.median(values):.0f} |")
    print(f"| from one request to the next | {statistics.median(whole):.0f} |")


main()
