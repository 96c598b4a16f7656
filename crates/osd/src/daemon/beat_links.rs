//! The connections for heartbeats: one to each peer on either network, apart from the connections
//! for data, so that a ping never waits behind a write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spirula_denc::{EntityAddr, EntityType};
use spirula_invariant::dropped;
use spirula_maps::{OsdId, OsdMap};
use spirula_msgr::{Connection, Sender};
use spirula_proto::internal::heartbeat::Heartbeat;
use spirula_proto::{MsgType, RawMessage};

use super::dropped::{DropCounts, Dropped};
use super::links::Cut;
use super::shell::Shared;
use super::state::Osd;
use crate::heartbeat::Net;

/// The pause after a failed attempt to connect. The first attempt after an established connection
/// broke is made at once: it tells whether the process is gone.
const PAUSE: Duration = Duration::from_millis(500);
/// Pings to a peer that does not read are dropped when this many bytes wait.
const MAX_QUEUED: usize = 64 << 10;

/// A peer on a network.
pub type BeatPeer = (OsdId, Net);

/// The connection to one peer.
struct Link {
    addr: EntityAddr,
    sender: Option<Sender>,
    /// The last ping, while there is no connection.
    waiting: Option<RawMessage>,
    /// Ends the task that connects and receives.
    cut: Option<Cut>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Link {
    /// Ends the connection at once: a network that loses everything would keep it for long.
    fn cut(&mut self) {
        self.waiting = None;
        self.sender = None;
        if let Some(cut) = self.cut.take() {
            cut();
        }
    }
}

/// The connections to all peers.
#[derive(Default)]
pub(super) struct BeatLinks {
    links: BTreeMap<BeatPeer, Link>,
    wanted: Vec<BeatPeer>,
    stopped: bool,
}

impl BeatLinks {
    /// Sends a ping, and asks for a connection if there is none.
    pub(super) fn send(&mut self, peer: BeatPeer, msg: RawMessage, map: &OsdMap, dropped: &mut DropCounts) {
        let Some(addr) = peer.1.addr(map, peer.0).filter(|_| !self.stopped) else {
            return dropped!(dropped, Dropped::Ping; osd = peer.0);
        };
        let link = self.links.entry(peer).or_insert_with(|| Link {
            addr,
            sender: None,
            waiting: None,
            cut: None,
        });
        if link.addr != addr {
            link.cut();
            link.addr = addr;
        }
        match &link.sender {
            Some(s) if s.queued_bytes() < MAX_QUEUED => {
                s.send(msg);
            }
            Some(_) => dropped!(dropped, Dropped::Ping; osd = peer.0),
            None => {
                link.waiting = Some(msg);
                if link.cut.is_none() && !self.wanted.contains(&peer) {
                    self.wanted.push(peer);
                }
            }
        }
    }

    /// Ends a peer's connections, which seem to be dead.
    pub(super) fn redial(&mut self, osd: OsdId) {
        for net in Net::BOTH {
            if let Some(link) = self.links.get_mut(&(osd, net)) {
                link.cut();
            }
        }
    }

    /// Ends the connections to all but these peers.
    pub(super) fn keep(&mut self, peers: impl Iterator<Item = OsdId>, map: &OsdMap) {
        let peers: BTreeSet<OsdId> = peers.collect();
        self.links
            .retain(|(osd, net), link| peers.contains(osd) && net.addr(map, *osd) == Some(link.addr));
    }

    /// Ends all connections, and makes no new ones.
    pub(super) fn hang_up(&mut self) {
        self.stopped = true;
        self.wanted.clear();
        self.links.clear();
    }

    /// Takes the connections that [`BeatLinks::send`] has asked for.
    pub(super) fn take_wanted(&mut self) -> Vec<(BeatPeer, EntityAddr)> {
        let addr = |peer| Some((peer, self.links.get(&peer)?.addr));
        self.wanted.drain(..).filter_map(addr).collect()
    }

    /// Notes that a wanted connection is being made.
    pub(super) fn started(&mut self, peer: BeatPeer, cut: Cut) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.cut = Some(cut);
        }
    }

    /// Notes that a connection is established; returns whether it is wanted.
    fn connected(&mut self, peer: BeatPeer, addr: EntityAddr, sender: &Sender) -> bool {
        let Some(link) = self.links.get_mut(&peer).filter(|l| l.addr == addr) else {
            return false;
        };
        if let Some(msg) = link.waiting.take() {
            sender.send(msg);
        }
        link.sender = Some(sender.clone());
        true
    }

    /// Notes that a connection has ended. Returns whether to make it again at once.
    fn broke(&mut self, peer: BeatPeer, addr: EntityAddr) -> bool {
        match self.links.get_mut(&peer).filter(|l| l.addr == addr) {
            Some(link) => {
                link.sender = None;
                !self.stopped
            }
            None => false,
        }
    }

    /// Notes that a connection's task has ended.
    fn ended(&mut self, peer: BeatPeer) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.sender = None;
            link.cut = None;
        }
    }
}

