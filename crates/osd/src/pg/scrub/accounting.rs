//! A member's side of a scrub: it gives account of its objects.

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_invariant::{dropped, impossible};
use spirula_maps::OsdId;

use super::account::Account;
use super::message::{Given, ScrubBody, Wanted};
use super::work::{Next, Reserved, Scrubbed, Work};
use crate::pg::Pg;
use crate::pg::bug::Bug;
use crate::pg::message::{PeerBody, PeeringId};
use crate::pg::outbox::Outbox;
use crate::pg::output::{Ctx, Output, StoreReply};
use crate::pg::pace::{Class, Pace};
use crate::pg::perf::DropReason;
use crate::pg::rate::Rate;
use crate::pg::role::Role;
use crate::pg::site::Site;
use crate::pg::store_queue::{Pending, StoreQueue};
use crate::pg::stored_copy::StoredCopy;

/// The objects that are listed for one answer.
const LISTED: usize = 4096;

/// Gives account of a member's objects.
pub(in crate::pg) struct Accounting<'a> {
    pub(in crate::pg) site: &'a Site,
    pub(in crate::pg) copy: &'a StoredCopy,
    pub(in crate::pg) store: &'a mut StoreQueue,
    pub(in crate::pg) outbox: &'a mut Outbox,
    pub(in crate::pg) role: &'a Role,
    /// The attempt at peering that this OSD leads or follows.
    pub(in crate::pg) id: PeeringId,
    pub(in crate::pg) pace: &'a Pace,
    pub(in crate::pg) scrubbed: &'a mut Scrubbed,
}

impl<'a> Accounting<'a> {
    /// The part of a PG that gives account.
    pub(in crate::pg) fn of(pg: &'a mut Pg) -> Self {
        Self {
            site: &pg.site,
            copy: &pg.copy,
            store: &mut pg.store,
            outbox: &mut pg.outbox,
            role: &pg.role,
            id: pg.lead.id,
            pace: &pg.copying.pace,
            scrubbed: &mut pg.scrubbed,
        }
    }
}

