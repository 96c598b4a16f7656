//! An entry of the garbage collector: data of a deleted or overwritten object, to be removed later.
//! The class `rgw` keeps such entries in an omap, `rgw_gc` in a queue. Formats: Ceph's
//! `src/cls/rgw/cls_rgw_types.h` and `cls_rgw_ops.h`.

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use super::key::ObjectKey;

versioned! {
    /// A RADOS object.
    #[derive(Eq)]
    pub(crate) struct Obj("cls_rgw_obj", version 2, compat 1, fix one_name) {
        pub(crate) pool: Bytes;
        /// The name in `key`, for readers of version 1.
        pub(crate) name: Bytes;
        /// Its locator key.
        pub(crate) loc: Bytes;
        pub(crate) key: ObjectKey, since 2;
    }

    /// The RADOS objects that hold one object's data.
    #[derive(Eq)]
    pub(crate) struct Chain("cls_rgw_obj_chain", version 1, compat 1) {
        pub(crate) objs: Vec<Obj>;
    }

    /// An entry of the list.
    #[derive(Eq)]
    pub(crate) struct ObjInfo("cls_rgw_gc_obj_info", version 1, compat 1) {
        pub(crate) tag: Bytes;
        pub(crate) chain: Chain;
        /// When the chain may be removed.
        pub(crate) time: UTime;
    }

    /// Input of `gc_set_entry`, and of the queue's `rgw_gc_queue_enqueue`.
    #[derive(Eq)]
    pub(crate) struct SetEntryOp("cls_rgw_gc_set_entry_op", version 1, compat 1) {
        /// Seconds from now on.
        pub(crate) expiration_secs: u32;
        pub(crate) info: ObjInfo;
    }

    /// Input of `gc_list` and `rgw_gc_queue_list_entries`.
    #[derive(Eq)]
    pub(crate) struct ListOp("cls_rgw_gc_list_op", version 2, compat 1) {
        /// Where to begin, empty for the first entry: the omap key before, in the queue a position.
        pub(crate) marker: Bytes;
        pub(crate) max: u32;
        /// Whether entries whose time has not come are left out.
        pub(crate) expired_only: bool = true, since 2;
    }

    /// Output of `gc_list`, by time, and of `rgw_gc_queue_list_entries`.
    #[derive(Eq)]
    pub(crate) struct ListReply("cls_rgw_gc_list_ret", version 2, compat 1) {
        pub(crate) entries: Vec<ObjInfo>;
        /// Where to go on, if more follow.
        pub(crate) next_marker: Bytes, since 2;
        pub(crate) truncated: bool;
    }
}

/// Version 1 had the name only, in later ones the key counts.
fn one_name(version: u8, obj: &mut Obj) {
    match version {
        ..2 => obj.key.name = obj.name.clone(),
        2.. => obj.name = obj.key.name.clone(),
    }
}
