//! The exclusive lock of an image. The client that writes holds it, and passes it on when another
//! client asks.
//!
//! It is the lock `rbd_lock` on the header, under a cookie that names the holder's watch. A holder
//! whose watch is gone is dead. Before another client takes its lock, the dead one is put on the
//! cluster's blocklist, so that its late requests can't change the image any more (Ceph's
//! `src/librbd/ManagedLock.h`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use spirula_classes::rbd::features;
use spirula_client::{
    LockType,
    errno::{self, Errno},
};
use spirula_denc::{AddrType, EntityAddr, EntityName};
use spirula_proto::osd_op_data::WatchItem;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::image::{Inner, Options, Purpose};
use crate::journal::Journal;
use crate::message::Announcement;
use crate::object_map::ObjectMap;
use crate::watcher::Answer;
use crate::{Error, Result, cls};

/// The prefix of cookies.
const COOKIE: &str = "auto ";
/// How long to wait for a holder that has promised to give the lock up, before it is asked again.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait where no holder answers, or its answer does not help.
const RETRY: Duration = Duration::from_secs(1);
/// How long this client leaves a lock that it gave up to the client that asked for it.
const COURTESY: Duration = Duration::from_millis(500);

/// This client's side of the lock.
#[derive(Default)]
pub(crate) struct Lock {
    /// The cookie under which this client holds the lock.
    cookie: RefCell<Option<String>>,
    /// Held while the lock is taken or given up.
    changing: Mutex<()>,
    /// When this client last gave the lock up on request.
    yielded: Cell<Option<Instant>>,
    /// This client is giving the lock up.
    yielding: Cell<bool>,
    /// Wakes waiters when another client has taken the lock or given it up.
    pub(crate) news: Notify,
}

/// The holder of the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    name: EntityName,
    cookie: String,
    addr: EntityAddr,
    /// The number of its watch.
    handle: u64,
}

impl Holder {
    fn is_watching(&self, watchers: &[WatchItem]) -> bool {
        let addr = |a: EntityAddr| a.with_kind(AddrType::ANY);
        watchers
            .iter()
            .any(|w| w.cookie == self.handle && addr(w.addr) == addr(self.addr))
    }
}

impl Lock {
    pub(crate) fn is_owned(&self) -> bool {
        self.cookie.borrow().is_some()
    }

    /// The cookie under which this client holds the lock.
    pub(crate) fn cookie(&self) -> Option<String> {
        self.cookie.borrow().clone()
    }

