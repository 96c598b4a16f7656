//! A version that clients give an object and count up under conditions. Formats: Ceph's
//! `src/cls/version/cls_version_types.h` and `cls_version_ops.h`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::error::unless;
use crate::method::{Nothing, class, stored, to_bytes};
use crate::{Error, Object, Result};
use spirula_denc::versioned;

class! { "version" {
    "set": RD | WR => set;
    "inc": RD | WR => inc;
    "inc_conds": RD | WR => inc;
    "read": RD => read;
    "check_conds": RD => check;
} }

const ATTRIBUTE: &[u8] = b"ceph.objclass.version";

versioned! {
    /// A version: a number among those with the same tag.
    #[derive(Eq)]
    pub(crate) struct ObjVersion("obj_version", version 1, compat 1) {
        pub(crate) ver: u64;
        pub(crate) tag: Bytes;
    }

    /// A condition: how the object's version compares with another.
    #[derive(Eq)]
    pub(crate) struct Condition("obj_version_cond", version 1, compat 1) {
        pub(crate) ver: ObjVersion;
        pub(crate) kind: u32;
    }

    /// Input of `set`, output of `read`.
    #[derive(Eq)]
    pub(crate) struct Versioned("cls_version_set_op", version 1, compat 1) {
        pub(crate) version: ObjVersion;
    }

    /// Input of `inc`, `inc_conds` and `check_conds`.
    #[derive(Eq)]
    pub(crate) struct Conditional("cls_version_inc_op", version 1, compat 1) {
        /// Ignored.
        pub(crate) version: ObjVersion;
        /// The conditions, all of which must hold.
        pub(crate) conditions: Vec<Condition>;
    }
}

impl Condition {
    fn holds(&self, have: &ObjVersion) -> bool {
        let want = &self.ver;
        match self.kind {
            1 => have == want,
            2 => have.ver > want.ver,
            3 => have.ver >= want.ver,
            4 => have.ver < want.ver,
            5 => have.ver <= want.ver,
            6 => have.tag == want.tag,
            7 => have.tag != want.tag,
            _ => true,
        }
    }
}

fn conditions_hold(conditions: &[Condition], have: &ObjVersion) -> Result<()> {
    match conditions.iter().all(|c| c.holds(have)) {
        true => Ok(()),
        false => Err(Error::ECANCELED),
    }
}

/// The object's version; `None` if it was never set.
fn stored_version(object: &mut dyn Object) -> Result<Option<ObjVersion>> {
    let bytes = unless(object.getxattr(ATTRIBUTE), &[Error::ENOENT, Error::ENODATA])?;
    bytes.as_ref().map(stored).transpose()
}

fn write_version(object: &mut dyn Object, version: &ObjVersion) -> Result<Nothing> {
    object.setxattr(ATTRIBUTE, to_bytes(version)).map(|()| Nothing)
}

fn set(object: &mut dyn Object, op: Versioned) -> Result<Nothing> {
    write_version(object, &op.version)
}

fn inc(object: &mut dyn Object, op: Conditional) -> Result<Nothing> {
    let mut version = match stored_version(object)? {
        Some(v) => v,
        None => {
            let mut tag = [0; 18];
            object.random(&mut tag);
            ObjVersion {
                ver: 1,
                tag: STANDARD.encode(tag).into(),
            }
        }
    };
    conditions_hold(&op.conditions, &version)?;
    version.ver = version.ver.wrapping_add(1);
    write_version(object, &version)
}

fn read(object: &mut dyn Object, _: Nothing) -> Result<Versioned> {
    let version = stored_version(object)?.unwrap_or_default();
    Ok(Versioned { version })
}

fn check(object: &mut dyn Object, op: Conditional) -> Result<Nothing> {
    let version = stored_version(object)?.unwrap_or_default();
    conditions_hold(&op.conditions, &version).map(|()| Nothing)
}
