//! What the PG core wants to know of the cluster's maps. A trait, so that the core is tested without real maps.

use std::fmt::Debug;
use std::sync::Arc;

use spirula_denc::EntityAddr;
use spirula_maps::{IntervalSet, ObjectLocator, ObjectName, PgId, SnapContext};

/// Where a PG belongs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// What CRUSH (and upmap) says, whether those OSDs are up or not.
    pub raw: Vec<i32>,
    /// Those that are up.
    pub up: Vec<i32>,
    /// The primary of `up`, -1 for none.
    pub up_primary: i32,
    /// Those that serve it.
    pub acting: Vec<i32>,
    /// The primary of `acting`, -1 for none.
    pub primary: i32,
}

/// A pool's snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolSnaps {
    /// What every write must preserve, where the pool has snapshots of itself. Else clients say what.
    pub context: Option<SnapContext>,
    /// Removed ones that are not trimmed in all PGs.
    pub removed: IntervalSet,
    /// Removed ones that are trimmed in all PGs. Clients that were away may still name them.
    pub purged: Arc<IntervalSet>,
}

/// A pool's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolView {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Copies wanted.
    pub size: u32,
    /// Copies without which nothing is served.
    pub min_size: u32,
    /// PGs.
    pub pg_num: u32,
    /// The epoch it was made in.
    pub created: u32,
    /// Ops sent before this epoch are sent again by their clients.
    pub last_force_op_resend: u32,
    /// Writes that grow it are not possible: an OSD is full, or its quota is used up.
    pub full: bool,
    /// It is its quota that is used up.
    pub full_quota: bool,
    /// All ops fail with `EIO` (`FLAG_EIO`).
    pub eio: bool,
    /// Whether this kind of pool is served here; erasure-coded ones are not yet.
    pub replicated: bool,
    /// How much earlier than others its PGs recover (`recovery_priority`).
    pub recovery_priority: i64,
    /// Its snapshots.
    pub snaps: Arc<PoolSnaps>,
    /// Applications and their keys and values, which capabilities may name.
    pub applications: std::collections::BTreeMap<String, std::collections::BTreeMap<String, String>>,
}

/// An OSD that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdView {
    /// Whether it is up.
    pub up: bool,
    /// The epoch since which it is, or last was.
    pub up_from: u32,
    /// The newest epoch in which it certainly was, as it had that recorded.
    pub up_thru: u32,
    /// The epoch it was marked down in, 0 for never.
    pub down_at: u32,
    /// The epoch in which an operator declared its data lost, 0 for never.
    pub lost_at: u32,
    /// It is down, and certainly dead: nobody is served by it any more.
    pub dead: bool,
    /// It is so full that no PGs are to move to it.
    pub backfillfull: bool,
    /// It is so full that nothing is to be copied to it.
    pub full: bool,
}

/// One epoch of the cluster's map.
pub trait ClusterMap: Debug + Send + Sync {
    /// The epoch.
    fn epoch(&self) -> u32;
    /// A pool, if there.
    fn pool(&self, id: u64) -> Option<PoolView>;
    /// The ids of all pools.
    fn pool_ids(&self) -> Vec<u64>;
    /// Where a PG belongs.
    fn placement(&self, pgid: PgId) -> Placement;
    /// The pool of an object with the hash of its name, if there is such a pool.
    fn object_to_raw_pg(&self, name: &ObjectName, locator: &ObjectLocator) -> Option<PgId>;
    /// The PG that holds the objects of a pool with a hash.
    fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId>;
    /// An OSD, if it exists.
    fn osd(&self, id: i32) -> Option<OsdView>;
    /// Whether no removed snapshot is to be trimmed for now (flag `nosnaptrim`).
    fn no_snap_trim(&self) -> bool;
    /// Whether no PGs are to be compared and copied in the background for now (flag `nobackfill`).
    fn no_backfill(&self) -> bool;
    /// Whether nothing at all is to be copied in the background for now (flag `norecover`).
    fn no_recover(&self) -> bool;
    /// Whether PGs that have all their copies are not to move for now (flag `norebalance`).
    fn no_rebalance(&self) -> bool;
    /// The number of places for OSDs; every id is below it.
    fn max_osd(&self) -> i32;
    /// Whether a client at this address is shut out.
    fn is_blocklisted(&self, addr: &EntityAddr) -> bool;
}
