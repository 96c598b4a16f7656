//! Objects that a member can't read: they are taken from another one, while everything else goes
//! on.
use spirula_errno::{EAGAIN, EIO};

use super::*;
use crate::pg::PgReport;
use crate::pg::config::Window;
use crate::pg::key;
use crate::pg::repair::MarkLostError;

const PRIMARY: OsdId = OsdId::new(0);

impl Sim {
    fn key(&self, name: &str) -> Bytes {
        key::object_key(&self.object(name))
    }

    fn rot(&mut self, osd: OsdId, key: &Bytes) {
        self.nodes.get_mut(&osd).unwrap().store.rotten.insert(key.clone());
        self.with(osd, |core, _| core.drop_contexts());
    }

    pub(super) fn is_rotten(&self, osd: OsdId, key: &Bytes) -> bool {
        let store = &self.nodes[&osd].store;
        store.rotten.contains(key) || store.unknown.contains(key)
    }

    pub(super) fn primary_report(&self) -> PgReport {
        let cores = self.nodes.values().filter_map(|n| n.core.as_ref());
        cores.flat_map(Core::reports).next().unwrap()
    }

    fn repaired(&self) -> i64 {
        self.primary_report().done.repaired
    }
}

/// A cluster with an object `a` of some parts.
fn cluster(seed: u64) -> Sim {
    let cfg = PgConfig {
        push_window: Window {
            pushes: 2,
            bytes: 8,
            chunk: 4,
        },
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, seed, cfg);
    sim.settle();
    assert_eq!(sim.map().placement(PgId::new(POOL, 0)).primary, Some(PRIMARY));
    sim.write_full("a", "ten parts.");
    sim.call("a", vec![ops::set("name", "value")]);
    sim
}

#[test]
pub(super) fn a_read_waits_until_the_primary_has_a_good_copy() {
    let mut sim = cluster(5);
    let key = sim.key("a");
    sim.rot(PRIMARY, &key);
    assert_eq!(sim.read("a").unwrap(), "ten parts.");
    assert!(!sim.is_rotten(PRIMARY, &key));
    assert_eq!(
        (sim.repaired(), sim.primary_report().copies.unfound.len()),
        (1, 0)
    );
    assert!(sim.seen_states.contains("active+recovering+repair+degraded"));
    let object = sim.object("a");
    assert_eq!(
        sim.cluster_log,
        [format!(
            "1.0 missing primary copy of {object}, will try copies on 1,2"
        )]
    );
    assert_eq!(sim.read("a").unwrap(), "ten parts.");
    assert_eq!(sim.repaired(), 1);
    sim.settle();
    assert!(sim.all_clean());
    sim.assert_all_agree();
}

#[test]
pub(super) fn a_write_that_reads_waits_and_later_ones_keep_their_order() {
    let mut sim = cluster(6);
    let key = sim.key("a");
    sim.rot(PRIMARY, &key);
    let compares = extent(OpCode::CMPEXT, 0, 3, "ten");
    let first = sim.build("a", vec![compares, write_at(0, "TEN")]);
    let second = sim.build("a", vec![write_at(4, "PARTS")]);
    let third = sim.build("a", vec![extent(OpCode::READ, 0, 0, "")]);
    let tids = [first, second, third].map(|op| sim.submit(op).unwrap());
    sim.run_some(100_000);
    let replies = tids.map(|tid| sim.reply_to(tid).unwrap());
    assert!(replies.iter().all(|r| r.result == 0));
    assert_eq!(replies[2].ops[0].data.to_bytes(), "TEN PARTS.");
    assert_eq!(sim.repaired(), 1);
    sim.assert_all_agree();
}

