ready

# A client writes to the destination all the time while it is executed, and takes a snapshot amid it.
for features in layering layering,exclusive-lock,object-map,fast-diff; do
    rm -f i.*
    rbd create --size 48M --object-size 256K p/i
    rbd bench --io-type write --io-size 256K --io-total 24M --io-pattern rand p/i >/dev/null
    rbd snap create --no-progress p/i@s1
    rbd bench --io-type write --io-size 4K --io-total 1M --io-pattern rand p/i >/dev/null
    rbd export --no-progress p/i@s1 i.s1
    rbd export --no-progress p/i i.now
    rbd migration prepare --object-size 512K --stripe-unit 512K --stripe-count 1 --image-feature $features p/i q/i
    rm -f started stop
    /usr/bin/python3 - <<'PY' &
import os, random, rados, rbd
random.seed(7)
held = bytearray(open('i.now', 'rb').read())
with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster, cluster.open_ioctx('q') as io, rbd.Image(io, 'i') as image:
    n = 0
    while not os.path.exists('stop'):
        at, len_ = random.randrange(len(held) - 20000), random.randrange(1, 20000)
        if n % 7 == 6:
            image.write_zeroes(at, len_)
            held[at:at + len_] = bytes(len_)
        else:
            data = bytes([random.randrange(256)]) * len_
            image.write(data, at)
            held[at:at + len_] = data
        n += 1
        if n == 10: open('started', 'w').close()
        if n == 30:
            image.create_snap('amid')
            open('i.amid', 'wb').write(held)
open('i.now', 'wb').write(held)
PY
    until [ -e started ]; do sleep 0.1; done
    ceph rbd task add migration execute q/i >/dev/null
    idle
    until rbd snap ls q/i | grep amid >/dev/null; do sleep 0.1; done
    touch stop
    wait
    test "$(state_of q/i)" = executed
    same q/i i.now
    migrate commit q/i
    same q/i i.now
    same q/i@s1 i.s1
    same q/i@amid i.amid
    rbd snap purge --no-progress q/i
    rbd rm --no-progress q/i
done
