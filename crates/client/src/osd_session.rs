//! Connections to OSDs: one for each OSD, made when first needed, and again when lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spirula_denc::{EntityAddr, EntityType};
use spirula_maps::OsdId;
use spirula_monc::MonClient;
use spirula_msgr::{Config, Sender};
use spirula_proto::RawMessage;
use tokio::sync::mpsc;

/// Pause before a lost or refused connection is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Events of sessions for the objecter.
pub(crate) enum Event {
    /// The session of this number is established; requests for its OSD can be sent.
    Up(OsdId, u64),
    /// The session was lost; it is reconnected until it is closed.
    Down(OsdId, u64),
    /// A message from this OSD, on the session of this number.
    Message(OsdId, u64, RawMessage),
}

struct Session {
    sender: Rc<RefCell<Option<Sender>>>,
    task: tokio::task::JoinHandle<()>,
}

/// The sessions by OSD.
pub(crate) struct OsdSessions {
    config: Rc<Config>,
    monc: MonClient,
    events: mpsc::UnboundedSender<Event>,
    sessions: BTreeMap<OsdId, Session>,
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

    /// Starts a session; [`Event::Up`] announces it.
    pub(crate) fn open(&mut self, osd: OsdId, addr: EntityAddr, number: u64) {
        let sender = Rc::new(RefCell::new(None));
        let dial = Dial {
            osd,
            number,
            addr,
            config: Rc::clone(&self.config),
            monc: self.monc.clone(),
            sender: Rc::clone(&sender),
            events: self.events.clone(),
        };
        let task = tokio::task::spawn_local(dial.run());
        self.close(osd);
        self.sessions.insert(osd, Session { sender, task });
    }

    /// Sends to an OSD; the message is dropped where there is no session.
    pub(crate) fn send(&self, osd: OsdId, msg: RawMessage) {
        if let Some(sender) = self.sessions.get(&osd).and_then(|s| s.sender.borrow().clone()) {
            sender.send(msg);
        }
    }

    /// Closes the session with an OSD that is down or has another address.
    pub(crate) fn close(&mut self, osd: OsdId) {
        if let Some(session) = self.sessions.remove(&osd) {
            session.task.abort();
        }
    }
}

impl Drop for OsdSessions {
    fn drop(&mut self) {
        for session in self.sessions.values() {
            session.task.abort();
        }
    }
}

/// The parameters of a session's task.
struct Dial {
    osd: OsdId,
    number: u64,
    addr: EntityAddr,
    config: Rc<Config>,
    monc: MonClient,
    sender: Rc<RefCell<Option<Sender>>>,
    events: mpsc::UnboundedSender<Event>,
}

impl Dial {
    async fn run(self) {
        let (osd, addr) = (self.osd, self.addr);
        while !self.events.is_closed() {
            let mut login = self.monc.login_at(EntityType::OSD);
            match spirula_msgr::connect(addr, EntityType::OSD, &self.config, &mut login).await {
                Ok(mut connection) => {
                    *self.sender.borrow_mut() = Some(connection.sender().clone());
                    if self.events.send(Event::Up(osd, self.number)).is_err() {
                        return;
                    }
                    let lost = loop {
                        match connection.recv().await {
                            Ok(incoming) => {
                                let event = Event::Message(osd, self.number, incoming);
                                if self.events.send(event).is_err() {
                                    return;
                                }
                            }
                            Err(e) => break e,
                        }
                    };
                    tracing::debug!("osd.{osd} at {addr}: {lost}");
                    self.sender.take();
                    if self.events.send(Event::Down(osd, self.number)).is_err() {
                        return;
                    }
                }
                Err(e) => tracing::debug!("osd.{osd} at {addr}: {e}"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}
