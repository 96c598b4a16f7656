//! The PG core's view of the cluster's maps. A trait, so that the core is tested without real maps.

use std::fmt::Debug;
use std::sync::Arc;

use spirula_denc::EntityAddr;
use spirula_maps::{
    Epoch, IntervalSet, ObjectLocator, ObjectName, OsdId, PgId, PoolId, Positions, SnapContext,
};

use super::layout::Layout;
use super::scrub::schedule::PoolIntervals;

/// The OSDs of a PG.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// The OSDs chosen by CRUSH (and upmap), whether they are up or not.
    pub raw: Positions,
    /// Those of them that are up.
    pub up: Positions,
    /// The primary of `up`.
    pub up_primary: Option<OsdId>,
    /// The OSDs that serve the PG.
    pub acting: Positions,
    /// The primary of `acting`.
    pub primary: Option<OsdId>,
}

/// A pool's snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolSnaps {
    /// The snapshot context that every write must preserve, if the pool has snapshots of itself.
    /// Otherwise clients send one.
    pub context: Option<SnapContext>,
    /// Removed snapshots that are not trimmed in all PGs.
    pub removed: IntervalSet,
    /// Removed snapshots that are trimmed in all PGs. Clients that were away may still name them.
    pub purged: Arc<IntervalSet>,
}

/// A pool's settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolView {
    /// Its id.
    pub id: PoolId,
    /// Its name.
    pub name: String,
    /// Copies wanted.
    pub size: u32,
    /// The fewest copies with which the pool is served.
    pub min_size: u32,
    /// The number of PGs.
    pub pg_num: u32,
    /// The epoch in which the pool was made.
    pub created: Epoch,
    /// Ops sent before this epoch are sent again by their clients.
    pub last_force_op_resend: Epoch,
    /// Whether writes that grow the pool are impossible: an OSD is full, or the pool's quota is
    /// used up.
    pub full: bool,
    /// Whether it is the pool's quota that is used up.
    pub full_quota: bool,
    /// Whether all ops fail with `EIO` (`FLAG_EIO`).
    pub eio: bool,
    /// How the members of new PGs hold objects; `None` for a kind of pool that is not served.
    pub layout: Option<Layout>,
    /// How much earlier than others the pool's PGs recover (`recovery_priority`).
    pub recovery_priority: i64,
    /// When its PGs are scrubbed.
    pub scrubs: PoolIntervals,
    /// Its snapshots.
    pub snaps: Arc<PoolSnaps>,
    /// The pool's applications with their keys and values, which capabilities may name.
    pub applications: std::collections::BTreeMap<String, std::collections::BTreeMap<String, String>>,
}

/// An OSD that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdView {
    /// Whether the OSD is up.
    pub up: bool,
    /// The epoch since which the OSD is, or last was, up.
    pub up_from: Epoch,
    /// The newest epoch in which the OSD was certainly up, as it had that recorded.
    pub up_thru: Epoch,
    /// The epoch in which the OSD was marked down, 0 for never.
    pub down_at: Epoch,
    /// The epoch in which an operator declared the OSD's data lost, 0 for never.
    pub lost_at: Epoch,
    /// Whether the OSD is down and certainly dead: it serves nobody any more.
    pub dead: bool,
    /// Whether the OSD is so full that no PGs are to move to it.
    pub backfillfull: bool,
    /// Whether the OSD is so full that nothing is to be copied to it.
    pub full: bool,
}

/// One epoch of the cluster's map.
pub trait ClusterMap: Debug + Send + Sync {
    /// The epoch.
    fn epoch(&self) -> Epoch;
    /// A pool, if it exists.
    fn pool(&self, id: PoolId) -> Option<PoolView>;
    /// The ids of all pools.
    fn pool_ids(&self) -> Vec<PoolId>;
    /// The OSDs of a PG.
    fn placement(&self, pgid: PgId) -> Placement;
    /// The pool of an object with the hash of its name, if the pool exists.
    fn object_to_raw_pg(&self, name: &ObjectName, locator: &ObjectLocator) -> Option<PgId>;
    /// The PG that holds the objects of a pool with a hash.
    fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId>;
    /// An OSD, if it exists.
    fn osd(&self, id: OsdId) -> Option<OsdView>;
    /// Whether no removed snapshot is to be trimmed for now (flag `nosnaptrim`).
    fn no_snap_trim(&self) -> bool;
    /// Whether no PG is to be scrubbed unasked for now (flag `noscrub`).
    fn no_scrub(&self) -> bool;
    /// Whether no contents are to be read by scrubs unasked for now (flag `nodeep-scrub`).
    fn no_deep_scrub(&self) -> bool;
    /// Whether no PGs are to be compared and copied in the background for now (flag `nobackfill`).
    fn no_backfill(&self) -> bool;
    /// Whether nothing at all is to be copied in the background for now (flag `norecover`).
    fn no_recover(&self) -> bool;
    /// Whether PGs that have all their copies are not to move for now (flag `norebalance`).
    fn no_rebalance(&self) -> bool;
    /// The number of places for OSDs; every id is below it.
    fn max_osd(&self) -> u32;
    /// Whether a client at this address is on the blocklist.
    fn is_blocklisted(&self, addr: &EntityAddr) -> bool;
}
