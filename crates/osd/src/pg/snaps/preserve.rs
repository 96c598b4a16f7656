//! Writes and snapshots: the clone that a write must leave behind, rolling back, and listing the clones.

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_maps::{EVersion, IntervalSet, SnapContext, SnapId, snap};
use spirula_proto::osd::OsdFlags;
use spirula_proto::osd_op_data::{CloneInfo, ListSnapsResponse};

use super::set::At;
use crate::pg::errno::*;
use crate::pg::exec::{Exec, ObjectState, OpResult, Stop, fail};
use crate::pg::fetch::{Answer, Want};
use crate::pg::key;
use crate::pg::object::{FLAG_OMAP, ObjectInfo};
use crate::pg::op::{ClientOp, OsdOp};
use crate::pg::site::Site;
use crate::pg::staged::Slot;
use crate::pg::txn::ObjectOp;

/// A clone that a write leaves behind.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pg) struct NewClone {
    /// Its id.
    pub id: SnapId,
    /// The snapshots that it stands for.
    pub snaps: Vec<SnapId>,
    /// What makes it of the head.
    by: ObjectOp,
}

impl NewClone {
    /// The changes that make it of the head as it was.
    pub(in crate::pg) fn changes(
        &self,
        head: &Bytes,
        old: &ObjectState,
        version: EVersion,
    ) -> (Bytes, Vec<ObjectOp>) {
        let old = &old.info;
        let info = ObjectInfo {
            size: old.size,
            mtime: old.mtime,
            local_mtime: old.local_mtime,
            version,
            prior_version: old.version,
            user_version: old.user_version,
            truncate_seq: old.truncate_seq,
            truncate_size: old.truncate_size,
            flags: old.flags,
            snaps: self.snaps.clone(),
            ..ObjectInfo::default()
        };
        let add = self.snaps.clone();
        let ops = vec![
            self.by.clone(),
            ObjectOp::SetInfo(info.to_bytes()),
            ObjectOp::NoteSnaps {
                add,
                remove: Vec::new(),
            },
        ];
        (key::clone_key(head, self.id), ops)
    }
}

impl Site {
    /// What a write must preserve: what the pool says where it has snapshots of itself, else what the client says without
    /// what is removed: nobody would trim a clone that is made for a purged snapshot.
    pub(in crate::pg) fn snap_context(&self, op: &ClientOp) -> SnapContext {
        let pool = &self.pool.snaps;
        match &pool.context {
            Some(context) if !op.flags.has(OsdFlags::ENFORCE_SNAPC) => context.clone(),
            _ => {
                let mut context = op.snapc.clone();
                context
                    .snaps
                    .retain(|s| !pool.removed.contains(*s) && !pool.purged.contains(*s));
                context
            }
        }
    }
}

