//! Message types (`CEPH_MSG_*` of `src/include/ceph_fs.h`, `MSG_*` of `src/msg/Message.h`).

use std::fmt;

/// The type of a message, as the integer on the wire. Unknown values survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MsgType(pub u16);

macro_rules! msg_types {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl MsgType {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// The name that the official logs print, `None` for a type that is not used here.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

msg_types! {
    /// The end of the daemon.
    SHUTDOWN = 1, "shutdown";
    /// Are you there (MPing).
    PING = 2, "ping";
    /// MMonMap.
    MON_MAP = 4, "mon_map";
    /// MMonGetMap.
    MON_GET_MAP = 5, "mon_getmap";
    /// MMonGetOSDMap.
    MON_GET_OSDMAP = 6, "mon_get_osdmap";
    /// MStatfs.
    STATFS = 13, "statfs";
    /// MStatfsReply.
    STATFS_REPLY = 14, "statfs_reply";
    /// MMonSubscribe.
    MON_SUBSCRIBE = 15, "mon_subscribe";
    /// MMonSubscribeAck.
    MON_SUBSCRIBE_ACK = 16, "mon_subscribe_ack";
    /// MAuth.
    AUTH = 17, "auth";
    /// MAuthReply.
    AUTH_REPLY = 18, "auth_reply";
    /// MMonGetVersion.
    MON_GET_VERSION = 19, "mon_get_version";
    /// MMonGetVersionReply.
    MON_GET_VERSION_REPLY = 20, "mon_get_version_reply";
    /// MMDSMap.
    MDS_MAP = 21, "mdsmap";
    /// MOSDMap.
    OSD_MAP = 41, "osd_map";
    /// MOSDOp.
    OSD_OP = 42, "osd_op";
    /// MOSDOpReply.
    OSD_OP_REPLY = 43, "osd_op_reply";
    /// MWatchNotify.
    WATCH_NOTIFY = 44, "watch-notify";
    /// MFSMap.
    FS_MAP = 45, "fsmap";
    /// MPoolOpReply.
    POOL_OP_REPLY = 48, "poolopreply";
    /// MPoolOp.
    POOL_OP = 49, "poolop";
    /// MMonCommand.
    MON_COMMAND = 50, "mon_command";
    /// MMonCommandAck.
    MON_COMMAND_ACK = 51, "mon_command_ack";
    /// MLog.
    LOG = 52, "log";
    /// MLogAck.
    LOG_ACK = 53, "log_ack";
    /// MGetPoolStats.
    GET_POOL_STATS = 58, "getpoolstats";
    /// MGetPoolStatsReply.
    GET_POOL_STATS_REPLY = 59, "getpoolstatsreply";
    /// MOSDBackoff.
    OSD_BACKOFF = 61, "osd_backoff";
    /// MConfig.
    CONFIG = 62, "config";
    /// MGetConfig.
    GET_CONFIG = 63, "get_config";
    /// MCommand.
    COMMAND = 97, "command";
    /// MCommandReply.
    COMMAND_REPLY = 98, "command_reply";
    /// MFSMapUser.
    FS_MAP_USER = 103, "fsmap.user";
    /// MOSDScrub2.
    OSD_SCRUB2 = 121, "scrub2";
    /// MMgrOpen.
    MGR_OPEN = 0x700, "mgropen";
    /// MMgrConfigure.
    MGR_CONFIGURE = 0x701, "mgrconfigure";
    /// MMgrReport.
    MGR_REPORT = 0x702, "mgrreport";
    /// MMgrMap.
    MGR_MAP = 0x704, "mgrmap";
    /// MServiceMap.
    SERVICE_MAP = 0x707, "service_map";
    /// MMgrClose.
    MGR_CLOSE = 0x708, "mgrclose";
    /// MMgrCommand.
    MGR_COMMAND = 0x709, "mgr_command";
    /// MMgrCommandReply.
    MGR_COMMAND_REPLY = 0x70a, "mgr_command_reply";
    /// Ours, between OSDs: writes and their acknowledgements.
    REPLICATION = 0x7000, "replication";
    /// Ours, between OSDs: peering of a PG.
    PEERING = 0x7001, "peering";
    /// Ours, OSD to monitor: [`crate::internal::report`].
    OSD_REPORT = 0x7002, "osd_report";
    /// Ours, monitor to OSD: [`crate::internal::report`].
    OSD_REPORT_REPLY = 0x7003, "osd_report_reply";
    /// Ours, between OSDs: data that comes ahead of the change that it belongs to.
    PLACEMENT = 0x7004, "placement";
    /// Ours, between OSDs: [`crate::internal::heartbeat`].
    HEARTBEAT = 0x7005, "heartbeat";
    /// Ours, between monitors: [`crate::internal::quorum`].
    MON_PEER = 0x7006, "mon_peer";
    /// Ours, between monitors: [`crate::internal::quorum`].
    MON_PEER_REPLY = 0x7007, "mon_peer_reply";
    /// Ours, monitor to OSD: [`crate::internal::image_io`].
    IMAGE_IO_QUERY = 0x7008, "image_io_query";
    /// Ours, OSD to monitor: [`crate::internal::image_io`].
    IMAGE_IO_REPORT = 0x7009, "image_io_report";
}

impl fmt::Display for MsgType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "message type {:#x}", self.0),
        }
    }
}
