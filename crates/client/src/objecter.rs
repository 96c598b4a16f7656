//! Requests to OSDs: finds the primary of each object, sends, and sends again whenever the map or a lost session
//! makes that necessary, until there is an answer.

use std::collections::BTreeMap;
use std::rc::Rc;

use spirula_denc::{EntityAddr, UTime};
use spirula_maps::{Incremental, MappingCache, OsdMap, PgId, SpgId};
use spirula_monc::MonClient;
use spirula_msgr::Config;
use spirula_proto::mon::{MCommand, MCommandReply, MOsdMap};
use spirula_proto::osd::{MOsdOp, MOsdOpReply, OsdFlags};
use spirula_proto::{MsgType, Payload, RawMessage};
use tokio::sync::{mpsc, oneshot};

use crate::osd_session::{Event, OsdSessions};

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    pg: PgId,
    osd: i32,
    addr: EntityAddr,
    /// Of the whole acting set: another one is another interval, to which the request is sent again.
    acting: Vec<i32>,
    pg_num: u32,
}

/// How the PG of a request is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// By the object's name and locator.
    Object,
    /// This PG (listing).
    Pg(PgId),
}

struct Pending {
    op: MOsdOp,
    aim: Aim,
    target: Option<Target>,
    sent: bool,
    attempts: i32,
    answer: oneshot::Sender<Outcome>,
}

/// How a request ended: an answer, or a negative errno without one.
pub(crate) type Outcome = Result<MOsdOpReply, i32>;

struct PendingCommand {
    osd: i32,
    msg: MCommand,
    sent: bool,
    answer: oneshot::Sender<Result<MCommandReply, i32>>,
}

/// The state behind a [`crate::Rados`].
pub(crate) struct Objecter {
    map: Option<Rc<OsdMap>>,
    mappings: MappingCache,
    sessions: OsdSessions,
    last_tid: u64,
    pending: BTreeMap<u64, Pending>,
    commands: BTreeMap<u64, PendingCommand>,
    monc: MonClient,
    /// The epoch that waiters wait for, and who they are.
    waiters: Vec<(u32, oneshot::Sender<()>)>,
}

impl Objecter {
    pub(crate) fn new(config: Rc<Config>, monc: MonClient, events: mpsc::UnboundedSender<Event>) -> Self {
        Self {
            map: None,
            mappings: MappingCache::new(),
            sessions: OsdSessions::new(config, monc.clone(), events),
            last_tid: 0,
            pending: BTreeMap::new(),
            commands: BTreeMap::new(),
            monc,
            waiters: Vec::new(),
        }
    }

    /// The newest map, `None` before the first.
    pub(crate) fn map(&self) -> Option<Rc<OsdMap>> {
        self.map.clone()
    }

    fn epoch(&self) -> u32 {
        self.map.as_ref().map_or(0, |m| m.epoch)
    }

    /// Asks for maps newer than ours; for a full one first, where there is none to apply incrementals to.
    fn want_map(&self) {
        let start = self.map.as_ref().map_or(0, |m| u64::from(m.epoch) + 1);
        self.monc.subscribe("osdmap", start);
    }

    /// Told when the map is at `epoch` or later.
    pub(crate) fn wait_for_map(&mut self, epoch: u32) -> oneshot::Receiver<()> {
        let (told, wait) = oneshot::channel();
        self.waiters.push((epoch, told));
        if self.epoch() < epoch {
            self.want_map();
        }
        self.tell_waiters();
        wait
    }

    fn tell_waiters(&mut self) {
        let epoch = self.epoch();
        for (_, told) in self.waiters.extract_if(.., |(wanted, _)| *wanted <= epoch) {
            // Whoever waited may have given up.
            let _ = told.send(());
        }
    }

    /// Sends a request; its tid, epoch, PG and attempt are filled in here.
    pub(crate) fn submit(&mut self, op: MOsdOp, aim: Aim) -> oneshot::Receiver<Outcome> {
        let (answer, receiver) = oneshot::channel();
        self.last_tid += 1;
        let pending = Pending {
            op,
            aim,
            target: None,
            sent: false,
            attempts: 0,
            answer,
        };
        self.pending.insert(self.last_tid, pending);
        self.aim(self.last_tid);
        receiver
    }

    /// Sends a command to an OSD.
    pub(crate) fn command(
        &mut self,
        osd: i32,
        msg: MCommand,
    ) -> oneshot::Receiver<Result<MCommandReply, i32>> {
        let (answer, receiver) = oneshot::channel();
        self.last_tid += 1;
        self.commands.insert(
            self.last_tid,
            PendingCommand {
                osd,
                msg,
                sent: false,
                answer,
            },
        );
        self.send_command(self.last_tid);
        receiver
    }

