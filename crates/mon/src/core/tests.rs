//! The core with OSDs that consist of messages only.

mod bootstrap;
mod capabilities;
mod erasure;
mod failure;
mod hostile_osd;
mod image_io;
mod key_types;
mod logged;
mod manager;
mod operator;
mod progress;
mod quorum;
mod scrub;
mod scrub_outlook;
mod snaps;
mod told;
mod turn;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use spirula_cephx::{AuthName, Keyring, ServerHandshake};
use spirula_crush::CrushMap;
use spirula_denc::{EntityAddr, EntityType, Fsid, UTime};
use spirula_maps::{
    Epoch, MonMap, OsdCounts, OsdId, OsdMap, OsdMapFlags, OsdState, PgId, PgStat, PgState, Positions, release,
};
use spirula_proto::internal::report::{
    FullState, Fullness, OsdAlive, OsdBoot, OsdGoingDown, OsdReport, PgStatsReport, PgTempWanted,
};
use spirula_proto::mon::{
    MConfig, MMonCommand, MMonCommandAck, MMonSubscribe, MOsdMap, PaxosVersion, Subscription,
};
use spirula_proto::{Blob, MsgType, Payload, RawMessage};

use super::{Identity, Monitor, NewSession, Output, SessionId};
use crate::kv::{MemKv, Txn};
use crate::raft::Applied;
use crate::service::{Auth, Ciphers, MonMaps, OsdMaps};

/// A store that test and core share.
#[derive(Default)]
struct SharedKv(std::cell::RefCell<MemKv>);

impl crate::kv::KvRead for SharedKv {
    fn get(&self, s: &str, k: &str) -> Result<Option<bytes::Bytes>, crate::kv::KvError> {
        self.0.borrow().get(s, k)
    }

    fn next(&self, s: &str, from: &str) -> Result<Option<(String, bytes::Bytes)>, crate::kv::KvError> {
        self.0.borrow().next(s, from)
    }

    fn scan(&self, s: &str) -> Result<Vec<(String, bytes::Bytes)>, crate::kv::KvError> {
        self.0.borrow().scan(s)
    }
}

struct World {
    kv: Rc<SharedKv>,
    mon: Monitor,
    now: UTime,
    index: u64,
    inbox: BTreeMap<SessionId, Vec<RawMessage>>,
    proposals: usize,
    /// The addresses of the modules' clients, in the order of their starts.
    modules: Vec<EntityAddr>,
    asked: Vec<spirula_manager::Request>,
    /// How often the modules were ended.
    stopped: usize,
}

fn identity() -> Identity {
    let addr = EntityAddr::v2("127.0.0.1:3300".parse().unwrap(), 0);
    Identity {
        fsid: Fsid([7; 16]),
        name: "a".into(),
        hostname: "h".into(),
        addrs: addr.into(),
        mgr_addrs: EntityAddr::v2("127.0.0.1:6800".parse().unwrap(), 5).into(),
        metadata: BTreeMap::new(),
    }
}

impl World {
    fn new() -> Self {
        let now = UTime::from_secs(1_000_000);
        let mut txn = Txn::default();
        let mut monmap = MonMap::initial(Fsid([7; 16]), now);
        monmap.add("a", identity().addrs);
        MonMaps::put(&monmap, &mut txn);
        let mut map = OsdMap::new(Fsid([7; 16]), CrushMap::with_default_root("osd").unwrap());
        map.epoch = Epoch::new(1);
        map.flags = OsdMapFlags::NEW_CLUSTER;
        (map.full_ratio, map.backfillfull_ratio, map.nearfull_ratio) = (0.95, 0.9, 0.85);
        map.require_osd_release = release::PACIFIC;
        OsdMaps::create(&map, &mut txn);
        Auth::create(&Keyring::default(), &Ciphers::default(), &mut txn);
        let kv = Rc::new(SharedKv::default());
        kv.0.borrow_mut().apply(&txn);
        let options = BTreeMap::from([("mon_allow_pool_delete".to_owned(), "true".to_owned())]);
        let mon = Monitor::load(identity(), kv.clone(), options, 1, true, now).unwrap();
        let mut w = Self {
            kv,
            mon,
            now,
            index: 1,
            inbox: BTreeMap::new(),
            proposals: 0,
            modules: Vec::new(),
            asked: Vec::new(),
            stopped: 0,
        };
        w.settle();
        w
    }

