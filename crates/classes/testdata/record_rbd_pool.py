"""What record.py records of the class rbd beside images: groups, trash, namespaces and mirroring."""
import struct

from record import lst, s, sec, tm, u8, u32, u64
from record_rbd import i64, namespace, rbd_image, rbd_snap_add


def trash_spec(name, source=0, state=0, version=2):
    return sec(version, u8(source), s(name), tm(1000, 5), tm(2000, 6), *([u8(state)] if version > 1 else []))


def group_image(pool, image): return sec(1, s(image), i64(pool))
def group_status(pool, image, state=0): return sec(1, group_image(pool, image), u8(state))
def group_spec(pool, group): return sec(1, i64(pool), s(group))
def group_snap(sid, name, state=1, *images):
    return sec(1, s(sid), s(name), u8(state), lst([sec(1, i64(2), s(i), u64(n)) for n, i in enumerate(images)]))


def mirror_peer(uuid, site, client=b'client.x', direction=2, mirror_uuid=b'', seen=(0, 0), version=2):
    more = [u8(direction), s(mirror_uuid), tm(*seen)] if version > 1 else []
    return sec(version, s(uuid), s(site), s(client), i64(7), *more)


def mirror_image(global_id, state=1, mode=1, version=2):
    return sec(version, s(global_id), u8(state), *([u8(mode)] if version > 1 else []))


def mirror_status(state, description=b'', uuid=b''):
    version = 2 if uuid else 1
    return sec(version, *([s(uuid)] if uuid else []), u8(state), s(description), tm(0), u8(1), compat=version)


def rbd_pool(r):
    rbd_trash(r)
    rbd_namespaces(r)
    rbd_groups(r)
    rbd_group_snaps(r)
    rbd_mirror_pool(r)
    rbd_mirror_images(r)
    rbd_mirror_status(r)
    rbd_mirror_snaps(r)


def rbd_calls(r, *calls):
    for method, data in calls:
        r.call('rbd', method, data)


def rbd_lists(r, method, key=s):
    for after, most in ((b'', 100), (b'', 2), (b'', 0), (b'b', 100), (b'zz', 1)):
        r.call('rbd', method, key(after) + u64(most))


def rbd_trash(r):
    r.object('rbd-trash')
    rbd_calls(r, ('trash_remove', s(b'a')), ('trash_get', s(b'a')), ('trash_list', s(b'') + u64(9)),
              ('trash_state_set', s(b'a') + u8(0) + u8(1)), ('trash_add', s(b'') + trash_spec(b'x')),
              ('trash_add', s(b'a_b') + trash_spec(b'x')))
    r.seen()
    rbd_calls(r, ('trash_add', s(b'a') + trash_spec(b'first')), ('trash_add', s(b'a') + trash_spec(b'again')),
              ('trash_add', s(b'b') + trash_spec(b'old', 1, version=1)), ('trash_add', s(b'c') + trash_spec(b'', 9, 9)),
              ('trash_get', s(b'b')), ('trash_get', s(b'c')), ('trash_get', s(b'd')))
    r.seen()
    rbd_lists(r, 'trash_list')
    rbd_calls(r, *[('trash_state_set', s(b'a') + u8(new) + u8(old)) for new, old in ((1, 0), (1, 0), (2, 0), (3, 1))],
              ('trash_state_set', s(b'x') + u8(1) + u8(0)), ('trash_get', s(b'a')), ('trash_remove', s(b'c')),
              ('trash_remove', s(b'c')))
    r.seen()
    r.omapset('id_bad', b'bad')
    rbd_calls(r, ('trash_add', s(b'bad') + trash_spec(b'x')), ('trash_get', s(b'bad')),
              ('trash_state_set', s(b'bad') + u8(0) + u8(0)), ('trash_remove', s(b'bad')))
    r.bad_inputs('rbd', ['trash_add'], s(b'q') + trash_spec(b'x'))
    r.seen()


def rbd_namespaces(r):
    r.object('rbd-namespaces')
    rbd_calls(r, ('namespace_list', s(b'') + u64(9)), ('namespace_remove', s(b'a')))
    r.seen()
    rbd_calls(r, *[('namespace_add', s(n)) for n in (b'a', b'a', b'', b'c', b'b', b'z_z')])
    r.seen()
    rbd_lists(r, 'namespace_list')
    rbd_calls(r, ('namespace_remove', s(b'a')), ('namespace_remove', s(b'a')), ('namespace_remove', b'\x05'))
    r.seen()


