//! An open image.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spirula_classes::rbd::{ParentImageSpec, features};
use spirula_client::{BytesList, IoCtx, errno};
use spirula_proto::osd::OsdOpIn;
use tokio::sync::{
    Mutex, MutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock, Semaphore,
    watch,
};
use tokio::time::Instant;

use crate::cls::{self, Nothing};
use crate::header::{Fixed, Header, text};
use crate::journal::{Journal, JournalOptions};
use crate::lock::Lock;
use crate::object_map::ObjectMap;
use crate::watcher::Watcher;
use crate::{Error, Result, bounds, directory, migration, names};

/// Requests to data objects under way at the same time, of one image.
const IN_FLIGHT: usize = 128;

/// How often a write updates the header's time of modification.
const MODIFIED: Duration = Duration::from_secs(60);

/// Features with which this client writes images: a writer must know all of an image's.
const WRITABLE: u64 = features::LAYERING
    | features::STRIPINGV2
    | features::EXCLUSIVE_LOCK
    | features::OBJECT_MAP
    | features::FAST_DIFF
    | features::DEEP_FLATTEN
    | features::DATA_POOL
    | features::JOURNALING
    | features::OPERATIONS;
/// Features with which this client reads and removes images.
const READABLE: u64 = WRITABLE | features::NON_PRIMARY;

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

/// The state of an open image, shared by its operations and tasks.
pub(crate) struct Inner {
    /// The pool and namespace of the header.
    pub(crate) io: IoCtx,
    /// The pool and namespace of the data.
    pub(crate) data: IoCtx,
    pub(crate) name: RefCell<String>,
    pub(crate) fixed: Fixed,
    pub(crate) read_only: bool,
    pub(crate) exclusive: bool,
    pub(crate) purpose: Purpose,
    /// The snapshot that is read.
    pub(crate) snap: Option<u64>,
    header: RefCell<Rc<Header>>,
    /// The header has changed since it was read.
    pub(crate) stale: Cell<bool>,
    refreshing: Mutex<()>,
    parent: RefCell<Option<(ParentImageSpec, Rc<Inner>)>>,
    pub(crate) lock: Lock,
    /// The object map, while the lock is held.
    pub(crate) map: RefCell<Option<Rc<ObjectMap>>>,
    /// The journal, while the lock is held.
    pub(crate) journal: RefCell<Option<Rc<Journal>>>,
    /// Options for a journal that this client makes.
    pub(crate) journal_options: RefCell<JournalOptions>,
    /// Held by writes, and held alone by operations during which no write may be under way.
    pub(crate) gate: Arc<RwLock<()>>,
    /// One operation on the image as a whole at a time. The lock is not passed on meanwhile.
    pub(crate) operation: Mutex<()>,
    /// Objects that are being copied from the parent.
    pub(crate) copy_ups: RefCell<BTreeMap<u64, Rc<Mutex<()>>>>,
    pub(crate) in_flight: Arc<Semaphore>,
    copies: Option<Arc<Semaphore>>,
    /// The most objects that its object map may cover.
    pub(crate) max_mapped: u64,
    /// How many images lie between this parent and the image that the caller has opened.
    depth: usize,
    sizes: watch::Sender<u64>,
    /// When a write last updated the header's time of modification.
    modified: Cell<Option<Instant>>,
    pub(crate) watcher: Watcher,
}

/// An open image. Without [`Image::close`] its lock lasts until another client finds this one gone.
pub struct Image {
    pub(crate) inner: Rc<Inner>,
}

/// Held by a write while it is under way.
pub(crate) struct Writing {
    /// Keeps out operations during which no write may be under way.
    _gate: Option<OwnedRwLockReadGuard<()>>,
    pub(crate) header: Rc<Header>,
    pub(crate) map: Option<Rc<ObjectMap>>,
    pub(crate) journal: Option<Rc<Journal>>,
}

/// Whether a part of an image holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentStatus {
    /// Its length in bytes.
    pub len: u64,
    /// Whether it may hold anything but zeros.
    pub has_data: bool,
}