    /// Commits whatever is proposed and delivers what is sent.
    fn settle(&mut self) {
        loop {
            let outputs = self.mon.take_outputs();
            if outputs.is_empty() {
                assert!(self.mon.take_failure().is_none());
                return;
            }
            for o in outputs {
                match o {
                    Output::Send(id, m) => self.inbox.entry(id).or_default().push(m),
                    other @ (Output::Close(_)
                    | Output::Forward(..)
                    | Output::Confirm
                    | Output::AskIds(_)
                    | Output::AskTimes(..)) => {
                        panic!("{other:?}")
                    }
                    Output::StartModule(start) => self.modules.push(start.addresses[0]),
                    Output::AskModule(request) => self.asked.push(request),
                    Output::StopModule => self.stopped += 1,
                    Output::Propose(txn) => {
                        self.kv.0.borrow_mut().apply(&txn);
                        self.proposals += 1;
                        self.index += 1;
                        let news = Applied::Txn {
                            index: self.index,
                            txn: Arc::new(txn),
                        };
                        self.mon.committed(&news, self.now);
                    }
                }
            }
        }
    }

    fn open(&mut self, id: SessionId, name: AuthName, caps: &str) {
        let new = NewSession {
            name,
            global_id: 4000 + id,
            caps: caps.into(),
            addr: EntityAddr::v2("127.0.0.1:50000".parse().unwrap(), 1),
            ip: Some([127, 0, 0, 1].into()),
            features: spirula_maps::features::PACIFIC_ALL,
            handshake: ServerHandshake::new(),
        };
        self.mon.open(id, new, self.now);
        self.settle();
    }

    fn send(&mut self, id: SessionId, m: RawMessage) {
        self.mon.message(id, m, self.now);
        self.settle();
    }

    fn pass(&mut self, d: Duration) {
        // In steps, as the clock goes: more at once is a jump.
        let (end, step) = (self.now.plus(d), Duration::from_secs(1).max(d / 1000));
        while self.now < end {
            self.now = self.now.plus(end.since(self.now).min(step));
            self.mon.tick(self.now);
            self.settle();
        }
    }

    fn command(&mut self, id: SessionId, json: &str) -> MMonCommandAck {
        self.command_with(id, json, b"")
    }

    fn command_with(&mut self, id: SessionId, json: &str, input: &'static [u8]) -> MMonCommandAck {
        let m = MMonCommand {
            input: bytes::Bytes::from_static(input).into(),
            paxos: PaxosVersion(0),
            fsid: Fsid([7; 16]),
            cmd: vec![json.to_owned()],
        };
        self.send(id, m.to_message());
        let all = self.inbox.entry(id).or_default();
        let at = all
            .iter()
            .rposition(|m| m.kind() == MsgType::MON_COMMAND_ACK)
            .unwrap();
        all.remove(at).decode().unwrap()
    }

    fn boot(&mut self, osd: u16) {
        self.boot_as(osd, "h", 9, Epoch::NONE);
    }

    /// Boots an OSD on a host, with the nonce of its process; `boot_epoch` is not 0 if that process
    /// was up before.
    fn boot_as(&mut self, osd: u16, host: &str, nonce: u32, boot_epoch: Epoch) {
        let place = BTreeMap::from([("host".into(), host.into()), ("root".into(), "default".into())]);
        self.boot_at(osd, place, nonce, boot_epoch);
    }

    /// Boots an OSD that names its place in the CRUSH map.
    fn boot_at(&mut self, osd: u16, place: BTreeMap<String, String>, nonce: u32, boot_epoch: Epoch) {
        let id = 100 + SessionId::from(osd);
        self.open(
            id,
            AuthName::new(EntityType::OSD, osd.to_string()),
            "allow profile osd",
        );
        let addr = |port: u16| {
            EntityAddr::v2(format!("127.0.0.1:{}", port + osd * 10).parse().unwrap(), nonce).into()
        };
        let boot = OsdBoot {
            osd: OsdId::new(osd),
            fsid: Fsid([7; 16]),
            uuid: Fsid([osd as u8 + 1; 16]),
            public_addrs: addr(6800),
            cluster_addrs: addr(6801),
            heartbeat_front: addr(6802),
            heartbeat_back: addr(6803),
            features: spirula_maps::features::PACIFIC_ALL,
            size: 10 << 30,
            crush_location: place,
            device_class: "ssd".into(),
            boot_epoch,
            ..OsdBoot::default()
        };
        self.send(id, OsdReport::Boot(boot).to_message());
    }

