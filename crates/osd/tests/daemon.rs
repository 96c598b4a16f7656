//! Three real daemons with real stores and sockets in one process, a minimal monitor, and a client
//! of a few lines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use spirula_buf::Pool;
use spirula_cephx::{
    AuthName, ConnectionMode, CryptoKey, EntityAuth, Env, KeyServer, KeyType, Outcome, ServerHandshake,
    ServiceSecrets, TicketLifetimes, method,
};
use spirula_crush::CrushMap;
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType, Fsid, UTime};
use spirula_maps::{
    Epoch, Incremental, ObjectLocator, ObjectName, OsdId, OsdInfo, OsdMap, OsdState, PgPool, PoolId, SpgId,
    snap,
};
use spirula_monc::{MonClient, Options};
use spirula_msgr::{AcceptAuth, AcceptReply, Acceptor, ConMode, Config, Connection, Sender, SessionKeys};
use spirula_osd::{MkfsConfig, OsdConfig, mkfs, run};
use spirula_proto::internal::report::{Fullness, OsdBoot, OsdReport};
use spirula_proto::mon::{MAuth, MAuthReply, MConfig, MMonSubscribe, MOsdMap};
use spirula_proto::osd::{ExtentArgs, MOsdOp, MOsdOpReply, OpArgs, OpCode, OsdFlags, OsdOpIn};
use spirula_proto::{MsgType, Payload, RawMessage};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, LocalSet};

const FSID: Fsid = Fsid([7; 16]);

struct Keys {
    entities: BTreeMap<AuthName, EntityAuth>,
    secrets: ServiceSecrets,
    last: Cell<u64>,
}

impl KeyServer for Keys {
    fn lookup(&self, name: &AuthName) -> Option<EntityAuth> {
        self.entities.get(name).cloned()
    }

    fn service_secrets(&self) -> &ServiceSecrets {
        &self.secrets
    }

    fn new_global_id(&self) -> Option<u64> {
        self.last.set(self.last.get() + 1);
        Some(self.last.get())
    }
}

/// A monitor that hands out tickets and maps, and believes every boot.
struct Monitor {
    keys: Keys,
    map: RefCell<OsdMap>,
    sessions: RefCell<Vec<Sender>>,
    clean: Cell<usize>,
    /// The fullness that OSDs reported, one report after the other.
    fullness: RefCell<Vec<Fullness>>,
    changed: Notify,
}

impl Monitor {
    fn new() -> Rc<Self> {
        let env = Env::system(UTime::now());
        let secrets = ServiceSecrets::default()
            .rotated(&TicketLifetimes::default(), KeyType::Aes256k, &env)
            .unwrap()
            .unwrap();
        let mut entities = BTreeMap::new();
        for name in ["osd.0", "osd.1", "osd.2", "client.admin", "client.reader"] {
            let caps = if name == "client.reader" {
                "allow r"
            } else {
                "allow *"
            };
            let caps = ["mon", "osd"]
                .map(|s| (s.to_owned(), caps.to_owned()))
                .into_iter()
                .collect();
            entities.insert(
                name.parse().unwrap(),
                EntityAuth {
                    key: CryptoKey::generate(KeyType::Aes, &env).unwrap(),
                    caps,
                },
            );
        }
        let mut crush = CrushMap::with_default_root("osd").unwrap();
        for i in 0..3 {
            let location = [("root", "default"), ("host", "h")].map(|(k, v)| (k.to_owned(), v.to_owned()));
            crush
                .insert_item(i, 0x10000, &format!("osd.{i}"), &location.into_iter().collect())
                .unwrap();
        }
        let mut map = OsdMap::new(FSID, crush);
        map.epoch = Epoch::new(1);
        map.full_ratio = 0.95;
        map.set_max_osd(3);
        for i in 0..3 {
            map.osd_state[i] = OsdState::EXISTS;
            map.osd_weight[i] = 0x10000;
        }
        Rc::new(Self {
            keys: Keys {
                entities,
                secrets,
                last: Cell::new(4100),
            },
            map: RefCell::new(map),
            sessions: RefCell::default(),
            clean: Cell::new(0),
            fullness: RefCell::default(),
            changed: Notify::new(),
        })
    }

