//! A PG's calls to the store that are not answered: transactions in their order, and questions.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_denc::Micros;
use spirula_invariant::{impossible, invariant};
use spirula_maps::{EVersion, OsdId};

use super::account::Room;
use super::ahead::placed::AskedToPlace;
use super::coded::fold::{Folds, Fragments};
use super::coded::gather::{Ask, Gathers, Holders};
use super::coded::want::FragmentWant;
use super::fetch::{Fetched, Pieces, ReadError, Want};
use super::key::KeyRange;
use super::layout::{Layout, Part, Shape};
use super::list::Listing;
use super::message::PeeringId;
use super::op::ClientOp;
use super::output::{Claim, Ctx, Output, Reader, Token};
use super::reading::Reading;
use super::repair::Asked;
use super::scrub::asked::FindingsAsked;
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
    /// This OSD's share of the data that is gathered for a question, with its round.
    Gather(u32, u32),
    /// Part of a fragment for another member.
    Fragment(Box<FragmentAsked>),
    /// Objects that this member gives account of.
    Account,
    /// The next objects to be scrubbed.
    Scrub,
    /// What a scrub has found, for members that do not know it.
    FindingsToTell,
    /// What a scrub has found, for a client.
    Findings(Box<FindingsAsked>),
    /// Data that goes to the members ahead of a change, by its number.
    Ahead(u32),
    /// Data that a primary has this OSD place.
    AheadOf(AskedToPlace),
}

impl Pending {
    /// The client's op that waits for the answer.
    pub(super) fn op(&self) -> Option<&ClientOp> {
        match self {
            Self::Op(r) => Some(&r.op),
            Self::List(l) => Some(&l.op),
            Self::Findings(asked) => Some(&asked.op),
            _ => None,
        }
    }

    /// The client's op that waited for the answer.
    pub(super) fn into_op(self) -> Option<ClientOp> {
        match self {
            Self::Op(r) => Some(r.op),
            Self::List(l) => Some(l.op),
            Self::Findings(asked) => Some(asked.op),
            _ => None,
        }
    }
}

/// Part of a fragment that another member asked for.
#[derive(Debug)]
pub(super) struct FragmentAsked {
    pub(super) by: OsdId,
    /// The object's key.
    pub(super) key: Bytes,
    /// The attempt at peering in which it was asked.
    pub(super) id: PeeringId,
    /// The member's question and its round.
    pub(super) number: (u32, u32),
}

/// What comes of a share of the data of a question.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Questions to members.
    pub(super) asks: Vec<(OsdId, FragmentWant)>,
    /// The question, its answers and the room that they take, once all data is there.
    pub(super) answers: Option<(Token, Vec<Fetched>, Room)>,
    /// Whether nobody waits for the share any more.
    pub(super) late: bool,
    /// The object, if this OSD can't read its fragment.
    pub(super) unreadable: Option<Bytes>,
}

