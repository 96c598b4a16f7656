//! Reads and writes of an image's data.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use spirula_classes::rbd::object_state::{EXISTS, PENDING};
use spirula_client::{BytesList, IoCtx, Piece, errno};
use spirula_denc::Extent;
use spirula_maps::snap;
use spirula_proto::osd::{OpCode, OsdOpIn};
use tokio::task::JoinSet;

use crate::cls::{assert_exists, create, delete, ranged};
use crate::error::unless;
use crate::header::Header;
use crate::image::{ExtentStatus, Inner, Writing};
use crate::journal::{Event, Journal};
use crate::{Error, Result};

/// A change of a data object.
pub(crate) struct Change {
    ops: Vec<OsdOpIn>,
    /// The object's state in the object map before the change: it exists, or is being removed.
    state: u8,
    /// The change replaces all data, so that the parent's need not be copied.
    replaces_all: bool,
    /// Without the object the change has nothing to do.
    only_existing: bool,
    /// The change depends on the object's data, so the parent's must be copied before.
    compares: bool,
}

impl Change {
    /// A change that writes to the object.
    fn write(ops: Vec<OsdOpIn>) -> Self {
        Self {
            ops,
            state: EXISTS,
            replaces_all: false,
            only_existing: false,
            compares: false,
        }
    }

    /// Removes the object, which uncovers the parent's data.
    pub(crate) fn remove() -> Self {
        Self {
            state: PENDING,
            replaces_all: true,
            only_existing: true,
            ..Self::write(vec![delete()])
        }
    }

    /// Truncates the object.
    pub(crate) fn truncate(len: u64) -> Self {
        Self {
            only_existing: true,
            ..Self::write(vec![ranged(OpCode::TRUNCATE, len, 0, Bytes::new())])
        }
    }
}

/// The parts of objects that a contiguous range within one object set touches: in each object one
/// contiguous part, as offset and length.
fn parts(pieces: impl Iterator<Item = Piece>) -> BTreeMap<u64, Extent> {
    let mut parts: BTreeMap<u64, Extent> = BTreeMap::new();
    for piece in pieces {
        let part = parts.entry(piece.object).or_insert(Extent {
            offset: piece.offset,
            len: 0,
        });
        part.len += piece.len;
    }
    parts
}

/// The largest part of a range within an object that is aligned to `granularity` bytes; the whole
/// range for 0.
fn multiples(part: Extent, granularity: u32, object_size: u32) -> Option<Extent> {
    let (granularity, whole) = (u64::from(granularity.min(object_size)), u64::from(object_size));
    let end = part.end();
    // Where only whole objects would go, their ends may be cut off.
    if granularity == 0 || granularity == whole && end >= whole {
        return Some(part);
    }
    let from = part.offset.next_multiple_of(granularity);
    let to = end - end % granularity;
    (from < to).then(|| Extent {
        offset: from,
        len: to - from,
    })
}

