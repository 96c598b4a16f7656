# Commands whose errno, status and output programs look at.

# Whether OSDs may be stopped, or removed for good.
ceph osd pool create data 8 8
rados -p data put o /etc/passwd
timeout 60 bash -c 'until [ "$(ceph pg stat -f json | jq -c "[.pg_summary.num_pg_by_state[].name]")" = "[\"active+clean\"]" ]; do sleep 0.2; done'
[ "$(ceph osd ok-to-stop 0 | jq -c 'del(.ok_become_degraded)')" = '{"ok_to_stop":true,"osds":[0],"num_ok_pgs":8,"num_not_ok_pgs":0}' ]
[ "$(ceph osd ok-to-stop 0 | jq -c .ok_become_degraded)" = '["1.0","1.1","1.2","1.3","1.4","1.5","1.6","1.7"]' ]
[ "$(ceph osd ok-to-stop 0 --max 3 | jq -c .osds)" = '[0]' ]
says 16 'unsafe to stop osd(s) at this time (8 PGs are or would become offline)' ceph osd ok-to-stop 0 1
says 16 '"num_not_ok_pgs":8,"bad_become_inactive":["1.0",' ceph osd ok-to-stop 0 1
ceph osd pool set data min_size 1
[ "$(ceph osd ok-to-stop 0 --max 3 | jq -c .osds)" = '[0,1]' ]
ceph osd pool set data min_size 2
says 22 'must specify one or more OSDs' ceph osd ok-to-stop ,
says 16 'OSD(s) 0 have 8 pgs currently mapped to them. ' ceph osd safe-to-destroy 0
says 16 'OSD(s) 7 are safe to destroy without reducing data durability. OSD(s) 0 have 8 pgs' ceph osd safe-to-destroy 0 7
says 0 '{"safe_to_destroy":[7],"active":[0],"missing_stats":[],"stored_pgs":[]}' ceph osd safe-to-destroy 0 7 -f json
says 0 'OSD(s) 7 are safe to destroy without reducing data durability.' ceph osd safe-to-destroy 7
# Degraded: no other one may go.
kill -STOP "$(cat run/osd.2.pid)"
ceph osd down 2
timeout 60 bash -c 'until ceph pg stat -f json | jq -e ".pg_summary.num_pg_by_state[].name | select(. == \"active+undersized+degraded\")" >/dev/null; do sleep 0.2; done'
says 16 'unsafe to stop osd(s) at this time' ceph osd ok-to-stop 0
kill -CONT "$(cat run/osd.2.pid)"
timeout 60 bash -c 'until [ "$(ceph pg stat -f json | jq -c "[.pg_summary.num_pg_by_state[].name]")" = "[\"active+clean\"]" ]; do sleep 0.2; done'

# An OSD's secrets are all there, or there are none.
key=$(ceph-authtool --gen-print-key)
new() {
    printf '%s' "$2" >secrets
    ceph osd new "$1" -i secrets
}
uuid=$(cat /proc/sys/kernel/random/uuid)
says 22 'requires both a cephx lockbox secret and a dm-crypt key.' \
    new "$uuid" "{\"cephx_secret\": \"$key\", \"cephx_lockbox_secret\": \"$key\", \"dmcrypt_key\": \"\"}"

# A size is what the pool's rule is for.
ceph osd getcrushmap -o map 2>version
/usr/bin/python3 - <<'EOF'
# The mask of the only rule: ruleset 0, replicated, sizes 1 to 10.
crush = open('map', 'rb').read()
assert crush.count(b'\0\1\1\x0a') == 1
open('narrow', 'wb').write(crush.replace(b'\0\1\1\x0a', b'\0\1\1\x03'))
EOF
ceph osd setcrushmap -i narrow
says 22 'pool size is bigger than the crush rule max size' ceph osd pool set data size 4
says 22 'pool size is bigger than the crush rule max size' ceph osd pool create wide 8 8 --size 4
# A change of the CRUSH map that is sent again, as its answer was missed; another one of that version is refused.
version=$(ceph osd getcrushmap -o narrow 2>&1)
says 0 "$((version + 1))" ceph osd setcrushmap "$version" -i map
says 0 "$((version + 1))" ceph osd setcrushmap "$version" -i map
says 1 "prior_version $version != crush version $((version + 1))" ceph osd setcrushmap "$version" -i narrow
says 1 "prior_version 0 != crush version $((version + 1))" ceph osd setcrushmap 0 -i map
ceph osd crush add-bucket there host
says 0 "linked item id" ceph osd crush link there root=default
says 0 "no need to move item id" ceph osd crush link there root=default
ceph osd crush rm there

