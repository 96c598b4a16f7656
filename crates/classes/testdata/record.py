#!/usr/bin/python3
"""Calls every method of the object classes with good and bad input, and prints what came of it.

    record.py CEPH_CONF POOL OUT_DIR

writes one transcript a class, OUT_DIR/CLASS.txt. Those in this directory were recorded from Ceph 16.2.15; the unit
tests replay them. Those named _many are too long for that. compare.py compares the transcripts of two clusters.
"""
import argparse
import base64
import ctypes
import os
import re
import struct
import subprocess
import tempfile
import time

import rados


def u8(v): return struct.pack('<B', v)
def u16(v): return struct.pack('<H', v)
def u32(v): return struct.pack('<I', v & 0xffffffff)
def u64(v): return struct.pack('<Q', v & (2**64 - 1))
def s(v): return u32(len(v)) + v
def lst(items): return u32(len(items)) + b''.join(items)
def tm(sec, nsec=0): return u32(sec) + u32(nsec)
def sec(version, *body, compat=1): return u8(version) + u8(compat) + s(b''.join(body))
def hx(b): return (b or b'').hex() or '-'
def sparse(b):
    """As hx, but of a byte that repeats the number of times is written."""
    parts, at = [], 0
    for run in re.finditer(rb'(?s)(.)\1{31,}', b or b''):
        parts += [b[at:run.start()].hex(), f'{run[1].hex()}*{len(run[0])}']
        at = run.end()
    return '+'.join(p for p in (*parts, (b or b'')[at:].hex()) if p) or '-'


