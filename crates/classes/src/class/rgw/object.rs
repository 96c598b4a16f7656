//! Steps of requests on an S3 object's head object. Formats: Ceph's `src/cls/rgw/cls_rgw_ops.h`.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use crate::error::unless;
use crate::method::{Nothing, to_bytes};
use crate::text::until_nul;
use crate::{Error, Object, Result};

versioned! {
    /// Input of `obj_remove`.
    #[derive(Eq)]
    pub(super) struct RemoveOp("rgw_cls_obj_remove_op", version 1, compat 1) {
        /// Attributes that begin so stay, on an object that is otherwise empty.
        pub(super) keep_attr_prefixes: Vec<Bytes>;
    }

    /// Input of `obj_store_pg_ver`.
    #[derive(Eq)]
    pub(super) struct StorePgVerOp("rgw_cls_obj_store_pg_ver_op", version 1, compat 1) {
        pub(super) attr: Bytes;
    }

    /// Input of `obj_check_attrs_prefix`.
    #[derive(Eq)]
    pub(super) struct CheckAttrsPrefixOp("rgw_cls_obj_check_attrs_prefix", version 1, compat 1) {
        pub(super) check_prefix: Bytes;
        /// Whether such an attribute fails the check; without it, it is wanted.
        pub(super) fail_if_exist: bool;
    }

    /// Input of `obj_check_mtime`.
    #[derive(Eq)]
    pub(super) struct CheckMtimeOp("rgw_cls_obj_check_mtime", version 2, compat 1) {
        pub(super) mtime: UTime;
        /// How the object's time must be to `mtime`: a `RGWCheckMTimeType`.
        pub(super) kind: u8;
        /// Whether nanoseconds count.
        pub(super) high_precision_time: bool, since 2;
    }
}

/// All attributes; none of an object that does not exist.
fn attributes(object: &mut dyn Object) -> Result<BTreeMap<Bytes, Bytes>> {
    Ok(unless(object.getxattrs(), &[Error::ENOENT])?.unwrap_or_default())
}

pub(super) fn remove(object: &mut dyn Object, op: RemoveOp) -> Result<Nothing> {
    if op.keep_attr_prefixes.is_empty() {
        return object.remove().map(|()| Nothing);
    }
    let mut kept = attributes(object)?;
    kept.retain(|name, _| {
        op.keep_attr_prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix))
    });
    object.remove()?;
    if kept.is_empty() {
        return Ok(Nothing);
    }
    object.create(false)?;
    for (name, value) in kept {
        object.setxattr(&name, value)?;
    }
    Ok(Nothing)
}

/// Stores the placement group's version, by which radosgw of other zones tells changes apart.
pub(super) fn store_pg_ver(object: &mut dyn Object, op: StorePgVerOp) -> Result<Nothing> {
    let version = to_bytes(&object.current_version());
    object.setxattr(until_nul(&op.attr), version).map(|()| Nothing)
}

pub(super) fn check_attrs_prefix(object: &mut dyn Object, op: CheckAttrsPrefixOp) -> Result<Nothing> {
    if op.check_prefix.is_empty() {
        return Err(Error::EINVAL);
    }
    let attributes = attributes(object)?;
    let exists = attributes.keys().any(|name| name.starts_with(&op.check_prefix));
    match exists == op.fail_if_exist {
        true => Err(Error::ECANCELED),
        false => Ok(Nothing),
    }
}

/// Compares the object's time, the zero time where it does not exist.
pub(super) fn check_mtime(object: &mut dyn Object, op: CheckMtimeOp) -> Result<Nothing> {
    let found = unless(object.stat(), &[Error::ENOENT])?;
    let rounded = |time: UTime| match op.high_precision_time {
        true => time,
        false => UTime::from_secs(time.sec),
    };
    let mtime = rounded(found.map_or(UTime::ZERO, |stat| stat.mtime));
    let wanted = rounded(op.mtime);
    let holds = match op.kind {
        0 => mtime == wanted,
        1 => mtime < wanted,
        2 => mtime <= wanted,
        3 => mtime > wanted,
        4 => mtime >= wanted,
        _ => return Err(Error::EINVAL),
    };
    match holds {
        true => Ok(Nothing),
        false => Err(Error::ECANCELED),
    }
}
