//! `pg_pool_t` and what it holds, with their encodings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use spirula_denc::{Decode, Encode, Error, Reader, Result, UTime, Writer, versioned, write_joined};

use super::{AutoscaleMode, CacheMode, PoolFlags, PoolOptions, PoolType};
use crate::hash::StrHash;
use crate::interval_set::IntervalSet;
use crate::types::{EVersion, Epoch, PgId, PoolId, SnapId, or_none};

versioned! {
    /// `pool_snap_info_t`: a snapshot of a whole pool.
    pub struct PoolSnap("pool_snap_info_t", version 2, compat 2) {
        /// Its id.
        pub snapid: SnapId;
        /// When it was taken.
        pub stamp: UTime;
        /// Its name.
        pub name: String;
    }
}

versioned! {
    /// `pg_merge_meta_t`: the last merge of two PGs of a pool.
    pub struct PgMergeMeta("pg_merge_meta_t", version 1, compat 1) {
        /// The PG that vanished.
        pub source_pgid: PgId;
        /// When both were ready.
        pub ready_epoch: Epoch;
        /// The value of both PGs.
        pub last_epoch_started: Epoch;
        /// The value of both PGs.
        pub last_epoch_clean: Epoch;
        /// The source's last version.
        pub source_version: EVersion;
        /// The target's last version.
        pub target_version: EVersion;
    }
}

/// `HitSet::Params`: how a cache tier tracks what is used. Kept for other writers' maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HitSetParams {
    /// Not at all.
    #[default]
    None,
    /// By the hashes of the objects.
    ExplicitHash,
    /// By the objects.
    ExplicitObject,
    /// By a Bloom filter.
    Bloom {
        /// False positives per million.
        fpp_micro: u32,
        /// Expected number of objects.
        target_size: u64,
        /// The seed of the filter's hash.
        seed: u64,
    },
}

impl Encode for HitSetParams {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| match self {
            Self::None => w.u8(0),
            Self::ExplicitHash => w.u8(1),
            Self::ExplicitObject => w.u8(2),
            Self::Bloom {
                fpp_micro,
                target_size,
                seed,
            } => {
                w.u8(3);
                w.section(1, 1, |w| {
                    w.u32(*fpp_micro);
                    w.u64(*target_size);
                    w.u64(*seed);
                });
            }
        });
    }
}

impl Decode for HitSetParams {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("HitSet::Params", 1, |_, r| match r.u8()? {
            0 => Ok(Self::None),
            1 => Ok(Self::ExplicitHash),
            2 => Ok(Self::ExplicitObject),
            3 => r.section("BloomHitSet::Params", 1, |_, r| {
                Ok(Self::Bloom {
                    fpp_micro: r.u32()?,
                    target_size: r.u64()?,
                    seed: r.u64()?,
                })
            }),
            _ => Err(Error::Invalid("hit set type")),
        })
    }
}

