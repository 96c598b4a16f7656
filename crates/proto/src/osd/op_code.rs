//! Operation codes of `src/include/rados.h`.

use crate::macros::wire_enum;

wire_enum! {
    /// The code of an operation in a request (`CEPH_OSD_OP_*`).
    pub struct OpCode(u16) {
        /// Read a range.
        READ = 0x1201, "read";
        /// Size and modification time.
        STAT = 0x1202, "stat";
        /// The extents that hold data.
        MAPEXT = 0x1203, "mapext";
        /// Checksums of a range, per chunk.
        CHECKSUM = 0x121f, "checksum";
        /// Obsolete.
        MASKTRUNC = 0x1204, "masktrunc";
        /// Read a range, holes left out.
        SPARSE_READ = 0x1205, "sparse-read";
        /// Notify all watchers.
        NOTIFY = 0x1206, "notify";
        /// A watcher's answer to a notification.
        NOTIFY_ACK = 0x1207, "notify-ack";
        /// Fail unless the object's user version is the one given.
        ASSERT_VER = 0x1208, "assert-version";
        /// List the watchers.
        LIST_WATCHERS = 0x1209, "list-watchers";
        /// Clones and their overlaps.
        LIST_SNAPS = 0x120a, "list-snaps";
        /// Read a range, past caches.
        SYNC_READ = 0x120b, "sync_read";
        /// Write a range.
        WRITE = 0x2201, "write";
        /// Replace the whole content.
        WRITEFULL = 0x2202, "writefull";
        /// Set the size.
        TRUNCATE = 0x2203, "truncate";
        /// Zero a range.
        ZERO = 0x2204, "zero";
        /// Delete the object.
        DELETE = 0x2205, "delete";
        /// Write at the end.
        APPEND = 0x2206, "append";
        /// Not served here.
        STARTSYNC = 0x2207, "startsync";
        /// Not served here.
        SETTRUNC = 0x2208, "settrunc";
        /// Not served here.
        TRIMTRUNC = 0x2209, "trimtrunc";
        /// Not served here.
        TMAPUP = 0x320a, "tmapup";
        /// Not served here.
        TMAPPUT = 0x220b, "tmapput";
        /// Not served here.
        TMAPGET = 0x120c, "tmapget";
        /// Create the object.
        CREATE = 0x220d, "create";
        /// Set the head to a snapshot's state.
        ROLLBACK = 0x220e, "rollback";
        /// Watch the object; see `WatchOp`.
        WATCH = 0x220f, "watch";
        /// Omap keys.
        OMAPGETKEYS = 0x1211, "omap-get-keys";
        /// Omap keys and values.
        OMAPGETVALS = 0x1212, "omap-get-vals";
        /// The omap header.
        OMAPGETHEADER = 0x1213, "omap-get-header";
        /// Omap values of given keys.
        OMAPGETVALSBYKEYS = 0x1214, "omap-get-vals-by-keys";
        /// Set omap values.
        OMAPSETVALS = 0x2215, "omap-set-vals";
        /// Set the omap header.
        OMAPSETHEADER = 0x2216, "omap-set-header";
        /// Remove header, keys and values.
        OMAPCLEAR = 0x2217, "omap-clear";
        /// Remove omap keys.
        OMAPRMKEYS = 0x2218, "omap-rm-keys";
        /// Remove a range of omap keys.
        OMAPRMKEYRANGE = 0x222c, "omap-rm-key-range";
        /// Fail unless omap values compare as given.
        OMAP_CMP = 0x1219, "omap-cmp";
        /// Copy another object over this one.
        COPY_FROM = 0x221a, "copy-from";
        /// Copy another object over this one, with a given truncation state.
        COPY_FROM2 = 0x222d, "copy-from2";
        /// Not served here.
        UNDIRTY = 0x221c, "undirty";
        /// Not served here.
        ISDIRTY = 0x121d, "isdirty";
        /// Not served here.
        COPY_GET = 0x121e, "copy-get";
        /// Not served here.
        CACHE_FLUSH = 0x821f, "cache-flush";
        /// Not served here.
        CACHE_EVICT = 0x8220, "cache-evict";
        /// Not served here.
        CACHE_TRY_FLUSH = 0x8221, "cache-try-flush";
        /// Not served here.
        TMAP2OMAP = 0x3222, "tmap2omap";
        /// Give hints about future writes.
        SETALLOCHINT = 0x2223, "set-alloc-hint";
        /// Not served here.
        CACHE_PIN = 0x2224, "cache-pin";
        /// Not served here.
        CACHE_UNPIN = 0x2225, "cache-unpin";
        /// Write a pattern over and over.
        WRITESAME = 0x2226, "write-same";
        /// Fail unless a range holds the given bytes.
        CMPEXT = 0x1220, "cmpext";
        /// Not served here.
        SET_REDIRECT = 0x2227, "set-redirect";
        /// Not served here.
        SET_CHUNK = 0x8228, "set-chunk";
        /// Not served here.
        TIER_PROMOTE = 0x2229, "tier-promote";
        /// Not served here.
        UNSET_MANIFEST = 0x222a, "unset-manifest";
        /// Not served here.
        TIER_FLUSH = 0x822b, "tier-flush";
        /// Not served here.
        TIER_EVICT = 0x822c, "tier-evict";
        /// One attribute.
        GETXATTR = 0x1301, "getxattr";
        /// All attributes.
        GETXATTRS = 0x1302, "getxattrs";
        /// Fail unless an attribute compares as given.
        CMPXATTR = 0x1303, "cmpxattr";
        /// Set an attribute.
        SETXATTR = 0x2301, "setxattr";
        /// Not served here.
        SETXATTRS = 0x2302, "setxattrs";
        /// Not served here.
        RESETXATTRS = 0x2303, "resetxattrs";
        /// Remove an attribute.
        RMXATTR = 0x2304, "rmxattr";
        /// Not served here.
        PULL = 0x4001, "pull";
        /// Not served here.
        PUSH = 0x4002, "push";
        /// Not served here.
        BALANCEREADS = 0x4003, "balance-reads";
        /// Not served here.
        UNBALANCEREADS = 0x4004, "unbalance-reads";
        /// Not served here.
        SCRUB = 0x4005, "scrub";
        /// Not served here.
        SCRUB_RESERVE = 0x4006, "scrub-reserve";
        /// Not served here.
        SCRUB_UNRESERVE = 0x4007, "scrub-unreserve";
        /// Not served here.
        SCRUB_MAP = 0x4009, "scrub-map";
        /// Call an object class's method.
        CALL = 0x1401, "call";
        /// List a namespace of a PG.
        PGLS = 0x1501, "pgls";
        /// List a namespace of a PG, filtered.
        PGLS_FILTER = 0x1502, "pgls-filter";
        /// Not served here.
        PG_HITSET_LS = 0x1503, "pg-hitset-ls";
        /// Not served here.
        PG_HITSET_GET = 0x1504, "pg-hitset-get";
        /// List a PG with namespaces.
        PGNLS = 0x1505, "pgnls";
        /// List a PG with namespaces, filtered.
        PGNLS_FILTER = 0x1506, "pgnls-filter";
        /// Inconsistencies found by scrub.
        SCRUBLS = 0x1507, "scrubls";
    }
}

