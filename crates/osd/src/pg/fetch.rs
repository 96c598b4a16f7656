//! The reads that the execution of a request needs from the store first, and the answers.
//!
//! Execution is synchronous and changes nothing until it ends. If it lacks an answer it stops and
//! names what it wants; the PG fetches that, and runs the request again from the start with all
//! answers so far.

use std::iter::Sum;
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::{Extent, UTime};
use spirula_erasure::Step;
use spirula_errno::Errno;
use spirula_maps::{ObjectLocator, ObjectName, SnapId};

use super::digests::Digests;
use super::object::Attrs;
use super::object::StoredObject;
use super::staged::{Slot, Whole};
use super::txn::ObjectOp;

/// The bytes of answers of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadBytes {
    /// Bytes in buffers of a pool.
    pub buffers: usize,
    /// Bytes elsewhere.
    pub heap: usize,
}

impl ReadBytes {
    fn buffers(len: u64) -> Self {
        Self {
            buffers: usize::try_from(len).unwrap_or(usize::MAX),
            heap: 0,
        }
    }

    fn heap(heap: usize) -> Self {
        Self { buffers: 0, heap }
    }

    /// All bytes.
    pub fn total(self) -> usize {
        self.buffers.saturating_add(self.heap)
    }
}

impl Sum for ReadBytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            buffers: a.buffers.saturating_add(b.buffers),
            heap: a.heap.saturating_add(b.heap),
        })
    }
}

/// A range that an op needs from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadRange {
    /// Offset in the object.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Whether only the stored parts are wanted, without holes.
    pub sparse: bool,
}

/// A range of omap keys, of which the first few are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OmapRange {
    /// The first key.
    pub from: Bytes,
    /// The key after the last; `None` for all that follow.
    pub to: Option<Bytes>,
    /// The most keys.
    pub max: usize,
    /// Bytes of keys and values after which no more are added. A single pair may be larger.
    pub max_bytes: usize,
    /// Whether values are wanted; if not, all are empty.
    pub values: bool,
}

impl OmapRange {
    /// Memory that pairs take besides their bytes, as `max_bytes` counts them.
    pub const PAIR_OVERHEAD: usize = 8;
}

/// Omap keys, whose pairs are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeysWant {
    /// The keys, which ascend.
    pub keys: Vec<Bytes>,
    /// Bytes of keys and values after which no more are added.
    pub max_bytes: usize,
    /// Whether values are wanted; if not, all are empty.
    pub values: bool,
}

impl KeysWant {
    /// The assumed size, before they are read, of each key of a request with its value, in bytes.
    const USUAL: usize = 64 << 10;

    /// A want for keys with their values, which have at most `max_bytes` and probably less.
    pub(crate) fn values(keys: Vec<Bytes>, max_bytes: usize) -> Self {
        Self {
            max_bytes: keys.len().saturating_mul(Self::USUAL).min(max_bytes),
            keys,
            values: true,
        }
    }

    /// A want for those of these keys that exist.
    pub(crate) fn names(keys: Vec<Bytes>) -> Self {
        Self {
            keys,
            max_bytes: usize::MAX,
            values: false,
        }
    }

    fn cost(&self) -> u64 {
        if self.values {
            self.max_bytes as u64
        } else {
            UNKNOWN
        }
    }
}

/// The key right after this one.
pub fn key_after(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// The first key after all that begin with `prefix`; `None` if there can be none.
pub fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let at = prefix.iter().rposition(|b| *b != 0xff)?;
    let mut end = prefix[..=at].to_vec();
    end[at] += 1;
    Some(end.into())
}

/// A want for another object, to be read from the primary of its PG.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CopyWant {
    /// The object's name.
    pub oid: ObjectName,
    /// The object's locator.
    pub locator: ObjectLocator,
    /// The object's snapshot, or `NOSNAP`.
    pub snapid: SnapId,
    /// The user version that the object must have; 0 for any.
    pub version: u64,
}

