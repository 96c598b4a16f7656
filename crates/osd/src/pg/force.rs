//! Copies that an operator wants before all others.

/// The kinds of copies that an operator forces (`ceph pg force-recovery`, `ceph pg
/// force-backfill`).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Forced {
    /// Whether copies of the objects that logs name are forced.
    pub recovery: bool,
    /// Whether copies for which all objects are compared are forced.
    pub backfill: bool,
}

impl Forced {
    /// Whether the needed kind of copy is forced: of objects that logs name, or of compared ones.
    pub(super) fn holds(self, logs_tell: bool) -> bool {
        if logs_tell { self.recovery } else { self.backfill }
    }

    /// The states of a PG whose copies are forced.
    pub(super) fn states(self) -> impl Iterator<Item = &'static str> {
        let recovery = self.recovery.then_some("forced_recovery");
        let backfill = self.backfill.then_some("forced_backfill");
        recovery.into_iter().chain(backfill)
    }
}
