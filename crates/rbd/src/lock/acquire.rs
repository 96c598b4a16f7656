//! How this client takes the lock and gives it up.

use std::rc::Rc;
use std::time::Duration;

use spirula_classes::rbd::Features;
use spirula_client::errno;
use tokio::time::Instant;

use crate::announce::Answer;
use crate::holder::COOKIE;
use crate::image::Inner;
use crate::journal::Journal;
use crate::message::Announcement;
use crate::object_map::ObjectMap;
use crate::site::{Options, Purpose};
use crate::{Error, Result, cls};

/// How long to wait for a holder that has promised to give the lock up, before it is asked again.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait where no holder answers, or its answer does not help.
const RETRY: Duration = Duration::from_secs(1);
/// How long this client leaves a lock that it gave up to the client that asked for it.
const COURTESY: Duration = Duration::from_millis(500);

impl Inner {
    /// Takes the lock, if the image has one and this client does not hold it: asks its holder for
    /// it, or takes it from a dead holder.
    pub(crate) async fn acquire(self: &Rc<Self>) -> Result<()> {
        self.acquire_from(true).await.map(drop)
    }

    /// Takes the lock unless another live client holds it. Returns whether this client has it, or
    /// needs none.
    pub(crate) async fn acquire_if_free(self: &Rc<Self>) -> Result<bool> {
        self.acquire_from(false).await
    }

