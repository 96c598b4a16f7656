//! Flags of requests, of single operations and of allocation hints (`src/include/rados.h`).

use spirula_denc::flags;

flags! {
    /// Flags of a request or reply (`CEPH_OSD_FLAG_*`).
    pub struct OsdFlags(u32), joined "+", empty "-" {
        /// Wants (or is) an answer once applied.
        ACK = 0, "ack";
        /// Obsolete.
        ONNVRAM = 1, "onnvram";
        /// Wants (or is) an answer once durable.
        ONDISK = 2, "ondisk";
        /// Sent before.
        RETRY = 3, "retry";
        /// Reads.
        READ = 4, "read";
        /// Writes.
        WRITE = 5, "write";
        /// Fail with EOLDSNAPC if the snapshot context is old.
        ORDERSNAP = 6, "ordersnap";
        /// Obsolete or internal.
        PEERSTAT_OLD = 7, "peerstat_old";
        /// Any replica may serve it.
        BALANCE_READS = 8, "balance_reads";
        /// The request need not be ordered among others.
        PARALLELEXEC = 9, "parallelexec";
        /// Concerns a PG and no object.
        PGOP = 10, "pgop";
        /// Calls a class.
        EXEC = 11, "exec";
        /// Obsolete or internal.
        EXEC_PUBLIC = 12, "exec_public";
        /// The nearest replica may serve it.
        LOCALIZE_READS = 13, "localize_reads";
        /// Order the request with reads as if it wrote.
        RWORDERED = 14, "rwordered";
        /// Cache tiers; not served here.
        IGNORE_CACHE = 15, "ignore_cache";
        /// Ignores the object lock.
        SKIPRWLOCKS = 16, "skiprwlocks";
        /// Cache tiers; not served here.
        IGNORE_OVERLAY = 17, "ignore_overlay";
        /// Cache tiers; not served here.
        FLUSH = 18, "flush";
        /// Obsolete or internal.
        MAP_SNAP_CLONE = 19, "map_snap_clone";
        /// The snapshot context counts even in a pool with pool snapshots.
        ENFORCE_SNAPC = 20, "enforce_snapc";
        /// Cache tiers; not served here.
        REDIRECTED = 21, "redirected";
        /// The redirect bit is authoritative.
        KNOWN_REDIR = 22, "known_if_redirected";
        /// Try although the cluster or pool is full.
        FULL_TRY = 23, "full_try";
        /// Do it although the cluster or pool is full.
        FULL_FORCE = 24, "full_force";
        /// Cache tiers; not served here.
        IGNORE_REDIRECT = 25, "ignore_redirect";
        /// Positive results and output are wanted from writes.
        RETURNVEC = 26, "returnvec";
        /// The client knows the pool's EIO flag.
        SUPPORTSPOOLEIO = 27, "supports_pool_eio";
    }
}

flags! {
    /// Flags of one operation (`CEPH_OSD_OP_FLAG_*`).
    pub struct OpFlags(u32), joined "+", empty "-" {
        /// The object must not exist yet.
        EXCL = 0, "excl";
        /// Go on with the next operation if this one fails.
        FAILOK = 1, "failok";
        /// Access will be random.
        FADVISE_RANDOM = 2, "fadvise_random";
        /// Access will be sequential.
        FADVISE_SEQUENTIAL = 3, "fadvise_sequential";
        /// Will be used again soon.
        FADVISE_WILLNEED = 4, "fadvise_willneed";
        /// Will not be used again soon.
        FADVISE_DONTNEED = 5, "fadvise_dontneed";
        /// Will not be used again by this client.
        FADVISE_NOCACHE = 6, "fadvise_nocache";
        /// Deduplication; not served here.
        WITH_REFERENCE = 7, "with_reference";
        /// Read from the disk.
        BYPASS_CLEAN_CACHE = 8, "bypass_clean_cache";
    }
}

flags! {
    /// Flags of a copy of an object (`CEPH_OSD_COPY_FROM_FLAG_*`).
    pub struct CopyFromFlags(u8), joined "+", empty "-" {
        /// Cache tiers; not served here.
        FLUSH = 0, "flush";
        /// Cache tiers; not served here.
        IGNORE_OVERLAY = 1, "ignore_overlay";
        /// Cache tiers; not served here.
        IGNORE_CACHE = 2, "ignore_cache";
        /// Obsolete or internal.
        MAP_SNAP_CLONE = 3, "map_snap_clone";
        /// Order the copy with reads as if it wrote.
        RWORDERED = 4, "rwordered";
        /// The request has the copy's truncation.
        TRUNCATE_SEQ = 5, "truncate_seq";
    }
}

impl CopyFromFlags {
    /// Every known flag.
    pub const ALL: Self = Self(0x3f);
}

flags! {
    /// Hints about future writes (`CEPH_OSD_ALLOC_HINT_FLAG_*`).
    pub struct AllocHintFlags(u32), joined "+", empty "-" {
        /// Written in order.
        SEQUENTIAL_WRITE = 0, "sequential_write";
        /// Written in any order.
        RANDOM_WRITE = 1, "random_write";
        /// Read in order.
        SEQUENTIAL_READ = 2, "sequential_read";
        /// Read in any order.
        RANDOM_READ = 3, "random_read";
        /// Only ever grows.
        APPEND_ONLY = 4, "append_only";
        /// Written once.
        IMMUTABLE = 5, "immutable";
        /// Deleted soon.
        SHORTLIVED = 6, "shortlived";
        /// Kept long.
        LONGLIVED = 7, "longlived";
        /// Worth compressing.
        COMPRESSIBLE = 8, "compressible";
        /// Not worth compressing.
        INCOMPRESSIBLE = 9, "incompressible";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_print_as_in_official_logs() {
        let f = OsdFlags::ONDISK
            .with(OsdFlags::WRITE)
            .with(OsdFlags::KNOWN_REDIR)
            .with(OsdFlags::SUPPORTSPOOLEIO);
        assert_eq!(
            f.to_string(),
            "ondisk+write+known_if_redirected+supports_pool_eio"
        );
        assert_eq!(OsdFlags::empty().to_string(), "-");
        assert!(!f.without(OsdFlags::WRITE).contains(OsdFlags::WRITE));
    }
}
