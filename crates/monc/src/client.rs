//! The session itself: a task that hunts for a monitor and keeps the session up.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use spirula_cephx::{
    AuthName, ClientHandshake, ClientSession, CryptoKey, Env, Renewed, RotatingSecrets, TicketLifetimes,
    method,
};
use spirula_denc::{EntityAddr, EntityType, Fsid, UTime, decode_all};
use spirula_errno::Errno;
use spirula_maps::MonMap;
use spirula_msgr::{Config, Connection, Peer, Sender, SessionError};
use spirula_proto::mon::{
    MAuth, MAuthReply, MMonCommand, MMonGetVersion, MMonGetVersionReply, MMonMap, MMonSubscribe, Subscription,
};
use spirula_proto::{MsgType, Payload, RawMessage};
use tokio::sync::{Notify, mpsc};

use crate::Error;
use crate::login::{MonLogin, ServiceLogin};
use crate::request::{CommandReply, Requests};

/// How often tickets are checked and a quiet monitor is pinged.
const TICK: Duration = Duration::from_secs(3);
/// A monitor that is silent this long is left for another.
const SILENCE: Duration = Duration::from_secs(10);
/// The pause after every monitor was tried in vain; doubles up to [`HUNT_MAX`].
const HUNT_MIN: Duration = Duration::from_millis(20);
const HUNT_MAX: Duration = Duration::from_secs(3);

/// The entity of a session, and the monitors.
pub struct Options {
    /// The messenger's configuration.
    pub messenger: Rc<Config>,
    /// The monitors' addresses, until a subscription brings a monitor map.
    pub monitors: Vec<EntityAddr>,
    /// The entity that logs in.
    pub name: AuthName,
    /// Its key.
    pub key: CryptoKey,
    /// The services for which tickets are needed.
    pub services: Vec<EntityType>,
    /// The service of this daemon: its rotating secrets are fetched and renewed.
    pub rotating: Option<EntityType>,
}

/// An event for the owner of the session.
#[derive(Debug)]
pub enum Event {
    /// A new session is established; subscriptions and requests were sent again. Owners that report
    /// state to the monitors must report it again.
    Connected(Box<Peer>),
    /// The session is gone; another one is being sought.
    Lost,
    /// New rotating secrets of this daemon's service.
    Rotating(RotatingSecrets),
    /// A message that is no answer to a request.
    Message(RawMessage),
}

struct Inner {
    options: Options,
    monitors: RefCell<Vec<EntityAddr>>,
    requests: RefCell<Requests>,
    wanted: RefCell<BTreeMap<String, Subscription>>,
    session: Rc<RefCell<Option<ClientSession>>>,
    sender: RefCell<Option<Sender>>,
    peer: RefCell<Option<Peer>>,
    denied: Cell<Option<Errno>>,
    changed: Notify,
    fsid: Cell<Fsid>,
    /// The session's global id where no login gave it: see [`MonClient::attach`].
    attached_as: Cell<u64>,
}

/// A handle on the session; clones share it. The task ends when the event receiver is dropped.
#[derive(Clone)]
pub struct MonClient {
    inner: Rc<Inner>,
}

