//! The objecter's state: the OSD and the attempt of each request. It knows no socket and no clock.
//!
//! Events go in through `submit`, `command` and the `handle_*` functions; actions come out of
//! [`Core::poll`] in order. The rules are those of Ceph's `src/osdc/Objecter.cc`: a request is
//! resent when its PG's acting set, primary or size changes, when the pool forces it, and when its
//! session was lost; only an answer to the newest attempt counts.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use spirula_denc::EntityAddr;
use spirula_maps::{
    Epoch, Incremental, MappingCache, ObjectLocator, ObjectName, OsdId, OsdMap, OsdMapFlags, PgId, PgPool,
    PoolFlags, Positions, SpgId,
};
use spirula_proto::mon::{MCommand, MCommandReply, MOsdMap};
use spirula_proto::osd::{MOsdOp, MOsdOpReply, OsdFlags};
use spirula_proto::{Payload, RawMessage};
use tokio::sync::oneshot;

use super::backoff::Backoffs;
use super::linger::Linger;
use crate::errno::{self, Errno};

/// An action for the shell, in the order in which it comes out of [`Core::poll`].
#[derive(Debug)]
pub enum Action {
    /// Keep a session with an OSD at this address, under this number.
    Open(OsdId, EntityAddr, u64),
    /// End the session with an OSD.
    Close(OsdId),
    /// Send a message on the established session with an OSD.
    Send(OsdId, RawMessage),
    /// Subscribe to OSDMaps from this epoch on.
    Subscribe(Epoch),
    /// Ask for one full map, as the incrementals don't apply.
    FullMap,
    /// Tell the monitors that the maps up to this epoch have arrived.
    Received(Epoch),
}

/// How the PG of a request is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// By the object's name and locator.
    Object,
    /// This PG (listing).
    Pg(PgId),
}

/// The target of a request. When it changes, the request is resent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pg: PgId,
    pub(super) osd: OsdId,
    addr: EntityAddr,
    /// The whole acting set: another one means another interval.
    acting: Positions,
    pg_num: u32,
    /// The epoch from which the pool wants all requests to be resent.
    force_resend: Epoch,
}

/// The properties of a request that decide its target.
pub(super) struct Place<'a> {
    pub(super) oid: &'a ObjectName,
    pub(super) locator: &'a ObjectLocator,
    pub(super) aim: Aim,
}

/// The outcome of a request: an answer, or a negative errno without one.
pub type Outcome = Result<MOsdOpReply, Errno>;
/// The outcome of a command.
pub(crate) type CommandOutcome = Result<MCommandReply, Errno>;

/// What happens to a sent request whose target changes or whose session is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resend {
    /// It is resent under its transaction id.
    Always,
    /// It ends with `EAGAIN`: the registration of a watch holds for its session, so that another
    /// one is a new request.
    Never,
}

pub(super) struct Pending {
    pub(super) op: MOsdOp,
    aim: Aim,
    resend: Resend,
    pub(super) target: Option<Target>,
    /// Whether it was sent on the present session.
    pub(super) sent: bool,
    /// How often it was sent under its transaction id.
    attempts: i32,
    answer: oneshot::Sender<Outcome>,
}

struct PendingCommand {
    osd: OsdId,
    msg: MCommand,
    sent: bool,
    answer: oneshot::Sender<CommandOutcome>,
}

pub(super) struct Session {
    pub(super) number: u64,
    addr: EntityAddr,
    up: bool,
    /// Objects for which the OSD takes no requests now.
    pub(super) backoffs: Backoffs,
}

/// The state; see the module.
#[derive(Default)]
pub struct Core {
    map: Option<Rc<OsdMap>>,
    mappings: MappingCache,
    pub(super) sessions: BTreeMap<OsdId, Session>,
    last_session: u64,
    last_tid: u64,
    pub(super) pending: BTreeMap<u64, Pending>,
    /// Watches and notifications by their cookies.
    pub(super) lingers: BTreeMap<u64, Linger>,
    pub(super) last_cookie: u64,
    commands: BTreeMap<u64, PendingCommand>,
    /// Waiters for a map, with the epoch that each waits for.
    waiters: Vec<(Epoch, oneshot::Sender<()>)>,
    pub(super) actions: VecDeque<Action>,
}

