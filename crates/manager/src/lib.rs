//! The manager's modules that need a RADOS client: what Ceph's module `rbd_support` does with images.
//!
//! [`Manager`] is their thread. Whoever starts it (the leading monitor) hands it [`Request`]s and hears [`News`].

mod failure;
mod images;
mod module;
mod pools;
pub mod python;
mod question;
mod schedules;
mod service;
mod tasks;

pub use pools::IMAGES;
pub use question::{Authority, Holder, MODULE, Question, Reply, errno};
pub use service::{ImagesToName, Manager, News, Request, Start, TaskNews, not_ready};
