//! Peering, the primary's side: agree with all members on one copy before serving.
//!
//! ```text
//! Waiting ── a down OSD may hold a newer copy, or members are too few; a new map decides
//! Flushing ── own transactions must be durable first
//! Infos ── what do the members have?
//! Strays ── what do others have, where the PG may have served since?
//! Logs ── how do the copies differ?
//! Acting ── members that lack much give way to others for a while
//! Syncing ── the holder of the newest copy brings the others up to it
//! Counting ── objects and bytes, after a split
//! UpThru ── the map must say that this OSD is up in this interval
//! Lease ── members of earlier intervals may answer reads a while longer
//! Activating ── every member remembers durably that it took part
//! ```
//!
//! Every acknowledged write was durable on all members of its interval, and they all remembered
//! durably that the interval was active before it took any write. So the newest copy, by epoch of
//! the last activation and then by version, has them all; it only must be found, which is what
//! [`prior`] is about.

pub(super) mod handler;
mod plan;
mod prior;

use std::collections::{BTreeMap, BTreeSet};

use spirula_denc::Micros;
use spirula_maps::{Epoch, OsdId};

use super::backend::Copies;
use super::dups::DupBatch;
use super::info::PgInfo;
use super::layout::Layout;
use super::log::{PgLog, Usage};
use super::message::LogUpdate;
use super::promise::Promise;
use super::recent::State;

/// The stage of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting(Wait),
    Flushing,
    Infos,
    Strays,
    Logs,
    Acting(Vec<OsdId>),
    Syncing(BTreeSet<OsdId>),
    Counting,
    UpThru,
    Lease,
    Activating(BTreeSet<OsdId>),
}

/// What peering waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wait {
    /// Fewer than `min_size` members are up.
    MinSize,
    /// OSDs that are down and may hold a newer copy.
    Down(Vec<OsdId>),
    /// No copy is complete.
    Incomplete,
    /// The pool's kind is not served.
    Unsupported,
}

impl Stage {
    /// Whether an attempt may come to this stage from `before`.
    fn may_follow(&self, before: &Self) -> bool {
        let asks = matches!(
            before,
            Self::Infos | Self::Strays | Self::Waiting(Wait::Down(_) | Wait::Incomplete)
        );
        match self {
            Self::Flushing => false,
            Self::Waiting(Wait::Unsupported) | Self::Infos => *before == Self::Flushing,
            Self::Waiting(_) | Self::Logs => asks,
            // Where a member has no room, others than members may have copies that can serve.
            Self::Strays | Self::Acting(_) => asks || *before == Self::Logs,
            Self::Syncing(_) => *before == Self::Logs,
            Self::Counting => matches!(before, Self::Syncing(_)),
            Self::UpThru | Self::Lease | Self::Activating(_) => {
                let agreed = matches!(
                    before,
                    Self::Syncing(_) | Self::Counting | Self::UpThru | Self::Lease
                );
                // A PG that is new has nothing to agree on.
                agreed || asks
            }
        }
    }

    /// The stage as a state of the PG.
    pub(super) fn standing(&self) -> State {
        match self {
            Self::Waiting(Wait::MinSize) => State::MinSize,
            Self::Waiting(Wait::Down(_)) => State::Down,
            Self::Waiting(Wait::Incomplete) => State::Incomplete,
            Self::Waiting(Wait::Unsupported) => State::Unsupported,
            Self::Flushing => State::Flushing,
            Self::Infos => State::Infos,
            Self::Strays => State::Strays,
            Self::Logs => State::Logs,
            Self::Acting(_) => State::Acting,
            Self::Syncing(_) => State::Syncing,
            Self::Counting => State::Counting,
            Self::UpThru => State::UpThru,
            Self::Lease => State::Lease,
            Self::Activating(_) => State::Activating,
        }
    }
}

/// What an OSD tells of its copy.
pub(super) struct Told {
    /// The copy's info; `None` for no copy.
    pub info: Option<PgInfo>,
    /// Since when the OSD has its store, if it says that.
    pub kept_since: Option<Epoch>,
}

