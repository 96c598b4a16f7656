//! The entries of a queue. Each has a start, its length and its data, and may go around the end of
//! the ring.

use bytes::{Bytes, BytesMut};
use spirula_denc::{Reader, Writer, versioned};

use super::head::{ENTRY_OVERHEAD, Head, Marker};
use crate::{Error, Object, Result};

/// What an entry begins with.
const ENTRY_START: u16 = 0xbeef;
/// Bytes that are read at once.
const CHUNK: u64 = 4 << 20;
/// Bytes of memory that an entry takes beside its data.
const IN_MEMORY: u64 = 128;

versioned! {
    /// An entry.
    #[derive(Eq)]
    pub(in crate::class) struct Entry("cls_queue_entry", version 1, compat 1) {
        pub(in crate::class) data: Bytes;
        /// Its [`Marker`].
        pub(in crate::class) marker: Bytes;
    }
}

/// Adds entries; ENOSPC where they do not fit. The head has to be written afterwards.
pub(in crate::class) fn enqueue(object: &mut dyn Object, head: &mut Head, entries: &[Bytes]) -> Result<()> {
    for data in entries {
        let len = data.len() as u64 + ENTRY_OVERHEAD;
        if len > head.free() {
            return Err(Error::ENOSPC);
        }
        object.reserve(len)?;
        let mut w = Writer::with_capacity(data.len() + ENTRY_OVERHEAD as usize);
        w.u16(ENTRY_START);
        w.u64(data.len() as u64);
        w.bytes(data);
        let mut entry = Bytes::from(w.into_vec());
        let to_end = head.queue_size - head.tail.offset;
        if len > to_end {
            let before = entry.split_to(usize::try_from(to_end).map_err(|_| Error::ENOSPC)?);
            put(object, head, before)?;
        }
        put(object, head, entry)?;
    }
    Ok(())
}

/// Writes at the tail, which moves behind it.
fn put(object: &mut dyn Object, head: &mut Head, bytes: Bytes) -> Result<()> {
    let len = bytes.len() as u64;
    object.write(head.tail.offset, bytes)?;
    head.tail.offset += len;
    head.tail = head.around(head.tail);
    Ok(())
}

/// Removes the entries before `end`, so that their room is free and takes no space in the store;
/// EINVAL where that is no place between front and tail. The head has to be written afterwards.
pub(in crate::class) fn remove(object: &mut dyn Object, head: &mut Head, end: Marker) -> Result<()> {
    if head.is_empty() {
        return Ok(());
    }
    let (front, tail) = (head.front, head.tail);
    let is_around = front.generation != tail.generation;
    let last = if is_around { head.queue_size } else { tail.offset };
    if end.generation == front.generation && (front.offset..=last).contains(&end.offset) {
        zero(object, front.offset, end.offset)?;
    } else if is_around
        && end.generation == tail.generation
        && (head.max_head_size..=tail.offset).contains(&end.offset)
    {
        zero(object, front.offset, head.queue_size)?;
        zero(object, head.max_head_size, end.offset)?;
    } else {
        return Err(Error::EINVAL);
    }
    head.front = head.around(end);
    Ok(())
}

fn zero(object: &mut dyn Object, begin: u64, end: u64) -> Result<()> {
    match end - begin {
        0 => Ok(()),
        length => object.zero(begin, length),
    }
}

/// The entries from some place on, read one after the other.
pub(in crate::class) struct Entries<'a> {
    /// The object whose data they are in.
    pub(in crate::class) object: &'a mut dyn Object,
    head: &'a Head,
    /// The place of the first byte of `chunk`.
    at: Marker,
    /// What was read and not used yet.
    chunk: Bytes,
    /// Bytes behind the chunk until the ring's end or the tail.
    left: u64,
    /// Bytes from the ring's beginning on, where entries go around its end.
    around: u64,
}

