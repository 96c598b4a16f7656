//! Messages between monitors: the replicated log's requests, the state of the quorum, and clients'
//! messages on their way to the leader.
//!
//! Each monitor dials every other one, so between two of them there are two connections: on its own
//! a monitor asks ([`MonPeer`]), on the other one it is asked and answers ([`MonPeerReply`], with
//! the request's transaction id).

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{EntityAddr, EntityAddrVec, Error, Fsid, Reader, Result, UTime};
use spirula_maps::Epoch;

use super::{Part, plain_parts, protocol};
use crate::macros::packed;
use crate::{Blob, Body, BytesList, MsgHeader2, RawMessage};

protocol! {
    /// Monitor to monitor.
    ///
    /// - Version 2: that of release 0.1.0.
    /// - Version 3: the header tells which version the sender speaks, and a monitor is written to
    ///   in the newest that both speak.
    pub enum MonPeer: MON_PEER, version 3, oldest 2, priority HIGHEST {
        /// The sender's identity; the first message on a connection. Answered with `Welcome`.
        Hello(MonHello) = 1,
        /// The quorum as the sender sees it. Sent several times a second, not answered.
        State(MonState) = 2,
        /// A request for a vote. Answered with `Vote`.
        Vote(VoteAsk) = 3,
        /// Entries of the log, or none as a sign of life. Answered with `Append`.
        Append(AppendAsk) = 4,
        /// A part of the state, for a monitor that is too far behind for entries. Answered with
        /// `Snapshot`.
        Snapshot(SnapshotPart) = 5,
        /// Make me a member. Sent to the leader again and again until the log says so; not
        /// answered.
        Join(MonHello) = 6,
        /// To the leader: a message of a client. Answers come as `Routed`, as many as there are.
        Forward(Forwarded) = 7,
        /// To the leader: a client whose messages were forwarded has gone.
        Gone(SessionGone) = 8,
        /// To the leader: reserve global ids for me. The log brings them.
        NeedIds(IdsWanted) = 9,
        /// What time is it? Answered with `Time`.
        Time(TimeAsk) = 10,
    }
}

protocol! {
    /// The answers.
    ///
    /// - Version 2: that of release 0.1.0.
    /// - Version 3: as of [`MonPeer`].
    pub enum MonPeerReply: MON_PEER_REPLY, version 3, oldest 2, priority HIGHEST {
        /// To `Hello`.
        Welcome(MonWelcome) = 1,
        /// To `Vote`.
        Vote(VoteAnswer) = 2,
        /// To `Append`.
        Append(AppendAnswer) = 3,
        /// To `Snapshot`.
        Snapshot(SnapshotAnswer) = 4,
        /// Refuses a request of the log that was for another node, or that this node cannot serve.
        Refused(Refusal) = 5,
        /// An answer to a client whose message was forwarded.
        Routed(RoutedReply) = 6,
        /// End the session of a client whose message was forwarded.
        CloseSession(SessionGone) = 7,
        /// To `Time`.
        Time(TimeTold) = 8,
    }
}

packed! {
    /// A monitor.
    pub struct MonHello {
        /// The cluster.
        pub fsid: Fsid,
        /// Its name: `a` in `mon.a`.
        pub name: String,
        /// Its node id in the log's group. Each store gets a new one, so that a monitor that lost
        /// its disk is another node.
        pub node: u64,
        /// Its addresses.
        pub addrs: EntityAddrVec,
    }
}

packed! {
    /// The state of a monitor that was dialled.
    pub struct MonWelcome {
        /// Its name.
        pub name: String,
        /// Its number in the log's group.
        pub node: u64,
        /// The encoded monitor map that it has committed; empty where it is a member of no cluster
        /// yet.
        pub monmap: Blob,
        /// The numbers of the voting members of the log's group, as of the last entry that it has
        /// applied.
        pub nodes: Vec<u64>,
    }
}

packed! {
    /// The quorum as a monitor sees it.
    pub struct MonState {
        /// Its name.
        pub name: String,
        /// Its number in the log's group.
        pub node: u64,
        /// Whether it has the cluster's state; otherwise it waits to be made a member.
        pub member: bool,
        /// The log's term.
        pub term: u64,
        /// The leader's name, empty where there is none.
        pub leader: String,
        /// From the leader only: the names of the monitors in quorum.
        pub quorum: Vec<String>,
        /// From the leader only: since when this quorum exists.
        pub quorum_since: UTime,
        /// Epoch of its monitor map.
        pub monmap_epoch: Epoch,
        /// Its disk in bytes: size, free space, and the size of the store. Zeros if unknown.
        pub disk: Vec<u64>,
        /// `ceph mon metadata`.
        pub metadata: BTreeMap<String, String>,
    }
}

