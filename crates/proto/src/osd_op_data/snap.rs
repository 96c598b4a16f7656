//! Snapshots and copies.

use spirula_denc::{Decode, Encode, Extent, Reader, Result, Writer, versioned};
use spirula_maps::{ObjectLocator, ObjectName, SnapId, snap};

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

versioned! {
    /// Output of `LIST_SNAPS`.
    #[derive(Eq)]
    pub struct ListSnapsResponse("obj_list_snap_response_t", version 2, compat 1) {
        /// Ascending, the head last.
        pub clones: Vec<CloneInfo>;
        /// The newest snapshot the object knows.
        pub seq: SnapId = snap::NOSNAP, since 2;
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