    /// Reports as every PG's primary that the PG is active and clean.
    fn all_active(&mut self) {
        self.all_in(PgState::ACTIVE.with(PgState::CLEAN));
    }

    /// Reports as every PG's primary that the PG is in this state.
    fn all_in(&mut self, state: PgState) {
        for pg in self.mon.view.state.osd.map.pgs().collect::<Vec<_>>() {
            let at = self.mon.view.state.osd.map.map_pg(pg);
            let stat = PgStat {
                state,
                acting_primary: at.acting_primary.into(),
                up_primary: at.up_primary.into(),
                acting: at.acting,
                up: at.up,
                reported_epoch: self.mon.view.state.osd.map.epoch,
                last_active: self.now,
                ..PgStat::default()
            };
            let session = 100 + SessionId::from(at.acting_primary.unwrap());
            let report = PgStatsReport {
                seq: 1,
                pgs: BTreeMap::from([(pg, Blob::of(&stat))]),
                ..PgStatsReport::default()
            };
            self.send(session, OsdReport::PgStats(report).to_message());
        }
    }

    fn admin(&mut self) -> SessionId {
        self.open(1, AuthName::new(EntityType::CLIENT, "admin"), "allow *");
        1
    }
}

#[test]
fn osds_boot_and_a_pool_is_placed_on_them() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    let three = OsdCounts {
        all: 3,
        up: 3,
        inside: 3,
    };
    assert_eq!(w.mon.view.state.osd.map.counts(), three);
    assert_eq!(w.mon.view.state.osd.map.crush.map().class_of(2), Some("ssd"));
    let ack = w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    assert_eq!((ack.result, ack.status.as_str()), (0, "pool 'p' created"));
    for pg in w.mon.view.state.osd.map.pgs().collect::<Vec<_>>() {
        assert_eq!(w.mon.view.state.osd.map.map_pg(pg).acting.count(), 3);
    }
}

#[test]
fn an_osd_gets_the_weight_that_is_configured_for_it() {
    let mut w = World::new();
    let admin = w.admin();
    let set = r#"{"prefix":"config set","who":"osd.1","name":"osd_crush_initial_weight","value":"0.5"}"#;
    assert_eq!(w.command(admin, set).result, 0);
    (0..2).for_each(|o| w.boot(o));
    let crush = w.mon.view.state.osd.map.crush.map();
    let weight = |osd: u16| crush.item_weight(OsdId::new(osd).item()).unwrap();
    let of = |weight| spirula_crush::weight_from_f64(weight).unwrap();
    // 10 GiB, and what was set.
    assert_eq!((weight(0), weight(1)), (of(0.0098), of(0.5)));
}

#[test]
fn an_osd_that_names_no_place_is_not_placed() {
    let mut w = World::new();
    w.boot_at(2, BTreeMap::new(), 9, Epoch::NONE);
    let map = &w.mon.view.state.osd.map;
    assert!(map.is_up(OsdId::new(2u16)));
    assert_eq!(map.crush.map().item_weight(OsdId::new(2u16).item()), None);
}

#[test]
fn a_subscriber_is_sent_its_configuration_even_if_that_is_empty() {
    let mut w = World::new();
    let osd = 7;
    w.open(osd, AuthName::new(EntityType::OSD, "0"), "allow profile osd");
    let what = BTreeMap::from([("config".to_owned(), Subscription { start: 0, flags: 0 })]);
    let hostname = String::new();
    w.send(osd, MMonSubscribe { what, hostname }.to_message());
    let sent = w.inbox[&osd].iter().filter(|m| m.kind() == MsgType::CONFIG);
    let sent: Vec<MConfig> = sent.map(|m| m.decode().unwrap()).collect();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].config.is_empty());
}

