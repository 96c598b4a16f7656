//! Watches and notifications.
//!
//! A watch is registered in the object's info, so that it outlives connections and primaries; the
//! primary keeps the state of its client in memory (`live`). Ops collect their effects
//! (`WatchEffects`), which are carried out when the request is durable, or at once if it changed
//! nothing. As in Ceph's `src/osd/Watch.cc`.

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

/// The effects of a request's ops on watches and notifications.
#[derive(Debug, Default)]
pub(crate) struct WatchEffects {
    /// Watches that end, and whether their clients are told.
    pub disconnects: Vec<(WatchKey, bool)>,
    /// Watches that their client registers or takes up, and whether it will send pings.
    pub connects: Vec<(WatchKey, Watcher, bool)>,
    /// Watches that were pinged.
    pub pings: Vec<WatchKey>,
    /// Notifications.
    pub notifies: Vec<NotifyStart>,
    /// Answers to notifications.
    pub acks: Vec<Ack>,
    /// The memory for watches that are not registered yet.
    pub reserved: Vec<Charge>,
}
