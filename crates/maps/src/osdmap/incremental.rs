//! `OSDMap::Incremental`: the step from one epoch of the map to the next.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{Decode, Encode, EntityAddr, EntityAddrVec, Error, Fsid, Reader, Result, UTime, Writer};

use super::full::{OUTER_COMPAT, OUTER_VERSION, encode_by_addr};
use super::{OsdState, OsdXInfo, Profiles, SnapsByPool};
use crate::codec::{CrcHole, check_crc};
use crate::features::OSDMAP_SIGNIFICANT;
use crate::pool::PgPool;
use crate::types::PgId;

const CLIENT_VERSION: u8 = 8;
const OSD_VERSION: u8 = 9;
/// Nautilus: the oldest sections that have everything which is needed.
const OLDEST_CLIENT: u8 = 7;
const OLDEST_OSD: u8 = 7;
/// A release that is not set.
const NO_RELEASE: u8 = 0xff;

/// What changes from the epoch before to `epoch`. What is empty, negative or `None` stays as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Incremental {
    /// The cluster.
    pub fsid: Fsid,
    /// The epoch that it makes.
    pub epoch: u32,
    /// When it was made.
    pub modified: UTime,
    /// The largest pool id ever used; -1: unchanged.
    pub new_pool_max: i64,
    /// The cluster's flags; -1: unchanged.
    pub new_flags: i32,
    /// A full map that replaces everything.
    pub fullmap: Bytes,
    /// A CRUSH map.
    pub crush: Bytes,
    /// The number of OSD ids; -1: unchanged.
    pub new_max_osd: i32,
    /// Pools, new and changed.
    pub new_pools: BTreeMap<i64, PgPool>,
    /// Their names.
    pub new_pool_names: BTreeMap<i64, String>,
    /// Pools that vanish.
    pub old_pools: BTreeSet<i64>,
    /// OSDs that come up, and where clients reach them.
    pub new_up_client: BTreeMap<i32, EntityAddrVec>,
    /// States to flip; 0 stands for UP, EXISTS destroys the OSD.
    pub new_state: BTreeMap<i32, OsdState>,
    /// Reweights.
    pub new_weight: BTreeMap<i32, u32>,
    /// Temporary members; empty: no more.
    pub new_pg_temp: BTreeMap<PgId, Vec<i32>>,
    /// Temporary primaries; -1: no more.
    pub new_primary_temp: BTreeMap<PgId, i32>,
    /// Primary affinities.
    pub new_primary_affinity: BTreeMap<i32, u32>,
    /// Erasure-code profiles.
    pub new_erasure_code_profiles: Profiles,
    /// Profiles that vanish.
    pub old_erasure_code_profiles: Vec<String>,
    /// Given members.
    pub new_pg_upmap: BTreeMap<PgId, Vec<i32>>,
    /// No more given members.
    pub old_pg_upmap: BTreeSet<PgId>,
    /// Replaced members.
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(i32, i32)>>,
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
    pub new_hb_back_up: BTreeMap<i32, EntityAddrVec>,
    /// `up_thru` of OSDs.
    pub new_up_thru: BTreeMap<i32, u32>,
    /// The last clean intervals of OSDs.
    pub new_last_clean_interval: BTreeMap<i32, (u32, u32)>,
    /// OSDs whose data is lost.
    pub new_lost: BTreeMap<i32, u32>,
    /// Blocklist entries.
    pub new_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Blocklist entries that vanish.
    pub old_blocklist: Vec<EntityAddr>,
    /// Of OSDs that come up: addresses on the cluster network.
    pub new_up_cluster: BTreeMap<i32, EntityAddrVec>,
    /// Dead.
    pub cluster_snapshot: String,
    /// The OSDs' ids of their own.
    pub new_uuid: BTreeMap<i32, Fsid>,
    /// More on the OSDs' lives.
    pub new_xinfo: BTreeMap<i32, OsdXInfo>,
    /// Of OSDs that come up: heartbeat addresses on the public network.
    pub new_hb_front_up: BTreeMap<i32, EntityAddrVec>,
    /// The features with which it, and the map that results, were encoded, as far as they matter for that.
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
            epoch: 0,
            modified: UTime::ZERO,
            new_pool_max: -1,
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
    pub fn new(fsid: Fsid, epoch: u32) -> Self {
        Self {
            fsid,
            epoch,
            ..Self::default()
        }
    }

    fn encode_client(&self, w: &mut Writer) {
        w.put(&self.fsid);
        w.u32(self.epoch);
        w.put(&self.modified);
        w.i64(self.new_pool_max);
        w.i32(self.new_flags);
        w.put(&self.fullmap);
        w.put(&self.crush);
        w.i32(self.new_max_osd);
        w.put(&self.new_pools);
        w.put(&self.new_pool_names);
        w.put(&self.old_pools);
        w.put(&self.new_up_client);
        w.put(&self.new_state);
        w.put(&self.new_weight);
        w.put(&self.new_pg_temp);
        w.put(&self.new_primary_temp);
        w.put(&self.new_primary_affinity);
        w.put(&self.new_erasure_code_profiles);
        w.put(&self.old_erasure_code_profiles);
        w.put(&self.new_pg_upmap);
        w.put(&self.old_pg_upmap);
        w.put(&self.new_pg_upmap_items);
        w.put(&self.old_pg_upmap_items);
        w.put(&self.new_removed_snaps);
        w.put(&self.new_purged_snaps);
        w.put(&self.new_last_up_change);
        w.put(&self.new_last_in_change);
    }

    fn encode_osd(&self, w: &mut Writer) {
        w.put(&self.new_hb_back_up);
        w.put(&self.new_up_thru);
        w.put(&self.new_last_clean_interval);
        w.put(&self.new_lost);
        encode_by_addr(w, &self.new_blocklist);
        w.put(&self.old_blocklist);
        w.put(&self.new_up_cluster);
        w.put(&self.cluster_snapshot);
        w.put(&self.new_uuid);
        w.put(&self.new_xinfo);
        w.put(&self.new_hb_front_up);
        w.u64(self.encode_features);
        w.f32(self.new_nearfull_ratio);
        w.f32(self.new_full_ratio);
        w.f32(self.new_backfillfull_ratio);
        w.u8(self.new_require_min_compat_client.unwrap_or(NO_RELEASE));
        w.u8(self.new_require_osd_release.unwrap_or(NO_RELEASE));
        w.put(&self.new_crush_node_flags);
        w.put(&self.new_device_class_flags);
    }

    fn decode_client(version: u8, r: &mut Reader<'_>) -> Result<Self> {
        if version < OLDEST_CLIENT {
            return Err(Error::TooOld {
                what: "OSDMap::Incremental for clients",
                version,
            });
        }
        let mut i = Self {
            fsid: r.get()?,
            epoch: r.u32()?,
            modified: r.get()?,
            new_pool_max: r.i64()?,
            new_flags: r.i32()?,
            fullmap: r.get()?,
            crush: r.get()?,
            new_max_osd: r.i32()?,
            new_pools: r.get()?,
            new_pool_names: r.get()?,
            old_pools: r.get()?,
            new_up_client: r.get()?,
            new_state: r.get()?,
            new_weight: r.get()?,
            new_pg_temp: r.get()?,
            new_primary_temp: r.get()?,
            new_primary_affinity: r.get()?,
            new_erasure_code_profiles: r.get()?,
            old_erasure_code_profiles: r.get()?,
            new_pg_upmap: r.get()?,
            old_pg_upmap: r.get()?,
            new_pg_upmap_items: r.get()?,
            old_pg_upmap_items: r.get()?,
            new_removed_snaps: r.get()?,
            new_purged_snaps: r.get()?,
            ..Self::default()
        };
        if version >= 8 {
            i.new_last_up_change = r.get()?;
            i.new_last_in_change = r.get()?;
        }
        Ok(i)
    }

    fn decode_osd(&mut self, version: u8, r: &mut Reader<'_>) -> Result<()> {
        if version < OLDEST_OSD {
            return Err(Error::TooOld {
                what: "OSDMap::Incremental for OSDs",
                version,
            });
        }
        let release = |n: u8| (n != NO_RELEASE).then_some(n);
        self.new_hb_back_up = r.get()?;
        self.new_up_thru = r.get()?;
        self.new_last_clean_interval = r.get()?;
        self.new_lost = r.get()?;
        self.new_blocklist = r.get()?;
        self.old_blocklist = r.get()?;
        self.new_up_cluster = r.get()?;
        self.cluster_snapshot = r.get()?;
        self.new_uuid = r.get()?;
        self.new_xinfo = r.get()?;
        self.new_hb_front_up = r.get()?;
        self.encode_features = r.u64()?;
        self.new_nearfull_ratio = r.f32()?;
        self.new_full_ratio = r.f32()?;
        self.new_backfillfull_ratio = r.f32()?;
        self.new_require_min_compat_client = release(r.u8()?);
        self.new_require_osd_release = release(r.u8()?);
        if version >= 8 {
            self.new_crush_node_flags = r.get()?;
        }
        if version >= 9 {
            self.new_device_class_flags = r.get()?;
        }
        Ok(())
    }
}

