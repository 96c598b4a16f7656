//! Compares edited maps, byte for byte, with the output of the official `crushtool` after the same
//! edits (`testdata/make_edits.py`).

// Helpers outside of #[test] functions fail a test the same way.
#![allow(clippy::unwrap_used, clippy::panic)]

use spirula_crush::{
    CrushMap, Error, Location, Profile, RULE_ERASURE, RULE_REPLICATED, Result, RuleMode, SimpleRule,
    weight_from_f64,
};
use spirula_denc::{Reader, decode_all, encode_to_vec};

static EDITS: &[u8] = include_bytes!("../testdata/edits.bin");

fn location(args: &[String]) -> Location {
    args.chunks(3).map(|c| (c[1].clone(), c[2].clone())).collect()
}

fn weight(text: &str) -> u32 {
    weight_from_f64(text.parse().unwrap()).unwrap()
}

fn apply(map: &mut CrushMap, args: &[String]) -> Result<()> {
    let arg = |i: usize| args[i].as_str();
    match arg(0) {
        "--add-item" => map.insert_item(
            arg(1).parse().unwrap(),
            weight(arg(2)),
            arg(3),
            &location(&args[4..]),
        ),
        "--update-item" => map
            .update_item(
                arg(1).parse().unwrap(),
                weight(arg(2)),
                arg(3),
                &location(&args[4..]),
            )
            .map(|changed| assert!(changed)),
        "--remove-item" => map.remove_item(map.item_id(arg(1)).unwrap(), false),
        "--reweight-item" => map
            .adjust_item_weight(map.item_id(arg(1)).unwrap(), weight(arg(2)))
            .map(|n| assert!(n > 0)),
        "--add-bucket" => {
            let id = map.add_bucket(arg(1), arg(2), None)?;
            map.move_bucket(id, &location(&args[3..]))
        }
        "--move" => map.move_bucket(map.item_id(arg(1)).unwrap(), &location(&args[2..])),
        "--reweight" => map.reweight_all(),
        "--create-simple-rule" => rule(map, args, RuleMode::from_name(arg(4)).unwrap()),
        "--create-replicated-rule" => rule(map, args, RuleMode::Firstn),
        "--remove-rule" => map.remove_rule(map.rule_id(arg(1)).unwrap()),
        other => panic!("{other}"),
    }
}

fn rule(map: &mut CrushMap, args: &[String], mode: RuleMode) -> Result<()> {
    let class = args
        .iter()
        .position(|a| a == "--device-class")
        .map(|i| args[i + 1].as_str());
    let new = SimpleRule {
        name: &args[1],
        root: &args[2],
        failure_domain: &args[3],
        device_class: class,
        mode,
        // crushtool makes all its rules for replicated pools.
        rule_type: RULE_REPLICATED,
        number: None,
    };
    map.add_simple_rule(&new).map(|_| ())
}

/// The fields in which two maps differ.
fn difference(got: &CrushMap, want: &CrushMap) -> String {
    let mut out = String::new();
    macro_rules! compare {
        ($($field:ident),*) => {$(
            if got.$field != want.$field {
                out += &format!("\n {}\n  got {:?}\n want {:?}", stringify!($field), got.$field, want.$field);
            }
        )*};
    }
    compare!(
        max_devices,
        buckets,
        rules,
        names,
        rule_names,
        item_class,
        class_names,
        shadows,
        choose_args
    );
    out
}

#[test]
fn edits_give_the_bytes_that_crushtool_gives() {
    let mut r = Reader::new(EDITS);
    let mut bad = Vec::new();
    for _ in 0..r.u32().unwrap() {
        let args: Vec<String> = r.get().unwrap();
        let before = r.blob().unwrap();
        let after = r.blob().unwrap();
        let mut map: CrushMap = decode_all(before).unwrap();
        let done = apply(&mut map, &args);
        let want: CrushMap = decode_all(after).unwrap();
        if done.is_err() || map != want || encode_to_vec(&map) != after {
            bad.push(format!("{args:?}: {done:?} {}", difference(&map, &want)));
        }
    }
    r.finish().unwrap();
    assert!(bad.is_empty(), "{} edits differ:\n{}", bad.len(), bad.join("\n"));
}

fn place(words: &[&str]) -> Location {
    CrushMap::parse_location(words.iter().copied()).unwrap()
}

/// Three hosts of two devices, as OSDs that start one after the other create them.
fn small_cluster() -> CrushMap {
    let mut map = CrushMap::with_default_root("host").unwrap();
    for osd in 0..6 {
        let host = format!("host=n{}", osd / 2);
        let at = place(&["root=default", &host]);
        assert!(
            map.create_or_move_item(osd, 0x10000, &format!("osd.{osd}"), &at)
                .unwrap()
        );
        assert!(
            !map.create_or_move_item(osd, 0x10000, &format!("osd.{osd}"), &at)
                .unwrap()
        );
    }
    map
}

