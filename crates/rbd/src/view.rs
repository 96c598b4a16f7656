//! An image as this client last saw it: its header, its parent, and which of its objects may exist.
//! That is all that reads need. A parent is no more than its view.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use spirula_classes::rbd::{Features, ParentImageSpec};
use spirula_client::{IoCtx, errno};
use tokio::sync::{Mutex, watch};

use crate::header::{Fixed, Header, pool_of, text};
use crate::limits::Limits;
use crate::migration::may_be_used;
use crate::object_map::ObjectMap;
use crate::site::{Options, Purpose, Site};
use crate::{Error, Result, bounds};

/// Features with which this client writes images: a writer must know all of an image's.
const WRITABLE: Features = Features::LAYERING
    .with(Features::STRIPINGV2)
    .with(Features::EXCLUSIVE_LOCK)
    .with(Features::OBJECT_MAP)
    .with(Features::FAST_DIFF)
    .with(Features::DEEP_FLATTEN)
    .with(Features::DATA_POOL)
    .with(Features::JOURNALING)
    .with(Features::OPERATIONS);
/// Features with which this client reads and removes images.
const READABLE: Features = WRITABLE.with(Features::NON_PRIMARY);

/// The state of an image that can be read.
pub(crate) struct View {
    pub(crate) site: Rc<Site>,
    header: RefCell<Rc<Header>>,
    /// The header has changed since it was read.
    stale: Cell<bool>,
    refreshing: Mutex<()>,
    parent: RefCell<Option<(ParentImageSpec, Rc<View>)>>,
    /// The object map, while this client holds the lock.
    map: RefCell<Option<Rc<ObjectMap>>>,
    sizes: watch::Sender<u64>,
}

impl View {
    /// Reads an image's header: at a snapshot by its id, or as it is. The parent is not open yet.
    pub(crate) async fn read_header(
        (io, id): (&IoCtx, &str),
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
        if header.has(Features::MIGRATING)
            && (purpose == Purpose::Migrate || may_be_used(io, id, read_only).await?)
        {
            known.insert(Features::MIGRATING);
        }
        if !known.contains(header.features) {
            return Err(Error::os("open image", errno::ENOSYS));
        }
        let size = header.size_at(snap)?;
        let site = Site {
            io: io.clone(),
            data: fixed.data_pool(io).await?,
            fixed,
            read_only,
            exclusive: options.exclusive,
            purpose,
            snap,
            depth,
            limits: Limits::new(options.in_flight, options.copies.clone(), options.max_mapped),
        };
        Ok(Rc::new(Self {
            site: Rc::new(site),
            header: RefCell::new(Rc::new(header)),
            stale: Cell::new(false),
            refreshing: Mutex::new(()),
            parent: RefCell::default(),
            map: RefCell::default(),
            sizes: watch::Sender::new(size),
        }))
    }

    /// The header as last read.
    pub(crate) fn header(&self) -> Rc<Header> {
        Rc::clone(&self.header.borrow())
    }

    /// The object map, while the lock is held.
    pub(crate) fn map(&self) -> Option<Rc<ObjectMap>> {
        self.map.borrow().clone()
    }

    /// Looks at another object map from now on, or at none. Returns the one before.
    pub(crate) fn set_map(&self, map: Option<Rc<ObjectMap>>) -> Option<Rc<ObjectMap>> {
        self.map.replace(map)
    }

    /// The image's size, or that of the snapshot that is read.
    pub(crate) fn size(&self) -> u64 {
        *self.sizes.borrow()
    }

    /// The size, as a channel that tells every change.
    pub(crate) fn sizes(&self) -> watch::Receiver<u64> {
        self.sizes.subscribe()
    }

    /// The parent, where the image sees it.
    pub(crate) fn parent(&self) -> Option<Rc<Self>> {
        self.parent.borrow().as_ref().map(|(_, parent)| Rc::clone(parent))
    }

    /// Notes that the header has changed since it was read.
    pub(crate) fn outdate(&self) {
        self.stale.set(true);
    }

    /// Whether the header has changed since it was read.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale.get()
    }

    /// Reads the header again if it has changed.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let _turn = self.refreshing.lock().await;
        if !self.stale.replace(false) {
            return Ok(());
        }
        let read = Header::read(&self.site.io, &self.site.fixed.id).await;
        let header = match read {
            Ok(header) => Rc::new(header),
            Err(e) => {
                self.stale.set(true);
                return Err(e);
            }
        };
        let size = header.size_at(self.site.snap)?;
        *self.header.borrow_mut() = header;
        self.open_parent().await?;
        self.sizes
            .send_if_modified(|old| std::mem::replace(old, size) != size);
        Ok(())
    }

    /// Reads the header again.
    pub(crate) async fn reread(&self) -> Result<()> {
        self.outdate();
        self.refresh().await
    }

    /// Reads the changed header again and notifies the other clients.
    pub(crate) async fn header_changed(&self) -> Result<()> {
        self.reread().await?;
        self.site.announce_header().await;
        Ok(())
    }

    /// Opens the parent that the header names, and closes one that it no longer names.
    pub(crate) async fn open_parent(&self) -> Result<()> {
        let header = self.header();
        let seen = match self.site.purpose {
            Purpose::Use | Purpose::Remove | Purpose::Replay => header.overlap_at(self.site.snap)? > 0,
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

    /// Opens a parent. Boxed, as parents have parents.
    async fn open_spec(&self, spec: &ParentImageSpec) -> Result<Rc<Self>> {
        // A header may say that the image is a clone of itself.
        if self.site.depth >= bounds::MAX_PARENTS {
            return Err(Error::os("open parent", errno::ELOOP));
        }
        let pool = self.site.io.rados().pool_by_id(pool_of(spec)?).await?;
        let pool = pool.with_namespace(text(&spec.pool_namespace));
        let id = text(&spec.image_id);
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        let (snap, depth) = (Some(spec.snap_id), self.site.depth + 1);
        let open = async {
            let parent = Self::read_header((&pool, &id), &options, snap, Purpose::Use, depth).await?;
            parent.open_parent().await?;
            Ok(parent)
        };
        Box::pin(open).await
    }
}
