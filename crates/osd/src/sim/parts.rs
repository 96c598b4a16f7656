//! Objects of any shape that a client may give them reach members that lack them.
//!
//! Each transaction and message is checked by [`hostile`].

use spirula_proto::osd::XattrArgs;

use super::*;
use crate::pg::key;

const AWAY: OsdId = OsdId::new(2);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// The most bytes of a pair or header that are accepted with one request.
const MOST: usize = 6 * MIB - 64 * KIB;

/// Names, and requests each of which changes the object in turn.
type Shapes = Vec<(String, Vec<Vec<OsdOpIn>>)>;

fn set_attr(name: String, value: usize) -> OsdOpIn {
    let args = XattrArgs {
        name_len: name.len() as u32,
        value_len: value as u32,
        ..XattrArgs::default()
    };
    let data = [name.into_bytes(), vec![5; value]].concat();
    OsdOpIn::new(OpCode::SETXATTR, OpArgs::Xattr(args), data)
}

fn header(len: usize) -> OsdOpIn {
    OsdOpIn::new(OpCode::OMAPSETHEADER, OpArgs::None, vec![6; len])
}

fn pair(key: String, value: usize) -> OsdOpIn {
    let pairs = [(Bytes::from(key), Bytes::from(vec![2; value]))];
    let data = spirula_denc::encode_to_vec(&pairs.to_vec());
    OsdOpIn::new(OpCode::OMAPSETVALS, OpArgs::None, data)
}

fn bytes_apart(n: u64, distance: u64) -> Vec<OsdOpIn> {
    (0..n).map(|i| write_at(i * distance, "x")).collect()
}

/// Bytes far apart, in requests that are not too large.
fn scattered(n: u64, distance: u64) -> Vec<Vec<OsdOpIn>> {
    let all = bytes_apart(n, distance);
    all.chunks(512).map(<[OsdOpIn]>::to_vec).collect()
}

fn shapes() -> Shapes {
    // Each zero byte takes two in a key.
    let long = "\0".repeat(2000);
    let attrs = |names: std::ops::Range<usize>, value: usize| -> Vec<OsdOpIn> {
        names.map(|n| set_attr(format!("{n:0100}"), value)).collect()
    };
    let shape = |name: &str, changes: Vec<Vec<OsdOpIn>>| (name.to_owned(), changes);
    let truncate = |size| vec![extent(OpCode::TRUNCATE, size, 0, "")];
    vec![
        shape("bytes", scattered(2048, 512)),
        shape("bytes over more than a part", scattered(2048, 3000)),
        shape(&long, scattered(1024, 512)),
        shape(
            "zeros",
            vec![
                vec![write_full(&"d".repeat(2 * MIB))],
                (0..400)
                    .map(|n| extent(OpCode::ZERO, n * 5000, 100, ""))
                    .collect(),
            ],
        ),
        shape(
            "cut and extended",
            [
                scattered(600, 5000),
                vec![truncate(100), truncate(3 * MIB as u64)],
            ]
            .concat(),
        ),
        shape(
            "nothing written",
            vec![vec![plain(OpCode::CREATE)], truncate(4 * MIB as u64)],
        ),
        shape(
            "large pairs",
            (0..4).map(|n| vec![pair(format!("k{n}"), MOST)]).collect(),
        ),
        shape(
            "pairs and a larger one",
            vec![
                (0..900).map(|n| pair(format!("k{n}"), KIB)).collect(),
                vec![pair("l".to_owned(), MOST)],
                vec![pair("m".to_owned(), 10)],
            ],
        ),
        shape(
            "large keys",
            (0..3)
                .map(|n| vec![pair(format!("{n}").repeat(MOST), 1)])
                .collect(),
        ),
        shape(
            "header, attributes and pairs",
            vec![
                vec![header(MOST)],
                vec![pair("k".to_owned(), MOST)],
                attrs(0..1, MIB),
                attrs(1..2, 900 * KIB),
                scattered(100, 4096).concat(),
            ],
        ),
        shape("header", vec![vec![header(MOST)]]),
        // The key is logged with each attribute.
        shape(
            &"a".repeat(2000),
            (0..4).map(|n| attrs(n * 1000..n * 1000 + 1000, 10)).collect(),
        ),
    ]
}

impl Sim {
    fn change_all(&mut self, shapes: &Shapes, snapshots: &[u64]) {
        for (name, changes) in shapes {
            for change in changes {
                let mut op = self.build(name, change.clone());
                op.snapc = SnapContext {
                    seq: snapshots.first().copied().unwrap_or(0),
                    snaps: snapshots.to_vec(),
                };
                let result = self.call_op(op).result;
                assert_eq!(result, 0, "{name}");
            }
        }
    }

