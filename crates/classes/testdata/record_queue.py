"""What record.py records of the classes queue, rgw_gc and 2pc_queue."""
import struct
import time

from record import lst, s, sec, tm, u8, u32, u64


def init_in(size, urgent=0, data=b''): return sec(1, u64(size), u64(urgent), s(data))
def add_in(*entries): return sec(1, lst([s(e) for e in entries]))
def list_in(most, marker=b'', version=1): return sec(version, u64(most), s(marker), *([s(b'')] if version > 1 else []))
def remove_in(marker): return sec(1, s(marker))
def counted_remove_in(marker, count): return sec(2, s(marker), u32(count))


def section(data, at=0):
    """A section's body, and what follows it."""
    end = at + 6 + struct.unpack_from('<I', data, at + 2)[0]
    return data[at + 6:end], end


def head(r):
    """Front and tail of the queue, as markers, and its urgent data."""
    data = r.state()[0]
    body, _ = section(data, 10)
    front, at = section(body, 8)
    tail, at = section(body, at)
    length = struct.unpack_from('<I', body, at + 16)[0]
    return *(b'%d/%d' % struct.unpack('<QQ', m) for m in (front, tail)), body[at + 20:at + 20 + length]


def queue(r):
    def lists():
        for most in (1, 2, 3, 100):
            r.call('queue', 'queue_list_entries', list_in(most))

    def remove(count):
        """Removes so many entries."""
        _, out = r.call('queue', 'queue_list_entries', list_in(count))
        length = struct.unpack_from('<I', out, 7)[0]
        r.call('queue', 'queue_remove_entries', remove_in(out[11:11 + length]))
        r.seen()
        lists()

    def enqueue(*entries):
        r.call('queue', 'queue_enqueue', add_in(*entries))
        r.seen()
        lists()

    r.object('queue-absent')
    for method, data in (('queue_get_capacity', b''), ('queue_enqueue', add_in(b'a')), ('queue_list_entries', list_in(1)),
                         ('queue_remove_entries', remove_in(b''))):
        r.call('queue', method, data)
    r.call('queue', 'queue_init', init_in(100, 20, b'longer than that' * 70))
    r.seen()
    r.call('queue', 'queue_init', init_in(100, 20, b'urgent'))
    r.seen()
    r.call('queue', 'queue_init', init_in(100))
    r.call('queue', 'queue_get_capacity', b'ignored')
    r.call('queue', 'queue_remove_entries', remove_in(b'0/9999'))
    lists()
    enqueue(b'first', b'', b'second')
    r.call('queue', 'queue_list_entries', list_in(0))
    for marker in (b'0/1044', b'0/1059', b'0/1069', b'0/1085', b'7/1059', b'0/1045', b'0/1', b'0', b'x', b'0/1059x', b'0/1084'):
        r.call('queue', 'queue_list_entries', list_in(1, marker))
        r.call('queue', 'queue_list_entries', list_in(100, marker))
    for marker in (b'', b'x', b'0/1', b'2/1044', b'1/1200'):
        r.call('queue', 'queue_remove_entries', remove_in(marker))
    r.call('queue', 'queue_remove_entries', remove_in(b'0/1044'))
    r.seen()
    remove(1)
    enqueue(b'third' * 4)
    r.call('queue', 'queue_enqueue', add_in(b'x' * 60))
    r.call('queue', 'queue_enqueue', add_in(b'y', b'x' * 60))
    r.seen()
    # Around the end: of the data, of the head of an entry, and exactly to the end.
    enqueue(b'around' * 3)
    remove(2)
    enqueue(b'p')
    remove(1)
    enqueue(b'q' * 3, b'r' * 20)
    remove(2)
    remove(9)
    enqueue(b's' * 2)
    remove(1)
    r.object('queue-full')
    r.call('queue', 'queue_init', init_in(60))
    enqueue(b'12345678901234567890')
    enqueue(b'abcdefghijklmnopqrst')
    r.call('queue', 'queue_enqueue', add_in(b''))
    for marker in (b'0/1024', b'0/1054', b'1/1024'):
        r.call('queue', 'queue_list_entries', list_in(9, marker))
    remove(1)
    enqueue(b'A' * 10)
    enqueue(b'')
    r.call('queue', 'queue_enqueue', add_in(b''))
    remove(1)
    remove(1)
    remove(1)
    r.object('queue-head-split')
    r.call('queue', 'queue_init', init_in(64))
    enqueue(b'0' * 48)
    remove(1)
    enqueue(b'1' * 20)
    remove(1)
    enqueue(b'2' * 23)
    for n in range(5):
        enqueue(b'x' * n, b'y' * (9 - n))
        remove(1)
    r.object('queue-long-head')
    r.call('queue', 'queue_init', init_in(100, 9000, b'U' * 6000))
    enqueue(b'entry')
    remove(1)
    r.object('queue-empty')
    r.call('queue', 'queue_init', init_in(0))
    r.call('queue', 'queue_get_capacity')
    r.call('queue', 'queue_enqueue', add_in(b''))
    r.seen()
    # More than is read at once.
    r.object('queue-large')
    r.call('queue', 'queue_init', init_in(9 << 20))
    sizes = [(1 << 20) + n for n in range(7)]
    for size in sizes:
        r.call('queue', 'queue_enqueue', add_in(bytes(size), b'small'))
    for marker in (b'', b'0/1049624'):
        for most in (3, 9, 99):
            r.vec('queue', 'queue_list_entries', list_in(most, marker))
    r.object('queue-other-data')
    for data in (b'\xad', b'\xad\xde\1\0\0', b'no queue at all', b'\xad\xde' + u64(5) + b'short', b'\xad\xde' + u64(5000) + b'bad'):
        r.write(data)
        for method, good in (('queue_get_capacity', b''), ('queue_list_entries', list_in(1))):
            r.call('queue', method, good)
    r.call('queue', 'queue_init', init_in(100))
    r.seen()
    r.object('queue-bad')
    r.bad_inputs('queue', ['queue_init'], init_in(100))
    r.bad_inputs('queue', ['queue_enqueue'], add_in(b'e'))
    r.bad_inputs('queue', ['queue_list_entries'], list_in(1, version=2))
    r.bad_inputs('queue', ['queue_remove_entries'], remove_in(b'0/1024'))
    r.seen()


