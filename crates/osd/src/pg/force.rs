//! What an operator wants copied before all else.

/// What was asked for (`ceph pg force-recovery`, `ceph pg force-backfill`).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Forced {
    /// What logs name.
    pub recovery: bool,
    /// What is compared.
    pub backfill: bool,
}

impl Forced {
    /// Whether what is needed, which logs name or not, is what was asked for.
    pub(super) fn holds(self, logs_tell: bool) -> bool {
        if logs_tell { self.recovery } else { self.backfill }
    }

    /// The states that say so.
    pub(super) fn states(self) -> impl Iterator<Item = &'static str> {
        let recovery = self.recovery.then_some("forced_recovery");
        let backfill = self.backfill.then_some("forced_backfill");
        recovery.into_iter().chain(backfill)
    }
}
