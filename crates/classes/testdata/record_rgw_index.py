"""What record.py records of the class rgw's methods of a bucket index.

The keys of an index hold bytes that python3-rados can't read, so the omap is read with librados itself.
"""
import ctypes

from record import hx, lst, s, sec, tm, u8, u16, u32, u64

ADD, DEL, CANCEL, UNKNOWN = range(4)
PLAIN, INSTANCE, OLH = 1, 2, 3
VER, CURRENT, DELETE_MARKER, VER_MARKER = 1, 2, 4, 8
LOG = b'\x800_'
INSTANCES = b'\x801000_'
OLHS = b'\x801001_'


# Structures

def packed(v):
    if v < 0x80:
        return u8(v)
    for mark, bits, most in ((0x81, 8, 0xff), (0x82, 16, 0xffff), (0x84, 32, 0x1000000)):
        if v <= most:
            return u8(mark) + v.to_bytes(bits // 8, 'little')
    return u8(0x88) + u64(v)
def key(name, instance=b''): return sec(1, s(name), s(instance))
def ver(pool=-1, epoch=0): return sec(1, packed(pool % 2**64), packed(epoch))
def meta(size=100, category=1, mtime=(1000, 5), accounted=None, version=7):
    body = [u8(category), u64(size), tm(*mtime), s(b'etag'), s(b'owner'), s(b'Owner')]
    newer = [s(b'text/plain'), b'', u64(size if accounted is None else accounted), s(b'user data'), s(b'STANDARD'), u8(1),
             u8(2) + tm(5000)]
    return sec(version, *body, *newer[:version - 1], compat=3)
SMALL = sec(3, u8(1), u64(1), tm(1), s(b'') * 4, compat=3)
def stats(size, rounded, count, actual=None):
    return sec(2 if actual is None else 3, u64(size), u64(rounded), u64(count), b'' if actual is None else u64(actual),
               compat=2)
def dir_entry(name, instance=b'', flags=0, epoch=0, exists=1, pending=(), index_ver=0, info=None, version=8):
    fields = [s(b'loc'), b'', ver(7, 3), packed(index_ver) + s(b'tag'), s(instance), u16(flags), u64(epoch)]
    return sec(version, s(name), u64(3), u8(exists), info or SMALL, lst(pending), *fields[:version - 1], compat=3)
def pending(tag, sec_, state=0, op=ADD): return s(tag) + sec(2, u8(state), tm(sec_), u8(op), compat=2)
def olh_log(epoch, op, tag, k, marker=0): return sec(1, u64(epoch), u8(op), s(tag), k, u8(marker))
def olh_entry(k, marker, epoch, log, tag, exists=1, removal=0):
    return sec(1, k, u8(marker), u64(epoch), lst([u64(e) + lst(entries) for e, entries in log]), s(tag), u8(exists),
               u8(removal))


# Inputs

def prepare_in(op, tag, k, log=1, zones=()):
    return sec(7, u8(op), s(tag), s(b'loc'), u8(log), k, u16(0), lst([s(z) for z in zones]), compat=5)
def complete_in(op, tag, k, v=(7, 1), info=None, remove=(), log=1, flags=0, zones=()):
    return sec(9, u8(op), u64(v[1]), info or meta(), s(tag), s(b'loc'), lst(remove), ver(*v), u8(log), k, u16(flags),
               lst([s(z) for z in zones]), compat=7)
def link_in(k, olh_tag=b'olh', marker=0, op_tag=b'op', info=None, epoch=0, log=1, flags=0, since=(0, 0), precise=0, zones=()):
    return sec(5, k, s(olh_tag), u8(marker), s(op_tag), info or meta(), u64(epoch), u8(log), u16(flags), u64(since[0]),
               tm(*since), u8(precise), lst([s(z) for z in zones]))
def unlink_in(k, op_tag=b'un', epoch=0, log=1, flags=0, olh_tag=b'olh', zones=()):
    return sec(3, k, s(op_tag), u64(epoch), u8(log), u16(flags), s(olh_tag), lst([s(z) for z in zones]))
def olh_log_in(name, marker=0, tag=b'olh', instance=b''): return sec(1, key(name, instance), u64(marker), s(tag))
def clear_in(name, tag=b'olh', instance=b''): return sec(1, key(name, instance), s(tag))
def list_in(count, prefix=b'', start=b'', instance=b'', versions=0, delimiter=b''):
    return sec(6, u32(count), s(prefix), key(start, instance), u8(versions), s(delimiter), compat=4)
def bi_get_in(kind, name, instance=b''): return sec(1, key(name, instance), u8(kind))
def bi_put_in(kind, idx, data): return sec(1, sec(1, u8(kind), s(idx), s(data)))
def bi_list_in(count, name=b'', marker=b''): return sec(1, u32(count), s(name), s(marker))
def bi_log_list_in(marker=b'', count=100): return sec(1, s(marker), u32(count))
def bi_log_trim_in(start=b'', end=b''): return sec(1, s(start), s(end))
def stats_in(absolute, *of): return sec(1, u8(absolute), lst([u8(c) + v for c, v in of]))
def instance_in(status, bucket=b'', shards=-1, version=1):
    return sec(version, u8(status), *([] if version == 2 else [s(bucket), u32(shards)]))
def guard_in(code): return sec(1, u32(code))
def suggestion(op, entry, log=0): return u8(ord(op) | (0x80 if log else 0)) + entry


class Index:
    """An index, whose changes tell the time and the version that the class took."""

    def __init__(self, r, name):
        self.r = r
        self.rados = ctypes.CDLL('librados.so.2')
        self.rados.rados_create_read_op.restype = ctypes.c_void_p
        cluster, self.io = ctypes.c_void_p(), ctypes.c_void_p()
        self.rados.rados_create(ctypes.byref(cluster), None)
        self.rados.rados_conf_read_file(cluster, r.conf.encode())
        assert self.rados.rados_connect(cluster) == 0
        self.rados.rados_ioctx_create(cluster, r.pool.encode(), ctypes.byref(self.io))
        self.object(name)

    def object(self, name):
        self.oid = name.encode()
        self.r.object(name)
        self.known = {}

    def omap(self):
        lib, op, it = self.rados, ctypes.c_void_p(self.rados.rados_create_read_op()), ctypes.c_void_p()
        more, code = ctypes.c_ubyte(), ctypes.c_int()
        lib.rados_read_op_omap_get_vals2(op, None, None, ctypes.c_uint64(10000), ctypes.byref(it), ctypes.byref(more),
                                         ctypes.byref(code))
        found, result = {}, lib.rados_read_op_operate(op, self.io, self.oid, 0)
        while result == 0:
            k, v, kn, vn = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
            lib.rados_omap_get_next2(it, *map(ctypes.byref, (k, v, kn, vn)))
            if not k.value:
                break
            found[ctypes.string_at(k, kn.value)] = ctypes.string_at(v, vn.value)
        assert not more.value
        lib.rados_release_read_op(op)
        return None if result else found

    def changes(self):
        """The lines that the replay must know before the call that made them."""
        now = self.omap() or {}
        lines = []
        for k, v in now.items():
            if self.known.get(k) == v:
                continue
            if k.startswith(LOG) and k.count(b'.') == 2:
                lines.append(f"user_version {k.split(b'.')[1].decode()}")
                at = 14 + int.from_bytes(v[6:10], 'little')
                if v[at - 4:at] == bytes(4):
                    lines.append('now %d %d' % self.time(v, at))
            elif self.tag and self.tag + b'\x02\x02\x0a\0\0\0\0' in v:
                lines.append('now %d %d' % self.time(v, v.rindex(self.tag + b'\x02\x02') + len(self.tag) + 7))
        self.known = now
        return lines

    @staticmethod
    def time(value, at):
        return int.from_bytes(value[at:at + 4], 'little'), int.from_bytes(value[at + 4:at + 8], 'little')

    def call(self, method, data=b'', tag=b''):
        self.tag = tag and s(tag)
        return self.r.call('rgw', method, data, before=self.changes)

    def seen(self):
        """The header comes from a listing of no entry."""
        _, out = self.r.call('rgw', 'bucket_list', list_in(0))
        omap = self.omap()
        self.known = omap or {}
        if omap is None:
            self.r.out('absent')
        else:
            self.r.out('exists')
            for k, v in sorted(omap.items()):
                self.r.out(f'omap {hx(k)} {hx(v)}')
            header = out[12:12 + 6 + int.from_bytes(out[14:18], 'little')]
            if header != EMPTY_HEADER:
                self.r.out(f'header {hx(header)}')
        self.r.out('seen')

    def prepare(self, tag, k, op=ADD, **more):
        return self.call('bucket_prepare_op', prepare_in(op, tag, k, **more), tag)

    def complete(self, tag, k, op=ADD, **more):
        return self.call('bucket_complete_op', complete_in(op, tag, k, **more))

    def new(self, name, **more):
        """Adds an entry without preparing it, which only an epoch of 0 allows."""
        return self.complete(b'', key(name), v=(7, 0), **more)

    def add(self, name, instance=b'', **more):
        self.prepare(b't-' + name, key(name, instance))
        self.complete(b't-' + name, key(name, instance), log=0, **more)

    def put(self, idx, data, kind=PLAIN):
        return self.call('bi_put', bi_put_in(kind, idx, data))

    def lists(self, *inputs):
        for data in inputs:
            self.call('bucket_list', data)


EMPTY_HEADER = sec(7, u32(0), u64(0) * 3, s(b''), sec(1, u8(0), s(b''), u32(-1)), u8(0), compat=2)


def rgw_index(r):
    x = Index(r, 'rgw-absent')
    absent(x)
    headers(x)
    plain(x)
    listings(x)
    suggestions(x)
    versions(x)
    null_versions(x)
    entries(x)
    logs(x)
    reshardings(x)
    bad(x)


GOOD = (('bucket_init_index', b''), ('bucket_set_tag_timeout', sec(1, u64(7))), ('bucket_list', list_in(10)),
        ('bucket_check_index', b''), ('bucket_rebuild_index', b''), ('bucket_update_stats', stats_in(0, (1, stats(1, 2, 3, 4)))),
        ('bucket_prepare_op', prepare_in(ADD, b'tag', key(b'a'))), ('bucket_complete_op', complete_in(DEL, b'', key(b'a'))),
        ('bucket_link_olh', link_in(key(b'a', b'i'))), ('bucket_unlink_instance', unlink_in(key(b'a', b'i'))),
        ('bucket_read_olh_log', olh_log_in(b'a')), ('bucket_trim_olh_log', olh_log_in(b'a')),
        ('bucket_clear_olh', clear_in(b'a')), ('bi_get', bi_get_in(PLAIN, b'a')), ('bi_put', bi_put_in(PLAIN, b'a', b'x')),
        ('bi_list', bi_list_in(10)), ('bi_log_list', bi_log_list_in()), ('bi_log_trim', bi_log_trim_in()),
        ('bi_log_resync', b''), ('bi_log_stop', b''), ('dir_suggest_changes', suggestion('u', dir_entry(b'a'))),
        ('set_bucket_resharding', sec(1, instance_in(1))), ('clear_bucket_resharding', sec(1)),
        ('guard_bucket_resharding', guard_in(-2300)), ('get_bucket_resharding', sec(1)))


def absent(x):
    for method, data in GOOD:
        if method == 'bucket_unlink_instance':
            continue  # That an instance is not there is no error to 16.2, but to newer releases.
        x.object('rgw-absent')
        x.call(method, data, b'tag')
        x.seen()


def headers(x):
    x.object('rgw-header')
    x.call('bucket_init_index')
    x.seen()
    x.call('bucket_init_index', b'ignored')
    x.call('bucket_set_tag_timeout', sec(1, u64(2**64 - 1)))
    x.call('bucket_update_stats', stats_in(0, (1, stats(100, 4096, 2, 90)), (0, stats(1, 1, 1))))
    x.seen()
    x.call('bucket_update_stats', stats_in(0, (1, stats(-1, -1, -1, -91)), (3, stats(5, 6, 7, 8))))
    x.seen()
    x.call('bucket_update_stats', stats_in(1, (1, stats(5, 4096, 1, 5)), (200, stats(5, 4096, 1, 5))))
    x.call('bucket_update_stats', stats_in(0))
    x.seen()


def plain(x):
    x.object('rgw-plain')
    x.call('bucket_init_index')
    a, b = key(b'a'), key(b'b')
    x.prepare(b't1', a)
    x.seen()
    x.prepare(b't2', a, DEL)
    x.prepare(b't2', a, CANCEL)
    x.prepare(b'', a)
    x.seen()
    x.complete(b'none', a)
    x.complete(b't1', a, info=meta(5000, accounted=5001), zones=(b'zone-2:bucket', b'zone-1', b'zone'), flags=1)
    x.seen()
    x.complete(b't2', a, DEL, v=(7, 2))
    x.seen()
    x.complete(b't2', a, DEL, v=(7, 3))
    x.seen()
    x.complete(b't2', a, DEL, v=(7, 3))
    # Without a tag, as clients did once.
    x.complete(b'', a, v=(7, 0))
    x.complete(b'', a, v=(7, 4), log=0, info=meta(9, category=3))
    x.seen()
    for v in ((7, 4), (7, 3), (8, 3), (8, 2), (7, 0), (2**40, 2**40)):
        x.complete(b'', a, v=v)
    x.seen()
    x.complete(b'', a, CANCEL, v=(7, 5))
    x.complete(b'', a, UNKNOWN, v=(7, 6))
    x.complete(b'', a, 9, v=(7, 7))
    x.complete(b'', b, DEL, v=(7, 7))
    x.seen()
    # An operation that is cancelled leaves the entry, or nothing.
    x.object('rgw-cancel')
    x.new(b'a', log=0)
    for k, op in ((b, ADD), (a, ADD)):
        x.prepare(b'c', k, op)
        x.prepare(b'd', k, op)
        x.complete(b'c', k, CANCEL)
        x.seen()
        x.complete(b'd', k, CANCEL)
        x.seen()
    # Deleted while another operation is pending.
    x.object('rgw-pending')
    x.add(b'b')
    x.prepare(b'e', b, DEL)
    x.prepare(b'f', b)
    x.complete(b'e', b, DEL, v=(7, 8))
    x.seen()
    x.complete(b'f', b, v=(7, 2))
    x.seen()
    # A completed upload removes the entries of its parts.
    x.object('rgw-parts')
    for name in (b'part1', b'part2'):
        x.add(name, info=meta(4096, category=3))
    x.prepare(b'm', key(b'whole'))
    x.complete(b'm', key(b'whole'), info=meta(8192), remove=[key(b'part1'), key(b'none'), key(b'part2')], log=0)
    x.seen()
    # Metadata of every version.
    x.object('rgw-old')
    for version in range(3, 8):
        x.new(b'v%d' % version, info=meta(10, accounted=20, version=version), log=0)
    x.complete(b'', key(b'older'), v=(7, 9))
    x.new(b'older')
    for version in (7, 8):
        more = [u16(0)][:version - 7]
        x.call('bucket_complete_op', sec(version, u8(ADD), u64(0), meta(), s(b''), s(b'loc'), lst([]), ver(7, 0), u8(1),
                                         key(b'older'), *more, compat=7))
    x.call('bucket_prepare_op', sec(5, u8(ADD), s(b'tag'), s(b'loc'), u8(1), key(b'older'), compat=5), b'tag')
    x.seen()
    x.object('rgw-sizes')
    for size in (0, 1, 4095, 4096, 4097, 2**64 - 1):
        x.new(b'size', info=meta(size), log=0)
        x.seen()
    x.object('rgw-old-entries')
    for n in range(3, 8):
        x.put(b'old%d' % n, dir_entry(b'old%d' % n, version=n))
        x.prepare(b'p', key(b'old%d' % n))
    x.seen()
    x.put(b'bad', b'bad')
    x.prepare(b'p', key(b'bad'))
    x.complete(b'', key(b'bad'))
    x.new(b'good', remove=[key(b'bad')])
    x.seen()


def listings(x):
    x.object('rgw-list')
    x.call('bucket_init_index')
    x.lists(list_in(10))
    names = [b'a', b'a/', b'a/1', b'a/2', b'a/b/1', b'b', b'c/1', b'c/2', b'd', b'\x7f', '\u00e9/1'.encode(),
             '\u00e9/2'.encode(), '\u20ac'.encode()]
    for name in names:
        x.new(name, info=SMALL, log=0)
    x.prepare(b'new', key(b'bb'))
    for idx in (LOG + b'1', INSTANCES + b'x\0ii', OLHS + b'x', b'\x80', b'\x809999_'):
        x.put(idx, b'no entry')
    for count in (0, 1, 2, 8, 12, 13, 14, 2**32 - 1):
        x.lists(list_in(count))
    for start in (b'a', b'a/2', b'aa', b'bb', b'd', b'\x7f', b'\x80', b'\x81', '\u00e9/1'.encode(), '\u20ac'.encode(), b'\xff'):
        x.lists(list_in(3, start=start), list_in(3, start=start, versions=1))
    for prefix in (b'a', b'a/', b'c', '\u00e9'.encode(), b'none', b'\x80', b'\x801'):
        for count in (1, 2, 100):
            x.lists(list_in(count, prefix), list_in(count, prefix, delimiter=b'/'))
    for count in (1, 2, 3, 5, 7, 8, 9, 10):
        x.lists(list_in(count, delimiter=b'/'), list_in(count, start=b'a/', delimiter=b'/'))
    for start in (b'a', b'a/1', b'c/', b'c/2', '\u00e9/'.encode()):
        x.lists(list_in(2, start=start, delimiter=b'/'), list_in(2, b'a/', start, delimiter=b'/'))
    x.lists(list_in(5, delimiter=b'/1'), list_in(5, b'c', delimiter=b'/'), list_in(5, start=b'a', instance=b'none'),
            list_in(5, start=b'a', instance=b'null'))
    for version, data in ((4, [u32(3), s(b'c'), key(b'c/1')]), (5, [u32(3), s(b'c'), key(b'c/1'), u8(1)])):
        x.lists(sec(version, *data, compat=2))
    x.call('bucket_check_index')
    x.put(b'bad', b'bad')
    x.lists(list_in(100), list_in(100, b'c'), list_in(3))
    # Twenty common prefixes of five each, with a limit below what a prefix holds.
    x.object('rgw-list-folders')
    for n in range(100):
        x.put(b'%02d/%d' % (n // 5, n % 5), dir_entry(b'%02d/%d' % (n // 5, n % 5)))
    for count in (1, 2, 3, 7, 20, 21):
        x.lists(list_in(count, delimiter=b'/'), list_in(count, b'0', delimiter=b'/'),
                list_in(count, start=b'07/', delimiter=b'/'), list_in(count, start=b'07/2', delimiter=b'/'))
    # Entries that are never listed.
    x.object('rgw-list-hidden')
    for n in range(40):
        flags = (VER, VER_MARKER, VER | CURRENT | DELETE_MARKER, VER)[n % 4]
        x.put(b'%02d' % n, dir_entry(b'%02d' % n, flags=flags))
    x.put(b'40', dir_entry(b'40', flags=VER | CURRENT))
    x.put(b'41\0v913\0ii', dir_entry(b'41', b'i', flags=VER | CURRENT))
    x.put(b'42\0vx\0ii', dir_entry(b'42', b'i', flags=VER | CURRENT))
    for count in (1, 3, 5, 6, 41, 100):
        x.lists(list_in(count), list_in(count, versions=1))


def suggestions(x):
    x.object('rgw-suggest')
    x.call('bucket_init_index')
    def suggest(*changes): return x.call('dir_suggest_changes', b''.join(changes))
    for name in (b'a', b'b', b'c', b'd'):
        x.new(name, info=meta(100))
    x.seen()
    suggest()
    suggest(suggestion('r', dir_entry(b'none', index_ver=99), 1))
    suggest(suggestion('r', dir_entry(b'a', index_ver=0), 1))
    x.seen()
    suggest(suggestion('r', dir_entry(b'a', index_ver=9), 1))
    x.seen()
    suggest(suggestion('u', dir_entry(b'b', index_ver=9, info=meta(7)), 1), suggestion('r', dir_entry(b'c', index_ver=9)))
    x.seen()
    suggest(suggestion('x', dir_entry(b'b', index_ver=99)))
    x.seen()
    suggest(suggestion('u', dir_entry(b'b', index_ver=99, exists=0, info=meta(7, category=3))))
    x.seen()
    # Operations that are pending keep a suggestion away, until they time out.
    x.prepare(b'p', key(b'd'))
    suggest(suggestion('r', dir_entry(b'd', index_ver=99), 1))
    x.seen()
    x.put(b'd', dir_entry(b'd', pending=[pending(b'p', 1000), pending(b'q', 4000000000)]))
    suggest(suggestion('r', dir_entry(b'd', index_ver=99), 1))
    x.seen()
    x.put(b'd', dir_entry(b'd', pending=[pending(b'p', 1000), pending(b'q', 2000)], exists=0))
    suggest(suggestion('r', dir_entry(b'd', index_ver=99), 1))
    x.seen()
    x.call('bucket_set_tag_timeout', sec(1, u64(2**32)))
    x.put(b'e', dir_entry(b'e', pending=[pending(b'p', 1000)]))
    suggest(suggestion('u', dir_entry(b'e', index_ver=99), 1))
    x.seen()
    x.put(b'f', b'')
    suggest(suggestion('u', dir_entry(b'f', index_ver=1), 1))
    x.seen()
    x.put(b'f', b'bad')
    suggest(suggestion('u', dir_entry(b'f'), 1))
    suggest(suggestion('r', dir_entry(b'b', index_ver=99)), b'u')
    x.put(INSTANCES + b'g\0ii', dir_entry(b'g', b'i', flags=VER))
    suggest(suggestion('u', dir_entry(b'g', b'i', flags=VER, info=meta(3)), 1))
    x.call('bi_log_stop')
    suggest(suggestion('u', dir_entry(b'b', index_ver=99), 1))
    suggest(suggestion('r', dir_entry(b'b', index_ver=99), 1))
    x.seen()


def versions(x):
    x.object('rgw-versions')
    x.call('bucket_init_index')
    def link(instance, name=b'o', **more): return x.call('bucket_link_olh', link_in(key(name, instance), **more))
    def unlink(instance, name=b'o', **more): return x.call('bucket_unlink_instance', unlink_in(key(name, instance), **more))
    link(b'none')
    for n, instance in enumerate((b'i1', b'i2', b'i3')):
        x.add(b'o', instance, info=meta(100 + n, mtime=(1000 + n, n)))
        x.seen()
        link(instance, op_tag=b'op' + instance, zones=(b'zone',))
        x.seen()
    x.add(b'o', b'i4')
    link(b'i4', olh_tag=b'other')
    link(b'i4', log=0, since=(1000, 5))
    link(b'i4', log=0, since=(1000, 6), precise=1)
    x.seen()
    link(b'i4', log=0, since=(999, 0))
    link(b'i2', log=0)
    x.seen()
    link(b'i3', log=0, epoch=3)
    link(b'i3', log=0, epoch=6)
    link(b'i4', log=0, epoch=6)
    link(b'i1', log=1, epoch=9, flags=4)
    x.seen()
    for data in (list_in(100), list_in(100, versions=1), list_in(2, versions=1), list_in(100, start=b'o', versions=1),
                 list_in(100, start=b'o'), list_in(100, start=b'o', instance=b'i3', versions=1),
                 list_in(100, start=b'o', instance=b'i9', versions=1)):
        x.lists(data)
    for data in (olh_log_in(b'o'), olh_log_in(b'o', 3), olh_log_in(b'o', 9), olh_log_in(b'o', 2**64 - 1),
                 olh_log_in(b'o', tag=b'bad'), olh_log_in(b'o', instance=b'i1'), olh_log_in(b'none'),
                 olh_log_in(b'none', tag=b'')):
        x.call('bucket_read_olh_log', data)
    for data in (olh_log_in(b'o', tag=b'bad'), olh_log_in(b'o', instance=b'i1'), olh_log_in(b'none'), olh_log_in(b'o', 1),
                 olh_log_in(b'o', 4), olh_log_in(b'o', 2**64 - 1)):
        x.call('bucket_trim_olh_log', data)
        x.seen()
    # A delete marker, and what removes it.
    link(b'd1', marker=1, info=meta(0, category=0))
    x.seen()
    x.lists(list_in(100), list_in(100, versions=1))
    x.add(b'o', b'i5')
    link(b'i5')
    link(b'i5', marker=1)
    x.seen()
    unlink(b'i5')
    x.seen()
    unlink(b'i2', log=0)
    unlink(b'd1', zones=(b'zone',), flags=2)
    x.seen()
    unlink(b'i4', epoch=1)
    unlink(b'i3', epoch=30, log=0)
    x.seen()
    for instance in (b'i1', b'i3', b'i4'):
        unlink(instance)
        x.complete(b'', key(b'o', instance), DEL)
        x.seen()
    x.call('bucket_read_olh_log', olh_log_in(b'o'))
    x.call('bucket_clear_olh', clear_in(b'o', b'bad'))
    x.call('bucket_clear_olh', clear_in(b'o', instance=b'i'))
    # While the removal is pending, another entry may take its place.
    x.add(b'o', b'i6')
    link(b'i6', olh_tag=b'second')
    x.seen()
    unlink(b'i6', olh_tag=b'second')
    x.call('bucket_clear_olh', clear_in(b'o', b'second'))
    x.seen()
    x.call('bucket_clear_olh', clear_in(b'o', b''))
    x.seen()
    x.put(b'o', dir_entry(b'o'))
    x.put(OLHS + b'o', olh_entry(key(b'o', b'x'), 0, 3, [(3, [olh_log(3, 1, b't', key(b'o', b'x'))])], b'olh'))
    x.call('bucket_clear_olh', clear_in(b'o'))
    x.seen()
    # What is stored damaged.
    for idx in (OLHS + b'p', INSTANCES + b'p\0ii', INSTANCES + b'q\0ii'):
        x.put(idx, b'bad')
    x.add(b'p', b'j')
    for instance in (b'i', b'j'):
        link(instance, b'p')
        unlink(instance, b'p')
    x.lists(list_in(10, start=b'p', instance=b'i', versions=1))
    for method, data in (('bucket_read_olh_log', olh_log_in(b'p')), ('bucket_trim_olh_log', olh_log_in(b'p')),
                         ('bucket_clear_olh', clear_in(b'p'))):
        x.call(method, data)
    # The log is stopped.
    x.call('bi_log_stop')
    x.add(b'r', b'i1')
    link(b'i1', b'r')
    unlink(b'i1', b'r')
    x.seen()


def null_versions(x):
    """Objects from before their bucket was versioned, and those of a bucket whose versioning is suspended."""
    x.object('rgw-null')
    x.call('bucket_init_index')
    def link(instance, **more): return x.call('bucket_link_olh', link_in(key(b'o', instance), **more))
    def unlink(instance, **more): return x.call('bucket_unlink_instance', unlink_in(key(b'o', instance), **more))
    x.add(b'o')
    x.add(b'o', b'i1')
    link(b'i1')
    x.seen()
    x.lists(list_in(100), list_in(100, versions=1), list_in(100, start=b'o', instance=b'null', versions=1))
    x.add(b'o')
    x.seen()
    link(b'')
    x.seen()
    link(b'', marker=1)
    x.seen()
    x.add(b'o')
    link(b'')
    x.seen()
    unlink(b'null')
    x.seen()
    unlink(b'')
    x.seen()
    unlink(b'i1')
    x.seen()
    # A delete marker over a plain entry.
    for instance in (b'd', b''):
        x.object('rgw-null-marker')
        x.add(b'o')
        link(instance, marker=1)
        x.seen()
        x.add(b'o', b'i')
        link(b'i')
        x.seen()
        unlink(instance)
        x.seen()
    # Epochs of another zone that are older than what is there. To 16.2 a delete marker
    # may not follow another one, to newer releases it may.
    x.object('rgw-stale')
    for instance in (b'i', b'd', b'j'):
        x.add(b'o', instance)
        link(instance, marker=instance == b'd')
    link(b'i', epoch=1, marker=1)
    x.seen()
    unlink(b'd', epoch=1)
    x.seen()
    unlink(b'j', epoch=3)
    x.seen()
    x.object('rgw-null-unlink')
    x.add(b'o')
    unlink(b'')
    x.seen()
    x.object('rgw-null-unlink-named')
    x.add(b'o')
    unlink(b'null')
    x.seen()
    x.object('rgw-null-olh')
    x.add(b'o')
    link(b'')
    x.seen()
    link(b'', epoch=1)
    x.seen()
    unlink(b'', epoch=1)
    x.seen()
    x.call('bucket_check_index')
    x.call('bucket_rebuild_index')
    x.seen()


def entries(x):
    x.object('rgw-bi')
    for name in (b'a', b'aa', b'b', b'c', '\u00e9'.encode(), '\u00e9b'.encode()):
        x.put(name, dir_entry(name))
    for n, name in enumerate((b'a', b'aa', b'b', '\u00e9'.encode())):
        for instance in (b'', b'1'):
            x.put(INSTANCES + name + b'\0i' + instance, dir_entry(name, instance, VER, 3), INSTANCE)
            x.put(name + b'\0v912\0i' + instance, dir_entry(name, instance, VER, 3))
        x.put(OLHS + name, olh_entry(key(name, b'1'), n % 2, 3, [], b'olh'), OLH)
    x.put(LOG + b'00000000001.1.1', b'not read')
    x.seen()
    for kind in range(5):
        for name, instance in ((b'a', b''), (b'a', b'1'), (b'none', b''), (b'none', b'1')):
            x.call('bi_get', bi_get_in(kind, name, instance))
    for count in (0, 1, 6, 9, 10, 11, 20, 25, 26, 27, 1001):
        x.call('bi_list', bi_list_in(count))
    for name in (b'a', b'aa', b'b', b'c', b'none', '\u00e9'.encode()):
        for count in (1, 3, 4, 5, 6, 7):
            x.call('bi_list', bi_list_in(count, name))
    for marker in (b'a', b'b', b'c', b'd', b'\x80', LOG + b'00000000001.1.1', INSTANCES, INSTANCES + b'a\0i', INSTANCES + b'a\0i1',
                   INSTANCES + b'b\0i1', OLHS, OLHS + b'a', OLHS + b'b', b'\x809999_', b'\x81', '\u00e9'.encode(),
                   '\u00e9b'.encode(), b'\xff'):
        for name, count in ((b'', 1), (b'', 4), (b'a', 4), ('\u00e9'.encode(), 4)):
            x.call('bi_list', bi_list_in(count, name, marker))
    x.call('bucket_check_index')
    x.call('bi_put', bi_put_in(9, b'raw', b'bad'))
    x.seen()
    for count, name, marker in ((100, b'', b''), (3, b'', b''), (100, b'raw', b''), (100, b'', INSTANCES)):
        x.call('bi_list', bi_list_in(count, name, marker))
    for method in ('bucket_check_index', 'bucket_rebuild_index'):
        x.call(method)
    for idx in (INSTANCES + b'zz', OLHS + b'zz'):
        x.object('rgw-bi-bad')
        x.put(idx, b'bad')
        x.call('bi_list', bi_list_in(100))
        x.call('bucket_check_index')
    for order in ((b'a',), (b'a', OLHS + b'a'), ('\u00e9'.encode(),), (INSTANCES + b'a\0i1',), (LOG + b'1',)):
        x.object('rgw-bi-few')
        for idx in order:
            x.put(idx, olh_entry(key(b'a', b'1'), 0, 3, [], b'olh') if idx.startswith(OLHS) else dir_entry(b'a'))
        for count in (1, 2, 3):
            x.call('bi_list', bi_list_in(count))
            x.call('bi_list', bi_list_in(count, b'a'))


def logs(x):
    x.object('rgw-log')
    x.call('bucket_init_index')
    x.call('bi_log_list', bi_log_list_in())
    x.call('bi_log_trim', bi_log_trim_in())
    for n in range(5):
        x.new(b'%d' % n, zones=(b'z',))
    x.call('bi_log_stop')
    x.seen()
    x.new(b'while stopped')
    x.call('bi_log_resync')
    x.new(b'after')
    x.seen()
    ids = sorted(k[len(LOG):] for k in x.omap() if k.startswith(LOG))
    for count in (0, 1, 3, 8, 9, 10, 2**32 - 1):
        x.call('bi_log_list', bi_log_list_in(count=count))
    for marker in (b'0', b'00000000002', ids[0], ids[3], ids[-1], b'9'):
        x.call('bi_log_list', bi_log_list_in(marker, 2))
    for start, end in ((ids[2], ids[1]), (b'', b'00000000001'), (b'', ids[0]), (b'', ids[0]), (ids[1], ids[2]), (ids[4], b''),
                       (b'', ids[-1]), (b'', b''), (b'9', b'')):
        x.call('bi_log_trim', bi_log_trim_in(start, end))
        x.seen()
    x.put(OLHS + b'x', b'x')
    x.call('bi_log_list', bi_log_list_in())
    x.call('bi_log_trim', bi_log_trim_in())
    # Entries of older versions.
    for version in (1, 2, 3):
        more = [s(b'inst') + u16(1), s(b'own') + s(b'Own')]
        x.put(LOG + b'%d' % version, sec(version, s(b'%d' % version), s(b'obj'), tm(5), ver(1, 2), s(b'tag'), u8(1), u8(1),
                                         packed(300), *more[:version - 1]))
    x.call('bi_log_list', bi_log_list_in())
    x.put(LOG + b'4', b'bad')
    x.call('bi_log_list', bi_log_list_in())
    x.call('bi_log_list', bi_log_list_in(count=3))
    x.put(b'\x801000_', b'bad')
    x.call('bi_log_list', bi_log_list_in(b'4'))


def reshardings(x):
    x.object('rgw-reshard')
    x.call('bucket_init_index')
    def status():
        for code in (-2300, -1, 0):
            x.call('guard_bucket_resharding', guard_in(code))
        x.call('get_bucket_resharding', sec(1))
        x.seen()
    status()
    for entry in (instance_in(1, b'new', 11), instance_in(2, b'new', 11), instance_in(0, b'', 3), instance_in(3), instance_in(9)):
        x.call('set_bucket_resharding', sec(1, entry))
        status()
    x.call('set_bucket_resharding', sec(1, instance_in(1, b'new', 11)))
    x.call('clear_bucket_resharding', sec(1))
    status()


def bad(x):
    for method, good in GOOD:
        x.object('rgw-bad')
        if method in ('bucket_init_index', 'bucket_check_index', 'bucket_rebuild_index', 'bi_log_resync', 'bi_log_stop'):
            continue
        x.call('bucket_init_index')
        if method == 'bucket_unlink_instance':
            x.put(INSTANCES + b'a\0ii', dir_entry(b'a', b'i', VER))
        for data in (b'', b'\x01', good[:-1], good[:6], b'\x63\x63' + good[2:], good + b'more'):
            x.call(method, data, b'tag')
        if method != 'bi_list':  # Its second version has a field more.
            x.call(method, b'\x63' + good[1:], b'tag')
        x.seen()
