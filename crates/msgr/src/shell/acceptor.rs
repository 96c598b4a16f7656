//! Accepting connections, with a limit on those that have not authenticated yet.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Error;
use super::auth::AcceptAuth;
use super::connection::{self, Connection};
use super::pending::{Pending, Source};
use crate::config::Config;

/// The default limit of unauthenticated connections: they take some 10 KiB each, and at most 100
/// KiB.
const PENDING_DEFAULT: usize = 256;

/// Runs the accepting side's handshakes. A limited number runs at once; one more displaces another,
/// chosen so that neither idle connections nor a flood from some address keep honest clients away:
/// see `Pending`.
pub struct Acceptor {
    config: Rc<Config>,
    most: usize,
    pending: RefCell<Pending>,
}

/// Removes a handshake from the list when it ends, however it ends.
struct Place<'a> {
    acceptor: &'a Acceptor,
    stage: Rc<Cell<u8>>,
    evicted: Rc<Notify>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.acceptor.pending.borrow_mut().leave(&self.evicted);
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

    /// The same acceptor with another limit on unauthenticated connections.
    #[must_use]
    pub fn with_pending_max(mut self, most: usize) -> Self {
        self.most = most.max(1);
        self
    }

    /// The number of handshakes under way.
    pub fn pending(&self) -> usize {
        self.pending.borrow().len()
    }

    /// Takes the connection `stream` from `from` through the handshake, authenticating with `auth`.
    ///
    /// # Errors
    /// Whatever keeps the session from standing; [`Error::HandshakeTimeout`] also for a connection
    /// that made room for newer ones.
    pub async fn accept<A: AcceptAuth>(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        auth: A,
    ) -> Result<(Connection, A::Info), Error> {
        let source = Source::of(from.ip());
        let place = self.enter(source);
        let handshake = connection::accept(stream, from, &self.config, auth, &place.stage);
        let done = tokio::select! {
            done = timeout(self.config.handshake_timeout, handshake) => done.map_err(|_| Error::HandshakeTimeout)?,
            () = place.evicted.notified() => Err(Error::HandshakeTimeout),
        };
        if done.is_ok() {
            self.pending.borrow_mut().proved(source);
        }
        done
    }

    fn enter(&self, source: Source) -> Place<'_> {
        let (stage, evicted) = (Rc::new(Cell::new(0)), Rc::new(Notify::new()));
        self.pending
            .borrow_mut()
            .enter(self.most, source, Rc::clone(&stage), Rc::clone(&evicted));
        Place {
            acceptor: self,
            stage,
            evicted,
        }
    }
}
