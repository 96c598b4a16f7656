//! Reads of the state at a snapshot: of a clone, in the order of its head.

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_invariant::invariant;
use spirula_maps::{SnapId, snap};

use super::set::At;
use crate::pg::exec::{ObjectState, up_front};
use crate::pg::fetch::ReadError;
use crate::pg::key;
use crate::pg::object::StoredObject;
use crate::pg::op::ClientOp;
use crate::pg::output::Ctx;
use crate::pg::reading::CloneRead;
use crate::pg::reading::Reading;
use crate::pg::serving::Serving;
use crate::pg::store_queue::Pending;

/// The object that an op works on, given the head: the head itself for writes, and for listing
/// snapshots.
pub(in crate::pg) fn place(op: &ClientOp, head: &ObjectState, removed: &spirula_maps::IntervalSet) -> At {
    if op.snapid > snap::MAXSNAP {
        return At::Head;
    }
    head.info.snap_set.at(op.snapid, removed)
}

impl Serving<'_> {
    /// Looks up the clone that an op reads; meanwhile it counts as a read of the object.
    pub(in crate::pg) fn look_up_clone(&mut self, head: &Bytes, op: ClientOp, id: SnapId, cx: &mut Ctx<'_>) {
        if let Some(c) = self.ops.contexts.find(head) {
            c.reading += 1;
        }
        let key = key::clone_key(head, id);
        let clone = CloneRead {
            key: key.clone(),
            state: ObjectState::default(),
        };
        let reading = Reading {
            op,
            key: head.clone(),
            answers: Vec::new(),
            clone: Some(clone),
            base: None,
        };
        self.store.look_up(key, Pending::Op(Box::new(reading)), cx);
    }

    /// Handles the store's answer about a clone.
    pub(in crate::pg) fn clone_loaded(
        &mut self,
        mut r: Reading,
        found: Result<Option<StoredObject>, ReadError>,
        cx: &mut Ctx<'_>,
    ) {
        if let Some(c) = self.ops.contexts.find(&r.key) {
            invariant!(c.reading > 0, "a clone that was looked up to have held its object"; pg = self.site.pgid, epoch = self.site.map.epoch());
            c.reading -= 1;
        }
        let state = match found {
            Ok(Some(o)) => decode_all(&o.info).ok().map(|info| ObjectState {
                exists: true,
                info,
                attrs: o.attrs,
            }),
            // The snap set names it.
            Ok(None) | Err(ReadError) => None,
        };
        let key = r.key.clone();
        match (state, &mut r.clone) {
            (Some(state), Some(clone)) => {
                clone.state = state;
                let wants = up_front(&self.site.cfg, &clone.state, &mut r.op.ops);
                if wants.is_empty() {
                    self.execute(r, cx);
                } else {
                    self.fetch(r, wants, cx);
                }
            }
            (_, clone) => {
                let damaged = clone.as_ref().map_or(&r.key, |c| &c.key).clone();
                if let Some(op) = self.repairing().await_repair(&damaged, r.op, cx) {
                    self.fail_unreadable(op, cx);
                }
            }
        }
        self.pump(&key, cx);
    }
}
