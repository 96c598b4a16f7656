//! Heartbeats between OSDs.

use spirula_denc::{Fsid, Micros};
use spirula_maps::Epoch;

use super::{plain_parts, protocol};
use crate::Blob;
use crate::macros::packed;

protocol! {
    /// The heartbeat protocol.
    ///
    /// - Version 3: that of release 0.1.0.
    pub enum Heartbeat: HEARTBEAT, version 3, oldest 3, priority HIGHEST {
        /// Are you there?
        Ping(Beat) = 1,
        /// Yes. The stamp is the ping's.
        Pong(Beat) = 2,
        /// You think that you are up, but my map has you down: look at a newer map. Follows a
        /// `Pong`.
        YouDied(Beat) = 3,
        /// Whether there is room here, on a connection for data: at its start and whenever it
        /// changes. The stamp is 0.
        Room(Beat) = 4,
    }
}

packed! {
    /// A heartbeat.
    pub struct Beat {
        /// The cluster.
        pub fsid: Fsid,
        /// The sender's osdmap epoch.
        pub epoch: Epoch,
        /// The epoch since which the sender is up.
        pub up_from: Epoch,
        /// The pinging OSD's monotonic clock, meaningless to its peer.
        pub stamp: Micros,
        /// The sender has no room for anything that grows.
        pub full: bool,
        /// Zeros, up to `osd_heartbeat_min_size`.
        pub padding: Blob,
    }
}

plain_parts!(Beat);
