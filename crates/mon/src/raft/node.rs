//! One running member of the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
use openraft::{
    AsyncRuntime, ChangeMembers, Config, RaftMetrics, Snapshot, SnapshotMeta, SnapshotPolicy,
    StoredMembership,
};
use spirula_denc::decode_all;
use spirula_proto::internal::quorum::{
    AppendAnswer, AppendAsk, SnapshotAnswer, SnapshotPart, VoteAnswer, VoteAsk,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Mutex, watch};

use super::machine::{Applied, Machine};
use super::network::{Calls, Peers};
use super::store::{Dump, Store, StoreError, decode_entry};
use super::{Limits, Node, Runtime, Tokio, TxnData, Types, wire};
use crate::kv::Txn;

/// How often the leader gives a sign of life, and how long a request of the log may take, in
/// milliseconds. The library waits for the flush of the entries that it appends before it does
/// anything else, so this has to cover a slow disk's.
const HEARTBEAT_MS: u64 = 250;
/// Followers wait for [`ELECTION_MAX_MS`], and then for a time between these, before they elect
/// another leader.
const ELECTION_MIN_MS: u64 = 300;
const ELECTION_MAX_MS: u64 = 800;

/// How long a new member may take to catch up before the leader turns to other things, and tries
/// again later.
const CATCH_UP: Duration = Duration::from_secs(60);

/// The group cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A peer sent a message that does not decode.
    #[error("from a monitor: {0}")]
    Peer(String),
    /// This monitor does not lead, or leads no majority: nothing was committed, or it is not known
    /// yet.
    #[error("this monitor does not lead")]
    NotLeader,
    /// openraft refused or stopped.
    #[error("replicated log: {0}")]
    Raft(String),
}

/// The group as the node knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// The term.
    pub term: u64,
    /// The leader's number, if there is one.
    pub leader: Option<u64>,
    /// Whether this node leads.
    pub leads: bool,
    /// The voting members.
    pub voters: BTreeMap<u64, Node>,
    /// The other members: new ones that catch up.
    pub learners: BTreeMap<u64, Node>,
    /// Whether members are being exchanged: the change before has to be finished first.
    pub changing: bool,
    /// Why the node stopped.
    pub failed: Option<String>,
}

/// A snapshot on its way in.
struct Incoming {
    part: SnapshotPart,
    next: u32,
}

/// Handle of the running node. Cheap to clone.
#[derive(Clone)]
pub struct Raft<R: Runtime = Tokio> {
    id: u64,
    raft: openraft::Raft<Types<R>>,
    store: Store,
    incoming: Arc<Mutex<Option<Incoming>>>,
}

impl Raft {
    /// Starts the node on tokio, whose runtime needs time enabled; disk flushes run on its blocking
    /// threads. See [`Raft::start_on`].
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub async fn start(store: Store, calls: Calls) -> Result<(Self, UnboundedReceiver<Applied>), Error> {
        Self::start_on(store, calls, Limits::default()).await
    }
}

