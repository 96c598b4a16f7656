//! Block images in a pool (RBD), without any library of Ceph. Images are shared with Ceph's clients, of clusters of
//! either kind: formats, locks and messages between clients are those of `librbd`.
//!
//! [`Image`] is an open image, [`list()`] and [`create()`] are about those of a pool. Everything runs on tokio's
//! current-thread runtime, inside a `LocalSet` or `LocalRuntime`.

mod clones;
mod cls;
mod copy_up;
mod create;
mod directory;
mod error;
mod flatten;
mod header;
mod image;
mod io;
mod lock;
mod message;
mod names;
mod naming;
mod object_map;
mod remove;
mod requests;
mod resize;
mod snapshots;
mod usage;
mod watcher;

pub use clones::{Child, children};
pub use create::{CloneFormat, CreateOptions, clone, create};
pub use directory::{image_id, image_name, list, rename};
pub use error::{Error, Result};
pub use header::{Fixed, Header, Parent, Snapshot};
pub use image::{Extent, Image, Options};
pub use naming::{ParentNames, name_of};
pub use remove::remove;
pub use snapshots::NO_LIMIT;
pub use spirula_classes::rbd::{SnapshotNamespace, features};
pub use usage::Usage;
