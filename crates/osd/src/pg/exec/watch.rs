//! Ops on watches and notifications. What they do beside the object's info happens later ([`WatchEffects`]).

use bytes::Bytes;
use spirula_denc::{EntityName, Reader, encode_to_vec};
use spirula_proto::osd::{WatchArgs, WatchOp};
use spirula_proto::osd_op_data::{ListWatchersResponse, NotifyAck, NotifyRequest, WatchItem};

use super::{Exec, OpResult, fail};
use crate::pg::errno::*;
use crate::pg::op::{Client, OsdOp};
use crate::pg::watch::watchers::{WatchKey, Watcher};
use crate::pg::watch::{Ack, NotifyStart, WatchEffects, Watches};

/// Who asks, and what is known of the object's watchers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    /// The connection.
    pub client: &'a Client,
    /// Whose watches are meant.
    pub name: EntityName,
    /// The object's key.
    pub object: &'a Bytes,
    /// The PG's watches.
    pub watches: &'a Watches,
    /// The map's epoch.
    pub epoch: u32,
}

impl Exec<'_> {
    fn effects(&mut self) -> &mut WatchEffects {
        self.watch_effects.get_or_insert_default()
    }

    pub(super) fn watch(&mut self, op: &OsdOp) -> OpResult {
        if !self.exists {
            return fail(ENOENT);
        }
        let args: WatchArgs = op.args();
        let key = (args.cookie, self.asking.name);
        let known = self.info.watchers.contains(&key);
        let watcher = Watcher {
            addr: self.asking.client.addr,
            timeout: match args.timeout {
                0 => self.cfg.watch_timeout,
                n => n.min(self.cfg.max_notify_timeout),
            },
        };
        match args.op {
            WatchOp::WATCH | WatchOp::LEGACY_WATCH => {
                if !known {
                    self.register(key, watcher)?;
                }
                let pings = args.op == WatchOp::WATCH;
                self.effects().connects.push((key, watcher, pings));
            }
            WatchOp::RECONNECT if known => self.effects().connects.push((key, watcher, true)),
            WatchOp::PING if known => {
                if !self.asking.watches.is_connected(self.asking.object, &key) {
                    // The client is to take it up again.
                    return fail(ETIMEDOUT);
                }
                self.effects().pings.push(key);
            }
            WatchOp::RECONNECT | WatchOp::PING => return fail(ENOTCONN),
            WatchOp::UNWATCH if known => {
                self.info.watchers.remove(&key);
                self.dirty = true;
                // A client knows what it asked for, but not that its time is over.
                let tell = self.asking.client.is_internal();
                self.effects().disconnects.push((key, tell));
            }
            _ => {}
        }
        Ok(0)
    }

    fn register(&mut self, key: WatchKey, watcher: Watcher) -> OpResult {
        if self.info.watchers.len() >= self.cfg.max_watchers {
            return fail(ENOSPC);
        }
        let Some(charge) = self
            .asking
            .watches
            .reserve_watch(self.asking.client, self.cfg.watch_bytes)
        else {
            return fail(ENOMEM);
        };
        self.effects().reserved.push(charge);
        self.info.watchers.insert(key, watcher);
        self.dirty = true;
        Ok(0)
    }

    /// The object goes, and its watches with it.
    pub(super) fn drop_watchers(&mut self) {
        if self.info.watchers.is_empty() {
            return;
        }
        let all = std::mem::take(&mut self.info.watchers);
        let gone = all.iter().map(|(key, _)| (*key, true));
        self.effects().disconnects.extend(gone);
    }

    pub(super) fn notify(&mut self, op: &mut OsdOp) -> OpResult {
        self.io.rd += 1;
        // What can't be understood is empty and has the default time, as with the official OSD.
        let request: NotifyRequest = Reader::new(&op.indata).get().unwrap_or_default();
        let Asking {
            client,
            watches,
            object,
            epoch,
            ..
        } = self.asking;
        let Some(charge) =
            watches.reserve_notify(client, object, request.payload.len(), self.cfg.watch_bytes)
        else {
            return fail(ENOMEM);
        };
        let timeout = if request.timeout == 0 {
            self.cfg.notify_timeout
        } else {
            request.timeout
        };
        let id = u64::from(epoch) << 32 | u64::from(watches.next_number());
        let start = NotifyStart {
            id,
            cookie: op.args(),
            timeout: timeout.min(self.cfg.max_notify_timeout),
            payload: request.payload,
            charges: vec![charge],
        };
        self.effects().notifies.push(start);
        op.outdata = Bytes::copy_from_slice(&id.to_le_bytes()).into();
        Ok(0)
    }

    pub(super) fn notify_ack(&mut self, op: &OsdOp) -> OpResult {
        self.io.rd += 1;
        let decoded = Reader::new(&op.indata).get::<NotifyAck>();
        // Old clients send no data, but the notification's id in the place of the cookie.
        let (cookie, ack) = match decoded {
            Ok(ack) => (Some(ack.cookie), ack),
            Err(_) => {
                let notify_id = op.args();
                let ack = NotifyAck {
                    notify_id,
                    ..NotifyAck::default()
                };
                (None, ack)
            }
        };
        let charge =
            self.asking
                .watches
                .reserve_ack(self.asking.client, ack.reply.len(), self.cfg.watch_bytes);
        let Some(charge) = charge else {
            return fail(ENOMEM);
        };
        self.effects().acks.push(Ack {
            cookie,
            id: ack.notify_id,
            reply: ack.reply,
            charge,
        });
        Ok(0)
    }

    pub(super) fn list_watchers(&mut self, op: &mut OsdOp) -> OpResult {
        self.io.rd += 1;
        let item = |(key, w): (&WatchKey, &Watcher)| WatchItem {
            name: key.1,
            cookie: key.0,
            timeout_seconds: w.timeout,
            addr: w.addr,
        };
        let list = ListWatchersResponse {
            entries: self.info.watchers.iter().map(item).collect(),
        };
        op.outdata = encode_to_vec(&list).into();
        Ok(0)
    }
}