    fn send_command(&mut self, tid: u64) {
        let Some(map) = self.map.clone() else { return };
        let Some(pending) = self.commands.get_mut(&tid) else {
            return;
        };
        let Some(addr) = address(&map, pending.osd) else {
            if let Some(pending) = self.commands.remove(&tid) {
                let errno = if map.exists(pending.osd) {
                    -crate::errno::ENXIO
                } else {
                    -crate::errno::ENOENT
                };
                let _ = pending.answer.send(Err(errno));
            }
            return;
        };
        pending.sent = self
            .sessions
            .send(pending.osd, addr, pending.msg.to_message().with_tid(tid));
    }

    /// Works out where a request goes now, and sends it if that changed or it never went out.
    fn aim(&mut self, tid: u64) {
        let Some(map) = self.map.clone() else { return };
        let Some(pending) = self.pending.get_mut(&tid) else {
            return;
        };
        let raw = match pending.aim {
            Aim::Object => map.object_to_raw_pg(&pending.op.oid, &pending.op.locator),
            Aim::Pg(pg) => Some(pg),
        };
        let (Some(raw), Some(pool)) = (raw, map.pool(pending.op.locator.pool)) else {
            // No such pool in the newest map we have.
            if let Some(pending) = self.pending.remove(&tid) {
                let _ = pending.answer.send(Err(-crate::errno::ENOENT));
            }
            return;
        };
        let pg = pool.raw_pg_to_pg(raw);
        let mapping = self.mappings.get(&map, pg);
        let target = address(&map, mapping.acting_primary).map(|addr| Target {
            pg,
            osd: mapping.acting_primary,
            addr,
            acting: mapping.acting.clone(),
            pg_num: pool.pg_num,
        });
        pending.op.spg = SpgId::whole(pg);
        pending.op.hash = raw.seed;
        if pending.target != target {
            pending.target = target;
            pending.sent = false;
        }
        self.send(tid);
    }

    fn send(&mut self, tid: u64) {
        let epoch = self.epoch();
        let Some(pending) = self.pending.get_mut(&tid) else {
            return;
        };
        let Some(target) = pending.target.as_ref().filter(|_| !pending.sent) else {
            return;
        };
        pending.op.tid = tid;
        pending.op.epoch = epoch;
        pending.op.retry_attempt = pending.attempts;
        if self
            .sessions
            .send(target.osd, target.addr, pending.op.to_message())
        {
            pending.sent = true;
            pending.attempts += 1;
            pending.op.flags |= OsdFlags::RETRY;
        }
    }

