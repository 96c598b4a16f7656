//! Snapshots and copies.

use spirula_denc::{Decode, Encode, Extent, Reader, Result, Writer};
use spirula_maps::{ObjectLocator, ObjectName, SnapId, snap};

use spirula_denc::versioned;

versioned! {
    /// One clone of an object, or its head.
    #[derive(Eq)]
    pub struct CloneInfo("clone_info", version 1, compat 1) {
        /// The clone's id; `NOSNAP` for the head.
        pub id: SnapId;
        /// The snapshots of the clone, ascending.
        pub snaps: Vec<SnapId>;
        /// The bytes that it shares with the next newer one.
        pub overlap: Vec<Extent>;
        /// Its size.
        pub size: u64;
    }
}

/// Output of `LIST_SNAPS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSnapsResponse {
    /// Ascending, the head last.
    pub clones: Vec<CloneInfo>,
    /// The newest snapshot the object knows.
    pub seq: SnapId,
}

impl Encode for ListSnapsResponse {
    fn encode(&self, w: &mut Writer) {
        w.section(2, 1, |w| {
            w.put(&self.clones);
            w.u64(self.seq);
        });
    }
}

impl Decode for ListSnapsResponse {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("obj_list_snap_response_t", 2, |v, r| {
            Ok(Self {
                clones: r.get()?,
                seq: if v >= 2 { r.u64()? } else { snap::NOSNAP },
            })
        })
    }
}

/// Input of `COPY_FROM` and `COPY_FROM2`: the source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopySource {
    /// The source's name.
    pub oid: ObjectName,
    /// The source's place.
    pub locator: ObjectLocator,
    /// With `COPY_FROM2` and its flag: the truncation number and size that the copy gets.
    pub truncate: Option<(u32, u64)>,
}

impl Encode for CopySource {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.oid);
        w.put(&self.locator);
        if let Some((seq, size)) = self.truncate {
            w.u32(seq);
            w.u64(size);
        }
    }
}

impl Decode for CopySource {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            oid: r.get()?,
            locator: r.get()?,
            truncate: if r.is_empty() {
                None
            } else {
                Some((r.u32()?, r.u64()?))
            },
        })
    }
}
