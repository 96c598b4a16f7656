//! The manager: Ceph's own daemon beside the monitors, here a part of the monitor that leads, with
//! an endpoint of its own.
//!
//! The monitors answer the manager's commands themselves, but librados sends some to a manager
//! only, and waits for one. So the leader puts itself into the manager map (`MgrMap` of Ceph's
//! `src/mon/MgrMap.h`; stored encoded as `mgr/map`), and serves the same commands there, under the
//! capabilities that clients have at managers. Work of its modules that needs a client of the
//! cluster is done elsewhere (`module.rs`). Daemons that report to a manager are told how often to;
//! registered services are remembered (`services.rs`), other reports are left unread, as our own
//! daemons report to the monitors.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use spirula_cephx::caps::{MgrCap, MgrRequest};
use spirula_cephx::{AuthName, KeyServer};
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, Fsid, encode_to_vec};
use spirula_invariant::invariant;
use spirula_maps::{Epoch, features::release};
use spirula_proto::mgr::{MMgrClose, MMgrConfigure, MMgrMap, MMgrOpen, MMgrReport, MServiceMap, MgrMap};
use spirula_proto::mon::{MCommand, MCommandReply, MMgrCommand, MMgrCommandReply, NamedEntity};
use spirula_proto::{MsgType, Payload, RawMessage};

use super::module::Module;
use super::rights::{ORIGIN, Origins};
use super::write::Change;
use super::{Effect, Fate, LoadError, Monitor, Output, SessionId, Topic, Turn, View, Waiter};
use crate::caps::{MonCap, access};
use crate::command::{self, Outcome, Parsed, Reply};
use crate::kv::Txn;
use crate::service::{Published, Service, Source, stored};
use crate::services::{self, Services};

pub(super) const SERVICE: &str = "mgr";
const KEY: &str = "map";
const SERVICES: &str = "services";

/// Seconds between the reports of a daemon (`mgr_stats_period`).
const STATS_PERIOD: u32 = 5;
/// The priority of the counters in these reports (`mgr_stats_threshold`).
const STATS_THRESHOLD: u32 = 5;

/// The modules of Ceph's manager whose whole work is always done here.
pub(crate) const MODULES: [&str; 5] = ["crash", "iostat", "progress", spirula_manager::MODULE, "status"];

fn always_on_modules() -> BTreeMap<u32, BTreeSet<String>> {
    let modules = MODULES.iter().map(|m| (*m).to_owned()).collect();
    BTreeMap::from([(release::PACIFIC.into(), modules)])
}

/// A session with the manager.
#[derive(Debug)]
pub struct MgrSession {
    name: AuthName,
    global_id: u64,
    addr: EntityAddr,
    ip: Option<IpAddr>,
    cap: MgrCap,
}

impl MgrSession {
    /// A session from the results of a handshake. `caps` that can't be read allow nothing.
    pub fn new(name: AuthName, global_id: u64, caps: &str, addr: EntityAddr, ip: Option<IpAddr>) -> Self {
        let cap = MgrCap::parse(caps).unwrap_or_else(|e| {
            tracing::warn!("{name}: {e}");
            MgrCap::default()
        });
        Self {
            name,
            global_id,
            addr,
            ip,
            cap,
        }
    }

    /// Whether a command is allowed: of the manager itself, or of one of its modules.
    pub(crate) fn is_allowed(
        &self,
        (service, module): (&str, &str),
        command: &str,
        args: &[(String, String)],
        perm: &str,
    ) -> bool {
        let args = args.iter().cloned().collect();
        self.cap.is_capable(&MgrRequest {
            name: &self.name,
            service,
            module,
            command,
            args: &args,
            access: access(perm),
            addr: self.ip,
        })
    }

    /// The information for a module of the manager on the session that runs a command.
    pub(crate) fn holder(&self, perm: &str) -> spirula_manager::Holder {
        spirula_manager::Holder {
            name: self.name.clone(),
            cap: self.cap.clone(),
            ip: self.ip,
            access: access(perm),
        }
    }

    /// Whether the session may do everything.
    pub(crate) fn is_allowed_all(&self) -> bool {
        self.cap.is_allow_all()
    }

