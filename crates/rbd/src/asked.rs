//! What this client asks the owner of the lock to do, and what it hears of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::Result;
use crate::image::Inner;
use crate::message::{Announcement, RequestId};
use crate::watcher::Answer;

/// How long an owner may say nothing before it counts as gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request that is under way.
#[derive(Debug, Clone, Copy)]
struct Request {
    id: RequestId,
    share: (u64, u64),
    result: Option<i32>,
}

/// What this client has asked for: one thing at a time.
#[derive(Default)]
pub(crate) struct Asked {
    request: RefCell<Option<Request>>,
    number: Cell<u64>,
    news: Notify,
}

/// What is heard of a request.
pub(crate) enum Heard {
    /// So much of so much is done.
    Progress((u64, u64)),
    /// It is done, with a negative errno or 0.
    Result(i32),
    /// Nothing: the owner is gone.
    Nothing,
}

impl Asked {
    fn update(&self, id: RequestId, change: impl FnOnce(&mut Request)) {
        if let Some(request) = self.request.borrow_mut().as_mut().filter(|r| r.id == id) {
            change(request);
            self.news.notify_one();
        }
    }

    /// The owner says how far it is.
    pub(crate) fn progressed(&self, id: RequestId, share: (u64, u64)) {
        self.update(id, |r| r.share = share);
    }

    /// The owner says that it is done.
    pub(crate) fn completed(&self, id: RequestId, result: i32) {
        self.update(id, |r| r.result = Some(result));
    }

    /// Waits for news of the request.
    pub(crate) async fn hear(&self) -> Heard {
        let told = tokio::time::timeout(PATIENCE, self.news.notified()).await;
        match *self.request.borrow() {
            Some(Request {
                result: Some(result), ..
            }) => Heard::Result(result),
            Some(request) if told.is_ok() => Heard::Progress(request.share),
            _ => Heard::Nothing,
        }
    }
}

impl Inner {
    /// Asks the owner to copy what the image lacks from the source of its migration. Returns what it says: 0 where it has begun.
    pub(crate) async fn ask_to_migrate(self: &Rc<Self>) -> Result<Option<i32>> {
        let asked = &self.watcher.asked;
        asked.number.set(asked.number.get() + 1);
        let request = RequestId {
            client: self.client_id(),
            number: asked.number.get(),
        };
        *asked.request.borrow_mut() = Some(Request {
            id: request,
            share: (0, 1),
            result: None,
        });
        match self.announce(Announcement::Migrate { request }).await? {
            Answer::Said(result) => Ok(Some(result)),
            Answer::None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> RequestId {
        RequestId {
            number,
            ..RequestId::default()
        }
    }

    #[test]
    fn only_what_is_said_of_the_request_counts() {
        let asked = Asked::default();
        *asked.request.borrow_mut() = Some(Request {
            id: id(2),
            share: (0, 1),
            result: None,
        });
        let known = || asked.request.borrow().map(|r| (r.share, r.result));
        asked.completed(id(1), 0);
        asked.progressed(id(3), (1, 2));
        assert_eq!(known(), Some(((0, 1), None)));
        asked.progressed(id(2), (3, 4));
        assert_eq!(known(), Some(((3, 4), None)));
        asked.completed(id(2), -5);
        assert_eq!(known(), Some(((3, 4), Some(-5))));
    }
}
