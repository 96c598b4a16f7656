"""What record.py records of the class rgw but for the bucket index: its lists, and steps of requests on objects."""
import struct
import time

from record import lst, s, sec, tm, u8, u32, u64


def clock(r):
    ns = time.time_ns()
    r.out(f'now {ns // 10**9} {ns % 10**9}')


# Usage log

def usage_data(*counts): return sec(1, *map(u64, counts))


def usage(owner, bucket, epoch, categories=(), payer=b'', version=3):
    total = [sum(c[1][n] for c in categories) for n in range(4)]
    parts = [s(owner), s(bucket), u64(epoch), *map(u64, total)]
    if version > 1:
        parts.append(lst([s(name) + usage_data(*counts) for name, counts in categories]))
    if version > 2:
        parts.append(s(payer))
    return sec(version, *parts)


def usage_add(*entries): return sec(2, sec(1, lst(list(entries))), s(b''))


def usage_read(start=0, end=2**40, owner=b'', after=b'', most=0, bucket=b'', version=2):
    return sec(version, u64(start), u64(end), s(owner), s(after), u32(most), *([s(bucket)] if version > 1 else []))


def usage_trim(start=0, end=2**40, user=b'', bucket=b'', version=3):
    return sec(version, u64(start), u64(end), s(user), *([s(bucket)] if version > 2 else []), compat=2)


