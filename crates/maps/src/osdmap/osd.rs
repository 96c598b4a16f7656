//! `osd_info_t` and `osd_xinfo_t`: what the map knows of an OSD's lives.

use std::fmt;

use crate::types::Epoch;
use spirula_denc::{Decode, Encode, Reader, Result, UTime, Writer, versioned};

/// `osd_info_t`, all in epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdInfo {
    /// The first epoch of the last interval that ended with a clean stop.
    pub last_clean_begin: Epoch,
    /// The last one.
    pub last_clean_end: Epoch,
    /// When it last came up.
    pub up_from: Epoch,
    /// The epoch until which the OSD was certainly up, by its own request.
    pub up_thru: Epoch,
    /// When it last went down.
    pub down_at: Epoch,
    /// When its data was declared lost.
    pub lost_at: Epoch,
}

impl Encode for OsdInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        for epoch in [
            self.last_clean_begin,
            self.last_clean_end,
            self.up_from,
            self.up_thru,
            self.down_at,
            self.lost_at,
        ] {
            w.put(&epoch);
        }
    }
}

impl Decode for OsdInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        // The official reader ignores this version byte too.
        r.u8()?;
        Ok(Self {
            last_clean_begin: r.get()?,
            last_clean_end: r.get()?,
            up_from: r.get()?,
            up_thru: r.get()?,
            down_at: r.get()?,
            lost_at: r.get()?,
        })
    }
}

/// The numbers of a map's OSDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdCounts {
    /// All OSDs.
    pub all: usize,
    /// OSDs that are up.
    pub up: usize,
    /// OSDs that are in.
    pub inside: usize,
}

/// The epochs in which an OSD was up before it was stopped in good order: `begin..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanInterval {
    /// The epoch in which the OSD came up.
    pub begin: Epoch,
    /// The epoch in which the OSD said that it ends.
    pub end: Epoch,
}

impl Encode for CleanInterval {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.begin);
        w.put(&self.end);
    }
}

impl Decode for CleanInterval {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            begin: r.get()?,
            end: r.get()?,
        })
    }
}

/// As in `ceph osd dump`.
impl fmt::Display for OsdInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "up_from {} up_thru {} down_at {} last_clean_interval [{},{})",
            self.up_from, self.up_thru, self.down_at, self.last_clean_begin, self.last_clean_end
        )?;
        if self.lost_at != Epoch::NONE {
            write!(f, " lost_at {}", self.lost_at)
        } else {
            Ok(())
        }
    }
}

versioned! {
    /// `osd_xinfo_t`.
    #[derive(Copy, Eq)]
    pub struct OsdXInfo("osd_xinfo_t", version 4, compat 1) {
        /// When it was last marked down.
        pub down_stamp: UTime;
        /// The probability that the OSD is slow rather than dead, in 2⁻³² (all ones: certainly).
        pub laggy_probability_raw: u32;
        /// How long the OSD was slow, in seconds.
        pub laggy_interval: u32;
        /// The features it booted with.
        pub features: u64, since 2;
        /// Its weight before it was marked out automatically.
        pub old_weight: u32, since 3;
        /// When it last checked its purged snapshots.
        pub last_purged_snaps_scrub: UTime, since 4;
        /// The epoch since which the OSD is certainly dead.
        pub dead_epoch: Epoch, since 4;
    }
}

impl OsdXInfo {
    /// The probability that the OSD is slow rather than dead, 0 to 1.
    pub fn laggy_probability(&self) -> f32 {
        self.laggy_probability_raw as f32 / u32::MAX as f32
    }
}
