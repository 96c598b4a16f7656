//! Staging objects: clones and copies that one change can't hold, also while members come and go.

use spirula_denc::{decode_all, encode_to_vec};
use spirula_maps::SnapId;
use spirula_proto::osd_op_data::{OmapGetKeys, OmapKeysReply, OmapVals};

use super::copy::copy;
use super::snaps::roll_back;
use super::*;

pub(super) fn small_pages() -> PgConfig {
    PgConfig {
        max_clone_logged: 2000,
        stage_page: 1500,
        copy_chunk: 700,
        log_entries_per_pg: 20..=20,
        ..PgConfig::default()
    }
}

fn cluster(seed: u64) -> Sim {
    let mut sim = Sim::with_config(4, 3, 2, seed, small_pages());
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    sim
}

/// Sets the keys `from..to`, all to values that `mark` begins.
pub(super) fn set(from: usize, to: usize, mark: u8) -> OsdOpIn {
    let pair = |i| {
        (
            Bytes::from(format!("key {i:04}")),
            Bytes::from(vec![mark; 1 + i % 7]),
        )
    };
    let pairs: OmapVals = (from..to).map(pair).collect();
    OsdOpIn::new(OpCode::OMAPSETVALS, OpArgs::None, encode_to_vec(&pairs))
}

pub(super) fn append(data: &str) -> OsdOpIn {
    extent(OpCode::APPEND, 0, data.len() as u64, data)
}

impl Sim {
    /// Staging objects on all members.
    pub(super) fn staged(&self) -> usize {
        let keys = self.nodes.values().flat_map(|n| n.store.objects().keys());
        keys.filter(|k| k[0] == 0xff).count()
    }

    pub(super) fn keys_at(&mut self, name: &str, snapid: SnapId) -> usize {
        let input = OmapGetKeys {
            start_after: Bytes::new(),
            max: 5000,
        };
        let op = OsdOpIn::new(OpCode::OMAPGETKEYS, OpArgs::None, encode_to_vec(&input));
        let data = self.ask_at(name, snapid, op).unwrap();
        let reply: OmapKeysReply = decode_all(&data).unwrap();
        reply.keys.len()
    }

    /// Lets some of the cluster's work happen until something is staged.
    pub(super) fn run_until_staged(&mut self) {
        for _ in 0..2000 {
            if self.staged() > 0 {
                return;
            }
            self.run_some(1);
        }
        panic!("nothing is staged");
    }
}

#[test]
pub(super) fn a_clone_takes_a_large_omap_along() {
    let mut sim = cluster(1);
    for name in ["a", "b"] {
        let keys = if name == "a" { 400 } else { 10 };
        let w = sim.write_at_snaps(name, vec![write_full("one"), set(0, keys, 1)], 0, &[]);
        assert_eq!(w.result, 0);
        let w = sim.write_at_snaps(name, vec![append("two"), set(100, 500, 2)], 2, &[2]);
        assert_eq!(w.result, 0);
        assert_eq!(
            (sim.keys_at(name, 2), sim.keys_at(name, snap::NOSNAP)),
            (keys, keys.max(100).max(400) + if keys == 400 { 100 } else { 10 })
        );
        assert_eq!(sim.read_at(name, 2).unwrap(), "one");
        assert_eq!(sim.read(name).unwrap(), "onetwo");
    }
    let [said, have] = sim.usages();
    assert_eq!(said, have);
    // Both the old and the new content are staged.
    assert_eq!(sim.write_at_snaps("a", vec![roll_back(2)], 3, &[3, 2]).result, 0);
    assert_eq!((sim.keys_at("a", snap::NOSNAP), sim.keys_at("a", 3)), (400, 500));
    assert_eq!(
        (sim.read("a").unwrap(), sim.read_at("a", 3).unwrap()),
        ("one".into(), "onetwo".into())
    );
    sim.settle();
    assert_eq!(sim.staged(), 0);
    sim.remove_snaps(&[2, 3]);
    sim.settle();
    sim.settle();
    let left: usize = sim.nodes.values().map(|n| n.store.objects().len()).sum();
    assert_eq!(left, 2 * 3);
    assert_eq!(sim.keys_at("a", snap::NOSNAP), 400);
}

