//! Pools: `pg_pool_t` of Ceph's `src/osd/osd_types.h`.

mod flags;
mod options;
mod snaps;
mod types;

pub use flags::{AutoscaleMode, CacheMode, PoolFlags, PoolType};
pub use options::{PoolOption, PoolOptionKind, PoolOptions};
pub use types::{HitSetParams, PgMergeMeta, PgPool, PoolSnap};

use crate::hash::StrHash;
use crate::types::{ObjectLocator, PgId, stable_mask, stable_mod};

/// The separator of namespace and name when both are hashed.
const NAMESPACE_SEPARATOR: &[u8] = b"\x1f";

impl PgPool {
    /// A replicated pool as `ceph osd pool create` makes it.
    pub fn replicated(size: u8, min_size: u8, pg_num: u32, crush_rule: u8) -> Self {
        Self {
            kind: PoolType::REPLICATED,
            flags: PoolFlags::HASHPSPOOL,
            size,
            min_size,
            crush_rule,
            object_hash: StrHash::RJENKINS,
            pg_num,
            pgp_num: pg_num,
            pg_num_target: pg_num,
            pgp_num_target: pg_num,
            pg_num_pending: pg_num,
            autoscale_mode: AutoscaleMode::OFF,
            ..Self::default()
        }
    }

    /// Whether objects are erasure-coded: positions in the acting set then have a meaning.
    pub fn is_erasure(&self) -> bool {
        self.kind == PoolType::ERASURE
    }

    /// Whether the set of OSDs closes up when one is missing. Erasure-coded pools keep holes.
    pub fn can_shift_osds(&self) -> bool {
        !self.is_erasure()
    }

    /// The hash that decides an object's PG: of its namespace and its locator key, or else its
    /// name.
    pub fn hash_object(&self, name: &[u8], key: &[u8], nspace: &[u8]) -> u32 {
        let hashed = if key.is_empty() { name } else { key };
        if nspace.is_empty() {
            self.object_hash.hash(&[hashed])
        } else {
            self.object_hash.hash(&[nspace, NAMESPACE_SEPARATOR, hashed])
        }
    }

    /// The full hash of an object, from its locator: the "raw" PG's seed. The locator's own hash
    /// wins.
    pub fn raw_seed(&self, name: &[u8], locator: &ObjectLocator) -> u32 {
        match u32::try_from(locator.hash) {
            Ok(hash) => hash,
            Err(_) => self.hash_object(name, locator.key.as_bytes(), locator.nspace.as_bytes()),
        }
    }

    /// The PG that holds objects with the hash `raw.seed`.
    pub fn raw_pg_to_pg(&self, raw: PgId) -> PgId {
        PgId {
            seed: stable_mod(raw.seed, self.pg_num, stable_mask(self.pg_num)),
            ..raw
        }
    }

    /// The placement seed of a PG: what CRUSH maps.
    pub fn placement_seed(&self, pg: PgId) -> u32 {
        let seed = stable_mod(pg.seed, self.pgp_num, stable_mask(self.pgp_num));
        // Placement seeds have 32 bits, so has the pool's id in them.
        let pool = pg.pool.unsigned() as u32;
        if self.flags.contains(PoolFlags::HASHPSPOOL) {
            spirula_crush::hash32_2(seed, pool)
        } else {
            // The oldest pools: PGs of several pools overlap.
            seed.wrapping_add(pool)
        }
    }
}
