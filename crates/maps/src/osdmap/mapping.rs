//! From object to PG to OSDs: the steps of `OSDMap::_pg_to_up_acting_osds` in Ceph's
//! `src/osd/OSDMap.cc`.
//!
//! object → raw PG (hash) → PG → CRUSH → `pg_upmap`, `pg_upmap_items` → up set (who of them is up)
//! → primary by affinity → acting set (`pg_temp`, `primary_temp`, or the up set).

use spirula_crush::{Workspace, hash32_2};
use spirula_denc::{Decode, Encode, Reader, Result, Writer};

use super::{MAX_PRIMARY_AFFINITY, OsdMap, WEIGHT_OUT};
use crate::pool::PgPool;
use crate::types::{ObjectLocator, ObjectName, OsdId, PgId, Positions, SpgId, osd_or_hole};

/// A replacement in a PG's members (`pg_upmap_items`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpmapItem {
    /// The OSD that CRUSH names.
    pub from: OsdId,
    /// The OSD that stands in its place; `None` for a hole.
    pub to: Option<OsdId>,
}

impl Encode for UpmapItem {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.from);
        osd_or_hole::encode(&self.to, w);
    }
}

impl Decode for UpmapItem {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            from: r.get()?,
            to: osd_or_hole::decode(r)?,
        })
    }
}

/// Where a PG is. Members that are missing leave holes in erasure-coded pools, and are left out in
/// others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgMapping {
    /// The OSDs that CRUSH names and that are up.
    pub up: Positions,
    /// The first of them by affinity.
    pub up_primary: Option<OsdId>,
    /// The OSDs that serve.
    pub acting: Positions,
    /// The one that clients talk to.
    pub acting_primary: Option<OsdId>,
}

impl PgMapping {
    /// Nowhere: the pool does not exist.
    pub const fn nowhere() -> Self {
        Self {
            up: Positions::EMPTY,
            up_primary: None,
            acting: Positions::EMPTY,
            acting_primary: None,
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

    /// The acting primary of a PG, and the PG as messages to it name it: of an erasure-coded pool
    /// the shard that the primary holds. `None` where the PG has no primary.
    pub fn primary_shard(&self, pg: PgId) -> Option<(OsdId, SpgId)> {
        let at = self.map_pg(pg);
        let primary = at.acting_primary?;
        if !self.pool_of(pg)?.is_erasure() {
            return Some((primary, SpgId::whole(pg)));
        }
        let shard = i8::try_from(at.acting.of(primary)?).ok()?;
        Some((primary, SpgId { pgid: pg, shard }))
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
        let mut up_primary = up.first();
        self.apply_affinity(seed, pool, &mut up, &mut up_primary);

        let mut acting = self.pg_temp.get(&pg).cloned().unwrap_or_default();
        self.keep_up(pool, &mut acting);
        let given = self.primary_temp.get(&pg).copied();
        let mut acting_primary = given.or_else(|| acting.first());
        if acting.is_empty() {
            acting.clone_from(&up);
            acting_primary = acting_primary.or(up_primary);
        }
        PgMapping {
            up,
            up_primary,
            acting,
            acting_primary,
        }
    }

    /// The OSDs that CRUSH chooses for a PG, before any exception: the "raw" set.
    pub fn map_pg_raw(&self, pg: PgId) -> Positions {
        let Some(pool) = self.pool_of(pg) else {
            return Positions::EMPTY;
        };
        let pg = pool.raw_pg_to_pg(pg);
        self.crush_osds(&mut Workspace::new(), pool, pg, pool.placement_seed(pg))
    }

    fn crush_osds(&self, ws: &mut Workspace, pool: &PgPool, pg: PgId, seed: u32) -> Positions {
        let size = usize::from(pool.size);
        let mut items = Vec::with_capacity(size);
        self.crush.map().do_rule_with(
            ws,
            pool.crush_rule.into(),
            seed.cast_signed(),
            size,
            &self.osd_weight,
            Some(pg.pool.signed()),
            &mut items,
        );
        let mut osds: Positions = items.into_iter().map(OsdId::of_item).collect();
        osds.keep(pool.can_shift_osds(), |osd| self.exists(osd));
        osds
    }

    /// Leaves only OSDs that are up.
    fn keep_up(&self, pool: &PgPool, osds: &mut Positions) {
        osds.keep(pool.can_shift_osds(), |osd| self.is_up(osd));
    }

    /// Whether `osd` is one that may hold data by its id, but is marked out. Ids out of range are
    /// not.
    fn is_marked_out(&self, osd: OsdId) -> bool {
        self.osd_weight.get(osd.index()) == Some(&WEIGHT_OUT)
    }

    fn apply_upmap(&self, pg: PgId, osds: &mut Positions) {
        if let Some(given) = self.pg_upmap.get(&pg) {
            if given.osds().any(|osd| self.is_marked_out(osd)) {
                // Then the replacements below don't apply either.
                return;
            }
            osds.clone_from(given);
        }
        for UpmapItem { from, to } in self.pg_upmap_items.get(&pg).into_iter().flatten() {
            if osds.slots().contains(to) || to.is_some_and(|to| self.is_marked_out(to)) {
                continue;
            }
            if let Some(place) = osds.slots_mut().iter_mut().find(|osd| **osd == Some(*from)) {
                *place = *to;
            }
        }
    }

    /// Chooses the primary: an OSD with an affinity below 1 refuses a fraction of its PGs. Where
    /// members have no fixed place, the primary moves to the front.
    fn apply_affinity(&self, seed: u32, pool: &PgPool, osds: &mut Positions, primary: &mut Option<OsdId>) {
        if self.primary_affinity.is_none()
            || osds.osds().all(|osd| self.affinity(osd) == MAX_PRIMARY_AFFINITY)
        {
            return;
        }
        let accepts = |osd: &OsdId| {
            let affinity = self.affinity(*osd);
            affinity >= MAX_PRIMARY_AFFINITY || hash32_2(seed, osd.item().cast_unsigned()) >> 16 < affinity
        };
        // Where all refuse, the first has to.
        let Some(chosen) = osds.osds().find(accepts).or_else(|| osds.first()) else {
            return;
        };
        *primary = Some(chosen);
        if let Some(place) = osds.of(chosen).filter(|_| pool.can_shift_osds()) {
            osds.slots_mut()[..=place].rotate_right(1);
        }
    }
}
