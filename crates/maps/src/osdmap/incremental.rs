//! `OSDMap::Incremental`: the step from one epoch of the map to the next.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{Decode, Encode, EntityAddr, EntityAddrVec, Fsid, Reader, Result, UTime, Writer};

use super::frame::{self, by_addr};
use super::stretch::StretchChange;
use super::{CleanInterval, UpmapItem};
use super::{OsdState, OsdXInfo, Profiles, SnapsByPool};
use crate::codec::section_of;
use crate::features::OSDMAP_SIGNIFICANT;
use crate::pool::PgPool;
use crate::types::{Epoch, OsdId, OsdOrNone, PgId, PoolId, Positions, or_none};

/// The changes from the epoch before to `epoch`. Empty, negative or `None` fields change nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Incremental {
    /// The cluster.
    pub fsid: Fsid,
    /// The epoch that it makes.
    pub epoch: Epoch,
    /// When it was made.
    pub modified: UTime,
    /// The largest pool id ever used, where it changes.
    pub new_pool_max: Option<PoolId>,
    /// The cluster's flags; -1: unchanged.
    pub new_flags: i32,
    /// A full map that replaces everything.
    pub fullmap: Bytes,
    /// A CRUSH map.
    pub crush: Bytes,
    /// The number of OSD ids; -1: unchanged.
    pub new_max_osd: i32,
    /// Pools, new and changed.
    pub new_pools: BTreeMap<PoolId, PgPool>,
    /// Their names.
    pub new_pool_names: BTreeMap<PoolId, String>,
    /// Pools that vanish.
    pub old_pools: BTreeSet<PoolId>,
    /// OSDs that come up, and where clients reach them.
    pub new_up_client: BTreeMap<OsdId, EntityAddrVec>,
    /// States to flip; 0 stands for UP, EXISTS destroys the OSD.
    pub new_state: BTreeMap<OsdId, OsdState>,
    /// Reweights.
    pub new_weight: BTreeMap<OsdId, u32>,
    /// Temporary members; empty: no more.
    pub new_pg_temp: BTreeMap<PgId, Positions>,
    /// Temporary primaries; none: no more.
    pub new_primary_temp: BTreeMap<PgId, OsdOrNone>,
    /// Primary affinities.
    pub new_primary_affinity: BTreeMap<OsdId, u32>,
    /// Erasure-code profiles.
    pub new_erasure_code_profiles: Profiles,
    /// Profiles that vanish.
    pub old_erasure_code_profiles: Vec<String>,
    /// Given members.
    pub new_pg_upmap: BTreeMap<PgId, Positions>,
    /// No more given members.
    pub old_pg_upmap: BTreeSet<PgId>,
    /// Replaced members.
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<UpmapItem>>,
    /// No more replaced members.
    pub old_pg_upmap_items: BTreeSet<PgId>,
    /// Snapshots that are removed.
    pub new_removed_snaps: SnapsByPool,
    /// Snapshots that are trimmed everywhere.
    pub new_purged_snaps: SnapsByPool,
    /// When an OSD came up or went down; zero: none did.
    pub new_last_up_change: UTime,
    /// When an OSD came in or went out; zero: none did.
    pub new_last_in_change: UTime,

    /// Of OSDs that come up: heartbeat addresses on the cluster network.
    pub new_hb_back_up: BTreeMap<OsdId, EntityAddrVec>,
    /// `up_thru` of OSDs.
    pub new_up_thru: BTreeMap<OsdId, Epoch>,
    /// The last clean intervals of OSDs.
    pub new_last_clean_interval: BTreeMap<OsdId, CleanInterval>,
    /// OSDs whose data is lost.
    pub new_lost: BTreeMap<OsdId, Epoch>,
    /// Blocklist entries.
    pub new_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Blocklist entries that vanish.
    pub old_blocklist: Vec<EntityAddr>,
    /// Networks on the blocklist.
    pub new_range_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Networks that vanish from it.
    pub old_range_blocklist: Vec<EntityAddr>,
    /// Stretch mode.
    pub new_stretch: StretchChange,
    /// Of OSDs that come up: addresses on the cluster network.
    pub new_up_cluster: BTreeMap<OsdId, EntityAddrVec>,
    /// Dead.
    pub cluster_snapshot: String,
    /// The OSDs' ids of their own.
    pub new_uuid: BTreeMap<OsdId, Fsid>,
    /// More on the OSDs' lives.
    pub new_xinfo: BTreeMap<OsdId, OsdXInfo>,
    /// Of OSDs that come up: heartbeat addresses on the public network.
    pub new_hb_front_up: BTreeMap<OsdId, EntityAddrVec>,
    /// The features with which it, and the map that results, were encoded, as far as they matter
    /// for that.
    pub encode_features: u64,
    /// A ratio; negative: unchanged.
    pub new_nearfull_ratio: f32,
    /// A ratio; negative: unchanged.
    pub new_full_ratio: f32,
    /// A ratio; negative: unchanged.
    pub new_backfillfull_ratio: f32,
    /// The oldest release of clients that may connect.
    pub new_require_min_compat_client: Option<u8>,
    /// The oldest release of OSDs that may boot.
    pub new_require_osd_release: Option<u8>,
    /// Flags by CRUSH node; empty ones vanish.
    pub new_crush_node_flags: BTreeMap<i32, OsdState>,
    /// Flags by device class; empty ones vanish.
    pub new_device_class_flags: BTreeMap<i32, OsdState>,
    /// The checksum of the full map that results.
    pub full_crc: u32,
}

