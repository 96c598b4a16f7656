//! A member's part in a repair: the object that it takes, and the part that it gives.

use bytes::Bytes;
use spirula_maps::{EVersion, OsdId};

use super::message::Place;
use crate::pg::copying::parts::Parts;
use crate::pg::txn::Txn;

/// Part of an object that another member asked for.
#[derive(Debug)]
pub(in crate::pg) struct Asked {
    pub(super) by: OsdId,
    pub(super) number: u32,
    pub(super) part: Parts,
}

/// The object that this member takes from another one.
#[derive(Debug)]
pub(in crate::pg) struct Patient {
    pub(super) number: u32,
    pub(super) key: Bytes,
    pub(super) source: OsdId,
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
