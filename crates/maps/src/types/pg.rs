//! PG ids and log versions.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer, versioned};

use super::{Epoch, HObject, OsdId, PoolId};

/// `eversion_t`: a place in a PG's log. Ordered by epoch, then version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EVersion {
    /// Counts the PG's writes.
    pub version: u64,
    /// The OSDMap epoch in which the primary assigned it.
    pub epoch: Epoch,
}

impl EVersion {
    /// Before every real version.
    pub const ZERO: Self = Self {
        version: 0,
        epoch: Epoch::NONE,
    };
    /// After every real version.
    pub const MAX: Self = Self {
        version: u64::MAX,
        epoch: Epoch::MAX,
    };

    /// The version `version` of `epoch`.
    pub const fn new(epoch: Epoch, version: u64) -> Self {
        Self { version, epoch }
    }
}

impl Ord for EVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.epoch, self.version).cmp(&(other.epoch, other.version))
    }
}

impl PartialOrd for EVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `epoch'version`.
impl fmt::Display for EVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

impl Encode for EVersion {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.put(&self.epoch);
    }
}

impl Decode for EVersion {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            version: r.u64()?,
            epoch: r.get()?,
        })
    }
}

/// The number of bits needed to hold `n`; 0 for 0.
pub(crate) fn bit_count(n: u32) -> u32 {
    u32::BITS - n.leading_zeros()
}

/// Folds `x` into `0..b` such that growing `b` moves only what must move. `mask` is the smallest
/// 2ⁿ-1 that is not below `b - 1` (`ceph_stable_mod` in `src/include/rados.h`).
pub(crate) fn stable_mod(x: u32, b: u32, mask: u32) -> u32 {
    if x & mask < b { x & mask } else { x & (mask >> 1) }
}

/// The mask for [`stable_mod`] over `n` values.
pub(crate) fn stable_mask(n: u32) -> u32 {
    let bits = bit_count(n.saturating_sub(1));
    u32::try_from((1u64 << bits) - 1).unwrap_or(u32::MAX)
}

/// `pg_t`: a placement group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PgId {
    /// The pool's id.
    pub pool: PoolId,
    /// The PG's number within the pool, or the full hash of a "raw" PG.
    pub seed: u32,
}

impl PgId {
    /// PG `seed` of pool `pool`.
    pub const fn new(pool: PoolId, seed: u32) -> Self {
        Self { pool, seed }
    }

    /// The PG that split off this one, when `seed` is not 0: the seed without its highest bit.
    pub fn parent(self) -> Self {
        let bits = bit_count(self.seed);
        let mask = if bits == 0 { 0 } else { (1u32 << (bits - 1)) - 1 };
        Self {
            seed: self.seed & mask,
            ..self
        }
    }

    /// The PG that held this one's objects when the pool had `old_pg_num` PGs.
    pub fn ancestor(self, old_pg_num: u32) -> Self {
        let bits = bit_count(old_pg_num);
        let mask = u32::try_from((1u64 << bits) - 1).unwrap_or(u32::MAX);
        Self {
            seed: stable_mod(self.seed, old_pg_num, mask),
            ..self
        }
    }

    /// The PGs that split off this one when the pool grows from `old_pg_num` to `new_pg_num`,
    /// ascending.
    pub fn split_children(self, old_pg_num: u32, new_pg_num: u32) -> Vec<Self> {
        if self.seed >= old_pg_num || new_pg_num <= old_pg_num {
            return Vec::new();
        }
        (old_pg_num..new_pg_num)
            .map(|seed| Self { seed, ..self })
            .filter(|c| c.ancestor(old_pg_num) == self)
            .collect()
    }

    /// The number of low hash bits that all the PG's objects share in a pool of `pg_num` PGs.
    pub fn split_bits(self, pg_num: u32) -> u32 {
        if pg_num <= 1 {
            return 0;
        }
        let p = bit_count(pg_num);
        let half_mask = (1u32 << (p - 1)) - 1;
        if self.seed & half_mask < pg_num & half_mask {
            p
        } else {
            p - 1
        }
    }

    /// Whether an object with `hash` belongs to this PG of a pool with `pg_num` PGs.
    pub fn contains_hash(self, pg_num: u32, hash: u32) -> bool {
        let bits = self.split_bits(pg_num);
        let mask = u32::try_from((1u64 << bits) - 1).unwrap_or(u32::MAX);
        hash & mask == self.seed & mask
    }

    /// The first place of the PG in object order.
    pub fn hobj_start(self) -> HObject {
        HObject {
            hash: self.seed,
            pool: self.pool.signed(),
            ..HObject::default()
        }
    }

    /// The place right after the PG's last object: the end-of-PG cursor of listings.
    pub fn hobj_end(self, pg_num: u32) -> HObject {
        let bits = self.split_bits(pg_num);
        let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
        match (self.seed.reverse_bits() | rest).checked_add(1) {
            None => HObject::max(),
            Some(end) => HObject {
                hash: end.reverse_bits(),
                pool: self.pool.signed(),
                snap: super::snap::NOSNAP,
                ..HObject::default()
            },
        }
    }
}

