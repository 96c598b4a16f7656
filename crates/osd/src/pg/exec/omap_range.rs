//! OMAPRMKEYRANGE. As in Ceph, whose store looks the keys of a range up before anything of the
//! request is written, it removes the keys that the object had before the request, but not those
//! that only the request has set.
//!
//! So a range goes before all other changes of its request, and only the keys that the request has
//! set before and that were there already are removed in its place. Each of them is looked up once,
//! however many ranges there are.

use bytes::Bytes;
use spirula_errno::*;
use spirula_proto::osd_op_data::OmapRange as KeyRange;

use super::draft::Origin;
use super::omap_input::input;
use super::{Changing, OpResult, Stop, fail};
use crate::pg::fetch::KeysWant;
use crate::pg::op::OsdOp;
use crate::pg::txn::ObjectOp;

impl Changing<'_, '_> {
    pub(super) fn omap_rm_range(&mut self, op: &OsdOp) -> OpResult {
        if !self.draft.exists {
            return fail(ENOENT);
        }
        let KeyRange { begin: from, end: to } = input(op)?;
        if self.draft.info.has_omap() && from < to {
            self.rm_range(from, to)?;
        }
        self.draft.dirty = true;
        self.left.io.count_write(0);
        Ok(0)
    }

    fn rm_range(&mut self, from: Bytes, to: Bytes) -> Result<(), Stop> {
        match self.draft.origin {
            Origin::Clone { .. } => {
                // The omap of a rollback is a copy of its own, of which nothing is known here.
                self.draft.changes.push(ObjectOp::OmapRmRange { from, to });
                return Ok(());
            }
            Origin::Before if self.before.state.info.has_omap() => {}
            Origin::Before | Origin::Nothing => return Ok(()),
        }
        for change in self.draft.changes.get(self.ranges.seen..).unwrap_or_default() {
            self.ranges.note(change);
        }
        let hit = self.ranges.set.range::<Bytes, _>(&from..&to);
        let hit: Vec<Bytes> = hit.cloned().collect();
        if !hit.is_empty() {
            let stored = self.stored_keys(hit.clone())?;
            for key in &hit {
                self.ranges.set.remove(key);
            }
            if !stored.is_empty() {
                self.draft.changes.push(ObjectOp::OmapRm(stored));
            }
        }
        self.ranges.seen = self.draft.changes.len();
        self.ranges.first.push(ObjectOp::OmapRmRange { from, to });
        Ok(())
    }

    /// Those of the keys that the object had before the request. The keys ascend.
    fn stored_keys(&mut self, mut keys: Vec<Bytes>) -> Result<Vec<Bytes>, Stop> {
        let announced = &self.ranges.announced;
        if keys.iter().any(|k| announced.binary_search(k).is_err()) {
            let found = self.before.omap_found(KeysWant::names(keys))?;
            return Ok(found.pairs.iter().map(|(k, _)| k.clone()).collect());
        }
        let stored = match self.ranges.stored {
            Some(stored) => stored,
            None => &self.before.omap_found(KeysWant::names(announced.clone()))?.pairs,
        };
        self.ranges.stored = Some(stored);
        keys.retain(|k| stored.binary_search_by(|(s, _)| s.cmp(k)).is_ok());
        Ok(keys)
    }
}
