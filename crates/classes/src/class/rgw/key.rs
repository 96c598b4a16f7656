//! The name of an object in a bucket.

use bytes::Bytes;
use spirula_denc::versioned;

versioned! {
    /// The name of an object in a bucket (Ceph's `src/cls/rgw/cls_rgw_types.h`).
    #[derive(Eq, PartialOrd, Ord)]
    pub(crate) struct ObjKey("cls_rgw_obj_key", version 1, compat 1) {
        pub(crate) name: Bytes;
        /// Which of its versions, empty where it has none.
        pub(crate) instance: Bytes;
    }
}