#[test]
pub(super) fn other_objects_go_on_while_one_is_staged() {
    let mut sim = cluster(2);
    // All in one PG.
    sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().pg_num = 2);
    sim.write_at_snaps("a", vec![set(0, 900, 1)], 0, &[]);
    let pg = sim.pgid_of(&sim.object("a"));
    let other = (0..)
        .map(|i| format!("o{i}"))
        .find(|n| sim.pgid_of(&sim.object(n)) == pg)
        .unwrap();
    let mut op = sim.build("a", vec![append("x")]);
    op.snapc = SnapContext {
        seq: 2,
        snaps: vec![2],
    };
    let tid = sim.submit(op).unwrap();
    sim.run_until_staged();
    let again = sim.build(&other, vec![append("x")]);
    let other_tid = sim.submit(again).unwrap();
    while !sim.replies.iter().any(|r| r.tid == other_tid) {
        sim.run_some(1);
    }
    assert!(sim.staged() > 0 && sim.reply_to(tid).is_none());
    sim.settle();
    assert_eq!(sim.reply_to(tid).unwrap().result, 0);
    assert_eq!(sim.staged(), 0);
}

#[test]
pub(super) fn a_request_that_is_sent_again_while_it_is_staged_is_done_once() {
    for seed in 1..20 {
        let mut sim = cluster(seed);
        sim.write_at_snaps(
            "source",
            vec![write_full(&"data ".repeat(400)), set(0, 300, 1)],
            0,
            &[],
        );
        sim.write_at_snaps("a", vec![write_full("one"), set(0, 400, 1)], 0, &[]);
        for (name, ops) in [("a", vec![append("x")]), ("b", vec![copy("source"), append("x")])] {
            let first = sim.build(name, ops.clone());
            let mut again = sim.build(name, ops);
            (again.reqid, again.retry_attempt) = (first.reqid, 1);
            let mut tids = Vec::new();
            for mut op in [first, again] {
                op.snapc = SnapContext {
                    seq: 2,
                    snaps: vec![2],
                };
                tids.push(sim.submit(op).unwrap());
                let n = sim.random(60);
                sim.run_some(n);
            }
            sim.settle();
            let replies: Vec<_> = tids.iter().map(|t| sim.reply_to(*t).unwrap()).collect();
            assert_eq!(replies[0].result, 0);
            let versions = |i: usize| (replies[i].result, replies[i].replay_version);
            assert_eq!(versions(0), versions(1), "seed {seed}");
        }
        assert_eq!(sim.read("a").unwrap(), "onex");
        assert_eq!(sim.read("b").unwrap().len(), 2001);
        assert_eq!(sim.staged(), 0);
    }
}

#[test]
pub(super) fn what_is_not_taken_is_removed() {
    let mut sim = cluster(3);
    sim.write_at_snaps("a", vec![set(0, 400, 1)], 0, &[]);
    let late = |sim: &mut Sim, flags: OsdFlags| {
        let mut op = sim.build("a", vec![append("x")]);
        op.snapc = SnapContext {
            seq: 2,
            snaps: vec![2],
        };
        op.flags.insert(flags);
        sim.submit(op).unwrap()
    };
    // A member has no room left: the client that asked is told, the other one waits for a newer
    // map.
    for (flags, result) in [(OsdFlags::FULL_TRY, Some(-28)), (OsdFlags::ONDISK, None)] {
        let tid = late(&mut sim, flags);
        sim.run_until_staged();
        sim.full.extend(OsdId::below(4));
        sim.settle();
        assert_eq!(sim.reply_to(tid).map(|r| r.result), result);
        assert_eq!(sim.staged(), 0);
        sim.full.clear();
        assert_eq!(sim.read("a").unwrap(), "");
    }
    // The map says that there was no room, and that there is.
    sim.set_full(true);
    sim.set_full(false);
    // The client is shut out.
    let tid = late(&mut sim, OsdFlags::ONDISK);
    sim.run_until_staged();
    let addr = sim.client.addr;
    sim.change_map(|m| m.blocklist.push(addr));
    sim.settle();
    assert_eq!(sim.reply_to(tid).unwrap().result, -108);
    sim.change_map(|m| m.blocklist.clear());
    sim.settle();
    assert_eq!((sim.staged(), sim.read("a").unwrap().len()), (0, 0));
    // The source of a copy goes away.
    sim.write_full("source", &"data ".repeat(1000));
    let op = sim.build("b", vec![copy("source")]);
    let tid = sim.submit(op).unwrap();
    sim.run_until_staged();
    let gone = sim.build("source", vec![plain(OpCode::DELETE)]);
    sim.submit(gone);
    sim.settle();
    assert_eq!(sim.reply_to(tid).unwrap().result, -2);
    assert_eq!((sim.staged(), sim.read("b")), (0, Err(-2)));
    // The staging object is of no use, as the request fails, or replaces it.
    sim.write_full("source", &"data ".repeat(1000));
    let bad = extent(OpCode::CMPEXT, 0, 1, "z");
    assert!(sim.call("b", vec![copy("source"), bad]).result < 0);
    assert_eq!(
        sim.call("b", vec![copy("source"), plain(OpCode::DELETE)]).result,
        0
    );
    assert_eq!(sim.call("b", vec![copy("source"), copy("source")]).result, 0);
    sim.write_full("other", &"data ".repeat(1000));
    assert_eq!(sim.call("b", vec![copy("source"), copy("other")]).result, -12);
    sim.settle();
    assert_eq!(sim.staged(), 0);
    sim.assert_copied("source", "b");
    // And the PG works: nothing is held.
    let tid = late(&mut sim, OsdFlags::ONDISK);
    sim.settle();
    assert_eq!(sim.reply_to(tid).unwrap().result, 0);
    assert_eq!((sim.keys_at("a", 2), sim.staged()), (400, 0));
}