    fn entity(&self) -> EntityName {
        EntityName::new(self.name.kind, i64::try_from(self.global_id).unwrap_or(0))
    }
}

/// The sender of a command to the monitor or to the manager.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    pub(crate) name: AuthName,
    pub(crate) entity: EntityName,
    pub(crate) addr: EntityAddr,
}

impl Sender {
    /// The name in lines of the cluster log.
    pub(super) fn named(&self) -> NamedEntity {
        NamedEntity {
            kind: u32::from(self.name.kind.0),
            id: self.name.id.clone(),
        }
    }
}

/// A command for the manager.
#[derive(Debug)]
pub(super) struct ManagerCommand {
    /// The kind of its message: clients have two.
    kind: MsgType,
    parsed: Parsed,
    input: Bytes,
}

impl ManagerCommand {
    fn new(kind: MsgType, cmd: &[String], input: Bytes) -> Self {
        let parsed = command::parse(cmd);
        Self { kind, parsed, input }
    }
}

/// The manager's state.
#[derive(Debug)]
pub struct Manager {
    /// The addresses at which this monitor would be the manager; empty for none.
    own: EntityAddrVec,
    /// The committed map.
    pub(crate) map: MgrMap,
    pub(crate) sessions: BTreeMap<SessionId, MgrSession>,
    pub(crate) module: Module,
    pub(crate) services: Services,
    pub(super) origins: Origins,
}

impl Service for Manager {
    const NAMES: &'static [&'static str] = &[SERVICE];

    fn load(from: Source<'_>) -> Result<Self, LoadError> {
        let none = MgrMap {
            epoch: Epoch::new(1),
            ..MgrMap::default()
        };
        let mut manager = Self {
            own: from.me.mgr_addrs.clone(),
            map: none,
            sessions: BTreeMap::new(),
            module: Module::default(),
            services: Services::new(),
            origins: Origins::default(),
        };
        manager.reload(from)?;
        Ok(manager)
    }

    /// Sessions and modules stay.
    fn reload(&mut self, from: Source<'_>) -> Result<(), LoadError> {
        self.origins.reload();
        for (key, value) in from.kv.scan(SERVICE)? {
            self.apply(SERVICE, &key, Some(&value))?;
        }
        Ok(())
    }

    fn apply(&mut self, _: &str, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        match (key, value) {
            (KEY, Some(value)) => self.map = stored("manager map", value)?,
            (SERVICES, Some(value)) => self.services.map = stored("service map", value)?,
            _ => {
                if let Some(key) = key.strip_prefix(ORIGIN) {
                    self.origins.apply(key, value)?;
                }
            }
        }
        Ok(())
    }

    fn publish(&self, topic: &Topic, next: u64) -> Option<Published> {
        match topic {
            Topic::MgrMap => Published::newest(next, self.map.epoch, || {
                let map = self.map.clone();
                MMgrMap { map }.to_message()
            }),
            Topic::ServiceMap => Published::newest(next, self.services.map.epoch, || {
                let map = self.services.map.clone();
                MServiceMap { map }.to_message()
            }),
            _ => None,
        }
    }
}

/// The reply to a command, in the message that fits the command's.
fn reply_message(kind: MsgType, tid: u64, reply: Reply) -> RawMessage {
    let (result, status, output) = (reply.code, reply.status, reply.data.into());
    let msg = if kind == MsgType::MGR_COMMAND {
        MMgrCommandReply {
            result,
            status,
            output,
        }
        .to_message()
    } else {
        MCommandReply {
            result,
            status,
            output,
        }
        .to_message()
    };
    msg.with_tid(tid)
}

impl View {
    /// The peer of a session with the monitor or the manager.
    pub(crate) fn sender(&self, id: SessionId) -> Option<Sender> {
        if let Some(s) = self.sessions.get(&id) {
            return Some(Sender {
                name: s.name.clone(),
                entity: s.entity(),
                addr: s.addr,
            });
        }
        let s = self.state.manager.sessions.get(&id)?;
        Some(Sender {
            name: s.name.clone(),
            entity: s.entity(),
            addr: s.addr,
        })
    }

