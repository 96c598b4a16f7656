//! What connections between OSDs are for.

use spirula_maps::OsdId;
use spirula_proto::MsgType;

/// What a connection to another OSD is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKind {
    /// Messages that keep their order.
    Ordered,
    /// Data that goes ahead of changes.
    Ahead,
}

impl LinkKind {
    /// The connection for a message of this type. As the first message on a connection, it tells
    /// the OSD that accepts it what the connection is for.
    pub fn of(kind: MsgType) -> Self {
        match kind {
            MsgType::PLACEMENT => Self::Ahead,
            _ => Self::Ordered,
        }
    }
}

/// Another OSD, and what a connection to it is for.
pub type LinkPeer = (OsdId, LinkKind);
