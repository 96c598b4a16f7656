//! Heartbeats between OSDs, as a core without I/O: which peers to ping and when, which do not
//! answer, and whether this OSD may ask to be up again.
//!
//! The owner calls [`Heartbeats::set_peers`] with each new map, [`Heartbeats::tick`] when
//! [`Heartbeats::next_due`] says so, and the other methods as things happen, and carries out the
//! [`Command`]s. Each peer is pinged on two networks; only a peer that answers on both is well. All
//! times are those of one monotonic clock, so that clocks that are set forwards or backwards
//! change nothing.

mod choose;
mod markdowns;
mod peer;
#[cfg(test)]
mod tests;
mod times;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use spirula_denc::{EntityAddr, Micros};
use spirula_maps::{OsdId, OsdMap, PingTimes};
use spirula_proto::internal::report::FailureKind;

pub use choose::Wish;
use markdowns::Markdowns;
use peer::{Life, Peer};

/// A refused connection is reported again after this long: the monitors may have been told not to
/// mark anyone down.
const REFUSED_AGAIN: Micros = Micros::from_secs(5);
/// Ticks come at least once a second. A tick that is late by more than this says that this process
/// did not run.
const STALL: Micros = Micros::from_secs(4);
/// The longest time between two ticks.
const TICK: Micros = Micros::from_secs(1);

/// A network that heartbeats go over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Net {
    /// The network of the OSDs.
    Back,
    /// The network of the clients.
    Front,
}

impl Net {
    /// Both networks.
    pub const BOTH: [Self; 2] = [Self::Back, Self::Front];

    /// `back` or `front`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Back => "back",
            Self::Front => "front",
        }
    }

    /// The address at which an OSD that is up takes heartbeats.
    pub fn addr(self, map: &OsdMap, osd: OsdId) -> Option<EntityAddr> {
        let all = match self {
            Self::Back => &map.hb_back_addrs,
            Self::Front => &map.hb_front_addrs,
        };
        all.get(osd.index()).filter(|_| map.is_up(osd))?.v2().copied()
    }
}

/// The options of heartbeats.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `osd_heartbeat_interval`.
    pub interval: Micros,
    /// `osd_heartbeat_grace`.
    pub grace: Micros,
    /// `osd_heartbeat_min_healthy_ratio`.
    pub min_healthy_ratio: f64,
    /// `osd_fast_fail_on_connection_refused`.
    pub fast_fail: bool,
    /// `osd_max_markdown_count`.
    pub markdown_count: usize,
    /// `osd_max_markdown_period`.
    pub markdown_period: Micros,
    /// The length of a minute of the ping times (`debug_heartbeat_testing_span`).
    pub minute: Micros,
    /// The number of peers wished for.
    pub wish: Wish,
}

/// A report on a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Complaint {
    /// The peer.
    pub osd: OsdId,
    /// The kind of failure, or that the peer is well again.
    pub kind: FailureKind,
    /// How long the peer has failed.
    pub failed_for: Micros,
}

/// A command to the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Send a ping with this stamp.
    Ping {
        /// The peer to ping.
        osd: OsdId,
        /// The network to ping over.
        net: Net,
        /// The stamp, which comes back with the answer.
        stamp: Micros,
    },
    /// End the connections to a peer, which seem to be dead: the next ping makes new ones.
    Redial(OsdId),
    /// Tell the monitors.
    Report(Complaint),
}

/// The consequence of having been marked down while running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkedDown {
    /// Boot again when the peers answer.
    Wait,
    /// Stop: it happened this often within the period, and this OSD only does harm.
    Stop(usize),
}

/// Why an OSD must not ask to be up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unhealthy {
    /// The number of peers that answer.
    pub up: usize,
    /// The number of all peers.
    pub peers: usize,
}

/// Heartbeats of one OSD.
#[derive(Debug)]
pub struct Heartbeats {
    me: OsdId,
    settings: Settings,
    peers: BTreeMap<OsdId, Peer>,
    partners: BTreeSet<OsdId>,
    markdowns: Markdowns,
    /// Whether this OSD was marked down while running, and is not up again: the peers decide about
    /// booting.
    waiting: bool,
    /// Whether this OSD is up in the newest map, so that others accept its complaints.
    up: bool,
    next_ping: Micros,
    last_tick: Micros,
}

impl Heartbeats {
    /// The heartbeats of an OSD that has just started.
    pub fn new(me: OsdId, settings: Settings) -> Self {
        Self {
            me,
            settings,
            peers: BTreeMap::new(),
            partners: BTreeSet::new(),
            markdowns: Markdowns::default(),
            waiting: false,
            up: false,
            next_ping: Micros::ZERO,
            last_tick: Micros::ZERO,
        }
    }

    /// Adopts changed options. They apply from the next map or ping on.
    pub fn set_settings(&mut self, settings: Settings) {
        // One that was made shorter is not to wait for the longer one to pass.
        self.next_ping = Micros::ZERO;
        self.settings = settings;
    }

    /// The peers.
    pub fn peers(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.peers.keys().copied()
    }

    /// The OSDs that share PGs with this one, as last set.
    pub fn partners(&self) -> &BTreeSet<OsdId> {
        &self.partners
    }

