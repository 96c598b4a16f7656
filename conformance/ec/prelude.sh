# What the commands of `commands.txt` may use: functions of the shell, as pipes and subshells need them too.

# Some fields of a pool's record: fields POOL FIELD...
fields() {
    ceph osd pool ls detail --format json | python3 -c '
import json, sys
pool = next(p for p in json.load(sys.stdin) if p["pool_name"] == sys.argv[1])
pool["flags"] &= ~(1 << 15)  # creating
print({k: pool[k] for k in sys.argv[2:]})' "$@"
}

pool_id() { ceph osd lspools | sed -nE "s/^([0-9]+) $1\$/\1/p"; }

# Of the sets that `osd map` and `pg map` tell: how long they are, how many OSDs are in them, and what stands for a hole.
holes() {
    python3 -c '
import json, sys
told = json.load(sys.stdin)
for name in ("up", "acting"):
    osds = [osd for osd in told[name] if 0 <= osd < 3]
    print(name, len(told[name]), len(set(osds)), [osd for osd in told[name] if osd not in osds],
          told.get(name + "_primary", told[name][0]) == told[name][0])'
}

# Whether two pools could take the same bytes if their rates are taken off: room POOL RATE POOL RATE
room() {
    ceph df --format json | python3 -c '
import json, sys
free = {p["name"]: p["stats"]["max_avail"] for p in json.load(sys.stdin)["pools"]}
a, rate_a, b, rate_b = sys.argv[1:]
print(round(free[a] * float(rate_a) / (free[b] * float(rate_b)), 2))' "$@"
}

# The raw bytes for each byte that a pool could take.
raw_room() {
    ceph df detail --format json | python3 -c '
import json, sys
stats = next(p["stats"] for p in json.load(sys.stdin)["pools"] if p["name"] == sys.argv[1])
print(round(stats["avail_raw"] / stats["max_avail"], 2))' "$@"
}

# What a pool is like whose profile has these properties, and its rule.
width() {
    ceph osd erasure-code-profile set "$P-p" "$@" crush-failure-domain=osd --force
    ceph osd pool create "$P-a" 1 1 erasure "$P-p"
    fields "$P-a" size min_size stripe_width
    ceph osd pool rm "$P-a" "$P-a" --yes-i-really-really-mean-it
    ceph osd crush rule dump "$P-a" --format json | grep -oE '"m.._size":[0-9]*'
    ceph osd crush rule rm "$P-a"
} 2>&1