    /// Makes the next epoch, and sends it to everyone.
    fn change(&self, f: impl FnOnce(&mut Incremental, &OsdMap)) {
        let mut map = self.map.borrow_mut();
        let mut inc = Incremental::new(FSID, map.epoch.next());
        f(&mut inc, &map);
        map.apply(&inc).unwrap();
        let mut m = MOsdMap {
            fsid: FSID,
            oldest: Epoch::new(1),
            newest: map.epoch,
            ..MOsdMap::default()
        };
        m.incrementals
            .insert(map.epoch, spirula_denc::encode_to_vec(&inc).into());
        let msg = m.to_message();
        self.sessions.borrow_mut().retain(|s| s.send(msg.clone()));
    }

    fn full_map(&self) -> RawMessage {
        let map = self.map.borrow();
        let mut m = MOsdMap {
            fsid: FSID,
            oldest: Epoch::new(1),
            newest: map.epoch,
            ..MOsdMap::default()
        };
        m.maps.insert(map.epoch, map.encode_with_crc().0);
        m.to_message()
    }

    fn boot(&self, b: &OsdBoot) {
        let addr = b.public_addrs.clone();
        if self.map.borrow().is_up(b.osd) {
            if self.map.borrow().client_addrs(b.osd) == Some(&addr) {
                return;
            }
            self.mark_down(b.osd);
        }
        self.change(|inc, map| {
            let info = OsdInfo {
                up_from: inc.epoch,
                ..map.osd_info[b.osd.index()]
            };
            let _ = info;
            inc.new_up_client.insert(b.osd, addr);
            inc.new_up_cluster.insert(b.osd, b.cluster_addrs.clone());
            inc.new_hb_back_up.insert(b.osd, b.heartbeat_back.clone());
            inc.new_hb_front_up.insert(b.osd, b.heartbeat_front.clone());
        });
    }

    fn mark_down(&self, osd: OsdId) {
        self.change(|inc, _| {
            inc.new_state.insert(osd, OsdState::UP);
        });
    }

    /// Records that the OSDs that are up were so in this epoch; the OSD that asked is one of them.
    fn alive(&self, want: Epoch) {
        let late = |map: &OsdMap, o: OsdId| map.is_up(o) && map.osd_info[o.index()].up_thru < want;
        let behind: Vec<OsdId> = OsdId::below(3).filter(|o| late(&self.map.borrow(), *o)).collect();
        if !behind.is_empty() {
            self.change(|inc, _| inc.new_up_thru.extend(behind.iter().map(|o| (*o, want))));
        }
    }

