//! What the execution of a request must read from the store first, and the answers.
//!
//! Execution is synchronous and changes nothing until it ends. Where it lacks an answer it stops and names what it wants;
//! the PG fetches that, and runs the request again from the start with all answers so far.

use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::UTime;
use spirula_maps::{ObjectLocator, ObjectName, SnapId};

use super::object::Attrs;
use super::object::StoredObject;
use super::staged::{Slot, Whole};
use super::txn::ObjectOp;

/// A range that an op needs from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadRange {
    /// Offset in the object.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Only the stored parts are wanted, holes left out.
    pub sparse: bool,
}

/// A range of omap keys, of which the first few are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OmapRange {
    /// The first key.
    pub from: Bytes,
    /// The key after the last; `None` for all that follow.
    pub to: Option<Bytes>,
    /// Keys at most.
    pub max: usize,
    /// Bytes of keys and values after which no more are added. A single pair may be larger.
    pub max_bytes: usize,
    /// Whether values are wanted; without, all are empty.
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
    /// Whether values are wanted; without, all are empty.
    pub values: bool,
}

impl KeysWant {
    /// What keys of a request and their values are taken for before they are read, in bytes for each.
    const USUAL: usize = 64 << 10;

    /// Keys with their values, which have at most `max_bytes` and probably less.
    pub(crate) fn values(keys: Vec<Bytes>, max_bytes: usize) -> Self {
        Self {
            max_bytes: keys.len().saturating_mul(Self::USUAL).min(max_bytes),
            keys,
            values: true,
        }
    }

    /// Which of these keys there are.
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

/// Another object, to be read from the primary of its PG.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CopyWant {
    /// Its name.
    pub oid: ObjectName,
    /// Where it is.
    pub locator: ObjectLocator,
    /// Its snapshot, or `NOSNAP`.
    pub snapid: SnapId,
    /// The user version that it must have; 0 for any.
    pub version: u64,
}

/// Another object with all that it has, or, where that is much, all but its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Its size in bytes.
    pub size: u64,
    /// When it changed, by the writer's clock.
    pub mtime: UTime,
    /// The user version it had.
    pub user_version: u64,
    /// The number of its last truncation, and the size that left.
    pub truncate: (u32, u64),
    /// Its attributes.
    pub attrs: Attrs,
    /// Whether it has an omap.
    pub has_omap: bool,
    /// What makes an empty object have its data and omap, where nothing is staged.
    pub content: Vec<ObjectOp>,
    /// The staging object that has them.
    pub staged: Option<Arc<Whole>>,
}

impl Copied {
    /// Bytes of it that are in memory.
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
    /// Bytes.
    Data(ReadRange),
    /// Where bytes are stored in a range.
    Extents {
        /// Offset in the object.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A page of omap pairs.
    Omap(OmapRange),
    /// The omap pairs of some keys.
    OmapKeys(KeysWant),
    /// The omap header.
    OmapHeader,
    /// What is known of another object, which has this key.
    Object(Bytes),
    /// All of another object. The PG fetches it, not the store.
    Copy(Box<CopyWant>),
    /// A copy of an object of this PG in a staging object, where its omap is too large to be copied in one change. The PG
    /// builds it.
    Staged {
        /// The object's key.
        source: Bytes,
        /// What for.
        slot: Slot,
    },
}

/// By so much a page of omap pairs may exceed its limit: the last pair counts only once it was read, and no larger one can be written
/// ([`super::config::PgConfig::max_logged`]).
pub(crate) const LARGEST_PAIR: usize = 6 << 20;

/// What the answer to an omap question of unknown size is taken for before it is there, in bytes.
const UNKNOWN: u64 = 1 << 20;

impl Want {
    /// Bytes that the answer may have, to bound what is fetched at once.
    pub(crate) fn cost(&self) -> u64 {
        match self {
            Self::Data(r) => r.len,
            Self::Omap(r) => r.max_bytes as u64,
            Self::OmapKeys(k) => k.cost(),
            Self::Extents { .. }
            | Self::OmapHeader
            | Self::Object(_)
            | Self::Copy(_)
            | Self::Staged { .. } => UNKNOWN,
        }
    }

    /// Bytes that the answer may have, in buffers of a pool and elsewhere: so much room is to be there before it is read. What is known
    /// from the object's own record takes none.
    pub fn room(&self) -> (usize, usize) {
        match self {
            Self::Data(r) => (usize::try_from(r.len).unwrap_or(usize::MAX), 0),
            Self::Omap(r) => (0, r.max_bytes.saturating_add(LARGEST_PAIR)),
            Self::OmapKeys(k) if k.values => (0, k.max_bytes.saturating_add(LARGEST_PAIR)),
            _ => (0, 0),
        }
    }

    /// Whether it is about omap pairs.
    pub(crate) fn is_pairs(&self) -> bool {
        matches!(self, Self::Omap(_) | Self::OmapKeys(_))
    }

    /// The staging object that it may need. The PG answers it, not the store.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match self {
            Self::Copy(_) => Some(Slot::Becomes),
            Self::Staged { slot, .. } => Some(*slot),
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

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Of [`Want::Data`]: all of the range, or of a sparse one the stored parts.
    Data(Pieces),
    /// Of [`Want::Extents`]: offsets and lengths in order, none next to another.
    Extents(Vec<(u64, u64)>),
    /// Of [`Want::Omap`]; of [`Want::OmapKeys`] those that exist, up to the limit.
    Omap(OmapPage),
    /// Of [`Want::OmapHeader`].
    OmapHeader(Bytes),
    /// Of [`Want::Object`]; `None` where it does not exist.
    Object(Option<StoredObject>),
    /// Of [`Want::Copy`]: the object, or why there is none.
    Copy(Result<Arc<Copied>, i32>),
    /// Of [`Want::Staged`]: the staging object, or why there is none; `None` where the omap can be copied without.
    Staged(Result<Option<Arc<Whole>>, i32>),
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
            Self::Staged(_) => 0,
        };
        n as u64
    }

    /// The staging object that it keeps.
    fn staged(&self) -> Option<&Whole> {
        match self {
            Self::Copy(Ok(copied)) => copied.staged.as_deref(),
            Self::Staged(Ok(whole)) => whole.as_deref(),
            _ => None,
        }
    }
}

/// Data could not be read, or is not what was written.
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
    /// Bytes that were fetched, in buffers of a pool and elsewhere.
    pub fn room(&self) -> (usize, usize) {
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX);
        match self.want {
            Want::Data(_) => (len, 0),
            _ if self.want.is_pairs() => (0, len),
            _ => (0, 0),
        }
    }

    /// Bytes that were fetched.
    pub(crate) fn len(&self) -> u64 {
        self.answer.as_ref().map_or(0, Answer::len)
    }

    /// The slot of the staging object that it keeps.
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
