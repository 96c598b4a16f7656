//! Watches and notifications.
//!
//! A watch is registered with the OSD that serves the object, on the present session. When the
//! session is lost or another OSD takes over it is registered anew, and now and then the client
//! pings the OSD (Ceph's `doc/dev/osd_internals/watch_notify.rst`; intervals of
//! `src/osdc/Objecter.cc`).

use std::time::Duration;

use bytes::Bytes;
use spirula_denc::{Reader, encode_to_vec};
use spirula_errno::Errno;
use spirula_maps::ObjectName;
use spirula_proto::osd::{MWatchNotify, OpArgs, OpCode, OsdFlags, OsdOpIn, WatchArgs, WatchEvent, WatchOp};
use spirula_proto::osd_op_data::{ListWatchersResponse, NotifyAck, NotifyReplies, NotifyRequest, WatchItem};
use tokio::sync::{mpsc, oneshot};

use crate::objecter::{Aim, LingerEnd, Resend};
use crate::{Connection, Error, IoCtx, Rados, Result, errno};

/// The pause between two pings.
const PING: Duration = Duration::from_secs(5);

/// News for a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchNews {
    /// A notification; answer it with [`Watch::ack`].
    Notify {
        /// The OSD's number of the notification.
        id: u64,
        /// The notifier's global id.
        notifier: u64,
        /// The notifier's data.
        payload: Bytes,
    },
    /// The watch is gone, with a negative errno: `ENOTCONN` where the object was removed or the OSD
    /// did not hear of this client for too long. No news follow.
    Lost(Errno),
}

/// The outcome of a notification.
#[derive(Debug)]
pub struct NotifyOutcome {
    /// 0, or `-ETIMEDOUT` where a watcher did not answer.
    pub result: i32,
    /// The watchers' answers, and the watchers that did not answer.
    pub replies: NotifyReplies,
}

/// A watch on an object. Without [`Watch::unwatch`] the OSD keeps it until it times out.
pub struct Watch<C = Rados> {
    io: IoCtx<C>,
    oid: ObjectName,
    cookie: u64,
    /// The client keeps the watch as long as this is open.
    news: mpsc::UnboundedReceiver<WatchNews>,
}

fn watch_op(op: WatchOp, cookie: u64, generation: u32, timeout: u32) -> OsdOpIn {
    let args = WatchArgs {
        cookie,
        version: 0,
        op,
        generation,
        timeout,
    };
    OsdOpIn::new(OpCode::WATCH, OpArgs::Watch(args), Bytes::new())
}

/// The task of a watch, on the client's thread.
struct Keeper {
    io: IoCtx,
    oid: ObjectName,
    timeout: u32,
    end: LingerEnd,
    /// How often it was registered anew.
    generation: u32,
    news: mpsc::UnboundedSender<WatchNews>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let objecter = &self.io.rados().inner.objecter;
        objecter.borrow_mut().unlinger(self.end.cookie);
    }
}

impl Keeper {
    async fn once(&self, op: OsdOpIn) -> Result<()> {
        let mut request = self.io.request(self.oid.clone(), vec![op]);
        request.flags.insert(OsdFlags::READ);
        let sent = self.io.submit(request, Aim::Object, Resend::Never).await;
        let errno = match sent {
            Ok(reply) => Errno::of_result(reply.result),
            Err(Error::Os { errno, .. }) => Some(errno),
            Err(e) => return Err(e),
        };
        errno.map_or(Ok(()), |e| Err(Error::os("watch", e)))
    }

    /// Registers the watch, again and again while the target changes. Returns the OSD's result.
    async fn register(&mut self, again: bool) -> Result<()> {
        let cookie = self.end.cookie;
        loop {
            self.end.moved.mark_unchanged();
            let op = if again {
                self.generation += 1;
                watch_op(WatchOp::RECONNECT, cookie, self.generation, 0)
            } else {
                watch_op(WatchOp::WATCH, cookie, 0, self.timeout)
            };
            match self.once(op).await {
                Err(Error::Os {
                    errno: errno::EAGAIN, ..
                }) => {}
                done => return done,
            }
        }
    }

    async fn ping(&self) -> Result<()> {
        let op = watch_op(WatchOp::PING, self.end.cookie, self.generation, 0);
        self.once(op).await
    }