impl Inner {
    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(Error::os("range", errno::EINVAL)),
        }
    }

    /// Runs a change as a task of its own, as a caller may go away. A request on its way to an OSD
    /// must still be waited for before the lock is given up.
    pub(crate) async fn start<F>(self: &Rc<Self>, work: impl FnOnce(Rc<Self>) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let task = tokio::task::spawn_local(work(Rc::clone(self)));
        task.await.unwrap_or(Err(Error::os("image", errno::EIO)))
    }

    /// Runs `work` for many objects, several at a time. After a failure no more are begun.
    pub(crate) async fn for_each<T, F>(
        self: &Rc<Self>,
        items: impl Iterator<Item = T>,
        work: impl Fn(Rc<Self>, T) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let mut tasks = JoinSet::new();
        let mut first = Ok(());
        let ended = |done: std::result::Result<Result<()>, tokio::task::JoinError>| {
            done.unwrap_or(Err(Error::os("image", errno::EIO)))
        };
        for item in items {
            while let Some(done) = tasks.try_join_next() {
                first = first.and(ended(done));
            }
            if first.is_err() {
                break;
            }
            let permit = Arc::clone(&self.in_flight).acquire_owned().await;
            let task = work(Rc::clone(self), item);
            tasks.spawn_local(async move {
                let done = task.await;
                drop(permit);
                done
            });
        }
        while let Some(done) = tasks.join_next().await {
            first = first.and(ended(done));
        }
        first
    }

    /// Reads a range of the image or of the snapshot that is open.
    pub(crate) async fn read(self: &Rc<Self>, offset: u64, len: u64) -> Result<Bytes> {
        self.check_range(offset, len)?;
        let whole = usize::try_from(len).map_err(|_| Error::os("read", errno::EINVAL))?;
        let mut pieces = self.fixed.layout.pieces(offset, len);
        let Some(first) = pieces.next() else {
            return Ok(Bytes::new());
        };
        if first.len == len {
            let _permit = self.in_flight.acquire().await;
            let data = self.read_piece(first).await?.unwrap_or_default();
            return Ok(padded(data, whole));
        }
        let out = Rc::new(std::cell::RefCell::new(BytesMut::zeroed(whole)));
        let mut at = 0;
        let placed = std::iter::once(first).chain(pieces).map(|piece| {
            let place = at;
            at += piece.len;
            (place, piece)
        });
        let read = self.for_each(placed, |inner, (place, piece)| {
            let out = Rc::clone(&out);
            async move {
                if let Some(data) = inner.read_piece(piece).await? {
                    put(&mut out.borrow_mut(), place, &data);
                }
                Ok(())
            }
        });
        read.await?;
        Ok(out.take().freeze())
    }

    /// Reads from one object: `None` for zeros only, and less than `piece` where only zeros follow.
    async fn read_piece(self: &Rc<Self>, piece: Piece) -> Result<Option<Bytes>> {
        self.read_piece_at(self.snap, piece).await
    }

    /// Reads from one object, at a snapshot or of the image as it is; else as [`Self::read_piece`].
    pub(crate) async fn read_piece_at(
        self: &Rc<Self>,
        snap: Option<u64>,
        piece: Piece,
    ) -> Result<Option<Bytes>> {
        let map = self.map().filter(|_| snap.is_none());
        if map.is_none_or(|m| m.may_exist(piece.object)) {
            let io = self.data.clone().with_snap_read(snap.unwrap_or(snap::NOSNAP));
            let read = io
                .read(self.fixed.object(piece.object), piece.offset, piece.len)
                .await;
            match unless(read.map_err(Error::from), errno::ENOENT)? {
                Some(data) => return Ok(Some(data)),
                // The snapshot itself may be gone.
                None => self.header().size_at(snap).map(drop)?,
            }
        }
        self.read_parent(&self.header(), snap, piece).await
    }

    /// Reads the parent's data for a range of an object, as far as a snapshot or the image sees it.
    pub(crate) async fn read_parent(
        self: &Rc<Self>,
        header: &Header,
        snap: Option<u64>,
        piece: Piece,
    ) -> Result<Option<Bytes>> {
        let Some(parent) = self.parent() else {
            return Ok(None);
        };
        let seen = header.overlap_at(snap)?.min(parent.size());
        let whole = usize::try_from(piece.len).map_err(|_| Error::os("read", errno::EINVAL))?;
        let mut out = BytesMut::new();
        let mut at = 0;
        let layout = self.fixed.layout;
        for Extent { offset, len } in layout.whole_extents(piece.object, piece.offset, piece.len) {
            let visible = len.min(seen.saturating_sub(offset));
            if visible > 0 {
                let data = Box::pin(parent.read(offset, visible)).await?;
                if visible == piece.len {
                    return Ok(Some(data));
                }
                if out.is_empty() {
                    out = BytesMut::zeroed(whole);
                }
                put(&mut out, at, &data);
            }
            at += len;
        }
        Ok((!out.is_empty()).then(|| out.freeze()))
    }

    /// Whether an object sees anything of the parent, at the snapshot that is read.
    pub(crate) fn sees_parent(&self, header: &Header, object: u64) -> Result<bool> {
        self.sees_parent_at(header, self.snap, object)
    }

    /// Whether an object sees anything of the parent, at a snapshot or in the image as it is.
    pub(crate) fn sees_parent_at(&self, header: &Header, snap: Option<u64>, object: u64) -> Result<bool> {
        let seen = header.overlap_at(snap)?;
        let layout = self.fixed.layout;
        let mut extents = layout.whole_extents(object, 0, layout.object_size.into());
        Ok(seen > 0 && extents.any(|e| e.offset < seen))
    }

    /// The context of writes that preserve the image's snapshots.
    pub(crate) fn writer(&self, header: &Header) -> IoCtx {
        self.data.clone().with_snap_context(header.snap_context())
    }

    pub(crate) async fn write(self: Rc<Self>, offset: u64, data: BytesList) -> Result<()> {
        let writing = Rc::new(self.begin_write().await?);
        let len = data.len() as u64;
        self.check_range(offset, len)?;
        let note = data.clone();
        let mut rest = data;
        let pieces = self.fixed.layout.pieces(offset, len).map(|piece| {
            // A piece is no longer than the data it is made of.
            let take = usize::try_from(piece.len).unwrap_or(usize::MAX).min(rest.len());
            (piece, rest.split_to(take))
        });
        let write = self.for_each(pieces, |inner, (piece, data)| {
            let writing = Rc::clone(&writing);
            async move {
                let whole = piece.len == u64::from(inner.fixed.layout.object_size);
                let code = if whole { OpCode::WRITEFULL } else { OpCode::WRITE };
                let change = Change {
                    replaces_all: whole,
                    ..Change::write(vec![ranged(code, piece.offset, piece.len, data)])
                };
                inner.change_object(&writing, piece.object, change).await
            }
        });
        let events = |j: &Journal| Event::writes(offset, note.to_bytes(), j.max_event());
        writing.noted(events, write, None).await
    }

    pub(crate) async fn discard(self: Rc<Self>, offset: u64, len: u64) -> Result<()> {
        self.discard_in(offset, len, 0).await
    }

    /// Discards a range; in each object only the part aligned to `granularity` bytes, unless that
    /// is 0.
    pub(crate) async fn discard_in(self: Rc<Self>, offset: u64, len: u64, granularity: u32) -> Result<()> {
        let writing = Rc::new(self.begin_write().await?);
        self.check_range(offset, len)?;
        let layout = self.fixed.layout;
        let end = offset + len;
        // An object set at a time: the range may have millions of objects.
        let mut at = offset;
        let sets = std::iter::from_fn(|| {
            let from = at;
            at = (from / layout.set_size() + 1)
                .saturating_mul(layout.set_size())
                .min(end);
            (from < end).then(|| parts(layout.pieces(from, at - from)))
        });
        let whole = |(object, part)| Some((object, multiples(part, granularity, layout.object_size)?));
        let parts = sets.flatten().filter_map(whole);
        let discard = self.for_each(parts, |inner, (object, part)| {
            let writing = Rc::clone(&writing);
            async move { inner.discard_part(&writing, object, part).await }
        });
        let event = Event::Discard {
            offset,
            len,
            granularity,
        };
        writing.noted(|_| vec![event], discard, None).await
    }

    async fn discard_part(self: &Rc<Self>, writing: &Writing, object: u64, part: Extent) -> Result<()> {
        let (offset, len) = (part.offset, part.len);
        let whole = u64::from(self.fixed.layout.object_size);
        let sees_parent = self.sees_parent(&writing.header, object)?;
        let change = if len == whole && !sees_parent {
            Change::remove()
        } else if len == whole {
            // An empty object hides the parent's.
            let ops = vec![create(false), ranged(OpCode::TRUNCATE, 0, 0, Bytes::new())];
            Change {
                replaces_all: true,
                ..Change::write(ops)
            }
        } else if offset + len == whole {
            Change::truncate(offset)
        } else {
            Change {
                only_existing: true,
                ..Change::write(vec![ranged(OpCode::ZERO, offset, len, Bytes::new())])
            }
        };
        self.change_object(writing, object, change).await
    }

    pub(crate) async fn compare_and_write(self: Rc<Self>, offset: u64, old: Bytes, new: Bytes) -> Result<()> {
        let writing = self.begin_write().await?;
        let len = new.len() as u64;
        self.check_range(offset, len)?;
        let mut pieces = self.fixed.layout.pieces(offset, len);
        let piece = pieces.next().filter(|p| p.len == len && old.len() == new.len());
        let piece = piece.ok_or(Error::os("compare and write", errno::EINVAL))?;
        let ops = vec![
            ranged(OpCode::CMPEXT, piece.offset, len, old.clone()),
            ranged(OpCode::WRITE, piece.offset, len, new.clone()),
        ];
        let change = Change {
            compares: true,
            ..Change::write(ops)
        };
        let work = async {
            match self.change_object(&writing, piece.object, change).await {
                Err(e) if e.errno().code() >= errno::MAX_ERRNO => {
                    Err(Error::os("compare and write", errno::EILSEQ))
                }
                other => other,
            }
        };
        let event = Event::CompareAndWrite { offset, old, new };
        writing.noted(|_| vec![event], work, Some(errno::EILSEQ)).await
    }

    /// Changes an object. The parent's data is copied into it first, unless the change removes the
    /// object, or replaces all its data and no snapshot sees the parent's.
    pub(crate) async fn change_object(
        self: &Rc<Self>,
        writing: &Writing,
        object: u64,
        change: Change,
    ) -> Result<()> {
        let header = &writing.header;
        let may_exist = writing.map.as_ref().is_none_or(|m| m.may_exist(object));
        let sees_parent = self.sees_parent(header, object)?;
        let is_removal = change.state == PENDING;
        if !may_exist && change.only_existing && !sees_parent {
            return Ok(());
        }
        let copies = sees_parent && !is_removal && !(change.replaces_all && header.snapshots.is_empty());
        if copies && (!may_exist || !self.change_existing(writing, object, &change).await?) {
            return self.copy_up(writing, object, Some(change)).await;
        }
        if copies {
            return Ok(());
        }
        self.change_any(writing, object, change).await
    }

    /// Changes an object over parent's data if the object exists. Returns false where it does not.
    pub(crate) async fn change_existing(
        &self,
        writing: &Writing,
        object: u64,
        change: &Change,
    ) -> Result<bool> {
        if let Some(map) = &writing.map {
            map.set(object, change.state).await?;
        }
        let ops = std::iter::once(assert_exists()).chain(change.ops.iter().cloned());
        let io = self.writer(&writing.header);
        let done = crate::cls::change(&io, "write", self.fixed.object(object), ops.collect()).await;
        Ok(unless(done, errno::ENOENT)?.is_some())
    }

    /// Changes an object whether it exists or not.
    pub(crate) async fn change_any(&self, writing: &Writing, object: u64, change: Change) -> Result<()> {
        if let Some(map) = &writing.map {
            map.set(object, change.state).await?;
        }
        let io = self.writer(&writing.header);
        let is_removal = change.state == PENDING;
        let done = crate::cls::change(&io, "write", self.fixed.object(object), change.ops).await;
        match done {
            Err(e) if is_removal && e.is(errno::ENOENT) => {}
            other => other?,
        }
        match &writing.map {
            Some(map) if is_removal => map.removed(object).await,
            _ => Ok(()),
        }
    }

    pub(crate) fn extents(&self, offset: u64, len: u64) -> Result<Vec<ExtentStatus>> {
        self.check_range(offset, len)?;
        let header = self.header();
        let map = self.map().filter(|_| self.snap.is_none());
        let mut extents: Vec<ExtentStatus> = Vec::new();
        for piece in self.fixed.layout.pieces(offset, len) {
            let may_exist = map.as_ref().is_none_or(|m| m.may_exist(piece.object));
            let has_data = may_exist || self.sees_parent(&header, piece.object)?;
            match extents.last_mut() {
                Some(last) if last.has_data == has_data => last.len += piece.len,
                _ => extents.push(ExtentStatus {
                    len: piece.len,
                    has_data,
                }),
            }
        }
        Ok(extents)
    }
}