impl MonClient {
    /// Starts the session's task. Must be called inside a `LocalSet` or `LocalRuntime`.
    pub fn start(options: Options) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let client = Self::idle(options);
        tokio::task::spawn_local(run(Rc::clone(&client.inner), events));
        (client, receiver)
    }

    /// A handle without a task: its owner attaches sessions, as in simulations.
    pub fn idle(options: Options) -> Self {
        let inner = Rc::new(Inner {
            monitors: RefCell::new(options.monitors.clone()),
            options,
            requests: RefCell::default(),
            wanted: RefCell::default(),
            session: Rc::default(),
            sender: RefCell::default(),
            peer: RefCell::default(),
            denied: Cell::new(None),
            changed: Notify::new(),
            fsid: Cell::default(),
            attached_as: Cell::default(),
        });
        Self { inner }
    }

    /// Attaches an established session in which this client has a global id: subscriptions and
    /// requests are sent again. For owners of a [`MonClient::idle`].
    pub fn attach(&self, sender: Sender, global_id: u64) {
        self.inner.attached_as.set(global_id);
        self.inner.begin(sender);
    }

    /// Detaches the session, which is gone.
    pub fn detach(&self) {
        self.inner.sender.take();
    }

    /// Waits for a session.
    ///
    /// # Errors
    /// [`Error::Denied`] where the monitors refuse the key, [`Error::Timeout`].
    pub async fn connected(&self, within: Duration) -> Result<Peer, Error> {
        let wait = async {
            loop {
                let changed = self.inner.changed.notified();
                if let Some(peer) = self.inner.peer.borrow().clone() {
                    return Ok(peer);
                }
                if let Some(errno) = self.inner.denied.get() {
                    return Err(Error::Denied(errno));
                }
                changed.await;
            }
        };
        tokio::time::timeout(within, wait)
            .await
            .map_err(|_| Error::Timeout)?
    }

    /// The global id of this client, 0 before the first login.
    pub fn global_id(&self) -> u64 {
        self.inner
            .session
            .borrow()
            .as_ref()
            .map_or(self.inner.attached_as.get(), |s| s.tickets().global_id())
    }

    /// The cluster's id, which requests carry. Zero means any.
    pub fn set_fsid(&self, fsid: Fsid) {
        self.inner.fsid.set(fsid);
    }

    /// Subscribes to `what` from version `start` on, or moves an existing subscription. Kept over
    /// reconnects.
    pub fn subscribe(&self, what: &str, start: u64) {
        self.subscribe_with(what, Subscription { start, flags: 0 });
    }

    /// Asks for the newest `what` from version `start` on, once.
    pub fn subscribe_once(&self, what: &str, start: u64) {
        self.subscribe_with(
            what,
            Subscription {
                start,
                flags: Subscription::ONETIME,
            },
        );
    }

    fn subscribe_with(&self, what: &str, sub: Subscription) {
        let mut wanted = self.inner.wanted.borrow_mut();
        if wanted.get(what) == Some(&sub) && !sub.is_onetime() {
            return;
        }
        wanted.insert(what.to_owned(), sub.clone());
        let one = BTreeMap::from([(what.to_owned(), sub)]);
        self.send(
            MMonSubscribe {
                what: one,
                hostname: String::new(),
            }
            .to_message(),
        );
    }

    /// Notes that `version` of `what` has arrived: the next session asks for later versions, or for
    /// none.
    pub fn received(&self, what: &str, version: u64) {
        let mut wanted = self.inner.wanted.borrow_mut();
        match wanted.get_mut(what) {
            Some(sub) if sub.is_onetime() => {
                wanted.remove(what);
            }
            Some(sub) => sub.start = sub.start.max(version + 1),
            None => {}
        }
    }

    /// Sends a message on the session; `false` without a session at the moment.
    pub fn send(&self, msg: RawMessage) -> bool {
        self.inner.sender.borrow().as_ref().is_some_and(|s| s.send(msg))
    }

    /// Sends a request and waits for its answer, over reconnects. Dropping the future gives the
    /// request up.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub async fn request(&self, msg: RawMessage) -> Result<RawMessage, Error> {
        let (receiver, msg) = {
            let mut requests = self.inner.requests.borrow_mut();
            let msg = if msg.header.tid == 0 {
                let tid = requests.next_tid();
                msg.with_tid(tid)
            } else {
                msg
            };
            (requests.add(msg.clone()), msg)
        };
        self.send(msg);
        receiver.await.map_err(|_| Error::ShutDown)
    }

    /// Runs a command: `cmd` is its JSON, `input` its `-i` data.
    ///
    /// # Errors
    /// Where there is no answer; a command that fails is a reply with a negative result.
    pub async fn command(&self, cmd: Vec<String>, input: Bytes) -> Result<CommandReply, Error> {
        let mut msg = MMonCommand {
            fsid: self.inner.fsid.get(),
            cmd,
            ..MMonCommand::default()
        };
        if !input.is_empty() {
            msg.input.push(input);
        }
        let answer = self.request(msg.to_message()).await?;
        Ok(answer.decode::<spirula_proto::mon::MMonCommandAck>()?.into())
    }

    /// The newest version of a map, linearizable.
    ///
    /// # Errors
    /// Where there is no answer.
    pub async fn version(&self, what: &str) -> Result<u64, Error> {
        let handle = self.inner.requests.borrow_mut().next_tid();
        let msg = MMonGetVersion {
            handle,
            what: what.to_owned(),
        }
        .to_message()
        .with_tid(handle);
        let answer: MMonGetVersionReply = self.request(msg).await?.decode()?;
        Ok(answer.version)
    }

    /// The login at a daemon of kind `service`, with the session's ticket.
    pub fn login_at(&self, service: EntityType) -> ServiceLogin {
        ServiceLogin::new(Rc::clone(&self.inner.session), service)
    }
}

