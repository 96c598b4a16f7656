#!/bin/bash
# Records testdata/chain-commands.bin: the OSDMap incrementals that an official monitor (Debian 12's ceph-mon 16.2)
# makes of many kinds of changes. Usage: record-chain.sh OUT. Needs ceph-mon, ceph and ceph-kvstore-tool; the
# monitor is a throw-away one in a temporary directory, without OSDs. Format of OUT: see ../tests/chain.rs.
set -u
out=$(realpath "$1")
dir=$(mktemp -d)
trap 'kill $mon 2>/dev/null; rm -rf "$dir"' EXIT
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
fsid=11111111-2222-4333-8444-555555555555
cat > "$dir/ceph.conf" <<CONF
[global]
fsid = $fsid
mon_host = [v2:127.0.0.1:$port/0]
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_allow_pool_delete = true
mon_allow_pool_size_one = true
osd_pool_default_pg_autoscale_mode = off
mon_warn_on_insecure_global_id_reclaim = false
log_file = $dir/\$name.log
admin_socket = $dir/\$name.asok
run_dir = $dir
CONF
export CEPH_CONF=$dir/ceph.conf
monmaptool --create --addv a "[v2:127.0.0.1:$port/0]" --fsid $fsid "$dir/monmap" > /dev/null
ceph-mon -i a --mkfs --monmap "$dir/monmap" --mon-data "$dir/mon" > /dev/null
ceph-mon -i a --mon-data "$dir/mon" -f > "$dir/log" 2>&1 &
mon=$!
timeout 30 ceph -s > /dev/null || { cat "$dir/log" >&2; exit 1; }
c() { timeout 20 ceph "$@" > /dev/null 2>> "$dir/errors" || echo "failed: ceph $*" >&2; }

for host in a b c d; do
    c osd crush add-bucket host-$host host
    c osd crush move host-$host root=default
done
for i in 0 1 2 3 4 5 6 7; do
    c osd new 0000000$i-0000-4000-8000-00000000000$i
done
c osd crush set-device-class ssd osd.0 osd.2 osd.4 osd.6
c osd crush set-device-class hdd osd.1 osd.3 osd.5 osd.7
c osd crush rule create-replicated fast default osd ssd
for i in 0 1 2 3 4 5 6; do c osd in osd.$i; done
c osd erasure-code-profile set k2m2 k=2 m=2 crush-failure-domain=osd
c osd erasure-code-profile set gone k=3 m=1
c osd erasure-code-profile rm gone
c osd pool create rep 16 16 replicated
c osd pool create fast 8 8 replicated fast
c osd pool create ec 8 8 erasure k2m2
c osd pool set ec allow_ec_overwrites true
c osd pool set rep size 2
c osd pool set rep min_size 1
c osd pool set rep pg_num 32
c osd pool set rep pgp_num 24
c osd pool set rep compression_mode aggressive
c osd pool set rep compression_required_ratio 0.7
c osd pool set rep csum_max_block 4096
c osd pool set-quota rep max_objects 1000
c osd pool set-quota rep max_bytes 1G
c osd pool application enable rep rbd
c osd pool application set rep rbd key value
c osd pool mksnap rep one
c osd pool mksnap rep two
c osd pool rmsnap rep one
c osd pool create cache 8
c osd tier add rep cache
c osd tier cache-mode cache writeback
c osd pool set cache hit_set_type bloom
c osd pool set cache hit_set_period 3600
c osd tier set-overlay rep cache
c osd tier remove-overlay rep
c osd tier cache-mode cache proxy
c osd tier remove rep cache
c osd pool rename fast quick
c osd pool create doomed 8
c osd pool delete doomed doomed --yes-i-really-really-mean-it
c osd reweight osd.1 0.5
c osd primary-affinity osd.2 0.25
c osd primary-affinity osd.2 1.0
c osd primary-affinity osd.3 0
c osd set-require-min-compat-client luminous
c osd pg-upmap 1.3 0 4
c osd pg-upmap-items 1.4 0 2 1 5
c osd pg-upmap-items 1.5 3 6
c osd rm-pg-upmap 1.3
c osd rm-pg-upmap-items 1.4
c osd pg-temp 1.7 5 6
c osd primary-temp 1.7 6
c osd pg-temp 1.8 4 3
c osd pg-temp 1.8
c osd blocklist add 10.0.0.1:6800/123 3600
c osd blocklist add 192.168.7.9:0/0 3600
c osd blocklist add 10.0.0.2:6789/5 7200
c osd blocklist add '[fe80::1]:6801/77' 7200
c osd blocklist rm 10.0.0.1:6800/123
for flag in noout noup norebalance pause noscrub; do c osd set $flag; done
for flag in noup pause; do c osd unset $flag; done
c osd set-group noout,noin osd.4 host-b
c osd unset-group noin osd.4 host-b
c osd set-full-ratio 0.96
c osd set-nearfull-ratio 0.8
c osd set-backfillfull-ratio 0.91
c osd crush weight-set create-compat
c osd crush tunables hammer
c osd crush tunables optimal
c osd lost 6 --yes-i-really-mean-it
c osd out osd.0
c osd in osd.0
c osd setmaxosd 12
sleep 1
[ -s "$dir/errors" ] && [ -n "${VERBOSE:-}" ] && cat "$dir/errors" >&2
kill $mon
wait $mon 2>/dev/null

kv() { ceph-kvstore-tool rocksdb "$dir/mon/store.db" "$@" 2>/dev/null; }
last=$(kv list osdmap | awk '$2 ~ /^[0-9]+$/ {print $2}' | sort -n | tail -1)
kv get osdmap full_1 out "$dir/full" > /dev/null
for e in $(seq 2 "$last"); do kv get osdmap "$e" out "$dir/inc_$e" > /dev/null; done
python3 - "$dir" "$last" "$out" <<'PY'
import struct, sys
dir, last, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with open(out, "wb") as f:
    for name in ["full"] + ["inc_%d" % e for e in range(2, last + 1)]:
        data = open(dir + "/" + name, "rb").read()
        f.write(struct.pack("<I", len(data)) + data)
PY
echo "$last epochs"