def rgw_obj(name): return sec(2, s(b'pool'), s(name), s(b'loc'), sec(1, s(name), s(b'')))
def info(tag, names=(b'shadow',), when=(0, 0)): return sec(1, s(tag), sec(1, lst([rgw_obj(n) for n in names])), tm(*when))
def set_in(tag, secs=0, **more): return sec(1, u32(secs), info(tag, **more))
def gc_init_in(size, deferred): return sec(1, u64(size), u64(deferred))
def gc_list_in(most=0, expired=0, marker=b'', version=2):
    return sec(version, s(marker), u32(most), *([u8(expired)] if version > 1 else []))
def gc_remove_in(count): return sec(1, u64(count))


def rgw_gc(r):
    def clock():
        ns = time.time_ns()
        r.out(f'now {ns // 10**9} {ns % 10**9}')

    def noted(secs, value):
        """The OSD's time, from a time that it stored."""
        when, nsec = struct.unpack('<II', value)
        return [f'now {when - secs} {nsec}']

    def enqueue(tag, secs=0, **more):
        def now():
            # The entry is the last; its time is the end of it.
            data, (_, tail, _) = r.state()[0], head(r)
            at = int(tail.split(b'/')[1])
            return noted(secs, data[at - 8:at])
        r.call('rgw_gc', 'rgw_gc_queue_enqueue', set_in(tag, secs, **more), before=now)
        r.seen()

    def defer(tag, secs):
        def now():
            state = r.state()
            for place in (head(r)[2], dict(state[1]).get(b'cls_queue_urgent_data', b'')):
                at = place.find(s(tag))
                if at >= 0:
                    at += 4 + len(tag)
                    return noted(secs, place[at:at + 8])
            return []
        r.call('rgw_gc', 'rgw_gc_queue_update_entry', set_in(tag, secs), before=now)
        r.seen()

    def lists():
        clock()
        for args in ((0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (100, 1)):
            r.call('rgw_gc', 'rgw_gc_queue_list_entries', gc_list_in(*args))

    def remove(count):
        r.call('rgw_gc', 'rgw_gc_queue_remove_entries', gc_remove_in(count))
        r.seen()
        lists()

    r.object('gc-absent')
    for method, data in (('enqueue', set_in(b't')), ('list_entries', gc_list_in()), ('remove_entries', gc_remove_in(1)),
                         ('update_entry', set_in(b't'))):
        r.call('rgw_gc', 'rgw_gc_queue_' + method, data)
    r.call('rgw_gc', 'rgw_gc_queue_init', gc_init_in(2000, 3))
    r.seen()
    r.call('rgw_gc', 'rgw_gc_queue_init', gc_init_in(2000, 3))
    r.call('queue', 'queue_get_capacity')
    lists()
    remove(0)
    enqueue(b'one')
    enqueue(b'two', 1000, names=(b'a', b'b', b'c'))
    enqueue(b'three', names=())
    lists()
    r.call('rgw_gc', 'rgw_gc_queue_list_entries', gc_list_in(1, version=1))
    _, tail, _ = head(r)
    for marker in (tail, b'0/4096', b'0/4097', b'x'):
        r.call('rgw_gc', 'rgw_gc_queue_list_entries', gc_list_in(5, 0, marker))
    defer(b'one', 5000)
    lists()
    defer(b'one', 6000)
    lists()
    enqueue(b'four')
    remove(1)
    remove(1)
    enqueue(b'one', 7000)
    lists()
    defer(b'five', 1)
    defer(b'six', 1)
    defer(b'seven', 1)
    lists()
    remove(0)
    remove(0)

    r.object('gc-around')
    r.call('rgw_gc', 'rgw_gc_queue_init', gc_init_in(300, 1))
    for n in range(12):
        enqueue(b'tag%d' % n)
        if n % 3 != 1:
            remove(1)
    lists()

    r.object('gc-spill')
    r.call('rgw_gc', 'rgw_gc_queue_init', gc_init_in(20000, 4))
    large = [b'%d' % n * 1500 for n in range(4)]
    for tag in large:
        enqueue(tag)
    for tag in large[:2]:
        defer(tag, 9)
    defer(large[3], 9)
    lists()
    defer(large[3], 20)
    defer(large[2], 10)
    lists()
    defer(b'one more', 9)
    defer(b'too many', 9)
    remove(2)
    enqueue(large[0], 500)
    enqueue(large[3], 500)
    lists()
    remove(9)
    r.setxattr('cls_queue_urgent_data', b'bad')
    enqueue(b'x')
    lists()
    remove(1)
    defer(b'y', 1)

    r.object('gc-other-queue')
    r.call('queue', 'queue_init', init_in(100, 100))
    r.call('queue', 'queue_enqueue', add_in(b'no entry'))
    lists()
    for method, data in (('remove_entries', gc_remove_in(1)), ('update_entry', set_in(b't'))):
        r.call('rgw_gc', 'rgw_gc_queue_' + method, data)
    r.object('gc-other-urgent-data')
    r.call('queue', 'queue_init', init_in(100, 100, b'urgent'))
    for method, data in (('list_entries', gc_list_in()), ('remove_entries', gc_remove_in(1)), ('update_entry', set_in(b't'))):
        r.call('rgw_gc', 'rgw_gc_queue_' + method, data)
    r.object('gc-bad')
    r.bad_inputs('rgw_gc', ['rgw_gc_queue_init'], gc_init_in(1000, 1))
    for method, good in (('list_entries', gc_list_in()), ('remove_entries', gc_remove_in(1))):
        r.bad_inputs('rgw_gc', ['rgw_gc_queue_' + method], good)
    for method in ('enqueue', 'update_entry'):
        good = set_in(b'tag')
        for data in (b'', b'\x01', good[:-1], good[:6], b'\x63\x63' + good[2:]):
            r.call('rgw_gc', 'rgw_gc_queue_' + method, data)
    r.seen()


def reserve_in(size, entries=1): return sec(1, u64(size), u32(entries))
def commit_in(number, *entries): return sec(1, u32(number), lst([s(e) for e in entries]))
def abort_in(number): return sec(1, u32(number))
def expire_in(when): return sec(1, tm(*when))


def two_phase_queue(r):
    def reservations(place):
        """The times of reservations, by their ids."""
        count, at, found = struct.unpack_from('<I', place)[0], 4, {}
        for _ in range(count):
            number = struct.unpack_from('<I', place, at)[0]
            body, at = section(place, at + 4)
            found[number] = struct.unpack_from('<II', body, 8)
        return found

    def all_times():
        times = reservations(section(head(r)[2])[0][12:])
        spilled = dict(r.state()[1]).get(b'cls_queue_urgent_data')
        return {**times, **(reservations(spilled) if spilled not in (None, b'bad') else {})}

    def last_time():
        times = all_times()
        return ['now %d %d' % times[max(times)]]

    def reserve(size, entries=1, vec=False):
        call = r.vec if vec else r.call
        call('2pc_queue', '2pc_queue_reserve', reserve_in(size, entries), before=last_time)

    def commit(number, *entries):
        r.call('2pc_queue', '2pc_queue_commit', commit_in(number, *entries))
        r.seen()

    def lists(marker=b''):
        r.call('2pc_queue', '2pc_queue_list_reservations')
        for most in (1, 2, 100):
            r.call('2pc_queue', '2pc_queue_list_entries', list_in(most, marker))

    r.object('2pc-absent')
    for method, data in (('get_capacity', b''), ('reserve', reserve_in(1)), ('commit', commit_in(1)), ('abort', abort_in(1)),
                         ('list_reservations', b''), ('list_entries', list_in(1)), ('remove_entries', remove_in(b'')),
                         ('expire_reservations', expire_in((1, 0)))):
        r.call('2pc_queue', '2pc_queue_' + method, data)
    r.call('2pc_queue', '2pc_queue_init', init_in(200, 77, b'ignored'))
    r.seen()
    r.call('2pc_queue', '2pc_queue_init', init_in(200))
    r.call('2pc_queue', '2pc_queue_get_capacity')
    lists()
    for args in ((0, 1), (1, 0), (191, 1), (181, 2), (1 << 40, 1)):
        reserve(*args)
    reserve(50, 1, vec=True)
    reserve(20, 2, vec=True)
    r.seen()
    lists()
    reserve(200)
    commit(1, b'x' * 51)
    commit(3, b'x')
    commit(1, b'x' * 40)
    commit(1, b'x')
    commit(2, b'a', b'b', b'c')
    lists()
    reserve(10)
    reserve(10)
    r.call('2pc_queue', '2pc_queue_abort', abort_in(3))
    r.call('2pc_queue', '2pc_queue_abort', abort_in(3))
    r.call('2pc_queue', '2pc_queue_abort', abort_in(99))
    r.seen()
    lists()
    r.call('2pc_queue', '2pc_queue_expire_reservations', expire_in((1, 0)))
    r.seen()
    r.call('2pc_queue', '2pc_queue_expire_reservations', expire_in((2**32 - 1, 0)))
    r.seen()
    lists()
    for marker in (b'0/24626', b'0/24626', b'5/24637', b''):
        r.call('2pc_queue', '2pc_queue_remove_entries', remove_in(marker))
    r.seen()
    lists()
    reserve(30)
    commit(5, b'around' * 5)
    reserve(30)
    commit(6, b'again!' * 5)
    lists()
    reserve(60)
    _, tail, _ = head(r)
    r.call('2pc_queue', '2pc_queue_remove_entries', counted_remove_in(tail, 5))
    r.seen()
    lists()

    r.object('2pc-spill')
    r.call('2pc_queue', '2pc_queue_init', init_in(1 << 20))
    count = 0
    while b'cls_queue_urgent_data' not in dict(r.state()[1]):
        count += 1
        reserve(count)
    reserve(5000)
    reserve(6000)
    r.seen()
    r.call('2pc_queue', '2pc_queue_list_reservations')
    commit(count + 1, b'spilled')
    r.call('2pc_queue', '2pc_queue_abort', abort_in(count + 2))
    commit(count + 9, b'none')
    r.call('2pc_queue', '2pc_queue_abort', abort_in(count + 9))
    r.seen()
    times = all_times()
    r.call('2pc_queue', '2pc_queue_expire_reservations', expire_in(times[count]))
    r.seen()
    r.call('2pc_queue', '2pc_queue_expire_reservations', expire_in((2**32 - 1, 0)))
    r.seen()
    lists()
    r.setxattr('cls_queue_urgent_data', b'bad')
    for method, data in (('commit', commit_in(1)), ('abort', abort_in(1)), ('list_reservations', b''),
                         ('expire_reservations', expire_in((1, 0)))):
        r.call('2pc_queue', '2pc_queue_' + method, data)
    reserve(1)
    r.object('2pc-other-queue')
    r.call('queue', 'queue_init', init_in(100, 100, b'urgent'))
    for method, data in (('reserve', reserve_in(1)), ('commit', commit_in(1)), ('abort', abort_in(1)),
                         ('list_reservations', b''), ('expire_reservations', expire_in((1, 0)))):
        r.call('2pc_queue', '2pc_queue_' + method, data)
    r.object('2pc-bad')
    r.bad_inputs('2pc_queue', ['2pc_queue_init'], init_in(1000))
    good = reserve_in(5)
    for data in (b'', b'\x01', good[:-1], good[:6], b'\x63\x63' + good[2:]):
        r.call('2pc_queue', '2pc_queue_reserve', data)
    reserve(5)
    for method, good in (('commit', commit_in(1, b'x')), ('abort', abort_in(1)), ('list_entries', list_in(1, version=2)),
                         ('remove_entries', counted_remove_in(b'0/24576', 1)), ('expire_reservations', expire_in((1, 0)))):
        r.bad_inputs('2pc_queue', ['2pc_queue_' + method], good)
    r.seen()
