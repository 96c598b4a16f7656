//! Messages of OSDs that have nothing to do with a PG are dropped and counted.

use super::*;
use crate::pg::key;
use crate::pg::message::{CopyPart, CopyRead, LogUpdate, PeerBody, PeeringId, RepOp};
use crate::pg::push::{Push, PushEnd, PushPart, SyncPlan};

/// An OSD that is up, has no copy, and sends arbitrary messages.
const STRANGER: OsdId = OsdId::new(3);
const AWAY: OsdId = OsdId::new(2);

fn pgid() -> PgId {
    PgId::new(POOL, 0)
}

impl Sim {
    fn say(&mut self, from: OsdId, to: OsdId, id: PeeringId, body: PeerBody) {
        let msg = PeerMessage {
            pgid: pgid(),
            id,
            body,
        };
        self.with(to, |core, cx| core.handle_peer(from, msg, cx));
    }

    /// The possible ids of an attempt at peering in this map.
    fn ids(&self) -> impl Iterator<Item = PeeringId> + use<> {
        let newest = self.map().epoch;
        Epoch::all(newest.before(4)..=newest)
            .flat_map(|epoch| (0..5).map(move |round| PeeringId { epoch, round }))
    }

    fn pushed_by(&self, name: &str) -> PeerBody {
        let at = &self.nodes[&OsdId::new(0)].store.objects()[&key::object_key(&self.object(name))];
        PeerBody::Push(Push {
            key: key::object_key(&self.object(name)),
            part: PushPart::Data {
                first: true,
                pieces: vec![(0, Bytes::from_static(b"not what was written"))],
                pairs: Vec::new(),
                last: Some(PushEnd {
                    size: 20,
                    info: at.info.clone(),
                    attrs: Vec::new(),
                    omap_header: Bytes::new(),
                }),
                patch: None,
            },
        })
    }
}

fn cluster(seed: u64) -> Sim {
    let mut sim = Sim::new(4, 3, 1, seed);
    sim.settle();
    assert!(
        sim.map()
            .placement(pgid())
            .acting
            .osds()
            .eq([0, 1, 2].map(OsdId::new))
    );
    sim.write_full("o", "what was written");
    sim
}

#[test]
fn a_stranger_pushes_nothing_and_is_no_help_of_peering() {
    for seed in 0..8 {
        let mut sim = cluster(seed);
        sim.crash_and_mark_down(AWAY);
        sim.settle();
        sim.write_full("o", "what was written meanwhile");
        assert_eq!(sim.foreign, 0);
        let push = sim.pushed_by("o");
        sim.start_and_mark_up(AWAY);
        // Whichever attempt it is.
        for _ in 0..60 {
            sim.run_some(1);
            for id in sim.ids().collect::<Vec<_>>() {
                for to in 0..3 {
                    sim.say(STRANGER, OsdId::new(to), id, push.clone());
                    sim.say(STRANGER, OsdId::new(to), id, PeerBody::SyncDone(AWAY));
                    sim.say(STRANGER, OsdId::new(to), id, PeerBody::SyncFailed(None));
                }
            }
        }
        sim.settle_clean(seed);
        assert!(sim.foreign > 0);
        assert_eq!(sim.read("o").unwrap(), "what was written meanwhile");
        for osd in OsdId::below(3) {
            assert!(sim.agree(&[osd, OsdId::new(0)]), "seed {seed}");
        }
    }
}

