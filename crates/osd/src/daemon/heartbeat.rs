//! Heartbeats: the core's clock and messages, and its reports to the monitors.

use std::collections::BTreeSet;
use std::time::Duration;

use spirula_conf::options::Values;
use spirula_denc::{EntityAddr, EntityAddrVec, Micros};
use spirula_invariant::dropped;
use spirula_maps::{Epoch, OsdId, OsdMap};
use spirula_proto::internal::heartbeat::{Beat, Heartbeat};
use spirula_proto::internal::report::{OsdFailureReport, OsdReport};
use spirula_proto::{Blob, Payload, RawMessage};

use super::beat_links::{BeatLinks, BeatPeer};
use super::dropped::{DropCounts, Dropped};
use super::maps::Maps;
use super::mons::Mons;
use super::setup::Setup;
use super::shell::Shared;
use super::state::Osd;
use crate::core::Core;
use crate::heartbeat::{Command, Complaint, Heartbeats, Net, Settings, Wish};

/// The least time between ticks.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// How often it is checked which OSDs share PGs with this one: PGs and their members come and go
/// between maps too.
const RESAMPLE: Micros = Micros::from_secs(5);
/// The approximate size of a heartbeat without padding.
const PLAIN_SIZE: usize = 64;
/// The most padding; the option has no bound.
const MAX_PADDING: usize = 64 << 10;

/// The settings of heartbeats under these options.
pub(super) fn settings(values: &Values) -> Settings {
    let seconds = |name: &str| Micros::from_secs(values.uint(name));
    let count = |name: &str| usize::try_from(values.uint(name)).unwrap_or(usize::MAX);
    Settings {
        interval: seconds("osd_heartbeat_interval"),
        grace: seconds("osd_heartbeat_grace"),
        min_healthy_ratio: values.float("osd_heartbeat_min_healthy_ratio"),
        fast_fail: values.flag("osd_fast_fail_on_connection_refused"),
        markdown_count: count("osd_max_markdown_count"),
        markdown_period: seconds("osd_max_markdown_period"),
        minute: match seconds("debug_heartbeat_testing_span") {
            Micros::ZERO => Micros::from_secs(60),
            span => span,
        },
        wish: Wish {
            min_peers: count("osd_heartbeat_min_peers"),
            reporters: count("mon_osd_min_down_reporters"),
            level: values.get("mon_osd_reporter_subtree_level").to_owned(),
        },
    }
}

/// Pings and checks the answers, as long as the daemon runs.
pub(super) async fn run(shell: Shared) {
    loop {
        let pause = shell.with(Osd::heartbeat_tick);
        tokio::time::sleep(pause).await;
    }
}

/// Heartbeats to and from other OSDs.
pub(super) struct Beats {
    /// Decides which peers to ping and when, and which of them are silent.
    pub(super) core: Heartbeats,
    pub(super) links: BeatLinks,
    /// When it was last checked which OSDs share PGs with this one.
    sampled: Micros,
}

impl Beats {
    pub(super) fn new(id: OsdId, values: &Values) -> Self {
        Self {
            core: Heartbeats::new(id, settings(values)),
            links: BeatLinks::default(),
            sampled: Micros::ZERO,
        }
    }

    /// Whether it is time to check which OSDs share PGs with this one.
    fn is_sample_due(&mut self, now: Micros) -> bool {
        let is_due = now.saturating_sub(self.sampled) > RESAMPLE;
        if is_due {
            self.sampled = now;
        }
        is_due
    }
}

/// The contents of an OSD's heartbeat. `full`: nothing may grow here.
pub(super) fn beat(setup: &Setup, map: &OsdMap, full: bool, stamp: Micros) -> Beat {
    Beat {
        fsid: map.fsid,
        epoch: map.epoch,
        up_from: setup.info(map).up_from,
        stamp,
        full,
        padding: Blob::default(),
    }
}

/// Pings, and listens to the answers.
pub(super) struct Beating<'a> {
    pub(super) setup: &'a Setup,
    pub(super) maps: &'a Maps,
    pub(super) pgs: &'a Core,
    pub(super) beats: &'a mut Beats,
    pub(super) mons: &'a Mons,
    pub(super) dropped: &'a mut DropCounts,
    /// Whether nothing may grow here.
    pub(super) full: bool,
}

