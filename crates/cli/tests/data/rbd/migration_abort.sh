ready

# Given up before, amid and after the copy; elsewhere and in the same place.
for destination in q/i p/other p/i; do
    for when in before after; do
        history p/i
        before=$(id_of p/i)
        rbd migration prepare --object-size 1M --stripe-unit 1M --stripe-count 1 p/i $destination
        after=$(id_of $destination)
        put $destination 9000003 'written to the destination'
        put_file now 9000003 'written to the destination'
        discard $destination 5242880 1048576
        fill now 5242880 1048576
        rbd snap create --no-progress $destination@s3
        put $destination 29000000 'and later'
        put_file now 29000000 'and later'
        if [ $when = after ]; then
            migrate execute $destination
            discard $destination 0 1048576
            fill now 0 1048576
        fi
        cp now i.now
        test "$(ceph rbd task add migration abort $destination | value 'v["message"]')" = "Aborting image migration for $destination"
        idle
        test "$(id_of p/i)" = "$before"
        unchanged p/i i
        mapped p/i s1 s2
        gone "${destination%%/*}" "$after"
        test -z "$(rbd trash ls --all p)"
        fails 1 sh -c 'rbd status p/i | grep Migration'
        rbd snap purge --no-progress p/i
        rbd rm --no-progress p/i
    done
done

# One that grew meanwhile grows in the source, too.
history p/i
rbd migration prepare p/i q/i
rbd resize --no-progress --size 40M q/i
put q/i 39000000 'behind the end'
truncate -s 40M now
put_file now 39000000 'behind the end'
migrate abort q/i
same p/i now
same p/i@s1 i.s1
rbd snap purge --no-progress p/i
rbd rm --no-progress p/i

# Whoever uses the destination keeps it.
history p/i
rbd migration prepare p/i q/i
/usr/bin/python3 - <<'PY' &
import os, time, rados, rbd
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('q') as io, rbd.Image(io, 'i') as image:
    open('opened', 'w').close()
    while not os.path.exists('close'): time.sleep(0.1)
PY
until [ -e opened ]; do sleep 0.1; done
task=$(ceph rbd task add migration abort q/i | value 'v["id"]')
until ceph rbd task list "$task" | grep -F '[errno 16] RBD image is busy (error aborting migration)' >/dev/null; do sleep 0.1; done
test "$(state_of q/i)" = prepared
ceph rbd task cancel "$task"
touch close
wait
unchanged q/i i
migrate execute q/i
migrate commit q/i
unchanged q/i i

# An attempt that was interrupted at the very end: first the header is gone, and then the name is known to the directory alone.
for left in id directory; do
    rbd create --size 4M q/left
    id=$(id_of q/left)
    rados -p q rm "rbd_header.$id"
    rados -p q rm "rbd_object_map.$id"
    if [ $left = directory ]; then rados -p q rm rbd_id.left; fi
    refs='"action": "migrate abort", "pool_name": "q", "pool_namespace": "", "image_name": "left", "image_id": ""'
    task="{\"sequence\": 7, \"id\": \"left-$left\", \"message\": \"Aborting image migration for q/left\", \"refs\": {$refs}}"
    rados -p q setomapval rbd_task 0000000000000007 "$task"
    ceph mgr fail
    until test -z "$(rados -p q listomapkeys rbd_task)"; do sleep 0.2; done
    gone q "$id"
    fails 1 sh -c 'rbd ls q | grep left'
    fails 1 sh -c 'rados -p q ls | grep rbd_id.left'
done

# One of the same name, of which another client has removed the header, but not the name: the source is found in the trash.
history p/i
before=$(id_of p/i)
rbd migration prepare p/i p/i
rados -p p rm "rbd_header.$(id_of p/i)"
refs='"action": "migrate abort", "pool_name": "p", "pool_namespace": "", "image_name": "i", "image_id": ""'
rados -p p setomapval rbd_task 0000000000000008 "{\"sequence\": 8, \"id\": \"gone\", \"message\": \"Aborting image migration for p/i\", \"refs\": {$refs}}"
ceph mgr fail
until test -z "$(rados -p p listomapkeys rbd_task)"; do sleep 0.2; done
test "$(id_of p/i)" = "$before"
unchanged p/i i
