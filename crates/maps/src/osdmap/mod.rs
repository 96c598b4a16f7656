//! `OSDMap` of Ceph's `src/osd/OSDMap.h`: the OSDs, the pools and where everything is.

mod apply;
mod cache;
mod frame;
mod full;
mod incremental;
mod mapping;
mod names;
mod osd;
mod query;
mod stretch;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use spirula_crush::CrushMap;
use spirula_denc::{EntityAddr, EntityAddrVec, Fsid, UTime};

pub use apply::{ApplyError, MAX_OSD_LIMIT};
pub use cache::MappingCache;
pub use incremental::Incremental;
pub use mapping::{PgMapping, UpmapItem};
pub use names::{OsdMapFlags, OsdState};
pub use osd::{CleanInterval, OsdCounts, OsdInfo, OsdXInfo};
pub use stretch::{StretchChange, StretchMode};

use crate::features::release;
use crate::interval_set::IntervalSet;
use crate::pool::PgPool;
use crate::types::{Epoch, OsdId, PgId, PoolId, Positions};

/// A pool's removed or purged snapshots, by pool.
pub type SnapsByPool = BTreeMap<PoolId, IntervalSet>;
/// Erasure-code profiles by name.
pub type Profiles = BTreeMap<String, BTreeMap<String, String>>;

/// The weight of an OSD that is in (16.16 fixed point).
pub const WEIGHT_IN: u32 = 0x10000;
/// The weight of an OSD that is out.
pub const WEIGHT_OUT: u32 = 0;
/// The primary affinity of an OSD that takes its full share of primaries, which is the default.
pub const MAX_PRIMARY_AFFINITY: u32 = 0x10000;

/// The CRUSH map inside an OSDMap, with the bytes it was decoded from: these are encoded again, so
/// that maps keep their checksums whichever software wrote them.
#[derive(Debug, Clone)]
pub struct CrushBlob {
    raw: Bytes,
    map: Arc<CrushMap>,
}

impl PartialEq for CrushBlob {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl CrushBlob {
    /// Encodes a CRUSH map.
    pub fn new(map: CrushMap) -> Self {
        Self {
            raw: spirula_denc::encode_to_vec(&map).into(),
            map: Arc::new(map),
        }
    }

    /// Decodes a CRUSH map.
    ///
    /// # Errors
    /// Where it is not one.
    pub fn decode(raw: Bytes) -> spirula_denc::Result<Self> {
        // Newer releases append to it.
        let map = Arc::new(spirula_denc::Reader::new(&raw).get()?);
        Ok(Self { raw, map })
    }

    /// The encoded map.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The map.
    pub fn map(&self) -> &Arc<CrushMap> {
        &self.map
    }
}

/// One epoch of the OSDMap. State of each OSD has an entry for every id below `max_osd`.
#[derive(Debug, Clone, PartialEq)]
pub struct OsdMap {
    /// The cluster.
    pub fsid: Fsid,
    /// Counts the maps.
    pub epoch: Epoch,
    /// When the first was made.
    pub created: UTime,
    /// When this one was.
    pub modified: UTime,
    /// The pools by id.
    pub pools: BTreeMap<PoolId, PgPool>,
    /// Their names.
    pub pool_names: BTreeMap<PoolId, String>,
    /// The largest pool id ever used.
    pub pool_max: PoolId,
    /// Flags of the cluster.
    pub flags: OsdMapFlags,
    /// OSD ids are below it.
    pub max_osd: u32,
    /// The OSDs' states.
    pub osd_state: Vec<OsdState>,
    /// Their reweights, 16.16 fixed point: [`WEIGHT_IN`], [`WEIGHT_OUT`] or between.
    pub osd_weight: Vec<u32>,
    /// Where clients reach them.
    pub client_addrs: Vec<EntityAddrVec>,
    /// Members of PGs that are not those CRUSH names.
    pub pg_temp: BTreeMap<PgId, Positions>,
    /// Primaries of PGs that are not the first member.
    pub primary_temp: BTreeMap<PgId, OsdId>,
    /// Primary affinities, 16.16 fixed point, where one was ever set.
    pub primary_affinity: Option<Vec<u32>>,
    /// The CRUSH map.
    pub crush: CrushBlob,
    /// Erasure-code profiles.
    pub erasure_code_profiles: Profiles,
    /// PGs whose members are given.
    pub pg_upmap: BTreeMap<PgId, Positions>,
    /// PGs of which some members are replaced.
    pub pg_upmap_items: BTreeMap<PgId, Vec<UpmapItem>>,
    /// Counts the CRUSH maps.
    pub crush_version: u32,
    /// Snapshots that this epoch removed.
    pub new_removed_snaps: SnapsByPool,
    /// Snapshots of which this epoch knows that they are trimmed everywhere.
    pub new_purged_snaps: SnapsByPool,
    /// When an OSD last came up or went down.
    pub last_up_change: UTime,
    /// When an OSD last came in or went out.
    pub last_in_change: UTime,