/// Another object: all of it or, if its content is large, all but that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Its size in bytes.
    pub size: u64,
    /// When the object changed, by the writer's clock.
    pub mtime: UTime,
    /// The object's user version.
    pub user_version: u64,
    /// The number of the object's last truncation, and the size that it left.
    pub truncate: (u32, u64),
    /// Its attributes.
    pub attrs: Attrs,
    /// Whether it has an omap.
    pub has_omap: bool,
    /// The digests of its data and omap.
    pub digests: Digests,
    /// The ops that give an empty object the data and omap, if nothing is staged.
    pub content: Vec<ObjectOp>,
    /// The staging object that has the data and omap.
    pub staged: Option<Arc<Whole>>,
}

impl Copied {
    /// The bytes of it that are in memory.
    pub(crate) fn len(&self) -> u64 {
        let len = |op: &ObjectOp| match op {
            ObjectOp::Write { data, .. } => data.len(),
            ObjectOp::OmapSet(pairs) => pairs.iter().map(|(k, v)| k.len() + v.len()).sum(),
            ObjectOp::OmapHeader(header) => header.len(),
            _ => 0,
        };
        self.content.iter().map(len).sum::<usize>() as u64
    }
}

/// Something to be read from the store about one object, or of another object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Want {
    /// A range of bytes.
    Data(ReadRange),
    /// The stored extents of a range.
    Extents(Extent),
    /// A page of omap pairs.
    Omap(OmapRange),
    /// The omap pairs of some keys.
    OmapKeys(KeysWant),
    /// The omap header.
    OmapHeader,
    /// The record of another object, which has this key.
    Object(Bytes),
    /// Room for this many bytes, which this OSD and other members are about to read for one
    /// question.
    Room(u64),
    /// A range of bytes of the object with this key, which takes the object's place. The PG asks for
    /// it as for [`Want::Data`] of that object.
    Base(Bytes, ReadRange),
    /// All of another object. The PG fetches it, not the store.
    Copy(Box<CopyWant>),
    /// A copy of an object of this PG in a staging object, if its omap is too large to be copied in
    /// one change. The PG builds it.
    Staged {
        /// The object's key.
        source: Bytes,
        /// The slot, which names the purpose.
        slot: Slot,
    },
    /// A large change of an object that is erasure-coded, staged at all members: the portions, and
    /// the key of the object that is changed. The PG brings it to them.
    Large(Vec<Vec<Step>>, Bytes),
}

/// The bytes by which a page of omap pairs may exceed its limit: the last pair counts only once it
/// was read, and no larger one can be written ([`super::config::PgConfig::max_logged`]).
pub(crate) const LARGEST_PAIR: usize = 6 << 20;

/// The assumed bytes of the answer to an omap question of unknown size.
const UNKNOWN: u64 = 1 << 20;

impl Want {
    /// The most bytes of the answer, to bound what is fetched at once.
    pub(crate) fn cost(&self) -> u64 {
        match self {
            Self::Data(r) | Self::Base(_, r) => r.len,
            Self::Room(bytes) => *bytes,
            Self::Omap(r) => r.max_bytes as u64,
            Self::OmapKeys(k) => k.cost(),
            Self::Extents(_)
            | Self::OmapHeader
            | Self::Object(_)
            | Self::Copy(_)
            | Self::Staged { .. }
            | Self::Large(..) => UNKNOWN,
        }
    }

    /// The most bytes of the answer: room for them must be there before it is read. Answers from
    /// the object's own record need no room.
    pub fn room(&self) -> ReadBytes {
        match self {
            Self::Data(r) | Self::Base(_, r) => ReadBytes::buffers(r.len),
            Self::Room(bytes) => ReadBytes::buffers(*bytes),
            Self::Omap(r) => ReadBytes::heap(r.max_bytes.saturating_add(LARGEST_PAIR)),
            Self::OmapKeys(k) if k.values => ReadBytes::heap(k.max_bytes.saturating_add(LARGEST_PAIR)),
            _ => ReadBytes::default(),
        }
    }

    /// Makes a want for data of the object that takes the object's place one for data of the object
    /// that is asked about.
    pub(super) fn make_direct(&mut self) {
        if let Self::Base(_, range) = self {
            *self = Self::Data(*range);
        }
    }