    /// Keeps the watch; returns the errno with which it ended, `None` if its owner has gone.
    async fn keep(&mut self) -> Option<Errno> {
        let mut ping = tokio::time::interval(PING);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The first tick is at once.
        ping.tick().await;
        loop {
            let result = tokio::select! {
                event = self.end.events.recv() => match self.hear(event?) {
                    Some(lost) => return Some(lost),
                    None => continue,
                },
                moved = self.end.moved.changed() => {
                    moved.ok()?;
                    self.register(true).await
                }
                _ = ping.tick() => self.ping().await,
            };
            match result {
                // Whatever moved it tells itself, too.
                Ok(())
                | Err(Error::Os {
                    errno: errno::EAGAIN, ..
                }) => {}
                Err(Error::Os {
                    errno: errno::ENOENT, ..
                }) => return Some(errno::ENOTCONN),
                Err(e) => return Some(e.errno()),
            }
        }
    }

    fn hear(&self, event: MWatchNotify) -> Option<Errno> {
        match event.event {
            WatchEvent::NOTIFY => {
                let news = WatchNews::Notify {
                    id: event.notify_id,
                    notifier: event.notifier_gid,
                    payload: event.payload.0,
                };
                // The watch may be on its way out.
                let _ = self.news.send(news);
                None
            }
            WatchEvent::DISCONNECT => Some(errno::ENOTCONN),
            other => {
                tracing::debug!("unexpected {other} for a watch");
                None
            }
        }
    }

    /// Keeps the watch until it is lost, or its owner has gone.
    async fn run(mut self, registered: oneshot::Sender<Result<()>>) {
        let news = self.news.clone();
        let kept = async {
            let first = self.register(false).await;
            let stands = first.is_ok();
            if registered.send(first).is_err() || !stands {
                return None;
            }
            self.keep().await
        };
        let lost = tokio::select! {
            biased;
            () = news.closed() => None,
            lost = kept => lost,
        };
        if let Some(lost) = lost {
            // The watch may be on its way out.
            let _ = news.send(WatchNews::Lost(lost));
        }
    }
}

impl<C: Connection> Watch<C> {
    /// The client's number of the watch.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Waits for news; `None` after the watch was lost.
    pub async fn next(&mut self) -> Option<WatchNews> {
        self.news.recv().await
    }

    /// Answers a notification.
    ///
    /// # Errors
    /// `ENOENT` where the object is gone.
    pub async fn ack(&self, id: u64, reply: Bytes) -> Result<()> {
        self.io.notify_ack(&self.oid, self.cookie, id, reply).await
    }

    /// Ends the watch.
    ///
    /// # Errors
    /// `ENOENT` where the object is gone.
    pub async fn unwatch(mut self) -> Result<()> {
        self.news.close();
        let op = watch_op(WatchOp::UNWATCH, self.cookie, 0, 0);
        self.io.one("unwatch", &self.oid, op).await.map(drop)
    }
}

impl IoCtx {
    /// Watches an object until the receiver of the news is dropped; returns the cookie and the
    /// news.
    async fn watch_here(
        &self,
        oid: ObjectName,
        timeout_seconds: u32,
    ) -> Result<(u64, mpsc::UnboundedReceiver<WatchNews>)> {
        if self.rados().map().is_none() {
            self.rados().latest_map().await?;
        }
        let objecter = &self.rados().inner.objecter;
        let end = objecter.borrow_mut().linger(oid.clone(), self.locator().clone());
        let cookie = end.cookie;
        let (sender, news) = mpsc::unbounded_channel();
        let keeper = Keeper {
            io: self.clone(),
            oid,
            timeout: timeout_seconds,
            end,
            generation: 0,
            news: sender,
        };
        let (registered, wait) = oneshot::channel();
        tokio::task::spawn_local(keeper.run(registered));
        wait.await.map_err(|_| spirula_monc::Error::ShutDown)??;
        Ok((cookie, news))
    }

    /// Notifies all watchers of an object and waits for their answers.
    async fn notify_here(&self, oid: ObjectName, payload: Bytes, timeout: u32) -> Result<NotifyOutcome> {
        if self.rados().map().is_none() {
            self.rados().latest_map().await?;
        }
        let objecter = &self.rados().inner.objecter;
        let end = objecter.borrow_mut().linger(oid.clone(), self.locator().clone());
        let _ended = Unlinger(self.rados(), end.cookie);
        self.notify_until_done(oid, payload, timeout, end).await
    }

