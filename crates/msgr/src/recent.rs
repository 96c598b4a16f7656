//! An endpoint's memory of its sessions: when they began, with which peer, and why they ended.

use std::fmt;

use spirula_denc::{EntityName, UTime};
use spirula_errno::Errno;
use spirula_invariant::{Recorder, Ring};

use crate::config::ConMode;
use crate::session::SessionError;
use crate::shell::Error;

/// Bytes for the transitions of all sessions of an endpoint.
pub const RECENT_BYTES: usize = 2 << 10;

/// Why a session ended, or could not be established.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The socket failed, with this errno; 0 if the system gave none.
    Io(Option<Errno>),
    /// The peer broke the frame format.
    Frame,
    /// Either side lacks features.
    Features,
    /// The peer is of another type than was dialled.
    PeerType,
    /// An address does not fit.
    Address,
    /// The handshake's signature is wrong.
    Signature,
    /// The mode is not usable.
    Mode,
    /// Authentication was refused, with this errno; none for too many attempts.
    Denied(Option<Errno>),
    /// The peer wants another connection.
    Retry,
    /// An answer came out of turn.
    OutOfTurn,
    /// Either side closed the connection.
    Closed,
    /// The handshake took too long.
    HandshakeTimeout,
    /// The peer was silent.
    Idle,
    /// The peer was silent amid a message.
    Stalled,
    /// This side's owner dropped it.
    GivenUp,
}

impl From<&Error> for Why {
    fn from(e: &Error) -> Self {
        match e {
            Error::Io(e) => Self::Io(e.raw_os_error().and_then(Errno::new)),
            Error::Closed => Self::Closed,
            Error::HandshakeTimeout => Self::HandshakeTimeout,
            Error::Idle => Self::Idle,
            Error::Stalled => Self::Stalled,
            Error::Session(e) => match e {
                SessionError::Frame(_) => Self::Frame,
                SessionError::MessengerFeatures { .. } | SessionError::MissingFeatures(_) => Self::Features,
                SessionError::PeerType { .. } => Self::PeerType,
                SessionError::WrongAddress => Self::Address,
                SessionError::Signature => Self::Signature,
                SessionError::Mode(_) => Self::Mode,
                SessionError::TooManyAttempts => Self::Denied(None),
                SessionError::Denied(errno) => Self::Denied(Some(*errno)),
                SessionError::Retry(_) => Self::Retry,
                SessionError::OutOfTurn => Self::OutOfTurn,
            },
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Io(errno) => return write!(f, "socket failed, errno {}", errno.map_or(0, Errno::code)),
            Self::Denied(errno) => {
                return write!(f, "authentication refused, {}", errno.map_or(0, |e| -e));
            }
            Self::Frame => "frame format broken",
            Self::Features => "features missing",
            Self::PeerType => "peer of another type",
            Self::Address => "address mismatch",
            Self::Signature => "signature mismatch",
            Self::Mode => "mode not usable",
            Self::Retry => "peer wants another connection",
            Self::OutOfTurn => "answer out of turn",
            Self::Closed => "closed",
            Self::HandshakeTimeout => "handshake too slow",
            Self::Idle => "peer silent",
            Self::Stalled => "peer silent amid a message",
            Self::GivenUp => "given up here",
        };
        f.write_str(text)
    }
}

/// A change of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// This side dialled.
    Dialled,
    /// The session is established, in this mode.
    Established(ConMode),
    /// The session could not be established.
    Failed(Why),
    /// So many messages in a row were dropped, as they had come before.
    Repeated(u32),
    /// The session has ended.
    Ended(Why),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dialled => f.write_str("dialled"),
            Self::Established(mode) => write!(f, "established, {mode}"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Repeated(times) => write!(f, "dropped {times} messages that had come before"),
            Self::Ended(why) => write!(f, "ended: {why}"),
        }
    }
}

/// A change of a session, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The time on the wall clock.
    pub at: UTime,
    /// The connection's number in this process.
    pub connection: u32,
    /// The peer, as far as it is known.
    pub peer: EntityName,
    /// The change.
    pub what: What,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connection {}, {}: {}",
            self.at, self.connection, self.peer, self.what
        )
    }
}

/// A recorder for the sessions of an endpoint.
pub(crate) fn recorder(name: EntityName) -> Recorder<Transition> {
    Recorder::new(
        format!("sessions of {name}"),
        Ring::<Transition>::fitting(RECENT_BYTES),
    )
}

/// Notes the changes of one connection.
pub(crate) struct Trail {
    recorder: Recorder<Transition>,
    connection: u32,
    /// The other side.
    pub(crate) peer: EntityName,
    is_over: bool,
}

impl Trail {
    /// The trail of the connection with this number.
    pub(crate) fn new(recorder: &Recorder<Transition>, connection: u64, peer: EntityName) -> Self {
        Self {
            recorder: recorder.clone(),
            connection: connection as u32,
            peer,
            is_over: false,
        }
    }

    /// Notes a transition.
    pub(crate) fn note(&self, what: What) {
        let new = Transition {
            at: UTime::now(),
            connection: self.connection,
            peer: self.peer,
            what,
        };
        // A peer that tries in vain again and again, or says the same, must not displace all other
        // entries.
        self.recorder
            .add_or(new, |newest| match (&mut newest.what, what) {
                (What::Failed(before), What::Failed(now)) if *before == now && newest.peer == self.peer => {
                    *newest = new;
                    true
                }
                (What::Repeated(times), What::Repeated(n)) if newest.connection == self.connection => {
                    *times = times.saturating_add(n);
                    newest.at = new.at;
                    true
                }
                _ => false,
            });
    }

    /// Notes the end of the session; only the first reason counts.
    pub(crate) fn end(&mut self, why: Why) {
        if !self.is_over {
            self.is_over = true;
            self.note(What::Ended(why));
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::EntityType;

    use super::*;

    #[test]
    fn sessions_leave_a_trail_in_bounded_memory() {
        let recorder = recorder(EntityName::new(EntityType::OSD, 3));
        let mut trail = Trail::new(&recorder, 7, EntityName::new(EntityType::OSD, -1));
        trail.note(What::Dialled);
        trail.peer = EntityName::new(EntityType::OSD, 4);
        trail.note(What::Established(ConMode::CRC));
        (0..3).for_each(|_| trail.note(What::Repeated(1)));
        trail.end(Why::from(&Error::Idle));
        trail.end(Why::GivenUp);
        for connection in 8..100 {
            let stranger = Trail::new(&recorder, connection, EntityName::new(EntityType::CLIENT, -1));
            stranger.note(What::Failed(Why::Denied(Some(spirula_errno::EACCES))));
        }
        let lines: Vec<String> = recorder
            .entries()
            .iter()
            .map(|t| format!("{} {}: {}", t.connection, t.peer, t.what))
            .collect();
        assert_eq!(
            lines,
            [
                "7 osd.?: dialled",
                "7 osd.4: established, crc",
                "7 osd.4: dropped 3 messages that had come before",
                "7 osd.4: ended: peer silent",
                "99 client.?: failed: authentication refused, -13",
            ]
        );
        for _ in 0..1000 {
            trail.note(What::Dialled);
        }
        assert!(recorder.bytes() <= RECENT_BYTES);
    }
}
