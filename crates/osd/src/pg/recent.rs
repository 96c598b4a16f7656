//! A PG's memory of itself: its states, intervals and attempts at peering, and the messages that it
//! dropped.
//!
//! Shown by `dump_pgstate_history` and `pg query`, and reported if an invariant breaks while the PG
//! is worked on. All PGs of a reactor have [`RECENT_BYTES`] together, so the more there are, the
//! less each of them remembers.

use std::fmt;

use spirula_denc::UTime;
use spirula_invariant::{Reason, Recorder, Ring};
use spirula_maps::{Epoch, OsdId, PgId};

use super::message::PeeringId;
use super::output::Ctx;
use super::perf::DropReason;

/// Bytes for the transitions of all PGs of a reactor.
pub const RECENT_BYTES: usize = 48 << 10;
/// The most transitions that a PG remembers, however few PGs there are.
const MOST: usize = 128;

/// The number of transitions that each of `pgs` PGs remembers.
pub(crate) fn share(pgs: usize) -> usize {
    // By powers of two, so that not every PG that comes changes the shares of all others.
    let bytes = RECENT_BYTES / pgs.max(1).next_power_of_two();
    Ring::<Transition>::fitting(bytes).min(MOST)
}

macro_rules! states {
    ($($(#[$doc:meta])* $state:ident => $name:literal;)+) => {
        /// The state of a PG: the role of this OSD, and the stage of its work in that role.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum State {
            $($(#[$doc])* $state,)+
        }

        impl State {
            /// The name that is shown: the role first.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$state => $name,)+
                }
            }
        }
    };
}

states! {
    /// The OSD is not up in the map it knows.
    Idle => "Idle";
    /// The OSD's own transactions are to become durable.
    Flushing => "Primary/Peering/Flushing";
    /// The members are to report their copies.
    Infos => "Primary/Peering/Infos";
    /// Other OSDs are to report their copies.
    Strays => "Primary/Peering/Strays";
    /// Logs are compared.
    Logs => "Primary/Peering/Logs";
    /// The monitors are to change the acting set.
    Acting => "Primary/Peering/Acting";
    /// Members are brought up to the newest copy.
    Syncing => "Primary/Peering/Syncing";
    /// Objects are counted.
    Counting => "Primary/Peering/Counting";
    /// The map is to record the OSD as up.
    UpThru => "Primary/Peering/UpThru";
    /// Members of earlier intervals may still answer reads.
    Lease => "Primary/Peering/Lease";
    /// The members note that they take part.
    Activating => "Primary/Peering/Activating";
    /// Too few members are up.
    MinSize => "Primary/Waiting/MinSize";
    /// A newer copy may be on an OSD that is down.
    Down => "Primary/Waiting/Down";
    /// No copy is complete.
    Incomplete => "Primary/Waiting/Incomplete";
    /// The pool's kind is not served.
    Unsupported => "Primary/Waiting/Unsupported";
    /// The primary serves, and has nothing else to do.
    Active => "Primary/Active";
    /// The primary serves, and is to copy when it has its turn here.
    CopyWaiting => "Primary/Active/CopyWaiting";
    /// The primary serves, and is to copy when it has its turn on the target.
    CopyReserving => "Primary/Active/CopyReserving";
    /// The primary serves, and asks the target what it lacks.
    Comparing => "Primary/Active/Comparing";
    /// The primary serves, and copies.
    Copying => "Primary/Active/Copying";
    /// The primary serves, and the copied objects are to become durable.
    Settling => "Primary/Active/Settling";
    /// The primary serves, and the target notes that it is complete.
    Noting => "Primary/Active/Noting";
    /// The primary serves, and gives up the temporary acting set.
    Handover => "Primary/Active/Handover";
    /// The OSD follows a primary that does not serve yet.
    Replica => "Replica";
    /// The OSD follows a primary that serves.
    ReplicaActive => "Replica/Active";
    /// The OSD has no part in the PG, or will have one when it has been copied to.
    Stray => "Stray";
    /// The OSD deletes its copy.
    Deleting => "Deleting";
}

/// A change of a PG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The PG's state.
    State(State),
    /// The PG's interval.
    Interval {
        /// The epoch in which the interval began.
        since: Epoch,
        /// The primary.
        primary: Option<OsdId>,
    },
    /// The attempt at peering that the PG leads or follows.
    Attempt(PeeringId),
    /// Whether reads have waited for a lease for seconds.
    LeaseLate(bool),
    /// Messages, requests or answers that the PG dropped.
    Dropped {
        /// The reason.
        reason: DropReason,
        /// How often in a row.
        times: u16,
        /// The sender; `None` for the store and for clients.
        from: Option<OsdId>,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::State(state) => write!(f, "state {}", state.name()),
            Self::Interval { since, primary: None } => write!(f, "interval of epoch {since}, no primary"),
            Self::Interval {
                since,
                primary: Some(osd),
            } => write!(f, "interval of epoch {since}, primary osd.{osd}"),
            Self::Attempt(id) => write!(f, "attempt {} of epoch {}", id.round, id.epoch),
            Self::LeaseLate(true) => f.write_str("lease late"),
            Self::LeaseLate(false) => f.write_str("lease no longer late"),
            Self::Dropped { reason, times, from } => {
                write!(f, "dropped {times} ")?;
                match from {
                    _ if reason.is_of_request() => f.write_str("requests")?,
                    Some(osd) => write!(f, "messages of osd.{osd}")?,
                    None => f.write_str("answers of the store")?,
                }
                write!(f, ": {}", reason.name())
            }
        }
    }
}

