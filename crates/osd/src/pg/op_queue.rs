//! The queue of ops: those that wait for the PG, for their object, or for a staging object; and the
//! objects in use.

use std::collections::VecDeque;
use std::sync::Arc;

use super::context::Contexts;
use super::full::Dropped;
use super::op::ClientOp;
use super::output::{Ctx, Output};
use super::stage::Stages;
use super::watch::Watches;
use spirula_maps::Epoch;

/// Clients' ops that wait, in their order.
#[derive(Debug, Default)]
pub(super) struct OpQueue {
    /// The ops that wait for the PG to be active.
    pub(super) held: VecDeque<ClientOp>,
    /// Objects in use, and the ops that wait for them.
    pub(super) contexts: Contexts,
    /// The watches of the PG's objects.
    pub(super) watches: Watches,
    /// Staging objects, and the copies that are fetched.
    pub(super) stages: Stages,
    /// Clients whose writes were dropped as there was no room.
    pub(super) dropped: Dropped,
}

impl OpQueue {
    /// Holds ops until the PG is active, before all others that are held.
    pub(super) fn hold_first(&mut self, ops: Vec<ClientOp>) {
        for mut op in ops.into_iter().rev() {
            op.reset();
            op.park();
            self.held.push_front(op);
        }
    }

    /// Drops the held ops that were sent before epoch `since`. The clients of all held ops get the
    /// map: it makes them send dropped ops again, and ops that wait elsewhere, and nobody else
    /// sends the map to a client that only waits.
    pub(super) fn recheck_held(&mut self, since: Epoch, cx: &mut Ctx<'_>) {
        cx.out.extend(self.held.iter().map(|op| Output::ShareMap {
            client: Arc::clone(&op.client),
            epoch: op.epoch,
        }));
        self.held.retain(|op| op.epoch >= since);
    }
}