def rbd_groups(r):
    r.object('rbd-group-directory')
    rbd_calls(r, ('group_dir_list', s(b'') + u64(9)), ('group_dir_remove', s(b'g') + s(b'1')),
              ('group_dir_rename', s(b'g') + s(b'h') + s(b'1')), ('group_dir_add', s(b'') + s(b'1')),
              ('group_dir_add', s(b'g') + s(b'')), ('group_dir_add', s(b'g') + s(b'a b')))
    r.seen()
    rbd_calls(r, *[('group_dir_add', s(n) + s(i)) for n, i in ((b'g', b'1'), (b'g', b'2'), (b'h', b'1'), (b'b', b'22'), (b'bb', b'3'))])
    r.seen()
    rbd_lists(r, 'group_dir_list')
    for names in ((b'g', b'g', b'1'), (b'g', b'b', b'1'), (b'g', b'x', b'22'), (b'none', b'x', b'1'), (b'g', b'', b'1'), (b'g', b'new', b'1')):
        r.call('rbd', 'group_dir_rename', b''.join(s(n) for n in names))
    r.seen()
    for name, gid in ((b'new', b'22'), (b'new', b'9'), (b'x', b'1'), (b'new', b'1')):
        r.call('rbd', 'group_dir_remove', s(name) + s(gid))
    r.omapset('name_bad', b'bad')
    rbd_calls(r, ('group_dir_list', s(b'') + u64(9)), ('group_dir_add', s(b'bad') + s(b'77')),
              ('group_dir_remove', s(b'bad') + s(b'77')))
    r.seen()

    r.object('rbd-group')
    rbd_calls(r, ('group_image_list', group_image(-1, b'') + u64(9)), ('group_image_remove', group_image(2, b'i')))
    rbd_calls(r, *[('group_image_set', group_status(p, i, st)) for p, i, st in
                   ((2, b'i', 1), (2, b'i', 0), (10, b'j_k', 7), (2**63 - 1, b'l', 0), (-2, b'm', 0), (255, b'a', 1))])
    r.seen()
    for (pool, image), most in (((-1, b''), 9), ((-1, b'x'), 9), ((-1, b''), 0), ((-1, b''), 2), ((2, b'i'), 9), ((2, b''), 9), ((254, b'zz'), 1)):
        r.call('rbd', 'group_image_list', group_image(pool, image) + u64(most))
    rbd_calls(r, ('group_image_remove', group_image(2, b'i')), ('group_image_remove', group_image(2, b'i')))
    r.seen()
    r.bad_inputs('rbd', ['group_image_set'], group_status(1, b'x'))
    r.omapset('image_bad', b'\0')
    r.call('rbd', 'group_image_list', group_image(-1, b'') + u64(99))

    r.object('rbd-group-member')
    rbd_calls(r, ('image_group_get', b''), ('image_group_add', group_spec(2, b'g')), ('image_group_remove', group_spec(2, b'g')))
    rbd_image(r, 'rbd-group-member', 4096)
    rbd_calls(r, ('image_group_get', b''), ('image_group_remove', group_spec(2, b'g')), ('image_group_add', group_spec(2, b'g')),
              ('image_group_add', group_spec(2, b'g')), ('image_group_add', group_spec(3, b'g')),
              ('image_group_add', group_spec(2, b'h')), ('image_group_get', b''), ('op_features_get', b''))
    r.seen()
    rbd_calls(r, ('image_group_remove', group_spec(3, b'g')), ('image_group_remove', group_spec(2, b'h')),
              ('image_group_remove', group_spec(2, b'g')), ('image_group_get', b''))
    r.seen()
    r.omapset('rbd_group_ref', b'bad')
    rbd_calls(r, ('image_group_get', b''), ('image_group_add', group_spec(2, b'g')), ('image_group_remove', group_spec(2, b'g')))


