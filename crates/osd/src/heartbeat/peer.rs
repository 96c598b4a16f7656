//! What is known of one peer: which pings it has answered, and what the monitors were told of it.

use std::collections::VecDeque;

use spirula_denc::EntityAddr;
use spirula_maps::{OsdMap, PingTimes};

use super::Net;
use super::times::Times;

/// Pings kept that were not answered. The oldest one stays, as its deadline counts.
const MAX_WAITING: usize = 32;

/// One life of a peer: where it listens, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    addrs: [EntityAddr; 2],
    up_from: u32,
}

impl Life {
    /// The peer as the map knows it; `None` where it is down or has no address for heartbeats.
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

/// One peer. Times are microseconds of a monotonic clock, 0 for never.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) life: Life,
    first_tx: u64,
    last_rx: [u64; 2],
    pings: VecDeque<Ping>,
    /// The monitors were told that it failed.
    pub(super) reported: bool,
    /// When they were last told that it refuses connections.
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

    /// A ping goes out on both networks.
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

    /// The answer to a ping has come on one network. One that is answered on both stands for all before it.
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

    /// This process did not run for a while: that is no silence of the peer.
    pub(super) fn forgive(&mut self, gap: u64) {
        for p in &mut self.pings {
            p.deadline += gap;
        }
    }

    /// A ping is overdue.
    pub(super) fn is_overdue(&self, now: u64) -> bool {
        self.pings.front().is_some_and(|p| now > p.deadline)
    }

    /// It has answered on both networks, and owes no answer.
    pub(super) fn is_healthy(&self, now: u64) -> bool {
        self.last_rx.iter().all(|t| *t > 0) && !self.is_overdue(now)
    }

    /// Since when it is silent, on one network at least.
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
