//! Watches and notifications.
//!
//! A watch is registered in the object's info, so that it outlives connections and primaries; what the primary knows of
//! its client besides is in memory (`live`). Ops say what is to happen (`WatchEffects`); it happens when the request
//! is durable, or at once if it changed nothing. As in Ceph's `src/osd/Watch.cc`.

pub(crate) mod live;
mod memory;
mod notify;
mod pg;
pub mod watchers;

pub(crate) use live::Watches;
pub(crate) use memory::Charge;
pub use memory::WatchMemory;
pub(crate) use notify::{Ack, NotifyStart};
use watchers::{WatchKey, Watcher};

/// What the ops of a request do to watches and notifications.
#[derive(Debug, Default)]
pub(crate) struct WatchEffects {
    /// Watches that end, and whether their client is to be told.
    pub disconnects: Vec<(WatchKey, bool)>,
    /// Watches that their client registers or takes up, and whether it will send pings.
    pub connects: Vec<(WatchKey, Watcher, bool)>,
    /// Signs of life.
    pub pings: Vec<WatchKey>,
    /// Notifications.
    pub notifies: Vec<NotifyStart>,
    /// Answers to notifications.
    pub acks: Vec<Ack>,
    /// For watches that are not registered yet.
    pub reserved: Vec<Charge>,
}