/// `1.2a`: the pool in decimal, the seed in hexadecimal.
impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}

impl FromStr for PgId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = Error::Invalid("PG id");
        let (pool, seed) = text.split_once('.').ok_or(invalid.clone())?;
        Ok(Self {
            pool: pool.parse().map_err(|_| invalid.clone())?,
            seed: u32::from_str_radix(seed, 16).map_err(|_| invalid)?,
        })
    }
}

impl Encode for PgId {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.pool);
        w.u32(self.seed);
        // Once the "preferred" OSD.
        w.i32(-1);
    }
}

impl Decode for PgId {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        // The official reader ignores this version byte too.
        r.u8()?;
        let pg = Self {
            pool: r.get()?,
            seed: r.u32()?,
        };
        r.skip(4)?;
        Ok(pg)
    }
}

versioned! {
    /// `spg_t`: a PG, or one shard of an erasure-coded one.
    #[derive(Copy, Eq, PartialOrd, Ord, Hash)]
    pub struct SpgId("spg_t", version 1, compat 1) {
        /// The PG.
        pub pgid: PgId;
        /// The shard, or [`SpgId::NO_SHARD`].
        pub shard: i8 = Self::NO_SHARD;
    }
}

impl SpgId {
    /// The shard of a replicated PG.
    pub const NO_SHARD: i8 = -1;

    /// A PG without shards.
    pub const fn whole(pgid: PgId) -> Self {
        Self {
            pgid,
            shard: Self::NO_SHARD,
        }
    }
}

/// As [`PgId`], with `s` and the shard behind it where there is one: `1.2as0`.
impl fmt::Display for SpgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pgid)?;
        if self.shard == Self::NO_SHARD {
            Ok(())
        } else {
            write!(f, "s{}", self.shard.cast_unsigned())
        }
    }
}

impl FromStr for SpgId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once('s') {
            None => Ok(Self::whole(text.parse()?)),
            Some((pgid, shard)) => {
                let shard: u8 = shard.parse().map_err(|_| Error::Invalid("PG shard"))?;
                Ok(Self {
                    pgid: pgid.parse()?,
                    shard: shard.cast_signed(),
                })
            }
        }
    }
}

/// `pg_shard_t`: a member of a PG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgShard {
    /// The OSD.
    pub osd: OsdId,
    /// Its shard, or [`SpgId::NO_SHARD`].
    pub shard: i8,
}

/// `3`, or `3(1)` for shard 1.
impl fmt::Display for PgShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shard == SpgId::NO_SHARD {
            write!(f, "{}", self.osd)
        } else {
            write!(f, "{}({})", self.osd, self.shard.cast_unsigned())
        }
    }
}

impl Encode for PgShard {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| {
            w.put(&self.osd);
            w.i8(self.shard);
        });
    }
}

impl Decode for PgShard {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("pg_shard_t", 1, |_, r| {
            Ok(Self {
                osd: r.get()?,
                shard: r.i8()?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_by_epoch_first() {
        assert!(EVersion::new(Epoch::new(2), 1) > EVersion::new(Epoch::new(1), 9));
        assert!(EVersion::new(Epoch::new(2), 2) > EVersion::new(Epoch::new(2), 1));
        assert_eq!(EVersion::new(Epoch::new(7), 12).to_string(), "7'12");
    }

    #[test]
    fn pg_ids_parse_as_they_print() {
        for text in ["1.0", "7.2a", "12.ffffffff", "1.2as0", "1.2as254"] {
            assert_eq!(text.parse::<SpgId>().map(|p| p.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "1", "1.", ".1", "1.g", "1.2s", "1.2s256", "-1.2"] {
            assert!(text.parse::<SpgId>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_hash_belongs_to_the_pg_that_stable_mod_names_and_lies_in_its_range() {
        for pg_num in [1u32, 2, 3, 7, 8, 12, 31, 100] {
            for i in 0..2000u32 {
                let hash = i.wrapping_mul(0x9e37_79b1);
                let seed = stable_mod(hash, pg_num, stable_mask(pg_num));
                for pg in (0..pg_num).map(|s| PgId::new(PoolId::new(1), s)) {
                    assert_eq!(
                        pg.contains_hash(pg_num, hash),
                        pg.seed == seed,
                        "{pg_num} {pg} {hash:x}"
                    );
                    let o = HObject {
                        hash,
                        pool: 1,
                        ..HObject::default()
                    };
                    let inside = pg.hobj_start() <= o && o < pg.hobj_end(pg_num);
                    assert_eq!(inside, pg.seed == seed, "{pg_num} {pg} {hash:x}");
                }
            }
        }
    }

    #[test]
    fn every_new_pg_splits_off_one_old_pg() {
        for (old, new) in [(1, 2), (3, 8), (8, 32), (12, 13), (7, 100)] {
            let mut seen = Vec::new();
            for pg in (0..old).map(|s| PgId::new(PoolId::new(1), s)) {
                for child in pg.split_children(old, new) {
                    seen.push(child.seed);
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, (old..new).collect::<Vec<_>>());
        }
    }
}