#[test]
pub(super) fn an_object_that_can_not_even_be_looked_up_is_repaired() {
    let mut sim = cluster(7);
    let key = sim.key("a");
    sim.rot(PRIMARY, &key);
    let store = &mut sim.nodes.get_mut(&PRIMARY).unwrap().store;
    store.unknown.insert(key.clone());
    assert_eq!(sim.read("a").unwrap(), "ten parts.");
    assert!(!sim.is_rotten(PRIMARY, &key));
    sim.assert_all_agree();
}

#[test]
pub(super) fn an_omap_is_repaired_too() {
    let mut sim = cluster(8);
    let pairs: Vec<(String, String)> = (0..50).map(|i| (format!("k{i:02}"), format!("v{i}"))).collect();
    let bytes = |s: &String| Bytes::from(s.clone().into_bytes());
    let map: BTreeMap<Bytes, Bytes> = pairs.iter().map(|(k, v)| (bytes(k), bytes(v))).collect();
    let set = OsdOpIn::new(
        OpCode::OMAPSETVALS,
        OpArgs::None,
        spirula_denc::encode_to_vec(&map),
    );
    sim.call("a", vec![set]);
    let key = sim.key("a");
    sim.rot(PRIMARY, &key);
    let keys = BTreeSet::from([bytes(&pairs[7].0)]);
    let get = OsdOpIn::new(
        OpCode::OMAPGETVALSBYKEYS,
        OpArgs::None,
        spirula_denc::encode_to_vec(&keys),
    );
    let r = sim.call("a", vec![get]);
    assert_eq!((r.result, sim.repaired()), (0, 1));
    sim.assert_all_agree();
}

#[test]
pub(super) fn a_clone_is_repaired_in_the_order_of_its_head() {
    let mut sim = cluster(9);
    sim.write_at_snaps("a", vec![write_at(0, "TEN")], 4, &[4]);
    let clone = key::clone_key(&sim.key("a"), 4);
    sim.rot(PRIMARY, &clone);
    assert_eq!(sim.read_at("a", 4).unwrap(), "ten parts.");
    assert!(!sim.is_rotten(PRIMARY, &clone));
    assert_eq!(sim.read("a").unwrap(), "TEN parts.");
    sim.assert_all_agree();
    // It can still be trimmed.
    sim.remove_snaps(&[4]);
    sim.settle();
    assert_eq!(sim.nodes[&PRIMARY].store.objects().len(), 1);
    assert_eq!(sim.nodes[&PRIMARY].store.snap_records(), 0);
}

#[test]
fn a_member_tells_its_primary_and_gets_the_object_again() {
    let mut sim = cluster(10);
    let key = sim.key("a");
    sim.rot(OsdId::new(1), &key);
    let ask = |sim: &mut Sim| {
        let mut op = sim.build("a", vec![extent(OpCode::READ, 0, 0, "")]);
        op.flags = OsdFlags::ONDISK.with(OsdFlags::BALANCE_READS);
        let (pgid, tid) = (op.pgid, op.tid);
        sim.with(OsdId::new(1), |core, cx| core.handle_op(pgid, op, cx));
        sim.run_some(10_000);
        sim.reply_to(tid).unwrap()
    };
    // The first question brings the share, the second finds the damage.
    assert_eq!(ask(&mut sim).result, -EAGAIN);
    assert_eq!(ask(&mut sim).result, -EAGAIN);
    assert!(!sim.is_rotten(OsdId::new(1), &key));
    assert_eq!(ask(&mut sim).result, 0);
    assert_eq!(sim.repaired(), 1);
    assert!(sim.cluster_log[0].contains("read error"), "{:?}", sim.cluster_log);
    sim.assert_all_agree();
}

#[test]
fn a_copy_that_is_found_to_be_bad_as_well_is_repaired_too() {
    let mut sim = cluster(11);
    let key = sim.key("a");
    sim.rot(PRIMARY, &key);
    sim.rot(OsdId::new(1), &key);
    assert_eq!(sim.read("a").unwrap(), "ten parts.");
    sim.settle();
    assert!(!sim.is_rotten(PRIMARY, &key) && !sim.is_rotten(OsdId::new(1), &key));
    assert_eq!(sim.repaired(), 2);
    sim.assert_all_agree();
}