impl Core {
    /// The next action.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The newest map, `None` before the first.
    pub fn map(&self) -> Option<&Rc<OsdMap>> {
        self.map.as_ref()
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(Epoch::NONE, |m| m.epoch)
    }

    fn subscribe(&mut self) {
        // Epoch 0 asks for a full map: the first incremental of a client without a map would be of
        // no use.
        let from = self.map.as_ref().map_or(Epoch::NONE, |m| m.epoch.next());
        self.actions.push_back(Action::Subscribe(from));
    }

    /// Completes when the map is at `epoch` or later.
    pub(crate) fn wait_for_map(&mut self, epoch: Epoch) -> oneshot::Receiver<()> {
        let (told, wait) = oneshot::channel();
        self.waiters.push((epoch, told));
        if self.epoch() < epoch {
            self.subscribe();
        }
        self.tell_waiters();
        wait
    }

    fn tell_waiters(&mut self) {
        let epoch = self.epoch();
        for (_, told) in self.waiters.extract_if(.., |(wanted, _)| *wanted <= epoch) {
            // The waiter may have given up.
            let _ = told.send(());
        }
    }

    /// Takes a request; its tid, epoch, PG and attempt are filled in here.
    pub fn submit(&mut self, op: MOsdOp, aim: Aim, resend: Resend) -> oneshot::Receiver<Outcome> {
        let (answer, receiver) = oneshot::channel();
        let pending = Pending {
            op,
            aim,
            resend,
            target: None,
            sent: false,
            attempts: 0,
            answer,
        };
        self.enter(pending);
        receiver
    }

    fn enter(&mut self, pending: Pending) {
        self.last_tid += 1;
        self.pending.insert(self.last_tid, pending);
        self.aim(self.last_tid);
    }

    /// Takes a command for an OSD.
    pub(crate) fn command(&mut self, osd: OsdId, msg: MCommand) -> oneshot::Receiver<CommandOutcome> {
        let (answer, receiver) = oneshot::channel();
        self.last_tid += 1;
        let pending = PendingCommand {
            osd,
            msg,
            sent: false,
            answer,
        };
        self.commands.insert(self.last_tid, pending);
        self.send_command(self.last_tid);
        receiver
    }

    fn send_command(&mut self, tid: u64) {
        let Some(map) = self.map.clone() else { return };
        let Some(osd) = self.commands.get(&tid).filter(|p| !p.sent).map(|p| p.osd) else {
            return;
        };
        let Some(addr) = address(&map, osd) else {
            if let Some(pending) = self.commands.remove(&tid) {
                let errno = if map.exists(osd) {
                    errno::ENXIO
                } else {
                    errno::ENOENT
                };
                let _ = pending.answer.send(Err(errno));
            }
            return;
        };
        if !self.session(osd, addr) {
            return;
        }
        if let Some(pending) = self.commands.get_mut(&tid) {
            pending.sent = true;
            let msg = pending.msg.to_message().with_tid(tid);
            self.actions.push_back(Action::Send(osd, msg));
        }
    }

    /// The target of requests for an object or PG by this map, with the raw PG, and the PG with the
    /// shard that leads it; `None` where the pool is gone.
    pub(super) fn target(&mut self, map: &OsdMap, op: &Place<'_>) -> Option<(PgId, SpgId, Option<Target>)> {
        let pool = map.pool(op.locator.pool?)?;
        let raw = match op.aim {
            Aim::Object => map.object_to_raw_pg(op.oid, op.locator)?,
            Aim::Pg(pg) => pg,
        };
        let pg = pool.raw_pg_to_pg(raw);
        let mapping = self.mappings.get(map, pg);
        let mut spg = SpgId::whole(pg);
        if pool.is_erasure() {
            let position = mapping.acting_primary.and_then(|osd| mapping.acting.of(osd));
            let shard = position.and_then(|at| i8::try_from(at).ok());
            spg.shard = shard.unwrap_or(SpgId::NO_SHARD);
        }
        let at = |osd| Some((osd, address(map, osd)?));
        let target = mapping.acting_primary.and_then(at).map(|(osd, addr)| Target {
            pg,
            osd,
            addr,
            acting: mapping.acting.clone(),
            pg_num: pool.pg_num,
            force_resend: pool.last_force_op_resend,
        });
        Some((raw, spg, target))
    }

