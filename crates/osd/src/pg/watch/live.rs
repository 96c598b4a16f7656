//! The watches that a primary knows of: which clients are connected, and until when the others are
//! waited for.
//!
//! An object's watches are here once its info was read, and until the interval ends. Then
//! everything is dropped: clients register their watches again with the next primary, which waits
//! for them as long as their time-out says.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_proto::osd::{MWatchNotify, WatchEvent};

use super::memory::{Charge, WatchMemory};
use super::notify::{Ack, Notify, NotifyStart};
use super::watchers::{WatchKey, Watcher, Watchers};
use crate::pg::op::Client;
use crate::pg::output::Output;

/// The approximate bytes of a watch.
const WATCH_BYTES: usize = 256;
/// The time after which a removal that had no effect is tried again.
const RETRY: Micros = Micros::from_secs(10);

/// A watch.
#[derive(Debug)]
struct Live {
    watcher: Watcher,
    /// The client's connection.
    client: Option<Arc<Client>>,
    /// Whether the client sends pings; otherwise the watch lives as long as its connection.
    pings: bool,
    /// When the last ping came, or the client connected.
    last_ping: Micros,
    /// When the watch is dropped.
    deadline: Option<Micros>,
    /// When the watch's removal was last begun.
    removal: Option<Micros>,
    _charge: Charge,
}

impl Live {
    fn patience(&self) -> Micros {
        Micros::from_secs(self.watcher.timeout.into())
    }

    fn wait(&mut self, usec: Micros) {
        self.deadline = Some(usec + self.patience());
    }

    fn disconnect(&mut self, usec: Micros) {
        self.client = None;
        // One that pings is waited for since its last ping.
        if !self.pings {
            self.wait(usec);
        }
    }
}

#[derive(Debug, Default)]
struct ObjectWatches {
    live: BTreeMap<WatchKey, Live>,
    notifies: BTreeMap<u64, Notify>,
}

/// All watches of a PG.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    memory: WatchMemory,
    objects: BTreeMap<Bytes, ObjectWatches>,
}

impl Watches {
    /// Makes the memory count together with that of all other PGs of the reactor.
    pub(crate) fn share_memory(&mut self, memory: WatchMemory) {
        self.memory = memory;
    }

    /// Whether nothing is watched.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Forgets everything at the end of the interval.
    pub(crate) fn clear(&mut self) {
        self.objects.clear();
    }

