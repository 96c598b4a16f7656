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

use spirula_denc::flags;

pub use constraint::Args;
pub use mds::{MdsCap, MdsGrant, MdsPermissions};
pub use mgr::{MgrCap, MgrRequest};
pub use mon::{MonCap, MonRequest};
pub use osd::{ApplicationMetadata, ClassCall, OsdCap, OsdRequest};

flags! {
    /// A set of the rights to read, write and execute.
    pub struct Access(u8), joined "" {
        /// Read.
        R = 1, "r";
        /// Write.
        W = 2, "w";
        /// Execute.
        X = 3, "x";
    }
}

impl Access {
    /// Read and write.
    pub const RW: Self = Self::R.with(Self::W);
    /// Read, write and execute.
    pub const RWX: Self = Self::RW.with(Self::X);
    /// `*`: more than [`Self::RWX`].
    pub const ANY: Self = Self(0xff);
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
