//! A primary's scrub of its PG: what was ordered, and how far it is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use spirula_denc::{Micros, UTime};
use spirula_maps::OsdId;

use super::account::Account;
use super::history::Totals;
use super::message::{FindingNote, Wanted};
use super::noting::Noting;
use super::slots::ScrubSlot;
use super::telling::Telling;
use crate::pg::key::{self, KeyRange};
use crate::pg::log::Usage;

/// What a scrub is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Whether contents are read.
    pub deep: bool,
    /// Whether inconsistencies are repaired.
    pub repair: bool,
    /// Whether an operator has ordered it.
    pub requested: bool,
}

impl Order {
    /// The name in the cluster log.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self { repair: true, .. } => "repair",
            Self { deep: true, .. } => "deep-scrub",
            Self { .. } => "scrub",
        }
    }

    /// An order that does what both do.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            deep: self.deep || other.deep,
            repair: self.repair || other.repair,
            requested: self.requested || other.requested,
        }
    }
}

/// A primary's scrubs.
#[derive(Debug, Default)]
pub(in crate::pg) struct Scrub {
    /// The scrub that was ordered and has not begun.
    pub(super) ordered: Option<Order>,
    pub(super) state: State,
    /// The number of the last question to the members in this interval.
    pub(super) number: u32,
    /// When a scrub may be tried again, after a member had no slot for it.
    pub(super) again_at: Micros,
    /// How often that has happened.
    pub(super) tries: u64,
    /// Whether the next scrub shows if a repair has mended everything.
    pub(super) checks_repair: bool,
    /// Whether the last repair has not mended everything.
    pub(super) repair_failed: bool,
    /// What members are still to be told.
    pub(super) telling: Telling,
}

#[derive(Debug, Default)]
pub(super) enum State {
    /// No scrub.
    #[default]
    Idle,
    /// The members are asked for slots.
    Reserving {
        order: Order,
        slot: ScrubSlot,
        /// The members that have not answered.
        waits: BTreeSet<OsdId>,
        /// When they were asked.
        since: Micros,
    },
    /// The objects are compared.
    Running(Box<Run>),
}

/// A scrub under way.
#[derive(Debug)]
pub(in crate::pg) struct Run {
    pub(super) order: Order,
    /// The slot on this OSD.
    pub(super) slot: ScrubSlot,
    pub(super) began: UTime,
    /// Whether it goes on where an earlier one was when its interval ended.
    pub(super) resumed: bool,
    /// The first key that was not looked at.
    pub(super) cursor: Bytes,
    pub(super) step: Step,
    /// The objects, by the keys of their heads, that are to be looked at again, and how often they
    /// were looked at.
    pub(super) again: VecDeque<(Bytes, u32)>,
    /// The usage of the objects that were looked at, kept up to date with writes.
    pub(super) counted: Usage,
    /// What was found.
    pub(super) totals: Totals,
    /// What may be repaired.
    pub(super) findings: Vec<Finding>,
    /// When its progress was noted.
    pub(super) noted: Micros,
    /// How many times as long as it reads each member may rest, as it last said.
    pub(super) rests: BTreeMap<OsdId, u32>,
    /// When it may look at the next objects.
    pub(super) not_before: Micros,
    /// Digests on their way to the members.
    pub(super) noting: Noting,
}

/// What the scrub waits for.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing.
    Next,
    /// The listing of the next objects here, at most this many.
    Listing(usize),
    /// That the object with this head is not in use.
    Holding(Look),
    /// The members' accounts.
    Asked(Box<Asked>),
}

/// A look at some objects.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) range: KeyRange,
    /// The head, if it is a look at one object that was looked at before, and how often.
    pub(super) head: Option<(Bytes, u32)>,
    /// Whether ops on the object wait.
    pub(super) holds: bool,
}

/// The members' accounts of a range.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) look: Look,
    /// The question.
    pub(super) wanted: Wanted,
    /// The members that have not answered, with the time when they were asked.
    pub(super) waits: BTreeMap<OsdId, Micros>,
    /// The answers by member.
    pub(super) accounts: BTreeMap<OsdId, Vec<Account>>,
    /// The heads of the objects that were written meanwhile.
    pub(super) touched: BTreeSet<Bytes>,
    /// Where the range ends, as a member had no room for more.
    pub(super) end: Option<Bytes>,
    /// When the last of them has rested.
    pub(super) rests_until: Micros,
}

/// An inconsistent object that may be repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) key: Bytes,
    /// The members whose copies are wrong, and whether each is to be made wholly anew.
    pub(super) bad: Vec<(OsdId, bool)>,
    /// The errors of copies that are alike and right: what their infos tell of contents is noted anew.
    pub(super) renoted: u32,
    /// Whether the copy that counts proves itself.
    pub(super) is_proven: bool,
    /// The note that removes it from the list.
    pub(super) settled: FindingNote,
}

impl Run {
    /// How many times as long as they read members rest while clients work: as long as none is late
    /// for it, or, if an operator waits, as `least`.
    pub(super) fn rest(&self, least: u32) -> u32 {
        match self.order.requested {
            true => least,
            false => self.rests.values().copied().min().unwrap_or(least),
        }
    }

    /// Whether an object was looked at, and is not to be looked at again.
    pub(super) fn has_counted(&self, head: &Bytes) -> bool {
        let is_looked_at = matches!(&self.step, Step::Asked(a) if a.look.range.contains(head))
            || matches!(&self.step, Step::Holding(look) if look.range.contains(head));
        *head < self.cursor && !is_looked_at && !self.again.iter().any(|(h, _)| h == head)
    }

    /// Notes a write of these objects, which changes the PG's usage.
    pub(in crate::pg) fn touch<'a>(&mut self, keys: impl Iterator<Item = &'a Bytes>, change: Usage) {
        let mut heads: BTreeSet<Bytes> = BTreeSet::new();
        heads.extend(keys.filter(|k| !key::is_stage_key(k)).map(|k| key::head_key(k)));
        if heads.iter().any(|h| self.has_counted(h)) {
            self.counted = self.counted.plus(change);
        }
        if let Step::Asked(asked) = &mut self.step {
            let looked_at = heads.into_iter().filter(|h| asked.look.range.contains(h));
            asked.touched.extend(looked_at);
        }
    }
}

impl Scrub {
    /// The scrub under way.
    pub(in crate::pg) fn run(&mut self) -> Option<&mut Run> {
        match &mut self.state {
            State::Running(run) => Some(run),
            _ => None,
        }
    }

    /// Whether copies are being compared.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// Ceph's states of a PG that is scrubbed.
    pub(in crate::pg) fn states(&self) -> impl Iterator<Item = &'static str> {
        let order = match &self.state {
            State::Running(run) => Some(run.order),
            _ => None,
        };
        let deep = order.is_some_and(|o| o.deep).then_some("deep");
        let repair = order.is_some_and(|o| o.repair).then_some("repair");
        let failed = self.repair_failed.then_some("failed_repair");
        let scrubbing = order.map(|_| "scrubbing");
        scrubbing.into_iter().chain(deep).chain(repair).chain(failed)
    }
}