packed! {
    /// A vote in the form of the log's library.
    pub struct LogVote {
        /// The term.
        pub term: u64,
        /// The candidate's node id.
        pub node: u64,
        /// Whether a majority has granted it.
        pub committed: bool,
    }
}

packed! {
    /// The id of an entry of the log.
    pub struct LogPosition {
        /// The term of the leader who proposed it.
        pub term: u64,
        /// The leader's node id.
        pub node: u64,
        /// The index in the log.
        pub index: u64,
    }
}

packed! {
    /// Asks for a vote.
    pub struct VoteAsk {
        /// The node id of the receiver.
        pub target: u64,
        /// The vote asked for.
        pub vote: LogVote,
        /// The last entry of the asking node's log.
        pub last: Option<LogPosition>,
    }
}

packed! {
    /// The answer to [`VoteAsk`].
    pub struct VoteAnswer {
        /// The highest vote that the node has seen.
        pub vote: LogVote,
        /// Whether the vote is granted.
        pub granted: bool,
        /// The last entry of its log.
        pub last: Option<LogPosition>,
    }
}

/// Entries for a follower's log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppendAsk {
    /// The node id of the receiver.
    pub target: u64,
    /// The leader's vote.
    pub vote: LogVote,
    /// The entry before the first one.
    pub previous: Option<LogPosition>,
    /// The last committed entry.
    pub commit: Option<LogPosition>,
    /// The entries as the store keeps them (`mon/src/raft/store.rs`), in the data segment.
    pub entries: Vec<Bytes>,
}

impl Part for AppendAsk {
    fn encode_part(&self, out: &mut Body) {
        out.front.put(&self.target);
        out.front.put(&self.vote);
        out.front.put(&self.previous);
        out.front.put(&self.commit);
        let lengths: Vec<u32> = self.entries.iter().map(|e| e.len() as u32).collect();
        out.front.put(&lengths);
        for e in &self.entries {
            out.data.push(e.clone());
        }
    }

    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        let (target, vote, previous, commit) = (r.get()?, r.get()?, r.get()?, r.get()?);
        let lengths: Vec<u32> = r.get()?;
        let mut at = 0;
        let mut entries = Vec::with_capacity(lengths.len());
        for len in lengths {
            entries.push(slice(&msg.data, &mut at, len)?);
        }
        Ok(Self {
            target,
            vote,
            previous,
            commit,
            entries,
        })
    }
}

/// Takes the next `len` bytes of a data segment.
fn slice(data: &BytesList, at: &mut usize, len: u32) -> Result<Bytes> {
    let len = len as usize;
    let part = data
        .slice(*at, len)
        .ok_or(Error::Invalid("length of a part of the data"))?;
    *at += len;
    Ok(part)
}

packed! {
    /// The answer to [`AppendAsk`].
    pub struct AppendAnswer {
        /// 0: the entries are in the log; 1: the entry before the first one is not.
        pub conflict: bool,
        /// A higher vote than the leader's, which ends its leadership.
        pub higher: Option<LogVote>,
    }
}

/// A part of a snapshot. Parts come in order, one at a time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotPart {
    /// The node id of the receiver.
    pub target: u64,
    /// The leader's vote.
    pub vote: LogVote,
    /// The last entry that the snapshot holds.
    pub last: Option<LogPosition>,
    /// The group's membership as of that entry, as JSON.
    pub membership: String,
    /// The number of the part, from 0; part 0 begins anew.
    pub number: u32,
    /// The last part: install it.
    pub done: bool,
    /// An encoded transaction that sets the part's keys, in the data segment.
    pub keys: Bytes,
}

impl Part for SnapshotPart {
    fn encode_part(&self, out: &mut Body) {
        out.front.put(&self.target);
        out.front.put(&self.vote);
        out.front.put(&self.last);
        out.front.put(&self.membership);
        out.front.put(&self.number);
        out.front.put(&self.done);
        out.data.push(self.keys.clone());
    }

    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        Ok(Self {
            target: r.get()?,
            vote: r.get()?,
            last: r.get()?,
            membership: r.get()?,
            number: r.get()?,
            done: r.get()?,
            keys: msg.data.to_bytes(),
        })
    }
}

packed! {
    /// The answer to [`SnapshotPart`].
    pub struct SnapshotAnswer {
        /// The highest vote that the node has seen.
        pub vote: LogVote,
        /// Whether another part was expected than the one sent: the sender begins anew.
        pub out_of_order: bool,
    }
}

packed! {
    /// Why a request of the log is not served.
    pub struct Refusal {
        /// For the log file.
        pub why: String,
    }
}

packed! {
    /// A client that has a session with the forwarding monitor.
    pub struct ForwardedClient {
        /// The entity: `client.admin`.
        pub name: String,
        /// Its session number.
        pub global_id: u64,
        /// Its monitor capabilities, as text.
        pub caps: String,
        /// Its address as it states it.
        pub addr: EntityAddr,
        /// The address its connection comes from, as text; empty if unknown.
        pub ip: String,
        /// Its features.
        pub features: u64,
        /// Its host, if it has stated it.
        pub host: String,
    }
}

