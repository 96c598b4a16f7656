//! An OSDMap as the PG core sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use spirula_conf::amount;
use spirula_denc::EntityAddr;
use spirula_erasure::Layout as Coding;
use spirula_maps::{
    Epoch, ObjectLocator, ObjectName, OsdId, OsdMap, OsdMapFlags, OsdState, PgId, PgPool, PoolFlags, PoolId,
    PoolType, pool::PoolOption,
};

use super::purged_snaps::PurgedSnaps;
use crate::pg::cluster::{ClusterMap, OsdView, Placement, PoolSnaps, PoolView};
use crate::pg::layout::Layout;
use crate::pg::scrub::schedule::PoolIntervals;

/// The map of one epoch, with what it does not tell itself: when pools were made, and which
/// snapshots are gone.
#[derive(Debug, Clone)]
pub(super) struct MapView {
    pub(super) map: OsdMap,
    /// The epochs in which this OSD saw pools being made; 0 for other pools.
    pub(super) created: BTreeMap<PoolId, Epoch>,
    /// The known purged snapshots of the pools.
    pub(super) purged: PurgedSnaps,
}

impl MapView {
    /// How members of a pool hold its objects. Monitors keep the profile of a pool as it was when the
    /// pool was made.
    fn layout(&self, p: &PgPool) -> Option<Layout> {
        match p.kind {
            PoolType::REPLICATED => Some(Layout::Whole),
            PoolType::ERASURE => {
                let profile = self.map.erasure_code_profiles.get(&p.erasure_code_profile)?;
                let k: u8 = profile.get("k")?.parse().ok()?;
                let m = p.size.checked_sub(k)?;
                Coding::new(k, m, unit(profile)).ok().map(Layout::Coded)
            }
            _ => None,
        }
    }

    fn view(&self, id: PoolId, p: &PgPool) -> PoolView {
        PoolView {
            id,
            name: self.map.pool_name(id).unwrap_or_default().to_owned(),
            size: u32::from(p.size),
            min_size: u32::from(p.min_size),
            pg_num: p.pg_num,
            created: self.created.get(&id).copied().unwrap_or_default(),
            last_force_op_resend: p.last_force_op_resend,
            full: p.flags.contains(PoolFlags::FULL),
            full_quota: p.flags.contains(PoolFlags::FULL_QUOTA),
            eio: p.flags.contains(PoolFlags::EIO),
            layout: self.layout(p),
            recovery_priority: match p.opts.get("recovery_priority") {
                Some(PoolOption::Int(n)) => *n,
                _ => 0,
            },
            scrubs: scrubs_of(p),
            snaps: Arc::new(PoolSnaps {
                context: p.has_pool_snaps().then(|| p.snap_context()),
                removed: self.map.removed_snaps_queue.get(&id).cloned().unwrap_or_default(),
                purged: self.purged.of_pool(id),
            }),
            applications: p.application_metadata.clone(),
        }
    }
}

/// The bytes of a stripe's unit: those that a profile states, if our layouts can have them.
fn unit(profile: &BTreeMap<String, String>) -> u32 {
    let stated = profile.get("stripe_unit").and_then(|text| amount::iec(text).ok());
    let stated = stated.and_then(|n| u32::try_from(n).ok());
    let can_be = |n: &u32| n.is_power_of_two() && (Coding::MIN_UNIT..=Coding::MAX_UNIT).contains(n);
    stated.filter(can_be).unwrap_or(Coding::DEFAULT_UNIT)
}

/// When a pool's PGs are scrubbed.
fn scrubs_of(p: &PgPool) -> PoolIntervals {
    let seconds = |name| match p.opts.get(name) {
        Some(PoolOption::Float(n)) => *n,
        _ => 0.0,
    };
    PoolIntervals {
        min: seconds("scrub_min_interval"),
        max: seconds("scrub_max_interval"),
        deep: seconds("deep_scrub_interval"),
        no_scrub: p.flags.contains(PoolFlags::NOSCRUB),
        no_deep: p.flags.contains(PoolFlags::NODEEP_SCRUB),
    }
}

impl ClusterMap for MapView {
    fn epoch(&self) -> Epoch {
        self.map.epoch
    }

    fn pool(&self, id: PoolId) -> Option<PoolView> {
        self.map.pool(id).map(|p| self.view(id, p))
    }

    fn pool_ids(&self) -> Vec<PoolId> {
        self.map.pools.keys().copied().collect()
    }

    fn placement(&self, pgid: PgId) -> Placement {
        let m = self.map.map_pg(pgid);
        Placement {
            raw: self.map.map_pg_raw(pgid),
            up: m.up,
            up_primary: m.up_primary,
            acting: m.acting,
            primary: m.acting_primary,
        }
    }

    fn object_to_raw_pg(&self, name: &ObjectName, locator: &ObjectLocator) -> Option<PgId> {
        self.map.object_to_raw_pg(name, locator)
    }

    fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        self.map.raw_pg_to_pg(raw)
    }

    fn osd(&self, id: OsdId) -> Option<OsdView> {
        if !self.map.exists(id) {
            return None;
        }
        let info = self.map.osd_info.get(id.index()).copied().unwrap_or_default();
        let xinfo = self.map.osd_xinfo.get(id.index());
        let state = self.map.state(id);
        let dead_epoch = xinfo.map_or(Epoch::NONE, |x| x.dead_epoch);
        Some(OsdView {
            up: self.map.is_up(id),
            up_from: info.up_from,
            up_thru: info.up_thru,
            down_at: info.down_at,
            lost_at: info.lost_at,
            backfillfull: state.intersects(OsdState::BACKFILLFULL.with(OsdState::FULL)),
            full: state.contains(OsdState::FULL),
            dead: !self.map.is_up(id) && dead_epoch > Epoch::NONE && dead_epoch >= info.up_from,
        })
    }

    fn no_snap_trim(&self) -> bool {
        self.map.flags.contains(OsdMapFlags::NOSNAPTRIM)
    }

    fn no_scrub(&self) -> bool {
        self.map.flags.contains(OsdMapFlags::NOSCRUB)
    }

    fn no_deep_scrub(&self) -> bool {
        self.map.flags.contains(OsdMapFlags::NODEEP_SCRUB)
    }

    fn no_backfill(&self) -> bool {
        self.map.flags.contains(OsdMapFlags::NOBACKFILL)
    }

    fn no_recover(&self) -> bool {
        self.map.flags.contains(OsdMapFlags::NORECOVER)
    }

    fn no_rebalance(&self) -> bool {
        self.map.flags.contains(OsdMapFlags::NOREBALANCE)
    }

    fn max_osd(&self) -> u32 {
        self.map.max_osd
    }

    fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        self.map.is_blocklisted(addr)
    }
}
