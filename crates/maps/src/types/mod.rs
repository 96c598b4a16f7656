//! The identifiers that maps, messages and the OSD share: versions, PGs, objects, requests,
//! snapshots.
//!
//! Formats: Ceph's `src/osd/osd_types.h`, `src/common/hobject.h` and `src/common/snap_types.h`.

mod epoch;
mod object;
mod pg;
mod pool_id;
mod request;

pub use epoch::Epoch;
pub use object::{HObject, ObjectLocator, ObjectName};
pub use pg::{EVersion, PgId, PgShard, SpgId};
pub(crate) use pg::{bit_count, stable_mask, stable_mod};
pub use pool_id::{PoolId, PoolOrNone, or_none};
pub use request::{ReqId, SnapContext, SnapId, snap};
