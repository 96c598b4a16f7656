"""What record.py records of the class rbd."""
import struct

from record import lst, s, sec, tm, u8, u32, u64

NOSNAP = 2**64 - 2
LAYERING, STRIPING, OBJECT_MAP, DEEP_FLATTEN, DATA_POOL, OPERATIONS, MIGRATING = 1, 2, 8, 32, 128, 256, 512


def i64(v): return struct.pack('<q', v)
def rbd_create(size, features=61, order=22, prefix=b'rbd_data.1', *more):
    return u64(size) + u8(order) + u64(features) + s(prefix) + b''.join(more)
def namespace(kind, *body): return sec(1, u32(kind), *body)
def parent_spec(pool=2, ns=b'', image=b'par', snap=3): return sec(1, i64(pool), s(ns), s(image), u64(snap))
def old_parent(pool=2, image=b'par', snap=3, overlap=None):
    return i64(pool) + s(image) + u64(snap) + (b'' if overlap is None else u64(overlap))
def child(pool=2, image=b'kid', ns=b'', version=2):
    return sec(version, i64(pool), s(image), *([s(ns)] if version > 1 else []))
def migration(kind=1, state=1, source=b'', version=3):
    more = [u8(0)] if version > 1 else []
    more += [s(source)] if version > 2 else []
    return sec(version, u8(kind), i64(2), s(b'ns'), s(b'name'), s(b'id'), lst([u64(1) + u64(2)]), u64(4096), u8(1), u8(0),
               u8(state), s(b'why'), *more)


def rbd_value(r, key):
    return dict(r.state()[2])[key.encode()]


def rbd_time(r, key):
    """The OSD's time, from a key that holds nothing else."""
    return lambda: ['now %d %d' % struct.unpack('<II', rbd_value(r, key))]


def rbd_snap(r, snap):
    """Where the name and the time of a snapshot are in its record, and the record."""
    value = rbd_value(r, 'snapshot_%016x' % snap)
    name = struct.unpack_from('<I', value, 14)[0]
    at = 18 + name + 8 + 1 + 8
    at += 6 + struct.unpack_from('<I', value, at + 2)[0]
    return value[18:18 + name], struct.unpack_from('<II', value, at)


def rbd_image(r, name, *args):
    r.object(name)
    return r.call('rbd', 'create', rbd_create(*args), before=rbd_time(r, 'create_timestamp'))


def rbd_snap_add(r, name, snap, *more):
    r.call('rbd', 'snapshot_add', s(name) + u64(snap) + b''.join(more),
           before=lambda: ['now %d %d' % rbd_snap(r, snap)[1]])


def rbd_get(r, snaps=(NOSNAP,)):
    """All that is asked of an image when it is opened."""
    for method in ('get_object_prefix', 'get_data_pool', 'get_snapcontext', 'get_create_timestamp', 'get_access_timestamp',
                   'get_modify_timestamp', 'get_all_features', 'op_features_get', 'snapshot_get_limit', 'parent_get',
                   'get_stripe_unit_count', 'migration_get'):
        r.call('rbd', method)
    for snap in snaps:
        for method in ('get_size', 'get_features', 'get_flags', 'get_parent', 'parent_overlap_get', 'get_snapshot_name',
                       'get_snapshot_timestamp', 'snapshot_get', 'get_protection_status', 'children_list'):
            r.call('rbd', method, u64(snap))
    r.call('rbd', 'metadata_list', s(b'') + u64(0))


def rbd(r):
    rbd_images(r)
    rbd_snapshots(r)
    rbd_parents(r)
    rbd_children(r)
    rbd_migrations(r)
    rbd_directories(r)
    rbd_object_maps(r)
    rbd_old_headers(r)
    rbd_data(r)


