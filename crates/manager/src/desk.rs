//! Questions to the monitor: for clients, and to remember the origin of a task or schedule.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::question::errno;
use crate::rights::{Basis, Login, Origin, Place};
use crate::service::{News, Request, Tell};

/// How long the monitor may take to answer: it may wait for a quorum.
const PATIENCE: Duration = Duration::from_secs(60);

/// The questions to the monitor without an answer.
pub(crate) struct Desk {
    tell: Tell,
    asked: Cell<u64>,
    logins: RefCell<BTreeMap<u64, oneshot::Sender<Option<Login>>>>,
    notes: RefCell<BTreeMap<u64, oneshot::Sender<bool>>>,
}

impl Desk {
    pub(crate) fn new(tell: Tell) -> Self {
        Self {
            tell,
            asked: Cell::default(),
            logins: RefCell::default(),
            notes: RefCell::default(),
        }
    }

    pub(crate) fn tell(&self, news: News) {
        (self.tell)(news);
    }

    /// Takes a request that is an answer; returns any other one.
    pub(crate) fn hear(&self, request: Request) -> Option<Request> {
        // Nobody may wait any more.
        match request {
            Request::Login { client, login } => {
                let waiting = self.logins.borrow_mut().remove(&client);
                let _ = waiting.map(|w| w.send(login));
            }
            Request::Noted { question, done } => {
                let waiting = self.notes.borrow_mut().remove(&question);
                let _ = waiting.map(|w| w.send(done));
            }
            other => return Some(other),
        }
        None
    }

    /// Asks for a client with rights in this place; [`News::Closed`] with its number gives it back.
    pub(crate) async fn login(&self, place: Place, basis: Basis) -> Result<(u64, Login), Failure> {
        let client = self.asked.get() + 1;
        self.asked.set(client);
        let (answer, answered) = oneshot::channel();
        self.logins.borrow_mut().insert(client, answer);
        let denied = format!("no rights in pool id '{}'", place.pool);
        self.tell(News::Open { client, place, basis });
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(Some(login))) => Ok((client, login)),
            Ok(_) => Err(Failure::Rados(errno::EACCES, denied)),
            Err(_) => {
                self.logins.borrow_mut().remove(&client);
                self.tell(News::Closed(client));
                Err(silent())
            }
        }
    }

    /// Has the monitors remember the asker of this question as the origin of a record that is about
    /// to be stored.
    pub(crate) async fn note(&self, question: u64, origin: Origin) -> Result<(), Failure> {
        let (answer, answered) = oneshot::channel();
        self.notes.borrow_mut().insert(question, answer);
        self.tell(News::Note { question, origin });
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(true)) => Ok(()),
            Ok(_) => Err(Failure::Rados(
                errno::ENOSPC,
                "the monitors remember too much already".to_owned(),
            )),
            Err(_) => {
                self.notes.borrow_mut().remove(&question);
                Err(silent())
            }
        }
    }
}

fn silent() -> Failure {
    Failure::Rados(errno::ETIMEDOUT, "the monitor does not answer".to_owned())
}