    /// The reverse of [`Want::make_direct`].
    pub(super) fn make_of_base(&mut self, base: &Bytes) {
        if let Self::Data(range) = self {
            *self = Self::Base(base.clone(), *range);
        }
    }

    /// Whether the want is for omap pairs.
    pub(crate) fn is_pairs(&self) -> bool {
        matches!(self, Self::Omap(_) | Self::OmapKeys(_))
    }

    /// The slot of the staging object that the want may need. The PG answers it, not the store.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match self {
            Self::Copy(_) => Some(Slot::Becomes),
            Self::Staged { slot, .. } => Some(*slot),
            Self::Large(..) => Some(Slot::Large(0)),
            _ => None,
        }
    }
}

/// Omap pairs in the order of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OmapPage {
    /// Keys and values.
    pub pairs: Vec<(Bytes, Bytes)>,
    /// Whether the range has more.
    pub more: bool,
}

/// Pieces of an object by offset.
pub type Pieces = Vec<(u64, Bytes)>;

/// The answer to a [`Want`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The answer to [`Want::Data`]: the whole range, or the stored parts of a sparse one.
    Data(Pieces),
    /// The answer to [`Want::Extents`]: the extents in order, none next to another.
    Extents(Vec<Extent>),
    /// The answer to [`Want::Omap`]; to [`Want::OmapKeys`], with the pairs that exist, up to the
    /// limit.
    Omap(OmapPage),
    /// The answer to [`Want::OmapHeader`].
    OmapHeader(Bytes),
    /// The answer to [`Want::Room`]: the room comes with it.
    Room,
    /// The answer to [`Want::Object`]; `None` if the object does not exist.
    Object(Option<StoredObject>),
    /// The answer to [`Want::Copy`]: the object, or why there is none.
    Copy(Result<Arc<Copied>, Errno>),
    /// The answer to [`Want::Staged`] and [`Want::Large`]: the staging object, or why there is none; `None` if the omap
    /// can be copied without one.
    Staged(Result<Option<Arc<Whole>>, Errno>),
}

impl Answer {
    fn len(&self) -> u64 {
        let n = match self {
            Self::Data(pieces) => pieces.iter().map(|(_, b)| b.len()).sum(),
            Self::Extents(extents) => extents.len() * 16,
            Self::Omap(page) => page.pairs.iter().map(|(k, v)| k.len() + v.len()).sum(),
            Self::OmapHeader(b) => b.len(),
            Self::Object(o) => o.as_ref().map_or(0, StoredObject::len),
            Self::Copy(copied) => return copied.as_ref().map_or(0, |c| c.len()),
            Self::Staged(_) | Self::Room => 0,
        };
        n as u64
    }

    /// The staging object that the answer keeps.
    fn staged(&self) -> Option<&Whole> {
        match self {
            Self::Copy(Ok(copied)) => copied.staged.as_deref(),
            Self::Staged(Ok(whole)) => whole.as_deref(),
            _ => None,
        }
    }
}

/// The error for data that could not be read, or that differs from what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store can't read it")]
pub struct ReadError;

/// A question to the store with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The question.
    pub want: Want,
    /// The answer.
    pub answer: Result<Answer, ReadError>,
}

impl Fetched {
    /// The bytes that were fetched.
    pub fn room(&self) -> ReadBytes {
        match self.want {
            Want::Data(_) | Want::Base(..) => ReadBytes::buffers(self.len()),
            Want::Room(_) => self.want.room(),
            _ if self.want.is_pairs() => ReadBytes::heap(usize::try_from(self.len()).unwrap_or(usize::MAX)),
            _ => ReadBytes::default(),
        }
    }

    /// The bytes that were fetched.
    pub(crate) fn len(&self) -> u64 {
        self.answer.as_ref().map_or(0, Answer::len)
    }

    /// The slot of the staging object that the answer keeps.
    pub(crate) fn held_slot(&self) -> Option<Slot> {
        Some(self.answer.as_ref().ok()?.staged()?.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_after_a_key_or_a_prefix() {
        assert_eq!(key_after(b"a"), &b"a\0"[..]);
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
