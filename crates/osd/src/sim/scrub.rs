//! Scrubs: what they find, what they repair, and that clients neither wait for them nor make them
//! err.

use spirula_denc::{Decode, decode_all, encode_to_vec};
use spirula_errno::ENOENT;
use spirula_proto::osd_op_data::{
    InconsistentObject, InconsistentSnapSet, ObjectId, ScrubLsArg, ScrubLsResult,
};

use super::*;
use crate::pg::Order;
use crate::pg::config::ScrubConfig;
use crate::pg::key;

pub(super) const PRIMARY: OsdId = OsdId::new(0);
pub(super) const REPLICA: OsdId = OsdId::new(2);
pub(super) const DEEP: Order = Order {
    deep: true,
    repair: false,
    requested: true,
};
const SHALLOW: Order = Order { deep: false, ..DEEP };
pub(super) const REPAIR: Order = Order { repair: true, ..DEEP };

/// A way to damage a copy.
type Damage = fn(&mut BTreeMap<Bytes, store::Object>, &Bytes);

impl Sim {
    pub(super) fn scrub(&mut self, order: Order) {
        self.cluster_log.clear();
        self.with(PRIMARY, |core, cx| {
            assert!(core.order_scrub(PgId::new(POOL, 0), order, cx))
        });
        for _ in 0..40 {
            self.pass_moment();
            self.run_some(200_000);
        }
    }

    /// The lines of the cluster log that end a scrub.
    pub(super) fn said(&self) -> Vec<&str> {
        let lines = self.cluster_log.iter().map(String::as_str);
        lines
            .filter(|l| l.contains("scrub ok") || l.contains("repair ok") || l.contains(" errors"))
            .collect()
    }