    /// Ends a request with an errno of the client.
    fn fail(&mut self, tid: u64, errno: Errno) {
        if let Some(pending) = self.pending.remove(&tid) {
            let _ = pending.answer.send(Err(errno));
        }
    }

    /// Computes a request's target, and sends it if that has changed or it was never sent.
    pub(super) fn aim(&mut self, tid: u64) {
        let Some(map) = self.map.clone() else { return };
        self.retarget(&map, tid);
        let Some(pending) = self.pending.get(&tid).filter(|p| !p.sent) else {
            return;
        };
        let pool = pending.op.locator.pool.and_then(|id| map.pool(id));
        if pool.is_some_and(|pool| !paused(&map, pool, pending.op.flags)) {
            self.send(tid);
        }
    }

    /// Computes a request's target by this map. A sent request whose target has changed is marked
    /// to be resent, or ends.
    fn retarget(&mut self, map: &OsdMap, tid: u64) {
        let Some(pending) = self.pending.get(&tid) else {
            return;
        };
        if pending.answer.is_closed() {
            // Nobody waits any more: it must not go out now.
            self.pending.remove(&tid);
            return;
        }
        let (oid, locator) = (pending.op.oid.clone(), pending.op.locator.clone());
        let place = Place {
            oid: &oid,
            locator: &locator,
            aim: pending.aim,
        };
        let found = self.target(map, &place);
        let pool = locator.pool.and_then(|id| map.pool(id));
        let (Some((raw, spg, target)), Some(pool)) = (found, pool) else {
            // No such pool in the newest map we have.
            return self.fail(tid, errno::ENOENT);
        };
        if pool.flags.contains(PoolFlags::EIO) {
            return self.fail(tid, errno::EIO);
        }
        let Some(pending) = self.pending.get_mut(&tid) else {
            return;
        };
        pending.op.spg = spg;
        pending.op.hash = raw.seed;
        if pending.target != target {
            if pending.sent && pending.resend == Resend::Never {
                return self.fail(tid, errno::EAGAIN);
            }
            pending.target = target;
            pending.sent = false;
        }
        if pending.resend == Resend::Always && paused(map, pool, pending.op.flags) {
            // An OSD without room may have dropped it: it goes out again when there is room.
            pending.sent = false;
        }
    }

    fn send(&mut self, tid: u64) {
        let epoch = self.epoch();
        let Some((osd, addr)) = self
            .pending
            .get(&tid)
            .and_then(|p| p.target.as_ref())
            .map(|t| (t.osd, t.addr))
        else {
            return;
        };
        if !self.session(osd, addr) {
            return;
        }
        let Some(pending) = self.pending.get_mut(&tid) else {
            return;
        };
        let held = self
            .sessions
            .get(&osd)
            .is_some_and(|s| s.backoffs.hold(&pending.op));
        if held {
            return;
        }
        pending.op.tid = tid;
        pending.op.epoch = epoch;
        pending.op.retry_attempt = pending.attempts;
        if pending.attempts > 0 {
            pending.op.flags.insert(OsdFlags::RETRY);
        }
        pending.sent = true;
        pending.attempts += 1;
        let msg = pending.op.to_message();
        self.actions.push_back(Action::Send(osd, msg));
    }

    /// Whether the session with an OSD is established; opens one if there is none to this address.
    fn session(&mut self, osd: OsdId, addr: EntityAddr) -> bool {
        match self.sessions.get(&osd) {
            Some(session) if session.addr == addr => return session.up,
            Some(_) => self.actions.push_back(Action::Close(osd)),
            None => {}
        }
        self.last_session += 1;
        let number = self.last_session;
        let session = Session {
            number,
            addr,
            up: false,
            backoffs: Backoffs::default(),
        };
        self.sessions.insert(osd, session);
        self.actions.push_back(Action::Open(osd, addr, number));
        false
    }

