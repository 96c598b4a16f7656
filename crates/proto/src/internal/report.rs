//! Reports of OSDs to monitors, and the answers.

use std::collections::BTreeMap;

use spirula_denc::{EntityAddrVec, Fsid, Micros, UTime};
use spirula_maps::{Epoch, IntervalSet, OsdId, PgId, PoolId, Positions};

use super::{plain_parts, protocol};
use crate::Blob;
use crate::macros::{packed, wire_enum};

protocol! {
    /// OSD to monitor.
    ///
    /// - Version 4: that of release 0.1.0.
    /// - Version 5: the header tells which version the sender speaks, and a daemon is written to in
    ///   the newest that both speak. An OSD tells of its scrubs, and of a damaged store.
    pub enum OsdReport: OSD_REPORT, version 5, oldest 4, priority HIGH {
        /// I have started: mark me up.
        Boot(OsdBoot) = 1,
        /// Record that I was alive in this epoch (`up_thru`), so that I can go active.
        Alive(OsdAlive) = 2,
        /// I am still here.
        Beacon(OsdBeacon) = 3,
        /// Statistics.
        PgStats(PgStatsReport) = 4,
        /// Send me these osdmaps.
        WantMaps(OsdMapWanted) = 5,
        /// A peer does not answer, or does again.
        Failure(OsdFailureReport) = 6,
        /// How full my store is.
        Full(FullState) = 7,
        /// I am going down on purpose.
        GoingDown(OsdGoingDown) = 8,
        /// Another acting set is wanted for a while.
        PgTemp(PgTempWanted) = 9,
        /// The options I run with, sent on each session and whenever they change.
        Config(ConfigReport) = 10,
        /// The osdmap has me down, and in this epoch I have stopped serving.
        Dead(OsdGoingDown) = 11,
        /// Send me the snapshots that are removed and trimmed everywhere.
        WantPurgedSnaps(PurgedSnapsWanted) = 12,
        /// My scrubs, and when they will be done. A monitor of the version before does not know it.
        Scrubs(ScrubReport) = 13,
        /// My store is damaged: which PGs can't do without it? Only for a leader that speaks
        /// version 5.
        StoreDamaged(StoreDamaged) = 14,
    }
}

protocol! {
    /// Monitor to OSD, where the osdmap is not enough of an answer. Carries the report's
    /// transaction id.
    ///
    /// - Version 3: that of release 0.1.0.
    /// - Version 4: as version 5 of [`OsdReport`].
    pub enum OsdReportReply: OSD_REPORT_REPLY, version 4, oldest 3, priority HIGH {
        /// Booting is refused.
        BootDenied(BootDenied) = 1,
        /// The statistics have arrived: the OSD forgets them.
        PgStatsAck(PgStatsAck) = 2,
        /// The osdmap has you down: stop serving.
        GoDown(OsdGoingDown) = 3,
        /// Recover these PGs before all others, or stop doing so.
        Force(ForceCopy) = 4,
        /// The snapshots that are removed and trimmed everywhere.
        PurgedSnaps(PurgedSnaps) = 5,
        /// The PGs that can't do without the OSD whose store is damaged.
        Needed(Needed) = 6,
    }
}

packed! {
    /// An OSD that has started.
    pub struct OsdBoot {
        /// Its number.
        pub osd: OsdId,
        /// The cluster its store belongs to.
        pub fsid: Fsid,
        /// The store's own id: a number must not change its store unnoticed.
        pub uuid: Fsid,
        /// Its addresses for clients.
        pub public_addrs: EntityAddrVec,
        /// Its addresses for other OSDs.
        pub cluster_addrs: EntityAddrVec,
        /// Its addresses for heartbeats on the public network.
        pub heartbeat_front: EntityAddrVec,
        /// Its addresses for heartbeats on the cluster network.
        pub heartbeat_back: EntityAddrVec,
        /// Its features, as the official bits.
        pub features: u64,
        /// The internal protocols' versions, by name.
        pub protocols: BTreeMap<String, u16>,
        /// `ceph osd metadata`: host, device, memory, …
        pub metadata: BTreeMap<String, String>,
        /// Its store's size in bytes, for the initial CRUSH weight.
        pub size: u64,
        /// Its place in the CRUSH map by bucket type: `host=…`, `root=…`.
        pub crush_location: BTreeMap<String, String>,
        /// Its device class (`ssd`, `hdd`, …), empty for none.
        pub device_class: String,
        /// The epoch in which this process first came up; 0 if it never did. A process that was up
        /// before was marked down although it ran: it is slow rather than dead.
        pub boot_epoch: Epoch,
        /// The newest osdmap it has.
        pub newest_map: Epoch,
    }
}

packed! {
    /// Wants `up_thru` raised.
    pub struct OsdAlive {
        /// Its osdmap epoch.
        pub epoch: Epoch,
        /// The epoch wanted.
        pub want: Epoch,
    }
}

