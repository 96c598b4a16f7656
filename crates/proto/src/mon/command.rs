//! Commands: to the monitors, and to one daemon (`ceph tell`).

use spirula_denc::{Fsid, flags};

use crate::macros::message;
use crate::mon::PaxosVersion;

flags! {
    /// Flags of a command's description (`MonCommand::FLAG_*` of `src/mon/MonCommand.h`).
    pub struct CommandFlags(u64), joined "," {
        /// A monitor that is not the leader carries it out itself.
        NOFORWARD = 0, "noforward";
        /// No longer offered.
        OBSOLETE = 1, "obsolete";
        /// Offered, not shown.
        DEPRECATED = 2, "deprecated";
        /// Goes to the manager.
        MGR = 3, "mgr";
        /// Repeated until interrupted.
        POLL = 4, "poll";
        /// Offered, not shown.
        HIDDEN = 5, "hidden";
    }
}

message! {
    /// A command for the monitors.
    pub struct MMonCommand: MON_COMMAND, version 1, compat 1 {
        /// The newest osdmap the client has seen.
        pub paxos: PaxosVersion,
        /// The cluster; zero from old clients.
        pub fsid: Fsid,
        /// The command, one JSON object.
        pub cmd: Vec<String>,
        ;
        /// The command's input (`-i FILE`).
        pub input
    }
}

message! {
    /// The outcome of a command.
    pub struct MMonCommandAck: MON_COMMAND_ACK, version 1, compat 1 {
        /// The version at which the command took effect.
        pub paxos: PaxosVersion,
        /// 0 or a negative errno.
        pub result: i32,
        /// The status line, for standard error.
        pub status: String,
        /// The command.
        pub cmd: Vec<String>,
        ;
        /// The command's output.
        pub output
    }
}

/// A command for one daemon and its reply, under the types of the daemon's kind.
macro_rules! tell {
    ($(#[$doc:meta])* $command:ident, $kind:ident, $(#[$rdoc:meta])* $reply:ident, $reply_kind:ident) => {
        message! {
            $(#[$doc])*
            pub struct $command: $kind, version 1, compat 1 {
                /// The cluster.
                pub fsid: Fsid,
                /// The command, one JSON object.
                pub cmd: Vec<String>,
                ;
                /// The command's input.
                pub input
            }
        }

        message! {
            $(#[$rdoc])*
            pub struct $reply: $reply_kind, version 1, compat 1 {
                /// 0 or a negative errno.
                pub result: i32,
                /// The status line.
                pub status: String,
                ;
                /// The command's output.
                pub output
            }
        }
    };
}

tell!(
    /// A command for one daemon, on a session with it: `ceph tell osd.0 …`.
    MCommand, COMMAND,
    /// The outcome of [`MCommand`]; carries its transaction id.
    MCommandReply, COMMAND_REPLY
);
tell!(
    /// A command for the manager's modules.
    MMgrCommand, MGR_COMMAND,
    /// The outcome of [`MMgrCommand`]; carries its transaction id.
    MMgrCommandReply, MGR_COMMAND_REPLY
);
