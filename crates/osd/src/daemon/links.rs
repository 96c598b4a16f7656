//! Connections to other OSDs. They are lossy: messages under way when one ends are lost, and the
//! core is told.
//!
//! Data that goes ahead of changes has a connection of its own, so that no small write waits for
//! megabytes of it. Answers come back on the other one.

use std::collections::BTreeMap;
use std::time::Duration;

use spirula_denc::{EntityAddr, EntityType};
use spirula_invariant::{dropped, impossible};
use spirula_maps::OsdId;
use spirula_msgr::Sender;
use spirula_proto::{MsgType, RawMessage};

use super::dropped::{DropCounts, Dropped};
use super::maps::Maps;
use super::shares::keep_share;
use super::shell::Shared;
use super::state::Osd;
use crate::pg::link::{LinkKind, LinkPeer};
use crate::pg::message::PeerMessage;

/// The pause after a connection failed.
const PAUSE: Duration = Duration::from_millis(200);
/// The most messages that wait for a connection: the core sends the ones beyond again.
const QUEUE: usize = 4096;

/// Ends a connection, or the attempt to make one, at once. No more events come of it.
pub type Cut = Box<dyn FnOnce()>;

/// One connection to another OSD.
struct Link {
    addr: EntityAddr,
    sender: Option<Sender>,
    /// The messages that wait for the connection.
    queue: Vec<RawMessage>,
    /// Whether a task connects or receives, or is asked for.
    running: bool,
    cut: Option<Cut>,
}

/// The connections to all other OSDs.
#[derive(Default)]
pub(super) struct Links {
    links: BTreeMap<LinkPeer, Link>,
    /// The connections to be made.
    wanted: Vec<LinkPeer>,
}

impl Links {
    /// Sends a message, and asks for a connection if there is none. An OSD that is down gets
    /// nothing.
    pub(super) fn send(&mut self, osd: OsdId, msg: RawMessage, maps: &Maps, dropped: &mut DropCounts) {
        let map = maps.map();
        let Some(addr) = map
            .cluster_addrs(osd)
            .filter(|_| map.is_up(osd))
            .and_then(|a| a.v2())
            .copied()
        else {
            return dropped!(dropped, Dropped::ToDown; osd = osd);
        };
        let peer = (osd, LinkKind::of(msg.kind()));
        let link = self.links.entry(peer).or_insert_with(|| Link {
            addr,
            sender: None,
            queue: Vec::new(),
            running: false,
            cut: None,
        });
        if link.addr != addr {
            // The old one was ended when the map said so.
            link.sender = None;
            link.addr = addr;
            link.queue.clear();
        }
        match &link.sender {
            Some(s) => {
                s.send(msg);
            }
            None => {
                if link.queue.len() < QUEUE {
                    link.queue.push(msg);
                } else {
                    dropped!(dropped, Dropped::ToQueue; osd = osd);
                }
                if !link.running {
                    link.running = true;
                    self.wanted.push(peer);
                }
            }
        }
    }

    /// Ends connections to OSDs that are down or moved, at once: nobody will read what is queued,
    /// and on a network that loses everything it would never be written. Returns the connections
    /// that were ended.
    pub(super) fn map_changed(&mut self, maps: &Maps) -> Vec<LinkPeer> {
        let map = maps.map();
        let mut ended = Vec::new();
        for (peer, link) in &mut self.links {
            let addr = map
                .cluster_addrs(peer.0)
                .filter(|_| map.is_up(peer.0))
                .and_then(|a| a.v2());
            if addr == Some(&link.addr) {
                continue;
            }
            link.queue.clear();
            link.sender = None;
            if let Some(cut) = link.cut.take() {
                cut();
                link.running = false;
                ended.push(*peer);
            }
        }
        ended
    }

    /// Ends all connections, and makes no new ones.
    pub(super) fn hang_up(&mut self) {
        self.wanted.clear();
        for link in self.links.values_mut() {
            link.queue.clear();
            // Messages sent from now on wait for a connection that is never made.
            link.running = true;
            if let Some(s) = link.sender.take() {
                s.close();
            }
        }
    }

