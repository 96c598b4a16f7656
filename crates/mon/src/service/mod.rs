//! The services: each keeps the needed part of its committed state in memory, and applies committed
//! changes.

mod auth;
mod ciphers;
mod clog;
mod config;
mod fsmaps;
mod keyed;
mod monmaps;
mod osd_lives;
mod osdmaps;
mod reported;
mod snaps;
mod state;
mod stats;

pub use auth::Auth;
pub use ciphers::Ciphers;
pub use clog::ClusterLog;
pub use config::{Change, ChangeSet, Config, ConfigEntry, Who};
pub use fsmaps::FsMaps;
pub(crate) use keyed::{Kept, Keyed};
pub use monmaps::MonMaps;
pub use osd_lives::Life;
pub use osdmaps::OsdMaps;
pub(crate) use snaps::PurgedSnaps;
pub use state::State;
pub(crate) use state::{Published, Service, Source};
pub use stats::{PoolTotals, Served, Stats};

use bytes::Bytes;
use spirula_denc::{Decode, decode_all};

use crate::core::LoadError;

/// Decodes a stored value.
pub(crate) fn stored<T: Decode>(what: &'static str, value: &Bytes) -> Result<T, LoadError> {
    decode_all(value).map_err(|source| LoadError::Decode { what, source })
}
