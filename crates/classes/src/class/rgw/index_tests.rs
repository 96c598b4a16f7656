//! What transcripts of Ceph 16.2 can't show of a bucket's index: what newer releases do and send, and
//! large shards.

use bytes::Bytes;
use spirula_denc::{Encode, Writer, encode_to_vec};

use super::entry::{DirEntry, EntryFlags};
use super::key::ObjectKey;
use super::olh::{OlhEntry, OlhLogEntry};
use super::{header, keys, list};
use crate::find;
use crate::method::stored;
use crate::testing::World;

fn section(version: u8, compat: u8, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::new();
    w.section(version, compat, body);
    w.into_vec()
}

fn key(name: &str, instance: &str) -> ObjectKey {
    ObjectKey {
        name: Bytes::copy_from_slice(name.as_bytes()),
        instance: Bytes::copy_from_slice(instance.as_bytes()),
    }
}

fn entry(name: &str, flags: EntryFlags) -> DirEntry {
    let mut entry = DirEntry {
        key: key(name, ""),
        exists: true,
        flags,
        ..DirEntry::default()
    };
    entry.meta.size = 1;
    entry.meta.accounted_size = 2;
    entry
}

fn put(world: &mut World, key: impl Into<Bytes>, value: &impl Encode) {
    world.state.exists = true;
    world.state.omap.insert(key.into(), encode_to_vec(value).into());
}

/// The result of a method.
fn code(world: &mut World, method: &str, input: &[u8]) -> i32 {
    world.call("rgw", method, input).0
}

fn prepare_in(tag: &str) -> Vec<u8> {
    section(7, 5, |w| {
        w.u8(0);
        w.string(tag);
        w.string("");
        w.bool(false);
        w.put(&key("a", ""));
        w.u16(0);
        w.u32(0);
    })
}

fn complete_in(tag: &str, remove: &[ObjectKey]) -> Vec<u8> {
    section(9, 7, |w| {
        w.u8(0);
        w.u64(0);
        w.put(&DirEntry::default().meta);
        w.string(tag);
        w.string("");
        w.put(remove);
        w.put(&DirEntry::default().version);
        w.bool(false);
        w.put(&key("a", ""));
        w.u16(0);
        w.u32(0);
    })
}

fn link_in(instance: &str, delete_marker: bool) -> Vec<u8> {
    section(5, 1, |w| {
        w.put(&key("a", instance));
        w.string("olh");
        w.bool(delete_marker);
        w.string("op");
        w.put(&DirEntry::default().meta);
        w.u64(0);
        w.bool(false);
        w.u16(0);
        w.zeros(8 + 8 + 1);
        w.u32(0);
    })
}

fn unlink_in(instance: &str) -> Vec<u8> {
    section(3, 1, |w| {
        w.put(&key("a", instance));
        w.string("op");
        w.u64(0);
        w.bool(false);
        w.u16(0);
        w.string("olh");
        w.u32(0);
    })
}

fn olh_log_in(epoch: u64, tag: &str) -> Vec<u8> {
    section(1, 1, |w| {
        w.put(&key("a", ""));
        w.u64(epoch);
        w.string(tag);
    })
}

fn list_in(count: u32, start: &str) -> Vec<u8> {
    section(6, 4, |w| {
        w.u32(count);
        w.string("");
        w.put(&key(start, ""));
        w.bool(false);
        w.string("");
    })
}

/// Input of `set_bucket_resharding` as releases from 18.2 on send it.
fn resharding_in(status: u8) -> Vec<u8> {
    section(1, 1, |w| {
        w.section(3, 1, |w| {
            w.u8(status);
            w.string("");
            w.i32(-1);
        });
    })
}

const CHANGES: [&str; 8] = [
    "bucket_prepare_op",
    "bucket_complete_op",
    "bucket_link_olh",
    "bucket_unlink_instance",
    "bucket_trim_olh_log",
    "bucket_clear_olh",
    "dir_suggest_changes",
    "bucket_rebuild_index",
];

fn change_in(method: &str) -> Vec<u8> {
    match method {
        "bucket_prepare_op" => prepare_in("tag"),
        "bucket_complete_op" => complete_in("", &[]),
        "bucket_link_olh" => link_in("i", true),
        "bucket_unlink_instance" => unlink_in("i"),
        "bucket_trim_olh_log" => olh_log_in(0, ""),
        "bucket_clear_olh" => section(1, 1, |w| {
            w.put(&key("a", ""));
            w.string("");
        }),
        _ => Vec::new(),
    }
}

#[test]
fn entries_do_not_change_while_they_are_copied() {
    for method in CHANGES {
        for (status, refused) in [(0, false), (1, true), (2, false)] {
            let mut world = World::default();
            put(&mut world, keys::instance(&key("a", "i")), &DirEntry::default());
            assert_eq!(
                code(&mut world, "set_bucket_resharding", &resharding_in(status)),
                0
            );
            let before = world.state.clone();
            let result = code(&mut world, method, &change_in(method));
            assert_eq!(result, if refused { -2300 } else { 0 }, "{method} {status}");
            assert!(!refused || world.state == before, "{method} {status}");
        }
    }
}