impl Inner {
    /// Begins a session: sends subscriptions and requests to the monitor.
    fn begin(&self, sender: Sender) {
        let what = self.wanted.borrow().clone();
        if !what.is_empty() {
            let subscribe = MMonSubscribe {
                what,
                hostname: String::new(),
            };
            sender.send(subscribe.to_message());
        }
        for request in self.requests.borrow_mut().resend() {
            sender.send(request);
        }
        *self.sender.borrow_mut() = Some(sender);
    }

    /// Adopts the monitors of a new map.
    fn learn(&self, msg: &RawMessage) {
        let map = msg.decode::<MMonMap>().map(|m| decode_all::<MonMap>(&m.monmap));
        let Ok(Ok(map)) = map else {
            tracing::error!("the monitor map does not decode");
            return;
        };
        let addrs: Vec<EntityAddr> = map
            .mons
            .values()
            .filter_map(|i| i.public_addrs.v2().copied())
            .collect();
        if !addrs.is_empty() {
            *self.monitors.borrow_mut() = addrs;
        }
    }
}

async fn run(inner: Rc<Inner>, events: mpsc::UnboundedSender<Event>) {
    let mut pause = HUNT_MIN;
    // Clients start at different monitors, so that these share the load.
    let mut at = Env::system(UTime::now()).now.nsec as usize;
    while !events.is_closed() {
        let mut found = false;
        let monitors = inner.monitors.borrow().clone();
        for _ in 0..monitors.len() {
            at += 1;
            let target = monitors[at % monitors.len()];
            let Some(connection) = dial(&inner, target).await else {
                continue;
            };
            found = true;
            pause = HUNT_MIN;
            serve(&inner, connection, &events).await;
            inner.sender.take();
            inner.peer.take();
            if events.send(Event::Lost).is_err() {
                return;
            }
        }
        if !found {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = events.closed() => return,
            }
            pause = (pause * 2).min(HUNT_MAX);
        }
    }
}

/// One attempt at one monitor.
async fn dial(inner: &Inner, target: EntityAddr) -> Option<Connection> {
    let options = &inner.options;
    let earlier = inner.session.borrow().clone();
    let handshake = match earlier {
        Some(session) => ClientHandshake::resume(session),
        None => ClientHandshake::new(options.name.clone(), options.key.clone(), &options.services),
    };
    let mut login = MonLogin::new(handshake);
    match spirula_msgr::connect(target, EntityType::MON, &options.messenger, &mut login).await {
        Ok(connection) => {
            *inner.session.borrow_mut() = login.into_session();
            inner.denied.set(None);
            Some(connection)
        }
        Err(e) => {
            tracing::debug!("monitor {target}: {e}");
            // A monitor that is busy says nothing about the key: it is tried again.
            if let spirula_msgr::Error::Session(SessionError::Denied(errno)) = e
                && errno != spirula_errno::EBUSY
            {
                // An old session that is no longer believed must not stand in the way of a new one.
                if inner.session.take().is_none() {
                    inner.denied.set(Some(errno));
                    inner.changed.notify_waiters();
                }
            }
            None
        }
    }
}