#[test]
fn a_subscriber_is_sent_every_epoch_once() {
    let mut w = World::new();
    w.admin();
    let what = BTreeMap::from([("osdmap".to_owned(), Subscription { start: 0, flags: 0 })]);
    w.send(
        1,
        MMonSubscribe {
            what,
            hostname: String::new(),
        }
        .to_message(),
    );
    (0..3).for_each(|o| w.boot(o));
    let maps: Vec<MOsdMap> = w.inbox[&1]
        .iter()
        .filter(|m| m.kind() == MsgType::OSD_MAP)
        .map(|m| m.decode().unwrap())
        .collect();
    assert_eq!(maps[0].maps.len(), 1);
    let mut map = OsdMap::decode_with_crc(&maps[0].maps[&Epoch::FIRST]).unwrap().0;
    for m in &maps[1..] {
        for inc in m.incrementals.values() {
            map.apply_checked(&spirula_denc::decode_all(inc).unwrap())
                .unwrap();
        }
    }
    assert_eq!(map, *w.mon.view.state.osd.map);
}

#[test]
fn who_asks_once_for_the_next_map_hears_of_those_after_it_for_a_while() {
    let mut w = World::new();
    w.admin();
    let start = u64::from(w.mon.view.state.osd.map.epoch) + 1;
    let what = BTreeMap::from([("osdmap".to_owned(), Subscription { start, flags: 1 })]);
    let hostname = String::new();
    w.send(1, MMonSubscribe { what, hostname }.to_message());
    let epochs = |w: &World| -> Vec<Epoch> {
        let all = w.inbox.get(&1).into_iter().flatten();
        let maps = all.filter(|m| m.kind() == MsgType::OSD_MAP);
        maps.flat_map(|m| m.decode::<MOsdMap>().unwrap().incrementals.into_keys())
            .collect()
    };
    (0..2).for_each(|o| w.boot(o));
    let newest = w.mon.view.state.osd.map.epoch;
    let all: Vec<Epoch> = Epoch::all(Epoch::try_from(start).unwrap()..=newest).collect();
    assert!(all.len() > 1);
    assert_eq!(epochs(&w), all);
    w.pass(Duration::from_secs(11));
    let before = epochs(&w);
    w.boot(2);
    assert!(w.mon.view.state.osd.map.epoch > newest);
    assert_eq!(epochs(&w), before);
}

#[test]
fn an_osd_goes_down_at_once_when_it_says_so_and_soon_when_its_connection_breaks() {
    let mut w = World::new();
    (0..3).for_each(|o| w.boot(o));
    let bye = OsdReport::GoingDown(OsdGoingDown {
        epoch: Epoch::new(4),
        osd: OsdId::new(0),
        reason: String::new(),
    });
    w.send(100, bye.to_message());
    assert!(w.mon.view.state.osd.map.is_down(OsdId::new(0)));
    w.mon.close(101, w.now);
    w.pass(Duration::from_millis(500));
    assert!(w.mon.view.state.osd.map.is_up(OsdId::new(1)));
    w.pass(Duration::from_millis(600));
    assert!(w.mon.view.state.osd.map.is_down(OsdId::new(1)));
    let health = w.mon.view.health();
    assert_eq!(health["OSD_DOWN"].count, 2);
    // It comes back with its place and weight.
    w.boot(1);
    assert!(w.mon.view.state.osd.map.is_up(OsdId::new(1)) && w.mon.view.state.osd.map.is_in(OsdId::new(1)));
    // After ten minutes a down OSD is marked out.
    w.pass(Duration::from_secs(601));
    assert!(
        w.mon.view.state.osd.map.is_out(OsdId::new(0))
            && w.mon
                .view
                .state
                .osd
                .map
                .state(OsdId::new(0))
                .contains(OsdState::AUTOOUT)
    );
    // Not the next one: 2 of 3 are too few already.
    w.mon.close(102, w.now);
    w.pass(Duration::from_secs(601));
    assert!(w.mon.view.state.osd.map.is_down(OsdId::new(2)) && w.mon.view.state.osd.map.is_in(OsdId::new(2)));
    // An OSD that comes back is in again.
    w.boot(0);
    assert!(w.mon.view.state.osd.map.is_in(OsdId::new(0)));
}

