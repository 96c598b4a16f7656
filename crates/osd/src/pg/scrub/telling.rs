//! What members are still to be told of scrubs. It is sent again until each has confirmed it: a
//! broken connection loses messages, and the next primary must know what was found.
//!
//! One message at a time is on its way to a member, so that none overtakes another.

pub(in crate::pg) mod handler;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_maps::OsdId;

use super::message::News;

/// The messages to a member that may wait before a scrub waits for them.
const MOST: usize = 8;

/// What members are still to be told.
#[derive(Debug, Default)]
pub(in crate::pg) struct Telling {
    /// The number of the last message.
    number: u32,
    /// The messages that each member has not confirmed, in their order.
    left: BTreeMap<OsdId, Queue>,
    /// The whole list that is told to members which do not have it.
    whole: Option<Whole>,
}

#[derive(Debug, Default)]
struct Queue {
    news: VecDeque<(u32, News)>,
    /// When the first of them was last sent.
    sent: Micros,
}

/// The whole list of findings, on its way to members.
#[derive(Debug)]
struct Whole {
    to: BTreeSet<OsdId>,
    /// The key from which on records are to be read; empty for all.
    from: Bytes,
    /// Whether the store was asked for some.
    asked: bool,
}

impl Telling {
    /// Whether a scrub is to wait until members have confirmed more.
    pub(super) fn is_full(&self) -> bool {
        self.left.values().any(|queue| queue.news.len() >= MOST)
    }

    /// Whether members are told the whole list, so that it can't begin anew yet.
    pub(super) fn is_whole_list_told(&self) -> bool {
        self.whole.is_some()
    }
}
