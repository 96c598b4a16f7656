//! What a handshake asks the monitor's key database, and such a database (`KeyServerData` of Ceph's
//! `src/auth/cephx/CephxKeyServer.h`).

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer, decode_all, encode_to_vec};

use crate::entity::EntityAuth;
use crate::name::AuthName;
use crate::rotating::{ServiceSecrets, TicketLifetimes};

/// The monitor's side of what handshakes need. All answers come from committed state.
pub trait KeyServer {
    /// The entity's key and capabilities.
    fn lookup(&self, name: &AuthName) -> Option<EntityAuth>;

    /// The rotating secrets of all services.
    fn service_secrets(&self) -> &ServiceSecrets;

    /// How long tickets live.
    fn lifetimes(&self) -> TicketLifetimes {
        TicketLifetimes::default()
    }

    /// A number that no session ever had, never 0. `None` where the monitor has none left and must reserve more;
    /// the client is then told to come back.
    fn new_global_id(&self) -> Option<u64>;

    /// Whether clients too old to prove that a global id was theirs may reclaim it without proof
    /// (`auth_allow_insecure_global_id_reclaim`).
    fn allow_insecure_global_id_reclaim(&self) -> bool {
        false
    }
}

/// All entities and secrets, in a form that monitors can replicate and persist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyDatabase {
    /// Grows with each change of the entities.
    pub version: u64,
    /// The entities.
    pub entities: BTreeMap<AuthName, EntityAuth>,
    /// The rotating secrets.
    pub secrets: ServiceSecrets,
}

impl KeyDatabase {
    /// Applies a committed change.
    ///
    /// # Errors
    /// Where the rotating secrets in it can't be decoded.
    pub fn apply(&mut self, change: &KeyChange) -> Result<()> {
        match change {
            KeyChange::Nop { .. } => {}
            KeyChange::Add { name, auth } => {
                self.entities.insert(name.clone(), auth.clone());
            }
            KeyChange::Remove { name, .. } => {
                self.entities.remove(name);
            }
            KeyChange::SetRotating { secrets } => self.secrets = decode_all(secrets)?,
        }
        Ok(())
    }
}

/// The official layout.
impl Encode for KeyDatabase {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.version);
        w.u64(self.secrets.version);
        w.put(&self.entities);
        self.secrets.encode_services(w);
    }
}

impl Decode for KeyDatabase {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u8()?;
        let version = r.u64()?;
        let rotating = r.u64()?;
        let entities = r.get()?;
        Ok(Self {
            version,
            entities,
            secrets: ServiceSecrets::decode_unversioned(rotating, r)?,
        })
    }
}

/// One change of the key database (`KeyServerData::Incremental`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// Nothing; its fields mean nothing either.
    Nop {
        /// Unused.
        name: AuthName,
        /// Unused.
        auth: EntityAuth,
    },
    /// An entity is added or replaced.
    Add {
        /// Its name.
        name: AuthName,
        /// Its key and capabilities.
        auth: EntityAuth,
    },
    /// An entity is removed.
    Remove {
        /// Its name.
        name: AuthName,
        /// Unused.
        auth: EntityAuth,
    },
    /// The rotating secrets are replaced.
    SetRotating {
        /// The encoded [`ServiceSecrets`].
        secrets: Bytes,
    },
}

impl KeyChange {
    /// The change that replaces the rotating secrets.
    pub fn set_rotating(secrets: &ServiceSecrets) -> Self {
        Self::SetRotating {
            secrets: encode_to_vec(secrets).into(),
        }
    }

    /// The change that removes an entity.
    pub fn remove(name: AuthName) -> Self {
        Self::Remove {
            name,
            auth: EntityAuth::default(),
        }
    }
}

impl Encode for KeyChange {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        let (op, name, auth) = match self {
            Self::Nop { name, auth } => (0, name, auth),
            Self::Add { name, auth } => (1, name, auth),
            Self::Remove { name, auth } => (2, name, auth),
            Self::SetRotating { secrets } => {
                w.u32(3);
                return w.put(secrets);
            }
        };
        w.u32(op);
        w.put(name);
        w.put(auth);
    }
}

impl Decode for KeyChange {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u8()?;
        Ok(match r.u32()? {
            0 => Self::Nop {
                name: r.get()?,
                auth: r.get()?,
            },
            1 => Self::Add {
                name: r.get()?,
                auth: r.get()?,
            },
            2 => Self::Remove {
                name: r.get()?,
                auth: r.get()?,
            },
            3 => Self::SetRotating { secrets: r.get()? },
            _ => return Err(Error::Invalid("key change")),
        })
    }
}