/// osd.2 alone has the newest copy and can't read it, and there are too few members without osd.0.
#[test]
fn an_object_for_which_the_members_wait_is_named_by_the_primary() {
    let mut sim = cluster(13);
    sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().min_size = 1);
    for away in [0, 1] {
        sim.crash_and_mark_down(OsdId::new(away));
    }
    sim.settle();
    sim.write_full("a", "the newest");
    let key = sim.key("a");
    sim.rot(OsdId::new(2), &key);
    sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().min_size = 2);
    sim.start_and_mark_up(PRIMARY);
    sim.pass(15);
    assert_eq!(sim.states(), ["1.0 peering+recovery_unfound+undersized+degraded"]);
    assert_eq!(sim.primary_report().copies.unfound, [sim.object("a")]);
    sim.nodes.get_mut(&OsdId::new(2)).unwrap().store.rotten.clear();
    sim.pass(15);
    assert_eq!(sim.read("a").unwrap(), "the newest");
    assert!(sim.primary_report().copies.unfound.is_empty());
}

#[test]
fn what_no_member_can_read_fails_and_is_named() {
    let mut sim = cluster(12);
    let key = sim.key("a");
    OsdId::below(3).for_each(|osd| sim.rot(osd, &key));
    assert_eq!(sim.read("a"), Err(-EIO));
    assert_eq!(sim.read("a"), Err(-EIO));
    assert_eq!(sim.states(), ["1.0 active+recovery_unfound+degraded"]);
    assert_eq!(sim.primary_report().copies.unfound, [sim.object("a")]);
    assert!(sim.cluster_log.last().unwrap().ends_with(", unfound"));
    // One of them recovers.
    sim.nodes.get_mut(&OsdId::new(2)).unwrap().store.rotten.clear();
    sim.pass(15);
    assert_eq!(sim.read("a").unwrap(), "ten parts.");
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    // All rot again, and are written anew.
    OsdId::below(3).for_each(|osd| sim.rot(osd, &key));
    sim.pass(15);
    assert_eq!(sim.read("a"), Err(-EIO));
    sim.write_full("a", "what is new and no shorter");
    assert_eq!(sim.read("a").unwrap(), "what is new and no shorter");
    assert!(sim.all_clean());
    sim.assert_all_agree();
}

#[test]
fn a_disk_that_keeps_nothing_does_not_keep_its_clients_waiting() {
    let mut sim = cluster(13);
    let key = sim.key("a");
    sim.rot(PRIMARY, &key);
    assert_eq!(sim.read("a").unwrap(), "ten parts.");
    sim.rot(PRIMARY, &key);
    assert_eq!(sim.read("a"), Err(-EIO));
    sim.pass(15);
    assert_eq!(sim.read("a").unwrap(), "ten parts.");
}

#[test]
pub(super) fn who_can_not_read_an_object_does_not_bring_others_up() {
    let mut sim = cluster(14);
    sim.crash_and_mark_down(OsdId::new(2));
    sim.settle();
    sim.write_full("a", "newer");
    let key = sim.key("a");
    sim.rot(PRIMARY, &key);
    sim.start_and_mark_up(OsdId::new(2));
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    assert_eq!(sim.read("a").unwrap(), "newer");
    sim.assert_all_agree();
}