impl Inner {
    /// Opens an image: at a snapshot by its id, or as it is. Boxed, as parents have parents.
    pub(crate) async fn open(
        io: &IoCtx,
        name: String,
        id: &str,
        options: &Options,
        snap: Option<u64>,
        purpose: Purpose,
    ) -> Result<Rc<Self>> {
        Self::open_at((io, id), name, options, snap, purpose, 0).await
    }

    async fn open_at(
        (io, id): (&IoCtx, &str),
        name: String,
        options: &Options,
        snap: Option<u64>,
        purpose: Purpose,
        depth: usize,
    ) -> Result<Rc<Self>> {
        let fixed = Fixed::read(io, id).await?;
        let header = Header::read(io, id).await?;
        let snap = match &options.snapshot {
            None => snap,
            Some(name) => {
                let snapshot = header.user_snapshot(name);
                Some(snapshot.ok_or(Error::os("open snapshot", errno::ENOENT))?.id)
            }
        };
        let read_only = options.read_only || snap.is_some();
        let mut known = match read_only || purpose == Purpose::Remove {
            true => READABLE,
            false => WRITABLE,
        };
        if header.has(features::MIGRATING)
            && (purpose == Purpose::Migrate || migration::may_be_used(io, id, read_only).await?)
        {
            known |= features::MIGRATING;
        }
        if header.features & !known != 0 {
            return Err(Error::os("open image", errno::ENOSYS));
        }
        let size = header.size_at(snap)?;
        let inner = Rc::new(Self {
            io: io.clone(),
            data: fixed.data_pool(io).await?,
            name: RefCell::new(name),
            fixed,
            read_only,
            exclusive: options.exclusive,
            purpose,
            snap,
            header: RefCell::new(Rc::new(header)),
            stale: Cell::new(false),
            refreshing: Mutex::new(()),
            parent: RefCell::default(),
            lock: Lock::default(),
            map: RefCell::default(),
            journal: RefCell::default(),
            journal_options: RefCell::default(),
            gate: Arc::new(RwLock::new(())),
            operation: Mutex::new(()),
            copy_ups: RefCell::default(),
            in_flight: Arc::new(Semaphore::new(options.in_flight.unwrap_or(IN_FLIGHT).max(1))),
            copies: options.copies.clone(),
            max_mapped: options.max_mapped.unwrap_or(bounds::MAX_MAPPED),
            depth,
            sizes: watch::Sender::new(size),
            modified: Cell::default(),
            watcher: Watcher::default(),
        });
        if purpose == Purpose::Replay {
            inner.open_parent().await?;
        } else if !read_only {
            inner.start_watch().await?;
            // A change between the first read and the watch was not announced here.
            inner.stale.set(true);
            inner.refresh().await?;
        } else {
            inner.open_parent().await?;
        }
        Ok(inner)
    }

    pub(crate) fn header(&self) -> Rc<Header> {
        Rc::clone(&self.header.borrow())
    }

    pub(crate) fn header_oid(&self) -> String {
        names::header(&self.fixed.id)
    }

    /// The object map, while the lock is held.
    pub(crate) fn map(&self) -> Option<Rc<ObjectMap>> {
        self.map.borrow().clone()
    }

    /// The image's size, or that of the snapshot that is read.
    pub(crate) fn size(&self) -> u64 {
        *self.sizes.borrow()
    }

    pub(crate) fn sizes(&self) -> watch::Receiver<u64> {
        self.sizes.subscribe()
    }

    /// How many objects an image of this size has.
    pub(crate) fn objects(&self, size: u64) -> u64 {
        self.fixed.layout.objects(size)
    }

