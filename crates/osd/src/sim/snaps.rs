//! Snapshots: what they keep, what trimming removes, and random histories against a model.

use spirula_denc::{Extent, decode_all};
use spirula_maps::SnapId;
use spirula_proto::osd_op_data::{CloneInfo, ListSnapsResponse};

use super::*;
use crate::pg::cluster::PoolSnaps;
use crate::pg::key::{self, KeyRange};
use crate::pg::layout::Layout;
use crate::pg::object::ObjectInfo;

const fn bytes(offset: u64, len: u64) -> Extent {
    Extent { offset, len }
}

impl Sim {
    /// A write under a snapshot context.
    pub(super) fn write_at_snaps(
        &mut self,
        name: &str,
        ops: Vec<OsdOpIn>,
        seq: SnapId,
        snaps: &[SnapId],
    ) -> MOsdOpReply {
        let mut op = self.build(name, ops);
        op.snapc = SnapContext {
            seq,
            snaps: snaps.to_vec(),
        };
        self.call_op(op)
    }

    /// A read at a snapshot.
    pub(super) fn ask_at(&mut self, name: &str, snapid: SnapId, op: OsdOpIn) -> Result<Bytes, i32> {
        let mut op = self.build(name, vec![op]);
        op.snapid = snapid;
        let r = self.call_op(op);
        match r.result {
            0.. => Ok(r.ops[0].data.to_bytes()),
            e => Err(e),
        }
    }

    pub(super) fn read_at(&mut self, name: &str, snapid: SnapId) -> Result<Bytes, i32> {
        self.ask_at(name, snapid, extent(OpCode::READ, 0, 0, ""))
    }

    fn list_snaps(&mut self, name: &str) -> Result<ListSnapsResponse, i32> {
        self.ask_at(name, snap::SNAPDIR, plain(OpCode::LIST_SNAPS))
            .map(|b| decode_all(&b).unwrap())
    }

    pub(super) fn remove_snaps(&mut self, ids: &[SnapId]) {
        self.change_map(|m| {
            let pool = m.pools.get_mut(&POOL).unwrap();
            let mut snaps: PoolSnaps = (*pool.snaps).clone();
            ids.iter().for_each(|id| snaps.removed.insert(*id));
            pool.snaps = Arc::new(snaps);
        });
    }

    /// Makes the map forget these snapshots, as if all PGs had trimmed them.
    fn purge_snaps(&mut self, ids: &[SnapId]) {
        self.change_map(|m| {
            let pool = m.pools.get_mut(&POOL).unwrap();
            let mut snaps: PoolSnaps = (*pool.snaps).clone();
            let gone = ids.iter().copied().collect();
            snaps.removed.subtract(&gone);
            Arc::make_mut(&mut snaps.purged).union(&gone);
            pool.snaps = Arc::new(snaps);
        });
    }

    /// Objects, clones, whiteouts and bytes: as all primaries report them, and as the stores of the
    /// first members have them.
    pub(super) fn usages(&self) -> [[i64; 4]; 2] {
        let reports: Vec<_> = self
            .nodes
            .values()
            .filter_map(|n| n.core.as_ref())
            .flat_map(|c| c.reports().collect::<Vec<_>>())
            .collect();
        let mut said = [0; 4];
        let mut have = [0; 4];
        for r in reports {
            for (sum, n) in
                said.iter_mut()
                    .zip([r.usage.objects, r.usage.clones, r.usage.whiteouts, r.usage.bytes])
            {
                *sum += n;
            }
            let pg_num = self.map().pool(POOL).unwrap().pg_num;
            let KeyRange { from, to } = key::pg_range(r.pgid, pg_num);
            for (k, o) in self.nodes[&r.place.acting_primary.unwrap()]
                .store
                .objects()
                .range(from..to)
            {
                let info: ObjectInfo = decode_all(&o.info).unwrap();
                have[0] += 1;
                if key::snap_of(k) == Some(snap::NOSNAP) {
                    if matches!(
                        self.part(r.place.acting_primary.unwrap(), r.pgid).layout,
                        Layout::Whole
                    ) {
                        assert_eq!(o.data.len() as u64, info.size);
                    }
                    have[2] += i64::from(info.whiteout);
                    have[3] += info.size as i64 + info.snap_set.clone_bytes();
                } else {
                    have[1] += 1;
                }
            }
        }
        [said, have]
    }
}

