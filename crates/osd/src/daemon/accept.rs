//! Incoming connections: clients and other OSDs.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spirula_denc::{EntityAddr, EntityName, EntityType};
use spirula_invariant::dropped;
use spirula_maps::OsdId;
use spirula_monc::{RefusalLog, Seat, TicketAuth};
use spirula_msgr::{Acceptor, Connection, Sender};
use spirula_proto::osd::{MOsdBackoff, MOsdOp};
use spirula_proto::{MsgType, RawMessage};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::auth::{CapAccess, PeerInfo, Secrets};
use super::dropped::Dropped;
use super::heap::LARGE;
use super::shell::Shared;
use super::state::Osd;
use crate::pg::account::{Held, Party};
use crate::pg::link::LinkKind;
use crate::pg::op::{COPIES, Client, copied_bytes};

/// The first and the longest pause between checks whether a client that holds too much holds less:
/// it may have thousands of connections.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(80)];

/// The purpose of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Clients' requests.
    Clients,
    /// Other OSDs' messages about PGs.
    Peers,
    /// Other OSDs' heartbeats.
    Heartbeats,
}

/// Accepts connections until the task is dropped.
pub(super) async fn listen(
    shell: Shared,
    (listener, purpose): (TcpListener, Purpose),
    acceptor: Rc<Acceptor>,
    (secrets, refusals): (Secrets, RefusalLog),
) {
    // Heartbeat connections end with the listener; the others only when everything queued on them
    // is sent.
    let mut beats = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let task = serve(
                    Rc::clone(&shell),
                    Rc::clone(&acceptor),
                    (stream, from),
                    purpose,
                    TicketAuth::new(secrets.clone(), from, refusals.clone()),
                );
                match purpose {
                    Purpose::Clients | Purpose::Peers => drop(tokio::task::spawn_local(task)),
                    Purpose::Heartbeats => {
                        while beats.try_join_next().is_some() {}
                        beats.spawn_local(task);
                    }
                }
            }
            Err(e) => {
                tracing::warn!("accept: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(
    shell: Shared,
    acceptor: Rc<Acceptor>,
    (stream, from): (TcpStream, SocketAddr),
    purpose: Purpose,
    auth: TicketAuth<Secrets>,
) {
    match acceptor.accept(stream, from, auth).await {
        Ok((connection, Some(accepted))) => {
            let info = PeerInfo::from(*accepted);
            match (info.osd(), purpose) {
                (_, Purpose::Clients) => serve_client(&shell, connection, info).await,
                (Some(osd), Purpose::Peers) => serve_osd(&shell, connection, osd, info).await,
                (Some(osd), Purpose::Heartbeats) => super::beat_links::serve(&shell, connection, osd).await,
                (None, _) => tracing::info!("{from}: {} is refused where only OSDs are taken", info.name),
            }
        }
        Ok((_, None)) => {}
        Err(e) => tracing::debug!("{from}: {e}"),
    }
}

/// A connected client, with its capabilities tied to the connection.
fn client(connection: &Connection, info: PeerInfo, conn: u64, party: Arc<Party>) -> Arc<Client> {
    let peer = connection.peer();
    let num = i64::try_from(info.global_id).unwrap_or(i64::MAX);
    // As the client names itself, with the nonce that it has in blocklists, locks and watches.
    // Clients leave the type open.
    let named = peer.addrs.0.iter().find(|a| !a.is_blank());
    let addr = named.copied().unwrap_or(peer.socket_addr);
    let ip = peer.socket_addr.socket.map(|s| s.ip());
    let access = CapAccess {
        caps: info.caps,
        addr: ip,
    };
    let name = EntityName::new(info.name.kind, num);
    Arc::new(Client {
        entity: info.name.to_string(),
        held: Arc::new(Held::of(Arc::clone(&party))),
        party,
        seen: EntityAddr {
            socket: ip.map(|ip| SocketAddr::new(ip, 0)),
            ..addr
        },
        ..Client::new(conn, name, addr, Arc::new(access))
    })
}

fn open(shell: &Shared, connection: &Connection, info: PeerInfo, seat: &Seat) -> (u64, Arc<Held>) {
    let sender = connection.sender().clone();
    shell.with(|o| {
        let (entity, room) = (info.name.to_string(), (seat.unread(), seat.arrivals()));
        let party = o.clients.party(&entity, room, &o.io.reads.totals);
        let mut held = Arc::default();
        let conn = o.client_opened(sender, |conn| {
            let client = client(connection, info, conn, party);
            held = Arc::clone(&client.held);
            client
        });
        (conn, held)
    })
}

/// A client whose requests hold too much for this long is hung up on: it may have gone, which does
/// not show before everything that it has sent is read.
const PATIENCE: Duration = Duration::from_secs(10);
/// After every this many messages, a client with as many requests under way is checked for still
/// being there to be answered: much of what it has sent may still be on the way.
const LOOK_EVERY: usize = 64;

/// Waits until a client's requests hold little enough for the client to have its `n`-th. Returns
/// whether the client is still there, as far as that can be told.
async fn may_have_more(held: &Held, connection: &Connection, n: usize) -> bool {
    let [mut pause, longest] = LOOK_AGAIN;
    let began = Instant::now();
    if n.is_multiple_of(LOOK_EVERY) && held.requests() >= LOOK_EVERY && connection.is_hung_up().await {
        return false;
    }
    while held.is_too_much() {
        if began.elapsed() > PATIENCE || connection.is_hung_up().await {
            return false;
        }
        tokio::time::sleep(pause).await;
        pause = longest.min(pause * 2);
    }
    true
}

/// Waits until a request whose values are copied may begin: the memory that such values take in all
/// requests is limited. Returns whether the request's client is still there.
async fn may_copy(held: &Held, connection: &Connection, msg: &RawMessage) -> bool {
    if msg.kind() != MsgType::OSD_OP || msg.data.len() < LARGE {
        return true;
    }
    // A message that does not decode is refused later.
    let bytes = msg.decode::<MOsdOp>().map_or(0, |m| copied_bytes(&m.ops));
    while bytes >= LARGE && !held.may_copy(bytes * COPIES) {
        if connection.is_hung_up().await {
            return false;
        }
        tokio::time::sleep(LOOK_AGAIN[0]).await;
    }
    true
}

impl Osd {
    /// Notes a client that has connected; returns the connection's number, from which `client`
    /// makes the client.
    pub fn client_opened(&mut self, sender: Sender, client: impl FnOnce(u64) -> Arc<Client>) -> u64 {
        self.clients.opened(sender, client)
    }

    /// Notes another OSD that has connected; returns the connection's number.
    pub fn osd_opened(&mut self, osd: OsdId, sender: Sender) -> u64 {
        let conn = self.peers.opened(osd, sender);
        self.spacing().tell();
        conn
    }

    /// Notes that the connection of another OSD has ended.
    pub fn osd_closed(&mut self, osd: OsdId, conn: u64) {
        self.peers.closed(osd, conn);
    }
}

async fn serve_client(shell: &Shared, mut connection: Connection, info: PeerInfo) {
    let name = info.name.clone();
    let Some(seat) = shell.guests.admit(&name, &mut connection) else {
        return; // There are too many, which was said.
    };
    let (conn, held) = open(shell, &connection, info, &seat);
    let sender = connection.sender().clone();
    for n in 0.. {
        // A client that does not read the answers to its requests may send no more of them.
        sender.room().await;
        let Ok(incoming) = connection.recv().await else {
            break;
        };
        // Before it is decoded: of thousands of connections each may have a message.
        if !may_have_more(&held, &connection, n).await {
            tracing::debug!("{name}: gone, or with more requests than it may have for long");
            break;
        }
        if !may_copy(&held, &connection, &incoming).await {
            break;
        }
        if let Err(e) = client_message(shell, conn, &sender, &incoming) {
            tracing::info!("{name}: {e}");
            break;
        }
    }
    shell.with(|o| o.client_closed(conn));
}

fn client_message(shell: &Shared, conn: u64, sender: &Sender, msg: &RawMessage) -> spirula_proto::Result<()> {
    match msg.kind() {
        MsgType::OSD_OP => shell.with(|o| o.client_op(conn, msg)),
        MsgType::COMMAND => super::commands::tell(shell, conn, sender.clone(), msg),
        // Backoffs are never sent here, so these can only be stray acknowledgements.
        MsgType::OSD_BACKOFF => msg.decode::<MOsdBackoff>().map(drop),
        MsgType::PING => Ok(()),
        kind => {
            shell.with(|o| dropped!(o.perf.dropped, Dropped::Misdirected; connection = conn, kind = kind));
            Ok(())
        }
    }
}

async fn serve_osd(shell: &Shared, mut connection: Connection, osd: OsdId, info: PeerInfo) {
    let sender = connection.sender().clone();
    debug_assert_eq!(info.name.kind, EntityType::OSD);
    let mut conn = None;
    while let Ok(incoming) = connection.recv().await {
        // No answer goes to a connection for data that comes ahead of changes.
        if conn.is_none() && LinkKind::of(incoming.kind()) == LinkKind::Ordered {
            conn = Some(shell.with(|o| o.osd_opened(osd, sender.clone())));
        }
        // The store goes on without this OSD, so that they do not wait for each other.
        let large = incoming.front.len();
        while large >= LARGE && !shell.with(|o| o.io.writes.takes_large(large)) {
            tokio::time::sleep(LOOK_AGAIN[0]).await;
        }
        if let Err(e) = shell.with(|o| o.osd_message(osd, &incoming)) {
            tracing::warn!("osd.{osd}: {e}");
            break;
        }
    }
    if let Some(conn) = conn {
        shell.with(|o| o.osd_closed(osd, conn));
    }
}
