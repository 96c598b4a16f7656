//! The names of what a pool can be.

use std::fmt;

use spirula_denc::flags;

flags! {
    /// A pool's flags (`pg_pool_t::FLAG_*`).
    pub struct PoolFlags(u64), joined "," {
        /// Placement seeds hash the pool's id in.
        HASHPSPOOL = 0, "hashpspool";
        /// No space left.
        FULL = 1, "full";
        /// Erasure-coded objects can be overwritten in place.
        EC_OVERWRITES = 2, "ec_overwrites";
        /// Clones may be incomplete, after cache tiering.
        INCOMPLETE_CLONES = 3, "incomplete_clones";
        /// The pool can't be deleted.
        NODELETE = 4, "nodelete";
        /// `pg_num` and `pgp_num` can't be changed.
        NOPGCHANGE = 5, "nopgchange";
        /// `size` and `min_size` can't be changed.
        NOSIZECHANGE = 6, "nosizechange";
        /// Written data is not expected to be read soon.
        WRITE_FADVISE_DONTNEED = 7, "write_fadvise_dontneed";
        /// No periodic scrub.
        NOSCRUB = 8, "noscrub";
        /// No periodic deep scrub.
        NODEEP_SCRUB = 9, "nodeep-scrub";
        /// The quota is used up; set together with FULL.
        FULL_QUOTA = 10, "full_quota";
        /// An OSD of the pool is near full.
        NEARFULL = 11, "nearfull";
        /// An OSD of the pool is too full for backfill.
        BACKFILLFULL = 12, "backfillfull";
        /// Clients manage snapshots.
        SELFMANAGED_SNAPS = 13, "selfmanaged_snaps";
        /// The pool has snapshots of itself.
        POOL_SNAPS = 14, "pool_snaps";
        /// The first PGs are being created.
        CREATING = 15, "creating";
        /// All client operations get an I/O error.
        EIO = 16, "eio";
        /// The pool is expected to become large.
        BULK = 17, "bulk";
    }
}

macro_rules! named {
    (
        $(#[$meta:meta])*
        pub struct $name:ident, otherwise $other:literal {
            $($(#[$vmeta:meta])* $variant:ident = $value:expr, $text:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub u8);

        impl $name {
            $($(#[$vmeta])* pub const $variant: Self = Self($value);)*

            /// The value's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    _ => $other,
                }
            }

            /// The value called `name`.
            pub fn from_name(name: &str) -> Option<Self> {
                [$(Self::$variant),*].into_iter().find(|v| v.name() == name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        spirula_denc::transparent!($name);
    };
}

named! {
    /// How a pool keeps its objects safe (`pg_pool_t::TYPE_*`). Unknown values survive.
    pub struct PoolType, otherwise "???" {
        /// Whole copies.
        REPLICATED = 1, "replicated";
        /// Data and coding chunks.
        ERASURE = 3, "erasure";
    }
}

named! {
    /// Whether the number of PGs is changed automatically. Unknown values survive.
    pub struct AutoscaleMode, otherwise "???" {
        /// The operator.
        OFF = 0, "off";
        /// The operator, after health warnings.
        WARN = 1, "warn";
        /// The cluster.
        ON = 2, "on";
        /// Not set.
        UNKNOWN = 255, "unknown";
    }
}

named! {
    /// The mode of a cache tier. Spirula has no cache tiers; the value is kept for other writers'
    /// maps.
    pub struct CacheMode, otherwise "unknown" {
        /// Not a cache.
        NONE = 0, "none";
        /// Writes go to the cache.
        WRITEBACK = 1, "writeback";
        /// Misses are forwarded.
        FORWARD = 2, "forward";
        /// Reads only.
        READONLY = 3, "readonly";
        /// Reads are forwarded.
        READFORWARD = 4, "readforward";
        /// Reads are proxied.
        READPROXY = 5, "readproxy";
        /// Misses are proxied.
        PROXY = 6, "proxy";
    }
}
