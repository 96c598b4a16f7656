//! The connections of heartbeats: to each peer one on either network, apart from those of data, so that a ping never
//! waits behind a write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spirula_denc::{EntityAddr, EntityType};
use spirula_invariant::dropped;
use spirula_maps::OsdMap;
use spirula_msgr::{Connection, Sender};
use spirula_proto::internal::heartbeat::Heartbeat;
use spirula_proto::{MsgType, RawMessage};

use super::dropped::{DropCounts, Dropped};
use super::links::Cut;
use super::shell::Shared;
use super::state::Osd;
use crate::heartbeat::Net;

/// Pause after a connection failed. The first attempt after one that stood is made at once: it tells whether the process
/// is gone.
const PAUSE: Duration = Duration::from_millis(500);
/// Pings to a peer that does not read are dropped when so many bytes wait.
const MAX_QUEUED: usize = 64 << 10;

/// A peer on a network.
pub type BeatPeer = (i32, Net);

/// One connection.
struct Link {
    addr: EntityAddr,
    sender: Option<Sender>,
    /// The last ping, while there is no connection.
    waiting: Option<RawMessage>,
    /// Ends what connects and receives.
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

/// All of them.
#[derive(Default)]
pub(super) struct BeatLinks {
    links: BTreeMap<BeatPeer, Link>,
    wanted: Vec<BeatPeer>,
    stopped: bool,
}

impl BeatLinks {
    /// Sends a ping, connecting first where there is no connection.
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

    /// Ends a peer's connections: they seem to be dead.
    pub(super) fn redial(&mut self, osd: i32) {
        for net in Net::BOTH {
            if let Some(link) = self.links.get_mut(&(osd, net)) {
                link.cut();
            }
        }
    }

    /// Ends the connections to everyone else.
    pub(super) fn keep(&mut self, peers: impl Iterator<Item = i32>, map: &OsdMap) {
        let peers: BTreeSet<i32> = peers.collect();
        self.links
            .retain(|(osd, net), link| peers.contains(osd) && net.addr(map, *osd) == Some(link.addr));
    }

    /// Ends all connections, and makes no new ones.
    pub(super) fn hang_up(&mut self) {
        self.stopped = true;
        self.wanted.clear();
        self.links.clear();
    }

    /// The connections that sending has asked for.
    pub(super) fn take_wanted(&mut self) -> Vec<(BeatPeer, EntityAddr)> {
        let addr = |peer| Some((peer, self.links.get(&peer)?.addr));
        self.wanted.drain(..).filter_map(addr).collect()
    }

    /// A connection that was asked for is being made.
    pub(super) fn started(&mut self, peer: BeatPeer, cut: Cut) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.cut = Some(cut);
        }
    }

    /// A connection stands; returns whether it is wanted.
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

    /// A connection ended. Returns whether it shall be made again at once.
    fn broke(&mut self, peer: BeatPeer, addr: EntityAddr) -> bool {
        match self.links.get_mut(&peer).filter(|l| l.addr == addr) {
            Some(link) => {
                link.sender = None;
                !self.stopped
            }
            None => false,
        }
    }

    /// A task ends.
    fn ended(&mut self, peer: BeatPeer) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.sender = None;
            link.cut = None;
        }
    }
}

/// Connects and receives; once more at once after a connection that stood.
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
    /// The connections for heartbeats that are to be made.
    pub fn wanted_beat_links(&mut self) -> Vec<(BeatPeer, EntityAddr)> {
        self.beats.links.take_wanted()
    }

    /// One that was wanted is being made; `cut` ends that.
    pub fn beat_link_started(&mut self, peer: BeatPeer, cut: Cut) {
        self.beats.links.started(peer, cut);
    }

    /// It stands; returns whether it is still wanted.
    pub fn beat_link_up(&mut self, peer: BeatPeer, addr: EntityAddr, sender: &Sender) -> bool {
        self.beats.links.connected(peer, addr, sender)
    }

    /// One that stood ended; returns whether it shall be made again at once.
    pub fn beat_link_broke(&mut self, peer: BeatPeer, addr: EntityAddr) -> bool {
        self.beats.links.broke(peer, addr)
    }

    /// Nobody tries to make it any more.
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
pub(super) async fn serve(shell: &Shared, mut connection: Connection, osd: i32) {
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