    fn assert_recovers(&mut self, seed: u64) {
        self.start_and_mark_up(AWAY);
        self.settle_clean(seed);
        self.assert_all_agree();
    }
}

fn cluster(sync_objects: usize, seed: u64) -> Sim {
    let cfg = PgConfig {
        sync_objects,
        sync_bytes: i64::MAX,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, seed, cfg);
    sim.settle();
    sim
}

#[test]
pub(super) fn objects_of_any_shape_are_recovered_while_requests_wait_and_in_the_background() {
    for (seed, sync_objects) in [(1, 64), (2, 1)] {
        let mut sim = cluster(sync_objects, seed);
        sim.write_full("other", "x");
        sim.crash_and_mark_down(AWAY);
        sim.settle();
        sim.change_all(&shapes(), &[]);
        sim.assert_recovers(seed);
    }
}

#[test]
pub(super) fn what_changed_of_them_is_recovered() {
    for (seed, sync_objects) in [(3, 64), (4, 1)] {
        let mut sim = cluster(sync_objects, seed);
        for (name, _) in shapes() {
            sim.write_full(&name, &"old ".repeat(MIB));
        }
        sim.crash_and_mark_down(AWAY);
        sim.settle();
        // Holes between written ranges: each becomes zeros.
        let mut holes = shapes();
        holes.insert(
            0,
            (
                "bytes".to_owned(),
                vec![vec![extent(OpCode::ZERO, 0, 2 * MIB as u64, "")]],
            ),
        );
        sim.change_all(&holes, &[]);
        sim.assert_recovers(seed);
    }
}

#[test]
pub(super) fn they_are_backfilled_with_their_clones_and_clones_of_many_snapshots_are_removed() {
    let mut sim = cluster(64, 5);
    let snapshots: Vec<u64> = (1..=1500).rev().collect();
    let many: Shapes = (0..40)
        .map(|n| (format!("clones {n}"), vec![vec![write_full("x")]]))
        .collect();
    sim.change_all(&many, &[]);
    sim.change_all(&many, &snapshots);
    sim.crash_and_mark_down(AWAY);
    sim.settle();
    for (name, _) in &many {
        assert_eq!(sim.call(name, vec![plain(OpCode::DELETE)]).result, 0);
    }
    sim.remove_snaps(&snapshots);
    sim.settle();
    assert_eq!(sim.nodes[&OsdId::new(0)].store.snap_records(), 0);
    sim.change_all(&shapes(), &[]);
    sim.change_all(&shapes(), &(2001..=2100).rev().collect::<Vec<u64>>());
    // The log no longer tells what is lacking.
    for n in 0..1200 {
        sim.write_full("other", &n.to_string());
    }
    sim.assert_recovers(5);
    assert!(
        sim.seen_states.iter().any(|s| s.contains("backfill")),
        "{:?}",
        sim.seen_states
    );
}

#[test]
pub(super) fn they_are_repaired() {
    let mut sim = cluster(64, 6);
    sim.change_all(&shapes(), &[]);
    // Of all but the one that has only attributes, which are not read apart.
    let names = shapes().into_iter().map(|(name, _)| name);
    for name in names.filter(|name| !name.starts_with("aa")) {
        let key = key::object_key(&sim.object(&name));
        sim.nodes
            .get_mut(&OsdId::new(0))
            .unwrap()
            .store
            .rotten
            .insert(key);
        sim.with(OsdId::new(0), |core, _| core.drop_contexts());
        let mut pairs = spirula_denc::Writer::new();
        pairs.blob(b"");
        pairs.u64(1);
        pairs.blob(b"");
        let pairs = OsdOpIn::new(OpCode::OMAPGETVALS, OpArgs::None, pairs.into_vec());
        let reply = sim.call(&name, vec![extent(OpCode::READ, 0, 0, ""), pairs]);
        assert_eq!(reply.result, 0, "{name}");
        assert!(sim.nodes[&OsdId::new(0)].store.rotten.is_empty(), "{name}");
    }
    sim.settle_clean(6);
    sim.assert_all_agree();
}

#[test]
pub(super) fn a_copy_whose_clones_stand_for_many_snapshots_is_deleted_step_by_step() {
    let mut sim = cluster(64, 7);
    let many: Shapes = (0..40)
        .map(|n| (format!("o{n}"), vec![vec![write_full("x")]]))
        .collect();
    sim.change_all(&many, &[]);
    sim.change_all(&many, &(1..=4000).rev().collect::<Vec<u64>>());
    sim.change_map(|m| drop(m.pools.remove(&POOL)));
    sim.run_some(200_000);
    for n in sim.nodes.values() {
        assert!(n.store.objects().is_empty());
        assert_eq!(n.store.snap_records(), 0);
    }
}
