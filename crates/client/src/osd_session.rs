//! Connections to OSDs: one an OSD, made when first needed, made again when lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spirula_denc::{EntityAddr, EntityType};
use spirula_monc::MonClient;
use spirula_msgr::{Config, Sender};
use spirula_proto::RawMessage;
use tokio::sync::mpsc;

/// Pause before a lost or refused connection is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// What the objecter hears from its sessions.
pub(crate) enum Event {
    /// A session stands; what is for this OSD goes out now.
    Up(i32),
    /// It was lost; another attempt is under way while the map names the address.
    Down(i32),
    /// A message from this OSD.
    Message(RawMessage),
}

struct Session {
    addr: EntityAddr,
    sender: Rc<RefCell<Option<Sender>>>,
    task: tokio::task::JoinHandle<()>,
}

/// The sessions by OSD.
pub(crate) struct OsdSessions {
    config: Rc<Config>,
    monc: MonClient,
    events: mpsc::UnboundedSender<Event>,
    sessions: BTreeMap<i32, Session>,
}

impl OsdSessions {
    pub(crate) fn new(config: Rc<Config>, monc: MonClient, events: mpsc::UnboundedSender<Event>) -> Self {
        Self {
            config,
            monc,
            events,
            sessions: BTreeMap::new(),
        }
    }

    /// Sends to an OSD at the address that the map gives it; `false` where there is no session yet, which
    /// [`Event::Up`] announces.
    pub(crate) fn send(&mut self, osd: i32, addr: EntityAddr, msg: RawMessage) -> bool {
        let session = self.open(osd, addr);
        session.sender.borrow().as_ref().is_some_and(|s| s.send(msg))
    }

    fn open(&mut self, osd: i32, addr: EntityAddr) -> &Session {
        if self.sessions.get(&osd).is_some_and(|s| s.addr != addr) {
            self.close(osd);
        }
        self.sessions.entry(osd).or_insert_with(|| {
            let sender = Rc::new(RefCell::new(None));
            let task = tokio::task::spawn_local(run(
                osd,
                addr,
                Rc::clone(&self.config),
                self.monc.clone(),
                Rc::clone(&sender),
                self.events.clone(),
            ));
            Session { addr, sender, task }
        })
    }

    /// Ends the session with an OSD that is down or has moved.
    pub(crate) fn close(&mut self, osd: i32) {
        if let Some(session) = self.sessions.remove(&osd) {
            session.task.abort();
        }
    }

    /// The OSDs that have a session or are being dialled, with the address.
    pub(crate) fn known(&self) -> Vec<(i32, EntityAddr)> {
        self.sessions.iter().map(|(osd, s)| (*osd, s.addr)).collect()
    }
}

impl Drop for OsdSessions {
    fn drop(&mut self) {
        for session in self.sessions.values() {
            session.task.abort();
        }
    }
}

async fn run(
    osd: i32,
    addr: EntityAddr,
    config: Rc<Config>,
    monc: MonClient,
    sender: Rc<RefCell<Option<Sender>>>,
    events: mpsc::UnboundedSender<Event>,
) {
    loop {
        let mut login = monc.login_at(EntityType::OSD);
        match spirula_msgr::connect(addr, EntityType::OSD, &config, &mut login).await {
            Ok(mut connection) => {
                *sender.borrow_mut() = Some(connection.sender().clone());
                if events.send(Event::Up(osd)).is_err() {
                    return;
                }
                loop {
                    match connection.recv().await {
                        Ok(incoming) => {
                            if events.send(Event::Message(incoming.msg)).is_err() {
                                return;
                            }
                        }
                        Err(e) => {
                            tracing::debug!("osd.{osd} at {addr}: {e}");
                            break;
                        }
                    }
                }
                sender.take();
                if events.send(Event::Down(osd)).is_err() {
                    return;
                }
            }
            Err(e) => tracing::debug!("osd.{osd} at {addr}: {e}"),
        }
        tokio::time::sleep(RETRY).await;
    }
}
