//! The way to the other monitors of the group.
//!
//! The group has one member so far, so openraft never calls these; a peer that it is told of is unreachable.

use std::future::Future;

use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend, Snapshot, Vote};

use super::Types;

/// Makes connections to peers.
pub(super) struct Peers;

/// A peer that no transport leads to.
pub(super) struct NoRoute {
    addr: String,
}

impl NoRoute {
    fn error(&self) -> Unreachable {
        Unreachable::new(&std::io::Error::new(
            std::io::ErrorKind::NetworkUnreachable,
            format!("no transport to monitor at {}", self.addr),
        ))
    }
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = NoRoute;

    async fn new_client(&mut self, _target: u64, node: &BasicNode) -> NoRoute {
        NoRoute {
            addr: node.addr.clone(),
        }
    }
}

type Rpc<T> = Result<T, RPCError<u64, BasicNode, RaftError<u64>>>;

impl RaftNetwork<Types> for NoRoute {
    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<u64>> {
        Err(self.error().into())
    }

    async fn vote(&mut self, _rpc: VoteRequest<u64>, _option: RPCOption) -> Rpc<VoteResponse<u64>> {
        Err(self.error().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote<u64>,
        _snapshot: Snapshot<Types>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        Err(self.error().into())
    }
}
