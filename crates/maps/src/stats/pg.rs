//! Statistics of PGs and pools.

use std::collections::{BTreeMap, BTreeSet};

use spirula_denc::{Decode, Encode, Reader, Result, UTime, Writer, at_least, versioned};

use super::{ObjectStatCollection, PgState, StoreStatfs};
use crate::interval_set::IntervalSet;
use crate::types::{EVersion, Epoch, OsdId, OsdOrNone, PgId, PgShard, Positions};

versioned! {
    /// `pg_history_t`: a PG's memory of its past.
    #[derive(Eq)]
    pub struct PgHistory("pg_history_t", version 10, compat 4) {
        /// When the PG was created.
        pub epoch_created: Epoch;
        /// A lower bound on the last epoch in which it became active.
        pub last_epoch_started: Epoch;
        /// A lower bound on the last epoch in which it was clean.
        pub last_epoch_clean: Epoch;
        /// When it last split, as parent or child.
        pub last_epoch_split: Epoch;
        /// Since when up and acting set are the same.
        pub same_interval_since: Epoch;
        /// Since when the up set is the same.
        pub same_up_since: Epoch;
        /// Since when the primary is the same.
        pub same_primary_since: Epoch;
        /// The version that was last scrubbed.
        pub last_scrub: EVersion;
        /// When it was.
        pub last_scrub_stamp: UTime;
        /// The version that was last deep-scrubbed.
        pub last_deep_scrub: EVersion, since 5;
        /// When it was.
        pub last_deep_scrub_stamp: UTime, since 5;
        /// The last scrub without errors.
        pub last_clean_scrub_stamp: UTime, since 6;
        /// When pool or cluster was last full.
        pub last_epoch_marked_full: Epoch, since 7;
        /// The first epoch of the interval of `last_epoch_started`.
        pub last_interval_started: Epoch, since 8;
        /// The first epoch of the interval of `last_epoch_clean`.
        pub last_interval_clean: Epoch, since 8;
        /// When the pool was created.
        pub epoch_pool_created: Epoch, since 9;
        /// How long the earlier interval may still be read, from the time of encoding.
        pub prior_readable_until_ub: UTime, since 10;
    }
}

/// `pg_stat_t`: a primary's report about its PG. Pacific's version 26.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgStat {
    /// The last version.
    pub version: EVersion,
    /// Counts reports.
    pub reported_seq: u64,
    /// The epoch of the report.
    pub reported_epoch: Epoch,
    /// The state.
    pub state: PgState,
    /// The log holds versions after this one.
    pub log_start: EVersion,
    /// The log on disk does.
    pub ondisk_log_start: EVersion,
    /// The epoch of creation.
    pub created: Epoch,
    /// The last epoch in which it was clean.
    pub last_epoch_clean: Epoch,
    /// The PG it split from.
    pub parent: PgId,
    /// Dead.
    pub parent_split_bits: u32,
    /// The version that was last scrubbed.
    pub last_scrub: EVersion,
    /// When it was.
    pub last_scrub_stamp: UTime,
    /// Sums over its objects.
    pub stats: ObjectStatCollection,
    /// Entries of the log.
    pub log_size: i64,
    /// Entries of the log on disk.
    pub ondisk_log_size: i64,
    /// The OSDs that CRUSH names.
    pub up: Positions,
    /// The OSDs that serve.
    pub acting: Positions,
    /// The last report.
    pub last_fresh: UTime,
    /// The last change of state.
    pub last_change: UTime,
    /// When it was last active.
    pub last_active: UTime,
    /// When it was last clean.
    pub last_clean: UTime,
    /// When it was last not stale.
    pub last_unstale: UTime,
    /// The epoch of up and acting.
    pub mapping_epoch: Epoch,
    /// The version that was last deep-scrubbed.
    pub last_deep_scrub: EVersion,
    /// When it was.
    pub last_deep_scrub_stamp: UTime,
    /// `stats` is an estimate.
    pub stats_invalid: bool,
    /// The last scrub without errors.
    pub last_clean_scrub_stamp: UTime,
    /// When it became active.
    pub last_became_active: UTime,
    /// The number of dirty objects is an estimate.
    pub dirty_stats_invalid: bool,
    /// The first of `up`.
    pub up_primary: OsdOrNone,
    /// The primary.
    pub acting_primary: OsdOrNone,
    /// The number of objects with omap is an estimate.
    pub omap_stats_invalid: bool,
    /// Cache tier.
    pub hitset_stats_invalid: bool,
    /// The OSDs that peering waits for.
    pub blocked_by: Vec<OsdId>,
    /// When it was last not degraded.
    pub last_undegraded: UTime,
    /// When it last had all its members.
    pub last_fullsized: UTime,
    /// Cache tier.
    pub hitset_bytes_stats_invalid: bool,
    /// When it was last peered or active.
    pub last_peered: UTime,
    /// When it became so.
    pub last_became_peered: UTime,
    /// Cache tier.
    pub pin_stats_invalid: bool,
    /// Snapshots waiting to be trimmed.
    pub snaptrimq_len: u32,
    /// Snapshots that were trimmed lately.
    pub purged_snaps: IntervalSet,
    /// The number of objects with a manifest is an estimate.
    pub manifest_stats_invalid: bool,
    /// Members that lack nothing.
    pub avail_no_missing: Vec<PgShard>,
    /// By set of members, how many objects exactly these have.
    pub object_location_counts: BTreeMap<BTreeSet<PgShard>, i32>,
}