def rbd_images(r):
    r.object('rbd-none')
    rbd_get(r)
    for method, data in (('set_size', u64(1)), ('set_features', u64(0) * 2), ('set_flags', u64(1) * 2),
                         ('op_features_set', u64(1) * 2), ('snapshot_add', s(b's') + u64(1)), ('snapshot_remove', u64(1)),
                         ('snapshot_rename', u64(1) + s(b't')), ('snapshot_trash_add', u64(1)),
                         ('set_protection_status', u64(1) + u8(2)), ('set_stripe_unit_count', u64(1) * 2),
                         ('set_access_timestamp', b''), ('set_modify_timestamp', b''), ('metadata_remove', s(b'k')),
                         ('metadata_get', s(b'k')), ('snapshot_set_limit', u64(2**64 - 1)), ('parent_detach', b''),
                         ('parent_attach', parent_spec() + u64(1)), ('remove_parent', b''), ('migration_set', migration()),
                         ('migration_remove', b''), ('child_attach', u64(1) + child()), ('child_detach', u64(1) + child())):
        r.call('rbd', method, data)
    for args in ((1, 1 << 12), (1, OPERATIONS), (1, DATA_POOL), (1, 1, 22, b''), (1, 1, 22, b'p', i64(5)),
                 (1, DATA_POOL, 22, b'p', i64(-1))):
        r.call('rbd', 'create', rbd_create(*args))
    rbd_image(r, 'rbd-plain', 1 << 30)
    r.seen()
    r.call('rbd', 'create', rbd_create(1))
    rbd_get(r)
    r.call('rbd', 'get_features', u64(NOSNAP) + u8(1))
    r.call('rbd', 'get_features', u64(NOSNAP) + u8(0))
    for new, mask in ((0, OPERATIONS), (0, MIGRATING), (1, 1), (0, 1), (DEEP_FLATTEN, DEEP_FLATTEN), (0, DEEP_FLATTEN),
                      (0, 8 + 16), (64, 64), (1 << 40, 1 << 40), (1 << 11, 1 << 11), (0, 2**64 - 1 - OPERATIONS - MIGRATING)):
        r.call('rbd', 'set_features', u64(new) + u64(mask))
        r.call('rbd', 'get_features', u64(NOSNAP))
    for new, mask in ((1, 1), (0, 0), (4, 4), (0, 1), (0, 4), (16, 16), (8, 8)):
        r.call('rbd', 'op_features_set', u64(new) + u64(mask))
        r.seen()
    for flags in (u64(1) + u64(3), u64(2) + u64(2) + u64(NOSNAP), u64(0) + u64(1), u64(1) + u64(1) + u64(9)):
        r.call('rbd', 'set_flags', flags)
        r.call('rbd', 'get_flags', u64(NOSNAP))
    for size in (5, 1 << 40, 0):
        r.call('rbd', 'set_size', u64(size))
        r.call('rbd', 'get_size', u64(NOSNAP))
    r.call('rbd', 'set_access_timestamp', before=rbd_time(r, 'access_timestamp'))
    r.call('rbd', 'set_modify_timestamp', before=rbd_time(r, 'modify_timestamp'))
    r.call('rbd', 'set_stripe_unit_count', u64(4096) + u64(2))
    r.seen()
    rbd_image(r, 'rbd-striped', 1 << 30, LAYERING | STRIPING | DATA_POOL, 22, b'rbd_data.2', i64(7))
    rbd_get(r)
    for unit, count in ((0, 1), (1, 0), (3, 1), (1 << 23, 1), (65536, 16)):
        r.call('rbd', 'set_stripe_unit_count', u64(unit) + u64(count))
    r.call('rbd', 'get_stripe_unit_count')
    r.seen()
    r.call('rbd', 'metadata_set', lst([s(b'k%02d' % n) + s(b'v%d' % n) for n in range(70)] + [s(b'') + s(b'\0')]))
    for after, count in ((b'', 0), (b'', 3), (b'k01', 2), (b'k68', 100), (b'z', 1), (b'', 100)):
        r.call('rbd', 'metadata_list', s(after) + u64(count))
    for name in (b'k01', b'', b'none'):
        r.call('rbd', 'metadata_get', s(name))
        r.call('rbd', 'metadata_remove', s(name))
    r.seen()
    r.omapset('size', b'\x01')
    r.omapset('features', b'')
    r.omapset('parent', b'\x63\x63')
    rbd_get(r)
    r.object('rbd-bad')
    r.bad_inputs('rbd', ['create'], rbd_create(1))
    r.object('rbd-bad-input')
    r.call('rbd', 'set_id', b'')
    r.bad_inputs('rbd', ['get_size', 'get_features', 'get_flags', 'set_size', 'snapshot_get', 'snapshot_remove',
                         'snapshot_set_limit', 'children_list', 'get_parent', 'parent_overlap_get'], u64(1))
    r.bad_inputs('rbd', ['set_flags', 'set_features', 'op_features_set', 'set_stripe_unit_count'], u64(1) * 2)
    r.bad_inputs('rbd', ['metadata_get', 'metadata_remove', 'dir_get_id', 'dir_get_name'], s(b'name'))
    r.bad_inputs('rbd', ['parent_attach'], parent_spec() + u64(1))
    r.bad_inputs('rbd', ['migration_set'], migration())
    r.bad_inputs('rbd', ['child_attach', 'child_detach'], u64(1) + child())


