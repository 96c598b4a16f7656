//! The identifiers that maps, messages and the OSD share: versions, PGs, objects, requests,
//! snapshots.
//!
//! Formats: Ceph's `src/osd/osd_types.h`, `src/common/hobject.h` and `src/common/snap_types.h`.

mod epoch;
mod object;
mod osd_id;
mod pg;
mod pool_id;
mod positions;
mod request;

pub use epoch::Epoch;
pub use object::{HObject, ObjectLocator, ObjectName};
pub use osd_id::{OsdId, OsdOrNone, or_hole as osd_or_hole, or_none as osd_or_none};
pub use pg::{EVersion, PgId, PgShard, SpgId};
pub(crate) use pg::{bit_count, stable_mask, stable_mod};
pub use pool_id::{PoolId, PoolOrNone, or_none};
pub use positions::Positions;
pub use request::{ReqId, SnapContext, SnapId, snap};
