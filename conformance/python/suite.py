#!/usr/bin/python3
"""The conformance suite of python3-rados: prints `case.check: result` for every assertion.

A result is a value, an exception by its class and errno, or a relation between versions: never an id or a time.
Run by `conformance/run`; needs CEPH_CONF. Arguments: the cases to run.
"""
import errno
import hashlib
import json
import os
import signal
import sys
import time

import rados

CASES = []
CASE_SECONDS = 150


def case(function):
    """Registers a case; each runs in a process and a namespace of its own."""
    CASES.append(function)
    return function


def show(value):
    """A value as text that is the same everywhere; long ones as length and hash."""
    if isinstance(value, bytes) and len(value) > 160:
        return f'<{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()[:16]}>'
    if isinstance(value, dict):
        return '{' + ', '.join(f'{show(k)}: {show(v)}' for k, v in value.items()) + '}'
    if isinstance(value, (list, tuple)):
        return '[' + ', '.join(show(v) for v in value) + ']'
    return repr(value)


class Test:
    """What a case works with: a connected client, and the suite's pool in a namespace of the case's own."""

    def __init__(self, name, pool):
        self.name, self.pool, self.pools = name, pool, []
        self.rados = self.connect()

    def connect(self, **options):
        conf = {'rados_osd_op_timeout': '20', 'rados_mon_op_timeout': '60', 'admin_socket': '', **options}
        cluster = rados.Rados(conffile=os.environ['CEPH_CONF'], conf=conf)
        cluster.connect()
        return cluster

    def says(self, check, what):
        print(f'{self.name}.{check}: {what}', flush=True)

    def gives(self, check, call, *args, **kwargs):
        """Prints what a call returns or raises; returns it."""
        try:
            value = call(*args, **kwargs)
        except rados.Error as e:
            code = getattr(e, 'errno', None)
            self.says(check, type(e).__name__ + (f' {errno.errorcode.get(abs(code), code)}' if code else ''))
            return None
        except Exception as e:  # pylint: disable=broad-except
            self.says(check, type(e).__name__)
            return None
        self.says(check, show(value))
        return value

    def mon(self, **command):
        """A monitor command: (errno, output, text)."""
        code, out, said = self.rados.mon_command(json.dumps(command), b'')
        return code, out.decode(), said

    def make_pool(self, name, pgs):
        """Makes a pool: erasure-coded if the environment names a profile. (errno, output, text)"""
        profile = os.environ.get('CONFORMANCE_PROFILE')
        kind = {'pool_type': 'erasure', 'erasure_code_profile': profile} if profile else {'pool_type': 'replicated'}
        return self.mon(prefix='osd pool create', pool=name, pg_num=pgs, pgp_num=pgs, **kind)

    def own_pool(self, suffix):
        """An I/O context of a new pool of this case."""
        name = f'{self.pool}-{suffix}'
        self.make_pool(name, 4)
        self.pools.append(name)
        self.rados.wait_for_latest_osdmap()
        return self.rados.open_ioctx(name)

    def delete(self, name):
        self.mon(prefix='osd pool delete', pool=name, pool2=name, yes_i_really_really_mean_it=True)


def in_child(name, seconds, body):
    """Runs `body` in a process of its own, which may crash or hang; True if it ended well."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            body()
            code = 0
        except Exception as e:  # pylint: disable=broad-except
            print(f'{name}: ended by {type(e).__name__}', flush=True)
            print(f'{name}: {e}', file=sys.stderr)
        finally:
            sys.stdout.flush()
            os._exit(code)
    for _ in range(seconds * 100):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            if os.WIFSIGNALED(status):
                print(f'{name}: died of signal {os.WTERMSIG(status)}', flush=True)
            return status == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(f'{name}: did not end', flush=True)
    return False


def main():
    import cases  # pylint: disable=unused-import,import-outside-toplevel
    pool = f'conformance-py-{os.getpid()}'

    def setup():
        t = Test('setup', pool)
        code, _, said = t.make_pool(pool, 8)
        if code:
            raise RuntimeError(said)
        t.mon(prefix='osd pool application enable', pool=pool, app='conformance')
        t.mon(prefix='config set', who='mon', name='mon_allow_pool_delete', value='true')

    if not in_child('setup', CASE_SECONDS, setup):
        sys.exit(1)
    only = set(sys.argv[1:])
    for function in cases.CASES:
        if only and function.__name__ not in only:
            continue

        def run(function=function):
            t = Test(function.__name__, pool)
            t.io = t.rados.open_ioctx(pool)
            t.io.set_namespace(function.__name__)
            function(t)
            for name in t.pools:
                t.delete(name)

        in_child(function.__name__, CASE_SECONDS, run)
    in_child('teardown', CASE_SECONDS, lambda: Test('teardown', pool).delete(pool))


if __name__ == '__main__':
    sys.modules['suite'] = sys.modules['__main__']
    main()
