//! Turns for copying, and for being copied to: few PGs at a time, the most urgent ones first.

use spirula_denc::Micros;
use spirula_maps::PgId;

use super::Core;
use crate::pg::{BackfillState, Ctx, Pg};

/// The state of a PG that decides about its turns.
pub(super) fn of(pg: &Pg) -> (BackfillState, Option<(u8, bool)>) {
    (pg.seen().backfill_state(), pg.seen().incoming_bid())
}

/// A PG that takes part in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedBid {
    /// The PG.
    pub pgid: PgId,
    /// Its urgency.
    pub priority: u8,
    /// Whether it has its turn.
    pub has_turn: bool,
}

/// The PGs that take part in turns for copying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyBids {
    /// PGs that copy or want to.
    pub local: Vec<NamedBid>,
    /// PGs that are copied to or want to be.
    pub remote: Vec<NamedBid>,
}

impl Core {
    /// Grants turns to the PGs that may copy in the background, and to those that may be copied to
    /// on this OSD.
    pub(super) fn grant_copies(&mut self, cx: &mut Ctx<'_>) {
        while std::mem::take(&mut self.changed.copies) {
            let most = self.cfg.max_backfills;
            for slot in self.held_copies() {
                self.with(slot, cx, Pg::revoke_backfill);
            }
            let turns = distribute(self.copying(cx.usec), most);
            for slot in turns.revoked {
                self.with(slot, cx, Pg::revoke_backfill);
            }
            for slot in turns.granted {
                self.with(slot, cx, Pg::grant_backfill);
            }
            let turns = distribute(self.incoming(), most);
            for slot in turns.revoked {
                self.with(slot, cx, Pg::revoke_incoming);
            }
            for slot in turns.granted {
                self.with(slot, cx, Pg::grant_incoming);
            }
        }
    }

    /// The most PGs that may copy at a time.
    pub fn max_backfills(&self) -> usize {
        self.cfg.max_backfills
    }

    /// The PGs that take part in turns for copying.
    pub fn copy_bids(&self, usec: Micros) -> CopyBids {
        let named = |b: Bid| {
            Some(NamedBid {
                pgid: self.pgs.get(&b.slot)?.pgid(),
                priority: b.priority,
                has_turn: b.has_turn,
            })
        };
        let mut local: Vec<_> = self.copying(usec).filter_map(named).collect();
        let mut remote: Vec<_> = self.incoming().filter_map(named).collect();
        local.sort_unstable();
        remote.sort_unstable();
        CopyBids { local, remote }
    }

    /// The PGs that have their turn but may not go on.
    fn held_copies(&self) -> Vec<u32> {
        let has_turn = |pg: &Pg| {
            matches!(
                pg.seen().backfill_state(),
                BackfillState::Reserving | BackfillState::Running
            )
        };
        let held = self
            .pgs
            .iter()
            .filter(|(_, pg)| has_turn(pg) && pg.seen().is_copying_held());
        let mut slots: Vec<u32> = held.map(|(slot, _)| *slot).collect();
        slots.sort_unstable();
        slots
    }

    fn copying(&self, usec: Micros) -> impl Iterator<Item = Bid> {
        let bid = move |(slot, pg): (&u32, &Pg)| {
            let has_turn = match pg.seen().backfill_state() {
                BackfillState::Idle => return None,
                BackfillState::Waiting => false,
                BackfillState::Reserving | BackfillState::Running => true,
            };
            (has_turn || pg.seen().may_copy(usec)).then(|| Bid {
                slot: *slot,
                priority: pg.seen().copy_priority(),
                has_turn,
            })
        };
        self.pgs.iter().filter_map(bid)
    }

    fn incoming(&self) -> impl Iterator<Item = Bid> {
        let bid = |(slot, pg): (&u32, &Pg)| {
            let (priority, has_turn) = pg.seen().incoming_bid()?;
            Some(Bid {
                slot: *slot,
                priority,
                has_turn,
            })
        };
        self.pgs.iter().filter_map(bid)
    }
}

/// A PG that copies, or wants to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bid {
    /// The PG's slot.
    slot: u32,
    /// The PG's urgency.
    priority: u8,
    /// Whether the PG has its turn already.
    has_turn: bool,
}

/// The PGs that get a turn, and the PGs that lose theirs for it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Turns {
    /// The PGs that are granted a turn.
    granted: Vec<u32>,
    /// The PGs that lose their turn because others are more urgent.
    revoked: Vec<u32>,
}

/// Distributes `most` turns among the bids.
fn distribute(bids: impl Iterator<Item = Bid>, most: usize) -> Turns {
    let (mut running, mut waiting): (Vec<Bid>, Vec<Bid>) = bids.partition(|b| b.has_turn);
    running.sort_by_key(|b| std::cmp::Reverse((b.priority, std::cmp::Reverse(b.slot))));
    waiting.sort_by_key(|b| (std::cmp::Reverse(b.priority), b.slot));
    let mut free = most.saturating_sub(running.len());
    let mut turns = Turns::default();
    for bid in waiting {
        if free > 0 {
            free -= 1;
        } else if running.last().is_some_and(|r| r.priority < bid.priority) {
            turns.revoked.extend(running.pop().map(|r| r.slot));
        } else {
            break;
        }
        turns.granted.push(bid.slot);
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bid(slot: u32, priority: u8, has_turn: bool) -> Bid {
        Bid {
            slot,
            priority,
            has_turn,
        }
    }

    fn of(bids: &[Bid], most: usize) -> (Vec<u32>, Vec<u32>) {
        let t = distribute(bids.iter().copied(), most);
        (t.granted, t.revoked)
    }

    #[test]
    fn the_most_urgent_come_first_and_take_the_turns_of_others() {
        let waiting = [bid(1, 100, false), bid(2, 180, false), bid(3, 100, false)];
        assert_eq!(of(&waiting, 2), (vec![2, 1], vec![]));
        let some = [
            bid(1, 100, true),
            bid(2, 180, false),
            bid(3, 140, true),
            bid(4, 255, false),
        ];
        assert_eq!(of(&some, 2), (vec![4, 2], vec![1, 3]));
        assert_eq!(of(&some, 3), (vec![4, 2], vec![1]));
        let equal = [bid(1, 100, true), bid(2, 100, false)];
        assert_eq!(of(&equal, 1), (vec![], vec![]));
        assert_eq!(of(&equal, 0), (vec![], vec![]), "what runs is let go on");
    }
}
