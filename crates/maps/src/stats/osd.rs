//! Statistics of OSDs and their stores.

use std::collections::BTreeMap;

use spirula_denc::{Decode, Encode, Reader, Result, Writer, at_least, versioned};

use super::object::summed;
use crate::types::{Epoch, OsdId};

summed! {
    /// `store_statfs_t`: the space of a store, in bytes.
    pub struct StoreStatfs("store_statfs_t", version 1, compat 1) {
        /// All of it.
        pub total: u64;
        /// Free.
        pub available: u64;
        /// Neither free nor used: kept for the store itself.
        pub internally_reserved: u64;
        /// Used for data.
        pub allocated: i64;
        /// Data as the user sees it.
        pub data_stored: i64;
        /// Compressed data after compression.
        pub data_compressed: i64;
        /// Space used for compressed data.
        pub data_compressed_allocated: i64;
        /// Compressed data before compression.
        pub data_compressed_original: i64;
        /// Used for omap.
        pub omap_allocated: i64;
        /// Used for the store's metadata.
        pub internal_metadata: i64;
    }
}

impl StoreStatfs {
    /// Bytes used, reserved ones included.
    pub fn used_raw(&self) -> u64 {
        self.total.saturating_sub(self.available)
    }

    /// Bytes used, reserved ones excluded.
    pub fn used(&self) -> u64 {
        self.used_raw().saturating_sub(self.internally_reserved)
    }
}

summed! {
    /// `objectstore_perf_stat_t` as Nautilus and later write it: latencies in nanoseconds.
    pub struct ObjectStorePerfStat("objectstore_perf_stat_t", version 2, compat 2) {
        /// Until a transaction is durable.
        pub commit_latency_ns: u64;
        /// Until a transaction can be read.
        pub apply_latency_ns: u64;
    }
}

versioned! {
    /// `pow2_hist_t`: counts by powers of two.
    #[derive(Eq)]
    pub struct Pow2Hist("pow2_hist_t", version 1, compat 1) {
        /// The number of values below 2ⁱ⁺¹ that are not in an earlier bin.
        pub bins: Vec<i32>;
    }
}

impl Pow2Hist {
    /// Counts one value.
    pub fn add(&mut self, value: u32) {
        let bin = crate::types::bit_count(value) as usize;
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += 1;
    }
}

/// Heartbeat times to one peer, in microseconds: averages, minima and maxima over 1, 5 and 15
/// minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PingTimes {
    /// When they were computed, in seconds since the epoch.
    pub last_update: u32,
    /// On the cluster network.
    pub back: PingSeries,
    /// On the public network.
    pub front: PingSeries,
}

/// Heartbeat times on one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PingSeries {
    /// Averages.
    pub average: [u32; 3],
    /// Minima.
    pub min: [u32; 3],
    /// Maxima.
    pub max: [u32; 3],
    /// The last one.
    pub last: u32,
}

impl Encode for PingSeries {
    fn encode(&self, w: &mut Writer) {
        for n in self.average.into_iter().chain(self.min).chain(self.max) {
            w.u32(n);
        }
        w.u32(self.last);
    }
}

impl Decode for PingSeries {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let mut triple = || -> Result<[u32; 3]> { Ok([r.u32()?, r.u32()?, r.u32()?]) };
        let (average, min, max) = (triple()?, triple()?, triple()?);
        Ok(Self {
            average,
            min,
            max,
            last: r.u32()?,
        })
    }
}

impl Encode for PingTimes {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.last_update);
        w.put(&self.back);
        w.put(&self.front);
    }
}

impl Decode for PingTimes {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            last_update: r.u32()?,
            back: r.get()?,
            front: r.get()?,
        })
    }
}