class Recorder:
    def __init__(self, conf, pool):
        self.conf, self.pool = conf, pool
        self.clients = []
        for _ in range(2):
            cluster = rados.Rados(conffile=conf)
            cluster.connect(timeout=30)
            if not self.clients and not cluster.pool_exists(pool):
                cluster.create_pool(pool)
            io = cluster.open_ioctx(pool)
            self.clients.append((cluster, io, cluster.get_instance_id(), cluster.get_addrs()))
        self.conf, self.pool = conf, pool
        self.librados = None
        self.lines = []
        self.current = None

    def out(self, line):
        self.lines.append(line)

    def client(self, n):
        if self.current != n:
            self.current = n
            _, _, gid, addr = self.clients[n]
            self.out(f'caller {gid} {addr}')
        return self.clients[n][1]

    def object(self, name):
        self.oid = name
        io = self.clients[0][1]
        try:
            io.remove_object(name)
        except rados.ObjectNotFound:
            pass
        self.out('')
        self.out(f'object {name}')

    def call(self, cls, method, data=b'', by=0, before=None, creates=False):
        """Calls; before() runs after it and returns lines that the replay must know before. With `creates`, the request
        creates the object first."""
        io = self.client(by)
        try:
            if creates:
                self.out('creates')
                with rados.WriteOpCtx() as op:
                    op.new(0)
                    op.execute(cls, method, data)
                    io.operate_write_op(op, self.oid)
                code, output = 0, b''
            else:
                code, output = io.execute(self.oid, cls, method, data, 1 << 20)
        except rados.Error as e:
            code, output = -abs(e.errno), b''
        for line in before() if before and code >= 0 else []:
            self.out(line)
        self.out(f'call {cls} {method} {sparse(data)} -> {code} {sparse(output)}')
        return code, output

    def vec(self, cls, method, data=b'', before=None):
        """Calls as radosgw does where it wants the result and the output of a method that writes."""
        returnvec = 1 << 10
        if not self.librados:
            lib = self.librados = ctypes.CDLL('librados.so.2')
            cluster, self.io = ctypes.c_void_p(), ctypes.c_void_p()
            lib.rados_create(ctypes.byref(cluster), None)
            lib.rados_conf_read_file(cluster, self.conf.encode())
            lib.rados_connect(cluster)
            lib.rados_ioctx_create(cluster, self.pool.encode(), ctypes.byref(self.io))
            lib.rados_create_read_op.restype = ctypes.c_void_p
        lib = self.librados
        op = ctypes.c_void_p(lib.rados_create_read_op())
        out, length, code = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_int()
        lib.rados_read_op_exec(op, cls.encode(), method.encode(), data, ctypes.c_size_t(len(data)), ctypes.byref(out),
                               ctypes.byref(length), ctypes.byref(code))
        result = lib.rados_read_op_operate(op, self.io, self.oid.encode(), returnvec)
        output = ctypes.string_at(out.value, length.value) if out.value else b''
        code = code.value or result
        for line in before() if before and code >= 0 else []:
            self.out(line)
        self.out(f'vec {cls} {method} {sparse(data)} -> {code} {sparse(output)}')
        return code, output

    def omap_header(self):
        with tempfile.NamedTemporaryFile() as f:
            subprocess.run(['rados', '-c', self.conf, '-p', self.pool, 'getomapheader', self.oid, f.name],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return f.read()

    def state(self):
        io = self.clients[0][1]
        try:
            size, _ = io.stat(self.oid)
        except rados.ObjectNotFound:
            return None
        data = io.read(self.oid, 1 << 20) if size else b''
        attrs = sorted((n.encode(), v) for n, v in io.get_xattrs(self.oid))
        header, omap = b'', []
        with rados.ReadOpCtx() as op:
            it, _ = io.get_omap_vals(op, '', '', 10000)
            io.operate_read_op(op, self.oid)
            omap = [(k.encode() if isinstance(k, str) else k, v) for k, v in it]
        return data, attrs, omap

    def omap_keys(self):
        state = self.state()
        return [k.decode('latin1') for k, _ in state[2]] if state else []

    def seen(self, header=None):
        state = self.state()
        if state is None:
            self.out('absent')
        else:
            self.out('exists')
            data, attrs, omap = state
            if data:
                self.out(f'data {sparse(data)}')
            for name, value in attrs:
                self.out(f'attr {hx(name)} {sparse(value)}')
            for key, value in omap:
                self.out(f'omap {hx(key)} {hx(value)}')
            if header:
                self.out(f'header {hx(header)}')
        self.out('seen')

    def header(self):
        """The omap header, which python3-rados can't read."""
        with tempfile.NamedTemporaryFile() as f:
            command = ['rados', '-c', self.conf, '-p', self.pool, 'getomapheader', self.oid, f.name]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return f.read()

    def touch(self, mtime):
        """Makes the object exist with that modification time, in seconds."""
        with rados.WriteOpCtx() as op:
            op.new(0)
            self.clients[0][1].operate_write_op(op, self.oid, mtime)
        self.out(f'mtime {mtime}')

    def setxattr(self, name, value):
        self.clients[0][1].set_xattr(self.oid, name, value)
        self.out(f'setxattr {hx(name.encode())} {hx(value)}')

    def write(self, data):
        self.clients[0][1].write_full(self.oid, data)
        self.out(f'write {hx(data)}')

    def omapset(self, key, value):
        with rados.WriteOpCtx() as op:
            io = self.clients[0][1]
            io.set_omap(op, (key,), (value,))
            io.operate_write_op(op, self.oid)
        self.out(f'omapset {hx(key.encode())} {hx(value)}')

    def bad_inputs(self, cls, methods, good):
        """Nothing, a byte, and the good input cut short, of a version to come, and with more after it."""
        for method in methods:
            for data in (b'', b'\x01', good[:-1], good[:6], b'\x63\x63' + good[2:], b'\x63' + good[1:], good + b'more'):
                self.call(cls, method, data)

    def finish(self, path):
        with open(path, 'w') as f:
            f.write('\n'.join(self.lines) + '\n')
        self.lines, self.current = [], None


# lock

EXCLUSIVE, SHARED, EPHEMERAL = 1, 2, 3


def lock_in(name, kind=EXCLUSIVE, cookie=b'c', tag=b'', desc=b'', dur=(0, 0), flags=0):
    return sec(1, s(name), u8(kind), s(cookie), s(tag), s(desc), tm(*dur), u8(flags))


def unlock_in(name, cookie=b'c'): return sec(1, s(name), s(cookie))
def break_in(name, kind, num, cookie=b'c'): return sec(1, s(name), u8(kind), u64(num), s(cookie))
def info_in(name): return sec(1, s(name))
def assert_in(name, kind=EXCLUSIVE, cookie=b'c', tag=b''): return sec(1, s(name), u8(kind), s(cookie), s(tag))


def cookie_in(name, kind=EXCLUSIVE, cookie=b'c', tag=b'', new=b'n'):
    return sec(1, s(name), u8(kind), s(cookie), s(tag), s(new))


def lock(r):
    def now_from(name, duration):
        """The OSD's time, from the expiration of a lock just taken."""
        def lines():
            value = r.clients[0][1].get_xattr(r.oid, 'lock.' + name)
            # lock_info_t, count, locker_id_t, locker_info_t
            at = 10 + 6 + struct.unpack_from('<I', value, 12)[0] + 6
            when, nsec = struct.unpack_from('<II', value, at)
            ns = when * 10**9 + nsec - duration * 10**9
            return [f'now {ns // 10**9} {ns % 10**9}']
        return lines

    def clock():
        ns = time.time_ns()
        r.out(f'now {ns // 10**9} {ns % 10**9}')

    gid = [c[2] for c in r.clients]
    r.object('lock-exclusive')
    for method, data in (('unlock', unlock_in(b'L')), ('break_lock', break_in(b'L', 8, gid[0])),
                         ('get_info', info_in(b'L')), ('list_locks', b''), ('assert_locked', assert_in(b'L')),
                         ('set_cookie', cookie_in(b'L'))):
        r.call('lock', method, data)
    r.call('lock', 'lock', lock_in(b'L', flags=2))
    r.call('lock', 'lock', lock_in(b'L', desc=b'first'))
    r.seen()
    r.call('lock', 'lock', lock_in(b'L'))
    r.call('lock', 'lock', lock_in(b'L', desc=b'again', flags=1))
    r.call('lock', 'lock', lock_in(b'L', desc=b'must', flags=2))
    r.call('lock', 'lock', lock_in(b'L', flags=3))
    r.call('lock', 'lock', lock_in(b'L', cookie=b'other'))
    r.call('lock', 'lock', lock_in(b'L', cookie=b'other', flags=2))
    r.call('lock', 'lock', lock_in(b'L', tag=b'T', flags=1))
    r.call('lock', 'lock', lock_in(b'L', kind=SHARED, flags=1))
    r.call('lock', 'get_info', info_in(b'L'))
    r.call('lock', 'lock', lock_in(b'L', flags=1))
    r.call('lock', 'lock', lock_in(b'L'), by=1)
    r.call('lock', 'lock', lock_in(b'L', kind=SHARED), by=1)
    r.call('lock', 'unlock', unlock_in(b'L'), by=1)
    r.call('lock', 'unlock', unlock_in(b'L', b'x'))
    r.call('lock', 'unlock', unlock_in(b'M'))
    for data in (assert_in(b'L'), assert_in(b'L', SHARED), assert_in(b'L', EPHEMERAL), assert_in(b'L', 0),
                 assert_in(b'L', 4), assert_in(b''), assert_in(b'L', cookie=b'x'), assert_in(b'L', tag=b'x'),
                 assert_in(b'M')):
        r.call('lock', 'assert_locked', data)
    for data in (cookie_in(b'L', SHARED), cookie_in(b'L', 0), cookie_in(b''), cookie_in(b'L', cookie=b'x'),
                 cookie_in(b'L', tag=b'x'), cookie_in(b'L', new=b'c'), cookie_in(b'M'), cookie_in(b'L')):
        r.call('lock', 'set_cookie', data)
    r.call('lock', 'set_cookie', cookie_in(b'L'))
    r.call('lock', 'assert_locked', assert_in(b'L', cookie=b'n'))
    r.seen()
    r.call('lock', 'list_locks', b'')
    r.call('lock', 'lock', lock_in(b'second'))
    r.call('lock', 'lock', lock_in(b'a\0b'))
    r.call('lock', 'lock', lock_in(b'\xff\xfe'))
    r.call('lock', 'list_locks', b'ignored')
    r.call('lock', 'unlock', unlock_in(b'L', b'n'))
    r.call('lock', 'get_info', info_in(b'L'))
    r.call('lock', 'break_lock', break_in(b'second', 8, gid[1]))
    r.call('lock', 'break_lock', break_in(b'second', 8, gid[0]), by=1)
    r.call('lock', 'break_lock', break_in(b'second', 8, gid[0]), by=1)
    for name, kind in ((b'', 1), (b'K', 0), (b'K', 4), (b'K', 255), (b'k' * 200, 1)):
        r.call('lock', 'lock', lock_in(name, kind))
    r.setxattr('lock.bad', b'no lock')
    for method, data in (('lock', lock_in(b'bad')), ('unlock', unlock_in(b'bad')), ('get_info', info_in(b'bad'))):
        r.call('lock', method, data)
    r.setxattr('lock.empty', b'')
    r.call('lock', 'get_info', info_in(b'empty'))

    r.object('lock-shared')
    r.call('lock', 'lock', lock_in(b'S', SHARED, tag=b'T', desc=b'one'))
    r.call('lock', 'lock', lock_in(b'S', SHARED, b'c2', b'T'))
    r.call('lock', 'lock', lock_in(b'S', SHARED, b'c', b'T', b'two'), by=1)
    r.call('lock', 'lock', lock_in(b'S', SHARED, b'c', b'U'), by=1)
    r.call('lock', 'lock', lock_in(b'S', EXCLUSIVE, b'c3', b'T'))
    r.call('lock', 'get_info', info_in(b'S'))
    r.seen()
    r.call('lock', 'set_cookie', cookie_in(b'S', SHARED, b'c', b'T', b'c2'))
    r.call('lock', 'set_cookie', cookie_in(b'S', SHARED, b'c', b'T', b'c9'), by=1)
    r.call('lock', 'unlock', unlock_in(b'S'))
    r.call('lock', 'unlock', unlock_in(b'S', b'c2'))
    r.call('lock', 'unlock', unlock_in(b'S', b'c9'), by=1)
    r.call('lock', 'lock', lock_in(b'S', EXCLUSIVE, tag=b'V'))
    r.seen()

    r.object('lock-ephemeral')
    r.call('lock', 'lock', lock_in(b'E', EPHEMERAL))
    r.call('lock', 'lock', lock_in(b'E', EPHEMERAL, b'x'))
    r.call('lock', 'get_info', info_in(b'E'))
    r.call('lock', 'unlock', unlock_in(b'E', b'x'))
    r.call('lock', 'unlock', unlock_in(b'E'))
    r.seen()

    r.object('lock-expiry')
    r.call('lock', 'lock', lock_in(b'X', dur=(1, 0)), before=now_from('X', 1))
    r.call('lock', 'lock', lock_in(b'X', cookie=b'd'), by=1)
    r.call('lock', 'get_info', info_in(b'X'))
    r.seen()
    time.sleep(1.1)
    clock()
    r.call('lock', 'get_info', info_in(b'X'))
    r.call('lock', 'assert_locked', assert_in(b'X'))
    r.seen()
    r.call('lock', 'unlock', unlock_in(b'X'))
    r.call('lock', 'lock', lock_in(b'X', cookie=b'd', tag=b'new'), by=1)
    r.seen()
    r.object('lock-expiry-ephemeral')
    r.call('lock', 'lock', lock_in(b'X', EPHEMERAL, dur=(0, 1)), before=lambda: [f'now {int(time.time())} 0'])
    time.sleep(0.1)
    clock()
    r.call('lock', 'get_info', info_in(b'X'))
    r.call('lock', 'assert_locked', assert_in(b'X', EPHEMERAL))
    r.call('lock', 'list_locks', b'')
    r.call('lock', 'unlock', unlock_in(b'X'))
    r.call('lock', 'lock', lock_in(b'X', EPHEMERAL, b'd'), by=1)
    r.seen()

    r.object('lock-bad')
    r.write(b'data')
    r.bad_inputs('lock', ['lock'], lock_in(b'L', flags=1))
    r.bad_inputs('lock', ['assert_locked'], assert_in(b'L'))
    r.bad_inputs('lock', ['set_cookie'], cookie_in(b'L', new=b'c'))
    r.bad_inputs('lock', ['get_info'], info_in(b'L'))
    r.bad_inputs('lock', ['break_lock'], break_in(b'L', 8, 1))
    r.bad_inputs('lock', ['unlock'], unlock_in(b'L'))


# refcount

def ref_in(tag, implicit=0): return sec(1, s(tag), u8(implicit))
def refs_in(*tags): return sec(1, lst([s(t) for t in tags]))


def refcount(r):
    r.object('refcount-absent')
    for method, data in (('put', ref_in(b'a')), ('read', sec(1, u8(0))), ('set', refs_in())):
        r.call('refcount', method, data)
    r.call('refcount', 'get', ref_in(b'a'))
    r.seen()
    r.object('refcount')
    r.write(b'data')
    r.call('refcount', 'read', sec(1, u8(0)))
    r.call('refcount', 'read', sec(1, u8(1)))
    r.call('refcount', 'put', ref_in(b'a'))
    r.call('refcount', 'get', ref_in(b'a', 1))
    r.call('refcount', 'get', ref_in(b'b'))
    r.call('refcount', 'get', ref_in(b'b', 2))
    r.seen()
    r.call('refcount', 'read', sec(1, u8(0)))
    r.call('refcount', 'put', ref_in(b'zz'))
    r.seen()
    r.call('refcount', 'put', ref_in(b'zz', 1))
    r.call('refcount', 'put', ref_in(b'b'))
    r.call('refcount', 'put', ref_in(b'b'))
    r.call('refcount', 'get', ref_in(b'b'))
    r.call('refcount', 'put', ref_in(b'b'))
    r.seen()
    r.call('refcount', 'set', refs_in(b'x', b'\xff', b'x', b''))
    r.seen()
    r.call('refcount', 'read', sec(1, u8(0)))
    r.call('refcount', 'set', refs_in(b'x'))
    r.call('refcount', 'put', ref_in(b'x'))
    r.seen()
    r.object('refcount-implicit')
    r.write(b'data')
    r.call('refcount', 'put', ref_in(b'any', 1))
    r.seen()
    r.object('refcount-bad')
    r.setxattr('refcount', b'rubbish')
    for method, data in (('get', ref_in(b'a')), ('put', ref_in(b'a')), ('read', sec(1, u8(0)))):
        r.call('refcount', method, data)
    r.setxattr('refcount', sec(1, lst([s(b'old') + u8(1)])))
    r.bad_inputs('refcount', ['get', 'put'], ref_in(b'tag', 1))
    r.bad_inputs('refcount', ['read'], sec(1, u8(1)))
    r.bad_inputs('refcount', ['set'], refs_in(b'tag'))
    r.call('refcount', 'set', sec(1, u32(0xffffffff)))
    r.call('refcount', 'set', refs_in())
    r.seen()


# version

def ver(n, tag): return sec(1, u64(n), s(tag))
def cond(n, tag, kind): return sec(1, ver(n, tag), u32(kind))
def inc_in(*conds): return sec(1, ver(0, b''), lst(list(conds)))


def version(r):
    def tag():
        value = r.clients[0][1].get_xattr(r.oid, 'ceph.objclass.version')
        return [f'random {base64.b64decode(value[18:]).hex()}']

    r.object('version-absent')
    r.call('version', 'read')
    r.call('version', 'check_conds', inc_in())
    r.call('version', 'inc_conds', inc_in(cond(5, b'', 3)))
    r.call('version', 'inc', inc_in(), before=tag)
    r.seen()
    r.call('version', 'read')
    r.object('version')
    r.write(b'data')
    r.call('version', 'read', b'ignored')
    r.call('version', 'check_conds', inc_in(cond(0, b'', 1)))
    r.call('version', 'set', sec(1, ver(7, b'tag')))
    r.seen()
    for kind in range(9):
        for n, t in ((6, b'tag'), (7, b'tag'), (8, b'tag'), (7, b'gat')):
            r.call('version', 'check_conds', inc_in(cond(n, t, kind)))
    r.call('version', 'check_conds', inc_in(cond(7, b'tag', 1), cond(7, b'tag', 7)))
    r.call('version', 'inc', inc_in())
    r.call('version', 'inc_conds', inc_in(cond(7, b'tag', 1)))
    r.call('version', 'inc_conds', inc_in(cond(8, b'tag', 1)))
    r.call('version', 'read')
    r.call('version', 'set', sec(1, ver(2**64 - 1, b'')))
    r.call('version', 'inc', inc_in())
    r.call('version', 'read')
    r.seen()
    r.setxattr('ceph.objclass.version', b'rubbish')
    for method, data in (('inc', inc_in()), ('read', b''), ('check_conds', inc_in())):
        r.call('version', method, data)
    r.call('version', 'set', sec(1, ver(1, b'x')))
    r.bad_inputs('version', ['set'], sec(1, ver(1, b'x')))
    r.bad_inputs('version', ['inc', 'inc_conds', 'check_conds'], inc_in(cond(7, b'x', 5)))
    r.seen()


# log

def entry(when, section=b'', name=b'', data=b'', ident=b''):
    return sec(2, s(section), s(name), tm(*when), s(data), s(ident))


def add_in(*entries, mono=1): return sec(2, lst(list(entries)), u8(mono))


def list_in(start=(0, 0), marker=b'', end=(0, 0), count=0):
    return sec(1, tm(*start), s(marker), tm(*end), u32(count))


def trim_in(start=(0, 0), end=(0, 0), start_key=b'', end_key=b'', version=2):
    return sec(version, tm(*start), tm(*end), s(start_key), s(end_key))


def log(r):
    known = []

    def added():
        new = [k for k in r.omap_keys() if k not in known]
        known.extend(new)
        lines = []
        for key in new:
            m = re.fullmatch(r'1_\d+\.\d+_(\d+)\.(\d+)', key)
            if m:
                lines = [f'user_version {m[1]}']
        return lines

    def state():
        """The header comes from the method, as python3-rados can't read it."""
        code, out = r.call('log', 'info', sec(1))
        if code > 0:
            r.seen(out[6:])
        else:
            r.seen()

    r.object('log')
    for method, data in (('info', sec(1)), ('list', list_in()), ('trim', trim_in(end=(9, 9)))):
        r.call('log', method, data)
    r.call('log', 'add', add_in(entry((100, 1999), b'sec', b'name', b'data')), before=added)
    state()
    r.call('log', 'add', add_in(entry((90, 0)), entry((110, 5000), b's'), entry((105, 999999999))), before=added)
    r.call('log', 'add', add_in(entry((50, 0)), mono=0), before=added)
    r.call('log', 'add', add_in(entry((60, 0), ident=b'own'), entry((300, 0), ident=b'1_own')), before=added)
    r.call('log', 'add', sec(1, lst([entry((1, 0))])), before=added)
    r.call('log', 'add', sec(2, lst([sec(1, s(b'v1'), s(b''), tm(400), s(b'x'))]), u8(1)), before=added)
    r.call('log', 'add', add_in(), before=added)
    r.call('log', 'add', add_in(entry((2**32 - 1, 2**32 - 1))), before=added)
    r.omapset('1_0000000200.000000_bad', b'rubbish')
    state()
    for data in (list_in(), list_in(count=2), list_in(count=-1), list_in(count=5000), list_in((100, 0)),
                 list_in((100, 0), end=(110, 0)), list_in((100, 0), end=(100, 0)), list_in((100, 0), end=(99, 0)),
                 list_in((0, 0), end=(105, 0)), list_in(marker=b'1_0000000110'), list_in(marker=b'zzz'),
                 list_in((1, 0), b'1_0000000110', (120, 0)), list_in((100, 0), end=(110, 0), count=1)):
        r.call('log', 'list', data)
    for data in (trim_in(end=(10, 0)), trim_in((300, 0), (200, 0)), trim_in(end=(50, 0)), trim_in(end=(50, 0)),
                 trim_in((100, 0), (105, 0)), trim_in(end_key=b'1_0000000110'),
                 trim_in(start_key=b'1_0000000300', end_key=b'1_own'), trim_in(start_key=b'zz', end_key=b'zzz'),
                 trim_in((0, 0), (110, 999999999)), sec(1, tm(0), tm(299)), trim_in((0, 0), (2**32 - 1, 2**32 - 1))):
        r.call('log', 'trim', data)
        state()
    r.object('log-bad')
    r.write(b'data')
    r.call('log', 'list', list_in())
    r.call('log', 'trim', trim_in(end=(9, 9)))
    r.bad_inputs('log', ['add'], add_in(entry((1, 0), ident=b'id')))
    r.bad_inputs('log', ['list'], list_in())
    r.bad_inputs('log', ['info'], sec(1))
    r.bad_inputs('log', ['trim'], trim_in(end_key=b'id'))


def log_many(r):
    r.object('log-many')
    r.call('log', 'add', add_in(*[entry((i, 0), ident=b'1_%04d' % i) for i in range(1100)]))
    for data in (list_in(), list_in(count=1000), list_in(count=1001), list_in(marker=b'1_0999', count=100),
                 list_in(marker=b'1_0998', count=100)):
        r.call('log', 'list', data)
    r.call('log', 'trim', trim_in(start_key=b'1_0001', end_key=b'1_1090'))
    r.call('log', 'list', list_in())


# timeindex

def ti_entry(when, ext, value=b''): return sec(1, tm(*when), s(ext), s(value))


def timeindex(r):
    def add(*entries): return sec(1, lst(list(entries)))

    r.object('timeindex')
    r.call('timeindex', 'list', list_in(end=(2**32 - 1, 0), count=10))
    r.call('timeindex', 'trim', trim_in(end=(9, 9), version=1))
    r.call('timeindex', 'add', add())
    r.seen()
    r.call('timeindex', 'add', add(ti_entry((100, 1999), b'ext', b'value'), ti_entry((100, 999), b'b'),
                                   ti_entry((90, 0), b'x y', b'blank'), ti_entry((2**32 - 1, 2**32 - 1), b'e'),
                                   ti_entry((95, 0), b'long' * 100), ti_entry((96, 0), b' \tlead')))
    r.seen()
    r.omapset('1_', b'short')
    for data in (list_in(count=10), list_in((0, 0), end=(2**32 - 1, 0), count=10), list_in((1, 0), count=10),
                 list_in((1, 0), count=0), list_in((1, 0), count=-1), list_in((1, 0), count=2),
                 list_in((90, 0), end=(100, 0), count=10), list_in((90, 0), end=(100, 1000), count=10),
                 list_in((90, 0), b'1_0000000095', (100, 0), 10), list_in((100, 0), end=(100, 0), count=10),
                 list_in(marker=b'zz', count=10), list_in((1, 0), count=5000), list_in((91, 0), end=(2**32 - 1, 0),
                                                                                     count=2)):
        r.call('timeindex', 'list', data)
    for data in (trim_in(end=(10, 0), version=1), trim_in(end=(90, 0), version=1), trim_in(end=(90, 0), version=1),
                 trim_in((96, 0), (96, 0), version=1), trim_in((90, 0), (80, 0), version=1),
                 trim_in(start_key=b'1_0000000096', end_key=b'1_0000000097', version=1),
                 trim_in(start_key=b'zz', end_key=b'zzz', version=1), trim_in(end=(100, 0), version=1),
                 trim_in(end=(2**32 - 1, 2**32 - 1), version=1), trim_in(end=(2**32 - 1, 2**32 - 1), version=1)):
        r.call('timeindex', 'trim', data)
        r.seen()
    r.object('timeindex-bad')
    r.write(b'data')
    r.bad_inputs('timeindex', ['add'], add(ti_entry((1, 0), b'x')))
    r.bad_inputs('timeindex', ['list'], list_in((1, 0), count=1))
    r.bad_inputs('timeindex', ['trim'], trim_in((5, 0), (6, 0), version=1))


def timeindex_many(r):
    def add(*entries): return sec(1, lst(list(entries)))

    r.object('timeindex-many')
    r.call('timeindex', 'add', add(*[ti_entry((i, 0), b'e') for i in range(1100)]))
    for count in (0, 1000, 1001, -1):
        r.call('timeindex', 'list', list_in((1, 0), count=count))
    r.call('timeindex', 'trim', trim_in(end=(2000, 0), version=1))
    r.call('timeindex', 'list', list_in((1, 0), count=10))


# numops

def numops(r):
    def num(method, key, text):
        r.call('numops', method, s(key) + s(text))

    r.object('numops')
    num('mul', b'k', b'3')
    r.seen()
    for n, text in enumerate((b'', b'  42', b'-0', b'1e22', b'1234567890123', b'12345678905', b'9999999999.9', b'0.0001',
                              b'0.00001', b'1e999', b'-inf', b'-NaN(a_1)', b'0x1.8p1', b'0x1p-1074', b'1.', b'.5',
                              b'3\0x')):
        num('add', b'%02d' % n, text)
        num('add', b'%02d' % n, b'1.5')
        num('mul', b'%02d' % n, b'0.1')
    for text in (b' ', b'1 ', b'x', b'1e', b'+-1', b'0x', b'0x1p', b'nan(', b'1_0', b'\xff'):
        num('add', b'bad', text)
        num('mul', b'bad', text)
    r.seen()
    r.omapset('stored', b'no number')
    num('add', b'stored', b'1')
    num('mul', b'stored', b'1')
    r.omapset('stored', b'')
    num('add', b'stored', b'1')
    num('add', b'\xc3\xa9', b'1')
    for method in ('add', 'mul'):
        for data in (b'', b'\x01', s(b'k'), s(b'k') + s(b'1')[:-1], s(b'k') + u32(0xffffffff), s(b'k') + s(b'1') + b'more'):
            r.call('numops', method, data)
    r.seen()
    num('mul', b'', b'1')


# hello

def hello(r):
    everything = ('say_hello', 'record_hello', 'write_return_data', 'writes_dont_return_data',
                  'write_too_much_return_data', 'replay', 'turn_it_to_11', 'bad_reader', 'bad_writer')
    for method in everything:
        for data in (b'', b'name', b'n' * 100, b'n' * 101, b'\xc3\xa9\0\xff'):
            r.object(f'hello-{method}')
            r.call('hello', method, data)
            r.seen()
            r.write(b'some Data \xc3\xa9\xff')
            r.call('hello', method, data)
            r.seen()
    r.object('hello')
    r.call('hello', 'record_hello', b'you')
    r.call('hello', 'replay')
    r.call('hello', 'turn_it_to_11', by=1)
    r.call('hello', 'replay', b'ignored')
    r.seen()
    r.object('hello-long')
    r.write(b'ab' * 1000)
    r.call('hello', 'replay')
    r.call('hello', 'turn_it_to_11')
    r.seen()


# cas

def hobj(name, key=b'', snap=2**64 - 2, hash=0x12345678, pool=3, nspace=b'', mx=0):
    body = s(key) + s(name) + u64(snap) + u32(hash) + u8(mx) + s(nspace) + struct.pack('<q', pool)
    return sec(4, body, compat=3)
def chunk_in(source, data=b'chunk', flags=0): return sec(1, source, u64(flags), s(data))
def varint(v):
    out = b''
    while v > 0x7f:
        out, v = out + u8(v & 0x7f | 0x80), v >> 7
    return out + u8(v)
def signed(v): return varint(abs(v) << 1 | (v < 0))
def chunk_refs(kind, *body): return sec(1, u8(kind), sec(1, *body))


def cas(r):
    a, b = hobj(b'a'), hobj(b'b', nspace=b'ns', hash=0x87654321)
    clone, other = hobj(b'a', snap=4), hobj(b'a', pool=7)
    r.object('cas-absent')
    for method, data in (('chunk_get_ref', sec(1, a)), ('chunk_put_ref', sec(1, a)), ('references_chunk', s(b'x'))):
        r.call('cas', method, data)
    r.seen()
    r.object('cas')
    r.call('cas', 'chunk_create_or_get_ref', chunk_in(a))
    r.seen()
    r.call('cas', 'chunk_create_or_get_ref', chunk_in(a, b'other'))
    r.call('cas', 'chunk_create_or_get_ref', chunk_in(b, b'other', 1))
    r.call('cas', 'chunk_create_or_get_ref', chunk_in(b, b'chunk', 1))
    r.call('cas', 'chunk_get_ref', sec(1, clone))
    r.call('cas', 'chunk_get_ref', sec(1, other))
    r.call('cas', 'chunk_get_ref', sec(1, hobj(b'', pool=-2**63, snap=0, hash=0)))
    r.call('cas', 'chunk_get_ref', sec(1, hobj(b'', mx=1)))
    r.seen()
    r.call('cas', 'references_chunk', s(b'x'))
    r.call('cas', 'references_chunk', b'x')
    for source in (hobj(b'none'), a, a, a, b, clone, other):
        r.call('cas', 'chunk_put_ref', sec(1, source))
    r.seen()
    r.call('cas', 'chunk_put_ref', sec(1, hobj(b'', pool=-2**63, snap=0, hash=0)))
    r.call('cas', 'chunk_put_ref', sec(1, hobj(b'', mx=1)))
    r.seen()
    r.object('cas-without-refs')
    r.write(b'data')
    r.call('cas', 'chunk_put_ref', sec(1, a))
    r.call('cas', 'chunk_create_or_get_ref', chunk_in(a, b'data', 1))
    r.seen()
    r.call('cas', 'chunk_put_ref', sec(1, a))
    r.seen()
    r.object('cas-many')
    for n in range(60):
        r.call('cas', 'chunk_create_or_get_ref', chunk_in(hobj(b'o%02d' % n, hash=n * 0x01010101)))
    r.seen()
    kinds = {
        'hash': chunk_refs(2, varint(5), varint(12), varint(3), signed(-1) + b'\x01\x02' + varint(1),
                           signed(3) + b'\x78\x06' + varint(300), signed(200) + b'\xff\x0f' + varint(2)),
        'hash-one': chunk_refs(2, varint(1), varint(32), varint(1), signed(3) + u32(0x12345678) + varint(1)),
        'pool': chunk_refs(4, varint(3), varint(2), signed(3) + varint(2), signed(-5) + varint(1)),
        'pool-one': chunk_refs(4, varint(1), varint(1), signed(3) + varint(1)),
        'count': chunk_refs(5, u64(3)), 'count-one': chunk_refs(5, u64(1)), 'count-none': chunk_refs(5, u64(0)),
        'partial': chunk_refs(3, b''), 'none': chunk_refs(9, b''), 'rubbish': b'rubbish',
    }
    for name, refs in kinds.items():
        r.object('cas-' + name)
        r.write(b'data')
        r.setxattr('chunk_refs', refs)
        r.call('cas', 'chunk_get_ref', sec(1, a))
        r.call('cas', 'chunk_create_or_get_ref', chunk_in(other))
        r.seen()
        r.call('cas', 'chunk_put_ref', sec(1, hobj(b'none', pool=99)))
        for source in (a, b, other, a):
            r.call('cas', 'chunk_put_ref', sec(1, source))
        r.seen()
    r.object('cas-bad')
    r.call('cas', 'chunk_create_or_get_ref', chunk_in(a))
    r.bad_inputs('cas', ['chunk_get_ref', 'chunk_put_ref'], sec(1, a))
    r.bad_inputs('cas', ['chunk_create_or_get_ref'], chunk_in(a))
    r.seen()


# journal

def position(*entries): return sec(1, lst([sec(1, u64(o), u64(t), u64(e)) for o, t, e in entries]))
def tag_in(tid, cls, data=b''): return u64(tid) + u64(cls) + s(data)


def tags_in(after, most, client, cls=None):
    return u64(after) + u64(most) + s(client) + (u8(0) if cls is None else u8(1) + u64(cls))


def journal(r):
    getters = ('get_order', 'get_splay_width', 'get_pool_id', 'get_minimum_set', 'get_active_set', 'get_next_tag_tid')

    def get_all():
        for method in getters:
            r.call('journal', method)
        r.call('journal', 'client_list', s(b'') + u64(100))

    r.object('journal-absent')
    get_all()
    for method, data in (('set_minimum_set', u64(0)), ('set_active_set', u64(0)), ('client_register', s(b'a') + s(b'')),
                         ('client_update_data', s(b'a') + s(b'')), ('client_update_state', s(b'a') + u8(0)),
                         ('client_unregister', s(b'a')), ('client_commit', s(b'a') + position()),
                         ('tag_create', tag_in(0, 0)), ('get_tag', u64(0)), ('tag_list', tags_in(0, 9, b'a')),
                         ('guard_append', u64(0)), ('guard_append', u64(9))):
        r.call('journal', method, data)
    r.seen()

    r.object('journal')
    created = u8(24) + u8(4) + u64(-1)
    r.call('journal', 'create', created)
    r.seen()
    r.call('journal', 'create', created)
    get_all()
    for method, number in (('set_minimum_set', 1), ('set_active_set', 3), ('set_active_set', 3), ('set_active_set', 2),
                           ('set_minimum_set', 4), ('set_minimum_set', 2), ('set_minimum_set', 2),
                           ('set_minimum_set', 1), ('set_active_set', 1), ('set_active_set', 2**64 - 1)):
        r.call('journal', method, u64(number))
        get_all()
    r.seen()
    for client, data in ((b'', b'data'), (b'', b'again'), (b'b', b''), (b'a', b'x' * 40)):
        r.call('journal', 'client_register', s(client) + s(data))
    r.seen()
    for start, most in ((b'', 9), (b'', 2), (b'', 1), (b'', 0), (b'a', 9), (b'b', 9), (b'0', 1), (b'c', 1)):
        r.call('journal', 'client_list', s(start) + u64(most))
    for client in (b'', b'a', b'none'):
        r.call('journal', 'get_client', s(client))
        r.call('journal', 'client_update_data', s(client) + s(b'new'))
        r.call('journal', 'client_commit', s(client) + position((1, 2, 3)))
        r.call('journal', 'client_update_state', s(client) + u8(7))
        r.call('journal', 'get_client', s(client))
        r.call('journal', 'client_update_state', s(client) + u8(0))
    r.call('journal', 'client_commit', s(b'a') + position((1, 2, 3)))
    r.call('journal', 'client_commit', s(b'a') + position(*[(n, 1, n) for n in range(5)]))
    r.call('journal', 'client_commit', s(b'a') + position(*[(n, 1, n) for n in range(4)]))
    r.call('journal', 'client_register', s(b'late') + s(b''))
    r.call('journal', 'client_unregister', s(b'b'))
    r.call('journal', 'client_unregister', s(b'b'))
    r.call('journal', 'client_register', s(b'later') + s(b''))
    r.call('journal', 'client_update_state', s(b'a') + u8(1))
    r.call('journal', 'client_register', s(b'latest') + s(b''))
    r.seen()

    r.object('journal-tags')
    r.call('journal', 'create', u8(12) + u8(2) + u64(3))
    r.call('journal', 'client_register', s(b'c') + s(b''))
    r.call('journal', 'tag_list', tags_in(0, 9, b'c'))
    for tid, cls in ((1, -1), (0, 0), (0, 5), (0, -1), (0, -1), (1, 0), (2, -1), (3, 1), (4, 0), (5, 2), (5, 1), (7, 1)):
        r.call('journal', 'tag_create', tag_in(tid, cls, b'tag%d' % tid))
        r.call('journal', 'get_next_tag_tid')
    r.seen()
    r.call('journal', 'get_tag', u64(3))
    r.call('journal', 'get_tag', u64(30))

    def lists():
        for after, most, cls in ((0, 9, None), (0, 0, None), (0, 2, None), (2, 9, None), (9, 9, None), (0, 9, 0),
                                 (0, 9, 1), (0, 1, 1), (3, 0, 1), (0, 9, 7)):
            r.call('journal', 'tag_list', tags_in(after, most, b'c', cls))
    lists()
    r.call('journal', 'tag_list', tags_in(0, 9, b'none'))
    r.call('journal', 'client_commit', s(b'c') + position((1, 3, 3), (2, 4, 2)))
    lists()
    r.call('journal', 'tag_create', tag_in(6, 0))
    r.seen()
    r.call('journal', 'client_register', s(b'd') + s(b''))
    r.call('journal', 'client_commit', s(b'c') + position((2**64 - 1, 2**64 - 1, 2**64 - 1)))
    r.call('journal', 'tag_create', tag_in(7, 0))
    lists()
    r.call('journal', 'client_commit', s(b'c') + position((1, 7, 3)))
    lists()
    r.call('journal', 'tag_create', tag_in(8, 0))
    r.seen()
    r.call('journal', 'client_update_state', s(b'd') + u8(1))
    r.call('journal', 'tag_create', tag_in(9, 0))
    r.seen()
    r.call('journal', 'client_update_state', s(b'd') + u8(0))
    r.call('journal', 'client_commit', s(b'c') + position((1, 9, 3)))
    r.call('journal', 'client_unregister', s(b'd'))
    r.seen()
    r.call('journal', 'client_unregister', s(b'c'))
    r.seen()
    for key, value in (('client_bad', b'bad'), ('tag_%016x' % 20, b'bad'), ('order', b'')):
        r.omapset(key, value)
    for method, data in (('get_client', s(b'bad')), ('get_tag', u64(20)), ('client_list', s(b'') + u64(9)),
                         ('get_order', b''), ('client_register', s(b'e') + s(b'')), ('tag_create', tag_in(10, 0))):
        r.call('journal', method, data)

    r.object('journal-many')
    r.call('journal', 'create', u8(12) + u8(2) + u64(3))
    r.call('journal', 'client_register', s(b'c') + s(b''))
    for n in range(150):
        r.call('journal', 'tag_create', tag_in(n, n % 3 if n > 2 else -1))
    for commit in (64, 140):
        r.call('journal', 'client_commit', s(b'c') + position((1, commit, 3)))
        r.call('journal', 'tag_list', tags_in(0, 200, b'c'))
        r.call('journal', 'tag_list', tags_in(0, 64, b'c', 1))
    r.call('journal', 'tag_create', tag_in(150, 1))
    r.seen()

    r.object('journal-entries')
    r.call('journal', 'append', u64(0) + s(b'none'))
    for data in (b'first', b'', b'second'):
        r.call('journal', 'append', u64(10) + s(data))
        r.call('journal', 'guard_append', u64(10))
        r.seen()
    r.call('journal', 'append', u64(10) + s(b'third'))
    r.call('journal', 'append', u64(12) + s(b'third'))
    r.seen()

    r.object('journal-bad')
    r.call('journal', 'create', u8(12) + u8(2) + u64(3))
    for method, good in (('create', created), ('set_minimum_set', u64(0)), ('client_register', s(b'a') + s(b'data')),
                         ('client_commit', s(b'a') + position((1, 2, 3))), ('client_list', s(b'') + u64(9)),
                         ('tag_create', tag_in(0, -1)), ('tag_list', tags_in(0, 9, b'a', 1)),
                         ('append', u64(9) + s(b'x'))):
        r.bad_inputs('journal', [method], good)
    r.seen()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('conf')
    p.add_argument('pool')
    p.add_argument('out')
    p.add_argument('only', nargs='*')
    args = p.parse_args()
    os.makedirs(args.out, exist_ok=True)
    r = Recorder(args.conf, args.pool)
    from record_rbd import rbd
    from record_fifo import fifo
    from record_otp import otp
    from record_queue import queue, rgw_gc, two_phase_queue
    from record_rbd_pool import rbd_pool
    from record_rgw_index import rgw_index
    from record_rgw_lists import rgw_garbage, rgw_lifecycle, rgw_object, rgw_reshard, rgw_usage
    from record_user import cmpomap, user
    for scenario in (cas, cmpomap, fifo, hello, journal, lock, log, log_many, numops, otp, queue, rbd, rbd_pool, refcount,
                     rgw_garbage, rgw_gc, rgw_index, rgw_lifecycle, rgw_object, rgw_reshard, rgw_usage, timeindex,
                     timeindex_many, two_phase_queue, user, version):
        name = scenario.__name__
        if not args.only or name in args.only:
            scenario(r)
            r.finish(os.path.join(args.out, name + '.txt'))


if __name__ == '__main__':
    main()
