"""What record.py records of the classes user and cmpomap."""
from record import lst, s, sec, tm, u8, u32, u64


def bucket(name, placement=b'', bucket_id=b'id.1'):
    if placement:
        return sec(9, s(name), s(b'marker'), s(bucket_id), s(placement), compat=8)
    return sec(7, s(name), s(b'data'), s(b'marker'), s(bucket_id), s(b'index'), s(b'extra'), compat=3)


def bucket_entry(name, size=0, count=0, sync=0, placement=b'', bucket_id=b'id.1', time=(100, 5), version=9):
    more = [u8(sync)] if version > 5 else []
    more += [tm(*time)] if version > 6 else []
    more += [s(b'rule')] if version == 8 else []
    return sec(version, s(b''), u64(size), u32(time[0]), u64(count), bucket(name, placement, bucket_id), u64(size * 2), *more,
               compat=5)


def set_in(*entries, add=0, time=(200, 0)): return sec(1, lst(list(entries)), u8(add), tm(*time))
def remove_in(name): return sec(1, bucket(name))
def list_in(marker=b'', most=1000, end=b'', version=2):
    return sec(version, s(marker), u32(most), *([s(end)] if version > 1 else []))
def stats(*numbers): return sec(1, *[u64(n) for n in numbers])
def reset_in(time, marker=b'', sums=(0, 0, 0)): return sec(1, tm(*time), s(marker), stats(*sums))


def user(r):
    header, time_in = sec(1), sec(1, tm(300, 7))

    def seen():
        r.seen(r.omap_header())

    def get():
        r.call('user', 'get_header', header)
        r.call('user', 'list_buckets', list_in())

    r.object('user-absent')
    get()
    r.call('user', 'remove_bucket', remove_in(b'b'))
    seen()
    r.call('user', 'set_buckets_info', set_in(bucket_entry(b'b', 5, 1)))
    seen()
    r.object('user-sync-first')
    r.call('user', 'complete_stats_sync', time_in)
    seen()
    r.object('user-reset-first')
    r.call('user', 'reset_user_stats', time_in)
    seen()
    r.object('user')
    r.call('user', 'set_buckets_info', set_in(bucket_entry(b'a'), bucket_entry(b'b', placement=b'p'), add=1))
    seen()
    get()
    r.call('user', 'set_buckets_info', set_in(bucket_entry(b'a', 100, 3), bucket_entry(b'none', 1, 1), time=(199, 0)))
    seen()
    r.call('user', 'set_buckets_info', set_in(bucket_entry(b'b', 10, 1, time=(9, 9)), bucket_entry(b'a', 50, 2), time=(201, 0)))
    seen()
    # Again, with another id and time; with a size that does not count; synced already; twice in one call.
    r.call('user', 'set_buckets_info', set_in(bucket_entry(b'a', 7, 7, bucket_id=b'id.2', time=(300, 3)), add=1))
    r.call('user', 'set_buckets_info', set_in(bucket_entry(b'c', 1000, 9, sync=1), add=1))
    r.call('user', 'set_buckets_info', set_in(bucket_entry(b'd', 3, 1), bucket_entry(b'd', 4, 1), add=1))
    seen()
    r.call('user', 'set_buckets_info', set_in(bucket_entry(b'd', 6, 1), bucket_entry(b'd', 8, 1)))
    seen()
    for version in (5, 6, 7, 8):
        r.call('user', 'set_buckets_info', set_in(bucket_entry(b'v%d' % version, 8, 1, 1, version=version), add=1))
    seen()
    get()
    r.call('user', 'set_buckets_info', set_in(bucket_entry(b'')))
    r.call('user', 'set_buckets_info', set_in(bucket_entry(b'ok', 1), bucket_entry(b''), add=1))
    r.call('user', 'set_buckets_info', set_in(time=(400, 0)))
    r.call('user', 'remove_bucket', remove_in(b''))
    r.call('user', 'remove_bucket', remove_in(b'none'))
    r.call('user', 'remove_bucket', remove_in(b'a'))
    seen()
    for args in ((b'', 2), (b'', 0), (b'', -1), (b'b', 2), (b'', 9, b'c'), (b'', 9, b'a'), (b'', 2, b'c'), (b'zz', 9), (b'', 1)):
        r.call('user', 'list_buckets', list_in(*args))
    r.call('user', 'list_buckets', list_in(b'', 3, version=1))
    for when in (299, 301):
        r.call('user', 'complete_stats_sync', sec(1, tm(when)))
        seen()
    r.call('user', 'reset_user_stats', time_in)
    seen()
    r.vec('user', 'reset_user_stats2', reset_in((1, 2)))
    seen()
    r.vec('user', 'reset_user_stats2', reset_in((1, 3), b'c'))
    seen()
    r.omapset('e', b'bad')
    get()
    for method, data in (('reset_user_stats', time_in), ('reset_user_stats2', reset_in((1, 2))), ('remove_bucket', remove_in(b'e')),
                         ('set_buckets_info', set_in(bucket_entry(b'e'))), ('set_buckets_info', set_in(bucket_entry(b'e'), add=1))):
        r.call('user', method, data)
    seen()
    r.object('user-bad')
    r.write(b'data')
    for method, good in (('set_buckets_info', set_in(bucket_entry(b'b', 1, 1), add=1)), ('remove_bucket', remove_in(b'b')),
                         ('list_buckets', list_in()), ('get_header', header), ('complete_stats_sync', time_in),
                         ('reset_user_stats', time_in), ('reset_user_stats2', reset_in((1, 2)))):
        r.bad_inputs('user', [method], good)
    seen()


