//! Trash, namespaces, groups, mirroring and journals of block images, through the official `rbd`
//! and librbd.

use crate::common::Cluster;

fn with_pool(test: &str) -> Cluster {
    let c = Cluster::up(test, 3, &[]);
    c.sh("ceph osd pool create p 8 8 replicated; rbd pool init p");
    c
}

/// Runs a script and compares the words of its output. In it, `fails COMMAND` prints how a command
/// fails, and `data IMAGE` the MD5 sum of an image's data.
fn says(c: &Cluster, script: &str, want: &str) {
    let prologue = "export CEPH_ARGS='--no-log-to-stderr'; quiet() { \"$@\" >/dev/null 2>&1; }\n\
                    fails() { local code=0; quiet \"$@\" || code=$?; echo \"fails: $code\"; }\n\
                    data() { rbd export \"$1\" - --no-progress | md5sum; }\n";
    let got = c.sh(&format!("{prologue}{script}"));
    let lines = |text: &str| -> Vec<String> {
        let words = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
        words.filter(|l| !l.is_empty()).map(|l| l.join(" ")).collect()
    };
    assert_eq!(lines(&got), lines(want), "{script}");
}

#[test]
fn the_trash_keeps_images_that_can_be_restored() {
    let c = with_pool("rbd-trash");
    says(
        &c,
        r#"
head -c 3000000 /dev/urandom > in
rbd import --no-progress in p/a
rbd create --size 8M p/b
rbd trash mv p/a
rbd ls p
id=$(rbd trash ls p | cut -d' ' -f1)
rbd trash ls p | sed s/$id/ID/
fails rbd trash rm p/none
rbd trash restore p/$id --image again
rbd export --no-progress p/again - | cmp - in && echo as before
rbd trash mv p/again --expires-at tomorrow
fails rbd trash rm p/$id
rbd trash ls p --long --format json | sed 's/.*"source":"\([A-Z]*\)".*/\1/'
rbd trash rm --no-progress --force p/$id
rbd create --size 8M p/c
rbd trash mv p/b
rbd trash mv p/c --expires-at tomorrow
rbd trash purge --no-progress p
rbd trash ls p | cut -d' ' -f2
rbd ls p
rados -p p ls | grep -c rbd_data || true
"#,
        "b\nID a\nfails: 2\nas before\nfails: 1\nUSER\nc\n0",
    );
}

#[test]
fn namespaces_have_images_of_their_own() {
    let c = with_pool("rbd-namespaces");
    says(
        &c,
        r#"
rbd namespace create p/n
fails rbd namespace create p/n
rbd namespace create p/m
rbd namespace ls p --format json
head -c 3000000 /dev/urandom > in
rbd import --no-progress in p/n/i
rbd create --size 4M p/i
rbd create --size 4M p/j
rbd ls p/n
rbd snap create --no-progress p/n/i@s
rbd export --no-progress p/n/i@s - | cmp - in && echo alike
rbd clone --rbd-default-clone-format 2 p/n/i@s p/m/clone
rbd export --no-progress p/m/clone - | cmp - in && echo alike
rbd info p/m/clone | grep parent
fails rbd namespace rm p/n
rbd rm --no-progress p/m/clone
rbd snap purge --no-progress p/n/i
rbd rm --no-progress p/n/i
rbd namespace rm p/n
fails rbd create --size 4M p/n/i
rbd namespace ls p
rbd ls p
"#,
        r#"
fails: 17
[{"name":"m"},{"name":"n"}]
i
alike
alike
parent: p/n/i@s
fails: 16
fails: 2
NAME
m
i
j
"#,
    );
}

