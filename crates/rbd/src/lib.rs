//! Block images in a pool (RBD), without any library of Ceph. Images are shared with Ceph's
//! clients, in clusters of either kind: formats, locks and messages between clients are those of
//! `librbd`.
//!
//! [`Image`] is an open image; [`list()`] and [`create()`] work on a pool's images. Everything runs
//! on tokio's current-thread runtime, inside a `LocalSet` or `LocalRuntime`.

mod announce;
mod asked;
mod bounds;
mod change;
mod clones;
mod cls;
mod config;
mod copy;
mod copy_up;
mod create;
mod diff;
pub mod diff_file;
mod directory;
mod error;
mod export_diff;
mod feature_update;
mod flatten;
mod group;
mod header;
mod holder;
mod image;
mod image_file;
mod import_diff;
mod journal;
mod limits;
mod lock;
mod map_scan;
mod merge_diff;
mod message;
mod metadata;
mod migration;
mod mirror;
mod names;
mod namespaces;
mod naming;
mod object_map;
mod operate;
mod operating;
mod perform;
mod progress;
mod read;
mod remove;
mod rename;
mod requests;
mod resize;
mod site;
mod snapshots;
mod sparsify;
mod stored;
mod traffic;
mod transfer;
mod trash;
mod usage;
mod users;
mod view;
mod watcher;
mod write;
mod writing;

pub use clones::{Child, children};
pub use config::{
    Setting, SettingSource, pool_setting, pool_settings, remove_pool_setting, set_pool_setting,
};
pub use create::{CloneFormat, CreateOptions, clone, create, mark_pool};
pub use diff::{DiffOptions, Difference, Differences};
pub use directory::{image_id, image_name, is_old_image, list};
pub use error::{Error, Result};
pub use group::GroupNames;
pub use header::{Fixed, Header, Parent, Snapshot};
pub use image::Image;
pub use image_file::{ImageHead, read_image_head};
pub use import_diff::{ImportError, ImportNews};
pub use journal::JournalOptions;
pub use merge_diff::{MergeError, merge_diff};
pub use message::notification_name;
pub use migration::{
    MigrationStatus, migration_abort, migration_commit, migration_execute, migration_status,
};
pub use mirror::{
    MIRROR_BY_SNAPSHOTS, MIRROR_MODE_IMAGE, is_mirror_primary, mirror_mode, mirrored_image, mirrored_images,
};
pub use namespaces::{namespace_create, namespace_remove, namespaces};
pub use naming::{ImageTimes, ParentNames, name_of};
pub use progress::Progress;
pub use read::ExtentStatus;
pub use remove::remove;
pub use rename::rename;
pub use site::Options;
pub use snapshots::NO_LIMIT;
pub use spirula_classes::rbd::{
    Features, ImageFlags, MirrorImage, MirrorImageState, OpFeatures, SnapshotNamespace, Striping, TrashImage,
};
pub use stored::read_stored;
pub use transfer::SPARSE;
pub use trash::{trash_due, trash_get, trash_list, trash_move, trash_purge, trash_remove, trash_restore};
pub use usage::Usage;
