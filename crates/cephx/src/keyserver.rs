//! What a handshake asks the monitor's key database, and such a database (Ceph's
//! `src/auth/cephx/CephxKeyServer.h`).

use std::collections::BTreeMap;

use crate::entity::EntityAuth;
use crate::key::KeyType;
use crate::name::AuthName;
use crate::rotating::{ServiceSecrets, TicketLifetimes};

/// The monitor's data for handshakes. All answers come from committed state.
pub trait KeyServer {
    /// The entity's key and capabilities.
    fn lookup(&self, name: &AuthName) -> Option<EntityAuth>;

    /// The rotating secrets of all services.
    fn service_secrets(&self) -> &ServiceSecrets;

    /// The lifetimes of tickets.
    fn lifetimes(&self) -> TicketLifetimes {
        TicketLifetimes::default()
    }

    /// A global id that no session ever had, never 0. `None` if the monitor has none left and must
    /// reserve more; the client is then told to come back.
    fn new_global_id(&self) -> Option<u64>;

    /// Whether entities may log in with keys of this type (`auth_allowed_ciphers`).
    fn allows(&self, _kind: KeyType) -> bool {
        true
    }

    /// Whether clients too old to prove their earlier global id may reclaim it without proof
    /// (`auth_allow_insecure_global_id_reclaim`).
    fn allow_insecure_global_id_reclaim(&self) -> bool {
        false
    }
}

/// All entities and secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyDatabase {
    /// The entities.
    pub entities: BTreeMap<AuthName, EntityAuth>,
    /// The rotating secrets.
    pub secrets: ServiceSecrets,
}
