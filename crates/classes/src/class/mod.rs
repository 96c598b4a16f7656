//! The registry of classes: each is a file or directory here and has a line in [`CLASSES`].

mod cas;
mod hello;
pub(crate) mod journal;
mod lock;
mod log;
mod numops;
pub(crate) mod rbd;
mod refcount;
mod rgw;
mod timeindex;
mod version;

use crate::Class;

/// Every class.
static CLASSES: [&Class; 11] = [
    &cas::CLASS,
    &hello::CLASS,
    &journal::CLASS,
    &lock::CLASS,
    &log::CLASS,
    &numops::CLASS,
    &rbd::CLASS,
    &refcount::CLASS,
    &rgw::CLASS,
    &timeindex::CLASS,
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
