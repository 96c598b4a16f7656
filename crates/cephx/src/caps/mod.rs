//! Capabilities: the permissions of an entity at a monitor, an OSD, a metadata server or a manager.
//!
//! Each service has its own grammar: [`MonCap`], [`OsdCap`], [`MdsCap`], [`MgrCap`]. They accept
//! and refuse exactly the texts that Ceph's do, with the same messages (`tests/data/caps.tsv`
//! records those of a real cluster).

mod constraint;
mod cursor;
mod mds;
mod mgr;
mod mon;
mod mon_profiles;
mod network;
mod osd;

use std::fmt;

pub use constraint::Args;
pub use mds::{MdsCap, MdsGrant, MdsPermissions};
pub use mgr::{MgrCap, MgrRequest};
pub use mon::{MonCap, MonRequest};
pub use osd::{ApplicationMetadata, ClassCall, OsdCap, OsdRequest};

/// A set of the rights to read, write and execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access(u8);

impl Access {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Read.
    pub const R: Self = Self(1 << 1);
    /// Write.
    pub const W: Self = Self(1 << 2);
    /// Execute.
    pub const X: Self = Self(1 << 3);
    /// Read and write.
    pub const RW: Self = Self(Self::R.0 | Self::W.0);
    /// Read, write and execute.
    pub const RWX: Self = Self(Self::RW.0 | Self::X.0);
    /// `*`: more than [`Self::RWX`].
    pub const ANY: Self = Self(0xff);

    /// The rights as a number, for callers that pass it on.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The rights of a number from [`Self::bits`].
    pub fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Whether this has all rights of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Why capability text is refused; displays the official error message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapsError {
    /// The grammar has no continuation.
    Syntax {
        /// `mon`, `osd`, `mds` or `mgr`.
        service: &'static str,
        /// The rest that could not be read.
        rest: String,
        /// The whole text.
        text: String,
    },
    /// A manager capability names an unknown profile or argument.
    Profile(String),
    /// There is no such service.
    UnknownService(String),
}

impl std::error::Error for CapsError {}

impl fmt::Display for CapsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Two of the four official parsers say it differently when nothing is left.
            Self::Syntax {
                service: service @ ("mon" | "mgr"),
                rest,
                text,
            } if rest.is_empty() => {
                write!(f, "{service} capability parse failed, stopped at end of '{text}'")
            }
            Self::Syntax { service, rest, text } => {
                write!(
                    f,
                    "{service} capability parse failed, stopped at '{rest}' of '{text}'"
                )
            }
            Self::Profile(what) => write!(f, "mgr capability parse failed during profile evaluation: {what}"),
            Self::UnknownService(service) => write!(f, "unknown cap type '{service}'"),
        }
    }
}

/// Whether a monitor may store this text as capabilities for `service`; the error is the answer to
/// the command.
///
/// # Errors
/// [`CapsError`].
pub fn validate(service: &str, text: &str) -> Result<(), CapsError> {
    match service {
        "mon" => MonCap::parse(text).map(drop),
        "osd" => OsdCap::parse(text).map(drop),
        "mds" => MdsCap::parse(text).map(drop),
        "mgr" => MgrCap::parse(text).map(drop),
        other => Err(CapsError::UnknownService(other.to_owned())),
    }
}