#[test]
pub(super) fn a_crash_or_a_move_leaves_nothing_staged() {
    for (seed, moves) in [(1, false), (2, true)] {
        let mut sim = cluster(seed);
        sim.write_at_snaps("a", vec![set(0, 900, 1)], 0, &[]);
        let mut op = sim.build("a", vec![append("x")]);
        op.snapc = SnapContext {
            seq: 2,
            snaps: vec![2],
        };
        let members: Vec<OsdId> = sim.map().placement(op.pgid).acting.osds().collect();
        sim.submit(op).unwrap();
        sim.run_until_staged();
        sim.run_some(150);
        assert_eq!(sim.staged(), 3);
        // The request is lost with the primary, or held by it; the client does not send it again.
        if moves {
            sim.change_map(|m| m.out.push(members[1]));
        } else {
            sim.crash_and_mark_down(members[0]);
            sim.run_some(50);
            sim.start_and_mark_up(members[0]);
        }
        sim.settle();
        assert!(sim.all_clean(), "{:?}", sim.states());
        assert_eq!((sim.staged(), sim.keys_at("a", snap::NOSNAP)), (0, 900));
        assert_eq!(sim.read("a").unwrap(), if moves { "x" } else { "" });
    }
}

/// An object as it should be: its data, and the mark of each key.
type Content = (String, BTreeMap<usize, u8>);

#[derive(Default)]
struct Model {
    heads: BTreeMap<usize, Content>,
    snaps: Vec<(SnapId, BTreeMap<usize, Content>)>,
    seq: SnapId,
    marks: u8,
}

impl Model {
    /// A random change of an object.
    fn change(&mut self, sim: &mut Sim) -> (usize, Vec<OsdOpIn>) {
        let o = sim.random(4);
        self.marks = self.marks % 200 + 1;
        let mark = self.marks;
        match sim.random(6) {
            0 if self.heads.len() > 1 => {
                let from = (o + 1) % 4;
                if let Some(source) = self.heads.get(&from).cloned() {
                    let (mut data, keys) = source;
                    data.push('c');
                    self.heads.insert(o, (data, keys));
                    return (o, vec![copy(&format!("o{from}")), append("c")]);
                }
            }
            1 if !self.snaps.is_empty() => {
                let (id, states) = &self.snaps[sim.random(self.snaps.len())];
                match states.get(&o) {
                    Some(then) => drop(self.heads.insert(o, then.clone())),
                    None => drop(self.heads.remove(&o)),
                }
                return (o, vec![roll_back(*id)]);
            }
            2 if self.heads.contains_key(&o) => {
                self.heads.remove(&o);
                return (o, vec![plain(OpCode::DELETE)]);
            }
            _ => {}
        }
        let (from, n) = (sim.random(300), sim.random(300));
        let (data, keys) = self.heads.entry(o).or_default();
        data.push('a');
        keys.extend((from..from + n).map(|i| (i, mark)));
        (o, vec![append("a"), set(from, from + n, mark)])
    }

    fn check(&self, sim: &mut Sim, seed: u64) {
        let heads = std::iter::once((snap::NOSNAP, &self.heads));
        for (id, states) in heads.chain(self.snaps.iter().map(|(id, s)| (*id, s))) {
            for o in 0..4 {
                let name = format!("o{o}");
                let Some((data, keys)) = states.get(&o) else {
                    assert_eq!(sim.read_at(&name, id), Err(-2), "seed {seed}: {name} at {id:x}");
                    continue;
                };
                let found = sim.read_at(&name, id).map(|d| d.to_vec());
                assert_eq!(
                    found,
                    Ok(data.clone().into_bytes()),
                    "seed {seed}: {name} at {id:x}"
                );
                assert_eq!(sim.omap_at(&name, id), *keys, "seed {seed}: {name} at {id:x}");
            }
        }
    }
}