impl<'a> Entries<'a> {
    /// Begins at a client's marker; at the front where that has no offset. EINVAL for a place
    /// behind the tail. A marker's generation does not say where it is, as in Ceph.
    pub(in crate::class) fn from(object: &'a mut dyn Object, head: &'a Head, marker: &[u8]) -> Result<Self> {
        let (front, tail) = (head.front.offset, head.tail.offset);
        let mut at = Marker::parse(marker);
        if at.offset == 0 || head.is_empty() {
            at = head.front;
        }
        let (left, around) = if head.is_empty() {
            (Some(0), 0)
        } else if front < tail {
            (tail.checked_sub(at.offset), 0)
        } else if at.offset >= front {
            (head.queue_size.checked_sub(at.offset), tail - head.max_head_size)
        } else {
            // Entries there were removed.
            (Some(tail.saturating_sub(at.offset)), 0)
        };
        let mut entries = Self {
            object,
            head,
            at,
            chunk: Bytes::new(),
            left: left.ok_or(Error::EINVAL)?,
            around,
        };
        entries.finish_if_none_left();
        Ok(entries)
    }

    /// The place of the next entry, or of the queue's end.
    pub(in crate::class) fn position(&self) -> Marker {
        self.head.around(self.at)
    }

    /// Whether no entry follows.
    pub(in crate::class) fn at_end(&self) -> bool {
        self.position() == self.head.tail
    }

    /// The next entry, if there is one; EINVAL where there is something else.
    pub(in crate::class) fn next(&mut self) -> Result<Option<Entry>> {
        let marker = self.position().to_bytes();
        let Some(start) = self.take(ENTRY_OVERHEAD)? else {
            return Ok(None);
        };
        let (start, len): (u16, u64) = Reader::new(&start).get().map_err(|_| Error::EINVAL)?;
        if start != ENTRY_START {
            return Err(Error::EINVAL);
        }
        let Some(data) = self.take(len)? else {
            return Ok(None);
        };
        // Also for its copy in what the method returns.
        self.object.reserve(len + IN_MEMORY)?;
        self.finish_if_none_left();
        Ok(Some(Entry { data, marker }))
    }

    /// Bytes until the tail.
    fn remaining(&self) -> u64 {
        self.chunk.len() as u64 + self.left + self.around
    }

    /// Without anything left, the place is the tail.
    fn finish_if_none_left(&mut self) {
        if self.remaining() == 0 {
            self.at = self.head.tail;
        }
    }

    /// The next `len` bytes; `None`, and the queue's end is reached, where there are fewer.
    fn take(&mut self, len: u64) -> Result<Option<Bytes>> {
        let Some(len) = usize::try_from(len).ok().filter(|_| len <= self.remaining()) else {
            (self.at, self.left, self.around) = (self.head.tail, 0, 0);
            self.chunk.clear();
            return Ok(None);
        };
        if self.chunk.is_empty() && len > 0 {
            self.fill()?;
        }
        if len <= self.chunk.len() {
            return Ok(Some(self.split(len)));
        }
        self.object.reserve(len as u64)?;
        let mut out = BytesMut::with_capacity(len);
        while out.len() < len {
            if self.chunk.is_empty() {
                self.fill()?;
            }
            let part = self.split(self.chunk.len().min(len - out.len()));
            out.extend_from_slice(&part);
        }
        Ok(Some(out.freeze()))
    }

    fn split(&mut self, len: usize) -> Bytes {
        self.at.offset += len as u64;
        self.chunk.split_to(len)
    }

    /// Reads the next chunk, of which there is one; EINVAL where the object is too short.
    fn fill(&mut self) -> Result<()> {
        if self.left == 0 {
            self.at = self.position();
            (self.left, self.around) = (self.around, 0);
        }
        let len = self.left.min(CHUNK);
        self.chunk = self.object.read(self.at.offset, len)?;
        if self.chunk.len() as u64 != len {
            return Err(Error::EINVAL);
        }
        self.left -= len;
        Ok(())
    }
}
