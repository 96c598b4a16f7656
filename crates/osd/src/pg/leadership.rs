//! Attempts at peering: the one that this OSD leads or follows, and what is remembered from one to
//! the next.

use std::collections::BTreeSet;

use super::force::Forced;
use super::message::PeeringId;
use super::promise::Promise;
use spirula_denc::Micros;
use spirula_invariant::invariant;
use spirula_maps::{Epoch, OsdId};

/// The leadership of the PG, as far as this OSD goes along with it.
#[derive(Debug, Default)]
pub(super) struct Leadership {
    /// The attempt at peering that this OSD leads or follows.
    pub(super) id: PeeringId,
    /// The number of attempts begun as primary; it never goes back, so that old answers are told
    /// apart.
    pub(super) rounds: u32,
    /// Until when other OSDs may answer reads, as this OSD has promised them; `None` before the
    /// first event: the OSD has just started.
    pub(super) promised: Option<Promise>,
    /// The primary whose query for this OSD's copy is not answered yet.
    pub(super) query_from: Option<OsdId>,
    /// Holders of the newest copy that could not bring others up to it: other holders are asked
    /// first.
    pub(super) unfit: BTreeSet<OsdId>,
    /// Members that had no room for all that they lack, in this interval.
    pub(super) roomless: BTreeSet<OsdId>,
    /// The copies that an operator forces.
    pub(super) forced: Forced,
}

impl Leadership {
    /// Begins the next attempt as primary, with the map of this epoch. An OSD handles the attempt's
    /// query once it has that map, too, so no older map takes it out of this attempt.
    pub(super) fn begin(&mut self, epoch: Epoch) {
        invariant!(
            epoch >= self.id.epoch,
            "an attempt to agree to begin with a map that is no older than that of the one before";
            epoch = epoch, before = self.id.epoch
        );
        self.rounds += 1;
        self.id = PeeringId {
            epoch,
            round: self.rounds,
        };
    }

    /// Promises that others may answer reads.
    pub(super) fn promise(&mut self, p: Promise) {
        self.promised = Some(self.promised.unwrap_or_default().max(p));
    }

    /// How long this OSD's promise still holds.
    pub(super) fn promise_left(&self, usec: Micros) -> Promise {
        self.promised.unwrap_or_default().left(usec)
    }

    /// Ends what belongs to the interval that is over.
    pub(super) fn leave_interval(&mut self) {
        self.unfit.clear();
        self.roomless.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_told_apart_by_map_and_number() {
        let mut lead = Leadership::default();
        lead.begin(Epoch::new(5));
        let first = lead.id;
        lead.begin(Epoch::new(5));
        assert!(lead.id > first);
    }

    #[test]
    #[should_panic(expected = "a map that is no older than that of the one before, epoch 4, before 5")]
    fn none_begins_with_an_older_map() {
        let mut lead = Leadership::default();
        lead.begin(Epoch::new(5));
        lead.begin(Epoch::new(4));
    }
}
