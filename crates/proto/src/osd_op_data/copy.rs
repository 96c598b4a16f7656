//! The data of `COPY_GET`: an object in parts, as one OSD reads it from another.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{UTime, flags, versioned};
use spirula_maps::{ReqId, SnapId};

versioned! {
    /// The progress of a copy; attributes come first, then data, then the omap.
    #[derive(Eq)]
    pub struct CopyCursor("object_copy_cursor_t", version 1, compat 1) {
        /// The attributes were sent.
        pub attr_complete: bool;
        /// Bytes of data that were sent.
        pub data_offset: u64;
        /// All data was sent.
        pub data_complete: bool;
        /// The last omap key that was sent.
        pub omap_offset: Bytes;
        /// The whole omap was sent.
        pub omap_complete: bool;
    }
}

impl CopyCursor {
    /// Whether everything was sent.
    pub fn is_complete(&self) -> bool {
        self.attr_complete && self.data_complete && self.omap_complete
    }
}

flags! {
    /// The digests that are known of an object that is copied (`object_copy_data_t::FLAG_*`).
    pub struct CopyFlags(u32), joined "|" {
        /// That of the data.
        DATA_DIGEST = 0, "data_digest";
        /// That of the omap.
        OMAP_DIGEST = 1, "omap_digest";
    }
}

versioned! {
    /// Part of an object: output of `COPY_GET`.
    #[derive(Eq)]
    pub struct CopyData("object_copy_data_t", version 8, compat 5) {
        /// The object's size in bytes.
        pub size: u64;
        /// When it changed, by the writer's clock.
        pub mtime: UTime;
        /// All attributes, with the first part.
        pub attrs: BTreeMap<Bytes, Bytes>;
        /// Data from the cursor on.
        pub data: Bytes;
        /// Encoded omap pairs (a map), or nothing.
        pub omap_data: Bytes;
        /// The start of the next part.
        pub cursor: CopyCursor;
        /// The omap header, with the first part of the omap.
        pub omap_header: Bytes;
        /// The snapshots of a clone.
        pub snaps: Vec<SnapId>;
        /// The newest snapshot of a head.
        pub snap_seq: SnapId;
        /// Which digests are known.
        pub flags: CopyFlags;
        /// CRC-32C of the data.
        pub data_digest: u32;
        /// CRC-32C of the omap.
        pub omap_digest: u32;
        /// The last requests that changed it, with the last part.
        pub reqids: Vec<(ReqId, u64)>;
        /// The number of the last truncation.
        pub truncate_seq: u32;
        /// The size after that truncation.
        pub truncate_size: u64;
        /// The results of those requests that failed, by index.
        pub reqid_return_codes: BTreeMap<u32, i32>;
    }
}

impl CopyData {
    /// Notes the digests of data and omap that are known.
    pub fn set_digests(&mut self, data: Option<u32>, omap: Option<u32>) {
        if let Some(digest) = data {
            self.flags.insert(CopyFlags::DATA_DIGEST);
            self.data_digest = digest;
        }
        if let Some(digest) = omap {
            self.flags.insert(CopyFlags::OMAP_DIGEST);
            self.omap_digest = digest;
        }
    }

    /// The digests of data and omap that are known.
    pub fn digests(&self) -> (Option<u32>, Option<u32>) {
        let known = |flag, digest| self.flags.contains(flag).then_some(digest);
        (
            known(CopyFlags::DATA_DIGEST, self.data_digest),
            known(CopyFlags::OMAP_DIGEST, self.omap_digest),
        )
    }
}
