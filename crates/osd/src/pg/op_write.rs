//! Ops that write: executed on the object's context, logged, sent to the replicas, answered when
//! durable everywhere.

use bytes::Bytes;
use spirula_denc::{Extent, UTime};
use spirula_errno::*;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::{EVersion, OsdId, ReqId, SnapContext, SnapId};
use spirula_proto::osd::{MOsdOpReply, OsdFlags};

use super::account::Room;
use super::ahead::ticket::Ahead;
use super::backend::{self};
use super::backfill::Backfill;
use super::bug::Bug;
use super::coded::want::fragment_want;
use super::config::PgConfig;
use super::dirty::Dirty;
use super::exec::{Draft, IoCount, Left, ObjectState, Outcome};
use super::fetch::{Answer, Fetched, Pieces, Want};
use super::in_flight::{InFlight, Reply};
use super::key;
use super::layout::Layout;
use super::log::{LogEntry, LogOp, Usage};
use super::message::PeerBody;
use super::op::{COPIES, ClientOp, OsdOp};
use super::op_checks::op_mtime;
use super::output::{Ctx, Output};
use super::perf::DropReason;
use super::reading::Reading;
use super::role::{Active, Role};
use super::serving::Serving;
use super::site::Site;
use super::store_queue::Commit;
use super::txn::{MetaOp, ObjectOp, Txn, copied_bytes, log_bytes};

/// Log entries are trimmed this many at a time.
const TRIM_BATCH: usize = 32;

/// A request's change of its object.
#[derive(Debug)]
struct Change {
    version: EVersion,
    prior_version: EVersion,
    user_version: u64,
    /// The object afterwards.
    state: ObjectState,
    /// The changes of the head, after those of a clone that is left behind.
    objects: Vec<(Bytes, Vec<ObjectOp>)>,
    /// The clone that is left behind.
    clones: Vec<SnapId>,
    /// The objects that no member could read and that get new contents.
    renewed: Vec<Bytes>,
    /// The ranges of the head that change.
    dirty: Dirty,
    usage: Usage,
    io: IoCount,
}

/// The times of a write.
struct WriteTimes {
    /// The client's.
    mtime: UTime,
    /// This OSD's.
    now: UTime,
}

impl Change {
    /// The change from a finished draft, under the next version, after the last version that
    /// clients have seen.
    fn of(
        (mut draft, io): (Draft, IoCount),
        (key, old): (&Bytes, &ObjectState),
        snap_context: &SnapContext,
        (mut version, last_user_version): (EVersion, u64),
        times: WriteTimes,
    ) -> Self {
        let clone = draft.preserve(key, old, snap_context);
        let clone_version = version;
        // The clone is a change of its own, before that of the head.
        version.version += u64::from(clone.is_some());
        let mut user_version = draft.info.user_version;
        if draft.user_modify {
            user_version = last_user_version
                .max(user_version)
                .saturating_add(1)
                .max(version.version);
            draft.info.user_version = user_version;
        }
        let prior_version = old.info.version;
        draft.info.version = version;
        draft.info.prior_version = prior_version;
        let usage = draft.usage;
        let mut objects = Vec::with_capacity(2);
        objects.extend(clone.as_ref().map(|c| c.changes(key, old, clone_version)));
        let (state, changes) = draft.finish(old, times.mtime, times.now);
        objects.push((key.clone(), changes));
        let dirty = Dirty::of(objects.last().map_or(&[], |(_, ops)| ops));
        Self {
            version,
            prior_version,
            user_version,
            state,
            objects,
            clones: clone.iter().map(|c| c.id).collect(),
            renewed: Vec::new(),
            dirty,
            usage,
            io,
        }
    }
}

/// Removes the output that a write may not return: all of it, or with RETURNVEC what is too long.
/// Returns the request's result.
fn limit_output(op: &mut ClientOp, mut result: i32, cfg: &PgConfig) -> i32 {
    if !op.flags.intersects(OsdFlags::RETURNVEC) {
        op.ops.iter_mut().for_each(|o| o.outdata = Default::default());
        return 0;
    }
    let mut left = cfg.max_write_reply;
    for o in &mut op.ops {
        let len = o.outdata.len();
        if len > cfg.max_write_op_reply_len.min(left) {
            result = -EOVERFLOW;
            o.rval = -EOVERFLOW;
            o.outdata = Default::default();
        } else {
            left -= len;
        }
    }
    result
}

