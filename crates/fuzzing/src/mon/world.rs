//! A monitor of a small cluster, alone, whose proposals are committed as they come.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spirula_cephx::{AuthName, KeyType, Keyring, ServerHandshake};
use spirula_denc::{EntityAddr, EntityType, Fsid, UTime};
use spirula_maps::{Epoch, OsdId};
use spirula_mon::core::{Identity, Monitor, NewSession, Output, SessionId};
use spirula_mon::kv::{KvError, KvRead, MemKv};
use spirula_mon::raft::Applied;
use spirula_mon::{MkfsConfig, MonConfig, first_state};
use spirula_proto::internal::report::{OsdBoot, OsdReport};
use spirula_proto::mon::{MMonCommand, MMonCommandAck, PaxosVersion};
use spirula_proto::{MsgType, Payload};

const FSID: Fsid = Fsid([7; 16]);
pub(super) const ADMIN: SessionId = 1;
const OSDS: u16 = 3;

/// The state that monitor and test share.
#[derive(Default)]
struct Kv(RefCell<MemKv>);

impl KvRead for Kv {
    fn get(&self, service: &str, key: &str) -> Result<Option<Bytes>, KvError> {
        self.0.borrow().get(service, key)
    }

    fn next(&self, service: &str, from: &str) -> Result<Option<(String, Bytes)>, KvError> {
        self.0.borrow().next(service, from)
    }

    fn scan(&self, service: &str) -> Result<Vec<(String, Bytes)>, KvError> {
        self.0.borrow().scan(service)
    }
}

pub(super) struct World {
    kv: Rc<Kv>,
    pub(super) mon: Monitor,
    now: UTime,
    index: u64,
    /// Results of commands, as they came.
    pub(super) results: Vec<i32>,
    /// Commands for the manager's modules, which do not run here.
    pub(super) handed_over: usize,
}

fn addr(text: &str, nonce: u32) -> EntityAddr {
    text.parse()
        .map_or_else(|_| EntityAddr::default(), |at| EntityAddr::v2(at, nonce))
}

fn identity() -> Identity {
    Identity {
        fsid: FSID,
        name: "a".into(),
        hostname: "h".into(),
        addrs: addr("127.0.0.1:3300", 0).into(),
        mgr_addrs: addr("127.0.0.1:6800", 5).into(),
        metadata: BTreeMap::new(),
    }
}

/// The state of a cluster that was just made.
fn first(now: UTime) -> MemKv {
    let config = MonConfig {
        data: PathBuf::new(),
        name: "a".to_owned(),
        fsid: FSID,
        bind: ([127, 0, 0, 1], 3300).into(),
        admin_socket: None,
        options: BTreeMap::new(),
    };
    let plan = MkfsConfig {
        monitors: Vec::new(),
        keyring: Keyring::default(),
        key_type: KeyType::Aes,
    };
    let mut kv = MemKv::default();
    match first_state(&config, &plan, now) {
        Ok(txn) => kv.apply(&txn),
        Err(e) => unreachable!("the first state: {e}"),
    }
    kv
}

impl World {
    /// A monitor with this state.
    fn on(kv: MemKv, now: UTime) -> Self {
        let kv = Rc::new(Kv(RefCell::new(kv)));
        let options = BTreeMap::from([("mon_allow_pool_delete".to_owned(), "true".to_owned())]);
        let mon = match Monitor::load(identity(), kv.clone(), options, 1, true, now) {
            Ok(mon) => mon,
            Err(e) => unreachable!("what was committed can't be read: {e}"),
        };
        let mut world = Self {
            kv,
            mon,
            now,
            index: 1,
            results: Vec::new(),
            handed_over: 0,
        };
        world.settle();
        world.open(ADMIN, AuthName::new(EntityType::CLIENT, "admin"), "allow *");
        world
    }

