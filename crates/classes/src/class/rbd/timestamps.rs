//! The times at which an image was made, and last read and written as its clients report.

use spirula_denc::UTime;

use super::keys;
use crate::method::Nothing;
use crate::{Object, Result};

pub(super) const CREATE: &str = "create_timestamp";
pub(super) const ACCESS: &str = "access_timestamp";
pub(super) const MODIFY: &str = "modify_timestamp";

/// A timestamp; zero for images from before there were timestamps.
fn get(object: &mut dyn Object, key: &str) -> Result<UTime> {
    Ok(keys::get(object, key)?.unwrap_or(UTime::ZERO))
}

fn set(object: &mut dyn Object, key: &str) -> Result<Nothing> {
    object.stat()?;
    let now = object.now();
    keys::set(object, key, &now).map(|()| Nothing)
}

pub(super) fn get_create(object: &mut dyn Object, _: Nothing) -> Result<UTime> {
    get(object, CREATE)
}

pub(super) fn get_access(object: &mut dyn Object, _: Nothing) -> Result<UTime> {
    get(object, ACCESS)
}

pub(super) fn get_modify(object: &mut dyn Object, _: Nothing) -> Result<UTime> {
    get(object, MODIFY)
}

pub(super) fn set_access(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    set(object, ACCESS)
}

pub(super) fn set_modify(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    set(object, MODIFY)
}