    /// Reads the header again if it has changed.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let _turn = self.refreshing.lock().await;
        if !self.stale.replace(false) {
            return Ok(());
        }
        let read = Header::read(&self.io, &self.fixed.id).await;
        let header = match read {
            Ok(header) => Rc::new(header),
            Err(e) => {
                self.stale.set(true);
                return Err(e);
            }
        };
        let size = header.size_at(self.snap)?;
        *self.header.borrow_mut() = header;
        self.open_parent().await?;
        self.sizes
            .send_if_modified(|old| std::mem::replace(old, size) != size);
        Ok(())
    }

    /// Reads the header again.
    pub(crate) async fn reread(&self) -> Result<()> {
        self.stale.set(true);
        self.refresh().await
    }

    /// Opens the parent that the header names, and closes one that it no longer names.
    async fn open_parent(&self) -> Result<()> {
        let header = self.header();
        let seen = match self.purpose {
            Purpose::Use | Purpose::Remove | Purpose::Replay => header.overlap_at(self.snap)? > 0,
            // All snapshots are read.
            Purpose::Migrate => header.parent_is_seen(),
        };
        let wanted = header.parent.as_ref().filter(|_| seen).map(|p| &p.spec);
        let known = self.parent.borrow().as_ref().map(|(spec, _)| spec.clone());
        if wanted == known.as_ref() {
            return Ok(());
        }
        let parent = match wanted {
            None => None,
            Some(spec) => Some((spec.clone(), self.open_spec(spec).await?)),
        };
        *self.parent.borrow_mut() = parent;
        Ok(())
    }

    async fn open_spec(&self, spec: &ParentImageSpec) -> Result<Rc<Self>> {
        // A header may say that the image is a clone of itself.
        if self.depth >= bounds::MAX_PARENTS {
            return Err(Error::os("open parent", errno::ELOOP));
        }
        let pool = self.io.rados().pool_by_id(crate::clones::pool_of(spec)?).await?;
        let pool = pool.with_namespace(text(&spec.pool_namespace));
        let id = text(&spec.image_id);
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        let snap = Some(spec.snap_id);
        let open = Self::open_at(
            (&pool, &id),
            String::new(),
            &options,
            snap,
            Purpose::Use,
            self.depth + 1,
        );
        Box::pin(open).await
    }

    pub(crate) fn parent(&self) -> Option<Rc<Self>> {
        self.parent.borrow().as_ref().map(|(_, parent)| Rc::clone(parent))
    }

    /// Waits for permits to copy an object, where the number of copies is limited.
    pub(crate) async fn copy_turn(&self) -> Option<OwnedSemaphorePermit> {
        let mib = self.fixed.layout.object_size.div_ceil(1 << 20);
        // Nobody closes it.
        self.copies.clone()?.acquire_many_owned(mib).await.ok()
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

    /// Begins a write: under the newest header and, where the image has one, the lock.
    pub(crate) async fn begin_write(self: &Rc<Self>) -> Result<Writing> {
        if self.read_only {
            return Err(Error::os("write", errno::EROFS));
        }
        self.check_own_data()?;
        loop {
            self.refresh().await?;
            self.acquire().await?;
            if let Some(writing) = self.try_write().await {
                return Ok(writing);
            }
        }
    }

    /// Begins a write that needs the lock at once: `EAGAIN` where another client holds it.
    pub(crate) async fn begin_write_as_owner(&self) -> Result<Writing> {
        self.check_own_data()?;
        loop {
            self.refresh().await?;
            if let Some(writing) = self.try_write().await {
                return Ok(writing);
            }
            if !self.is_owner_if_needed(&self.header()) {
                return Err(Error::os("lock", errno::EAGAIN));
            }
        }
    }

    async fn try_write(&self) -> Option<Writing> {
        let gate = Arc::clone(&self.gate).read_owned().await;
        let header = self.header();
        if self.stale.get() || !self.is_owner_if_needed(&header) {
            return None;
        }
        self.note_modified();
        Some(Writing {
            _gate: Some(gate),
            header,
            map: self.map(),
            journal: self.journal.borrow().clone(),
        })
    }

    /// A write that belongs to an operation which keeps all other writes out.
    pub(crate) fn write_alone(&self, _alone: &OwnedRwLockWriteGuard<()>) -> Writing {
        Writing {
            _gate: None,
            header: self.header(),
            map: self.map(),
            // The journal has the operation, not its writes.
            journal: None,
        }
    }

    /// Begins an operation on the image as a whole. The lock is held until it ends.
    pub(crate) async fn begin_operation(self: &Rc<Self>) -> Result<MutexGuard<'_, ()>> {
        let turn = self.operation.lock().await;
        if self.read_only {
            return Err(Error::os("change image", errno::EROFS));
        }
        self.check_own_data()?;
        self.refresh().await?;
        self.acquire().await?;
        Ok(turn)
    }

    /// Waits until no write is under way, and lets none begin.
    pub(crate) async fn alone(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.gate).write_owned().await
    }

    /// Changes the header. Fails with `EBUSY` where the image has a lock that this client has lost.
    pub(crate) async fn change_header(&self, what: &'static str, change: OsdOpIn) -> Result<()> {
        let mut ops = Vec::new();
        if let Some(cookie) = self.lock.cookie() {
            ops.push(cls::assert_locked(&cookie, cls::LOCK_TAG)?);
        }
        ops.push(change);
        cls::change(&self.io, what, self.header_oid(), ops).await
    }

    /// Reads the changed header again and notifies the other clients.
    pub(crate) async fn header_changed(&self) -> Result<()> {
        self.reread().await?;
        self.announce_header().await;
        Ok(())
    }

    /// Updates the header's time of modification now and then.
    fn note_modified(&self) {
        let now = Instant::now();
        if self.modified.get().is_some_and(|at| now - at < MODIFIED) {
            return;
        }
        self.modified.set(Some(now));
        let (io, oid) = (self.io.clone(), self.header_oid());
        tokio::task::spawn_local(async move {
            if let Err(e) = cls::tell(&io, oid, "set_modify_timestamp", &Nothing).await {
                tracing::debug!("time of a change: {e}");
            }
        });
    }

    fn is_owner_if_needed(&self, header: &Header) -> bool {
        self.lock.is_owned() || !header.has(features::EXCLUSIVE_LOCK)
    }
}

