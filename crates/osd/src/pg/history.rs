//! Past intervals: the OSDs on which a PG may have served since a copy was last active.
//!
//! An interval is a span of epochs in which a PG belongs to the same OSDs. It served no write
//! unless its acting set had `min_size` members and the map said within it that its primary was
//! alive in it (`up_thru`), as a primary waits for that before it activates the PG. All other
//! intervals are forgotten: no copy can be newer for their sake.

use spirula_denc::{Decode, Encode, Reader, Result, Writer};

/// With more intervals than this, those are dropped that add nothing to a later one.
const MANY: usize = 32;
/// The most intervals that are kept.
const MOST: usize = 256;

/// An interval that has ended, and in which the PG may have served writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PastInterval {
    /// The interval's first epoch, or an earlier one.
    pub first: u32,
    /// The interval's last epoch.
    pub last: u32,
    /// The members, ascending.
    pub acting: Vec<i32>,
    /// The primary.
    pub primary: i32,
}

/// A PG's past, as an OSD knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The epoch since which the past is known: the list has every interval that ended after it and
    /// may have served.
    known_since: u32,
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
        Self::since(u32::MAX)
    }

    /// A history that is known from this epoch on, without intervals that have ended since.
    pub fn since(epoch: u32) -> Self {
        Self {
            known_since: epoch,
            past: Vec::new(),
        }
    }

    /// The history of a PG that is new here in the map of this epoch, and whose pool was made in
    /// epoch `created`, 0 if unknown.
    pub fn of_new(epoch: u32, created: u32) -> Self {
        if created > 0 && epoch == created {
            Self::since(created)
        } else {
            Self::unknown()
        }
    }

    /// Whether every interval that ended after this epoch is known.
    pub fn covers(&self, epoch: u32) -> bool {
        self.known_since <= epoch
    }

    /// All intervals, in their order.
    pub fn intervals(&self) -> &[PastInterval] {
        &self.past
    }

    /// Adds an interval that ended after all others. An interval that is added again, after a
    /// crash, counts once.
    pub fn push(&mut self, ended: PastInterval) {
        if self.known_since == u32::MAX || self.past.last().is_some_and(|p| p.last >= ended.last) {
            // If it is not known since when the list is complete, no interval helps, and a known
            // one is not added again.
            return;
        }
        if self.past.len() >= MANY {
            // A question to a member of the later interval reaches a member of the earlier one,
            // too.
            let covered = |p: &PastInterval| ended.acting.iter().all(|o| p.acting.contains(o));
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
        w.u32(self.first);
        w.u32(self.last);
        w.put(&self.acting);
        w.i32(self.primary);
    }
}

impl Decode for PastInterval {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            first: r.u32()?,
            last: r.u32()?,
            acting: r.get()?,
            primary: r.i32()?,
        })
    }
}

impl Encode for History {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.known_since);
        w.put(&self.past);
    }
}

impl Decode for History {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            known_since: r.u32()?,
            past: r.get()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(last: u32, acting: &[i32]) -> PastInterval {
        PastInterval {
            first: last,
            last,
            acting: acting.to_vec(),
            primary: acting[0],
        }
    }

    #[test]
    fn an_interval_counts_once_and_many_are_folded() {
        let mut h = History::since(3);
        assert!(h.covers(3) && h.covers(9) && !h.covers(2));
        h.push(interval(5, &[1, 2]));
        h.push(interval(5, &[1, 2]));
        assert_eq!(h.intervals().len(), 1);
        for i in 0..1000 {
            h.push(interval(6 + i, &[1 + (i % 2) as i32, 3]));
        }
        assert!(h.covers(3) && h.intervals().len() <= MANY + 1);
        // Nothing that names other OSDs is dropped.
        assert_eq!(h.intervals()[0], interval(5, &[1, 2]));
        for i in 0..1000 {
            h.push(interval(2000 + i, &[10 + i as i32]));
        }
        assert!(!h.covers(u32::MAX - 1) && h.intervals().is_empty());
    }

    #[test]
    fn what_is_unknown_stays_so() {
        let mut h = History::unknown();
        h.push(interval(5, &[1]));
        assert!(h.intervals().is_empty() && !h.covers(7));
    }
}
