//! The object map of an image: which of its objects exist, kept by the holder of the image's lock.
//! It is changed before the object is, so it may name objects that do not exist, but misses none
//! (Ceph's `src/librbd/ObjectMap.h`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use spirula_classes::rbd::object_state::{EXISTS, EXISTS_CLEAN, NONEXISTENT, PENDING};
use spirula_classes::rbd::{BitVector, Features, ImageFlags};
use spirula_client::{IoCtx, errno};
use spirula_maps::snap;
use spirula_proto::osd::OpCode;
use tokio::sync::Notify;

use crate::cls::{self, Nothing, ask, change, tell};
use crate::header::Header;
use crate::{Error, Result, names};

/// Objects whose states are changed by one request: whole blocks of the map.
const BATCH: u64 = 256 << 10;

/// The map of the image itself, locked.
pub(crate) struct ObjectMap {
    io: IoCtx,
    id: String,
    oid: String,
    states: RefCell<BitVector>,
    /// The most objects that it may cover.
    max: u64,
    /// Whether the map may be relied on.
    valid: Cell<bool>,
    /// Objects whose states are being changed.
    busy: RefCell<BTreeSet<u64>>,
    idle: Notify,
}

/// Marks the map of a snapshot, or of the image, as invalid in the header.
pub(crate) async fn invalidate(io: &IoCtx, id: &str, features: Features, snap: Option<u64>) -> Result<()> {
    let mut flags = ImageFlags::OBJECT_MAP_INVALID;
    if features.contains(Features::FAST_DIFF) {
        flags.insert(ImageFlags::FAST_DIFF_INVALID);
    }
    let input = (flags, (flags, snap.unwrap_or(snap::NOSNAP)));
    tell(io, names::header(id), "set_flags", &input).await
}

/// Loads the map of the image or of a snapshot.
pub(crate) async fn load(io: &IoCtx, id: &str, snap: Option<u64>) -> Result<BitVector> {
    ask(io, names::object_map(id, snap), "object_map_load", &Nothing).await
}

/// Sets the state of an object in the map of a snapshot, if that exists: to `new`, and only from
/// `current` where that is given.
pub(crate) async fn set_in_snapshot(
    io: &IoCtx,
    id: &str,
    snap: u64,
    object: u64,
    states: (u8, Option<u8>),
) -> Result<()> {
    let oid = names::object_map(id, Some(snap));
    let input = ((object, object + 1), states);
    match tell(io, oid, "object_map_update", &input).await {
        Err(e) if e.is(errno::ENOENT) => Ok(()),
        other => other,
    }
}

impl ObjectMap {
    /// Locks and loads the map for `objects` objects; `E2BIG` where that is more than `max`. A map
    /// that can't be read or is too short is kept, but not relied on until it is rebuilt.
    pub(crate) async fn open(io: &IoCtx, id: &str, header: &Header, objects: u64, max: u64) -> Result<Self> {
        let map = Self {
            io: io.clone(),
            id: id.to_owned(),
            oid: names::object_map(id, None),
            states: RefCell::default(),
            max,
            valid: Cell::new(header.has_valid_map()),
            busy: RefCell::default(),
            idle: Notify::new(),
        };
        if objects > max {
            return Err(Error::os("object map", errno::E2BIG));
        }
        map.lock().await?;
        let (loaded, restart) = match load(io, id, None).await {
            Ok(states) => (Some(states), false),
            Err(e) if e.is(errno::EINVAL) => (None, true),
            Err(e) if e.is(errno::ENOENT) => (None, false),
            Err(e) => return Err(e),
        };
        match loaded.filter(|s| s.len() >= objects) {
            Some(states) => *map.states.borrow_mut() = states,
            None => map.restart(header.features, objects, restart).await?,
        }
        Ok(map)
    }

    /// Takes the map's lock from any holder: only the owner of the image's lock gets here.
    async fn lock(&self) -> Result<()> {
        let request = cls::lock_request("", "");
        loop {
            match self.io.lock(&self.oid, &request).await {
                Ok(()) => return Ok(()),
                Err(e) if e.errno() == errno::EEXIST => return Ok(()),
                Err(e) if e.errno() == errno::EBUSY => {}
                Err(e) => return Err(e.into()),
            }
            for locker in self.io.lock_info(&self.oid, cls::LOCK).await?.lockers {
                let broken = self
                    .io
                    .break_lock(&self.oid, cls::LOCK, locker.name, &locker.cookie);
                match broken.await {
                    Err(e) if e.errno() != errno::ENOENT => return Err(e.into()),
                    _ => {}
                }
            }
        }
    }

    async fn restart(&self, features: Features, objects: u64, truncate: bool) -> Result<()> {
        tracing::warn!("the object map of image {} is damaged and not used", self.id);
        self.valid.set(false);
        invalidate(&self.io, &self.id, features, None).await?;
        let mut ops = vec![cls::assert_locked("", "")?];
        if truncate {
            ops.push(cls::ranged(OpCode::TRUNCATE, 0, 0, bytes::Bytes::new()));
        }
        ops.push(cls::rbd("object_map_resize", &(objects, NONEXISTENT))?);
        change(&self.io, "object map", &self.oid, ops).await?;
        self.states.borrow_mut().resize(objects, EXISTS);
        Ok(())
    }

