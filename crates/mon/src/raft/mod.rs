//! The replicated log: openraft over one redb file.
//!
//! Log entries, the vote and the state machine live in `store.db`. An append is one durable redb
//! commit (one fsync); applying is a commit without durability that the next durable one carries
//! along: after a crash the applied state may be older, but never newer than the log, and openraft
//! applies the rest again.

pub mod bug;
mod log;
mod machine;
mod members;
mod network;
mod node;
mod reserve;
mod runtime;
mod store;
#[cfg(test)]
mod tests;
mod wire;

pub use machine::Applied;
pub use members::{Change, next_change, node_of};
pub use network::{Call, Calls};
pub use node::{Error, Raft, View};
pub use runtime::{Runtime, Stopped, Tokio};
pub use store::{Store, StoreError};

use std::marker::PhantomData;

use crate::kv::Txn;

/// The types that the log carries, and the runtime that it runs on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Types<R = Tokio>(PhantomData<R>);

impl<R: Runtime> openraft::RaftTypeConfig for Types<R> {
    type D = TxnData;
    type R = ();
    type NodeId = u64;
    type Node = Node;
    type Entry = openraft::Entry<Self>;
    type SnapshotData = store::Dump;
    type AsyncRuntime = R::Tasks;
    type Responder = openraft::impls::OneshotResponder<Self>;
}

/// The limits of what is kept and sent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Log entries kept behind the applied state; a follower that is further away gets a snapshot.
    pub keep_entries: u64,
    /// A new member that lacks no more entries than this has caught up: it may vote.
    pub near_entries: u64,
    /// Bytes of the entries of one request together, except that one entry is always sent.
    pub entry_bytes: usize,
    /// Bytes of a part of a snapshot, except that one value is always sent.
    pub part_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            keep_entries: 500,
            near_entries: 100,
            entry_bytes: 8 << 20,
            part_bytes: 1 << 20,
        }
    }
}

/// A member of the group.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Node {
    /// The address it listens on.
    pub addr: String,
    /// Its name: `a` in `mon.a`. Empty in groups of one that were made before names were kept.
    #[serde(default)]
    pub name: String,
}

/// A transaction as openraft carries it.
#[derive(Debug, Clone)]
pub struct TxnData(pub std::sync::Arc<Txn>);

impl serde::Serialize for TxnData {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&spirula_denc::encode_to_vec(self.0.as_ref()))
    }
}

impl<'de> serde::Deserialize<'de> for TxnData {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(d)?;
        let txn = spirula_denc::decode_all(&bytes).map_err(serde::de::Error::custom)?;
        Ok(Self(std::sync::Arc::new(txn)))
    }
}

/// The node's storage error.
type StorageError = openraft::StorageError<u64>;