def rgw_usage(r):
    get, put = b'get_obj', b'put_obj'
    one = usage(b'user', b'bucket', 3600, [(get, (1, 2, 3, 4))])

    def reads(*owners):
        for owner in (b'',) + owners:
            for more in ({}, {'most': 1}, {'most': 3}, {'start': 7200}, {'end': 7200}, {'start': 3600, 'end': 3601},
                         {'start': 9, 'end': 9}, {'end': 0}, {'bucket': b'bucket'}, {'bucket': b'none'},
                         {'after': b'00000003600_user_bucket'}, {'after': b'user_00000003600_bucket'},
                         {'after': b'zz'}, {'after': b'\xff'}):
                r.call('rgw', 'user_usage_log_read', usage_read(owner=owner, **more))

    r.object('rgw-usage-none')
    r.call('rgw', 'user_usage_log_read', usage_read())
    r.call('rgw', 'user_usage_log_trim', usage_trim())
    r.call('rgw', 'user_usage_log_trim', b'bad')
    r.call('rgw', 'usage_log_clear')
    r.call('rgw', 'user_usage_log_add', usage_add())
    r.seen()

    r.object('rgw-usage')
    r.call('rgw', 'user_usage_log_add', usage_add(one))
    r.seen()
    r.call('rgw', 'user_usage_log_add', usage_add(one))
    r.seen()
    r.call('rgw', 'user_usage_log_add', usage_add(
        usage(b'user', b'bucket', 3600, [(b'', (2**64 - 1, 0, 0, 0)), (get, (1, 1, 1, 2**64 - 4)), (put, (1, 0, 0, 0))]),
        usage(b'user', b'bucket', 7200, [(get, (1, 0, 0, 0))]),
        usage(b'user', b'another', 7200, [(get, (1, 0, 0, 0))]),
        usage(b'user', b'', 7200, [(get, (1, 0, 0, 0))])))
    r.seen()
    # Two of one hour in a request: the later one replaces the earlier one.
    r.call('rgw', 'user_usage_log_add', usage_add(
        usage(b'twice', b'bucket', 7200, [(get, (1, 0, 0, 0))]), usage(b'twice', b'bucket', 7200, [(put, (2, 0, 0, 0))])))
    for n, owner in enumerate((b'tenant$user', b'tenant$$user', b'$user', b'$ns$user', b'tenant$ns$user', b'tenant$ns$u$er',
                               b'tenant$', b'', b'nul\0user', b'user_x', 'ü'.encode())):
        r.call('rgw', 'user_usage_log_add', usage_add(usage(owner, b'bucket', 10**10 + n, [(get, (1, 0, 0, 0))])))
    r.call('rgw', 'user_usage_log_add', usage_add(usage(b'user', b'nul\0bucket', 10800, [(get, (1, 0, 0, 0))]),
                                                  usage(b'owner', b'bucket', 10800, [(get, (1, 0, 0, 0))], b't$payer'),
                                                  usage(b'owner', b'bucket', 10800, [(get, (1, 0, 0, 0))], b't$'),
                                                  usage(b'', b'bucket', 10800, [(get, (1, 0, 0, 0))], b'payer'),
                                                  usage(b'huge', b'bucket', 2**64 - 1)))
    r.call('rgw', 'user_usage_log_add', usage_add(usage(b'', b'bucket', 10800, [(put, (1, 0, 0, 0))], b't$payer')))
    for version in (1, 2):
        r.call('rgw', 'user_usage_log_add', usage_add(usage(b'old%d' % version, b'bucket', 5, [(get, (1, 2, 3, 4))],
                                                            version=version)))
    r.call('rgw', 'user_usage_log_add', sec(1, sec(1, lst([usage(b'noname', b'bucket', 6)]))))
    r.seen()
    reads(b'user', b'tenant$user', b'owner', b't$payer', b'none', b'nul\0user', b'user_x')
    r.call('rgw', 'user_usage_log_read', usage_read(version=1))
    for trim in (usage_trim(end=5), usage_trim(end=6), usage_trim(end=7, version=2), usage_trim(start=3600, end=3600),
                 usage_trim(user=b'none'), usage_trim(bucket=b'none'), usage_trim(user=b'user', bucket=b'another'),
                 usage_trim(user=b'user', end=7200), usage_trim(user=b'tenant$user'), usage_trim(user=b'nul\0user')):
        r.call('rgw', 'user_usage_log_trim', trim)
        r.seen()
        r.call('rgw', 'user_usage_log_trim', trim)
    # Those with a payer are found for ever, but not removed.
    for trim in (usage_trim(user=b't$payer'), usage_trim(), usage_trim(end=2**64 - 1), usage_trim()):
        r.call('rgw', 'user_usage_log_trim', trim)
        r.seen()
    r.call('rgw', 'usage_log_clear', b'ignored')
    r.seen()
    r.call('rgw', 'user_usage_log_trim', usage_trim())
    r.call('rgw', 'user_usage_log_read', usage_read())

    r.object('rgw-usage-bad')
    r.omapset('00000003600_user_bucket', b'bad')
    r.call('rgw', 'user_usage_log_add', usage_add(usage(b'first', b'bucket', 1), one))
    r.call('rgw', 'user_usage_log_read', usage_read())
    r.call('rgw', 'user_usage_log_trim', usage_trim())
    r.seen()
    r.call('rgw', 'usage_log_clear')
    r.bad_inputs('rgw', ['user_usage_log_add'], usage_add(one))
    r.bad_inputs('rgw', ['user_usage_log_read'], usage_read(bucket=b'bucket'))
    r.bad_inputs('rgw', ['user_usage_log_trim'], usage_trim(bucket=b'none'))
    r.call('rgw', 'user_usage_log_add', usage_add(one[:-1]))
    r.call('rgw', 'user_usage_log_add', usage_add(b'\x63\x63' + one[2:]))
    # A count of 2**32 - 1 is left out: it ends the official OSD, which makes room for as many.
    r.seen()


# Garbage collection

def gc_obj(name, pool=b'pool', loc=b'', instance=b'', version=2):
    return sec(version, s(pool), s(name), s(loc), *([sec(1, s(name), s(instance))] if version > 1 else []))


def gc_info(tag, *objs, when=(0, 0)): return sec(1, s(tag), sec(1, lst(list(objs))), tm(*when))
def gc_set(seconds, info): return sec(1, u32(seconds), info)
def gc_defer(seconds, tag): return sec(1, u32(seconds), s(tag))
def gc_list(after=b'', most=0, expired=1, version=2): return sec(version, s(after), u32(most), *([u8(expired)] if version > 1 else []))
def gc_remove(*tags): return sec(1, lst([s(t) for t in tags]))