def rbd_snapshots(r):
    rbd_image(r, 'rbd-snaps', 1 << 30)
    rbd_snap_add(r, b'one', 4)
    r.seen()
    rbd_snap_add(r, b'', 3)
    rbd_snap_add(r, b'one', 5)
    rbd_snap_add(r, b'other', 4)
    rbd_snap_add(r, b'one', 5, namespace(1, i64(2), s(b'group'), s(b'snap')))
    rbd_snap_add(r, b'one', 6, namespace(1, i64(3), s(b'group'), s(b'snap')))
    rbd_snap_add(r, b'one', 6, namespace(1, i64(3), s(b'group'), s(b'snap')))
    rbd_snap_add(r, b'm', 7, namespace(3, u8(0), u8(1), lst([s(b'p2'), s(b'p1')]), s(b'uuid'), u64(9), u64(3),
                                       lst([u64(1) + u64(2)])))
    rbd_snap_add(r, b'u', 8, namespace(4))
    rbd_snap_add(r, b't', 8, namespace(2, s(b'name'), u32(0)))
    rbd_snap_add(r, b'max', 2**64 - 2)
    r.seen()
    rbd_get(r, (NOSNAP, 4, 5, 6, 7, 8, 9))
    for snap, name in ((4, b'two'), (4, b'two'), (5, b'x'), (8, b'x'), (9, b'x'), (4, b'm')):
        r.call('rbd', 'snapshot_rename', u64(snap) + s(name))
    for snap, status in ((4, 2), (4, 3), (5, 1), (9, 2), (NOSNAP, 0)):
        r.call('rbd', 'set_protection_status', u64(snap) + u8(status))
    r.call('rbd', 'set_flags', u64(3) + u64(3) + u64(4))
    rbd_get(r, (4, 5))
    for snap in (4, 8, 9, 5):
        r.call('rbd', 'snapshot_remove', u64(snap))
        r.seen()
    for snap in (4, 6, 6, 9):
        r.call('rbd', 'snapshot_trash_add', u64(snap),
               before=lambda: ['random ' + rbd_snap(r, 6)[0].decode().replace('-', '')])
    r.seen()
    r.call('rbd', 'set_protection_status', u64(4) + u8(0))
    for limit in (1, 2, 3, 4):
        r.call('rbd', 'snapshot_set_limit', u64(limit))
        r.call('rbd', 'snapshot_get_limit')
    rbd_snap_add(r, b'full', 20)
    rbd_snap_add(r, b'over', 21)
    r.call('rbd', 'snapshot_set_limit', u64(2**64 - 1))
    r.call('rbd', 'snapshot_get_limit')
    rbd_snap_add(r, b'over', 21)
    for snap in (6, 4, 7, 20, 21):
        r.call('rbd', 'snapshot_remove', u64(snap))
        r.call('rbd', 'get_snapcontext')
    r.seen()
    r.omapset('snapshot_0000000000000030', sec(7, u64(0x30), s(b'old'), u64(5), u64(1), sec(
        1, i64(2), s(b'par'), u64(3), u64(4)), u8(0), u64(0), namespace(0), tm(7), u32(0)))
    rbd_get(r, (0x30,))
    r.call('rbd', 'set_flags', u64(1) + u64(1) + u64(0x30))
    r.seen()
    rbd_get(r, (0x30,))
    r.call('rbd', 'snapshot_remove', u64(0x30))
    r.seen()


