//! A map without CRUSH: a PG's members are the next OSDs after its seed that are in.

use std::collections::BTreeMap;

use spirula_denc::EntityAddr;
use spirula_maps::{Epoch, ObjectLocator, ObjectName, OsdId, PgId, PoolId};

use crate::pg::cluster::{ClusterMap, OsdView, Placement, PoolView};

#[derive(Debug, Clone)]
pub(super) struct FakeMap {
    pub(super) epoch: Epoch,
    osds: Vec<OsdView>,
    pub(super) out: Vec<OsdId>,
    pub(super) gone: Vec<OsdId>,
    pub(super) pools: BTreeMap<PoolId, PoolView>,
    pub(super) blocklist: Vec<EntityAddr>,
    pub(super) no_snap_trim: bool,
    /// No PG is scrubbed unless a test says so.
    pub(super) no_scrub: bool,
    pub(super) no_backfill: bool,
    pub(super) no_rebalance: bool,
    pub(super) no_recover: bool,
    /// Temporary acting sets.
    pub(super) temp: BTreeMap<PgId, Vec<OsdId>>,
}

impl FakeMap {
    pub(super) fn new(osds: u16) -> Self {
        let osds = vec![OsdView::default(); osds.into()];
        Self {
            epoch: Epoch::new(1),
            osds,
            out: Vec::new(),
            gone: Vec::new(),
            pools: BTreeMap::new(),
            blocklist: Vec::new(),
            no_snap_trim: false,
            no_scrub: true,
            no_backfill: false,
            no_rebalance: false,
            no_recover: false,
            temp: BTreeMap::new(),
        }
    }

    pub(super) fn add_pool(&mut self, id: PoolId, size: u32, pg_num: u32) {
        let pool = PoolView {
            id,
            name: format!("pool{id}"),
            size,
            min_size: size - size / 2,
            pg_num,
            created: self.epoch,
            layout: Some(super::coded::layout_of(size)),
            ..PoolView::default()
        };
        self.pools.insert(id, pool);
    }

    pub(super) fn mark_up(&mut self, id: OsdId) {
        let o = &mut self.osds[id.index()];
        o.up = true;
        o.up_from = self.epoch;
    }

    pub(super) fn mark_down(&mut self, id: OsdId) {
        let o = &mut self.osds[id.index()];
        o.up = false;
        o.down_at = self.epoch;
    }

    /// An operator says that an OSD's data is lost.
    pub(super) fn mark_lost(&mut self, id: OsdId) {
        self.osds[id.index()].lost_at = self.epoch;
    }

    /// How full an OSD is.
    pub(super) fn set_full(&mut self, id: OsdId, backfillfull: bool, full: bool) {
        let o = &mut self.osds[id.index()];
        (o.backfillfull, o.full) = (backfillfull, full);
    }

    /// Records that an OSD is up in epoch `want`, as monitors do.
    pub(super) fn mark_alive(&mut self, id: OsdId, want: Epoch) {
        let o = &mut self.osds[id.index()];
        o.up_thru = o.up_thru.max(want);
    }

    pub(super) fn up_thru(&self, id: OsdId) -> Epoch {
        self.osds[id.index()].up_thru
    }

    pub(super) fn is_up(&self, id: OsdId) -> bool {
        self.osds[id.index()].up
    }

    pub(super) fn up_from(&self, id: OsdId) -> Epoch {
        self.osds[id.index()].up_from
    }
}

/// Any spread will do.
pub(super) fn hash_name(name: &[u8]) -> u32 {
    name.iter()
        .fold(0x811c_9dc5, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193))
}

impl ClusterMap for FakeMap {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn pool(&self, id: PoolId) -> Option<PoolView> {
        self.pools.get(&id).cloned()
    }

    fn pool_ids(&self) -> Vec<PoolId> {
        self.pools.keys().copied().collect()
    }

    fn placement(&self, pgid: PgId) -> Placement {
        let Some(pool) = self.pools.get(&pgid.pool) else {
            return Placement::default();
        };
        let n = self.osds.len() as u16;
        let start = (pgid.seed % u32::from(n)) as u16;
        let raw: Vec<OsdId> = (0..n)
            .map(|i| OsdId::new((start + i) % n))
            .filter(|o| !self.out.contains(o) && !self.gone.contains(o))
            .take(pool.size as usize)
            .collect();
        let up: Vec<OsdId> = raw.iter().copied().filter(|o| self.is_up(*o)).collect();
        let up_primary = up.first().copied();
        let temp = self.temp.get(&pgid).into_iter().flatten();
        let mut acting: Vec<OsdId> = temp.copied().filter(|o| self.is_up(*o)).collect();
        if acting.is_empty() {
            acting.clone_from(&up);
        }
        let primary = acting.first().copied();
        Placement {
            raw: raw.into(),
            acting: acting.into(),
            up: up.into(),
            up_primary,
            primary,
        }
    }

    fn object_to_raw_pg(&self, name: &ObjectName, locator: &ObjectLocator) -> Option<PgId> {
        let pool = locator.pool?;
        self.pools.get(&pool)?;
        Some(PgId::new(pool, hash_name(name.as_bytes())))
    }

    fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        let pg_num = self.pools.get(&raw.pool)?.pg_num;
        (0..pg_num)
            .map(|s| PgId::new(raw.pool, s))
            .find(|p| p.contains_hash(pg_num, raw.seed))
    }

    fn osd(&self, id: OsdId) -> Option<OsdView> {
        self.osds
            .get(id.index())
            .copied()
            .filter(|_| !self.gone.contains(&id))
    }

    fn no_snap_trim(&self) -> bool {
        self.no_snap_trim
    }

    fn no_scrub(&self) -> bool {
        self.no_scrub
    }

    fn no_deep_scrub(&self) -> bool {
        false
    }

    fn no_backfill(&self) -> bool {
        self.no_backfill
    }

    fn no_recover(&self) -> bool {
        self.no_recover
    }

    fn no_rebalance(&self) -> bool {
        self.no_rebalance
    }

    fn max_osd(&self) -> u32 {
        self.osds.len() as u32
    }

    fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        self.blocklist.contains(addr)
    }
}
