ready
test "$(ceph rbd task list)" = '[]'

# A clone is flattened, and does without its parent.
rbd create --size 32 p/parent
rbd bench --io-type write --io-size 1M --io-total 32M p/parent >/dev/null
rbd snap create --no-progress p/parent@s
rbd snap protect p/parent@s
rbd clone p/parent@s p/clone
put p/clone 5000000 'own data'
rbd export --no-progress p/clone before
added=$(ceph rbd task add flatten p/clone)
test "$(value 'v["message"]' <<<"$added")" = 'Flattening image p/clone'
test "$(value '[*v["refs"]]' <<<"$added")" = "['action', 'pool_name', 'pool_namespace', 'image_name', 'image_id']"
idle
same p/clone before
rbd snap unprotect p/parent@s
rbd snap rm --no-progress p/parent@s
rbd rm --no-progress p/parent
same p/clone before
ceph progress | grep -F '[Complete]: Flattening image p/clone' >/dev/null
test "$(ceph progress json | value '[e["refs"]["origin"] for e in v["completed"] if e["message"].startswith("Flattening")][0]')" = rbd_support
# The command again: it is the same task, which was done.
test "$(ceph rbd task add flatten p/clone | value 'v["id"]')" = "$(value 'v["id"]' <<<"$added")"

# Images are removed, with and without a namespace and the default pool, and from the trash.
rbd create --size 8 p/gone
ceph rbd task add remove p/gone >/dev/null
rbd namespace create p/n
rbd create --size 8 p/n/gone
test "$(ceph rbd task add remove p/n/gone | value 'v["message"]')" = 'Removing image p/n/gone'
rbd create --size 8 p/trashed
id=$(rbd info --format json p/trashed | value 'v["id"]')
rbd trash mv p/trashed
test "$(ceph rbd task add trash remove p/"$id" | value 'v["message"]')" = "Removing image p/$id from trash"
idle
test "$(rbd ls p)" = clone
test -z "$(rbd ls p/n)"
test -z "$(rbd trash ls p)"
test -z "$(rados -p p ls --all | grep "$id" || true)"

# What can't be done.
denied 2 '[errno 2] RBD image not found (Image p/none does not exist)' ceph rbd task add flatten p/none
rbd create --size 8 p/plain
denied 2 '[errno 2] RBD image not found (Image p/plain does not have a parent)' ceph rbd task add flatten p/plain
denied 2 "[errno 2] RADOS object not found (error opening pool 'none')" ceph rbd task add remove none/x
denied 2 '[errno 2] RBD image not found (error retrieving image from trash)' ceph rbd task add trash remove p/abc
denied 22 'Invalid image spec: p/x@s' ceph rbd task add remove p/x@s
rbd snap create --no-progress p/plain@s
denied 16 '[errno 16] RBD image is busy (Image p/plain has snapshots)' ceph rbd task add remove p/plain
denied 2 'No such task abc' ceph rbd task cancel abc
denied 2 'No such task abc' ceph rbd task list abc
denied 22 '[errno 22] RBD invalid argument (Image p/plain is not migrating)' ceph rbd task add migration execute p/plain

RBD_FORCE_ALLOW_V1=1 rbd create --image-format 1 --size 8 p/old
for what in flatten remove; do
    denied 22 "[errno 22] RBD invalid argument (error getting id for image b'old')" ceph rbd task add "$what" p/old
done
rbd rm --no-progress p/old

# One that must wait for others says why, and is canceled.
rbd create --size 8 p/busy
/usr/bin/python3 - <<'PY' &
import os, time, rados, rbd
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io, rbd.Image(io, 'busy') as image:
    open('opened', 'w').close()
    while not os.path.exists('close'): time.sleep(0.1)
PY
until [ -e opened ]; do sleep 0.1; done
task=$(ceph rbd task add remove p/busy | value 'v["id"]')
until ceph rbd task list "$task" | grep '"retry_message": "\[errno 16\] RBD image is busy (error removing image)"' >/dev/null; do sleep 0.1; done
test "$(ceph rbd task list "$task" | value 'v["retry_attempts"]')" = 1
rados -p p getomapval rbd_task "$(rados -p p listomapkeys rbd_task)" stored >/dev/null
test "$(value 'v["id"]' <stored)" = "$task"
ceph rbd task cancel "$task"
test "$(ceph rbd task list)" = '[]'
test -z "$(rados -p p listomapkeys rbd_task)"
ceph progress json | grep '"failure_message": "Operation canceled"' >/dev/null
touch close
wait

# One that is under way ends where it is.
rbd create --size 1G --object-size 64K q/big
rbd bench --io-type write --io-size 1M --io-total 256M q/big >/dev/null
rbd snap create --no-progress q/big@s
rbd snap protect q/big@s
rbd clone q/big@s q/clone
task=$(ceph rbd task add flatten q/clone | value 'v["id"]')
in_progress
ceph rbd task cancel "$task"
idle
rbd info q/clone | grep parent: >/dev/null