    /// Handles the establishment of the session of this number: sends the requests that wait for
    /// its OSD.
    pub fn handle_up(&mut self, osd: OsdId, number: u64) {
        match self.sessions.get_mut(&osd) {
            Some(session) if session.number == number => session.up = true,
            _ => return,
        }
        let waits = |p: &Pending| !p.sent && p.target.as_ref().is_some_and(|t| t.osd == osd);
        let tids: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, p)| waits(p))
            .map(|(t, _)| *t)
            .collect();
        tids.into_iter().for_each(|tid| self.aim(tid));
        self.send_commands();
    }

    fn send_commands(&mut self) {
        let waits = |p: &PendingCommand| !p.sent;
        let tids: Vec<u64> = self
            .commands
            .iter()
            .filter(|(_, p)| waits(p))
            .map(|(t, _)| *t)
            .collect();
        tids.into_iter().for_each(|tid| self.send_command(tid));
    }

    /// Handles the loss of the session of this number. The shell reconnects by itself until the
    /// core closes the session.
    pub fn handle_down(&mut self, osd: OsdId, number: u64) {
        match self.sessions.get_mut(&osd) {
            Some(session) if session.number == number => {
                session.up = false;
                session.backoffs = Backoffs::default();
            }
            _ => return,
        }
        self.unsend(osd);
        // It may be gone for good, or elsewhere: the next map says so.
        self.subscribe();
    }

    /// Marks the requests on a lost session to be resent.
    fn unsend(&mut self, osd: OsdId) {
        let to_it = |p: &Pending| p.sent && p.target.as_ref().is_some_and(|t| t.osd == osd);
        let once = |(_, p): &(&u64, &Pending)| to_it(p) && p.resend == Resend::Never;
        let ended: Vec<u64> = self.pending.iter().filter(once).map(|(tid, _)| *tid).collect();
        ended.into_iter().for_each(|tid| self.fail(tid, errno::EAGAIN));
        self.pending
            .values_mut()
            .filter(|p| to_it(p))
            .for_each(|p| p.sent = false);
        self.lingers_lost(osd);
        self.commands
            .values_mut()
            .filter(|p| p.osd == osd)
            .for_each(|p| p.sent = false);
    }

    /// Handles the answer to a command.
    pub(crate) fn handle_command_reply(&mut self, tid: u64, reply: MCommandReply) {
        if let Some(pending) = self.commands.remove(&tid) {
            let _ = pending.answer.send(Ok(reply));
        }
    }

    /// Handles the answer to a request.
    pub fn handle_reply(&mut self, reply: MOsdOpReply) {
        let tid = reply.tid;
        let Some(pending) = self.pending.get_mut(&tid) else {
            return;
        };
        if reply.retry_attempt >= 0 && reply.retry_attempt != pending.attempts - 1 {
            tracing::debug!("answer to an earlier attempt of {tid}");
            return;
        }
        if let Some(redirect) = &reply.redirect {
            pending.op.locator = redirect.locator.clone();
            pending.op.oid = redirect.oid.clone();
            pending.sent = false;
            self.aim(tid);
            return;
        }
        let Some(mut pending) = self.pending.remove(&tid) else {
            return;
        };
        if reply.result == -errno::EAGAIN {
            // The OSD asks for another attempt, under a new tid: a new request as far as it is
            // concerned.
            (pending.sent, pending.attempts) = (false, 0);
            pending.op.flags.remove(OsdFlags::RETRY);
            self.enter(pending);
            return;
        }
        let _ = pending.answer.send(Ok(reply));
    }

    /// Handles maps from a monitor or an OSD.
    pub fn handle_maps(&mut self, maps: &MOsdMap) {
        let before = self.epoch();
        for epoch in maps.range().into_iter().flat_map(Epoch::all) {
            match self.next_map(maps, epoch) {
                Some(Ok(map)) => {
                    let skipped = before > Epoch::NONE && epoch > self.epoch().next();
                    self.map = Some(Rc::new(map));
                    self.note_moves(skipped);
                }
                Some(Err(e)) => {
                    tracing::error!("OSDMap {epoch}: {e}");
                    // A full map replaces one that the incremental does not fit.
                    self.actions.push_back(Action::FullMap);
                    break;
                }
                None => {}
            }
        }
        if self.epoch() == before {
            return;
        }
        self.actions.push_back(Action::Received(self.epoch()));
        self.map_changed();
    }

    /// The map of `epoch`; `None` where the message does not lead there from the present map.
    fn next_map(&self, maps: &MOsdMap, epoch: Epoch) -> Option<Result<OsdMap, String>> {
        let current = self.epoch();
        if epoch <= current {
            return None;
        }
        match (maps.incrementals.get(&epoch), maps.maps.get(&epoch), &self.map) {
            (Some(inc), _, Some(map)) if epoch == current.next() => {
                let mut map = OsdMap::clone(map);
                let inc = spirula_denc::decode_all::<Incremental>(inc).map_err(|e| e.to_string());
                let applied = inc.and_then(|inc| map.apply_checked(&inc).map_err(|e| e.to_string()));
                Some(applied.map(|()| map))
            }
            (_, Some(full), _) => Some(
                OsdMap::decode_with_crc(full)
                    .map(|(m, _)| m)
                    .map_err(|e| e.to_string()),
            ),
            _ => None,
        }
    }

    /// Marks the requests that must be resent, map by map: OSDs drop requests at the end of an
    /// interval, even if the target is the same again later. If maps were skipped, any interval may
    /// have ended. Sends nothing yet.
    fn note_moves(&mut self, skipped: bool) {
        let Some(map) = self.map.clone() else { return };
        if skipped {
            let osds: Vec<OsdId> = self.sessions.keys().copied().collect();
            osds.into_iter().for_each(|osd| self.unsend(osd));
        }
        let tids: Vec<u64> = self.pending.keys().copied().collect();
        for tid in tids {
            self.retarget(&map, tid);
        }
        self.aim_lingers(&map);
    }

    fn map_changed(&mut self) {
        let Some(map) = self.map.clone() else { return };
        let moved = |(osd, s): &(&OsdId, &Session)| address(&map, **osd) != Some(s.addr);
        let gone: Vec<OsdId> = self.sessions.iter().filter(moved).map(|(osd, _)| *osd).collect();
        for osd in gone {
            self.sessions.remove(&osd);
            self.actions.push_back(Action::Close(osd));
            self.unsend(osd);
        }
        let tids: Vec<u64> = self.pending.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.aim(tid));
        self.send_commands();
        self.tell_waiters();
    }

    /// Drops requests whose callers have gone.
    pub(crate) fn sweep(&mut self) {
        self.pending.retain(|_, p| !p.answer.is_closed());
        self.commands.retain(|_, p| !p.answer.is_closed());
        self.lingers.retain(|_, l| !l.is_abandoned());
        self.waiters.retain(|(_, w)| !w.is_closed());
    }
}

/// The address for clients of an OSD that is up.
fn address(map: &OsdMap, osd: OsdId) -> Option<EntityAddr> {
    map.client_addrs(osd).filter(|_| map.is_up(osd))?.v2().copied()
}

/// Whether the map makes clients hold such a request: the cluster is paused, or the pool is full.
fn paused(map: &OsdMap, pool: &PgPool, flags: OsdFlags) -> bool {
    if flags.intersects(OsdFlags::READ) && map.flags.contains(OsdMapFlags::PAUSERD) {
        return true;
    }
    let full = pool.flags.contains(PoolFlags::FULL)
        && !flags.intersects(OsdFlags::FULL_TRY.with(OsdFlags::FULL_FORCE));
    flags.intersects(OsdFlags::WRITE) && (full || map.flags.contains(OsdMapFlags::PAUSEWR))
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
