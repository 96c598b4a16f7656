//! A PG's reports about itself.

use bytes::Bytes;
use spirula_maps::{EVersion, Epoch, HObject, IntervalSet, OsdId, PgId, Positions};

use super::backfill::{Backfill, BackfillState, Need};
use super::counters::Recovered;
use super::exec::IoCount;
use super::key;
use super::log::Usage;
use super::peering::{Stage, Wait};
use super::role::Role;
use super::scrub::history::ScrubHistory;
use super::seen::Seen;
use super::snaps::trim::TrimState;

/// A primary's report on its PG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgReport {
    /// The PG.
    pub pgid: PgId,
    /// Official names of its states, joined by `+`.
    pub state: Vec<&'static str>,
    /// OSDs that peering waits for.
    pub blocked_by: Vec<OsdId>,
    /// Its log.
    pub log: ReportedLog,
    /// The epoch of the map that the primary has.
    pub reported_epoch: Epoch,
    /// The epoch in which the PG was last active.
    pub last_epoch_started: Epoch,
    /// The epoch in which the pool was made.
    pub created: Epoch,
    /// The PG's OSDs.
    pub place: ReportedPlace,
    /// Its objects and their bytes.
    pub usage: Usage,
    /// Whether the usage is to be counted again.
    pub usage_invalid: bool,
    /// The copies of its objects.
    pub copies: ReportedCopies,
    /// Removed snapshots.
    pub snaps: ReportedSnaps,
    /// The work done since the daemon started.
    pub done: ReportedWork,
    /// Its scrubs.
    pub scrubs: ScrubHistory,
}

/// A PG's log, as it is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedLog {
    /// The version of the PG's newest change.
    pub head: EVersion,
    /// The version after which the log begins.
    pub tail: EVersion,
    /// The number of the log's entries.
    pub len: usize,
}

/// A PG's OSDs, as they are reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedPlace {
    /// The epoch since which the PG belongs to the same OSDs.
    pub since: Epoch,
    /// The OSDs that the PG should be on.
    pub up: Positions,
    /// Their primary.
    pub up_primary: Option<OsdId>,
    /// The OSDs that serve the PG.
    pub acting: Positions,
    /// Their primary.
    pub acting_primary: Option<OsdId>,
}

/// The copies of a PG's objects, as they are reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedCopies {
    /// The number of copies that there should be, or that there are if more.
    pub all: i64,
    /// The members that lack nothing that another member has.
    pub whole: Vec<OsdId>,
    /// The copies that are missing.
    pub degraded: i64,
    /// The copies that are on other OSDs than they should be.
    pub misplaced: i64,
    /// The objects that no complete copy has readable.
    pub unfound: Vec<HObject>,
}

/// A PG's removed snapshots, as they are reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedSnaps {
    /// The number of snapshots to trim.
    pub to_trim: u64,
    /// The snapshots that are trimmed here.
    pub purged: IntervalSet,
}

/// A PG's work since the daemon started, as it is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedWork {
    /// Reads and writes.
    pub io: IoCount,
    /// What was copied to others.
    pub recovered: Recovered,
    /// Copies of objects that were repaired.
    pub repaired: i64,
}

/// The numbers of copies of objects that are not in their places.
struct Displaced {
    /// Copies that are missing.
    degraded: i64,
    /// Copies that are elsewhere.
    misplaced: i64,
}

/// The numbers of PGs by this OSD's role in them.
#[derive(Debug, Clone, Copy, Default)]
pub struct PgCounts {
    /// All PGs.
    pub all: usize,
    /// PGs that the OSD leads.
    pub primary: usize,
    /// PGs in which the OSD follows a primary.
    pub replica: usize,
    /// PGs of which the OSD has a copy that belongs elsewhere.
    pub stray: usize,
    /// PGs whose copy the OSD is deleting.
    pub removing: usize,
}