def rgw_garbage(r):
    def now(tag, seconds):
        """The OSD's time, from the time of an entry just stored."""
        def lines():
            when, nsec = struct.unpack('<II', dict(r.state()[2])[b'0_' + tag][-8:])
            return [f'now {(when - seconds) % 2**32} {nsec}']
        return lines

    def store(tag, seconds, *objs):
        r.call('rgw', 'gc_set_entry', gc_set(seconds, gc_info(tag, *objs, when=(9, 9))), before=now(tag, seconds))

    def lists():
        clock(r)
        keys = [k for k, _ in r.state()[2]]
        for after in [b'', b'0_', b'1_', b'2_'] + keys[:1] + keys[-2:]:
            for most in (0, 1, 2):
                for expired in (0, 1):
                    r.call('rgw', 'gc_list', gc_list(after, most, expired))
        r.call('rgw', 'gc_list', gc_list(version=1))
        r.call('rgw', 'gc_list', gc_list(most=2**32 - 1, expired=0))

    r.object('rgw-gc-none')
    r.call('rgw', 'gc_list', gc_list())
    r.call('rgw', 'gc_defer_entry', gc_defer(1, b'tag'))
    r.call('rgw', 'gc_remove', gc_remove(b'tag'))
    r.call('rgw', 'gc_remove', gc_remove())
    r.seen()

    r.object('rgw-gc')
    store(b'due', 0, gc_obj(b'a'), gc_obj(b'b', b'other', b'loc', b'instance'))
    r.seen()
    store(b'later', 3600, gc_obj(b'c'))
    store(b'empty', 7200)
    store(b'', 5000, gc_obj(b'd', version=1))
    store('ü'.encode(), 6000, sec(2, s(b'pool'), s(b'one name'), s(b''), sec(1, s(b'another'), s(b''))))
    r.seen()
    time.sleep(0.01)
    lists()
    store(b'due', 0, gc_obj(b'e'))
    r.call('rgw', 'gc_defer_entry', gc_defer(100, b'later'), before=now(b'later', 100))
    r.call('rgw', 'gc_defer_entry', gc_defer(100, b'none'))
    store(b'wraps', 2**32 - 1, gc_obj(b'f'))
    r.seen()
    r.call('rgw', 'gc_remove', gc_remove(b'none', b'empty', b'', b'empty'))
    r.seen()
    lists()
    r.omapset('0_due', b'bad')
    store(b'due', 0, gc_obj(b'g'))
    r.seen()
    r.omapset('0_due', b'bad')
    r.call('rgw', 'gc_defer_entry', gc_defer(1, b'due'))
    r.call('rgw', 'gc_remove', gc_remove(b'later', b'due'))
    r.seen()
    r.omapset('1_0', b'bad')
    r.omapset('2_0', b'bad')
    for after in (b'', b'1_0'):
        for expired in (0, 1):
            clock(r)
            r.call('rgw', 'gc_list', gc_list(after, expired=expired))

    r.object('rgw-gc-bad')
    r.write(b'data')
    good = gc_set(2**32 - 1, gc_info(b'tag', gc_obj(b'a')))
    for data in (b'', b'\x01', good[:-1], good[:6], b'\x63\x63' + good[2:], gc_set(1, gc_info(b'tag', gc_obj(b'a')[:-1])),
                 gc_set(1, sec(1, s(b'tag'), sec(1, u32(2**32 - 1)), tm(0)))):
        r.call('rgw', 'gc_set_entry', data)
    for data in (b'\x63' + good[1:], good + b'more'):
        r.call('rgw', 'gc_set_entry', data, before=now(b'tag', 2**32 - 1))
    r.bad_inputs('rgw', ['gc_defer_entry'], gc_defer(1, b'none'))
    clock(r)
    r.bad_inputs('rgw', ['gc_list'], gc_list())
    r.bad_inputs('rgw', ['gc_remove'], gc_remove(b'none'))
    r.seen()