/// Serves one session until it ends.
async fn serve(inner: &Inner, mut connection: Connection, events: &mpsc::UnboundedSender<Event>) {
    let sender = connection.sender().clone();
    inner.begin(sender.clone());
    *inner.peer.borrow_mut() = Some(connection.peer().clone());
    inner.changed.notify_waiters();
    if events
        .send(Event::Connected(Box::new(connection.peer().clone())))
        .is_err()
    {
        return;
    }
    let mut renewal = Renewal::new(inner);
    renewal.tick(inner, &sender);
    let mut tick = tokio::time::interval(TICK);
    loop {
        let msg = tokio::select! {
            received = connection.recv() => match received {
                Ok(incoming) => incoming,
                Err(e) => {
                    tracing::debug!("monitor session: {e}");
                    return;
                }
            },
            _ = tick.tick() => {
                if connection.last_heard().elapsed() > SILENCE {
                    tracing::debug!("monitor session: silent");
                    return;
                }
                sender.keepalive();
                renewal.tick(inner, &sender);
                continue;
            }
            () = events.closed() => return,
        };
        if msg.kind() == MsgType::MON_MAP {
            inner.learn(&msg);
        }
        let event = match msg.kind() {
            MsgType::AUTH_REPLY => renewal.reply(inner, &sender, &msg).map(Event::Rotating),
            _ => inner.requests.borrow_mut().answer(msg).map(Event::Message),
        };
        if event.is_some_and(|event| events.send(event).is_err()) {
            return;
        }
    }
}

/// Keeps tickets and rotating secrets fresh on one session. One question is under way at a time.
struct Renewal {
    asked: Option<Instant>,
    rotating: Option<spirula_cephx::RotatingKeys>,
}

impl Renewal {
    fn new(inner: &Inner) -> Self {
        let rotating = inner.options.rotating.map(spirula_cephx::RotatingKeys::new);
        Self {
            asked: None,
            rotating,
        }
    }

    /// Sends the renewals that are due.
    fn tick(&mut self, inner: &Inner, sender: &Sender) {
        if self.asked.is_some_and(|at| at.elapsed() < TICK * 2) {
            return;
        }
        let now = UTime::now();
        let session = inner.session.borrow();
        let Some(session) = session.as_ref() else { return };
        let due = match session.renewal(&Env::system(now)) {
            Ok(Some(payload)) => Some(payload),
            Ok(None) => self
                .rotating
                .as_ref()
                .filter(|r| r.needs_renewal(&TicketLifetimes::default(), now))
                .map(|_| session.rotating_request()),
            Err(e) => {
                tracing::error!("tickets can't be renewed: {e}");
                None
            }
        };
        if let Some(payload) = due {
            let auth = MAuth {
                protocol: method::CEPHX,
                payload: payload.into(),
                ..MAuth::default()
            };
            sender.send(auth.to_message());
            self.asked = Some(Instant::now());
        }
    }

    /// Takes an answer, sends further renewals that are due, and returns new secrets.
    fn reply(&mut self, inner: &Inner, sender: &Sender, msg: &RawMessage) -> Option<RotatingSecrets> {
        self.asked = None;
        let reply: MAuthReply = match msg.decode() {
            Ok(reply) => reply,
            Err(e) => {
                tracing::error!("{e}");
                return None;
            }
        };
        let renewed = {
            let mut session = inner.session.borrow_mut();
            let session = session.as_mut()?;
            session.handle_reply(reply.result, &reply.payload, &Env::system(UTime::now()))
        };
        let secrets = match renewed {
            Ok(Renewed::Tickets) => None,
            Ok(Renewed::Secrets(secrets)) => {
                if let Some(rotating) = &mut self.rotating {
                    rotating.set(secrets.clone());
                }
                Some(secrets)
            }
            Err(e) => {
                tracing::error!("tickets can't be renewed: {e}");
                return None;
            }
        };
        self.tick(inner, sender);
        secrets
    }
}
