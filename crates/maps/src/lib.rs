//! The cluster's maps as clients see them, and their evaluation.
//!
//! Encodings are those of Pacific (16.2) for every peer: newer clients negotiate down to them.
//! Decoders read Nautilus' and later; fields that a newer writer appends are skipped. Nothing here
//! does I/O.
//!
//! - [`types`]: identifiers of versions, PGs, objects, requests, snapshots.
//! - [`MonMap`], [`OsdMap`] and its [`Incremental`]: the maps.
//! - [`OsdMap::object_to_pg`] and [`OsdMap::map_pg`]: where an object is.
//! - [`stats`]: statistics of PGs, pools and OSDs.

mod codec;
pub mod features;
pub mod hash;
mod interval_set;
mod monmap;
pub mod osdmap;
pub mod pool;
pub mod stats;
pub mod types;

pub use features::release;
pub use interval_set::{Interval, IntervalSet};
pub use monmap::{ElectionStrategy, MonFeatures, MonInfo, MonMap};
pub use osdmap::{
    ApplyError, CleanInterval, CrushBlob, Incremental, MappingCache, OsdCounts, OsdInfo, OsdMap, OsdMapFlags,
    OsdState, OsdXInfo, PgMapping, UpmapItem,
};
pub use pool::{PgPool, PoolFlags, PoolSnap, PoolType};
pub use spirula_crush::ITEM_NONE;
pub use stats::{
    ObjectStatCollection, ObjectStatSum, ObjectStorePerfStat, OsdStat, PgHistory, PgStat, PgState,
    PingSeries, PingTimes, PoolStat, StoreStatfs,
};
pub use types::{
    EVersion, Epoch, HObject, ObjectLocator, ObjectName, OsdId, OsdOrNone, PgId, PgShard, PoolId, PoolOrNone,
    Positions, ReqId, SnapContext, SnapId, SpgId, osd_or_hole, osd_or_none, snap,
};
