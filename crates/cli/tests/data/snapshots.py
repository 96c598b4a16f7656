# Large objects of which each snapshot keeps another version: 4 KiB change, and 4 MiB have one more owner.
import os
import sys

import rados

OBJECTS, SNAPSHOTS = 150, int(sys.argv[1])
cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
cluster.connect()
io = cluster.open_ioctx("snaps")


def all_of(start, at_once):
    flight = []
    for i in range(OBJECTS):
        flight.append(start("o%d" % i, i))
        if len(flight) >= at_once:
            flight.pop(0).wait_for_complete()
    for request in flight:
        request.wait_for_complete()


large = os.urandom(4 << 20)
all_of(lambda name, i: io.aio_write_full(name, large), 8)
for snap in range(SNAPSHOTS):
    io.create_snap("s%d" % snap)
    all_of(lambda name, i: io.aio_write(name, b"x" * 4096, (i * 7 + snap * 13) % 1000 * 4096), 64)
for snap in range(SNAPSHOTS):
    io.remove_snap("s%d" % snap)
