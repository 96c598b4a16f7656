//! Flags of the cluster and states of OSDs (`CEPH_OSDMAP_*` and `CEPH_OSD_*` in Ceph's
//! `src/include/rados.h`).

use spirula_denc::flags;

flags! {
    /// Flags of the whole cluster.
    pub struct OsdMapFlags(u32), joined "," {
        /// Clients' reads wait.
        PAUSERD = 2, "pauserd";
        /// Clients' writes wait.
        PAUSEWR = 3, "pausewr";
        /// Recovery waits.
        PAUSEREC = 4, "pauserec";
        /// OSDs can't come up.
        NOUP = 5, "noup";
        /// OSDs are not marked down.
        NODOWN = 6, "nodown";
        /// OSDs are not marked out.
        NOOUT = 7, "noout";
        /// OSDs are not marked in.
        NOIN = 8, "noin";
        /// No backfill.
        NOBACKFILL = 9, "nobackfill";
        /// No backfill, except of degraded PGs.
        NOREBALANCE = 14, "norebalance";
        /// No recovery.
        NORECOVER = 10, "norecover";
        /// No periodic scrub.
        NOSCRUB = 11, "noscrub";
        /// No periodic deep scrub.
        NODEEP_SCRUB = 12, "nodeep-scrub";
        /// Cache tiers don't flush and evict.
        NOTIERAGENT = 13, "notieragent";
        /// No trimming of snapshots.
        NOSNAPTRIM = 21, "nosnaptrim";
        /// Objects are sorted by bit-reversed hash.
        SORTBITWISE = 15, "sortbitwise";
        /// From Jewel's time.
        REQUIRE_JEWEL = 16, "require_jewel_osds";
        /// From Kraken's time.
        REQUIRE_KRAKEN = 17, "require_kraken_osds";
        /// From Luminous' time.
        REQUIRE_LUMINOUS = 18, "require_luminous_osds";
        /// Recovery deletes objects, not peering.
        RECOVERY_DELETES = 19, "recovery_deletes";
        /// All snapshot metadata has the form it has since Luminous.
        PURGED_SNAPDIRS = 20, "purged_snapdirs";
        /// The length of PG logs has a hard limit.
        PGLOG_HARDLIMIT = 22, "pglog_hardlimit";
        /// The number of PGs is not changed by the cluster.
        NOAUTOSCALE = 23, "noautoscale";
    }
}

impl OsdMapFlags {
    /// The flags that `require_osd_release` replaced.
    pub const LEGACY_REQUIRE: Self = Self::REQUIRE_JEWEL
        .with(Self::REQUIRE_KRAKEN)
        .with(Self::REQUIRE_LUMINOUS);
    /// Flags that every Pacific cluster has and status displays leave out.
    pub const SEMIHIDDEN: Self = Self::LEGACY_REQUIRE
        .with(Self::RECOVERY_DELETES)
        .with(Self::SORTBITWISE)
        .with(Self::PURGED_SNAPDIRS)
        .with(Self::PGLOG_HARDLIMIT);
    /// The flags of a new Pacific cluster.
    pub const NEW_CLUSTER: Self = Self::SORTBITWISE
        .with(Self::RECOVERY_DELETES)
        .with(Self::PURGED_SNAPDIRS)
        .with(Self::PGLOG_HARDLIMIT);
}

flags! {
    /// The state of an OSD, and flags that keep it.
    pub struct OsdState(u32), joined "," {
        /// The id is in use.
        EXISTS = 0, "exists";
        /// The OSD runs.
        UP = 1, "up";
        /// The OSD was marked out because it was down for long.
        AUTOOUT = 2, "autoout";
        /// The OSD was never in.
        NEW = 3, "new";
        /// The OSD is full.
        FULL = 4, "full";
        /// The OSD is nearly full.
        NEARFULL = 5, "nearfull";
        /// The OSD is too full for backfill.
        BACKFILLFULL = 6, "backfillfull";
        /// Its data is gone, its id is kept.
        DESTROYED = 7, "destroyed";
        /// The OSD can't come up.
        NOUP = 8, "noup";
        /// The OSD is not marked down.
        NODOWN = 9, "nodown";
        /// The OSD is not marked in.
        NOIN = 10, "noin";
        /// The OSD is not marked out.
        NOOUT = 11, "noout";
        /// The operator stopped it.
        STOP = 12, "stop";
    }
}