    /// Gives up the lock.
    pub(crate) async fn close(&self) -> Result<()> {
        Ok(self.io.unlock(&self.oid, cls::LOCK, "").await?)
    }

    /// Whether the object may exist.
    pub(crate) fn may_exist(&self, object: u64) -> bool {
        !self.valid.get() || self.state(object) != NONEXISTENT
    }

    pub(crate) fn state(&self, object: u64) -> u8 {
        self.states.borrow().get(object)
    }

    /// Waits until no other task changes the object's state, and keeps others from it.
    async fn claim(&self, object: u64) -> Busy<'_> {
        loop {
            let idle = self.idle.notified();
            if self.busy.borrow_mut().insert(object) {
                return Busy(self, object);
            }
            idle.await;
        }
    }

    /// Sets the state of an object, unless it is in this state.
    pub(crate) async fn set(&self, object: u64, state: u8) -> Result<()> {
        let _busy = self.claim(object).await;
        match self.state(object) == state {
            true => Ok(()),
            false => self.update(object, object + 1, state, None).await,
        }
    }

    /// Marks the object as removed, unless it has been written meanwhile.
    pub(crate) async fn removed(&self, object: u64) -> Result<()> {
        let _busy = self.claim(object).await;
        self.update(object, object + 1, NONEXISTENT, Some(PENDING)).await
    }

    /// Sets the states of a range of objects; with `current` only of those in that state.
    pub(crate) async fn update(&self, start: u64, end: u64, new: u8, current: Option<u8>) -> Result<()> {
        let mut at = start;
        while at < end {
            let to = end.min(at + BATCH);
            let ops = vec![
                cls::assert_locked("", "")?,
                cls::rbd("object_map_update", &((at, to), (new, current)))?,
            ];
            change(&self.io, "object map", &self.oid, ops).await?;
            let matches = |state| match current {
                None => true,
                Some(EXISTS) => state == EXISTS || state == EXISTS_CLEAN,
                Some(current) => state == current,
            };
            self.states
                .borrow_mut()
                .replace(at, to, |s| if matches(s) { new } else { s });
            at = to;
        }
        Ok(())
    }

    /// Follows the image's size. Objects beyond a smaller size must not exist any more.
    pub(crate) async fn resize(&self, objects: u64) -> Result<()> {
        if objects > self.max {
            return Err(Error::os("object map", errno::E2BIG));
        }
        let ops = vec![
            cls::assert_locked("", "")?,
            cls::rbd("object_map_resize", &(objects, NONEXISTENT))?,
        ];
        change(&self.io, "object map", &self.oid, ops).await?;
        self.states.borrow_mut().resize(objects, NONEXISTENT);
        Ok(())
    }

    /// Stores the map as that of a new snapshot.
    pub(crate) async fn add_snapshot(&self, snap: u64, fast_diff: bool) -> Result<()> {
        // No write is under way, so the stored map is the one in memory.
        let stored = self.io.read(&self.oid, 0, 0).await?;
        let oid = names::object_map(&self.id, Some(snap));
        self.io.write_full(oid, stored).await?;
        if fast_diff {
            let ops = vec![
                cls::assert_locked("", "")?,
                cls::rbd("object_map_snap_add", &Nothing)?,
            ];
            change(&self.io, "object map", &self.oid, ops).await?;
            let clean = |s| if s == EXISTS { EXISTS_CLEAN } else { s };
            self.states.borrow_mut().replace(0, u64::MAX, clean);
        }
        Ok(())
    }

    /// Merges the map of a removed snapshot, the newest before the image, into this one.
    pub(crate) async fn remove_snapshot(&self, removed: &BitVector) -> Result<()> {
        let ops = vec![
            cls::assert_locked("", "")?,
            cls::rbd("object_map_snap_remove", removed)?,
        ];
        change(&self.io, "object map", &self.oid, ops).await?;
        let mut states = self.states.borrow_mut();
        for i in 0..states.len() {
            if states.get(i) == EXISTS_CLEAN && (i >= removed.len() || removed.get(i) == EXISTS) {
                states.replace(i, i + 1, |_| EXISTS);
            }
        }
        Ok(())
    }

    /// The states of all objects.
    pub(crate) fn states(&self) -> BitVector {
        self.states.borrow().clone()
    }

    /// Replaces this map by a rebuilt one, which may be relied on again.
    pub(crate) async fn rebuilt(&self, states: BitVector) -> Result<()> {
        self.replace(states).await?;
        self.valid.set(true);
        Ok(())
    }

    /// Stops relying on the map.
    pub(crate) fn distrust(&self) {
        self.valid.set(false);
    }

    /// Replaces this map by that of a snapshot to which the image was rolled back.
    pub(crate) async fn replace(&self, states: BitVector) -> Result<()> {
        let ops = vec![cls::assert_locked("", "")?, cls::rbd("object_map_save", &states)?];
        change(&self.io, "object map", &self.oid, ops).await?;
        *self.states.borrow_mut() = states;
        Ok(())
    }
}

/// An object whose state is being changed.
struct Busy<'a>(&'a ObjectMap, u64);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.borrow_mut().remove(&self.1);
        self.0.idle.notify_waiters();
    }
}