    /// What the last scrub has found, as a client lists it: two entries at a time.
    fn inconsistent<T: Decode>(
        &mut self,
        get_snapsets: bool,
        id: fn(&T) -> &ObjectId,
    ) -> Result<Vec<T>, i32> {
        let (mut found, mut interval, mut start_after) = (Vec::new(), Epoch::NONE, ObjectId::default());
        loop {
            let arg = ScrubLsArg {
                interval,
                get_snapsets,
                start_after: start_after.clone(),
                max_return: 2,
            };
            let op = OsdOpIn::new(OpCode::SCRUBLS, OpArgs::None, encode_to_vec(&arg));
            let reply = self.call("", vec![op]);
            if reply.result < 0 {
                return Err(reply.result);
            }
            let page: ScrubLsResult = decode_all(&reply.ops[0].data.to_bytes()).unwrap();
            interval = page.interval;
            let page: Vec<T> = page.entries().unwrap();
            let is_last = page.len() < 2;
            start_after = page.last().map(id).cloned().unwrap_or_default();
            found.extend(page);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// The names and errors of the inconsistent objects.
    pub(super) fn objects(&mut self) -> Result<Vec<String>, i32> {
        let found = self.inconsistent::<InconsistentObject>(false, |o| &o.object)?;
        let text = |o: &InconsistentObject| format!("{} [{}] [{}]", o.object.name, o.errors, o.union_shards);
        Ok(found.iter().map(text).collect())
    }
}

/// A cluster of one PG with some objects, one of which has clones and one an omap.
pub(super) fn cluster(seed: u64) -> Sim {
    cluster_with(seed, PgConfig::default())
}

/// As [`cluster`], with this configuration.
pub(super) fn cluster_with(seed: u64, cfg: PgConfig) -> Sim {
    let mut sim = Sim::with_config(3, 3, 1, seed, cfg);
    sim.settle();
    assert_eq!(sim.map().placement(PgId::new(POOL, 0)).primary, Some(PRIMARY));
    for i in 0..60 {
        sim.write_full(&format!("o{i}"), &"data".repeat(i));
    }
    sim.call("o1", vec![ops::set("name", "value")]);
    sim.call("o2", vec![omap::set(&[("a", "1"), ("b", "2")])]);
    for snap in 1..=3 {
        sim.write_at_snaps("o3", vec![write_at(snap, "changed")], snap, &[snap]);
    }
    sim.write_at_snaps("o4", vec![plain(OpCode::DELETE)], 3, &[3]);
    sim.settle();
    sim
}

#[test]
pub(super) fn what_is_whole_is_found_whole() {
    for seed in 0..6 {
        let mut sim = cluster(seed);
        for (order, name) in [(SHALLOW, "scrub"), (DEEP, "deep-scrub"), (REPAIR, "repair")] {
            sim.scrub(order);
            let fixed = if order.repair { ", 0 fixed" } else { "" };
            let ok = format!("1.0 {name} ok{fixed}");
            assert_eq!(sim.cluster_log, [format!("1.0 {name} starts"), ok]);
        }
        assert!(sim.seen_states.contains("active+clean+scrubbing+deep"));
        assert!(sim.all_clean());
    }
}

/// A way to damage a copy: the object, and what is done to it; whether only a deep scrub finds it;
/// what the list has of it then, and the cluster log.
struct Damaged {
    name: &'static str,
    damage: Damage,
    only_deep: bool,
    listed: &'static str,
    errors: u32,
    said: &'static [&'static str],
}

/// The words are those of Ceph 16.2.15.
const DAMAGED: [Damaged; 7] = [
    Damaged {
        name: "o1",
        damage: |all, k| drop(all.remove(k)),
        only_deep: false,
        listed: "[] [missing]",
        errors: 1,
        said: &[
            "1.0 shard 2 {} : missing",
            "1.0 deep-scrub 1 missing, 0 inconsistent objects",
        ],
    },
    Damaged {
        name: "o1",
        damage: |all, k| all.get_mut(k).unwrap().attrs.clear(),
        only_deep: false,
        listed: "[attr_name_mismatch] []",
        errors: 1,
        said: &["1.0 soid {} : attr name mismatch '_name'"],
    },
    Damaged {
        name: "o1",
        damage: |all, k| all.get_mut(k).unwrap().data.truncate(1),
        only_deep: false,
        listed: "[data_digest_mismatch,size_mismatch] \
             [data_digest_mismatch_info,size_mismatch_info,obj_size_info_mismatch]",
        errors: 2,
        said: &[
            "1.0 shard 2 soid {} : candidate size 1 info size 4 mismatch",
            "1.0 shard 2 soid {} : data_digest 0xbdea8d3 != data_digest 0x5127822e from shard 0, \
             data_digest 0xbdea8d3 != data_digest 0x5127822e from auth oi {}(3'61 client.4100.0:61 dirty|data_digest \
             s 4 uv 61 dd 5127822e alloc_hint [0 0 0]), size 1 != size 4 from auth oi {}(3'61 client.4100.0:61 \
             dirty|data_digest s 4 uv 61 dd 5127822e alloc_hint [0 0 0]), size 1 != size 4 from shard 0",
        ],
    },
    Damaged {
        name: "o1",
        damage: |all, k| all.get_mut(k).unwrap().info = Bytes::new(),
        only_deep: false,
        listed: "[] [info_missing]",
        errors: 1,
        said: &["1.0 shard 2 soid {} : candidate had a missing info key"],
    },
    Damaged {
        name: "o1",
        damage: |all, k| all.get_mut(k).unwrap().info = Bytes::from_static(b"no info"),
        only_deep: false,
        listed: "[] [info_corrupted]",
        errors: 1,
        said: &["1.0 shard 2 soid {} : candidate had a corrupt info"],
    },
    Damaged {
        name: "o2",
        damage: |all, k| drop(all.get_mut(k).unwrap().omap.pop_first()),
        only_deep: true,
        listed: "[omap_digest_mismatch] []",
        errors: 1,
        said: &["1.0 soid {} : omap_digest 0x6ec1cf7e != omap_digest 0x960cad91 from shard 0"],
    },
    Damaged {
        name: "o1",
        damage: |all, k| all.get_mut(k).unwrap().data[0] = b'x',
        only_deep: true,
        listed: "[data_digest_mismatch] [data_digest_mismatch_info]",
        errors: 2,
        said: &[
            "1.0 shard 2 soid {} : data_digest 0x35256106 != data_digest 0x5127822e from shard 0, data_digest \
             0x35256106 != data_digest 0x5127822e from auth oi {}(3'61 client.4100.0:61 dirty|data_digest s 4 uv 61 \
             dd 5127822e alloc_hint [0 0 0])",
            "1.0 deep-scrub 0 missing, 1 inconsistent objects",
        ],
    },
];

#[test]
fn what_differs_is_found_listed_and_repaired() {
    for (i, d) in DAMAGED.iter().enumerate() {
        let mut sim = cluster(i as u64 * 2);
        assert_eq!(sim.objects(), Err(-ENOENT), "before the first scrub");
        let object = sim.object(d.name);
        let k = key::object_key(&object);
        let damaged = sim.nodes.get_mut(&REPLICA).unwrap();
        damaged.store.damage(|all| (d.damage)(all, &k));
        sim.scrub(SHALLOW);
        let shallow = sim.said()[0].to_owned();
        assert_eq!(
            shallow.ends_with("scrub ok"),
            d.only_deep,
            "{i}: {:?}",
            sim.cluster_log
        );
        sim.scrub(DEEP);
        let errors = d.errors;
        assert_eq!(sim.said(), [format!("1.0 deep-scrub {errors} errors")], "{i}");
        for line in d.said {
            let line = line.replace("{}", &object.to_string());
            assert!(
                sim.cluster_log.contains(&line),
                "{i}: {line}\n{:#?}",
                sim.cluster_log
            );
        }
        assert_eq!(sim.objects(), Ok(vec![format!("{} {}", d.name, d.listed)]), "{i}");
        sim.scrub(REPAIR);
        // Ceph looks again where it has not repaired as many copies as there are errors.
        let repaired = format!("1.0 repair {errors} errors, 1 fixed");
        let again = (errors > 1).then(|| "1.0 deep-scrub ok".to_owned());
        let said: Vec<String> = [repaired].into_iter().chain(again).collect();
        assert_eq!(sim.said(), said, "{i}: {:?}", sim.cluster_log);
        assert_eq!(sim.objects(), Ok(vec![]), "{i}: what is repaired is not listed");
        sim.scrub(DEEP);
        assert_eq!(sim.said(), ["1.0 deep-scrub ok"], "{i}");
        sim.assert_all_agree();
        assert!(sim.all_clean());
    }
}

#[test]
fn a_repair_without_a_whole_copy_fails_at_once() {
    let mut sim = cluster(7);
    let k = key::object_key(&sim.object("o1"));
    for node in sim.nodes.values_mut() {
        node.store.damage(|all| all.get_mut(&k).unwrap().data.truncate(1));
    }
    let failed = "active+clean+inconsistent+failed_repair";
    sim.scrub(DEEP);
    assert_eq!(sim.said().len(), 1, "{:?}", sim.cluster_log);
    assert!(!sim.seen_states.contains(failed), "nothing was to be repaired");
    sim.scrub(REPAIR);
    let ends: Vec<&str> = sim.said().into_iter().filter(|l| l.contains("repair")).collect();
    assert_eq!(ends, ["1.0 repair 5 errors, 1 fixed"], "{:#?}", sim.cluster_log);
    assert!(sim.seen_states.contains(failed), "{:?}", sim.seen_states);
    // The client has the data. The repair had counted what was whole.
    sim.write_full("o1", "data");
    sim.scrub(REPAIR);
    assert_eq!(sim.said(), ["1.0 repair 1 errors, 1 fixed"]);
    sim.seen_states.clear();
    sim.pass_moment();
    assert_eq!(sim.seen_states, BTreeSet::from(["active+clean".to_owned()]));
}

#[test]
fn findings_are_listed_in_pages_and_outlive_the_primary() {
    let mut sim = cluster(5);
    let names: Vec<String> = (10..17).map(|i| format!("o{i}")).collect();
    let keys: Vec<Bytes> = names.iter().map(|n| key::object_key(&sim.object(n))).collect();
    let clones = key::group_range(&key::object_key(&sim.object("o3")));
    for node in sim.nodes.values_mut() {
        // A clone is lost everywhere, objects only on one.
        node.store.damage(|all| {
            let clone = all.range(clones.from.clone()..).next().map(|(k, _)| k.clone());
            all.remove(&clone.unwrap());
        });
    }
    let damaged = sim.nodes.get_mut(&REPLICA).unwrap();
    damaged
        .store
        .damage(|all| keys.iter().for_each(|k| drop(all.remove(k))));
    sim.scrub(SHALLOW);
    let listed: Vec<String> = names.iter().map(|n| format!("{n} [] [missing]")).collect();
    // The statistics tell of the clone once more.
    assert_eq!(sim.said(), ["1.0 scrub 9 errors"], "{:#?}", sim.cluster_log);
    let snap_sets = |sim: &mut Sim| {
        let found = sim
            .inconsistent::<InconsistentSnapSet>(true, |o| &o.object)
            .unwrap();
        found
            .iter()
            .map(|o| format!("{} {} {:?}", o.object.name, o.errors, o.missing))
            .collect::<Vec<_>>()
    };
    assert_eq!(sim.objects().as_ref(), Ok(&listed));
    assert_eq!(snap_sets(&mut sim), ["o3 clone_missing [1]"]);
    sim.crash_and_mark_down(PRIMARY);
    sim.settle();
    assert_eq!(sim.objects().as_ref(), Ok(&listed));
    assert_eq!(snap_sets(&mut sim), ["o3 clone_missing [1]"]);
}

#[test]
pub(super) fn a_scrub_goes_on_where_it_was_when_its_primary_dies() {
    let mut sim = cluster(9);
    sim.cluster_log.clear();
    sim.with(PRIMARY, |core, cx| {
        assert!(core.order_scrub(PgId::new(POOL, 0), DEEP, cx))
    });
    let progress = |sim: &Sim| {
        let nodes = sim.nodes.values();
        let info = |n: &Node| n.store.info(PgId::new(POOL, 0)).unwrap();
        nodes
            .map(|n| info(n).scrubs.progress.map(|p| p.cursor))
            .collect::<Vec<_>>()
    };
    // The notes are made after half a minute.
    let is_on_its_way = |p: &Option<Bytes>| p.as_ref().is_some_and(|at| at.len() > 12);
    while !progress(&sim).iter().all(is_on_its_way) {
        sim.advance(Micros::from_secs(1));
        sim.run_some(3);
        assert!(sim.said().is_empty(), "{:?}", sim.cluster_log);
    }
    let reached = progress(&sim)[1].clone().unwrap();
    sim.crash_and_mark_down(PRIMARY);
    sim.settle();
    sim.start_and_mark_up(PRIMARY);
    // Of what it has looked at it finds nothing more.
    let damaged = sim.nodes.get_mut(&REPLICA).unwrap();
    damaged.store.damage(|all| {
        let first = all.keys().next().unwrap().clone();
        assert!(first < reached);
        all.remove(&first);
    });
    sim.pass(40);
    assert_eq!(sim.said(), ["1.0 deep-scrub ok"], "{:?}", sim.cluster_log);
    assert!(progress(&sim).iter().all(Option::is_none));
    sim.scrub(DEEP);
    assert_eq!(sim.said(), ["1.0 deep-scrub 1 errors"]);
}

#[test]
fn a_primary_that_is_wrong_takes_the_object_from_another_member() {
    let mut sim = cluster(3);
    let k = key::object_key(&sim.object("o7"));
    let other = key::object_key(&sim.object("o8"));
    let damaged = sim.nodes.get_mut(&PRIMARY).unwrap();
    damaged.store.damage(|all| {
        all.remove(&k);
        all.get_mut(&other).unwrap().info = Bytes::new();
    });
    sim.with(PRIMARY, |core, _| core.drop_contexts());
    assert_eq!(
        sim.read("o7"),
        Err(-2),
        "what the primary lacks is not there, until it is scrubbed"
    );
    sim.scrub(REPAIR);
    assert_eq!(sim.read("o7").unwrap(), "data".repeat(7));
    assert_eq!(sim.read("o8").unwrap(), "data".repeat(8));
    sim.scrub(DEEP);
    assert_eq!(sim.said(), ["1.0 deep-scrub ok"]);
    sim.assert_all_agree();
}

#[test]
pub(super) fn what_rots_is_found_by_a_deep_scrub_and_repaired() {
    let mut sim = cluster(4);
    // Each member has some of it.
    sim.write_full("o9", &"data".repeat(10_000));
    sim.settle();
    let k = key::object_key(&sim.object("o9"));
    let damaged = sim.nodes.get_mut(&REPLICA).unwrap();
    assert!(!damaged.store.objects()[&k].data.is_empty());
    damaged.store.rotten.insert(k.clone());
    sim.scrub(SHALLOW);
    assert_eq!(sim.said(), ["1.0 scrub ok"]);
    sim.scrub(DEEP);
    assert_eq!(sim.said(), ["1.0 deep-scrub 1 errors"]);
    sim.scrub(REPAIR);
    assert!(!sim.is_rotten(REPLICA, &k));
    sim.assert_all_agree();
}

#[test]
pub(super) fn clients_do_not_make_a_scrub_err() {
    for seed in 0..30 {
        // In half of the runs digests are noted, too.
        let mut cfg = PgConfig::default();
        if seed % 4 < 2 {
            cfg.scrub.digest_min_age = Micros::ZERO;
        }
        let mut sim = cluster_with(seed, cfg);
        sim.cluster_log.clear();
        sim.with(PRIMARY, |core, cx| {
            assert!(core.order_scrub(PgId::new(POOL, 0), DEEP, cx))
        });
        for i in 0..300 {
            let name = format!("o{}", sim.random(70));
            let ops = match sim.random(6) {
                0 => vec![plain(OpCode::DELETE)],
                1 => vec![ops::set("name", &format!("{i}"))],
                2 => vec![omap::set(&[("a", &format!("{i}"))])],
                3 => vec![write_full(&"x".repeat(i))],
                _ => vec![write_at(i as u64 % 50, "some bytes")],
            };
            let snap = 4 + i as u64 / 60;
            let mut op = sim.build(&name, ops);
            op.snapc = SnapContext {
                seq: snap,
                snaps: vec![snap],
            };
            sim.submit(op);
            let steps = sim.random(40);
            sim.run_some(steps);
            if sim.random(20) == 0 {
                sim.pass_moment();
            }
        }
        sim.pass(40);
        assert_eq!(
            sim.said(),
            ["1.0 deep-scrub ok"],
            "seed {seed}: {:?}",
            sim.cluster_log
        );
        assert!(sim.all_clean());
        sim.assert_all_agree();
    }
}

#[test]
fn members_remember_scrubs_and_their_findings_whoever_leads() {
    let mut sim = cluster(8);
    let k = key::object_key(&sim.object("o5"));
    sim.nodes
        .get_mut(&REPLICA)
        .unwrap()
        .store
        .damage(|all| drop(all.remove(&k)));
    sim.scrub(DEEP);
    let history = |sim: &Sim, osd: OsdId| sim.nodes[&osd].store.info(PgId::new(POOL, 0)).unwrap().scrubs;
    let known = history(&sim, PRIMARY);
    assert_eq!((known.shallow_errors, known.deep_errors), (1, 0));
    assert!(known.stamp > UTime::from_secs(1000) && known.stamp == known.deep_stamp);
    sim.settle();
    assert_eq!(history(&sim, REPLICA), known);
    assert!(sim.seen_states.contains("active+clean+inconsistent"));
    sim.crash_and_mark_down(PRIMARY);
    sim.settle();
    let reports = || {
        sim.nodes
            .values()
            .filter_map(|n| n.core.as_ref())
            .flat_map(Core::reports)
    };
    assert!(reports().all(|r| r.scrubs == known && r.state.contains(&"inconsistent")));
}

#[test]
fn what_is_due_is_scrubbed_unasked_one_pg_after_the_other() {
    let mut sim = Sim::new(3, 3, 8, 2);
    sim.settle();
    for i in 0..40 {
        sim.write_full(&format!("o{i}"), "data");
    }
    sim.change_map(|m| m.no_scrub = false);
    sim.pass(20);
    assert!(sim.cluster_log.is_empty(), "{:?}", sim.cluster_log);
    // Each PG is due within a day and a half, and a deep scrub within a week.
    let starts = |sim: &Sim, name: &str| {
        sim.cluster_log
            .iter()
            .filter(|l| l.ends_with(&format!(" {name} starts")))
            .count()
    };
    sim.advance(Micros::from_secs(86_400 * 3 / 2));
    sim.settle();
    sim.pass(60);
    assert_eq!(
        (starts(&sim, "scrub"), starts(&sim, "deep-scrub")),
        (8, 0),
        "{:?}",
        sim.cluster_log
    );
    sim.advance(Micros::from_secs(86_400 * 6));
    sim.settle();
    sim.pass(60);
    assert_eq!((starts(&sim, "scrub"), starts(&sim, "deep-scrub")), (8, 8));
    assert_eq!(sim.said().len(), 16);
    assert!(sim.said().iter().all(|l| l.ends_with("scrub ok")));
}

#[test]
fn fragments_of_what_was_never_written_are_found_whole() {
    coded::on_coded(|| {
        let mut sim = Sim::new(6, 6, 1, 4);
        sim.settle();
        sim.write_full("extended", "data");
        for op in [extent(OpCode::TRUNCATE, 60_000, 0, ""), write_at(200_000, "more")] {
            assert_eq!(sim.call("extended", vec![op]).result, 0);
        }
        assert_eq!(sim.call("sparse", vec![write_at(5000, "data")]).result, 0);
        for (order, ok) in [(SHALLOW, "1.0 scrub ok"), (DEEP, "1.0 deep-scrub ok")] {
            sim.scrub(order);
            assert_eq!(sim.said(), [ok]);
        }
    });
}

#[test]
fn a_fragment_that_is_cut_off_is_told_with_the_size_that_it_should_have() {
    coded::on_coded(|| {
        let mut sim = Sim::new(6, 6, 1, 4);
        sim.settle();
        sim.write_full("a", "some data");
        sim.settle();
        let k = key::object_key(&sim.object("a"));
        // The data units behind the first have nothing of so small an object, and one of them counts.
        for osd in 0..3 {
            let node = sim.nodes.get_mut(&OsdId::new(osd)).unwrap();
            node.store.damage(|all| all.get_mut(&k).unwrap().data.truncate(8));
        }
        sim.scrub(SHALLOW);
        let is_size = |l: &&String| l.contains("size 8 != size 9 from auth oi");
        let told = sim.cluster_log.iter().filter(is_size).count();
        assert_eq!(told, 3, "{:?}", sim.cluster_log);
    });
}

#[test]
fn a_fragment_that_is_not_of_the_others_is_found_and_with_two_coding_units_repaired_unasked() {
    coded::on_coded(|| {
        for (osds, told) in [(3, false), (6, true)] {
            for osd in 0..osds {
                let cfg = PgConfig {
                    scrub: ScrubConfig {
                        auto_repair: Some(5),
                        ..ScrubConfig::default()
                    },
                    ..PgConfig::default()
                };
                let mut sim = Sim::with_config(osds, osds.into(), 1, 4, cfg);
                sim.settle();
                sim.write_full("a", &"some data".repeat(10_000));
                sim.settle();
                let k = key::object_key(&sim.object("a"));
                let damaged = sim.nodes.get_mut(&OsdId::new(osd)).unwrap();
                // Its checksums are right: an old block, where the new one should be.
                damaged
                    .store
                    .damage(|all| all.get_mut(&k).unwrap().data[100] ^= 1);
                sim.scrub(SHALLOW);
                assert_eq!(sim.said(), ["1.0 scrub ok"]);
                sim.scrub(DEEP);
                let all = match told {
                    true => "1.0 deep-scrub 1 errors, 1 fixed",
                    false => "1.0 deep-scrub 1 errors",
                };
                assert_eq!(sim.said(), [all], "osd.{osd} of {osds}");
                // Without a second coding unit the operator decides, and data counts more.
                sim.scrub(REPAIR);
                let repaired = format!("{:?} {}", sim.cluster_log, sim.primary_report().done.repaired);
                sim.scrub(DEEP);
                assert_eq!(
                    sim.said(),
                    ["1.0 deep-scrub ok"],
                    "osd.{osd} of {osds}: {repaired}"
                );
                sim.assert_all_agree();
                if told {
                    assert_eq!(sim.read("a").unwrap(), "some data".repeat(10_000));
                }
            }
        }
    });
}