#[test]
fn what_osds_wish_for_their_pgs_at_the_same_time_makes_one_map() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":32}"#);
    let led = |w: &World, osd, nth: usize| {
        let map = &w.mon.view.state.osd.map;
        map.pgs()
            .filter(|pg| map.map_pg(*pg).acting_primary == Some(OsdId::new(osd)))
            .nth(nth)
            .unwrap()
    };
    let pgs = [(0, 0), (1, 0), (2, 0), (2, 1)].map(|(osd, nth)| led(&w, osd, nth));
    let (begun, up_thru) = (
        w.mon.view.state.osd.map.epoch,
        w.mon.view.state.osd.map.osd_info[1].up_thru,
    );
    let wish = |w: &mut World, osd: u64, report: OsdReport| {
        let session: SessionId = 100 + osd;
        w.mon.message(session, report.to_message(), w.now);
    };
    let osds = |numbers: &[u16]| -> Positions { numbers.iter().map(|n| OsdId::new(*n)).collect() };
    let temporary = |pg: usize, acting: &[u16]| {
        OsdReport::PgTemp(PgTempWanted {
            epoch: begun,
            acting: BTreeMap::from([(pgs[pg], osds(acting))]),
        })
    };
    // The first wish is proposed at once; those that come before its commit wait.
    wish(&mut w, 0, temporary(0, &[0, 1]));
    wish(&mut w, 1, temporary(1, &[1, 2]));
    wish(
        &mut w,
        1,
        OsdReport::Alive(OsdAlive {
            epoch: begun,
            want: begun,
        }),
    );
    wish(&mut w, 2, temporary(2, &[2, 0]));
    wish(&mut w, 2, temporary(2, &[]));
    wish(&mut w, 2, temporary(3, &[2]));
    w.settle();
    let map = &w.mon.view.state.osd.map;
    assert_eq!(map.epoch, begun.after(2));
    let expected = [
        (pgs[0], osds(&[0, 1])),
        (pgs[1], osds(&[1, 2])),
        (pgs[3], osds(&[2])),
    ];
    assert_eq!(map.pg_temp, BTreeMap::from(expected));
    // The primary of the next interval need not ask to have it recorded.
    assert!(up_thru < begun);
    let recorded = |osd: usize| map.osd_info[osd].up_thru;
    assert_eq!(
        [recorded(0), recorded(1), recorded(2)],
        [begun.next(), begun.after(2), begun.after(2)]
    );
    // Other writes keep their turn.
    wish(&mut w, 0, temporary(0, &[]));
    wish(&mut w, 1, temporary(1, &[]));
    w.mon.message(
        102,
        OsdReport::Full(FullState {
            epoch: begun,
            state: Fullness::NEARFULL,
        })
        .to_message(),
        w.now,
    );
    wish(&mut w, 2, temporary(3, &[]));
    w.settle();
    assert_eq!(w.mon.view.state.osd.map.epoch, begun.after(6));
    assert!(w.mon.view.state.osd.map.pg_temp.is_empty());
}

#[test]
fn statistics_make_health_and_status() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    for _ in 0..8 {
        (0..3).for_each(|o| w.mon.view.state.osd.seen(OsdId::new(o), w.mon.view.steady.now()));
        w.pass(Duration::from_secs(10));
    }
    assert!(
        w.mon.view.health().contains_key("PG_AVAILABILITY"),
        "unknown for a minute"
    );
    w.all_active();
    assert!(w.mon.view.health().is_empty(), "{:?}", w.mon.view.health());
    let ack = w.command(admin, r#"{"prefix":"pg stat"}"#);
    assert!(String::from_utf8_lossy(&ack.output.to_bytes()).starts_with("1 pgs: 1 active+clean;"));
}

