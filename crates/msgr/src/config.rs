//! The configuration of an endpoint: its identity, what it accepts, and what the two sides of a
//! connection agreed on.

use std::time::Duration;

use spirula_buf::Pool;
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType};
use spirula_invariant::Recorder;

use crate::frame::Limits;
use crate::modes::Modes;
use crate::recent::{self, Transition};

/// How frames are protected after the handshake, as the integer on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConMode(pub u32);

impl ConMode {
    /// Checksums only.
    pub const CRC: Self = Self(1);
    /// AES-128-GCM.
    pub const SECURE: Self = Self(2);

    /// The mode called `name` in `ms_*_mode` options.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "crc" => Some(Self::CRC),
            "secure" => Some(Self::SECURE),
            _ => None,
        }
    }

    /// The modes of an `ms_*_mode` option, such as `crc secure`, in order of preference.
    pub fn parse_list(text: &str) -> Option<Vec<Self>> {
        let modes: Option<Vec<_>> = text
            .split([',', ';', '=', ' ', '\t'])
            .filter(|s| !s.is_empty())
            .map(Self::from_name)
            .collect();
        modes.filter(|m| !m.is_empty())
    }
}

impl std::fmt::Display for ConMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::CRC => f.write_str("crc"),
            Self::SECURE => f.write_str("secure"),
            Self(n) => write!(f, "mode {n}"),
        }
    }
}

/// The identity of an endpoint, and what it accepts. One configuration serves many connections.
///
/// All sessions are lossy: when a connection ends, unsent messages are gone, and a sender that
/// needs them sent sends them again on a new connection. That is the official policy of clients
/// towards monitors, managers and OSDs. Between Spirula's own daemons it is the same, because their
/// protocols resend by themselves.
#[derive(Clone)]
pub struct Config {
    /// Our name. The number of a client is replaced by its global id once it has one.
    pub name: EntityName,
    /// The addresses that we are bound to, as published in the maps: a peer must have dialled one
    /// of them. Empty for a client, which learns its address from the peer.
    pub addrs: EntityAddrVec,
    /// The nonce in a client's learnt address, which distinguishes processes on one host.
    pub nonce: u32,
    /// Connection modes that are offered and accepted, by the peer's type.
    pub modes: Modes,
    /// Limits on the sizes that a peer may announce.
    pub limits: Limits,
    /// The pool that payloads are received into; at its limit nothing is read from sockets.
    pub pool: Pool,
    /// How long it may take until a dialled or accepted session is established.
    pub handshake_timeout: Duration,
    /// After this long without a byte from the peer the connection ends.
    pub idle_timeout: Duration,
    /// A large message that takes longer than this, and comes at less than [`Config::min_rate`],
    /// ends the connection if others wait for the room that it has.
    pub stall_timeout: Duration,
    /// The least rate of a large message, in bytes a second.
    pub min_rate: u64,
    /// A connection whose peer reads nothing for this long while messages wait is ended.
    pub send_timeout: Duration,
    /// The endpoint's record of its last sessions.
    pub recent: Recorder<Transition>,
}

impl Config {
    /// A configuration with the default limits, time-outs of 10 s and 900 s and Ceph's default
    /// modes.
    pub fn new(name: EntityName, addrs: EntityAddrVec, pool: Pool) -> Self {
        Self {
            name,
            addrs,
            nonce: 0,
            modes: Modes::default(),
            limits: Limits::default(),
            pool,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(900),
            stall_timeout: Duration::from_secs(10),
            min_rate: 64 << 10,
            send_timeout: Duration::from_secs(60),
            recent: recent::recorder(name),
        }
    }
}

/// The other side of an established connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The peer's type, and the number it identifies with: a daemon's id, or a client's global id
    /// (which it may not have known yet: then -1; see `global_id`).
    pub name: EntityName,
    /// The addresses that the peer identifies with: mere claims, except that they were made under
    /// its key.
    pub addrs: EntityAddrVec,
    /// The socket address that we see or dialled.
    pub socket_addr: EntityAddr,
    /// Features of both sides.
    pub features: u64,
    /// The global id that authentication gave the peer on the accepting side, or us on the
    /// connecting side.
    pub global_id: u64,
    /// The negotiated mode.
    pub con_mode: ConMode,
    /// Whether the other side drops messages when the connection ends. False for an official MDS.
    pub lossy: bool,
    /// Our address as the peer sees it.
    pub seen_as: EntityAddr,
}

impl Peer {
    /// The peer's type.
    pub fn kind(&self) -> EntityType {
        self.name.kind
    }
}