versioned! {
    /// `pg_pool_t`: everything that the map says about a pool, except its id and name.
    ///
    /// Written as version 29. Version 30, which only stretch pools use, is read without its
    /// additions.
    pub struct PgPool("pg_pool_t", version 29, compat 5, oldest 5, fix complete_old) {
        /// Replicated or erasure-coded.
        pub kind: PoolType = PoolType(0);
        /// The number of copies, or of chunks.
        pub size: u8;
        /// The CRUSH rule.
        pub crush_rule: u8;
        /// How object names are hashed.
        pub object_hash: StrHash = StrHash(0);
        /// The number of PGs.
        pub pg_num: u32;
        /// The number of PGs for placement.
        pub pgp_num: u32;
        /// The last epoch that changed the pool, snapshots excepted.
        @reserved(u32 = 0) @reserved(u32 = 0)
        pub last_change: Epoch;
        /// The newest snapshot's id.
        pub snap_seq: SnapId;
        /// The epoch of the last snapshot.
        pub snap_epoch: Epoch;
        /// The pool's own snapshots.
        pub snaps: BTreeMap<SnapId, PoolSnap>;
        /// Removed self-managed snapshots; empty since Octopus.
        pub removed_snaps: IntervalSet;
        /// An owner, once.
        pub auid: u64;
        /// Flags.
        pub flags: PoolFlags, since 4;
        /// With fewer members than this a PG serves nothing.
        @reserved(u32 = 0, since 4)
        pub min_size: u8, since 7;
        /// Quota in bytes; 0 for none.
        pub quota_max_bytes: u64, since 8;
        /// Quota in objects; 0 for none.
        pub quota_max_objects: u64, since 8;
        /// Pools that are cache tiers of this one.
        pub tiers: BTreeSet<PoolId>, since 9;
        /// The pool that this one is a cache tier of.
        pub tier_of: Option<PoolId>, via or_none, since 9;
        /// The mode of the cache tier.
        pub cache_mode: CacheMode = CacheMode::NONE, since 9;
        /// The tier for reads.
        pub read_tier: Option<PoolId>, via or_none, since 9;
        /// The tier for writes.
        pub write_tier: Option<PoolId>, via or_none, since 9;
        /// Dead.
        pub properties: BTreeMap<String, String>, since 10;
        /// Cache tier: hit sets.
        pub hit_set_params: HitSetParams, since 11;
        /// Cache tier: seconds.
        pub hit_set_period: u32, since 11;
        /// Cache tier.
        pub hit_set_count: u32, since 11;
        /// Bytes of data in one stripe of an erasure-coded pool.
        pub stripe_width: u32, since 12;
        /// Cache tier: bytes.
        pub target_max_bytes: u64, since 13;
        /// Cache tier: objects.
        pub target_max_objects: u64, since 13;
        /// Cache tier: millionths.
        pub cache_target_dirty_ratio_micro: u32, since 13;
        /// Cache tier: millionths.
        pub cache_target_full_ratio_micro: u32, since 13;
        /// Cache tier: seconds.
        pub cache_min_flush_age: u32, since 13;
        /// Cache tier: seconds.
        pub cache_min_evict_age: u32, since 13;
        /// The name of the erasure-code profile.
        pub erasure_code_profile: String, since 14;
        /// For clients before Luminous.
        pub last_force_op_resend_preluminous: Epoch, since 15;
        /// Cache tier.
        pub min_read_recency_for_promote: u32, since 16;
        /// A hint from the pool's creation.
        pub expected_num_objects: u64, since 17;
        /// Cache tier: millionths.
        pub cache_target_dirty_high_ratio_micro: u32, since 19;
        /// Cache tier.
        pub min_write_recency_for_promote: u32, since 20;
        /// Cache tier.
        pub use_gmt_hitset: bool = true, since 21;
        /// Erasure-coded reads take the first chunks that suffice.
        pub fast_read: bool, since 22;
        /// Cache tier.
        pub hit_set_grade_decay_rate: u32, since 23;
        /// Cache tier.
        pub hit_set_search_last_n: u32, since 23;
        /// Optional settings.
        pub opts: PoolOptions, since 24;
        /// For clients before Nautilus.
        pub last_force_op_resend_prenautilus: Epoch, since 25;
        /// By application, its keys and values.
        pub application_metadata: BTreeMap<String, BTreeMap<String, String>>, since 26;
        /// When the pool was made.
        pub create_time: UTime, since 27;
        /// Where `pg_num` is going.
        pub pg_num_target: u32, since 28;
        /// Where `pgp_num` is going.
        pub pgp_num_target: u32, since 28;
        /// `pg_num` after the merge under way.
        pub pg_num_pending: u32, since 28;
        /// Clients send operations older than this epoch again.
        @reserved(u32 = 0, since 28) @reserved(u32 = 0, since 28)
        pub last_force_op_resend: Epoch, since 28;
        /// Whether `pg_num` is changed automatically.
        pub autoscale_mode: AutoscaleMode = AutoscaleMode::UNKNOWN, since 28;
        /// The last merge.
        pub last_pg_merge_meta: PgMergeMeta, since 29;
    }
}

