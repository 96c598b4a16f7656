//! Digests in infos of objects: they are those of the contents, and tell which copy is wrong.

use spirula_denc::decode_all;
use spirula_maps::EVersion;

use super::scrub::{DEEP, PRIMARY, REPAIR, REPLICA, cluster, cluster_with};
use super::*;
use crate::pg::bug::Bug;
use crate::pg::config::ScrubConfig;
use crate::pg::digests::Digests;
use crate::pg::key;
use crate::pg::object::ObjectInfo;

/// Digests are noted at once, and few errors repaired unasked.
fn prompt() -> PgConfig {
    PgConfig {
        scrub: ScrubConfig {
            digest_min_age: Micros::ZERO,
            auto_repair: Some(5),
            ..ScrubConfig::default()
        },
        ..PgConfig::default()
    }
}

impl Sim {
    fn key_of(&self, name: &str) -> Bytes {
        key::object_key(&self.object(name))
    }

    /// The info of an OSD's copy.
    fn info_of(&self, osd: OsdId, key: &Bytes) -> ObjectInfo {
        decode_all(&self.nodes[&osd].store.objects()[key].info).unwrap()
    }

    fn digests(&self, name: &str) -> Digests {
        self.info_of(PRIMARY, &self.key_of(name)).digests
    }

    fn damage(&mut self, osd: OsdId, key: &Bytes, how: impl Fn(&mut store::Object)) {
        let node = self.nodes.get_mut(&osd).unwrap();
        node.store.damage(|all| how(all.get_mut(key).unwrap()));
    }

    fn last_update(&self) -> EVersion {
        self.nodes[&PRIMARY]
            .store
            .info(PgId::new(POOL, 0))
            .unwrap()
            .last_update
    }
}

#[test]
fn a_copy_that_is_not_what_was_written_is_repaired_unasked_whoever_has_it() {
    for osd in [PRIMARY, REPLICA] {
        let mut sim = cluster_with(2, prompt());
        let k = sim.key_of("o7");
        // Two of three copies: there is no majority.
        let (other, more) = (sim.key_of("o2"), OsdId::new(1));
        sim.scrub(DEEP);
        assert_eq!(sim.said(), ["1.0 deep-scrub ok"]);
        for osd in [osd, more] {
            sim.damage(osd, &k, |o| o.data[2] ^= 1);
        }
        sim.damage(osd, &other, |o| drop(o.omap.pop_first()));
        sim.with(PRIMARY, |core, _| core.drop_contexts());
        sim.scrub(DEEP);
        // Of each object one for all differences, and one for each copy.
        assert_eq!(
            sim.said(),
            ["1.0 deep-scrub 5 errors, 3 fixed", "1.0 deep-scrub ok"],
            "{:#?}",
            sim.cluster_log
        );
        assert_eq!(sim.read("o7").unwrap(), "data".repeat(7));
        sim.assert_all_agree();
    }
}

#[test]
fn what_is_unknown_is_noted_once_and_not_before_it_is_old() {
    let mut cfg = prompt();
    cfg.scrub.digest_min_age = Micros::from_secs(7200);
    let mut sim = cluster_with(4, cfg);
    sim.call("o5", vec![write_at(3, "in the middle")]);
    sim.settle();
    let names = ["o2", "o5"];
    let is_known = |sim: &Sim| names.map(|n| (sim.digests(n).data.is_some(), sim.digests(n).omap.is_some()));
    assert_eq!(is_known(&sim), [(true, false), (false, false)]);
    sim.scrub(DEEP);
    assert_eq!(is_known(&sim), [(true, false), (false, false)], "they are young");
    let before = sim.last_update();
    sim.advance(Micros::from_secs(7200));
    sim.settle();
    sim.scrub(DEEP);
    assert_eq!(sim.said(), ["1.0 deep-scrub ok"]);
    assert_eq!(is_known(&sim), [(true, true), (true, true)]);
    // The object with clones has been written in the middle, too.
    assert_eq!(sim.last_update().version, before.version + 3);
    sim.assert_all_agree();
    sim.scrub(DEEP);
    assert_eq!(sim.last_update().version, before.version + 3);
    // Clients see nothing of it, and their next change makes it unknown.
    let info = sim.info_of(PRIMARY, &sim.key_of("o5"));
    assert!(info.user_version < info.version.version && info.prior_version.version == info.user_version);
    sim.call("o2", vec![omap::set(&[("a", "3")])]);
    sim.call("o5", vec![write_at(3, "in the middle")]);
    assert_eq!(is_known(&sim), [(true, false), (false, true)]);
}

#[test]
fn clones_have_digests_too_and_are_trimmed_all_the_same() {
    let mut sim = cluster_with(6, prompt());
    sim.scrub(DEEP);
    assert_eq!(sim.said(), ["1.0 deep-scrub ok"]);
    let group = key::group_range(&sim.key_of("o3"));
    let keys = |sim: &Sim| -> Vec<Bytes> {
        let objects = sim.nodes[&REPLICA].store.objects().keys();
        objects.filter(|k| group.contains(k)).cloned().collect()
    };
    let all = keys(&sim);
    assert_eq!(all.len(), 4);
    for k in &all {
        for osd in OsdId::below(3) {
            assert!(sim.info_of(osd, k).digests.data.is_some(), "{}", key::named(k));
        }
    }
    sim.damage(PRIMARY, &all[1], |o| o.data[0] ^= 1);
    sim.scrub(DEEP);
    let said = sim.cluster_log.join("\n");
    assert!(said.contains(" osd.0.0:"), "what the PG has noted itself: {said}");
    assert_eq!(sim.said()[0], "1.0 deep-scrub 2 errors, 1 fixed");
    sim.assert_all_agree();
    // A clone's digest goes with it to the head.
    let clone = sim.info_of(PRIMARY, &all[0]).digests;
    sim.call("o3", vec![snaps::roll_back(1)]);
    assert_eq!(sim.digests("o3").data, clone.data);
    sim.settle();
    sim.assert_all_agree();
}