# The configuration in Ceph's order, which librbd relies on.
ceph config set client.b rbd_cache true
ceph config set client rbd_cache false
ceph config set osd.1 osd_max_backfills 3
ceph config set osd/class:ssd osd_max_backfills 2
ceph config set osd/host:there osd_max_backfills 2
ceph config set osd osd_max_backfills 2
ceph config set mon mon_op_complaint_time 31
ceph config set global debug_ms 0/0
[ "$(ceph config dump -f json | jq -c '[.[] | .section + "/" + .mask]')" = \
    '["global/","mon/","osd/","osd/class:ssd","osd/host:there","osd.1/","client/","client.b/"]' ]
[ "$(ceph config dump -f json | jq -c '.[3:5][] | del(.section, .name, .value, .level, .can_update_at_runtime)')" = \
    '{"mask":"class:ssd","device_class":"ssd"}
{"mask":"host:there","location_type":"host","location_value":"there"}' ]
for who in client.b client osd.1 osd/class:ssd osd/host:there osd mon global; do
    ceph config rm $who rbd_cache; ceph config rm $who osd_max_backfills
    ceph config rm $who mon_op_complaint_time; ceph config rm $who debug_ms
done

# Options of a running daemon.
inject() { ceph tell osd.0 injectargs -- "$@"; }
says 0 "osd_scrub_auto_repair = 'true' " inject --osd_scrub_auto_repair
says 0 "osd_scrub_auto_repair = 'false' " inject --no-osd_scrub_auto_repair
says 22 'failed to parse arguments: --no-osd_max_backfills' inject --no-osd_max_backfills
says 22 'failed to parse arguments: --nope,3' inject '--osd_max_backfills=7 --nope 3'
[ "$(ceph daemon osd.0 config get osd_max_backfills | jq -r .osd_max_backfills)" = 7 ]
says 34 "Parse error setting debug_osd to '100' using injectargs (value must be in range [0, 99])." inject --debug_osd=100
says 34 'error parsing value: value must be in range [0, 99]' ceph config set osd debug_osd 5/100
says 1 "Configuration option 'cluster_network' may not be modified at runtime" inject --cluster_network=10.0.0.0/8
says 0 "ERROR: (1) Operation not permitted
error setting 'cluster_network' to '10.0.0.0/8': (1) Operation not permitted" ceph daemon osd.0 config set cluster_network 10.0.0.0/8
says 0 "mon_allow_pool_delete = 'true' " ceph tell mon.a injectargs -- --mon_allow_pool_delete

# What has no effect is refused.
says 95 'there is no autoscaler' ceph osd pool set data pg_autoscale_mode on
says 95 'there is no autoscaler' ceph osd pool create scaled 8 8 --autoscale-mode on
[ "$(ceph osd pool get data pg_autoscale_mode)" = 'pg_autoscale_mode: off' ]
says 95 'the store does not compress' ceph osd pool set data compression_mode aggressive
says 0 'set pool' ceph osd pool set data compression_mode none
says 95 "the store's checksums are CRC-32C" ceph osd pool set data csum_type none

# Nothing is inconsistent.
[ -z "$(ceph pg ls inconsistent)" ]
[ "$(rados list-inconsistent-pg data)" = '[]' ]

# The manager's modules.
says 0 "module 'crash' is already enabled (always-on)" ceph mgr module enable crash
says 2 "all mgr daemons do not support module 'dashboard', pass --force to force enablement" ceph mgr module enable dashboard
says 2 'there is no module' ceph mgr module enable dashboard --force
says 22 "module 'rbd_support' cannot be disabled (always-on)" ceph mgr module disable rbd_support
says 0 "module 'dashboard' is already disabled" ceph mgr module disable dashboard
[ "$(ceph mgr module ls | jq -c .always_on_modules)" = '["crash","iostat","progress","rbd_support","status"]' ]
for orch in status ls 'host ls' 'apply osd --all-available-devices' 'upgrade status'; do
    says 2 'No orchestrator configured (try `ceph orch set backend`)' ceph orch $orch
done
says 22 "Module 'cephadm' not found" ceph orch set backend cephadm
says 0 '{}' ceph fs status -f json
says 0 'DEVICE  HOST:DEV  DAEMONS  WEAR  LIFE EXPECTANCY' ceph device ls
says 2 'device x not found' ceph device info x
[ "$(ceph telemetry status | jq .enabled)" = false ]

# Crashes, as `ceph-crash` posts them.
crash() {
    jq -n --arg id "$1_$2" --arg time "$1" --arg who "$3" \
        '{crash_id: $id, timestamp: $time, entity_name: $who, utsname_hostname: "here", backtrace: ["a"]}' |
        ceph crash post -i -
}
old=$(date -u -d '-5 days' +%Y-%m-%dT%H:%M:%S.000000Z) new=$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)
crash "$new" aaaa osd.1
crash "$old" bbbb mon.a
crash "$new" aaaa osd.7
[ "$(ceph crash ls | sed 's/ *$//')" = "ID                                ENTITY  NEW
${old}_bbbb  mon.a    *
${new}_aaaa  osd.1    *" ]
[ "$(ceph crash stat)" = "2 crashes recorded
1 older than 1 days old:
${old}_bbbb
1 older than 3 days old:
${old}_bbbb" ]
[ "$(ceph crash info "${new}_aaaa" | jq -r .entity_name)" = osd.1 ]
ceph crash archive "${new}_aaaa"
[ "$(ceph crash ls-new -f json | jq -r '.[].crash_id')" = "${old}_bbbb" ]
[ "$(ceph crash ls -f json | jq -c '[.[].archived != null]')" = '[false,true]' ]
ceph crash prune 3
[ "$(ceph crash ls -f json | jq -r '.[].crash_id')" = "${new}_aaaa" ]
says 0 'crash info: nope not found' ceph crash info nope
echo '{"a": 1}' >nonsense
says 0 "malformed crash metadata: missing 'crash_id' field" ceph crash post -i nonsense
ceph crash rm "${new}_aaaa"
[ "$(ceph crash stat)" = '0 crashes recorded' ]

# What only reads reaches the audit log while somebody watches; a client sees the log at the level that it asked for last, once.
timeout 60 ceph --watch-debug -W audit >watched &
watcher=$!
until ceph osd getmaxosd >/dev/null && grep -F 'cmd=[{"prefix":"osd getmaxosd"' watched >/dev/null; do sleep 0.2; done
kill $watcher
grep -E "mon.a \[DBG\] from='.*' entity='client.admin' cmd=\[\{.prefix.:.osd getmaxosd.*: dispatch" watched >/dev/null
ceph log last 50 debug audit | grep -F '"prefix":"osd getmaxosd"' >/dev/null
/usr/bin/python3 - <<'EOF'
import json, os, rados, time
cluster = rados.Rados(conffile=os.environ['CEPH_CONF'])
cluster.connect()
seen = []
def note(arg, line, who, sec, nsec, seq, level, msg):
    seen.append(msg.decode())
def command(**args):
    code, out, status = cluster.mon_command(json.dumps(args), b'')
    assert code == 0, status
def wait_for(text):
    # The subscription begins with what comes next.
    deadline = time.monotonic() + 60
    while not any(text in m for m in seen):
        assert time.monotonic() < deadline, (text, seen)
        command(prefix='log', logtext=[text])
        time.sleep(0.2)
cluster.monitor_log('debug', note, 0)
wait_for('first')
cluster.monitor_log('warn', note, 0)
command(prefix='log', logtext=['not seen'])
cluster.monitor_log('info', note, 0)
wait_for('last')
assert not any('not seen' in m for m in seen), seen
EOF
