//! What a run only looks at besides the object.

use bytes::Bytes;
use spirula_denc::EntityName;

use crate::pg::cluster::PoolSnaps;
use crate::pg::config::PgConfig;
use crate::pg::op::Client;
use crate::pg::watch::Watches;

/// What a run is given besides the object, and only looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    /// The settings.
    pub cfg: &'a PgConfig,
    /// The pool's snapshots.
    pub pool: &'a PoolSnaps,
    /// The key of the object's head.
    pub key: &'a Bytes,
    /// Who asks.
    pub asking: Asking<'a>,
}

/// Who asks, and what is known of the object's watchers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    /// The connection.
    pub client: &'a Client,
    /// Whose watches are meant.
    pub name: EntityName,
    /// The object's key.
    pub object: &'a Bytes,
    /// The PG's watches.
    pub watches: &'a Watches,
    /// The map's epoch.
    pub epoch: u32,
}
