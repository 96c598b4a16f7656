//! Between clients (or daemons) and monitors:
//! `src/messages/{MMon*,MAuth*,MLog*,MPool*,MStatfs*,…}.h`.

mod auth;
mod command;
mod log;
mod osdmap;
mod paxos;
mod pool;
mod service_maps;
mod session;

pub use auth::{MAuth, MAuthReply};
pub use command::{
    CommandFlags, MCommand, MCommandReply, MMgrCommand, MMgrCommandReply, MMonCommand, MMonCommandAck,
};
pub use log::{LogEntry, LogPriority, MLog, MLogAck};
pub use osdmap::{MMonGetOsdMap, MOsdMap};
pub use paxos::PaxosVersion;
pub use pool::{
    MGetPoolStats, MGetPoolStatsReply, MPoolOp, MPoolOpReply, MStatfs, MStatfsReply, PoolOpCode, Statfs,
};
pub use service_maps::{FsMapUser, FsMapUserEntry, MFsMap, MFsMapUser, MMdsMap};
pub use session::{
    MConfig, MGetConfig, MMonGetMap, MMonGetVersion, MMonGetVersionReply, MMonMap, MMonSubscribe,
    MMonSubscribeAck, MPing, NamedEntity, Subscription,
};
