//! Goes on with data that is gathered, as members' shares of it come, or will not come.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_invariant::dropped;
use spirula_maps::OsdId;

use crate::pg::account::Room;
use crate::pg::fetch::{Fetched, Pieces};
use crate::pg::output::{Ctx, StoreReply, Token};
use crate::pg::perf::DropReason;
use crate::pg::serving::Serving;
use crate::pg::store_queue::Gathered;

/// The answer to a question, all data of which is there.
type Answered = (Token, StoreReply);

/// Takes shares of data.
pub(in crate::pg) struct Shares<'a> {
    pub(in crate::pg) serving: Serving<'a>,
}

impl Shares<'_> {
    /// Takes this OSD's share.
    pub(in crate::pg) fn here(
        &mut self,
        number: (u32, u32),
        read: (Vec<Fetched>, Room),
        cx: &mut Ctx<'_>,
    ) -> Option<Answered> {
        let gathered = self.serving.store.gathered_here(number, read, cx);
        self.go_on(gathered, DropReason::StoreLate, cx)
    }

    /// Takes a member's share.
    pub(in crate::pg) fn of_member(
        &mut self,
        from: OsdId,
        number: (u32, u32),
        found: Option<Pieces>,
        cx: &mut Ctx<'_>,
    ) -> Option<Answered> {
        let gathered = self.serving.store.gathered(from, number, found, cx);
        self.go_on(gathered, DropReason::PeerLate, cx)
    }

    /// Asks again for the shares that may have been lost with a connection to an OSD. If it is down,
    /// its shares do not come: other members make up for them.
    pub(in crate::pg) fn ask_again(&mut self, osd: OsdId, cx: &mut Ctx<'_>) -> Vec<Answered> {
        let asked = self.serving.store.gathers.unanswered(osd);
        if self.serving.site.map.osd(osd).is_some_and(|o| o.up) {
            let asked = asked.into_iter().map(|want| (osd, want)).collect();
            self.serving.outbox.ask(self.serving.lead.id, asked, cx);
            return Vec::new();
        }
        let ends = asked.into_iter();
        ends.filter_map(|want| self.of_member(osd, want.number, None, cx))
            .collect()
    }

    /// As [`Shares::ask_again`], for all OSDs.
    pub(in crate::pg) fn ask_all_again(&mut self, cx: &mut Ctx<'_>) -> Vec<Answered> {
        let asked: BTreeSet<OsdId> = self.serving.store.gathers.asked().collect();
        asked
            .into_iter()
            .flat_map(|osd| self.ask_again(osd, cx))
            .collect()
    }

    /// As [`Shares::ask_again`], for all OSDs that a map says are down.
    pub(in crate::pg) fn give_up_on_dead(&mut self, cx: &mut Ctx<'_>) -> Vec<Answered> {
        let is_down = |o: &OsdId| self.serving.site.map.osd(*o).is_none_or(|o| !o.up);
        let dead: BTreeSet<OsdId> = self.serving.store.gathers.asked().filter(is_down).collect();
        dead.into_iter().flat_map(|osd| self.ask_again(osd, cx)).collect()
    }

    fn go_on(&mut self, gathered: Gathered, late: DropReason, cx: &mut Ctx<'_>) -> Option<Answered> {
        if let Some(key) = &gathered.unreadable {
            self.note_unreadable(key, cx);
        }
        if gathered.late {
            dropped!(cx.perf.dropped, late; pg = self.serving.site.pgid);
            return None;
        }
        if let Some((token, answers, room)) = gathered.answers {
            return Some((token, StoreReply::Fetched(answers, room)));
        }
        let is_up = |osd: OsdId| self.serving.site.map.osd(osd).is_some_and(|o| o.up);
        let (asks, dead): (Vec<_>, Vec<_>) = gathered.asks.into_iter().partition(|(osd, _)| is_up(*osd));
        self.serving.outbox.ask(self.serving.lead.id, asks, cx);
        // They went down while the question waited for room.
        dead.into_iter()
            .find_map(|(osd, want)| self.of_member(osd, want.number, None, cx))
    }

    /// Notes that something of this OSD's fragment of an object can't be read. A member that serves
    /// has it repaired.
    pub(in crate::pg) fn note_unreadable(&mut self, key: &Bytes, cx: &mut Ctx<'_>) {
        if self.serving.role.is_active() || self.serving.role.is_active_replica() {
            self.serving.repairing().note_unreadable(key, cx);
        }
    }
}

impl Serving<'_> {
    /// The handler of data that is gathered.
    pub(in crate::pg) fn shares(&mut self) -> Shares<'_> {
        Shares {
            serving: self.reborrow(),
        }
    }
}
