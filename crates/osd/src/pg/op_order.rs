//! The order of ops on an object, the answers they fetch, and the one way to execute them.

use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::{Micros, UTime, decode_all};
use spirula_errno::*;
use spirula_invariant::{impossible, invariant};
use spirula_maps::{HObject, IntervalSet, ReqId, SnapContext, SnapId, snap};

use super::account::Room;
use super::ahead::choice::data_ahead;
use super::bug::Bug;
use super::config::PgConfig;
use super::context::Context;
use super::exec::{Exec, Given, ObjectState, Outcome, Unfetched, up_front};
use super::fetch::{Fetched, ReadError, Want};
use super::object::ObjectInfo;
use super::object::StoredObject;
use super::op::{Client, ClientOp, OsdOp, Stamps};
use super::output::Ctx;
use super::reading::{CloneRead, Reading};
use super::role::Role;
use super::serving::Serving;
use super::site::Site;
use super::snaps::read::place;
use super::snaps::set::At;
use super::store_queue::Pending;

/// How an op can go on now.
enum Step {
    /// The op waits until others are done.
    Wait,
    /// The op waits until this OSD may answer reads.
    Lease,
    /// The op is executed at once.
    Run,
    /// The op is executed after these are fetched.
    Fetch(Vec<Want>),
    /// The op reads this clone.
    Clone(SnapId),
    /// The op reads an object that did not exist at its snapshot.
    Nowhere,
    /// The op's data goes to the members ahead of its change.
    Ahead(Bytes),
}

/// The next step of an op. A read waits until the writes before it are durable everywhere, as the
/// data that it returns must not be lost. A write that reads need not: the store shows it the
/// submitted writes, and it is answered only when it is durable itself, after all before it.
fn next_step(
    cfg: &PgConfig,
    c: &Context,
    state: &ObjectState,
    op: &mut ClientOp,
    removed: &IntervalSet,
    readable: bool,
) -> Step {
    let writes = op.may_write();
    let excluded = c.exclusive && op.client.asker.is_none();
    let dirty = c.uncommitted > 0 && !cfg.has_bug(Bug::DirtyRead);
    // A read for a copy does not wait where a write does that may wait for copies itself.
    let repaired = c.holds > 0 && (excluded || !c.exclusive);
    if excluded || repaired || !writes && dirty || writes && c.reading > 0 {
        return Step::Wait;
    }
    if !writes && !readable {
        return Step::Lease;
    }
    if !c.answers.is_empty() {
        return Step::Run;
    }
    if writes && let Some(data) = data_ahead(op, cfg.least_ahead) {
        return Step::Ahead(data.clone());
    }
    match place(op, state, removed) {
        At::Head => {}
        At::Clone(id) => return Step::Clone(id),
        At::Nowhere => return Step::Nowhere,
    }
    let wants = if op.may_read() {
        up_front(cfg, state, &mut op.ops)
    } else {
        Vec::new()
    };
    if wants.is_empty() {
        Step::Run
    } else {
        Step::Fetch(wants)
    }
}

/// The object that the store could not read for an op.
fn unreadable(r: &Reading, fetched: &[Fetched]) -> Option<Bytes> {
    let failed = fetched.iter().find(|f| f.answer.is_err())?;
    Some(match &failed.want {
        Want::Staged { source, .. } | Want::Object(source) | Want::Base(source, _) => source.clone(),
        _ => r.clone.as_ref().map_or(&r.key, |c| &c.key).clone(),
    })
}

impl Site {
    /// A request of the PG itself, which begins at `usec`.
    pub(super) fn internal_op(&self, object: HObject, ops: Vec<OsdOp>, usec: Micros) -> ClientOp {
        ClientOp {
            client: Arc::new(Client::internal()),
            tid: 0,
            reqid: ReqId::default(),
            pgid: self.pgid,
            object,
            epoch: self.map.epoch(),
            flags: Default::default(),
            mtime: Default::default(),
            ops,
            snapid: snap::NOSNAP,
            snapc: SnapContext::default(),
            retry_attempt: 0,
            trace: Default::default(),
            stamps: Stamps {
                received: usec,
                queued: usec,
                ..Stamps::default()
            },
            taken: Default::default(),
        }
    }
}

