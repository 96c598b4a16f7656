//! Heartbeats: the core's clock and messages, what it says to the monitors, and what follows from being marked down.

use std::collections::BTreeSet;
use std::time::Duration;

use spirula_conf::options::Values;
use spirula_denc::{EntityAddr, EntityAddrVec};
use spirula_maps::OsdState;
use spirula_proto::Blob;
use spirula_proto::Payload;
use spirula_proto::internal::heartbeat::{Beat, Heartbeat};
use spirula_proto::internal::report::{OsdFailureReport, OsdGoingDown, OsdReport};
use spirula_proto::mon::LogPriority;

use super::shell::Shared;
use super::state::Osd;
use crate::heartbeat::{Command, Complaint, MarkedDown, Net, Settings, Wish};

/// Ticks are at least so far apart.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// PGs, and with them their members, come and go between maps too: who shares PGs is looked at that often.
const RESAMPLE: u64 = 5_000_000;
/// What a heartbeat takes without padding, about.
const PLAIN_SIZE: usize = 64;
/// The most padding; the option has no bound.
const MAX_PADDING: usize = 64 << 10;

/// The options that heartbeats follow.
pub(super) fn settings(values: &Values) -> Settings {
    let seconds = |name: &str| values.uint(name).saturating_mul(1_000_000);
    let count = |name: &str| usize::try_from(values.uint(name)).unwrap_or(usize::MAX);
    Settings {
        interval: seconds("osd_heartbeat_interval"),
        grace: seconds("osd_heartbeat_grace"),
        min_healthy_ratio: values.float("osd_heartbeat_min_healthy_ratio"),
        fast_fail: values.flag("osd_fast_fail_on_connection_refused"),
        markdown_count: count("osd_max_markdown_count"),
        markdown_period: seconds("osd_max_markdown_period"),
        minute: match seconds("debug_heartbeat_testing_span") {
            0 => 60_000_000,
            span => span,
        },
        wish: Wish {
            min_peers: count("osd_heartbeat_min_peers"),
            reporters: count("mon_osd_min_down_reporters"),
            level: values.get("mon_osd_reporter_subtree_level").to_owned(),
        },
    }
}

/// Pings and looks at the answers, as long as the daemon runs.
pub(super) async fn run(shell: Shared) {
    loop {
        let pause = shell.with(Osd::heartbeat_tick);
        tokio::time::sleep(pause).await;
    }
}

impl Osd {
    fn beat(&self, stamp: u64, padded: bool) -> Beat {
        let map = self.maps.map();
        let index = usize::try_from(self.cfg.id).unwrap_or_default();
        let size = usize::try_from(self.values.uint("osd_heartbeat_min_size")).unwrap_or(MAX_PADDING);
        let padding = match padded {
            true => vec![0; size.saturating_sub(PLAIN_SIZE).min(MAX_PADDING)],
            false => Vec::new(),
        };
        Beat {
            fsid: map.fsid,
            epoch: map.epoch,
            up_from: map.osd_info.get(index).map_or(0, |i| i.up_from),
            stamp,
            full: self.full.contains(&self.cfg.id),
            padding: Blob::from(padding),
        }
    }

    /// Tells the OSDs that may lead this one's PGs whether there is room here: on the connections on which they are
    /// told that writes are durable, so that the news comes before the room in their windows.
    pub(super) fn tell_room(&self) {
        let news = Heartbeat::Room(self.beat(0, false)).to_message();
        for (_, sender) in self.incoming.values() {
            sender.send(news.clone());
        }
    }

    /// Another OSD says whether it has room.
    pub(super) fn note_room(&mut self, osd: i32, msg: &Heartbeat) {
        let Heartbeat::Room(beat) = msg else { return };
        if beat.full {
            self.full.insert(osd);
        } else {
            self.full.remove(&osd);
        }
    }

    /// Pings and complains where it is time; returns the time until the next look.
    pub fn heartbeat_tick(&mut self) -> Duration {
        let now = self.usec();
        if now.saturating_sub(self.heartbeats_sampled) > RESAMPLE {
            self.heartbeats_sampled = now;
            if self.heartbeats.partners() != &self.partners() {
                self.choose_heartbeat_peers();
            }
        }
        let random = self.host.random();
        self.heartbeat(|h, out| h.tick(now, random, out));
        if self.heartbeats.is_waiting() {
            self.boot_if_down();
        }
        Duration::from_micros(self.heartbeats.next_due().saturating_sub(self.usec())).max(MIN_PAUSE)
    }

    /// Lets the core do something, and carries out what it wants.
    fn heartbeat(&mut self, f: impl FnOnce(&mut crate::heartbeat::Heartbeats, &mut Vec<Command>)) {
        let mut out = Vec::new();
        f(&mut self.heartbeats, &mut out);
        let mut ping = None;
        for command in out {
            match command {
                Command::Ping { osd, net, stamp } => {
                    let msg = ping
                        .get_or_insert_with(|| Heartbeat::Ping(self.beat(stamp, true)).to_message())
                        .clone();
                    self.beat_links.send((osd, net), msg, self.maps.map());
                }
                Command::Redial(osd) => self.beat_links.redial(osd),
                Command::Report(c) => self.complain(c),
            }
        }
    }

