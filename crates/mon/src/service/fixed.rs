//! Maps that do not change yet: no manager, no file system.

use spirula_proto::mgr::MgrMap;

/// Epoch of the empty FSMap.
pub const FSMAP_EPOCH: u32 = 1;

/// The map of a cluster whose monitor does the manager's work: it names no manager.
pub fn mgr_map() -> MgrMap {
    MgrMap {
        epoch: 1,
        ..MgrMap::default()
    }
}
