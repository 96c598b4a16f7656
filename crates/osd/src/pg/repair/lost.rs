//! Objects that no member can read, and giving them up.
//!
//! An operator's `mark_unfound_lost` goes back to an older version, or deletes. As all members have the same version of every
//! object, there is no older one: both delete.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_maps::{IntervalSet, SnapId, snap};
use spirula_proto::mon::LogPriority;
use spirula_proto::osd::{OpArgs, OpCode, OsdFlags, OsdOpIn};

use crate::pg::key;
use crate::pg::op::ClientOp;
use crate::pg::output::{Ctx, Output};
use crate::pg::repair::Repairing;
use crate::pg::store_queue::Pending;
use crate::pg::txn::ObjectOp;

/// Objects that no member can read.
#[derive(Debug, Default)]
pub(in crate::pg) struct Lost {
    /// Their keys.
    keys: BTreeSet<Bytes>,
    /// Those of them that are clones and are to be deleted.
    given_up: BTreeSet<Bytes>,
}

/// Why objects are not given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkLostError {
    /// There are none.
    NoneUnfound,
    /// So many are unfound, but an OSD that is down may have them.
    NotProbed(usize),
}

impl Lost {
    /// Whether there are none.
    pub(in crate::pg) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many there are.
    pub(in crate::pg) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Their keys.
    pub(in crate::pg) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.iter()
    }

    /// Adds one. Says whether it is new.
    pub(super) fn insert(&mut self, key: Bytes) -> bool {
        self.keys.insert(key)
    }

    /// It can be read again.
    pub(super) fn remove(&mut self, key: &Bytes) {
        self.keys.remove(key);
        self.given_up.remove(key);
    }

    /// A change gives objects new contents, the head this size: those are no longer lost.
    pub(in crate::pg) fn rewritten(&mut self, objects: &[(Bytes, Vec<ObjectOp>)], head_size: u64) {
        let all_new = |op: &ObjectOp| match op {
            ObjectOp::Remove | ObjectOp::CloneOf(_) | ObjectOp::MoveOf(_) => true,
            ObjectOp::Write { offset: 0, data } => data.len() as u64 >= head_size,
            ObjectOp::Truncate { size } => *size == 0,
            _ => false,
        };
        for (key, ops) in objects {
            if ops.iter().any(all_new) {
                self.remove(key);
            }
        }
    }

    /// The snapshots for which a clone is to be given up: all of its own, where it is.
    pub(in crate::pg) fn given_up(&self, clone: &Bytes, snaps: &[SnapId]) -> Option<IntervalSet> {
        let mut all = IntervalSet::new();
        snaps.iter().for_each(|s| all.insert(*s));
        self.given_up.contains(clone).then_some(all)
    }
}

impl Repairing<'_> {
    /// Deletes the objects that no member can read. Returns how many.
    ///
    /// # Errors
    /// There are none, or they may still be somewhere.
    pub(in crate::pg) fn mark_lost(
        &mut self,
        unfound: usize,
        cx: &mut Ctx<'_>,
    ) -> Result<usize, MarkLostError> {
        if unfound == 0 {
            return Err(MarkLostError::NoneUnfound);
        }
        let keys: Vec<Bytes> = self
            .serving
            .role
            .lost()
            .map(|l| l.keys.iter().cloned().collect())
            .unwrap_or_default();
        if keys.is_empty() || self.may_be_elsewhere() {
            return Err(MarkLostError::NotProbed(unfound));
        }
        let line = format!(
            "pg has {} objects unfound and apparently lost marking",
            keys.len()
        );
        cx.out.push(Output::ClusterLog {
            priority: LogPriority::INFO,
            line,
        });
        for key in &keys {
            self.give_up(key, cx);
        }
        Ok(keys.len())
    }

    /// Whether an OSD that is down, and not declared lost, may have what no member can read.
    fn may_be_elsewhere(&self) -> bool {
        let lacks_members =
            self.serving.site.interval.place.acting.count() < self.serving.site.pool.size as usize;
        let may_have =
            |o: i32| {
                self.serving.site.map.osd(o).is_some_and(|v| {
                    !v.up && v.down_at > self.serving.site.pool.created && v.lost_at < v.down_at
                })
            };
        lacks_members && (0..self.serving.site.map.max_osd()).any(may_have)
    }

    fn give_up(&mut self, key: &Bytes, cx: &mut Ctx<'_>) {
        let Some(object) = key::parse_object_key(key) else {
            return;
        };
        if object.snap == snap::NOSNAP {
            let delete = OsdOpIn::new(OpCode::DELETE, OpArgs::None, Bytes::new());
            let op = ClientOp {
                // Without the pool's snapshots: no clone is to be left of what can't be read.
                flags: OsdFlags::ENFORCE_SNAPC,
                ..self
                    .serving
                    .site
                    .internal_op(object, vec![delete.into()], cx.usec)
            };
            return self.serving.queue_op(key.clone(), op, cx);
        }
        if let Some(lost) = self.serving.role.lost() {
            lost.given_up.insert(key.clone());
        }
        self.serving
            .store
            .look_up(key.clone(), Pending::TrimClone(key.clone()), cx);
    }
}
