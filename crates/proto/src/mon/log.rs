//! The cluster log: entries from daemons and clients, and from the monitor to `ceph -w`.

use spirula_denc::{EntityAddrVec, EntityName, Fsid, UTime, versioned};

use crate::macros::{message, wire_enum};
use crate::mon::{NamedEntity, PaxosVersion};

wire_enum! {
    /// The severity of a log entry (`clog_type`).
    pub struct LogPriority(u16) {
        /// For developers.
        DEBUG = 0, "[DBG]";
        /// Normal events.
        INFO = 1, "[INF]";
        /// Security.
        SEC = 2, "[SEC]";
        /// Trouble.
        WARN = 3, "[WRN]";
        /// Failure.
        ERROR = 4, "[ERR]";
    }
}

versioned! {
    /// One line of the cluster log.
    #[derive(Eq)]
    pub struct LogEntry("LogEntry", version 5, compat 5) {
        /// The entity that wrote it.
        pub name: NamedEntity;
        /// Its rank or global id.
        pub rank: EntityName;
        /// Its addresses.
        pub addrs: EntityAddrVec;
        /// When it was written.
        pub stamp: UTime;
        /// The writer's number of the entry.
        pub seq: u64;
        /// Its severity.
        pub priority: LogPriority;
        /// The text.
        pub message: String;
        /// `cluster` or `audit`.
        pub channel: String;
    }
}

message! {
    /// Log entries.
    pub struct MLog: LOG, version 1, compat 1 {
        /// Version of the log, in messages from the monitor.
        pub paxos: PaxosVersion,
        /// The cluster.
        pub fsid: Fsid,
        /// In order.
        pub entries: Vec<LogEntry>,
    }
}

message! {
    /// Confirms log entries: the sender forgets them.
    pub struct MLogAck: LOG_ACK, version 1, compat 1 {
        /// The cluster.
        pub fsid: Fsid,
        /// The last entry's number.
        pub last: u64,
        /// Its channel.
        pub channel: String, if left,
    }
}