#[test]
fn groups_take_and_roll_back_snapshots_of_all_their_images() {
    let c = with_pool("rbd-groups");
    says(
        &c,
        r#"
for i in a b c; do head -c 2000000 /dev/urandom > $i; rbd import --no-progress $i p/$i; done
rbd group create p/g
fails rbd group create p/g
for i in a b b; do rbd group image add p/g p/$i; done
rbd group create p/other
fails rbd group image add p/other p/a
rbd group image ls p/g
rbd info p/a | grep -e op_features -e group:
rbd group rename p/g p/h
rbd group ls p
rbd group snap create p/h@s
fails rbd group snap create p/h@s
rbd group snap rename p/h@s t
rbd bench --io-type write --io-size 64K --io-total 1M --io-pattern rand p/a >/dev/null
rbd bench --io-type write --io-size 64K --io-total 1M --io-pattern rand p/b >/dev/null
rbd group snap create p/h@u
for i in a b; do rbd export --no-progress p/$i $i.changed; cmp -s $i $i.changed || echo changed; done
rbd snap ls --all p/a --format json | grep -o '"group snap":"[a-z]"'
rbd group snap rollback --no-progress p/h@t
for i in a b; do rbd export --no-progress p/$i - | cmp - $i && echo back; done
rbd group snap rollback --no-progress p/h@u
for i in a b; do rbd export --no-progress p/$i - | cmp - $i.changed && echo forth; done
rbd group snap rm p/h@t
rbd group snap ls p/h --format json
fails rbd rm p/a
rbd group image rm p/h p/a
rbd group image ls p/h
rbd snap ls --all p/a | grep -c /h@t || true
rbd group rm p/h
rbd group ls p
rbd info p/b | grep -c group: || true
rbd rm --no-progress p/b
rbd ls p
"#,
        r#"
fails: 17
fails: 17
p/a
p/b
op_features: group
group: p/g
h
other
fails: 17
changed
changed
"group snap":"t"
"group snap":"u"
back
back
forth
forth
[{"snapshot":"u","state":"ok"}]
fails: 39
p/b
0
other
0
a
c
"#,
    );
}

#[test]
fn mirroring_by_snapshots_is_set_up_and_primaries_change() {
    let c = with_pool("rbd-mirror");
    says(
        &c,
        r#"
fails rbd mirror pool peer add p client.remote@site-b
rbd mirror pool enable p image
rbd mirror pool info p | grep -v Site.Name
peer=$(rbd mirror pool peer add p client.remote@site-b)
fails rbd mirror pool peer add p client.remote@site-b
rbd mirror pool peer set p $peer client client.other
rbd mirror pool peer set p $peer site-name site-c
rbd mirror pool info p | grep -e Name: -e Direction -e Client | grep -v Site
fails rbd mirror pool disable p
rbd create --size 4M p/i
rbd mirror image enable p/i snapshot
rbd mirror image snapshot p/i | sed 's/: .*//'
rbd snap ls --all p/i --format json | grep -o '"state":"[a-z]*","mirror_peer_uuids":\["[^"]*"\]' | sed s/$peer/PEER/
rbd mirror pool status p
rbd mirror image status p/i | grep -e state -e description
rbd mirror image demote p/i
rbd info p/i | grep -e 'mirroring mode' -e primary:
fails rbd bench --io-type write --io-size 4K --io-total 4K p/i
rbd mirror image promote p/i
rbd info p/i | grep primary:
rbd mirror image disable p/i
rbd snap ls --all p/i
rbd mirror pool peer remove p $peer
rbd mirror pool disable p
rbd mirror pool info p
"#,
        r#"
fails: 22
Mode: image
Peer Sites: none
fails: 22
Name: site-c
Direction: rx-tx
Client: client.other
fails: 16
Mirroring enabled
Snapshot ID
"state":"primary","mirror_peer_uuids":["PEER"]
"state":"primary","mirror_peer_uuids":["PEER"]
health: WARNING
daemon health: UNKNOWN
image health: WARNING
images: 1 total
1 unknown
state: down+unknown
description: status not found
Image demoted to non-primary
mirroring mode: snapshot
mirroring primary: false
fails: 30
Image promoted to primary
mirroring primary: true
Mirroring disabled
Mode: disabled
"#,
    );
    // A daemon's word on an image holds while it watches.
    c.python(
        r#"
import rbd
io = cluster.open_ioctx('p')
mirror = rbd.RBD()
mirror.mirror_mode_set(io, rbd.RBD_MIRROR_MODE_IMAGE)
with rbd.Image(io, 'i') as image:
    image.mirror_image_enable(rbd.RBD_MIRROR_IMAGE_MODE_SNAPSHOT)
    info = image.mirror_image_get_info()
    assert info['primary'] and info['state'] == rbd.RBD_MIRROR_IMAGE_ENABLED, info
import struct
def s(b):
    return struct.pack('<I', len(b)) + b
status = struct.pack('<B', 4) + s(b'copying') + bytes(8) + b'\1'
status = s(info['global_id'].encode()) + struct.pack('<BBI', 1, 1, len(status)) + status
io.execute('rbd_mirroring', 'rbd', 'mirror_image_status_set', status)
def state():
    with rbd.Image(io, 'i') as image:
        status = image.mirror_image_get_status()
    assert (status['state'], status['description'], status['remote_statuses']) == (4, 'copying', []), status
    summary = list(mirror.mirror_image_status_summary(io))
    return status['up'], summary
assert state() == (False, [(0, 1)]), state()
watch = io.watch('rbd_mirroring', lambda *a: None)
assert state() == (True, [(4, 1)]), state()
watch.close()
assert state() == (False, [(0, 1)]), state()
with rbd.Image(io, 'i') as image:
    image.mirror_image_disable(False)
mirror.mirror_mode_set(io, rbd.RBD_MIRROR_MODE_DISABLED)
"#,
    );
}