impl<R: Runtime> Raft<R> {
    /// Starts the node over `store`, whose number it takes. Its requests to other members go to
    /// `calls`.
    ///
    /// Everything that commits, also from before a crash, is reported through the receiver in log
    /// order.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub async fn start_on(
        store: Store,
        calls: Calls,
        limits: Limits,
    ) -> Result<(Self, UnboundedReceiver<Applied>), Error> {
        let config = Config {
            cluster_name: "spirula".to_owned(),
            heartbeat_interval: HEARTBEAT_MS,
            election_timeout_min: ELECTION_MIN_MS,
            election_timeout_max: ELECTION_MAX_MS,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(limits.keep_entries),
            max_in_snapshot_log_to_keep: limits.keep_entries,
            replication_lag_threshold: limits.near_entries,
            ..config_defaults()?
        };
        let config = config.validate().map_err(raft_error)?;
        let (tx, rx) = unbounded_channel();
        let machine = Machine::new(store.clone(), tx)?;
        let id = store.node()?;
        let peers = Peers { calls, limits };
        let raft = openraft::Raft::new(id, Arc::new(config), peers, store.clone(), machine)
            .await
            .map_err(raft_error)?;
        // Only after this answer the metrics show the state that was read from the disk.
        raft.with_raft_state(|_| ()).await.map_err(raft_error)?;
        let node = Self {
            id,
            raft,
            store,
            incoming: Arc::default(),
        };
        Ok((node, rx))
    }

    /// This node's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether the node belongs to a group.
    pub async fn is_initialized(&self) -> Result<bool, Error> {
        self.raft.is_initialized().await.map_err(raft_error)
    }

    /// Makes the node the only member of a new group, unless it belongs to one.
    pub async fn found(&self, me: Node) -> Result<(), Error> {
        if self.is_initialized().await? {
            return Ok(());
        }
        let members = BTreeMap::from([(self.id, me)]);
        self.raft.initialize(members).await.map_err(raft_error)?;
        let id = self.id;
        self.raft
            .wait(Some(Duration::from_secs(30)))
            .metrics(
                |m| m.membership_config.voter_ids().eq([id]),
                "membership of a new group",
            )
            .await
            .map_err(raft_error)?;
        Ok(())
    }

    /// Leads a group of one, whose only member cannot be outvoted. Returns at once in other groups.
    pub async fn lead_alone(&self) -> Result<(), Error> {
        if !self.is_alone() {
            return Ok(());
        }
        // Nobody else could lead: do not sit out the election timeout.
        self.raft.trigger().elect().await.map_err(raft_error)?;
        let id = self.id;
        self.raft
            .wait(Some(Duration::from_secs(30)))
            .metrics(|m| m.current_leader == Some(id), "leadership of a group of one")
            .await
            .map_err(raft_error)?;
        self.barrier().await
    }

    /// Waits until everything in the log is committed and applied. A leader needs that before it
    /// decides anything: a restarted leader leads on in its old term, and entries that it had
    /// proposed and even acknowledged before may be in its log only.
    pub async fn barrier(&self) -> Result<(), Error> {
        self.propose(Arc::default()).await.map(drop)
    }

    /// Whether this node is alone in its group.
    pub fn is_alone(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        metrics.membership_config.voter_ids().eq([self.id])
    }

    /// Replicates a transaction; returns its index when it is committed, durable and applied.
    pub async fn propose(&self, txn: Arc<Txn>) -> Result<u64, Error> {
        match self.raft.client_write(TxnData(txn)).await {
            Ok(done) => Ok(done.log_id.index),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => Err(Error::NotLeader),
            Err(e) => Err(raft_error(e)),
        }
    }

    /// Makes sure that this node leads now, and has applied everything that was committed before;
    /// only after a [`Raft::barrier`].
    pub async fn confirm(&self) -> Result<(), Error> {
        match self.raft.ensure_linearizable().await {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(
                CheckIsLeaderError::ForwardToLeader(_) | CheckIsLeaderError::QuorumNotEnough(_),
            )) => Err(Error::NotLeader),
            Err(e) => Err(raft_error(e)),
        }
    }

    /// Sets whether the node may call an election. A node that reaches no majority must not: it
    /// would only raise the term, and depose the leader when it is back.
    pub fn allow_elections(&self, allowed: bool) {
        self.raft.runtime_config().elect(allowed);
    }

    /// The group as the node knows it.
    pub fn view(&self) -> View {
        let metrics = self.raft.metrics();
        let m: &RaftMetrics<u64, Node> = &metrics.borrow();
        let membership = m.membership_config.membership();
        let voters: BTreeSet<u64> = m.membership_config.voter_ids().collect();
        let mut view = View {
            term: m.current_term,
            leader: m.current_leader,
            leads: m.current_leader == Some(self.id) && m.state.is_leader(),
            changing: membership.get_joint_config().len() > 1,
            failed: m.running_state.as_ref().err().map(ToString::to_string),
            ..View::default()
        };
        for (id, node) in m.membership_config.nodes() {
            let list = match voters.contains(id) {
                true => &mut view.voters,
                false => &mut view.learners,
            };
            list.insert(*id, node.clone());
        }
        view
    }

    /// The voting members as of the last applied entry. Those of [`Raft::view`] may be of an entry
    /// that only this node has, and be undone.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn settled_voters(&self) -> Result<BTreeSet<u64>, Error> {
        Ok(self.store.applied()?.membership.voter_ids().collect())
    }

    /// Notifies of every change of [`Raft::view`], and of more.
    pub fn watch(&self) -> watch::Receiver<RaftMetrics<u64, Node>> {
        self.raft.metrics()
    }

    /// Makes a node a voting member once it has caught up, in place of `instead`.
    pub async fn admit(&self, id: u64, node: Node, instead: &BTreeSet<u64>) -> Result<(), Error> {
        let learn = self.raft.add_learner(id, node, true);
        match R::Tasks::timeout(CATCH_UP, learn).await {
            Ok(done) => done.map_err(raft_error)?,
            Err(_) => return Err(Error::Raft(format!("node {id} does not catch up"))),
        };
        let voters = self.view().voters;
        let stay = voters.keys().copied().filter(|v| !instead.contains(v));
        let next: BTreeSet<u64> = stay.chain([id]).collect();
        self.change(ChangeMembers::ReplaceAllVoters(next)).await
    }

    /// Removes members, voting or not.
    pub async fn expel(&self, ids: &BTreeSet<u64>) -> Result<(), Error> {
        let view = self.view();
        let voting: BTreeSet<u64> = ids
            .iter()
            .copied()
            .filter(|i| view.voters.contains_key(i))
            .collect();
        if !voting.is_empty() {
            self.change(ChangeMembers::RemoveVoters(voting)).await?;
        }
        let rest: BTreeSet<u64> = ids
            .iter()
            .copied()
            .filter(|i| view.learners.contains_key(i))
            .collect();
        match rest.is_empty() {
            true => Ok(()),
            false => self.change(ChangeMembers::RemoveNodes(rest)).await,
        }
    }

    /// Finishes an exchange of members that another leader began.
    pub async fn settle(&self) -> Result<(), Error> {
        let next: BTreeSet<u64> = {
            let metrics = self.raft.metrics();
            let m: &RaftMetrics<u64, Node> = &metrics.borrow();
            let joint = m.membership_config.membership().get_joint_config();
            joint.last().cloned().unwrap_or_default()
        };
        self.change(ChangeMembers::ReplaceAllVoters(next)).await
    }

    /// Renames this node: groups of one were made without names once.
    pub async fn rename(&self, me: Node) -> Result<(), Error> {
        let nodes = BTreeMap::from([(self.id, me)]);
        self.change(ChangeMembers::SetNodes(nodes)).await
    }

    async fn change(&self, change: ChangeMembers<u64, Node>) -> Result<(), Error> {
        let done = self.raft.change_membership(change, false).await;
        done.map(drop).map_err(raft_error)
    }

    /// Answers another member's request for a vote.
    pub async fn handle_vote(&self, ask: &VoteAsk) -> Result<VoteAnswer, Error> {
        let request = VoteRequest {
            vote: wire::to_vote(&ask.vote),
            last_log_id: ask.last.as_ref().map(wire::to_log_id),
        };
        let answer = self.raft.vote(request).await.map_err(raft_error)?;
        Ok(VoteAnswer {
            vote: wire::vote(&answer.vote),
            granted: answer.vote_granted,
            last: answer.last_log_id.as_ref().map(wire::position),
        })
    }

    /// Appends entries from the leader; they are durable when this returns.
    pub async fn handle_append(&self, ask: &AppendAsk) -> Result<AppendAnswer, Error> {
        let entries: Result<Vec<_>, StoreError> = ask.entries.iter().map(|e| decode_entry(e)).collect();
        let entries = entries.map_err(|e| Error::Peer(e.to_string()))?;
        let previous = ask.previous.as_ref().map(wire::to_log_id);
        // openraft takes them as they come.
        if !wire::are_consecutive(previous.as_ref(), &entries) {
            return Err(Error::Peer("entries that do not follow each other".to_owned()));
        }
        let request = AppendEntriesRequest {
            vote: wire::to_vote(&ask.vote),
            prev_log_id: previous,
            entries,
            leader_commit: ask.commit.as_ref().map(wire::to_log_id),
        };
        let answer = self.raft.append_entries(request).await.map_err(raft_error)?;
        Ok(match answer {
            AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_) => {
                AppendAnswer::default()
            }
            AppendEntriesResponse::Conflict => AppendAnswer {
                conflict: true,
                higher: None,
            },
            AppendEntriesResponse::HigherVote(v) => AppendAnswer {
                conflict: false,
                higher: Some(wire::vote(&v)),
            },
        })
    }

    /// Receives a part of the leader's state, which replaces this node's with the last part.
    pub async fn handle_snapshot(&self, part: SnapshotPart) -> Result<SnapshotAnswer, Error> {
        let mut incoming = self.incoming.lock().await;
        let expected = match incoming.as_ref() {
            Some(i) if part.number > 0 && (&i.part.vote, &i.part.last) == (&part.vote, &part.last) => i.next,
            _ => 0,
        };
        if part.number != expected {
            return Ok(SnapshotAnswer {
                vote: part.vote,
                out_of_order: true,
            });
        }
        let keys: Txn = decode_all(&part.keys).map_err(|e| Error::Peer(e.to_string()))?;
        let last = part.last.as_ref().map(wire::to_log_id);
        let (store, first) = (self.store.clone(), part.number == 0);
        let staged = R::blocking(move || store.stage(last, &keys, first)).await;
        staged.map_err(raft_error)??;
        if !part.done {
            let answer = SnapshotAnswer {
                vote: part.vote.clone(),
                out_of_order: false,
            };
            let next = expected + 1;
            *incoming = Some(Incoming { part, next });
            return Ok(answer);
        }
        *incoming = None;
        let membership: StoredMembership<u64, Node> =
            serde_json::from_str(&part.membership).map_err(|e| Error::Peer(e.to_string()))?;
        let snapshot = Snapshot {
            meta: SnapshotMeta {
                last_log_id: last,
                last_membership: membership,
                snapshot_id: format!("{}", last.map_or(0, |id| id.index)),
            },
            snapshot: Box::new(Dump::Staged),
        };
        tracing::info!(
            "taking the leader's state as of entry {}",
            snapshot.meta.snapshot_id
        );
        let vote = wire::to_vote(&part.vote);
        let answer = self.raft.install_full_snapshot(vote, snapshot).await;
        Ok(SnapshotAnswer {
            vote: wire::vote(&answer.map_err(raft_error)?.vote),
            out_of_order: false,
        })
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
