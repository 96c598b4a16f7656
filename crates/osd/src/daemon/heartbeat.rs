//! Heartbeats to the OSDs that share PGs with this one, and complaints about those that do not answer.

use std::collections::{BTreeSet, HashMap};

use spirula_denc::{EntityAddr, EntityAddrVec};
use spirula_proto::Payload;
use spirula_proto::internal::heartbeat::{Beat, Heartbeat};
use spirula_proto::internal::report::{FailureKind, OsdFailureReport, OsdReport};

use super::state::Osd;

/// Complaints are repeated after that long.
const AGAIN: u64 = 5_000_000;

/// What is known of one peer.
struct Peer {
    heard: u64,
    /// When it was last complained about, 0 for not.
    reported: u64,
}

/// All peers.
#[derive(Default)]
pub(super) struct Heartbeats {
    peers: HashMap<i32, Peer>,
}

impl Heartbeats {
    /// Whom beats are exchanged with.
    pub(super) fn peers(&self) -> Vec<i32> {
        let mut all: Vec<i32> = self.peers.keys().copied().collect();
        all.sort_unstable();
        all
    }
}

impl Osd {
    fn beat(&self, stamp: u64) -> Beat {
        let map = self.maps.map();
        let index = usize::try_from(self.cfg.id).unwrap_or_default();
        Beat {
            fsid: map.fsid,
            epoch: map.epoch,
            up_from: map.osd_info.get(index).map_or(0, |i| i.up_from),
            stamp,
            full: self.full.contains(&self.cfg.id),
        }
    }

    /// Tells the OSDs that may lead this one's PGs whether there is room here: on the connections on which they are
    /// told that writes are durable, so that the news comes before the room in their windows.
    pub(super) fn tell_room(&self) {
        let news = Heartbeat::Pong(self.beat(0)).to_message();
        for (_, sender) in self.incoming.values() {
            sender.send(news.clone());
        }
    }

    fn note_room(&mut self, osd: i32, beat: &Beat) {
        if beat.full {
            self.full.insert(osd);
        } else {
            self.full.remove(&osd);
        }
    }

    /// Asks all peers, and complains about the silent ones.
    pub(super) fn send_heartbeats(&mut self) {
        let now = self.usec();
        let me = self.cfg.id;
        // Silence after which a peer is reported.
        let grace = self.values.uint("osd_heartbeat_grace").saturating_mul(1_000_000);
        let mut wanted: BTreeSet<i32> = self.core.pgs().flat_map(|pg| pg.members()).collect();
        wanted.retain(|o| *o != me && self.maps.map().is_up(*o));
        if !self.is_up() {
            wanted.clear();
        }
        self.heartbeats.peers.retain(|o, _| wanted.contains(o));
        for osd in wanted {
            let peer = self.heartbeats.peers.entry(osd).or_insert(Peer {
                heard: now,
                reported: 0,
            });
            let silent = now.saturating_sub(peer.heard);
            let due = now.saturating_sub(peer.reported) > AGAIN;
            if silent > grace && due {
                peer.reported = now;
                self.complain(osd, FailureKind::TIMEOUT, silent);
            }
            let ping = Heartbeat::Ping(self.beat(now)).to_message();
            self.links.send(osd, ping, &self.maps);
        }
    }

    fn complain(&self, osd: i32, kind: FailureKind, silent: u64) {
        let map = self.maps.map();
        let report = OsdFailureReport {
            epoch: map.epoch,
            target: osd,
            target_addrs: map
                .client_addrs(osd)
                .cloned()
                .unwrap_or_else(EntityAddrVec::default),
            kind,
            failed_for_ms: u32::try_from(silent / 1000).unwrap_or(u32::MAX),
        };
        tracing::info!("osd.{osd} does not answer ({kind})");
        self.mon.send(OsdReport::Failure(report).to_message());
    }

    /// Nobody listens at a peer's address: its process is gone.
    pub(super) fn peer_refused(&mut self, osd: i32, addr: EntityAddr) {
        let current = self.maps.map().cluster_addrs(osd).and_then(|a| a.v2()) == Some(&addr);
        if current && self.maps.map().is_up(osd) && self.is_up() {
            self.complain(osd, FailureKind::IMMEDIATE, 0);
        }
    }

    /// A peer asks.
    pub(super) fn heartbeat_asked(
        &mut self,
        osd: i32,
        beat: &Heartbeat,
    ) -> Option<spirula_proto::RawMessage> {
        let Heartbeat::Ping(ping) = beat else { return None };
        self.note_room(osd, ping);
        let answer = self.beat(ping.stamp);
        let dead = answer.epoch > ping.epoch && !self.maps.map().is_up(osd);
        let answer = if dead {
            Heartbeat::YouDied(answer)
        } else {
            Heartbeat::Pong(answer)
        };
        Some(answer.to_message())
    }

    /// A peer answers.
    pub(super) fn heartbeat_answer(&mut self, osd: i32, beat: &Heartbeat) {
        let now = self.usec();
        let Heartbeat::Pong(pong) = beat else { return };
        self.note_room(osd, pong);
        if let Some(p) = self.heartbeats.peers.get_mut(&osd) {
            p.heard = now;
            if p.reported != 0 {
                p.reported = 0;
                self.complain(osd, FailureKind::RECOVERED, 0);
            }
        }
    }
}