def rbd_parents(r):
    rbd_image(r, 'rbd-no-layers', 1 << 20, 0)
    r.call('rbd', 'parent_attach', parent_spec() + u64(5))
    r.call('rbd', 'parent_detach')
    rbd_get(r)
    for features in (LAYERING, LAYERING | DEEP_FLATTEN):
        rbd_image(r, 'rbd-clone-%d' % features, 1 << 20, features)
        r.call('rbd', 'parent_detach')
        for spec, more in ((parent_spec(-1), u64(5)), (parent_spec(image=b''), u64(5)), (parent_spec(snap=NOSNAP), u64(5)),
                           (parent_spec(), u64(0)), (parent_spec(), u64(1 << 21)), (parent_spec(), u64(5)),
                           (parent_spec(ns=b'ns'), u64(1 << 19) + u8(1))):
            r.call('rbd', 'parent_attach', spec + more)
            rbd_get(r)
        r.seen()
        r.call('rbd', 'remove_parent')
        r.call('rbd', 'op_features_set', u64(2) * 2)
        rbd_snap_add(r, b'a', 1)
        r.call('rbd', 'set_size', u64(1 << 18))
        rbd_snap_add(r, b'b', 2)
        r.seen()
        rbd_get(r, (NOSNAP, 1, 2))
        r.call('rbd', 'parent_detach')
        r.seen()
        rbd_get(r, (NOSNAP, 1, 2))
        r.call('rbd', 'parent_detach')
        r.call('rbd', 'parent_attach', parent_spec() + u64(5))
        r.call('rbd', 'parent_attach', parent_spec(ns=b'ns') + u64(5))
        for snap in (1, 2):
            r.call('rbd', 'snapshot_remove', u64(snap))
        r.seen()
        r.call('rbd', 'parent_detach')
        r.call('rbd', 'set_parent', old_parent(overlap=5))
        r.call('rbd', 'set_parent', old_parent(overlap=6))
        rbd_snap_add(r, b'c', 3)
        rbd_get(r, (NOSNAP, 3, 4))
        r.call('rbd', 'remove_parent')
        r.call('rbd', 'snapshot_remove', u64(3))
        r.seen()


def rbd_children(r):
    r.object('rbd-children')
    for method, data in (('get_children', old_parent()), ('remove_child', old_parent() + s(b'kid')),
                         ('add_child', old_parent() + s(b'kid')), ('add_child', old_parent() + s(b'kid')),
                         ('add_child', old_parent() + s(b'abc')), ('add_child', old_parent(3) + s(b'kid')),
                         ('get_children', old_parent()), ('remove_child', old_parent() + s(b'none')),
                         ('remove_child', old_parent() + s(b'kid')), ('get_children', old_parent()),
                         ('remove_child', old_parent() + s(b'abc')), ('get_children', old_parent()),
                         ('get_children', old_parent(3)), ('add_child', old_parent()), ('get_children', b'')):
        r.call('rbd', method, data)
    rbd_image(r, 'rbd-cloned', 1 << 20)
    rbd_snap_add(r, b'a', 1)
    rbd_snap_add(r, b'b', 2)
    rbd_snap_add(r, b't', 3, namespace(2, s(b'name'), u32(0)))
    for snap, spec in ((1, child()), (1, child()), (1, child(ns=b'ns')), (1, child(1, version=1)), (2, child()), (3, child()),
                       (4, child())):
        r.call('rbd', 'child_attach', u64(snap) + spec)
    r.seen()
    r.call('rbd', 'children_list', u64(1))
    r.call('rbd', 'snapshot_get', u64(1))
    r.call('rbd', 'snapshot_remove', u64(1))
    for snap, spec in ((1, child(9)), (1, child()), (1, child(ns=b'ns')), (1, child(1)), (1, child(1)), (4, child()),
                       (2, child())):
        r.call('rbd', 'child_detach', u64(snap) + spec)
        r.seen()
    r.call('rbd', 'children_list', u64(1))


