//! The request of this client to the owner of the exclusive lock that is under way, with the
//! owner's progress and outcome.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};

use crate::message::{ClientId, RequestId};
use crate::progress::Share;

/// How long an owner may be silent before it counts as gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request that is under way.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    id: RequestId,
    share: Share,
    result: Option<i32>,
}

/// The request that this client has sent to the owner of the lock: one at a time.
#[derive(Default)]
pub(crate) struct Asked {
    request: RefCell<Option<UnderWay>>,
    number: Cell<u64>,
    news: Notify,
    /// Held by the client's task that asks.
    pub(crate) turn: Mutex<()>,
}

/// News of a request.
pub(crate) enum Heard {
    /// The owner has done this many parts of this many.
    Progress(Share),
    /// The request is done, with a negative errno or 0.
    Result(i32),
    /// The owner is gone, without a result.
    Nothing,
}

impl Asked {
    /// Makes a new request.
    pub(crate) fn begin(&self, client: ClientId) -> RequestId {
        self.number.set(self.number.get() + 1);
        let id = RequestId {
            client,
            number: self.number.get(),
        };
        *self.request.borrow_mut() = Some(UnderWay {
            id,
            share: Share::NONE,
            result: None,
        });
        id
    }

    fn update(&self, id: RequestId, change: impl FnOnce(&mut UnderWay)) {
        if let Some(request) = self.request.borrow_mut().as_mut().filter(|r| r.id == id) {
            change(request);
            self.news.notify_one();
        }
    }

    /// Notes how far the owner says that it is.
    pub(crate) fn progressed(&self, id: RequestId, share: Share) {
        self.update(id, |r| r.share = share);
    }

    /// Notes the result that the owner sends.
    pub(crate) fn completed(&self, id: RequestId, result: i32) {
        self.update(id, |r| r.result = Some(result));
    }

    /// Waits for news of the request.
    pub(crate) async fn hear(&self) -> Heard {
        let told = tokio::time::timeout(PATIENCE, self.news.notified()).await;
        match *self.request.borrow() {
            Some(UnderWay {
                result: Some(result), ..
            }) => Heard::Result(result),
            Some(request) if told.is_ok() => Heard::Progress(request.share),
            _ => Heard::Nothing,
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
        let client = ClientId::default();
        assert_eq!([asked.begin(client), asked.begin(client)], [id(1), id(2)]);
        let known = || asked.request.borrow().map(|r| (r.share, r.result));
        asked.completed(id(1), 0);
        let share = Share { done: 3, total: 4 };
        asked.progressed(id(3), Share { done: 1, total: 2 });
        assert_eq!(known(), Some((Share::NONE, None)));
        asked.progressed(id(2), share);
        assert_eq!(known(), Some((share, None)));
        asked.completed(id(2), -5);
        assert_eq!(known(), Some((share, Some(-5))));
    }
}