/// An attempt to agree.
#[derive(Debug)]
pub(super) struct Peering {
    pub stage: Stage,
    /// When it last went on.
    pub progress: Micros,
    /// Whether to begin anew at the next tick, as a connection was lost.
    pub retry: bool,
    /// When to begin anew: a member may have room then.
    pub again: Option<Micros>,
    /// OSDs whose answer is awaited.
    pub asked: BTreeSet<OsdId>,
    /// Whether every OSD that is up was asked.
    pub asked_all: bool,
    /// Until when other OSDs may answer reads in earlier intervals.
    pub promised: Promise,
    /// The other OSDs' copies.
    pub infos: Copies,
    /// Since when the OSDs that have answered have their stores ([`Ctx::kept_since`]), where that
    /// is known.
    ///
    /// [`Ctx::kept_since`]: super::Ctx::kept_since
    pub kept_since: BTreeMap<OsdId, Epoch>,
    /// The other OSDs' logs.
    pub logs: BTreeMap<OsdId, PgLog>,
    /// The requests that the holder of the newest copy remembers besides, if it is another OSD.
    pub dups: Vec<DupBatch>,
    /// The OSD that has the newest copy, once that is found.
    pub auth: Option<OsdId>,
    /// What each member's log will become.
    pub updates: BTreeMap<OsdId, LogUpdate>,
    /// The usage counted so far.
    counted: Usage,
    /// How the attempt ends, if that is decided.
    pub next: Option<Next>,
}

impl Peering {
    pub(super) fn new(usec: Micros) -> Self {
        Self {
            stage: Stage::Flushing,
            progress: usec,
            retry: false,
            again: None,
            asked: BTreeSet::new(),
            asked_all: false,
            promised: Promise::default(),
            infos: BTreeMap::new(),
            kept_since: BTreeMap::new(),
            logs: BTreeMap::new(),
            dups: Vec::new(),
            auth: None,
            updates: BTreeMap::new(),
            counted: Usage::default(),
            next: None,
        }
    }

    /// Whether copies of others than the members matter.
    fn wants_strays(&self) -> bool {
        matches!(
            self.stage,
            Stage::Strays | Stage::Waiting(Wait::Down(_) | Wait::Incomplete)
        )
    }

    /// Whether the attempt only waits for members that have no room.
    pub(super) fn awaits_room(&self, roomless: &BTreeSet<OsdId>) -> bool {
        matches!(&self.stage, Stage::Syncing(left) if left.iter().all(|o| roomless.contains(o)))
    }

    /// What the OSD that has the newest copy has said of it.
    pub(super) fn newest(&self) -> Option<&PgInfo> {
        self.infos.get(&self.auth?)?.as_ref()
    }

    /// Whether an OSD has parts of objects of which others may be made.
    fn is_part(&self, osd: OsdId) -> bool {
        let info = self.infos.get(&osd).and_then(Option::as_ref);
        info.is_some_and(|i| !i.incomplete && i.part.layout != Layout::Whole)
    }

    pub(super) fn knows_of(&self, osd: OsdId) -> bool {
        self.asked.contains(&osd) || self.infos.contains_key(&osd)
    }

    /// Whether an OSD works for this attempt.
    pub(super) fn awaits(&self, osd: OsdId) -> bool {
        match &self.stage {
            Stage::Syncing(left) => left.contains(&osd) || self.auth == Some(osd) || self.is_part(osd),
            Stage::Activating(left) => left.contains(&osd),
            Stage::Infos | Stage::Strays | Stage::Logs => self.asked.contains(&osd),
            Stage::Waiting(_)
            | Stage::Flushing
            | Stage::Acting(_)
            | Stage::Counting
            | Stage::UpThru
            | Stage::Lease => false,
        }
    }
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It begins anew.
    Anew,
    /// All agree: the PG serves.
    Serve,
}

/// The next step with OSDs that may hold a newer copy than those that answered.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pg) enum Prior {
    /// Nothing: none of them can hold one.
    Enough,
    /// Ask these OSDs.
    Ask(Vec<OsdId>),
    /// Ask every OSD.
    AskAll,
    /// Wait for these OSDs.
    Down(Vec<OsdId>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_come_in_their_order() {
        let nobody = BTreeSet::new();
        let usual = [
            Stage::Flushing,
            Stage::Infos,
            Stage::Strays,
            Stage::Logs,
            Stage::Syncing(nobody.clone()),
            Stage::Counting,
            Stage::UpThru,
            Stage::Lease,
            Stage::Activating(nobody),
        ];
        for pair in usual.windows(2) {
            assert!(pair[1].may_follow(&pair[0]), "{pair:?}");
            let goes_back = matches!(pair[0], Stage::Strays | Stage::UpThru);
            assert_eq!(pair[0].may_follow(&pair[1]), goes_back, "{pair:?}");
        }
        let last = &usual[8];
        assert!(usual.iter().all(|s| !s.may_follow(last)));
        // A PG never serves before it has asked for infos and agreed on a log.
        assert!(!last.may_follow(&Stage::Flushing) && !last.may_follow(&Stage::Logs));
        assert!(!last.may_follow(&Stage::Waiting(Wait::MinSize)));
    }
}