impl Change {
    /// Whether the parent's data must be in the object before the change, rather than come with it.
    pub(crate) fn compares(&self) -> bool {
        self.compares
    }

    pub(crate) fn state(&self) -> u8 {
        self.state
    }

    pub(crate) fn into_ops(self) -> Vec<OsdOpIn> {
        self.ops
    }
}

/// Pads data with zeros to the length that was asked for.
fn padded(data: Bytes, len: usize) -> Bytes {
    if data.len() >= len {
        return data.slice(..len);
    }
    let mut out = BytesMut::zeroed(len);
    put(&mut out, 0, &data);
    out.freeze()
}

/// Copies data to its place in `out`, as far as there is room.
pub(crate) fn put(out: &mut BytesMut, at: u64, data: &[u8]) {
    let at = usize::try_from(at).unwrap_or(usize::MAX).min(out.len());
    let n = data.len().min(out.len() - at);
    out[at..at + n].copy_from_slice(&data[..n]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `prune_object_extents` of Ceph's `src/librbd/io/ImageRequest.cc` has it.
    #[test]
    fn discards_of_less_than_the_granularity_are_left_out() {
        const WHOLE: u32 = 1 << 20;
        let multiples = |offset, len, granularity| {
            let part = multiples(Extent { offset, len }, granularity, WHOLE)?;
            Some((part.offset, part.len))
        };
        assert_eq!(multiples(5, 10, 0), Some((5, 10)));
        assert_eq!(multiples(5, 10, 4096), None);
        assert_eq!(multiples(4096, 4095, 4096), None);
        assert_eq!(multiples(5, 10000, 4096), Some((4096, 4096)));
        assert_eq!(multiples(8192, 4096, 4096), Some((8192, 4096)));
        let whole = u64::from(WHOLE);
        assert_eq!(multiples(whole - 10, 10, 4096), None);
        assert_eq!(multiples(5, whole - 5, u32::MAX), Some((5, whole - 5)));
        assert_eq!(multiples(0, whole - 5, u32::MAX), None);
    }
}
