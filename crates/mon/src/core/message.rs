//! Messages of sessions with the monitor, decoded once.

use spirula_proto::internal::Neighbour;
use spirula_proto::internal::image_io::ImageIoReport;
use spirula_proto::internal::report::OsdReport;
use spirula_proto::mon::{
    MAuth, MCommand, MGetConfig, MGetPoolStats, MLog, MMonCommand, MMonGetMap, MMonGetOsdMap, MMonGetVersion,
    MMonSubscribe, MPing, MPoolOp, MStatfs,
};
use spirula_proto::{MsgType, RawMessage};

use super::route::Answer;
use crate::command::{Parsed, parse};

/// A message.
#[derive(Debug)]
pub(super) enum Message {
    Auth(MAuth),
    /// A command for the monitors.
    Command(MMonCommand, Parsed),
    /// A command for this monitor.
    Tell(MCommand),
    GetConfig(MGetConfig),
    GetMap,
    GetOsdMaps(MMonGetOsdMap),
    GetPoolStats(MGetPoolStats),
    GetVersion(MMonGetVersion),
    ImageIo(ImageIoReport),
    Log(MLog),
    Ping,
    PoolOp(MPoolOp),
    Report(OsdReport),
    Statfs(MStatfs),
    Subscribe(MMonSubscribe),
    /// A message that monitors do not handle.
    Other(MsgType),
}

/// A message with the transaction id for its answer.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) tid: u64,
    pub(super) message: Message,
}

impl Received {
    /// Reads a message, and notes which edition an OSD speaks.
    ///
    /// # Errors
    /// Where it is malformed.
    pub(super) fn read(msg: &RawMessage, speaks: &mut Neighbour) -> spirula_proto::Result<Self> {
        let message = match msg.kind() {
            MsgType::AUTH => Message::Auth(msg.decode()?),
            MsgType::MON_COMMAND => {
                let m: MMonCommand = msg.decode()?;
                let parsed = parse(&m.cmd);
                Message::Command(m, parsed)
            }
            MsgType::COMMAND => Message::Tell(msg.decode()?),
            MsgType::GET_CONFIG => Message::GetConfig(msg.decode()?),
            MsgType::MON_GET_MAP => {
                msg.decode::<MMonGetMap>()?;
                Message::GetMap
            }
            MsgType::MON_GET_OSDMAP => Message::GetOsdMaps(msg.decode()?),
            MsgType::GET_POOL_STATS => Message::GetPoolStats(msg.decode()?),
            MsgType::MON_GET_VERSION => Message::GetVersion(msg.decode()?),
            MsgType::IMAGE_IO_REPORT => Message::ImageIo(msg.decode()?),
            MsgType::LOG => Message::Log(msg.decode()?),
            MsgType::PING => {
                msg.decode::<MPing>()?;
                Message::Ping
            }
            MsgType::POOL_OP => Message::PoolOp(msg.decode()?),
            MsgType::OSD_REPORT => Message::Report(speaks.read(msg)?),
            MsgType::STATFS => Message::Statfs(msg.decode()?),
            MsgType::MON_SUBSCRIBE => Message::Subscribe(msg.decode()?),
            other => Message::Other(other),
        };
        let tid = msg.header.tid;
        Ok(Self { tid, message })
    }

    /// The answer that the message waits for, if the leader gives it one.
    pub(super) fn answer(&self) -> Option<Answer> {
        let kind = match &self.message {
            Message::Command(..) => MsgType::MON_COMMAND_ACK,
            Message::PoolOp(_) => MsgType::POOL_OP_REPLY,
            Message::Statfs(_) => MsgType::STATFS_REPLY,
            Message::GetPoolStats(_) => MsgType::GET_POOL_STATS_REPLY,
            Message::GetVersion(m) => return Some((MsgType::MON_GET_VERSION_REPLY, m.handle)),
            _ => return None,
        };
        Some((kind, self.tid))
    }

    /// Whether the leader must be sure that it leads before it handles the message.
    pub(super) fn is_for_confirmed_leader(&self) -> bool {
        // Data are given up on the word of the leader.
        matches!(self.message, Message::Report(OsdReport::StoreDamaged(_))) || self.answer().is_some()
    }

    /// Whether only the leader can handle the message.
    pub(super) fn is_for_leader(&self) -> bool {
        let is_report = matches!(
            self.message,
            Message::Log(_) | Message::Report(_) | Message::ImageIo(_)
        );
        is_report || self.answer().is_some()
    }
}
