//! Ops on watches and notifications. Their effects beside the object's info happen later
//! ([`WatchEffects`](crate::pg::watch::WatchEffects)).

use bytes::Bytes;
use spirula_denc::{Reader, encode_to_vec};
use spirula_errno::*;
use spirula_proto::osd::{WatchArgs, WatchOp};
use spirula_proto::osd_op_data::{ListWatchersResponse, NotifyAck, NotifyRequest, WatchItem};

use super::{Asking, Draft, Given, Left, Looking, OpResult, fail};
use crate::pg::op::OsdOp;
use crate::pg::watch::watchers::{WatchKey, Watcher};
use crate::pg::watch::{Ack, NotifyStart};

/// Executes an op on watches and notifications: of the object it changes only the watchers.
pub(super) struct Watching<'e> {
    pub(super) given: &'e Given<'e>,
    pub(super) draft: &'e mut Draft,
    pub(super) left: &'e mut Left,
}

impl Watching<'_> {
    pub(super) fn watch(&mut self, op: &OsdOp) -> OpResult {
        if !self.draft.exists {
            return fail(ENOENT);
        }
        let args: WatchArgs = op.args();
        let key = (args.cookie, self.given.asking.name);
        let known = self.draft.info.watchers.contains(&key);
        let watcher = Watcher {
            addr: self.given.asking.client.addr,
            timeout: match args.timeout {
                0 => self.given.cfg.watch_timeout,
                n => n.min(self.given.cfg.max_notify_timeout),
            },
        };
        match args.op {
            WatchOp::WATCH | WatchOp::LEGACY_WATCH => {
                if !known {
                    self.register(key, watcher)?;
                }
                let pings = args.op == WatchOp::WATCH;
                self.left.effects().connects.push((key, watcher, pings));
            }
            WatchOp::RECONNECT if known => self.left.effects().connects.push((key, watcher, true)),
            WatchOp::PING if known => {
                if !self
                    .given
                    .asking
                    .watches
                    .is_connected(self.given.asking.object, &key)
                {
                    // The client is to take it up again.
                    return fail(ETIMEDOUT);
                }
                self.left.effects().pings.push(key);
            }
            WatchOp::RECONNECT | WatchOp::PING => return fail(ENOTCONN),
            WatchOp::UNWATCH if known => {
                self.draft.info.watchers.remove(&key);
                self.draft.dirty = true;
                // A client knows of its own unwatch, but not that its watch has timed out.
                let tell = self.given.asking.client.is_internal();
                self.left.effects().disconnects.push((key, tell));
            }
            _ => {}
        }
        Ok(0)
    }

    fn register(&mut self, key: WatchKey, watcher: Watcher) -> OpResult {
        if self.draft.info.watchers.len() >= self.given.cfg.max_watchers {
            return fail(ENOSPC);
        }
        let Asking { watches, client, .. } = self.given.asking;
        let Some(charge) = watches.reserve_watch(client, self.given.cfg.watch_bytes) else {
            return fail(ENOMEM);
        };
        self.left.effects().reserved.push(charge);
        self.draft.info.watchers.insert(key, watcher);
        self.draft.dirty = true;
        Ok(0)
    }

    pub(super) fn notify(&mut self, op: &mut OsdOp) -> OpResult {
        self.left.io.rd += 1;
        // A request that can't be decoded counts as empty, with the default timeout, as with the
        // official OSD.
        let request: NotifyRequest = Reader::new(&op.indata).get().unwrap_or_default();
        let Asking {
            client,
            watches,
            object,
            epoch,
            ..
        } = self.given.asking;
        let Some(charge) =
            watches.reserve_notify(client, object, request.payload.len(), self.given.cfg.watch_bytes)
        else {
            return fail(ENOMEM);
        };
        let timeout = if request.timeout == 0 {
            self.given.cfg.notify_timeout
        } else {
            request.timeout
        };
        let id = u64::from(epoch) << 32 | u64::from(watches.next_number());
        let start = NotifyStart {
            id,
            cookie: op.args(),
            timeout: timeout.min(self.given.cfg.max_notify_timeout),
            payload: request.payload,
            charges: vec![charge],
        };
        self.left.effects().notifies.push(start);
        op.outdata = Bytes::copy_from_slice(&id.to_le_bytes()).into();
        Ok(0)
    }

    pub(super) fn notify_ack(&mut self, op: &OsdOp) -> OpResult {
        self.left.io.rd += 1;
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
        let charge = self.given.asking.watches.reserve_ack(
            self.given.asking.client,
            ack.reply.len(),
            self.given.cfg.watch_bytes,
        );
        let Some(charge) = charge else {
            return fail(ENOMEM);
        };
        self.left.effects().acks.push(Ack {
            cookie,
            id: ack.notify_id,
            reply: ack.reply,
            charge,
        });
        Ok(0)
    }
}

impl Looking<'_, '_> {
    pub(super) fn list_watchers(&mut self, op: &mut OsdOp) -> OpResult {
        self.left.io.rd += 1;
        let item = |(key, w): (&WatchKey, &Watcher)| WatchItem {
            name: key.1,
            cookie: key.0,
            timeout_seconds: w.timeout,
            addr: w.addr,
        };
        let list = ListWatchersResponse {
            entries: self.draft.info.watchers.iter().map(item).collect(),
        };
        op.outdata = encode_to_vec(&list).into();
        Ok(0)
    }
}
