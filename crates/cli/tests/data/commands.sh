# Commands whose errno, status and output programs look at.

# Runs a command that must end with this code, and whose output has this text.
says() {
    local code=$1 text=$2 out rc=0
    shift 2
    out=$("$@" 2>&1) || rc=$?
    if [ $rc != "$code" ] || ! grep -F -- "$text" <<<"$out" >/dev/null; then
        echo "'$*' says $rc: $out" >&2
        return 1
    fi
}

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
new() { ceph osd new "$1" -i <(printf '%s' "$2"); }
uuid=$(cat /proc/sys/kernel/random/uuid)
says 22 'requires both a cephx lockbox secret and a dm-crypt key.' \
    new "$uuid" "{\"cephx_secret\": \"$key\", \"cephx_lockbox_secret\": \"$key\", \"dmcrypt_key\": \"\"}"
