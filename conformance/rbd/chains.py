#!/usr/bin/python3
"""Carries an image with its snapshots from one cluster to another and what changed there back, with the official `rbd`, and compares
every snapshot.

    conformance/rbd/chains.py A/ceph.conf B/ceph.conf

By chains of `export-diff` and `import-diff`, by `merge-diff`, and by `export --export-format 2`; then the same with A and B exchanged.
Needs Debian's `rbd`, python3-rados, python3-rbd, and a client.admin of both. The images are in pools of their own, which are removed.
"""
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import rados
import rbd

MIB = 1 << 20
SNAPS = 6


def run(conf, *args, data=None):
    """Runs `rbd` and returns what it writes."""
    command = ['rbd', '--conf', conf, '--no-progress', *args]
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


def digest(conf, name):
    return hashlib.sha256(run(conf, 'export', name, '-')).hexdigest()


class Cluster:
    def __init__(self, conf):
        self.conf = conf
        self.pool = f'chains-{os.getpid()}'

    def __enter__(self):
        self.rados = rados.Rados(conffile=self.conf)
        self.rados.connect()
        self.rados.create_pool(self.pool)
        self.ioctx = self.rados.open_ioctx(self.pool)
        rbd.RBD().pool_init(self.ioctx, True)
        return self

    def __exit__(self, *_):
        self.ioctx.close()
        option = {'prefix': 'config set', 'who': 'mon', 'name': 'mon_allow_pool_delete', 'value': 'true'}
        self.rados.mon_command(json.dumps(option), b'')
        self.rados.delete_pool(self.pool)
        self.rados.shutdown()

    def spec(self, image, snap=None):
        return f'{self.pool}/{image}' + (f'@s{snap}' if snap else '')

    def run(self, *args, **more):
        return run(self.conf, *args, **more)

    def digests(self, image, last):
        return [digest(self.conf, self.spec(image, n)) for n in range(1, last + 1)] + [digest(self.conf, self.spec(image))]

    def change(self, name, n):
        """Writes, trims and sometimes resizes, then makes snapshot `n`."""
        chance = random.Random(n)
        with rbd.Image(self.ioctx, name) as image:
            if n % 3 == 0:
                image.resize(image.size() + (n % 2 * 20 - 8) * MIB)
            for _ in range(12):
                at = chance.randrange(image.size() - 600_000)
                if chance.random() < 0.3:
                    image.discard(at // 4096 * 4096, 512 * 1024)
                else:
                    image.write(chance.randbytes(chance.randrange(1, 500_000)), at)
            image.create_snap(f's{n}')


def compare(what, got, wanted):
    if got != wanted:
        raise SystemExit(f'{what}: {got} is not {wanted}')
    print(f'{what}: {len(got)} equal', flush=True)


def carry(a, b, name, directory):
    """An image of A goes to B; a change there comes back."""
    a.run('create', '--size', '64', a.spec(name))
    b.run('create', '--size', '1', b.spec(name))
    for n in range(1, SNAPS + 1):
        a.change(name, n)
        since = ['--from-snap', f's{n - 1}'] if n > 1 else []
        b.run('import-diff', '-', b.spec(name), data=a.run('export-diff', *since, a.spec(name, n), '-'))
    wanted = a.digests(name, SNAPS)
    compare(f'{name}: a chain of differences', b.digests(name, SNAPS), wanted)

    b.run('import', '--export-format', '2', '-', b.spec(f'{name}-whole'), data=a.run('export', '--export-format', '2', a.spec(name), '-'))
    compare(f'{name}: with its snapshots', b.digests(f'{name}-whole', SNAPS), wanted)

    parts = [directory / f'{name}.{n}' for n in (1, 2)]
    a.run('export-diff', a.spec(name, 2), str(parts[0]))
    a.run('export-diff', '--from-snap', 's2', a.spec(name, 5), str(parts[1]))
    merged = directory / f'{name}.merged'
    a.run('merge-diff', str(parts[0]), str(parts[1]), str(merged))
    b.run('create', '--size', '1', b.spec(f'{name}-merged'))
    b.run('import-diff', str(merged), b.spec(f'{name}-merged'))
    compare(f'{name}: merged differences', [digest(b.conf, b.spec(f'{name}-merged', 5))], [wanted[4]])

    b.change(name, SNAPS + 1)
    since = ['--from-snap', f's{SNAPS}']
    a.run('import-diff', '-', a.spec(name), data=b.run('export-diff', *since, b.spec(name, SNAPS + 1), '-'))
    compare(f'{name}: the way back', a.digests(name, SNAPS + 1), b.digests(name, SNAPS + 1))
    for cluster in (a, b):
        cluster.run('object-map', 'check', cluster.spec(name))


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    with Cluster(sys.argv[1]) as a, Cluster(sys.argv[2]) as b, tempfile.TemporaryDirectory() as directory:
        carry(a, b, 'there', pathlib.Path(directory))
        carry(b, a, 'back', pathlib.Path(directory))


if __name__ == '__main__':
    main()