def rbd_group_snaps(r):
    """Since Squid the order of snapshots is kept, too: so what is stored is not compared here."""
    r.object('rbd-group-snaps')
    rbd_calls(r, ('group_snap_list', group_snap(b'', b'') + u64(9)), ('group_snap_get_by_id', s(b'1')),
              ('group_snap_remove', s(b'1')), ('group_snap_set', group_snap(b'', b'name')),
              ('group_snap_set', group_snap(b'1', b'')))
    rbd_calls(r, *[('group_snap_set', group_snap(i, n, st, *images)) for i, n, st, images in
                   ((b'1', b'one', 0, ()), (b'1', b'one', 0, ()), (b'1', b'one', 1, (b'a', b'b')), (b'2', b'one', 1, ()),
                    (b'2', b'two', 1, ()), (b'1', b'two', 1, ()), (b'bb', b'three', 0, (b'c',)), (b'1', b'uno', 5, (b'a',)))])
    rbd_lists(r, 'group_snap_list', lambda after: group_snap(after, b'whatever', 0, b'i'))
    rbd_calls(r, *[('group_snap_get_by_id', s(i)) for i in (b'1', b'bb', b'3')], ('group_snap_remove', s(b'1')),
              ('group_snap_remove', s(b'1')), ('group_snap_list', group_snap(b'', b'') + u64(9)))
    r.bad_inputs('rbd', ['group_snap_set'], group_snap(b'9', b'nine', 1, b'a'))
    r.omapset('snapshot_bad', b'bad')
    rbd_calls(r, ('group_snap_list', group_snap(b'', b'') + u64(9)), ('group_snap_get_by_id', s(b'bad')),
              ('group_snap_set', group_snap(b'10', b'ten')))


def rbd_mirror_pool(r):
    modes = [('mirror_mode_set', u32(n)) for n in (0, 1, 2, 9)]
    r.object('rbd-mirror-pool')
    rbd_calls(r, ('mirror_uuid_get', b''), ('mirror_mode_get', b''), ('mirror_peer_list', b''), *modes,
              ('mirror_peer_remove', s(b'p')), ('mirror_peer_set_client', s(b'p') + s(b'c')),
              ('mirror_peer_set_cluster', s(b'p') + s(b'c')), ('mirror_peer_set_direction', s(b'p') + u8(1)),
              ('mirror_peer_add', mirror_peer(b'p', b'site')), ('mirror_peer_ping', s(b'site') + s(b'u') + u8(1)),
              ('mirror_uuid_set', s(b'')), ('mirror_uuid_set', s(b'me')))
    r.seen()
    rbd_calls(r, ('mirror_uuid_get', b''), ('mirror_uuid_set', s(b'us')), *modes, ('mirror_mode_get', b''),
              ('mirror_uuid_set', s(b'me')))
    r.seen()
    for peer in (mirror_peer(b'p1', b'A'), mirror_peer(b'p1', b'B'), mirror_peer(b'p2', b'A'), mirror_peer(b'us', b'C'),
                 mirror_peer(b'p2', b'B', direction=1), mirror_peer(b'p2', b'B', direction=5), mirror_peer(b'', b'B'),
                 mirror_peer(b'p2', b''), mirror_peer(b'p2', b'B', b''), mirror_peer(b'p2', b'B', direction=0, mirror_uuid=b'm2', seen=(3, 4)),
                 mirror_peer(b'p3', b'C', mirror_uuid=b'm2'), mirror_peer(b'p4', b'D', version=1)):
        r.call('rbd', 'mirror_peer_add', peer)
    r.seen()
    rbd_calls(r, ('mirror_peer_list', b''), ('mirror_mode_set', u32(0)), ('mirror_peer_set_client', s(b'p1') + s(b'client.y')),
              ('mirror_peer_set_cluster', s(b'p1') + s(b'B')), ('mirror_peer_set_cluster', s(b'p1') + s(b'E')),
              ('mirror_peer_set_cluster', s(b'none') + s(b'F')), ('mirror_peer_set_direction', s(b'p4') + u8(0)),
              ('mirror_peer_set_direction', s(b'none') + u8(0)))
    r.seen()

    def peers():
        return {k: v for k, v in r.state()[2] if k.startswith(b'mirror_peer_')}

    def ping(site, uuid, direction=1):
        before = peers()

        def lines():
            (key, value), = set(peers().items()) - set(before.items())
            uuid = key[len('mirror_peer_'):].decode().replace('-', '')
            fresh = [] if key in before else [f'random {uuid}']
            return ['now %d %d' % struct.unpack('<II', value[-8:])] + fresh
        r.call('rbd', 'mirror_peer_ping', s(site) + s(uuid) + u8(direction), before=lines)
        r.seen()
    for site, uuid, direction in ((b'', b'u', 1), (b'E', b'', 1), (b'E', b'u', 0), (b'E', b'u', 2)):
        r.call('rbd', 'mirror_peer_ping', s(site) + s(uuid) + u8(direction))
    for site, uuid in ((b'E', b'm1'), (b'E', b'm1'), (b'B', b'm2'), (b'B2', b'm2'), (b'new', b'm9'), (b'E', b'm9'), (b'E', b'other'), (b'D', b'm4')):
        ping(site, uuid)
    r.call('rbd', 'mirror_peer_list')
    for name in sorted(peers()) + [b'mirror_peer_none']:
        r.call('rbd', 'mirror_peer_remove', s(name[len('mirror_peer_'):]))
    r.bad_inputs('rbd', ['mirror_peer_add'], mirror_peer(b'p1', b'A'))
    r.call('rbd', 'mirror_peer_remove', s(b'p1'))
    r.call('rbd', 'mirror_mode_set', u32(0))
    r.call('rbd', 'mirror_mode_set', u32(0))
    r.seen()


