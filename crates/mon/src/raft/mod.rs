//! The replicated log: openraft over one redb file.
//!
//! Log entries, the vote and the state machine live in `store.db`. An append is one durable redb commit
//! (one fsync); applying is a commit without durability that the next durable one carries along: after a crash
//! the applied state may be older, but never newer than the log, and openraft applies the rest again.

mod log;
mod machine;
mod network;
mod node;
mod store;
#[cfg(test)]
mod tests;
mod wire;

pub use machine::Applied;
pub use network::{Call, Calls};
pub use node::{Error, Raft, View};
pub use store::{Store, StoreError};

use crate::kv::Txn;

openraft::declare_raft_types!(
    /// The types that the log carries.
    pub Types:
        D = TxnData,
        R = (),
        NodeId = u64,
        Node = Node,
        Entry = openraft::Entry<Types>,
        SnapshotData = store::Dump,
        AsyncRuntime = openraft::TokioRuntime,
        Responder = openraft::impls::OneshotResponder<Types>,
);

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