#[test]
pub(super) fn what_no_member_can_read_is_given_up() {
    let mut sim = cluster(15);
    let pgid = PgId::new(POOL, 0);
    let mark = |sim: &mut Sim| {
        let mut result = None;
        sim.with(PRIMARY, |core, cx| result = Some(core.mark_lost(pgid, cx)));
        sim.run_some(100_000);
        result.unwrap()
    };
    assert_eq!(mark(&mut sim), Err(MarkLostError::NoneUnfound));
    sim.write_full("b", "good");
    sim.write_at_snaps("b", vec![write_at(0, "GOOD")], 4, &[4]);
    let (head, clone) = (sim.key("a"), key::clone_key(&sim.key("b"), 4));
    for osd in OsdId::below(3) {
        sim.rot(osd, &head);
        sim.rot(osd, &clone);
    }
    assert_eq!(sim.read("a"), Err(-EIO));
    assert_eq!(sim.read_at("b", 4), Err(-EIO));
    assert_eq!(sim.primary_report().copies.unfound.len(), 2);
    // An OSD that is down may have them, until it is declared lost.
    sim.crash_and_mark_down(OsdId::new(2));
    sim.settle();
    assert_eq!(sim.read("a"), Err(-EIO));
    assert_eq!(sim.read_at("b", 4), Err(-EIO));
    assert_eq!(mark(&mut sim), Err(MarkLostError::NotProbed(2)));
    sim.change_map(|m| m.mark_lost(OsdId::new(2)));
    sim.run_some(100_000);
    assert_eq!(mark(&mut sim), Ok(2));
    assert_eq!(sim.primary_report().copies.unfound, []);
    assert_eq!((sim.read("a"), sim.read_at("b", 4)), (Err(-2), Err(-2)));
    assert_eq!(sim.read("b").unwrap(), "GOOD");
    assert_eq!(mark(&mut sim), Err(MarkLostError::NoneUnfound));
    sim.start_and_mark_up(OsdId::new(2));
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    sim.assert_all_agree();
}

/// Members die and come back, and connections break, while objects that rot somewhere are read and
/// written.
#[test]
fn nothing_is_lost_whatever_interrupts_a_repair() {
    let mut repaired = 0;
    for seed in 0..400 {
        let mut sim = cluster(seed);
        sim.is_slow = seed % 2 == 0;
        let mut newest = "ten parts.".to_owned();
        let key = sim.key("a");
        for round in 0..6 {
            let bad = sim.random_osd(3);
            sim.rot(bad, &key);
            let (mut tids, mut may_be) = (Vec::new(), vec![newest.clone()]);
            for i in 0..3 {
                let text = format!("seed {seed} round {round} write {i}, in some parts");
                let op = match sim.random(3) {
                    0 => {
                        may_be.push(text.clone());
                        sim.build("a", vec![write_full(&text)])
                    }
                    _ => sim.build("a", vec![extent(OpCode::READ, 0, 0, "")]),
                };
                let op = ClientOp {
                    retry_attempt: 1,
                    ..op
                };
                tids.extend(sim.submit(op));
                let n = sim.random(12);
                sim.run_some(n);
            }
            match sim.random(4) {
                0 => {
                    let (a, b) = (sim.random_osd(3), sim.random_osd(3));
                    if a != b {
                        sim.cut_link(a, b);
                    }
                }
                1 => {}
                _ => {
                    let dead = sim.random_osd(3);
                    sim.crash_and_mark_down(dead);
                    let n = sim.random(60);
                    sim.run_some(n);
                    sim.start_and_mark_up(dead);
                }
            }
            sim.settle_clean(seed);
            // A disk that has just been repaired is not believed to be bad again.
            sim.pass(15);
            let now = sim.read("a").unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let now = String::from_utf8(now.to_vec()).unwrap();
            let at = may_be.iter().position(|t| *t == now);
            assert!(at.is_some(), "seed {seed}: {now} is none of {may_be:?}");
            newest = now;
            for osd in OsdId::below(3) {
                // Copies that are still bad are found by reading everywhere.
                sim.nodes.get_mut(&osd).unwrap().store.rotten.clear();
            }
            sim.assert_all_agree();
            repaired += sim.cluster_log.len();
            sim.cluster_log.clear();
        }
    }
    assert!(repaired > 300, "{repaired}");
}
