#!/usr/bin/python3
"""Much of RBD at once, through Debian's librbd, on the cluster of CEPH_CONF: what an image holds is compared with what was written.

    CEPH_CONF=DIR/ceph.conf conformance/rbd/images.py [CASE ...]

passes:    two clients pass the exclusive lock of an image back and forth (--times).
killed:    the owner of a lock is killed; the next client continues, and the dead one is on the blocklist.
snapshots: 500 snapshots of one image, each with a change of its own; some are read, some removed, one rolled back to.
images:    1,000 images in one pool.
chain:     a clone of a clone of a clone, 16 deep; copy-up, flattened from the middle.
large:     an image of 64 TiB: ends written and read, snapshot, usage.

Needs python3-rados and python3-rbd and a client.admin. Each case makes a pool of its own and removes it (`mon_allow_pool_delete`).
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import time

import rados
import rbd

MIB = 1 << 20
CASES = {}


def case(run):
    CASES[run.__name__] = run
    return run


def check(what, got, wanted):
    if got != wanted:
        raise SystemExit(f'{what}: {str(got)[:200]}, but {str(wanted)[:200]} was expected')


@contextlib.contextmanager
def client():
    with rados.Rados(conffile=os.environ['CEPH_CONF']) as cluster:
        yield cluster


@contextlib.contextmanager
def pool_of(name):
    """A pool for images, and the connection that made it."""
    with client() as cluster:
        name = f'rbd-{name}-{os.getpid()}'
        cluster.create_pool(name)
        try:
            with cluster.open_ioctx(name) as ioctx:
                rbd.RBD().pool_init(ioctx, True)
                yield cluster, ioctx
        finally:
            cluster.mon_command(json.dumps({'prefix': 'config set', 'who': 'mon', 'name': 'mon_allow_pool_delete',
                                            'value': 'true'}), b'')
            cluster.delete_pool(name)


@contextlib.contextmanager
def image_in(pool, name):
    """An image as a client of its own sees it."""
    with client() as cluster, cluster.open_ioctx(pool) as ioctx, rbd.Image(ioctx, name) as image:
        yield image


def pattern(seed, size):
    return random.Random(seed).randbytes(size)


def blocklist(cluster):
    return json.loads(cluster.mon_command(json.dumps({'prefix': 'osd blocklist ls', 'format': 'json'}), b'')[1])


@case
def passes(args):
    with pool_of('passes') as (_, ioctx):
        rbd.RBD().create(ioctx, 'image', 64 * MIB)
        with image_in(ioctx.name, 'image') as a, image_in(ioctx.name, 'image') as b:
            took, model = [], bytearray(MIB)
            for n in range(args.times):
                writer, other = (a, b) if n % 2 == 0 else (b, a)
                at, data = n * 4096 % MIB, pattern(n, 4096)
                began = time.monotonic()
                writer.write(data, at)
                took.append(time.monotonic() - began)
                model[at:at + 4096] = data
                check(f'owner after pass {n}', (writer.is_exclusive_lock_owner(), other.is_exclusive_lock_owner()), (True, False))
                check(f'what the other reads after pass {n}', other.read(at, 4096), data)
            check('the image', a.read(0, MIB), bytes(model))
        took.sort()
        return f'{args.times} passes, median {1000 * took[len(took) // 2]:.1f} ms, longest {1000 * took[-1]:.0f} ms'


def hold(pool, ready):
    with image_in(pool, 'image') as image:
        image.write(pattern(1, MIB), 0)
        ready.set()
        time.sleep(3600)


@case
def killed(_):
    with pool_of('killed') as (cluster, ioctx):
        rbd.RBD().create(ioctx, 'image', 64 * MIB)
        ready = multiprocessing.get_context('spawn').Event()
        owner = multiprocessing.get_context('spawn').Process(target=hold, args=(ioctx.name, ready))
        owner.start()
        ready.wait()
        with image_in(ioctx.name, 'image') as image:
            held = list(image.list_lockers()['lockers'])[0]
            os.kill(owner.pid, signal.SIGKILL)
            owner.join()
            began = time.monotonic()
            image.write(pattern(2, 4096), 4096)
            took = time.monotonic() - began
            wanted = pattern(1, MIB)
            check('the image', image.read(0, MIB), wanted[:4096] + pattern(2, 4096) + wanted[8192:])
        # Releases print types of addresses differently: the port and the nonce tell enough.
        named = [entry['addr'] for entry in blocklist(cluster)]
        check('the dead owner is shut out', any(held[2].split(':')[-1] in addr for addr in named), True)
        return f'goes on after {took:.1f} s'


@case
def snapshots(_):
    count = 500
    with pool_of('snapshots') as (_, ioctx):
        rbd.RBD().create(ioctx, 'image', 64 * MIB)
        with rbd.Image(ioctx, 'image') as image:
            began = time.monotonic()
            for n in range(count):
                image.write(pattern(n, 4096), n % 97 * 4096)
                image.create_snap(f's{n}')
            made = time.monotonic() - began

            def content(n):
                """What of the first 97 blocks was written up to a snapshot."""
                last = {m % 97: m for m in range(n + 1)}
                return b''.join(pattern(last[i], 4096) if i in last else bytes(4096) for i in range(97))

            for n in random.Random(7).sample(range(count), 60):
                with rbd.Image(ioctx, 'image', snapshot=f's{n}') as snap:
                    check(f'snapshot {n}', snap.read(0, 97 * 4096), content(n))
            for n in range(0, count, 2):
                image.remove_snap(f's{n}')
            check('those that are left', [s['name'] for s in image.list_snaps()], [f's{n}' for n in range(1, count, 2)])
            for n in random.Random(8).sample(range(1, count, 2), 30):
                with rbd.Image(ioctx, 'image', snapshot=f's{n}') as snap:
                    check(f'snapshot {n} after removals', snap.read(0, 97 * 4096), content(n))
            image.rollback_to_snap('s101')
            check('rolled back', image.read(0, 97 * 4096), content(101))
            for n in range(1, count, 2):
                image.remove_snap(f's{n}')
            check('the image', image.read(0, 97 * 4096), content(101))
        rbd.RBD().remove(ioctx, 'image')
        return f'{1000 * made / count:.1f} ms for a write and a snapshot'


@case
def images(_):
    count = 1000
    with pool_of('images') as (_, ioctx):
        began = time.monotonic()
        for n in range(count):
            rbd.RBD().create(ioctx, f'i{n}', 8 * MIB)
        made = time.monotonic() - began
        began = time.monotonic()
        check('names', sorted(rbd.RBD().list(ioctx)), sorted(f'i{n}' for n in range(count)))
        listed = time.monotonic() - began
        for n in range(0, count, 50):
            with rbd.Image(ioctx, f'i{n}') as image:
                image.write(pattern(n, 8192), 4096)
        for n in range(0, count, 50):
            with rbd.Image(ioctx, f'i{n}') as image:
                check(f'image {n}', image.read(0, 16384), bytes(4096) + pattern(n, 8192) + bytes(4096))
        began = time.monotonic()
        for n in range(count):
            rbd.RBD().remove(ioctx, f'i{n}')
        removed = time.monotonic() - began
        check('names', list(rbd.RBD().list(ioctx)), [])
        left = [o.key for o in ioctx.list_objects() if o.key not in ('rbd_directory', 'rbd_info', 'rbd_trash', 'rbd_children')]
        check('objects left', left, [])
        return f'{1000 * made / count:.0f} ms to make one, {1000 * removed / count:.0f} ms to remove it, {1000 * listed:.0f} ms to list'


@case
def chain(_):
    depth, size = 16, 32 * MIB
    with pool_of('chain') as (_, ioctx):
        rbd.RBD().create(ioctx, 'c0', size, features=rbd.RBD_FEATURE_LAYERING | rbd.RBD_FEATURE_EXCLUSIVE_LOCK
                         | rbd.RBD_FEATURE_OBJECT_MAP | rbd.RBD_FEATURE_FAST_DIFF | rbd.RBD_FEATURE_DEEP_FLATTEN, old_format=False)
        model = bytearray(size)
        models = []

        def write(n):
            with rbd.Image(ioctx, f'c{n}') as image:
                for i in range(4):
                    at, data = random.Random(n * 10 + i).randrange(0, size - 9000), pattern(n * 10 + i, 9000)
                    image.write(data, at)
                    model[at:at + len(data)] = data
                image.create_snap('s')
                image.protect_snap('s')
            models.append(bytes(model))

        write(0)
        for n in range(1, depth + 1):
            rbd.RBD().clone(ioctx, f'c{n - 1}', 's', ioctx, f'c{n}')
            write(n)
        began = time.monotonic()
        with rbd.Image(ioctx, f'c{depth}') as image:
            check('the last', image.read(0, size), models[depth])
            took = time.monotonic() - began
        with rbd.Image(ioctx, 'c8') as image:
            image.flatten()
        for n in range(depth, -1, -1):
            with rbd.Image(ioctx, f'c{n}') as image:
                check(f'clone {n} after c8 was flattened', image.read(0, size), models[n])
        for n in range(depth, -1, -1):
            with rbd.Image(ioctx, f'c{n}') as image:
                if image.is_protected_snap('s'):
                    image.unprotect_snap('s')
                image.remove_snap('s')
            rbd.RBD().remove(ioctx, f'c{n}')
        return f'{size / MIB / took:.0f} MiB/s through {depth} parents'


@case
def large(_):
    size = 64 << 40
    with pool_of('large') as (_, ioctx):
        began = time.monotonic()
        rbd.RBD().create(ioctx, 'image', size)
        with rbd.Image(ioctx, 'image') as image:
            places = (0, size // 2 - 4096, size - 8192)
            for n, at in enumerate(places):
                image.write(pattern(n, 8192), at)
            image.create_snap('s')
            for n, at in enumerate(places):
                image.write(pattern(n + 10, 4096), at)
            took = time.monotonic() - began
            for n, at in enumerate(places):
                check(f'at {at}', image.read(at, 8192), pattern(n + 10, 4096) + pattern(n, 8192)[4096:])
            with rbd.Image(ioctx, 'image', snapshot='s') as snap:
                for n, at in enumerate(places):
                    check(f'at {at} of the snapshot', snap.read(at, 8192), pattern(n, 8192))
            found = []
            image.diff_iterate(0, size, None, lambda at, length, there: found.append(at), whole_object=True)
            check('objects with data', found, sorted({at // (4 * MIB) * 4 * MIB for place in places for at in (place, place + 8191)}))
            image.remove_snap('s')
        rbd.RBD().remove(ioctx, 'image')
        return f'made, written and snapshotted in {took:.1f} s'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('cases', nargs='*', metavar='CASE', help=', '.join(CASES))
    parser.add_argument('--times', type=int, default=1000, help='passes of the lock')
    args = parser.parse_args()
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f'no such case: {unknown[0]}')
    for name in args.cases or CASES:
        began = time.monotonic()
        said = CASES[name](args)
        print(f'{name}: {said} ({time.monotonic() - began:.0f} s)', flush=True)


if __name__ == '__main__':
    sys.exit(main())
