//! A monitor's memory of itself: its roles and terms, whether its leadership was confirmed, its
//! proposals, and what it dropped.

use std::fmt;

use serde_json::{Value, json};
use spirula_denc::UTime;
use spirula_invariant::{Reason, Recorder, Ring};

use super::{DropReason, Role, View};

/// Bytes for a monitor's transitions.
const RECENT_BYTES: usize = 8 << 10;

/// A change of the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The monitor's role.
    Role(Role),
    /// This many monitors are in quorum.
    Quorum(u16),
    /// A majority has confirmed that it leads, this many times in a row.
    Confirmed(u32),
    /// It proposed a transaction of this many changes.
    Proposed(u32),
    /// This many changes were committed.
    Committed(u32),
    /// A snapshot replaced its state.
    Snapshot,
    /// It dropped messages for this reason, this many in a row.
    Dropped(DropReason, u32),
    /// The committed state can't be read.
    Failed,
}

impl What {
    /// Merges the next change into this one, if it only repeats it. Returns whether it does.
    fn takes_in(&mut self, next: Self) -> bool {
        match (self, next) {
            (Self::Confirmed(times), Self::Confirmed(_)) => *times = times.saturating_add(1),
            (Self::Dropped(why, times), Self::Dropped(reason, _)) if *why == reason => {
                *times = times.saturating_add(1);
            }
            _ => return false,
        }
        true
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(Role::Leader) => f.write_str("leads"),
            Self::Role(Role::Peon) => f.write_str("follows a leader"),
            Self::Role(Role::Adrift) => f.write_str("knows of no leader with a majority"),
            Self::Quorum(n) => write!(f, "{n} monitors in quorum"),
            Self::Confirmed(times) => write!(f, "leadership confirmed, {times} times"),
            Self::Proposed(ops) => write!(f, "{ops} changes proposed"),
            Self::Committed(ops) => write!(f, "{ops} changes committed"),
            Self::Snapshot => f.write_str("state replaced by a snapshot"),
            Self::Dropped(reason, times) => write!(f, "dropped, {times} times: {}", reason.name()),
            Self::Failed => f.write_str("what is committed can't be read"),
        }
    }
}

/// Something that changed, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transition {
    /// The time on the wall clock.
    pub(crate) at: UTime,
    /// The term of the log.
    pub(crate) term: u64,
    /// The change.
    pub(crate) what: What,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} term {} {}", self.at, self.term, self.what)
    }
}

/// A monitor's memory of itself.
pub(crate) struct Recent {
    recorder: Recorder<Transition>,
    /// The number of dropped messages that are noted.
    drops: u64,
}

impl Recent {
    /// The memory of the monitor with this name.
    pub(super) fn new(name: &str) -> Self {
        Self {
            recorder: Recorder::new(format!("mon.{name}"), Ring::<Transition>::fitting(RECENT_BYTES)),
            drops: 0,
        }
    }

    /// The recorded transitions.
    pub(super) fn recorder(&self) -> &Recorder<Transition> {
        &self.recorder
    }

    /// Notes a transition of the monitor with this view.
    pub(super) fn note(&self, what: What, view: &View) {
        self.add(what, view.term, view.now);
    }

    fn add(&self, what: What, term: u64, at: UTime) {
        self.recorder.add_or(Transition { at, term, what }, |newest| {
            let again = newest.term == term && newest.what.takes_in(what);
            if again {
                newest.at = at;
            }
            again
        });
    }

    /// Notes the messages dropped since the last call.
    pub(super) fn note_dropped(&mut self, counts: &spirula_invariant::Counts<DropReason>, view: &View) {
        if let Some(reason) = counts.newest_since(self.drops) {
            self.note(What::Dropped(reason, 1), view);
        }
        self.drops = counts.total();
    }

    /// The remembered transitions, the oldest first.
    pub(crate) fn dump(&self) -> Value {
        let all = self.recorder.entries();
        let one = |t: &Transition| json!({"time": t.at.to_string(), "term": t.term, "transition": t.what.to_string()});
        json!({"monitor": all.iter().map(one).collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_takes_one_place_and_memory_is_bounded() {
        let recent = Recent::new("a");
        let at = UTime::from_secs;
        recent.add(What::Role(Role::Leader), 2, at(1));
        recent.add(What::Confirmed(1), 2, at(2));
        recent.add(What::Confirmed(1), 2, at(3));
        recent.add(What::Dropped(DropReason::SessionGone, 1), 2, at(4));
        recent.add(What::Dropped(DropReason::SessionGone, 1), 2, at(5));
        recent.add(What::Dropped(DropReason::NotLeader, 1), 2, at(6));
        recent.add(What::Confirmed(1), 3, at(7));
        assert_eq!(
            recent.dump(),
            json!({"monitor": [
                {"time": "1.000000", "term": 2, "transition": "leads"},
                {"time": "3.000000", "term": 2, "transition": "leadership confirmed, 2 times"},
                {"time": "5.000000", "term": 2, "transition": "dropped, 2 times: session_gone"},
                {"time": "6.000000", "term": 2, "transition": "dropped, 1 times: not_leader"},
                {"time": "7.000000", "term": 3, "transition": "leadership confirmed, 1 times"},
            ]})
        );
        for n in 0..1000 {
            recent.add(What::Proposed(n), 3, at(8));
        }
        assert!(recent.recorder.bytes() <= RECENT_BYTES);
    }
}
