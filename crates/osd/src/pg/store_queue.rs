//! A PG's calls to the store that are not answered: transactions in their order, and questions.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_denc::Micros;
use spirula_invariant::invariant;
use spirula_maps::{EVersion, OsdId};

use super::fetch::Want;
use super::key::KeyRange;
use super::list::Listing;
use super::message::PeeringId;
use super::op::ClientOp;
use super::output::{Claim, Ctx, Output, Reader, Token};
use super::reading::Reading;
use super::repair::Asked;
use super::txn::Txn;

/// The purpose of a transaction.
#[derive(Debug)]
pub(super) enum Commit {
    /// A write of this version, as primary or replica.
    Write(EVersion),
    /// A push that the holder waits for.
    Push {
        id: PeeringId,
        source: OsdId,
        /// The object, if parts of it are stored already.
        begun: Option<Bytes>,
    },
    /// The activation of an attempt at peering.
    Activate { id: PeeringId, primary: OsdId },
    /// A step of deleting the PG.
    Delete,
    /// Part of the object that the repair with this number makes whole.
    Repair(u32),
    /// A transaction that nothing waits for.
    Record,
}

/// The purpose of a question to the store.
#[derive(Debug)]
pub(super) enum Pending {
    /// The object of a context.
    Context(Bytes),
    /// The reads of a client op.
    Op(Box<Reading>),
    /// A listing for a client.
    List(Box<Listing>),
    /// A step of a feed to a sync target.
    Source(usize),
    /// A target's own objects in a scanned range.
    Target,
    /// The target's own clone that a push replaces.
    TargetClone(Bytes),
    /// Objects to delete.
    Delete,
    /// Objects to count.
    Count,
    /// Clones of a removed snapshot.
    Trim,
    /// A clone to be trimmed.
    TrimClone(Bytes),
    /// Omap pairs for the staging object that an op waits for.
    Stage(u32),
    /// Part of an object that another member repairs.
    Repair(Box<Asked>),
}

impl Pending {
    /// The client's op that waits for the answer.
    pub(super) fn op(&self) -> Option<&ClientOp> {
        match self {
            Self::Op(r) => Some(&r.op),
            Self::List(l) => Some(&l.op),
            _ => None,
        }
    }

    /// The client's op that waited for the answer.
    pub(super) fn into_op(self) -> Option<ClientOp> {
        match self {
            Self::Op(r) => Some(r.op),
            Self::List(l) => Some(l.op),
            _ => None,
        }
    }
}

/// A PG's requests to the store.
#[derive(Debug)]
pub(super) struct StoreQueue {
    slot: u32,
    next_seq: u32,
    /// Transactions that are not durable: number, time of submission, purpose.
    pub(super) commits: VecDeque<(u32, Micros, Commit)>,
    /// Questions that are not answered.
    pub(super) pending: HashMap<u32, Pending>,
}

impl StoreQueue {
    /// The queue of the PG in this slot of its reactor.
    pub(super) fn new(slot: u32) -> Self {
        Self {
            slot,
            next_seq: 0,
            commits: VecDeque::new(),
            pending: HashMap::new(),
        }
    }

    fn seq(&mut self) -> u32 {
        self.next_seq = self.next_seq.wrapping_add(1);
        self.next_seq
    }

    /// The token of a question that is about to be asked.
    pub(super) fn token(&mut self, what: Pending) -> Token {
        let seq = self.seq();
        let other = self.pending.insert(seq, what);
        invariant!(other.is_none(), "a question to have a number of its own"; seq = seq);
        Token::new(self.slot, seq)
    }

    /// Submits a transaction that is stored in any case.
    pub(super) fn submit(&mut self, txn: Txn, what: Commit, cx: &mut Ctx<'_>) {
        self.submit_claim(txn, Claim::All, what, cx);
    }

    /// Submits a transaction.
    pub(super) fn submit_claim(&mut self, txn: Txn, claim: Claim, what: Commit, cx: &mut Ctx<'_>) {
        let seq = self.seq();
        if let Commit::Write(version) = &what {
            let is_older = |c: &Commit| !matches!(c, Commit::Write(v) if v >= version);
            invariant!(
                self.commits.iter().rev().take(2).all(|(_, _, c)| is_older(c)),
                "writes to be submitted in the order of their versions";
                version = version, seq = seq
            );
        }
        self.commits.push_back((seq, cx.usec, what));
        cx.out.push(Output::Submit {
            token: Token::new(self.slot, seq),
            txn,
            claim,
        });
    }

    /// Submits a transaction that nothing waits for, if it changes anything.
    pub(super) fn record(&mut self, txn: Txn, cx: &mut Ctx<'_>) {
        if !txn.is_empty() {
            self.submit(txn, Commit::Record, cx);
        }
    }

    /// Looks an object up.
    pub(super) fn look_up(&mut self, key: Bytes, what: Pending, cx: &mut Ctx<'_>) {
        let token = self.token(what);
        cx.out.push(Output::Lookup { token, key });
    }

    /// Looks an object up for its context.
    pub(super) fn look_up_context(&mut self, head: Bytes, cx: &mut Ctx<'_>) {
        self.look_up(head.clone(), Pending::Context(head), cx);
    }

    /// Reads parts of an object, for a client or the PG itself.
    pub(super) fn read(
        &mut self,
        key: Bytes,
        wants: Vec<Want>,
        reader: Option<Reader>,
        what: Pending,
        cx: &mut Ctx<'_>,
    ) {
        let token = self.token(what);
        cx.out.push(Output::Read {
            token,
            key,
            wants,
            reader,
        });
    }

    /// Lists objects in a range of keys.
    pub(super) fn list(&mut self, range: KeyRange, max: usize, what: Pending, cx: &mut Ctx<'_>) {
        let (token, KeyRange { from, to }) = (self.token(what), range);
        cx.out.push(Output::List { token, from, to, max });
    }

    /// Forgets the questions of an earlier attempt at peering, whose answers mean nothing any more.
    pub(super) fn forget_attempt(&mut self) {
        self.pending.retain(|_, p| {
            !matches!(
                p,
                Pending::Source(_)
                    | Pending::Target
                    | Pending::TargetClone(_)
                    | Pending::Count
                    | Pending::Repair(_)
            )
        });
    }
}
