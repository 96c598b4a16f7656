//! Writes and snapshots: the clone that a write must leave behind, rolling back, and listing the clones.

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_maps::{EVersion, IntervalSet, SnapContext, SnapId, snap};
use spirula_proto::osd::OsdFlags;
use spirula_proto::osd_op_data::{CloneInfo, ListSnapsResponse};

use super::set::At;
use crate::pg::errno::*;
use crate::pg::exec::{Exec, ObjectState, OpResult, Stop, fail};
use crate::pg::fetch::{Answer, OmapRange, Want};
use crate::pg::object::{FLAG_OMAP, ObjectInfo};
use crate::pg::op::{ClientOp, OsdOp};
use crate::pg::txn::{ObjectOp, PAIR_LOGGED};
use crate::pg::{Pg, key};

/// A clone that a write leaves behind.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pg) struct NewClone {
    /// Its id.
    pub id: SnapId,
    /// The snapshots that it stands for.
    pub snaps: Vec<SnapId>,
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
            ObjectOp::CloneOf(head.clone()),
            ObjectOp::SetInfo(info.to_bytes()),
            ObjectOp::NoteSnaps {
                add,
                remove: Vec::new(),
            },
        ];
        (key::clone_key(head, self.id), ops)
    }
}

impl Pg {
    /// What a write must preserve: what the pool says where it has snapshots of itself, else what the client says without
    /// what is removed.
    pub(in crate::pg) fn snap_context(&self, op: &ClientOp) -> SnapContext {
        let pool = &self.pool.snaps;
        match &pool.context {
            Some(context) if !op.flags.has(OsdFlags::ENFORCE_SNAPC) => context.clone(),
            _ => {
                let mut context = op.snapc.clone();
                context.snaps.retain(|s| !pool.removed.contains(*s));
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
                ObjectOp::CloneOf(_) => {
                    all.insert_range(0, u64::MAX);
                    all.subtract(&self.rolled_back);
                }
                _ => {}
            }
        }
        all
    }

    /// Bytes that the clone which the change wants puts into the store's log: the store copies its omap.
    ///
    /// # Errors
    /// It may be more than a request may log (-EMSGSIZE); or the omap was not fetched yet.
    pub(in crate::pg) fn logged_by_clone(&mut self, context: &SnapContext) -> Result<usize, Stop> {
        let wanted = self.old.exists && self.old.info.snap_set.wants_clone(context);
        if !wanted || !self.old.info.has_omap() {
            return Ok(0);
        }
        let max = self.cfg.max_logged;
        let all = OmapRange {
            from: Bytes::new(),
            to: None,
            max: max / PAIR_LOGGED,
            max_bytes: max,
            values: true,
        };
        match self.fetch(Want::Omap(all))? {
            Answer::Omap(page) if page.more => fail(EMSGSIZE),
            Answer::Omap(page) => Ok(page
                .pairs
                .iter()
                .map(|(k, v)| k.len() + v.len() + PAIR_LOGGED)
                .sum()),
            _ => fail(EIO),
        }
    }

    /// Completes an execution that changes the object: decides about a clone, and keeps the snap set true.
    pub(in crate::pg) fn preserve(&mut self, context: &SnapContext) -> Option<NewClone> {
        let changed = self.changed_ranges();
        let set = &mut self.info.snap_set;
        let clone = (self.old.exists && set.wants_clone(context)).then(|| {
            let c = set.add_clone(context, self.old.info.size);
            self.usage.objects += 1;
            self.usage.clones += 1;
            NewClone {
                id: c.id,
                snaps: c.snaps.clone(),
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
        match self.old.info.snap_set.at(op.snap(), &self.pool.removed) {
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
        self.attr_changes.clear();
        self.attrs_after = Some(found.attrs.clone());
        self.rolled_back = self.old.info.snap_set.shared_with_head(clone);
        self.changes.clear();
        self.changes.push(ObjectOp::CloneOf(source));
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
