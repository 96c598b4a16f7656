//! The crash-safe object store: one file or block device holds all objects of an OSD.
//!
//! # Use
//! [`mkfs()`] makes a store, [`Store::open`] opens it. A `Store` belongs to one thread (the OSD's
//! reactor) and never blocks it on the device in the usual paths. Calls are answered at once or by
//! an [`Event`] that carries the caller's [`Token`]:
//!
//! ```text
//! store.lookup(&key, token)  -> Lookup::Ready(Option<Arc<Onode>>) or Event::Lookup
//! store.submit(txn, token)   -> Ok(()): visible to all later calls; Event::Committed(token) once durable, in order
//!                               Err(NoSpace | Invalid | Fatal): nothing was changed
//! store.place(data, token)   -> Ok(()): Event::Placed(token, handle) once the data is durable, for Op::WritePlaced
//!                               Err(NoSpace | Invalid | Fatal): nothing was changed
//! store.read(&key, offset, len, way, token)     -> Read::Ready(checked bytes, short at the end of the object) or Event::Read
//! store.list(from, to, limit, token)            -> Event::List
//! store.omap_list(&key, from, to, limit, token) -> Event::Pairs      store.omap_get(&key, names, token) -> Event::Pairs
//! store.meta_list(from, to, limit, token)       -> Event::Pairs      store.meta_get(key)          -> at once, may block
//! store.poll(&mut events)    does what is due (starts I/O, forms the group commit, takes completions), appends events
//! store.event_fd()           signalled when `poll` has work: await it with tokio's AsyncFd, then call `poll`
//! store.writable()           false: take no new writes until a later `poll` made it true again (bounded memory)
//! store.statfs()
//! ```
//!
//! Call [`Store::poll`] after every batch of calls and whenever the event fd is signalled: what was
//! submitted between two polls is one group commit at most. A `submit` for an object that was not
//! looked up before is correct, but may block on the device; so look up first.
//!
//! A failed write or flush of the log or the index poisons the store: one [`Event::Fatal`], errors
//! from everything afterwards, no retry. The daemon must stop and let the log replay decide what
//! had become durable.
//!
//! What was stored and is damaged ([`StoreError::is_damage`]) is unreadable, in the index too, and
//! the store goes on: [`Store::check_index`] looks for such damage. Where a change has to touch a
//! damaged part of the index, the store can't go on ([`StoreError::Ruined`]).
//!
//! The disk format is described in `FORMAT.md` beside this crate.

mod ahead;
mod alloc;
mod apply;
mod arena;
mod cache;
mod check;
mod checkpoint;
mod codec;
mod config;
mod crypt;
pub mod device;
mod direct;
mod dump;
mod error;
mod event;
mod exec;
mod fsck;
mod ground;
mod index;
mod key;
mod layout;
mod log;
mod lost;
mod memory;
mod mend;
mod merge;
mod notify;
mod onode;
mod open;
mod place;
mod plan;
mod pump;
mod read;
pub mod recent;
mod replay;
mod state;
mod step;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod txn;
mod unlock;

pub use check::Checked;
pub use config::{BLOCK, Config, MkfsOptions, StatFs};
pub use crypt::EncryptionKey;
pub use device::Way;
pub use dump::Dump;
pub use error::{KeyProblem, Result, StoreError};
pub use event::{Event, Listing, Lookup, Pairs, Read, Token};
pub use fsck::{Depth, FsckProgress, FsckReport, Seen, fsck, fsck_on};
pub use index::{IndexDamage, IndexPage, PageLimit};
pub use key::ObjectKey;
pub use layout::Superblock;
pub use lost::{Lost, LostObjects};
pub use memory::{Memory, Usage};
pub use mend::{Mended, mend, mend_on, remake, remake_on};
pub use notify::Notify;
pub use onode::{Crcs, Extent, Onode};
pub use open::{Devices, mkfs, mkfs_on};
pub use place::Placed;
pub use store::{Mark, Stats, Store};
pub use txn::{MAX_ATTR_NAME, MAX_OBJECT_SIZE, Op, Payload, Transaction};
pub use unlock::{Unlocked, add_key, retire_keys, superblock, unlock};