impl Image {
    /// Opens an image of a pool and namespace by its name.
    ///
    /// # Errors
    /// `ENOENT` where there is no such image or snapshot, `ENOSYS` where it has features that are not known here, `EROFS`
    /// where its lock is wanted and somebody else does not give it up.
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
        &self.inner.fixed
    }

    /// The pool and namespace of its header.
    pub fn pool(&self) -> &IoCtx {
        &self.inner.io
    }

    /// The pool and namespace of its data.
    pub fn data_pool(&self) -> &IoCtx {
        &self.inner.data
    }

    /// The part of its header that changes, as last read.
    pub fn header(&self) -> Rc<Header> {
        self.inner.header()
    }

    /// Bytes of the image, or of the snapshot that is read.
    pub fn size(&self) -> u64 {
        self.inner.size()
    }

    /// The size in bytes, as a channel that tells every change.
    pub fn sizes(&self) -> watch::Receiver<u64> {
        self.inner.sizes()
    }

    /// The id of the snapshot that is read.
    pub fn snapshot_id(&self) -> Option<u64> {
        self.inner.snap
    }

    /// Whether nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.inner.read_only
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
        self.inner.refresh().await
    }

    /// Reads a range. Parts that were never written are zeros.
    ///
    /// # Errors
    /// `EINVAL` where it is not within the image.
    pub async fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        self.inner.refresh().await?;
        self.inner.read(offset, len).await
    }

    /// Writes a range. The data is durable when the future is done; a dropped future does not stop
    /// the write.
    ///
    /// # Errors
    /// `EINVAL` where it is not within the image, `EROFS` where that is read only or somebody does not give up its lock.
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
        self.inner.check_shut_out()
    }

    /// Which parts of a range may hold data, in order.
    ///
    /// # Errors
    /// `EINVAL` where it is not within the image.
    pub async fn extents(&self, offset: u64, len: u64) -> Result<Vec<ExtentStatus>> {
        self.inner.refresh().await?;
        self.inner.extents(offset, len)
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
