//! An object that is removed with the last reference to it. Formats: Ceph's
//! `src/cls/refcount/cls_refcount_ops.h`.
//!
//! A reference is a tag. With `implicit_ref`, an object without references counts as having one
//! reference under any tag: such objects are from before references were counted.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::error::unless;
use crate::method::{Nothing, class, stored, to_bytes};
use crate::{Error, Object, Result};
use spirula_denc::versioned;

class! { "refcount" {
    "get": RD | WR => get;
    "put": RD | WR => put;
    "set": RD | WR => set;
    "read": RD => read;
} }

const ATTRIBUTE: &[u8] = b"refcount";

/// The tag that stands for any tag.
const WILDCARD: Bytes = Bytes::new();

versioned! {
    /// Input of `get` and `put`.
    #[derive(Eq)]
    pub(crate) struct GetPutOp("cls_refcount_get_op", version 1, compat 1) {
        pub(crate) tag: Bytes;
        /// Whether an object without references counts as having one under any tag.
        pub(crate) implicit_ref: bool;
    }

    /// Input of `set`, output of `read`.
    #[derive(Eq)]
    pub(crate) struct RefList("cls_refcount_set_op", version 1, compat 1) {
        pub(crate) refs: Vec<Bytes>;
    }

    /// Input of `read`.
    #[derive(Eq)]
    pub(crate) struct ReadOp("cls_refcount_read_op", version 1, compat 1) {
        pub(crate) implicit_ref: bool;
    }

    /// The attribute with the references.
    #[derive(Eq)]
    pub(crate) struct Refs("obj_refcount", version 2, compat 1) {
        pub(crate) refs: BTreeMap<Bytes, bool>;
        /// Tags whose references were dropped; dropping them again does nothing.
        pub(crate) retired: BTreeSet<Bytes>, since 2;
    }
}

fn read_refs(object: &mut dyn Object, implicit: bool) -> Result<Refs> {
    if let Some(bytes) = unless(object.getxattr(ATTRIBUTE), &[Error::ENODATA])? {
        return stored(&bytes);
    }
    let mut refs = Refs::default();
    if implicit {
        refs.refs.insert(WILDCARD, true);
    }
    Ok(refs)
}

fn write_refs(object: &mut dyn Object, refs: &Refs) -> Result<Nothing> {
    object.setxattr(ATTRIBUTE, to_bytes(refs)).map(|()| Nothing)
}

fn get(object: &mut dyn Object, op: GetPutOp) -> Result<Nothing> {
    let mut refs = read_refs(object, op.implicit_ref)?;
    refs.refs.insert(op.tag, true);
    write_refs(object, &refs)
}

fn put(object: &mut dyn Object, op: GetPutOp) -> Result<Nothing> {
    let mut refs = read_refs(object, op.implicit_ref)?;
    if refs.refs.is_empty() {
        return Err(Error::EINVAL);
    }
    let held = [op.tag.clone(), WILDCARD]
        .into_iter()
        .take(if op.implicit_ref { 2 } else { 1 })
        .find(|tag| refs.refs.contains_key(tag));
    let Some(held) = held.filter(|_| !refs.retired.contains(&op.tag)) else {
        return Ok(Nothing);
    };
    refs.retired.insert(op.tag);
    refs.refs.remove(&held);
    if refs.refs.is_empty() {
        return object.remove().map(|()| Nothing);
    }
    write_refs(object, &refs)
}

fn set(object: &mut dyn Object, op: RefList) -> Result<Nothing> {
    if op.refs.is_empty() {
        return object.remove().map(|()| Nothing);
    }
    let refs = op.refs.into_iter().map(|tag| (tag, true)).collect();
    write_refs(
        object,
        &Refs {
            refs,
            ..Refs::default()
        },
    )
}

fn read(object: &mut dyn Object, op: ReadOp) -> Result<RefList> {
    let refs = read_refs(object, op.implicit_ref)?;
    Ok(RefList {
        refs: refs.refs.into_keys().collect(),
    })
}