#[test]
fn a_new_cluster_grows_by_its_devices() {
    let map = small_cluster();
    assert_eq!(map.bucket(-1).unwrap().weight, 0x60000);
    assert_eq!((map.max_devices, map.item_id("n2")), (6, Some(-4)));
    assert_eq!(map.tunables.profile(), Some(Profile::Jewel));
    assert_eq!(
        map.location(5),
        [("host".into(), "n2".into()), ("root".into(), "default".into())]
    );
    let placed = map.do_rule(0, 42, 3, &[0x10000; 6], Some(1));
    let hosts: std::collections::BTreeSet<i32> = placed.iter().map(|d| d / 2).collect();
    assert_eq!((placed.len(), hosts.len()), (3, 3));
    assert_eq!(decode_all::<CrushMap>(&encode_to_vec(&map)), Ok(map));
}

/// `ceph osd getcrushmap` of a 16.2.15 cluster with three OSDs on one host,
/// `osd_crush_chooseleaf_type = 0`.
static PACIFIC: &[u8] = include_bytes!("../testdata/pacific-cluster.bin");

#[test]
fn a_new_cluster_equals_one_of_pacific() {
    let mut map = CrushMap::with_default_root("osd").unwrap();
    for osd in 0..3 {
        map.set_device_class(osd, "hdd").unwrap();
        let at = place(&["root=default", "host=vm"]);
        map.create_or_move_item(osd, weight("0.0039"), &format!("osd.{osd}"), &at)
            .unwrap();
    }
    assert_eq!(difference(&map, &decode_all(PACIFIC).unwrap()), "");
    assert_eq!(encode_to_vec(&map), PACIFIC);
}

#[test]
fn shadow_trees_follow_classes_and_keep_their_ids() {
    let mut map = small_cluster();
    for osd in 0..6 {
        assert!(
            map.set_device_class(osd, if osd % 2 == 0 { "ssd" } else { "hdd" })
                .unwrap()
        );
    }
    assert_eq!(map.set_device_class(0, "ssd"), Ok(false));
    assert_eq!(
        map.set_device_class(0, "hdd"),
        Err(Error::HasClass {
            id: 0,
            class: "ssd".into()
        })
    );
    let shadow = map.item_id("default~ssd").unwrap();
    assert_eq!(map.unshadow(shadow), (-1, map.class_id("ssd")));
    let rule = map
        .add_simple_rule(&SimpleRule {
            name: "fast",
            root: "default",
            failure_domain: "host",
            device_class: Some("ssd"),
            mode: RuleMode::Indep,
            rule_type: RULE_ERASURE,
            number: None,
        })
        .unwrap();
    let placed = map.do_rule(rule, 7, 3, &[0x10000; 6], None);
    assert!(placed.iter().all(|d| d % 2 == 0), "{placed:?}");
    map.insert_item(6, 0x10000, "osd.6", &place(&["root=default", "host=n9"]))
        .unwrap();
    map.remove_item(1, false).unwrap();
    assert_eq!(map.item_id("default~ssd"), Some(shadow));
    assert_eq!(map.do_rule(rule, 7, 3, &[0x10000; 6], None), placed);
    // The rule keeps the class alive when its last device is gone.
    for osd in [0, 2, 4] {
        map.remove_device_class(osd).unwrap();
    }
    assert!(map.class_id("ssd").is_some());
    map.remove_rule(rule).unwrap();
    assert_eq!((map.class_id("ssd"), map.item_id("default~ssd")), (None, None));
}

#[test]
fn refused_changes_leave_no_trace() {
    let mut map = small_cluster();
    let before = map.clone();
    let refused: [(Result<()>, Error); 8] = [
        (
            map.insert_item(9, 1, "osd.0", &place(&["root=default"])),
            Error::NameTaken {
                name: "osd.0".into(),
                id: 0,
            },
        ),
        (
            map.insert_item(9, 1, "osd.9", &place(&["shelf=x"])),
            Error::NoPlace,
        ),
        (
            map.insert_item(9, 1, "osd 9", &place(&["root=default"])),
            Error::InvalidName("osd 9".into()),
        ),
        (
            map.insert_item(9, 1, "osd.9", &place(&["rack=n1"])),
            Error::WrongType("n1".into()),
        ),
        (map.remove_item(-2, false), Error::NotEmpty(-2)),
        (map.remove_item(77, false), Error::NoSuchItem),
        (
            map.link_bucket(-1, &place(&["root=default"])),
            Error::AlreadyThere(-1),
        ),
        (map.move_bucket(3, &place(&["root=default"])), Error::WrongKind(3)),
    ];
    for (got, want) in refused {
        assert_eq!(got, Err(want));
    }
    assert_eq!(map, before);
}

#[test]
fn the_walk_shows_children_by_name_and_class() {
    let mut map = small_cluster();
    map.set_device_class(0, "ssd").unwrap();
    let order: Vec<i32> = map.walk().map(|i| i.id).collect();
    assert_eq!(order, [-1, -2, 1, 0, -3, 2, 3, -4, 4, 5]);
    let root = map.walk().next().unwrap();
    assert_eq!(root.children, [-4, -3, -2]);
    let up: Vec<i32> = map.walk().only_devices(|d| d == 3).map(|i| i.id).collect();
    assert_eq!(up, [-1, -3, 3]);
}