#[test]
fn pg_num_grows_first_and_pgp_num_follows_when_all_pgs_serve() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let set = |w: &mut World, var: &str, val: u32| {
        let cmd = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#);
        let ack = w.command(admin, &cmd);
        (ack.result, ack.status)
    };
    let nums = |w: &World| {
        let p = w.mon.view.state.osd.map.pools.values().next().unwrap();
        (p.pg_num, p.pgp_num, p.pg_num_target, p.pgp_num_target)
    };
    // Nothing serves yet: only the goal changes.
    assert_eq!(set(&mut w, "pg_num", 16).0, 0);
    assert_eq!(nums(&w), (8, 8, 16, 16));
    w.all_active();
    w.pass(Duration::from_secs(1));
    assert_eq!(nums(&w), (16, 8, 16, 16));
    w.pass(Duration::from_secs(1));
    assert_eq!(nums(&w), (16, 8, 16, 16));
    w.all_active();
    assert_eq!(set(&mut w, "pgp_num", 12).0, 0);
    assert_eq!(nums(&w), (16, 12, 16, 12));
    assert_eq!(set(&mut w, "pg_num", 32).0, 0);
    assert_eq!(nums(&w), (32, 12, 32, 12), "at once where all serve");
    let errors = [
        ("pgp_num", 64, -22, "specified pgp_num 64 > pg_num 32"),
        ("pg_num", 0, -34, "'pg_num' must be greater than 0"),
        (
            "pg_num",
            4096,
            -34,
            "pool id 1 pg_num 4096 size 3 would mean 12288 total pgs, which exceeds max 750",
        ),
        ("pg_num", 8, -95, "specified pg_num 8 < current 32: merging"),
    ];
    for (var, val, result, text) in errors {
        let got = set(&mut w, var, val);
        assert!(got.0 == result && got.1.starts_with(text), "{got:?}");
    }
}

#[test]
fn who_may_only_read_changes_nothing() {
    let mut w = World::new();
    w.open(5, AuthName::new(EntityType::CLIENT, "x"), "allow r");
    let before = w.mon.view.state.osd.map.epoch;
    let ack = w.command(5, r#"{"prefix":"osd pool create","pool":"p"}"#);
    assert_eq!((ack.result, ack.status.as_str()), (-13, "access denied"));
    assert_eq!(w.command(5, r#"{"prefix":"osd dump"}"#).result, 0);
    assert_eq!(w.command(5, r#"{"prefix":"auth ls"}"#).result, -13);
    assert_eq!(
        w.command(5, r#"{"prefix":"nonsense"}"#).status,
        "command not known"
    );
    assert_eq!(w.mon.view.state.osd.map.epoch, before);
}

#[test]
fn old_epochs_are_trimmed_and_a_reload_gives_the_same_state() {
    let mut w = World::new();
    let admin = w.admin();
    for n in 0..600 {
        let verb = if n % 2 == 0 { "set" } else { "unset" };
        assert_eq!(
            w.command(admin, &format!(r#"{{"prefix":"osd {verb}","key":"noout"}}"#))
                .result,
            0
        );
    }
    w.pass(Duration::from_secs(1));
    assert!(w.mon.view.state.osd.first > Epoch::FIRST, "nothing was trimmed");
    assert!(w.mon.view.state.osd.map.epoch.since(w.mon.view.state.osd.first) >= 500);
    let again = Monitor::load(identity(), w.kv.clone(), BTreeMap::new(), 2, true, w.now).unwrap();
    assert_eq!(*again.view.state.osd.map, *w.mon.view.state.osd.map);
    assert_eq!(again.view.state.osd.first, w.mon.view.state.osd.first);
    assert!(
        again
            .view
            .state
            .osd
            .at(again.view.state.osd.first.after(3))
            .unwrap()
            .is_some()
    );
    assert!(again.view.state.osd.at(Epoch::new(1)).unwrap().is_none());
}

#[test]
fn every_command_has_one_description_and_no_argument_makes_it_panic() {
    let mut w = World::new();
    let admin = w.admin();
    (0..2).for_each(|o| w.boot(o));
    let text = w
        .command(admin, r#"{"prefix":"get_command_descriptions"}"#)
        .output
        .to_bytes();
    let all: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&text).unwrap();
    assert!(all.len() > 180);
    for c in all.values() {
        let sig = c["sig"].as_array().unwrap();
        let words: Vec<&str> = sig.iter().filter_map(|s| s.as_str()).collect();
        for filler in ["", "0", "-1", "p", "99999999999999999999", "osd.0", "[1]"] {
            for format in ["plain", "json"] {
                let mut m = serde_json::Map::new();
                m.insert("prefix".into(), words.join(" ").into());
                m.insert("format".into(), format.into());
                for p in sig.iter().filter_map(|s| s.as_object()) {
                    let first = p
                        .get("strings")
                        .and_then(|s| s.as_str())
                        .and_then(|s| s.split('|').next());
                    m.insert(p["name"].as_str().unwrap().into(), first.unwrap_or(filler).into());
                }
                w.command(admin, &serde_json::Value::Object(m).to_string());
            }
        }
    }
}