    /// Takes the lock. A live holder is only asked for it with `may_ask`.
    async fn acquire_from(self: &Rc<Self>, may_ask: bool) -> Result<bool> {
        if self.lock.is_owned() || !self.view.header().has(Features::EXCLUSIVE_LOCK) {
            return Ok(true);
        }
        if self.site.read_only {
            return Err(Error::os("lock", errno::EROFS));
        }
        let _turn = self.lock.changing.lock().await;
        if self.lock.is_owned() {
            return Ok(true);
        }
        self.leave_to_others().await;
        let cookie = loop {
            self.watcher.check_shut_out()?;
            let handle = self.client_id().handle;
            if handle == 0 {
                // The watch is being made again.
                tokio::time::sleep(RETRY).await;
                continue;
            }
            let cookie = format!("{COOKIE}{handle}");
            let news = self.lock.news.notified();
            let request = cls::lock_request(&cookie, cls::LOCK_TAG);
            match self.site.io.lock(self.site.header_oid(), &request).await {
                Ok(()) => break cookie,
                Err(e) if e.errno() == errno::EEXIST => break cookie,
                Err(e) if e.errno() == errno::EBUSY => {}
                Err(e) => return Err(e.into()),
            }
            let Some(holder) = self.site.holder().await? else {
                continue;
            };
            if self.site.take_from_dead(&holder).await? {
                continue;
            }
            if !may_ask {
                return Ok(false);
            }
            let patience = self.ask_for_lock().await?;
            // Whether it was given up is seen when it is tried again.
            let _ = tokio::time::timeout(patience, news).await;
        };
        if let Err(e) = self.took_lock(&cookie).await {
            self.view.set_map(None);
            let unlocked = self
                .site
                .io
                .unlock(self.site.header_oid(), cls::LOCK, &cookie)
                .await;
            if let Err(e) = unlocked {
                tracing::warn!("lock of image {}: {e}", self.site.fixed.id);
            }
            return Err(e);
        }
        *self.lock.cookie.borrow_mut() = Some(cookie);
        let inner = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Err(e) = inner
                .site
                .announce(Announcement::AcquiredLock(inner.client_id()))
                .await
            {
                tracing::debug!("announcement: {e}");
            }
        });
        Ok(true)
    }

    /// Waits a moment after giving the lock up, so that the client that asked for it gets it.
    async fn leave_to_others(&self) {
        if let Some(when) = self.lock.yielded.take() {
            let news = self.lock.news.notified();
            // Somebody took it, or nobody wants it any more.
            let _ = tokio::time::timeout_at(when + COURTESY, news).await;
        }
    }

    /// Opens the object map and the journal, and finishes work that the former holder left.
    async fn took_lock(self: &Rc<Self>, cookie: &str) -> Result<()> {
        self.view.reread().await?;
        self.follow_map().await?;
        self.open_journal(cookie).await
    }

    /// While the lock is held: opens the object map and the journal of a feature that was enabled,
    /// and closes those of disabled ones.
    pub(crate) async fn follow_features(self: &Rc<Self>) -> Result<()> {
        let Some(cookie) = self.lock.cookie() else {
            return Ok(());
        };
        self.follow_map().await?;
        if self.lock.journal().is_some() {
            return Ok(());
        }
        self.open_journal(&cookie).await
    }

    /// Opens the object map if the image has one, and closes one that the image no longer has.
    async fn follow_map(&self) -> Result<()> {
        let header = self.view.header();
        let has_map = header.has(Features::OBJECT_MAP);
        if !has_map {
            self.view.set_map(None);
        } else if self.view.map().is_none() {
            let (objects, max) = (self.site.objects(header.size), self.site.limits.max_mapped);
            let map = ObjectMap::open(&self.site.io, &self.site.fixed.id, &header, objects, max).await?;
            self.view.set_map(Some(Rc::new(map)));
        }
        Ok(())
    }

    /// Opens the journal if the image has one, and replays it.
    async fn open_journal(self: &Rc<Self>, cookie: &str) -> Result<()> {
        if !self.view.header().has(Features::JOURNALING) || self.site.purpose != Purpose::Use {
            return Ok(());
        }
        let replayer = self.replayer(cookie).await?;
        let journal = Box::pin(Journal::open(Rc::clone(&replayer))).await?;
        self.name.replace(replayer.name.take());
        self.view.reread().await?;
        // It may have told of features.
        self.view.set_map(replayer.view.map());
        self.follow_map().await?;
        *self.lock.journal.borrow_mut() = Some(Rc::new(journal));
        Ok(())
    }

    /// Another view of the image under the same lock, for the replay before this client writes.
    async fn replayer(&self, cookie: &str) -> Result<Rc<Self>> {
        let (name, options) = (self.name.borrow().clone(), Options::default());
        let open = Self::open(
            &self.site.io,
            name,
            &self.site.fixed.id,
            &options,
            None,
            Purpose::Replay,
        );
        let replayer = Box::pin(open).await?;
        *replayer.lock.cookie.borrow_mut() = Some(cookie.to_owned());
        replayer.view.set_map(self.view.map());
        Ok(replayer)
    }

    /// Asks the holder for the lock. Returns how long to wait for it.
    async fn ask_for_lock(&self) -> Result<Duration> {
        let request = Announcement::RequestLock {
            client: self.client_id(),
            force: false,
        };
        match self.site.announce(request).await? {
            Answer::Said(0) => Ok(PATIENCE),
            Answer::Said(e) if e == -errno::EROFS => Err(Error::os("lock", errno::EROFS)),
            Answer::Said(_) | Answer::None => Ok(RETRY),
        }
    }

    /// Handles another client's request for the lock. Returns the answer; `None` where this client
    /// does not hold it.
    pub(crate) fn lock_requested(self: &Rc<Self>) -> Option<i32> {
        if !self.lock.is_owned() {
            return None;
        }
        if self.site.exclusive {
            return Some(-errno::EROFS);
        }
        if !self.lock.yielding.replace(true) {
            let inner = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let released = inner.release().await;
                inner.lock.yielded.set(Some(Instant::now()));
                inner.lock.yielding.set(false);
                if let Err(e) = released {
                    tracing::warn!("lock of image {}: {e}", inner.site.fixed.id);
                }
            });
        }
        Some(0)
    }

    /// Gives the lock up, after all writes and operations under way.
    pub(crate) async fn release(&self) -> Result<()> {
        let _operation = self.traffic.turn().await;
        let _turn = self.lock.changing.lock().await;
        if !self.lock.is_owned() {
            return Ok(());
        }
        let _alone = self.traffic.alone().await;
        self.lock.close_journal().await;
        let cookie = self.lock.cookie.take();
        let map = self.view.set_map(None);
        if let Some(map) = map
            && let Err(e) = map.close().await
        {
            // The next owner breaks it.
            tracing::debug!("lock of an object map: {e}");
        }
        let Some(cookie) = cookie else { return Ok(()) };
        match self
            .site
            .io
            .unlock(self.site.header_oid(), cls::LOCK, &cookie)
            .await
        {
            Err(e) if e.errno() != errno::ENOENT => return Err(e.into()),
            _ => {}
        }
        let said = self
            .site
            .announce(Announcement::ReleasedLock(self.client_id()))
            .await;
        if let Err(e) = said {
            tracing::debug!("announcement: {e}");
        }
        Ok(())
    }

    /// After the watch was made again: puts its new number into the lock's cookie, unless another
    /// client has taken the lock meanwhile.
    pub(crate) async fn keep_lock(&self) {
        let _turn = self.lock.changing.lock().await;
        let Some(old) = self.lock.cookie() else { return };
        let new = format!("{COOKIE}{}", self.client_id().handle);
        let kept = match cls::set_lock_cookie(&old, &new) {
            Ok(op) => cls::change(&self.site.io, "lock", self.site.header_oid(), vec![op]).await,
            Err(e) => Err(e),
        };
        match kept {
            Ok(()) => *self.lock.cookie.borrow_mut() = Some(new),
            Err(e) => {
                tracing::warn!("the lock of image {} is lost: {e}", self.site.fixed.id);
                self.lock.lose(&self.view);
            }
        }
    }
}
