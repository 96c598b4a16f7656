//! The rights under which the manager works.
//!
//! Tasks and schedules lie in pools that tenants may write, and so do the images' headers, which
//! name the place of their data, their parents and the source of their migrations. So the manager
//! does nothing with rights of its own, which any tenant could then use. For each piece of work the
//! monitor makes a client with the rights described here; the OSDs enforce them.

use serde::{Deserialize, Serialize};
use spirula_cephx::{AuthName, CryptoKey};
use spirula_maps::PoolId;

/// A pool and a namespace in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The pool's id.
    pub pool: PoolId,
    /// The namespace; empty for the default one.
    pub namespace: String,
}

/// The record of a task or schedule that the manager has stored for an entity. The monitors
/// remember the entity, where no tenant can write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its unique name: `task/POOL/NAMESPACE/ID`, or the object of a schedule and its key there.
    pub key: String,
    /// The stored text, word for word: a changed record has no origin.
    pub text: String,
}

/// The rights that a client gets besides those in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Basis {
    /// The rights of the asker of this question.
    Asked(u64),
    /// The rights that the entity had which had this record stored.
    Stored {
        /// The stored record.
        origin: Origin,
        /// The record's place; a record of unknown origin only gives rights there. `None` where
        /// only administrators write.
        at: Option<Place>,
    },
}

/// The login of a client.
#[derive(Debug, Clone)]
pub struct Login {
    /// Its name.
    pub name: AuthName,
    /// Its key.
    pub key: CryptoKey,
}