    fn service_clocks(&self) -> services::Now {
        services::Now {
            steady: self.steady.now(),
            wall: self.now,
        }
    }

    /// Whether a session with the manager may register services: it may write `service` at the
    /// manager, or at the monitors, as gateways and mirrors mostly have capabilities there alone.
    /// In Ceph every session may.
    fn may_register(&self, id: SessionId) -> bool {
        let Some(s) = self.state.manager.sessions.get(&id) else {
            return false;
        };
        let at_monitors = || {
            let entity = self.state.auth.lookup(&s.name)?;
            let caps = MonCap::parse(entity.caps.get("mon")?, s.name.clone(), s.ip);
            Some(caps.is_allowed_service("service", "w"))
        };
        s.is_allowed(("service", ""), "", &[], "w") || at_monitors() == Some(true)
    }

    fn open_service(&mut self, id: SessionId, open: MMgrOpen) {
        let now = self.service_clocks();
        let Some(what) = open.service else {
            return; // Clients that are no services report too.
        };
        if !self.may_register(id) {
            let name = self.state.manager.sessions.get(&id).map(|s| s.name.to_string());
            tracing::info!("{} may not register services", name.unwrap_or_default());
            return; // Its reports are not taken either.
        }
        if let Some(s) = self.state.manager.sessions.get(&id) {
            let key = services::Key {
                service: open.service_name,
                daemon: open.daemon_name,
            };
            let client = services::Client {
                name: &s.name,
                gid: s.global_id,
                addr: s.addr,
            };
            self.state.manager.services.register(key, what, client, now);
        }
    }

    /// Handles a report to the manager. Daemons other than services report to the monitors, and the
    /// counters of clients are used by nothing. Returns whether the session may go on.
    fn service_report(&mut self, id: SessionId, report: MMgrReport) -> spirula_proto::Result<bool> {
        let now = self.service_clocks();
        // One that may not register would only come again, and again.
        if report.service_name.is_empty() || !self.may_register(id) {
            return Ok(true);
        }
        let gid = self.state.manager.sessions.get(&id).map_or(0, |s| s.global_id);
        self.state.manager.services.report(report, gid, now)
    }

    /// Commits the changes of the services.
    pub(super) fn review_services(&mut self, txn: &mut Txn) {
        let grace = self.values.float("mgr_service_beacon_grace").max(0.0);
        let (grace, now) = (Duration::from_secs_f64(grace.min(1e9)), self.service_clocks());
        if let Some(map) = self.state.manager.services.review(grace, now) {
            txn.put(SERVICE, SERVICES, encode_to_vec(&map));
        }
    }
}

impl Turn<'_> {
    /// Takes the manager out of the map.
    pub(crate) fn fail_manager(&mut self) {
        let none = MgrMap {
            epoch: self.view.state.manager.map.epoch.next(),
            last_failure_osd_epoch: self.shut_manager_out(),
            ..MgrMap::default()
        };
        self.changes.txn.put(SERVICE, KEY, encode_to_vec(&none));
        self.effect(Effect::StopManager);
    }
}

impl Monitor {
    /// Opens a session that has authenticated with the manager.
    pub fn open_mgr(&mut self, id: SessionId, session: MgrSession) {
        let is_other = !self.view.sessions.contains_key(&id);
        invariant!(is_other, "a session with a number of its own"; session = id);
        self.view.state.manager.sessions.insert(id, session);
    }

