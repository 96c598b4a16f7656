//! An open image.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use spirula_classes::rbd::Features;
use spirula_client::{BytesList, IoCtx, errno};
use tokio::sync::watch;

use crate::header::{Fixed, Header};
use crate::journal::JournalOptions;
use crate::lock::Lock;
use crate::read::ExtentStatus;
use crate::site::{Options, Purpose, Site};
use crate::traffic::Traffic;
use crate::view::View;
use crate::watcher::Watcher;
use crate::writing::Writing;
use crate::{Error, Result, directory};

/// An open image, made of parts. Each part owns its state. A method that needs several parts is
/// here, in a [`Writing`] or in an operation ([`crate::operating`]).
pub(crate) struct Inner {
    pub(crate) site: Rc<Site>,
    pub(crate) view: Rc<View>,
    pub(crate) name: RefCell<String>,
    pub(crate) lock: Lock,
    /// Options for a journal that this client makes.
    pub(crate) journal_options: RefCell<JournalOptions>,
    pub(crate) traffic: Traffic,
    pub(crate) watcher: Watcher,
}

/// An open image. Without [`Image::close`] its lock lasts until another client finds this one gone.
pub struct Image {
    pub(crate) inner: Rc<Inner>,
}

impl Inner {
    /// An image of which this client has only a view so far.
    fn new(name: String, view: Rc<View>) -> Self {
        Self {
            site: Rc::clone(&view.site),
            view,
            name: RefCell::new(name),
            lock: Lock::default(),
            journal_options: RefCell::default(),
            traffic: Traffic::default(),
            watcher: Watcher::default(),
        }
    }

    /// Opens an image: at a snapshot by its id, or as it is.
    pub(crate) async fn open(
        io: &IoCtx,
        name: String,
        id: &str,
        options: &Options,
        snap: Option<u64>,
        purpose: Purpose,
    ) -> Result<Rc<Self>> {
        let view = View::read_header((io, id), options, snap, purpose, 0).await?;
        let inner = Rc::new(Self::new(name, view));
        if purpose == Purpose::Replay || inner.site.read_only {
            inner.view.open_parent().await?;
        } else {
            inner.start_watch().await?;
            // A change between the first read and the watch was not announced here.
            inner.view.reread().await?;
        }
        Ok(inner)
    }

    /// Begins a write: under the newest header and, where the image has one, the lock.
    pub(crate) async fn begin_write(self: &Rc<Self>) -> Result<Writing> {
        if self.site.read_only {
            return Err(Error::os("write", errno::EROFS));
        }
        self.site.check_own_data()?;
        loop {
            self.view.refresh().await?;
            self.acquire().await?;
            if let Some(writing) = self.try_write().await {
                return Ok(writing);
            }
        }
    }

    /// Begins a write that needs the lock at once: `EAGAIN` where another client holds it.
    pub(crate) async fn begin_write_as_owner(&self) -> Result<Writing> {
        self.site.check_own_data()?;
        loop {
            self.view.refresh().await?;
            if let Some(writing) = self.try_write().await {
                return Ok(writing);
            }
            if !self.is_owner_if_needed(&self.view.header()) {
                return Err(Error::os("lock", errno::EAGAIN));
            }
        }
    }

    async fn try_write(&self) -> Option<Writing> {
        let gate = self.traffic.enter().await;
        let header = self.view.header();
        if self.view.is_stale() || !self.is_owner_if_needed(&header) {
            return None;
        }
        self.traffic.note_modified(&self.site);
        Some(Writing {
            _gate: Some(gate),
            site: Rc::clone(&self.site),
            view: Rc::clone(&self.view),
            copy_ups: Rc::clone(&self.traffic.copy_ups),
            header,
            map: self.view.map(),
            journal: self.lock.journal(),
        })
    }

    fn is_owner_if_needed(&self, header: &Header) -> bool {
        self.lock.is_owned() || !header.has(Features::EXCLUSIVE_LOCK)
    }
}

impl Image {
    /// A parent as an image of its own, which is only read.
    pub(crate) fn of(view: Rc<View>) -> Self {
        let inner = Rc::new(Inner::new(String::new(), view));
        Self { inner }
    }

    /// Opens an image of a pool and namespace by its name.
    ///
    /// # Errors
    /// `ENOENT` where there is no such image or snapshot, `ENOSYS` where it has features that are
    /// not known here, `EROFS` where its lock is wanted and somebody else does not give it up.
    pub async fn open(io: &IoCtx, name: &str, options: Options) -> Result<Self> {
        let id = directory::image_id(io, name).await?;
        Self::open_by_id(io, name, &id, options).await
    }

