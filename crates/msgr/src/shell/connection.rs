//! An established connection, and how both sides get one.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spirula_buf::Pool;
use spirula_denc::{EntityAddr, EntityName, EntityType};
use spirula_proto::RawMessage;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until, timeout};

use super::auth::{AcceptAuth, ConnectAuth, Negotiated};
use super::sender::{Sender, Urgent};
use super::socket::{Moved, flush, hang_up, read_into};
use super::{Error, writer};
use crate::config::{ConMode, Config, Peer};
use crate::frame::MOVED_AT_ONCE;
use crate::modes::{InMode, ModeLists};
use crate::recent::{Trail, What, Why};
use crate::session::{Handshake, Inbound, InboundEvent, SessionError, Step};

/// How often a slow message is checked.
const LOOK: Duration = Duration::from_millis(250);

/// Counts the connections of this process, for the ident frames.
static GLOBAL_SEQ: AtomicU64 = AtomicU64::new(1);

pub(super) fn next_global_seq() -> u64 {
    GLOBAL_SEQ.fetch_add(1, Ordering::Relaxed)
}

/// An established connection: the receiving side, driven by its owner. Dropping it ends the
/// connection at once; [`Sender::close`] ends it in order.
pub struct Connection {
    peer: Peer,
    stream: Rc<TcpStream>,
    inbound: Inbound,
    in_seq: Rc<Cell<u64>>,
    sender: Sender,
    pool: Pool,
    last_heard: Instant,
    last_keepalive_ack: Option<Instant>,
    idle_timeout: Duration,
    stall_timeout: Duration,
    min_rate: u64,
    /// Bytes received since the session was established.
    received: u64,
    /// Bytes received since other tasks of the thread had it.
    moved: Moved,
    /// When the large message under way began, and the bytes received by then.
    large: Option<(Instant, u64)>,
    /// Fires now and then to check for silence; exact to within the time-out itself.
    idle_tick: Pin<Box<Sleep>>,
    /// Follows changes of the allowed modes.
    _in_mode: Rc<HangUp>,
    trail: Trail,
}

/// Hangs up if the connection's mode is not allowed any more.
struct HangUp {
    own: EntityType,
    peer: EntityType,
    mode: ConMode,
    sender: Sender,
}

impl InMode for HangUp {
    fn end_unless(&self, lists: &ModeLists) {
        if !lists.between(self.own, self.peer).contains(&self.mode) {
            tracing::info!(
                "a connection with a {} is in {} mode, which is not allowed any more",
                self.peer.name(),
                self.mode
            );
            self.sender.close();
        }
    }
}

impl Connection {
    /// Starts the writing task. Must be called inside a `LocalSet` or `LocalRuntime`.
    pub(super) fn start(
        stream: TcpStream,
        handshake: Handshake,
        config: &Config,
        mut trail: Trail,
    ) -> Result<Self, Error> {
        let (peer, inbound, outbound) = handshake.finish()?;
        trail.peer = peer.name;
        trail.note(What::Established(peer.con_mode));
        let stream = Rc::new(stream);
        let in_seq = Rc::new(Cell::new(0));
        let sender = Sender::new();
        let now = Instant::now();
        let task = writer::run(
            Rc::clone(&stream),
            outbound,
            Arc::clone(&sender.shared),
            Rc::clone(&in_seq),
            config.send_timeout,
        );
        tokio::task::spawn_local(task);
        let in_mode = Rc::new(HangUp {
            own: config.name.kind,
            peer: peer.kind(),
            mode: peer.con_mode,
            sender: sender.clone(),
        });
        let followed: Rc<dyn InMode> = in_mode.clone();
        config.modes.follow(Rc::downgrade(&followed));
        Ok(Self {
            _in_mode: in_mode,
            trail,
            peer,
            stream,
            inbound,
            in_seq,
            sender,
            pool: config.pool.clone(),
            last_heard: now,
            last_keepalive_ack: None,
            idle_timeout: config.idle_timeout,
            stall_timeout: config.stall_timeout,
            min_rate: config.min_rate,
            received: 0,
            moved: Moved::default(),
            large: None,
            idle_tick: Box::pin(sleep_until((now + config.idle_timeout).into())),
        })
    }

