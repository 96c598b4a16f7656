//! One running member of the group.

use std::collections::BTreeMap;
use std::sync::Arc;

use openraft::{BasicNode, Config, SnapshotPolicy};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::machine::{Applied, Machine};
use super::network::Peers;
use super::store::{Store, StoreError};
use super::{TxnData, Types};
use crate::kv::Txn;

/// Log entries kept behind the applied state; a follower that is further away gets a snapshot.
const KEEP_ENTRIES: u64 = 500;

/// The group cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// openraft refused or stopped.
    #[error("replicated log: {0}")]
    Raft(String),
}

/// Handle of the running node. Cheap to clone.
#[derive(Clone)]
pub struct Raft {
    raft: openraft::Raft<Types>,
}

impl Raft {
    /// Starts the node `id` over `store`, and waits until it leads when it is the only member. `members` are the
    /// group's nodes with their addresses, used on the first start only. Needs a tokio runtime with time enabled;
    /// disk flushes run on its blocking threads, one at a time.
    ///
    /// Everything that commits, also from before a crash, is reported through the receiver in log order.
    pub async fn start(
        id: u64,
        store: Store,
        members: &BTreeMap<u64, String>,
    ) -> Result<(Self, UnboundedReceiver<Applied>), Error> {
        let config = Config {
            cluster_name: "spirula".to_owned(),
            heartbeat_interval: 500,
            election_timeout_min: 1500,
            election_timeout_max: 3000,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(KEEP_ENTRIES),
            max_in_snapshot_log_to_keep: KEEP_ENTRIES,
            ..config_defaults()?
        };
        let config = config.validate().map_err(raft_error)?;
        let (tx, rx) = unbounded_channel();
        let machine = Machine::new(store.clone(), tx)?;
        let raft = openraft::Raft::new(id, Arc::new(config), Peers, store, machine)
            .await
            .map_err(raft_error)?;
        if !raft.is_initialized().await.map_err(raft_error)? {
            let nodes: BTreeMap<u64, BasicNode> = members
                .iter()
                .map(|(id, addr)| (*id, BasicNode::new(addr)))
                .collect();
            raft.initialize(nodes).await.map_err(raft_error)?;
        } else if members.len() == 1 {
            // Nobody else could lead: do not sit out the election timeout.
            raft.trigger().elect().await.map_err(raft_error)?;
        }
        if members.len() == 1 {
            raft.wait(Some(std::time::Duration::from_secs(30)))
                .metrics(|m| m.current_leader == Some(id), "leadership of a group of one")
                .await
                .map_err(raft_error)?;
            raft.ensure_linearizable().await.map_err(raft_error)?;
        }
        Ok((Self { raft }, rx))
    }

    /// Replicates a transaction; returns its index when it is committed, durable and applied.
    pub async fn propose(&self, txn: Arc<Txn>) -> Result<u64, Error> {
        let done = self.raft.client_write(TxnData(txn)).await.map_err(raft_error)?;
        Ok(done.log_id.index)
    }

    /// The term of the current leader, which Ceph's tools show as the election epoch.
    pub fn term(&self) -> u64 {
        self.raft.metrics().borrow().current_term
    }

    /// Stops the node.
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.raft.shutdown().await.map_err(raft_error)
    }
}

fn config_defaults() -> Result<Config, Error> {
    Config::build(&["spirula"]).map_err(raft_error)
}

fn raft_error(e: impl std::fmt::Display) -> Error {
    Error::Raft(e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::KvRead;

    fn with_dir(name: &str, f: impl AsyncFn(&std::path::Path)) {
        let dir = std::env::temp_dir().join(format!("spirula-mon-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        rt.block_on(f(&dir));
        std::fs::remove_dir_all(dir).unwrap();
    }

    fn put(n: u64) -> Arc<Txn> {
        let mut t = Txn::default();
        t.put("test", format!("{n:05}"), n.to_le_bytes().to_vec());
        Arc::new(t)
    }

    #[test]
    fn what_is_acknowledged_is_there_after_a_restart() {
        with_dir("restart", async |dir| {
            let members = BTreeMap::from([(0, "x".to_owned())]);
            for round in 0..3u64 {
                let store = Store::open(&dir.join("store.db")).unwrap();
                let (raft, mut rx) = Raft::start(0, store.clone(), &members).await.unwrap();
                assert_eq!(store.scan("test").unwrap().len() as u64, round * 10);
                for n in 0..10 {
                    raft.propose(put(round * 10 + n)).await.unwrap();
                }
                let mut seen = 0;
                while let Ok(Applied::Txn { .. }) = rx.try_recv() {
                    seen += 1;
                }
                assert!(seen >= 10, "every committed transaction is reported");
                raft.shutdown().await.unwrap();
            }
        });
    }

    #[test]
    fn the_log_is_purged() {
        with_dir("purge", async |dir| {
            let store = Store::open(&dir.join("store.db")).unwrap();
            let members = BTreeMap::from([(0, "x".to_owned())]);
            let (raft, _rx) = Raft::start(0, store.clone(), &members).await.unwrap();
            for n in 0..KEEP_ENTRIES * 3 {
                raft.propose(put(n)).await.unwrap();
            }
            raft.shutdown().await.unwrap();
            assert!(store.entries(0, u64::MAX).unwrap().len() < 1100);
        });
    }
}
