"""Writes and reads objects with the largest requests that there are (90 MiB), of so many clients at a time: `largest.py crc|secure CLIENTS`."""
import os
import sys
import threading

import rados

LARGEST = 90 << 20


def open_pool(mode):
    client = rados.Rados(conffile=os.environ['CEPH_CONF'], conf={'ms_client_mode': mode})
    client.connect()
    return client.open_ioctx('large')


def writes_and_reads(mode, name):
    pool, data = open_pool(mode), os.urandom(LARGEST)
    pool.write(name, data)
    assert pool.read(name, LARGEST) == data, f'{name} differs'
    # The second time the object lies in pieces.
    for at in range(0, LARGEST, 10 << 20):
        pool.write(name, data[:1 << 20], at)
    parts = [data[:1 << 20] + data[at + (1 << 20):at + (10 << 20)] for at in range(0, LARGEST, 10 << 20)]
    assert pool.read(name, LARGEST) == b''.join(parts), f'{name} differs when it was written in part'


mode, clients = sys.argv[1], int(sys.argv[2])
several = [threading.Thread(target=writes_and_reads, args=(mode, f'{mode}{n}')) for n in range(clients)]
failed = []
threading.excepthook = failed.append
for t in several:
    t.start()
for t in several:
    t.join()
assert not failed, failed