    /// The other side.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// A handle to send with.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Receives payloads into `pool` from now on; for owners whose pool depends on the peer that
    /// the handshake found.
    pub fn set_pool(&mut self, pool: Pool) {
        self.inbound.decoder().set_pool(pool.clone());
        self.pool = pool;
    }

    /// Whether either side has ended the connection; for owners that do not read at the moment.
    pub async fn is_hung_up(&self) -> bool {
        if self.sender.is_closed() {
            return true;
        }
        let both = Interest::READABLE | Interest::WRITABLE;
        match timeout(Duration::ZERO, self.stream.ready(both)).await {
            Ok(Ok(ready)) => ready.is_read_closed() || ready.is_write_closed(),
            Ok(Err(_)) => true,
            // Neither readable nor writable.
            Err(_) => false,
        }
    }

    /// When the last bytes came; within [`Connection::recv`]'s loop the time the message was read.
    pub fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// When the peer last answered a [`Sender::keepalive`].
    pub fn last_keepalive_ack(&self) -> Option<Instant> {
        self.last_keepalive_ack
    }

    /// The next message that has been read already, without touching the socket. `None` if another
    /// read is needed, which [`Connection::recv`] does. For owners that handle the available
    /// messages as one batch.
    ///
    /// # Errors
    /// As [`Connection::recv`].
    pub fn try_recv(&mut self) -> Result<Option<RawMessage>, Error> {
        match self.step() {
            Ok(InboundEvent::Message(m)) => Ok(Some(m)),
            Ok(_) => Ok(None),
            Err(e) => {
                self.trail.end(Why::from(&e));
                Err(e)
            }
        }
    }

    /// The next message. Keepalives are answered on the way. Safe to cancel.
    ///
    /// While the pool has no room for the next message nothing is read from the socket.
    ///
    /// # Errors
    /// However the connection ends; no call succeeds after an error.
    pub async fn recv(&mut self) -> Result<RawMessage, Error> {
        let next = self.receive().await;
        if let Err(e) = &next {
            self.trail.end(Why::from(e));
        }
        next
    }

    async fn receive(&mut self) -> Result<RawMessage, Error> {
        loop {
            // Before room is taken: other connections may wait for it.
            self.moved.pause().await;
            match self.step()? {
                InboundEvent::Message(m) => return Ok(m),
                InboundEvent::NeedRoom(n) => poll_fn(|cx| self.pool.poll_room(n, cx)).await,
                _ => self.read().await?,
            }
        }
    }

    /// Handles events until one is a message or none is left.
    fn step(&mut self) -> Result<InboundEvent, Error> {
        loop {
            let event = self.inbound.poll().inspect_err(|_| self.sender.shared.fail())?;
            match event {
                InboundEvent::Message(ref m) => {
                    self.in_seq.set(self.inbound.seq());
                    self.large = None;
                    if m.data.len() >= MOVED_AT_ONCE {
                        // Whoever waits for room goes first, lest this connection take the room
                        // that its own last message gives back time and again.
                        self.moved.end_turn();
                    }
                }
                InboundEvent::Repeated => {
                    self.large = None;
                    self.trail.note(What::Repeated(1));
                    continue;
                }
                InboundEvent::Keepalive(stamp) => {
                    self.sender.shared.urgent(Urgent::KeepaliveAck(stamp));
                    continue;
                }
                InboundEvent::KeepaliveAck(_) => {
                    self.last_keepalive_ack = Some(self.last_heard);
                    continue;
                }
                InboundEvent::NeedBytes | InboundEvent::NeedRoom(_) => {
                    if let Some(seq) = self.inbound.take_ack() {
                        self.sender.shared.urgent(Urgent::Ack(seq));
                    }
                }
            }
            return Ok(event);
        }
    }