impl Sim {
    /// An object's omap, which must be the same on all members: the mark of each key.
    fn omap_at(&self, name: &str, id: SnapId) -> BTreeMap<usize, u8> {
        let object = self.object(name);
        let head = crate::pg::key::object_key(&object);
        let placement = self.map().placement(self.pgid_of(&object));
        let acting: Vec<OsdId> = placement.acting.osds().collect();
        let primary = &self.nodes[&acting[0]].store;
        let info = |key: &Bytes| primary.objects().get(key).map(|o| o.info.clone());
        let set = decode_all::<crate::pg::object::ObjectInfo>(&info(&head).unwrap())
            .unwrap()
            .snap_set;
        let clone = set.clones.iter().find(|c| c.snaps.contains(&id));
        let key = clone.map_or(head.clone(), |c| crate::pg::key::clone_key(&head, c.id));
        self.assert_copies_agree(name);
        let number = |k: &Bytes| std::str::from_utf8(&k[4..]).unwrap().parse().unwrap();
        primary.objects()[&key]
            .omap
            .iter()
            .map(|(k, v)| (number(k), v[0]))
            .collect()
    }

    /// Executes a request while members crash, move and lose connections; it is sent again until it
    /// is answered.
    fn call_in_trouble(&mut self, name: &str, ops: &[OsdOpIn], snapc: &SnapContext) -> i32 {
        let mut tids = Vec::new();
        let mut reqid = None;
        for attempt in 0..20 {
            let mut op = self.build(name, ops.to_vec());
            op.reqid = *reqid.get_or_insert(op.reqid);
            (op.retry_attempt, op.snapc) = (attempt, snapc.clone());
            tids.extend(self.submit(op));
            let n = self.random(150);
            self.run_some(n);
            if attempt < 3 {
                self.trouble();
            }
            if attempt > 0 || self.random(2) == 0 {
                self.settle();
            }
            if let Some(r) = tids.iter().find_map(|t| self.reply_to(*t)) {
                return r.result;
            }
        }
        panic!("no answer: {:?}\n{}", self.states(), self.traces());
    }

    fn trouble(&mut self) {
        let id = self.random_osd(4);
        match self.random(5) {
            0 => {
                self.crash_and_mark_down(id);
                let n = self.random(40);
                self.run_some(n);
                self.start_and_mark_up(id);
            }
            1 => self.cut_link(id, OsdId::new((id.index() as u16 + 1) % 4)),
            2 => self.change_map(|m| {
                if m.out.pop().is_none() {
                    m.out.push(id);
                }
            }),
            _ => {}
        }
    }
}

fn random_history(seed: u64) {
    let mut sim = cluster(seed);
    let mut model = Model {
        seq: 1,
        ..Model::default()
    };
    for step in 0..40 {
        match sim.random(8) {
            0 | 1 if model.snaps.len() < 4 => {
                model.seq += 1;
                model.snaps.push((model.seq, model.heads.clone()));
            }
            2 if model.snaps.len() > 2 => {
                let at = sim.random(model.snaps.len());
                let (id, _) = model.snaps.remove(at);
                model.seq += 1;
                sim.remove_snaps(&[id]);
            }
            3 if step > 20 => sim.change_map(|m| {
                let pool = m.pools.get_mut(&POOL).unwrap();
                pool.pg_num = (pool.pg_num + 1).min(4);
            }),
            _ => {
                let (o, ops) = model.change(&mut sim);
                let snaps = model.snaps.iter().rev().map(|(id, _)| *id).collect();
                let snapc = SnapContext {
                    seq: model.seq,
                    snaps,
                };
                let r = sim.call_in_trouble(&format!("o{o}"), &ops, &snapc);
                assert_eq!(r, 0, "seed {seed}: step {step}");
            }
        }
    }
    sim.settle();
    assert!(
        sim.all_clean(),
        "seed {seed}: {:?}\n{}",
        sim.states(),
        sim.traces()
    );
    model.check(&mut sim, seed);
    // A stray copy of a PG may have one left, until that is deleted.
    let [said, have] = sim.usages();
    assert_eq!(said, have, "seed {seed}");
    sim.change_map(|m| m.out.clear());
    sim.settle();
    model.check(&mut sim, seed);
    let ids: Vec<SnapId> = model.snaps.drain(..).map(|(id, _)| id).collect();
    sim.remove_snaps(&ids);
    sim.settle();
    sim.settle();
    model.check(&mut sim, seed);
    let left: usize = sim.nodes.values().map(|n| n.store.objects().len()).sum();
    assert_eq!(
        (left, sim.staged()),
        (model.heads.len() * 3, 0),
        "seed {seed}: objects left over"
    );
}

#[test]
pub(super) fn staged_changes_are_whole_in_random_histories() {
    for seed in seeds(20) {
        random_history(seed);
    }
}