    /// Opens an image by its id, under the name that the caller gives.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub async fn open_by_id(io: &IoCtx, name: &str, id: &str, options: Options) -> Result<Self> {
        Self::open_for(io, (name, id), options, Purpose::Use).await
    }

    /// Opens an image by its name and id.
    pub(crate) async fn open_for(
        io: &IoCtx,
        (name, id): (&str, &str),
        options: Options,
        purpose: Purpose,
    ) -> Result<Self> {
        let inner = Inner::open(io, name.to_owned(), id, &options, None, purpose).await?;
        let image = Self { inner };
        if options.exclusive
            && let Err(e) = image.inner.acquire().await
        {
            // The first failure is returned, not this one's.
            let _ = image.close().await;
            return Err(e);
        }
        Ok(image)
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.inner.name.borrow().clone()
    }

    /// The part of its header that never changes.
    pub fn fixed(&self) -> &Fixed {
        &self.inner.site.fixed
    }

    /// The pool and namespace of its header.
    pub fn pool(&self) -> &IoCtx {
        &self.inner.site.io
    }

    /// The pool and namespace of its data.
    pub fn data_pool(&self) -> &IoCtx {
        &self.inner.site.data
    }

    /// The part of its header that changes, as last read.
    pub fn header(&self) -> Rc<Header> {
        self.inner.view.header()
    }

    /// Bytes of the image, or of the snapshot that is read.
    pub fn size(&self) -> u64 {
        self.inner.view.size()
    }

    /// The size in bytes, as a channel that tells every change.
    pub fn sizes(&self) -> watch::Receiver<u64> {
        self.inner.view.sizes()
    }

    /// The id of the snapshot that is read.
    pub fn snapshot_id(&self) -> Option<u64> {
        self.inner.site.snap
    }

    /// Whether nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.inner.site.read_only
    }

    /// Whether this client holds the exclusive lock.
    pub fn is_lock_owner(&self) -> bool {
        self.inner.lock.is_owned()
    }

    /// Reads the header again where it has changed.
    ///
    /// # Errors
    /// `ENOENT` where the image is gone.
    pub async fn refresh(&self) -> Result<()> {
        self.inner.view.refresh().await
    }

    /// Reads a range. Parts that were never written are zeros.
    ///
    /// # Errors
    /// `EINVAL` where it is not within the image.
    pub async fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        self.inner.view.refresh().await?;
        self.inner.view.read(offset, len).await
    }

    /// Writes a range. The data is durable when the future is done; a dropped future does not stop
    /// the write.
    ///
    /// # Errors
    /// `EINVAL` where it is not within the image, `EROFS` where that is read only or somebody does
    /// not give up its lock.
    pub async fn write(&self, offset: u64, data: impl Into<BytesList>) -> Result<()> {
        let data = data.into();
        self.inner.start(|inner| inner.write(offset, data)).await
    }

    /// Makes a range zeros and frees its space.
    ///
    /// # Errors
    /// As [`Image::write`].
    pub async fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.start(|inner| inner.discard(offset, len)).await
    }

    /// Makes a range zeros, and frees space where that is possible.
    ///
    /// # Errors
    /// As [`Image::write`].
    pub async fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        self.discard(offset, len).await
    }

    /// Writes `new` if the image holds `old` there; both lie in one object.
    ///
    /// # Errors
    /// `EILSEQ` where it holds something else, and as [`Image::write`].
    pub async fn compare_and_write(&self, offset: u64, old: Bytes, new: Bytes) -> Result<()> {
        self.inner
            .start(|inner| inner.compare_and_write(offset, old, new))
            .await
    }

    /// Makes sure that all finished writes are durable. They are, so this only fails for a client
    /// that the cluster has shut out.
    ///
    /// # Errors
    /// `ESHUTDOWN` where the cluster takes nothing from this client any more.
    pub fn flush(&self) -> Result<()> {
        self.inner.watcher.check_shut_out()
    }

    /// Which parts of a range may hold data, in order.
    ///
    /// # Errors
    /// `EINVAL` where it is not within the image.
    pub async fn extents(&self, offset: u64, len: u64) -> Result<Vec<ExtentStatus>> {
        self.inner.view.refresh().await?;
        self.inner.view.extents(offset, len)
    }

    /// Waits for all operations, gives up the lock and ends the watch.
    ///
    /// # Errors
    /// Where the cluster can't be told. The image is closed all the same.
    pub async fn close(self) -> Result<()> {
        let released = self.inner.release().await;
        self.inner.stop_watch().await;
        released
    }
}
