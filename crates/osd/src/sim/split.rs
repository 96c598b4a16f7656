//! PGs that are split while transactions of theirs wait for fragments to be read.

use super::coded::on_coded;
use super::copy::copy;
use super::stage::{set, small_pages};
use super::*;
use crate::pg::message::{PeerBody, PeeringId};
use crate::pg::txn::ObjectOp;
use spirula_proto::internal::Protocol;

/// An object that is in PG `seed` when there are `pg_num` PGs.
fn object_in(sim: &Sim, seed: u32, pg_num: u32) -> String {
    let is_there = |name: &String| PgId::new(POOL, seed).contains_hash(pg_num, sim.object(name).hash);
    (0..).map(|i| format!("o{i}")).find(is_there).unwrap()
}

impl Sim {
    /// Runs steps, in a fixed order, as long as there are some other than these.
    fn run_but(&mut self, waits: impl Fn(&Self, Step) -> bool) {
        while let Some(step) = self.steps().into_iter().find(|s| !waits(self, *s)) {
            self.step(step);
        }
    }

    /// Hands an OSD the maps that are on their way, which its store is slow to make durable.
    fn hand_maps(&mut self, osd: OsdId) {
        for epoch in std::mem::take(&mut self.nodes.get_mut(&osd).unwrap().maps) {
            let map = self.maps[&epoch].clone();
            self.with(osd, |core, cx| core.handle_map(map, false, true, cx));
        }
    }

    fn split_to(&mut self, pg_num: u32) {
        self.change_map(|m| m.pools.get_mut(&POOL).unwrap().pg_num = pg_num);
    }
}

/// What becomes of the OSD whose transaction waits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Lives,
    Crashes,
    /// The pool is deleted.
    LosesPool,
}

const OLD: &str = "old";
const NEW: &str = "new";

/// A change of an object waits for the fragment that it is added to, on the OSD that is returned.
/// Meanwhile the pool gets more PGs, one of which has the object then, and everything else goes on.
fn split_while_one_waits(sim: &mut Sim, name: &str, pg_nums: &[u32]) -> OsdId {
    let change = sim.build(name, vec![write_at(100, NEW)]);
    let primary = sim.map().placement(change.pgid).primary.unwrap();
    sim.submit(change).unwrap();
    // The old bytes are fetched, and the change is on its way to the members.
    let is_on_its_way = |sim: &Sim, step| match step {
        Step::Deliver(a, b) => {
            let msg = PeerMessage::from_raw(&sim.links[&(a, b)][0], Edition::Current);
            matches!(msg.unwrap().body, PeerBody::RepOp(_))
        }
        step => matches!(step, Step::Flush(_)),
    };
    sim.run_but(is_on_its_way);
    for id in OsdId::below(3).filter(|o| *o != primary) {
        sim.step(Step::Deliver(primary, id));
    }
    let waiting: Vec<OsdId> = OsdId::below(3)
        .filter(|o| !sim.nodes[o].answers.is_empty())
        .collect();
    let [coding] = waiting[..] else {
        panic!("{waiting:?}");
    };
    assert!(!sim.nodes[&coding].store.has_unflushed());
    for pg_num in pg_nums {
        sim.split_to(*pg_num);
        sim.run_but(|_, step| step == Step::Answer(coding));
    }
    coding
}

/// The PGs that were split off ask nothing of the store that would overtake the transaction.
#[test]
fn what_waits_for_a_fragment_comes_before_what_pgs_do_that_are_split_off() {
    let pg_nums: [&[u32]; 4] = [&[2], &[4], &[2, 4], &[2, 3, 8]];
    for pg_nums in pg_nums {
        for then in [Then::Lives, Then::Crashes, Then::LosesPool] {
            on_coded(|| history(pg_nums, then));
        }
    }
}

