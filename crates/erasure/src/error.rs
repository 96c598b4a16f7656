//! What can't be coded.

use crate::{CodeKind, Unit};

/// Why there is no such code, layout or plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No code has so many units.
    #[error("no code has {k} data units and {m} coding units")]
    Shape {
        /// The number of data units.
        k: u8,
        /// The number of coding units.
        m: u8,
    },
    /// In a code of this kind and shape, some k units would not give all the others.
    #[error("a {kind:?} code of {k}+{m} can't rebuild all units")]
    Kind {
        /// The kind.
        kind: CodeKind,
        /// The number of data units.
        k: u8,
        /// The number of coding units.
        m: u8,
    },
    /// A unit has another number of bytes than a layout may have.
    #[error("a stripe unit of {0} bytes")]
    UnitSize(u32),
    /// The code has no such unit.
    #[error("no unit {0:?}")]
    NoUnit(Unit),
    /// The units that are there don't give those that are wanted.
    #[error("{present} units, where {needed} are needed")]
    TooFew {
        /// The number of units that are there.
        present: u8,
        /// The number that is needed: k.
        needed: u8,
    },
}
