//! What an OSD sends of its own accord: backoffs and watch events.

use bytes::Bytes;
use spirula_denc::{Reader, Result};
use spirula_maps::{Epoch, HObject, SpgId};

use crate::macros::{message, wire_enum};
use crate::{Blob, Body, BytesList, MsgType, Payload, RawMessage};

wire_enum! {
    /// A step of a backoff (`CEPH_OSD_BACKOFF_OP_*`).
    pub struct BackoffOp(u8) {
        /// The OSD: hold requests for the range.
        BLOCK = 1, "block";
        /// The client: held.
        ACK_BLOCK = 2, "ack-block";
        /// The OSD: go on.
        UNBLOCK = 3, "unblock";
    }
}

message! {
    /// Asks a client to hold its requests for a range of objects.
    pub struct MOsdBackoff: OSD_BACKOFF, version 1, compat 1, priority HIGH {
        /// The PG.
        pub spg: SpgId,
        /// The sender's osdmap epoch.
        pub epoch: Epoch,
        /// The step.
        pub op: BackoffOp,
        /// Number of the backoff within the session.
        pub id: u64,
        /// First object of the range.
        pub begin: HObject,
        /// The object after the range; equal to `begin` for that one object.
        pub end: HObject,
    }
}

wire_enum! {
    /// The kind of event of a watch or notification (`CEPH_WATCH_EVENT_*`).
    pub struct WatchEvent(u8) {
        /// To a watcher: a notification.
        NOTIFY = 1, "notify";
        /// To the notifier: all watchers have answered, or the time is over.
        NOTIFY_COMPLETE = 2, "notify_complete";
        /// To a watcher: the watch is gone.
        DISCONNECT = 3, "disconnect";
    }
}

/// An event for a watcher or notifier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MWatchNotify {
    /// The client's cookie of the watch, or of the notification.
    pub cookie: u64,
    /// Unused.
    pub version: u64,
    /// The OSD's number of the notification.
    pub notify_id: u64,
    /// The kind of event.
    pub event: WatchEvent,
    /// The notifier's data.
    pub payload: Blob,
    /// For the notifier: 0, or `-ETIMEDOUT` where a watcher did not answer.
    pub result: i32,
    /// The notifier's global id.
    pub notifier_gid: u64,
    /// For the notifier: an encoded [`crate::osd_op_data::NotifyReplies`].
    pub replies: BytesList,
}

impl Payload for MWatchNotify {
    const TYPE: MsgType = MsgType::WATCH_NOTIFY;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode(&self, out: &mut Body) {
        let w = &mut out.front;
        // A version from before messages had one.
        w.u8(1);
        w.put(&self.event);
        w.u64(self.cookie);
        w.u64(self.version);
        w.u64(self.notify_id);
        w.put(&self.payload);
        w.i32(self.result);
        w.u64(self.notifier_gid);
        out.data = self.replies.clone();
    }

    fn decode(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        let inner = r.u8()?;
        let version = msg.header.version;
        Ok(Self {
            event: r.get()?,
            cookie: r.u64()?,
            version: r.u64()?,
            notify_id: r.u64()?,
            payload: if inner >= 1 {
                Blob(msg.front.slice_ref(r.blob()?))
            } else {
                Blob(Bytes::new())
            },
            result: if version >= 2 { r.i32()? } else { 0 },
            notifier_gid: if version >= 3 { r.u64()? } else { 0 },
            replies: msg.data.clone(),
        })
    }
}