# Lifecycle

def lc_entry(bucket, start=0, status=0): return sec(1, s(bucket), u64(start), u32(status))
def lc_op(entry): return sec(2, entry, compat=2)
def lc_old(bucket, status): return s(bucket) + u32(status)
def lc_head(start, marker): return sec(1, sec(1, u64(start), s(marker)))
def lc_list(after=b'', most=10, version=3): return sec(version, s(after), u32(most))


def rgw_lifecycle(r):
    def gets():
        for marker in (b'', b'a', b'b:bucket:1', b'old', b'older', b'z', b'\xff'):
            r.call('rgw', 'lc_get_entry', sec(1, s(marker)))
            r.call('rgw', 'lc_get_next_entry', sec(1, s(marker)))
            for version in (1, 2, 3):
                for most in (0, 1, 2, 10, 2**32 - 1):
                    r.call('rgw', 'lc_list_entries', lc_list(marker, most, version))

    r.object('rgw-lc-none')
    for method, data in (('lc_get_entry', sec(1, s(b'a'))), ('lc_get_next_entry', sec(1, s(b''))), ('lc_get_head', b''),
                         ('lc_list_entries', lc_list()), ('lc_rm_entry', lc_op(lc_entry(b'a')))):
        r.call('rgw', method, data)
    r.seen()

    r.object('rgw-lc')
    r.write(b'')
    gets()
    r.call('rgw', 'lc_get_head')
    for entry in (lc_entry(b'b:bucket:1', 1, 2), lc_entry(b'a', 2**64 - 1, 2**32 - 1), lc_entry(b'c', 3, 1), lc_entry('ü'.encode())):
        r.call('rgw', 'lc_set_entry', lc_op(entry))
    r.call('rgw', 'lc_set_entry', sec(1, lc_old(b'old', -1)))
    r.seen(r.header())
    gets()
    r.call('rgw', 'lc_set_entry', lc_op(lc_entry(b'a', 5, 6)))
    r.call('rgw', 'lc_rm_entry', lc_op(lc_entry(b'c', 9, 9)))
    r.call('rgw', 'lc_rm_entry', lc_op(lc_entry(b'c')))
    r.call('rgw', 'lc_rm_entry', sec(1, lc_old(b'old', 0)))
    r.seen(r.header())
    # As releases before Pacific stored them.
    r.omapset('older', lc_old(b'older', 2))
    r.omapset('p', lc_old(b'a', 3))
    gets()
    for head in (lc_head(1, b''), lc_head(2**64 - 1, b'marker\0\xff'), lc_head(7, b'a')):
        r.call('rgw', 'lc_put_head', head)
        r.call('rgw', 'lc_get_head', b'ignored')
        r.seen(r.header())
    r.omapset('q', b'bad')
    gets()
    r.call('rgw', 'lc_get_entry', sec(1, s(b'q')))
    r.call('rgw', 'lc_get_next_entry', sec(1, s(b'p')))

    r.object('rgw-lc-head')
    r.call('rgw', 'lc_put_head', lc_head(3, b'a'))
    r.seen(r.header())
    r.call('rgw', 'lc_get_head')

    r.object('rgw-lc-bad')
    r.write(b'data')
    r.bad_inputs('rgw', ['lc_get_entry', 'lc_get_next_entry'], sec(1, s(b'a')))
    r.bad_inputs('rgw', ['lc_set_entry', 'lc_rm_entry'], lc_op(lc_entry(b'a', 1, 2)))
    r.bad_inputs('rgw', ['lc_set_entry', 'lc_rm_entry'], sec(1, lc_old(b'a', 1)))
    r.bad_inputs('rgw', ['lc_list_entries'], lc_list())
    r.bad_inputs('rgw', ['lc_put_head'], lc_head(1, b'marker'))
    r.call('rgw', 'lc_set_entry', lc_op(lc_entry(b'a')[:-1]))
    r.call('rgw', 'lc_put_head', lc_head(1, b'marker')[:-1])
    r.seen(r.header())


