//! Writes and snapshots: the clone that a write must leave behind.

use bytes::Bytes;
use spirula_maps::{EVersion, SnapContext, SnapId};
use spirula_proto::osd::OsdFlags;

use crate::pg::exec::{Draft, ObjectState};
use crate::pg::key;
use crate::pg::object::ObjectInfo;
use crate::pg::op::ClientOp;
use crate::pg::site::Site;
use crate::pg::txn::ObjectOp;

/// A clone that a write leaves behind.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pg) struct NewClone {
    /// The clone's id.
    pub id: SnapId,
    /// The snapshots that the clone stands for.
    pub snaps: Vec<SnapId>,
    /// The op that makes the clone from the head.
    by: ObjectOp,
}

impl NewClone {
    /// The changes that make the clone from the head as it was.
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
            digests: old.digests,
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
    /// The snapshot context that a write must preserve: the pool's if it has snapshots of itself,
    /// else the client's without purged snapshots, as no clone made for one would ever be trimmed.
    pub(in crate::pg) fn snap_context(&self, op: &ClientOp) -> SnapContext {
        let pool = &self.pool.snaps;
        match &pool.context {
            Some(context) if !op.flags.intersects(OsdFlags::ENFORCE_SNAPC) => context.clone(),
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

impl Draft {
    /// Completes a change of the object `key` from its earlier state: decides whether a clone is
    /// made, and updates the snap set.
    pub(in crate::pg) fn preserve(
        &mut self,
        key: &Bytes,
        old: &ObjectState,
        context: &SnapContext,
    ) -> Option<NewClone> {
        let changed = self.changed_ranges();
        let by = self.clone_by.take();
        let set = &mut self.info.snap_set;
        let clone = (old.exists && set.wants_clone(context)).then(|| {
            let c = set.add_clone(context, old.info.size);
            self.usage.objects += 1;
            self.usage.clones += 1;
            NewClone {
                id: c.id,
                snaps: c.snaps.clone(),
                by: by.unwrap_or_else(|| ObjectOp::CloneOf(key.clone())),
            }
        });
        self.usage.bytes += set.head_changed(&changed);
        set.seq = set.seq.max(context.seq);
        let whiteout = !self.exists && !self.info.snap_set.clones.is_empty();
        let change = i64::from(whiteout) - i64::from(old.info.whiteout);
        self.usage.objects += change;
        self.usage.whiteouts += change;
        self.info.whiteout = whiteout;
        clone
    }
}
