//! Reads and writes that move data between images and files: several under way, bounded in bytes.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use spirula_client::errno;
use spirula_denc::Extent;
use tokio::task::JoinHandle;

use crate::image::Inner;
use crate::{Error, Result};

/// Bytes that are under way at the same time.
pub(crate) const WINDOW: u64 = 32 << 20;
/// Requests that are under way at the same time (`rbd_concurrent_management_ops`).
pub(crate) const AT_ONCE: usize = 10;
/// The most bytes of one request.
pub(crate) const PART: u64 = 4 << 20;
/// The default for runs of zeros that are not written, in bytes.
pub const SPARSE: u64 = 4096;

/// Cuts a range into parts of at most [`PART`] bytes, at usual borders of objects.
pub(crate) fn parts(offset: u64, len: u64) -> impl Iterator<Item = Extent> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    std::iter::from_fn(move || {
        let from = at;
        at = (from / PART + 1).saturating_mul(PART).min(end);
        (from < end).then_some(Extent {
            offset: from,
            len: at - from,
        })
    })
}

pub(crate) fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|b| *b == 0)
}

/// Cuts data into runs of whole blocks that are all zeros or have data: their ranges, and whether
/// they have data.
pub(crate) fn sparse(data: &[u8], block: u64) -> Vec<(Range<usize>, bool)> {
    let block = usize::try_from(block).unwrap_or(usize::MAX).max(1);
    let mut pieces: Vec<(Range<usize>, bool)> = Vec::new();
    let mut at = 0;
    for chunk in data.chunks(block) {
        let (end, has_data) = (at + chunk.len(), !is_zero(chunk));
        match pieces.last_mut() {
            Some((range, last)) if *last == has_data => range.end = end,
            _ => pieces.push((at..end, has_data)),
        }
        at = end;
    }
    pieces
}

/// The writes to an image that are under way.
pub(crate) struct Writes {
    image: Rc<Inner>,
    queue: VecDeque<(Range<u64>, u64, JoinHandle<Result<()>>)>,
    bytes: u64,
}

impl Writes {
    pub(crate) fn new(image: Rc<Inner>) -> Self {
        Self {
            image,
            queue: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Writes data. Blocks of zeros are discarded, or left out where the image is new.
    pub(crate) async fn write(&mut self, offset: u64, data: Bytes, block: u64, is_new: bool) -> Result<()> {
        for (range, has_data) in sparse(&data, block) {
            let (at, len) = (offset + range.start as u64, range.len() as u64);
            if has_data {
                let (image, part) = (Rc::clone(&self.image), data.slice(range));
                self.begin(at..at + len, len, image.write(at, part.into()))
                    .await?;
            } else if !is_new {
                self.discard(at, len).await?;
            }
        }
        Ok(())
    }

    /// Makes a range zeros.
    pub(crate) async fn discard(&mut self, offset: u64, len: u64) -> Result<()> {
        let image = Rc::clone(&self.image);
        let range = offset..offset.saturating_add(len);
        self.begin(range, 0, image.discard(offset, len)).await
    }

    /// Begins a request as soon as there is room, and no request is under way in its range.
    async fn begin<F>(&mut self, range: Range<u64>, bytes: u64, work: F) -> Result<()>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let meets = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        while self.queue.len() >= AT_ONCE
            || self.bytes + bytes > WINDOW && !self.queue.is_empty()
            || self.queue.iter().any(|(other, _, _)| meets(other))
        {
            self.end_first().await?;
        }
        self.bytes += bytes;
        self.queue
            .push_back((range, bytes, tokio::task::spawn_local(work)));
        Ok(())
    }

    async fn end_first(&mut self) -> Result<()> {
        let Some((_, bytes, task)) = self.queue.pop_front() else {
            return Ok(());
        };
        self.bytes -= bytes;
        task.await.unwrap_or(Err(Error::os("image", errno::EIO)))
    }

    /// Waits for all requests. After a failure it does not wait for the rest, which goes on.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        while !self.queue.is_empty() {
            self.end_first().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_told_from_data_in_whole_blocks() {
        let mut data = vec![0; 50];
        for at in [12, 20, 49] {
            data[at] = 1;
        }
        let wanted = [(0..10, false), (10..30, true), (30..40, false), (40..50, true)];
        assert_eq!(sparse(&data, 10), wanted);
        assert_eq!(sparse(&[], 10), []);
    }

    #[test]
    fn parts_are_cut_at_multiples() {
        let cut: Vec<_> = parts(PART - 5, PART + 7).map(|p| (p.offset, p.len)).collect();
        assert_eq!(cut, [(PART - 5, 5), (PART, PART), (2 * PART, 2)]);
        assert_eq!(parts(3, 0).count(), 0);
    }
}
