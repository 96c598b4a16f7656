# An image whose lock somebody keeps: what is asked of it happens, and the holder goes on writing.

head -c 9M /dev/urandom >file
rbd import --no-progress file p/parent
rbd snap create --no-progress p/parent@s
holder_of() { rbd lock ls --format json "$1" | /usr/bin/python3 -c 'import json, sys; print([(l["locker"], l["id"]) for l in json.load(sys.stdin)])'; }

# Everything that is asked of a holder, while it holds: ask_all IMAGE
ask_all() {
    local before
    before=$(holder_of "$1")
    fails 30 ours bench --io-type write --io-size 4K --io-total 4K "$1"
    ours snap create --no-progress "$1@a"
    fails 17 ours snap create --no-progress "$1@a"
    same "$1@a" written
    ours snap rename "$1@a" "$1@b"
    ours snap protect "$1@b"
    fails 16 ours snap rm --no-progress "$1@b"
    ours snap unprotect "$1@b"
    fails 22 ours snap unprotect "$1@b"
    ours resize --no-progress --size 30 "$1"
    ours resize --no-progress --size 20 --allow-shrink "$1"
    ours flatten --no-progress "$1"
    fails 22 ours flatten --no-progress "$1"
    same "$1@b" written
    ours snap rm --no-progress "$1@b"
    fails 2 ours snap rm --no-progress "$1@b"
    test "$(holder_of "$1")" = "$before"
    if rbd info "$1" | grep parent: >/dev/null; then false; fi
    says "size 20 MiB" rbd info "$1"
}

# An official client holds the lock of an image and writes to it, until there is a file `over`: hold IMAGE
hold() {
    rm -f held over
    /usr/bin/python3 - "$1" <<'PY' &
import os, rados, rbd, sys, time
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster:
    # What it is asked to do takes its time.
    cluster.conf_set('rbd_concurrent_management_ops', '1')
    with cluster.open_ioctx('p') as io, rbd.Image(io, sys.argv[1]) as image:
        image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
        image.write(b'held', 5000)
        open('held', 'w').close()
        while not os.path.exists('over'):
            time.sleep(0.05)
        image.write(b'still held', 6000)
PY
    holder=$!
    until [ -e held ]; do sleep 0.1; done
}

# An official client.
rbd clone --rbd-default-clone-format=2 p/parent@s p/theirs
hold theirs
cp file written
put_file written 5000 held
ask_all p/theirs
touch over
wait $holder
put_file written 6000 'still held'
truncate -s 20M written
same p/theirs written
rbd object-map check --no-progress p/theirs
if rbd info p/theirs | grep invalid; then false; fi

# Ours.
ours clone --rbd_default_clone_format=2 p/parent@s p/ours
serve p/ours --exclusive
io p/ours 'write -P 7 8k 4k' flush
cp file written
head -c 4096 /dev/zero | tr '\0' '\7' | dd of=written bs=4k seek=2 conv=notrunc status=none
ask_all p/ours
io p/ours 'write -P 8 12k 4k' flush
end
head -c 4096 /dev/zero | tr '\0' '\10' | dd of=written bs=4k seek=3 conv=notrunc status=none
truncate -s 20M written
same p/ours written
rbd object-map check --no-progress p/ours
if rbd info p/ours | grep invalid; then false; fi

# One that ends amid what it was asked for: then it is done by whoever asked.
head -c 200M /dev/urandom >large
rbd import --no-progress --object-size 1M large p/large
rbd snap create --no-progress p/large@s
rbd clone --rbd-default-clone-format=2 --object-size 1M p/large@s p/ends
hold ends
ours flatten --no-progress p/ends &
flatten=$!
until [ "$(objects_of p/ends)" -gt 5 ]; do :; done
touch over
wait $holder
wait $flatten
if rbd info p/ends | grep parent:; then false; fi
put_file large 5000 held
put_file large 6000 'still held'
same p/ends large
rbd object-map check --no-progress p/ends
if rbd info p/ends | grep invalid; then false; fi
