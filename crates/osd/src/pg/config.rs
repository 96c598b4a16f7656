//! The limits that the PG core enforces, under the names of Ceph's options.

use super::bug::Bug;

/// Ceph's default lists of object classes, of which those are listed that Spirula does not have yet, too.
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
    /// `osd_max_attr_size`: bytes of one attribute. Ceph has no limit; an attribute lives in the index here.
    pub max_attr_size: usize,
    /// Bytes of all attributes of an object together.
    pub max_attrs_total: usize,
    /// Attributes of an object. Ceph has no limit; they are stored and copied together.
    pub max_attrs: usize,
    /// `osd_max_write_size`: bytes of payload in one request, and bytes that it may write with patterns repeated.
    pub max_write_size: usize,
    /// Ops in one request. Ceph has no limit. librbd reads all snapshots of an image with one request, four ops for each.
    pub max_ops: usize,
    /// Listing ops in one request; official clients send one.
    pub max_listings: usize,
    /// Snapshots that a write may name. Ceph has no limit; CephFS allows 4096 at a directory, the kernel's rbd 510 of an image. A clone has a
    /// record for each, all of them in one transaction.
    pub max_snaps: usize,
    /// What one request may take of the processor, in bytes copied or compared (see `exec/work.rs`): about a tenth of a second, during which the
    /// OSD does nothing else.
    pub max_work: u64,
    /// Bytes that one request may take in the store's log: omap pairs, attributes, small writes, info and snapshots of a clone. The store's limit
    /// is 8 MiB; the rest is for the log entry and what is forgotten with it.
    pub max_logged: usize,
    /// Bytes of an object's encoded info: watchers, and the snapshots and overlaps of all its clones. It is written with every change.
    pub max_info: usize,
    /// Bytes that the omap of a clone may take in the store's log besides, of which an op may make two. A larger one is built in a
    /// staging object.
    pub max_clone_logged: usize,
    /// Bytes of omap pairs that are written to a staging object at once.
    pub stage_page: usize,
    /// Bytes that part of an object takes in the log of an OSD that it is pushed to, where it has more than one change. Others of a
    /// PG's changes that are as large as one likes are divided so, too.
    pub max_part_logged: usize,
    /// The same of any part: more is not taken from another OSD. What a client stored in one request fits.
    pub max_push_logged: usize,
    /// `osd_max_pgls`: objects in one listing.
    pub max_pgls: u64,
    /// `osd_max_omap_entries_per_request`: keys in one listing.
    pub max_omap_entries: usize,
    /// `osd_max_omap_bytes_per_request`: bytes of omap pairs that one op may return. Ceph's is 1 GiB; here all of it is in memory.
    pub max_omap_bytes: usize,
    /// Bytes that the class methods of one request may read from the store, or make, together: the largest object map that librbd makes,
    /// read and made anew.
    pub max_class_bytes: usize,
    /// Bytes of omap pairs that they read at once, of which a single pair may be larger.
    pub max_class_page: usize,
    /// Bytes of one listing of an omap, of which a single pair may be larger: the client asks for more where there is more.
    pub max_omap_page: usize,
    /// `osd_max_write_op_reply_len`: bytes that an op of a write may return.
    pub max_write_op_reply_len: usize,
    /// Bytes that all ops of a write may return: the log keeps them, and what is forgotten of it at once goes into one record.
    pub max_write_reply: usize,
    /// Ops in a write that returns something of each (`RETURNVEC`), for the same reason.
    pub max_returning_ops: usize,
    /// `osd_client_watch_timeout`: seconds without a sign of a watcher after which its watch is dropped, where the client
    /// does not say.
    pub watch_timeout: u32,
    /// `osd_default_notify_timeout`: seconds that a notification waits for its watchers, where the client does not say.
    pub notify_timeout: u32,
    /// Seconds that it waits at most, and that a watch outlives its client. Ceph has no limit.
    pub max_notify_timeout: u32,
    /// Watchers of one object. Ceph has no limit; they are stored with every change of the object.
    pub max_watchers: usize,
    /// Bytes that the watches and notifications of all PGs of a reactor may take, of which clients with one key have half at most. Ceph has no
    /// limit.
    pub watch_bytes: usize,
    /// `osd_class_load_list`: the object classes that may be used, separated by blanks; `*` for all.
    pub class_load_list: String,
    /// `osd_class_default_list`: the object classes that the capabilities `x`, `class-read` and `class-write` cover.
    pub class_default_list: String,
    /// Log entries that all PGs of a reactor keep together. Fewer than Ceph's: each costs memory.
    pub log_entries: usize,
    /// Log entries that one PG keeps at least and at most.
    pub log_entries_per_pg: (usize, usize),
    /// Bytes that the entries of one PG may take in memory, and once more the requests that are remembered beyond them.
    pub max_log_bytes: usize,
    /// `osd_pg_log_dups_tracked`: requests that one PG remembers at most, to recognise them when they are sent again.
    pub dups_tracked: usize,
    /// Requests that all PGs of a reactor remember together. Fewer than Ceph's: each costs memory.
    pub dups: usize,
    /// Object contexts that all PGs keep together for reuse.
    pub contexts: usize,
    /// Bytes of attributes, watchers and snapshots that they may hold together.
    pub context_bytes: usize,
    /// `osd_copyfrom_max_chunk`: bytes read at once from an object that is copied.
    pub copy_chunk: u64,
    /// What a member is sent while requests wait for it.
    pub push_window: Window,
    /// `osd_pg_max_concurrent_snap_trims`: clones that a PG trims at the same time.
    pub max_snap_trims: usize,
    /// `osd_max_trimming_pgs`: PGs that trim at the same time.
    pub max_trimming_pgs: usize,
    /// `osd_snap_trim_sleep`, in microseconds: the pause after each such group of clones.
    pub snap_trim_sleep_us: u64,
    /// Seconds after which peering that makes no progress begins anew.
    pub peering_retry: u32,
    /// Objects that members may lack while requests wait for them; where they lack more, others serve meanwhile.
    pub sync_objects: usize,
    /// Bytes that the PGs of a reactor together may lack on a member while requests wait for them: what a slow network carries
    /// in less than a second.
    pub sync_bytes: i64,
    /// `osd_max_backfills`: PGs that an OSD copies in the background at the same time, and that are copied to it.
    pub max_backfills: usize,
    /// What such a copy may have under way while no client works (`osd_recovery_max_active`, `osd_recovery_max_chunk`).
    pub backfill_window: Window,
    /// The least of that while clients work: what they send waits behind it.
    pub busy_window: Window,
    /// While clients work, as much as so many of their requests, in bytes.
    pub busy_requests: u64,
    /// How many times as long as it copies an OSD rests, while clients work.
    pub busy_rest: u64,
    /// `osd_recovery_sleep`, in microseconds: the pause after each push in any case.
    pub recovery_sleep_us: u64,
    /// For how long the members let a primary answer reads, in microseconds. Ceph's is 16 s (`osd_pool_default_read_lease_ratio`), which a
    /// new primary may have to wait.
    pub read_lease_us: u64,
    /// For tests of the tests.
    #[cfg(any(test, feature = "bugs"))]
    pub bug: Option<Bug>,
}