def rbd_migrations(r):
    rbd_image(r, 'rbd-migration', 1 << 20)
    r.call('rbd', 'migration_set_state', u8(2) + s(b'done'))
    r.call('rbd', 'migration_set', migration())
    r.seen()
    r.call('rbd', 'migration_set', migration(2))
    r.call('rbd', 'migration_set_state', u8(2) + s(b'done'))
    r.call('rbd', 'migration_get')
    r.call('rbd', 'migration_remove')
    r.seen()
    r.call('rbd', 'migration_remove')
    rbd_image(r, 'rbd-destination', 1 << 20, 61 | MIGRATING)
    r.call('rbd', 'migration_set', migration(1))
    for version in (1, 2):
        r.call('rbd', 'migration_set', migration(2, version=version))
        r.call('rbd', 'migration_get')
        r.call('rbd', 'migration_remove')
        r.call('rbd', 'set_features', u64(0) * 2)
    rbd_image(r, 'rbd-imported', 1 << 20, 61 | MIGRATING)
    r.call('rbd', 'migration_set', migration(2, source=b'{}'))
    r.call('rbd', 'migration_get')
    r.seen()
    for name, text in (('old', b'<<< Rados Block Device Image >>>\n\0rest'), ('short', b'<<< Rados Block Device Image >>>\n'),
                       ('other', b'x' * 40)):
        r.object('rbd-migration-' + name)
        r.write(text)
        r.call('rbd', 'migration_get')
        r.call('rbd', 'migration_set', migration(2))
        r.call('rbd', 'migration_set', migration(1))
        r.seen()
        r.call('rbd', 'migration_get')
        r.call('rbd', 'migration_set', migration(1))
        r.call('rbd', 'migration_remove')
        r.seen()
        r.call('rbd', 'migration_remove')


def rbd_directories(r):
    r.object('rbd-dir')
    r.call('rbd', 'dir_state_assert', u8(0))
    r.call('rbd', 'dir_state_set', u8(1))
    r.call('rbd', 'dir_remove_image', s(b'a') + s(b'1'))
    r.call('rbd', 'dir_add_image', s(b'') + s(b'1'))
    r.call('rbd', 'dir_add_image', b'')
    r.seen()
    for name, ident in ((b'a', b'1'), (b'a', b'2'), (b'b', b'1'), (b'b', b''), (b'b', b'a-b'), (b'b', b'2'), (b'\xff', b'3')):
        r.call('rbd', 'dir_add_image', s(name) + s(ident))
    r.call('rbd', 'dir_remove_image', s(b'\xff') + s(b'3'))
    r.seen()
    for key in (b'a', b'1', b''):
        r.call('rbd', 'dir_get_id', s(key))
        r.call('rbd', 'dir_get_name', s(key))
    for src, dst, ident in ((b'a', b'b', b'1'), (b'a', b'c', b'2'), (b'x', b'c', b'1'), (b'a', b'c', b'9'), (b'a', b'', b'1'),
                            (b'a', b'c', b'1'), (b'c', b'c', b'1')):
        r.call('rbd', 'dir_rename_image', s(src) + s(dst) + s(ident))
    for name, ident in ((b'a', b'1'), (b'c', b'2'), (b'c', b'1')):
        r.call('rbd', 'dir_remove_image', s(name) + s(ident))
    r.seen()
    for state in (0, 1, 2):
        r.call('rbd', 'dir_state_set', u8(state))
        r.call('rbd', 'dir_state_assert', u8(state))
    r.call('rbd', 'dir_remove_image', s(b'b') + s(b'2'))
    r.call('rbd', 'dir_state_set', u8(1))
    r.call('rbd', 'dir_state_assert', u8(1))
    r.call('rbd', 'dir_state_assert', u8(0))
    r.seen()
    for n in range(70):
        r.call('rbd', 'dir_add_image', s(b'image%02d' % n) + s(b'%d' % n))
    for after, count in ((b'', 0), (b'', 3), (b'image01', 2), (b'image60', 100), (b'z', 1), (b'', 66), (b'', 2**64 - 1)):
        r.call('rbd', 'dir_list', s(after) + u64(count))
    r.object('rbd-id')
    r.call('rbd', 'set_id', s(b'abc'))
    r.write(b'')
    r.call('rbd', 'get_id')
    for ident in (b'', b'a b', b'abc', b'abc', b'd'):
        r.call('rbd', 'set_id', s(ident))
    r.call('rbd', 'get_id')
    r.seen()
    r.write(b'\x09\0\0\0abc')
    r.call('rbd', 'get_id')
    r.bad_inputs('rbd', ['set_id'], s(b'id'))


