//! Messages of sessions.

use spirula_cephx::Env;
use spirula_denc::UTime;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::Epoch;
use spirula_proto::mon::{
    MAuth, MAuthReply, MCommand, MCommandReply, MConfig, MGetConfig, MMonCommand, MMonCommandAck,
    MMonGetVersion, MMonGetVersionReply, MMonMap, MMonSubscribe, MMonSubscribeAck, MPing, MStatfs,
    MStatfsReply, PaxosVersion,
};
use spirula_proto::{Blob, MsgType, Payload, RawMessage};

use super::message::{Message, Received};
use super::ops::{DISPATCHED, PROPOSED};
use super::session::{NewSession, Session, SessionId, Sub};
use super::write::Change;
use super::{DropReason, Fate, Monitor, Output, Topic, View, Waiter};
use crate::command::{self, Outcome, Parsed, Reply};

/// The most writes that may wait for their turn; an entity may have as many as it leaves free for
/// others. Honest clients wait for answers and stay far below.
const MAX_WAITING: usize = 4096;
/// Longest name of a client's host, in bytes.
const MAX_HOST: usize = 256;
/// Subscriptions of one session.
const MAX_SUBSCRIPTIONS: usize = 64;

/// The feature of clients that renew subscriptions by themselves (`CEPH_FEATURE_MON_STATEFUL_SUB`).
const MON_STATEFUL_SUB: u64 = spirula_maps::features::MON_STATEFUL_SUB;

/// Answers that only need the monitor's state.
impl View {
    fn version_of(&self, m: &MMonGetVersion) -> RawMessage {
        let versions = Topic::parse(&m.what).and_then(|topic| self.state.versions(&topic));
        let versions = versions.unwrap_or(Epoch::NONE..=Epoch::NONE);
        let reply = MMonGetVersionReply {
            handle: m.handle,
            version: (*versions.end()).into(),
            oldest_version: (*versions.start()).into(),
        };
        reply.to_message()
    }

    fn config_of(&self, m: &MGetConfig) -> RawMessage {
        let kind = spirula_denc::EntityType(u8::try_from(m.name.kind).unwrap_or(0));
        let config = self
            .state
            .config
            .for_daemon(kind.name(), &m.name.id, &m.host, &m.device_class);
        MConfig { config }.to_message()
    }

    fn statfs(&self, m: &MStatfs) -> RawMessage {
        let reply = MStatfsReply {
            fsid: self.me.fsid,
            version: self.state.stats.version(),
            st: self.state.stats.statfs(&self.state.osd.map, m.data_pool),
        };
        reply.to_message()
    }

    /// Renews a session's tickets.
    fn renew(&mut self, id: SessionId, m: &MAuth) -> RawMessage {
        let Some(s) = self.sessions.get_mut(&id) else {
            impossible!("the session that renews its tickets"; session = id);
        };
        let reply = s
            .handshake
            .handle_auth(&m.payload, &self.state.auth, &Env::system(self.now));
        let msg = MAuthReply {
            protocol: m.protocol,
            result: reply.result,
            global_id: s.global_id,
            payload: reply.payload.into(),
            message: String::new(),
        };
        msg.to_message()
    }
}

impl Monitor {
    /// Opens a session that has authenticated.
    pub fn open(&mut self, id: SessionId, new: NewSession, now: UTime) {
        self.view.see_time(now);
        let session = Session::new(new);
        if let Some(osd) = session.osd() {
            self.view.state.osd.seen(osd, self.view.steady.now());
        }
        let is_other = !self.view.state.manager.sessions.contains_key(&id);
        invariant!(is_other, "a session with a number of its own"; session = id);
        self.view.sessions.insert(id, session);
    }

    /// Closes a session that has ended.
    pub fn close(&mut self, id: SessionId, now: UTime) {
        self.view.see_time(now);
        self.view.state.manager.sessions.remove(&id);
        self.pending.forget(id);
        let Some(session) = self.view.sessions.remove(&id) else {
            return; // It was one with the manager.
        };
        if let Some(osd) = session.osd()
            && !self.view.sessions.values().any(|s| s.osd() == Some(osd))
        {
            self.view.state.osd.lost(osd, self.view.steady.now());
        }
    }

    /// Handles a message on a session. A malformed one ends it.
    pub fn message(&mut self, id: SessionId, msg: RawMessage, now: UTime) {
        self.view.see_time(now);
        let handled = if self.view.state.manager.sessions.contains_key(&id) {
            if !self.view.quorum.leads() {
                return self.out.push(Output::Close(id));
            }
            self.mgr_dispatch(id, msg)
        } else {
            self.route(id, msg)
        };
        if let Err(e) = handled {
            let who = self
                .view
                .sender(id)
                .map(|s| s.name.to_string())
                .unwrap_or_default();
            tracing::warn!("{who}: {e}");
            self.out.push(Output::Close(id));
        }
        self.pump();
    }

