#!/usr/bin/env bash
# Three small machines: network namespaces with links of 100 Mbit/s and memory cgroups of 1 GiB, a monitor and an OSD each. A
# client writes for some minutes; meanwhile one host is cut off and comes back. Tells the throughput against what the links
# allow, what the daemons took of memory, and whether the kernel killed one.
#
#   bench/three_hosts.sh [MINUTES]     needs root, iproute2, memory cgroups of version 1, Debian's ceph-common and ceph-base
#
# SPIRULA is the binary (target/release/spirula), RATE the links' (100mbit), CLIENT the client's link's, OBJECT the size of objects
# (4194304). CODE='k=2 m=1' makes the pool an erasure-coded one. The host is cut off for a third of the time, after a third of it;
# CUT=0 leaves it alone.
set -euo pipefail
cd "$(dirname "$0")/.."
MINUTES=${1:-10}
RATE=${RATE:-100mbit}
CLIENT=${CLIENT:-$RATE}
CODE=${CODE:-}
OBJECT=${OBJECT:-4194304}
CUT=${CUT:-1}
SPIRULA=$(realpath "${SPIRULA:-target/release/spirula}")
LAB=sb$$
ROOT=$(mktemp -d "${TMPDIR:-/tmp}/three-hosts.XXXXXX")
MEMORY=/sys/fs/cgroup/memory
source bench/hosts/lib.sh
lab_possible
[ -e $MEMORY/memory.limit_in_bytes ] || { echo "no memory cgroups of version 1"; exit 1; }

group() { echo "$MEMORY/$LAB-$1"; }

clean() {
    local n
    for n in 1 2 3; do stop "$n" -9; done
    sleep 1
    lab_down
    for n in 1 2 3; do rmdir "$(group $n)" 2> /dev/null || true; done
    [ -n "${KEEP:-}" ] || rm -rf "$ROOT"
}
trap clean EXIT

# Both directions of each cable are shaped. The client's link is the bound, unless CLIENT is more than one and a half times RATE
# (three times, in a pool of two data and one coding unit): then the OSDs' cluster links are.
shape() {
    local n interface rate=$RATE
    for n in 1 2 3 4; do
        [ $n != 4 ] || rate=$CLIENT
        for interface in eth0 eth1; do
            ip netns exec "$LAB$n" tc qdisc add dev $interface root tbf rate "$rate" burst 64kb latency 50ms
        done
        for interface in public$n cluster$n; do
            ip netns exec "${LAB}sw" tc qdisc add dev "$interface" root tbf rate "$rate" burst 64kb latency 50ms
        done
    done
}

lab_up 4
shape
write_conf 3
make_keys 3
for n in 2 3; do
    share 1 $n etc/ceph.conf etc/mon.keyring etc/monmap etc/ceph.client.admin.keyring lib/bootstrap-osd/ceph.keyring
done
share 1 4 etc/ceph.conf etc/ceph.client.admin.keyring
for n in 1 2 3; do
    mkdir "$(group $n)"
    echo $((1 << 30)) > "$(group $n)/memory.limit_in_bytes"
    CGROUP=$(group $n) add_mon $n --monmap /etc/ceph/monmap
done
wait_for 30 "quorum 0,1,2" at 4 timeout 5 ceph mon stat
for n in 1 2 3; do CGROUP=$(group $n) add_osd $n "${STORE:-20G}"; done
type=()
if [ -n "$CODE" ]; then
    # shellcheck disable=SC2086
    at 4 timeout 30 ceph osd erasure-code-profile set bench $CODE
    type=(32 erasure bench)
fi
at 4 timeout 30 ceph osd pool create bench 32 "${type[@]}" > /dev/null 2>&1
at 4 timeout 30 ceph osd pool application enable bench test 2> /dev/null
wait_for 60 HEALTH_OK at 4 timeout 5 ceph health detail

seconds=$((MINUTES * 60))
# In rounds, whose objects are removed during the next one, so that an hour of it fits on the disk.
write_rounds() {
    local end=$(($(date +%s) + seconds)) now length
    while now=$(date +%s) && length=$((end - now)) && [ $length -gt 0 ]; do
        [ $length -le 60 ] || length=60
        echo "ROUND $now"
        at 4 timeout 900 rados bench -p bench $length write -b "$OBJECT" -t 16 --run-name "round$now" --no-cleanup ||
            { echo FAILED; sleep 1; }
        at 4 timeout 900 rados -p bench cleanup --run-name "round$now" > /dev/null 2>&1 &
    done
    wait
}
write_rounds > "$ROOT/bench.log" 2>&1 &
bench=$!
started=$(date +%s)
if [ "$CUT" != 0 ]; then
    sleep $((seconds / 3))
    echo "$(date +%T) node3 is cut off"
    cut_off 3
    sleep $((seconds / 3))
    echo "$(date +%T) node3 is back"
    mend 3
fi
wait $bench
healthy="not within 300 s"
begun=$SECONDS
! wait_for 300 HEALTH_OK at 4 timeout 5 ceph health detail || healthy="$((SECONDS - begun)) s after the end of writing"

python3 - "$ROOT" "$RATE" "$seconds" "$CUT" "$healthy" "$started" << 'END'
import re, sys
root, rate, seconds, cut, healthy, started = sys.argv[1:]
seconds, started = int(seconds), int(started)
unit = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
number, name = re.match(r"(\d+)(\w+)", rate).groups()
# Of 1514 bytes of a frame 1448 are data. A byte that is written crosses the client's link once; the primary's cluster link
# twice (once, in a pool of two data and one coding unit), but there are three of them.
link = int(number) * unit[name] / 8 * 1448 / 1514 / 2**20
rows, begun, failed = [], started, 0
for line in open(f"{root}/bench.log"):
    words = line.split()
    if words[:1] == ["ROUND"]:
        begun = int(words[1])
    elif words[:1] == ["FAILED"]:
        failed += 1
    elif len(words) >= 8 and words[0].isdigit() and words[5][0].isdigit():
        rows.append((begun - started + int(words[0]), float(words[5])))
# Seconds between rounds count as such in which nothing was written.
def mean(low, high):
    return sum(v for t, v in rows if low < t <= high) / (high - low)
third = seconds // 3
print(f"links of {rate} carry {link:.2f} MiB/s of data")
parts = [("all", 0, seconds)]
if cut != "0":
    parts += [("before", 0, third), ("cut off", third, 2 * third), ("back", 2 * third, seconds)]
for what, low, high in parts:
    got = mean(low, high)
    idle = sum(1 for t, v in rows if low < t <= high and v == 0)
    print(f"{what:8} {got:6.2f} MiB/s, {100 * got / link:5.1f} % of a link, {idle} s without an answer")
print(f"HEALTH_OK {healthy}; {failed} rounds failed")
END
for n in 1 2 3; do
    for kind in mon osd; do
        pid=$(cat "$ROOT/node$n/$kind.pid")
        if [ -e "/proc/$pid/status" ]; then
            awk -v d="node$n $kind" '$1 == "VmHWM:" { printf "%s: peak %.0f MiB resident\n", d, $2 / 1024 }' "/proc/$pid/status"
        else
            echo "node$n $kind: dead: $(tail -n 1 "$ROOT/node$n/log/$kind.log")"
        fi
    done
    echo "node$n: $(awk '$1 == "oom_kill" { print $2 }' "$(group $n)/memory.oom_control") killed for memory," \
        "$(($(cat "$(group $n)/memory.max_usage_in_bytes") >> 20)) MiB charged at most, page cache included"
done