#[test]
fn the_guard_returns_what_its_caller_wants_until_the_index_has_moved() {
    let guard = |n: i32| section(1, 1, |w| w.i32(n));
    let mut world = World::default();
    assert_eq!(code(&mut world, "bucket_init_index", b""), 0);
    assert_eq!(code(&mut world, "guard_bucket_resharding", &guard(-2300)), 0);
    for status in [1, 2, 3] {
        assert_eq!(
            code(&mut world, "set_bucket_resharding", &resharding_in(status)),
            0
        );
        for n in [-2300, 0, 7] {
            assert_eq!(code(&mut world, "guard_bucket_resharding", &guard(n)), n);
        }
    }
    // The first releases of 18.2 leave the fields away.
    let short = section(1, 1, |w| w.section(2, 1, |w| w.u8(1)));
    assert_eq!(code(&mut world, "set_bucket_resharding", &short), 0);
    let (_, reply) = world.call("rgw", "get_bucket_resharding", &section(1, 1, |_| {}));
    assert_eq!(
        reply[6..],
        section(1, 1, |w| {
            w.u8(1);
            w.string("");
            w.i32(-1);
        })
    );
}

#[test]
fn what_comes_after_20_2_is_not_there() {
    let class = find(b"rgw").unwrap();
    for name in [
        &b"bucket_init_index2"[..],
        b"bi_put_entries",
        b"reshard_log_trim",
        b"bucket_refresh_instance",
    ] {
        assert!(class.method(name).is_none());
    }
    // Who asks for changes that were logged while the index moved, finds none.
    let mut world = World::default();
    put(&mut world, "a", &entry("a", EntryFlags::empty()));
    for (reshard_log, found) in [(false, 1), (true, 0)] {
        let input = section(2, 1, |w| {
            w.u32(10);
            w.string("");
            w.string("");
            w.bool(reshard_log);
        });
        let (_, reply) = world.call("rgw", "bi_list", &input);
        assert_eq!(reply[6..10], u32::to_le_bytes(found));
    }
}

#[test]
fn a_delete_marker_may_follow_another_and_goes_away_once() {
    let mut world = World::default();
    for instance in ["d1", "d2"] {
        assert_eq!(code(&mut world, "bucket_link_olh", &link_in(instance, true)), 0);
    }
    let of = |world: &World, instance| {
        world
            .state
            .omap
            .get(&keys::instance(&key("a", instance)))
            .cloned()
    };
    let flags = |world: &World, instance| stored::<DirEntry>(&of(world, instance).unwrap()).unwrap().flags;
    assert!(flags(&world, "d2").contains(EntryFlags::CURRENT));
    assert!(!flags(&world, "d1").contains(EntryFlags::CURRENT));
    for result in [0, -2] {
        assert_eq!(
            code(&mut world, "bucket_unlink_instance", &unlink_in("d2")),
            result
        );
        assert!(of(&world, "d2").is_none());
        assert!(flags(&world, "d1").contains(EntryFlags::CURRENT));
    }
}

#[test]
fn damaged_headers_are_refused_and_newer_ones_read() {
    let mut world = World::default();
    world.state.exists = true;
    world.state.header = Bytes::from_static(b"\x07\x02\xff\xff\xff\xffno header");
    for method in CHANGES {
        let want = if method == "bucket_complete_op" { -22 } else { -5 };
        let input = match method {
            // It reads the header last.
            "bucket_trim_olh_log" => olh_log_in(0, ""),
            _ => change_in(method),
        };
        assert_eq!(code(&mut world, method, &input), want, "{method}");
    }
    assert_eq!(code(&mut world, "bucket_list", &list_in(0, "")), -5);
    let known = encode_to_vec(&header::DirHeader::default());
    let newer = [
        &[8][..],
        &[2],
        &u32::to_le_bytes(known.len() as u32 - 6 + 4),
        &known[6..],
        &[1, 0, 0, 0],
    ];
    world.state.header = newer.concat().into();
    assert_eq!(
        code(&mut world, "bucket_set_tag_timeout", &section(1, 1, |w| w.u64(5))),
        0
    );
    let header: header::DirHeader = stored(&world.state.header).unwrap();
    assert_eq!((header.tag_timeout, header.version), (5, 1));
}

/// Where all of eight pages are hidden, the result tells to call again, and from where.
#[test]
fn a_listing_that_finds_nothing_to_show_goes_on_in_the_next_call() {
    let mut world = World::default();
    for n in 0..20 {
        let name = format!("{n:02}");
        put(
            &mut world,
            name.clone(),
            &entry(&name, EntryFlags::VERSION_MARKER),
        );
    }
    put(&mut world, "last", &entry("last", EntryFlags::empty()));
    let mut start = String::new();
    for (result, marker) in [(-27, "07"), (-27, "15"), (0, "")] {
        let (got, reply) = world.call("rgw", "bucket_list", &list_in(1, &start));
        let reply: list::ListReply = stored(&reply).unwrap();
        assert_eq!((got, &reply.marker.name[..]), (result, marker.as_bytes()));
        start = marker.into();
    }
}

