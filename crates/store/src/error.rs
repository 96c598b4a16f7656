//! All errors, sorted by what the owner should do about them.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::ObjectKey;
use crate::index::BadPage;

/// Result of a store call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a store and a key do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// No key was given.
    #[error("is encrypted, and no key was given")]
    Missing,
    /// The key opens none of the slots.
    #[error("is encrypted, and the key is not its key")]
    Wrong,
    /// A key was given for a store that has none: an attacker may have put it there to receive
    /// plaintext.
    #[error("is not encrypted, and a key was given")]
    NotEncrypted,
    /// There is no slot for one more key.
    #[error("has as many keys as it can have: retire one first")]
    Full,
}

/// An error of the store. Cheap to clone: one failure may answer many waiting calls.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// A write does not fit. Nothing was changed; removals and truncations still work.
    #[error("no space: {needed} bytes needed, {available} available")]
    NoSpace {
        /// Bytes the transaction may need at most.
        needed: u64,
        /// Bytes that may still be allocated to objects.
        available: u64,
    },
    /// The transaction was refused as it breaks a limit of the store. Nothing was changed.
    #[error("invalid transaction: {0}")]
    Invalid(&'static str),
    /// There is no such object.
    #[error("no such object: {0}")]
    NoObject(ObjectKey),
    /// Stored bytes differ from their checksum: the medium lost or changed them. The data is never
    /// returned.
    #[error("checksum mismatch in object {key} at offset {offset}: disk block {block}")]
    Corrupt {
        /// The object.
        key: ObjectKey,
        /// Offset in the object of the first bad block, in bytes.
        offset: u64,
        /// Block of the device (4 KiB units) that holds it.
        block: u64,
    },
    /// A read failed on the device.
    #[error("read of object {key} at offset {offset} failed: {source}")]
    ReadFailed {
        /// The object.
        key: ObjectKey,
        /// Offset in the object, in bytes.
        offset: u64,
        /// The device's error.
        source: Arc<io::Error>,
    },
    /// A page of the index is damaged, or can't be read from the device. What lies there is lost;
    /// the rest of the store is not.
    #[error("index: {detail}")]
    IndexPage {
        /// The page of the index file.
        page: u64,
        /// The defect.
        detail: Arc<str>,
    },
    /// The index fails for another reason: it can't be written, or is not of the form that its
    /// library writes.
    #[error("index: {0}")]
    Index(Arc<redb::Error>),
    /// What all depends on is damaged: the store can't go on, or can't be opened, and is not mended
    /// by itself. The device holds this store, and nothing was changed.
    #[error("the store is ruined: {detail}")]
    Ruined {
        /// The defect.
        detail: Arc<str>,
        /// The damaged pages of the index file, as far as they are known.
        pages: Arc<[u64]>,
    },
    /// A structure on disk is not of the form that this version writes.
    #[error("{what} is damaged: {detail}")]
    Damaged {
        /// Structure: superblock, log, onode, …
        what: &'static str,
        /// The defect.
        detail: String,
    },
    /// The device holds no store, or one of another format version.
    #[error("not a spirula store: {0}")]
    NotAStore(String),
    /// The store is not opened for its key, or for lack of one. Nothing was changed.
    #[error("the store of osd.{osd} {problem}")]
    Key {
        /// Number of the OSD.
        osd: u32,
        /// The problem.
        problem: KeyProblem,
    },
    /// A process has the store open, so that no other one may read or change it.
    #[error("{path} is in use{}", .pid.map_or_else(String::new, |pid| format!(" by process {pid}")))]
    InUse {
        /// The device.
        path: String,
        /// The process, if it can be seen from here.
        pid: Option<u32>,
    },
    /// Opening or sizing a device failed.
    #[error("{what}: {source}")]
    Io {
        /// The attempted operation.
        what: String,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// An earlier failure of the log or the index poisoned the store. The daemon must stop; nothing
    /// is retried.
    #[error("store has failed: {0}")]
    Fatal(Arc<str>),
}

impl StoreError {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source: Arc::new(source),
        }
    }

    /// The error of opening `path`.
    pub(crate) fn open(path: &std::path::Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::ResourceBusy {
            return Self::InUse {
                path: path.display().to_string(),
                pid: crate::device::holder(path),
            };
        }
        Self::io(format!("open {}", path.display()), source)
    }

    pub(crate) fn damaged(what: &'static str, detail: impl Into<String>) -> Self {
        Self::Damaged {
            what,
            detail: detail.into(),
        }
    }

    pub(crate) fn ruined(detail: impl fmt::Display, pages: Vec<u64>) -> Self {
        Self::Ruined {
            detail: detail.to_string().into(),
            pages: pages.into(),
        }
    }

    /// Whether something that was stored is damaged or can't be read: it is unreadable, and the
    /// store goes on.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Corrupt { .. }
            | Self::ReadFailed { .. }
            | Self::IndexPage { .. }
            | Self::Damaged { .. } => true,
            Self::NoSpace { .. }
            | Self::Invalid(_)
            | Self::NoObject(_)
            | Self::Index(_)
            | Self::Ruined { .. }
            | Self::NotAStore(_)
            | Self::Key { .. }
            | Self::InUse { .. }
            | Self::Io { .. }
            | Self::Fatal(_) => false,
        }
    }

    /// Damage in what all depends on: the store is ruined. Other errors stay as they are.
    pub(crate) fn into_ruin(self) -> Self {
        match self {
            Self::IndexPage { page, detail } => Self::ruined(detail, vec![page]),
            Self::Damaged { .. } => Self::ruined(&self, Vec::new()),
            other => other,
        }
    }

    /// Whether the index's library refuses all further work after this error.
    pub(crate) fn is_latched(&self) -> bool {
        match self {
            Self::IndexPage { .. } => true,
            Self::Index(e) => matches!(**e, redb::Error::Io(_)) || self.is_collateral(),
            _ => false,
        }
    }

    /// Whether this is the error of a call that comes after one which met an error.
    pub(crate) fn is_collateral(&self) -> bool {
        let Self::Index(e) = self else { return false };
        matches!(**e, redb::Error::PreviousIo | redb::Error::DatabaseClosed)
    }

    fn of_index(e: redb::Error) -> Self {
        if let redb::Error::Io(io) = &e
            && let Some(bad) = BadPage::of(io)
        {
            return Self::IndexPage {
                page: bad.page,
                detail: bad.to_string().into(),
            };
        }
        match e {
            redb::Error::Io(io) if io.kind() == io::ErrorKind::InvalidData => {
                Self::damaged("index", io.to_string())
            }
            redb::Error::Corrupted(detail) => Self::damaged("index", detail),
            redb::Error::TableDoesNotExist(_) => Self::damaged("index", e.to_string()),
            other => Self::Index(Arc::new(other)),
        }
    }
}

macro_rules! from_redb {
    ($($source:ty),*) => { $(
        impl From<$source> for StoreError {
            fn from(e: $source) -> Self {
                Self::of_index(e.into())
            }
        }
    )* };
}

from_redb!(
    redb::Error,
    redb::DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError,
    redb::SetDurabilityError
);