    /// The ping times, by peer.
    pub fn times(&self) -> impl Iterator<Item = (OsdId, PingTimes)> + '_ {
        self.peers.iter().map(|(osd, p)| (*osd, p.times()))
    }

    /// Adopts the OSDs that are up, their addresses, and the OSDs that share PGs with this one.
    /// `up`: whether this process is up.
    pub fn set_peers(&mut self, map: &OsdMap, partners: BTreeSet<OsdId>, up: bool, out: &mut Vec<Command>) {
        self.up = up;
        self.waiting &= !up;
        self.partners = partners;
        let wanted = choose::peers(map, self.me, &self.partners, &self.settings.wish);
        let lives: BTreeMap<OsdId, Life> = wanted
            .into_iter()
            .filter_map(|o| Some((o, Life::of(map, o)?)))
            .collect();
        self.peers.retain(|osd, p| {
            let stays = lives.get(osd) == Some(&p.life);
            if !stays && p.reported && Life::of(map, *osd) == Some(p.life) {
                // Nobody would ever take this back.
                out.push(complaint(*osd, FailureKind::RECOVERED, Micros::ZERO));
            }
            stays
        });
        for (osd, life) in lives {
            if let Entry::Vacant(e) = self.peers.entry(osd) {
                e.insert(Peer::new(life));
                // At once: an answer of a new peer may be what is awaited.
                self.next_ping = Micros::ZERO;
            }
        }
    }

    /// The latest time at which to call [`Heartbeats::tick`] again.
    pub fn next_due(&self) -> Micros {
        self.next_ping.min(self.last_tick + TICK)
    }

    /// Sends the pings that are due, and complains about peers that do not answer. `random` spreads
    /// the pings of many OSDs.
    pub fn tick(&mut self, now: Micros, random: u32, out: &mut Vec<Command>) {
        let gap = now.saturating_sub(self.last_tick);
        if !self.last_tick.is_zero() && gap > TICK + STALL {
            // Answers may have come meanwhile, and wait to be read.
            self.peers.values_mut().for_each(|p| p.forgive(gap));
        }
        self.last_tick = now;
        self.markdowns.prune(now, self.settings.markdown_period);
        if now >= self.next_ping {
            // Half a second and up to an interval, as official OSDs do.
            self.next_ping =
                now + Micros::from_millis(500) + self.settings.interval / 10 * u64::from(random % 10);
            for (osd, peer) in &mut self.peers {
                peer.pinged(now, self.settings.grace);
                out.extend(Net::BOTH.map(|net| Command::Ping {
                    osd: *osd,
                    net,
                    stamp: now,
                }));
            }
        }
        self.check(now, out);
    }

    fn check(&mut self, now: Micros, out: &mut Vec<Command>) {
        for (osd, p) in &mut self.peers {
            if !p.is_overdue(now) {
                continue;
            }
            if now.saturating_sub(p.redialled) > self.settings.grace {
                p.redialled = now;
                out.push(Command::Redial(*osd));
            }
            if self.up && !p.reported {
                p.reported = true;
                let silent = now.saturating_sub(p.silent_since());
                out.push(complaint(*osd, FailureKind::TIMEOUT, silent));
            }
        }
    }

    /// Notes a peer's answer. `wall` is the time in seconds since 1970, for the ping times.
    pub fn answered(
        &mut self,
        osd: OsdId,
        net: Net,
        stamp: Micros,
        now: Micros,
        wall: u32,
        out: &mut Vec<Command>,
    ) {
        let Some(p) = self.peers.get_mut(&osd) else {
            return; // It was a peer when it was asked.
        };
        p.answered(net, stamp, now, wall, self.settings.minute);
        if p.reported && p.is_healthy(now) {
            p.reported = false;
            out.push(complaint(osd, FailureKind::RECOVERED, Micros::ZERO));
        }
    }

    /// Notes that a peer's address refuses connections: its process is gone.
    pub fn refused(&mut self, osd: OsdId, now: Micros, out: &mut Vec<Command>) {
        if !self.up || !self.settings.fast_fail {
            return; // Nobody listens to an OSD that is down, or the silence is to be waited for.
        }
        let Some(p) = self.peers.get_mut(&osd) else {
            return; // Those whose peer it is complain.
        };
        if p.refused.is_none_or(|t| now.saturating_sub(t) > REFUSED_AGAIN) {
            p.refused = Some(now);
            out.push(complaint(osd, FailureKind::IMMEDIATE, Micros::ZERO));
        }
    }

    /// Reports everything again, as the session with the monitors is new: reports on the old one
    /// may not have arrived.
    pub fn tell_again(&mut self) {
        for p in self.peers.values_mut() {
            p.reported = false;
            p.refused = None;
        }
    }

    /// Notes that the map has this OSD down although it runs. From now on it may boot only when the
    /// peers answer.
    pub fn marked_down(&mut self, now: Micros) -> MarkedDown {
        self.up = false;
        self.waiting = true;
        // The peers' earlier answers say nothing about now.
        self.peers.clear();
        self.next_ping = Micros::ZERO;
        let times = self.markdowns.note(now, self.settings.markdown_period);
        if times > self.settings.markdown_count {
            MarkedDown::Stop(times)
        } else {
            MarkedDown::Wait
        }
    }

    /// Whether this OSD may ask to be up. An OSD that was marked down must first hear a share of
    /// its peers again, or it would be marked down as soon as it is up; but it tries again when the
    /// last time is long ago.
    ///
    /// # Errors
    /// How many answer, where they are too few.
    pub fn may_boot(&self, now: Micros) -> Result<(), Unhealthy> {
        if !self.waiting || self.markdowns.is_empty() {
            return Ok(());
        }
        let peers = self.peers.len();
        let up = self.peers.values().filter(|p| p.is_healthy(now)).count();
        if (up as f64) < peers as f64 * self.settings.min_healthy_ratio {
            return Err(Unhealthy { up, peers });
        }
        Ok(())
    }

    /// Whether booting was put off until peers answer.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }
}

fn complaint(osd: OsdId, kind: FailureKind, failed_for: Micros) -> Command {
    Command::Report(Complaint {
        osd,
        kind,
        failed_for,
    })
}
