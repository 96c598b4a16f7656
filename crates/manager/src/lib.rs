//! The manager's modules that need a RADOS client: Ceph's module `rbd_support`, for images.
//!
//! They run in a process of their own ([`serve`]), so that no data in a pool can end the monitor.
//! The leading monitor starts it with [`Process`], sends it [`Request`]s and hears [`News`].

mod clients;
mod cluster;
mod desk;
mod failure;
mod images;
mod module;
mod modules;
mod process;
mod question;
mod rights;
mod schedules;
mod service;
mod stored;
mod tasks;
mod wire;

pub use clients::ADDRESSES;
pub use cluster::IMAGES;
pub use process::{COMMAND, Process, ServeError, restrict, serve};
pub use question::{Authority, Holder, MODULE, Question, Reply, errno};
pub use rights::{Basis, Login, Origin, Place};
pub use service::{ImagesToName, News, Request, Start, TaskNews, not_ready};
pub use stored::read_stored;
