//! The holder of the newest copy brings targets up to it: pushes the objects that logs name, or
//! compares all.

pub(in crate::pg) mod handler;

use std::collections::VecDeque;

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_maps::{EVersion, OsdId};

use crate::pg::config::Window;
use crate::pg::copying::parts::Parts;
use crate::pg::fetch::Want;
use crate::pg::layout::Shape;
use crate::pg::message::PeeringId;
use crate::pg::push::{Lacking, SyncPlan};

/// All feeds of one attempt at peering.
#[derive(Debug)]
pub(in crate::pg) struct SyncSource {
    id: PeeringId,
    primary: OsdId,
    feeds: Vec<Feed>,
}

/// The copying to one target.
#[derive(Debug)]
struct Feed {
    target: OsdId,
    /// What the target holds of an object's data.
    shape: Shape,
    /// Whether the target makes changes again, before anything is pushed to others.
    replays: bool,
    /// Objects to push.
    jobs: VecDeque<Lacking>,
    /// The key at which the comparison of all objects goes on; `None` when it is done, or not
    /// wanted.
    cursor: Option<Bytes>,
    /// The number of objects in the scan that the target is comparing.
    scanning: Option<i64>,
    /// The weight of each push that the target has not acknowledged, in order.
    unacked: VecDeque<u64>,
    /// The object under way.
    current: Option<Parts>,
    /// Whether the store was asked for something.
    waiting: bool,
    /// Since when something is under way, or when it was last accounted for.
    since: Micros,
    /// The number of objects that were compared.
    compared: i64,
    /// Whether the target lacks room: objects are only removed, till the end.
    roomless: bool,
    done: bool,
}

/// The next step of a feed.
enum Next {
    Nothing,
    Lookup(Bytes),
    Read(Bytes, Vec<Want>),
    List(Bytes),
    Done,
}

impl SyncSource {
    /// The number of objects, of `all`, that are still to be copied.
    pub(in crate::pg) fn left(&self, all: i64) -> i64 {
        self.feeds.iter().map(|f| f.left(all)).sum()
    }

    /// Whether members still make changes again: what is pushed to others may be made of theirs.
    fn replays(&self) -> bool {
        self.feeds.iter().any(|f| f.replays && !f.done)
    }

    /// Whether an OSD is copied to, or is to be.
    fn feeds(&self, osd: OsdId) -> bool {
        self.feeds.iter().any(|f| f.target == osd && !f.done)
    }
}

impl Feed {
    fn new(target: OsdId, shape: Shape, plan: SyncPlan, start: &Bytes) -> Self {
        let replays = matches!(plan, SyncPlan::Replay(_));
        let (jobs, cursor) = match plan {
            SyncPlan::Replay(_) => (VecDeque::new(), None),
            SyncPlan::Objects(objects) => (objects.into(), None),
            SyncPlan::Backfill => (VecDeque::new(), Some(start.clone())),
        };
        Self {
            target,
            shape,
            replays,
            jobs,
            cursor,
            scanning: None,
            unacked: VecDeque::new(),
            current: None,
            waiting: false,
            since: Micros::ZERO,
            compared: 0,
            roomless: false,
            done: false,
        }
    }

    /// The number of objects, of `all`, that are still to be copied, as far as is known.
    fn left(&self, all: i64) -> i64 {
        let named = i64::try_from(self.jobs.len()).unwrap_or(i64::MAX) + i64::from(self.current.is_some());
        let compares = self.cursor.is_some() || self.scanning.is_some() || self.compared > 0;
        let unseen = if compares { all - self.compared } else { 0 };
        named.saturating_add(unseen).clamp(0, all.max(0))
    }

    fn is_at_work(&self) -> bool {
        self.waiting || self.scanning.is_some() || !self.unacked.is_empty()
    }

    /// Whether the target has enough to do.
    fn is_full(&self, window: Window) -> bool {
        let bytes = self.unacked.iter().sum::<u64>();
        self.unacked.len() >= window.pushes || !self.unacked.is_empty() && bytes + window.chunk > window.bytes
    }

    fn next(&mut self, window: Window, now: EVersion) -> Next {
        if self.waiting || self.done || self.is_full(window) {
            return Next::Nothing;
        }
        if let Some(current) = &mut self.current
            && current.is_found()
        {
            return Next::Read(current.key.clone(), current.wants(window.chunk));
        }
        if let Some(object) = self.jobs.pop_front() {
            let key = object.key.clone();
            self.current = Some(Parts::new(object, self.shape, now));
            return Next::Lookup(key);
        }
        if self.scanning.is_some() {
            return Next::Nothing;
        }
        if let Some(cursor) = &self.cursor {
            return Next::List(cursor.clone());
        }
        if self.unacked.is_empty() {
            self.done = true;
            return Next::Done;
        }
        Next::Nothing
    }
}