#[test]
fn journals_are_inspected_exported_and_replayed_elsewhere() {
    let c = with_pool("rbd-journal");
    c.sh("for i in a b; do rbd create --size 8M --image-feature exclusive-lock,journaling p/$i; done");
    // A client that has read nothing yet: the writes stay in the journal.
    c.python(
        r#"
import rbd, struct
io = cluster.open_ioctx('p')
with rbd.Image(io, 'a') as image:
    journal = 'journal.' + image.id()
def s(b):
    return struct.pack('<I', len(b)) + b
assert io.execute(journal, 'journal', 'client_register', s(b'peer') + s(b''))[0] == 0
with rbd.Image(io, 'a') as image:
    for n in range(32):
        image.write(bytes([n + 1]) * 70000, n * 250000)
    image.create_snap('s')
    image.remove_snap('s')
    image.discard(1000000, 250000)
"#,
    );
    says(
        &c,
        r#"
of="--pool p --image a"
rbd journal info $of | grep -e order -e splay
rbd journal status $of | grep -o -e '_set.*' -e 'id=peer.*'
rbd journal inspect $of 2>/dev/null | grep -o '0 errors'
rbd journal export $of --path events 2>/dev/null | grep -o '0 errors'
# The official tool sometimes waits for ever after its work is done, on Ceph too (12 times of 160 where four of them run at once).
{ timeout -k 5 30 rbd journal import --path events --dest-pool p --dest b 2>/dev/null || test $? = 124; } | grep -o '0 errors'
[ "$(data p/a)" != "$(data p/b)" ] && echo not yet
rbd snap create --no-progress p/b@replayed
[ "$(data p/a)" = "$(data p/b)" ] && echo replayed
rbd snap ls p/b | grep -c replayed
rbd journal client disconnect $of --client-id peer
rbd journal status $of | grep -o 'id=peer.*'
rbd journal reset $of
rbd journal status $of | grep -o 'id=.*'
rbd feature disable p/a journaling
rados -p p ls | grep -c ^journal
rbd rm --no-progress p/a
rbd snap purge --no-progress p/b
rbd rm --no-progress p/b
rados -p p ls | grep -c ^journal || true
"#,
        r#"
order: 24 (16 MiB objects)
splay_width: 4
_set: 0
_set: 0
id=peer, commit_position=[positions=[]], state=connected]
0 errors
0 errors
0 errors
not yet
replayed
1
client peer disconnected
id=peer, commit_position=[positions=[]], state=disconnected]
id=, commit_position=[positions=[]], state=connected]
5
0
"#,
    );
}
