//! The states of a PG.

use spirula_denc::flags;

flags! {
    /// A set of states of a PG (`PG_STATE_*`).
    pub struct PgState(u64), joined "+", empty "unknown" {
        /// The primary has not reported for long.
        STALE = 17, "stale";
        /// Being created.
        CREATING = 0, "creating";
        /// Serves requests.
        ACTIVE = 1, "active";
        /// Peered, not yet active.
        ACTIVATING = 24, "activating";
        /// All members have everything, and nobody else has anything.
        CLEAN = 2, "clean";
        /// Waits for its turn to recover.
        RECOVERY_WAIT = 22, "recovery_wait";
        /// Can't recover: a member is too full.
        RECOVERY_TOOFULL = 28, "recovery_toofull";
        /// Recovers objects.
        RECOVERING = 14, "recovering";
        /// Recovers before others.
        FORCED_RECOVERY = 30, "forced_recovery";
        /// A needed member is down.
        DOWN = 4, "down";
        /// Recovery stopped: objects are not found.
        RECOVERY_UNFOUND = 5, "recovery_unfound";
        /// Backfill stopped: objects are not found.
        BACKFILL_UNFOUND = 6, "backfill_unfound";
        /// Has fewer members than the pool's size.
        UNDERSIZED = 23, "undersized";
        /// Copies are missing.
        DEGRADED = 10, "degraded";
        /// The members are not those that CRUSH names.
        REMAPPED = 18, "remapped";
        /// Prepares to merge.
        PREMERGE = 7, "premerge";
        /// Being scrubbed.
        SCRUBBING = 8, "scrubbing";
        /// The scrub reads all data.
        DEEP_SCRUB = 19, "deep";
        /// The copies differ.
        INCONSISTENT = 11, "inconsistent";
        /// The members compare their copies.
        PEERING = 12, "peering";
        /// The next scrub repairs.
        REPAIR = 13, "repair";
        /// Waits for its turn to backfill.
        BACKFILL_WAIT = 15, "backfill_wait";
        /// Backfills a member.
        BACKFILLING = 20, "backfilling";
        /// Backfills before others.
        FORCED_BACKFILL = 31, "forced_backfill";
        /// Can't backfill: a member is too full.
        BACKFILL_TOOFULL = 21, "backfill_toofull";
        /// Peering failed: the members' copies are not complete.
        INCOMPLETE = 16, "incomplete";
        /// Peered, but with too few members to be active.
        PEERED = 25, "peered";
        /// Trims snapshots.
        SNAPTRIM = 26, "snaptrim";
        /// Waits for its turn to trim snapshots.
        SNAPTRIM_WAIT = 27, "snaptrim_wait";
        /// Trimming snapshots failed.
        SNAPTRIM_ERROR = 29, "snaptrim_error";
        /// A repair did not repair all.
        FAILED_REPAIR = 32, "failed_repair";
        /// A member's lease is late; reads wait.
        LAGGY = 33, "laggy";
        /// Waits until no earlier primary can serve reads.
        WAIT = 34, "wait";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_ceph_does() {
        let s = PgState::DEGRADED.with(PgState::ACTIVE).with(PgState::UNDERSIZED);
        assert_eq!(s.to_string(), "active+undersized+degraded");
        assert_eq!(PgState::empty().to_string(), "unknown");
        assert_eq!(PgState::from_name("deep"), Some(PgState::DEEP_SCRUB));
    }
}