    /// Reads once, waiting until there is something.
    async fn read(&mut self) -> Result<(), Error> {
        // A peer that sends without end must not starve the other tasks of the thread.
        tokio::task::coop::consume_budget().await;
        loop {
            if self.sender.shared.is_aborted() {
                return Err(Error::Closed);
            }
            match read_into(&self.stream, self.inbound.decoder())? {
                Some(0) => return Err(Error::Closed),
                Some(n) => {
                    self.last_heard = Instant::now();
                    self.received += n as u64;
                    self.moved.add(n);
                    return Ok(());
                }
                None => self.readable().await?,
            }
        }
    }

    async fn readable(&mut self) -> Result<(), Error> {
        let (now, received) = (Instant::now(), self.received);
        let holds_room = self.inbound.decoder().holds_room();
        self.large = holds_room.then(|| self.large.unwrap_or((now, received)));
        let mut look_at = self.large.map_or(now, |(since, _)| since + self.stall_timeout);
        loop {
            tokio::select! {
                biased;
                ready = self.stream.readable() => return Ok(ready?),
                () = self.sender.shared.aborted() => return Err(Error::Closed),
                () = self.idle_tick.as_mut() => {
                    if self.last_heard.elapsed() >= self.idle_timeout {
                        return Err(Error::Idle);
                    }
                    self.inbound.decoder().shrink();
                    self.idle_tick.as_mut().reset((self.last_heard + self.idle_timeout).into());
                }
                () = sleep_until(look_at.into()), if holds_room => {
                    // Otherwise a few peers that send hardly anything would keep all others out.
                    if self.is_too_slow() && self.pool.is_wanted() {
                        return Err(Error::Stalled);
                    }
                    look_at = Instant::now() + LOOK;
                }
            }
        }
    }