    /// All watches.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &WatchKey, &Watcher)> {
        self.objects
            .iter()
            .flat_map(|(object, o)| o.live.iter().map(move |(key, w)| (object, key, &w.watcher)))
    }

    fn live(&mut self, object: &Bytes, key: &WatchKey) -> Option<&mut Live> {
        self.objects.get_mut(object)?.live.get_mut(key)
    }

    /// Whether a watch's client is connected.
    pub(crate) fn is_connected(&self, object: &Bytes, key: &WatchKey) -> bool {
        let w = self.objects.get(object).and_then(|o| o.live.get(key));
        w.is_some_and(|w| w.client.is_some())
    }

    /// Memory for one more watch.
    pub(crate) fn reserve_watch(&self, client: &Client, limit: usize) -> Option<Charge> {
        self.memory.take(WATCH_BYTES, &client.party, limit)
    }

    /// Memory for a notification: its payload may be in the queue of every watcher.
    pub(crate) fn reserve_notify(
        &self,
        client: &Client,
        object: &Bytes,
        len: usize,
        limit: usize,
    ) -> Option<Charge> {
        let watchers = self.objects.get(object).map_or(0, |o| o.live.len());
        let each = len.saturating_add(WATCH_BYTES);
        self.memory
            .take(each.saturating_mul(watchers + 1), &client.party, limit)
    }

    /// Memory for an answer.
    pub(crate) fn reserve_ack(&self, client: &Client, len: usize, limit: usize) -> Option<Charge> {
        self.memory.take(len.saturating_add(64), &client.party, limit)
    }

    /// The number of the next notification.
    pub(crate) fn next_number(&self) -> u32 {
        self.memory.next_number()
    }

    /// Begins to wait for the watchers, not connected yet, of an object that was read.
    pub(crate) fn populate(&mut self, object: &Bytes, watchers: &Watchers, usec: Micros) {
        if watchers.is_empty() {
            // Objects without watchers get no entry.
            return;
        }
        let o = self.objects.entry(object.clone()).or_default();
        for (key, watcher) in watchers.iter() {
            o.live.entry(*key).or_insert_with(|| {
                let mut w = Live {
                    watcher: *watcher,
                    client: None,
                    pings: false,
                    last_ping: usec,
                    deadline: None,
                    removal: None,
                    _charge: self.memory.take_always(WATCH_BYTES, None),
                };
                w.wait(usec);
                w
            });
        }
    }

    /// Notes a client that has registered a watch, or taken it up again.
    pub(crate) fn connect(
        &mut self,
        object: &Bytes,
        (key, watcher, pings): (WatchKey, Watcher, bool),
        client: &Arc<Client>,
        usec: Micros,
        out: &mut Vec<Output>,
    ) {
        let o = self.objects.entry(object.clone()).or_default();
        let w = o.live.entry(key).or_insert_with(|| Live {
            watcher,
            client: None,
            pings,
            last_ping: usec,
            deadline: None,
            removal: None,
            _charge: self.memory.take_always(WATCH_BYTES, Some(&client.party)),
        });
        if w.client.as_ref().is_some_and(|c| c.conn == client.conn) {
            // It is taken up already.
            return;
        }
        w.pings = pings;
        w.last_ping = usec;
        // It was nobody's while it was known from the object alone.
        w._charge = self.memory.take_always(WATCH_BYTES, Some(&client.party));
        if client.is_closed() {
            w.client = None;
            w.wait(usec);
            // The connection was lost while the watch was made durable.
            return;
        }
        w.client = Some(Arc::clone(client));
        w.deadline = None;
        if pings {
            w.wait(usec);
        }
        let waiting = o.notifies.values().filter(|n| n.expects(&key));
        out.extend(waiting.map(|n| n.tell(&key, client)));
    }

    /// Notes a ping of a watch.
    pub(crate) fn ping(&mut self, object: &Bytes, key: &WatchKey, usec: Micros) {
        if let Some(w) = self.live(object, key) {
            w.last_ping = usec;
            if w.client.is_some() {
                w.wait(usec);
            }
        }
    }

    /// Removes a watch; `tell` says whether its client is told.
    pub(crate) fn remove(&mut self, object: &Bytes, key: &WatchKey, tell: bool, out: &mut Vec<Output>) {
        let Some(o) = self.objects.get_mut(object) else {
            // Nobody watches the object, and nobody is notified.
            return;
        };
        let Some(w) = o.live.remove(key) else {
            // It was removed before.
            return;
        };
        if let Some(client) = w.client.filter(|_| tell) {
            out.push(Output::WatchNotify {
                client,
                msg: Box::new(MWatchNotify {
                    cookie: key.0,
                    event: WatchEvent::DISCONNECT,
                    ..MWatchNotify::default()
                }),
            });
        }
        o.notifies.values_mut().for_each(|n| n.forget(key));
        self.complete_notifies(object, Micros::ZERO, out);
    }

    /// Sends a notification to all watchers of an object. `version` is the object's.
    pub(crate) fn start_notify(
        &mut self,
        object: &Bytes,
        start: NotifyStart,
        version: u64,
        client: &Arc<Client>,
        usec: Micros,
        out: &mut Vec<Output>,
    ) {
        let id = start.id;
        let mut n = Notify::new(Arc::clone(client), start, version, usec);
        let o = self.objects.entry(object.clone()).or_default();
        for (key, w) in &mut o.live {
            if w.pings && usec.saturating_sub(w.last_ping) > w.patience() {
                w.disconnect(usec);
                continue;
            }
            n.expect(*key);
            out.extend(w.client.as_ref().map(|c| n.tell(key, c)));
        }
        if !n.is_over() {
            out.push(Output::Alarm { usec: n.deadline });
        }
        o.notifies.insert(id, n);
        self.complete_notifies(object, Micros::ZERO, out);
    }

    /// Handles the answer of a client's watchers to a notification.
    pub(crate) fn acknowledge(&mut self, object: &Bytes, ack: Ack, client: &Client, out: &mut Vec<Output>) {
        let notifies = self.objects.get_mut(object);
        let Some((n, live)) = notifies.and_then(|o| Some((o.notifies.get_mut(&ack.id)?, &o.live))) else {
            // The notification is over; as in Ceph, a late answer is ignored.
            return;
        };
        let mut charge = Some(ack.charge);
        let is_his = |key: &&WatchKey| key.1 == client.name && ack.cookie.is_none_or(|c| c == key.0);
        for key in live.keys().filter(is_his) {
            if n.expects(key) {
                n.answer(key, ack.reply.clone(), charge.take());
            }
        }
        self.complete_notifies(object, Micros::ZERO, out);
    }

    /// Ends the notifications of an object for which no answers are missing, or that have timed out
    /// at `usec`.
    fn complete_notifies(&mut self, object: &Bytes, usec: Micros, out: &mut Vec<Output>) {
        let Some(o) = self.objects.get_mut(object) else {
            // No watch, and no notification.
            return;
        };
        let is_over = |n: &Notify| n.is_over() || n.deadline <= usec;
        let over: Vec<u64> = o
            .notifies
            .iter()
            .filter(|(_, n)| is_over(n))
            .map(|(id, _)| *id)
            .collect();
        let over = over.iter().filter_map(|id| o.notifies.remove(id));
        out.extend(over.map(Notify::complete));
        if o.live.is_empty() && o.notifies.is_empty() {
            self.objects.remove(object);
        }
    }

    /// Handles the end of a connection.
    pub(crate) fn client_closed(&mut self, conn: u64, usec: Micros) {
        let all = self.objects.values_mut().flat_map(|o| o.live.values_mut());
        for w in all.filter(|w| w.client.as_ref().is_some_and(|c| c.conn == conn)) {
            w.disconnect(usec);
        }
    }

    /// Ends the notifications that have timed out; returns the watches that have. A watch is
    /// returned again only after a while.
    pub(crate) fn expire(&mut self, usec: Micros, out: &mut Vec<Output>) -> Vec<(Bytes, WatchKey)> {
        let ends = |o: &ObjectWatches| o.notifies.values().any(|n| n.deadline <= usec);
        let over: Vec<Bytes> = self
            .objects
            .iter()
            .filter(|(_, o)| ends(o))
            .map(|(k, _)| k.clone())
            .collect();
        for object in over {
            self.complete_notifies(&object, usec, out);
        }
        self.take_due(usec, |w| w.deadline.is_some_and(|t| t <= usec))
    }

    /// The watches of clients on the blocklist. A watch is returned again only after a while.
    pub(crate) fn shut_out(
        &mut self,
        usec: Micros,
        is_shut_out: impl Fn(&Watcher) -> bool,
    ) -> Vec<(Bytes, WatchKey)> {
        self.take_due(usec, |w| is_shut_out(&w.watcher))
    }

    fn take_due(&mut self, usec: Micros, due: impl Fn(&Live) -> bool) -> Vec<(Bytes, WatchKey)> {
        let mut out = Vec::new();
        for (object, o) in &mut self.objects {
            let is_new = |w: &Live| w.removal.is_none_or(|t| usec.saturating_sub(t) >= RETRY);
            for (key, w) in o.live.iter_mut().filter(|(_, w)| due(w) && is_new(w)) {
                w.removal = Some(usec);
                out.push((object.clone(), *key));
            }
        }
        out
    }
}