/// Whether changes exceed one transaction, or make the object's info larger than it was and may be.
fn is_too_large(cfg: &PgConfig, old: &ObjectState, objects: &[(Bytes, Vec<ObjectOp>)]) -> bool {
    let infos = objects.iter().flat_map(|(_, ops)| ops).filter_map(|op| match op {
        ObjectOp::SetInfo(info) => Some(info.len()),
        _ => None,
    });
    let info = infos.max().unwrap_or(0);
    log_bytes(objects) > cfg.max_logged || info > cfg.max_info && info > old.info.to_bytes().len()
}

/// The wants for bytes of an object, or of the one that takes its place.
fn wants_of(base: Option<&Bytes>, old: &[Extent]) -> Vec<Want> {
    let mut wants: Vec<Want> = old.iter().map(|e| fragment_want(*e)).collect();
    if let Some(base) = base {
        wants.iter_mut().for_each(|w| w.make_of_base(base));
    }
    wants
}

/// The wants that were not fetched.
fn unfetched(wants: &[Want], answers: &[Fetched]) -> Vec<Want> {
    let is_there = |want: &&Want| answers.iter().any(|f| f.want == **want);
    wants.iter().filter(|want| !is_there(want)).cloned().collect()
}

/// The bytes that were fetched for these wants; `None` if they can't be read.
fn known(wants: &[Want], answers: &[Fetched]) -> Option<Pieces> {
    let mut all = Pieces::new();
    for want in wants {
        let found = answers.iter().find(|f| f.want == *want)?;
        let Ok(Answer::Data(pieces)) = &found.answer else {
            return None;
        };
        all.extend(pieces.iter().cloned());
    }
    Some(all)
}

/// The staging object of a large change, or why there is none; `None` if the change was not staged.
fn staged(answers: &[Fetched]) -> Option<Result<Bytes, Errno>> {
    let found = answers.iter().find(|f| matches!(f.want, Want::Large(..)))?;
    match &found.answer {
        Ok(Answer::Staged(Ok(whole))) => whole.as_ref().map(|w| Ok(w.key.clone())),
        Ok(Answer::Staged(Err(e))) => Some(Err(*e)),
        _ => Some(Err(EIO)),
    }
}

/// The state of a primary that serves. Only such a primary writes, and it stays one while it does.
fn active<'a>(role: &'a mut Role, site: &Site) -> &'a mut Active {
    match role {
        Role::Active(a) => a,
        _ => impossible!("a primary that serves, to write"; pg = site.pgid, epoch = site.map.epoch()),
    }
}