fn cluster() -> Sim {
    let mut sim = Sim::new(3, 3, 4, 1);
    sim.settle();
    sim
}

pub(super) fn roll_back(id: SnapId) -> OsdOpIn {
    OsdOpIn::new(OpCode::ROLLBACK, OpArgs::Snap(id), Bytes::new())
}

fn is_clean(sim: &Sim) -> bool {
    sim.states().iter().all(|s| s.ends_with("active+clean"))
}

#[test]
pub(super) fn a_snapshot_keeps_what_was_there() {
    let mut sim = cluster();
    let w = sim.write_at_snaps("a", vec![write_full("one")], 0, &[]);
    assert_eq!((w.result, w.user_version), (0, 1));
    let w = sim.write_at_snaps("a", vec![write_at(1, "N")], 2, &[2]);
    // The clone is a version of its own.
    assert_eq!((w.result, w.user_version, w.replay_version.version), (0, 3, 3));
    sim.write_at_snaps("a", vec![write_at(5, "x")], 2, &[2]);
    assert_eq!(sim.read_at("a", 2).unwrap(), "one");
    assert_eq!(sim.read_at("a", 3).unwrap(), "oNe\0\0x");
    assert_eq!(sim.read_at("a", 1), Err(-2));
    let l = sim.list_snaps("a").unwrap();
    assert_eq!((l.seq, l.clones.len()), (2, 2));
    let (clone, head) = (&l.clones[0], &l.clones[1]);
    assert_eq!((clone.id, &clone.snaps[..], clone.size), (2, &[2][..], 3));
    assert_eq!(clone.overlap, [bytes(0, 1), bytes(2, 1)]);
    assert_eq!((head.id, head.size, head.overlap.len()), (snap::NOSNAP, 6, 0));
    assert_eq!(sim.usages(), [[2, 1, 0, 7]; 2]);

    // Removed under a snapshot that nobody wrote after: another clone, and a whiteout.
    let w = sim.write_at_snaps("a", vec![plain(OpCode::DELETE)], 4, &[4, 2]);
    assert_eq!(w.result, 0);
    assert_eq!(sim.read("a"), Err(-2));
    assert_eq!(
        sim.write_at_snaps("a", vec![plain(OpCode::DELETE)], 4, &[4, 2])
            .result,
        -2
    );
    assert_eq!(sim.read_at("a", 4).unwrap(), "oNe\0\0x");
    let l = sim.list_snaps("a").unwrap();
    assert_eq!(l.clones.iter().map(|c| c.id).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(sim.usages(), [[3, 2, 1, 1 + 6]; 2]);
    // It comes back.
    assert_eq!(
        sim.write_at_snaps("a", vec![write_full("new")], 4, &[4, 2])
            .result,
        0
    );
    assert_eq!(sim.usages(), [[3, 2, 0, 3 + 1 + 6]; 2]);
    assert_eq!(sim.list_snaps("b"), Err(-2));
}

#[test]
pub(super) fn rolling_back_makes_the_head_what_it_was() {
    let mut sim = cluster();
    sim.write_at_snaps("a", vec![write_full("0123456789")], 0, &[]);
    sim.write_at_snaps("a", vec![write_at(2, "xx")], 2, &[2]);
    sim.write_at_snaps("a", vec![write_at(5, "yyyyyyyy")], 3, &[3, 2]);
    assert_eq!(sim.write_at_snaps("a", vec![roll_back(2)], 3, &[3, 2]).result, 0);
    assert_eq!(sim.read("a").unwrap(), "0123456789");
    assert_eq!(sim.read_at("a", 3).unwrap(), "01xx456789");
    let l = sim.list_snaps("a").unwrap();
    let overlaps: Vec<_> = l.clones.iter().map(|c| c.overlap.clone()).collect();
    assert_eq!(
        overlaps,
        [
            vec![bytes(0, 2), bytes(4, 6)],
            vec![bytes(0, 2), bytes(4, 1)],
            vec![]
        ]
    );
    // To a snapshot in which it did not exist: it goes.
    assert_eq!(sim.write_at_snaps("a", vec![roll_back(1)], 3, &[3, 2]).result, 0);
    assert_eq!(sim.read("a"), Err(-2));
    assert_eq!(sim.write_at_snaps("a", vec![roll_back(1)], 3, &[3, 2]).result, 0);
    // From there, and to the head itself.
    assert_eq!(sim.write_at_snaps("a", vec![roll_back(3)], 3, &[3, 2]).result, 0);
    assert_eq!(sim.read("a").unwrap(), "01xx456789");
    let v = sim
        .write_at_snaps("a", vec![roll_back(9)], 3, &[3, 2])
        .user_version;
    assert_eq!(sim.read("a").unwrap(), "01xx456789");
    assert_eq!(
        sim.write_at_snaps("a", vec![write_at(0, "z")], 3, &[3, 2])
            .user_version,
        v + 1
    );
    let [said, have] = sim.usages();
    assert_eq!(said, have);
}

#[test]
pub(super) fn contexts_are_checked() {
    let mut sim = cluster();
    sim.write_at_snaps("a", vec![write_full("a")], 5, &[5, 3]);
    let mut op = sim.build("a", vec![write_full("b")]);
    (op.flags, op.snapc.seq) = (OsdFlags::ONDISK.with(OsdFlags::ORDERSNAP), 4);
    assert_eq!(sim.call_op(op).result, -85);
    assert_eq!(sim.write_at_snaps("a", vec![write_full("c")], 4, &[3]).result, 0);
    assert_eq!(
        sim.write_at_snaps("a", vec![write_full("c")], 4, &[3, 4]).result,
        -22
    );
    assert_eq!(sim.ask_at("a", 3, write_full("x")), Err(-22));
    assert_eq!(
        sim.ask_at("a", snap::SNAPDIR, extent(OpCode::READ, 0, 0, "")),
        Err(-22)
    );
    assert_eq!(sim.ask_at("a", snap::NOSNAP, plain(OpCode::LIST_SNAPS)), Err(-22));
    // In a pool with snapshots of itself, the pool's context counts.
    sim.change_map(|m| {
        let snaps = PoolSnaps {
            context: Some(SnapContext {
                seq: 7,
                snaps: vec![7],
            }),
            ..PoolSnaps::default()
        };
        m.pools.get_mut(&POOL).unwrap().snaps = Arc::new(snaps);
    });
    sim.settle();
    sim.call("a", vec![write_full("d")]);
    assert_eq!(
        (sim.read("a").unwrap(), sim.read_at("a", 7).unwrap()),
        ("d".into(), "c".into())
    );
}

#[test]
pub(super) fn removed_snapshots_are_trimmed_and_leave_nothing() {
    let mut sim = cluster();
    for i in 0..20 {
        let name = format!("o{i}");
        sim.write_at_snaps(&name, vec![write_full("one")], 0, &[]);
        sim.write_at_snaps(&name, vec![write_full("two")], 3, &[3, 2]);
        sim.write_at_snaps(&name, vec![plain(OpCode::DELETE)], 4, &[4, 3, 2]);
    }
    assert_eq!(sim.usages()[0][..3], [60, 40, 20]);
    sim.change_map(|m| m.no_snap_trim = true);
    sim.remove_snaps(&[3]);
    sim.settle();
    assert_eq!(sim.usages()[0][..3], [60, 40, 20]);
    assert_eq!(sim.read_at("o1", 3), Err(-2), "it is gone, trimmed or not");
    sim.change_map(|m| m.no_snap_trim = false);
    sim.settle();
    assert_eq!(sim.read_at("o1", 2).unwrap(), "one");
    assert_eq!(sim.list_snaps("o1").unwrap().clones[0].snaps, [2]);
    sim.remove_snaps(&[4]);
    sim.settle();
    assert_eq!(sim.usages()[0][..3], [40, 20, 20]);
    // A restart in the middle of it.
    sim.remove_snaps(&[2]);
    sim.run_some(60);
    sim.crash_and_mark_down(OsdId::new(1));
    sim.run_some(60);
    sim.start_and_mark_up(OsdId::new(1));
    sim.settle();
    sim.settle();
    assert_eq!(sim.usages(), [[0; 4]; 2]);
    assert!(is_clean(&sim), "{:?}", sim.states());
    assert!(sim.seen_states.contains("active+clean+snaptrim"));
    assert!(sim.seen_states.contains("active+clean+snaptrim_wait"));
    for (id, n) in &sim.nodes {
        assert!(n.store.objects().is_empty(), "osd.{id}");
        assert_eq!(n.store.snap_records(), 0, "osd.{id}");
        for r in n.core.as_ref().unwrap().reports() {
            assert_eq!(
                (r.snaps.to_trim, r.snaps.purged.to_string().as_str()),
                (0, "[2~3]")
            );
        }
    }
}

#[test]
pub(super) fn a_client_that_was_away_leaves_no_clones_of_purged_snapshots() {
    let mut sim = cluster();
    for name in ["a", "b", "c"] {
        sim.write_at_snaps(name, vec![write_full("one")], 0, &[]);
    }
    sim.write_at_snaps("a", vec![write_full("two")], 3, &[3, 2]);
    sim.remove_snaps(&[2, 3]);
    sim.settle();
    sim.purge_snaps(&[2, 3]);
    sim.settle();
    assert_eq!(sim.usages()[0][..3], [3, 0, 0]);
    // It has not heard of the removal; snapshot 5 exists.
    let stale = [5, 3, 2];
    sim.write_at_snaps("a", vec![write_full("three")], 5, &stale);
    sim.write_at_snaps("b", vec![plain(OpCode::DELETE)], 3, &stale[1..]);
    assert_eq!(sim.list_snaps("a").unwrap().clones[0].snaps, [5]);
    assert_eq!(sim.read_at("a", 5).unwrap(), "two");
    assert_eq!(sim.list_snaps("b"), Err(-2));
    assert_eq!(sim.usages(), [[3, 1, 0, 3 + 5 + 3]; 2]);
}

/// Clones that stand for snapshots which are purged, as the map says, though nothing trimmed them: a
/// scrub finds them, whether they have records or not.
#[test]
pub(super) fn strays_are_found_by_a_scrub_and_trimmed() {
    for (seed, has_records, ordered) in [
        (2, true, false),
        (3, false, false),
        (4, true, true),
        (5, false, true),
    ] {
        let mut sim = Sim::new(3, 3, 1, seed);
        sim.settle();
        for name in ["a", "b", "c", "d"] {
            sim.write_at_snaps(name, vec![write_full("one")], 0, &[]);
            sim.write_at_snaps(name, vec![write_full("two")], 2, &[2]);
            sim.write_at_snaps(name, vec![write_full("three")], 5, &[5, 4, 2]);
        }
        sim.write_at_snaps("d", vec![plain(OpCode::DELETE)], 5, &[5, 4, 2]);
        assert_eq!(sim.usages()[0][..3], [12, 8, 1]);
        if !has_records {
            let nodes = sim.nodes.values_mut();
            nodes.for_each(|n| n.store.lose_snap_records());
        }
        sim.purge_snaps(&[2, 4]);
        sim.settle();
        sim.pass(20);
        assert_eq!(
            sim.usages()[0][..3],
            [12, 8, 1],
            "seed {seed}: nobody knows of them"
        );
        let primary = sim.map().placement(PgId::new(POOL, 0)).primary.unwrap();
        sim.cluster_log.clear();
        if ordered {
            sim.with(primary, Core::scrub_for_strays);
        } else {
            sim.change_map(|m| m.no_scrub = false);
            sim.settle();
            sim.advance(Micros::from_secs(86_400 * 2));
        }
        sim.pass(40);
        let found = sim.cluster_log.iter();
        let found = found.filter(|l| l.contains(" : stands for purged snapshot "));
        assert_eq!(found.count(), 8, "seed {seed}: {:?}", sim.cluster_log);
        assert!(
            sim.cluster_log.contains(&"1.0 scrub ok".to_owned()),
            "{:?}",
            sim.cluster_log
        );
        // The newer clones stay, for the snapshot that is not purged.
        assert_eq!(sim.usages()[0][..3], [8, 4, 1], "seed {seed}");
        for name in ["a", "b", "c", "d"] {
            let clones = sim.list_snaps(name).unwrap().clones;
            let snaps: Vec<_> = clones.iter().filter(|c| c.id != snap::NOSNAP).collect();
            assert_eq!((snaps.len(), &snaps[0].snaps[..]), (1, &[5][..]), "seed {seed}");
            assert_eq!(sim.read_at(name, 5).unwrap(), "two");
        }
        assert!(sim.seen_states.contains("active+clean+snaptrim"));
        assert!(is_clean(&sim), "{:?}", sim.states());
        sim.assert_all_agree();
        // There is nothing left to find.
        sim.cluster_log.clear();
        sim.with(primary, Core::scrub_for_strays);
        sim.pass(40);
        assert_eq!(sim.cluster_log, ["1.0 scrub starts", "1.0 scrub ok"]);
    }
}

/// An object's content and attribute.
type State = Option<(Vec<u8>, u8)>;

#[derive(Default)]
struct Model {
    heads: BTreeMap<usize, State>,
    /// The snapshots that exist, newest last, with all objects as they were.
    snaps: Vec<(SnapId, BTreeMap<usize, State>)>,
    removed: Vec<SnapId>,
    seq: SnapId,
}

impl Model {
    fn change(&mut self, sim: &mut Sim) -> (usize, Vec<OsdOpIn>, State) {
        let o = sim.random(5);
        let old = self.heads.get(&o).cloned().flatten();
        let (mut data, mut attr) = old.clone().unwrap_or_default();
        let (at, len) = (sim.random(60), 1 + sim.random(30));
        let text = format!("{:x}", self.seq * 7919 + at as u64).repeat(8)[..len].to_owned();
        let grow = |d: &mut Vec<u8>, n: usize| d.resize(d.len().max(n), 0);
        let mut ops = Vec::new();
        for _ in 0..=sim.random(2) {
            match sim.random(8) {
                0 | 1 => {
                    grow(&mut data, at + len);
                    data[at..at + len].copy_from_slice(text.as_bytes());
                    ops.push(write_at(at as u64, &text));
                }
                2 => {
                    data = text.clone().into_bytes();
                    ops.push(write_full(&text));
                }
                3 => {
                    data.extend_from_slice(text.as_bytes());
                    ops.push(extent(OpCode::APPEND, 0, len as u64, &text));
                }
                4 if old.is_some() => {
                    data.resize(at, 0);
                    ops.push(extent(OpCode::TRUNCATE, at as u64, 0, ""));
                }
                5 if old.is_some() && data.len() > at + len => {
                    data[at..at + len].fill(0);
                    ops.push(extent(OpCode::ZERO, at as u64, len as u64, ""));
                }
                _ => {
                    attr = attr.wrapping_add(1);
                    ops.push(ops::set("k", std::str::from_utf8(&[b'a' + attr % 26]).unwrap()));
                }
            }
        }
        match sim.random(6) {
            0 if old.is_some() => (o, vec![plain(OpCode::DELETE)], None),
            1 if !self.snaps.is_empty() => {
                let (id, states) = &self.snaps[sim.random(self.snaps.len())];
                let then = states.get(&o).cloned().flatten();
                (o, vec![roll_back(*id)], then)
            }
            _ => (o, ops, Some((data, attr))),
        }
    }

    /// The snapshots that a client names: sometimes those of a client that has not heard of
    /// removals.
    fn context(&self, sim: &mut Sim) -> Vec<SnapId> {
        let mut ids: Vec<SnapId> = self.snaps.iter().map(|(id, _)| *id).collect();
        if sim.random(4) == 0 {
            ids.extend(&self.removed);
        }
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids
    }

    /// Checks that everything readable is as it was, and that overlaps are correct.
    fn check(&self, sim: &mut Sim, seed: u64) {
        for o in 0..5 {
            let name = format!("o{o}");
            let get = |sim: &mut Sim, id| {
                let data = sim.read_at(&name, id);
                let attr = sim.ask_at(&name, id, ops::get("k")).unwrap_or_default();
                (data.map(|d| d.to_vec()), attr)
            };
            let all =
                std::iter::once((snap::NOSNAP, &self.heads)).chain(self.snaps.iter().map(|(id, s)| (*id, s)));
            for (id, states) in all {
                let want = match states.get(&o).cloned().flatten() {
                    None => (Err(-2), Bytes::new()),
                    Some((data, 0)) => (Ok(data), Bytes::new()),
                    Some((data, attr)) => (Ok(data), vec![b'a' + attr % 26].into()),
                };
                assert_eq!(get(sim, id), want, "seed {seed}: {name} at {id:x}");
            }
            let Ok(list) = sim.list_snaps(&name) else { continue };
            for two in list.clones.windows(2) {
                // A clone of removed snapshots alone can't be read until it is trimmed.
                let content = |sim: &mut Sim, c: &CloneInfo| {
                    let ids = if c.id == snap::NOSNAP {
                        &[c.id][..]
                    } else {
                        &c.snaps
                    };
                    ids.iter().find_map(|id| sim.read_at(&name, *id).ok())
                };
                let (Some(older), Some(newer)) = (content(sim, &two[0]), content(sim, &two[1])) else {
                    continue;
                };
                assert_eq!(older.len() as u64, two[0].size);
                for kept in &two[0].overlap {
                    let range = kept.offset as usize..kept.end() as usize;
                    assert_eq!(older[range.clone()], newer[range], "seed {seed}: {name}");
                }
            }
        }
        let [said, have] = sim.usages();
        assert_eq!(said, have, "seed {seed}");
    }
}

fn random_history(seed: u64) {
    let cfg = PgConfig {
        log_entries_per_pg: 20..=20,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(4, 3, 2, seed, cfg);
    sim.settle();
    let mut model = Model {
        seq: 1,
        ..Model::default()
    };
    for step in 0..160 {
        match sim.random(16) {
            0 | 1 if model.snaps.len() < 6 => {
                model.seq += 1;
                model.snaps.push((model.seq, model.heads.clone()));
            }
            2 if !model.snaps.is_empty() => {
                let at = sim.random(model.snaps.len());
                let (id, _) = model.snaps.remove(at);
                model.removed.push(id);
                // Its removal takes an id.
                model.seq += 1;
                sim.remove_snaps(&[id]);
            }
            7 => {
                sim.settle();
                let reports = sim.nodes.values().filter_map(|n| n.core.as_ref());
                let trimmed: Vec<_> = reports
                    .flat_map(|c| c.reports().map(|r| r.snaps.purged).collect::<Vec<_>>())
                    .collect();
                let everywhere = |id: &SnapId| trimmed.iter().all(|t| t.contains(*id));
                let ids: Vec<SnapId> = model.removed.iter().copied().filter(everywhere).collect();
                sim.purge_snaps(&ids);
            }
            3 => {
                // Its unflushed writes are gone, and it lacks those of the others.
                let id = sim.random_osd(4);
                sim.crash_and_mark_down(id);
                sim.run_some(30);
                sim.start_and_mark_up(id);
                sim.settle();
            }
            6 => {
                // To other members, which have nothing.
                let id = sim.random_osd(4);
                sim.change_map(|m| {
                    if m.out.pop().is_none() {
                        m.out.push(id);
                    }
                });
                sim.settle();
            }
            4 if step > 100 => {
                sim.change_map(|m| {
                    let pool = m.pools.get_mut(&POOL).unwrap();
                    pool.pg_num = (pool.pg_num + 1).min(4);
                });
                sim.settle();
            }
            5 => model.check(&mut sim, seed),
            _ => {
                let (o, ops, after) = model.change(&mut sim);
                let (seq, snaps) = (model.seq, model.context(&mut sim));
                let r = sim.write_at_snaps(&format!("o{o}"), ops, seq, &snaps);
                assert_eq!(r.result, 0, "seed {seed}");
                model.heads.insert(o, after);
            }
        }
    }
    sim.change_map(|m| m.out.clear());
    sim.settle();
    model.check(&mut sim, seed);
    let ids: Vec<SnapId> = model.snaps.iter().map(|(id, _)| *id).collect();
    model.snaps.clear();
    sim.remove_snaps(&ids);
    sim.settle();
    sim.settle();
    model.check(&mut sim, seed);
    assert!(is_clean(&sim), "seed {seed}: {:?}", sim.states());
    let left: usize = sim.nodes.values().map(|n| n.store.objects().len()).sum();
    let heads = model.heads.values().flatten().count();
    assert_eq!(
        left,
        heads * 3,
        "seed {seed}: clones left over, or copies missing"
    );
    let [said, _] = sim.usages();
    assert_eq!(said[..3], [heads as i64, 0, 0], "seed {seed}");
}

#[test]
pub(super) fn snapshots_stay_true_in_random_histories() {
    for seed in seeds(20) {
        random_history(seed);
    }
}
