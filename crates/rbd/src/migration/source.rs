//! Reads the source of a migration, which no client writes any more.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use spirula_client::{IoCtx, Layout, errno};
use spirula_denc::Extent;
use spirula_maps::snap;
use spirula_proto::osd_op_data::ListSnapsResponse;

use crate::error::unless;
use crate::read::put;
use crate::view::View;
use crate::{Error, Result};

/// The snapshots of a data object; `None` where the object does not exist.
pub(super) async fn history(io: &IoCtx, oid: String) -> Result<Option<ListSnapsResponse>> {
    unless(io.list_snaps(oid).await.map_err(Error::from), errno::ENOENT)
}

/// The clone of an object that a snapshot sees; the head without a snapshot, or after the last
/// clone.
fn seen(history: &ListSnapsResponse, id: Option<u64>) -> Option<u64> {
    let is_it = |clone: &spirula_proto::osd_op_data::CloneInfo| match id {
        Some(id) if id <= history.seq => clone.snaps.contains(&id),
        _ => clone.id == snap::NOSNAP,
    };
    history.clones.iter().find(|c| is_it(c)).map(|c| c.id)
}

/// Whether there is a head.
pub(super) fn has_head(history: &ListSnapsResponse) -> bool {
    seen(history, None).is_some()
}

/// The part of the source that an object of the destination covers.
pub(super) struct Region<'a> {
    source: &'a Rc<View>,
    /// The destination's layout.
    layout: Layout,
    object: u64,
    histories: BTreeMap<u64, Option<ListSnapsResponse>>,
}

/// The versions of the objects in a region. Equal looks mean equal content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    len: u64,
    overlap: u64,
    clones: Vec<Option<u64>>,
}

impl<'a> Region<'a> {
    /// The region of the source behind an object, for a source of `size` bytes.
    pub(super) async fn new(source: &'a Rc<View>, layout: Layout, object: u64, size: u64) -> Result<Self> {
        let mut histories = BTreeMap::new();
        for Extent { offset, len } in layout.whole_extents(object, 0, layout.object_len(object, size)) {
            for piece in source.site.fixed.layout.pieces(offset, len) {
                if let std::collections::btree_map::Entry::Vacant(entry) = histories.entry(piece.object) {
                    entry.insert(history(&source.site.data, source.site.fixed.object(piece.object)).await?);
                }
            }
        }
        Ok(Self {
            source,
            layout,
            object,
            histories,
        })
    }

    /// Whether the source has objects in the region, at any snapshot.
    pub(super) fn has_objects(&self) -> bool {
        self.histories.values().any(Option::is_some)
    }

    /// The region's look at a snapshot, or now, as far as an image of `size` bytes goes.
    pub(super) fn look(&self, snap: Option<u64>, size: u64) -> Result<Look> {
        let header = self.source.header();
        let size = size.min(header.size_at(snap)?);
        let clone = |history: &Option<ListSnapsResponse>| history.as_ref().and_then(|h| seen(h, snap));
        Ok(Look {
            len: self.layout.object_len(self.object, size),
            overlap: header.overlap_at(snap)?,
            clones: self.histories.values().map(clone).collect(),
        })
    }

    /// The region's content at a look.
    pub(super) async fn read(&self, snap: Option<u64>, look: &Look) -> Result<Bytes> {
        let whole = usize::try_from(look.len).map_err(|_| Error::os("read", errno::EINVAL))?;
        let mut out = BytesMut::zeroed(whole);
        let mut at = 0;
        for Extent { offset, len } in self.layout.whole_extents(self.object, 0, look.len) {
            for piece in self.source.site.fixed.layout.pieces(offset, len) {
                if let Some(data) = self.source.read_piece_at(snap, piece).await? {
                    put(&mut out, at, &data);
                }
                at += piece.len;
            }
        }
        Ok(out.freeze())
    }
}

#[cfg(test)]
mod tests {
    use spirula_proto::osd_op_data::CloneInfo;

    use super::*;

    #[test]
    fn a_snapshot_sees_its_clone_or_the_head_behind_the_last() {
        let clone = |id: u64, snaps: &[u64]| CloneInfo {
            id,
            snaps: snaps.to_vec(),
            overlap: Vec::new(),
            size: 0,
        };
        let mut history = ListSnapsResponse {
            clones: vec![clone(4, &[2, 4]), clone(snap::NOSNAP, &[])],
            seq: 6,
        };
        for (id, want) in [
            (Some(2), Some(4)),
            (Some(4), Some(4)),
            // It was not there then.
            (Some(1), None),
            (Some(5), None),
            (Some(7), Some(snap::NOSNAP)),
            (None, Some(snap::NOSNAP)),
        ] {
            assert_eq!(seen(&history, id), want, "{id:?}");
        }
        assert!(has_head(&history));
        history.clones.pop();
        assert_eq!((seen(&history, Some(7)), has_head(&history)), (None, false));
    }
}
