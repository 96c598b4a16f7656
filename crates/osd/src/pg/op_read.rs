//! Ops that only read: answered once this OSD may answer reads.

use spirula_errno::*;
use spirula_maps::{EVersion, snap};
use spirula_proto::osd::{OpFlags, OsdFlags};

use super::account::Room;
use super::exec::Outcome;
use super::op::OsdOp;
use super::op_checks::data_off;
use super::output::Ctx;
use super::reading::Reading;
use super::serving::Serving;

impl Serving<'_> {
    pub(super) fn execute_read(&mut self, mut r: Reading, cx: &mut Ctx<'_>) {
        self.lease(|l| l.keep_lease(cx));
        if !self.role.has_lease(&self.site.cfg, cx.usec) {
            // The lease has ended while the store read.
            r.op.reset();
            r.op.taken.room = Room::default();
            if let Some(c) = self.ops.contexts.find(&r.key) {
                c.queue.push_front(r.op);
            }
            return self.await_lease(&r.key, cx);
        }
        let epoch = self.site.map.epoch();
        let state = self.object_of(&r.op, &r.key, r.clone.as_ref());
        let is_there = state.exists || r.op.snapid == snap::SNAPDIR && state.info.whiteout;
        if !is_there {
            return self.site.fail(&mut r.op, ENOENT, cx);
        }
        let user_version = state.info.user_version;
        let on = (&r.key, state);
        let Outcome { mut result, left, .. } = match self.run(on, &mut r.op, &mut r.answers, None, cx.now) {
            Ok(outcome) => outcome,
            Err(wants) => return self.fetch(r, wants, cx),
        };
        if result >= 0 {
            let has_failed = |o: &&OsdOp| o.rval < 0 && !o.flags.intersects(OpFlags::FAILOK);
            result = r.op.ops.iter().find(has_failed).map_or(result, |o| o.rval);
        }
        self.counters.add_io(left.io);
        let (key, mut op) = (r.key, r.op);
        if result >= 0 {
            self.ops
                .apply_watch_effects(&key, left.watch_effects, &op.client, cx);
        }
        cx.note_slow(&op);
        if result >= 0 {
            cx.images.note(&op, cx.usec);
        }
        let mut reply = op.reply(result, epoch, OsdFlags::ACK.with(OsdFlags::ONDISK));
        if result >= 0 {
            reply.set_versions(EVersion::ZERO, user_version);
        } else if result == -ENOENT {
            reply.set_enoent_versions(self.copy.info.last_update, self.copy.info.last_user_version);
        }
        self.site.reply(&op, reply, data_off(left.data_off), cx);
    }
}
