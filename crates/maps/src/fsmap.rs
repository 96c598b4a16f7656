//! The file system maps of a cluster without file systems.
//!
//! Clients may subscribe to `fsmap`, `fsmap.user` and `mdsmap` before there is any; what is here answers them.
//! Formats: Ceph's `src/mds/FSMap.cc`, `FSMapUser.cc`, `MDSMap.cc` and `src/include/CompatSet.h`.

use spirula_denc::{Decode, Encode, Error, Reader, Result, UTime, Writer};

/// "No file system" as a file system id.
pub const FSCID_NONE: i32 = -1;

/// The features that file systems made by this version would need, by number (`MDS_FEATURE_INCOMPAT_*`).
const DEFAULT_INCOMPAT: [(u64, &str); 9] = [
    (1, "base v0.20"),
    (2, "client writeable ranges"),
    (3, "default file layouts on dirs"),
    (4, "dir inode in separate object"),
    (5, "mds uses versioned encoding"),
    (6, "dirfrag is stored in omap"),
    (8, "no anchor table"),
    (9, "file layout v2"),
    (10, "snaprealm v2"),
];

/// Writes a `CompatSet`: no compatible and no read-only ones, and the given incompatible features.
fn encode_compat(w: &mut Writer, incompat: &[(u64, &str)]) {
    for _ in 0..2 {
        w.u64(0);
        w.count(0);
    }
    // The official encoder drops bit 0 of the mask in memory, which stands for the base.
    w.u64(incompat.iter().fold(0, |mask, (bit, _)| mask | 1 << bit));
    w.count(incompat.len());
    for (bit, name) in incompat {
        w.u64(*bit);
        w.string(name);
    }
}

/// `FSMap` without file systems and MDS daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EmptyFsMap {
    /// Counts the maps.
    pub epoch: u32,
}

impl Encode for EmptyFsMap {
    fn encode(&self, w: &mut Writer) {
        w.section(7, 6, |w| {
            w.u32(self.epoch);
            // The next file system's id, and the one that old clients mount.
            w.u64(1);
            w.i32(FSCID_NONE);
            encode_compat(w, &DEFAULT_INCOMPAT);
            // Several file systems may be made.
            w.bool(true);
            // File systems, ranks of daemons, standby daemons and their epochs.
            for _ in 0..4 {
                w.count(0);
            }
            // Several file systems were always allowed.
            w.bool(true);
        });
    }
}

impl Decode for EmptyFsMap {
    /// Reads any `FSMap` as far as its epoch.
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("FSMap", 7, |version, r| {
            if version < 6 {
                return Err(Error::TooOld {
                    what: "FSMap",
                    version,
                });
            }
            Ok(Self { epoch: r.u32()? })
        })
    }
}

/// `FSMapUser` without file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EmptyFsMapUser {
    /// Counts the maps.
    pub epoch: u32,
}

impl Encode for EmptyFsMapUser {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| {
            w.u32(self.epoch);
            w.i32(FSCID_NONE);
            w.count(0);
        });
    }
}

/// `MDSMap` of no file system: what a subscriber to `mdsmap` gets where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NullMdsMap {
    /// Counts the maps.
    pub epoch: u32,
}

impl Encode for NullMdsMap {
    fn encode(&self, w: &mut Writer) {
        const SESSION_TIMEOUT: u32 = 60;
        const SESSION_AUTOCLOSE: u32 = 300;
        const MAX_FILE_SIZE: u64 = 1 << 40;
        const EXTENDED_VERSION: u16 = 16;
        w.section(5, 4, |w| {
            w.u32(self.epoch);
            // Flags, the epoch of the last failure, the root's rank.
            w.u32(0);
            w.u32(0);
            w.i32(0);
            w.u32(SESSION_TIMEOUT);
            w.u32(SESSION_AUTOCLOSE);
            w.u64(MAX_FILE_SIZE);
            // At most one active daemon; none is known, and no data pool.
            w.i32(1);
            w.count(0);
            w.count(0);
            // Neither a content-addressed pool …
            w.i64(-1);
            w.u16(EXTENDED_VERSION);
            encode_compat(w, &[]);
            // … nor a metadata pool.
            w.i64(-1);
            w.put(&UTime::ZERO);
            w.put(&UTime::ZERO);
            w.i32(0);
            // Ranks: in, their incarnations, up, failed, stopped.
            for _ in 0..5 {
                w.count(0);
            }
            w.u32(0);
            // Features ever and explicitly allowed, inline data, enabled.
            w.u8(0);
            w.u8(0);
            w.bool(false);
            w.bool(false);
            w.string("");
            w.count(0);
            w.string("");
            // Standby count wanted (-1: default), old max_mds, oldest client release, required client features.
            w.i32(-1);
            w.i32(0);
            w.u8(0);
            w.count(0);
        });
    }
}
