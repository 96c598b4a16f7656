"""Kinds of damage: what a pool holds, and what is done to the copies of its PG."""
import collections

# `fill` gets a function that calls `rados` for the pool, `damage` the place.
Kind = collections.namedtuple('Kind', 'fill damage is_coded scrubbed_before')
KINDS = {}

TEXT = b'hello scrub world\n' * 8
OTHER = b'HELLO scrub world\n' * 8
PRIMARY, REPLICA = 0, 1


def kind(fill, is_coded=False, scrubbed_before=False):
    """Of kinds with `scrubbed_before`, Ceph has noted the digest of the omap before the damage."""
    def note(damage):
        KINDS[damage.__name__] = Kind(fill, damage, is_coded, scrubbed_before)
        return damage
    return note


def plain(rados):
    rados('put', 'obj', '-', data=TEXT)


def with_attrs(rados):
    plain(rados)
    rados('setxattr', 'obj', 'colour', 'blue')
    rados('setxattr', 'obj', 'taste', 'sweet')


def with_omap(rados):
    rados('create', 'obj')
    rados('setomapheader', 'obj', 'head')
    for key in ('one', 'two', 'three'):
        rados('setomapval', 'obj', key, f'value of {key}')


def with_clones(rados):
    rados('put', 'obj', '-', data=b'first' * 20)
    rados('mksnap', 's1')
    rados('put', 'obj', '-', data=b'second' * 20)
    rados('mksnap', 's2')
    rados('mksnap', 's3')
    rados('append', 'obj', '-', data=b'third')


@kind(plain)
def missing_replica(place):
    place.do(REPLICA, 'remove')


@kind(plain)
def missing_primary(place):
    place.do(PRIMARY, 'remove')


@kind(plain)
def missing_two(place):
    place.do(PRIMARY, 'remove')
    place.do(REPLICA, 'remove')


@kind(plain)
def size_replica(place):
    place.do(REPLICA, 'set-bytes', data=b'short')


@kind(plain)
def size_primary(place):
    place.do(PRIMARY, 'set-bytes', data=b'short')


@kind(plain)
def data_replica(place):
    place.do(REPLICA, 'set-bytes', data=OTHER)


@kind(plain)
def data_primary(place):
    place.do(PRIMARY, 'set-bytes', data=OTHER)


@kind(plain)
def data_all(place):
    for member in range(3):
        place.do(member, 'set-bytes', data=OTHER)


@kind(plain)
def missing_and_data(place):
    place.do(REPLICA, 'remove')
    place.do(PRIMARY, 'set-bytes', data=OTHER)


@kind(with_attrs)
def attr_value(place):
    place.do(REPLICA, 'set-attr', '_colour', data=b'red')


@kind(with_attrs)
def attr_missing(place):
    place.do(REPLICA, 'rm-attr', '_colour')


@kind(with_attrs)
def attr_extra(place):
    place.do(PRIMARY, 'set-attr', '_smell', data=b'strong')


@kind(plain)
def info_missing(place):
    place.do(REPLICA, 'rm-attr', '_')


@kind(plain)
def info_corrupted(place):
    place.do(REPLICA, 'set-attr', '_', data=b'no info')


@kind(with_omap, scrubbed_before=True)
def omap_value(place):
    place.do(REPLICA, 'set-omap', 'one', data=b'other')


@kind(with_omap)
def omap_value_unscrubbed(place):
    place.do(REPLICA, 'set-omap', 'one', data=b'other')


@kind(with_omap, scrubbed_before=True)
def omap_key_removed(place):
    place.do(PRIMARY, 'rm-omap', 'two')


@kind(with_omap, scrubbed_before=True)
def omap_header(place):
    place.do(REPLICA, 'set-omaphdr', data=b'other')


@kind(with_clones)
def clone_missing(place):
    place.do(REPLICA, 'remove', snap=1)


@kind(with_clones)
def clone_missing_all(place):
    for member in range(3):
        place.do(member, 'remove', snap=1)


@kind(plain, is_coded=True)
def ec_missing(place):
    place.do(REPLICA, 'remove')


@kind(plain, is_coded=True)
def ec_data(place):
    length = len(place.do(REPLICA, 'get-bytes'))
    place.do(REPLICA, 'set-bytes', data=b'x' * length)


@kind(plain, is_coded=True)
def ec_size(place):
    place.do(REPLICA, 'set-bytes', data=b'short')
