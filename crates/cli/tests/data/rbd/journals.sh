# Images with journals that `spirula rbd` writes as librbd does: each does again what the journal tells of where the other has died, and
# what the journal tells is what the image holds.

# Makes an image with small journal objects: journaled IMAGE
journaled() {
    rbd create --size 16M --object-size 1M --image-feature layering,exclusive-lock,object-map,fast-diff,deep-flatten,journaling \
        --journal-object-size 64K --journal-splay-width 3 "$1"
}

# Has the journal keep all that it tells from now on: keep IMAGE
keep() {
    /usr/bin/python3 - "$(id_of "$1")" <<'PY'
import os, struct, sys, rados
name = b'peer'
peer = struct.pack('<I', len(name)) + name + struct.pack('<I', 0)
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io:
    assert io.execute('journal.' + sys.argv[1], 'journal', 'client_register', peer)[0] == 0
PY
}

# Another image becomes what the journal of one tells: told IMAGE OTHER
told() {
    rm -f events
    rbd journal export --pool p --image "${1#p/}" --path events 2>/dev/null | grep ' 0 errors'
    # The official tool sometimes waits for ever after its work is done.
    { timeout -k 5 60 rbd journal import --path events --dest-pool p --dest "${2#p/}" 2>/dev/null || test $? = 124; } | grep ' 0 errors'
    # Who takes the lock does what is left to do.
    rbd snap create --no-progress "$2"@done
    rbd snap rm --no-progress "$2"@done
}

# Two images hold the same, with the same snapshots, and the object maps are right: alike IMAGE OTHER
alike() {
    prints "$(snapshots "$1")" snapshots "$2"
    local snap
    for snap in '' $(snapshots "$1" | sed 's/^/@/'); do
        rm -f one
        rbd export --no-progress "$1$snap" one
        same "$2$snap" one
    done
    for image in "$1" "$2"; do
        rbd object-map check --no-progress "$image" >checked 2>&1
        if rbd info "$image" | grep 'object map invalid'; then return 1; fi
    done
}
snapshots() { rbd snap ls "$1" | awk 'NR > 1 { print $2 }' | sort; }

bench() { ours bench --io-type write --io-pattern rand "$@" >/dev/null; }
snap() { ours snap "$@" 2>/dev/null; }

# What is written, and done to the image as a whole, is told.
journaled p/a
journaled p/b
keep p/a
bench --io-size 4K --io-total 1M p/a
snap create p/a@first
bench --io-size 100K --io-total 3M p/a
ours resize --size 20M p/a 2>/dev/null
snap protect p/a@first
snap unprotect p/a@first
snap limit set --limit 7 p/a
bench --io-size 64K --io-total 5M p/a
snap create p/a@second
ours resize --size 12M --allow-shrink p/a 2>/dev/null
bench --io-size 64K --io-total 5M p/a
snap rollback p/a@second
snap rm p/a@first
bench --io-size 4K --io-total 100K p/a
fails 17 ours snap create p/a@second
told p/a p/b
alike p/a p/b
for n in 2 3 4 5 6 7; do rbd snap create --no-progress p/b@$n; done
fails 122 rbd snap create --no-progress p/b@8

# What nobody needs goes.
rbd journal client disconnect --pool p --image a --client-id peer >/dev/null
ours bench --io-type write --io-size 16K --io-total 1M p/a >/dev/null
rbd journal status --pool p --image a 2>/dev/null >status
test "$(sed -n 's/minimum_set: //p' status)" -gt 100
test "$(rados -p p ls | grep -c "^journal_data\..*\.$(id_of p/a)\.")" -le 9

# Kills the last command in the background, which holds the lock of p/c, and shuts its client out, as the next one does after half a minute.
kill_writer() {
    kill -9 $!
    wait
    local addr
    for addr in $(rbd lock ls p/c | awk '/auto/ { print $NF }'); do ceph osd blocklist add "$addr"; done
}

# Who takes the lock of a writer that died does again what may be missing.
journaled p/c
journaled p/d
keep p/c
rbd snap create --no-progress p/c@s
for round in 1 2; do
    ours bench --io-type write --io-pattern rand --io-size 8K --io-threads 4 --io-total 1G p/c >/dev/null &
    sleep 0.5
    kill_writer
    put p/c 0 "librbd $round"
    /usr/bin/python3 - <<'PY' &
import os, rados, rbd
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io, rbd.Image(io, 'c') as image:
    n = 0
    while True:
        n += 1
        image.write(bytes([n % 256]) * 20000, n * 7919 * 4096 % (15 << 20))
        if n % 16 == 0:
            image.discard(n * 104729 * 4096 % (15 << 20), 70000)
PY
    sleep 1.2
    kill_writer
    bench --io-size 4K --io-total 4K p/c
    snap create p/c@"$round"
done
told p/c p/d
alike p/c p/d

# Operations that had begun are done, as librbd does them: what began with the last entry has no end.
rbd create --size 16M --image-feature exclusive-lock,journaling p/e
rbd bench --io-type write --io-size 64K --io-total 1M p/e >/dev/null
/usr/bin/python3 - "$(id_of p/e)" <<'PY'
import os, struct, sys, rados


def crc32c(data):
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82f63b78 * (crc & 1)
    return crc


def section(version, data):
    return struct.pack('<BBI', version, 1, len(data)) + data


def text(data):
    return struct.pack('<I', len(data)) + data


def entry(tag, number, event):
    payload = section(5, event) + section(1, bytes(8))
    data = struct.pack('<QBQQ', 0x3141592653589793, 1, number, tag) + text(payload)
    return data + struct.pack('<I', crc32c(data))


name = sys.argv[1]
user = section(1, struct.pack('<I', 0))
events = [
    struct.pack('<IQQ', 1, 4096, 5) + text(b'write'),
    struct.pack('<IQQ', 18, 8192, 10) + text(b'ab'),
    struct.pack('<IQQ', 19, 4096, 5) + text(b'write') + text(b'WRITE'),
    struct.pack('<IQQ', 19, 8192, 2) + text(b'no') + text(b'NO'),
    struct.pack('<IQ', 4, 91) + text(b'begun') + user,
    struct.pack('<IQQi', 3, 91, 91, 0),
    struct.pack('<IQ', 16, 93) + text(b'key') + text(b'value'),
    struct.pack('<IQQ', 11, 94, 20 << 20),
    struct.pack('<IQ', 4, 95) + text(b'late') + user,
]
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('p') as io:
    client = io.execute('journal.' + name, 'journal', 'get_client', text(b''))[1]
    # The last entry of each object: a section each, of which the first is that of the last of all.
    at = client.index(b'\x01\x01\x18\0\0\0')
    _, tag, number = struct.unpack_from('<QQQ', client, at + 6)
    prefix = 'journal_data.%d.%s.' % (cluster.pool_lookup('p'), name)
    for n, event in enumerate(events, number + 1):
        io.append(prefix + str(n % 4), entry(tag, n, event))
    # Nobody waited for what comes after one that is missing.
    n += 2
    io.append(prefix + str(n % 4), entry(tag, n, struct.pack('<IQQ', 1, 4096, 4) + text(b'lost')))
PY
${TAKER:-ours} bench --io-type write --io-size 4K --io-total 4K p/e >/dev/null
rbd export --no-progress p/e@late noted
prints WRITE dd if=noted bs=1 skip=4096 count=5 status=none
prints ababababab dd if=noted bs=1 skip=8192 count=10 status=none
prints 'begun late' echo $(snapshots p/e)
prints value rbd image-meta get p/e key
says 'size 20 MiB' rbd info p/e