#[test]
fn whatever_a_stranger_says_changes_nothing() {
    let mut sim = cluster(1);
    let b = Bytes::from_static;
    let push = sim.pushed_by("o");
    let log = LogUpdate {
        keep_to: Default::default(),
        replace: true,
        entries: Vec::new(),
        dups: Vec::new(),
    };
    let info = crate::pg::info::PgInfo::default();
    let foreign = [
        push,
        PeerBody::RepCommitted(Default::default()),
        PeerBody::Query,
        PeerBody::Lease {
            stamp: Micros::new(1),
            shared: true,
        },
        PeerBody::LeaseGranted(Micros::new(1)),
        PeerBody::ShareLease(Micros::new(1)),
        PeerBody::GetLog,
        PeerBody::StartSync {
            targets: vec![(STRANGER, SyncPlan::Backfill)],
            parts: Vec::new(),
        },
        PeerBody::SyncDone(OsdId::new(1)),
        PeerBody::SyncRefused(OsdId::new(1)),
        PeerBody::SyncFailed(None),
        PeerBody::PushAck,
        PeerBody::PushRefused,
        PeerBody::Scan {
            from: b(b""),
            to: b(b"\xff"),
            objects: Vec::new(),
        },
        PeerBody::ScanAck(Vec::new()),
        PeerBody::Activate {
            info: info.clone(),
            log: log.clone(),
        },
        PeerBody::Copied { info, log },
        PeerBody::Activated,
        PeerBody::Reserve(255),
        PeerBody::Reserved,
        PeerBody::Release,
        PeerBody::Revoked,
        PeerBody::Remove,
        PeerBody::CopyRead(CopyRead {
            token: 1,
            from: PgId::new(POOL, 0),
            object: sim.object("o"),
            version: 0,
            cursor: Default::default(),
        }),
    ];
    let before: Vec<_> = (0..3)
        .map(|o| sim.nodes[&OsdId::new(o)].store.objects().clone())
        .collect();
    let id = PeeringId {
        epoch: sim.map().epoch,
        round: 9,
    };
    for body in foreign {
        for to in 0..3 {
            let counted = sim.foreign;
            sim.say(STRANGER, OsdId::new(to), id, body.clone());
            assert_eq!(sim.foreign, counted + 1, "{body:?} to osd.{to}");
        }
    }
    // Nothing was asked that answers it.
    let part = CopyPart {
        token: 7,
        result: 0,
        user_version: 0,
        data: Bytes::new(),
    };
    sim.say(STRANGER, OsdId::new(0), id, PeerBody::CopyPart(part));
    assert!(sim.steps().is_empty(), "{:?}", sim.steps());
    sim.settle_clean(1);
    for (osd, objects) in (0..3).zip(before) {
        assert!(*sim.nodes[&OsdId::new(osd)].store.objects() == objects);
    }
    assert_eq!(sim.read("o").unwrap(), "what was written");
}

#[test]
fn what_no_store_takes_does_not_come_to_one() {
    let mut sim = cluster(1);
    let id = sim.nodes[&OsdId::new(1)]
        .core
        .as_ref()
        .unwrap()
        .pg(pgid())
        .unwrap()
        .seen()
        .attempt();
    let key = key::object_key(&sim.object("o"));
    let push = |key: &Bytes, offset: u64, len: usize, size: u64| {
        PeerBody::Push(Push {
            key: key.clone(),
            part: PushPart::Data {
                first: false,
                pieces: vec![(offset, vec![1; len].into())],
                pairs: Vec::new(),
                last: Some(PushEnd {
                    size,
                    info: Bytes::new(),
                    attrs: Vec::new(),
                    omap_header: Bytes::new(),
                }),
                patch: None,
            },
        })
    };
    let many = PeerBody::Push(Push {
        key: key.clone(),
        part: PushPart::Data {
            first: false,
            pieces: (0..4000).map(|n| (n * 512, Bytes::from_static(b"x"))).collect(),
            pairs: Vec::new(),
            last: None,
            patch: None,
        },
    });
    // A member that takes part has all: nothing is pushed to it.
    let before = sim.nodes[&OsdId::new(1)].store.objects().clone();
    let whole = sim.pushed_by("o");
    sim.say(OsdId::new(0), OsdId::new(1), id, whole);
    assert!(*sim.nodes[&OsdId::new(1)].store.objects() == before && sim.foreign == 0);
    // The primary asks again, and may send such things then.
    let id = PeeringId {
        round: id.round + 1,
        ..id
    };
    sim.say(OsdId::new(0), OsdId::new(1), id, PeerBody::Query);
    let answers = sim.links[&(OsdId::new(1), OsdId::new(0))].len();
    let unsound = [
        push(&key, u64::MAX, 1, 1),
        push(&key, 1 << 40, 1, 1),
        push(&key, 0, 1, 1 << 40),
        push(&vec![0xff; 20].into(), 0, 1, 1),
        push(&[&key[..], &[1; 9000]].concat().into(), 0, 1, 1),
    ];
    for (n, body) in (1..).zip(unsound) {
        sim.say(OsdId::new(0), OsdId::new(1), id, body);
        assert_eq!(sim.foreign, n);
    }
    // A push that is only too large is refused, as it may come from an OSD that cuts parts
    // otherwise.
    sim.say(OsdId::new(0), OsdId::new(1), id, many);
    assert_eq!(sim.foreign, 5);
    assert_eq!(sim.links[&(OsdId::new(1), OsdId::new(0))].len(), answers + 1);
}