impl Exec<'_> {
    /// The ranges in which the head may differ from what it was.
    fn changed_ranges(&self) -> IntervalSet {
        let mut all = IntervalSet::new();
        for c in &self.changes {
            match c {
                ObjectOp::Write { offset, data } => all.insert_range(*offset, data.len() as u64),
                ObjectOp::Zero { offset, len } => all.insert_range(*offset, *len),
                ObjectOp::Truncate { size } => all.insert_range(*size, u64::MAX),
                ObjectOp::Remove => all.insert_range(0, u64::MAX),
                ObjectOp::CloneOf(_) | ObjectOp::MoveOf(_) => {
                    all.insert_range(0, u64::MAX);
                    all.subtract(&self.rolled_back);
                }
                _ => {}
            }
        }
        all
    }

    /// What makes an object a copy of another one of the PG, in a change that may hold only so much of an omap.
    fn copy_of(&mut self, source: &Bytes, has_omap: bool, slot: Slot) -> Result<ObjectOp, Stop> {
        let source = source.clone();
        if !has_omap {
            return Ok(ObjectOp::CloneOf(source));
        }
        let want = Want::Staged {
            source: source.clone(),
            slot,
        };
        match self.fetch(want)? {
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
    pub(in crate::pg) fn prepare_clone(&mut self, context: &SnapContext) -> Result<(), Stop> {
        if self.old.exists && self.old.info.snap_set.wants_clone(context) {
            let by = self.copy_of(self.key, self.old.info.has_omap(), Slot::Was)?;
            self.clone_by = Some(by);
        }
        Ok(())
    }

    /// Completes an execution that changes the object: decides about a clone, and keeps the snap set true.
    pub(in crate::pg) fn preserve(&mut self, context: &SnapContext) -> Option<NewClone> {
        let changed = self.changed_ranges();
        let by = self.clone_by.take();
        let set = &mut self.info.snap_set;
        let clone = (self.old.exists && set.wants_clone(context)).then(|| {
            let c = set.add_clone(context, self.old.info.size);
            self.usage.objects += 1;
            self.usage.clones += 1;
            NewClone {
                id: c.id,
                snaps: c.snaps.clone(),
                by: by.unwrap_or_else(|| ObjectOp::CloneOf(self.key.clone())),
            }
        });
        self.usage.bytes += set.head_changed(&changed);
        set.seq = set.seq.max(context.seq);
        let whiteout = !self.exists && !self.info.snap_set.clones.is_empty();
        let change = i64::from(whiteout) - i64::from(self.old.info.whiteout);
        self.usage.objects += change;
        self.usage.whiteouts += change;
        self.info.whiteout = whiteout;
        clone
    }

    /// Makes the head what it was at a snapshot: a copy of a clone, or nothing.
    pub(in crate::pg) fn rollback(&mut self, op: &OsdOp) -> OpResult {
        match self.old.info.snap_set.at(op.args(), &self.pool.removed) {
            At::Head if self.old.exists => self.dirty = true,
            At::Clone(clone) => self.roll_back_to(clone)?,
            // Ceph does not take an object away from its watchers like this.
            _ if !self.old.info.watchers.is_empty() => return fail(EBUSY),
            _ if self.exists => drop(self.delete()?),
            _ => {}
        }
        Ok(0)
    }

    fn roll_back_to(&mut self, clone: SnapId) -> Result<(), Stop> {
        let source = key::clone_key(self.key, clone);
        let Answer::Object(Some(found)) = self.fetch(Want::Object(source.clone()))? else {
            return fail(EIO);
        };
        let info: ObjectInfo = decode_all(&found.info).or_else(|_| fail(EIO))?;
        let copied = self.copy_of(&source, info.has_omap(), Slot::Becomes)?;
        self.spend(self.old.extras() as u64)?;
        self.attr_changes.clear();
        self.attrs_after = Some(found.attrs.clone());
        self.rolled_back = self.old.info.snap_set.shared_with_head(clone);
        self.changes.clear();
        self.changes.push(copied);
        if !self.exists {
            self.exists = true;
            self.usage.objects += 1;
        }
        self.dirty = true;
        self.set_size(info.size);
        self.info.flags = self.info.flags & !FLAG_OMAP | info.flags & FLAG_OMAP;
        Ok(())
    }

    pub(in crate::pg) fn list_snaps(&mut self, op: &mut OsdOp) -> OpResult {
        let set = &self.old.info.snap_set;
        let mut clones: Vec<CloneInfo> = set
            .clones
            .iter()
            .map(|c| CloneInfo {
                id: c.id,
                snaps: c.snaps.iter().rev().copied().collect(),
                overlap: c.overlap.ranges().collect(),
                size: c.size,
            })
            .collect();
        if self.old.exists {
            clones.push(CloneInfo {
                id: snap::NOSNAP,
                snaps: Vec::new(),
                overlap: Vec::new(),
                size: self.old.info.size,
            });
        }
        let response = ListSnapsResponse { clones, seq: set.seq };
        op.outdata.push(spirula_denc::encode_to_vec(&response).into());
        self.io.rd += 1;
        Ok(0)
    }
}
