//! How a snapshot is protected (`cls_rbd_types.h`, `ProtectionStatus`).

/// Not at all.
pub const UNPROTECTED: u8 = 0;
/// Not, as soon as it is sure that nobody clones it.
pub const UNPROTECTING: u8 = 1;
/// From being removed.
pub const PROTECTED: u8 = 2;