/// `osd_stat_t`: an OSD's report about itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdStat {
    /// Its space.
    pub statfs: StoreStatfs,
    /// The OSDs that it exchanges heartbeats with.
    pub hb_peers: Vec<OsdId>,
    /// Snapshots waiting to be trimmed.
    pub snap_trim_queue_len: i32,
    /// PGs that are trimming.
    pub num_snap_trimming: i32,
    /// Shards repaired.
    pub num_shards_repaired: u64,
    /// Ages of queued operations.
    pub op_queue_age_hist: Pow2Hist,
    /// Latencies of the store.
    pub os_perf_stat: ObjectStorePerfStat,
    /// Alerts by store, then by name.
    pub os_alerts: BTreeMap<i32, BTreeMap<String, String>>,
    /// The epoch in which it came up.
    pub up_from: Epoch,
    /// Counts its reports.
    pub seq: u64,
    /// Its PGs.
    pub num_pgs: u32,
    /// OSDs in the sum.
    pub num_osds: u32,
    /// OSDs in the sum that know their space by pool.
    pub num_per_pool_osds: u32,
    /// OSDs in the sum that know their omap space by pool.
    pub num_per_pool_omap_osds: u32,
    /// Heartbeat times by peer.
    pub hb_pingtime: BTreeMap<OsdId, PingTimes>,
}

// By hand: it repeats the space in two other forms.
impl Encode for OsdStat {
    fn encode(&self, w: &mut Writer) {
        let s = &self.statfs;
        w.section(14, 2, |w| {
            for bytes in [s.total, s.used_raw(), s.available] {
                w.u64(bytes >> 10);
            }
            w.i32(self.snap_trim_queue_len);
            w.i32(self.num_snap_trimming);
            w.put(&self.hb_peers);
            w.u32(0);
            w.put(&self.op_queue_age_hist);
            w.put(&self.os_perf_stat);
            w.put(&self.up_from);
            w.u64(self.seq);
            w.u32(self.num_pgs);
            for bytes in [s.allocated, s.omap_allocated, s.internal_metadata] {
                w.i64(bytes >> 10);
            }
            w.put(s);
            w.put(&self.os_alerts);
            w.u64(self.num_shards_repaired);
            w.u32(self.num_osds);
            w.u32(self.num_per_pool_osds);
            w.u32(self.num_per_pool_omap_osds);
            w.put(&self.hb_pingtime);
        });
    }
}

/// The latencies, which writers without the feature OS_PERF_STAT_NS count in milliseconds (version
/// 1).
fn decode_perf_stat(r: &mut Reader<'_>) -> Result<ObjectStorePerfStat> {
    const NS_PER_MS: u64 = 1_000_000;
    if r.clone().u8()? >= 2 {
        return r.get();
    }
    r.section("objectstore_perf_stat_t", 2, |_, r| {
        Ok(ObjectStorePerfStat {
            commit_latency_ns: u64::from(r.u32()?) * NS_PER_MS,
            apply_latency_ns: u64::from(r.u32()?) * NS_PER_MS,
        })
    })
}

impl Decode for OsdStat {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("osd_stat_t", 14, |v, r| {
            at_least("osd_stat_t", v, 9)?;
            // Sizes in KiB, which `statfs` repeats.
            r.skip(24)?;
            let mut s = Self {
                snap_trim_queue_len: r.i32()?,
                num_snap_trimming: r.i32()?,
                hb_peers: r.get()?,
                ..Self::default()
            };
            r.get::<Vec<OsdId>>()?;
            s.op_queue_age_hist = r.get()?;
            s.os_perf_stat = decode_perf_stat(r)?;
            s.up_from = r.get()?;
            s.seq = r.u64()?;
            s.num_pgs = r.u32()?;
            r.skip(24)?;
            s.statfs = r.get()?;
            if v >= 10 {
                s.os_alerts = r.get()?;
            }
            if v >= 11 {
                s.num_shards_repaired = r.u64()?;
            }
            if v >= 12 {
                s.num_osds = r.u32()?;
                s.num_per_pool_osds = r.u32()?;
            }
            if v >= 13 {
                s.num_per_pool_omap_osds = r.u32()?;
            }
            if v >= 14 {
                s.hb_pingtime = r.get()?;
            }
            Ok(s)
        })
    }
}
