# What daemons tell of themselves.

# Of each OSD all that an official one tells, if it is here. `created_at` and what is BlueStore's own are not.
keys=$(ceph osd metadata 0 | jq -c 'keys_unsorted - ["container_name", "container_image", "pod_name", "pod_namespace", "container_hostname"]
    - ["objectstore_numa_unknown_devices", "objectstore_numa_nodes", "objectstore_numa_node"]')
[ "$keys" = '["id","arch","back_addr","back_iface","bluestore_bdev_access_mode","bluestore_bdev_block_size","bluestore_bdev_devices","bluestore_bdev_path","bluestore_bdev_rotational","bluestore_bdev_size","bluestore_bdev_support_discard","bluestore_bdev_type","bluestore_min_alloc_size","ceph_release","ceph_version","ceph_version_short","cpu","default_device_class","device_ids","device_paths","devices","distro","distro_description","distro_version","front_addr","front_iface","hb_back_addr","hb_front_addr","hostname","journal_rotational","kernel_description","kernel_version","mem_swap_kb","mem_total_kb","network_numa_unknown_ifaces","os","osd_data","osd_objectstore","rotational"]' ] ||
    { echo "$keys" >&2; false; }
about() { ceph osd metadata 0 | jq -r ".$1"; }
[ "$(ceph osd metadata osd.0 | jq .id)" = 0 ]
[ "$(about hostname)" = "$(uname -n)" ]
[ "$(about kernel_version) $(about kernel_description) $(about arch)" = "$(uname -r) $(uname -v) $(uname -m)" ]
[ "$(about mem_total_kb)" = "$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo)" ]
[ "$(about distro_description)" = "$(. /etc/os-release && echo "$PRETTY_NAME")" ]
[ "$(about osd_data)" = "$PWD/osd.0" ]
[ "$(about bluestore_bdev_path)" = "$PWD/osd.0/block" ]
[ "$(about bluestore_bdev_size)" = "$(stat -c %s osd.0/block)" ]
# On the loopback interface, as in Ceph.
[ "$(about front_iface)$(about network_numa_unknown_ifaces)" = back_iface,front_iface ]
[ "$(ceph daemon osd.0 list_devices | jq -r 'map(.device | ltrimstr("/dev/")) | join(",")')" = "$(about devices)" ]
says 2 'osd.7 does not exist' ceph osd metadata 7
keys=$(ceph mon metadata a | jq -c 'keys_unsorted - ["container_name", "container_image", "pod_name", "pod_namespace", "container_hostname"]')
[ "$keys" = '["addrs","arch","ceph_release","ceph_version","ceph_version_short","compression_algorithms","cpu","device_ids","device_paths","devices","distro","distro_description","distro_version","hostname","kernel_description","kernel_version","mem_swap_kb","mem_total_kb","os"]' ]
says 2 'requested mon not found' ceph mon metadata z
[ "$(ceph mgr metadata | jq -c '.[0] | [.name, .hostname, .devices]')" = "[\"a\",\"$(uname -n)\",null]" ]
[ "$(ceph osd count-metadata hostname | jq -c .)" = "{\"$(uname -n)\":3}" ]
[ "$(ceph osd count-metadata id | jq -c .)" = '{"unknown":3}' ]
[ "$(ceph osd count-metadata nothing | jq -c .)" = '{"unknown":3}' ]
[ "$(ceph mon count-metadata os | jq -c .)" = '{"Linux":1}' ]
[ "$(ceph osd versions | jq -c 'to_entries[].value')" = 3 ]

# Temporary members of a PG: as many as it may have.
says 22 'num of osds (1) < pool min size (2)' ceph osd pg-temp 1.0 0
ceph osd pool create two 8 8 --size 2
two=$(ceph osd pool ls detail -f json | jq '.[] | select(.pool_name == "two").pool_id')
says 22 'num of osds (3) > pool size (2)' ceph osd pg-temp "$two.0" 0 1 2
says 0 "set 1.0 pg_temp mapping to [0,1]" ceph osd pg-temp 1.0 0 1
says 0 'done cleaning up pg_temp of 1.0' ceph osd pg-temp 1.0
says 2 'osd.7 does not exist' ceph osd pg-temp 1.0 7

# What a full OSD does, without one that is full.
says 0 'Invalid type use (none, nearfull, backfillfull, full, failsafe)' ceph tell osd.0 injectfull bogus
ceph tell osd.0 injectfull nearfull
timeout 60 bash -c 'until ceph health detail | grep "osd.0 is near full" >/dev/null; do sleep 0.2; done'
ceph tell osd.0 injectfull failsafe
timeout 60 bash -c 'until ceph health detail | grep "osd.0 is full" >/dev/null; do sleep 0.2; done'
says 124 '' timeout 3 rados -p data put o2 /etc/passwd
ceph tell osd.0 injectfull none
timeout 60 rados -p data put o2 /etc/passwd
timeout 60 bash -c 'while ceph health detail | grep "osd.0 is" >/dev/null; do sleep 0.2; done'

# Compaction moves what the log holds, and says what it did.
rados -p data bench 3 write -b 4096 --no-cleanup -O 4096 >/dev/null
compacted=$(ceph tell osd.0 compact)
[ "$(jq -c 'keys_unsorted' <<<"$compacted")" = '["elapsed_time","writeback_bytes","index_bytes"]' ]
[ "$(jq '.index_bytes > 0 and .elapsed_time > 0' <<<"$compacted")" = true ]
[ "$(ceph daemon osd.1 compact | jq '.index_bytes > 0')" = true ]

# OSDs as the manager's module shows them.
timeout 60 bash -c 'until ceph osd status -f json | jq -e ".OSDs | any(.\"write ops rate\" > 0)" >/dev/null; do rados -p data bench 1 write -b 4096 --no-cleanup >/dev/null; done'
[ "$(ceph osd status | head -1 | tr -s ' ')" = 'ID HOST USED AVAIL WR OPS WR DATA RD OPS RD DATA STATE ' ]
[ "$(ceph osd status | awk 'NR > 1 {print $1, $2, $NF}')" = "0 $(uname -n) exists,up
1 $(uname -n) exists,up
2 $(uname -n) exists,up" ]
# The rates may change meanwhile.
members() { ceph osd status "$1" | awk '{print $1, $2, $NF}'; }
[ "$(members "$(hostname -s)")" = "$(members 'defau[l]*')" ]
says 0 "Bucket 'nowhere' not found" ceph osd status nowhere
ceph osd crush add-bucket empty rack
[ -z "$(ceph osd status empty)" ]
ceph osd crush rm empty
ceph osd out 2
[ "$(ceph osd status | awk '$1 == 2 {print $3, $4}')" = '0 0' ]
ceph osd in 2

# The tool asks for rates again and again; the header comes first.
ceph iostat -p 0 >rates
[ "$(sed -n 2p rates | tr -d ' ')" = '|Read|Write|Total|ReadIOPS|WriteIOPS|TotalIOPS|' ]
PYTHONUNBUFFERED=1 ceph iostat -p 0.3 >rates &
watcher=$!
timeout 30 bash -c 'until [ "$(grep -c B/s rates)" -ge 2 ]; do sleep 0.2; done'
kill $watcher
[ "$(grep -c IOPS rates)" = 1 ]
/usr/bin/python3 - <<'EOT'
import json, os, rados
cluster = rados.Rados(conffile=os.environ['CEPH_CONF'])
cluster.connect()
def row(**args):
    code, out, status = cluster.mgr_command(json.dumps(dict(prefix='iostat', **args)), b'')
    assert (code, status) == (0, ''), (code, status)
    return out.decode()
assert len(row()) == 80 and row().count('|') == 7, row()
assert len(row(width=120)) == 122, row(width=120)
lines = row(width=80, print_header=True).split('\n')
assert lines[0] == lines[2] == '+' + '------------+' * 6, lines
assert lines[1] == '|       Read |      Write |      Total |  Read IOPS | Write IOPS | Total IOPS |', lines
row(width=0), row(width=-5), row(width=1 << 40)
EOT

# The health tells of crashes that nobody has looked at, for a while.
crash() {
    jq -n --arg id "$1_$2" --arg time "$1" --arg who "$3" --arg program "$4" \
        '{crash_id: $id, timestamp: $time, entity_name: $who, process_name: $program, utsname_hostname: "here"}' |
        ceph crash post -i -
}
old=$(date -u -d '-5 days' +%Y-%m-%dT%H:%M:%S.000000Z) new=$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)
crash "$new" aaaa osd.1 ceph-osd
crash "$old" bbbb mon.a ceph-mon
echo "{\"crash_id\": \"cccc\", \"timestamp\": \"$new\"}" | ceph crash post -i -
says 0 '3 daemons have recently crashed' ceph health
[ "$(ceph health detail | sed -n '/RECENT_CRASH/,$p')" = "[WRN] RECENT_CRASH: 3 daemons have recently crashed
    mon.a crashed on host here at $old
    osd.1 crashed on host here at $new
    unidentified daemon crashed on host (unknown) at $new" ]
[ "$(ceph health detail -f json | jq -c '.checks.RECENT_CRASH | [.severity, .summary.count]')" = '["HEALTH_WARN",3]' ]
ceph crash archive cccc
says 0 '2 daemons have recently crashed' ceph health
[ "$(ceph config get mgr mgr/crash/warn_recent_interval)" = 1209600 ]
says 22 'error parsing value: expected digit' ceph config set mgr mgr/crash/warn_recent_interval soon
ceph config set mgr mgr/crash/warn_recent_interval 1d
says 0 '1 daemons have recently crashed' ceph health
[ "$(ceph config get mgr mgr/crash/warn_recent_interval)" = 86400 ]
ceph config rm mgr mgr/crash/warn_recent_interval
[ "$(ceph crash json_report 1 2>&1)" = '{"ceph-osd": 1, "unknown": 1}' ]
[ "$(ceph crash json_report 240 2>&1)" = '{"ceph-mon": 1, "ceph-osd": 1, "unknown": 1}' ]
says 0 '<hours> argument must be integer' ceph crash json_report soon
# What is older than it is kept is forgotten.
ceph config set mgr mgr/crash/retain_interval 1d
timeout 60 bash -c 'until [ "$(ceph crash ls -f json | jq length)" = 2 ]; do sleep 0.2; done'
ceph config rm mgr mgr/crash/retain_interval
ceph crash archive-all
! ceph health | grep crashed >/dev/null
ceph crash prune 0

# Extended attributes up to 5.5 MiB of an object; the limits that there are.
head -c 5767168 /dev/urandom >large
rados -p data setxattr o large <large
rados -p data getxattr o large | cmp - large
head -c 5767169 /dev/zero | says 1 'File too large' rados -p data setxattr o larger
says 1 'File name too long' rados -p data setxattr o "$(printf 'n%.0s' {1..101})" value
ceph tell 'osd.*' compact >/dev/null
rados -p data rmxattr o large
rados -p data setxattr o "$(printf 'n%.0s' {1..100})" value
ceph tell 'osd.*' config set osd_max_attr_size 100 >/dev/null
says 1 'File too large' rados -p data setxattr o small "$(printf 'v%.0s' {1..101})"
rados -p data setxattr o small "$(printf 'v%.0s' {1..100})"
ceph tell 'osd.*' config set osd_max_attr_size 0 >/dev/null