def rbd_bits(states):
    """A bit vector of two bits an element, as the object map's methods take it."""
    header = sec(1, u64(len(states)))
    padded = list(states) + [0] * (-len(states) % 4)
    data = bytes(a << 6 | b << 4 | c << 2 | d for a, b, c, d in zip(*[iter(padded)] * 4))
    return s(header) + data + s(b'')


def rbd_object_maps(r):
    r.object('rbd-map')
    for method, data in (('object_map_load', b''), ('object_map_snap_add', b''), ('object_map_snap_remove', rbd_bits([])),
                         ('object_map_update', u64(0) + u64(1) + u8(1) + u8(0)), ('object_map_resize', u64(0) + u8(0)),
                         ('object_map_load', b''), ('object_map_resize', u64(256000001) + u8(0)),
                         ('object_map_resize', u64(21) + u8(1)), ('object_map_load', b'')):
        r.call('rbd', method, data)
    r.seen()
    for start, end, new, old in ((0, 1, 2, None), (5, 9, 0, 1), (20, 21, 3, 2), (20, 22, 3, None), (3, 3, 0, None), (4, 3, 0, None),
                                 (0, 21, 3, 1), (0, 9, 1, 3), (3, 18, 2, 1)):
        r.call('rbd', 'object_map_update', u64(start) + u64(end) + u8(new) + (u8(0) if old is None else u8(1) + u8(old)))
        r.call('rbd', 'object_map_load')
        r.seen()
    for count, state in ((30, 3), (25, 1), (25, 3), (25, 7), (0, 0), (21, 2), (20, 2)):
        r.call('rbd', 'object_map_resize', u64(count) + u8(state))
        r.call('rbd', 'object_map_load')
    r.seen()
    r.call('rbd', 'object_map_save', rbd_bits([0, 1, 2, 3] * 5 + [1]))
    r.seen()
    r.call('rbd', 'object_map_snap_add')
    r.call('rbd', 'object_map_snap_add')
    r.seen()
    r.call('rbd', 'object_map_snap_remove', rbd_bits([0, 1, 2, 3, 1, 0, 1, 1]))
    r.seen()
    r.call('rbd', 'object_map_snap_remove', rbd_bits([]))
    r.seen()
    r.call('rbd', 'object_map_save', rbd_bits([]))
    r.call('rbd', 'object_map_load')
    r.seen()
    r.bad_inputs('rbd', ['object_map_save'], rbd_bits([1, 2, 3]))
    r.seen()
    r.object('rbd-map-blocks')
    r.call('rbd', 'object_map_resize', u64(16400) + u8(0))
    for start, end in ((16383, 16384), (16384, 16385), (16380, 16390), (16399, 16400), (0, 16400)):
        r.call('rbd', 'object_map_update', u64(start) + u64(end) + u8(1) + u8(1) + u8(0))
        r.seen()
    r.object('rbd-map-damaged')
    r.call('rbd', 'object_map_resize', u64(16400) + u8(0))
    sound = r.state()[0]
    for at in (8, 18, 18 + 4095, 18 + 4096, 18 + 4100 + 12, 18 + 4100 + 4):
        r.write(sound[:at] + bytes([sound[at] ^ 2]) + sound[at + 1:])
        for start, end in ((0, 1), (16384, 16385)):
            r.call('rbd', 'object_map_update', u64(start) + u64(end) + u8(1) + u8(0))
        r.call('rbd', 'object_map_load')
    for cut in (1, 10, 17):
        r.write(sound[:cut])
        r.call('rbd', 'object_map_update', u64(0) + u64(1) + u8(1) + u8(0))
        r.call('rbd', 'object_map_load')


