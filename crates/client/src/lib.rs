//! The native RADOS client: for our command line, the gateways, and other Rust programs. It also
//! works with a real Ceph cluster.
//!
//! [`Rados`] is a connection to a cluster, [`IoCtx`] a pool in it. Everything runs on tokio's
//! current-thread runtime, inside a `LocalSet` or `LocalRuntime`. Programs with several threads
//! have a [`RadosHandle`], with the same operations: it leads to a client that has a thread to
//! itself.

mod class;
mod connection;
mod copy;
mod data;
mod error;
mod handle;
mod ioctx;
mod list;
mod lock;
pub mod objecter;
mod omap;
mod options;
mod osd_session;
mod rados;
mod scrub;
mod snap;
mod striper;
mod tell;
mod watch;
mod worker;
mod xattr;

pub use connection::Connection;
pub use copy::Chunk;
pub use error::{Error, Result};
pub use handle::RadosHandle;
pub use ioctx::{IoCtx, OpReply};
pub use list::{Listed, ObjectList};
pub use lock::{LockInfo, LockRequest, LockType, Locker};
pub use options::{Options, Source};
pub use rados::Rados;
pub use scrub::{Inconsistency, InconsistentList, InconsistentPage};
pub use spirula_errno as errno;
pub use spirula_monc::CommandReply;
pub use spirula_proto::BytesList;
pub use striper::{Layout, Piece, Striper};
pub use watch::{NotifyOutcome, Watch, WatchNews};