    /// The OSDs that share PGs with this one.
    fn partners(&self) -> BTreeSet<i32> {
        let members = self.core.pgs().flat_map(|pg| pg.members());
        members.filter(|o| *o != self.cfg.id).collect()
    }

    /// After a new map, and when PGs have come or gone.
    pub(super) fn choose_heartbeat_peers(&mut self) {
        let partners = self.partners();
        let (view, up) = (self.maps.view().clone(), self.is_up());
        self.heartbeat(|h, out| h.set_peers(&view.map, partners, up, out));
        let Self {
            beat_links,
            heartbeats,
            maps,
            ..
        } = self;
        beat_links.keep(heartbeats.peers(), maps.map());
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
            failed_for_ms: u32::try_from(c.failed_for / 1000).unwrap_or(u32::MAX),
        };
        tracing::info!(
            "osd.{}: {} (silent for {} ms)",
            c.osd,
            c.kind,
            report.failed_for_ms
        );
        self.mon.send(OsdReport::Failure(report).to_message());
    }

    /// Nobody listens at a peer's address: its process is gone.
    pub fn peer_refused(&mut self, osd: i32, addr: EntityAddr) {
        let now = self.usec();
        let map = self.maps.map();
        let data = map.cluster_addrs(osd).and_then(|a| a.v2()) == Some(&addr);
        let beats = Net::BOTH.iter().any(|n| n.addr(map, osd) == Some(addr));
        if map.is_up(osd) && self.is_up() && (data || beats) {
            self.heartbeat(|h, out| h.refused(osd, now, out));
        }
    }

    /// A peer asks; returns the answers.
    pub fn heartbeat_asked(&mut self, osd: i32, msg: &Heartbeat) -> Vec<spirula_proto::RawMessage> {
        let Heartbeat::Ping(ping) = msg else {
            return Vec::new();
        };
        let map = self.maps.map();
        if ping.fsid != map.fsid || self.stopping {
            return Vec::new();
        }
        let mut out = vec![Heartbeat::Pong(self.beat(ping.stamp, true)).to_message()];
        let index = usize::try_from(osd).unwrap_or(usize::MAX);
        let down_at = map.osd_info.get(index).map_or(0, |i| i.down_at);
        if !map.exists(osd) || !map.is_up(osd) && down_at > ping.epoch {
            out.push(Heartbeat::YouDied(self.beat(ping.stamp, false)).to_message());
        }
        out
    }

    /// A peer answers.
    pub fn heartbeat_answer(&mut self, (osd, net): (i32, Net), msg: &Heartbeat) {
        match msg {
            Heartbeat::Pong(pong) if pong.fsid == self.maps.map().fsid => {
                let (now, wall) = (self.usec(), self.host.now().sec);
                self.heartbeat(|h, out| h.answered(osd, net, pong.stamp, now, wall, out));
                if self.heartbeats.is_waiting() {
                    self.boot_if_down();
                }
            }
            Heartbeat::YouDied(_) => self.want_newest_map(),
            _ => {}
        }
    }

    /// What the new map means for this OSD itself. `was_up`: the map before had this process up.
    pub(super) fn look_at_own_state(&mut self, was_up: bool) {
        let (map, me) = (self.maps.view().clone(), self.cfg.id);
        let map = &map.map;
        if self.is_up() {
            let index = usize::try_from(me).unwrap_or_default();
            let up_from = map.osd_info.get(index).map_or(0, |i| i.up_from);
            if self.boot_epoch == 0 {
                self.boot_epoch = up_from;
            }
            return;
        }
        if self.stopping {
            return;
        }
        // Whoever starts it after that wants it to run again.
        if map.state(me).contains(OsdState::STOP) && self.boot_epoch != 0 {
            tracing::error!("map says i am stopped by admin. shutting down.");
            return self.stop_itself();
        }
        if !was_up {
            return;
        }
        if !map.exists(me) {
            tracing::error!("map says i do not exist. shutting down.");
            return self.stop_itself();
        }
        self.wrongly_marked_down();
    }

    /// The monitors have this OSD down although it runs.
    fn wrongly_marked_down(&mut self) {
        let (epoch, me) = (self.maps.epoch(), self.cfg.id);
        let index = usize::try_from(me).unwrap_or_default();
        let down_at = self.maps.map().osd_info.get(index).map_or(0, |i| i.down_at);
        self.cluster_log(
            LogPriority::WARN,
            format!("Monitor daemon marked osd.{me} down, but it is still running"),
        );
        self.cluster_log(
            LogPriority::DEBUG,
            format!("map e{epoch} wrongly marked me down at e{down_at}"),
        );
        let dead = OsdGoingDown {
            epoch,
            osd: me,
            reason: String::new(),
        };
        self.mon.send(OsdReport::Dead(dead).to_message());
        let now = self.usec();
        if let MarkedDown::Stop(times) = self.heartbeats.marked_down(now) {
            tracing::error!(
                "marked down {times} > osd_max_markdown_count {} in last {} seconds, shutting down",
                self.values.uint("osd_max_markdown_count"),
                self.values.uint("osd_max_markdown_period")
            );
            self.stop_itself();
        }
    }
}
