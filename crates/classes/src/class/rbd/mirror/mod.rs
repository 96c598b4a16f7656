//! The object `rbd_mirroring`: the mirroring mode of a pool or namespace, its peers, and the status
//! of its images. Formats: Ceph's `src/cls/rbd/cls_rbd_types.h`.

pub(super) mod images;
pub(super) mod instances;
pub(super) mod peers;
pub(super) mod snapshots;
pub(super) mod status;

use bytes::Bytes;

use super::keys;
use crate::method::{Nothing, Raw};
use crate::{Error, Object, Result, omap};

/// The key of this cluster's mirror uuid for the pool.
const UUID: &str = "mirror_uuid";
const MODE: &str = "mirror_mode";
/// The key of the namespace at the peers, if it has another name there.
const REMOTE_NAMESPACE: &str = "mirror_remote_namespace";

const DISABLED: u32 = 0;
/// The mode in which images are chosen one by one.
const IMAGE: u32 = 1;
/// The mode in which all images with a journal are mirrored.
const POOL: u32 = 2;
/// The mode in which no images are mirrored, but peers may exist.
const INIT_ONLY: u32 = 3;

pub(super) fn uuid(object: &mut dyn Object) -> Result<Bytes> {
    omap::get(object, UUID.as_bytes())
}

/// Whether mirroring is enabled.
fn is_enabled(object: &mut dyn Object) -> Result<bool> {
    Ok(keys::get(object, MODE)?.is_some_and(|mode: u32| mode != DISABLED))
}

pub(super) fn uuid_get(object: &mut dyn Object, _: Nothing) -> Result<Bytes> {
    uuid(object)
}

pub(super) fn uuid_set(object: &mut dyn Object, uuid: Bytes) -> Result<Nothing> {
    if uuid.is_empty() || is_enabled(object)? {
        return Err(Error::EINVAL);
    }
    keys::set(object, UUID, &Raw(uuid)).map(|()| Nothing)
}

pub(super) fn mode_get(object: &mut dyn Object, _: Nothing) -> Result<u32> {
    keys::require(object, MODE)
}

pub(super) fn mode_set(object: &mut dyn Object, mode: u32) -> Result<Nothing> {
    match mode {
        IMAGE | POOL | INIT_ONLY => {
            if !keys::has(object, UUID)? {
                return Err(Error::EINVAL);
            }
            keys::set(object, MODE, &mode)?;
        }
        DISABLED => {
            if !peers::read_all(object)?.is_empty() {
                return Err(Error::EBUSY);
            }
            for key in [MODE, REMOTE_NAMESPACE, UUID] {
                keys::remove_any(object, key)?;
            }
        }
        _ => return Err(Error::EINVAL),
    }
    Ok(Nothing)
}

pub(super) fn remote_namespace_get(object: &mut dyn Object, _: Nothing) -> Result<Bytes> {
    keys::require(object, REMOTE_NAMESPACE)
}

pub(super) fn remote_namespace_set(object: &mut dyn Object, namespace: Bytes) -> Result<Nothing> {
    if is_enabled(object)? {
        return Err(Error::EINVAL);
    }
    keys::set(object, REMOTE_NAMESPACE, &namespace).map(|()| Nothing)
}
