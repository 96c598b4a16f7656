//! A notification that waits for its watchers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::{Micros, encode_to_vec};
use spirula_errno::ETIMEDOUT;
use spirula_proto::Blob;
use spirula_proto::osd::{MWatchNotify, WatchEvent};
use spirula_proto::osd_op_data::{NotifyReplies, WatcherId};

use super::memory::Charge;
use super::watchers::WatchKey;
use crate::pg::op::Client;
use crate::pg::output::Output;

/// A notification as its op asked for it.
#[derive(Debug)]
pub(crate) struct NotifyStart {
    /// The notification's id, as told to the notifier.
    pub id: u64,
    /// The notifier's own number for it.
    pub cookie: u64,
    /// Seconds after which it times out.
    pub timeout: u32,
    /// The payload.
    pub payload: Bytes,
    /// The memory for it, and for the answers to it.
    pub charges: Vec<Charge>,
}

/// A watcher's answer.
#[derive(Debug)]
pub(crate) struct Ack {
    /// The watch that answers; `None` for all of the client.
    pub cookie: Option<u64>,
    /// The notification.
    pub id: u64,
    /// The answer's payload.
    pub reply: Bytes,
    /// The memory for it.
    pub charge: Charge,
}

/// A notification under way.
#[derive(Debug)]
pub(super) struct Notify {
    client: Arc<Client>,
    start: NotifyStart,
    /// The object's version.
    version: u64,
    /// When it times out.
    pub(super) deadline: Micros,
    /// The watchers that have not answered yet.
    waiting: BTreeSet<WatchKey>,
    replies: BTreeMap<WatcherId, Bytes>,
}

fn watcher_id(key: &WatchKey) -> WatcherId {
    WatcherId {
        client: key.1.num.cast_unsigned(),
        cookie: key.0,
    }
}

impl Notify {
    pub(super) fn new(client: Arc<Client>, start: NotifyStart, version: u64, usec: Micros) -> Self {
        Self {
            client,
            version,
            deadline: usec + Micros::from_secs(start.timeout.into()),
            waiting: BTreeSet::new(),
            replies: BTreeMap::new(),
            start,
        }
    }

    /// Expects an answer from this watcher.
    pub(super) fn expect(&mut self, key: WatchKey) {
        self.waiting.insert(key);
    }

    pub(super) fn expects(&self, key: &WatchKey) -> bool {
        self.waiting.contains(key)
    }

    /// Whether no more answers are expected.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Expects no answer from this watcher any more.
    pub(super) fn forget(&mut self, key: &WatchKey) {
        self.waiting.remove(key);
    }

    /// Notes a watcher's answer; the first counts.
    pub(super) fn answer(&mut self, key: &WatchKey, reply: Bytes, charge: Option<Charge>) {
        if self.waiting.remove(key) {
            self.replies.insert(watcher_id(key), reply);
            if let Some(charge) = charge {
                self.start.charges.push(charge);
            }
        }
    }

    /// The message to a watcher.
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

    /// The message to the notifier about the outcome.
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