impl OpCode {
    const MODE_READ: u16 = 0x1000;
    const MODE_WRITE: u16 = 0x2000;
    const MODE_CACHE: u16 = 0x8000;
    const TYPE: u16 = 0x0f00;
    const TYPE_ATTR: u16 = 0x0300;
    const TYPE_PG: u16 = 0x0500;

    /// Whether it reads the object. [`OpCode::CALL`] carries the read bit by mistake: its method
    /// decides.
    pub fn is_read(self) -> bool {
        self.0 & Self::MODE_READ != 0 && self != Self::CALL
    }

    /// Whether it changes the object.
    pub fn is_modify(self) -> bool {
        self.0 & Self::MODE_WRITE != 0
    }

    /// Whether it is about cache tiers.
    pub fn is_cache(self) -> bool {
        self.0 & Self::MODE_CACHE != 0
    }

    /// Whether it concerns a PG and no object.
    pub fn is_pg(self) -> bool {
        self.0 & Self::TYPE == Self::TYPE_PG
    }

    /// Whether it concerns an attribute.
    pub fn is_attr(self) -> bool {
        self.0 & Self::TYPE == Self::TYPE_ATTR
    }

    /// Whether its arguments are an extent.
    pub fn uses_extent(self) -> bool {
        matches!(
            self,
            Self::READ
                | Self::MAPEXT
                | Self::MASKTRUNC
                | Self::SPARSE_READ
                | Self::SYNC_READ
                | Self::WRITE
                | Self::WRITEFULL
                | Self::TRUNCATE
                | Self::ZERO
                | Self::APPEND
                | Self::TRIMTRUNC
                | Self::CMPEXT
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_public_header() {
        assert_eq!(OpCode::READ.0, 4609);
        assert_eq!(OpCode::WRITE.0, 8705);
        assert_eq!(OpCode::CALL.0, 5121);
        assert_eq!(OpCode::OMAPRMKEYRANGE.0, 8748);
        assert_eq!(OpCode::PGNLS.0, 5381);
        assert_eq!(OpCode::CACHE_FLUSH.to_string(), "cache-flush");
        assert_eq!(OpCode(7).to_string(), "unknown(7)");
        assert!(OpCode::TMAPUP.is_read() && OpCode::TMAPUP.is_modify());
        assert!(!OpCode::CALL.is_read());
    }
}