impl Default for Incremental {
    fn default() -> Self {
        Self {
            fsid: Fsid::default(),
            epoch: Epoch::NONE,
            modified: UTime::ZERO,
            new_pool_max: None,
            new_flags: -1,
            fullmap: Bytes::new(),
            crush: Bytes::new(),
            new_max_osd: -1,
            new_pools: BTreeMap::new(),
            new_pool_names: BTreeMap::new(),
            old_pools: BTreeSet::new(),
            new_up_client: BTreeMap::new(),
            new_state: BTreeMap::new(),
            new_weight: BTreeMap::new(),
            new_pg_temp: BTreeMap::new(),
            new_primary_temp: BTreeMap::new(),
            new_primary_affinity: BTreeMap::new(),
            new_erasure_code_profiles: Profiles::new(),
            old_erasure_code_profiles: Vec::new(),
            new_pg_upmap: BTreeMap::new(),
            old_pg_upmap: BTreeSet::new(),
            new_pg_upmap_items: BTreeMap::new(),
            old_pg_upmap_items: BTreeSet::new(),
            new_removed_snaps: SnapsByPool::new(),
            new_purged_snaps: SnapsByPool::new(),
            new_last_up_change: UTime::ZERO,
            new_last_in_change: UTime::ZERO,
            new_hb_back_up: BTreeMap::new(),
            new_up_thru: BTreeMap::new(),
            new_last_clean_interval: BTreeMap::new(),
            new_lost: BTreeMap::new(),
            new_blocklist: BTreeMap::new(),
            old_blocklist: Vec::new(),
            new_range_blocklist: BTreeMap::new(),
            old_range_blocklist: Vec::new(),
            new_stretch: StretchChange::default(),
            new_up_cluster: BTreeMap::new(),
            cluster_snapshot: String::new(),
            new_uuid: BTreeMap::new(),
            new_xinfo: BTreeMap::new(),
            new_hb_front_up: BTreeMap::new(),
            encode_features: OSDMAP_SIGNIFICANT,
            new_nearfull_ratio: -1.0,
            new_full_ratio: -1.0,
            new_backfillfull_ratio: -1.0,
            new_require_min_compat_client: None,
            new_require_osd_release: None,
            new_crush_node_flags: BTreeMap::new(),
            new_device_class_flags: BTreeMap::new(),
            full_crc: 0,
        }
    }
}

impl Incremental {
    /// A step to `epoch` that changes nothing yet.
    pub fn new(fsid: Fsid, epoch: Epoch) -> Self {
        Self {
            fsid,
            epoch,
            ..Self::default()
        }
    }
}

// Nautilus' sections are the oldest that have everything which is needed.

section_of! {
    impl Incremental("OSDMap::Incremental for clients", version 8, compat 1, oldest 7) {
        fn encode_client, fn decode_client;
        fsid;
        epoch;
        modified;
        new_pool_max, via or_none;
        new_flags;
        fullmap;
        crush;
        new_max_osd;
        new_pools;
        new_pool_names;
        old_pools;
        new_up_client;
        new_state;
        new_weight;
        new_pg_temp;
        new_primary_temp;
        new_primary_affinity;
        new_erasure_code_profiles;
        old_erasure_code_profiles;
        new_pg_upmap;
        old_pg_upmap;
        new_pg_upmap_items;
        old_pg_upmap_items;
        new_removed_snaps;
        new_purged_snaps;
        new_last_up_change, since 8;
        new_last_in_change, since 8;
    }
}

section_of! {
    impl Incremental("OSDMap::Incremental for OSDs", version 9, compat 1, oldest 7) {
        fn encode_osd, fn decode_osd;
        new_hb_back_up;
        new_up_thru;
        new_last_clean_interval;
        new_lost;
        new_blocklist, via by_addr;
        old_blocklist;
        new_up_cluster;
        cluster_snapshot;
        new_uuid;
        new_xinfo;
        new_hb_front_up;
        encode_features;
        new_nearfull_ratio;
        new_full_ratio;
        new_backfillfull_ratio;
        new_require_min_compat_client, via maybe_release;
        new_require_osd_release, via maybe_release;
        new_crush_node_flags, since 8;
        new_device_class_flags, since 9;
    }
    if has_later_parts, version 11 {
        new_stretch, since 10;
        new_range_blocklist, since 11;
        old_range_blocklist, since 11;
    }
}

impl Incremental {
    /// Whether there is something that official daemons write only where they need it, as older
    /// ones can't read it.
    fn has_later_parts(&self) -> bool {
        self.new_stretch.change
            || !self.new_range_blocklist.is_empty()
            || !self.old_range_blocklist.is_empty()
    }
}

/// A release, or that none is set.
mod maybe_release {
    use super::*;

    const NONE: u8 = 0xff;

    pub(super) fn encode(release: &Option<u8>, w: &mut Writer) {
        w.u8(release.unwrap_or(NONE));
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Option<u8>> {
        Ok(Some(r.u8()?).filter(|release| *release != NONE))
    }
}

impl Encode for Incremental {
    fn encode(&self, w: &mut Writer) {
        let sections = |w: &mut Writer| {
            self.encode_client(w);
            self.encode_osd(w);
        };
        frame::encode(w, sections, |w| w.u32(self.full_crc));
    }
}

impl Decode for Incremental {
    /// Verifies the incremental's own checksum too.
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let sections = |r: &mut Reader<'_>| {
            let mut inc = Self::default();
            inc.decode_client(r)?;
            inc.decode_osd(r)?;
            Ok(inc)
        };
        let behind = |inc: &mut Self, r: &mut Reader<'_>| {
            inc.full_crc = r.u32()?;
            Ok(())
        };
        frame::decode("OSDMap::Incremental", r, sections, behind).map(|(inc, _)| inc)
    }
}
