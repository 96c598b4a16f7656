//! Events that the store reports to its owner.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Checked, IndexDamage, ObjectKey, Onode, Placed, Result, StoreError};

/// Chosen by the owner for a call, returned with its event. The store only passes it through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A completion. Events of one kind come in the order in which they completed; [`Event::Committed`]
/// in the order of submission.
#[derive(Debug)]
pub enum Event {
    /// The transaction and all before it survive a power cut from now on.
    Committed(Token),
    /// Answer to [`Store::place`](crate::Store::place): the data is durable, and its blocks are the
    /// receiver's.
    Placed(Token, Placed),
    /// Answer to [`Store::lookup`](crate::Store::lookup) that had to ask the device: `None` if
    /// there is no such object.
    Lookup(Token, Result<Option<Arc<Onode>>>),
    /// Answer to [`Store::read`](crate::Store::read) that had to wait.
    Read(Token, Result<Bytes>),
    /// Answer to [`Store::list`](crate::Store::list): objects with their infos.
    List(Token, Result<Listing<Bytes>>),
    /// Answer to [`Store::omap_list`](crate::Store::omap_list),
    /// [`Store::omap_get`](crate::Store::omap_get) and
    /// [`Store::meta_list`](crate::Store::meta_list).
    Pairs(Token, Result<Pairs>),
    /// Answer to [`Store::check_index`](crate::Store::check_index).
    Checked(Token, Checked),
    /// Answer to [`Store::judge_index`](crate::Store::judge_index).
    Judged(Token, Result<IndexDamage>),
    /// The store has failed and the daemon must stop. Comes once; waiting transactions and
    /// placements get no event, waiting reads get an error. The error is [`StoreError::Fatal`], or
    /// [`StoreError::Ruined`] where damage is the cause.
    Fatal(StoreError),
}

/// One page of objects in key order.
#[derive(Debug, Clone)]
pub struct Listing<T> {
    /// The keys of the objects, with the wanted data of each. The keys of a page share their memory:
    /// there may be thousands.
    pub objects: Vec<(Bytes, T)>,
    /// The start of the next page; `None` if the range is exhausted.
    pub next: Option<ObjectKey>,
}

/// One page of pairs in key order.
#[derive(Debug, Clone, Default)]
pub struct Pairs {
    /// Keys (without any prefix of the store) and values.
    pub pairs: Vec<(Bytes, Bytes)>,
    /// The start of the next page; `None` if the range is exhausted.
    pub next: Option<Bytes>,
    /// Whether the page ends before a pair that would have made it larger than allowed
    /// ([`PageLimit::within`](crate::PageLimit::within)).
    pub cut: bool,
}

/// Answer to a read.
#[derive(Debug)]
#[must_use]
pub enum Read {
    /// The answer at once: checked bytes, short at the end of the object.
    Ready(Result<Bytes>),
    /// An [`Event::Read`] will answer.
    Pending,
}

/// Answer to a lookup.
#[derive(Debug)]
pub enum Lookup {
    /// The answer at once: the object, or `None` if there is no such object.
    Ready(Option<Arc<Onode>>),
    /// An [`Event::Lookup`] will answer.
    Pending,
}
