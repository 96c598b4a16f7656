//! MonMap, OSDMap and incrementals, pools; object to PG to OSDs.

pub mod types;

pub use types::{
    EVersion, HObject, ObjectLocator, ObjectName, PgId, ReqId, SnapContext, SnapId, SpgId, snap,
};
