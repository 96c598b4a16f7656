//! What an open image is and where it lies. Nothing of it changes while the image is open, so
//! every part of the library may borrow it.

use std::sync::Arc;

use spirula_client::{IoCtx, errno};
use tokio::sync::Semaphore;

use crate::header::{Fixed, Header};
use crate::limits::Limits;
use crate::{Error, Result, names};

/// How an image is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Nothing is written, and this client does not watch the header.
    pub read_only: bool,
    /// The user's snapshot that is read instead of the image. Implies `read_only`.
    pub snapshot: Option<String>,
    /// The exclusive lock is taken at once and not passed on to clients that ask for it.
    pub exclusive: bool,
    /// The most requests to data objects under way at the same time, where memory is short: each
    /// may hold an object's content.
    pub in_flight: Option<usize>,
    /// Permits for copies of objects, shared by several images where memory is short. A copy holds
    /// one permit for each MiB of the object, so there must be 32: objects have 32 MiB at most.
    pub copies: Option<Arc<Semaphore>>,
    /// The most objects that an object map may cover, where memory is short.
    pub max_mapped: Option<u64>,
}

/// What an image is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be read or written.
    Use,
    /// To be migrated, from or to. The image's role in a migration does not restrict this client,
    /// and its journal is not told: copied data is not new.
    Migrate,
    /// To be removed, with its journal, to which nothing is added any more.
    Remove,
    /// To replay its journal, while another view of the image has the lock and the watch.
    Replay,
}

/// The identity of an open image, and how it was opened.
pub(crate) struct Site {
    /// The pool and namespace of the header.
    pub(crate) io: IoCtx,
    /// The pool and namespace of the data.
    pub(crate) data: IoCtx,
    pub(crate) fixed: Fixed,
    pub(crate) read_only: bool,
    /// The lock is not passed on to clients that ask for it.
    pub(crate) exclusive: bool,
    pub(crate) purpose: Purpose,
    /// The snapshot that is read.
    pub(crate) snap: Option<u64>,
    /// How many images lie between this parent and the image that the caller has opened.
    pub(crate) depth: usize,
    pub(crate) limits: Limits,
}

impl Site {
    /// The name of the header's object.
    pub(crate) fn header_oid(&self) -> String {
        names::header(&self.fixed.id)
    }

    /// How many objects an image of this size has.
    pub(crate) fn objects(&self, size: u64) -> u64 {
        self.fixed.layout.objects(size)
    }

    /// Whether the data belongs to this image. A client that may write the header chooses pool and
    /// prefix. If these named another image's data, a client that changes this image would change
    /// the other one with its own rights.
    fn has_own_data(&self) -> bool {
        let pool = self.io.pool_id();
        self.data.pool_id() == pool || self.fixed.prefix == names::data_prefix(&self.fixed.id, Some(pool))
    }

    /// Fails with `EPERM` where the data may be another's.
    pub(crate) fn check_own_data(&self) -> Result<()> {
        match self.has_own_data() {
            true => Ok(()),
            false => Err(Error::os("change image", errno::EPERM)),
        }
    }

    /// Whether an object sees anything of the parent, at a snapshot or in the image as it is.
    pub(crate) fn sees_parent_at(&self, header: &Header, snap: Option<u64>, object: u64) -> Result<bool> {
        let seen = header.overlap_at(snap)?;
        let layout = self.fixed.layout;
        let mut extents = layout.whole_extents(object, 0, layout.object_size.into());
        Ok(seen > 0 && extents.any(|e| e.offset < seen))
    }

    /// Whether an object sees anything of the parent, at the snapshot that is read.
    pub(crate) fn sees_parent(&self, header: &Header, object: u64) -> Result<bool> {
        self.sees_parent_at(header, self.snap, object)
    }

    /// The context of writes that preserve the image's snapshots.
    pub(crate) fn writer(&self, header: &Header) -> IoCtx {
        self.data.clone().with_snap_context(header.snap_context())
    }
}
