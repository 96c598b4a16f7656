//! Reads of an image's data.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use spirula_client::{Piece, errno};
use spirula_denc::Extent;
use spirula_maps::snap;

use crate::error::unless;
use crate::header::Header;
use crate::view::View;
use crate::{Error, Result};

/// Whether a part of an image holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentStatus {
    /// Its length in bytes.
    pub len: u64,
    /// Whether it may hold anything but zeros.
    pub has_data: bool,
}

impl View {
    /// Fails with `EINVAL` where a range is not within the image.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(Error::os("range", errno::EINVAL)),
        }
    }

    /// Reads a range of the image or of the snapshot that is open.
    pub(crate) async fn read(self: &Rc<Self>, offset: u64, len: u64) -> Result<Bytes> {
        self.check_range(offset, len)?;
        let whole = usize::try_from(len).map_err(|_| Error::os("read", errno::EINVAL))?;
        let mut pieces = self.site.fixed.layout.pieces(offset, len);
        let Some(first) = pieces.next() else {
            return Ok(Bytes::new());
        };
        if first.len == len {
            let _permit = self.site.limits.request().await;
            let data = self.read_piece(first).await?.unwrap_or_default();
            return Ok(padded(data, whole));
        }
        let out = Rc::new(RefCell::new(BytesMut::zeroed(whole)));
        let mut at = 0;
        let placed = std::iter::once(first).chain(pieces).map(|piece| {
            let place = at;
            at += piece.len;
            (place, piece)
        });
        let read = self.site.limits.for_each(placed, |(place, piece)| {
            let (view, out) = (Rc::clone(self), Rc::clone(&out));
            async move {
                if let Some(data) = view.read_piece(piece).await? {
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
        self.read_piece_at(self.site.snap, piece).await
    }

    /// Reads from one object, at a snapshot or of the image as it is; else as [`Self::read_piece`].
    pub(crate) async fn read_piece_at(
        self: &Rc<Self>,
        snap: Option<u64>,
        piece: Piece,
    ) -> Result<Option<Bytes>> {
        let map = self.map().filter(|_| snap.is_none());
        if map.is_none_or(|m| m.may_exist(piece.object)) {
            let io = self
                .site
                .data
                .clone()
                .with_snap_read(snap.unwrap_or(snap::NOSNAP));
            let read = io
                .read(self.site.fixed.object(piece.object), piece.offset, piece.len)
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
        let layout = self.site.fixed.layout;
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

    /// Which parts of a range may hold data, in order.
    pub(crate) fn extents(&self, offset: u64, len: u64) -> Result<Vec<ExtentStatus>> {
        self.check_range(offset, len)?;
        let header = self.header();
        let map = self.map().filter(|_| self.site.snap.is_none());
        let mut extents: Vec<ExtentStatus> = Vec::new();
        for piece in self.site.fixed.layout.pieces(offset, len) {
            let may_exist = map.as_ref().is_none_or(|m| m.may_exist(piece.object));
            let has_data = may_exist || self.site.sees_parent(&header, piece.object)?;
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