impl Accounting<'_> {
    fn answer(&mut self, to: OsdId, body: ScrubBody, cx: &mut Ctx<'_>) {
        self.outbox.send(to, self.id, PeerBody::Scrub(body), true, cx);
    }

    /// Answers the primary's question for accounts.
    fn give(
        &mut self,
        to: OsdId,
        number: u32,
        accounts: Option<Vec<Account>>,
        next: Option<Bytes>,
        cx: &mut Ctx<'_>,
    ) {
        let least = self.site.cfg.scrub.least_rest();
        let until = self.pace.rests_until(Class::BestEffort, cx.usec);
        let given = Given {
            number,
            rest: self.scrubbed.pace.rest().unwrap_or(least),
            pause: until.map_or(Micros::ZERO, |until| until.saturating_sub(cx.usec)),
            accounts,
            next,
        };
        self.answer(to, ScrubBody::Given(given), cx);
    }

    /// Handles the primary's question whether the PG may be scrubbed here now.
    pub(in crate::pg) fn reserve(&mut self, from: OsdId, cx: &mut Ctx<'_>) {
        if !self.role.is_active_replica() {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        // Asked again, it gives the same answer.
        self.take_slot(cx);
        let may = self.scrubbed.reserved.is_some();
        self.answer(from, ScrubBody::Reserved(may), cx);
    }

    /// Takes a slot for this attempt at peering, if there is one; or notes that it is still wanted.
    fn take_slot(&mut self, cx: &Ctx<'_>) {
        let id = self.id;
        match self.scrubbed.reserved.as_mut().filter(|r| r.id == id) {
            Some(reserved) => reserved.heard = cx.usec,
            None => {
                // That of an earlier attempt is given back first.
                self.scrubbed.reserved = None;
                let slot = self.scrubbed.slots.take(self.site.cfg.scrub.most);
                self.scrubbed.reserved = slot.map(|slot| Reserved {
                    id,
                    _slot: slot,
                    heard: cx.usec,
                });
            }
        }
    }

    /// Handles the passing of time: a slot is not kept for a primary that is silent, as its word that
    /// the scrub has ended may be lost.
    pub(in crate::pg) fn account_tick(&mut self, cx: &mut Ctx<'_>) {
        let patience = Micros::from_secs(self.site.cfg.peering_retry.into()) * 3;
        let is_silent = |r: &Reserved| cx.usec.saturating_sub(r.heard) > patience;
        if self.scrubbed.work.is_none() && self.scrubbed.reserved.as_ref().is_some_and(is_silent) {
            self.give_back();
        }
        // A rest may be over.
        self.account_on(cx);
    }

    /// Handles the loss of a connection with another OSD.
    pub(in crate::pg) fn account_reset(&mut self, osd: OsdId) {
        if self.site.interval.place.primary == Some(osd) && self.scrubbed.work.is_none() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if !self.site.cfg.has_bug(Bug::KeptSlot) {
            self.scrubbed.reserved = None;
        }
    }

    /// Handles that the primary's scrub has ended.
    pub(in crate::pg) fn release(&mut self) {
        self.give_back();
        self.scrubbed.work = None;
    }

    /// Handles the primary's question for accounts. A new question takes the place of the one before.
    pub(in crate::pg) fn wanted(&mut self, from: OsdId, wanted: Wanted, cx: &mut Ctx<'_>) {
        let is_own = from == self.site.whoami && self.role.is_active();
        if !is_own && !self.role.is_active_replica() {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        if !is_own {
            // If its slot was given back meanwhile, it takes part all the same.
            self.take_slot(cx);
        }
        let is_same = |w: &Work| w.id == self.id && w.wanted.number == wanted.number;
        if self.scrubbed.work.as_ref().is_some_and(is_same) {
            // The primary asks again, as it does not know that the question has come.
            return;
        }
        self.store.pending.retain(|_, p| !matches!(p, Pending::Account));
        self.scrubbed.work = Some(Work::new(from, self.id, wanted, self.site.cfg.scrub.strides));
        self.account_on(cx);
    }

    /// Goes on with the account. Cheap if none is being made: called after every event.
    pub(in crate::pg) fn account_on(&mut self, cx: &mut Ctx<'_>) {
        let Some(work) = &mut self.scrubbed.work else {
            return; // None is wanted.
        };
        if work.id != self.id {
            self.scrubbed.work = None;
            return; // The attempt at peering is over, and with it the scrub.
        }
        // Writes before the question may be on their way.
        if work.waits || work.wanted.at > self.copy.info.last_update {
            return; // An answer of the store, or the write, goes on with it.
        }
        if work.may_rest() {
            if let Some(usec) = self.pace.rests_until(Class::BestEffort, cx.usec) {
                return cx.out.push(Output::Alarm { usec });
            }
            work.rested();
        }
        work.since = cx.usec;
        work.waits = true;
        match work.next() {
            Next::List => {
                let range = work.unlisted();
                self.store.list(range, LISTED, Pending::Account, cx);
            }
            Next::Lookup(key) => self.store.look_up(key, Pending::Account, cx),
            Next::Read(key, wants) => self.store.read(key, wants, None, Pending::Account, cx),
            Next::Give => {
                if let Some(work) = self.scrubbed.work.take() {
                    let (by, number) = (work.by, work.wanted.number);
                    let (accounts, next) = work.give();
                    self.give(by, number, Some(accounts), next, cx);
                }
            }
        }
    }

    /// Handles an answer of the store.
    pub(in crate::pg) fn account_store(&mut self, reply: StoreReply, cx: &mut Ctx<'_>) {
        let Some(work) = self.scrubbed.work.as_mut().filter(|w| w.waits) else {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid);
        };
        work.waits = false;
        let took = cx.usec.saturating_sub(work.since);
        match reply {
            StoreReply::Objects(Ok((objects, next))) => {
                work.listed(objects.into_iter().map(|(key, _)| key), next);
                self.scrubbed.pace.looked(0, took);
            }
            StoreReply::Objects(Err(_)) => {
                let (by, number) = (work.by, work.wanted.number);
                self.scrubbed.work = None;
                return self.give(by, number, None, None, cx);
            }
            StoreReply::Object(object) => {
                work.looked_up(object.ok(), self.store.fragments.is_some());
                self.scrubbed.pace.looked(1, took);
            }
            StoreReply::Fetched(answers, _) => {
                let read = work.read(answers);
                self.scrubbed.pace.read(read, took);
                let best_effort = self.site.cfg.best_effort;
                let rest = work.wanted.rest.max(self.site.cfg.scrub.least_rest());
                let rate = Rate {
                    rest: best_effort.rest.max(rest.into()),
                    ..best_effort
                };
                self.pace
                    .worked(Class::BestEffort, cx.usec, took, rate, Micros::ZERO);
            }
            reply @ (StoreReply::Records(_)
            | StoreReply::Placed(_)
            | StoreReply::Committed
            | StoreReply::NoRoom
            | StoreReply::NotRead) => {
                impossible!("an answer to what an account reads"; pg = self.site.pgid, epoch = self.site.map.epoch(), answer = format!("{reply:?}"))
            }
        }
        self.account_on(cx);
    }
}
