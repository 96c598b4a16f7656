//! Past intervals: the OSDs on which a PG may have served since a copy was last active.
//!
//! An interval is a span of epochs in which a PG belongs to the same OSDs. It served no write
//! unless its acting set had `min_size` members and the map said within it that its primary was
//! alive in it (`up_thru`), as a primary waits for that before it activates the PG. All other
//! intervals are forgotten: no copy can be newer for their sake.

use spirula_denc::{Decode, Encode, Reader, Result, Writer};
use spirula_maps::{Epoch, OsdId, Positions};

/// With more intervals than this, those are dropped that add nothing to a later one.
const MANY: usize = 32;
/// The most intervals that are kept.
const MOST: usize = 256;

/// An interval that has ended, and in which the PG may have served writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PastInterval {
    /// The interval's first epoch, or an earlier one.
    pub first: Epoch,
    /// The interval's last epoch.
    pub last: Epoch,
    /// The members by position. Older releases wrote them in ascending order, but only of replicated
    /// pools.
    pub acting: Positions,
    /// The primary.
    pub primary: OsdId,
}

/// A PG's past, as an OSD knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The epoch since which the past is known: the list has every interval that ended after it and
    /// may have served.
    known_since: Epoch,
    past: Vec<PastInterval>,
}

impl Default for History {
    fn default() -> Self {
        Self::unknown()
    }
}

impl History {
    /// A history of which nothing is known.
    pub fn unknown() -> Self {
        Self::since(Epoch::MAX)
    }

    /// A history that is known from this epoch on, without intervals that have ended since.
    pub fn since(epoch: Epoch) -> Self {
        Self {
            known_since: epoch,
            past: Vec::new(),
        }
    }

    /// The history of a PG that is new here in the map of this epoch, and whose pool was made in
    /// epoch `created`, 0 if unknown.
    pub fn of_new(epoch: Epoch, created: Epoch) -> Self {
        if created > Epoch::NONE && epoch == created {
            Self::since(created)
        } else {
            Self::unknown()
        }
    }

    /// Whether every interval that ended after this epoch is known.
    pub fn covers(&self, epoch: Epoch) -> bool {
        self.known_since <= epoch
    }

    /// All intervals, in their order.
    pub fn intervals(&self) -> &[PastInterval] {
        &self.past
    }

    /// Adds an interval that ended after all others. An interval that is added again, after a
    /// crash, counts once.
    pub fn push(&mut self, ended: PastInterval) {
        if self.known_since == Epoch::MAX || self.past.last().is_some_and(|p| p.last >= ended.last) {
            // If it is not known since when the list is complete, no interval helps, and a known
            // one is not added again.
            return;
        }
        if self.past.len() >= MANY {
            // A question to a member of the later interval reaches a member of the earlier one,
            // too.
            let covered = |p: &PastInterval| ended.acting.osds().all(|o| p.acting.contains(o));
            self.past.retain(|p| !covered(p));
        }
        self.past.push(ended);
        if self.past.len() > MOST {
            *self = Self::unknown();
        }
    }
}

impl Encode for PastInterval {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.first);
        w.put(&self.last);
        w.put(&self.acting);
        w.put(&self.primary);
    }
}

impl Decode for PastInterval {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            first: r.get()?,
            last: r.get()?,
            acting: r.get()?,
            primary: r.get()?,
        })
    }
}

impl Encode for History {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.known_since);
        w.put(&self.past);
    }
}

impl Decode for History {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            known_since: r.get()?,
            past: r.get()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(last: Epoch, acting: &[u16]) -> PastInterval {
        PastInterval {
            first: last,
            last,
            primary: OsdId::new(acting[0]),
            acting: acting.iter().map(|o| OsdId::new(*o)).collect(),
        }
    }

    #[test]
    fn an_interval_counts_once_and_many_are_folded() {
        let mut h = History::since(Epoch::new(3));
        assert!(h.covers(Epoch::new(3)) && h.covers(Epoch::new(9)) && !h.covers(Epoch::new(2)));
        h.push(interval(Epoch::new(5), &[1, 2]));
        h.push(interval(Epoch::new(5), &[1, 2]));
        assert_eq!(h.intervals().len(), 1);
        for i in 0..1000 {
            h.push(interval(Epoch::new(6 + i), &[1 + (i % 2) as u16, 3]));
        }
        assert!(h.covers(Epoch::new(3)) && h.intervals().len() <= MANY + 1);
        // Nothing that names other OSDs is dropped.
        assert_eq!(h.intervals()[0], interval(Epoch::new(5), &[1, 2]));
        for i in 0..1000 {
            h.push(interval(Epoch::new(2000 + i), &[10 + i as u16]));
        }
        assert!(!h.covers(Epoch::new(u32::MAX - 1)) && h.intervals().is_empty());
    }

    #[test]
    fn what_is_unknown_stays_so() {
        let mut h = History::unknown();
        h.push(interval(Epoch::new(5), &[1]));
        assert!(h.intervals().is_empty() && !h.covers(Epoch::new(7)));
    }
}
