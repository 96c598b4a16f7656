//! The way to the other monitors of the group: openraft's requests become messages that the daemon
//! carries.

use std::future::Future;
use std::time::Duration;

use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{AsyncRuntime, OptionalSend, Snapshot, Vote};
use spirula_denc::encode_to_vec;
use spirula_proto::internal::quorum::{AppendAsk, MonPeer, MonPeerReply, SnapshotPart, VoteAsk};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::store::{At, Dump, StoreError, encode_entry};
use super::{Limits, Node, Runtime, Types, wire};
use crate::kv::Txn;

/// How long a follower may take for a part of a snapshot: the last one is installed with a flush.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(30);
/// Pause before an unreachable monitor is tried again.
const BACKOFF: Duration = Duration::from_millis(150);

/// A request for the daemon to carry. If it cannot deliver it, it drops `answer`.
pub struct Call {
    /// The address of the monitor.
    pub addr: String,
    /// The request.
    pub ask: MonPeer,
    /// Takes the answer.
    pub answer: oneshot::Sender<MonPeerReply>,
}

/// Takes the requests. openraft has at most one to each monitor under way, and one more for each
/// read that is confirmed.
pub type Calls = UnboundedSender<Call>;

/// Makes routes to monitors.
pub(super) struct Peers {
    pub(super) calls: Calls,
    pub(super) limits: Limits,
}

/// The way to one monitor.
pub(super) struct Route {
    target: u64,
    addr: String,
    calls: Calls,
    limits: Limits,
}

impl<R: Runtime> RaftNetworkFactory<Types<R>> for Peers {
    type Network = Route;

    async fn new_client(&mut self, target: u64, node: &Node) -> Route {
        Route {
            target,
            addr: node.addr.clone(),
            calls: self.calls.clone(),
            limits: self.limits,
        }
    }
}

/// Entries that a follower lacks are not in the log any more.
#[derive(Debug, thiserror::Error)]
#[error("the entries were purged meanwhile")]
struct PurgedMeanwhile;

/// Why a request failed on the way.
enum Failure {
    /// No connection, or it broke.
    Gone,
    /// The monitor refused, or answered something else.
    Refused(String),
}

impl Failure {
    fn unreachable(self, addr: &str) -> Unreachable {
        let (kind, text) = match self {
            Self::Gone => (
                std::io::ErrorKind::NotConnected,
                format!("no connection to the monitor at {addr}"),
            ),
            Self::Refused(why) => (
                std::io::ErrorKind::ConnectionRefused,
                format!("the monitor at {addr}: {why}"),
            ),
        };
        Unreachable::new(&std::io::Error::new(kind, text))
    }
}

impl Route {
    async fn call(&self, ask: MonPeer) -> Result<MonPeerReply, Failure> {
        let (answer, reply) = oneshot::channel();
        let call = Call {
            addr: self.addr.clone(),
            ask,
            answer,
        };
        self.calls.send(call).map_err(|_| Failure::Gone)?;
        match reply.await.map_err(|_| Failure::Gone)? {
            MonPeerReply::Refused(r) => Err(Failure::Refused(r.why)),
            reply => Ok(reply),
        }
    }

    fn unexpected(&self) -> Unreachable {
        Failure::Refused("another answer than the one expected".to_owned()).unreachable(&self.addr)
    }

    async fn send_part<R: Runtime>(&self, part: SnapshotPart) -> Result<Vote<u64>, Unreachable> {
        let answer = R::Tasks::timeout(SNAPSHOT_PATIENCE, self.call(MonPeer::Snapshot(part))).await;
        match answer {
            Ok(Ok(MonPeerReply::Snapshot(a))) if a.out_of_order => {
                Err(Failure::Refused("parts of a snapshot out of order".to_owned()).unreachable(&self.addr))
            }
            Ok(Ok(MonPeerReply::Snapshot(a))) => Ok(wire::to_vote(&a.vote)),
            Ok(Ok(_)) => Err(self.unexpected()),
            Ok(Err(f)) => Err(f.unreachable(&self.addr)),
            Err(_) => Err(Failure::Gone.unreachable(&self.addr)),
        }
    }