#[test]
fn copies_that_are_alike_but_not_what_was_written_are_told_of_and_only_an_operator_accepts_them() {
    let mut sim = cluster_with(8, prompt());
    let k = sim.key_of("o6");
    for osd in OsdId::below(3) {
        sim.damage(osd, &k, |o| o.data[0] ^= 1);
    }
    sim.with(PRIMARY, |core, _| core.drop_contexts());
    sim.scrub(DEEP);
    assert_eq!(sim.said(), ["1.0 deep-scrub 3 errors"]);
    let failed = format!(
        "1.0 soid {} : failed to pick suitable auth object",
        sim.object("o6")
    );
    assert!(sim.cluster_log.contains(&failed), "{:#?}", sim.cluster_log);
    assert_eq!(
        sim.objects(),
        Ok(vec!["o6 [] [data_digest_mismatch_info]".to_owned()])
    );
    sim.scrub(REPAIR);
    assert_eq!(sim.said(), ["1.0 repair 3 errors, 3 fixed", "1.0 deep-scrub ok"]);
    assert_eq!(sim.objects(), Ok(vec![]));
    sim.assert_all_agree();
}

#[test]
fn a_member_of_the_release_before_has_none_and_is_as_good() {
    let mut sim = cluster_with(10, prompt());
    sim.scrub(DEEP);
    sim.crash_and_mark_down(REPLICA);
    sim.settle();
    sim.write_full("o1", "newer");
    sim.speak(REPLICA, Edition::Previous);
    sim.start_and_mark_up(REPLICA);
    sim.settle();
    sim.write_full("o2", "newest");
    sim.settle();
    for name in ["o1", "o2"] {
        let k = sim.key_of(name);
        assert_eq!(sim.info_of(REPLICA, &k).digests, Digests::default());
        assert!(sim.digests(name).data.is_some());
    }
    sim.crash_and_mark_down(REPLICA);
    sim.settle();
    sim.speak(REPLICA, Edition::Current);
    sim.start_and_mark_up(REPLICA);
    sim.settle_clean(0);
    sim.scrub(DEEP);
    assert_eq!(sim.said(), ["1.0 deep-scrub ok"]);
    // Now it has them.
    let k = sim.key_of("o1");
    assert_eq!(sim.info_of(REPLICA, &k), sim.info_of(PRIMARY, &k));
    sim.assert_all_agree();
}

#[test]
fn a_digest_that_a_write_leaves_as_it_was_is_noticed() {
    for (bug, is_noticed) in [(None, false), (Some(Bug::StaleDigest), true)] {
        let cfg = PgConfig {
            bug,
            ..PgConfig::default()
        };
        let mut sim = cluster_with(12, cfg);
        sim.call("o9", vec![write_at(3, "in the middle")]);
        sim.settle();
        sim.scrub(DEEP);
        assert_eq!(
            sim.said() != ["1.0 deep-scrub ok"],
            is_noticed,
            "{:#?}",
            sim.cluster_log
        );
    }
}

/// Whether digests are those of contents after scrubs in which clients write all objects once.
fn stay_true(seed: u64, bug: Option<Bug>) -> bool {
    let cfg = PgConfig { bug, ..prompt() };
    let mut sim = cluster_with(seed, cfg);
    (0..8).all(|round| {
        let names: Vec<String> = (5..15).map(|i| format!("o{i}")).collect();
        for name in &names {
            sim.call(name, vec![write_at(3, "middle")]);
        }
        sim.settle();
        sim.with(PRIMARY, |core, cx| {
            assert!(core.order_scrub(PgId::new(POOL, 0), DEEP, cx))
        });
        for name in &names {
            let steps = sim.random(40);
            sim.run_some(steps);
            // It reads first, and has the object to itself meanwhile.
            let ops = vec![
                extent(OpCode::CMPEXT, 0, 3, "dat"),
                write_at(4, &format!("{round}")),
            ];
            let op = sim.build(name, ops);
            sim.submit(op);
        }
        sim.pass(40);
        sim.settle();
        sim.agree(&Vec::from_iter(OsdId::below(3)))
    })
}

#[test]
fn digests_of_what_is_written_meanwhile_are_not_noted() {
    assert!((0..10).all(|seed| stay_true(seed, None)));
    assert!(!(0..40).all(|seed| stay_true(seed, Some(Bug::LateDigest))));
}

#[test]
fn without_digests_nothing_tells_which_copy_is_wrong() {
    let mut sim = cluster(14);
    sim.call("o9", vec![write_at(3, "in the middle")]);
    sim.settle();
    let k = sim.key_of("o9");
    sim.damage(REPLICA, &k, |o| o.data[0] ^= 1);
    sim.scrub(DEEP);
    assert_eq!(sim.objects(), Ok(vec!["o9 [data_digest_mismatch] []".to_owned()]));
}
