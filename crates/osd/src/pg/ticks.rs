//! A PG's reactions to the passing of time and to lost connections, and its work after every event.

use spirula_denc::Micros;

use super::Pg;
use super::link::{LinkKind, LinkPeer};
use super::output::Ctx;
use super::role::Role;
use super::scrub::accounting::Accounting;
use super::scrub::handler::Scrubbing;

impl Pg {
    /// Handles the loss of a connection to or from another OSD, and of messages with it.
    pub fn handle_peer_reset(&mut self, peer: LinkPeer, cx: &mut Ctx<'_>) {
        let osd = match peer {
            (osd, LinkKind::Ordered) => osd,
            (osd, LinkKind::Ahead) => return self.serving().placing_ahead().ahead_reset(osd, cx),
        };
        if let Role::Peering(p) = &mut self.role {
            p.retry |= p.awaits(osd);
        }
        if self.role.is_active() {
            self.serving().resend_writes(Some(osd), cx);
            self.serving().placing_ahead().ahead_reset(osd, cx);
            self.serving().lease(|l| l.reset(osd));
            self.backfill(|b| b.backfill_reset(osd, cx));
        }
        for (token, all) in self.serving().shares().ask_again(osd, cx) {
            self.handle_store(token, all, cx);
        }
        self.feeding().source_peer_reset(osd, cx);
        self.serving().repairing().repair_reset(osd, cx);
        Scrubbing::of(self.serving()).scrub_reset(osd, cx);
        Accounting::of(self).account_reset(osd);
        self.copying.incoming.released(osd);
    }

    /// Handles an alarm that has come due.
    pub fn handle_alarm(&mut self, cx: &mut Ctx<'_>) {
        self.serving().check_watches(cx);
        self.feeding().pump_feeds(cx);
        self.serving().trimming().trim_on(cx);
        if matches!(self.role, Role::Deleting) {
            self.deleting().delete_tick(cx);
        }
    }

    /// Handles the passing of time; to be called about once a second.
    pub fn handle_tick(&mut self, cx: &mut Ctx<'_>) {
        let patience = Micros::from_secs(self.site.cfg.peering_retry.into());
        match &self.role {
            Role::Active(a) if cx.usec.saturating_sub(a.sent) > patience => {
                self.serving().resend_writes(None, cx);
                for (token, all) in self.serving().shares().ask_all_again(cx) {
                    self.handle_store(token, all, cx);
                }
            }
            Role::Stray => self.led().announce(cx),
            Role::Deleting => self.deleting().delete_tick(cx),
            _ => drop(self.agree(cx, |a, cx| a.tick(cx))),
        }
        if let Role::Replica(r) = &mut self.role {
            r.ahead.expire(cx.usec);
        }
        self.serving().placing_ahead().ahead_tick(patience, cx);
        self.serving().tell_stable(cx);
        self.serving().lease(|l| l.tick(cx));
        if !self.backfill(|b| b.backfill_tick(cx)) {
            self.feeding().pump_feeds(cx);
        }
        self.serving().check_watches(cx);
        self.serving().trimming().trim_on(cx);
        self.serving().repairing().repair_tick(cx);
        Scrubbing::of(self.serving()).scrub_tick(cx);
        Accounting::of(self).account_tick(cx);
        self.serving().staging().retry_copies(cx);
        self.ops.dropped.recall(&self.site, cx);
        let shares = &self.site.shares;
        self.ops.contexts.evict(shares.contexts, shares.context_bytes);
    }

    /// Delivers the PG's messages to itself, and goes on with work that need not wait any more. To
    /// be called after every event.
    pub fn settle(&mut self, cx: &mut Ctx<'_>) {
        self.note_damaged(cx);
        self.deliver_own(cx);
        self.backfill(|b| b.backfill_on(cx));
        self.serving().repairing().repair_on(cx);
        Accounting::of(self).account_on(cx);
        Scrubbing::of(self.serving()).scrub_on(cx);
        self.deliver_own(cx);
        self.serving().staging().drop_stages(cx);
        self.remember_standing(cx);
    }

    /// Notes how the event has changed the PG's state.
    fn remember_standing(&mut self, cx: &Ctx<'_>) {
        let state = self.seen().standing();
        self.recent.attempt(self.lead.id, cx.now);
        self.recent.enter(state, cx.now);
        let is_late = matches!(&self.role, Role::Active(a) if a.lease.is_late());
        self.recent.lease_late(is_late, cx.now);
    }

    fn deliver_own(&mut self, cx: &mut Ctx<'_>) {
        while let Some(msg) = self.outbox.to_self.pop_front() {
            self.handle_peer(self.site.whoami, msg, cx);
            self.note_damaged(cx);
        }
    }

    /// Handles an object that can't be read here and that others are to get. A primary that serves
    /// has it repaired and begins again; else it is named.
    fn note_damaged(&mut self, cx: &mut Ctx<'_>) {
        if let Some(key) = self.copying.damaged.take() {
            let is_repaired = self.role.is_active() && self.serving().repairing().note_unreadable(&key, cx);
            self.copying.unreadable = (!is_repaired).then_some(key);
        }
    }
}