fn history(pg_nums: &[u32], then: Then) {
    let case = format!("{pg_nums:?}, {then:?}");
    let mut sim = Sim::new(3, 3, 1, 2);
    sim.settle();
    let last = pg_nums[pg_nums.len() - 1];
    let name = object_in(&sim, last - 1, last);
    let mut text = OLD.repeat(4000);
    sim.write_full(&name, &text);
    sim.settle();
    let coding = split_while_one_waits(&mut sim, &name, pg_nums);
    text.replace_range(100..100 + NEW.len(), NEW);
    match then {
        Then::Lives => {
            // The others' data is not enough to read the object.
            let key = crate::pg::key::object_key(&sim.object(&name));
            let pgid = sim.pgid_of(&sim.object(&name));
            let primary = sim.map().placement(pgid).primary.unwrap();
            let data = OsdId::below(3).find(|o| ![coding, primary].contains(o)).unwrap();
            sim.nodes.get_mut(&data).unwrap().store.rotten.insert(key);
            let read = sim.build(&name, vec![extent(OpCode::READ, 0, 0, "")]);
            let tid = sim.submit(read).unwrap();
            sim.run_but(|_, step| step == Step::Answer(coding));
            sim.run_some(100_000);
            let found = sim.reply_to(tid).unwrap().ops[0].data.to_bytes();
            assert!(found == text, "{case}: {:?}", &found[..200]);
        }
        Then::Crashes => {
            sim.crash_and_mark_down(coding);
            sim.settle();
            sim.start_and_mark_up(coding);
        }
        Then::LosesPool => {
            sim.change_map(|m| m.pools.clear());
            sim.run_but(|_, step| step == Step::Answer(coding));
            sim.settle();
            for n in sim.nodes.values() {
                assert_eq!(n.store.objects().len(), 0, "{case}");
                assert_eq!(n.core.as_ref().unwrap().pgs().count(), 0, "{case}");
            }
            return; // No object is left to be read.
        }
    }
    sim.settle();
    sim.settle();
    assert!(sim.all_clean(), "{case}: {:?}", sim.states());
    let found = sim.read(&name).unwrap();
    assert!(found == text, "{case}: {:?}", &found[..200]);
    sim.assert_all_agree();
}

/// What a change takes that was staged.
#[derive(Debug, Clone, Copy)]
enum Takes {
    /// Blocks of its object.
    Blocks,
    /// The clone that it leaves behind.
    Clone,
    /// What its object becomes.
    Copy,
}

/// Something is staged everywhere and then taken, but not on a member whose connection broke. It makes
/// the change again in the PG that has the object since a split, also after it was restarted.
#[test]
fn what_is_staged_is_there_to_be_taken_in_a_pg_that_is_split_off() {
    for seed in (1..40).step_by(2) {
        for pg_nums in [&[2][..], &[2, 4]] {
            for takes in [Takes::Blocks, Takes::Clone, Takes::Copy] {
                for restarts in [false, true] {
                    on_coded(|| taken_after_split(seed, pg_nums, takes, restarts));
                }
            }
        }
    }
}

