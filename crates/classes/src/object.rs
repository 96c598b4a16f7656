//! The interface between a method and its object.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{EntityAddr, EntityName, UTime};

use crate::Result;

/// A client: the caller, or a watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// Its name: `client.` and its global id.
    pub name: EntityName,
    /// Its address.
    pub addr: EntityAddr,
}

/// An object's size and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    /// When it was last changed, by the writing client's clock.
    pub mtime: UTime,
}

/// A part of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items in the order of their keys.
    pub items: Vec<T>,
    /// Whether more follow.
    pub more: bool,
}

/// The object on which a method was called, in the transaction of its request.
///
/// Data, attributes and omap read as they were before the request; [`stat`](Self::stat) and the
/// outcome of writes reflect what the request has done so far. A failed write fails the request
/// only if the method fails too. Every operation fails with the error number that a client's
/// operation would get, or with [`Error::NotFetched`](crate::Error::NotFetched).
#[allow(clippy::missing_errors_doc)]
pub trait Object {
    /// The caller.
    fn caller(&self) -> Caller;

    /// The time of the call.
    fn now(&self) -> UTime;

    /// Fills `out` with unique random bytes. The same call of a method that runs again gets the
    /// same ones.
    fn random(&mut self, out: &mut [u8]);

    /// A text that is unique among all steps of requests to the placement group: the version that
    /// clients saw last, a dot, and the number of operations that the request has executed so far,
    /// those of methods included.
    fn subop_version(&self) -> String;

    /// The version that clients saw last of any object in the placement group.
    fn current_version(&self) -> u64;

    /// The last note of an earlier run of this call, if one was made.
    fn noted(&self) -> Option<Bytes>;

    /// Notes what the method has made of all that it has read so far. If the run ends with
    /// [`Error::NotFetched`](crate::Error::NotFetched), the next one gets the note, and what was read
    /// for this run is forgotten: so a method may read more than fits in memory.
    fn note(&mut self, note: Bytes);

    /// Size and time; ENOENT where the object does not exist. A method needs no flag for it.
    fn stat(&mut self) -> Result<Stat>;

    /// Reserves memory for bytes that the method is about to make, beyond its input and what it has
    /// read. ENOMEM where that is more than methods may have.
    fn reserve(&mut self, bytes: u64) -> Result<()>;

    /// The snapshot sequence of the object before the request; ENOENT where neither the object nor
    /// a clone of it exists. A method needs no flag for it.
    fn snapset_seq(&mut self) -> Result<u64>;

    /// Up to `length` bytes from `offset` on, all where `length` is 0; nothing where the object
    /// does not exist.
    fn read(&mut self, offset: u64, length: u64) -> Result<Bytes>;

    /// An attribute; ENODATA where the object lacks it, ENOENT where the object does not exist.
    fn getxattr(&mut self, name: &[u8]) -> Result<Bytes>;

    /// All attributes; ENOENT where the object does not exist.
    fn getxattrs(&mut self) -> Result<BTreeMap<Bytes, Bytes>>;

    /// Up to `max` omap keys after `after` that start with `prefix`, with their values.
    fn omap_vals(&mut self, after: &[u8], prefix: &[u8], max: u64) -> Result<Page<(Bytes, Bytes)>>;

    /// Up to `max` omap keys after `after`.
    fn omap_keys(&mut self, after: &[u8], max: u64) -> Result<Page<Bytes>>;

    /// Those of the omap keys that exist, with their values.
    fn omap_by_keys(&mut self, keys: &BTreeSet<Bytes>) -> Result<BTreeMap<Bytes, Bytes>>;

    /// The clients that watch the object.
    fn watchers(&mut self) -> Result<Vec<Caller>>;

    /// The omap header; empty if it was never written.
    fn omap_header(&mut self) -> Result<Bytes>;

    /// Creates the object. With `exclusive`, EEXIST where it exists.
    fn create(&mut self, exclusive: bool) -> Result<()>;

    /// Writes at an offset.
    fn write(&mut self, offset: u64, data: Bytes) -> Result<()>;

    /// Replaces all data.
    fn write_full(&mut self, data: Bytes) -> Result<()>;

    /// Zeroes `length` bytes from `offset` on, as far as the data reaches. A range that ends there
    /// or behind is cut off, as a client's op would do it.
    fn zero(&mut self, offset: u64, length: u64) -> Result<()>;

    /// Truncates or extends the data.
    fn truncate(&mut self, size: u64) -> Result<()>;

    /// Removes the object.
    fn remove(&mut self) -> Result<()>;

    /// Sets an attribute.
    fn setxattr(&mut self, name: &[u8], value: Bytes) -> Result<()>;

    /// Removes an attribute.
    fn rmxattr(&mut self, name: &[u8]) -> Result<()>;

    /// Sets omap keys.
    fn omap_set(&mut self, values: &BTreeMap<Bytes, Bytes>) -> Result<()>;

    /// Removes omap keys.
    fn omap_remove(&mut self, keys: &BTreeSet<Bytes>) -> Result<()>;

    /// Removes the omap keys from `begin` to before `end`.
    fn omap_remove_range(&mut self, begin: &[u8], end: &[u8]) -> Result<()>;

    /// Removes all omap keys and the header.
    fn omap_clear(&mut self) -> Result<()>;

    /// Sets the omap header.
    fn omap_set_header(&mut self, header: Bytes) -> Result<()>;
}
