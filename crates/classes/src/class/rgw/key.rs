//! The name of an object in a bucket.

use bytes::Bytes;
use spirula_denc::versioned;

versioned! {
    /// An object in a bucket, or one version of it (Ceph's `src/cls/rgw/cls_rgw_types.h`).
    #[derive(Eq, PartialOrd, Ord)]
    pub(crate) struct ObjectKey("cls_rgw_obj_key", version 1, compat 1) {
        pub(crate) name: Bytes;
        /// The version; empty for an object without versions, and for the version that a bucket with
        /// suspended versioning overwrites (S3's `null`).
        pub(crate) instance: Bytes;
    }
}

impl ObjectKey {
    /// The object, without a version.
    pub(super) fn of_name(name: Bytes) -> Self {
        Self {
            name,
            instance: Bytes::new(),
        }
    }
}