impl Serving<'_> {
    /// Executes a request on the object as it is, and replicates its change.
    pub(super) fn execute_write(&mut self, mut r: Reading, cx: &mut Ctx<'_>) {
        if r.op.retry_attempt != 0 && self.copy.is_dup(&r.op, self.site) {
            // It was executed while this one waited.
            return self.answer_dup(r.op, cx);
        }
        if self.ops.dropped.overtakes(&r.op) {
            // Its client sends it again, after the one that was dropped.
            return self.site.drop_op(&r.op, DropReason::OpNoRoom, cx);
        }
        let snap_context = self.site.snap_context(&r.op);
        let state = self.object_of(&r.op, &r.key, None);
        if r.op.flags.intersects(OsdFlags::ORDERSNAP) && snap_context.seq < state.info.snap_set.seq {
            return self.site.fail(&mut r.op, EOLDSNAPC, cx);
        }
        let (last_update, last_user_version) = (self.copy.info.last_update, self.copy.info.last_user_version);
        let old_user_version = state.info.user_version;
        let (on, context) = ((&r.key, state), Some(&snap_context));
        let Outcome {
            result,
            mut draft,
            left,
        } = match self.run(on, &mut r.op, &mut r.answers, context, cx.now) {
            Ok(outcome) => outcome,
            Err(wants) => return self.fetch(r, wants, cx),
        };
        let Left {
            io,
            watch_effects: effects,
            ..
        } = left;
        let key = &r.key;
        let mut op = r.op;
        if result < 0 || !draft.dirty {
            let mut reply = Reply::failure(result, old_user_version);
            reply.enoent = (result == -ENOENT).then_some((last_update, last_user_version));
            if result >= 0 {
                self.ops.apply_watch_effects(key, effects, &op.client, cx);
            }
            return self.log_failure(op, reply, cx);
        }
        let before = if state.exists { state.info.size } else { 0 };
        let (base, size) = match draft.base.clone() {
            Some((key, size)) => (Some(key), size),
            None => (None, before),
        };
        let old = wants_of(base.as_ref(), &self.site.backend.old(size, &draft.changes));
        let unknown = unfetched(&old, &r.answers);
        if !unknown.is_empty() {
            r.op = op;
            return self.fetch(r, unknown, cx);
        }
        let Some(old) = known(&old, &r.answers) else {
            return self.log_failure(op, Reply::failure(-EIO, old_user_version), cx);
        };
        let staged = match staged(&r.answers) {
            Some(Err(e)) => return self.log_failure(op, Reply::failure(-e, old_user_version), cx),
            Some(Ok(stage)) => Some(stage),
            None => {
                let cfg = &self.site.cfg;
                if let Some(portions) = self.site.backend.portions(size, &draft.changes, &old, cfg) {
                    let changed = base.as_ref().unwrap_or(key).clone();
                    r.op = op;
                    return self.fetch(r, vec![Want::Large(portions, changed)], cx);
                }
                None
            }
        };
        let grows = draft.usage.bytes > 0 || draft.usage.objects > 0;
        let stores = grows || draft.stores_data();
        if let Err(answer) = self.site.check_full(&op, grows, stores, cx) {
            match answer {
                Some(e) => self.log_failure(op, Reply::failure(-e, old_user_version), cx),
                None => self.ops.dropped.note(&op, self.site, cx),
            }
            return; // It was answered, or is sent again when there is room.
        }
        let result = limit_output(&mut op, result, &self.site.cfg);
        if result < 0 {
            return self.log_failure(op, Reply::failure(result, old_user_version), cx);
        }
        let last = (self.next_version(), last_user_version);
        let times = WriteTimes {
            mtime: op_mtime(&op),
            now: cx.now,
        };
        if !matches!(self.site.pool.layout, Some(Layout::Coded(_))) {
            draft.set_digests(state, &self.site.cfg);
        }
        let mut change = Change::of((draft, io), (key, state), &snap_context, last, times);
        if let Role::Active(a) = &*self.role {
            let lost = &a.repairs.lost;
            change.renewed = lost.renewed(&change.objects, change.state.info.size);
        }
        if let Some((_, ops)) = change.objects.last_mut() {
            let (backend, logical) = (&self.site.backend, std::mem::take(ops));
            *ops = match staged {
                Some(stage) => backend.take(size, logical, &old, Some(stage)),
                None => backend.code(size, logical, &old),
            };
        }
        if is_too_large(&self.site.cfg, state, &change.objects) {
            return self.log_failure(op, Reply::failure(-EMSGSIZE, old_user_version), cx);
        }
        let reply = Reply {
            result,
            user_version: change.user_version,
            enoent: None,
            effects,
        };
        self.take_change(op, reply, r.key, change, cx);
    }

    /// The version of the next change.
    pub(super) fn next_version(&self) -> EVersion {
        EVersion::new(self.site.map.epoch(), self.copy.info.last_update.version + 1)
    }

    /// Logs a change and sends it to all members that store it.
    fn take_change(&mut self, mut op: ClientOp, reply: Reply, key: Bytes, change: Change, cx: &mut Ctx<'_>) {
        // The data read for the request is not needed any more.
        op.taken.room = Room::default();
        let returns = op.flags.intersects(OsdFlags::RETURNVEC);
        let entry = LogEntry {
            version: change.version,
            prior_version: change.prior_version,
            user_version: change.user_version,
            reqid: op.reqid,
            object: op.object.clone(),
            op: if change.state.exists {
                LogOp::Modify
            } else {
                LogOp::Delete
            },
            mtime: op.mtime,
            return_code: if returns { reply.result } else { 0 },
            op_returns: if returns {
                op_returns(&op, &self.site.cfg)
            } else {
                Vec::new()
            },
            usage: self.copy.info.usage.plus(change.usage),
            clones: change.clones,
            dirty: change.dirty,
        };
        if let Some(c) = self.ops.contexts.set_state(&key, change.state) {
            c.uncommitted += 1;
        }
        self.counters.add_io(change.io);
        self.ops.stages.taken(&change.objects);
        if let Some(lost) = self.role.lost() {
            change.renewed.iter().for_each(|key| lost.remove(key));
        }
        let txn = Txn {
            objects: change.objects,
            meta: Vec::with_capacity(1),
        };
        let mut op = op;
        let ahead = op.taken.ahead.take();
        if let Some(hold) = &mut op.taken.hold {
            hold.set_copies(copied_bytes(&txn.objects) * COPIES);
        }
        self.replicate(Some((op, reply)), Some(key), entry, (txn, ahead), cx);
    }

    /// Logs a write that failed and changed nothing, so that it fails alike when it is sent again.
    fn log_failure(&mut self, mut op: ClientOp, reply: Reply, cx: &mut Ctx<'_>) {
        op.taken.ahead = None; // Nobody has a use for it.
        let returns = op.flags.intersects(OsdFlags::RETURNVEC);
        let entry = LogEntry {
            version: self.next_version(),
            prior_version: EVersion::ZERO,
            user_version: 0,
            reqid: op.reqid,
            object: op.object.clone(),
            op: LogOp::Error,
            mtime: Default::default(),
            return_code: reply.result,
            op_returns: if returns {
                op_returns(&op, &self.site.cfg)
            } else {
                Vec::new()
            },
            usage: self.copy.info.usage,
            clones: Vec::new(),
            dirty: Dirty::default(),
        };
        self.replicate(Some((op, reply)), None, entry, (Txn::default(), None), cx);
    }

    /// Sends a change to the replicas and to the store, with the data of it that members have already.
    /// A change without a request is the PG's own.
    pub(super) fn replicate(
        &mut self,
        mut request: Option<(ClientOp, Reply)>,
        key: Option<Bytes>,
        entry: LogEntry,
        (txn, ahead): (Txn, Option<Box<Ahead>>),
        cx: &mut Ctx<'_>,
    ) {
        let version = entry.version;
        let prev = self.copy.info.last_update;
        let record = entry.to_bytes();
        let trim_to = self.trim_point();
        self.copying.overtake_repair(&txn);
        let change = entry.usage.since(self.copy.info.usage);
        if let Some(run) = self.role.scrub().and_then(|s| s.run()) {
            let change = match self.site.cfg.has_bug(Bug::UncountedWrites) {
                true => Usage::default(),
                false => change,
            };
            run.touch(txn.objects.iter().map(|(key, _)| key), change);
        }
        if let Some((op, _)) = &mut request {
            op.stamps.sub_ops_sent = cx.usec;
        }
        let a = active(self.role, self.site);
        let newest = a.in_flight.back().map_or(a.committed, |w| w.version);
        invariant!(
            version > newest,
            "writes whose versions ascend";
            pg = self.site.pgid, epoch = self.site.map.epoch(), newest = newest, version = version, object = entry.object
        );
        let change = backend::Change {
            pgid: self.site.pgid,
            id: self.lead.id,
            prev,
            entry: record.clone(),
            trim_to,
            stable: a.committed,
            txn,
            holders: self.store.gathers.members.clone(),
            own: self.copy.info.part,
            ahead,
        };
        let (mut txn, sent) = self.site.backend.write(change, &a.peers, cx);
        if a.in_flight.is_empty() {
            a.sent = cx.usec;
        }
        invariant!(
            a.in_flight.back().is_none_or(|w| w.version < version),
            "writes under way to be in the order of their versions";
            pg = self.site.pgid, epoch = self.site.map.epoch(), version = version
        );
        a.in_flight.push_back(InFlight {
            version,
            request,
            key,
            stage: None,
            sent,
            dups: Vec::new(),
        });
        let before = self
            .copy
            .note_redo(self.site.pgid, version, a.committed, &mut txn);
        self.store.record(before, cx);
        txn.meta
            .push(MetaOp::Put(key::log_key(self.site.pgid, version), record));
        self.copy.note_entry(entry);
        self.copy.trim_log_to(trim_to, self.site, &mut txn);
        self.store.submit(txn, Commit::Write(version), cx);
    }

    /// As [`Pg::replicate`], for a change of the PG's own that clients don't see. `stage`: the op
    /// that waits for it. `ahead`: the data of it that members have already.
    pub(super) fn replicate_own(
        &mut self,
        stage: Option<u32>,
        objects: Vec<(Bytes, Vec<ObjectOp>)>,
        ahead: Option<Box<Ahead>>,
        cx: &mut Ctx<'_>,
    ) {
        let entry = LogEntry {
            version: self.next_version(),
            prior_version: EVersion::ZERO,
            user_version: 0,
            reqid: ReqId::default(),
            object: self.site.pgid.hobj_start(),
            // To no object anything happens.
            op: LogOp::Error,
            mtime: UTime::ZERO,
            return_code: 0,
            op_returns: Vec::new(),
            usage: self.copy.info.usage,
            clones: Vec::new(),
            dirty: Dirty::default(),
        };
        let txn = Txn {
            objects,
            meta: Vec::with_capacity(1),
        };
        self.replicate(None, None, entry, (txn, ahead), cx);
        if let Role::Active(a) = &mut self.role
            && let Some(w) = a.in_flight.back_mut()
        {
            w.stage = stage;
        }
    }

    /// The version up to which the log can be trimmed: it is durable everywhere, and the log is
    /// long.
    fn trim_point(&self) -> EVersion {
        let Role::Active(a) = &self.role else {
            return EVersion::ZERO;
        };
        let log = &self.copy.log;
        let stretch = self.role.backfill().map_or(1, Backfill::log_stretch);
        let long = log.len() > self.site.shares.log_entries * stretch + TRIM_BATCH;
        let heavy = log.bytes() > self.site.cfg.max_log_bytes * stretch && log.len() > TRIM_BATCH;
        if !long && !heavy {
            return EVersion::ZERO;
        }
        log.iter()
            .nth(TRIM_BATCH - 1)
            .map_or(EVersion::ZERO, |e| e.version.min(a.committed))
    }

    /// Notes that a replica is durable up to a version.
    pub(super) fn rep_committed(&mut self, from: OsdId, v: EVersion, cx: &mut Ctx<'_>) {
        let Role::Active(a) = &mut self.role else {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        };
        let Some((_, at)) = a.peers.iter_mut().find(|(o, _)| *o == from) else {
            return dropped!(cx.perf.dropped, DropReason::PeerForeign; pg = self.site.pgid, from = from);
        };
        *at = v.max(*at);
        self.advance(cx);
    }

    /// Answers the writes that are durable everywhere now, in order.
    pub(super) fn advance(&mut self, cx: &mut Ctx<'_>) {
        let is_lonely = self.site.cfg.has_bug(Bug::AloneAck);
        let a = active(self.role, self.site);
        let peers = a.peers.iter().filter(|_| !is_lonely);
        let all = peers.map(|(_, v)| *v).fold(a.local, EVersion::min);
        for w in &mut a.in_flight {
            if w.version > a.local {
                break;
            }
            if let Some((op, _)) = w
                .request
                .as_mut()
                .filter(|(op, _)| op.stamps.local_commit.is_zero())
            {
                op.stamps.local_commit = cx.usec;
            }
        }
        invariant!(
            all >= a.committed,
            "what was durable on all members to stay so";
            pg = self.site.pgid, epoch = self.site.map.epoch(), all = all, committed = a.committed
        );
        a.committed = all;
        loop {
            let a = active(self.role, self.site);
            if a.in_flight.front().is_none_or(|w| w.version > a.committed) {
                break;
            }
            let Some(w) = a.in_flight.pop_front() else { break };
            a.sent = cx.usec;
            self.complete(w, cx);
        }
        self.trimming().trim_on(cx);
    }

    fn complete(&mut self, w: InFlight, cx: &mut Ctx<'_>) {
        if let Some((mut op, said)) = w.request {
            op.stamps.peer_commit = cx.usec;
            cx.note_slow(&op);
            if w.key.is_some() && said.result >= 0 {
                cx.images.note(&op, cx.usec);
            }
            let acks = OsdFlags::ACK.with(OsdFlags::ONDISK);
            let mut reply: MOsdOpReply = op.reply(said.result, self.site.map.epoch(), acks);
            reply.set_versions(w.version, said.user_version);
            if let Some((v, user_version)) = said.enoent {
                reply.set_enoent_versions(v, user_version);
            }
            self.site.reply(&op, reply, 0, cx);
            if let Some(key) = &w.key {
                self.ops.apply_watch_effects(key, said.effects, &op.client, cx);
            }
        }
        for (dup, answer) in w.dups {
            self.site.reply_again(dup, &answer, cx);
        }
        if let Some(key) = w.key {
            if let Some(c) = self.ops.contexts.find(&key) {
                invariant!(c.uncommitted > 0, "a write that ends to have held its object"; pg = self.site.pgid, epoch = self.site.map.epoch(), version = w.version);
                c.uncommitted -= 1;
            }
            self.pump(&key, cx);
            // Not only with the next request, which may be long in coming: of each PG one large
            // object would stay.
            if self.ops.contexts.extras() > self.site.shares.context_bytes {
                self.ops
                    .contexts
                    .evict(self.site.shares.contexts, self.site.shares.context_bytes);
            }
        }
        if let Some(seq) = w.stage {
            self.staging().stage_next(seq, cx);
        }
    }

    /// Tells the members that all writes are durable everywhere, if they keep the steps of some. Under
    /// load each write tells it of those before.
    pub(super) fn tell_stable(&mut self, cx: &mut Ctx<'_>) {
        let Role::Active(a) = &self.role else {
            // Only a primary that serves knows.
            return;
        };
        if self.copy.redo.is_empty() || !a.in_flight.is_empty() {
            // The next write tells it, or nobody needs to know.
            return;
        }
        let stable = a.committed;
        for (osd, _) in &a.peers {
            self.outbox
                .send(*osd, self.lead.id, PeerBody::Stable(stable), false, cx);
        }
        let mut txn = Txn::default();
        self.copy.redo.forget(self.site.pgid, stable, &mut txn.meta);
        self.store.record(txn, cx);
    }

    /// Sends the writes again that an OSD (or anyone) has not confirmed.
    pub(super) fn resend_writes(&mut self, only: Option<OsdId>, cx: &mut Ctx<'_>) {
        if self.site.cfg.has_bug(Bug::NoResend) {
            return; // As simulations want it.
        }
        let a = active(self.role, self.site);
        a.sent = cx.usec;
        for (osd, committed) in a.peers.iter().filter(|(o, _)| only.is_none_or(|x| x == *o)) {
            for w in a.in_flight.iter().filter(|w| w.version > *committed) {
                cx.out.push(Output::Send {
                    osd: *osd,
                    msg: w.sent.to(*osd).clone(),
                    reply: false,
                });
            }
        }
    }
}

/// The result and data of each op, for the log. The data that a failed write has read before it
/// failed is left out, as the log may keep only a little: sent again, the request fails alike,
/// without it.
fn op_returns(op: &ClientOp, cfg: &PgConfig) -> Vec<(i32, Bytes)> {
    let mut left = cfg.max_write_reply;
    let returned = |o: &OsdOp| {
        let data = match o.outdata.len() <= left.min(cfg.max_write_op_reply_len) {
            true => o.outdata.to_bytes(),
            false => Bytes::new(),
        };
        left -= data.len();
        (o.rval, data)
    };
    op.ops.iter().map(returned).collect()
}
