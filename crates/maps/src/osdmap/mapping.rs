//! From object to PG to OSDs: the steps of `OSDMap::_pg_to_up_acting_osds` in Ceph's
//! `src/osd/OSDMap.cc`.
//!
//! object → raw PG (hash) → PG → CRUSH → `pg_upmap`, `pg_upmap_items` → up set (who of them is up)
//! → primary by affinity → acting set (`pg_temp`, `primary_temp`, or the up set).

use spirula_crush::{ITEM_NONE, Workspace, hash32_2};
use spirula_denc::{Decode, Encode, Reader, Result, Writer};

use super::{MAX_PRIMARY_AFFINITY, OsdMap, WEIGHT_OUT};
use crate::pool::PgPool;
use crate::types::{ObjectLocator, ObjectName, PgId};

/// No OSD, as a primary.
pub const NO_OSD: i32 = -1;

/// A replacement in a PG's members (`pg_upmap_items`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpmapItem {
    /// The OSD that CRUSH names.
    pub from: i32,
    /// The OSD that stands in its place.
    pub to: i32,
}

impl Encode for UpmapItem {
    fn encode(&self, w: &mut Writer) {
        w.i32(self.from);
        w.i32(self.to);
    }
}

impl Decode for UpmapItem {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            from: r.i32()?,
            to: r.i32()?,
        })
    }
}

/// Where a PG is. Members that are missing are [`ITEM_NONE`] in erasure-coded pools, and left out
/// in others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgMapping {
    /// The OSDs that CRUSH names and that are up.
    pub up: Vec<i32>,
    /// The first of them by affinity, or [`NO_OSD`].
    pub up_primary: i32,
    /// The OSDs that serve.
    pub acting: Vec<i32>,
    /// The one that clients talk to, or [`NO_OSD`].
    pub acting_primary: i32,
}

impl PgMapping {
    /// Nowhere: the pool does not exist.
    pub const fn nowhere() -> Self {
        Self {
            up: Vec::new(),
            up_primary: NO_OSD,
            acting: Vec::new(),
            acting_primary: NO_OSD,
        }
    }
}

impl OsdMap {
    /// The raw PG of an object: the pool with the full hash. `None` where there is no such pool.
    pub fn object_to_raw_pg(&self, name: &ObjectName, locator: &ObjectLocator) -> Option<PgId> {
        let id = locator.pool?;
        let pool = self.pool(id)?;
        Some(PgId {
            pool: id,
            seed: pool.raw_seed(name.as_bytes(), locator),
        })
    }

