//! Between the core and the sockets.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use spirula_denc::UTime;
use spirula_msgr::{Acceptor, Connection, Sender};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Error;
use super::auth::MonAuth;
use crate::core::{Monitor, NewSession, Output, SessionId};
use crate::raft::Raft;

/// A session whose peer does not read is ended when so much waits for it.
const MAX_QUEUED: usize = 32 << 20;

/// The core with its senders.
pub(super) struct Shell {
    core: RefCell<Monitor>,
    senders: RefCell<HashMap<SessionId, Sender>>,
    next: Cell<SessionId>,
    raft: Raft,
    failed: UnboundedSender<Error>,
}

impl Shell {
    pub(super) fn new(core: Monitor, raft: Raft) -> (Rc<Self>, UnboundedReceiver<Error>) {
        let (failed, rx) = unbounded_channel();
        let shell = Self {
            core: RefCell::new(core),
            senders: RefCell::default(),
            next: Cell::new(1),
            raft,
            failed,
        };
        (Rc::new(shell), rx)
    }

    /// Lets the core handle something and does what it wants done.
    pub(super) fn with_core<T>(&self, f: impl FnOnce(&mut Monitor) -> T) -> T {
        let value = f(&mut self.core.borrow_mut());
        self.carry_out();
        value
    }

    /// Looks something up in the core.
    pub(super) fn peek<T>(&self, f: impl FnOnce(&Monitor) -> T) -> T {
        f(&self.core.borrow())
    }

    /// An option's value, parsed.
    pub(super) fn value<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.peek(|c| parse(c.values().get(name)))
    }

    /// Carries out the core's commands.
    pub(super) fn carry_out(&self) {
        let (outputs, failure) = {
            let mut core = self.core.borrow_mut();
            (core.take_outputs(), core.take_failure())
        };
        if let Some(e) = failure {
            // The main loop ends on it; a closed channel means that it has ended already.
            let _ = self.failed.send(e.into());
        }
        for output in outputs {
            match output {
                Output::Send(id, msg) => {
                    if let Some(s) = self.senders.borrow().get(&id) {
                        s.send(msg);
                        if s.queued_bytes() > MAX_QUEUED {
                            s.close();
                        }
                    }
                }
                Output::Close(id) => {
                    if let Some(s) = self.senders.borrow().get(&id) {
                        s.close();
                    }
                }
                Output::Propose(txn) => {
                    let (raft, failed) = (self.raft.clone(), self.failed.clone());
                    tokio::task::spawn_local(async move {
                        if let Err(e) = raft.propose(Arc::new(txn)).await {
                            let _ = failed.send(e.into());
                        }
                    });
                }
            }
        }
    }

    /// Opens a session: the core is told with its new id.
    fn open(&self, sender: Sender, tell: impl FnOnce(&mut Monitor, SessionId)) -> SessionId {
        let id = self.next.get();
        self.next.set(id + 1);
        self.senders.borrow_mut().insert(id, sender);
        self.with_core(|c| tell(c, id));
        id
    }

    /// Serves a session until its connection ends.
    pub(super) async fn session(
        &self,
        mut connection: Connection,
        tell: impl FnOnce(&mut Monitor, SessionId),
    ) {
        let id = self.open(connection.sender().clone(), tell);
        loop {
            match connection.recv().await {
                Ok(incoming) => self.with_core(|c| c.message(id, incoming, UTime::now())),
                Err(e) => {
                    tracing::debug!("session {id}: {e}");
                    break;
                }
            }
        }
        self.close(id);
    }

    fn close(&self, id: SessionId) {
        self.senders.borrow_mut().remove(&id);
        self.with_core(|c| c.close(id, UTime::now()));
    }
}

/// Takes one connection from its handshake to its end.
pub(super) async fn serve(shell: Rc<Shell>, acceptor: Rc<Acceptor>, stream: TcpStream, from: SocketAddr) {
    let auth = MonAuth::new(shell.clone());
    let (connection, info) = match acceptor.accept(stream, from, auth).await {
        Ok(done) => done,
        Err(e) => {
            tracing::debug!("{from}: {e}");
            return;
        }
    };
    let Some((name, global_id, caps, handshake)) = info else {
        return;
    };
    let peer = connection.peer();
    let addr = peer.addrs.0.first().copied().unwrap_or(peer.socket_addr);
    let new = NewSession {
        name,
        global_id,
        caps,
        addr,
        ip: peer.socket_addr.socket.map(|s| s.ip()),
        features: peer.features,
        handshake,
    };
    shell
        .session(connection, |c, id| c.open(id, new, UTime::now()))
        .await;
}
