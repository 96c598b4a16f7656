//! The state of one peer: which pings it has answered, and what was reported of it to the monitors.

use std::collections::VecDeque;

use spirula_denc::EntityAddr;
use spirula_maps::{OsdMap, PingTimes};

use super::Net;
use super::times::Times;

/// The most unanswered pings kept. The oldest one stays, as its deadline counts.
const MAX_WAITING: usize = 32;

/// One life of a peer: its addresses, and since when it is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    addrs: [EntityAddr; 2],
    up_from: u32,
}

impl Life {
    /// The peer's life as the map has it; `None` if the peer is down or has no address for
    /// heartbeats.
    pub(super) fn of(map: &OsdMap, osd: i32) -> Option<Self> {
        let up_from = map.osd_info.get(usize::try_from(osd).ok()?)?.up_from;
        Some(Self {
            addrs: [Net::Back.addr(map, osd)?, Net::Front.addr(map, osd)?],
            up_from,
        })
    }
}

/// A ping that was not answered on all networks yet.
#[derive(Debug, Clone, Copy)]
struct Ping {
    stamp: u64,
    deadline: u64,
    /// When the answer came, by network.
    answered: [Option<u64>; 2],
}

/// The state of one peer. Times are microseconds of a monotonic clock, 0 for never.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) life: Life,
    first_tx: u64,
    last_rx: [u64; 2],
    pings: VecDeque<Ping>,
    /// Whether the monitors were told that it failed.
    pub(super) reported: bool,
    /// When the monitors were last told that it refuses connections.
    pub(super) refused: Option<u64>,
    /// When its connections were last made anew.
    pub(super) redialled: u64,
    times: Times,
}

impl Peer {
    pub(super) fn new(life: Life) -> Self {
        Self {
            life,
            first_tx: 0,
            last_rx: [0; 2],
            pings: VecDeque::new(),
            reported: false,
            refused: None,
            redialled: 0,
            times: Times::default(),
        }
    }

    /// Notes that a ping goes out on both networks.
    pub(super) fn pinged(&mut self, now: u64, grace: u64) {
        if self.first_tx == 0 {
            self.first_tx = now;
        }
        if self.pings.len() >= MAX_WAITING {
            self.pings.remove(1);
        }
        self.pings.push_back(Ping {
            stamp: now,
            deadline: now + grace,
            answered: [None; 2],
        });
    }

    /// Notes the answer to a ping on one network. A ping that is answered on both counts as an
    /// answer to all before it.
    pub(super) fn answered(&mut self, net: Net, stamp: u64, now: u64, wall: u32, span: u64) {
        let Some(at) = self.pings.iter().position(|p| p.stamp == stamp) else {
            return; // Newer ones were answered already.
        };
        self.last_rx[net as usize] = now;
        let ping = &mut self.pings[at];
        ping.answered[net as usize] = Some(now);
        if let [Some(back), Some(front)] = ping.answered {
            let took = |t: u64| u32::try_from(t.saturating_sub(stamp)).unwrap_or(u32::MAX);
            self.times.add([took(back), took(front)], now, wall, span);
            self.pings.drain(..=at);
        }
    }

    /// Moves the deadlines by a `gap` in which this process did not run: that is no silence of the
    /// peer.
    pub(super) fn forgive(&mut self, gap: u64) {
        for p in &mut self.pings {
            p.deadline += gap;
        }
    }

    /// Whether a ping is overdue.
    pub(super) fn is_overdue(&self, now: u64) -> bool {
        self.pings.front().is_some_and(|p| now > p.deadline)
    }

    /// Whether the peer has answered on both networks, and owes no answer.
    pub(super) fn is_healthy(&self, now: u64) -> bool {
        self.last_rx.iter().all(|t| *t > 0) && !self.is_overdue(now)
    }

    /// Since when the peer is silent, on at least one network.
    pub(super) fn silent_since(&self) -> u64 {
        match self.last_rx {
            [0, _] | [_, 0] => self.first_tx,
            [back, front] => back.min(front),
        }
    }

    pub(super) fn times(&self) -> PingTimes {
        self.times.told()
    }
}
