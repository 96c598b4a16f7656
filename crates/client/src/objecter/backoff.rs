//! Backoffs: an OSD asks clients not to send requests for a range of objects of a PG, and later
//! says that it takes them again (Ceph's `doc/dev/osd_internals/backoff.rst`). The client then
//! resends the requests that the OSD dropped meanwhile.

use std::collections::BTreeMap;

use spirula_maps::{HObject, SpgId, snap};
use spirula_maps::{OsdId, types::or_none};
use spirula_proto::Payload;
use spirula_proto::osd::{BackoffOp, MOsdBackoff, MOsdOp};

use super::core::{Action, Core};

/// The backoffs of a session, by PG and the OSD's number.
#[derive(Debug, Default)]
pub(super) struct Backoffs(BTreeMap<(SpgId, u64), Held>);

/// The held objects: those from `begin` to before `end`, or the one object where both are equal.
#[derive(Debug)]
struct Held {
    begin: HObject,
    end: HObject,
}

impl Held {
    fn contains(&self, object: &HObject) -> bool {
        let Self { begin, end } = self;
        object >= begin && (object < end || object == end && begin == end)
    }
}

fn object(op: &MOsdOp) -> HObject {
    let locator = &op.locator;
    HObject::new(
        or_none::number(locator.pool),
        locator.nspace.clone(),
        locator.key.clone(),
        op.oid.clone(),
        snap::NOSNAP,
        op.hash,
    )
}

impl Backoffs {
    /// Whether a request must wait.
    pub(super) fn hold(&self, op: &MOsdOp) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let object = object(op);
        self.0
            .range((op.spg, 0)..=(op.spg, u64::MAX))
            .any(|(_, range)| range.contains(&object))
    }
}

impl Core {
    /// Handles a backoff on the session of this number.
    pub(super) fn handle_backoff(&mut self, osd: OsdId, number: u64, msg: MOsdBackoff) {
        let epoch = self.epoch();
        let Some(session) = self.sessions.get_mut(&osd).filter(|s| s.number == number) else {
            return;
        };
        let (spg, id) = (msg.spg, msg.id);
        match msg.op {
            BackoffOp::BLOCK => {
                let held = Held {
                    begin: msg.begin.clone(),
                    end: msg.end.clone(),
                };
                session.backoffs.0.insert((spg, id), held);
                let ack = MOsdBackoff {
                    epoch,
                    op: BackoffOp::ACK_BLOCK,
                    ..msg
                };
                self.actions.push_back(Action::Send(osd, ack.to_message()));
            }
            BackoffOp::UNBLOCK => {
                let Some(range) = session.backoffs.0.remove(&(spg, id)) else {
                    tracing::debug!("osd.{osd} ends backoff {id}, which it did not begin");
                    return;
                };
                self.send_held(osd, spg, &range);
            }
            other => tracing::debug!("unexpected backoff {other}"),
        }
    }

    /// Sends the held requests, and resends those that were on their way when the backoff came.
    fn send_held(&mut self, osd: OsdId, spg: SpgId, range: &Held) {
        let of_it = |p: &super::core::Pending| {
            p.target.as_ref().is_some_and(|t| t.osd == osd)
                && p.op.spg == spg
                && range.contains(&object(&p.op))
        };
        let mut tids = Vec::new();
        for (tid, pending) in self.pending.iter_mut().filter(|(_, p)| of_it(p)) {
            pending.sent = false;
            tids.push(*tid);
        }
        tids.into_iter().for_each(|tid| self.aim(tid));
    }
}