    /// The PG that a raw PG's objects are in.
    pub fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        self.pool_of(raw).map(|pool| pool.raw_pg_to_pg(raw))
    }

    /// The PG of an object.
    pub fn object_to_pg(&self, name: &ObjectName, locator: &ObjectLocator) -> Option<PgId> {
        self.raw_pg_to_pg(self.object_to_raw_pg(name, locator)?)
    }

    /// Where a PG (or raw PG) is.
    pub fn map_pg(&self, pg: PgId) -> PgMapping {
        self.map_pg_with(&mut Workspace::new(), pg)
    }

    /// [`OsdMap::map_pg`] with scratch memory that the caller keeps.
    pub fn map_pg_with(&self, ws: &mut Workspace, pg: PgId) -> PgMapping {
        let Some(pool) = self.pool_of(pg) else {
            return PgMapping::nowhere();
        };
        let pg = pool.raw_pg_to_pg(pg);
        let seed = pool.placement_seed(pg);
        let mut up = self.crush_osds(ws, pool, pg, seed);
        self.apply_upmap(pg, &mut up);
        self.keep_up(pool, &mut up);
        let mut up_primary = pick_primary(&up);
        self.apply_affinity(seed, pool, &mut up, &mut up_primary);

        let mut acting = self.pg_temp.get(&pg).cloned().unwrap_or_default();
        self.keep_up(pool, &mut acting);
        let mut acting_primary = match self.primary_temp.get(&pg) {
            Some(osd) => *osd,
            None => pick_primary(&acting),
        };
        if acting.is_empty() {
            acting.clone_from(&up);
            if acting_primary == NO_OSD {
                acting_primary = up_primary;
            }
        }
        PgMapping {
            up,
            up_primary,
            acting,
            acting_primary,
        }
    }

    /// The OSDs that CRUSH chooses for a PG, before any exception: the "raw" set.
    pub fn map_pg_raw(&self, pg: PgId) -> Vec<i32> {
        let Some(pool) = self.pool_of(pg) else {
            return Vec::new();
        };
        let pg = pool.raw_pg_to_pg(pg);
        self.crush_osds(&mut Workspace::new(), pool, pg, pool.placement_seed(pg))
    }

    fn crush_osds(&self, ws: &mut Workspace, pool: &PgPool, pg: PgId, seed: u32) -> Vec<i32> {
        let size = usize::from(pool.size);
        let mut osds = Vec::with_capacity(size);
        self.crush.map().do_rule_with(
            ws,
            pool.crush_rule.into(),
            seed.cast_signed(),
            size,
            &self.osd_weight,
            Some(pg.pool.signed()),
            &mut osds,
        );
        filter(pool, &mut osds, |osd| self.exists(osd));
        osds
    }

    /// Leaves only OSDs that are up.
    fn keep_up(&self, pool: &PgPool, osds: &mut Vec<i32>) {
        filter(pool, osds, |osd| self.is_up(osd));
    }

    /// Whether `osd` is one that may hold data by its id, but is marked out. Ids out of range are
    /// not.
    fn is_marked_out(&self, osd: i32) -> bool {
        usize::try_from(osd).ok().and_then(|i| self.osd_weight.get(i)) == Some(&WEIGHT_OUT)
    }

    fn apply_upmap(&self, pg: PgId, osds: &mut Vec<i32>) {
        if let Some(given) = self.pg_upmap.get(&pg) {
            if given.iter().any(|osd| self.is_marked_out(*osd)) {
                // Then the replacements below don't apply either.
                return;
            }
            osds.clone_from(given);
        }
        for UpmapItem { from, to } in self.pg_upmap_items.get(&pg).into_iter().flatten() {
            if osds.contains(to) || self.is_marked_out(*to) {
                continue;
            }
            if let Some(place) = osds.iter_mut().find(|osd| *osd == from) {
                *place = *to;
            }
        }
    }

    /// Chooses the primary: an OSD with an affinity below 1 refuses a fraction of its PGs. Where
    /// members have no fixed place, the primary moves to the front.
    fn apply_affinity(&self, seed: u32, pool: &PgPool, osds: &mut [i32], primary: &mut i32) {
        if self.primary_affinity.is_none()
            || osds.iter().all(|osd| self.affinity(*osd) == MAX_PRIMARY_AFFINITY)
        {
            return;
        }
        let present = |i: &usize| osds[*i] != ITEM_NONE;
        let accepts = |i: &usize| {
            let affinity = self.affinity(osds[*i]);
            affinity >= MAX_PRIMARY_AFFINITY || hash32_2(seed, osds[*i].cast_unsigned()) >> 16 < affinity
        };
        let places = || (0..osds.len()).filter(present);
        // Where all refuse, the first has to.
        let Some(place) = places().find(accepts).or_else(|| places().next()) else {
            return;
        };
        *primary = osds[place];
        if pool.can_shift_osds() {
            osds[..=place].rotate_right(1);
        }
    }
}

/// Removes the OSDs for which `keep` is false; leaves holes if members have a fixed place.
fn filter(pool: &PgPool, osds: &mut Vec<i32>, keep: impl Fn(i32) -> bool) {
    if pool.can_shift_osds() {
        osds.retain(|osd| keep(*osd));
    } else {
        for osd in osds.iter_mut().filter(|osd| !keep(**osd)) {
            *osd = ITEM_NONE;
        }
    }
}

fn pick_primary(osds: &[i32]) -> i32 {
    osds.iter()
        .copied()
        .find(|osd| *osd != ITEM_NONE)
        .unwrap_or(NO_OSD)
}
