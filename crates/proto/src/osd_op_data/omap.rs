//! The omap operations.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::macros::packed;

/// Keys, in order: input of `OMAPGETVALSBYKEYS` and `OMAPRMKEYS`.
pub type OmapKeys = BTreeSet<Bytes>;

/// Values by key, in order: input of `OMAPSETVALS`, output of `OMAPGETVALSBYKEYS`.
pub type OmapVals = BTreeMap<Bytes, Bytes>;

/// Input of `OMAP_CMP`: for each key the value and a [`crate::osd::CmpOp`] as `i32`. The stored
/// value stands on the left here.
pub type OmapCmp = BTreeMap<Bytes, (Bytes, i32)>;

packed! {
    /// Input of `OMAPGETKEYS`.
    pub struct OmapGetKeys {
        /// Only keys after this one.
        pub start_after: Bytes,
        /// Most keys wanted.
        pub max: u64,
    }
}

packed! {
    /// Input of `OMAPGETVALS`.
    pub struct OmapGetVals {
        /// Only keys after this one.
        pub start_after: Bytes,
        /// Most keys wanted.
        pub max: u64,
        /// Only keys with this prefix.
        pub prefix: Bytes,
    }
}

packed! {
    /// Output of `OMAPGETKEYS`.
    pub struct OmapKeysReply {
        /// The keys.
        pub keys: OmapKeys,
        /// Whether there are more.
        pub more: bool,
    }
}

packed! {
    /// Output of `OMAPGETVALS`.
    pub struct OmapValsReply {
        /// Keys and values.
        pub vals: OmapVals,
        /// Whether there are more.
        pub more: bool,
    }
}

packed! {
    /// Input of `OMAPRMKEYRANGE`.
    pub struct OmapRange {
        /// The first key to remove.
        pub begin: Bytes,
        /// The key after the last.
        pub end: Bytes,
    }
}