def rbd_old_headers(r):
    fixed = b'<<< Rados Block Device Image >>>\n'.ljust(40, b'\0') + b'rb.0.1.2'.ljust(24, b'\0') + b'RBD\0' + b'001.005\0'
    fixed += bytes([22, 0, 0, 0]) + u64(1 << 20)
    r.object('rbd-old')
    for method, data in (('snap_list', b''), ('snap_add', s(b'a') + u64(1)), ('snap_remove', s(b'a')),
                         ('snap_rename', u64(1) + s(b'b'))):
        r.call('rbd', method, data)
    r.write(fixed + u64(0) + u32(0) + u32(0) + u64(0))
    r.call('rbd', 'snap_list')
    for name, snap in ((b'one', 1), (b'one', 2), (b'two', 0), (b'two', 2), (b'', 3), (b'three', 9)):
        r.call('rbd', 'snap_add', s(name) + u64(snap))
        r.seen()
    r.call('rbd', 'snap_list')
    r.call('rbd', 'snapshot_set_limit', u64(3))
    r.call('rbd', 'snapshot_set_limit', u64(4))
    r.call('rbd', 'snap_add', s(b'four') + u64(10))
    for snap, name in ((1, b'two'), (7, b'new'), (1, b'uno'), (2, b'due'), (9, b'x')):
        r.call('rbd', 'snap_rename', u64(snap) + s(name))
        r.seen()
    for name in (b'none', b'due', b'x', b'uno', b''):
        r.call('rbd', 'snap_remove', s(name))
        r.seen()
    r.call('rbd', 'snap_list')
    r.bad_inputs('rbd', ['snap_add'], s(b'bad') + u64(99))
    r.write(fixed)
    r.call('rbd', 'snap_list')


def rbd_data(r):
    r.object('rbd-copyup')
    for data in (b'parent', b'other'):
        r.call('rbd', 'copyup', data)
        r.seen()
    for name, extents, data in (('some', [(4, 2), (10, 3)], b'abcde'), ('none', [], b''), ('few', [(0, 9)], b'short'),
                                ('more', [(8, 1)], b'long'), ('order', [(8, 1), (2, 1)], b'xy')):
        r.object('rbd-sparse-copyup-' + name)
        for _ in range(2):
            r.call('rbd', 'sparse_copyup', lst([u64(o) + u64(n) for o, n in extents]) + s(data))
            r.seen()
    r.object('rbd-assert')
    for _ in range(2):
        for seq, state in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2)):
            r.call('rbd', 'assert_snapc_seq', u64(seq) + u8(state))
        r.write(b'x')
    for name, data in (('absent', None), ('empty', b''), ('zeros', bytes(10)), ('full', b'x' * 10), ('start', bytes(8) + b'x'),
                       ('end', b'x' + bytes(20)), ('mixed', bytes(4) + b'a' * 5 + bytes(12) + b'b' + bytes(6))):
        for remove in (0, 1):
            r.object('rbd-sparsify-%s-%d' % (name, remove))
            if data is not None:
                r.write(data)
            r.call('rbd', 'sparsify', u64(4) + u8(remove))
            r.seen()
