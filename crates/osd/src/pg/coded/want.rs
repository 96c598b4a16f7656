//! Questions for parts of a fragment.

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_maps::EVersion;

use crate::pg::fetch::{ReadRange, Want};

/// Asks a member for parts of its fragment of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FragmentWant {
    /// The number of the question, and how often it was asked of other members before.
    pub number: (u32, u32),
    /// The object's store key.
    pub key: Bytes,
    /// The parts.
    pub extents: Vec<Extent>,
    /// The version that the member's copy must have at least.
    pub at: EVersion,
}

/// The want for part of a fragment: as it is stored, without holes.
pub(in crate::pg) fn fragment_want(e: Extent) -> Want {
    Want::Data(ReadRange {
        offset: e.offset,
        len: e.len,
        sparse: true,
    })
}