    /// Sends all parts, one after the other. A higher vote in an answer ends the sending.
    async fn send_snapshot<R: Runtime>(
        &self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types<R>>,
    ) -> Result<Vote<u64>, Streaming<R>> {
        let membership =
            serde_json::to_string(&snapshot.meta.last_membership).map_err(|e| NetworkError::new(&e))?;
        let mut dump = snapshot.snapshot;
        let mut after = None;
        for number in 0.. {
            let (keys, last, back) = read_part::<R>(dump, after, self.limits.part_bytes).await?;
            dump = back;
            let done = last.is_none();
            let part = SnapshotPart {
                target: self.target,
                vote: wire::vote(&vote),
                last: snapshot.meta.last_log_id.as_ref().map(wire::position),
                membership: membership.clone(),
                number,
                done,
                keys: encode_to_vec(&keys).into(),
            };
            let seen = self.send_part::<R>(part).await?;
            if done || seen > vote {
                return Ok(seen);
            }
            after = last;
        }
        Ok(vote)
    }
}

type Streaming<R> = StreamingError<Types<R>, Fatal<u64>>;
type Rpc<T> = Result<T, RPCError<u64, Node, RaftError<u64>>>;

/// Reads the next part of a dump away from the monitor's loop.
async fn read_part<R: Runtime>(
    dump: Box<Dump>,
    after: Option<At>,
    most: usize,
) -> Result<(Txn, Option<At>, Box<Dump>), Streaming<R>> {
    let read = R::blocking(move || -> Result<_, StoreError> {
        let (txn, last) = dump.part(after.as_ref(), most)?;
        Ok((txn, last, dump))
    });
    match read.await {
        Ok(part) => part.map_err(|e| {
            let subject = openraft::ErrorSubject::Snapshot(None);
            Streaming::StorageError(super::log::fault(subject, openraft::ErrorVerb::Read, &e))
        }),
        Err(e) => Err(NetworkError::new(&e).into()),
    }
}

impl<R: Runtime> RaftNetwork<Types<R>> for Route {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types<R>>,
        _option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<u64>> {
        // openraft reads the entries again for each part that it sends. They may have been purged
        // since it chose them, if it took them for unneeded after a request that was lost. It tries
        // another way, a snapshot, when it hears that.
        if !wire::are_consecutive(rpc.prev_log_id.as_ref(), &rpc.entries) {
            return Err(NetworkError::new(&PurgedMeanwhile).into());
        }
        let (mut entries, mut bytes, mut last) = (Vec::new(), 0, None);
        for e in &rpc.entries {
            let encoded = encode_entry(e).map_err(|e| NetworkError::new(&e))?;
            if !entries.is_empty() && bytes + encoded.len() > self.limits.entry_bytes {
                break;
            }
            bytes += encoded.len();
            entries.push(encoded.into());
            last = Some(e.log_id);
        }
        let whole = entries.len() == rpc.entries.len();
        let ask = MonPeer::Append(AppendAsk {
            target: self.target,
            vote: wire::vote(&rpc.vote),
            previous: rpc.prev_log_id.as_ref().map(wire::position),
            commit: rpc.leader_commit.as_ref().map(wire::position),
            entries,
        });
        match self.call(ask).await {
            Ok(MonPeerReply::Append(a)) => Ok(match (a.higher, a.conflict) {
                (Some(v), _) => AppendEntriesResponse::HigherVote(wire::to_vote(&v)),
                (None, true) => AppendEntriesResponse::Conflict,
                (None, false) if whole => AppendEntriesResponse::Success,
                (None, false) => AppendEntriesResponse::PartialSuccess(last),
            }),
            Ok(_) => Err(self.unexpected().into()),
            Err(f) => Err(f.unreachable(&self.addr).into()),
        }
    }

    async fn vote(&mut self, rpc: VoteRequest<u64>, _option: RPCOption) -> Rpc<VoteResponse<u64>> {
        let ask = MonPeer::Vote(VoteAsk {
            target: self.target,
            vote: wire::vote(&rpc.vote),
            last: rpc.last_log_id.as_ref().map(wire::position),
        });
        match self.call(ask).await {
            Ok(MonPeerReply::Vote(a)) => Ok(VoteResponse {
                vote: wire::to_vote(&a.vote),
                vote_granted: a.granted,
                last_log_id: a.last.as_ref().map(wire::to_log_id),
            }),
            Ok(_) => Err(self.unexpected().into()),
            Err(f) => Err(f.unreachable(&self.addr).into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types<R>>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, Streaming<R>> {
        tokio::select! {
            // In order, so that a simulated run can be repeated.
            biased;
            closed = cancel => Err(closed.into()),
            sent = self.send_snapshot(vote, snapshot) => sent.map(SnapshotResponse::new),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}
