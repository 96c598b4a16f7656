//! The checks of a client's request before its execution, in the order of the official `do_op`.

use std::sync::Arc;

use spirula_cephx::caps::ClassCall;
use spirula_classes::Flags;
use spirula_denc::{Reader, UTime};
use spirula_errno::*;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::snap;
use spirula_proto::osd::{OpCode, OsdFlags};
use spirula_proto::osd_op_data::CopySource;

use super::key;
use super::op::{ClientOp, OsdOp};
use super::output::{Ctx, Output};
use super::perf::DropReason;
use super::role::Role;
use super::serving::Serving;
use super::site::Site;

/// The verdict on a request.
pub(super) enum Verdict {
    /// Go on.
    Pass,
    /// Do not answer: the client sends it again, or it was not meant for this OSD.
    Drop(DropReason),
    /// Answer with an error.
    Fail(Errno),
}

impl Site {
    pub(super) fn check(&self, op: &ClientOp) -> Verdict {
        if !self.contains(&op.object) {
            return Verdict::Drop(DropReason::OpMisdirected);
        }
        if op.flags.intersects(OsdFlags::PARALLELEXEC) || op.ops.is_empty() {
            return Verdict::Fail(EINVAL);
        }
        if op.ops.len() > self.cfg.max_ops || op.snapc.snaps.len() > self.cfg.max_snaps {
            return Verdict::Fail(E2BIG);
        }
        // That there is no such method shows before capabilities are looked at.
        if let Err(e) = self.check_calls(op) {
            return Verdict::Fail(e);
        }
        if !op.may_read() && !op.write_ordered() && !op.is_pg_op() {
            return Verdict::Fail(EINVAL);
        }
        if !self.is_allowed(op) || !op.ops.iter().all(|o| self.may_read_source(op, o)) {
            return Verdict::Fail(EPERM);
        }
        if op.client.is_shut_out(&*self.map) {
            return Verdict::Fail(EBLOCKLISTED);
        }
        if op.is_pg_op() && op.ops.len() > self.cfg.max_listings {
            return Verdict::Fail(E2BIG);
        }
        Verdict::Pass
    }

    /// Whether every class method that a request calls may be used and exists; if not, the errno.
    fn check_calls(&self, op: &ClientOp) -> Result<(), Errno> {
        for o in op.ops.iter().filter(|o| o.code == OpCode::CALL) {
            let call = o.call.as_ref().ok_or(EINVAL)?;
            if !in_class_list(&self.cfg.class_load_list, &call.class) {
                return Err(EPERM);
            }
            call.method.ok_or(EOPNOTSUPP)?;
        }
        Ok(())
    }

    /// Whether the client's capabilities cover a request.
    fn is_allowed(&self, op: &ClientOp) -> bool {
        let calls: Vec<_> = op
            .calls()
            .filter_map(|c| {
                let method = c.method?;
                Some(ClassCall {
                    class: std::str::from_utf8(&c.class).ok()?,
                    method: method.name,
                    read: method.flags.contains(Flags::RD),
                    write: method.flags.contains(Flags::WR),
                    default_allowed: in_class_list(&self.cfg.class_default_list, &c.class),
                })
            })
            .collect();
        let (read, write) = (op.needs_read_cap(), op.needs_write_cap());
        let nspace = op.object.nspace.as_bytes();
        // A listing is about all names, whatever locator key it comes with: no prefix of names
        // allows it.
        let key = match op.is_pg_op() {
            true => &[][..],
            false => op.object.effective_key().as_bytes(),
        };
        op.client
            .access
            .allows(&self.pool, nspace, key, read, write, &calls)
    }

    /// Whether the client may read the object that an op copies; true for all other ops. This OSD's
    /// peers read the object for it without checking the client's rights.
    fn may_read_source(&self, op: &ClientOp, o: &OsdOp) -> bool {
        if !matches!(o.code, OpCode::COPY_FROM | OpCode::COPY_FROM2) {
            return true;
        }
        // An op that does not decode, or names no pool, fails when it is executed.
        let Ok(source) = Reader::new(&o.indata).get::<CopySource>() else {
            return true;
        };
        let l = &source.locator;
        let Some(pool) = l.pool.and_then(|id| self.map.pool(id)) else {
            return true;
        };
        let key = if l.key.is_empty() { &source.oid } else { &l.key };
        let access = &op.client.access;
        access.allows(&pool, l.nspace.as_bytes(), key.as_bytes(), true, false, &[])
    }

    /// Drops a client's request without an answer.
    pub(super) fn drop_op(&self, op: &ClientOp, reason: DropReason, cx: &mut Ctx<'_>) {
        dropped!(cx.perf.dropped, reason; pg = self.pgid, client = op.reqid.name, tid = op.reqid.tid);
    }

