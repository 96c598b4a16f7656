//! A notification that waits for its watchers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::encode_to_vec;
use spirula_proto::Blob;
use spirula_proto::osd::{MWatchNotify, WatchEvent};
use spirula_proto::osd_op_data::{NotifyReplies, WatcherId};

use super::memory::Charge;
use super::watchers::WatchKey;
use crate::pg::errno::ETIMEDOUT;
use crate::pg::op::Client;
use crate::pg::output::Output;

/// A notification as its op asked for it.
#[derive(Debug)]
pub(crate) struct NotifyStart {
    /// Its id, which the notifier was told.
    pub id: u64,
    /// The notifier's own number of it.
    pub cookie: u64,
    /// Seconds after which it is over.
    pub timeout: u32,
    /// What to say.
    pub payload: Bytes,
    /// What it takes, and the answers to it.
    pub charges: Vec<Charge>,
}

/// A watcher's answer.
#[derive(Debug)]
pub(crate) struct Ack {
    /// The watch that answers; `None` for all of the client.
    pub cookie: Option<u64>,
    /// The notification.
    pub id: u64,
    /// What it says.
    pub reply: Bytes,
    /// What that takes.
    pub charge: Charge,
}

/// A notification under way.
#[derive(Debug)]
pub(super) struct Notify {
    client: Arc<Client>,
    start: NotifyStart,
    /// The object's version.
    version: u64,
    /// When it is over, microseconds.
    pub(super) deadline: u64,
    /// Who did not answer yet.
    waiting: BTreeSet<WatchKey>,
    replies: BTreeMap<WatcherId, Bytes>,
}

fn watcher_id(key: &WatchKey) -> WatcherId {
    (key.1.num.cast_unsigned(), key.0)
}

impl Notify {
    pub(super) fn new(client: Arc<Client>, start: NotifyStart, version: u64, usec: u64) -> Self {
        Self {
            client,
            version,
            deadline: usec.saturating_add(u64::from(start.timeout) * 1_000_000),
            waiting: BTreeSet::new(),
            replies: BTreeMap::new(),
            start,
        }
    }

    /// This watcher is to answer.
    pub(super) fn expect(&mut self, key: WatchKey) {
        self.waiting.insert(key);
    }

    pub(super) fn expects(&self, key: &WatchKey) -> bool {
        self.waiting.contains(key)
    }

    /// Nobody is left who could answer.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// This watcher will not answer any more.
    pub(super) fn forget(&mut self, key: &WatchKey) {
        self.waiting.remove(key);
    }

    /// A watcher's answer; the first counts.
    pub(super) fn answer(&mut self, key: &WatchKey, reply: Bytes, charge: Option<Charge>) {
        if self.waiting.remove(key) {
            self.replies.insert(watcher_id(key), reply);
            if let Some(charge) = charge {
                self.start.charges.push(charge);
            }
        }
    }

    /// Tells a watcher.
    pub(super) fn tell(&self, key: &WatchKey, watcher: &Arc<Client>) -> Output {
        Output::WatchNotify {
            client: Arc::clone(watcher),
            msg: Box::new(MWatchNotify {
                cookie: key.0,
                version: self.version,
                notify_id: self.start.id,
                event: WatchEvent::NOTIFY,
                payload: Blob(self.start.payload.clone()),
                notifier_gid: self.client.name.num.cast_unsigned(),
                ..MWatchNotify::default()
            }),
        }
    }

    /// Tells the notifier how it ended.
    pub(super) fn complete(self) -> Output {
        let missed: Vec<WatcherId> = self.waiting.iter().map(watcher_id).collect();
        let replies = NotifyReplies {
            replies: self.replies,
            missed,
        };
        Output::WatchNotify {
            msg: Box::new(MWatchNotify {
                cookie: self.start.cookie,
                version: self.version,
                notify_id: self.start.id,
                event: WatchEvent::NOTIFY_COMPLETE,
                result: if replies.missed.is_empty() { 0 } else { -ETIMEDOUT },
                notifier_gid: self.client.name.num.cast_unsigned(),
                replies: encode_to_vec(&replies).into(),
                ..MWatchNotify::default()
            }),
            client: self.client,
        }
    }
}