def rbd_mirror_images(r):
    r.object('rbd-mirror-images')
    rbd_calls(r, ('mirror_image_get', s(b'i')), ('mirror_image_get_image_id', s(b'g')), ('mirror_image_remove', s(b'i')),
              ('mirror_image_list', s(b'') + u64(9)), ('mirror_image_set', s(b'i') + mirror_image(b'g', 0)))
    rbd_calls(r, *[('mirror_image_set', s(i) + mirror_image(g, st, mode, version)) for i, g, st, mode, version in
                   ((b'a', b'ga', 1, 1, 2), (b'a', b'gb', 1, 1, 2), (b'b', b'ga', 1, 1, 2), (b'b', b'gb', 1, 0, 1),
                    (b'bb', b'gc', 3, 0, 2), (b'd', b'gd', 0, 0, 2), (b'a', b'ga', 2, 9, 2))])
    r.seen()
    rbd_lists(r, 'mirror_image_list')
    rbd_calls(r, ('mirror_image_get', s(b'a')), ('mirror_image_get', s(b'b')), ('mirror_image_get_image_id', s(b'ga')),
              ('mirror_image_get_image_id', s(b'none')), ('mirror_image_remove', s(b'a')),
              ('mirror_image_set', s(b'a') + mirror_image(b'ga', 0)), ('mirror_image_remove', s(b'a')),
              ('mirror_image_remove', s(b'a')))
    r.seen()
    r.bad_inputs('rbd', ['mirror_image_set'], s(b'e') + mirror_image(b'ge'))
    r.omapset('image_x', b'bad')
    rbd_calls(r, ('mirror_image_list', s(b'') + u64(9)), ('mirror_image_get', s(b'x')), ('mirror_image_remove', s(b'x')),
              ('mirror_image_set', s(b'x') + mirror_image(b'gx')))

    r.object('rbd-mirror-instances')
    rbd_calls(r, ('mirror_instances_list', b''), ('mirror_instances_remove', s(b'1')), ('mirror_instances_add', s(b'1')),
              ('mirror_instances_add', s(b'2')), ('mirror_instances_add', s(b'2')), ('mirror_instances_list', b''),
              ('mirror_instances_remove', s(b'1')), ('mirror_instances_remove', s(b'1')))
    maps = lambda instance, data=b'': sec(1, s(instance), tm(5, 6), s(data))
    rbd_calls(r, ('mirror_image_map_list', s(b'') + u64(9)), ('mirror_image_map_remove', s(b'g')),
              *[('mirror_image_map_update', s(g) + maps(i, b'data')) for g, i in ((b'g', b'1'), (b'h', b'2'), (b'g', b'2'), (b'c', b''))])
    r.seen()
    rbd_lists(r, 'mirror_image_map_list')
    r.call('rbd', 'mirror_image_map_remove', s(b'g'))
    r.bad_inputs('rbd', ['mirror_image_map_update'], s(b'x') + maps(b'2', b'data'))
    r.seen()
    r.omapset('image_map_bad', b'bad')
    r.call('rbd', 'mirror_image_map_list', s(b'') + u64(9))
    r.object('rbd-mirror-instances-absent')
    r.call('rbd', 'mirror_image_map_remove', s(b'g'))
    r.call('rbd', 'mirror_instances_remove', s(b'1'))
    r.seen()


