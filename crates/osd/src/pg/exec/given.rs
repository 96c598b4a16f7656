//! The inputs of a run besides the object, which it only reads.

use bytes::Bytes;
use spirula_denc::EntityName;
use spirula_maps::Epoch;

use crate::pg::cluster::PoolSnaps;
use crate::pg::config::PgConfig;
use crate::pg::op::Client;
use crate::pg::watch::Watches;

/// The inputs of a run besides the object, which it only reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    /// The settings.
    pub cfg: &'a PgConfig,
    /// The pool's snapshots.
    pub pool: &'a PoolSnaps,
    /// The key of the object's head.
    pub key: &'a Bytes,
    /// The client of the request, and its watches.
    pub asking: Asking<'a>,
}

/// The client of a request, and the object's watchers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    /// The client's connection.
    pub client: &'a Client,
    /// The entity whose watches are meant.
    pub name: EntityName,
    /// The object's key.
    pub object: &'a Bytes,
    /// The PG's watches.
    pub watches: &'a Watches,
    /// The map's epoch.
    pub epoch: Epoch,
}