EQ, NE, GT, GTE, LT, LTE = range(1, 7)
STRING, NUMBER = 1, 2


def compare_in(mode, comparison, values, default=None):
    more = u8(0) if default is None else u8(1) + s(default)
    return sec(1, u8(mode), u8(comparison), pairs(values), more)
def compare_rm_in(mode, comparison, values): return sec(1, u8(mode), u8(comparison), pairs(values))
def pairs(values): return lst([s(k) + s(v) for k, v in values.items()])


def cmpomap(r):
    values = {b'n5': u64(5), b'none': b'', b'short': b'abc', b'text': b'm', b'high': b'\xe9'}

    def all_methods(*args, default=None):
        for d in (None, default) if default is not None else (None,):
            r.call('cmpomap', 'cmp_vals', compare_in(*args, d))
            r.call('cmpomap', 'cmp_set_vals', compare_in(*args, d))
            r.seen()
        r.call('cmpomap', 'cmp_rm_keys', compare_rm_in(*args))
        r.seen()

    def fill():
        for key, value in values.items():
            r.omapset(key.decode(), value)

    r.object('cmpomap-absent')
    all_methods(STRING, EQ, {b'k': b''})
    r.call('cmpomap', 'cmp_set_vals', compare_in(STRING, EQ, {b'k': b''}, b'x'))
    r.seen()
    r.call('cmpomap', 'cmp_set_vals', compare_in(NUMBER, GT, {b'k': u64(1), b'j': u64(0)}, b''))
    r.seen()
    r.object('cmpomap-nothing')
    r.write(b'')
    all_methods(STRING, EQ, {})
    r.object('cmpomap')
    fill()
    for comparison in range(8):
        for number in (4, 5, 6):
            r.call('cmpomap', 'cmp_vals', compare_in(NUMBER, comparison, {b'n5': u64(number)}))
        for text in (b'', b'l', b'm', b'ma', b'n', b'\xe9'):
            r.call('cmpomap', 'cmp_vals', compare_in(STRING, comparison, {b'text': text}))
        for text in (b'a', b'\xe9', b'\xf0'):
            r.call('cmpomap', 'cmp_vals', compare_in(STRING, comparison, {b'high': text}))
    for comparison in (EQ, LT, GTE, NE):
        fill()
        all_methods(NUMBER, comparison, {b'n5': u64(5), b'absent': u64(5)}, default=u64(5))
        fill()
        all_methods(NUMBER, comparison, {b'none': u64(0)}, default=b'')
        fill()
        all_methods(NUMBER, comparison, {b'short': u64(0), b'n5': u64(5)})
        fill()
        all_methods(STRING, comparison, {b'text': b'm', b'short': b'zz'}, default=b'')
    fill()
    all_methods(NUMBER, EQ, {b'n5': b'short'})
    all_methods(NUMBER, EQ, {b'n5': u64(5) + b'more'})
    all_methods(NUMBER, EQ, {b'absent': b'short'}, default=b'bad')
    for mode in (0, 3, 255):
        all_methods(mode, EQ, {b'text': b'm'})
    all_methods(STRING, 9, {b'text': b'm'})
    fill()
    for method in ('cmp_vals', 'cmp_set_vals'):
        r.bad_inputs('cmpomap', [method], compare_in(STRING, EQ, {b'text': b'm'}, b'd'))
    r.bad_inputs('cmpomap', ['cmp_rm_keys'], compare_rm_in(STRING, EQ, {b'text': b'm'}))
    r.seen()
