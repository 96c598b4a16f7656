//! Requests of this client to the owner of the exclusive lock, and the owner's progress and
//! outcome.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use spirula_client::errno::{self, Errno};
use tokio::sync::{Mutex, Notify};

use crate::image::{Image, Inner};
use crate::message::{ClientId, Request, RequestId, Task};
use crate::progress::Meter;
use crate::progress::Share;
use crate::watcher::Answer;
use crate::{Error, Progress, Result};

/// How long an owner may be silent before it counts as gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before an owner that does not answer is asked again, or found to be dead.
const RETRY: Duration = Duration::from_secs(1);
/// Progress is told in this many parts of a task.
const PARTS: u64 = 1 << 20;

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
    turn: Mutex<()>,
}

/// News of a request.
enum Heard {
    /// The owner has done this many parts of this many.
    Progress(Share),
    /// The request is done, with a negative errno or 0.
    Result(i32),
    /// The owner is gone, without a result.
    Nothing,
}

impl Asked {
    /// Makes a new request.
    fn begin(&self, client: ClientId) -> RequestId {
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
    async fn hear(&self) -> Heard {
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

impl Inner {
    /// Asks the owner of the lock to carry out a task, and reports its progress. Returns the
    /// result, 0 or a negative errno; `None` where no owner answers, or the owner falls silent
    /// after it has begun.
    pub(crate) async fn ask(
        &self,
        task: &Task,
        mut told: impl AsyncFnMut(Share) -> Result<()>,
    ) -> Result<Option<i32>> {
        let asked = &self.watcher.asked;
        let _turn = asked.turn.lock().await;
        let id = asked.begin(self.client_id());
        match self.announce(Request { id, task }).await? {
            Answer::Said(0) => {}
            Answer::Said(refused) => return Ok(Some(refused)),
            Answer::None => return Ok(None),
        }
        loop {
            match asked.hear().await {
                Heard::Progress(share) => told(share).await?,
                Heard::Result(result) => return Ok(Some(result)),
                Heard::Nothing => return Ok(None),
            }
        }
    }

    /// Carries out a task on the whole image: here where no other client holds the lock, else by
    /// asking the holder, which may refuse to pass the lock on. A holder that does not know the
    /// task gives the lock up instead.
    pub(crate) async fn perform_or_ask(self: &Rc<Self>, task: &Task, progress: &Progress) -> Result<()> {
        let meter = Meter::new(progress, PARTS);
        let mut asked_before = false;
        loop {
            self.refresh().await?;
            let done = if self.acquire_if_free().await? {
                self.perform(task, progress).await
            } else {
                let told = async |share| meter.reached_share(share);
                match self.ask(task, told).await?.map(Errno::of_result) {
                    // It ends, or is gone, and may have done so all the same.
                    None | Some(Some(errno::ERESTART | errno::ETIMEDOUT)) => {
                        asked_before = true;
                        tokio::time::sleep(RETRY).await;
                        continue;
                    }
                    Some(Some(errno::EOPNOTSUPP)) => self.perform(task, progress).await,
                    Some(Some(refused)) => Err(Error::os("image", refused)),
                    Some(None) => self.reread().await,
                }
            };
            return match (done, task.errno_where_done()) {
                (Err(e), Some(errno)) if asked_before && e.is(errno) => self.reread().await,
                (done, _) => done,
            };
        }
    }
}

impl Image {
    /// Carries out a task on the whole image, here or at the holder of the lock.
    pub(crate) async fn operate(&self, task: Task, progress: Progress) -> Result<()> {
        let operate = |inner: Rc<Inner>| async move { inner.perform_or_ask(&task, &progress).await };
        self.inner.start(operate).await
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
