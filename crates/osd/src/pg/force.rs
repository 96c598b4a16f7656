//! What an operator wants copied before all else.

use super::Pg;
use super::backfill::BackfillState;
use super::backfill::Need;
use super::message::PeerBody;
use super::output::Ctx;

/// What was asked for (`ceph pg force-recovery`, `ceph pg force-backfill`).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Forced {
    /// What logs name.
    pub recovery: bool,
    /// What is compared.
    pub backfill: bool,
}

impl Pg {
    /// An operator wants the PG's recovery, or its backfill, done before all else, or no more. Nothing where there is nothing to
    /// do.
    pub fn force_copy(&mut self, backfill: bool, on: bool, cx: &mut Ctx<'_>) {
        let on = on && self.backfill_state() != BackfillState::Idle;
        let before = self.copy_priority();
        if backfill {
            self.lead.forced.backfill = on;
        } else {
            self.lead.forced.recovery = on;
        }
        let priority = self.copy_priority();
        // Who waits for the target to have time is in its queue.
        if priority != before
            && self.backfill_state() == BackfillState::Reserving
            && let Some(target) = self.copying_target()
        {
            self.outbox
                .send(target, self.lead.id, PeerBody::Reserve(priority), false, cx);
        }
    }

    /// The states that say so. What was asked for holds until all is copied.
    pub(super) fn forced_states(&self) -> impl Iterator<Item = &'static str> + use<> {
        let idle = self.backfill_state() == BackfillState::Idle;
        let recovery = (self.lead.forced.recovery && !idle).then_some("forced_recovery");
        let backfill = (self.lead.forced.backfill && !idle).then_some("forced_backfill");
        recovery.into_iter().chain(backfill)
    }

    /// Whether what is under way is what was asked for.
    pub(super) fn is_forced(&self) -> bool {
        match self.copying_need() {
            Some(Need::Objects(_)) => self.lead.forced.recovery,
            Some(Need::All) | None => self.lead.forced.backfill,
        }
    }
}
