"""What record.py records of the class otp."""
import hashlib
import hmac
import struct
import time

from record import lst, s, sec, u8, u32

SEED = b'12345678901234567890'
HEX, BASE32 = 1, 2


def device(name, seed=SEED.hex().encode(), kind=HEX, ofs=0, step=30, window=2, otp_type=2):
    return sec(1, u8(otp_type), s(name), s(seed), u8(kind), s(b'ignored'), u32(ofs), u32(step), u32(window))
def set_in(*devices): return sec(1, lst(list(devices)))
def get_in(*names, every=0): return sec(1, u8(every), lst([s(n) for n in names]))
def check_in(name, password=b'', token=b't'): return sec(1, s(name), s(password), s(token))
def remove_in(*names): return sec(1, lst([s(n) for n in names]))


def password(step, digits=6, seed=SEED):
    h = hmac.new(seed, struct.pack('>Q', step), hashlib.sha1).digest()
    number = struct.unpack_from('>I', h, h[-1] & 15)[0] & 0x7fffffff
    return b'%0*d' % (digits, number % 10**digits)


def otp(r):
    def stored(name):
        """A device's checks, each its token, time and result."""
        body = dict(r.state()[2])[b'otp/' + name][6:]
        at = 6 + struct.unpack_from('<I', body, 2)[0]
        count, at, checks = struct.unpack_from('<I', body, at)[0], at + 4, []
        for _ in range(count):
            length = struct.unpack_from('<I', body, at + 2)[0]
            entry = body[at + 6:at + 6 + length]
            token = struct.unpack_from('<I', entry)[0]
            checks.append((entry[4:4 + token], struct.unpack_from('<II', entry, 4 + token)))
            at += 6 + length
        return checks

    def clock():
        ns = time.time_ns()
        r.out(f'now {ns // 10**9} {ns % 10**9}')

    def check(name, value, token=b't'):
        before = stored(name)

        def now():
            after = stored(name)
            if after == before:
                clock()
                return []
            return ['now %d %d' % after[-1][1]]
        r.call('otp', 'otp_check', check_in(name, value, token), before=now)
        r.seen()
        result(name, token)

    def result(name, token):
        """The reply tells the OSD's time where it knows of no check."""
        clock()
        code, out = r.call('otp', 'otp_get_result', check_in(name, b'', token))
        if code > 0 and out[-1] == 0:
            line = r.lines.pop()
            r.out('now %d %d' % struct.unpack_from('<II', out, len(out) - 9))
            r.out(line)

    def get():
        r.call('otp', 'otp_get', get_in(every=1))
        r.call('otp', 'otp_get', get_in(b'b', b'none', b'a', b'b'))

    r.object('otp-absent')
    get()
    for method, data in (('otp_check', check_in(b'a')), ('otp_get_result', check_in(b'a')), ('otp_remove', remove_in(b'a')),
                         ('get_current_time', sec(1))):
        r.call('otp', method, data)
    r.seen()
    r.call('otp', 'otp_set', set_in())
    r.seen()
    r.object('otp')
    r.call('otp', 'otp_set', set_in(device(b'a'), device(b'b', b'MZXW 6ytb', BASE32, 7, 60, 1, 9)))
    r.seen()
    get()
    for seed, kind in ((b'xyz', HEX), (b'abc', 0), (b'1', BASE32), (b'0x12', HEX)):
        r.call('otp', 'otp_set', set_in(device(b'good'), device(b'c', seed, kind)))
    r.call('otp', 'otp_set', set_in(device(b'a', b''), device(b'c', b'AbCd', 77), device(b'c', b'', BASE32)))
    r.seen()
    get()
    r.call('otp', 'otp_set', set_in(device(b'a')))
    r.call('otp', 'otp_remove', remove_in(b'c', b'none', b'c'))
    r.seen()
    r.call('otp', 'otp_remove', remove_in(b'none'))
    r.call('otp', 'otp_remove', remove_in())
    r.seen()
    # Not at the border of two steps.
    while not 2 <= time.time() % 30 < 20:
        time.sleep(1)
    step = int(time.time()) // 30
    result(b'a', b't')
    check(b'a', password(step), b'good')
    check(b'a', password(step), b'again')
    check(b'a', password(step + 1), b'early')
    check(b'a', password(step - 1), b'late')
    check(b'a', b'12345', b'short')
    check(b'a', password(step + 2), b'too many')
    result(b'a', b'good')
    result(b'a', b'late')
    r.call('otp', 'otp_set', set_in(device(b'a', window=0)))
    r.seen()
    r.call('otp', 'otp_set', set_in(device(b's', step=1, window=0), device(b'w', window=5), device(b'o', ofs=100, window=1)))
    now = int(time.time())
    check(b's', password(now + 9, 7))
    time.sleep(2.1)
    check(b's', b'')
    result(b's', b't')
    check(b'w', password(step + 5, 8), b'8')
    check(b'w', password(step + 6, 8), b'9')
    check(b'w', password(step - 5, 7), b'7')
    check(b'o', password((now - 100) // 30))
    check(b'o', b'123456\0more')
    for name in (b'none', b''):
        r.call('otp', 'otp_check', check_in(name, b'123456'))
        result(name, b't')
    r.omapset('otp/a', b'bad')
    get()
    for method, data in (('otp_check', check_in(b'a')), ('otp_get_result', check_in(b'a')), ('otp_set', set_in(device(b'a')))):
        r.call('otp', method, data)
    r.omapset('header', b'bad')
    get()
    for method, data in (('otp_remove', remove_in(b'a')), ('otp_set', set_in(device(b'n')))):
        r.call('otp', method, data)
    r.omapset('header', b'')
    get()
    r.object('otp-time')
    r.write(b'')
    code, out = r.call('otp', 'get_current_time', sec(1))
    line = r.lines.pop()
    r.out('now %d %d' % struct.unpack('<II', out[6:]))
    r.out(line)
    r.object('otp-bad')
    r.bad_inputs('otp', ['otp_set'], set_in(device(b'a')))
    for method, good in (('otp_get', get_in(b'a')), ('otp_remove', remove_in(b'z'))):
        r.bad_inputs('otp', [method], good)
    good = check_in(b'a')
    for method in ('otp_check', 'otp_get_result'):
        for data in (b'', b'\x01', good[:-1], good[:6], b'\x63\x63' + good[2:]):
            r.call('otp', method, data)
    r.seen()
