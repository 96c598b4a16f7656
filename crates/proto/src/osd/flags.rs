//! Flags of requests, of single operations and of allocation hints (`src/include/rados.h`).

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// A set of bits on the wire with named ones; unknown bits survive.
macro_rules! flag_set {
    (
        $(#[$doc:meta])* pub struct $name:ident {
            $($(#[$fdoc:meta])* $flag:ident = $value:literal $(, $text:literal)?;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// No bit.
            pub const NONE: Self = Self(0);
            $($(#[$fdoc])* pub const $flag: Self = Self($value);)*

            /// Whether any bit of `other` is set.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }
        }

        impl BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl Not for $name {
            type Output = Self;
            fn not(self) -> Self {
                Self(!self.0)
            }
        }

        /// Names joined by `+`, as official logs print flags.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // The last of the two is the name: the flag's own, or the one given.
                let names = [$(($value, [stringify!($flag), $($text)?].last().copied()),)*];
                let mut first = true;
                for name in names.into_iter().filter(|(bit, _)| self.0 & bit != 0).filter_map(|(_, name)| name) {
                    if !first {
                        f.write_str("+")?;
                    }
                    first = false;
                    f.write_str(&name.to_ascii_lowercase())?;
                }
                if first { f.write_str("-") } else { Ok(()) }
            }
        }
    };
}

flag_set! {
    /// Flags of a request or reply (`CEPH_OSD_FLAG_*`).
    pub struct OsdFlags {
        /// Wants (or is) an answer once applied.
        ACK = 0x0001;
        /// Obsolete.
        ONNVRAM = 0x0002;
        /// Wants (or is) an answer once durable.
        ONDISK = 0x0004;
        /// Sent before.
        RETRY = 0x0008;
        /// Reads.
        READ = 0x0010;
        /// Writes.
        WRITE = 0x0020;
        /// Fail with EOLDSNAPC if the snapshot context is old.
        ORDERSNAP = 0x0040;
        /// Obsolete or internal.
        PEERSTAT_OLD = 0x0080;
        /// Any replica may serve it.
        BALANCE_READS = 0x0100;
        /// The request need not be ordered among others.
        PARALLELEXEC = 0x0200;
        /// Concerns a PG and no object.
        PGOP = 0x0400;
        /// Calls a class.
        EXEC = 0x0800;
        /// Obsolete or internal.
        EXEC_PUBLIC = 0x1000;
        /// The nearest replica may serve it.
        LOCALIZE_READS = 0x2000;
        /// Order the request with reads as if it wrote.
        RWORDERED = 0x4000;
        /// Cache tiers; not served here.
        IGNORE_CACHE = 0x8000;
        /// Ignores the object lock.
        SKIPRWLOCKS = 0x10000;
        /// Cache tiers; not served here.
        IGNORE_OVERLAY = 0x20000;
        /// Cache tiers; not served here.
        FLUSH = 0x40000;
        /// Obsolete or internal.
        MAP_SNAP_CLONE = 0x80000;
        /// The snapshot context counts even in a pool with pool snapshots.
        ENFORCE_SNAPC = 0x100000;
        /// Cache tiers; not served here.
        REDIRECTED = 0x200000;
        /// The redirect bit is authoritative.
        KNOWN_REDIR = 0x400000, "known_if_redirected";
        /// Try although the cluster or pool is full.
        FULL_TRY = 0x800000;
        /// Do it although the cluster or pool is full.
        FULL_FORCE = 0x1000000;
        /// Cache tiers; not served here.
        IGNORE_REDIRECT = 0x2000000;
        /// Positive results and output are wanted from writes.
        RETURNVEC = 0x4000000;
        /// The client knows the pool's EIO flag.
        SUPPORTSPOOLEIO = 0x8000000, "supports_pool_eio";
    }
}

flag_set! {
    /// Flags of one operation (`CEPH_OSD_OP_FLAG_*`).
    pub struct OpFlags {
        /// The object must not exist yet.
        EXCL = 0x1;
        /// Go on with the next operation if this one fails.
        FAILOK = 0x2;
        /// Access will be random.
        FADVISE_RANDOM = 0x4;
        /// Access will be sequential.
        FADVISE_SEQUENTIAL = 0x8;
        /// Will be used again soon.
        FADVISE_WILLNEED = 0x10;
        /// Will not be used again soon.
        FADVISE_DONTNEED = 0x20;
        /// Will not be used again by this client.
        FADVISE_NOCACHE = 0x40;
        /// Deduplication; not served here.
        WITH_REFERENCE = 0x80;
        /// Read from the disk.
        BYPASS_CLEAN_CACHE = 0x100;
    }
}

flag_set! {
    /// Hints about future writes (`CEPH_OSD_ALLOC_HINT_FLAG_*`).
    pub struct AllocHintFlags {
        /// Written in order.
        SEQUENTIAL_WRITE = 1;
        /// Written in any order.
        RANDOM_WRITE = 2;
        /// Read in order.
        SEQUENTIAL_READ = 4;
        /// Read in any order.
        RANDOM_READ = 8;
        /// Only ever grows.
        APPEND_ONLY = 16;
        /// Written once.
        IMMUTABLE = 32;
        /// Deleted soon.
        SHORTLIVED = 64;
        /// Kept long.
        LONGLIVED = 128;
        /// Worth compressing.
        COMPRESSIBLE = 256;
        /// Not worth compressing.
        INCOMPRESSIBLE = 512;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_print_as_in_official_logs() {
        let f = OsdFlags::ONDISK | OsdFlags::WRITE | OsdFlags::KNOWN_REDIR | OsdFlags::SUPPORTSPOOLEIO;
        assert_eq!(
            f.to_string(),
            "ondisk+write+known_if_redirected+supports_pool_eio"
        );
        assert_eq!(OsdFlags::NONE.to_string(), "-");
        assert!(!(f & !OsdFlags::WRITE).has(OsdFlags::WRITE));
    }
}