/// Calls `$m!(field …)` with the fields before `state`, between it and its upper half, and after
/// that, in the order of the encoding.
macro_rules! pg_stat_fields {
    ($m:ident!($($args:tt)*)) => {
        $m! { ($($args)*)
            [version reported_seq reported_epoch]
            [log_start ondisk_log_start created last_epoch_clean parent parent_split_bits last_scrub
             last_scrub_stamp stats log_size ondisk_log_size up acting last_fresh last_change last_active last_clean
             last_unstale mapping_epoch last_deep_scrub last_deep_scrub_stamp stats_invalid last_clean_scrub_stamp
             last_became_active dirty_stats_invalid up_primary acting_primary omap_stats_invalid
             hitset_stats_invalid blocked_by last_undegraded last_fullsized hitset_bytes_stats_invalid last_peered
             last_became_peered pin_stats_invalid snaptrimq_len]
            [purged_snaps manifest_stats_invalid avail_no_missing object_location_counts]
        }
    };
}

macro_rules! encode_pg_stat {
    (($s:expr, $w:expr) [$($a:ident)*] [$($b:ident)*] [$($c:ident)*]) => {
        {
            $($w.put(&$s.$a);)*
            $w.u32(low_half($s.state.0));
            $($w.put(&$s.$b);)*
            $w.u32(low_half($s.state.0 >> 32));
            $($w.put(&$s.$c);)*
        }
    };
}

macro_rules! decode_pg_stat {
    (($s:expr, $r:expr) [$($a:ident)*] [$($b:ident)*] [$($c:ident)*]) => {
        {
            $($s.$a = $r.get()?;)*
            let low = $r.u32()?;
            $($s.$b = $r.get()?;)*
            let high = $r.u32()?;
            $s.state = PgState(u64::from(high) << 32 | u64::from(low));
            $($s.$c = $r.get()?;)*
        }
    };
}

/// The low 32 bits; the caller writes the others elsewhere.
fn low_half(n: u64) -> u32 {
    n as u32
}

impl PgStat {
    /// The last epoch in which the PG was clean, as far as this report tells.
    pub fn effective_last_epoch_clean(&self) -> Epoch {
        if self.state.contains(PgState::CLEAN) {
            self.reported_epoch
        } else {
            self.last_epoch_clean
        }
    }
}

// By hand: the state is written in two halves.
impl Encode for PgStat {
    fn encode(&self, w: &mut Writer) {
        w.section(26, 22, |w| pg_stat_fields!(encode_pg_stat!(self, w)));
    }
}

impl Decode for PgStat {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("pg_stat_t", 26, |version, r| {
            at_least("pg_stat_t", version, 26)?;
            let mut s = Self::default();
            pg_stat_fields!(decode_pg_stat!(s, r));
            Ok(s)
        })
    }
}

versioned! {
    /// `pool_stat_t`: sums over a pool's PGs.
    #[derive(Eq)]
    pub struct PoolStat("pool_stat_t", version 7, compat 5) {
        /// Sums over its objects.
        pub stats: ObjectStatCollection;
        /// Entries of the logs.
        pub log_size: i64;
        /// Entries of the logs on disk.
        pub ondisk_log_size: i64;
        /// Members of all up sets.
        pub up: i32, since 6;
        /// Members of all acting sets.
        pub acting: i32, since 6;
        /// Space used on the OSDs.
        pub store_stats: StoreStatfs, since 7;
        /// The number of OSDs in that sum.
        pub num_store_stats: i32, since 7;
    }
}