# Resharding

def reshard(tenant, bucket, ident=b'id', new=b'', shards=(1, 11), when=(100, 5)):
    return sec(1, tm(*when), s(tenant), s(bucket), s(ident), s(new), u32(shards[0]), u32(shards[1]))


def reshard_op(*args, **more): return sec(1, reshard(*args, **more))
def reshard_list(most=10, after=b''): return sec(1, u32(most), s(after))
def reshard_remove(tenant, bucket, ident=b''): return sec(1, s(tenant), s(bucket), s(ident))


def rgw_reshard(r):
    r.object('rgw-reshard-none')
    for method, data in (('reshard_list', reshard_list()), ('reshard_get', reshard_op(b'', b'a')),
                         ('reshard_remove', reshard_remove(b'', b'a'))):
        r.call('rgw', method, data)
    r.seen()

    r.object('rgw-reshard')
    for args in ((b'', b'a'), (b'tenant', b'a', b'id2', b'new', (7, 2**32 - 1), (2**32 - 1, 999999999)), (b't:t', b''),
                 ('ü'.encode(), b'n'), (b'', b'', b'')):
        r.call('rgw', 'reshard_add', reshard_op(*args))
        r.seen()
    for after in (b'', b':', b':a', b'tenant:a', b'\xff\xff'):
        for most in (0, 1, 2, 5, 10, 999, 1000, 1001, 2**31 - 1, 2**31, 2**32 - 1):
            r.call('rgw', 'reshard_list', reshard_list(most, after))
    for name in ((b'', b'a'), (b'tenant', b'a'), (b'', b'none'), (b't', b't:'), (b'', b'')):
        r.call('rgw', 'reshard_get', reshard_op(*name, b'ignored'))
    r.call('rgw', 'reshard_add', reshard_op(b'', b'a', b'id3'))
    for args in ((b'', b'a', b'id'), (b'', b'a', b'id3'), (b'', b'a'), (b'tenant', b'a'), (b'', b'', b''), ('ü'.encode(), b'n', b'id')):
        r.call('rgw', 'reshard_remove', reshard_remove(*args))
        r.seen()
    r.omapset(':bad', b'bad')
    for method, data in (('reshard_list', reshard_list()), ('reshard_list', reshard_list(0)),
                         ('reshard_get', reshard_op(b'', b'bad')), ('reshard_remove', reshard_remove(b'', b'bad')),
                         ('reshard_add', reshard_op(b'', b'bad'))):
        r.call('rgw', method, data)
    r.seen()

    r.object('rgw-reshard-bad')
    r.write(b'data')
    good = reshard_op(b'', b'a')
    # A later version has another field: version 99 is left out.
    for data in (b'', b'\x01', good[:-1], good[:6], b'\x63\x63' + good[2:], good + b'more', reshard_op(b'', b'a')[:-1]):
        r.call('rgw', 'reshard_add', data)
    r.bad_inputs('rgw', ['reshard_get'], reshard_op(b'', b'none'))
    r.bad_inputs('rgw', ['reshard_list'], reshard_list())
    r.bad_inputs('rgw', ['reshard_remove'], reshard_remove(b'', b'none'))
    r.seen()


# Objects

def prefixes(*names): return sec(1, lst([s(n) for n in names]))
def check_prefix(prefix, fail): return sec(1, s(prefix), u8(fail))
def check_mtime(when, kind, precise=1, version=2): return sec(version, tm(*when), u8(kind), *([u8(precise)] if version > 1 else []))