    /// A cluster of three OSDs with a pool.
    pub(super) fn new() -> Self {
        thread_local! {
            static STATE: RefCell<Option<MemKv>> = const { RefCell::new(None) };
        }
        let now = UTime::from_secs(1_000_000);
        let state = STATE.with_borrow_mut(|state| {
            let make = || {
                let mut world = Self::on(first(now), now);
                (0..OSDS).for_each(|osd| world.boot(osd));
                world.command(r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#, b"");
                world.kv.0.borrow().clone()
            };
            state.get_or_insert_with(make).clone()
        });
        Self::on(state, now)
    }

    fn open(&mut self, id: SessionId, name: AuthName, caps: &str) {
        let new = NewSession {
            name,
            global_id: 4000 + id,
            caps: caps.into(),
            addr: addr("127.0.0.1:50000", 1),
            ip: Some([127, 0, 0, 1].into()),
            features: spirula_maps::features::PACIFIC_ALL,
            handshake: ServerHandshake::new(),
        };
        self.mon.open(id, new, self.now);
        self.settle();
    }

    fn boot(&mut self, osd: u16) {
        let id = 100 + SessionId::from(osd);
        let name = AuthName::new(EntityType::OSD, osd.to_string());
        self.open(id, name, "allow profile osd");
        let at = |port: u16| addr(&format!("127.0.0.1:{}", port + osd * 10), 9).into();
        let boot = OsdBoot {
            osd: OsdId::new(osd),
            fsid: FSID,
            uuid: Fsid([osd as u8 + 1; 16]),
            public_addrs: at(6800),
            cluster_addrs: at(6801),
            heartbeat_front: at(6802),
            heartbeat_back: at(6803),
            features: spirula_maps::features::PACIFIC_ALL,
            size: 10 << 30,
            crush_location: [("host", format!("h{osd}")), ("root", "default".into())]
                .map(|(k, v)| (k.to_owned(), v))
                .into(),
            device_class: "ssd".into(),
            ..OsdBoot::default()
        };
        self.mon.message(id, OsdReport::Boot(boot).to_message(), self.now);
        self.settle();
    }

    /// Commits all proposals, and keeps the answers to commands.
    fn settle(&mut self) {
        loop {
            let outputs = self.mon.take_outputs();
            if outputs.is_empty() {
                let failure = self.mon.take_failure();
                assert!(failure.is_none(), "{failure:?}");
                return;
            }
            for o in outputs {
                match o {
                    Output::Send(_, m) if m.kind() == MsgType::MON_COMMAND_ACK => {
                        let ack = m.decode::<MMonCommandAck>();
                        self.results.push(ack.map_or(i32::MIN, |ack| ack.result));
                    }
                    Output::AskModule(_) => self.handed_over += 1,
                    Output::Propose(txn) => {
                        self.kv.0.borrow_mut().apply(&txn);
                        self.index += 1;
                        let news = Applied::Txn {
                            index: self.index,
                            txn: Arc::new(txn),
                        };
                        self.mon.committed(&news, self.now);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Runs a command.
    pub(super) fn command(&mut self, json: &str, input: &[u8]) {
        let m = MMonCommand {
            input: Bytes::copy_from_slice(input).into(),
            paxos: PaxosVersion(0),
            fsid: FSID,
            cmd: vec![json.to_owned()],
        };
        self.mon.message(ADMIN, m.to_message(), self.now);
        self.settle();
    }

    /// Lets seconds pass.
    pub(super) fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.now = self.now.plus(Duration::from_secs(1));
            self.mon.tick(self.now);
            self.settle();
        }
    }

    /// Checks that the committed state can be read, and equals this monitor's.
    pub(super) fn check(&self) {
        let map = self.mon.osdmap();
        for pg in map.pgs().take(64) {
            map.map_pg(pg);
        }
        let again = Self::on(self.kv.0.borrow().clone(), self.now);
        let (mut left, mut right) = (map.clone(), again.mon.osdmap().clone());
        // One that starts may commit something more.
        (left.epoch, right.epoch) = (Epoch::NONE, Epoch::NONE);
        (left.modified, right.modified) = (UTime::ZERO, UTime::ZERO);
        assert!(left == right, "another monitor has another map");
    }
}
