//! The registry of classes: each is a file or directory here and has a line in [`CLASSES`].

mod cas;
mod cmpomap;
mod hello;
pub(crate) mod journal;
mod lock;
mod log;
mod numops;
pub(crate) mod rbd;
mod refcount;
mod timeindex;
mod user;
mod version;

use crate::Class;

/// Every class.
static CLASSES: [&Class; 12] = [
    &cas::CLASS,
    &cmpomap::CLASS,
    &hello::CLASS,
    &journal::CLASS,
    &lock::CLASS,
    &log::CLASS,
    &numops::CLASS,
    &rbd::CLASS,
    &refcount::CLASS,
    &timeindex::CLASS,
    &user::CLASS,
    &version::CLASS,
];

/// All classes.
pub fn all() -> impl Iterator<Item = &'static Class> {
    CLASSES.iter().copied()
}

/// The class of that name.
pub fn find(name: &[u8]) -> Option<&'static Class> {
    all().find(|c| c.name.as_bytes() == name)
}
