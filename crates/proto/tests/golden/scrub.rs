//! What scrubs of official OSDs found on damaged objects, down to the objects' attributes.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, decode_all, encode_to_vec};
use spirula_maps::snap;
use spirula_proto::osd_op_data::attr::{self, HashInfo, ObjectInfo, ObjectInfoFlags, SnapSet};
use spirula_proto::osd_op_data::*;

use crate::hex::{Scrub, scrubs};

/// The answers of one kind, and the damage before each.
fn answers<T: Decode>(list: &'static str) -> impl Iterator<Item = (&'static str, ScrubLsResult, Vec<T>)> {
    let of_kind = move |s: &Scrub| s.list == list && s.kind == "scrub_ls_result_t";
    scrubs().into_iter().filter(of_kind).map(|s| {
        let answer: ScrubLsResult = decode_all(&s.bytes).unwrap();
        let entries = answer.entries().unwrap();
        (s.damage, answer, entries)
    })
}

fn found<T: Decode>(damage: &str, list: &'static str) -> T {
    let mut all = answers(list);
    let (_, _, entries) = all.find(|(d, _, _)| *d == damage).unwrap();
    entries.into_iter().next().unwrap()
}

fn same<T: Decode + Encode>(value: &Bytes) {
    let decoded: T = decode_all(value).unwrap();
    assert_eq!(encode_to_vec(&decoded), *value);
}

/// Attributes of the OSD's own that the answer does not call damaged are read and written alike.
fn same_attributes(shard: &ShardInfo) -> usize {
    let own: [(_, _, fn(&Bytes)); 3] = [
        (attr::OBJECT_INFO, ShardErrors::INFO_CORRUPTED, same::<ObjectInfo>),
        (attr::SNAP_SET, ShardErrors::SNAPSET_CORRUPTED, same::<SnapSet>),
        (attr::HASH_INFO, ShardErrors::HINFO_CORRUPTED, same::<HashInfo>),
    ];
    let mut seen = 0;
    for (name, corrupted, same) in own {
        if let Some(value) = shard
            .attrs
            .get(&name)
            .filter(|_| !shard.errors.contains(corrupted))
        {
            same(value);
            seen += 1;
        }
    }
    seen
}

#[test]
fn inconsistent_objects_encode_to_the_same_bytes() {
    let (mut objects, mut attributes) = (0, 0);
    for (damage, answer, entries) in answers::<InconsistentObject>("obj") {
        assert_eq!(ScrubLsResult::new(answer.interval, &entries), answer, "{damage}");
        for object in &entries {
            let mut again = InconsistentObject {
                shards: Default::default(),
                union_shards: ShardErrors::empty(),
                ..object.clone()
            };
            for (member, shard) in &object.shards {
                attributes += same_attributes(shard);
                again.insert(*member, shard.clone());
            }
            assert_eq!(again, *object, "{damage}");
            objects += 1;
        }
    }
    assert!(objects > 20 && attributes > 60, "{objects}, {attributes}");
}

#[test]
fn inconsistent_snap_sets_encode_to_the_same_bytes() {
    let mut seen = 0;
    for (damage, answer, entries) in answers::<InconsistentSnapSet>("snapset") {
        assert_eq!(ScrubLsResult::new(answer.interval, &entries), answer, "{damage}");
        let sets = entries.iter().map(|e| &e.ss_bl).filter(|set| !set.is_empty());
        sets.for_each(same::<SnapSet>);
        seen += entries.len();
    }
    assert!(seen > 8, "{seen}");
}

#[test]
fn requests_name_the_last_object_of_the_page_before() {
    let args = scrubs().into_iter().filter(|s| s.kind == "scrub_ls_arg_t");
    let args: Vec<(&str, ScrubLsArg)> = args.map(|s| (s.list, decode_all(&s.bytes).unwrap())).collect();
    let (mut first, mut later) = (0, 0);
    for (list, arg) in &args {
        assert_eq!(arg.get_snapsets, *list == "snapset");
        assert_eq!(arg.max_return, 32);
        if arg.start_after.name.is_empty() {
            assert_eq!((arg.interval.number(), arg.start_after.snap), (0, 0));
            first += 1;
        } else {
            assert_eq!(
                (arg.interval.number() > 0, arg.start_after.snap),
                (true, snap::NOSNAP)
            );
            later += 1;
        }
    }
    assert!(first > 1 && later > 0);
}

#[test]
fn errors_have_the_official_bits() {
    let errors = |damage| {
        let o: InconsistentObject = found(damage, "obj");
        (o.errors.to_string(), o.union_shards.to_string())
    };
    let texts = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(errors("missing_replica"), texts("", "missing"));
    assert_eq!(
        errors("omap_value"),
        texts("omap_digest_mismatch", "omap_digest_mismatch_info")
    );
    assert_eq!(
        errors("attr_missing_and_value"),
        texts("attr_value_mismatch,attr_name_mismatch", "")
    );
    assert_eq!(errors("hinfo_missing"), texts("", "read_error,hinfo_missing"));
    let gone: InconsistentSnapSet = found("clone_missing_all", "snapset");
    assert_eq!(gone.errors, SnapSetErrors::CLONE_MISSING);
    assert_eq!((gone.missing, gone.clones.len()), (vec![1], 0));
}

#[test]
fn infos_tell_watches_and_digests() {
    let object: InconsistentObject = found("missing_watched", "obj");
    let shard = object.shards.values().find(|s| s.selected_oi).unwrap();
    let info: ObjectInfo = decode_all(&shard.attrs[&attr::OBJECT_INFO]).unwrap();
    assert_eq!(info.watchers.len(), 1);
    assert_eq!(Some(info.data_digest), shard.data_digest);
    assert!(info.flags.contains(ObjectInfoFlags::DIRTY));
    assert_eq!(
        (info.user_version, info.soid.oid),
        (object.version, object.object.name)
    );
}
