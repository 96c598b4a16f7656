//! What members are told of scrubs: all of them know it in the end, whatever is lost on the way.

use spirula_errno::ENOENT;

use super::scrub::{DEEP, PRIMARY, REPAIR, REPLICA, cluster};
use super::*;
use crate::pg::bug::Bug;
use crate::pg::key;
use crate::pg::message::PeerBody;
use crate::pg::scrub::history::ScrubHistory;
use crate::pg::scrub::message::ScrubBody;

const PG: PgId = PgId::new(POOL, 0);

/// What an OSD remembers: the history, and the records of what was found.
type Memory = (ScrubHistory, Vec<(Bytes, Bytes)>);

impl Sim {
    fn memory(&self, osd: OsdId) -> Memory {
        let key::KeyRange { from, to } = key::findings_range(PG);
        let node = &self.nodes[&osd];
        let StoreReply::Records(Ok(records)) = node.store.list_records(&from, &to, 1000) else {
            panic!("no records");
        };
        let pg = node.core.as_ref().unwrap().pg(PG).unwrap();
        (pg.seen().info().unwrap().scrubs.clone(), records)
    }

    /// What the primary remembers, and the others do too.
    fn agreed_memory(&self) -> Memory {
        let memory = self.memory(PRIMARY);
        for osd in OsdId::below(3).filter(|o| self.nodes[o].core.is_some()) {
            assert_eq!(self.memory(osd), memory, "osd.{osd}");
        }
        memory
    }

    fn lose(&mut self, osd: OsdId, names: &[&str]) {
        let keys: Vec<Bytes> = names.iter().map(|n| key::object_key(&self.object(n))).collect();
        let node = self.nodes.get_mut(&osd).unwrap();
        node.store
            .damage(|all| keys.iter().for_each(|k| drop(all.remove(k))));
    }

    /// Whether a message about a scrub, which tells or confirms something, is on its way.
    fn is_told(&self, from: OsdId, to: OsdId) -> bool {
        let messages = self.links.get(&(from, to)).into_iter().flatten();
        messages.filter(|m| PeerMessage::is_kind(m.kind())).any(|m| {
            let msg = Versions::default().read(from, m).unwrap();
            let of_scrub = |b: &ScrubBody| matches!(b, ScrubBody::Told { .. } | ScrubBody::Confirmed(_));
            matches!(&msg.body, PeerBody::Scrub(b) if of_scrub(b))
        })
    }

    /// Cuts the link to a member whenever it is told something, or confirms it; not always.
    fn cut_what_is_told(&mut self) -> u32 {
        let mut cuts = 0;
        for _ in 0..400 {
            self.run_some(1);
            for osd in [OsdId::new(1), REPLICA] {
                let told = self.is_told(PRIMARY, osd) || self.is_told(osd, PRIMARY);
                if told && self.random(3) > 0 {
                    self.cut_link(PRIMARY, osd);
                    cuts += 1;
                }
            }
        }
        cuts
    }

    fn scrub_with_cuts(&mut self) -> u32 {
        self.with(PRIMARY, |core, cx| assert!(core.order_scrub(PG, DEEP, cx)));
        let mut cuts = 0;
        for _ in 0..40 {
            self.pass_moment();
            cuts += self.cut_what_is_told();
        }
        cuts
    }
}

#[test]
fn what_a_broken_connection_loses_is_told_again() {
    let mut cuts = 0;
    for seed in 0..20 {
        let mut sim = cluster(seed);
        sim.lose(REPLICA, &["o5", "o6", "o7"]);
        cuts += sim.scrub_with_cuts();
        sim.settle();
        let (history, records) = sim.agreed_memory();
        assert_eq!((history.errors(), records.len()), (3, 3), "seed {seed}");
        assert_eq!(history.progress, None);
        // The next list takes the place of this one.
        sim.scrub(REPAIR);
        cuts += sim.scrub_with_cuts();
        sim.settle();
        let (history, records) = sim.agreed_memory();
        assert_eq!((history.errors(), records.len()), (0, 0), "seed {seed}");
    }
    assert!(cuts > 100, "{cuts} cuts");
}

