//! Between the core and the sockets.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spirula_denc::{EntityType, UTime};
use spirula_manager::{News, Request};
use spirula_monc::RefusalLog;
use spirula_msgr::{Acceptor, Connection, Sender};
use spirula_proto::RawMessage;
use spirula_proto::internal::quorum::{Forwarded, MonPeerReply, RoutedReply, SessionGone};
use tokio::net::TcpStream;

use super::auth::MonAuth;
use super::hub::{Event, Hub};
use super::module::{ModuleProcess, Surroundings};
use super::speech::Speech;
use super::{Sessions, peer};
use crate::core::{ModuleStart, Monitor, NewSession, Output, SessionId};
use crate::kv::Txn;
use crate::raft::{self, Raft};

/// A session whose peer does not read is ended when this much waits for it.
const MAX_QUEUED: usize = 32 << 20;
/// The most data of a client's message: it must fit into a message between monitors, with the
/// overhead of that.
const MAX_DATA: usize = 16 << 20;

/// How a session is reached.
enum Way {
    /// On its own connection.
    Direct(Sender),
    /// Through another monitor, which has this number for it.
    Through(Rc<Speech>, u64),
}

impl Way {
    fn send(&self, msg: RawMessage) {
        match self {
            Self::Direct(s) => {
                s.send(msg);
                if s.queued_bytes() > MAX_QUEUED {
                    s.close();
                }
            }
            Self::Through(s, session) => {
                let session = *session;
                let routed = RoutedReply {
                    session,
                    message: msg,
                };
                s.send(&MonPeerReply::Routed(routed), 0);
                s.close_above(MAX_QUEUED);
            }
        }
    }

    fn close(&self) {
        match self {
            Self::Direct(s) => s.close(),
            Self::Through(s, session) => {
                let session = *session;
                s.send(&MonPeerReply::CloseSession(SessionGone { session }), 0);
            }
        }
    }
}

/// The core with its senders.
pub(super) struct Shell {
    core: RefCell<Monitor>,
    ways: RefCell<HashMap<SessionId, Way>>,
    next: Cell<SessionId>,
    hub: Rc<Hub>,
    module: RefCell<Option<ModuleProcess>>,
    me: Weak<Self>,
}

