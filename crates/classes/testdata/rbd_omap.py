#!/usr/bin/python3
"""Prints what the official `rbd` made the class keep of groups, trash, namespaces, mirroring and a journal.

    rbd_omap.py CEPH_CONF > rbd_omap.txt

It needs a fresh cluster without pools of its own; rbd_omap.txt was made with Ceph 16.2.15.
"""
import os
import subprocess
import sys

import rados

COMMANDS = """
ceph osd pool create golden 8
rbd pool init golden
rbd create --size 4M golden/a
rbd create --size 4M golden/b
rbd create --size 4M golden/t
rbd trash mv golden/t --expires-at 2030-01-01
rbd namespace create golden/ns1
rbd group create golden/g
rbd group image add golden/g golden/a
rbd group image add golden/g golden/b
rbd group snap create golden/g@s1
rbd mirror pool enable golden image
rbd mirror pool peer add golden client.remote@site-b
rbd create --size 4M golden/m
rbd mirror image enable golden/m snapshot
rbd create --size 4M --image-feature exclusive-lock,journaling golden/j
rbd bench --io-type write --io-size 4096 --io-total 65536 golden/j
"""
WANTED = ('rbd_trash', 'rbd_namespace', 'rbd_group_directory', 'rbd_group_header.', 'rbd_mirroring', 'journal.')

env = dict(os.environ, CEPH_CONF=sys.argv[1])
for command in COMMANDS.strip().splitlines():
    subprocess.run(command.split(), env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
cluster = rados.Rados(conffile=sys.argv[1])
cluster.connect()
io = cluster.open_ioctx('golden')
for oid in sorted(o.key for o in io.list_objects() if o.key.startswith(WANTED)):
    with rados.ReadOpCtx() as op:
        it, _ = io.get_omap_vals(op, '', '', 1000)
        io.operate_read_op(op, oid)
        for key, value in it:
            print(oid.split('.')[0], key, (value or b'').hex() or '-')
