//! Writes of an image's data.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use spirula_client::{BytesList, Piece, errno};
use spirula_denc::Extent;
use spirula_proto::osd::OpCode;

use crate::change::Change;
use crate::cls::ranged;
use crate::image::Inner;
use crate::journal::{Event, Journal};
use crate::{Error, Result};

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
    /// Runs a change as a task of its own, as a caller may go away. A request on its way to an OSD
    /// must still be waited for before the lock is given up.
    pub(crate) async fn start<F>(self: &Rc<Self>, work: impl FnOnce(Rc<Self>) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let task = tokio::task::spawn_local(work(Rc::clone(self)));
        task.await.unwrap_or(Err(Error::os("image", errno::EIO)))
    }

    /// Writes a range.
    pub(crate) async fn write(self: Rc<Self>, offset: u64, data: BytesList) -> Result<()> {
        let writing = Rc::new(self.begin_write().await?);
        let len = data.len() as u64;
        self.view.check_range(offset, len)?;
        let layout = self.site.fixed.layout;
        let note = data.clone();
        let mut rest = data;
        let pieces = layout.pieces(offset, len).map(|piece| {
            // A piece is no longer than the data it is made of.
            let take = usize::try_from(piece.len).unwrap_or(usize::MAX).min(rest.len());
            (piece, rest.split_to(take))
        });
        let write = self.site.limits.for_each(pieces, |(piece, data)| {
            let writing = Rc::clone(&writing);
            async move {
                let whole = piece.len == u64::from(layout.object_size);
                let code = if whole { OpCode::WRITEFULL } else { OpCode::WRITE };
                let change = Change {
                    replaces_all: whole,
                    ..Change::write(vec![ranged(code, piece.offset, piece.len, data)])
                };
                writing.change_object(piece.object, change).await
            }
        });
        let events = |j: &Journal| Event::writes(offset, note.to_bytes(), j.max_event());
        writing.noted(events, write, None).await
    }

    /// Discards a range, with all its parts.
    pub(crate) async fn discard(self: Rc<Self>, offset: u64, len: u64) -> Result<()> {
        self.discard_in(offset, len, 0).await
    }

    /// Discards a range; in each object only the part aligned to `granularity` bytes, unless that
    /// is 0.
    pub(crate) async fn discard_in(self: Rc<Self>, offset: u64, len: u64, granularity: u32) -> Result<()> {
        let writing = Rc::new(self.begin_write().await?);
        self.view.check_range(offset, len)?;
        let layout = self.site.fixed.layout;
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
        let discard = self.site.limits.for_each(parts, |(object, part)| {
            let writing = Rc::clone(&writing);
            async move { writing.discard_part(object, part).await }
        });
        let event = Event::Discard {
            offset,
            len,
            granularity,
        };
        writing.noted(|_| vec![event], discard, None).await
    }

    /// Writes `new` where the image holds `old`, within one object; `EILSEQ` where it does not.
    pub(crate) async fn compare_and_write(self: Rc<Self>, offset: u64, old: Bytes, new: Bytes) -> Result<()> {
        let writing = self.begin_write().await?;
        let len = new.len() as u64;
        self.view.check_range(offset, len)?;
        let mut pieces = self.site.fixed.layout.pieces(offset, len);
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
            match writing.change_object(piece.object, change).await {
                Err(e) if e.errno().code() >= errno::MAX_ERRNO => {
                    Err(Error::os("compare and write", errno::EILSEQ))
                }
                other => other,
            }
        };
        let event = Event::CompareAndWrite { offset, old, new };
        writing.noted(|_| vec![event], work, Some(errno::EILSEQ)).await
    }
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
