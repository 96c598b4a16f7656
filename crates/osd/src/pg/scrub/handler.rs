//! Directs a scrub, as the primary.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{Micros, UTime};
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::OsdId;
use spirula_proto::internal::Edition;
use spirula_proto::mon::LogPriority;

use super::history::Progress;
use super::message::{Given, ScrubBody, Wanted};
use super::run::{Asked, Look, Order, Run, Scrub, State, Step};
use super::schedule;
use super::slots::ScrubSlot;
use crate::pg::bug::Bug;
use crate::pg::hold::Holding;
use crate::pg::key::{self, KeyRange};
use crate::pg::log::Usage;
use crate::pg::message::PeerBody;
use crate::pg::output::{Ctx, Output, StoreReply};
use crate::pg::perf::DropReason;
use crate::pg::serving::Serving;
use crate::pg::store_queue::Pending;

/// The objects to be looked at again after which this is done before others are looked at.
const MOST_AGAIN: usize = 256;
/// The time after which a scrub notes its progress.
const NOTED_EVERY: Micros = Micros::from_secs(30);
/// The time after which a scrub is tried again for which a member's release is too old or not known.
const UNTIL_KNOWN: Micros = Micros::from_secs(1);
/// The most objects of one listing.
const MOST_LISTED: usize = 4096;
/// The least time after which a scrub for which a member had no slot is tried again.
const AGAIN: Micros = Micros::new(100_000);
/// The most microseconds by which that time is longer at first, and in the end: primaries that want
/// each other's slots must not ask at the same time for ever, nor all the time.
const SPREAD: (u64, u64) = (400_000, 6_400_000);

/// Directs a scrub, as the primary.
pub(crate) struct Scrubbing<'a> {
    pub(in crate::pg) serving: Serving<'a>,
}

impl<'a> Scrubbing<'a> {
    /// The handler of a PG's scrubs.
    pub(in crate::pg) fn of(serving: Serving<'a>) -> Self {
        Self { serving }
    }
}

