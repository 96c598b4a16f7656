//! Connections to other OSDs. Lossy: what was on the way when one ends is lost, and the core is told.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use spirula_denc::{EntityAddr, EntityType};
use spirula_monc::MonClient;
use spirula_msgr::{Config, Sender};
use spirula_proto::internal::heartbeat::Heartbeat;
use spirula_proto::{MsgType, RawMessage};
use tokio::task::AbortHandle;

use super::maps::Maps;
use super::state::Shared;
use crate::pg::message::PeerMessage;

/// Pause after a connection failed.
const PAUSE: Duration = Duration::from_millis(200);
/// Messages that wait for a connection at most: what is beyond is sent again by the core.
const QUEUE: usize = 4096;

/// One other OSD.
struct Link {
    addr: EntityAddr,
    sender: Option<Sender>,
    /// What waits for the connection.
    queue: Vec<RawMessage>,
    /// A task is connecting or receiving.
    running: bool,
    task: Option<AbortHandle>,
}

/// All of them.
pub(super) struct Links {
    config: Rc<Config>,
    mon: MonClient,
    links: HashMap<i32, Link>,
    /// OSDs to connect to.
    wanted: Vec<i32>,
}

impl Links {
    pub(super) fn new(config: Rc<Config>, mon: MonClient) -> Self {
        Self {
            config,
            mon,
            links: HashMap::new(),
            wanted: Vec::new(),
        }
    }

    /// Sends, connecting first where there is no connection. An OSD that is down gets nothing.
    pub(super) fn send(&mut self, osd: i32, msg: RawMessage, maps: &Maps) {
        let map = maps.map();
        let Some(addr) = map
            .cluster_addrs(osd)
            .filter(|_| map.is_up(osd))
            .and_then(|a| a.v2())
            .copied()
        else {
            return;
        };
        let link = self.links.entry(osd).or_insert_with(|| Link {
            addr,
            sender: None,
            queue: Vec::new(),
            running: false,
            task: None,
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
                }
                if !link.running {
                    link.running = true;
                    self.wanted.push(osd);
                }
            }
        }
    }

    /// Ends connections to OSDs that are down or moved, at once: what is queued is for nobody, and where the network loses
    /// everything it would never be written. Returns whose connections that were.
    pub(super) fn map_changed(&mut self, maps: &Maps) -> Vec<i32> {
        let map = maps.map();
        let mut ended = Vec::new();
        for (osd, link) in &mut self.links {
            let addr = map
                .cluster_addrs(*osd)
                .filter(|_| map.is_up(*osd))
                .and_then(|a| a.v2());
            if addr == Some(&link.addr) {
                continue;
            }
            link.queue.clear();
            link.sender = None;
            if let Some(t) = link.task.take() {
                t.abort();
                link.running = false;
                ended.push(*osd);
            }
        }
        ended
    }

    /// Ends all connections, and makes no new ones.
    pub(super) fn hang_up(&mut self) {
        self.wanted.clear();
        for link in self.links.values_mut() {
            link.queue.clear();
            // Whoever is sent to from now on waits for a connection that nobody makes.
            link.running = true;
            if let Some(s) = link.sender.take() {
                s.close();
            }
        }
    }

    /// Starts the tasks that sending has asked for.
    pub(super) fn start_wanted(&mut self, shell: &Shared) {
        for osd in self.wanted.drain(..) {
            let Some(link) = self.links.get_mut(&osd) else {
                continue;
            };
            let task = run(
                Rc::clone(shell),
                osd,
                link.addr,
                Rc::clone(&self.config),
                self.mon.clone(),
            );
            link.task = Some(tokio::task::spawn_local(task).abort_handle());
        }
    }

    fn connected(&mut self, osd: i32, addr: EntityAddr, sender: &Sender) -> bool {
        let Some(link) = self.links.get_mut(&osd).filter(|l| l.addr == addr) else {
            return false;
        };
        for msg in link.queue.drain(..) {
            sender.send(msg);
        }
        link.sender = Some(sender.clone());
        true
    }

    fn ended(&mut self, osd: i32) {
        if let Some(link) = self.links.get_mut(&osd) {
            link.sender = None;
            link.queue.clear();
            link.running = false;
            link.task = None;
        }
    }
}

/// Whether connecting failed because nobody listens.
pub(super) fn is_refused(e: &spirula_msgr::Error) -> bool {
    matches!(e, spirula_msgr::Error::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused)
}

async fn run(shell: Shared, osd: i32, addr: EntityAddr, config: Rc<Config>, mon: MonClient) {
    let mut login = mon.login_at(EntityType::OSD);
    match spirula_msgr::connect(addr, EntityType::OSD, &config, &mut login).await {
        Ok(mut connection) => {
            let sender = connection.sender().clone();
            if shell.with(|o| o.links.connected(osd, addr, &sender)) {
                while let Ok(incoming) = connection.recv().await {
                    if let Err(e) = shell.with(|o| receive(o, osd, &incoming)) {
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
    shell.with(|o| {
        o.links.ended(osd);
        // Another life of it, or another connection, tells anew.
        o.full.remove(&osd);
        o.drive(|core, cx| core.handle_peer_reset(osd, cx));
    });
}

fn receive(o: &mut super::state::Osd, osd: i32, msg: &RawMessage) -> spirula_proto::Result<()> {
    match msg.kind() {
        kind if PeerMessage::is_kind(kind) => o.peer_message(osd, msg),
        MsgType::HEARTBEAT => {
            let beat: Heartbeat = msg.decode()?;
            o.note_room(osd, &beat);
            Ok(())
        }
        kind => {
            tracing::debug!("osd.{osd} sent {kind}");
            Ok(())
        }
    }
}
