//! Maps that do not change yet: no file system.

/// Epoch of the empty FSMap.
pub const FSMAP_EPOCH: u32 = 1;
