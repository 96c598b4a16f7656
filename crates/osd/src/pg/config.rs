//! The limits that the PG core enforces, under the names of Ceph's options.

use std::ops::RangeInclusive;

use spirula_denc::Micros;

use super::bug::Bug;
use super::rate::{ClientRate, Rate};
use super::scrub::Strides;
use super::scrub::outlook::rest;
use super::scrub::schedule::Intervals;

/// Ceph's default list of object classes, including those that Spirula does not have yet.
const CLASSES: &str = "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc timeindex user version cas \
                       cmpomap queue 2pc_queue fifo";

/// Settings of the PG core. Defaults are Ceph's, except where a comment says why not.
#[derive(Debug, Clone)]
pub struct PgConfig {
    /// `osd_max_object_size`: bytes.
    pub max_object_size: u64,
    /// `osd_max_object_name_len`: bytes.
    pub max_object_name_len: usize,
    /// `osd_max_object_namespace_len`: bytes.
    pub max_object_namespace_len: usize,
    /// `osd_max_attr_name_len`: bytes.
    pub max_attr_name_len: usize,
    /// `osd_max_attr_size`: bytes of one attribute. Ceph has no limit; an attribute lives in the
    /// index here.
    pub max_attr_size: usize,
    /// The most bytes of all attributes of an object together.
    pub max_attrs_total: usize,
    /// The most attributes of an object. Ceph has no limit; they are stored and copied together.
    pub max_attrs: usize,
    /// `osd_max_write_size`: bytes of payload in one request, and bytes that it may write with
    /// patterns repeated.
    pub max_write_size: usize,
    /// The most ops in one request. Ceph has no limit. librbd reads all snapshots of an image with
    /// one request, four ops for each.
    pub max_ops: usize,
    /// The most listing ops in one request; official clients send one.
    pub max_listings: usize,
    /// The most snapshots that a write may name. Ceph has no limit; CephFS allows 4096 at a
    /// directory, the kernel's rbd 510 of an image. A clone has a record for each, all of them in
    /// one transaction.
    pub max_snaps: usize,
    /// The most processor time of one request, in bytes copied or compared (see `exec/work.rs`):
    /// about a tenth of a second, during which the OSD does nothing else.
    pub max_work: u64,
    /// The most bytes that one request may take in the store's log: omap pairs, attributes, small
    /// writes, info and snapshots of a clone. The store's limit is 8 MiB; the rest is for the log
    /// entry and the records that are forgotten with it.
    pub max_logged: usize,
    /// A change of an object that is erasure-coded is made in two steps if it has more bytes than this:
    /// first each member gets what becomes of its own fragment. A smaller one is sent to all as a
    /// whole.
    pub large_change: usize,
    /// Bytes of such a change that are brought to members at once.
    pub portion: u64,
    /// The most bytes of an object's encoded info: watchers, and the snapshots and overlaps of all
    /// its clones. It is written with every change.
    pub max_info: usize,
    /// The most bytes that the omap of a clone may take in the store's log besides; an op may make
    /// two clones. A larger one is built in a staging object.
    pub max_clone_logged: usize,
    /// Bytes of omap pairs that are written to a staging object at once.
    pub stage_page: usize,
    /// The bytes from which on the data of a write goes to the members ahead of its change while
    /// other clients are there.
    pub least_ahead: usize,
    /// The bytes that a part of an object takes in the log of the OSD that it is pushed to, if the
    /// push needs more than one change. Other changes of a PG that would be large without limit are
    /// divided likewise.
    pub max_part_logged: usize,
    /// The most bytes in the log of any part that is accepted from another OSD. Everything that a
    /// client stored in one request fits.
    pub max_push_logged: usize,
    /// `osd_max_pgls`: objects in one listing.
    pub max_pgls: u64,
    /// `osd_max_omap_entries_per_request`: keys in one listing.
    pub max_omap_entries: usize,
    /// `osd_max_omap_bytes_per_request`: bytes of omap pairs that one op may return. Ceph's is 1
    /// GiB; here all of it is in memory.
    pub max_omap_bytes: usize,
    /// The most bytes that the class methods of one request may read from the store, or make,
    /// together: the largest object map that librbd makes, read and made anew.
    pub max_class_bytes: usize,
    /// The bytes of omap pairs that class methods read at once; a single pair may be larger.
    pub max_class_page: usize,
    /// The bytes of one listing of an omap; a single pair may be larger. The client asks for the
    /// rest.
    pub max_omap_page: usize,
    /// `osd_max_write_op_reply_len`: bytes that an op of a write may return.
    pub max_write_op_reply_len: usize,
    /// The most bytes that all ops of a write may return: the log keeps them, and those that are
    /// forgotten at once go into one record.
    pub max_write_reply: usize,
    /// The most ops in a write that returns the results of each (`RETURNVEC`), for the same reason.
    pub max_returning_ops: usize,
    /// `osd_client_watch_timeout`: seconds without a sign of a watcher after which its watch is
    /// dropped, if the client does not set them.
    pub watch_timeout: u32,
    /// `osd_default_notify_timeout`: seconds that a notification waits for its watchers, if the
    /// client does not set them.
    pub notify_timeout: u32,
    /// The most seconds that a notification waits, and that a watch outlives its client. Ceph has
    /// no limit.
    pub max_notify_timeout: u32,
    /// The most watchers of one object. Ceph has no limit; they are stored with every change of the
    /// object.
    pub max_watchers: usize,
    /// The most bytes that the watches and notifications of all PGs of a reactor may take; clients
    /// with one key may have half of that. Ceph has no limit.
    pub watch_bytes: usize,
    /// `osd_class_load_list`: the object classes that may be used, separated by blanks; `*` for
    /// all.
    pub class_load_list: String,
    /// `osd_class_default_list`: the object classes that the capabilities `x`, `class-read` and
    /// `class-write` cover.
    pub class_default_list: String,
    /// The log entries that all PGs of a reactor keep together. Fewer than Ceph's: each costs
    /// memory.
    pub log_entries: usize,
    /// The least and the most log entries that one PG keeps.
    pub log_entries_per_pg: RangeInclusive<usize>,
    /// The most bytes that the log entries of one PG may take in memory; the requests remembered
    /// beyond the log may take as many.
    pub max_log_bytes: usize,
    /// `osd_pg_log_dups_tracked`: the most requests that one PG remembers, to recognise them when
    /// they are sent again.
    pub dups_tracked: usize,
    /// The requests that all PGs of a reactor remember together. Fewer than Ceph's: each costs
    /// memory.
    pub dups: usize,
    /// The object contexts that all PGs keep together for reuse.
    pub contexts: usize,
    /// The bytes of attributes, watchers and snapshots that these contexts may hold together.
    pub context_bytes: usize,
    /// `osd_copyfrom_max_chunk`: bytes read at once from an object that is copied.
    pub copy_chunk: u64,
    /// The pushes to a member while requests wait for it.
    pub push_window: Window,
    /// `osd_pg_max_concurrent_snap_trims`: clones that a PG trims at the same time.
    pub max_snap_trims: usize,
    /// `osd_max_trimming_pgs`: PGs that trim at the same time.
    pub max_trimming_pgs: usize,
    /// `osd_snap_trim_sleep`: the pause after each such group of clones.
    pub snap_trim_sleep: Micros,
    /// Seconds after which peering that makes no progress begins anew.
    pub peering_retry: u32,
    /// The most objects that members may lack while requests wait for them; if they lack more,
    /// others serve meanwhile.
    pub sync_objects: usize,
    /// The most bytes that the PGs of a reactor together may lack on a member while requests wait
    /// for them: what a slow network carries in less than a second.
    pub sync_bytes: i64,
    /// `osd_max_backfills`: the PGs that an OSD copies in the background at the same time, and the
    /// PGs that are copied to it.
    pub max_backfills: usize,
    /// The pushes of such a copy while no client works (`osd_recovery_max_active`,
    /// `osd_recovery_max_chunk`).
    pub backfill_window: Window,
    /// The least pushes of such a copy while clients work: their requests wait behind it.
    pub busy_window: Window,
    /// While clients work, such a copy may have as many bytes under way as this many of their
    /// requests.
    pub busy_requests: u64,
    /// How many requests of each client begin (`osd_mclock_profile`).
    pub clients: ClientRate,
    /// How fast an OSD copies (`osd_mclock_profile`).
    pub recovery: Rate,
    /// How fast an OSD scrubs, trims and deletes (`osd_mclock_profile`).
    pub best_effort: Rate,
    /// `osd_recovery_sleep`: the pause after each push in any case.
    pub recovery_sleep: Micros,
    /// How long the members let a primary answer reads. Ceph's is 16 s
    /// (`osd_pool_default_read_lease_ratio`), which a new primary may have to wait.
    pub read_lease: Micros,
    /// Scrubbing.
    pub scrub: ScrubConfig,
    /// A deliberate bug, for tests of the tests.
    #[cfg(any(test, feature = "bugs"))]
    pub bug: Option<Bug>,
}

