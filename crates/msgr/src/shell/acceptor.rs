//! Accepting connections under a bound on those that have not authenticated yet.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Error;
use super::auth::AcceptAuth;
use super::connection::{self, Connection};
use crate::config::Config;

/// Unauthenticated connections by default: with 100 KiB at most for each, 12 MiB.
const PENDING_DEFAULT: usize = 128;

/// Runs the accepting side's handshakes. At most so many run at once; one more pushes the oldest out, so that
/// connections that only sit there cannot keep honest clients away.
pub struct Acceptor {
    config: Rc<Config>,
    most: usize,
    pending: RefCell<VecDeque<Rc<Notify>>>,
}

/// Takes a handshake off the list when it ends, however it ends.
struct Place<'a> {
    acceptor: &'a Acceptor,
    evicted: Rc<Notify>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.acceptor
            .pending
            .borrow_mut()
            .retain(|p| !Rc::ptr_eq(p, &self.evicted));
    }
}

impl Acceptor {
    /// An acceptor for connections to the addresses in `config`.
    pub fn new(config: Rc<Config>) -> Self {
        Self {
            config,
            most: PENDING_DEFAULT,
            pending: RefCell::default(),
        }
    }

    /// The same with another bound on unauthenticated connections.
    #[must_use]
    pub fn with_pending_max(mut self, most: usize) -> Self {
        self.most = most.max(1);
        self
    }

    /// Handshakes under way.
    pub fn pending(&self) -> usize {
        self.pending.borrow().len()
    }

    /// Takes the connection `stream` from `from` through the handshake, authenticating with `auth`.
    ///
    /// # Errors
    /// Whatever keeps the session from standing; [`Error::HandshakeTimeout`] also for a connection that made
    /// room for newer ones.
    pub async fn accept<A: AcceptAuth>(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        auth: A,
    ) -> Result<(Connection, A::Info), Error> {
        let place = self.enter();
        let handshake = connection::accept(stream, from, &self.config, auth);
        tokio::select! {
            done = timeout(self.config.handshake_timeout, handshake) => done.map_err(|_| Error::HandshakeTimeout)?,
            () = place.evicted.notified() => Err(Error::HandshakeTimeout),
        }
    }

    fn enter(&self) -> Place<'_> {
        let evicted = Rc::new(Notify::new());
        let mut pending = self.pending.borrow_mut();
        while pending.len() >= self.most {
            match pending.pop_front() {
                Some(oldest) => oldest.notify_one(),
                None => break,
            }
        }
        pending.push_back(Rc::clone(&evicted));
        Place {
            acceptor: self,
            evicted,
        }
    }
}