    /// An event of an OSD session.
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Up(osd) => {
                let to_it = |p: &Pending| p.target.as_ref().is_some_and(|t| t.osd == osd) && !p.sent;
                let tids: Vec<u64> = self
                    .pending
                    .iter()
                    .filter(|(_, p)| to_it(p))
                    .map(|(t, _)| *t)
                    .collect();
                tids.into_iter().for_each(|tid| self.send(tid));
                let waiting = |p: &PendingCommand| p.osd == osd && !p.sent;
                let tids: Vec<u64> = self
                    .commands
                    .iter()
                    .filter(|(_, p)| waiting(p))
                    .map(|(t, _)| *t)
                    .collect();
                tids.into_iter().for_each(|tid| self.send_command(tid));
            }
            Event::Down(osd) => {
                for p in self
                    .pending
                    .values_mut()
                    .filter(|p| p.target.as_ref().is_some_and(|t| t.osd == osd))
                {
                    p.sent = false;
                }
                for p in self.commands.values_mut().filter(|p| p.osd == osd) {
                    p.sent = false;
                }
                // The session comes back by itself unless the map says that the OSD is gone or elsewhere.
                self.want_map();
            }
            Event::Message(msg) => self.handle_message(&msg),
        }
    }

    /// A message from an OSD, or a map from a monitor.
    pub(crate) fn handle_message(&mut self, msg: &RawMessage) {
        let handled = match msg.kind() {
            MsgType::OSD_OP_REPLY => msg.decode().map(|reply| self.handle_reply(reply)),
            MsgType::OSD_MAP => msg.decode().map(|maps| self.handle_maps(&maps)),
            MsgType::COMMAND_REPLY => msg.decode().map(|reply| {
                if let Some(pending) = self.commands.remove(&msg.header.tid) {
                    let _ = pending.answer.send(Ok(reply));
                }
            }),
            other => {
                tracing::debug!("unexpected {other}");
                Ok(())
            }
        };
        if let Err(e) = handled {
            tracing::error!("{e}");
        }
    }

    fn handle_reply(&mut self, reply: MOsdOpReply) {
        let Some(pending) = self.pending.get_mut(&reply.tid) else {
            return;
        };
        if reply.retry_attempt >= 0 && reply.retry_attempt != pending.attempts - 1 {
            tracing::debug!("answer to an earlier attempt of {}", reply.tid);
            return;
        }
        if let Some(redirect) = &reply.redirect {
            pending.op.locator = redirect.locator.clone();
            pending.op.oid = redirect.oid.clone();
            pending.sent = false;
            self.aim(reply.tid);
            return;
        }
        if reply.result == -crate::errno::EAGAIN {
            // The OSD asks for another attempt, under a new tid.
            let Some(mut pending) = self.pending.remove(&reply.tid) else {
                return;
            };
            self.last_tid += 1;
            (pending.sent, pending.attempts) = (false, 0);
            self.pending.insert(self.last_tid, pending);
            self.aim(self.last_tid);
            return;
        }
        if let Some(pending) = self.pending.remove(&reply.tid) {
            let _ = pending.answer.send(Ok(reply));
        }
    }

    fn handle_maps(&mut self, maps: &MOsdMap) {
        let before = self.epoch();
        for epoch in maps.range().map(|(a, b)| a..=b).into_iter().flatten() {
            let current = self.epoch();
            if epoch <= current {
                continue;
            }
            let next = match (maps.incrementals.get(&epoch), maps.maps.get(&epoch), &self.map) {
                (Some(inc), _, Some(map)) if epoch == current + 1 => {
                    let mut map = OsdMap::clone(map);
                    spirula_denc::decode_all::<Incremental>(inc)
                        .map_err(|e| e.to_string())
                        .and_then(|inc| map.apply_checked(&inc).map_err(|e| e.to_string()))
                        .map(|()| map)
                }
                (_, Some(full), _) => OsdMap::decode_with_crc(full)
                    .map(|(m, _)| m)
                    .map_err(|e| e.to_string()),
                _ => continue,
            };
            match next {
                Ok(map) => self.map = Some(Rc::new(map)),
                Err(e) => {
                    tracing::error!("OSDMap {epoch}: {e}");
                    // A full map mends what an incremental could not.
                    self.monc.subscribe_once("osdmap", 0);
                    break;
                }
            }
        }
        if self.epoch() == before {
            return;
        }
        self.monc.received("osdmap", u64::from(self.epoch()));
        self.map_changed();
    }

    fn map_changed(&mut self) {
        let Some(map) = self.map.clone() else { return };
        for (osd, addr) in self.sessions.known() {
            if address(&map, osd) != Some(addr) {
                self.sessions.close(osd);
                let _ = self
                    .pending
                    .values_mut()
                    .filter(|p| p.target.as_ref().is_some_and(|t| t.osd == osd))
                    .map(|p| p.sent = false)
                    .count();
                self.commands
                    .values_mut()
                    .filter(|p| p.osd == osd)
                    .for_each(|p| p.sent = false);
            }
        }
        let tids: Vec<u64> = self.pending.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.aim(tid));
        let tids: Vec<u64> = self
            .commands
            .iter()
            .filter(|(_, p)| !p.sent)
            .map(|(t, _)| *t)
            .collect();
        tids.into_iter().for_each(|tid| self.send_command(tid));
        self.tell_waiters();
    }

    /// Forgets requests that nobody waits for any more.
    pub(crate) fn sweep(&mut self) {
        self.pending.retain(|_, p| !p.answer.is_closed());
        self.commands.retain(|_, p| !p.answer.is_closed());
        self.waiters.retain(|(_, w)| !w.is_closed());
    }
}

/// Where an OSD that is up listens for clients.
fn address(map: &OsdMap, osd: i32) -> Option<EntityAddr> {
    map.client_addrs(osd).filter(|_| map.is_up(osd))?.v2().copied()
}

/// A request for `oid`, without tid, epoch and PG.
pub(crate) fn request(locator: spirula_maps::ObjectLocator, oid: spirula_maps::ObjectName) -> MOsdOp {
    MOsdOp {
        tid: 0,
        spg: SpgId::whole(PgId::default()),
        hash: 0,
        epoch: 0,
        flags: OsdFlags::default(),
        explicit_reqid: spirula_maps::ReqId::default(),
        trace: spirula_proto::osd::Trace::default(),
        client_inc: 0,
        mtime: UTime::now(),
        locator,
        oid,
        ops: Vec::new(),
        snapid: spirula_maps::snap::NOSNAP,
        snapc: spirula_maps::SnapContext::default(),
        retry_attempt: 0,
        features: spirula_msgr::config::FEATURES_SUPPORTED,
    }
}