    pub(super) fn dispatch(&mut self, id: SessionId, received: Received) {
        let now = self.view.steady_time();
        self.pending.mark(id, received.answer(), DISPATCHED, now);
        let Received { tid, message } = received;
        match message {
            Message::Subscribe(m) => self.subscribe(id, m),
            Message::GetMap => {
                let reply = MMonMap {
                    monmap: Blob::of(&self.view.state.monmap.map),
                };
                self.send(id, reply.to_message());
            }
            Message::GetVersion(m) => self.send(id, self.view.version_of(&m).with_tid(tid)),
            Message::GetOsdMaps(m) => {
                let (full, inc) = (m.full_first..=m.full_last, m.inc_first..=m.inc_last);
                if let Some(reply) = self.view.state.osd.ranges_message(full, inc) {
                    self.send(id, reply);
                }
            }
            Message::GetConfig(m) => self.send(id, self.view.config_of(&m).with_tid(tid)),
            Message::Auth(m) => {
                let reply = self.view.renew(id, &m);
                self.send(id, reply);
            }
            Message::Ping => {
                let text = command::ping_text(&self.view);
                self.send(id, MPing::reply(&text));
            }
            Message::Statfs(m) => self.send(id, self.view.statfs(&m).with_tid(tid)),
            Message::GetPoolStats(m) => self.send(id, self.view.pool_stats(&m).with_tid(tid)),
            Message::Log(m) => {
                if let Some(ack) = self.client_log.take(&mut self.view, id, m) {
                    self.send(id, ack.to_message());
                }
            }
            Message::Command(m, parsed) if command::is_write(&parsed) => {
                self.write(id, tid, Change::Command(m, parsed));
            }
            Message::Command(m, parsed) => self.run_command(id, tid, m, parsed),
            Message::Tell(m) => self.tell(id, tid, &m),
            Message::PoolOp(m) => self.write(id, tid, Change::PoolOp(m)),
            Message::Report(report) => self.osd_report(id, tid, report),
            Message::ImageIo(report) => self.image_io_report(id, report),
            Message::Other(kind) => tracing::debug!("ignored message {kind}"),
        }
    }

    /// Prepares a change now or when its turn comes.
    pub(super) fn write(&mut self, id: SessionId, tid: u64, change: Change) {
        let entity = self.view.entity_of(id);
        if self.queue.of(&entity) >= MAX_WAITING.saturating_sub(self.queue.len()) {
            tracing::warn!("{entity} writes faster than the log");
            return self.out.push(Output::Close(id));
        }
        invariant!(self.view.quorum.leads(), "a change at the leader"; session = id, term = self.view.term);
        if self.may_write() {
            self.change(id, tid, change)
        } else {
            self.enqueue(id, tid, change)
        }
    }

    /// Prepares a change that has its turn. If the session has ended meanwhile, nobody waits for
    /// it.
    pub(super) fn change(&mut self, id: SessionId, tid: u64, change: Change) {
        let is_open = match change {
            Change::ManagerCommand(_) => self.view.state.manager.sessions.contains_key(&id),
            _ => self.view.sessions.contains_key(&id),
        };
        if !is_open {
            return dropped!(self.dropped, DropReason::SessionGone; session = id);
        }
        match change {
            Change::Command(m, parsed) => self.run_command(id, tid, m, parsed),
            Change::ManagerCommand(command) => self.run_mgr_command(id, tid, command),
            Change::PoolOp(m) => self.pool_op(id, tid, &m),
            Change::Report(report) => self.osd_write(id, tid, report),
        }
    }

    fn subscribe(&mut self, id: SessionId, m: MMonSubscribe) {
        let Some(s) = self.view.sessions.get_mut(&id) else {
            impossible!("the session that subscribes"; session = id);
        };
        if !m.hostname.is_empty() {
            s.host = spirula_text::cut(m.hostname, MAX_HOST);
        }
        let stateful = s.features & MON_STATEFUL_SUB == MON_STATEFUL_SUB;
        let mut topics = Vec::new();
        for (name, sub) in m.what {
            // As in Ceph, unknown topics are skipped.
            let Some(topic) = Topic::parse(&name) else {
                tracing::debug!("{}: a subscription to nothing that there is", s.name);
                continue;
            };
            let has_room = s.subs.len() < MAX_SUBSCRIPTIONS || s.subs.contains_key(&topic);
            let service = topic.service();
            if !has_room || service.is_some_and(|service| !s.caps.is_allowed_service(service, "r")) {
                continue;
            }
            // A client sees the log once: at the level that it asked for last.
            if matches!(topic, Topic::Log(_)) {
                s.subs
                    .retain(|other, _| !matches!(other, Topic::Log(_)) || *other == topic);
            }
            let sub = Sub {
                next: sub.start,
                onetime: sub.is_onetime(),
                ends: None,
            };
            s.subs.insert(topic.clone(), sub);
            topics.push(topic);
        }
        if !stateful {
            let ack = MMonSubscribeAck {
                interval: 86_400,
                fsid: self.view.me.fsid,
            };
            self.send(id, ack.to_message());
        }
        for topic in topics {
            self.push(id, &topic);
        }
    }

    fn run_command(&mut self, id: SessionId, tid: u64, m: MMonCommand, parsed: Parsed) {
        let outcome = command::run(self, id, parsed, &m.input.to_bytes());
        let ack = move |view: &View, reply: Reply| {
            MMonCommandAck {
                paxos: PaxosVersion(u64::from(view.state.osd.map.epoch)),
                result: reply.code,
                status: reply.status,
                cmd: m.cmd,
                output: reply.data.into(),
            }
            .to_message()
            .with_tid(tid)
        };
        match outcome {
            Outcome::Now(reply) => {
                let msg = ack(&self.view, reply);
                self.send(id, msg);
            }
            Outcome::Commit(reply) => {
                let (answer, now) = ((MsgType::MON_COMMAND_ACK, tid), self.view.steady_time());
                self.pending.mark(id, Some(answer), PROPOSED, now);
                let make = Box::new(move |view: &View, fate: Fate| ack(view, fate.reply(reply)));
                self.writes.waiters.push(Waiter { session: id, make });
            }
            Outcome::Ask(question) => self.ask_module(id, *question, Box::new(ack)),
        }
    }

    fn tell(&mut self, id: SessionId, tid: u64, m: &MCommand) {
        let reply = command::tell(self, id, &m.cmd);
        let msg = MCommandReply {
            result: reply.code,
            status: reply.status,
            output: reply.data.into(),
        };
        self.send(id, msg.to_message().with_tid(tid));
    }
}