/// A client's message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forwarded {
    /// The forwarding monitor's number for the session.
    pub session: u64,
    /// The sender of the message.
    pub client: ForwardedClient,
    /// The message.
    pub message: RawMessage,
}

impl Part for Forwarded {
    fn encode_part(&self, out: &mut Body) {
        out.front.put(&self.session);
        out.front.put(&self.client);
        put_message(&self.message, out);
    }

    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        Ok(Self {
            session: r.get()?,
            client: r.get()?,
            message: get_message(r, msg)?,
        })
    }
}

/// A message for a client of another monitor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoutedReply {
    /// The client's session, as the forwarding monitor numbered it.
    pub session: u64,
    /// The message.
    pub message: RawMessage,
}

impl Part for RoutedReply {
    fn encode_part(&self, out: &mut Body) {
        out.front.put(&self.session);
        put_message(&self.message, out);
    }

    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        Ok(Self {
            session: r.get()?,
            message: get_message(r, msg)?,
        })
    }
}

/// Carries a message inside another: its header in the front segment, its segments in the data.
fn put_message(m: &RawMessage, out: &mut Body) {
    out.front.put(&m.header);
    out.front.put(&(m.front.len() as u32));
    out.front.put(&(m.middle.len() as u32));
    out.front.put(&(m.data.len() as u32));
    out.data.push(m.front.clone());
    out.data.push(m.middle.clone());
    out.data.extend(&m.data);
}

fn get_message(r: &mut Reader<'_>, msg: &RawMessage) -> Result<RawMessage> {
    let header: MsgHeader2 = r.get()?;
    let (front, middle, data) = (r.u32()?, r.u32()?, r.u32()?);
    let mut at = 0;
    Ok(RawMessage {
        header,
        front: slice(&msg.data, &mut at, front)?,
        middle: slice(&msg.data, &mut at, middle)?,
        data: slice(&msg.data, &mut at, data)?.into(),
    })
}

packed! {
    /// A session that is over, or has to end.
    pub struct SessionGone {
        /// The forwarding monitor's number for it.
        pub session: u64,
    }
}

packed! {
    /// A request for global ids.
    pub struct IdsWanted {
        /// The monitor's name.
        pub name: String,
        /// Identifies the request: a reservation under another number was for an earlier process of
        /// that monitor.
        pub nonce: u64,
    }
}

packed! {
    /// Asks for the time.
    pub struct TimeAsk {
        /// The asking leader's number of the round.
        pub round: u64,
    }
}

packed! {
    /// The answer to [`TimeAsk`].
    pub struct TimeTold {
        /// The wall clock's time.
        pub stamp: UTime,
    }
}

plain_parts!(
    TimeAsk,
    TimeTold,
    MonHello,
    MonWelcome,
    MonState,
    VoteAsk,
    VoteAnswer,
    AppendAnswer,
    SnapshotAnswer,
    Refusal,
    SessionGone,
    IdsWanted,
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MsgType, Payload};

    fn wrapped() -> RawMessage {
        RawMessage {
            header: MsgHeader2 {
                tid: 7,
                kind: MsgType::MON_COMMAND,
                version: 1,
                ..MsgHeader2::default()
            },
            front: Bytes::from_static(b"front"),
            middle: Bytes::new(),
            data: Bytes::from_static(b"data").into(),
        }
    }

    #[test]
    fn a_forwarded_message_arrives_as_it_was() {
        let sent = MonPeer::Forward(Forwarded {
            session: 5,
            client: ForwardedClient {
                name: "client.admin".into(),
                ..ForwardedClient::default()
            },
            message: wrapped(),
        });
        assert_eq!(sent.to_message().decode::<MonPeer>().unwrap(), sent);
        let back = MonPeerReply::Routed(RoutedReply {
            session: 5,
            message: wrapped(),
        });
        assert_eq!(back.to_message().decode::<MonPeerReply>().unwrap(), back);
    }

    #[test]
    fn entries_travel_in_the_data_and_must_be_there() {
        let sent = MonPeer::Append(AppendAsk {
            target: 9,
            entries: vec![Bytes::from_static(b"one"), Bytes::from_static(b"three")],
            previous: Some(LogPosition {
                term: 1,
                node: 2,
                index: 3,
            }),
            ..AppendAsk::default()
        });
        let mut m = sent.to_message();
        assert_eq!(m.data.len(), 8);
        assert_eq!(m.decode::<MonPeer>().unwrap(), sent);
        m.data = Bytes::from_static(b"short").into();
        assert!(m.decode::<MonPeer>().is_err());
    }
}
