//! The seam between the decisions of the op pipeline and the way in which the members of a PG hold
//! its objects.
//!
//! Above it are objects as clients know them: `exec`, the checks of ops, snapshots, watches and
//! classes only write changes and read objects here. Below it are copies: which part of an object a
//! member has, what it lacks, and which members can give it. A backend has no state of its own and
//! does no I/O: its methods return answers, or the messages to be sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_erasure::{FragmentOp, Step, Unit};
use spirula_invariant::{impossible, invariant};
use spirula_maps::{EVersion, Epoch, OsdId, PgId, Positions};
use spirula_proto::RawMessage;

use super::ahead::ticket::Ahead;
use super::coded::gather::Holders;
use super::coded::want::FragmentWant;
use super::config::PgConfig;
use super::fetch::{Pieces, Want};
use super::info::PgInfo;
use super::layout::{Part, Shape};
use super::message::{PeerBody, PeerMessage, PeeringId, RepOp};
use super::output::{Ctx, Output, Reader};
use super::store_queue::{Pending, StoreQueue};
use super::txn::{ObjectOp, Txn};

/// A change that is decided: it has its entry in the log, and goes to all members.
#[derive(Debug)]
pub(super) struct Change {
    /// The PG.
    pub(super) pgid: PgId,
    /// The attempt at peering in which the change is made.
    pub(super) id: PeeringId,
    /// The version before the change.
    pub(super) prev: EVersion,
    /// The change's encoded log entry.
    pub(super) entry: Bytes,
    /// The version up to which members forget their logs.
    pub(super) trim_to: EVersion,
    /// The version up to which everything is durable on all members.
    pub(super) stable: EVersion,
    /// The change of the objects.
    pub(super) txn: Txn,
    /// The other members, by the parts that they hold, if they hold different ones.
    pub(super) holders: Holders,
    /// The part that this OSD holds.
    pub(super) own: Part,
    /// The data of the change that members have already.
    pub(super) ahead: Option<Box<Ahead>>,
}

impl Change {
    /// The message with the change of a member's objects.
    pub(super) fn message(&self, txn: Txn) -> PeerMessage {
        PeerMessage {
            pgid: self.pgid,
            id: self.id,
            body: PeerBody::RepOp(RepOp {
                prev: self.prev,
                entry: self.entry.clone(),
                trim_to: self.trim_to,
                stable: self.stable,
                txn,
            }),
        }
    }
}

/// The messages of a change to the members, to be sent again if a connection is lost.
#[derive(Debug)]
pub(super) struct Sent {
    all: RawMessage,
    /// Members that were sent something else.
    apart: Vec<(OsdId, RawMessage)>,
}

impl Sent {
    /// One message for all members, except those that get one of their own.
    pub(super) fn new(all: RawMessage, apart: Vec<(OsdId, RawMessage)>) -> Self {
        Self { all, apart }
    }

    /// The message that a member was sent.
    pub(super) fn to(&self, member: OsdId) -> &RawMessage {
        let apart = self.apart.iter().find(|(osd, _)| *osd == member);
        apart.map_or(&self.all, |(_, msg)| msg)
    }
}

/// The other members' copies, as they reported them: `None` for no copy.
pub(super) type Copies = BTreeMap<OsdId, Option<PgInfo>>;

/// The newest epoch in which the PG was activated on a copy, complete or not; 0 for never.
pub(super) fn newest_activation(copies: &Copies) -> Epoch {
    let known = copies.values().flatten();
    known.map(|i| i.last_epoch_started).max().unwrap_or_default()
}

/// Sends one message with a change to all other members. Returns the transaction that this OSD
/// itself is to store, and the messages.
pub(super) fn send_to_all(mut change: Change, others: &[(OsdId, EVersion)], cx: &mut Ctx<'_>) -> (Txn, Sent) {
    invariant!(
        change.stable <= change.prev && change.trim_to <= change.prev,
        "a change to come after all that is durable everywhere, and after what leaves the log";
        pg = change.pgid, prev = change.prev, stable = change.stable, trim_to = change.trim_to
    );
    let mut ahead = change.ahead.take();
    let Some((first, _)) = others.first() else {
        if let Some(ahead) = &mut ahead {
            ahead.use_here(&mut change.txn);
        }
        return (change.txn, Sent::new(RawMessage::default(), Vec::new()));
    };
    let txn = std::mem::take(&mut change.txn);
    let message = change.message(txn);
    let edition = cx.versions.to(*first);
    // Members of one edition are sent one message.
    let others_differ = others.iter().filter(|(osd, _)| cx.versions.to(*osd) != edition);
    let apart = others_differ.map(|(osd, _)| (*osd, cx.versions.write(*osd, &message)));
    let sent = Sent::new(cx.versions.write(*first, &message), apart.collect());
    let PeerBody::RepOp(RepOp { mut txn, .. }) = message.body else {
        impossible!("a write to be the message that was made of it"; pg = change.pgid);
    };
    // What is sent again has the data, whatever became of it there.
    let named = ahead
        .as_ref()
        .and_then(|a| Some((a, change.message(a.named(&txn)?))));
    for (osd, _) in others {
        let msg = match &named {
            Some((ahead, message)) if ahead.is_at(*osd) => cx.versions.write(*osd, message),
            _ => sent.to(*osd).clone(),
        };
        let (osd, reply) = (*osd, false);
        cx.out.push(Output::Send { osd, msg, reply });
    }
    if let Some(ahead) = &mut ahead {
        ahead.use_here(&mut txn);
    }
    (txn, sent)
}

