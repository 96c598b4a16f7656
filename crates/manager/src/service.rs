//! Requests to the manager's modules, their news, and their life: they work with RADOS clients of
//! their own, in a process of their own (`process.rs`).
//!
//! They begin to work once the client of the manager before is on the blocklist, so that two
//! managers never work at the same time.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use spirula_cephx::{AuthName, CryptoKey};
use spirula_client::{Options, Rados};
use spirula_denc::EntityAddr;
use spirula_maps::{Epoch, PoolId};
use spirula_msgr::ModeLists;
use tokio::sync::{Notify, mpsc};

use crate::clients::Clients;
use crate::desk::Desk;
use crate::images;
use crate::modules::Modules;
use crate::question::{Question, Reply, errno};
use crate::rights::{Basis, Login, Origin, Place};

/// Payload bytes that are received at the same time, and kept for reuse. A larger object is
/// received alone.
const MEMORY: usize = 4 << 20;
/// How long a login may take.
const CONNECT: Duration = Duration::from_secs(30);
/// The shortest time between two signs of life.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(50);
/// How long a request waits for the modules to be ready.
const PATIENCE: Duration = Duration::from_secs(10);

/// The parameters of the modules.
#[derive(Debug, Clone)]
pub struct Start {
    /// The entity of the reader.
    pub name: AuthName,
    /// Its key.
    pub key: CryptoKey,
    /// The monitors.
    pub monitors: Vec<EntityAddr>,
    /// The addresses of the clients, as the manager map names them: the reader's, and those for the
    /// pieces of work.
    pub addresses: Vec<EntityAddr>,
    /// Modes of connections.
    pub modes: ModeLists,
    /// The epoch of the OSDMap that blocks the client of the manager before.
    pub osdmap_epoch: Epoch,
    /// How often the modules send a sign of life ([`News::Alive`]).
    pub heartbeat: Duration,
}

/// A request for the names of images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagesToName {
    /// The pool of their headers.
    pub pool: PoolId,
    /// The namespace in it.
    pub namespace: String,
    /// Their ids.
    pub ids: Vec<String>,
}

/// A request to the modules.
#[derive(Debug)]
pub enum Request {
    /// Answer a command, under this number.
    Ask(u64, Box<Question>),
    /// Find the names of images.
    NameImages(ImagesToName),
    /// Log in: the answer to [`News::Open`]. Without a login the wanted rights don't exist.
    Login {
        /// The client's number.
        client: u64,
        /// The login.
        login: Option<Login>,
    },
    /// The answer to [`News::Note`].
    Noted {
        /// The question's number.
        question: u64,
        /// Whether the origin is remembered.
        done: bool,
    },
}

/// News of a task, for progress displays.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskNews {
    /// The task is under way.
    Progress {
        /// The task.
        id: String,
        /// Its description.
        message: String,
        /// The part of it that is done.
        share: f64,
        /// The image that it works on.
        refs: serde_json::Map<String, serde_json::Value>,
    },
    /// The task is done.
    Complete {
        /// The task.
        id: String,
    },
    /// The task has failed for good.
    Failed {
        /// The task.
        id: String,
        /// The reason.
        why: String,
    },
}

/// News of the modules.
#[derive(Debug)]
pub enum News {
    /// The modules are at work.
    Alive,
    /// The answer to the command of this number.
    Reply(u64, Reply),
    /// Names by ids of those images that have a name.
    Named(ImagesToName, BTreeMap<String, String>),
    /// News of a task.
    Task(TaskNews),
    /// The modules want a client with rights in a place.
    Open {
        /// Its number.
        client: u64,
        /// The place.
        place: Place,
        /// The rights that it has besides.
        basis: Basis,
    },
    /// The client of this number is not needed any more.
    Closed(u64),
    /// A record is stored for the asker of a question: the monitors are to remember it with the
    /// asker's rights.
    Note {
        /// The question's number.
        question: u64,
        /// The record.
        origin: Origin,
    },
    /// The record under this key is removed.
    Forget(String),
    /// These are all existing tasks, by the keys of their origins.
    Tasks(BTreeSet<String>),
    /// Data in a pool looks like an attack.
    Suspect(String),
    /// The modules have ended, or are about to: another manager must be started under another
    /// address.
    Ended(String),
}