/// Derives the fields that a pool from before version 28 lacks.
fn complete_old(version: u8, p: &mut PgPool) {
    let snap_flags = PoolFlags::SELFMANAGED_SNAPS.with(PoolFlags::POOL_SNAPS);
    if p.snap_seq > 0 && !p.flags.intersects(snap_flags) {
        let flag = if p.removed_snaps.is_empty() {
            PoolFlags::POOL_SNAPS
        } else {
            PoolFlags::SELFMANAGED_SNAPS
        };
        p.flags.insert(flag);
    }
    if version < 7 {
        p.min_size = p.size - p.size / 2;
    }
    if version < 16 {
        p.min_read_recency_for_promote = 1;
    }
    if version < 19 {
        p.cache_target_dirty_high_ratio_micro = p.cache_target_dirty_ratio_micro;
    }
    if version < 20 {
        p.min_write_recency_for_promote = 1;
    }
    if version < 21 {
        p.use_gmt_hitset = false;
    }
    if version < 23 {
        p.hit_set_search_last_n = 1;
    }
    if version < 25 {
        p.last_force_op_resend_prenautilus = p.last_force_op_resend_preluminous;
    }
    if version < 28 {
        p.pg_num_target = p.pg_num;
        p.pgp_num_target = p.pgp_num;
        p.pg_num_pending = p.pg_num;
        p.last_force_op_resend = p.last_force_op_resend_prenautilus;
        p.autoscale_mode = AutoscaleMode::WARN;
    }
}

/// The line of `ceph osd pool ls detail`, from the pool's type on.
impl fmt::Display for PgPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if self.is_erasure() {
            write!(f, " profile {}", self.erasure_code_profile)?;
        }
        write!(
            f,
            " size {} min_size {} crush_rule {} object_hash {} pg_num {} pgp_num {}",
            self.size,
            self.min_size,
            self.crush_rule,
            self.object_hash.name(),
            self.pg_num,
            self.pgp_num
        )?;
        let targets = [
            ("pg_num_target", self.pg_num_target, self.pg_num),
            ("pgp_num_target", self.pgp_num_target, self.pgp_num),
            ("pg_num_pending", self.pg_num_pending, self.pg_num),
        ];
        for (name, value, _) in targets.into_iter().filter(|(_, value, now)| value != now) {
            write!(f, " {name} {value}")?;
        }
        if self.autoscale_mode != AutoscaleMode::UNKNOWN {
            write!(f, " autoscale_mode {}", self.autoscale_mode)?;
        }
        write!(f, " last_change {}", self.last_change)?;
        let resend = [
            self.last_force_op_resend,
            self.last_force_op_resend_prenautilus,
            self.last_force_op_resend_preluminous,
        ];
        if resend != [Epoch::NONE; 3] {
            f.write_str(" lfor ")?;
            write_joined(f, resend, "/")?;
        }
        self.fmt_from_flags(f)
    }
}

impl PgPool {
    fn fmt_from_flags(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.flags != PoolFlags::empty() {
            write!(f, " flags {}", self.flags)?;
        }
        let numbers = [
            ("max_bytes", self.quota_max_bytes),
            ("max_objects", self.quota_max_objects),
        ];
        for (name, value) in numbers.into_iter().filter(|(_, v)| *v != 0) {
            write!(f, " {name} {value}")?;
        }
        self.fmt_tiering(f)?;
        write!(f, " stripe_width {}", self.stripe_width)?;
        if self.expected_num_objects != 0 {
            write!(f, " expected_num_objects {}", self.expected_num_objects)?;
        }
        if self.fast_read {
            f.write_str(" fast_read 1")?;
        }
        for (name, value) in self.opts.iter() {
            write!(f, " {name} {value}")?;
        }
        if !self.application_metadata.is_empty() {
            f.write_str(" application ")?;
            write_joined(f, self.application_metadata.keys(), ",")?;
        }
        Ok(())
    }

    fn fmt_tiering(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.tiers.is_empty() {
            f.write_str(" tiers ")?;
            write_joined(f, &self.tiers, ",")?;
        }
        let tiers = [
            ("tier_of", self.tier_of),
            ("read_tier", self.read_tier),
            ("write_tier", self.write_tier),
        ];
        for (name, tier) in tiers {
            if let Some(pool) = tier {
                write!(f, " {name} {pool}")?;
            }
        }
        if self.cache_mode != CacheMode::NONE {
            write!(f, " cache_mode {}", self.cache_mode)?;
        }
        let targets = [
            ("target_bytes", self.target_max_bytes),
            ("target_objects", self.target_max_objects),
        ];
        for (name, value) in targets.into_iter().filter(|(_, v)| *v != 0) {
            write!(f, " {name} {value}")?;
        }
        let recencies = [
            ("min_read_recency_for_promote", self.min_read_recency_for_promote),
            (
                "min_write_recency_for_promote",
                self.min_write_recency_for_promote,
            ),
        ];
        for (name, value) in recencies.into_iter().filter(|(_, v)| *v != 0) {
            write!(f, " {name} {value}")?;
        }
        Ok(())
    }
}
