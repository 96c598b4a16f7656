ready
rbd namespace create p/n

# Trash purges, at each level.
rbd trash purge schedule add 1d 14:00:00-05:00
rbd trash purge schedule add -p p 2h
rbd trash purge schedule add -p p 90m 00:03
rbd trash purge schedule add -p p --namespace n 3h
test "$(rbd trash purge schedule ls)" = 'every 1d starting at 14:00:00-05:00'
test "$(ceph rbd trash purge schedule list q/ | value '[*v]')" = "['']"
rbd trash purge schedule ls -p p | grep 'every 2h' >/dev/null
rbd trash purge schedule ls -p p | grep 'every 90m starting at 00:03:00' >/dev/null
rbd trash purge schedule ls -R | tr -s ' ' | grep '^p n every 3h' >/dev/null
rbd trash purge schedule ls -R --format json | value 'len(v)' | grep -x 3 >/dev/null
# Where Ceph keeps them.
pool=$(ceph osd pool ls detail -f json | value '[p["pool_id"] for p in v if p["pool_name"] == "p"][0]')
test "$(rados -p p listomapkeys rbd_trash_purge_schedule | xargs)" = "$pool $pool/n"
ceph config dump -f json | grep '"mgr/rbd_support/trash_purge_schedule"' >/dev/null
until rbd trash purge schedule status --format json | grep '"namespace":"n"' >/dev/null; do sleep 0.2; done
rbd trash purge schedule status | tr -s ' ' | grep '^p n 20' >/dev/null

# What makes no sense.
denied 22 'Invalid level spec none/: pool none does not exist' ceph rbd trash purge schedule add none/ 1d
denied 22 'Invalid level spec p: failed to parse p' ceph rbd trash purge schedule add p 1d
denied 22 'Invalid level spec p/m/: namespace m does not exist' ceph rbd trash purge schedule add p/m/ 1d
denied 22 'image level is not allowed' ceph rbd trash purge schedule add p/i 1d
denied 22 'Invalid interval (1x)' ceph rbd trash purge schedule add p/ 1x
denied 22 'Invalid start time noon: Unknown string format: noon' ceph rbd trash purge schedule add p/ 1d noon

# They outlive the manager.
before=$(rbd trash purge schedule ls -R --format json)
ceph mgr fail
sleep 1
ready
test "$(rbd trash purge schedule ls -R --format json)" = "$before"
rbd trash purge schedule rm -p p 90m 00:03
test "$(rbd trash purge schedule ls -p p)" = 'every 2h'
rbd trash purge schedule rm -p p
rbd trash purge schedule rm -p p --namespace n
rbd trash purge schedule rm
test "$(rbd trash purge schedule ls -R --format json)" = "[]"
test -z "$(rados -p p listomapkeys rbd_trash_purge_schedule)"

# Snapshots for mirroring: of images that are mirrored by snapshots.
rbd create --size 8 q/i
denied 22 'Invalid level spec q/i: image i does not exist' ceph rbd mirror snapshot schedule add q/i 1m
rbd mirror pool enable q image
rbd mirror pool peer add q client.peer@remote >/dev/null
rbd mirror image enable q/i snapshot
rbd mirror snapshot schedule add -p q --image i 1m
test "$(rbd mirror snapshot schedule ls -p q --image i)" = 'every 1m'
rbd mirror snapshot schedule ls -p q -R | tr -s ' ' | grep '^q i every 1m' >/dev/null
until rbd mirror snapshot schedule status | grep q/i >/dev/null; do sleep 0.2; done

# Both are executed: the trash loses what has expired, and what has not stays.
rbd create --size 8 p/old
rbd create --size 8 p/new
rbd trash mv p/old
rbd trash mv --expires-at '2 days' p/new
rbd trash purge schedule add -p p 1m
first=$(rbd snap ls -a q/i --format json | value 'len(v)')
for _ in $(seq 400); do
    if [ "$(rbd trash ls p | wc -l)" = 1 ] && [ "$(rbd snap ls -a q/i --format json | value 'len(v)')" -gt "$first" ]; then break; fi
    sleep 0.2
done
rbd trash ls p | grep new >/dev/null
test "$(rbd trash ls p | wc -l)" = 1
test "$(rbd snap ls -a q/i --format json | value 'len(v)')" -gt "$first"
rbd snap ls -a q/i --format json | value 'v[-1]["namespace"]' | grep "'state': 'primary'" >/dev/null
rbd snap ls -a q/i --format json | value 'v[-1]["namespace"]["complete"]' | grep True >/dev/null

# What the image was then is kept as librbd keeps it.
rbd mirror image snapshot q/i >/dev/null
for object in $(rados -p q ls | grep '^rbd_mirror_snapshot\.'); do
    rados -p q get "$object" state.now
    if [ -e state ]; then cmp state state.now; fi
    mv state.now state
done
test -s state