/// The answer while the modules are not ready.
pub fn not_ready() -> Reply {
    Reply::error(errno::EAGAIN, "rbd_support module is not ready, try again")
}

pub(crate) type Tell = Rc<dyn Fn(News)>;

/// Requests wait here until the modules are ready.
#[derive(Default)]
struct Ready {
    modules: OnceCell<Rc<Modules>>,
    news: Notify,
}

impl Ready {
    async fn wait(&self) -> Option<Rc<Modules>> {
        let wait = async {
            loop {
                let news = self.news.notified();
                if let Some(modules) = self.modules.get() {
                    return Rc::clone(modules);
                }
                news.await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.ok()
    }
}

/// Works, and serves requests, until the queue of requests is closed.
pub(crate) async fn run(start: Start, mut queue: mpsc::Receiver<Request>, tell: Tell) {
    let ready = Rc::new(Ready::default());
    let desk = Rc::new(Desk::new(Rc::clone(&tell)));
    let (heartbeat, alive) = (start.heartbeat.max(SHORTEST_HEARTBEAT), Rc::clone(&tell));
    tokio::task::spawn_local(async move {
        loop {
            alive(News::Alive);
            tokio::time::sleep(heartbeat).await;
        }
    });
    let work = work(start, Rc::clone(&ready), Rc::clone(&desk));
    let told = Rc::clone(&tell);
    tokio::task::spawn_local(async move { told(News::Ended(work.await)) });
    while let Some(request) = queue.recv().await {
        if let Some(request) = desk.hear(request) {
            tokio::task::spawn_local(serve(request, Rc::clone(&ready), Rc::clone(&tell)));
        }
    }
}

/// Works until that is not possible any more, and returns the reason.
async fn work(start: Start, ready: Rc<Ready>, desk: Rc<Desk>) -> String {
    let (rados, clients) = match connect(start, desk).await {
        Ok(connected) => connected,
        Err(e) => return e.to_string(),
    };
    let modules = match Modules::load(rados, clients).await {
        Ok(modules) => modules,
        Err(e) => return e.text(),
    };
    // Nobody else fills it.
    let _ = ready.modules.set(Rc::clone(&modules));
    ready.news.notify_waiters();
    modules.work().await.text()
}

/// Connects, and waits until the manager before is on the blocklist.
async fn connect(start: Start, desk: Rc<Desk>) -> spirula_client::Result<(Rados, Rc<Clients>)> {
    let options = Options {
        name: start.name,
        key: start.key,
        monitors: start.monitors,
        modes: start.modes,
        connect_timeout: CONNECT,
        op_timeout: Duration::ZERO,
        address: start.addresses.first().copied(),
        memory: MEMORY,
    };
    let rados = Rados::connect(&options).await?;
    rados.wait_for_map(start.osdmap_epoch).await?;
    rados.latest_map().await?;
    let for_work = start.addresses.get(1..).unwrap_or_default();
    Ok((rados, Clients::new(desk, options, for_work)))
}

async fn serve(request: Request, ready: Rc<Ready>, tell: Tell) {
    let modules = ready.wait().await;
    match (request, modules) {
        (Request::Ask(id, question), Some(modules)) => {
            let reply = modules.answer(id, &question).await;
            tell(News::Reply(id, reply));
        }
        (Request::Ask(id, _), None) => tell(News::Reply(id, not_ready())),
        (Request::NameImages(wanted), Some(modules)) => {
            let names = images::names(modules.rados(), &wanted).await;
            tell(News::Named(wanted, names));
        }
        // The desk has taken the others.
        (Request::NameImages(_) | Request::Login { .. } | Request::Noted { .. }, _) => {}
    }
}
