//! Maps from a hostile sender: decoding, mapping and editing must neither panic nor run for ever.
//! `PROPTEST_CASES` sets how many are tried.

// Helpers outside of #[test] functions fail a test the same way.
#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use proptest::prelude::*;
use spirula_crush::{Alg, Bucket, CrushMap, Op, RuleMode, SimpleRule, Step, Weights, Workspace};
use spirula_denc::{Reader, decode_all, encode_to_vec};

static GOLDEN: &[u8] = include_bytes!("../testdata/golden.bin");
static EDITS: &[u8] = include_bytes!("../testdata/edits.bin");

/// The draws per mapping: enough for every real case, few enough for thousands of hostile ones.
const DRAWS: u64 = 20_000;

/// Small maps of all kinds, as crushtool encoded them.
static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut r = Reader::new(EDITS);
    let mut out = Vec::new();
    for _ in 0..r.u32().unwrap() {
        let _: Vec<String> = r.get().unwrap();
        let before = r.blob().unwrap().to_vec();
        r.blob().unwrap();
        if out.last() != Some(&before) {
            out.push(before);
        }
    }
    // The first maps of the other recording are those of uniform buckets.
    let mut r = Reader::new(GOLDEN);
    let _ = (r.u32().unwrap(), r.string().unwrap());
    out.push(r.blob().unwrap().to_vec());
    out
});

/// Uses a map in all ways that a decoded map is used.
fn exercise(map: &CrushMap, x: i32) {
    let mut ws = Workspace::with_max_draws(DRAWS);
    let weights = vec![0x10000; 16];
    let mut out = Vec::new();
    for rule in 0..map.rules.len().min(16) as u32 {
        for (size, args) in [(3, None), (5, Some(0)), (0, Some(-1))] {
            map.do_rule_with(&mut ws, rule, x, size, &weights, args, &mut out);
            assert!(out.len() <= size);
        }
    }
    assert!(map.walk_from(map.roots()).take(5000).count() <= 5000);
    for id in -3..3 {
        let _ = (map.location(id), map.devices_below(id).len(), map.item_weight(id));
    }
    let mut edited = map.clone();
    let at = CrushMap::parse_location(["root=default", "host=h0-0"]).unwrap();
    let _ = edited.insert_item(7, 0x10000, "osd.7", &at);
    let _ = edited.set_device_class(7, "nvme");
    let _ = edited.remove_item(0, false);
    let _ = edited.remove_item(-1, false);
    let _ = edited.reweight_all();
    let _ = edited.remove_rule(0);
    edited.validate().unwrap();
    assert_eq!(decode_all::<CrushMap>(&encode_to_vec(map)).as_ref(), Ok(map));
}

/// One change to encoded bytes.
#[derive(Debug, Clone)]
enum Damage {
    Byte(usize, u8),
    Word(usize, u32),
    Cut(usize),
    Repeat(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let word = prop_oneof![
        Just(0u32),
        Just(1),
        Just(u32::MAX),
        Just(0x7fff_ffff),
        Just(0x8000_0000),
        (0u32..300),
        (0u32..40).prop_map(|v| !v),
        any::<u32>(),
    ];
    prop_oneof![
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, v)| Damage::Byte(at, v)),
        8 => (any::<usize>(), word).prop_map(|(at, v)| Damage::Word(at, v)),
        1 => any::<usize>().prop_map(Damage::Cut),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(from, n)| Damage::Repeat(from, n)),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let len = bytes.len().max(1);
    match damage {
        Damage::Byte(at, v) => bytes.iter_mut().skip(at % len).take(1).for_each(|b| *b = *v),
        Damage::Word(at, v) => {
            let at = at % len;
            bytes
                .iter_mut()
                .skip(at)
                .zip(v.to_le_bytes())
                .for_each(|(b, v)| *b = v);
        }
        Damage::Cut(at) => bytes.truncate(at % len),
        Damage::Repeat(from, n) => {
            let from = from % len;
            let to = (from + n % 64).min(bytes.len());
            let part = bytes[from.min(to)..to].to_vec();
            let at = from.min(bytes.len());
            bytes.splice(at..at, part);
        }
    }
}