packed! {
    /// A sign of life.
    pub struct OsdBeacon {
        /// Its osdmap epoch.
        pub epoch: Epoch,
        /// Epoch below which none of its PGs needs old maps.
        pub min_last_epoch_clean: Epoch,
        /// PGs it holds.
        pub pgs: Vec<PgId>,
        /// The time between its beacons, in milliseconds.
        pub interval_ms: u32,
    }
}

packed! {
    /// Statistics of the PGs that the OSD leads, and its own.
    pub struct PgStatsReport {
        /// The reporter's number of this report, acknowledged by the monitor.
        pub seq: u64,
        /// Its osdmap epoch.
        pub epoch: Epoch,
        /// Encoded `osd_stat_t`.
        pub osd_stat: Blob,
        /// Encoded `pg_stat_t` of PGs whose statistics changed.
        pub pgs: BTreeMap<PgId, Blob>,
        /// Encoded `store_statfs_t` by pool.
        pub pool_statfs: BTreeMap<PoolId, Blob>,
        /// Requests that take long, for health.
        pub slow_ops: SlowOps,
        /// The measurement of the clock since the last report, where there is one.
        pub clock: Option<ClockSample>,
    }
}

packed! {
    /// Requests that take long.
    pub struct SlowOps {
        /// The number of requests.
        pub count: u32,
        /// The age of the oldest request, milliseconds.
        pub oldest_ms: u32,
    }
}

packed! {
    /// An OSD's clock, compared with the monitor's by a report and its acknowledgement.
    pub struct ClockSample {
        /// How far the OSD's clock is ahead of the monitor's, in microseconds, with an error of
        /// half the round trip.
        pub ahead_us: i64,
        /// The round trip.
        pub round_trip: Micros,
    }
}

packed! {
    /// The options that are set for a daemon, by source. Options that it does not know are left
    /// out.
    pub struct ConfigReport {
        /// In `ceph.conf` and on the command line.
        pub file: BTreeMap<String, String>,
        /// By the monitors' configuration database.
        pub central: BTreeMap<String, String>,
        /// At run time.
        pub overrides: BTreeMap<String, String>,
        /// Options of that database that it does not follow.
        pub ignored: Vec<String>,
    }
}

packed! {
    /// Osdmaps wanted.
    pub struct OsdMapWanted {
        /// The first epoch.
        pub first: Epoch,
        /// The last one; 0 for the newest.
        pub last: Epoch,
        /// Full maps, not incrementals.
        pub full: bool,
    }
}

wire_enum! {
    /// The kind of a report about a peer.
    pub struct FailureKind(u8) {
        /// It answers again.
        RECOVERED = 0, "recovered";
        /// It does not answer heartbeats.
        TIMEOUT = 1, "timeout";
        /// Its port refuses connections: the process is gone.
        IMMEDIATE = 2, "immediate";
    }
}

packed! {
    /// A peer that does not answer.
    pub struct OsdFailureReport {
        /// The reporter's osdmap epoch.
        pub epoch: Epoch,
        /// The peer.
        pub target: OsdId,
        /// The peer's addresses, which identify its process.
        pub target_addrs: EntityAddrVec,
        /// The kind of the report.
        pub kind: FailureKind,
        /// For how long the peer has not answered, in milliseconds.
        pub failed_for_ms: u32,
    }
}

wire_enum! {
    /// How full a store is.
    pub struct Fullness(u8) {
        /// There is room.
        NONE = 0, "ok";
        /// Above `nearfull_ratio`.
        NEARFULL = 1, "nearfull";
        /// Above `backfillfull_ratio`.
        BACKFILLFULL = 2, "backfillfull";
        /// Above `full_ratio`: no client writes.
        FULL = 3, "full";
    }
}

packed! {
    /// The state of a store, sent when it changes.
    pub struct FullState {
        /// Its osdmap epoch.
        pub epoch: Epoch,
        /// How full.
        pub state: Fullness,
    }
}

packed! {
    /// The end of an OSD.
    pub struct OsdGoingDown {
        /// The sender's osdmap epoch.
        pub epoch: Epoch,
        /// The OSD.
        pub osd: OsdId,
        /// Its reason.
        pub reason: String,
    }
}

packed! {
    /// Acting sets to install (or with empty ones, to remove) for a while.
    pub struct PgTempWanted {
        /// The sender's osdmap epoch.
        pub epoch: Epoch,
        /// By PG.
        pub acting: BTreeMap<PgId, Positions>,
    }
}

packed! {
    /// An operator's wish about recovery.
    pub struct ForceCopy {
        /// The PGs.
        pub pgs: Vec<PgId>,
        /// Whether their backfill is meant, not their recovery.
        pub backfill: bool,
        /// Whether the priority is set; else it is removed.
        pub on: bool,
    }
}

packed! {
    /// Purged snapshots wanted.
    pub struct PurgedSnapsWanted {
        /// The sender's osdmap epoch. A monitor with an older one does not answer, as its answer
        /// could be incomplete.
        pub epoch: Epoch,
    }
}

packed! {
    /// All snapshots that are removed and trimmed everywhere.
    pub struct PurgedSnaps {
        /// The monitor's osdmap epoch: incrementals of later epochs tell later purges.
        pub epoch: Epoch,
        /// By pool.
        pub pools: BTreeMap<PoolId, IntervalSet>,
    }
}

