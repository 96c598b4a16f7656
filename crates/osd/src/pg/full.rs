//! Changes for which there is no room.
//!
//! As in Ceph they are dropped without an answer, and the client sends them again when the map no
//! longer says that the pool is full. Until then nothing of the same client may overtake them:
//! writes that grow nothing would find room, and the client's requests would be executed in another
//! order than it sent them. So all its later writes are dropped, too, until one comes that was sent
//! after the client had seen that there is room, or on another connection: on a new one a client
//! sends again all that was not answered.
//!
//! A write may be dropped although the map no longer says that the pool is full: that a member has
//! room is told to its primaries and to the monitors at the same time. The client learns of no
//! change then, so its connection is ended.

use std::collections::HashMap;
use std::sync::Arc;

use spirula_denc::EntityName;
use spirula_errno::Errno;
use spirula_errno::*;
use spirula_maps::Epoch;
use spirula_proto::osd::OsdFlags;

use super::op::{Client, ClientOp};
use super::output::{Ctx, Output};
use super::perf::DropReason;
use super::site::Site;

/// The first write of a client that was dropped.
#[derive(Debug)]
struct First {
    tid: u64,
    /// The map's epoch when a write was last dropped.
    epoch: Epoch,
    client: Arc<Client>,
    /// Whether the client's connection was ended.
    hung_up: bool,
}

/// Clients with dropped writes.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// The first dropped write of each client. As a client itself, they live as long as the
    /// interval.
    first: HashMap<EntityName, First>,
    /// The last map that said that the pool is no longer full.
    room_since: Epoch,
}

impl Dropped {
    fn add(&mut self, op: &ClientOp, epoch: Epoch) {
        let first = self.first.entry(op.reqid.name).or_insert_with(|| First {
            tid: op.reqid.tid,
            epoch,
            client: Arc::clone(&op.client),
            hung_up: false,
        });
        first.tid = first.tid.min(op.reqid.tid);
        first.epoch = epoch;
    }

    /// Notes that the pool is no longer full since this epoch.
    pub(super) fn room(&mut self, epoch: Epoch) {
        // A client that has not written since the room before is not heard of any more.
        let before = self.room_since;
        self.first.retain(|_, f| f.epoch >= before);
        self.room_since = epoch;
    }

    /// Whether this write was sent before the client sends its dropped writes again.
    fn is_overtaken_by(&mut self, op: &ClientOp) -> bool {
        let Some(first) = self.first.get(&op.reqid.name) else {
            return false;
        };
        let knows = self.room_since > first.epoch && op.epoch >= self.room_since;
        if knows || op.client.conn != first.client.conn {
            self.first.remove(&op.reqid.name);
            return false;
        }
        op.reqid.tid > first.tid
    }

    /// The clients that no map will tell of room, as the last one did before their writes were
    /// dropped.
    fn uninformed(&mut self) -> impl Iterator<Item = Arc<Client>> {
        let since = self.room_since;
        let those = self
            .first
            .values_mut()
            .filter(move |f| f.epoch >= since && !f.hung_up);
        those.map(|f| {
            f.hung_up = true;
            Arc::clone(&f.client)
        })
    }
}

/// Whether a request wants an answer even if there is no room.
fn insists(op: &ClientOp) -> bool {
    op.flags.intersects(OsdFlags::FULL_FORCE) || op.flags.intersects(OsdFlags::FULL_TRY)
}

impl Site {
    /// Checks that there is room for a change; if not, the error, or `None` for no answer: the
    /// client sends it again when the map no longer says that the pool is full. `grows`: the PG's
    /// usage grows; `stores`: there is new data, even if it replaces old.
    pub(super) fn check_full(
        &self,
        op: &ClientOp,
        grows: bool,
        stores: bool,
        cx: &Ctx<'_>,
    ) -> Result<(), Option<Errno>> {
        let force = op.flags.intersects(OsdFlags::FULL_FORCE);
        // A change in the log must be stored by every member: if one has no room left, no flag
        // helps.
        let no_room = stores && self.lacks_room(cx);
        if !no_room && (!grows || !self.pool.full || force) {
            return Ok(());
        }
        if insists(op) {
            let e = if self.pool.full_quota { EDQUOT } else { ENOSPC };
            return Err(Some(e));
        }
        Err(None)
    }

    /// Whether a member has no room.
    fn lacks_room(&self, cx: &Ctx<'_>) -> bool {
        !cx.full.is_empty() && self.interval.place.acting.osds().any(|o| cx.full.contains(&o))
    }
}

impl Dropped {
    /// Whether a write must be dropped, as an earlier one of its client was.
    pub(super) fn overtakes(&mut self, op: &ClientOp) -> bool {
        !insists(op) && self.is_overtaken_by(op)
    }

    /// Makes clients send dropped writes again, if there is room and the map will not tell them.
    pub(super) fn recall(&mut self, site: &Site, cx: &mut Ctx<'_>) {
        if !site.pool.full && !site.lacks_room(cx) {
            let clients = self.uninformed();
            cx.out.extend(clients.map(|client| Output::HangUp { client }));
        }
    }

    /// Notes a write that was dropped, as there is no room.
    pub(super) fn note(&mut self, op: &ClientOp, site: &Site, cx: &mut Ctx<'_>) {
        self.add(op, site.map.epoch());
        site.drop_op(op, DropReason::OpNoRoom, cx);
    }
}
