#!/usr/bin/python3
"""Compares two sets of transcripts of record.py, such as those of Ceph and of Spirula.

    compare.py DIR DIR

What differs from run to run is replaced first: ids, nonces, times and random tags, which the transcripts name. The keys
of the class log also tell the PG's version, whose number of digits differs: to compare those transcripts, let the unit
test replay both.
"""
import base64
import os
import re
import struct
import sys
import uuid


def plain(path):
    names, callers = {}, []
    with open(path) as f:
        text = f.read()
    for line in text.splitlines():
        match line.split(' '):
            case ['caller', num, addr]:
                if num not in callers:
                    callers.append(num)
                n = callers.index(num)
                names[struct.pack('<Q', int(num)).hex()] = f'<id{n}>'
                names[struct.pack('<I', int(addr.rsplit('/', 1)[1])).hex()] = f'<nonce{n}>'
                names[f'client.{num} {addr}'.encode().hex()] = f'<caller{n}>'
            case ['now', sec, nsec]:
                # The locks that expire do so after a second.
                names[struct.pack('<II', int(sec) + 1, int(nsec)).hex()] = '<expiration>'
                names[struct.pack('<II', int(sec), int(nsec)).hex()] = '<now>'
            case ['random', tag]:
                names[base64.b64encode(bytes.fromhex(tag)).hex()] = '<tag>'
                if len(tag) == 32:
                    names[str(uuid.UUID(tag)).encode().hex()] = '<uuid>'
    raw = text.splitlines()
    for known in sorted(names, key=len, reverse=True):
        text = text.replace(known, names[known])
    text = re.sub(r'^(caller|now|random|user_version) .*$', r'\1', text, flags=re.M)
    return raw, text.splitlines()


def main():
    one, other = sys.argv[1:3]
    failed = False
    for name in sorted(set(os.listdir(one)) & set(os.listdir(other))):
        if not name.endswith('.txt'):
            continue
        (raw_a, a), (raw_b, b) = plain(os.path.join(one, name)), plain(os.path.join(other, name))
        # In long lines a number may look like an id: what is equal as it is, is equal.
        lines = zip(raw_a, raw_b, a, b)
        different = [(n, x, y) for n, (p, q, x, y) in enumerate(lines, 1) if p != q and x != y]
        calls = sum(line.startswith('call ') for line in a)
        print(f'{name}: {calls} calls, {len(different)} of {len(a)} lines differ')
        for n, x, y in different[:10]:
            print(f'  {n}: {x}\n  {n}: {y}')
        failed |= bool(different) or len(a) != len(b)
    sys.exit(failed)


main()