/// Settings of scrubbing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScrubConfig {
    /// `osd_max_scrubs`: the PGs that an OSD scrubs at the same time, as primary or member.
    pub most: usize,
    /// `osd_scrub_chunk_max`: the objects that are compared at once.
    pub chunk: usize,
    /// `spirula_osd_scrub_share`: the largest part of its time that an OSD reads for scrubs while
    /// clients work.
    pub share: f64,
    /// How much of an object is read at once.
    pub strides: Strides,
    /// `osd_scrub_max_preemptions`: how often writes of clients may touch an object that is looked at
    /// before they wait until it was looked at once more.
    pub patience: u32,
    /// `osd_scrub_during_recovery`: whether scheduled scrubs begin while PGs of the OSD are copied.
    pub during_recovery: bool,
    /// `osd_scrub_sleep`: the pause before the next objects are compared.
    pub sleep: Micros,
    /// How often PGs are scrubbed.
    pub intervals: Intervals,
    /// `osd_deep_scrub_update_digest_min_age`: the time since the last change of an object after which
    /// a deep scrub notes digests that its info lacks.
    pub digest_min_age: Micros,
    /// `osd_scrub_auto_repair`: the most errors that are repaired unasked
    /// (`osd_scrub_auto_repair_num_errors`); `None` for none.
    pub auto_repair: Option<u32>,
    /// `osd_deep_scrub_large_omap_object_key_threshold`: keys of an omap that is not large.
    pub large_omap_keys: u64,
    /// `osd_deep_scrub_large_omap_object_value_sum_threshold`: bytes of such an omap.
    pub large_omap_bytes: u64,
}