    fn message(&self, session: &Sender, handshake: &mut ServerHandshake, msg: &RawMessage) {
        match msg.kind() {
            MsgType::MON_SUBSCRIBE => {
                let m: MMonSubscribe = msg.decode().unwrap();
                if m.what.contains_key("config") {
                    session.send(MConfig::default().to_message());
                }
                if m.what.contains_key("osdmap") {
                    session.send(self.full_map());
                    if !self.sessions.borrow().iter().any(|s| s.same_connection(session)) {
                        self.sessions.borrow_mut().push(session.clone());
                    }
                }
            }
            MsgType::AUTH => {
                let m: MAuth = msg.decode().unwrap();
                let reply = handshake.handle_auth(&m.payload, &self.keys, &Env::system(UTime::now()));
                let reply = MAuthReply {
                    protocol: method::CEPHX,
                    result: reply.result,
                    payload: reply.payload.into(),
                    ..MAuthReply::default()
                };
                session.send(reply.to_message());
            }
            MsgType::OSD_REPORT => match msg.decode().unwrap() {
                OsdReport::Boot(b) => self.boot(&b),
                OsdReport::Alive(a) => self.alive(Epoch::new(a.want.number())),
                OsdReport::Full(f) => {
                    self.fullness.borrow_mut().push(f.state);
                    self.changed.notify_waiters();
                }
                OsdReport::PgStats(r) => {
                    let clean = r.pgs.values().filter(|b| {
                        let s: spirula_maps::PgStat = spirula_denc::decode_all(b).unwrap();
                        s.state.to_string() == "active+clean"
                    });
                    self.clean.set(self.clean.get() + clean.count());
                    self.changed.notify_waiters();
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Waits until this many PGs were reported clean from now on.
    async fn wait_clean(&self, n: usize) {
        self.wait(|m| m.clean.get() >= n, "PGs do not become clean").await;
    }

    async fn wait(&self, done: impl Fn(&Self) -> bool, what: &str) {
        let wait = async {
            while !done(self) {
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .expect(what);
    }
}

struct MonAuth {
    mon: Rc<Monitor>,
    handshake: ServerHandshake,
    mode: ConnectionMode,
}

impl MonAuth {
    fn step(&mut self, auth_method: u32, payload: &[u8]) -> AcceptReply {
        let env = Env::system(UTime::now());
        match self
            .handshake
            .handle(auth_method, self.mode, payload, &self.mon.keys, &env)
        {
            Outcome::More(p) => AcceptReply::More(p.into()),
            Outcome::Done(a) => AcceptReply::Done {
                global_id: a.global_id,
                payload: a.payload.clone().into(),
                keys: SessionKeys {
                    session_key: a.session_key.secret().to_vec().into(),
                    connection_secret: a.connection_secret.to_vec().into(),
                },
            },
            Outcome::Denied { errno, .. } => AcceptReply::Bad {
                errno,
                allowed_methods: vec![2],
            },
        }
    }
}

impl AcceptAuth for MonAuth {
    type Info = ServerHandshake;

    async fn request(&mut self, _: EntityType, m: u32, mode: ConMode, payload: Bytes) -> AcceptReply {
        self.mode = ConnectionMode::from_wire(mode.0).unwrap();
        self.step(m, &payload)
    }

    async fn more(&mut self, payload: Bytes) -> AcceptReply {
        self.step(method::CEPHX, &payload)
    }

    fn into_info(self) -> ServerHandshake {
        self.handshake
    }
}

async fn start_monitor(mon: &Rc<Monitor>) -> EntityAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = EntityAddr::v2(listener.local_addr().unwrap(), 0);
    let name = EntityName::new(EntityType::MON, 0);
    let config = Rc::new(Config::new(name, EntityAddrVec::from(addr), Pool::new(16 << 20)));
    let mon = Rc::clone(mon);
    tokio::task::spawn_local(async move {
        let acceptor = Rc::new(Acceptor::new(config));
        while let Ok((stream, from)) = listener.accept().await {
            let (acceptor, mon) = (Rc::clone(&acceptor), Rc::clone(&mon));
            tokio::task::spawn_local(async move {
                let auth = MonAuth {
                    mon: Rc::clone(&mon),
                    handshake: ServerHandshake::new(),
                    mode: ConnectionMode::Crc,
                };
                let Ok((mut c, mut handshake)) = acceptor.accept(stream, from, auth).await else {
                    return;
                };
                let sender = c.sender().clone();
                while let Ok(m) = c.recv().await {
                    mon.message(&sender, &mut handshake, &m);
                }
            });
        }
    });
    addr
}

struct Cluster {
    mon: Rc<Monitor>,
    addr: EntityAddr,
    dir: PathBuf,
    osds: BTreeMap<OsdId, (JoinHandle<()>, Rc<Notify>)>,
}

impl Cluster {
    async fn start(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("spirula-osd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mon = Monitor::new();
        let addr = start_monitor(&mon).await;
        let mut cluster = Self {
            mon,
            addr,
            dir,
            osds: BTreeMap::new(),
        };
        for id in OsdId::below(3) {
            let device = cluster.device(id);
            let c = MkfsConfig {
                id,
                device: &device,
                log_device: None,
                encryption_key: None,
                size: 1 << 30,
                fsid: FSID,
                uuid: Fsid([id.index() as u8 + 1; 16]),
            };
            mkfs(&c).unwrap();
            cluster.start_osd(id);
        }
        cluster
    }

    fn device(&self, id: OsdId) -> PathBuf {
        self.dir.join(format!("osd.{id}"))
    }

    fn start_osd(&mut self, id: OsdId) {
        let name: AuthName = format!("osd.{id}").parse().unwrap();
        let cfg = OsdConfig {
            id,
            device: self.device(id),
            log_device: None,
            encryption_key: None,
            fsid: FSID,
            monitors: vec![self.addr],
            key: self.mon.keys.entities[&name].key.clone(),
            public_addr: [127, 0, 0, 1].into(),
            cluster_addr: [127, 0, 0, 1].into(),
            admin_socket: None,
            memory_target: 128 << 20,
            crush_location: BTreeMap::new(),
            device_class: String::new(),
            options: BTreeMap::new(),
            give_back: || (),
        };
        let stop = Rc::new(Notify::new());
        let stopped = Rc::clone(&stop);
        let task = tokio::task::spawn_local(async move {
            run(cfg, async move { stopped.notified().await }).await.unwrap();
        });
        self.osds.insert(id, (task, stop));
    }

    async fn stop_osd(&mut self, id: OsdId) {
        let (task, stop) = self.osds.remove(&id).unwrap();
        stop.notify_one();
        task.await.unwrap();
    }

    fn create_pool(&self, id: PoolId, size: u8, pg_num: u32) {
        self.mon.change(|inc, _| {
            inc.new_pools
                .insert(id, PgPool::replicated(size, size, pg_num, 0));
            inc.new_pool_names.insert(id, format!("pool{id}"));
            inc.new_pool_max = Some(id);
        });
    }
}

struct Client {
    mon: MonClient,
    config: Rc<Config>,
    maps: Rc<RefCell<OsdMap>>,
    links: BTreeMap<EntityAddr, Connection>,
    tid: u64,
}

impl Client {
    async fn new(cluster: &Cluster, name: &str) -> Self {
        let name: AuthName = name.parse().unwrap();
        let entity = EntityName::new(EntityType::CLIENT, -1);
        let config = Rc::new(Config::new(entity, EntityAddrVec::default(), Pool::new(64 << 20)));
        let key = cluster.mon.keys.entities[&name].key.clone();
        let (mon, mut events) = MonClient::start(Options {
            messenger: Rc::clone(&config),
            monitors: vec![cluster.addr],
            name,
            key,
            services: vec![EntityType::OSD],
            rotating: None,
        });
        // The session's task lives as long as somebody listens.
        tokio::task::spawn_local(async move { while events.recv().await.is_some() {} });
        mon.connected(Duration::from_secs(5)).await.unwrap();
        let maps = Rc::new(RefCell::new(cluster.mon.map.borrow().clone()));
        Self {
            mon,
            config,
            maps,
            links: BTreeMap::new(),
            tid: 0,
        }
    }

    async fn call(&mut self, cluster: &Cluster, pool: PoolId, name: &str, ops: Vec<OsdOpIn>) -> MOsdOpReply {
        *self.maps.borrow_mut() = cluster.mon.map.borrow().clone();
        self.tid += 1;
        let oid = ObjectName::from(name);
        let locator = ObjectLocator::pool(pool);
        let (hash, pgid, addr, epoch) = {
            let map = self.maps.borrow();
            let raw = map.object_to_raw_pg(&oid, &locator).unwrap();
            let pgid = map.raw_pg_to_pg(raw).unwrap();
            let primary = map.map_pg(pgid).acting_primary.unwrap();
            (
                raw.seed,
                pgid,
                *map.client_addrs(primary).unwrap().v2().unwrap(),
                map.epoch,
            )
        };
        let op = MOsdOp {
            tid: self.tid,
            spg: SpgId::whole(pgid),
            hash,
            epoch,
            flags: OsdFlags::ONDISK,
            explicit_reqid: Default::default(),
            trace: Default::default(),
            client_inc: 0,
            mtime: UTime::now(),
            locator,
            oid,
            ops,
            snapid: snap::NOSNAP,
            snapc: Default::default(),
            retry_attempt: 0,
            features: u64::MAX,
        };
        if !self.links.contains_key(&addr) {
            let mut login = self.mon.login_at(EntityType::OSD);
            let c = spirula_msgr::connect(addr, EntityType::OSD, &self.config, &mut login)
                .await
                .unwrap();
            self.links.insert(addr, c);
        }
        let c = self.links.get_mut(&addr).unwrap();
        c.sender().send(op.to_message());
        let wait = async {
            loop {
                let m = c.recv().await.unwrap();
                if m.kind() == MsgType::OSD_OP_REPLY && m.header.tid == self.tid {
                    return m.decode().unwrap();
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .expect("no reply")
    }
}

fn extent(code: OpCode, length: u64, data: Bytes) -> Vec<OsdOpIn> {
    vec![OsdOpIn::new(
        code,
        OpArgs::Extent(ExtentArgs {
            length,
            ..ExtentArgs::default()
        }),
        data,
    )]
}

fn write(data: &[u8]) -> Vec<OsdOpIn> {
    extent(OpCode::WRITEFULL, data.len() as u64, Bytes::copy_from_slice(data))
}

fn read() -> Vec<OsdOpIn> {
    extent(OpCode::READ, 0, Bytes::new())
}

fn block_on(f: impl Future<Output = ()>) {
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&rt, f);
}

#[test]
fn objects_survive_a_restart_of_every_daemon_and_strangers_are_refused() {
    block_on(async {
        let mut cluster = Cluster::start("restart").await;
        cluster.create_pool(PoolId::new(1), 3, 8);
        cluster.mon.wait_clean(8).await;
        let mut client = Client::new(&cluster, "client.admin").await;
        let big: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        for i in 0..40 {
            let r = client
                .call(
                    &cluster,
                    PoolId::new(1),
                    &format!("o{i}"),
                    write(format!("data {i}").as_bytes()),
                )
                .await;
            assert_eq!(r.result, 0);
        }
        assert_eq!(
            client
                .call(&cluster, PoolId::new(1), "big", write(&big))
                .await
                .result,
            0
        );
        assert_eq!(
            client.call(&cluster, PoolId::new(1), "big", read()).await.ops[0]
                .data
                .to_bytes(),
            big
        );

        let mut reader = Client::new(&cluster, "client.reader").await;
        assert_eq!(
            reader
                .call(&cluster, PoolId::new(1), "o1", write(b"x"))
                .await
                .result,
            -1
        );
        assert_eq!(
            reader.call(&cluster, PoolId::new(1), "o1", read()).await.ops[0]
                .data
                .to_bytes(),
            "data 1"
        );

        // One after the other: the PGs wait for it, and agree when it is back.
        for id in 0..3 {
            cluster.stop_osd(OsdId::new(id)).await;
            cluster.mon.mark_down(OsdId::new(id));
            cluster.mon.clean.set(0);
            cluster.start_osd(OsdId::new(id));
            cluster.mon.wait_clean(8).await;
        }
        for i in 0..40 {
            let r = client
                .call(&cluster, PoolId::new(1), &format!("o{i}"), read())
                .await;
            assert_eq!(r.ops[0].data.to_bytes(), format!("data {i}"));
        }
        assert_eq!(
            client.call(&cluster, PoolId::new(1), "big", read()).await.ops[0]
                .data
                .to_bytes(),
            big
        );
        assert_eq!(
            client.call(&cluster, PoolId::new(1), "none", read()).await.result,
            -2
        );
        for id in 0..3 {
            cluster.stop_osd(OsdId::new(id)).await;
        }
        std::fs::remove_dir_all(&cluster.dir).unwrap();
    });
}

#[test]
fn how_full_it_is_an_osd_tells_on_each_new_session() {
    block_on(async {
        let mut cluster = Cluster::start("room").await;
        let mon = Rc::clone(&cluster.mon);
        for _ in 0..2 {
            // That there is room is news as well: earlier reports may have been lost with the
            // session.
            let all_told = |m: &Monitor| m.fullness.borrow().len() >= 3;
            mon.wait(all_told, "not every OSD says how full it is").await;
            assert_eq!(mon.fullness.take(), [Fullness::NONE; 3]);
            mon.sessions.take().iter().for_each(Sender::close);
        }
        for id in 0..3 {
            cluster.stop_osd(OsdId::new(id)).await;
        }
        std::fs::remove_dir_all(&cluster.dir).unwrap();
    });
}
