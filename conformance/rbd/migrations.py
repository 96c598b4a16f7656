#!/usr/bin/python3
"""Migrates images at random, as tasks of the manager, while a client writes them through librbd; the image and all its snapshots
are compared with a model after every step.

    CEPH_CONF=DIR/ceph.conf conformance/rbd/migrations.py [--rounds 20] [--seed N]

A round makes an image (perhaps a clone) with a history, prepares its migration with the official `rbd` to another pool, layout or set of
features, has the manager execute it, which is failed at times, and commit it or give it up. Needs Debian's `rbd`, python3-rados,
python3-rbd and a client.admin. The images are in pools of their own, which are removed. A round that fails prints its seed.
"""
import argparse
import json
import os
import random
import subprocess
import threading
import time

import rados
import rbd

KIB, MIB = 1 << 10, 1 << 20
FOREGROUND = False
# Discards give up whole parts of this size only.
GRAIN = 4 * KIB
FEATURES = [
    ['layering'],
    ['layering', 'exclusive-lock'],
    ['layering', 'exclusive-lock', 'object-map', 'fast-diff'],
    ['layering', 'exclusive-lock', 'object-map', 'fast-diff', 'deep-flatten'],
]


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f'{" ".join(command)}: {done.returncode}: {done.stderr}')
    return done.stdout


def cli(*args):
    return run('rbd', *args)


def idle(cluster, fail=None):
    """Waits until no task is left; `fail` says when the manager is failed meanwhile."""
    end = time.monotonic() + 300
    while True:
        if fail and fail():
            run('ceph', 'mgr', 'fail')
        code, out, _ = cluster.mgr_command(json.dumps({'prefix': 'rbd task list'}), b'')
        if code == 0 and json.loads(out) == []:
            return
        if time.monotonic() > end:
            raise SystemExit(f'tasks remain: {out}')
        time.sleep(0.1)


def task(cluster, what, image, fail=None):
    """Adds a task about a migration and waits until it is done."""
    if FOREGROUND:
        cli('migration', what, image)
        return
    end = time.monotonic() + 60
    command = json.dumps({'prefix': f'rbd task add migration {what}', 'image_spec': image})
    while True:
        code, _, text = cluster.mgr_command(command, b'')
        if code == 0:
            return idle(cluster, fail)
        # A manager that has just begun is not ready.
        if time.monotonic() > end:
            raise SystemExit(f'{what} {image}: {code} {text}')
        time.sleep(0.2)