/// What may be under way to an OSD that is copied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Pushes that it has not acknowledged.
    pub pushes: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Payload bytes in one push.
    pub chunk: u64,
}

impl Window {
    /// No more than both allow.
    pub(super) fn at_most(self, other: Self) -> Self {
        Self {
            pushes: self.pushes.min(other.pushes),
            bytes: self.bytes.min(other.bytes),
            chunk: self.chunk.min(other.chunk),
        }
    }
}

impl PgConfig {
    /// Whether this bug is wanted.
    #[cfg(any(test, feature = "bugs"))]
    pub(super) fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether this bug is wanted.
    #[cfg(not(any(test, feature = "bugs")))]
    pub(super) fn has_bug(&self, _: Bug) -> bool {
        false
    }

    /// Bytes that may be read from the store for one request, and that it may return: all data of an object, and what is not data.
    pub fn max_fetch(&self) -> u64 {
        self.max_object_size.saturating_add(self.max_facts())
    }

    /// Bytes that one request may return besides data of the object: that is in buffers which are counted, all else is not.
    pub fn max_facts(&self) -> u64 {
        2 * self.max_omap_bytes as u64
    }

    /// The same for an OSD that has so many bytes of memory for payload, tables and caches: logs, requests remembered besides and contexts keep to
    /// their part of it.
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

    /// What each of `pgs` PGs may keep in memory.
    pub fn shares(&self, pgs: usize) -> Shares {
        let pgs = pgs.max(1);
        let (least, most) = self.log_entries_per_pg;
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

/// What one PG may keep in memory: its share of what all may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Log entries.
    pub log_entries: usize,
    /// Requests beyond the log.
    pub dups: usize,
    /// Object contexts.
    pub contexts: usize,
    /// Bytes of their attributes, watchers and snapshots.
    pub context_bytes: usize,
    /// Bytes that requests may wait for to be copied.
    pub sync_bytes: i64,
}

/// What the defaults are for, in bytes.
const DEFAULT_MEMORY: usize = 104 << 20;

/// Bytes of an object's xattrs: they are logged with all that belongs to them in one record of the store, which has 8 MiB.
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
            max_info: 1 << 20,
            max_clone_logged: 448 << 10,
            stage_page: 1 << 20,
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
            log_entries_per_pg: (100, 1000),
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
            snap_trim_sleep_us: 0,
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
            busy_rest: 2,
            recovery_sleep_us: 0,
            read_lease_us: 4_000_000,
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
