"""What record.py records of the class fifo."""
import base64
import struct

from record import lst, s, sec, tm, u8, u32, u64


def optional(value): return u8(0) if value is None else u8(1) + value
def objv(instance, ver): return sec(1, s(instance), u64(ver))
def create_in(name=b'log', version=None, prefix=None, part=4096, entry=1024, exclusive=0):
    return sec(1, s(name), optional(version), s(b'pool'), s(b'ns'), optional(None if prefix is None else s(prefix)), u64(part),
               u64(entry), u8(exclusive))
def get_in(version=None): return sec(1, optional(version))
def journal(op, number): return sec(1, u32(op), u64(number), s(b''))
def update_in(version, tail=None, head=None, low=None, high=None, add=(), rm=()):
    numbers = [optional(None if n is None else u64(n)) for n in (tail, head, low, high)]
    return sec(1, version, *numbers, lst(list(add)), lst(list(rm)))
def params(part=400, entry=100, threshold=242): return sec(1, u64(part), u64(entry), u64(threshold))
def init_in(*args): return sec(1, s(b''), params(*args))
def push_in(*entries, total=None):
    return sec(1, s(b''), lst([s(e) for e in entries]), u64(sum(map(len, entries)) if total is None else total))
def trim_in(ofs, exclusive=0): return sec(1, optional(None), u64(ofs), u8(exclusive))
def list_in(ofs=0, most=100): return sec(1, optional(None), u64(ofs), u32(most))


def fifo(r):
    fifo_meta(r)
    fifo_parts(r)


def fifo_meta(r):
    def texts(*wanted):
        """The random texts in the header: the instance, and the end of the prefix."""
        def lines():
            body = r.state()[0][6:]
            name = struct.unpack_from('<I', body)[0]
            at = 4 + name + 6
            instance = struct.unpack_from('<I', body, at)[0]
            found = {'instance': body[at + 4:at + 4 + instance]}
            at += 4 + instance + 8
            prefix = struct.unpack_from('<I', body, at)[0]
            found['prefix'] = body[at + 4:at + 4 + prefix][-11:]
            letters = [found[w] + b'A' * (-len(found[w]) % 4) for w in wanted]
            return ['random ' + b''.join(map(base64.b64decode, letters)).hex()] if wanted else []
        return lines

    def create(*wanted, **args):
        r.call('fifo', 'create_meta', create_in(**args), before=texts(*wanted))
        r.seen()

    def get(version=None):
        return r.call('fifo', 'get_meta', get_in(version))

    def update(version, **args):
        r.call('fifo', 'update_meta', update_in(version, **args))
        r.seen()
        get()

    r.object('fifo-absent')
    get()
    update(objv(b'i', 1), tail=1)
    for args in ({'name': b''}, {'part': 0}, {'entry': 0}, {'part': 10, 'entry': 11}):
        create(**args)
    r.object('fifo-random')
    create('instance', 'prefix')
    r.object('fifo-exclusive')
    create('prefix', version=objv(b'i', 7), exclusive=1)
    create(version=objv(b'i', 7), exclusive=1)
    r.object('fifo-no-instance')
    create('instance', version=objv(b'', 7), prefix=b'given', part=1024)
    r.object('fifo-empty')
    r.write(b'')
    get()
    create()
    update(objv(b'i', 1), tail=1)
    r.object('fifo-other')
    r.write(b'other data')
    get()
    create()
    update(objv(b'i', 1), tail=1)
    r.object('fifo')
    create(version=objv(b'i', 1), prefix=b'p')
    for args in ({}, {'version': objv(b'i', 1)}, {'prefix': b'p'}, {'part': 9999}, {'name': b'other'}, {'version': objv(b'i', 2)},
                 {'prefix': b'q'}, {'exclusive': 1}):
        create(**args)
    get()
    get(objv(b'i', 1))
    get(objv(b'i', 2))
    get(objv(b'j', 1))
    update(objv(b'i', 2), tail=1)
    update(objv(b'', 1), tail=1)
    update(objv(b'i', 1))
    update(objv(b'i', 1), tail=0)
    update(objv(b'i', 1), high=0, add=[journal(1, 0)])
    update(objv(b'i', 2), add=[journal(2, 0)])
    update(objv(b'i', 3), head=0, rm=[journal(1, 0)])
    update(objv(b'i', 4), low=2, high=5, add=[journal(1, 3), journal(3, 1), journal(1, 4)])
    update(objv(b'i', 5), add=[journal(1, 3)], rm=[journal(3, 9)])
    update(objv(b'i', 5), tail=1, rm=[journal(3, 1), journal(1, 9)])
    update(objv(b'i', 6), add=[journal(2, 7)], rm=[journal(2, 7)])
    r.bad_inputs('fifo', ['update_meta'], update_in(objv(b'i', 7), tail=2))
    r.bad_inputs('fifo', ['get_meta'], get_in())
    r.bad_inputs('fifo', ['create_meta'], create_in())
    r.seen()