    /// Notes that the lock was taken away from this client.
    pub(crate) fn lose(&self, inner: &Inner) {
        *self.cookie.borrow_mut() = None;
        *inner.map.borrow_mut() = None;
        if let Some(journal) = inner.journal.take() {
            journal.lose();
        }
    }
}

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
        if self.lock.is_owned() || !self.header().has(features::EXCLUSIVE_LOCK) {
            return Ok(true);
        }
        if self.read_only {
            return Err(Error::os("lock", errno::EROFS));
        }
        let _turn = self.lock.changing.lock().await;
        if self.lock.is_owned() {
            return Ok(true);
        }
        self.leave_to_others().await;
        let cookie = loop {
            self.check_shut_out()?;
            let handle = self.client_id().handle;
            if handle == 0 {
                // The watch is being made again.
                tokio::time::sleep(RETRY).await;
                continue;
            }
            let cookie = format!("{COOKIE}{handle}");
            let news = self.lock.news.notified();
            let request = cls::lock_request(&cookie, cls::LOCK_TAG);
            match self.io.lock(self.header_oid(), &request).await {
                Ok(()) => break cookie,
                Err(e) if e.errno() == errno::EEXIST => break cookie,
                Err(e) if e.errno() == errno::EBUSY => {}
                Err(e) => return Err(e.into()),
            }
            let Some(holder) = self.holder().await? else {
                continue;
            };
            if self.take_from_dead(&holder).await? {
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
            self.map.take();
            let unlocked = self.io.unlock(self.header_oid(), cls::LOCK, &cookie).await;
            if let Err(e) = unlocked {
                tracing::warn!("lock of image {}: {e}", self.fixed.id);
            }
            return Err(e);
        }
        *self.lock.cookie.borrow_mut() = Some(cookie);
        let inner = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Err(e) = inner
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
        self.reread().await?;
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
        if self.journal.borrow().is_some() {
            return Ok(());
        }
        self.open_journal(&cookie).await
    }

    /// Opens the object map if the image has one, and closes one that the image no longer has.
    async fn follow_map(&self) -> Result<()> {
        let header = self.header();
        let has_map = header.has(features::OBJECT_MAP);
        if !has_map {
            self.map.take();
        } else if self.map().is_none() {
            let objects = self.objects(header.size);
            let map = ObjectMap::open(&self.io, &self.fixed.id, &header, (objects, self.max_mapped)).await?;
            *self.map.borrow_mut() = Some(Rc::new(map));
        }
        Ok(())
    }

    /// Opens the journal if the image has one, and replays it.
    async fn open_journal(self: &Rc<Self>, cookie: &str) -> Result<()> {
        if !self.header().has(features::JOURNALING) || self.purpose != Purpose::Use {
            return Ok(());
        }
        let replayer = self.replayer(cookie).await?;
        let journal = Box::pin(Journal::open(Rc::clone(&replayer))).await?;
        self.name.replace(replayer.name.take());
        self.reread().await?;
        // It may have told of features.
        *self.map.borrow_mut() = replayer.map();
        self.follow_map().await?;
        *self.journal.borrow_mut() = Some(Rc::new(journal));
        Ok(())
    }

    /// Another view of the image under the same lock, for the replay before this client writes.
    async fn replayer(&self, cookie: &str) -> Result<Rc<Self>> {
        let (name, options) = (self.name.borrow().clone(), Options::default());
        let open = Self::open(&self.io, name, &self.fixed.id, &options, None, Purpose::Replay);
        let replayer = Box::pin(open).await?;
        *replayer.lock.cookie.borrow_mut() = Some(cookie.to_owned());
        *replayer.map.borrow_mut() = self.map();
        Ok(replayer)
    }

    /// The holder of the lock. `EBUSY` where that is no client that passes it on.
    async fn holder(&self) -> Result<Option<Holder>> {
        let info = self.io.lock_info(self.header_oid(), cls::LOCK).await?;
        let Some(locker) = info.lockers.into_iter().next() else {
            return Ok(None);
        };
        let handle = locker.cookie.strip_prefix(COOKIE).and_then(|n| n.parse().ok());
        match handle {
            Some(handle)
                if info.tag == cls::LOCK_TAG
                    && info.kind == LockType::EXCLUSIVE
                    && !locker.addr.is_blank() =>
            {
                Ok(Some(Holder {
                    name: locker.name,
                    cookie: locker.cookie,
                    addr: locker.addr,
                    handle,
                }))
            }
            _ => Err(Error::os("lock", errno::EBUSY)),
        }
    }

    /// Takes the lock away from a dead holder. Returns false where the holder is alive.
    async fn take_from_dead(&self, holder: &Holder) -> Result<bool> {
        let watchers = self.io.list_watchers(self.header_oid()).await?;
        if holder.is_watching(&watchers) {
            return Ok(false);
        }
        // A new holder's watch may be newer than the list of watchers that was read.
        if self.holder().await?.as_ref() != Some(holder) {
            return Ok(true);
        }
        tracing::warn!(
            "{} at {} is dead: its lock is taken away",
            holder.name,
            holder.addr
        );
        self.shut_out(holder.addr).await?;
        let broken = self
            .io
            .break_lock(self.header_oid(), cls::LOCK, holder.name, &holder.cookie);
        match broken.await {
            Err(e) if e.errno() != errno::ENOENT => Err(e.into()),
            _ => Ok(true),
        }
    }

    /// Puts a client on the cluster's blocklist.
    pub(crate) async fn shut_out(&self, addr: EntityAddr) -> Result<()> {
        let addr = addr.with_kind(AddrType::ANY);
        let rados = self.io.rados();
        let command = |prefix: &str, key: &str| {
            format!(r#"{{"prefix": "osd {prefix}", "{key}": "add", "addr": "{addr}"}}"#)
        };
        let add = command("blocklist", "blocklistop");
        let mut reply = rados.mon_command(&add, bytes::Bytes::new()).await?;
        if reply.result == -errno::EINVAL {
            // The command's name before Pacific.
            let add = command("blacklist", "blacklistop");
            reply = rados.mon_command(&add, bytes::Bytes::new()).await?;
        }
        if let Some(errno) = Errno::of_result(reply.result) {
            return Err(Error::os("blocklist", errno));
        }
        // Requests carry this map's epoch: an OSD that executes one knows the list.
        rados.latest_map().await?;
        Ok(())
    }

    /// Asks the holder for the lock. Returns how long to wait for it.
    async fn ask_for_lock(&self) -> Result<Duration> {
        let request = Announcement::RequestLock {
            client: self.client_id(),
            force: false,
        };
        match self.announce(request).await? {
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
        if self.exclusive {
            return Some(-errno::EROFS);
        }
        if !self.lock.yielding.replace(true) {
            let inner = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let released = inner.release().await;
                inner.lock.yielded.set(Some(Instant::now()));
                inner.lock.yielding.set(false);
                if let Err(e) = released {
                    tracing::warn!("lock of image {}: {e}", inner.fixed.id);
                }
            });
        }
        Some(0)
    }

    /// Gives the lock up, after all writes and operations under way.
    pub(crate) async fn release(&self) -> Result<()> {
        let _operation = self.operation.lock().await;
        let _turn = self.lock.changing.lock().await;
        if !self.lock.is_owned() {
            return Ok(());
        }
        let _alone = self.alone().await;
        let journal = self.journal.take();
        if let Some(journal) = journal {
            journal.close().await;
        }
        let cookie = self.lock.cookie.take();
        let map = self.map.take();
        if let Some(map) = map
            && let Err(e) = map.close().await
        {
            // The next owner breaks it.
            tracing::debug!("lock of an object map: {e}");
        }
        let Some(cookie) = cookie else { return Ok(()) };
        match self.io.unlock(self.header_oid(), cls::LOCK, &cookie).await {
            Err(e) if e.errno() != errno::ENOENT => return Err(e.into()),
            _ => {}
        }
        let said = self.announce(Announcement::ReleasedLock(self.client_id())).await;
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
            Ok(op) => cls::change(&self.io, "lock", self.header_oid(), vec![op]).await,
            Err(e) => Err(e),
        };
        match kept {
            Ok(()) => *self.lock.cookie.borrow_mut() = Some(new),
            Err(e) => {
                tracing::warn!("the lock of image {} is lost: {e}", self.fixed.id);
                self.lock.lose(self);
            }
        }
    }
}