proptest! {
    #[test]
    fn damaged_maps_are_refused_or_harmless(
        seed in any::<prop::sample::Index>(),
        damages in prop::collection::vec(damage(), 1..6),
        x in any::<i32>(),
    ) {
        let mut bytes = seed.get(&SEEDS).clone();
        damages.iter().for_each(|d| apply(&mut bytes, d));
        if let Ok(map) = decode_all::<CrushMap>(&bytes) {
            exercise(&map, x);
        }
    }

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut map = vec![0, 0, 1, 0];
        map.extend(bytes);
        if let Ok(map) = decode_all::<CrushMap>(&map) {
            exercise(&map, 1);
        }
    }

    /// Tunables and rules alone, within maps that are otherwise sound: their numbers have no
    /// limits.
    #[test]
    fn any_rule_ends(
        steps in prop::collection::vec((0u32..16, -3i32..6, 0i32..13), 1..8),
        huge in prop::collection::vec((8u32..14, any::<i32>()), 0..3),
        tries in any::<[u32; 3]>(),
        small in any::<[u8; 3]>(),
        algs in prop::collection::vec(0usize..5, 4),
        x in any::<i32>(),
    ) {
        let mut map = CrushMap::with_default_root("host").unwrap();
        for (host, alg) in algs.iter().enumerate() {
            let name = format!("h{host}");
            let id = map.add_bucket(&name, "host", Some(Alg::ALL[*alg])).unwrap();
            map.move_bucket(id, &CrushMap::parse_location(["root=default"]).unwrap()).unwrap();
            for osd in 0..host as i32 {
                let at = CrushMap::parse_location([format!("host={name}").as_str()]).unwrap();
                map.insert_item(host as i32 * 10 + osd, 0x10000, &format!("osd.{host}{osd}"), &at).unwrap();
            }
        }
        let rule = map.rules[0].as_mut().unwrap();
        rule.steps = huge.iter().map(|(op, v)| Step::new(Op(*op), *v, 0)).collect();
        rule.steps.push(Step::new(Op::TAKE, -1, 0));
        rule.steps.extend(steps.iter().map(|(op, a, b)| Step::new(Op(*op), *a, *b)));
        rule.steps.push(Step::new(Op::EMIT, 0, 0));
        map.tunables.choose_local_tries = tries[0];
        map.tunables.choose_local_fallback_tries = tries[1];
        map.tunables.choose_total_tries = tries[2];
        [map.tunables.chooseleaf_vary_r, map.tunables.chooseleaf_stable, map.tunables.straw_calc_version] = small;
        exercise(&map, x);
    }
}

fn bucket(id: i32, items: &[i32]) -> Option<Bucket> {
    let weights = Weights::Straw2(vec![0x10000; items.len()]);
    Some(Bucket {
        items: items.to_vec(),
        weights,
        ..Bucket::new(id, Alg::Straw2, 1)
    })
}

fn refused(buckets: Vec<Option<Bucket>>) -> bool {
    let map = CrushMap {
        buckets,
        ..CrushMap::new()
    };
    let refused = map.validate().is_err();
    assert_eq!(decode_all::<CrushMap>(&encode_to_vec(&map)).is_err(), refused);
    refused
}

#[test]
fn impossible_hierarchies_are_refused() {
    assert!(!refused(vec![bucket(-1, &[-2]), bucket(-2, &[0])]));
    assert!(refused(vec![bucket(-1, &[-1])]), "own child");
    assert!(refused(vec![bucket(-1, &[-2]), bucket(-2, &[-1])]), "cycle");
    assert!(
        refused(vec![bucket(-2, &[]), bucket(-1, &[])]),
        "ids at other indexes"
    );
    assert!(refused(vec![bucket(-1, &[-2])]), "child that is not there");
    assert!(refused(vec![bucket(-1, &[i32::MIN])]), "child beyond all indexes");
    assert!(
        refused(vec![bucket(-1, &[i32::MAX])]),
        "device of the number that means none"
    );
    let chain = (1..200)
        .map(|i| bucket(-i, &[-i - 1]))
        .chain([bucket(-200, &[0])])
        .collect();
    assert!(refused(chain), "too deep");
    let doubling = (1..40)
        .map(|i| bucket(-i, &[-i - 1, -i - 1]))
        .chain([bucket(-40, &[0])])
        .collect();
    assert!(refused(doubling), "2^39 paths");
}

#[test]
fn a_map_in_a_circle_that_was_never_validated_still_ends() {
    let mut map = CrushMap::with_default_root("host").unwrap();
    map.buckets = vec![bucket(-1, &[-2]), bucket(-2, &[-1])];
    map.max_devices = 1;
    for mode in [RuleMode::Firstn, RuleMode::Indep] {
        let name = format!("{mode:?}");
        let rule = map
            .add_simple_rule(&SimpleRule {
                name: &name,
                root: "default",
                failure_domain: "rack",
                device_class: None,
                mode,
                rule_type: 1,
                number: None,
            })
            .unwrap();
        let (mut ws, mut out) = (Workspace::with_max_draws(DRAWS), vec![1]);
        map.do_rule_with(&mut ws, rule, 1, 3, &[0x10000], None, &mut out);
        assert_eq!(out, []);
    }
}