#[test]
fn pgs_are_made_only_for_who_leads_them_and_maps_to_come_hold_little() {
    let mut sim = cluster(1);
    let epoch = sim.map().epoch;
    let pgs = |sim: &Sim| sim.nodes[&STRANGER].core.as_ref().unwrap().pgs().count();
    let id = PeeringId { epoch, round: 1 };
    sim.say(OsdId::new(1), STRANGER, id, PeerBody::Query);
    assert_eq!((sim.foreign, pgs(&sim)), (1, 0));
    // The primary is told that there is no copy.
    sim.say(OsdId::new(0), STRANGER, id, PeerBody::Query);
    assert_eq!(sim.foreign, 1);
    assert_eq!(sim.steps(), [Step::Deliver(STRANGER, OsdId::new(0))]);
    let later = PeeringId {
        epoch: epoch.after(1000),
        round: 1,
    };
    let push = sim.pushed_by("o");
    sim.say(STRANGER, OsdId::new(1), later, push);
    assert_eq!(sim.foreign, 2);
    for _ in 0..10_000 {
        sim.say(STRANGER, OsdId::new(1), later, PeerBody::Query);
    }
    let waiting = sim.nodes[&OsdId::new(1)].core.as_ref().unwrap().waiting_for_map();
    assert!(waiting <= 4096, "{waiting}");
    assert_eq!(sim.foreign, 2 + 10_000 - waiting as u64);
}

#[test]
fn a_write_that_can_not_be_taken_says_what_it_waits_for_and_an_unsound_log_ends_nobody() {
    let mut sim = cluster(1);
    let id = sim.nodes[&OsdId::new(1)]
        .core
        .as_ref()
        .unwrap()
        .pg(pgid())
        .unwrap()
        .seen()
        .attempt();
    let prev = sim.nodes[&OsdId::new(1)]
        .core
        .as_ref()
        .unwrap()
        .pg(pgid())
        .unwrap()
        .seen()
        .info()
        .unwrap()
        .last_update;
    let write = PeerBody::RepOp(RepOp {
        prev,
        entry: Bytes::from_static(b"no entry"),
        trim_to: Default::default(),
        stable: Default::default(),
        txn: Default::default(),
    });
    sim.say(OsdId::new(0), OsdId::new(1), id, write);
    assert_eq!(sim.foreign, 1);
    let line = sim.cluster_log.last().unwrap();
    assert!(
        line.starts_with("1.0 osd.1 can not take a write of osd.0, which waits for it: "),
        "{line}"
    );
    // The log has entries up to `prev`: those that are to follow must be newer.
    let pg = sim.nodes[&OsdId::new(1)]
        .core
        .as_ref()
        .unwrap()
        .pg(pgid())
        .unwrap();
    let log = LogUpdate {
        keep_to: prev,
        replace: false,
        entries: pg.seen().log().iter().cloned().collect(),
        dups: Vec::new(),
    };
    let info = pg.seen().info().unwrap().clone();
    assert!(!log.entries.is_empty());
    sim.say(OsdId::new(0), OsdId::new(1), id, PeerBody::Activate { info, log });
    assert_eq!(sim.foreign, 2);
    sim.write_full("o", "written after that");
    assert_eq!(sim.read("o").unwrap(), "written after that");
}