/// The way in which the members of a PG hold its objects.
pub(super) trait Backend: Debug + Send + Sync {
    /// The part of each object that each member of an acting set holds, or is to hold: a copy keeps
    /// its part if no other member has the same. `copies`: those that count.
    fn parts(&self, acting: &Positions, copies: &Copies) -> BTreeMap<OsdId, Part>;

    /// Whether these members are enough to serve clients in a pool with this `min_size`.
    fn is_enough(&self, acting: &Positions, min_size: u32) -> bool;

    /// The copy that all others are brought up to, which is the newest complete one, and the member
    /// that has it. Among equals it is a fit one, of the first group that has any. `None` if the
    /// copies are not enough.
    fn authority<'a>(
        &self,
        copies: &'a Copies,
        unfit: &BTreeSet<OsdId>,
        prefer: &[&[OsdId]],
    ) -> Option<(OsdId, &'a PgInfo)>;

    /// Whether the answers of these members of an interval that may have served prove what was
    /// written in it, or that nothing was.
    fn is_proof(&self, acting: &Positions, answered: &dyn Fn(OsdId) -> bool) -> bool;

    /// Whether an OSD's copy has all that the newest one has, so that others can be made of it.
    fn is_current(&self, osd: OsdId, copy: &PgInfo, newest: &PgInfo) -> bool;

    /// Whether a member with a copy like this needs only the newest changes again to have the newest
    /// copy, which it then makes itself.
    fn replays(&self, copy: &PgInfo, newest: &PgInfo) -> bool;

    /// Whether the copies that have all that the newest one has are enough to make any other.
    fn is_whole(&self, copies: &Copies, newest: &PgInfo) -> bool;

    /// The members that may be able to give an object to another one that can't read it, the likeliest
    /// first. `bad`: members that can't read something of it.
    fn givers(&self, acting: &Positions, bad: &BTreeSet<OsdId>) -> Vec<OsdId>;

    /// What a copy that holds this part has of the data of an object: the shape in which it is pushed
    /// to that copy.
    fn shape(&self, part: Part) -> Shape;

    /// The bytes of an object that must be known to make these changes. If another object takes its
    /// place first, it is that one's bytes. `size`: that of the object whose bytes they are.
    fn old(&self, size: u64, ops: &[ObjectOp]) -> Vec<Extent>;

    /// The changes of an object as they go to the members, given those bytes.
    fn code(&self, size: u64, ops: Vec<ObjectOp>, old: &Pieces) -> Vec<ObjectOp>;

    /// The portions in which members stage a change of an object, if it is so large that it is made in
    /// two steps; given the bytes of the object that must be known.
    fn portions(&self, size: u64, ops: &[ObjectOp], old: &Pieces, cfg: &PgConfig) -> Option<Vec<Vec<Step>>>;

    /// What the members that hold these units stage of the steps of such a portion.
    fn staged(&self, steps: &[Step], units: &[Unit]) -> BTreeMap<Unit, Vec<FragmentOp>>;

    /// The changes of an object as they go to the members, where the most is staged in the object
    /// with this key. `None`: it was staged in this object itself.
    fn take(&self, size: u64, ops: Vec<ObjectOp>, old: &Pieces, stage: Option<Bytes>) -> Vec<ObjectOp>;

    /// Sends a change to the other members. Returns the transaction that this OSD itself is to
    /// store, and the messages.
    fn write(&self, change: Change, others: &[(OsdId, EVersion)], cx: &mut Ctx<'_>) -> (Txn, Sent);

    /// Reads parts of an object, for a client or the PG itself. Returns the questions to other
    /// members.
    fn read(
        &self,
        key: Bytes,
        wants: Vec<Want>,
        reader: Option<Reader>,
        what: Pending,
        store: &mut StoreQueue,
        cx: &mut Ctx<'_>,
    ) -> Vec<(OsdId, FragmentWant)>;

    /// Reads parts of an object as a copy of this shape has it, for a push or a repair, from these
    /// members. Returns the questions to other members.
    fn read_as(
        &self,
        of: (Shape, Holders),
        read: (Bytes, Vec<Want>),
        what: Pending,
        store: &mut StoreQueue,
        cx: &mut Ctx<'_>,
    ) -> Vec<(OsdId, FragmentWant)>;
}