impl Seen<'_> {
    fn backfill_need(&self) -> Option<Need> {
        self.role.backfill()?.need()
    }

    /// Counts the PG by this OSD's role in it.
    pub(crate) fn count_in(self, counts: &mut PgCounts) {
        counts.all += 1;
        match self.role {
            Role::Peering(_) | Role::Active(_) => counts.primary += 1,
            Role::Replica(_) => counts.replica += 1,
            Role::Stray => counts.stray += 1,
            Role::Deleting => counts.removing += 1,
            Role::Idle => {}
        }
    }

    /// The report of a primary; `None` from other members.
    pub fn report(&self) -> Option<PgReport> {
        let (state, blocked_by) = self.state()?;
        let place = &self.site.interval.place;
        let Displaced { degraded, misplaced } = self.displaced();
        Some(PgReport {
            pgid: self.site.pgid,
            state,
            blocked_by,
            log: ReportedLog {
                head: self.copy.info.last_update,
                tail: self.copy.log.tail(),
                len: self.copy.log.len(),
            },
            reported_epoch: self.site.map.epoch(),
            last_epoch_started: self.copy.info.last_epoch_started,
            created: self.site.pool.created,
            place: ReportedPlace {
                since: self.site.interval.since,
                up: place.up.clone(),
                up_primary: place.up_primary,
                acting: place.acting.clone(),
                acting_primary: place.primary,
            },
            usage: self.copy.info.usage,
            usage_invalid: self.copy.info.usage_invalid,
            copies: ReportedCopies {
                all: self.copies(),
                whole: self.whole_members(),
                degraded,
                misplaced,
                unfound: self.unfound(),
            },
            snaps: ReportedSnaps {
                to_trim: self.role.trim_queue().count(),
                purged: self.copy.info.purged_snaps.clone(),
            },
            done: ReportedWork {
                io: self.counters.io,
                recovered: self.counters.recovered,
                repaired: self.counters.repaired,
            },
            scrubs: self.copy.info.scrubs.clone(),
        })
    }

    /// The objects that no member can read, of those that members serve.
    pub(super) fn unfound(&self) -> Vec<HObject> {
        let mut keys: Vec<&Bytes> = self.copying.unreadable.iter().collect();
        if let Role::Active(a) = &self.role {
            keys.extend(
                a.repairs
                    .lost
                    .keys()
                    .filter(|k| Some(*k) != self.copying.unreadable.as_ref()),
            );
        }
        keys.into_iter()
            .filter_map(|k| key::parse_object_key(k))
            .collect()
    }

    fn copies(&self) -> i64 {
        let copies = (self.site.pool.size as usize).max(self.site.interval.place.acting.count());
        let objects = self.copy.info.usage.objects;
        objects.saturating_mul(i64::try_from(copies).unwrap_or(0))
    }

    /// The copies of objects that are not in their places. A temporary member counts for one that
    /// is to be.
    fn displaced(&self) -> Displaced {
        let (place, objects) = (&self.site.interval.place, self.copy.info.usage.objects.max(0));
        let Role::Active(a) = &self.role else {
            let lacking = (self.site.pool.size as usize).saturating_sub(place.acting.count());
            return Displaced {
                degraded: objects.saturating_mul(i64::try_from(lacking).unwrap_or(0)),
                misplaced: 0,
            };
        };
        let nobody = (self.site.pool.size as usize).saturating_sub(place.up.count());
        let mut degraded = objects.saturating_mul(i64::try_from(nobody).unwrap_or(0));
        let bad = a.repairs.bad_copies(place.acting.count());
        degraded = degraded.saturating_add(i64::try_from(bad).unwrap_or(i64::MAX));
        let mut misplaced = 0;
        let stand_ins = place.acting.osds().filter(|o| !place.up.contains(*o)).count();
        let mut lacking = a.backfill.lacking(objects, self.copying.objects_left(objects));
        lacking.sort_unstable_by_key(|n| std::cmp::Reverse(*n));
        for (i, n) in lacking.into_iter().enumerate() {
            *(if i < stand_ins {
                &mut misplaced
            } else {
                &mut degraded
            }) += n;
        }
        Displaced { degraded, misplaced }
    }

    /// The members that lack nothing that another member has.
    fn whole_members(&self) -> Vec<OsdId> {
        let Role::Active(a) = &self.role else {
            return Vec::new();
        };
        let members = self.site.interval.place.acting.osds();
        members.filter(|osd| a.repairs.is_whole(*osd)).collect()
    }

    /// The backfill as one of Ceph's states.
    fn copying_state(&self) -> Option<&'static str> {
        let logs_tell = matches!(self.backfill_need()?, Need::Objects(_));
        Some(match (self.backfill_state(), logs_tell) {
            (BackfillState::Idle, _) => return None,
            (_, true) if self.copying.unreadable.is_some() => "recovery_unfound",
            (_, false) if self.copying.unreadable.is_some() => "backfill_unfound",
            (_, true)
                if self
                    .role
                    .backfill()
                    .is_some_and(|b| b.is_target_full(&*self.site.map)) =>
            {
                "recovery_toofull"
            }
            (_, false)
                if self
                    .role
                    .backfill()
                    .is_some_and(|b| b.is_target_full(&*self.site.map)) =>
            {
                "backfill_toofull"
            }
            (BackfillState::Running, true) => "recovering",
            (BackfillState::Running, false) => "backfilling",
            (_, true) if self.role.backfill().is_some_and(Backfill::is_target_roomless) => "recovery_toofull",
            (_, false) if self.role.backfill().is_some_and(Backfill::is_target_roomless) => {
                "backfill_toofull"
            }
            (_, true) => "recovery_wait",
            (_, false) => "backfill_wait",
        })
    }

    /// The repairs as Ceph's states.
    fn repair_states(&self) -> &'static [&'static str] {
        match &self.role {
            Role::Active(a) if a.repairs.is_busy() => &["recovering", "repair"],
            Role::Active(a) if !a.repairs.lost.is_empty() => &["recovery_unfound"],
            _ => &[],
        }
    }

    fn state(&self) -> Option<(Vec<&'static str>, Vec<OsdId>)> {
        let (mut state, mut blocked_by) = (Vec::new(), Vec::new());
        let undersized = self.site.interval.place.acting.count() < self.site.pool.size as usize;
        match &self.role {
            Role::Active(a) => {
                state.push("active");
                let repairs = self.repair_states();
                if !undersized && !self.site.is_remapped() && repairs.is_empty() {
                    state.push("clean");
                }
                let copying = self.copying_state();
                state.extend(copying);
                state.extend(repairs.iter().filter(|s| Some(**s) != copying));
                if self.backfill_state() != BackfillState::Idle {
                    state.extend(self.lead.forced.states());
                }
                if a.lease.is_late() {
                    state.push("laggy");
                }
                if self.copy.info.scrubs.errors() > 0 {
                    state.push("inconsistent");
                }
                for scrubbed in a.scrub.states() {
                    if !state.contains(&scrubbed) {
                        state.push(scrubbed);
                    }
                }
                match self.role.trim_state(&*self.site.map) {
                    TrimState::Idle => {}
                    TrimState::Waiting => state.push("snaptrim_wait"),
                    TrimState::Trimming => state.push("snaptrim"),
                    TrimState::Failed => state.push("snaptrim_error"),
                }
            }
            Role::Peering(p) => match &p.stage {
                Stage::Waiting(Wait::Down(osds)) => {
                    blocked_by.clone_from(osds);
                    state.push("down");
                }
                Stage::Waiting(Wait::Incomplete) => state.push("incomplete"),
                Stage::Waiting(Wait::MinSize) => state.push("peered"),
                Stage::Waiting(Wait::Unsupported) => state.push("inactive"),
                Stage::Acting(_) => {
                    state.push("remapped");
                    state.push("peering");
                }
                Stage::Activating(_) => state.push("activating"),
                Stage::Lease => state.push("wait"),
                stage => {
                    if !self.copy.exists && matches!(stage, Stage::Infos | Stage::Strays) {
                        state.push("creating");
                    }
                    state.push("peering");
                    if self.copying.unreadable.is_some() {
                        state.push("recovery_unfound");
                    }
                    if p.awaits_room(&self.lead.roomless) {
                        state.push("recovery_toofull");
                    }
                    blocked_by.extend(&p.asked);
                }
            },
            _ => return None,
        }
        if self.site.is_remapped() && !state.contains(&"remapped") {
            state.push("remapped");
        }
        if undersized {
            state.push("undersized");
        }
        if self.displaced().degraded > 0 {
            state.push("degraded");
        }
        Some((state, blocked_by))
    }
}