def fifo_parts(r):
    def part_header():
        return r.state()[0][6:]

    def last_time():
        """The OSD's time, which is the end of the header; with the magic number, where that is new."""
        length = struct.unpack_from('<I', r.state()[0], 2)[0]
        return ['now %d %d' % struct.unpack_from('<II', part_header(), length - 8)]

    def init(*args):
        def lines():
            return [f'random {part_header()[34:42].hex()}'] + last_time()
        r.call('fifo', 'init_part', init_in(*args), before=lines)
        r.seen()

    def push(*entries, vec=False, **args):
        call = r.vec if vec else r.call
        call('fifo', 'push_part', push_in(*entries, **args), before=last_time)
        r.seen()
        listing()

    def listing():
        r.call('fifo', 'get_part_info', sec(1))
        for args in ((), (0, 1), (0, 2), (512,), (571,), (512, 1), (0, 0), (0, -1), (9999,)):
            r.call('fifo', 'part_list', list_in(*args))

    def trim(*args):
        r.call('fifo', 'trim_part', trim_in(*args))
        r.seen()
        listing()

    r.object('part-absent')
    for method, data in (('push_part', push_in(b'x')), ('trim_part', trim_in(0)), ('part_list', list_in()),
                         ('get_part_info', sec(1))):
        r.call('fifo', method, data)
    init()
    r.call('fifo', 'init_part', init_in())
    r.call('fifo', 'init_part', init_in(401))
    r.seen()
    listing()
    r.call('fifo', 'push_part', push_in())
    for args in ({'total': 0}, {'total': 2}, {'total': 343}, {'total': 342}):
        r.call('fifo', 'push_part', push_in(b'x', **args))
    push(b'x', vec=True)
    push(b'', b'two', vec=True)
    r.vec('fifo', 'push_part', push_in(b'y' * 343))
    for args in ((511,), (512, 1), (513,), (570, 1), (571,)):
        trim(*args)
    trim(9999)
    trim(9999)
    push(b'later')
    r.object('part-full')
    init(1000, 100, 700)
    push(b'a' * 100, b'b' * 100, b'c', vec=True)
    r.call('fifo', 'push_part', push_in(b'x'))
    r.vec('fifo', 'push_part', push_in(b'x'))
    trim(512)
    trim(670, 1)
    trim(670)
    r.seen()
    r.call('fifo', 'get_part_info', sec(1))
    r.object('part-many')
    init(1 << 20, 100, 1 << 20)
    r.call('fifo', 'push_part', push_in(*[b'%d' % n for n in range(600)]), before=last_time)
    for args in ((0, 2), (0, 1000), (30000, 1)):
        r.call('fifo', 'part_list', list_in(*args))
    r.call('fifo', 'push_part', push_in(b'L' * 100000, b'M' * 100000), before=last_time)
    _, out = r.call('fifo', 'get_part_info', sec(1))
    r.object('part-empty')
    r.write(b'')
    r.call('fifo', 'push_part', push_in(b'x'))
    init()
    r.object('part-other')
    r.write(b'no part')
    for method, data in (('init_part', init_in()), ('push_part', push_in(b'x')), ('trim_part', trim_in(0)),
                         ('part_list', list_in()), ('get_part_info', sec(1))):
        r.call('fifo', method, data)
    r.object('part-bad')
    good = init_in()
    for data in (b'', b'\x01', good[:-1], good[:6], b'\x63\x63' + good[2:]):
        r.call('fifo', 'init_part', data)
    init()
    good = push_in(b'x')
    for data in (b'', b'\x01', good[:-1], good[:6], b'\x63\x63' + good[2:]):
        r.call('fifo', 'push_part', data)
    for method, good in (('trim_part', trim_in(0)), ('part_list', list_in()), ('get_part_info', sec(1))):
        r.bad_inputs('fifo', [method], good)
    r.seen()