impl Beating<'_> {
    /// As [`beat`], with the padding that tells whether large packets come through too.
    fn padded(&self, stamp: Micros) -> Beat {
        let size = self.setup.values.uint("osd_heartbeat_min_size");
        let size = usize::try_from(size).unwrap_or(MAX_PADDING);
        let padding = vec![0; size.saturating_sub(PLAIN_SIZE).min(MAX_PADDING)];
        Beat {
            padding: Blob::from(padding),
            ..self.plain(stamp)
        }
    }

    fn plain(&self, stamp: Micros) -> Beat {
        beat(self.setup, self.maps.map(), self.full, stamp)
    }

    /// Sends the pings and complaints that are due.
    pub(super) fn tick(&mut self) {
        let now = self.setup.usec();
        if self.beats.is_sample_due(now) && self.beats.core.partners() != &self.partners() {
            self.choose_peers();
        }
        let random = self.setup.host.random();
        self.run(|h, out| h.tick(now, random, out));
    }

    /// The time until the next tick.
    pub(super) fn pause(&self) -> Duration {
        let due = self.beats.core.next_due();
        Duration::from(due.saturating_sub(self.setup.usec())).max(MIN_PAUSE)
    }

    /// Calls `f` on the core, and carries out the commands that come of it.
    fn run(&mut self, f: impl FnOnce(&mut Heartbeats, &mut Vec<Command>)) {
        let mut out = Vec::new();
        f(&mut self.beats.core, &mut out);
        let mut ping = None;
        for command in out {
            match command {
                Command::Ping { osd, net, stamp } => {
                    let msg = ping
                        .get_or_insert_with(|| Heartbeat::Ping(self.padded(stamp)).to_message())
                        .clone();
                    self.beats
                        .links
                        .send((osd, net), msg, self.maps.map(), self.dropped);
                }
                Command::Redial(osd) => self.beats.links.redial(osd),
                Command::Report(c) => self.complain(c),
            }
        }
    }

    /// The OSDs that share PGs with this one.
    fn partners(&self) -> BTreeSet<OsdId> {
        let members = self.pgs.pgs().flat_map(|pg| pg.seen().members());
        members.filter(|o| *o != self.setup.id()).collect()
    }

    /// Chooses the peers, after a new map and when PGs have come or gone.
    pub(super) fn choose_peers(&mut self) {
        let (partners, maps, setup) = (self.partners(), self.maps, self.setup);
        self.run(|h, out| h.set_peers(maps.map(), partners, maps.have_up(setup), out));
        self.beats.links.keep(self.beats.core.peers(), maps.map());
    }

    fn complain(&self, c: Complaint) {
        let map = self.maps.map();
        let report = OsdFailureReport {
            epoch: map.epoch,
            target: c.osd,
            target_addrs: map
                .client_addrs(c.osd)
                .cloned()
                .unwrap_or_else(EntityAddrVec::default),
            kind: c.kind,
            failed_for_ms: u32::try_from(c.failed_for.as_millis()).unwrap_or(u32::MAX),
        };
        tracing::info!(
            "osd.{}: {} (silent for {} ms)",
            c.osd,
            c.kind,
            report.failed_for_ms
        );
        self.mons.report(OsdReport::Failure(report));
    }

    /// Notes that an OSD's address refuses connections.
    pub(super) fn refused(&mut self, osd: OsdId, addr: EntityAddr) {
        let now = self.setup.usec();
        let map = self.maps.map();
        let data = map.cluster_addrs(osd).and_then(|a| a.v2()) == Some(&addr);
        let beats = Net::BOTH.iter().any(|n| n.addr(map, osd) == Some(addr));
        if map.is_up(osd) && self.maps.have_up(self.setup) && (data || beats) {
            self.run(|h, out| h.refused(osd, now, out));
        }
    }

    /// The answers to a peer's ping.
    pub(super) fn asked(&self, osd: OsdId, ping: &Beat) -> Vec<RawMessage> {
        let map = self.maps.map();
        let mut out = vec![Heartbeat::Pong(self.padded(ping.stamp)).to_message()];
        let index = osd.index();
        let down_at = map.osd_info.get(index).map_or(Epoch::NONE, |i| i.down_at);
        if !map.exists(osd) || !map.is_up(osd) && down_at > ping.epoch {
            out.push(Heartbeat::YouDied(self.plain(ping.stamp)).to_message());
        }
        out
    }

    /// Notes a peer's answer.
    pub(super) fn answered(&mut self, (osd, net): BeatPeer, pong: &Beat) {
        let (now, wall) = (self.setup.usec(), self.setup.now().sec);
        self.run(|h, out| h.answered(osd, net, pong.stamp, now, wall, out));
    }
}

impl Osd {
    /// Sends the pings and complaints that are due; returns the time until the next tick.
    pub fn heartbeat_tick(&mut self) -> Duration {
        self.beating().tick();
        self.boot_if_awaited();
        self.beating().pause()
    }

    /// Boots if this OSD waits for its peers: an answer just heard may make them enough.
    fn boot_if_awaited(&mut self) {
        if self.beats.core.is_waiting() {
            self.standing().boot_if_down();
        }
    }

    /// Notes that a peer's address refuses connections: its process is gone.
    pub fn peer_refused(&mut self, osd: OsdId, addr: EntityAddr) {
        self.beating().refused(osd, addr);
    }

    /// Handles a peer's ping; returns the answers. An OSD that is ending gives none.
    pub fn heartbeat_asked(&mut self, osd: OsdId, msg: &Heartbeat) -> Vec<RawMessage> {
        match msg {
            Heartbeat::Ping(ping) if ping.fsid != self.maps.map().fsid => {
                dropped!(self.perf.dropped, Dropped::Misdirected; osd = osd, fsid = ping.fsid);
                Vec::new()
            }
            Heartbeat::Ping(ping) if !self.life.is_stopping() => self.beating().asked(osd, ping),
            // It is to be found down soon.
            Heartbeat::Ping(_) => Vec::new(),
            _ => {
                dropped!(self.perf.dropped, Dropped::Misdirected; osd = osd);
                Vec::new()
            }
        }
    }

    /// Handles a peer's answer.
    pub fn heartbeat_answer(&mut self, peer: BeatPeer, msg: &Heartbeat) {
        match msg {
            Heartbeat::Pong(pong) if pong.fsid == self.maps.map().fsid => {
                self.beating().answered(peer, pong);
                self.boot_if_awaited();
            }
            Heartbeat::YouDied(_) => self.mons.want_newer_map(self.maps.epoch()),
            _ => dropped!(self.perf.dropped, Dropped::Misdirected; osd = peer.0),
        }
    }
}
