//! The object as the ops of a request change it.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::UTime;
use spirula_maps::{IntervalSet, SnapContext};

use super::ObjectState;
use crate::pg::bug::Bug;
use crate::pg::config::PgConfig;
use crate::pg::digests::{Digests, Followed};
use crate::pg::log::Usage;
use crate::pg::object::{Attrs, ObjectFlags, ObjectInfo};
use crate::pg::txn::ObjectOp;

/// The content that the changes start from.
#[derive(Debug, Default)]
pub(super) enum Origin {
    /// The object as it was before the request.
    #[default]
    Before,
    /// Nothing: the object was removed or replaced in between.
    Nothing,
    /// A clone to which the object was rolled back.
    Clone {
        /// The clone's attributes.
        attrs: Attrs,
        /// The ranges in which the clone is the same as the head before the request.
        shared: IntervalSet,
    },
}

/// The object as the ops so far have changed it, with these changes.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Whether the object exists.
    pub exists: bool,
    /// The object's info.
    pub info: ObjectInfo,
    /// The changes in the store.
    pub changes: Vec<ObjectOp>,
    /// Whether the request changes anything, even if only the version.
    pub dirty: bool,
    /// Whether the version that clients see goes up.
    pub user_modify: bool,
    /// The change of the PG's usage.
    pub usage: Usage,
    /// Makes the clone that the request leaves behind, if it was prepared.
    pub(in crate::pg) clone_by: Option<ObjectOp>,
    /// The attributes set (or removed, `None`) so far.
    pub(super) attrs: BTreeMap<Bytes, Option<Bytes>>,
    /// The content that these attributes, and the changes, start from.
    pub(super) origin: Origin,
    /// The object that takes the place of the one before the request, and its size.
    pub(in crate::pg) base: Option<(Bytes, u64)>,
    /// That object's digests.
    pub(super) base_digests: Digests,
    /// Whether the modification time that is set already is kept.
    pub(super) keeps_mtime: bool,
}

impl Draft {
    pub(super) fn new(old: &ObjectState) -> Self {
        Self {
            exists: old.exists,
            info: old.info.clone(),
            changes: Vec::new(),
            dirty: false,
            user_modify: false,
            usage: Usage::default(),
            clone_by: None,
            attrs: BTreeMap::new(),
            origin: Origin::default(),
            base: None,
            base_digests: Digests::default(),
            keeps_mtime: false,
        }
    }

    /// Makes the object exist, if it does not yet.
    pub(super) fn exist(&mut self) {
        if !self.exists {
            self.exists = true;
            self.usage.objects += 1;
        }
        self.dirty = true;
    }

    /// Prepares a change of the object, which is made if there is none.
    pub(super) fn maybe_create(&mut self) {
        if !self.exists {
            self.changes.push(ObjectOp::Touch);
        }
        self.exist();
    }

    pub(super) fn set_size(&mut self, size: u64) {
        self.usage.bytes += size.cast_signed() - self.info.size.cast_signed();
        self.info.size = size;
    }

    /// Truncates or extends the object to `size` bytes.
    pub(super) fn truncate(&mut self, size: u64) {
        self.changes.push(ObjectOp::Truncate { size });
        self.set_size(size);
    }

    /// Removes the object; of its info the version stays, and the clones.
    pub(super) fn remove(&mut self) {
        // Changes made by the ops before need not reach the store, but the object was there if it
        // was before.
        self.begin_anew(Origin::Nothing);
        self.changes.push(ObjectOp::Remove);
        self.dirty = true;
        self.set_size(0);
        self.usage.objects -= 1;
        self.exists = false;
        self.info = ObjectInfo {
            version: self.info.version,
            user_version: self.info.user_version,
            snap_set: std::mem::take(&mut self.info.snap_set),
            ..Default::default()
        };
    }

    /// Whether the request has made and removed an object of which nothing was there before: it
    /// changes nothing, not even the version that clients see. On an object that is older than the
    /// newest snapshot it counts as a change, as Ceph leaves a whiteout.
    pub(super) fn leaves_nothing(&self, old: &ObjectState, context: &SnapContext) -> bool {
        let is_there = |exists: bool, info: &ObjectInfo| exists || info.whiteout;
        !is_there(old.exists, &old.info)
            && !is_there(self.exists, &self.info)
            && !old.info.snap_set.wants_clone(context)
    }

