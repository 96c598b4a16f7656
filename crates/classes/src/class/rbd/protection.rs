//! How a snapshot is protected (`cls_rbd_types.h`, `ProtectionStatus`).

/// The snapshot is not protected.
pub const UNPROTECTED: u8 = 0;
/// The protection is being removed, while clones are searched for.
pub const UNPROTECTING: u8 = 1;
/// The snapshot is protected from removal.
pub const PROTECTED: u8 = 2;
