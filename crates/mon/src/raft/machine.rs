//! openraft's view of the state machine: it stores each transaction and tells the monitor's core
//! about it.

use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{Entry, EntryPayload, ErrorSubject, ErrorVerb, LogId, OptionalSend};
use openraft::{RaftSnapshotBuilder, Snapshot, SnapshotMeta, StoredMembership};
use spirula_invariant::invariant;
use tokio::sync::mpsc::UnboundedSender;

use super::bug::Bug;
use super::log::{blocking, fault};
use super::store::{AppliedState, Dump, Store};
use super::{Node, Runtime, StorageError, Types, wire};
use crate::kv::Txn;

/// News from the state machine, in log order.
#[derive(Debug, Clone)]
pub enum Applied {
    /// The transaction at `index` is committed and applied.
    Txn {
        /// The transaction's place in the log.
        index: u64,
        /// The changes.
        txn: Arc<Txn>,
    },
    /// The whole state was replaced by a snapshot from the leader: everything has to be read again.
    Snapshot {
        /// The last log entry that the snapshot holds.
        index: u64,
    },
}

/// The state machine.
pub(super) struct Machine {
    store: Store,
    state: AppliedState,
    tx: UnboundedSender<Applied>,
}

impl Machine {
    pub(super) fn new(store: Store, tx: UnboundedSender<Applied>) -> Result<Self, super::StoreError> {
        Ok(Self {
            state: store.applied()?,
            store,
            tx,
        })
    }
}

/// Takes a snapshot of the committed state.
pub(super) struct Builder {
    state: AppliedState,
}

fn meta(state: &AppliedState) -> SnapshotMeta<u64, Node> {
    let index = state.last.map_or(0, |id| id.index);
    SnapshotMeta {
        last_log_id: state.last,
        last_membership: state.membership.clone(),
        snapshot_id: format!("{index}"),
    }
}

impl<R: Runtime> RaftSnapshotBuilder<Types<R>> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types<R>>, StorageError> {
        // The state on disk is the snapshot: nothing is copied before a peer asks for it. Building
        // one only tells openraft how far the log may be purged.
        Ok(Snapshot {
            meta: meta(&self.state),
            snapshot: Box::default(),
        })
    }
}

impl<R: Runtime> RaftStateMachine<Types<R>> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, Node>), StorageError> {
        Ok((self.state.last, self.state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError>
    where
        I: IntoIterator<Item = Entry<Types<R>>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut txns = Vec::new();
        let mut news = Vec::new();
        let mut replies = Vec::new();
        for e in entries {
            let last = self.state.last.as_ref();
            invariant!(wire::is_next(last, &e.log_id), "entries that are applied in their order";
                entry = e.log_id, last = wire::shown(last));
            self.state.last = Some(e.log_id);
            match e.payload {
                EntryPayload::Blank => {}
                EntryPayload::Membership(m) => {
                    self.state.membership = StoredMembership::new(Some(e.log_id), m);
                }
                // Made by a leader that was deposed before it came into the log.
                EntryPayload::Normal(t) if t.0.term != 0 && t.0.term != e.log_id.leader_id.term => {}
                EntryPayload::Normal(t) => {
                    txns.push(t.0.clone());
                    news.push(Applied::Txn {
                        index: e.log_id.index,
                        txn: t.0,
                    });
                }
            }
            replies.push(());
        }
        let (store, state) = (self.store.clone(), self.state.clone());
        blocking::<R, _>(ErrorSubject::StateMachine, move || store.apply(&txns, &state)).await?;
        for n in news {
            // The receiver only goes away when the monitor stops.
            let _ = self.tx.send(n);
        }
        Ok(replies)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            state: self.state.clone(),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Dump>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, Node>,
        _snapshot: Box<Dump>,
    ) -> Result<(), StorageError> {
        // The library drops a snapshot that is no newer than what is committed.
        invariant!(meta.last_log_id > self.state.last, "a snapshot of what is not applied yet";
            snapshot = wire::shown(meta.last_log_id.as_ref()), applied = wire::shown(self.state.last.as_ref()));
        self.state.last = meta.last_log_id;
        if !self.store.has_bug(Bug::OldMembers) {
            self.state.membership = meta.last_membership.clone();
        }
        let (store, state) = (self.store.clone(), self.state.clone());
        blocking::<R, _>(ErrorSubject::Snapshot(None), move || store.install_staged(&state)).await?;
        let _ = self.tx.send(Applied::Snapshot {
            index: self.state.last.map_or(0, |id| id.index),
        });
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types<R>>>, StorageError> {
        let (state, dump) = self
            .store
            .view()
            .map_err(|e| fault(ErrorSubject::Snapshot(None), ErrorVerb::Read, &e))?;
        if state.last.is_none() {
            return Ok(None);
        }
        Ok(Some(Snapshot {
            meta: meta(&state),
            snapshot: Box::new(dump),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_snapshot_of_an_empty_state() {
        let dir = std::env::temp_dir().join(format!("spirula-mon-machine-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let store = Store::open(&dir.join("store.db")).unwrap();
        let (tx, _rx) = tokio::sync::mpsc::unbounded_channel();
        let mut m = Machine::new(store, tx).unwrap();
        let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let built: Snapshot<Types> = rt.block_on(async {
            let mut builder = RaftStateMachine::<Types>::get_snapshot_builder(&mut m).await;
            builder.build_snapshot().await.unwrap()
        });
        assert!(matches!(*built.snapshot, Dump::Empty));
        assert!(
            rt.block_on(RaftStateMachine::<Types>::get_current_snapshot(&mut m))
                .unwrap()
                .is_none()
        );
        std::fs::remove_dir_all(dir).unwrap();
    }
}
