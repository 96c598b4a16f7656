//! The native RADOS client: for our command line, the gateways, and anything in Rust. It also works against a
//! real Ceph cluster.
//!
//! [`Rados`] is a connection to a cluster, [`IoCtx`] a pool in it. Everything runs on tokio's current-thread
//! runtime, inside a `LocalSet` or `LocalRuntime`.

mod error;
mod ioctx;
mod list;
mod objecter;
mod options;
mod osd_session;
mod rados;
mod tell;

pub use error::{Error, Result, errno};
pub use ioctx::{IoCtx, OpReply};
pub use list::{Listed, ObjectList};
pub use options::{Options, Source};
pub use rados::Rados;
pub use spirula_monc::CommandReply;
