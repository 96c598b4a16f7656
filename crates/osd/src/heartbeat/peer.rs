//! The state of one peer: which pings it has answered, and what was reported of it to the monitors.

use std::collections::VecDeque;

use spirula_denc::{EntityAddr, Micros};
use spirula_maps::{Epoch, OsdId, OsdMap, PingTimes};

use super::Net;
use super::times::Times;

/// The most unanswered pings kept. The oldest one stays, as its deadline counts.
const MAX_WAITING: usize = 32;

/// One life of a peer: its addresses, and since when it is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    addrs: [EntityAddr; 2],
    up_from: Epoch,
}

impl Life {
    /// The peer's life as the map has it; `None` if the peer is down or has no address for
    /// heartbeats.
    pub(super) fn of(map: &OsdMap, osd: OsdId) -> Option<Self> {
        let up_from = map.osd_info.get(osd.index())?.up_from;
        Some(Self {
            addrs: [Net::Back.addr(map, osd)?, Net::Front.addr(map, osd)?],
            up_from,
        })
    }
}

/// A ping that was not answered on all networks yet.
#[derive(Debug, Clone, Copy)]
struct Ping {
    stamp: Micros,
    deadline: Micros,
    /// When the answer came, by network.
    answered: [Option<Micros>; 2],
}

/// The state of one peer. Times are those of a monotonic clock, zero for never.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) life: Life,
    first_tx: Micros,
    last_rx: [Micros; 2],
    pings: VecDeque<Ping>,
    /// Whether the monitors were told that it failed.
    pub(super) reported: bool,
    /// When the monitors were last told that it refuses connections.
    pub(super) refused: Option<Micros>,
    /// When its connections were last made anew.
    pub(super) redialled: Micros,
    times: Times,
}

impl Peer {
    pub(super) fn new(life: Life) -> Self {
        Self {
            life,
            first_tx: Micros::ZERO,
            last_rx: [Micros::ZERO; 2],
            pings: VecDeque::new(),
            reported: false,
            refused: None,
            redialled: Micros::ZERO,
            times: Times::default(),
        }
    }

    /// Notes that a ping goes out on both networks.
    pub(super) fn pinged(&mut self, now: Micros, grace: Micros) {
        if self.first_tx.is_zero() {
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
    pub(super) fn answered(&mut self, net: Net, stamp: Micros, now: Micros, wall: u32, span: Micros) {
        let Some(at) = self.pings.iter().position(|p| p.stamp == stamp) else {
            return; // Newer ones were answered already.
        };
        self.last_rx[net as usize] = now;
        let ping = &mut self.pings[at];
        ping.answered[net as usize] = Some(now);
        if let [Some(back), Some(front)] = ping.answered {
            let took = |t: Micros| u32::try_from(t.saturating_sub(stamp).count()).unwrap_or(u32::MAX);
            self.times.add([took(back), took(front)], now, wall, span);
            self.pings.drain(..=at);
        }
    }

    /// Moves the deadlines by a `gap` in which this process did not run: that is no silence of the
    /// peer.
    pub(super) fn forgive(&mut self, gap: Micros) {
        for p in &mut self.pings {
            p.deadline += gap;
        }
    }

    /// Whether a ping is overdue.
    pub(super) fn is_overdue(&self, now: Micros) -> bool {
        self.pings.front().is_some_and(|p| now > p.deadline)
    }

    /// Whether the peer has answered on both networks, and owes no answer.
    pub(super) fn is_healthy(&self, now: Micros) -> bool {
        self.last_rx.iter().all(|t| !t.is_zero()) && !self.is_overdue(now)
    }

    /// Since when the peer is silent, on at least one network.
    pub(super) fn silent_since(&self) -> Micros {
        match self.last_rx {
            [Micros::ZERO, _] | [_, Micros::ZERO] => self.first_tx,
            [back, front] => back.min(front),
        }
    }

    pub(super) fn times(&self) -> PingTimes {
        self.times.told()
    }
}