/// Connects and receives; connects once more at once after an established connection broke.
pub(super) async fn run(shell: Shared, peer: BeatPeer, addr: EntityAddr) {
    loop {
        let mut login = shell.dialer.mon.login_at(EntityType::OSD);
        match spirula_msgr::connect(addr, EntityType::OSD, &shell.dialer.beats, &mut login).await {
            Ok(connection) => {
                receive(&shell, peer, addr, connection).await;
                if !shell.with(|o| o.beat_link_broke(peer, addr)) {
                    break;
                }
            }
            Err(e) => {
                tracing::debug!("heartbeats to osd.{} ({}): {e}", peer.0, peer.1.name());
                if super::links::is_refused(&e) {
                    shell.with(|o| o.peer_refused(peer.0, addr));
                }
                tokio::time::sleep(PAUSE).await;
                break;
            }
        }
    }
    shell.with(|o| o.beat_link_down(peer));
}

impl Osd {
    /// Takes the connections for heartbeats that are to be made.
    pub fn wanted_beat_links(&mut self) -> Vec<(BeatPeer, EntityAddr)> {
        self.beats.links.take_wanted()
    }

    /// Notes that a wanted heartbeat connection is being made; `cut` ends the attempt.
    pub fn beat_link_started(&mut self, peer: BeatPeer, cut: Cut) {
        self.beats.links.started(peer, cut);
    }

    /// Notes that a heartbeat connection is established; returns whether it is still wanted.
    pub fn beat_link_up(&mut self, peer: BeatPeer, addr: EntityAddr, sender: &Sender) -> bool {
        self.beats.links.connected(peer, addr, sender)
    }

    /// Notes that an established heartbeat connection has ended; returns whether to make it again
    /// at once.
    pub fn beat_link_broke(&mut self, peer: BeatPeer, addr: EntityAddr) -> bool {
        self.beats.links.broke(peer, addr)
    }

    /// Notes that nothing tries to make a heartbeat connection any more.
    pub fn beat_link_down(&mut self, peer: BeatPeer) {
        self.beats.links.ended(peer);
    }
}

async fn receive(shell: &Shared, peer: BeatPeer, addr: EntityAddr, mut connection: Connection) {
    let sender = connection.sender().clone();
    if !shell.with(|o| o.beat_link_up(peer, addr, &sender)) {
        return; // The peer has moved meanwhile, or is none any more.
    }
    while let Ok(msg) = connection.recv().await {
        if msg.kind() != MsgType::HEARTBEAT {
            let kind = msg.kind();
            shell.with(|o| dropped!(o.perf.dropped, Dropped::Misdirected; osd = peer.0, kind = kind));
            continue;
        }
        match msg.decode::<Heartbeat>() {
            Ok(beat) => shell.with(|o| o.heartbeat_answer(peer, &beat)),
            Err(e) => {
                tracing::warn!("osd.{}: {e}", peer.0);
                break;
            }
        }
    }
}

/// Serves a connection on which a peer sends pings.
pub(super) async fn serve(shell: &Shared, mut connection: Connection, osd: OsdId) {
    let sender = connection.sender().clone();
    while let Ok(msg) = connection.recv().await {
        if msg.kind() != MsgType::HEARTBEAT {
            let kind = msg.kind();
            shell.with(|o| dropped!(o.perf.dropped, Dropped::Misdirected; osd = osd, kind = kind));
            continue;
        }
        if sender.queued_bytes() > MAX_QUEUED {
            // It does not read the answers to its pings before.
            shell.with(|o| dropped!(o.perf.dropped, Dropped::Ping; osd = osd));
            continue;
        }
        match msg.decode::<Heartbeat>() {
            Ok(beat) => {
                for answer in shell.with(|o| o.heartbeat_asked(osd, &beat)) {
                    sender.send(answer);
                }
            }
            Err(e) => {
                tracing::warn!("osd.{osd}: {e}");
                break;
            }
        }
    }
}