    async fn notify_until_done(
        &self,
        oid: ObjectName,
        payload: Bytes,
        timeout: u32,
        mut end: LingerEnd,
    ) -> Result<NotifyOutcome> {
        let input = encode_to_vec(&NotifyRequest {
            version: 1,
            timeout,
            payload,
        });
        let mut wanted = None;
        let mut send = true;
        loop {
            if send {
                end.moved.mark_unchanged();
                let op = OsdOpIn::new(OpCode::NOTIFY, OpArgs::Notify(end.cookie), input.clone());
                let request = self.request(oid.clone(), vec![op]);
                let sent = self.submit(request, Aim::Object, Resend::Never).await;
                wanted = match sent {
                    Ok(reply) => {
                        if let Some(errno) = Errno::of_result(reply.result) {
                            return Err(Error::os("notify", errno));
                        }
                        let out = reply.ops.first().map(|o| o.data.to_bytes()).unwrap_or_default();
                        Reader::new(&out).u64().ok()
                    }
                    Err(e) if e.errno() == errno::EAGAIN => continue,
                    Err(e) => return Err(e),
                };
            }
            tokio::select! {
                event = end.events.recv() => {
                    let event = event.ok_or(spirula_monc::Error::ShutDown)?;
                    send = false;
                    let ours = wanted.is_none_or(|id| id == event.notify_id);
                    if event.event == WatchEvent::NOTIFY_COMPLETE && ours {
                        return outcome(&event);
                    }
                }
                // The OSD that knew the notification is gone: it begins anew.
                _ = end.moved.changed() => send = true,
            }
        }
    }
}

/// Ends a notification when dropped, also if its caller has gone.
struct Unlinger<'a>(&'a Rados, u64);

impl Drop for Unlinger<'_> {
    fn drop(&mut self) {
        self.0.inner.objecter.borrow_mut().unlinger(self.1);
    }
}

impl<C: Connection> IoCtx<C> {
    /// Watches an object. The OSD drops the watch after `timeout_seconds` without a ping, 0 for its
    /// default.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn watch(&self, oid: impl Into<ObjectName>, timeout_seconds: u32) -> Result<Watch<C>> {
        let oid = oid.into();
        let watched = oid.clone();
        let watch = move |io: IoCtx| async move { io.watch_here(watched, timeout_seconds).await };
        let (cookie, news) = self.run(0, watch).await?;
        Ok(Watch {
            io: self.clone(),
            oid,
            cookie,
            news,
        })
    }

    /// Answers a notification that the watch with this cookie has received.
    ///
    /// # Errors
    /// `ENOENT` where the object is gone.
    pub async fn notify_ack(
        &self,
        oid: impl Into<ObjectName>,
        cookie: u64,
        notify_id: u64,
        reply: Bytes,
    ) -> Result<()> {
        let ack = NotifyAck {
            notify_id,
            cookie,
            reply,
        };
        let op = OsdOpIn::new(OpCode::NOTIFY_ACK, OpArgs::Notify(0), encode_to_vec(&ack));
        self.one("notify_ack", oid, op).await.map(drop)
    }

    /// Notifies all watchers of an object and waits for their answers, `timeout_seconds` at most.
    ///
    /// # Errors
    /// `ENOENT` where there is no object. A watcher that does not answer is an outcome.
    pub async fn notify(
        &self,
        oid: impl Into<ObjectName>,
        payload: Bytes,
        timeout_seconds: u32,
    ) -> Result<NotifyOutcome> {
        let oid = oid.into();
        let bytes = payload.len();
        let notify = move |io: IoCtx| async move { io.notify_here(oid, payload, timeout_seconds).await };
        self.run(bytes, notify).await
    }

    /// The watchers of an object.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn list_watchers(&self, oid: impl Into<ObjectName>) -> Result<Vec<WatchItem>> {
        let op = OsdOpIn::new(OpCode::LIST_WATCHERS, OpArgs::None, Bytes::new());
        let out = self.one("list_watchers", oid, op).await?;
        let all: ListWatchersResponse = Reader::new(&out).get()?;
        Ok(all.entries)
    }
}

fn outcome(event: &MWatchNotify) -> Result<NotifyOutcome> {
    let data = event.replies.to_bytes();
    let replies = if data.is_empty() {
        NotifyReplies::default()
    } else {
        Reader::new(&data).get()?
    };
    Ok(NotifyOutcome {
        result: event.result,
        replies,
    })
}