class Model:
    """What an image and its snapshots hold."""

    def __init__(self, content):
        self.now, self.snaps = bytearray(content), {}

    def change(self, r, image):
        """Changes the image at random, and the model."""
        size = len(self.now)
        if size < GRAIN:
            return
        at = r.randrange(size)
        length = min(r.choice([1, 100, 5000, 70_000, 600_000]), size - at)
        kind = r.randrange(6)
        if kind < 4:
            data = r.randbytes(length)
            image.write(data, at)
            self.now[at:at + length] = data
        elif kind == 4:
            image.write_zeroes(at, length)
            self.now[at:at + length] = bytes(length)
        else:
            at -= at % GRAIN
            length = min(r.choice([1, 16, 256, 1024]) * GRAIN, (size - at) // GRAIN * GRAIN)
            if length:
                image.discard(at, length)
                self.now[at:at + length] = bytes(length)

    def resize(self, image, size):
        image.resize(size)
        self.now = self.now[:size] + bytes(max(0, size - len(self.now)))

    def snap(self, image, name):
        image.create_snap(name)
        self.snaps[name] = bytes(self.now)

    def check(self, pool, name, when, maps=True):
        with pool_io(pool) as ioctx:
            with rbd.Image(ioctx, name, read_only=True) as image:
                names = {s['name'] for s in image.list_snaps()}
                if names != set(self.snaps):
                    raise SystemExit(f'{when}: snapshots {names}, not {set(self.snaps)}')
            for snap, wanted in [(None, self.now), *self.snaps.items()]:
                with rbd.Image(ioctx, name, snapshot=snap, read_only=True) as image:
                    compare(f'{when}: {pool}/{name}@{snap}', image, bytes(wanted))
        if maps and 'object-map' in cli('info', f'{pool}/{name}'):
            for spec in [f'{pool}/{name}', *(f'{pool}/{name}@{s}' for s in self.snaps)]:
                cli('object-map', 'check', spec)
                if 'object map invalid' in cli('info', spec):
                    raise SystemExit(f'{when}: the object map of {spec} is wrong')


def compare(what, image, wanted):
    if image.size() != len(wanted):
        raise SystemExit(f'{what}: {image.size()} bytes, not {len(wanted)}')
    for at in range(0, len(wanted), MIB):
        held = image.read(at, min(MIB, len(wanted) - at))
        if held != wanted[at:at + MIB]:
            first = next(n for n, (a, b) in enumerate(zip(held, wanted[at:])) if a != b)
            raise SystemExit(f'{what}: differs from byte {at + first} on')


def connect():
    cluster = rados.Rados(conffile=os.environ['CEPH_CONF'])
    cluster.conf_set('rbd_discard_granularity_bytes', str(GRAIN))
    cluster.connect()
    return cluster


def pool_io(pool):
    return CLUSTER.open_ioctx(pool)


class Writer(threading.Thread):
    """Changes an image until it is stopped."""

    def __init__(self, seed, pool, name, model):
        super().__init__()
        self.random, self.where, self.model = random.Random(seed), (pool, name), model
        self.stop, self.failure, self.count = threading.Event(), None, 0

    def run(self):
        try:
            pool, name = self.where
            with pool_io(pool) as ioctx, rbd.Image(ioctx, name) as image:
                while not self.stop.is_set():
                    self.model.change(self.random, image)
                    self.count += 1
                    if self.random.randrange(60) == 0 and len(self.model.snaps) < 6:
                        self.model.snap(image, f'new{self.count}')
                    if self.random.randrange(10) == 0:
                        time.sleep(self.random.random() / 5)
        except Exception as e:  # told by the thread that waits
            self.failure = e

    def end(self):
        self.stop.set()
        self.join()
        if self.failure:
            raise SystemExit(f'the writer: {self.failure!r}')


def layout(r):
    """Arguments for a layout: all of it, as a migration takes what is not said from the source."""
    size = r.choice([64, 256, 1024, 4096])
    unit, count = (r.choice([16, 64]), r.randrange(2, 5)) if r.randrange(3) == 0 else (size, 1)
    return ['--object-size', f'{size}K', '--stripe-unit', f'{unit}K', '--stripe-count', str(count)]


def features(r):
    return [arg for f in r.choice(FEATURES) for arg in ('--image-feature', f)]


def source(r, pool):
    """An image with a history: its model, and whether it is a clone."""
    size = r.randrange(3, 24) * MIB + r.choice([0, 5000])
    is_clone = r.randrange(2) == 0
    if is_clone:
        cli('create', '--size', f'{size}B', *layout(r), f'{pool}/parent')
        model = Model(bytes(size))
        with pool_io(pool) as ioctx, rbd.Image(ioctx, 'parent') as parent:
            for _ in range(r.randrange(1, 30)):
                model.change(r, parent)
            parent.create_snap('base')
            parent.protect_snap('base')
        cli('clone', '--rbd-default-clone-format', r.choice(['1', '2']), *layout(r), *features(r), f'{pool}/parent@base', f'{pool}/source')
    else:
        model = Model(bytes(size))
        cli('create', '--size', f'{size}B', *layout(r), *features(r), f'{pool}/source')
    with pool_io(pool) as ioctx, rbd.Image(ioctx, 'source') as image:
        for n in range(r.randrange(5)):
            for _ in range(r.randrange(20)):
                model.change(r, image)
            if r.randrange(4) == 0:
                model.resize(image, max(MIB, len(model.now) + r.randrange(-4, 5) * MIB))
            model.snap(image, f's{n}')
        for _ in range(r.randrange(20)):
            model.change(r, image)
    return model, is_clone


def clear(pool, names):
    for name in names:
        if name not in cli('ls', pool).split():
            continue
        with pool_io(pool) as ioctx, rbd.Image(ioctx, name) as image:
            for snap in list(image.list_snaps()):
                if image.is_protected_snap(snap['name']):
                    image.unprotect_snap(snap['name'])
                image.remove_snap(snap['name'])
        cli('rm', f'{pool}/{name}')


def remains(pools):
    """What is left of images. Where librbd copies, empty objects remain beyond an image that was larger at a snapshot: these do not
    count."""
    left = ''
    for pool in pools:
        left += cli('ls', pool) + cli('trash', 'ls', '--all', pool)
        with pool_io(pool) as ioctx:
            keys = [o.key for o in ioctx.list_objects() if 'data.' in o.key or 'header.' in o.key]
            left += ' '.join(k for k in keys if not ('data.' in k and is_empty(ioctx, k)))
    return left.strip()


def is_empty(ioctx, key):
    try:
        return ioctx.stat(key)[0] == 0
    except rados.ObjectNotFound:
        # Only snapshots have it.
        return False


def round_of(seed, pools):
    r = random.Random(seed)
    model, is_clone = source(r, pools[0])
    target, name = r.choice(pools), r.choice(['source', 'target'])
    if target == pools[0]:
        name = 'target'
    args = layout(r) + features(r)
    if r.randrange(3) == 0:
        args += ['--data-pool', pools[1]]
    # Made by librbd, that remains listed with its parent, which then remains.
    if is_clone and r.randrange(2) == 0 and not FOREGROUND:
        args += ['--flatten']
    cli('migration', 'prepare', *args, f'{pools[0]}/source', f'{target}/{name}')
    before = dict(model.snaps)
    model.check(target, name, 'prepared')
    writer = Writer(r.random(), target, name, model)
    busy = r.randrange(4) > 0
    if busy:
        writer.start()
        time.sleep(r.random())
    gives_up, executes = r.randrange(3) == 0, r.randrange(4) > 0
    spec = f'{target}/{name}'
    if executes or not gives_up:
        fails = r.randrange(3) == 0
        task(CLUSTER, 'execute', spec, (lambda: r.randrange(8) == 0) if fails else None)
    if busy:
        writer.end()
    # librbd marks too much as changed where it copies.
    maps = not busy and not FOREGROUND
    model.check(target, name, 'executed', maps)
    if gives_up:
        task(CLUSTER, 'abort', spec)
        model.snaps = before
        # librbd may have left a map of the source wrong.
        model.check(pools[0], 'source', 'given up', False)
    else:
        task(CLUSTER, 'commit', spec)
        model.check(target, name, 'committed', maps)
    clear(target, [name])
    clear(pools[0], ['source', 'parent'])
    end = time.monotonic() + 120
    while left := remains(pools):
        # Snapshots of objects are trimmed when there is time.
        if time.monotonic() > end:
            raise SystemExit(f'left: {left}')
        time.sleep(0.5)
    return f'{"clone" if is_clone else "image"}, {len(before)} snapshots, {writer.count} changes, {"given up" if gives_up else "committed"}'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=20)
    parser.add_argument('--foreground', action='store_true', help='have the official `rbd` execute, commit and give up')
    parser.add_argument('--seed', type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    global FOREGROUND
    FOREGROUND = args.foreground
    pools = [f'migrations-{os.getpid()}-{n}' for n in range(2)]
    try:
        for pool in pools:
            CLUSTER.create_pool(pool)
            with pool_io(pool) as ioctx:
                rbd.RBD().pool_init(ioctx, True)
        for seed in range(args.seed, args.seed + args.rounds):
            try:
                print(f'seed {seed}: {round_of(seed, pools)}', flush=True)
            except BaseException:
                print(f'failed: conformance/rbd/migrations.py --rounds 1 --seed {seed}', flush=True)
                raise
    finally:
        run('ceph', 'config', 'set', 'mon', 'mon_allow_pool_delete', 'true')
        for pool in pools:
            CLUSTER.delete_pool(pool)


if __name__ == '__main__':
    CLUSTER = connect()
    main()