fn taken_after_split(seed: u64, pg_nums: &[u32], takes: Takes, restarts: bool) {
    let case = format!("seed {seed}, {pg_nums:?}, {takes:?}, restarts: {restarts}");
    let mut sim = Sim::with_config(3, 3, 1, seed, small_pages());
    sim.settle();
    let last = pg_nums[pg_nums.len() - 1];
    let name = object_in(&sim, last - 1, last);
    let text = NEW.repeat(8000);
    let snapc = match takes {
        Takes::Clone => SnapContext {
            seq: 2,
            snaps: vec![2],
        },
        _ => SnapContext::default(),
    };
    let change = match takes {
        Takes::Blocks => vec![write_full(&text)],
        Takes::Clone => vec![set(0, 500, 2)],
        Takes::Copy => vec![copy("source")],
    };
    sim.write_full("source", &text);
    sim.call(&name, vec![write_full(OLD), set(0, 400, 1)]);
    let mut change = sim.build(&name, change);
    change.snapc = snapc;
    let primary = sim.map().placement(change.pgid).primary.unwrap();
    let behind = OsdId::below(3).find(|o| *o != primary).unwrap();
    sim.submit(change).unwrap();
    let is_taken = |sim: &Sim, step| match step {
        Step::Deliver(a, b) if b == behind => {
            let msg = PeerMessage::from_raw(&sim.links[&(a, b)][0], Edition::Current).unwrap();
            let takes = |op: &ObjectOp| matches!(op, ObjectOp::Take(_) | ObjectOp::MoveOf(_));
            match msg.body {
                PeerBody::RepOp(op) => op.txn.objects.iter().any(|(_, ops)| ops.iter().any(takes)),
                _ => false,
            }
        }
        _ => false,
    };
    sim.run_but(is_taken);
    assert!(sim.steps().contains(&Step::Deliver(primary, behind)), "{case}");
    sim.cut_link(primary, behind);
    for pg_num in pg_nums {
        sim.split_to(*pg_num);
        if restarts {
            sim.run_but(|_, step| !matches!(step, Step::Map(_)));
            OsdId::below(3).for_each(|osd| sim.crash_and_mark_down(osd));
            OsdId::below(3).for_each(|osd| sim.start_and_mark_up(osd));
        }
    }
    sim.settle();
    sim.settle();
    assert!(sim.all_clean(), "{case}: {:?}", sim.states());
    let found = sim.read(&name).unwrap();
    let keys = [snap::NOSNAP, 2].map(|at| sim.keys_at(&name, at));
    match takes {
        Takes::Blocks => assert!(found == text && keys == [400, 400], "{case}: {keys:?}"),
        Takes::Clone => assert!(found == OLD && keys == [500, 400], "{case}: {keys:?}"),
        Takes::Copy => assert!(found == text && keys == [0, 0], "{case}: {keys:?}"),
    }
    assert_eq!(sim.staged(), 0, "{case}");
    sim.assert_copies(3, case);
}

/// A PG is split while something is staged for an object, which is the PG's own afterwards or that of
/// one that is split off.
#[test]
fn a_split_leaves_nothing_staged() {
    for seed in 1..20 {
        for is_child in [0, 1] {
            for restarts in [false, true] {
                staged_during_split(seed, is_child, restarts);
                on_coded(|| staged_during_split(seed, is_child, restarts));
            }
        }
    }
}

fn staged_during_split(seed: u64, is_child: u32, restarts: bool) {
    let mut sim = Sim::with_config(3, 3, 1, seed, small_pages());
    sim.settle();
    let name = object_in(&sim, is_child, 2);
    sim.call(&name, vec![set(0, 900, 1)]);
    let mut change = sim.build(&name, vec![set(0, 1, 2)]);
    change.snapc = SnapContext {
        seq: 2,
        snaps: vec![2],
    };
    sim.submit(change).unwrap();
    sim.run_until_staged();
    let n = sim.random(120);
    sim.run_some(n);
    sim.split_to(2);
    if restarts {
        let n = sim.random(40);
        sim.run_some(n);
        OsdId::below(3).for_each(|osd| sim.crash_and_mark_down(osd));
        OsdId::below(3).for_each(|osd| sim.start_and_mark_up(osd));
    }
    sim.settle_clean(seed);
    assert_eq!(
        (sim.staged(), sim.keys_at(&name, snap::NOSNAP)),
        (0, 900),
        "seed {seed}"
    );
    sim.assert_copies(3, format!("seed {seed}"));
}

