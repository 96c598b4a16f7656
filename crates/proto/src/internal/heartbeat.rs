//! Heartbeats between OSDs.

use spirula_denc::Fsid;

use super::{plain_parts, protocol};
use crate::macros::packed;

protocol! {
    /// The heartbeat protocol.
    ///
    /// - Version 1: first.
    /// - Version 2: `Beat::full`, as the osdmap tells too late of an OSD that fills up within a second.
    pub enum Heartbeat: HEARTBEAT, version 2, compat 2, priority HIGHEST {
        /// Are you there?
        Ping(Beat) = 1,
        /// Yes. The stamp is the ping's; 0 where nobody asked and `full` has changed.
        Pong(Beat) = 2,
        /// Your map says I am up, mine says you are dead: look at a newer map.
        YouDied(Beat) = 3,
    }
}

packed! {
    /// A heartbeat.
    pub struct Beat {
        /// The cluster.
        pub fsid: Fsid,
        /// The sender's osdmap epoch.
        pub epoch: u32,
        /// The epoch since which the sender is up.
        pub up_from: u32,
        /// The pinging OSD's monotonic clock in nanoseconds, meaningless to its peer.
        pub stamp: u64,
        /// The sender has no room for anything that grows.
        pub full: bool,
    }
}

plain_parts!(Beat);