#[test]
fn without_telling_again_members_would_not_know_it() {
    let differ = |seed: u64| {
        let cfg = PgConfig {
            bug: Some(Bug::ToldOnce),
            ..PgConfig::default()
        };
        let mut sim = Sim::with_config(3, 3, 1, seed, cfg);
        sim.settle();
        (0..9).for_each(|i| drop(sim.write_full(&format!("o{i}"), "data")));
        sim.lose(REPLICA, &["o5", "o6", "o7"]);
        sim.scrub_with_cuts();
        sim.settle();
        let memory = sim.memory(PRIMARY);
        OsdId::below(3).any(|osd| sim.memory(osd) != memory)
    };
    assert!((0..20).any(differ));
}

#[test]
fn a_member_that_was_away_is_told_the_whole_list() {
    for (seed, is_new) in [(2, false), (3, true), (4, false), (5, true)] {
        let mut sim = cluster(seed);
        let names: Vec<String> = (0..60).map(|i| format!("o{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for i in 60..150 {
            sim.write_full(&format!("o{i}"), "data");
        }
        let more: Vec<String> = (60..150).map(|i| format!("o{i}")).collect();
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        // More than one message tells.
        sim.lose(OsdId::new(1), &[&names[10..], &more].concat());
        sim.scrub(DEEP);
        let all = sim.objects().unwrap();
        assert_eq!(all.len(), 140);
        sim.settle();
        let known = sim.agreed_memory();
        sim.crash_and_mark_down(REPLICA);
        sim.settle();
        if is_new {
            sim.replace_disk(REPLICA);
        }
        sim.start_and_mark_up(REPLICA);
        sim.settle();
        sim.settle();
        assert_eq!(sim.agreed_memory(), known, "seed {seed}");
        // It leads when both others are down.
        sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().min_size = 1);
        sim.crash_and_mark_down(PRIMARY);
        sim.crash_and_mark_down(OsdId::new(1));
        sim.settle();
        assert_eq!(sim.objects().unwrap(), all, "seed {seed}");
    }
}

#[test]
fn what_was_repaired_while_a_member_was_away_is_not_listed_there() {
    let mut sim = cluster(2);
    sim.lose(OsdId::new(1), &["o5"]);
    sim.scrub(DEEP);
    sim.settle();
    assert_eq!(sim.agreed_memory().1.len(), 1);
    sim.crash(REPLICA);
    // It is repaired, and found whole, while nobody knows that it is away.
    sim.change_map(|m| {
        m.mark_down(REPLICA);
        m.pools.get_mut(&POOL).unwrap().size = 2;
    });
    sim.settle();
    sim.scrub(REPAIR);
    sim.settle();
    assert_eq!(sim.memory(PRIMARY).1.len(), 0);
    sim.start(REPLICA);
    sim.change_map(|m| {
        m.mark_up(REPLICA);
        m.pools.get_mut(&POOL).unwrap().size = 3;
    });
    sim.settle_clean(2);
    sim.settle();
    let (history, records) = sim.agreed_memory();
    assert_eq!((history.errors(), records.len()), (0, 0));
}

#[test]
fn a_primary_without_the_list_has_it_found_again() {
    let mut sim = cluster(6);
    sim.change_map(|m| m.no_scrub = false);
    sim.settle();
    sim.crash(PRIMARY);
    sim.change_map(|m| {
        m.mark_down(PRIMARY);
        m.out.push(PRIMARY);
        m.pools.get_mut(&POOL).unwrap().size = 2;
    });
    sim.settle();
    sim.lose(REPLICA, &["o5", "o6"]);
    let leader = sim.map().placement(PG).primary.unwrap();
    sim.with(leader, |core, cx| assert!(core.order_scrub(PG, DEEP, cx)));
    sim.pass(40);
    assert_eq!(sim.objects().unwrap().len(), 2);
    // The one that comes back leads, and was not told.
    sim.start(PRIMARY);
    sim.change_map(|m| {
        m.mark_up(PRIMARY);
        m.out.clear();
        m.no_scrub = true;
        m.pools.get_mut(&POOL).unwrap().size = 3;
    });
    sim.settle();
    sim.settle();
    assert_eq!(sim.objects(), Err(-ENOENT));
    assert_eq!(sim.primary_report().scrubs.errors(), 2);
    sim.change_map(|m| m.no_scrub = false);
    sim.pass(40);
    assert_eq!(sim.objects().unwrap().len(), 2, "{:?}", sim.cluster_log);
    sim.settle();
    assert_eq!(sim.agreed_memory().1.len(), 2);
}