impl Scrubbing<'_> {
    pub(super) fn scrub(&mut self) -> Option<&mut Scrub> {
        self.serving.role.scrub()
    }

    pub(super) fn run(&mut self) -> Option<&mut Run> {
        self.scrub()?.run()
    }

    pub(super) fn send(&mut self, osd: OsdId, body: ScrubBody, cx: &mut Ctx<'_>) {
        let id = self.serving.lead.id;
        self.serving
            .outbox
            .send(osd, id, PeerBody::Scrub(body), false, cx);
    }

    pub(super) fn cluster_log(&self, priority: LogPriority, what: &str, cx: &mut Ctx<'_>) {
        let line = format!("{} {what}", self.serving.site.pgid);
        cx.out.push(Output::ClusterLog { priority, line });
    }

    /// Notes that the PG is to be scrubbed as soon as there is a slot for it.
    pub(crate) fn order(&mut self, order: Order) {
        if let Some(scrub) = self.scrub() {
            scrub.ordered = Some(scrub.ordered.map_or(order, |o| o.and(order)));
            scrub.again_at = Micros::ZERO;
        }
    }

    /// Sets when the PG was last scrubbed, or its contents were last read.
    pub(crate) fn set_stamp(&mut self, deep: bool, stamp: UTime, cx: &mut Ctx<'_>) {
        let history = &mut self.serving.copy.info.scrubs;
        match deep {
            true => history.deep_stamp = stamp,
            false => history.stamp = stamp,
        }
        if self.serving.copy.exists {
            let pgid = self.serving.site.pgid;
            self.serving.copy.save_info(pgid, self.serving.store, cx);
        }
    }

    /// Begins a scrub, with a slot of this OSD.
    pub(crate) fn begin(&mut self, order: Order, slot: ScrubSlot, cx: &mut Ctx<'_>) {
        let others: BTreeSet<OsdId> = self.serving.site.others().into_iter().collect();
        let usec = cx.usec;
        let speaks = |osd: &OsdId| cx.versions.to(*osd) >= Edition::Current;
        let all_speak = others.iter().all(speaks);
        let Some(scrub) = self.scrub().filter(|s| matches!(s.state, State::Idle)) else {
            return; // It is scrubbed already, or serves no more.
        };
        if !all_speak {
            // An OSD of the release before does not know scrubs. Of an OSD that was silent since it
            // was connected, only its answer tells.
            scrub.again_at = usec + UNTIL_KNOWN;
            self.serving.lease(|l| l.keep_lease(cx));
            return; // It is tried again soon.
        }
        let order = scrub.ordered.take().map_or(order, |o| o.and(order));
        scrub.state = State::Reserving {
            order,
            slot,
            waits: others.clone(),
            since: usec,
        };
        for osd in others {
            self.send(osd, ScrubBody::Reserve, cx);
        }
        self.reserved(cx);
    }

    /// Begins to compare once all members have a slot for it.
    fn reserved(&mut self, cx: &mut Ctx<'_>) {
        let (range, now, noted) = (self.serving.site.range(), cx.now, cx.usec);
        let (me, pgid) = (self.serving.site.whoami, self.serving.site.pgid);
        let deep_errors = self.serving.copy.info.scrubs.deep_errors;
        let progress = self.serving.copy.info.scrubs.progress.take();
        let Some(scrub) = self.scrub() else {
            impossible!("a primary that reserves slots to serve"; pg = pgid);
        };
        if !matches!(&scrub.state, State::Reserving { waits, .. } if waits.is_empty()) {
            self.serving.copy.info.scrubs.progress = progress;
            return; // Some members have not answered.
        }
        let State::Reserving { order, slot, .. } = std::mem::take(&mut scrub.state) else {
            impossible!("a scrub that is to begin to have reserved slots"; pg = pgid);
        };
        // A repair needs to see everything itself.
        let is_same = |p: &Progress| p.deep == order.deep && !order.repair;
        let resumed = progress.filter(|p| is_same(p) && range.from < p.cursor && range.contains(&p.cursor));
        scrub.tries = 0;
        let (is_resumed, progress) = (resumed.is_some(), resumed.unwrap_or_default());
        scrub.state = State::Running(Box::new(Run {
            order,
            slot,
            began: if is_resumed { progress.began } else { now },
            resumed: is_resumed,
            cursor: if is_resumed { progress.cursor } else { range.from },
            step: Step::Next,
            again: Default::default(),
            counted: Usage::default(),
            totals: progress.totals,
            findings: Vec::new(),
            noted,
            rests: BTreeMap::new(),
            not_before: Micros::ZERO,
            noting: Default::default(),
        }));
        if !order.deep && deep_errors > 0 && !is_resumed {
            let line = format!("osd.{me} pg {pgid} Regular scrub request, deep-scrub details will be lost");
            let priority = LogPriority::ERROR;
            cx.out.push(Output::ClusterLog { priority, line });
        }
        self.cluster_log(LogPriority::DEBUG, &format!("{} starts", order.name()), cx);
        if !is_resumed {
            self.serving.copy.info.scrubs.listed = true;
            self.list_findings(true, Vec::new(), cx);
            // Whoever leads next begins it again, as the list of the one before is gone.
            self.note_progress(cx);
        }
    }

    /// Handles a member's message.
    pub(in crate::pg) fn message(&mut self, from: OsdId, body: ScrubBody, cx: &mut Ctx<'_>) {
        match body {
            ScrubBody::Reserved(may) => self.slot_granted(from, may, cx),
            ScrubBody::Given(given) => self.given(from, given, cx),
            ScrubBody::Confirmed(number) => self.confirmed(from, number, cx),
            ScrubBody::Reserve | ScrubBody::Release | ScrubBody::Wanted(_) | ScrubBody::Told { .. } => {
                dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.serving.site.pgid, from = from);
            }
        }
    }

    /// Handles a member's answer whether it has a slot.
    fn slot_granted(&mut self, from: OsdId, may: bool, cx: &mut Ctx<'_>) {
        let pgid = self.serving.site.pgid;
        let waits = match self.scrub().map(|s| &mut s.state) {
            Some(State::Reserving { waits, .. }) => waits,
            _ => return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = pgid, from = from),
        };
        waits.remove(&from);
        match may {
            true => self.reserved(cx),
            false => self.try_again(cx),
        }
    }

    /// Ends the scrub; it is tried again later.
    fn try_again(&mut self, cx: &mut Ctx<'_>) {
        let (usec, pgid) = (cx.usec, self.serving.site.pgid);
        let Some(scrub) = self.scrub() else {
            return; // It serves no more.
        };
        let order = match &scrub.state {
            State::Idle => return, // It has ended.
            State::Reserving { order, .. } => *order,
            State::Running(run) => run.order,
        };
        scrub.ordered = Some(scrub.ordered.map_or(order, |o| o.and(order)));
        scrub.tries += 1;
        let spread = (SPREAD.0 << scrub.tries.min(4)).min(SPREAD.1);
        let wait = schedule::share(pgid, scrub.tries) * spread as f64;
        let again_at = usec + AGAIN + Micros::new(wait as u64);
        scrub.again_at = again_at;
        cx.out.push(Output::Alarm { usec: again_at });
        self.release(cx);
    }

    /// Gives all slots back.
    pub(super) fn release(&mut self, cx: &mut Ctx<'_>) {
        let held = self.run().and_then(|run| match &run.step {
            Step::Asked(asked) if asked.look.holds => asked.look.head.clone(),
            Step::Holding(look) => look.head.clone(),
            _ => None,
        });
        if let Some((head, _)) = held {
            Holding::of(self.serving.reborrow()).let_go(&head, false, cx);
        }
        if let Some(scrub) = self.scrub() {
            scrub.state = State::Idle;
        }
        self.serving
            .store
            .pending
            .retain(|_, p| !matches!(p, Pending::Scrub));
        for osd in self.serving.site.others() {
            self.send(osd, ScrubBody::Release, cx);
        }
    }

    /// Goes on with the scrub. Cheap if there is none: called after every event.
    pub(in crate::pg) fn scrub_on(&mut self, cx: &mut Ctx<'_>) {
        self.tell_on(cx);
        if self.is_noting(cx) {
            return; // It goes on once that is durable.
        }
        let is_full = self.scrub().is_some_and(|scrub| scrub.telling.is_full());
        while let Some(run) = self.run() {
            match &run.step {
                Step::Next if run.not_before > cx.usec => {
                    let usec = run.not_before;
                    return cx.out.push(Output::Alarm { usec });
                }
                // A member's confirmation goes on with it.
                Step::Next if is_full => return,
                Step::Next => self.look_on(cx),
                Step::Holding(look) => {
                    let look = look.clone();
                    if !look
                        .head
                        .as_ref()
                        .is_none_or(|(head, _)| Holding::of(self.serving.reborrow()).is_quiet(head))
                    {
                        return; // It is looked at once it is quiet.
                    }
                    self.ask(look, cx);
                }
                // An answer goes on with it.
                Step::Listing(_) | Step::Asked(_) => return,
            }
        }
    }

    /// Looks at the next objects, or ends.
    fn look_on(&mut self, cx: &mut Ctx<'_>) {
        let range = self.serving.site.range();
        let most = self.serving.site.cfg.scrub.chunk;
        let usec = cx.usec;
        let patience = self.serving.site.cfg.scrub.patience.max(1);
        let pgid = self.serving.site.pgid;
        let Some(run) = self.run() else {
            impossible!("a scrub that looks at the next objects to be under way"; pg = pgid);
        };
        let is_to_stop = !run.order.requested && !run.slot.is_permitted();
        let is_to_be_noted = is_to_stop || run.noted + NOTED_EVERY <= usec;
        // What is to be looked at again is no part of the progress, and takes memory.
        let goes_on = run.again.is_empty() || run.again.len() < MOST_AGAIN && !is_to_be_noted;
        if run.cursor < range.to && goes_on {
            if is_to_be_noted {
                self.note_progress(cx);
            }
            if is_to_stop {
                // It goes on when its hours come again.
                return self.release(cx);
            }
            let Some(run) = self.run() else {
                impossible!("a scrub that notes its progress to go on"; pg = pgid);
            };
            let rest = range.rest(run.cursor.clone());
            run.step = Step::Listing(most);
            return self.serving.store.list(rest, most, Pending::Scrub, cx);
        }
        let Some((head, looks)) = run.again.pop_front() else {
            return self.finish(cx);
        };
        let look = Look {
            range: key::group_range(&head),
            holds: looks >= patience,
            head: Some((head.clone(), looks)),
        };
        if !look.holds {
            return self.ask(look, cx);
        }
        run.step = Step::Holding(look);
        Holding::of(self.serving.reborrow()).hold(&head, cx);
    }

    /// Asks all members for accounts.
    fn ask(&mut self, look: Look, cx: &mut Ctx<'_>) {
        let at = self.serving.copy.info.last_update;
        let members = self.serving.site.interval.members();
        let least = self.serving.site.cfg.scrub.least_rest();
        let usec = cx.usec;
        let pgid = self.serving.site.pgid;
        invariant!(look.range.from < look.range.to, "a range that is looked at to have keys"; pg = pgid);
        let Some(scrub) = self.scrub() else {
            impossible!("a primary that asks for accounts to serve"; pg = pgid);
        };
        scrub.number += 1;
        let number = scrub.number;
        let Some(run) = scrub.run() else {
            impossible!("a scrub that asks for accounts to be under way"; pg = pgid);
        };
        let wanted = Wanted {
            number,
            at,
            range: look.range.clone(),
            deep: run.order.deep,
            seed: number.into(),
            attrs: look.head.is_some(),
            rest: run.rest(least),
        };
        run.step = Step::Asked(Box::new(Asked {
            look,
            wanted: wanted.clone(),
            waits: members.iter().map(|o| (*o, usec)).collect(),
            accounts: BTreeMap::new(),
            touched: BTreeSet::new(),
            end: None,
            rests_until: Micros::ZERO,
        }));
        for osd in members {
            self.send(osd, ScrubBody::Wanted(wanted.clone()), cx);
        }
    }

    /// Handles the listing of the next objects here.
    pub(in crate::pg) fn scrub_listed(&mut self, reply: StoreReply, cx: &mut Ctx<'_>) {
        let range = self.serving.site.range();
        let pgid = self.serving.site.pgid;
        let Some((run, most)) = self.run().and_then(|run| match run.step {
            Step::Listing(most) => Some((run, most)),
            _ => None,
        }) else {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = pgid);
        };
        let StoreReply::Objects(Ok((objects, next))) = reply else {
            return self.try_again(cx);
        };
        // An object and its clones are looked at together, those too that are made meanwhile.
        let to = next.map_or(range.to.clone(), |next| key::group_range(&next).from);
        let rest = range.rest(run.cursor.clone());
        if to <= run.cursor {
            let more = (most * 4).min(MOST_LISTED);
            if more > most {
                run.step = Step::Listing(more);
                return self.serving.store.list(rest, more, Pending::Scrub, cx);
            }
        }
        // They are too many to be listed at once.
        let to = match objects.last() {
            Some((key, _)) if to <= run.cursor => key::group_range(key).to,
            _ => to,
        };
        let range = KeyRange {
            to: to.clone(),
            ..rest
        };
        run.cursor = to;
        let look = Look {
            range,
            head: None,
            holds: false,
        };
        self.ask(look, cx);
    }

    /// Handles a member's accounts.
    fn given(&mut self, from: OsdId, given: Given, cx: &mut Ctx<'_>) {
        let pgid = self.serving.site.pgid;
        let run = self
            .scrub()
            .filter(|s| s.number == given.number)
            .and_then(Scrub::run);
        let asked = run.and_then(|run| match &mut run.step {
            Step::Asked(asked) if asked.waits.contains_key(&from) => {
                run.rests.insert(from, given.rest);
                Some(asked)
            }
            _ => None,
        });
        let Some(asked) = asked else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = pgid, from = from);
        };
        let Some(accounts) = given.accounts else {
            return self.try_again(cx);
        };
        asked.waits.remove(&from);
        asked.accounts.insert(from, accounts);
        asked.rests_until = asked.rests_until.max(cx.usec + given.pause);
        if let Some(next) = given.next {
            // An object and its clones are judged together.
            let to = key::group_range(&next).from;
            let end = asked.end.take().map_or(to.clone(), |end| end.min(to));
            asked.end = Some(end);
        }
        if asked.waits.is_empty() {
            self.compare(cx);
        }
    }

    /// Compares the accounts of all members.
    fn compare(&mut self, cx: &mut Ctx<'_>) {
        let (pgid, members) = (self.serving.site.pgid, self.serving.site.interval.members().len());
        let sleeps_until = cx.usec + self.serving.site.cfg.scrub.sleep;
        let step = self.run().map(|run| std::mem::replace(&mut run.step, Step::Next));
        let Some(Step::Asked(asked)) = step else {
            impossible!("accounts that are compared to have been asked for"; pg = pgid);
        };
        invariant!(asked.accounts.len() == members, "all members' accounts"; pg = pgid, accounts = asked.accounts.len());
        let Some(run) = self.run() else {
            impossible!("a scrub that compares accounts to be under way"; pg = pgid);
        };
        // A question waits until all members have rested: what is written after it is looked at again.
        run.not_before = sleeps_until.max(asked.rests_until);
        let end = asked.end.clone().unwrap_or_else(|| asked.look.range.to.clone());
        if asked.look.head.is_none() {
            run.cursor = end.clone().max(asked.look.range.from.clone());
        }
        let mut groups: BTreeMap<Bytes, BTreeSet<Bytes>> = BTreeMap::new();
        for account in asked.accounts.values().flatten().filter(|a| a.key < end) {
            groups
                .entry(key::head_key(&account.key))
                .or_default()
                .insert(account.key.clone());
        }
        // Objects that were made meanwhile are in no account.
        for head in asked.touched.iter().filter(|h| **h < end) {
            groups.entry(head.clone()).or_default();
        }
        if self.serving.site.cfg.has_bug(Bug::SkippedLast) {
            groups.pop_last();
        }
        for (head, keys) in groups {
            let looks = asked.look.head.as_ref().map_or(0, |(_, looks)| *looks) + 1;
            let judged = self.judge_group(&asked, &keys);
            let is_confirmed = asked.look.head.is_some() || judged.iter().all(|j| j.judgement.is_clean());
            let is_touched =
                asked.touched.contains(&head) && !self.serving.site.cfg.has_bug(Bug::UnseenWrites);
            if is_touched || !is_confirmed {
                let is_forgotten = self.serving.site.cfg.has_bug(Bug::ForgottenLook);
                let Some(run) = self.run() else {
                    impossible!("a scrub that compares accounts to be under way"; pg = pgid);
                };
                if !is_forgotten {
                    run.again.push_back((head, looks));
                }
                continue;
            }
            self.take(judged, cx);
        }
        if let Some((head, _)) = asked.look.head.filter(|_| asked.look.holds) {
            Holding::of(self.serving.reborrow()).let_go(&head, false, cx);
        }
    }

    /// Handles the passing of time: silent members are asked again.
    pub(in crate::pg) fn scrub_tick(&mut self, cx: &mut Ctx<'_>) {
        let patience = Micros::from_secs(self.serving.site.cfg.peering_retry.into());
        let usec = cx.usec;
        let is_late = |since: Micros| usec.saturating_sub(since) > patience;
        match self.scrub().map(|s| &s.state) {
            Some(State::Reserving { since, .. }) if is_late(*since) => self.try_again(cx),
            Some(State::Running(_)) => self.ask_again(|_, since| is_late(since), cx),
            _ => {}
        }
        self.tell_again(|_, since| is_late(since), cx);
    }

    /// Asks members again that have not answered: those of a name and since a time. A member that is
    /// at work goes on.
    fn ask_again(&mut self, which: impl Fn(OsdId, Micros) -> bool, cx: &mut Ctx<'_>) {
        let Some(Step::Asked(asked)) = self.run().map(|run| &mut run.step) else {
            return; // No member is asked.
        };
        let wanted = asked.wanted.clone();
        let mut late = Vec::new();
        for (osd, since) in &mut asked.waits {
            if which(*osd, *since) {
                *since = cx.usec;
                late.push(*osd);
            }
        }
        for osd in late {
            self.send(osd, ScrubBody::Wanted(wanted.clone()), cx);
        }
    }

    /// Handles the loss of a connection to or from a member, and perhaps of messages with it.
    pub(in crate::pg) fn scrub_reset(&mut self, osd: OsdId, cx: &mut Ctx<'_>) {
        match self.scrub().map(|s| &s.state) {
            Some(State::Reserving { waits, .. }) if waits.contains(&osd) => self.try_again(cx),
            Some(State::Running(_)) => self.ask_again(|o, _| o == osd, cx),
            _ => {}
        }
        self.tell_again(|o, _| o == osd, cx);
    }
}