    /// Where the OSDs exchange heartbeats on the cluster network.
    pub hb_back_addrs: Vec<EntityAddrVec>,
    /// The OSDs' lives.
    pub osd_info: Vec<OsdInfo>,
    /// The addresses that OSDs refuse, and until when.
    pub blocklist: BTreeMap<EntityAddr, UTime>,
    /// Networks that OSDs refuse: the nonce is the number of bits.
    pub range_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Stretch mode; never on here.
    pub stretch: StretchMode,
    /// Where the OSDs reach each other.
    pub cluster_addrs: Vec<EntityAddrVec>,
    /// Dead.
    pub cluster_snapshot_epoch: Epoch,
    /// Dead.
    pub cluster_snapshot: String,
    /// The OSDs' ids of their own.
    pub osd_uuid: Vec<Fsid>,
    /// More that is known of the OSDs' lives.
    pub osd_xinfo: Vec<OsdXInfo>,
    /// Where the OSDs exchange heartbeats on the public network.
    pub hb_front_addrs: Vec<EntityAddrVec>,
    /// From this usage on there is a warning.
    pub nearfull_ratio: f32,
    /// From this usage on nothing is written.
    pub full_ratio: f32,
    /// From this usage on an OSD takes no backfill.
    pub backfillfull_ratio: f32,
    /// The oldest release of clients that may connect.
    pub require_min_compat_client: u8,
    /// The oldest release of OSDs that may boot.
    pub require_osd_release: u8,
    /// Removed snapshots that are not yet trimmed everywhere.
    pub removed_snaps_queue: SnapsByPool,
    /// Flags for all OSDs below a CRUSH node.
    pub crush_node_flags: BTreeMap<i32, OsdState>,
    /// Flags for all OSDs of a device class.
    pub device_class_flags: BTreeMap<i32, OsdState>,
}

impl OsdMap {
    /// A map before the first epoch: no OSD, no pool.
    pub fn new(fsid: Fsid, crush: CrushMap) -> Self {
        Self {
            fsid,
            epoch: Epoch::NONE,
            created: UTime::ZERO,
            modified: UTime::ZERO,
            pools: BTreeMap::new(),
            pool_names: BTreeMap::new(),
            pool_max: PoolId::default(),
            flags: OsdMapFlags::empty(),
            max_osd: 0,
            osd_state: Vec::new(),
            osd_weight: Vec::new(),
            client_addrs: Vec::new(),
            pg_temp: BTreeMap::new(),
            primary_temp: BTreeMap::new(),
            primary_affinity: None,
            crush: CrushBlob::new(crush),
            erasure_code_profiles: Profiles::new(),
            pg_upmap: BTreeMap::new(),
            pg_upmap_items: BTreeMap::new(),
            crush_version: 1,
            new_removed_snaps: SnapsByPool::new(),
            new_purged_snaps: SnapsByPool::new(),
            last_up_change: UTime::ZERO,
            last_in_change: UTime::ZERO,
            hb_back_addrs: Vec::new(),
            osd_info: Vec::new(),
            blocklist: BTreeMap::new(),
            range_blocklist: BTreeMap::new(),
            stretch: StretchMode::default(),
            cluster_addrs: Vec::new(),
            cluster_snapshot_epoch: Epoch::NONE,
            cluster_snapshot: String::new(),
            osd_uuid: Vec::new(),
            osd_xinfo: Vec::new(),
            hb_front_addrs: Vec::new(),
            nearfull_ratio: 0.0,
            full_ratio: 0.0,
            backfillfull_ratio: 0.0,
            require_min_compat_client: release::UNKNOWN,
            require_osd_release: release::UNKNOWN,
            removed_snaps_queue: SnapsByPool::new(),
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
        }
    }

    /// Grows or shrinks the state of each OSD.
    pub fn set_max_osd(&mut self, max_osd: u32) {
        let n = max_osd as usize;
        self.max_osd = max_osd;
        self.osd_state.resize(n, OsdState::empty());
        self.osd_weight.resize(n, WEIGHT_OUT);
        self.osd_info.resize(n, OsdInfo::default());
        self.osd_xinfo.resize(n, OsdXInfo::default());
        self.osd_uuid.resize(n, Fsid::default());
        for addrs in [
            &mut self.client_addrs,
            &mut self.cluster_addrs,
            &mut self.hb_back_addrs,
            &mut self.hb_front_addrs,
        ] {
            addrs.resize(n, EntityAddrVec::default());
        }
        if let Some(affinity) = &mut self.primary_affinity {
            affinity.resize(n, MAX_PRIMARY_AFFINITY);
        }
    }

    /// Sets an OSD's primary affinity; an id that is too large is ignored.
    pub fn set_primary_affinity(&mut self, osd: OsdId, value: u32) {
        let n = self.max_osd as usize;
        let affinity = self
            .primary_affinity
            .get_or_insert_with(|| vec![MAX_PRIMARY_AFFINITY; n]);
        if let Some(a) = affinity.get_mut(osd.index()) {
            *a = value;
        }
    }
}
