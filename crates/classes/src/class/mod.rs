//! The registry of classes: each is a file or directory here and has a line in [`CLASSES`].

mod cas;
mod cmpomap;
mod fifo;
mod hello;
pub(crate) mod journal;
mod lock;
mod log;
mod numops;
mod otp;
mod queue;
pub(crate) mod rbd;
mod refcount;
mod rgw;
mod rgw_gc;
mod timeindex;
mod two_phase_queue;
mod user;
mod version;

use crate::Class;

/// Every class.
static CLASSES: [&Class; 18] = [
    &cas::CLASS,
    &cmpomap::CLASS,
    &fifo::CLASS,
    &hello::CLASS,
    &journal::CLASS,
    &lock::CLASS,
    &log::CLASS,
    &numops::CLASS,
    &otp::CLASS,
    &queue::CLASS,
    &rbd::CLASS,
    &refcount::CLASS,
    &rgw::CLASS,
    &rgw_gc::CLASS,
    &timeindex::CLASS,
    &two_phase_queue::CLASS,
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