/// Something that changed, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The time on the wall clock.
    pub at: UTime,
    /// The epoch of the map that the PG had.
    pub epoch: Epoch,
    /// The change.
    pub what: What,
}

// As many as possible are to fit.
const _: () = assert!(size_of::<Transition>() == 24);

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} e{} {}", self.at, self.epoch, self.what)
    }
}

/// A state that a PG has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastState {
    /// The state.
    pub state: State,
    /// When it began.
    pub enter: UTime,
    /// When it ended.
    pub exit: UTime,
    /// The epoch of the PG's map when it ended.
    pub epoch: Epoch,
}

/// The states that were left according to the transitions, the oldest first.
pub fn past_states(transitions: &[Transition]) -> Vec<PastState> {
    let mut states = Vec::new();
    let mut current: Option<(State, UTime)> = None;
    for t in transitions {
        if let What::State(next) = t.what {
            if let Some((state, enter)) = current {
                states.push(PastState {
                    state,
                    enter,
                    exit: t.at,
                    epoch: t.epoch,
                });
            }
            current = Some((next, t.at));
        }
    }
    states
}

/// A PG's memory of itself.
#[derive(Debug)]
pub(super) struct Recent {
    recorder: Recorder<Transition>,
    /// The epoch of the PG's map.
    pub(super) epoch: Epoch,
    state: State,
    /// Since when the state lasts; `None` before the first event.
    since: Option<UTime>,
    interval: Epoch,
    attempt: PeeringId,
    is_lease_late: bool,
}

impl Recent {
    /// The memory of a PG on an OSD whose map has this epoch.
    pub(super) fn new(pgid: PgId, whoami: OsdId, epoch: Epoch) -> Self {
        Self {
            recorder: Recorder::new(format!("pg {pgid} on osd.{whoami}"), 0),
            epoch,
            state: State::Idle,
            since: None,
            interval: Epoch::NONE,
            attempt: PeeringId::default(),
            is_lease_late: false,
        }
    }

    /// The recorded transitions.
    pub(super) fn recorder(&self) -> &Recorder<Transition> {
        &self.recorder
    }

    /// The PG's state.
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Since when the PG is in its state.
    pub(super) fn since(&self) -> UTime {
        self.since.unwrap_or_default()
    }

    fn transition(&self, what: What, at: UTime) -> Transition {
        Transition {
            at,
            epoch: self.epoch,
            what,
        }
    }

    fn note(&self, what: What, at: UTime) {
        self.recorder.add(self.transition(what, at));
    }

    /// Notes that the PG enters a state.
    pub(super) fn enter(&mut self, state: State, at: UTime) {
        if state != self.state || self.since.is_none() {
            (self.state, self.since) = (state, Some(at));
            self.note(What::State(state), at);
        }
    }

    /// Notes that the PG's interval began in this epoch, with this primary.
    pub(super) fn interval(&mut self, since: Epoch, primary: Option<OsdId>, at: UTime) {
        if since != self.interval {
            self.interval = since;
            self.note(What::Interval { since, primary }, at);
        }
    }

    /// Notes that the PG leads or follows this attempt.
    pub(super) fn attempt(&mut self, id: PeeringId, at: UTime) {
        // Round 0 is no attempt: it only says from when on messages count.
        if id != self.attempt && id.round > 0 {
            self.attempt = id;
            self.note(What::Attempt(id), at);
        }
    }

    /// Notes that reads have waited for the lease for seconds, or no longer do.
    pub(super) fn lease_late(&mut self, is_late: bool, at: UTime) {
        if is_late != self.is_lease_late {
            self.is_lease_late = is_late;
            self.note(What::LeaseLate(is_late), at);
        }
    }

