//! Ops on snapshots, and the clone that a change leaves behind. [`SnapSet`] knows which snapshots a
//! clone stands for.
//!
//! [`SnapSet`]: crate::pg::snaps::set::SnapSet

use bytes::Bytes;
use spirula_denc::{Extent, decode_all, encode_to_vec};
use spirula_errno::*;
use spirula_maps::{SnapContext, SnapId, snap};
use spirula_proto::osd_op_data::{CloneInfo, ListSnapsResponse};

use super::draft::Origin;
use super::{Changing, Looking, OpResult, Stop, fail};
use crate::pg::fetch::{Answer, Want};
use crate::pg::key;
use crate::pg::object::ObjectInfo;
use crate::pg::op::OsdOp;
use crate::pg::snaps::set::At;
use crate::pg::staged::Slot;
use crate::pg::txn::ObjectOp;

impl Changing<'_, '_> {
    /// The op that makes an object a copy of another one of the PG; a change holds only a limited
    /// part of an omap.
    fn copy_of(&mut self, source: &Bytes, has_omap: bool, slot: Slot) -> Result<ObjectOp, Stop> {
        let source = source.clone();
        if !has_omap {
            return Ok(ObjectOp::CloneOf(source));
        }
        let want = Want::Staged {
            source: source.clone(),
            slot,
        };
        match self.before.fetch(want)? {
            Answer::Staged(Ok(None)) => Ok(ObjectOp::CloneOf(source)),
            Answer::Staged(Ok(Some(whole))) => Ok(ObjectOp::MoveOf(whole.key.clone())),
            Answer::Staged(Err(e)) => Err(Stop::Failed(*e)),
            _ => fail(EIO),
        }
    }

    /// Prepares the clone that the change leaves behind, if any.
    ///
    /// # Errors
    /// It must be staged first, or that failed.
    pub(super) fn prepare_clone(&mut self, context: &SnapContext) -> Result<(), Stop> {
        let old = self.before.state;
        if old.exists && old.info.snap_set.wants_clone(context) {
            let by = self.copy_of(self.given.key, old.info.has_omap(), Slot::Was)?;
            self.draft.clone_by = Some(by);
        }
        Ok(())
    }

    /// Rolls the head back to a snapshot: to a copy of a clone, or to nothing.
    pub(super) fn rollback(&mut self, op: &OsdOp) -> OpResult {
        let old = self.before.state;
        match old.info.snap_set.at(op.args(), &self.given.pool.removed) {
            At::Head if old.exists => self.draft.dirty = true,
            At::Clone(clone) => self.roll_back_to(clone)?,
            // Ceph does not take an object away from its watchers like this.
            _ if !old.info.watchers.is_empty() => return fail(EBUSY),
            _ if self.draft.exists => drop(self.delete()?),
            _ => {}
        }
        Ok(0)
    }

    fn roll_back_to(&mut self, clone: SnapId) -> Result<(), Stop> {
        let source = key::clone_key(self.given.key, clone);
        let Answer::Object(Some(found)) = self.before.fetch(Want::Object(source.clone()))? else {
            return fail(EIO);
        };
        let info: ObjectInfo = decode_all(&found.info).or_else(|_| fail(EIO))?;
        let copied = self.copy_of(&source, info.has_omap(), Slot::Becomes)?;
        let old = self.before.state;
        self.work.spend(old.extras() as u64)?;
        self.draft.begin_anew(Origin::Clone {
            attrs: found.attrs.clone(),
            shared: old.info.snap_set.shared_with_head(clone),
        });
        if let ObjectOp::CloneOf(key) | ObjectOp::MoveOf(key) = &copied {
            self.draft.base = Some((key.clone(), info.size));
            self.draft.base_digests = info.digests;
        }
        self.draft.changes.push(copied);
        self.draft.exist();
        self.draft.set_size(info.size);
        self.draft.set_omap(info.has_omap());
        Ok(())
    }
}

impl Looking<'_, '_> {
    pub(super) fn list_snaps(&mut self, op: &mut OsdOp) -> OpResult {
        let old = self.before.state;
        let set = &old.info.snap_set;
        let mut clones: Vec<CloneInfo> = set
            .clones
            .iter()
            .map(|c| CloneInfo {
                id: c.id,
                snaps: c.snaps.iter().rev().copied().collect(),
                overlap: c.overlap.ranges().map(Extent::from).collect(),
                size: c.size,
            })
            .collect();
        if old.exists {
            clones.push(CloneInfo {
                id: snap::NOSNAP,
                snaps: Vec::new(),
                overlap: Vec::new(),
                size: old.info.size,
            });
        }
        let response = ListSnapsResponse { clones, seq: set.seq };
        op.outdata.push(encode_to_vec(&response).into());
        self.left.io.rd += 1;
        Ok(0)
    }
}