    pub(super) fn check_object_op(&self, op: &ClientOp) -> Verdict {
        let o = &op.object;
        let (cfg, pool) = (&self.cfg, &self.pool);
        if o.oid.len() > cfg.max_object_name_len
            || o.key.len() > cfg.max_object_name_len
            || o.nspace.len() > cfg.max_object_namespace_len
        {
            return Verdict::Fail(ENAMETOOLONG);
        }
        if o.oid.is_empty() {
            return Verdict::Fail(EINVAL);
        }
        if key::is_too_long(o) {
            return Verdict::Fail(ENAMETOOLONG);
        }
        if pool.eio {
            let knows = op.flags.intersects(OsdFlags::SUPPORTSPOOLEIO);
            return match knows {
                true => Verdict::Drop(DropReason::OpPoolEio),
                false => Verdict::Fail(EIO),
            };
        }
        if op.may_write() {
            if op.snapid != snap::NOSNAP {
                return Verdict::Fail(EINVAL);
            }
            if op.data_len() > cfg.max_write_size {
                return Verdict::Fail(EMSGSIZE);
            }
            if op.flags.intersects(OsdFlags::RETURNVEC) && op.ops.len() > cfg.max_returning_ops {
                return Verdict::Fail(E2BIG);
            }
            if !op.snapc.is_valid() {
                return Verdict::Fail(EINVAL);
            }
        }
        // Snapshots are listed with the directory of snapshots, and only then.
        let lists = |o: &OsdOp| o.code == OpCode::LIST_SNAPS;
        if op.ops.iter().any(|o| lists(o) != (op.snapid == snap::SNAPDIR)) {
            return Verdict::Fail(EINVAL);
        }
        Verdict::Pass
    }
}

impl Serving<'_> {
    /// Handles a request of a client. Its epoch is not newer than the PG's map.
    pub(in crate::pg) fn handle_op(&mut self, mut op: ClientOp, cx: &mut Ctx<'_>) {
        op.stamps.queued = cx.usec;
        invariant!(
            op.epoch <= self.site.map.epoch(),
            "a request to wait for its map";
            pg = self.site.pgid, client = op.reqid.name, epoch = op.epoch, map = self.site.map.epoch()
        );
        if self.is_stale(&op) {
            let client = Arc::clone(&op.client);
            return cx.out.push(Output::ShareMap {
                client,
                epoch: op.epoch,
            });
        }
        match self.role {
            Role::Active(_) => self.do_op(op, cx),
            // Looked at again when it is its turn, by the map of then.
            Role::Peering(_) => match self.site.check(&op) {
                Verdict::Pass => {
                    op.park();
                    self.ops.held.push_back(op);
                }
                Verdict::Drop(reason) => self.site.drop_op(&op, reason, cx),
                Verdict::Fail(e) => self.site.fail(&mut op, e, cx),
            },
            _ if self.is_replica_read(&op) => self.replica_read(op, cx),
            _ => cx.turn_away(op, self.site.map.epoch()),
        }
    }

    /// Whether the client sends the request again by itself, as its newer map tells it to.
    fn is_stale(&self, op: &ClientOp) -> bool {
        let i = &self.site.interval;
        self.role.is_primary() && op.epoch < i.same_primary_since
            || op.epoch < self.site.pool.last_force_op_resend
            || op.epoch < i.split_at
    }

    fn do_op(&mut self, mut op: ClientOp, cx: &mut Ctx<'_>) {
        match self.site.check(&op) {
            Verdict::Pass => {}
            Verdict::Drop(reason) => return self.site.drop_op(&op, reason, cx),
            Verdict::Fail(e) => return self.site.fail(&mut op, e, cx),
        }
        if op.is_pg_op() {
            if !self.role.has_lease(&self.site.cfg, cx.usec) {
                return self.list_later(op, cx);
            }
            return self.list(op, cx);
        }
        match self.site.check_object_op(&op) {
            Verdict::Pass => {}
            Verdict::Drop(reason) => return self.site.drop_op(&op, reason, cx),
            Verdict::Fail(e) => return self.site.fail(&mut op, e, cx),
        }
        if op.may_write() && self.copy.is_dup(&op, self.site) {
            return self.answer_dup(op, cx);
        }
        let key = key::object_key(&op.object);
        self.queue_op(key, op, cx);
    }

    /// Answers a repeated request as the first time, once that is durable.
    pub(super) fn answer_dup(&mut self, op: ClientOp, cx: &mut Ctx<'_>) {
        let Some(answer) = self.copy.answer_to(&op.reqid) else {
            impossible!(
                "a request that was recognised to be remembered";
                pg = self.site.pgid, epoch = self.site.map.epoch(), client = op.reqid.name, tid = op.reqid.tid, object = op.object
            );
        };
        if let Role::Active(a) = &mut self.role
            && answer.version > a.committed
        {
            let Some(w) = a.in_flight.iter_mut().find(|w| w.version == answer.version) else {
                impossible!(
                    "a change that is not durable everywhere to be under way";
                    pg = self.site.pgid, epoch = self.site.map.epoch(), version = answer.version, committed = a.committed
                );
            };
            return w.dups.push((op, answer));
        }
        self.site.reply_again(op, &answer, cx);
    }
}

/// Whether a list of classes (`osd_class_load_list`, `osd_class_default_list`) has this one, or `*`
/// for all.
pub(super) fn in_class_list(list: &str, class: &[u8]) -> bool {
    list.split_whitespace().any(|c| c == "*" || c.as_bytes() == class)
}

/// The offset of the data within its object, as a reply's header has it.
pub(super) fn data_off(offset: Option<u64>) -> u16 {
    (offset.unwrap_or(0) & 0xffff) as u16
}

/// The time of a change: the client's.
pub(super) fn op_mtime(op: &ClientOp) -> UTime {
    op.mtime
}