/// The log of a PG that is split off has writes that its parent submitted. It is told only once they
/// are durable, also after intervals of which nothing need be remembered.
#[test]
fn a_pg_that_is_split_off_tells_of_its_copy_only_when_that_is_durable() {
    let mut sim = Sim::new(3, 3, 1, 3);
    sim.settle();
    let name = object_in(&sim, 1, 2);
    let write = sim.build(&name, vec![write_full(NEW)]);
    let primary = sim.map().placement(write.pgid).primary.unwrap();
    sim.submit(write).unwrap();
    sim.run_but(|_, step| matches!(step, Step::Deliver(..) | Step::Flush(_)));
    let child = PgId::new(POOL, 1);
    sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().min_size = 1);
    sim.split_to(2);
    let asks = sim.map().placement(child).primary.unwrap();
    let member = OsdId::below(3).find(|o| ![primary, asks].contains(o)).unwrap();
    sim.step(Step::Deliver(primary, member));
    sim.hand_maps(member);
    let id = PeeringId {
        epoch: sim.map().epoch,
        round: 1,
    };
    let body = PeerBody::Query;
    let ask = PeerMessage {
        pgid: child,
        id,
        body,
    };
    sim.with(member, |core, cx| core.handle_peer(asks, ask, cx));
    let told = |sim: &Sim| {
        let sent = sim.links.get(&(member, asks)).into_iter().flatten();
        let sent = sent.map(|m| PeerMessage::from_raw(m, Edition::Current).unwrap());
        let of_child = sent.filter(|m| m.pgid == child);
        of_child
            .filter(|m| matches!(m.body, PeerBody::Notify { info: Some(_), .. }))
            .count()
    };
    assert!(sim.nodes[&member].store.has_unflushed());
    assert_eq!(told(&sim), 0);
    sim.step(Step::Flush(member));
    assert_eq!(told(&sim), 1);
}

/// The power goes everywhere when only the first transactions of a split are durable.
#[test]
fn a_split_is_there_as_a_whole_or_not_at_all() {
    for n in 0.. {
        let left = cut_off(n);
        on_coded(|| {
            cut_off(n);
        });
        if left == 0 {
            assert!(n > 3);
            return; // That was all of it.
        }
    }
}

/// Makes the first transactions of a split durable. Returns how many there are besides.
fn cut_off(n: usize) -> usize {
    let mut sim = Sim::new(3, 3, 1, 4);
    sim.settle();
    let names: Vec<String> = (0..4).map(|seed| object_in(&sim, seed, 4)).collect();
    names.iter().for_each(|name| drop(sim.write_full(name, name)));
    sim.settle();
    sim.split_to(4);
    let mut left = 0;
    for osd in OsdId::below(3) {
        sim.hand_maps(osd);
        let store = &mut sim.nodes.get_mut(&osd).unwrap().store;
        left = store.unflushed_len().saturating_sub(n);
        store.flush_first(n);
    }
    OsdId::below(3).for_each(|osd| sim.crash_and_mark_down(osd));
    OsdId::below(3).for_each(|osd| sim.start_and_mark_up(osd));
    sim.settle();
    sim.settle();
    assert!(sim.all_clean(), "after {n}: {:?}", sim.states());
    for name in &names {
        assert_eq!(sim.read(name).unwrap(), name, "after {n}");
    }
    sim.assert_copies(3, format!("after {n}"));
    left
}

/// Many changes are under way whose steps others may need, each as large as one may be.
#[test]
fn a_split_fits_the_log_whatever_is_under_way() {
    on_coded(|| {
        let mut sim = Sim::new(3, 3, 1, 2);
        sim.settle();
        let value = "v".repeat(64 << 10);
        let pairs: Vec<(String, &str)> = (0..8).map(|i| (format!("k{i}"), &*value)).collect();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (&**k, *v)).collect();
        for i in 0..32 {
            let change = sim.build(&format!("o{i}"), vec![omap::set(&pairs)]);
            sim.submit(change).unwrap();
        }
        sim.run_but(|_, step| matches!(step, Step::Flush(_)));
        sim.split_to(2);
        sim.settle();
        sim.settle();
        assert!(sim.all_clean(), "{:?}", sim.states());
        assert_eq!(sim.nodes[&OsdId::new(0)].store.objects().len(), 32);
        sim.assert_all_agree();
    });
}
