//! Operations on the whole image, where the lock is: here, or at another client that is asked.

use std::rc::Rc;
use std::time::Duration;

use spirula_client::errno::{self, Errno};

use crate::announce::Answer;
use crate::asked::Heard;
use crate::image::{Image, Inner};
use crate::message::{Request, Task};
use crate::progress::{Meter, Share};
use crate::{Error, Progress, Result};

/// The pause before an owner that does not answer is asked again, or found to be dead.
const RETRY: Duration = Duration::from_secs(1);
/// Progress is told in this many parts of a task.
const PARTS: u64 = 1 << 20;

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
        match self.site.announce(Request { id, task }).await? {
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
            self.view.refresh().await?;
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
                    Some(None) => self.view.reread().await,
                }
            };
            return match (done, task.errno_where_done()) {
                (Err(e), Some(errno)) if asked_before && e.is(errno) => self.view.reread().await,
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