impl Gathered {
    /// Nothing, as nobody waits for the share.
    fn late() -> Self {
        Self {
            late: true,
            ..Self::default()
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
    /// What this copy's fragments are, if objects are coded.
    pub(super) fragments: Option<Fragments>,
    /// Calls that wait for a fragment to be read.
    pub(super) folds: Folds,
    /// Data that is gathered from several members.
    pub(super) gathers: Gathers,
}

impl StoreQueue {
    /// The queue of the PG in this slot of its reactor.
    pub(super) fn new(slot: u32) -> Self {
        Self {
            slot,
            next_seq: 0,
            commits: VecDeque::new(),
            pending: HashMap::new(),
            fragments: None,
            folds: Folds::default(),
            gathers: Gathers::default(),
        }
    }

    fn seq(&mut self) -> u32 {
        self.next_seq = self.next_seq.wrapping_add(1);
        self.next_seq
    }

    /// A number that no question has, nor other data that goes ahead of changes.
    pub(super) fn number(&mut self) -> u32 {
        self.seq()
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
    pub(super) fn submit_claim(&mut self, mut txn: Txn, claim: Claim, what: Commit, cx: &mut Ctx<'_>) {
        let seq = self.seq();
        if let Commit::Write(version) = &what {
            let is_older = |c: &Commit| !matches!(c, Commit::Write(v) if v >= version);
            invariant!(
                self.commits.iter().rev().take(2).all(|(_, _, c)| is_older(c)),
                "writes to be submitted in the order of their versions";
                version = version, seq = seq
            );
        }
        if let Commit::Write(version) = &what {
            self.gathers.at = *version;
        }
        self.commits.push_back((seq, cx.usec, what));
        let token = Token::new(self.slot, seq);
        let adds = self
            .fragments
            .as_ref()
            .map_or_else(Vec::new, |f| f.carry_out(&mut txn));
        if adds.is_empty() {
            return self.call(Output::Submit { token, txn, claim }, cx);
        }
        self.folds.push_adding(token, claim, txn, adds);
        self.call_on(cx);
    }

    /// Submits a transaction that nothing waits for, if it changes anything.
    pub(super) fn record(&mut self, txn: Txn, cx: &mut Ctx<'_>) {
        if !txn.is_empty() {
            self.submit(txn, Commit::Record, cx);
        }
    }

    /// Calls the store, after the calls that wait.
    fn call(&mut self, call: Output, cx: &mut Ctx<'_>) {
        if self.folds.is_empty() {
            cx.out.push(call);
        } else {
            self.folds.push(call);
        }
    }

    /// Goes on with the calls that wait, as far as possible.
    fn call_on(&mut self, cx: &mut Ctx<'_>) {
        while let Some(call) = self.folds.pop() {
            cx.out.push(call);
        }
        if self.folds.reading.is_none()
            && let Some(read) = self.folds.wanted()
        {
            let seq = self.seq();
            self.folds.reading = Some(seq);
            cx.out.push(Output::Read {
                token: Token::new(self.slot, seq),
                key: read.key,
                wants: read.wants,
                reader: None,
                has_room: true,
            });
        }
    }

    /// Takes the answer to the read that the first of the waiting calls needs. Returns the object of
    /// which something can't be read.
    pub(super) fn fold(&mut self, answers: Vec<Fetched>, cx: &mut Ctx<'_>) -> Option<Bytes> {
        let unreadable = self.folds.read(answers);
        self.call_on(cx);
        unreadable
    }

    /// Goes on after the calls of the PG that this one was split off from have gone out.
    pub(super) fn go(&mut self, cx: &mut Ctx<'_>) {
        self.folds.go();
        self.call_on(cx);
    }

    /// Looks an object up.
    pub(super) fn look_up(&mut self, key: Bytes, what: Pending, cx: &mut Ctx<'_>) {
        let token = self.token(what);
        self.call(Output::Lookup { token, key }, cx);
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
        let read = Output::Read {
            token,
            key,
            wants,
            reader,
            has_room: false,
        };
        self.call(read, cx);
    }

    /// Reads parts of an object for which room was taken, here or by the member that asks.
    pub(super) fn read_with_room(&mut self, key: Bytes, wants: Vec<Want>, what: Pending, cx: &mut Ctx<'_>) {
        let token = self.token(what);
        let read = Output::Read {
            token,
            key,
            wants,
            reader: None,
            has_room: true,
        };
        self.call(read, cx);
    }

    /// Lists objects in a range of keys.
    pub(super) fn list(&mut self, range: KeyRange, max: usize, what: Pending, cx: &mut Ctx<'_>) {
        let (token, KeyRange { from, to }) = (self.token(what), range);
        self.call(Output::List { token, from, to, max }, cx);
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
                    | Pending::FindingsToTell
                    | Pending::Repair(_)
                    | Pending::Account
                    | Pending::Scrub
                    | Pending::Ahead(_)
                    | Pending::AheadOf(_)
            )
        });
        self.gathers.clear();
    }

    /// Forgets the questions that `taken` chooses; returns the ops that asked them, in their order.
    pub(super) fn take_ops(&mut self, taken: impl Fn(&Pending) -> bool) -> Vec<ClientOp> {
        let mut taken: Vec<_> = self.pending.extract_if(|_, p| taken(p)).collect();
        taken.sort_unstable_by_key(|(seq, _)| *seq);
        taken.into_iter().filter_map(|(_, p)| p.into_op()).collect()
    }

