//! Statistics of PGs, pools and OSDs (Ceph's `src/osd/osd_types.h`), as messages and `ceph pg dump`
//! carry them.

mod object;
mod osd;
mod pg;
mod state;

pub use object::{ObjectStatCollection, ObjectStatSum};
pub use osd::{ObjectStorePerfStat, OsdStat, PingSeries, PingTimes, Pow2Hist, StoreStatfs};
pub use pg::{PgHistory, PgStat, PoolStat};
pub use state::PgState;