wire_enum! {
    /// What an OSD does whose store is damaged.
    pub struct DamagedStore(u8) {
        /// It serves, and would stop to be mended if nobody needed it.
        SERVES = 0, "serves";
        /// It does not serve, and waits until nobody needs what it has.
        WAITS = 1, "waits";
        /// It mends its store, or makes it anew.
        MENDS = 2, "mends";
    }
}

packed! {
    /// A damaged store.
    pub struct StoreDamaged {
        /// The number of the question, which the answer has, too.
        pub number: u64,
        /// What the OSD does.
        pub state: DamagedStore,
        /// The damage, in words for people.
        pub damage: String,
    }
}

wire_enum! {
    /// Why a PG can't do without an OSD.
    pub struct Need(u8) {
        /// Its state without the OSD is not known.
        UNKNOWN = 0, "not reported without it";
        /// It is not active.
        INACTIVE = 1, "not active";
        /// It has unfound objects.
        UNFOUND = 2, "objects unfound";
        /// Too few members would be left.
        MEMBER = 3, "too few others";
    }
}

packed! {
    /// The PGs that can't do without an OSD.
    pub struct Needed {
        /// The number of the question.
        pub number: u64,
        /// The monitor's osdmap epoch.
        pub epoch: Epoch,
        /// Whether the map has the OSD up.
        pub is_up: bool,
        /// The PGs; of many, some.
        pub pgs: BTreeMap<PgId, Need>,
        /// The number of all of them.
        pub count: u64,
    }
}

packed! {
    /// An OSD's scrubs.
    pub struct ScrubReport {
        /// The scrubs of PGs that the OSD leads which are under way, or wait though they may begin or
        /// are late.
        pub pgs: BTreeMap<PgId, PgScrub>,
        /// The permitted hours of each permitted day.
        pub hours: u8,
        /// The permitted days of a week.
        pub days: u8,
        /// The seconds until scheduled scrubs are permitted, 0 if they are now, [`u32::MAX`] for never.
        pub opens_in: u32,
        /// When all PGs will have been deep-scrubbed, once that can be told.
        pub outlook: Option<ScrubOutlook>,
    }
}

packed! {
    /// A scrub of a PG.
    pub struct PgScrub {
        /// Whether contents are read.
        pub deep: bool,
        /// Whether an operator has ordered it, so that permitted hours do not matter.
        pub requested: bool,
        /// The seconds that it takes its primary.
        pub seconds: Option<ScrubSeconds>,
    }
}

packed! {
    /// The seconds that a scrub takes.
    pub struct ScrubSeconds {
        /// All of it.
        pub whole: u32,
        /// What is left.
        pub left: u32,
    }
}

packed! {
    /// When all PGs of which an OSD has a copy will have been deep-scrubbed.
    pub struct ScrubOutlook {
        /// As things are.
        pub end: ScrubEnd,
        /// Without each limit.
        pub without: BTreeMap<ScrubLimit, ScrubEnd>,
        /// Without any.
        pub at_best: ScrubEnd,
    }
}

packed! {
    /// How old the contents of a PG will be when they have been read, of the PG that will be the
    /// latest.
    pub struct ScrubEnd {
        /// Seconds; [`u32::MAX`] if they never will be read.
        pub age: u32,
        /// The seconds after which they should have been (`osd_deep_scrub_interval`).
        pub interval: u32,
    }
}

wire_enum! {
    /// What limits an OSD's scrubs, in the order in which it is considered, and the options of it.
    pub struct ScrubLimit(u8) {
        /// The permitted hours of the day.
        HOURS = 1, "osd_scrub_begin_hour, osd_scrub_end_hour";
        /// The permitted days of the week.
        DAYS = 2, "osd_scrub_begin_week_day, osd_scrub_end_week_day";
        /// Pauses.
        SLEEP = 3, "osd_scrub_sleep";
        /// The share of time while clients work.
        SHARE = 4, "spirula_osd_scrub_share";
        /// The number of scrubs at a time.
        SLOTS = 5, "osd_max_scrubs";
        /// The load of the machine.
        LOAD = 6, "osd_scrub_load_threshold";
    }
}

packed! {
    /// Why an OSD may not boot.
    pub struct BootDenied {
        /// A negative errno.
        pub result: i32,
        /// For its log.
        pub reason: String,
    }
}

packed! {
    /// Confirms statistics.
    pub struct PgStatsAck {
        /// The report.
        pub seq: u64,
        /// When the monitor received it.
        pub stamp: UTime,
    }
}

plain_parts!(
    OsdBoot,
    OsdAlive,
    OsdBeacon,
    PgStatsReport,
    OsdMapWanted,
    OsdFailureReport,
    FullState,
    OsdGoingDown,
    PgTempWanted,
    ConfigReport,
    ForceCopy,
    PurgedSnapsWanted,
    PurgedSnaps,
    ScrubReport,
    StoreDamaged,
    Needed,
    BootDenied,
    PgStatsAck,
);