    /// Takes the connections that [`Links::send`] has asked for.
    pub(super) fn take_wanted(&mut self) -> Vec<(LinkPeer, EntityAddr)> {
        let addr = |peer| Some((peer, self.links.get(&peer)?.addr));
        self.wanted.drain(..).filter_map(addr).collect()
    }

    /// Notes that a wanted connection is being made.
    pub(super) fn started(&mut self, peer: LinkPeer, cut: Cut) {
        let Some(link) = self.links.get_mut(&peer) else {
            impossible!("a connection that was asked for"; osd = peer.0);
        };
        link.cut = Some(cut);
    }

    /// Notes that a connection is established; returns whether it is wanted.
    pub(super) fn connected(&mut self, peer: LinkPeer, addr: EntityAddr, sender: &Sender) -> bool {
        let Some(link) = self.links.get_mut(&peer).filter(|l| l.addr == addr) else {
            return false;
        };
        for msg in link.queue.drain(..) {
            sender.send(msg);
        }
        link.sender = Some(sender.clone());
        true
    }

    fn ended(&mut self, peer: LinkPeer) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.sender = None;
            link.queue.clear();
            link.running = false;
            link.cut = None;
        }
    }
}

/// Whether connecting failed because nothing listens at the address.
pub(super) fn is_refused(e: &spirula_msgr::Error) -> bool {
    matches!(e, spirula_msgr::Error::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// Connects to another OSD and receives.
pub(super) async fn run(shell: Shared, peer: LinkPeer, addr: EntityAddr) {
    let (osd, _) = peer;
    let mut login = shell.dialer.mon.login_at(EntityType::OSD);
    match spirula_msgr::connect(addr, EntityType::OSD, &shell.dialer.data, &mut login).await {
        Ok(mut connection) => {
            let sender = connection.sender().clone();
            if shell.with(|o| o.link_up(peer, addr, &sender)) {
                while let Ok(incoming) = connection.recv().await {
                    if let Err(e) = shell.with(|o| o.osd_message(osd, &incoming)) {
                        tracing::warn!("osd.{osd}: {e}");
                        break;
                    }
                }
            }
        }
        Err(e) => {
            tracing::debug!("connecting to osd.{osd}: {e}");
            if is_refused(&e) {
                shell.with(|o| o.peer_refused(osd, addr));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    shell.with(|o| o.link_down(peer));
}

impl Osd {
    /// Takes the connections to other OSDs that are to be made.
    pub fn wanted_links(&mut self) -> Vec<(LinkPeer, EntityAddr)> {
        self.peers.links.take_wanted()
    }

    /// Notes that a wanted connection is being made; `cut` ends the attempt.
    pub fn link_started(&mut self, peer: LinkPeer, cut: Cut) {
        self.peers.links.started(peer, cut);
    }

    /// Notes that a connection is established; returns whether it is still wanted.
    pub fn link_up(&mut self, peer: LinkPeer, addr: EntityAddr, sender: &Sender) -> bool {
        self.peers.links.connected(peer, addr, sender)
    }

    /// Notes that a connection has ended, or could not be made.
    pub fn link_down(&mut self, peer: LinkPeer) {
        self.peers.links.ended(peer);
        if let (osd, LinkKind::Ordered) = peer {
            self.peers.versions.forget(osd);
            self.space.forget(osd);
        }
        self.drive(|core, cx| core.handle_peer_reset(peer, cx));
    }

    /// Handles a message of another OSD.
    ///
    /// # Errors
    /// Where it does not decode.
    pub fn osd_message(&mut self, osd: OsdId, msg: &RawMessage) -> spirula_proto::Result<()> {
        match msg.kind() {
            kind if PeerMessage::is_kind(kind) => {
                let mut m = self.peers.versions.read(osd, msg)?;
                keep_share(&mut m, self.io.read_pool());
                self.drive(|core, cx| core.handle_peer(osd, m, cx));
            }
            MsgType::HEARTBEAT => self.space.note(osd, &msg.decode()?),
            kind => dropped!(self.perf.dropped, Dropped::Misdirected; osd = osd, kind = kind),
        }
        Ok(())
    }
}
