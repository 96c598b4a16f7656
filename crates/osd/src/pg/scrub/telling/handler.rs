//! Tells members of scrubs, as the primary, and hears what the primary tells, as a member.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_invariant::{dropped, invariant};
use spirula_maps::OsdId;
use spirula_proto::internal::Edition;

use super::super::findings;
use super::super::handler::Scrubbing;
use super::super::message::{FindingNote, News, ScrubBody};
use super::{Telling, Whole};
use crate::pg::Pg;
use crate::pg::bug::Bug;
use crate::pg::fetch::{ReadError, key_after};
use crate::pg::key::{self, KeyRange};
use crate::pg::message::{PeerBody, PeeringId};
use crate::pg::outbox::Outbox;
use crate::pg::output::{Ctx, Output};
use crate::pg::perf::DropReason;
use crate::pg::role::Role;
use crate::pg::scrub::Scrubbed;
use crate::pg::site::Site;
use crate::pg::store_queue::{Pending, StoreQueue};
use crate::pg::stored_copy::StoredCopy;

/// The findings that are told at once of those that were made before.
const PAGE: usize = 64;

impl Scrubbing<'_> {
    fn telling(&mut self) -> Option<&mut Telling> {
        self.scrub().map(|scrub| &mut scrub.telling)
    }

    /// Tells members something.
    pub(in crate::pg::scrub) fn tell(
        &mut self,
        members: impl IntoIterator<Item = OsdId>,
        news: &News,
        cx: &mut Ctx<'_>,
    ) {
        let Some(telling) = self.telling() else {
            return; // It serves no more.
        };
        telling.number += 1;
        let (number, mut first) = (telling.number, Vec::new());
        for osd in members {
            let queue = telling.left.entry(osd).or_default();
            queue.news.push_back((number, news.clone()));
            if queue.news.len() == 1 {
                first.push(osd);
            }
        }
        self.send_first(first, cx);
    }

    /// Sends members the first message that they have not confirmed.
    fn send_first(&mut self, members: Vec<OsdId>, cx: &mut Ctx<'_>) {
        for osd in members {
            let queue = self.telling().and_then(|t| t.left.get_mut(&osd));
            let Some((queue, (number, news))) = queue.and_then(|q| {
                let first = q.news.front().cloned()?;
                Some((q, first))
            }) else {
                continue;
            };
            queue.sent = cx.usec;
            self.send(osd, ScrubBody::Told { number, news }, cx);
        }
    }

    /// Handles a member's word that it has heard a message.
    pub(in crate::pg::scrub) fn confirmed(&mut self, from: OsdId, number: u32, cx: &mut Ctx<'_>) {
        let pgid = self.serving.site.pgid;
        let queue = self.telling().and_then(|t| t.left.get_mut(&from));
        let first = queue.filter(|q| q.news.front().is_some_and(|(n, _)| *n == number));
        let Some(queue) = first else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = pgid, from = from);
        };
        queue.news.pop_front();
        self.send_first(vec![from], cx);
    }

    /// Sends again what members have not confirmed: those of a name and of a time since which they
    /// are silent.
    pub(in crate::pg::scrub) fn tell_again(
        &mut self,
        which: impl Fn(OsdId, Micros) -> bool,
        cx: &mut Ctx<'_>,
    ) {
        if self.serving.site.cfg.has_bug(Bug::ToldOnce) {
            return; // What is lost stays lost.
        }
        let Some(telling) = self.telling() else {
            return; // It does not serve.
        };
        let left = telling.left.iter();
        let late = left.filter(|(osd, q)| !q.news.is_empty() && which(**osd, q.sent));
        let late = late.map(|(osd, _)| *osd).collect();
        self.send_first(late, cx);
    }

    /// Begins to tell these members the whole list, as they do not have the one that the history is
    /// about.
    pub(in crate::pg) fn tell_whole_list(&mut self, members: Vec<OsdId>, cx: &mut Ctx<'_>) {
        let history = &self.serving.copy.info.scrubs;
        if !history.listed || !history.has_findings() {
            return; // Nothing is listed, or there is no list.
        }
        // Others do not know scrubs.
        let speak = |osd: &OsdId| cx.versions.to(*osd) >= Edition::Current;
        let to: BTreeSet<OsdId> = members.into_iter().filter(speak).collect();
        if let Some(telling) = self.telling().filter(|_| !to.is_empty()) {
            telling.whole = Some(Whole {
                to,
                from: Bytes::new(),
                asked: false,
            });
        }
    }

    /// Reads the next part of the whole list, once members have confirmed those before.
    pub(in crate::pg::scrub) fn tell_on(&mut self, cx: &mut Ctx<'_>) {
        let pgid = self.serving.site.pgid;
        let Some(telling) = self.telling().filter(|t| !t.is_full()) else {
            return; // A confirmation goes on with it.
        };
        let Some(whole) = telling.whole.as_mut().filter(|w| !w.asked) else {
            return; // Nothing more is to be read, or the store's answer goes on with it.
        };
        whole.asked = true;
        let KeyRange { from, to } = key::findings_range(pgid);
        let from = whole.from.clone().max(from);
        let token = self.serving.store.token(Pending::FindingsToTell);
        cx.out.push(Output::ListRecords {
            token,
            from,
            to,
            max: PAGE,
        });
    }

    /// Handles a part of the whole list.
    pub(in crate::pg) fn tell_read(
        &mut self,
        records: Result<Vec<(Bytes, Bytes)>, ReadError>,
        cx: &mut Ctx<'_>,
    ) {
        let pgid = self.serving.site.pgid;
        let Some(mut whole) = self.telling().and_then(|t| t.whole.take()) else {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = pgid);
        };
        invariant!(whole.asked, "records that were read to have been asked for"; pg = pgid);
        // What can't be read here is found again by the next scrub.
        let records = records.unwrap_or_default();
        let anew = whole.from.is_empty();
        let Some((last, _)) = records.last() else {
            if anew {
                self.tell_listed(whole.to.clone(), true, Vec::new(), cx);
            }
            let news = self.noted();
            return self.tell(whole.to, &news, cx);
        };
        whole.from = key_after(last);
        let notes = records.into_iter();
        let notes = notes.filter_map(|(key, finding)| findings::parse(pgid, &key, finding));
        self.tell_listed(whole.to.clone(), anew, notes.collect(), cx);
        whole.asked = false;
        if let Some(telling) = self.telling() {
            telling.whole = Some(whole);
        }
    }

    fn tell_listed(&mut self, to: BTreeSet<OsdId>, anew: bool, notes: Vec<FindingNote>, cx: &mut Ctx<'_>) {
        self.tell(to, &News::Listed { anew, notes }, cx);
    }
}