def rbd_mirror_status(r):
    def status_now(key):
        def lines():
            value = dict(r.state()[2]).get(key)
            # The end of it: the time, and whether the daemon is there.
            return [] if value is None else ['now %d %d' % struct.unpack('<II', value[-9:-1])]
        return lines

    def set_status(global_id, status, uuid=b'', by=0):
        key = b'status_global_' + global_id if not uuid else b'remote_status_global_' + global_id + b'_' + uuid
        r.call('rbd', 'mirror_image_status_set', s(global_id) + status, by=by, before=status_now(key))

    def summaries():
        for peers in (None, [], [(0, b'')], [(1, b'u')], [(2, b'u')], [(1, b'none')], [(1, b'u'), (1, b'v')], [(0, b''), (1, b'v')]):
            data = b'' if peers is None else lst([mirror_peer(b'p', b's', direction=d, mirror_uuid=u) for d, u in peers])
            r.call('rbd', 'mirror_image_status_get_summary', data)

    def get_all():
        for g in (b'ga', b'gb', b'gc', b'none'):
            r.call('rbd', 'mirror_image_status_get', s(g))
            r.call('rbd', 'mirror_image_instance_get', s(g))
        rbd_lists(r, 'mirror_image_status_list')
        rbd_lists(r, 'mirror_image_instance_list')
        summaries()

    r.object('rbd-mirror-status')
    rbd_calls(r, ('mirror_image_status_set', s(b'ga') + mirror_status(4)), ('mirror_image_status_remove', s(b'ga')),
              ('mirror_image_status_remove_down', b''))
    get_all()
    r.seen()
    for image, g in ((b'a', b'ga'), (b'b', b'gb'), (b'c', b'gc')):
        r.call('rbd', 'mirror_image_set', s(image) + mirror_image(g))
    get_all()
    set_status(b'ga', mirror_status(4, b'mine'))
    set_status(b'ga', mirror_status(6, b'theirs', b'u'), b'u', by=1)
    set_status(b'gb', mirror_status(1, b'failed', b'u'), b'u', by=1)
    set_status(b'gb', mirror_status(5, b'stopping', b'v'), b'v')
    set_status(b'gb', mirror_status(3))
    set_status(b'gone', mirror_status(3))
    r.call('rbd', 'mirror_image_set', s(b'c') + mirror_image(b'gc', 0))
    set_status(b'gc', mirror_status(3))
    r.seen()
    get_all()
    watches = []
    for n in (1, 0):
        watches.append(r.client(n).watch(r.oid, lambda *_: None))
        r.out('watches yes')
        get_all()
    watches.pop(0).close()
    r.client(1)
    r.out('watches no')
    get_all()
    r.call('rbd', 'mirror_image_status_remove_down')
    r.seen()
    get_all()
    watches.pop(0).close()
    r.client(0)
    r.out('watches no')
    r.call('rbd', 'mirror_image_status_remove', s(b'gb'))
    r.seen()
    r.omapset('status_global_ga', b'bad')
    get_all()
    rbd_calls(r, ('mirror_image_status_remove_down', b''), ('mirror_image_set', s(b'a') + mirror_image(b'ga', 0)),
              ('mirror_image_remove', s(b'a')))
    r.bad_inputs('rbd', ['mirror_image_status_set'], s(b'none') + mirror_status(1))
    r.seen()


def rbd_mirror_snaps(r):
    rbd_image(r, 'rbd-mirror-snaps', 4096)

    def mirror_ns(state, *peers):
        return namespace(3, u8(state), u8(0), lst([s(p) for p in peers]), s(b'primary'), u64(9), u64(0), lst([u64(1) + u64(2)]))
    for snap, state in ((1, 0), (2, 2), (3, 3), (4, 1)):
        rbd_snap_add(r, b'.mirror.%d' % snap, snap, mirror_ns(state, b'p1', b'p2'))
    rbd_snap_add(r, b'user', 5)
    for snap in range(1, 7):
        rbd_calls(r, ('mirror_image_snapshot_unlink_peer', u64(snap) + s(b'p1')),
                  ('mirror_image_snapshot_unlink_peer', u64(snap) + s(b'p1')),
                  ('mirror_image_snapshot_set_copy_progress', u64(snap) + u8(snap % 2) + u64(77)))
    r.seen()
    for snap in range(1, 6):
        r.call('rbd', 'snapshot_get', u64(snap))