impl Serving<'_> {
    /// Adds an op to its object's queue, and executes the ops that can be.
    pub(super) fn queue_op(&mut self, key: Bytes, op: ClientOp, cx: &mut Ctx<'_>) {
        self.ops
            .contexts
            .evict(self.site.shares.contexts, self.site.shares.context_bytes);
        let (c, new) = self.ops.contexts.get(&key);
        cx.perf.contexts += 1;
        cx.perf.contexts_found += u64::from(!new);
        if c.exclusive && op.client.asker.is_some() {
            // A write that waits for a copy must not stop the reads of other copies: they could
            // wait for each other.
            c.queue.push_front(op);
        } else {
            c.queue.push_back(op);
        }
        if new {
            self.store.look_up_context(key, cx);
        } else {
            self.pump(&key, cx);
        }
    }

    /// Handles the store's answer about an object.
    pub(super) fn context_loaded(
        &mut self,
        key: &Bytes,
        r: Result<Option<StoredObject>, ReadError>,
        cx: &mut Ctx<'_>,
    ) {
        let state = match r {
            Ok(None) => Some(ObjectState::default()),
            Ok(Some(o)) => decode_all::<ObjectInfo>(&o.info).ok().map(|info| ObjectState {
                exists: !info.whiteout,
                info,
                attrs: o.attrs,
            }),
            Err(_) => None,
        };
        match state {
            Some(state) => {
                invariant!(
                    self.ops.contexts.state(key).is_none(),
                    "an object that is looked up to be unknown";
                    pg = self.site.pgid, epoch = self.site.map.epoch(), version = state.info.version
                );
                self.ops.contexts.set_state(key, state);
                if self.role.is_active() {
                    self.ops.note_watchers(key, cx);
                }
                self.pump(key, cx);
            }
            None if self.repairing().note_unreadable(key, cx) => {}
            None => {
                self.trimming().trim_blocked(key);
                let ops = match self.ops.contexts.find(key) {
                    // A clone of it is being repaired.
                    Some(c) if c.holds > 0 => std::mem::take(&mut c.queue),
                    _ => self.ops.contexts.forget(key),
                };
                for op in ops {
                    self.fail_unreadable(op, cx);
                }
            }
        }
    }

    /// Fails a read of an object that can't be read here. Another member may have it whole, but
    /// only the primary may be asked for it.
    pub(super) fn fail_unreadable(&self, mut op: ClientOp, cx: &mut Ctx<'_>) {
        if matches!(self.role, Role::Replica(_)) {
            self.site.send_to_primary([op], cx);
        } else {
            self.site.fail(&mut op, EIO, cx);
        }
    }

    /// Executes an object's ops in order as far as possible.
    pub(super) fn pump(&mut self, key: &Bytes, cx: &mut Ctx<'_>) {
        self.trimming().trim_clones(key, cx);
        self.note_digests(key, cx);
        loop {
            let readable = self.role.has_lease(&self.site.cfg, cx.usec);
            let removed = &self.site.pool.snaps.removed;
            let Some(c) = self.ops.contexts.find(key) else {
                return; // Its ops were sent elsewhere, or refused.
            };
            let Some(mut op) = c.next_op() else {
                return; // None waits.
            };
            let Some(state) = &c.state else {
                c.queue.push_front(op);
                return; // It is being looked up, which ends here again.
            };
            match next_step(&self.site.cfg, c, state, &mut op, removed, readable) {
                Step::Wait => {
                    c.queue.push_front(op);
                    return; // The op that is under way ends here again.
                }
                Step::Lease => {
                    c.queue.push_front(op);
                    return self.await_lease(key, cx);
                }
                Step::Run => {
                    let mut reading = Reading::new(key, op);
                    reading.answers = std::mem::take(&mut c.answers);
                    self.execute(reading, cx);
                }
                Step::Fetch(wants) => self.fetch(Reading::new(key, op), wants, cx),
                Step::Clone(id) => self.look_up_clone(key, op, id, cx),
                Step::Ahead(data) => self.placing_ahead().place_ahead(key, op, data, cx),
                Step::Nowhere => self.site.fail(&mut op, ENOENT, cx),
            }
        }
    }

    /// Fetches what an op wants; meanwhile a write has the object to itself, and a read shares it
    /// with reads.
    pub(super) fn fetch(&mut self, mut r: Reading, mut wants: Vec<Want>, cx: &mut Ctx<'_>) {
        if let Some(c) = self.ops.contexts.find(&r.key) {
            if r.op.may_write() {
                c.exclusive = true
            } else {
                c.reading += 1
            }
        }
        let mut key = r.clone.as_ref().map_or(&r.key, |c| &c.key).clone();
        if let Some(Want::Base(base, _)) = wants.first() {
            // All of them are.
            key = base.clone();
            r.base = Some(key.clone());
            wants.iter_mut().for_each(Want::make_direct);
        }
        let (reader, object) = (r.reader(), r.key.clone());
        let what = Pending::Op(Box::new(r));
        match wants.iter().find(|w| w.slot().is_some()) {
            // The other wants are asked for again when this one is there.
            Some(want) => {
                let seq = self.store.token(what).seq();
                self.staging().stage(seq, object, want.clone(), cx);
            }
            None => {
                let backend = &self.site.backend;
                let asks = backend.read(key, wants, reader, what, self.store, cx);
                self.outbox.ask(self.lead.id, asks, cx);
            }
        }
    }

    /// Notes that the store has nothing to do for an op any more.
    fn end_fetch(&mut self, r: &Reading) {
        if let Some(c) = self.ops.contexts.find(&r.key) {
            if r.op.may_write() {
                c.exclusive = false
            } else {
                invariant!(c.reading > 0, "a read that ends to have held its object"; pg = self.site.pgid, epoch = self.site.map.epoch());
                c.reading -= 1;
            }
        }
    }

    /// Handles that the client of an op that only reads has gone before it was its turn.
    pub(super) fn op_not_read(&mut self, r: &Reading, cx: &mut Ctx<'_>) {
        self.end_fetch(r);
        self.pump(&r.key, cx);
    }

    /// Handles the answers that an op wanted.
    pub(super) fn op_fetched(
        &mut self,
        mut r: Reading,
        mut fetched: Vec<Fetched>,
        room: Room,
        cx: &mut Ctx<'_>,
    ) {
        if let Some(base) = r.base.take() {
            fetched.iter_mut().for_each(|f| f.want.make_of_base(&base));
        }
        self.end_fetch(&r);
        r.op.taken.room.join(room);
        if let Some(damaged) = unreadable(&r, &fetched) {
            if matches!(self.role, Role::Replica(_)) {
                self.repairing().note_unreadable(&damaged, cx);
                return self.site.send_to_primary([r.op], cx);
            }
            match self.repairing().await_repair(&damaged, r.op, cx) {
                Some(op) => r.op = op,
                None => return, // It waits for the repair.
            }
        }
        if r.answers.is_empty() {
            r.answers = fetched;
        } else {
            r.answers.extend(fetched);
        }
        r.op.reset();
        let key = r.key.clone();
        let writes = r.op.may_write();
        if let Some(c) = self.ops.contexts.find(&key).filter(|c| writes && c.reading > 0) {
            c.answers = r.answers;
            c.queue.push_front(r.op);
            return; // The last of the reads ends here again.
        }
        self.execute(r, cx);
        self.pump(&key, cx);
    }

    pub(super) fn execute(&mut self, mut r: Reading, cx: &mut Ctx<'_>) {
        r.op.stamps.started = cx.usec;
        if r.op.client.is_shut_out(&*self.site.map) {
            // It came before the map that shuts the client out, and waited.
            return self.site.fail(&mut r.op, EBLOCKLISTED, cx);
        }
        if r.op.may_write() {
            self.execute_write(r, cx);
        } else {
            self.execute_read(r, cx);
        }
    }

    /// Executes the ops of a request on an object as it is; a write has a `context`. Returns the
    /// outcome, or the wants to be fetched first.
    pub(super) fn run(
        &self,
        (key, state): (&Bytes, &ObjectState),
        op: &mut ClientOp,
        answers: &mut Vec<Fetched>,
        context: Option<&SnapContext>,
        now: UTime,
    ) -> Result<Outcome, Vec<Want>> {
        let request = op.request(now, self.copy.info.last_user_version);
        let given = Given {
            cfg: &self.site.cfg,
            pool: &self.site.pool.snaps,
            key,
            asking: self.ops.asking(self.site, &op.client, op.reqid.name, key),
        };
        let exec = Exec::new(given, state, answers, request, op.taken.spent);
        exec.run(&mut op.ops, context)
            .map_err(|Unfetched { wants, spent, noted }| {
                op.taken.spent = spent;
                if noted {
                    answers.clear();
                    op.taken.room = Room::default();
                }
                wants
            })
    }

    /// The object that an op is executed on: the clone that it reads, or the head with this key.
    pub(super) fn object_of<'s>(
        &'s self,
        op: &ClientOp,
        key: &Bytes,
        clone: Option<&'s CloneRead>,
    ) -> &'s ObjectState {
        let state = match clone {
            Some(c) => Some(&c.state),
            None => self.ops.contexts.state(key),
        };
        let Some(state) = state else {
            impossible!(
                "an object with an op to be in use";
                pg = self.site.pgid, epoch = self.site.map.epoch(), object = op.object
            );
        };
        state
    }
}