/// A member's side: it remembers what the primary tells it.
pub(in crate::pg) struct Hearing<'a> {
    site: &'a Site,
    copy: &'a mut StoredCopy,
    store: &'a mut StoreQueue,
    outbox: &'a mut Outbox,
    role: &'a Role,
    id: PeeringId,
    scrubbed: &'a mut Scrubbed,
}

impl<'a> Hearing<'a> {
    /// The part of a PG that hears of scrubs.
    pub(in crate::pg) fn of(pg: &'a mut Pg) -> Self {
        Self {
            site: &pg.site,
            copy: &mut pg.copy,
            store: &mut pg.store,
            outbox: &mut pg.outbox,
            role: &pg.role,
            id: pg.lead.id,
            scrubbed: &mut pg.scrubbed,
        }
    }

    /// Handles what the primary tells. It may do so again if it has not heard the confirmation.
    pub(in crate::pg) fn told(&mut self, from: OsdId, number: u32, news: News, cx: &mut Ctx<'_>) {
        let pgid = self.site.pgid;
        if !self.copy.exists || !self.role.is_active_replica() {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = pgid, from = from);
        }
        let heard = (self.id, number);
        if heard > self.scrubbed.heard {
            self.scrubbed.heard = heard;
            self.remember(news, cx);
        }
        let confirmed = PeerBody::Scrub(ScrubBody::Confirmed(number));
        self.outbox.send(from, self.id, confirmed, true, cx);
    }

    fn remember(&mut self, news: News, cx: &mut Ctx<'_>) {
        match news {
            News::Noted {
                history,
                usage: (version, usage),
            } => {
                self.copy.info.scrubs = *history;
                if self.copy.info.last_update == version {
                    self.copy.info.usage = usage;
                }
                self.copy.save_info(self.site.pgid, self.store, cx);
            }
            News::Listed { anew, notes } => {
                self.store.record(findings::txn(self.site.pgid, anew, notes), cx);
            }
        }
    }
}