    /// Notes what was dropped since `before`: a request, or something of an OSD or else the store.
    pub(super) fn note_dropped(&self, before: u64, from: Option<OsdId>, cx: &Ctx<'_>) {
        if let Some(reason) = cx.perf.dropped.newest_since(before) {
            self.dropped(reason, from, cx.now);
        }
    }

    /// Notes that the PG dropped a request, a message of an OSD, or else an answer of the store.
    pub(super) fn dropped(&self, reason: DropReason, from: Option<OsdId>, at: UTime) {
        let new = What::Dropped {
            reason,
            times: 1,
            from,
        };
        self.recorder
            .add_or(self.transition(new, at), |newest| match &mut newest.what {
                What::Dropped {
                    reason: r,
                    times,
                    from: f,
                } if (*r, *f) == (reason, from) => {
                    *times = times.saturating_add(1);
                    newest.at = at;
                    true
                }
                _ => false,
            });
    }
}

#[cfg(test)]
mod tests {
    use spirula_maps::PoolId;

    use super::*;

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    fn recent() -> Recent {
        let recent = Recent::new(PgId::new(PoolId::new(1), 2), OsdId::new(3), Epoch::new(7));
        recent.recorder.resize(8);
        recent
    }

    #[test]
    fn all_pgs_together_keep_to_their_bytes() {
        for pgs in [1, 2, 3, 64, 100, 1000, 5000] {
            let recents: Vec<Recent> = (0..pgs)
                .map(|seed| {
                    let mut recent =
                        Recent::new(PgId::new(PoolId::new(1), seed), OsdId::new(0), Epoch::new(1));
                    recent.recorder.resize(share(pgs as usize));
                    (0..300).for_each(|n| {
                        recent.attempt(
                            PeeringId {
                                epoch: Epoch::new(n),
                                round: 1,
                            },
                            at(n),
                        )
                    });
                    recent
                })
                .collect();
            let bytes: usize = recents.iter().map(|r| r.recorder.bytes()).sum();
            assert!(bytes <= RECENT_BYTES, "{pgs} PGs take {bytes} bytes");
        }
        assert_eq!((share(0), share(1), share(100), share(1000)), (128, 128, 16, 2));
    }

    #[test]
    fn states_are_noted_when_they_change() {
        let mut recent = recent();
        recent.enter(State::Idle, at(1));
        recent.enter(State::Idle, at(2));
        recent.interval(Epoch::new(7), Some(OsdId::new(3)), at(3));
        recent.attempt(
            PeeringId {
                epoch: Epoch::new(7),
                round: 1,
            },
            at(3),
        );
        recent.enter(State::Infos, at(3));
        recent.interval(Epoch::new(7), Some(OsdId::new(3)), at(4));
        recent.epoch = Epoch::new(8);
        recent.enter(State::Active, at(5));
        recent.enter(State::Active, at(6));
        assert_eq!((recent.state(), recent.since()), (State::Active, at(5)));
        let all = recent.recorder.entries();
        let lines: Vec<String> = all.iter().map(Transition::to_string).collect();
        assert_eq!(
            lines,
            [
                "1.000000 e7 state Idle",
                "3.000000 e7 interval of epoch 7, primary osd.3",
                "3.000000 e7 attempt 1 of epoch 7",
                "3.000000 e7 state Primary/Peering/Infos",
                "5.000000 e8 state Primary/Active",
            ]
        );
        let past = |state, enter, exit, epoch| PastState {
            state,
            enter: at(enter),
            exit: at(exit),
            epoch,
        };
        assert_eq!(
            past_states(&all),
            [
                past(State::Idle, 1, 3, Epoch::new(7)),
                past(State::Infos, 3, 5, Epoch::new(8))
            ]
        );
        assert!(
            recent
                .recorder
                .tell()
                .starts_with("recent transitions of pg 1.2 on osd.3:\n")
        );
    }

    #[test]
    fn what_is_dropped_again_takes_no_more_room() {
        let mut recent = recent();
        for n in 1..=3 {
            recent.dropped(DropReason::PeerStale, Some(OsdId::new(4)), at(n));
        }
        recent.dropped(DropReason::PeerStale, Some(OsdId::new(5)), at(4));
        recent.lease_late(true, at(5));
        recent.lease_late(true, at(6));
        recent.dropped(DropReason::StoreLate, None, at(7));
        recent.dropped(DropReason::OpPoolEio, None, at(8));
        let lines: Vec<String> = recent
            .recorder
            .entries()
            .iter()
            .map(|t| t.what.to_string())
            .collect();
        assert_eq!(
            lines,
            [
                "dropped 3 messages of osd.4: peer_stale",
                "dropped 1 messages of osd.5: peer_stale",
                "lease late",
                "dropped 1 answers of the store: store_late",
                "dropped 1 requests: op_pool_eio",
            ]
        );
    }
}
