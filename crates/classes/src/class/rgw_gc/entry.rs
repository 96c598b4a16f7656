//! An entry of the garbage collector's queue, and what its methods share with those of the class
//! `rgw`, which keep such entries in an omap. Formats: Ceph's `src/cls/rgw/cls_rgw_types.h` and
//! `cls_rgw_ops.h`.

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

versioned! {
    /// The name of an object in a bucket.
    #[derive(Eq)]
    pub(super) struct ObjKey("cls_rgw_obj_key", version 1, compat 1) {
        pub(super) name: Bytes;
        /// The version, empty without one.
        pub(super) instance: Bytes;
    }

    /// A RADOS object.
    #[derive(Eq)]
    pub(super) struct Obj("cls_rgw_obj", version 2, compat 1, fix one_name) {
        pub(super) pool: Bytes;
        /// The name in `key`, for readers of version 1.
        pub(super) name: Bytes;
        /// Its locator key.
        pub(super) loc: Bytes;
        pub(super) key: ObjKey, since 2;
    }

    /// The RADOS objects that hold one object's data.
    #[derive(Eq)]
    pub(super) struct Chain("cls_rgw_obj_chain", version 1, compat 1) {
        pub(super) objs: Vec<Obj>;
    }

    /// An entry.
    #[derive(Eq)]
    pub(super) struct ObjInfo("cls_rgw_gc_obj_info", version 1, compat 1) {
        pub(super) tag: Bytes;
        pub(super) chain: Chain;
        /// When the chain may be removed.
        pub(super) time: UTime;
    }

    /// Input of `rgw_gc_queue_enqueue` and `rgw_gc_queue_update_entry`.
    #[derive(Eq)]
    pub(super) struct SetEntryOp("cls_rgw_gc_set_entry_op", version 1, compat 1) {
        /// Seconds from now on.
        pub(super) expiration_secs: u32;
        pub(super) info: ObjInfo;
    }

    /// Input of `rgw_gc_queue_list_entries`.
    #[derive(Eq)]
    pub(super) struct ListOp("cls_rgw_gc_list_op", version 2, compat 1) {
        /// The marker of the entry to begin with, empty for the first.
        pub(super) marker: Bytes;
        pub(super) max: u32;
        /// Whether entries whose time has not come are left out.
        pub(super) expired_only: bool = true, since 2;
    }

    /// Output of `rgw_gc_queue_list_entries`.
    #[derive(Eq)]
    pub(super) struct ListReply("cls_rgw_gc_list_ret", version 2, compat 1) {
        pub(super) entries: Vec<ObjInfo>;
        /// The marker of the entry that follows, if one does.
        pub(super) next_marker: Bytes, since 2;
        pub(super) truncated: bool;
    }
}

/// Version 1 had the name only, in later ones the key counts.
fn one_name(version: u8, obj: &mut Obj) {
    match version {
        ..2 => obj.key.name = obj.name.clone(),
        2.. => obj.name = obj.key.name.clone(),
    }
}
