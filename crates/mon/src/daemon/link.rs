//! The connection to one other monitor, dialled again whenever it breaks.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use spirula_cephx::{AuthName, ConnectionMode, CryptoKey, Env, Greeting, method};
use spirula_denc::{EntityAddr, EntityType, UTime};
use spirula_errno::{EINVAL, Errno};
use spirula_msgr::shell::Negotiated;
use spirula_msgr::{AuthStart, ConnectAuth, Connection, SessionKeys};
use spirula_proto::MsgType;
use spirula_proto::internal::quorum::{MonPeer, MonPeerReply, MonWelcome};
use tokio::sync::oneshot;

use super::hub::Hub;
use super::peer::SILENCE;
use super::speech::Speech;

/// The pause before a monitor that does not answer is dialled again; doubles up to [`REDIAL_MAX`].
const REDIAL_MIN: Duration = Duration::from_millis(50);
const REDIAL_MAX: Duration = Duration::from_millis(500);
/// How often a monitor is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// The connection is ended when this much waits for the other monitor: it does not read.
const MAX_QUEUED: usize = 64 << 20;
/// The most requests of the log that wait for an answer: openraft has given older ones up by then.
const MAX_WAITING: usize = 1024;

/// Our side of the connection to a monitor.
pub(super) struct Link {
    /// The address of the monitor.
    pub(super) addr: SocketAddr,
    speech: RefCell<Option<Rc<Speech>>>,
    waiting: RefCell<HashMap<u64, oneshot::Sender<MonPeerReply>>>,
    next: Cell<u64>,
    /// The monitor's welcome on this connection.
    pub(super) welcome: RefCell<Option<MonWelcome>>,
}

impl Link {
    /// Starts to dial `addr`; ends when the link is dropped.
    pub(super) fn start(hub: &Rc<Hub>, addr: SocketAddr) -> Rc<Self> {
        let link = Rc::new(Self {
            addr,
            speech: RefCell::default(),
            waiting: RefCell::default(),
            next: Cell::new(1),
            welcome: RefCell::default(),
        });
        tokio::task::spawn_local(keep(Rc::downgrade(hub), Rc::downgrade(&link)));
        link
    }

    /// Sends a message that has no answer.
    pub(super) fn tell(&self, msg: &MonPeer) {
        if let Some(s) = self.speech.borrow().as_ref() {
            s.send(msg, 0);
            s.close_above(MAX_QUEUED);
        }
    }

    /// Sends a request; without a connection the answer's sender is dropped.
    pub(super) fn ask(&self, msg: &MonPeer, answer: oneshot::Sender<MonPeerReply>) {
        let Some(speech) = self.speech.borrow().clone() else {
            return;
        };
        let tid = self.next.replace(self.next.get() + 1);
        let mut waiting = self.waiting.borrow_mut();
        // openraft gives up long before an answer that never comes.
        waiting.retain(|_, a| !a.is_closed());
        if waiting.len() < MAX_WAITING {
            waiting.insert(tid, answer);
            speech.send(msg, tid);
        }
    }

    fn closed(&self) {
        self.speech.take();
        self.waiting.borrow_mut().clear();
        self.welcome.take();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(s) = self.speech.take() {
            s.close();
        }
    }
}

/// Dials and serves until nobody wants the link any more.
async fn keep(hub: Weak<Hub>, link: Weak<Link>) {
    let mut pause = REDIAL_MIN;
    loop {
        let (Some(h), Some(l)) = (hub.upgrade(), link.upgrade()) else {
            return;
        };
        let target = EntityAddr::v2(l.addr, 0);
        drop(l);
        let mut login = PeerLogin::new(h.name(), h.shared_key());
        match spirula_msgr::connect(target, EntityType::MON, h.dialling(), &mut login).await {
            Ok(connection) => {
                pause = REDIAL_MIN;
                drop(h);
                serve(&hub, &link, connection).await;
            }
            Err(e) => tracing::debug!("monitor at {target}: {e}"),
        }
        if let Some(l) = link.upgrade() {
            l.closed();
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(REDIAL_MAX);
    }
}

async fn serve(hub: &Weak<Hub>, link: &Weak<Link>, mut connection: Connection) {
    let speech = Rc::new(Speech::new(connection.sender().clone()));
    match (hub.upgrade(), link.upgrade()) {
        (Some(h), Some(l)) => {
            speech.send(&h.hello(), 0);
            *l.speech.borrow_mut() = Some(speech.clone());
        }
        _ => return,
    }
    let mut check = tokio::time::interval(KEEPALIVE);
    loop {
        let msg = tokio::select! {
            received = connection.recv() => match received {
                Ok(msg) => msg,
                Err(e) => {
                    tracing::debug!("connection to a monitor: {e}");
                    return;
                }
            },
            _ = check.tick() => {
                if connection.last_heard().elapsed() > SILENCE {
                    tracing::debug!("connection to a monitor: silent");
                    return;
                }
                connection.sender().keepalive();
                continue;
            }
        };
        let (Some(h), Some(l)) = (hub.upgrade(), link.upgrade()) else {
            return;
        };
        if msg.kind() != MsgType::MON_PEER_REPLY {
            continue;
        }
        let reply = match speech.read::<MonPeerReply>(&msg) {
            Ok(reply) => reply,
            Err(e) => {
                tracing::warn!("monitor at {}: {e}", l.addr);
                return;
            }
        };
        match reply {
            MonPeerReply::Welcome(w) => {
                if l.welcome.replace(Some(w)).is_none() {
                    h.linked(&l);
                }
            }
            MonPeerReply::Routed(r) => h.routed(r),
            MonPeerReply::CloseSession(c) => h.close_client(c.session),
            answer => {
                let waiting = l.waiting.borrow_mut().remove(&msg.header.tid);
                if let Some(w) = waiting {
                    // openraft may have given up meanwhile.
                    let _ = w.send(answer);
                }
            }
        }
    }
}

/// A monitor's login at another one, with the key that all of them share.
struct PeerLogin {
    name: AuthName,
    key: Option<CryptoKey>,
    greeting: Option<Greeting>,
}

impl PeerLogin {
    fn new(name: &str, key: Option<CryptoKey>) -> Self {
        Self {
            name: AuthName::new(EntityType::MON, name),
            key,
            greeting: None,
        }
    }
}

impl ConnectAuth for PeerLogin {
    fn start(&mut self) -> Result<AuthStart, Errno> {
        let key = self.key.clone().ok_or(EINVAL)?;
        let greeting = Greeting::new(&self.name, key, &Env::system(UTime::now())).map_err(|e| e.errno())?;
        let payload = greeting.initial().into();
        self.greeting = Some(greeting);
        Ok(AuthStart {
            method: method::CEPHX,
            payload,
        })
    }

    fn more(&mut self, payload: Bytes) -> Result<Bytes, Errno> {
        let greeting = self.greeting.as_mut().ok_or(EINVAL)?;
        Ok(greeting.handle_more(&payload).map_err(|e| e.errno())?.into())
    }

    fn done(&mut self, result: Negotiated) -> Result<SessionKeys, Errno> {
        let greeting = self.greeting.take().ok_or(EINVAL)?;
        let mode = ConnectionMode::from_wire(result.con_mode.0).ok_or(EINVAL)?;
        let (session_key, secret) = greeting
            .handle_done(mode, &result.payload)
            .map_err(|e| e.errno())?;
        Ok(SessionKeys {
            session_key: session_key.secret().to_vec().into(),
            connection_secret: secret.to_vec().into(),
        })
    }
}
