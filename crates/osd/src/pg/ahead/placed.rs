//! What a member has ahead of the primary's changes.

use std::collections::BTreeMap;

use spirula_denc::Micros;
use spirula_maps::OsdId;

use crate::pg::bug::Bug;
use crate::pg::config::PgConfig;
use crate::pg::message::PeeringId;
use crate::pg::placed_data::PlacedData;
use crate::pg::txn::{ObjectOp, Txn};

/// How long a member keeps data for which no change comes. The primary sends the data once more if
/// the change comes later.
const KEPT: Micros = Micros::from_secs(30);

/// Data that a primary has this OSD place.
#[derive(Debug, Clone, Copy)]
pub(in crate::pg) struct AskedToPlace {
    pub(in crate::pg) by: OsdId,
    pub(in crate::pg) id: PeeringId,
    pub(in crate::pg) number: u32,
    /// Bytes.
    pub(in crate::pg) len: u64,
}

/// Data that is on this member's disk ahead of its change.
#[derive(Debug)]
struct Kept {
    placement: PlacedData,
    id: PeeringId,
    len: u64,
    since: Micros,
}

/// All such data, by the primary's numbers.
#[derive(Debug, Default)]
pub(in crate::pg) struct PlacedAhead(BTreeMap<u32, Kept>);

impl PlacedAhead {
    /// Notes data that is on the disk now.
    pub(super) fn note(&mut self, asked: AskedToPlace, placement: PlacedData, usec: Micros) {
        let kept = Kept {
            placement,
            id: asked.id,
            len: asked.len,
            since: usec,
        };
        self.0.insert(asked.number, kept);
    }

    /// Lets a change of this attempt at peering have the data that it names. Returns whether all of it
    /// is here.
    pub(in crate::pg) fn give(&mut self, txn: &mut Txn, id: PeeringId, cfg: &PgConfig) -> bool {
        for op in txn.objects.iter_mut().flat_map(|(_, ops)| ops) {
            let ObjectOp::WritePlaced {
                number,
                placement,
                len,
                ..
            } = op
            else {
                continue;
            };
            let mixes = cfg.has_bug(Bug::MixedAhead);
            let kept = match mixes {
                true => self.0.pop_first().map(|(_, kept)| kept),
                false => self.0.remove(number),
            };
            let is_it = |kept: &Kept| mixes || kept.len == *len && kept.id == id;
            let Some(kept) = kept.filter(is_it) else {
                return false;
            };
            *placement = Some(kept.placement);
        }
        true
    }

    /// Lets data go for which no change has come.
    pub(in crate::pg) fn expire(&mut self, usec: Micros) {
        self.0.retain(|_, kept| usec.saturating_sub(kept.since) < KEPT);
    }
}
