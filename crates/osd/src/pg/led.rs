//! What a primary asks of an OSD that is, or was, a member: what it has, its log, and to take part.

use spirula_invariant::dropped;

use super::Pg;
use super::info::PgInfo;
use super::message::{LogUpdate, PeerBody, PeeringId};
use super::output::Ctx;
use super::perf::DropReason;
use super::replica::Replica;
use super::replica::Share;
use super::role::Role;
use super::store_queue::Commit;

impl Pg {
    /// A primary asks what is here.
    pub(super) fn queried(&mut self, from: i32, id: PeeringId, cx: &mut Ctx<'_>) {
        if !self.site.is_leader(from, id) || id < self.lead.id {
            return dropped!(cx.perf.dropped, DropReason::PeerStale; pg = self.site.pgid, from = from);
        }
        match &mut self.role {
            Role::Replica(r) => *r = Replica::default(),
            Role::Stray => {}
            _ => return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from),
        }
        self.lead.id = id;
        self.copying.source = None;
        self.copying.target = None;
        self.copying.patient = None;
        self.store.forget_attempt();
        self.ops.give_up_reads(&self.site, &mut self.store, cx);
        self.lead.query_from = Some(from);
        if self.store.commits.is_empty() {
            self.answer_query(cx);
        }
    }

    /// Answers once all that the answer claims is durable.
    pub(super) fn answer_query(&mut self, cx: &mut Ctx<'_>) {
        if let Some(primary) = self.lead.query_from.take() {
            let info = self.copy.account();
            let promised = self.lead.promise_left(cx.usec);
            self.outbox.send(
                primary,
                self.lead.id,
                PeerBody::Notify { info, promised },
                true,
                cx,
            );
        } else if matches!(self.role, Role::Stray) {
            self.announce(cx);
        }
    }

    /// A primary wants the log.
    pub(super) fn log_wanted(&mut self, from: i32, id: PeeringId, cx: &mut Ctx<'_>) {
        if self.site.is_leader(from, id) {
            let entries = self.copy.log.iter().cloned().collect();
            let body = PeerBody::Log {
                tail: self.copy.log.tail(),
                head: self.copy.info.last_update,
                entries,
                dups: self.copy.dups.batches().cloned().collect(),
            };
            self.outbox.send(from, id, body, true, cx);
        }
    }

    /// A primary asks to take part.
    pub(super) fn activate_member(
        &mut self,
        from: i32,
        id: PeeringId,
        info: PgInfo,
        log: LogUpdate,
        cx: &mut Ctx<'_>,
    ) {
        if !self.site.is_leader(from, id) || !log.is_sound() {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        }
        let committed = info.last_update;
        let Role::Replica(r) = &mut self.role else {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        };
        *r = Replica {
            active: true,
            committed,
            share: Share::default(),
        };
        let what = Commit::Activate { id, primary: from };
        self.copying.target = None;
        let (site, store) = (&self.site, &mut self.store);
        self.copy.activate(site, (info, log), what, store, cx);
    }
}