    /// Drops the changes of earlier ops, as the next change is one of the whole object.
    pub(super) fn begin_anew(&mut self, origin: Origin) {
        self.changes.clear();
        self.attrs.clear();
        self.origin = origin;
        self.base = None;
        self.base_digests = Digests::default();
    }

    /// Sets the digests of the object as the changes leave it.
    pub(in crate::pg) fn set_digests(&mut self, old: &ObjectState, cfg: &PgConfig) {
        let is_kept = cfg.has_bug(Bug::StaleDigest);
        let before = match self.origin {
            Origin::Before if old.exists => Followed::new(old.info.size, old.info.digests, is_kept),
            _ => Followed::new(0, Digests::default(), is_kept),
        };
        let base = (self.base.as_ref().map_or(0, |(_, size)| *size), self.base_digests);
        self.info.digests = before.follow(&self.changes, base);
    }

    /// Sets whether there may be an omap.
    pub(super) fn set_omap(&mut self, there: bool) {
        self.info.flags.remove(ObjectFlags::OMAP);
        if there {
            self.info.flags.insert(ObjectFlags::OMAP);
        }
    }

    /// Whether the changes need room for data or attributes, even if they replace old ones.
    pub(crate) fn stores_data(&self) -> bool {
        let stores = |c: &ObjectOp| {
            !matches!(
                c,
                ObjectOp::Remove
                    | ObjectOp::RmAttr(_)
                    | ObjectOp::Truncate { .. }
                    | ObjectOp::OmapRm(_)
                    | ObjectOp::OmapRmRange { .. }
                    | ObjectOp::OmapClear
            )
        };
        self.changes.iter().any(stores) || self.attrs.values().any(Option::is_some)
    }

    /// The ranges in which the head may differ from what it was before the request.
    pub(in crate::pg) fn changed_ranges(&self) -> IntervalSet {
        let mut all = IntervalSet::new();
        for c in &self.changes {
            match c {
                ObjectOp::Write { offset, data } => all.insert_range(*offset, data.len() as u64),
                ObjectOp::Zero { offset, len } => all.insert_range(*offset, *len),
                ObjectOp::Truncate { size } => all.insert_range(*size, u64::MAX),
                ObjectOp::Remove => all.insert_range(0, u64::MAX),
                ObjectOp::CloneOf(_) | ObjectOp::MoveOf(_) => {
                    all.insert_range(0, u64::MAX);
                    if let Origin::Clone { shared, .. } = &self.origin {
                        all.subtract(shared);
                    }
                }
                _ => {}
            }
        }
        all
    }

    /// The object after the request, and its changes with the info as the last of them. `mtime` is
    /// the client's.
    pub(crate) fn finish(
        mut self,
        old: &ObjectState,
        mtime: UTime,
        now: UTime,
    ) -> (ObjectState, Vec<ObjectOp>) {
        if !self.exists && !self.info.whiteout {
            return (ObjectState::default(), self.changes);
        }
        if !mtime.is_zero() && !self.keeps_mtime {
            self.info.mtime = mtime;
            self.info.local_mtime = now;
        }
        let mut attrs = match self.origin {
            Origin::Before => old.attrs.clone(),
            Origin::Nothing => Attrs::new(),
            Origin::Clone { attrs, .. } => attrs,
        };
        for (name, value) in self.attrs {
            match value {
                Some(value) => {
                    attrs.insert(name.clone(), value.clone());
                    self.changes.push(ObjectOp::SetAttr { name, value });
                }
                None => {
                    if attrs.remove(&name).is_some() {
                        self.changes.push(ObjectOp::RmAttr(name));
                    }
                }
            }
        }
        self.changes.push(ObjectOp::SetInfo(self.info.to_bytes()));
        (
            ObjectState {
                exists: self.exists,
                info: self.info,
                attrs,
            },
            self.changes,
        )
    }
}