impl Shell {
    pub(super) fn new(core: Monitor, hub: Rc<Hub>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            core: RefCell::new(core),
            ways: RefCell::default(),
            next: Cell::new(1),
            hub,
            module: RefCell::default(),
            me: me.clone(),
        })
    }

    /// Lets the core handle something, and carries out its commands.
    pub(super) fn with_core<T>(&self, f: impl FnOnce(&mut Monitor) -> T) -> T {
        let value = f(&mut self.core.borrow_mut());
        self.carry_out();
        value
    }

    /// The log of refused logins.
    pub(super) fn refusals(&self) -> RefusalLog {
        self.hub.refusals.clone()
    }

    /// Looks something up in the core.
    pub(super) fn peek<T>(&self, f: impl FnOnce(&Monitor) -> T) -> T {
        f(&self.core.borrow())
    }

    /// Carries out the core's commands.
    pub(super) fn carry_out(&self) {
        let (outputs, failure) = {
            let mut core = self.core.borrow_mut();
            (core.take_outputs(), core.take_failure())
        };
        if let Some(e) = failure {
            self.hub.report(Event::Failed(e.into()));
        }
        for output in outputs {
            match output {
                Output::Send(id, msg) => {
                    if let Some(way) = self.ways.borrow().get(&id) {
                        way.send(msg);
                    }
                }
                Output::Close(id) => self.end(id),
                Output::Propose(txn) => self.propose(txn),
                Output::Forward(id, message) => {
                    if let Some(client) = self.peek(|c| c.client(id)) {
                        self.hub.forward(Forwarded {
                            session: id,
                            client,
                            message,
                        });
                    }
                }
                Output::Confirm => self.confirm(),
                Output::AskIds(nonce) => self.hub.ask_ids(nonce),
                Output::AskTimes(round, names) => self.hub.ask_times(round, names),
                Output::StartModule(start) => self.start_module(*start),
                Output::AskModule(request) => self.ask_module(request),
                Output::StopModule => drop(self.module.take()),
            }
        }
    }

    fn start_module(&self, start: ModuleStart) {
        let around = self.peek(|c| Surroundings {
            monitors: self.hub.me().addrs.0.clone(),
            modes: super::modes(c.values()),
            silence: c.module_silence(),
        });
        // Never two of them.
        let before = self.module.borrow_mut().take();
        drop(before);
        *self.module.borrow_mut() = Some(ModuleProcess::start(self.me.clone(), start, around));
    }

    fn ask_module(&self, request: Request) {
        let refused = match &*self.module.borrow() {
            Some(module) => module.send(request),
            None => Err(request),
        };
        if let Err(Request::Ask(id, _)) = refused
            && let Some(shell) = self.me.upgrade()
        {
            // Not at once: the core's earlier commands come first.
            tokio::task::spawn_local(async move {
                let news = News::Reply(id, spirula_manager::not_ready());
                shell.with_core(|c| c.module_news(news, UTime::now()));
            });
        }
    }

    fn propose(&self, txn: Txn) {
        let (raft, hub) = (self.hub.raft().clone(), self.hub.clone());
        tokio::task::spawn_local(async move {
            match raft.propose(Arc::new(txn)).await {
                // The core hears of that from the hub.
                Ok(_) | Err(raft::Error::NotLeader) => {}
                Err(e) => hub.report(Event::Failed(e.into())),
            }
        });
    }

    fn confirm(&self) {
        let (raft, hub) = (self.hub.raft().clone(), self.hub.clone());
        let term = self.peek(|c| c.view.term);
        tokio::task::spawn_local(async move {
            match confirm(&raft, term).await {
                Ok(()) => hub.report(Event::Confirmed(term)),
                Err(raft::Error::NotLeader) => {}
                Err(e) => hub.report(Event::Failed(e.into())),
            }
        });
    }

    fn add(&self, way: Way) -> SessionId {
        let id = self.next.get();
        self.next.set(id + 1);
        self.ways.borrow_mut().insert(id, way);
        id
    }

    /// Serves a session until its connection ends; the core is told with its new id.
    pub(super) async fn session(
        &self,
        mut connection: Connection,
        tell: impl FnOnce(&mut Monitor, SessionId),
    ) {
        let id = self.add(Way::Direct(connection.sender().clone()));
        self.with_core(|c| tell(c, id));
        let sender = connection.sender().clone();
        loop {
            // A peer that does not read its answers may send no more requests.
            sender.room().await;
            match connection.recv().await {
                Ok(incoming) if incoming.data.len() > MAX_DATA => {
                    tracing::warn!("session {id}: {} bytes of data", incoming.data.len());
                    break;
                }
                Ok(mut incoming) => {
                    // It may have to wait for a quorum: not in the room that the monitors' own
                    // messages need.
                    if !incoming.data.is_empty() {
                        incoming.data = Bytes::copy_from_slice(&incoming.data.to_bytes()).into();
                    }
                    self.with_core(|c| c.message(id, incoming, UTime::now()));
                }
                Err(e) => {
                    tracing::debug!("session {id}: {e}");
                    break;
                }
            }
        }
        self.close(id);
        self.hub.client_gone(id);
    }

    /// Opens a session for a client of another monitor.
    pub(super) fn open_forwarded(
        &self,
        speech: Rc<Speech>,
        session: u64,
        new: NewSession,
        host: &str,
    ) -> SessionId {
        let id = self.add(Way::Through(speech, session));
        self.with_core(|c| c.open_forwarded(id, new, host, UTime::now()));
        id
    }

    /// Whether a session is there.
    pub(super) fn knows(&self, id: SessionId) -> bool {
        self.ways.borrow().contains_key(&id)
    }

    /// Closes the session of a client that is gone.
    pub(super) fn close(&self, id: SessionId) {
        if self.ways.borrow_mut().remove(&id).is_some() {
            self.with_core(|c| c.close(id, UTime::now()));
        }
    }

    /// Forgets a client whose monitor does not answer; of the client itself nothing is known.
    pub(super) fn forget(&self, id: SessionId) {
        self.ways.borrow_mut().remove(&id);
        self.with_core(|c| c.forget(id));
    }

    /// Forgets the clients of other monitors.
    pub(super) fn forget_forwarded(&self) {
        let direct = |_: &SessionId, w: &mut Way| matches!(w, Way::Direct(_));
        self.ways.borrow_mut().retain(direct);
    }

    /// Ends a client's connection.
    pub(super) fn end(&self, id: SessionId) {
        if let Some(way) = self.ways.borrow().get(&id) {
            way.close();
        }
    }
}

/// Takes one connection from its handshake to its end.
pub(super) async fn serve(
    hub: Rc<Hub>,
    acceptor: Rc<Acceptor>,
    (stream, from): (TcpStream, SocketAddr),
    sessions: Sessions,
) {
    let auth = MonAuth::new(hub.clone(), from);
    let (mut connection, info) = match acceptor.accept(stream, from, auth).await {
        Ok(done) => done,
        Err(e) => {
            tracing::debug!("{from}: {e}");
            return;
        }
    };
    let Some((login, handshake)) = info else {
        return;
    };
    if login.is_monitor {
        return peer::serve(hub, connection, login.name.id).await;
    }
    let Some(shell) = hub.shell().cloned() else {
        return;
    };
    let guests = match login.name.kind {
        EntityType::CLIENT => &sessions.clients,
        _ => &sessions.daemons,
    };
    let Some(_seat) = guests.admit(&login.name, &mut connection) else {
        return;
    };
    let peer = connection.peer();
    let addr = peer.addrs.0.first().copied().unwrap_or(peer.socket_addr);
    let new = NewSession {
        name: login.name,
        global_id: login.global_id,
        caps: login.caps,
        addr,
        ip: peer.socket_addr.socket.map(|s| s.ip()),
        features: peer.features,
        handshake,
    };
    shell
        .session(connection, |c, id| c.open(id, new, UTime::now()))
        .await;
}

/// Finds out whether the node leads, in this term, until it is certain.
///
/// # Errors
/// Where it leads no more, and where the log has failed.
async fn confirm(raft: &Raft, term: u64) -> Result<(), raft::Error> {
    const AGAIN: Duration = Duration::from_millis(100);
    loop {
        match raft.confirm().await {
            Err(raft::Error::NotLeader) => {}
            other => return other,
        }
        let view = raft.view();
        if !view.leads || view.term != term {
            return Err(raft::Error::NotLeader);
        }
        tokio::time::sleep(AGAIN).await;
    }
}
