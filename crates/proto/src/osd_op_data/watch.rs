//! Watches and notifications.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, EntityAddr, EntityName, Reader, Result, Writer, versioned};

use crate::macros::packed;

versioned! {
    /// A watcher.
    #[derive(Eq)]
    pub struct WatchItem("watch_item_t", version 2, compat 1) {
        /// The watcher's entity.
        pub name: EntityName;
        /// The watcher's cookie.
        pub cookie: u64;
        /// Seconds without a ping after which the watch is dropped.
        pub timeout_seconds: u32;
        /// The watcher's address.
        pub addr: EntityAddr, since 2;
    }
}

versioned! {
    /// Output of `LIST_WATCHERS`.
    #[derive(Eq)]
    pub struct ListWatchersResponse("obj_list_watch_response_t", version 1, compat 1) {
        /// All watchers.
        pub entries: Vec<WatchItem>;
    }
}

packed! {
    /// Input of `NOTIFY`. The output is the notification's id as `u64`.
    pub struct NotifyRequest {
        /// Obsolete.
        pub version: u32,
        /// Seconds to wait for answers; 0 for the OSD's default.
        pub timeout: u32,
        /// The notifier's data.
        pub payload: Bytes,
    }
}

/// Input of `NOTIFY_ACK`: a watcher's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NotifyAck {
    /// The OSD's number of the notification.
    pub notify_id: u64,
    /// The watcher's number of the watch.
    pub cookie: u64,
    /// The watcher's data.
    pub reply: Bytes,
}

impl Encode for NotifyAck {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.notify_id);
        w.u64(self.cookie);
        w.blob(&self.reply);
    }
}

impl Decode for NotifyAck {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            notify_id: r.u64()?,
            cookie: r.u64()?,
            reply: if r.is_empty() { Bytes::new() } else { r.get()? },
        })
    }
}

/// A watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatcherId {
    /// The client's global id.
    pub client: u64,
    /// The client's number of the watch.
    pub cookie: u64,
}

impl Encode for WatcherId {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.client);
        w.u64(self.cookie);
    }
}

impl Decode for WatcherId {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            client: r.u64()?,
            cookie: r.u64()?,
        })
    }
}

packed! {
    /// The notifier's result at the end, in the data of [`crate::osd::MWatchNotify`].
    pub struct NotifyReplies {
        /// The answers.
        pub replies: BTreeMap<WatcherId, Bytes>,
        /// The watchers that did not answer in time.
        pub missed: Vec<WatcherId>,
    }
}