    /// Whether the large message under way comes at less than the least rate, or nothing of it has
    /// come for a while.
    fn is_too_slow(&self) -> bool {
        self.large.is_some_and(|(since, before)| {
            let (seconds, bytes) = (since.elapsed().as_secs_f64(), self.received - before);
            self.last_heard.elapsed() >= self.stall_timeout || (bytes as f64) < seconds * self.min_rate as f64
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.trail.end(Why::GivenUp);
        // With a message half written nothing sensible can follow: end both directions at once.
        if !self.sender.is_closed() || self.sender.shared.is_aborted() {
            self.sender.close();
            self.sender.shared.fail();
            hang_up(&self.stream);
        }
    }
}

/// Dials `target`, where an entity of type `peer` is expected, and authenticates with `auth`.
///
/// # Errors
/// Whatever keeps the session from standing, [`Error::HandshakeTimeout`] included.
pub async fn connect<A: ConnectAuth>(
    target: EntityAddr,
    peer: EntityType,
    config: &Rc<Config>,
    auth: &mut A,
) -> Result<Connection, Error> {
    let socket = target.socket.ok_or(SessionError::WrongAddress)?;
    let (deadline, number) = (config.handshake_timeout, next_global_seq());
    let trail = || Trail::new(&config.recent, number, EntityName::new(peer, -1));
    trail().note(What::Dialled);
    let run = async {
        let stream = TcpStream::connect(socket).await?;
        stream.set_nodelay(true)?;
        let mut hs = Handshake::connector(Rc::clone(config), target, peer, number);
        let result = drive_connector(&stream, &mut hs, auth).await;
        finish(stream, hs, result, config, trail()).await
    };
    let made = timeout(deadline, run)
        .await
        .unwrap_or(Err(Error::HandshakeTimeout));
    made.inspect_err(|e| trail().note(What::Failed(Why::from(e))))
}

/// The accepting side's handshake; `stage` follows its stage.
pub(super) async fn accept<A: AcceptAuth>(
    stream: TcpStream,
    from: SocketAddr,
    config: &Rc<Config>,
    mut auth: A,
    stage: &Cell<u8>,
) -> Result<(Connection, A::Info), Error> {
    stream.set_nodelay(true)?;
    let number = next_global_seq();
    // The handshake shows the peer's name.
    let stranger = EntityName::new(EntityType::default(), -1);
    let trail = Trail::new(&config.recent, number, stranger);
    let mut hs = Handshake::acceptor(Rc::clone(config), EntityAddr::v2(from, 0), number);
    let result = drive_acceptor(&stream, &mut hs, &mut auth, stage).await;
    if let Err(e) = &result {
        trail.note(What::Failed(Why::from(e)));
    }
    let connection = finish(stream, hs, result, config, trail).await?;
    Ok((connection, auth.into_info()))
}

async fn finish(
    stream: TcpStream,
    mut hs: Handshake,
    result: Result<(), Error>,
    config: &Config,
    trail: Trail,
) -> Result<Connection, Error> {
    if let Err(e) = result {
        // Pending bytes may tell the peer why; there is no point in waiting until the peer reads
        // them.
        let _ = flush_handshake(&stream, &mut hs, config.handshake_timeout).await;
        return Err(e);
    }
    // An acceptor's last frame, which the client waits for.
    flush_handshake(&stream, &mut hs, config.handshake_timeout).await?;
    Connection::start(stream, hs, config, trail)
}

/// Writes all pending bytes of a handshake. Fails if the peer reads nothing for `stall`.
async fn flush_handshake(stream: &TcpStream, hs: &mut Handshake, stall: Duration) -> io::Result<()> {
    flush(stream, hs.encoder(), stall, &mut Moved::default(), |_| ()).await
}

async fn exchange(stream: &TcpStream, hs: &mut Handshake) -> Result<(), Error> {
    // The whole handshake runs under a time-out of its own.
    flush_handshake(stream, hs, Duration::MAX).await?;
    loop {
        match read_into(stream, hs.decoder())? {
            Some(0) => return Err(Error::Closed),
            Some(_) => return Ok(()),
            None => stream.readable().await?,
        }
    }
}

async fn drive_acceptor<A: AcceptAuth>(
    stream: &TcpStream,
    hs: &mut Handshake,
    auth: &mut A,
    stage: &Cell<u8>,
) -> Result<(), Error> {
    loop {
        let step = hs.poll()?;
        stage.set(hs.stage());
        let reply = match step {
            Step::NeedBytes => {
                exchange(stream, hs).await?;
                continue;
            }
            Step::Ready => return Ok(()),
            Step::AuthRequest {
                peer,
                method,
                con_mode,
                payload,
            } => auth.request(peer, method, con_mode, payload).await,
            Step::AuthMore(payload) => auth.more(payload).await,
            _ => return Err(SessionError::OutOfTurn.into()),
        };
        hs.reply(reply)?;
    }
}

async fn drive_connector<A: ConnectAuth>(
    stream: &TcpStream,
    hs: &mut Handshake,
    auth: &mut A,
) -> Result<(), Error> {
    let denied = SessionError::Denied;
    loop {
        match hs.poll()? {
            Step::NeedBytes => exchange(stream, hs).await?,
            Step::Ready => return Ok(()),
            Step::StartAuth => hs.start_auth(auth.start().map_err(denied)?)?,
            Step::AuthBad {
                method,
                errno,
                allowed_methods,
                ..
            } => {
                hs.start_auth(auth.refused(method, errno, &allowed_methods).map_err(denied)?)?;
            }
            Step::AuthReply(payload) => hs.more(auth.more(payload).map_err(denied)?)?,
            Step::AuthDone {
                global_id,
                con_mode,
                payload,
            } => {
                let keys = auth
                    .done(Negotiated {
                        global_id,
                        con_mode,
                        payload,
                    })
                    .map_err(denied)?;
                hs.keys(&keys)?;
            }
            _ => return Err(SessionError::OutOfTurn.into()),
        }
    }
}