impl ScrubConfig {
    /// How many times as long as it reads for a scrub an OSD rests at least while clients work.
    pub(super) fn least_rest(&self) -> u32 {
        rest(self.share)
    }
}

impl Default for ScrubConfig {
    fn default() -> Self {
        Self {
            most: 1,
            chunk: 25,
            share: 0.1,
            strides: Strides {
                data: 512 << 10,
                keys: 1024,
            },
            patience: 5,
            during_recovery: false,
            sleep: Micros::ZERO,
            intervals: Intervals::default(),
            digest_min_age: Micros::from_secs(7200),
            auto_repair: None,
            large_omap_keys: 200_000,
            large_omap_bytes: 1 << 30,
        }
    }
}

/// The limits of what may be under way to an OSD that is copied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The most pushes that the OSD has not acknowledged.
    pub pushes: usize,
    /// The most bytes of these pushes.
    pub bytes: u64,
    /// The most payload bytes in one push.
    pub chunk: u64,
}

impl Window {
    /// The smaller of each limit of both windows.
    pub(super) fn at_most(self, other: Self) -> Self {
        Self {
            pushes: self.pushes.min(other.pushes),
            bytes: self.bytes.min(other.bytes),
            chunk: self.chunk.min(other.chunk),
        }
    }
}

impl PgConfig {
    /// Whether this bug is switched on.
    #[cfg(any(test, feature = "bugs"))]
    pub(crate) fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether this bug is switched on.
    #[cfg(not(any(test, feature = "bugs")))]
    pub(crate) fn has_bug(&self, _: Bug) -> bool {
        false
    }

    /// The most bytes that may be read from the store for one request, and that it may return: all
    /// data of an object, and everything else.
    pub fn max_fetch(&self) -> u64 {
        self.max_object_size.saturating_add(self.max_facts())
    }

    /// The most bytes that one request may return besides data of the object: the data is in
    /// buffers that are counted, everything else is not.
    pub fn max_facts(&self) -> u64 {
        2 * self.max_omap_bytes as u64
    }

    /// These settings for an OSD that has `memory` bytes for payload, tables and caches: logs,
    /// requests remembered besides and contexts keep to their part of it.
    #[must_use]
    pub fn within(self, memory: usize) -> Self {
        let part = |n: usize| n / 64 * (memory.min(DEFAULT_MEMORY) / (DEFAULT_MEMORY / 64));
        Self {
            log_entries: part(self.log_entries),
            dups: part(self.dups),
            contexts: part(self.contexts),
            context_bytes: part(self.context_bytes),
            ..self
        }
    }

