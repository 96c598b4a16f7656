//! How the watch is kept, and what this client does when it hears of something.

use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use spirula_client::{Watch, WatchNews, errno};
use tokio::sync::Notify;

use crate::Result;
use crate::image::Inner;
use crate::message::{Announcement, ClientId, Message, response};

/// The pause before a lost watch is tried again.
const RETRY: Duration = Duration::from_secs(1);

impl Inner {
    /// The id under which other clients know this one.
    pub(crate) fn client_id(&self) -> ClientId {
        ClientId {
            gid: self.site.io.rados().monitors().global_id(),
            handle: self.watcher.cookie.get(),
        }
    }

    pub(crate) async fn start_watch(self: &Rc<Self>) -> Result<()> {
        let watch = self.site.io.watch(self.site.header_oid(), 0).await?;
        self.watcher.cookie.set(watch.cookie());
        let stop = Rc::clone(&self.watcher.stop);
        let task = tokio::task::spawn_local(run(Rc::downgrade(self), watch, stop));
        *self.watcher.task.borrow_mut() = Some(task);
        Ok(())
    }

    pub(crate) async fn stop_watch(&self) {
        let task = self.watcher.task.take();
        if let Some(task) = task {
            self.watcher.stop.notify_one();
            // The task ends by itself or has failed; there is nothing to be done about it.
            let _ = task.await;
        }
    }

    /// Answers a notification.
    pub(crate) async fn answer(&self, id: u64, answer: Bytes) {
        let cookie = self.watcher.cookie.get();
        let acked = self
            .site
            .io
            .notify_ack(self.site.header_oid(), cookie, id, answer)
            .await;
        if let Err(e) = acked {
            tracing::debug!("answer to a notification: {e}");
        }
    }

    /// Handles a notification, without waiting for anything.
    fn hear(self: &Rc<Self>, id: u64, payload: &[u8]) {
        let message = match Message::read(payload) {
            Ok(message) => message,
            Err(e) => {
                tracing::warn!("unreadable notification of image {}: {e}", self.site.fixed.id);
                Message::Other
            }
        };
        let mut answer = Bytes::new();
        match message {
            Message::Other => {}
            Message::Announcement(Announcement::Progress { request, share }) => {
                self.watcher.asked.progressed(request, share);
            }
            Message::Announcement(Announcement::Completed { request, result }) => {
                self.watcher.asked.completed(request, result);
            }
            Message::Announcement(Announcement::HeaderUpdate) => {
                self.view.outdate();
                let inner = Rc::clone(self);
                // Readers of the size hear of a new one without a read or write of their own.
                tokio::task::spawn_local(async move {
                    if let Err(e) = inner.view.refresh().await {
                        tracing::debug!("header: {e}");
                    }
                });
            }
            Message::Announcement(Announcement::AcquiredLock(_) | Announcement::ReleasedLock(_)) => {
                self.lock.news.notify_waiters();
            }
            Message::Announcement(Announcement::RequestLock { client, .. }) => {
                if client != self.client_id()
                    && let Some(result) = self.lock_requested()
                {
                    answer = response(result);
                }
            }
            Message::Request { request, task } => {
                if !self.lock.is_owned() {
                    // It is the owner's business.
                } else if let Some(result) = self.handle_request(id, request, task) {
                    answer = response(result);
                } else {
                    return;
                }
            }
        }
        let inner = Rc::clone(self);
        tokio::task::spawn_local(async move { inner.answer(id, answer).await });
    }

    /// Watches again after the watch was lost, until that succeeds; `None` where this client is on
    /// the blocklist.
    async fn watch_again(self: &Rc<Self>) -> Option<Watch> {
        self.watcher.cookie.set(0);
        loop {
            match self.site.io.watch(self.site.header_oid(), 0).await {
                Ok(watch) => {
                    self.watcher.cookie.set(watch.cookie());
                    self.view.outdate();
                    return Some(watch);
                }
                Err(e) if e.errno() == errno::ESHUTDOWN => {
                    tracing::error!(
                        "the cluster has shut this client out of image {}",
                        self.site.fixed.id
                    );
                    self.watcher.shut_out.set(true);
                    self.lock.lose(&self.view);
                    return None;
                }
                Err(e) if e.errno() == errno::ENOENT => {
                    self.lock.lose(&self.view);
                    return None;
                }
                Err(e) => tracing::warn!("watch of image {}: {e}", self.site.fixed.id),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Handles notifications until the image is closed or gone.
async fn run(image: Weak<Inner>, mut watch: Watch, stop: Rc<Notify>) {
    loop {
        let news = tokio::select! {
            news = watch.next() => news,
            () = stop.notified() => {
                if let Err(e) = watch.unwatch().await {
                    tracing::debug!("unwatch: {e}");
                }
                return;
            }
        };
        let Some(inner) = image.upgrade() else { return };
        match news {
            Some(WatchNews::Notify { id, payload, .. }) => inner.hear(id, &payload),
            Some(WatchNews::Lost(_)) | None => {
                let again = tokio::select! {
                    again = inner.watch_again() => again,
                    () = stop.notified() => None,
                };
                let Some(again) = again else { return };
                watch = again;
                let inner = Rc::clone(&inner);
                // It may have to wait for others, whose messages must be heard meanwhile.
                tokio::task::spawn_local(async move { inner.keep_lock().await });
            }
        }
    }
}
