//! What happens to changes for which there is no room.
//!
//! As in Ceph they are dropped without an answer, and the client sends them again when the map no longer says that the pool is full.
//! Until then nothing of the same client may overtake them: what does not grow anything would find room, and the client's requests
//! would happen in another order than it sent them. So all its later writes are dropped, too, until one comes that was sent after the
//! client had seen that there is room.

use std::collections::HashMap;

use spirula_denc::EntityName;
use spirula_proto::osd::OsdFlags;

use super::Pg;
use super::errno::*;
use super::op::ClientOp;
use super::output::Ctx;

/// Clients with dropped writes.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// The first dropped write of each, and the map's epoch when it was dropped. Like a client itself, it lives as long as the
    /// interval.
    first: HashMap<EntityName, (u64, u32)>,
    /// The last map that said that the pool is no longer full.
    room_since: u32,
}

impl Dropped {
    fn add(&mut self, op: &ClientOp, epoch: u32) {
        let first = self.first.entry(op.reqid.name).or_insert((op.reqid.tid, epoch));
        *first = (first.0.min(op.reqid.tid), epoch);
    }

    /// The pool is no longer full since this epoch.
    pub(super) fn room(&mut self, epoch: u32) {
        // Whoever has not written since the room before is not heard of any more.
        let before = self.room_since;
        self.first.retain(|_, (_, dropped)| *dropped >= before);
        self.room_since = epoch;
    }

    /// Whether this write was sent before the client sends again what was dropped before it.
    fn is_overtaken_by(&mut self, op: &ClientOp) -> bool {
        let Some(&(tid, dropped)) = self.first.get(&op.reqid.name) else {
            return false;
        };
        if self.room_since > dropped && op.epoch >= self.room_since {
            self.first.remove(&op.reqid.name);
            return false;
        }
        op.reqid.tid > tid
    }
}

/// Whether a request wants an answer even where there is no room.
fn insists(op: &ClientOp) -> bool {
    op.flags.has(OsdFlags::FULL_FORCE) || op.flags.has(OsdFlags::FULL_TRY)
}

impl Pg {
    /// Whether a write must be dropped, as an earlier one of its client was.
    pub(super) fn overtakes_dropped(&mut self, op: &ClientOp) -> bool {
        !insists(op) && self.dropped.is_overtaken_by(op)
    }

    /// Whether there is room for a change; if not, the error, or `None` to say nothing: the client sends it again when
    /// the map no longer says that the pool is full. `grows`: the PG's usage; `stores`: new data, even if it replaces
    /// old.
    pub(super) fn check_full(
        &self,
        op: &ClientOp,
        grows: bool,
        stores: bool,
        cx: &Ctx<'_>,
    ) -> Result<(), Option<i32>> {
        let force = op.flags.has(OsdFlags::FULL_FORCE);
        // What is in the log must be stored by every member: where one has no room left, no flag helps.
        let no_room =
            stores && !cx.full.is_empty() && self.interval.place.acting.iter().any(|o| cx.full.contains(o));
        if !no_room && (!grows || !self.pool.full || force) {
            return Ok(());
        }
        if insists(op) {
            let e = if self.pool.full_quota { EDQUOT } else { ENOSPC };
            return Err(Some(-e));
        }
        Err(None)
    }

    /// Drops a write for which there is no room.
    pub(super) fn drop_write(&mut self, op: &ClientOp) {
        self.dropped.add(op, self.map.epoch());
    }
}