def rgw_object(r):
    def version(attr):
        def lines():
            return ['user_version %d' % struct.unpack('<Q', r.clients[0][1].get_xattr(r.oid, attr))]
        return lines

    def removed(name, *keep, creates=False):
        r.object(name)
        if not creates:
            r.write(b'data')
            r.omapset('key', b'value')
            for attr in ('a', 'user.rgw.olh.1', 'user.rgw.olh.2', 'user.rgw.pg_ver', 'z'):
                r.setxattr(attr, attr.encode())
        r.call('rgw', 'obj_remove', prefixes(*keep), creates=creates)
        r.seen()
        r.call('rgw', 'obj_remove', prefixes(*keep))
        r.seen()

    r.object('rgw-object-none')
    r.call('rgw', 'obj_remove', prefixes())
    r.call('rgw', 'obj_remove', prefixes(b'user.rgw.olh'))
    r.call('rgw', 'obj_check_attrs_prefix', check_prefix(b'a', 1))
    r.call('rgw', 'obj_check_mtime', check_mtime((0, 0), 0))
    r.seen()
    for fail in (0, 1):
        r.object(f'rgw-object-attrs-created-{fail}')
        r.call('rgw', 'obj_check_attrs_prefix', check_prefix(b'a', fail), creates=True)
        r.seen()
    for kind in range(6):
        r.object(f'rgw-object-mtime-created-{kind}')
        r.call('rgw', 'obj_check_mtime', check_mtime((0, 0), kind), creates=True)
        r.seen()

    removed('rgw-object-remove')
    removed('rgw-object-keep', b'user.rgw.olh')
    removed('rgw-object-keep-some', b'z', b'nothing', b'user.rgw.olh.1', b'user.rgw.olh.1')
    removed('rgw-object-keep-all', b'')
    removed('rgw-object-keep-none', b'none')
    removed('rgw-object-remove-created', creates=True)
    removed('rgw-object-keep-created', b'user.rgw.olh', b'', creates=True)

    r.object('rgw-object-version')
    for attr in ('user.rgw.pg_ver', 'user.rgw.pg_ver', 'other'):
        r.call('rgw', 'obj_store_pg_ver', sec(1, s(attr.encode())), before=version(attr))
        r.seen()
        r.setxattr('changed', attr.encode())
    r.call('rgw', 'obj_store_pg_ver', sec(1, s(b'n\0ul')), before=version('n'))
    r.call('rgw', 'obj_store_pg_ver', sec(1, s(b'l' * 300)))
    r.seen()

    r.object('rgw-object-attrs')
    r.setxattr('user.rgw.olh.1', b'')
    for prefix in (b'', b'user.rgw.olh', b'user.rgw.olh.1', b'user.rgw.olh.12', b'user.rgw.olh.0', b'u', b'v', b'\xff'):
        for fail in (0, 1, 2):
            r.call('rgw', 'obj_check_attrs_prefix', check_prefix(prefix, fail))

    r.object('rgw-object-mtime')
    r.touch(100)
    for kind in range(6):
        for when in ((99, 999999999), (100, 0), (100, 1), (101, 0)):
            for precise in (0, 1):
                r.call('rgw', 'obj_check_mtime', check_mtime(when, kind, precise))
        r.call('rgw', 'obj_check_mtime', check_mtime((100, 1), kind, version=1))

    r.object('rgw-object-bad')
    r.touch(100)
    r.bad_inputs('rgw', ['obj_check_attrs_prefix'], check_prefix(b'a', 1))
    r.bad_inputs('rgw', ['obj_check_mtime'], check_mtime((100, 0), 0))
    good = sec(1, s(b'attr'))
    for data in (b'', b'\x01', good[:-1], good[:6], b'\x63\x63' + good[2:]):
        r.call('rgw', 'obj_store_pg_ver', data)
    for data in (b'\x63' + good[1:], good + b'more'):
        r.call('rgw', 'obj_store_pg_ver', data, before=version('attr'))
    for data in (b'', b'\x01', prefixes(b'a')[:-1], b'\x63\x63' + prefixes(b'a')[2:], prefixes(b'attr') + b'more'):
        r.call('rgw', 'obj_remove', data)
        r.seen()
