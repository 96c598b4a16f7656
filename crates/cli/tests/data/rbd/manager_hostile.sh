# What a tenant may write into its own pool p ends no manager, and keeps nobody else's tasks waiting.
ready
header() { printf 'rbd_header.%s' "$(id_of "$1")"; }
# Sets an omap value of an object to bytes given in hexadecimal: omap OBJECT KEY HEX
omap() { /usr/bin/python3 -c 'import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))' "$3" | rados -p p setomapval "$1" "$2"; }
omap_hex() { rados -p p getomapval "$1" "$2" - 2>/dev/null | od -An -v -tx1 | tr -d ' \n'; }
# Asks for a task that can't be added
refused() { fails "$1" timeout 60 ceph rbd task add "${@:2}"; }

# Objects of 2^60 bytes.
rbd create --size 8 p/order
object=$(header p/order)
omap "$object" order 3c
refused 22 remove p/order

# A million of a million bytes each in an image with an object map.
rbd create --size 8 p/size
object=$(header p/size)
omap "$object" size 0000000000000010
task=$(ceph rbd task add remove p/size | value 'v["id"]')
until_tasks 'the huge image was not tried' retry_message
ceph rbd task cancel "$task"

# More snapshots than there can be.
rbd create --size 8 p/snaps
rbd snap create --no-progress p/snaps@a
object=$(header p/snaps)
/usr/bin/python3 - "$object" <<'PY'
import os, sys, rados
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io:
    with rados.ReadOpCtx() as op:
        found, _ = io.get_omap_vals(op, '', 'snapshot_', 1)
        io.operate_read_op(op, sys.argv[1])
        (_, snapshot), = found
    for start in range(1000, 21000, 1000):
        with rados.WriteOpCtx() as op:
            keys = tuple('snapshot_%016x' % i for i in range(start, start + 1000))
            io.set_omap(op, keys, (snapshot,) * len(keys))
            io.operate_write_op(op, sys.argv[1])
PY
refused 7 remove p/snaps

# Two images, each a clone of the other.
snap_id() { rbd snap ls --format json "$1" | value '"%016x" % [s["id"] for s in v if s["name"] == "'"$2"'"][0]'; }
little() { /usr/bin/python3 -c 'import sys; print(bytes.fromhex(sys.argv[1])[::-1].hex())' "$(snap_id "$1" "$2")"; }
rbd create --size 8 p/one
one=$(id_of p/one)
rbd snap create --no-progress p/one@a; rbd snap protect p/one@a
rbd clone p/one@a p/two
rbd snap create --no-progress p/two@b; rbd snap protect p/two@b
rbd clone p/two@b p/three
object=$(header p/two) before=$(little p/one a)
omap "$(header p/one)" parent "$(omap_hex "$(header p/three)" parent)"
# From here on Ceph's own client takes memory without end.
"$SPIRULA" rbd snap create --no-progress p/one@c
after=$(rados -p p listomapkeys "rbd_header.$one" | sed -n 's/^snapshot_//p' | tail -n 1)
after=$(/usr/bin/python3 -c 'import sys; print(bytes.fromhex(sys.argv[1])[::-1].hex())' "$after")
parent=$(omap_hex "$object" parent)
test "${parent//$before/$after}" != "$parent"
omap "$object" parent "${parent//$before/$after}"
refused 40 flatten p/three
refused 40 flatten p/two

# A journal with sets without end.
rbd create --size 8 --image-feature exclusive-lock,journaling p/journal
omap "journal.$(id_of p/journal)" active_set ffffffffffffff7f
task=$(ceph rbd task add remove p/journal | value 'v["id"]')
until_tasks 'the image with the journal was not tried' retry_message
ceph rbd task cancel "$task"

# Namespaces without end in a pool with a schedule; the other pool's goes on.
for pool in p q; do ceph rbd trash purge schedule add "$pool/" 1d; done
/usr/bin/python3 - <<'PY'
import os, rados
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io:
    for start in range(0, 60000, 500):
        with rados.WriteOpCtx() as op:
            keys = tuple('name_%02000d' % i for i in range(start, start + 500))
            io.set_omap(op, keys, (b'',) * len(keys))
            io.operate_write_op(op, 'rbd_namespace')
PY
ceph mgr fail >/dev/null 2>&1 || true
sleep 1
ready
for _ in $(seq 100); do
    status=$(ceph rbd trash purge schedule status --format json)
    test "$(value '[s["pool_name"] for s in v["scheduled"]]' <<<"$status")" != "['q']" || break
    sleep 0.1
done
test "$(value '[s["pool_name"] for s in v["scheduled"]]' <<<"$status")" = "['q']"
for pool in p q; do ceph rbd trash purge schedule remove "$pool/"; done
rados -p p rm rbd_namespace

# Tasks and schedules: too many, too long, nested without end.
/usr/bin/python3 - <<'PY'
import os, rados
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io:
    for oid, key in (('rbd_task', '%016X'), ('rbd_trash_purge_schedule', '%d/'), ('rbd_mirror_snapshot_schedule', '%d/')):
        for start in range(2, 3002, 500):
            with rados.WriteOpCtx() as op:
                keys = tuple(key % i for i in range(start, start + 500))
                io.set_omap(op, keys, (b'[' * 5000,) * len(keys))
                io.operate_write_op(op, oid)
PY
ceph mgr fail >/dev/null 2>&1 || true
sleep 1
ready
rbd create --size 8 q/other
ceph rbd task add remove q/other >/dev/null
for _ in $(seq 300); do rbd info q/other >/dev/null 2>&1 || break; sleep 0.1; done
fails 2 rbd info q/other
rados -p p rm rbd_task
