//! A member's part in a repair: the object that it takes, and the part that it gives.

use bytes::Bytes;
use spirula_maps::{EVersion, OsdId};

use super::message::Place;
use crate::pg::coded::gather::Holders;
use crate::pg::copying::parts::Parts;
use crate::pg::layout::{Part, Shape};
use crate::pg::txn::Txn;

/// The bytes of a block of the store: what can't be read is some of them.
const BLOCK: u64 = 4096;

/// Part of an object that another member asked for.
#[derive(Debug)]
pub(in crate::pg) struct Asked {
    pub(super) by: OsdId,
    pub(super) number: u32,
    pub(super) key: Bytes,
    /// Where the part begins.
    pub(super) from: Place,
    /// What the other member holds of the object, and the members that it is made of.
    pub(super) of: (Shape, Holders),
    /// The most bytes of data that are read at once: fewer after a failure, as the members may lack
    /// different blocks.
    pub(super) chunk: u64,
    pub(super) part: Parts,
}

impl Asked {
    /// Begins the part again, with half as much data; `false` if that is less than a block of the
    /// store.
    pub(super) fn halve(&mut self) -> bool {
        self.chunk /= 2;
        self.part = Parts::from_place(self.key.clone(), self.of.0, self.from.clone());
        self.chunk >= BLOCK
    }
}

/// The object that this member takes from another one.
#[derive(Debug)]
pub(in crate::pg) struct Patient {
    pub(super) number: u32,
    pub(super) key: Bytes,
    pub(super) source: OsdId,
    /// The parts that members hold, if they hold different ones.
    pub(super) parts: Vec<(OsdId, Part)>,
    /// Whether what this member has is wrong, though it may be readable.
    pub(super) anew: bool,
    /// The version of the source's object.
    pub(super) version: Option<EVersion>,
    /// The first part that is not here.
    pub(super) next: Place,
    /// Whether all parts are here.
    pub(super) whole: bool,
}

impl Patient {
    /// Whether a change of the PG changes the object.
    pub(in crate::pg) fn is_changed_by(&self, txn: &Txn) -> bool {
        txn.objects.iter().any(|(key, _)| *key == self.key)
    }
}