/// The entries of 2500 parts are read in three steps, whatever else is named.
#[test]
fn a_completed_upload_removes_the_entries_of_its_parts() {
    let mut world = World::default();
    let mut parts = vec![key("none", ""), key("damaged", ""), key("versions", "")];
    put(
        &mut world,
        "versions",
        &entry("versions", EntryFlags::VERSION_MARKER),
    );
    put(
        &mut world,
        keys::instance(&key("versions", "")),
        &entry("versions", EntryFlags::VERSION),
    );
    for n in 0..2500 {
        let name = format!("part{n}");
        put(&mut world, name.clone(), &entry(&name, EntryFlags::empty()));
        parts.push(key(&name, ""));
    }
    assert_eq!(code(&mut world, "bucket_rebuild_index", b""), 0);
    put(&mut world, "damaged", &0u8);
    assert_eq!(
        code(&mut world, "bucket_complete_op", &complete_in("", &parts)),
        0
    );
    let left: Vec<&[u8]> = world.state.omap.keys().map(|k| &k[..]).collect();
    assert_eq!(left, [&b"a"[..], b"damaged", b"versions"]);
    let header: header::DirHeader = stored(&world.state.header).unwrap();
    let counts: Vec<u64> = header.stats.values().map(|s| s.num_entries).collect();
    assert_eq!(counts, [1]);
}

#[test]
fn listings_of_large_shards_read_what_they_return() {
    let mut world = World::default();
    for n in 0..5_000 {
        let name = format!("{n:06}");
        put(&mut world, name.clone(), &entry(&name, EntryFlags::empty()));
        put(
            &mut world,
            [keys::LOG, name.as_bytes()].concat(),
            &super::bi_log::LogEntry::default(),
        );
        put(&mut world, keys::olh(name.as_bytes()), &OlhEntry::default());
    }
    let bi_list = section(1, 1, |w| {
        w.u32(10);
        w.string("");
        w.string("000999");
    });
    let bi_log_list = section(1, 1, |w| {
        w.string("000999");
        w.u32(10);
    });
    for (method, input, most) in [
        ("bucket_list", list_in(10, "000999"), 10),
        // The page that reaches what is between the names is read twice.
        ("bucket_list", list_in(10, "004995"), 20),
        ("bi_list", bi_list, 10),
        ("bi_log_list", bi_log_list, 10),
        ("bucket_prepare_op", prepare_in("tag"), 1),
    ] {
        assert_eq!(code(&mut world, method, &input), 0);
        assert!(world.pairs_read <= most, "{method}: {}", world.pairs_read);
    }
}

#[test]
fn large_shards_are_checked_in_pages() {
    let mut world = World::default();
    for n in 0..3000 {
        let name = format!("{n:04}");
        put(&mut world, name.clone(), &entry(&name, EntryFlags::empty()));
        put(
            &mut world,
            format!("\u{e9}{name}"),
            &entry(&name, EntryFlags::empty()),
        );
        put(
            &mut world,
            keys::instance(&key(&name, "i")),
            &entry(&name, EntryFlags::VERSION),
        );
        // Neither versions under their names, nor the log.
        put(
            &mut world,
            format!("{name}\0v913\0ii"),
            &entry(&name, EntryFlags::VERSION),
        );
        put(&mut world, [keys::LOG, name.as_bytes()].concat(), &0u8);
    }
    assert_eq!(code(&mut world, "bucket_rebuild_index", b""), 0);
    let (_, reply) = world.call("rgw", "bucket_check_index", b"");
    let known = &world.state.header;
    assert_eq!(reply[6..], [&known[..], known].concat());
    let stats = [18_000u64, 9000 * 4096, 9000, 9000];
    let stats: Vec<u8> = stats.iter().flat_map(|n| n.to_le_bytes()).collect();
    assert!(known.windows(stats.len()).any(|w| w == stats));
}

#[test]
fn long_olh_logs_are_read_in_parts() {
    let mut world = World::default();
    let mut olh = OlhEntry::default();
    for epoch in 1..=1001 {
        olh.pending_log.insert(epoch, vec![OlhLogEntry::default()]);
    }
    put(&mut world, keys::olh(b"a"), &olh);
    for (after, found, truncated) in [(0, 1000u32, 1), (1, 1000, 0), (1000, 1, 0), (u64::MAX, 0, 0)] {
        let (_, reply) = world.call("rgw", "bucket_read_olh_log", &olh_log_in(after, ""));
        assert_eq!(reply[6..10], found.to_le_bytes(), "{after}");
        assert_eq!(reply.last(), Some(&truncated), "{after}");
    }
}
