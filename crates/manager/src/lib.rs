//! The manager's modules that need a RADOS client: what Ceph's module `rbd_support` does with images.
//!
//! [`Manager`] is their thread. Whoever starts it (the leading monitor) hands it [`Request`]s and hears [`News`].

mod clients;
mod desk;
mod failure;
mod images;
mod module;
mod pools;
pub mod python;
mod question;
mod rights;
mod schedules;
mod service;
mod tasks;

pub use clients::ADDRESSES;
pub use pools::IMAGES;
pub use question::{Authority, Holder, MODULE, Question, Reply, errno};
pub use rights::{Basis, Login, Origin, Place};
pub use service::{ImagesToName, Manager, News, Request, Start, TaskNews, not_ready};