    /// The shares of each of `pgs` PGs in the memory.
    pub fn shares(&self, pgs: usize) -> Shares {
        let pgs = pgs.max(1);
        let (least, most) = (*self.log_entries_per_pg.start(), *self.log_entries_per_pg.end());
        Shares {
            log_entries: (self.log_entries / pgs).clamp(least, most),
            dups: (self.dups / pgs).max(300),
            contexts: (self.contexts / pgs).clamp(8, 1024),
            context_bytes: (self.context_bytes / pgs).max(64 << 10),
            sync_bytes: (self.sync_bytes / i64::try_from(pgs).unwrap_or(i64::MAX))
                .clamp(self.sync_bytes.min(64 << 10), 4 << 20),
        }
    }
}

/// The share of one PG in the memory of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// The most log entries.
    pub log_entries: usize,
    /// The most requests remembered beyond the log.
    pub dups: usize,
    /// The most object contexts.
    pub contexts: usize,
    /// The most bytes of their attributes, watchers and snapshots.
    pub context_bytes: usize,
    /// The most bytes whose copying requests may wait for.
    pub sync_bytes: i64,
}

/// The bytes of memory that the defaults are made for.
const DEFAULT_MEMORY: usize = 104 << 20;

/// The most bytes of an object's xattrs: they are logged with all that belongs to them in one
/// record of the store, which has 8 MiB.
const MAX_ATTRS: usize = (5 << 20) + (512 << 10);

impl Default for PgConfig {
    fn default() -> Self {
        Self {
            max_object_size: 128 << 20,
            max_object_name_len: 2048,
            max_object_namespace_len: 256,
            max_attr_name_len: 100,
            max_attr_size: MAX_ATTRS,
            max_attrs_total: MAX_ATTRS,
            max_attrs: 4096,
            max_write_size: 90 << 20,
            max_ops: 16 << 10,
            max_listings: 16,
            max_snaps: 8192,
            max_work: 192 << 20,
            max_logged: MAX_ATTRS + (512 << 10),
            large_change: 32 << 10,
            portion: 4 << 20,
            max_info: 1 << 20,
            max_clone_logged: 448 << 10,
            stage_page: 1 << 20,
            least_ahead: 256 << 10,
            max_part_logged: 2 << 20,
            max_push_logged: 7 << 20,
            max_pgls: 1024,
            max_omap_entries: 1024,
            max_omap_bytes: 8 << 20,
            max_omap_page: 4 << 20,
            max_class_bytes: 128 << 20,
            max_class_page: 4 << 20,
            max_write_op_reply_len: 64,
            max_write_reply: 16 << 10,
            max_returning_ops: 1024,
            watch_timeout: 30,
            notify_timeout: 30,
            max_notify_timeout: 3600,
            max_watchers: 10_000,
            watch_bytes: 8 << 20,
            class_load_list: CLASSES.to_owned(),
            class_default_list: CLASSES.to_owned(),
            log_entries: 20_000,
            log_entries_per_pg: 100..=1000,
            max_log_bytes: 256 << 10,
            dups_tracked: 3000,
            dups: 30_000,
            contexts: 8192,
            context_bytes: 6 << 20,
            copy_chunk: 8 << 20,
            push_window: Window {
                pushes: 16,
                bytes: 8 << 20,
                chunk: 1 << 20,
            },
            max_snap_trims: 2,
            max_trimming_pgs: 2,
            snap_trim_sleep: Micros::ZERO,
            peering_retry: 10,
            sync_objects: 64,
            sync_bytes: 8 << 20,
            max_backfills: 1,
            backfill_window: Window {
                pushes: 32,
                bytes: 8 << 20,
                chunk: 1 << 20,
            },
            busy_window: Window {
                pushes: 16,
                bytes: 512 << 10,
                chunk: 256 << 10,
            },
            busy_requests: 2,
            clients: ClientRate::default(),
            recovery: Rate::weighing(0.5),
            best_effort: Rate::weighing(0.5),
            recovery_sleep: Micros::ZERO,
            read_lease: Micros::from_secs(4),
            scrub: ScrubConfig::default(),
            #[cfg(any(test, feature = "bugs"))]
            bug: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgs_keep_less_where_there_is_less_memory() {
        let of = |memory: usize| {
            let c = PgConfig::default().within(memory);
            [c.log_entries, c.dups, c.contexts, c.context_bytes]
        };
        let (all, half) = (of(DEFAULT_MEMORY), of(DEFAULT_MEMORY / 2));
        assert_eq!(of(1 << 30), all);
        for (all, half) in all.into_iter().zip(half) {
            assert!(all / 2 - 100 < half && half <= all / 2 + 100, "{half} of {all}");
        }
    }
}