impl Encode for Incremental {
    fn encode(&self, w: &mut Writer) {
        let start = w.len();
        let mut hole = None;
        w.section(OUTER_VERSION, OUTER_COMPAT, |w| {
            w.section(CLIENT_VERSION, 1, |w| self.encode_client(w));
            w.section(OSD_VERSION, 1, |w| self.encode_osd(w));
            hole = Some(CrcHole::leave(w, start));
            w.u32(self.full_crc);
        });
        if let Some(hole) = hole {
            hole.fill(w);
        }
    }
}

impl Decode for Incremental {
    /// Verifies the incremental's own checksum too.
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let mut whole = r.clone();
        let before = r.remaining();
        let mut hole = 0;
        let (inc, crc) = r.section("OSDMap::Incremental", OUTER_VERSION, |version, r| {
            if version < OUTER_VERSION {
                return Err(Error::TooOld {
                    what: "OSDMap::Incremental",
                    version,
                });
            }
            let mut inc = r.section(
                "OSDMap::Incremental for clients",
                CLIENT_VERSION,
                Self::decode_client,
            )?;
            r.section("OSDMap::Incremental for OSDs", OSD_VERSION, |version, r| {
                inc.decode_osd(version, r)
            })?;
            // The inner reader began after version, compat and length.
            hole = r.position() + 6;
            let crc = r.u32()?;
            inc.full_crc = r.u32()?;
            Ok((inc, crc))
        })?;
        check_crc(whole.bytes(before - r.remaining())?, hole, crc)?;
        Ok(inc)
    }
}