    /// Puts the leading monitor into the manager map with the client of its modules, unless it is
    /// there, and starts the modules.
    pub(super) fn claim_manager(&mut self) {
        if self.view.state.manager.own.0.is_empty() {
            return; // This monitor is no manager.
        }
        if !self.view.state.manager.module.is_off() {
            return self.start_module();
        }
        if !self.view.state.manager.module.may_start(self.view.steady.now()) {
            return; // They ended too often lately.
        }
        let Some((active_gid, clients)) = self
            .view
            .state
            .auth
            .new_global_id()
            .zip(self.view.new_client_addresses())
        else {
            return; // The ids are used up: more come with the next change.
        };
        let last_failure_osd_epoch = self.turn(|turn| turn.shut_manager_out());
        let (own, map) = (&self.view.state.manager.own, &self.view.state.manager.map);
        let next = MgrMap {
            epoch: map.epoch.next(),
            active_addrs: own.clone(),
            active_gid,
            available: true,
            active_name: self.view.me.name.clone(),
            active_change: self.view.now,
            active_features: spirula_maps::features::PACIFIC_ALL,
            last_failure_osd_epoch,
            client_names: vec![spirula_manager::MODULE.to_owned(); clients.len()],
            client_addrs: clients.iter().copied().map(EntityAddrVec::from).collect(),
            always_on_modules: always_on_modules(),
            ..MgrMap::default()
        };
        self.view.state.manager.module.claim(active_gid, clients);
        self.changes.txn.put(SERVICE, KEY, encode_to_vec(&next));
    }

    /// Stops the manager of this monitor: its modules, and the sessions with it.
    pub(super) fn stop_manager(&mut self) {
        self.stop_module();
        let sessions = self.view.state.manager.sessions.keys();
        self.out.extend(sessions.map(|id| Output::Close(*id)));
    }

    /// Handles a message to the manager.
    pub(super) fn mgr_dispatch(&mut self, id: SessionId, msg: RawMessage) -> spirula_proto::Result<()> {
        match msg.kind() {
            MsgType::MGR_COMMAND => {
                let m: MMgrCommand = msg.decode()?;
                let command = ManagerCommand::new(msg.kind(), &m.cmd, m.input.to_bytes());
                self.mgr_command(id, msg.header.tid, command);
            }
            MsgType::COMMAND => {
                let m: MCommand = msg.decode()?;
                // Clients from before 15 leave the cluster out when they mean the manager's
                // commands.
                if m.fsid == Fsid::default() {
                    let command = ManagerCommand::new(msg.kind(), &m.cmd, m.input.to_bytes());
                    self.mgr_command(id, msg.header.tid, command);
                } else {
                    let reply = command::tell_mgr(self, id, &m.cmd);
                    self.send(id, reply_message(MsgType::COMMAND, msg.header.tid, reply));
                }
            }
            MsgType::MGR_OPEN => {
                self.view.open_service(id, msg.decode()?);
                let configure = MMgrConfigure {
                    stats_period: STATS_PERIOD,
                    stats_threshold: STATS_THRESHOLD,
                    queries: MMgrConfigure::NO_QUERIES,
                };
                self.send(id, configure.to_message());
            }
            MsgType::MGR_CLOSE => {
                let close: MMgrClose = msg.decode()?;
                self.send(id, close.to_message());
                let key = services::Key {
                    service: close.service_name,
                    daemon: close.daemon_name,
                };
                if let Some(s) = self.view.state.manager.sessions.get(&id) {
                    self.view.state.manager.services.end(&key, s.global_id);
                }
            }
            MsgType::MGR_REPORT => {
                if !self.view.service_report(id, msg.decode()?)? {
                    self.out.push(Output::Close(id));
                }
            }
            other => tracing::debug!("the manager ignored message {other}"),
        }
        Ok(())
    }

    fn mgr_command(&mut self, id: SessionId, tid: u64, command: ManagerCommand) {
        if command::is_write(&command.parsed) {
            self.write(id, tid, Change::ManagerCommand(command));
        } else {
            self.run_mgr_command(id, tid, command);
        }
    }

    /// Runs a command to the manager; a command that writes must have its turn.
    pub(super) fn run_mgr_command(&mut self, id: SessionId, tid: u64, command: ManagerCommand) {
        let ManagerCommand { kind, parsed, input } = command;
        match command::run_mgr(self, id, parsed, &input) {
            Outcome::Now(reply) => self.send(id, reply_message(kind, tid, reply)),
            Outcome::Commit(reply) => {
                let make = Box::new(move |_: &View, fate: Fate| reply_message(kind, tid, fate.reply(reply)));
                self.writes.waiters.push(Waiter { session: id, make });
            }
            Outcome::Ask(question) => {
                let compose = Box::new(move |_: &View, reply| reply_message(kind, tid, reply));
                self.ask_module(id, *question, compose);
            }
        }
    }
}