    /// Reads parts of an object, or of a fragment, whose data is in the fragments of several members.
    /// Returns the questions to members.
    pub(super) fn gather(
        &mut self,
        (key, wants): (Bytes, Vec<Want>),
        of: (Shape, Holders),
        reader: Option<Reader>,
        what: Pending,
        cx: &mut Ctx<'_>,
    ) -> Vec<(OsdId, FragmentWant)> {
        let Some(fragments) = &self.fragments else {
            impossible!("a copy whose objects are coded to know of what it has"; key = format!("{key:?}"));
        };
        let (own, seq) = (fragments.clone(), self.token(what).seq());
        let asks = self.gathers.begin(seq, (key, wants), of, &own);
        self.ask(asks, reader, cx)
    }

    /// How this copy holds objects.
    pub(super) fn layout(&self) -> Layout {
        let of = |f: &Fragments| Layout::Coded(f.layout);
        self.fragments.as_ref().map_or(Layout::Whole, of)
    }

    /// The parts that the members hold that objects are gathered from, this OSD (`me`) among them;
    /// none if all hold the same.
    pub(super) fn parts(&self, me: OsdId) -> Vec<(OsdId, Part)> {
        let Some(own) = &self.fragments else {
            return Vec::new();
        };
        let others = self.gathers.members.iter().map(|(unit, osd)| (*osd, *unit));
        let all = others.chain([(me, own.unit)]);
        all.filter_map(|(osd, unit)| Some((osd, own.part_of(unit)?)))
            .collect()
    }

    /// Asks this OSD's store; `reader` is the client, if room is to be taken. Returns the questions
    /// to members.
    fn ask(
        &mut self,
        asks: Vec<Ask>,
        mut reader: Option<Reader>,
        cx: &mut Ctx<'_>,
    ) -> Vec<(OsdId, FragmentWant)> {
        let mut members = Vec::new();
        for ask in asks {
            match ask {
                Ask::Here {
                    number,
                    key,
                    wants,
                    has_room,
                } => {
                    let what = Pending::Gather(number.0, number.1);
                    match has_room {
                        true => self.read_with_room(key, wants, what, cx),
                        false => self.read(key, wants, reader.take(), what, cx),
                    }
                }
                Ask::Member(osd, want) => members.push((osd, want)),
            }
        }
        members
    }

    /// Takes this OSD's share of the data of a question.
    pub(super) fn gathered_here(
        &mut self,
        number: (u32, u32),
        (answers, room): (Vec<Fetched>, Room),
        cx: &mut Ctx<'_>,
    ) -> Gathered {
        let Some(own) = self.fragments.clone() else {
            return Gathered::late();
        };
        let is_bad = answers.iter().any(|f| f.answer.is_err());
        let unreadable = self.gathers.object(number.0).filter(|_| is_bad).cloned();
        let asks = self.gathers.read_here(number, answers, room, &own);
        Gathered {
            unreadable,
            ..self.gather_on(number, asks, &own, cx)
        }
    }

    /// Takes a member's share of the data of a question.
    pub(super) fn gathered(
        &mut self,
        from: OsdId,
        number: (u32, u32),
        found: Option<Pieces>,
        cx: &mut Ctx<'_>,
    ) -> Gathered {
        let unit = self.gathers.unit_of(from, number.0);
        let Some((own, unit)) = self.fragments.clone().zip(unit) else {
            return Gathered::late();
        };
        let asks = self.gathers.took(number, unit, found.ok_or(ReadError), &own);
        self.gather_on(number, asks, &own, cx)
    }

    fn gather_on(
        &mut self,
        number: (u32, u32),
        asks: Option<Vec<Ask>>,
        own: &Fragments,
        cx: &mut Ctx<'_>,
    ) -> Gathered {
        let Some(asks) = asks else { return Gathered::late() };
        let asks = self.ask(asks, None, cx);
        let answers = self.gathers.end(number.0, own);
        Gathered {
            asks,
            answers: answers.map(|(all, room)| (Token::new(self.slot, number.0), all, room)),
            late: false,
            unreadable: None,
        }
    }
}
