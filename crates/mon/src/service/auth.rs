//! Entities, rotating secrets and global ids.
//!
//! Keys: `entity/NAME` holds an encoded `EntityAuth`, `rotating` the secrets, `gid_end` the end of the range of global
//! ids that were reserved. A restart leaves the rest of a range unused, so that no id is given twice.

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use spirula_cephx::{
    AuthName, EntityAuth, Env, GLOBAL_ID_STEP, GlobalIds, KeyDatabase, KeyServer, Keyring, ServiceSecrets,
    TicketLifetimes,
};
use spirula_denc::{UTime, encode_to_vec};

use super::stored;
use crate::core::{LoadError, Monitor};
use crate::kv::{KvRead, Txn};
use crate::options::Values;

const SERVICE: &str = "auth";
const ENTITY: &str = "entity/";
const ROTATING: &str = "rotating";
const GID_END: &str = "gid_end";

/// The first global id of a cluster, as official clusters have it.
const FIRST_GID: u64 = 4100;

/// The key database.
#[derive(Debug, Default)]
pub struct Auth {
    db: KeyDatabase,
    lifetimes: TicketLifetimes,
    insecure_reclaim: bool,
    ids: RefCell<GlobalIds>,
    /// The committed end of reserved ids.
    gid_end: u64,
    /// A reservation by this process is in flight or done: what commits next is ours to use.
    reserving: Option<u64>,
}

impl Auth {
    pub(crate) fn load(kv: &dyn KvRead) -> Result<Self, LoadError> {
        let mut auth = Self {
            gid_end: FIRST_GID,
            ..Self::default()
        };
        for (key, value) in kv.scan(SERVICE)? {
            auth.apply(&key, Some(&value))?;
        }
        Ok(auth)
    }

    pub(crate) fn apply(&mut self, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        if let Some(name) = key.strip_prefix(ENTITY) {
            let name: AuthName = name
                .parse()
                .map_err(|_| LoadError::Missing("valid entity name"))?;
            match value {
                Some(v) => self.db.entities.insert(name, stored("entity", v)?),
                None => self.db.entities.remove(&name),
            };
        } else if let (ROTATING, Some(v)) = (key, value) {
            self.db.secrets = stored("rotating secrets", v)?;
        } else if let (GID_END, Some(v)) = (key, value) {
            self.gid_end = stored("global id range", v)?;
            if self.reserving == Some(self.gid_end) {
                self.ids
                    .borrow_mut()
                    .reserve(self.gid_end - GLOBAL_ID_STEP, self.gid_end);
                self.reserving = None;
            }
        }
        Ok(())
    }

    pub(crate) fn set_values(&mut self, v: &Values) {
        let secs = |name: &str| Duration::from_secs_f64(v.float(name).clamp(1.0, 1e9));
        self.lifetimes = TicketLifetimes {
            auth: secs("auth_mon_ticket_ttl"),
            service: secs("auth_service_ticket_ttl"),
        };
        self.insecure_reclaim = v.flag("auth_allow_insecure_global_id_reclaim");
    }

    /// The entities by name.
    pub fn entities(&self) -> &std::collections::BTreeMap<AuthName, EntityAuth> {
        &self.db.entities
    }

    /// Adds or replaces an entity.
    pub(crate) fn put(name: &AuthName, auth: &EntityAuth, txn: &mut Txn) {
        txn.put(SERVICE, format!("{ENTITY}{name}"), encode_to_vec(auth));
    }

    /// Removes an entity.
    pub(crate) fn remove(name: &AuthName, txn: &mut Txn) {
        txn.remove(SERVICE, format!("{ENTITY}{name}"));
    }

    /// Stores the entities of a new cluster.
    pub(crate) fn create(keyring: &Keyring, txn: &mut Txn) {
        for (name, auth) in &keyring.entries {
            Self::put(name, auth, txn);
        }
    }

    fn maintenance(&mut self, now: UTime) -> Txn {
        let mut txn = Txn::default();
        match self.db.secrets.rotated(&self.lifetimes, &Env::system(now)) {
            Ok(Some(next)) => txn.put(SERVICE, ROTATING, encode_to_vec(&next)),
            Ok(None) => {}
            Err(e) => tracing::error!("rotating secrets: {e}"),
        }
        if self.reserving.is_none() && self.ids.borrow().is_low() {
            let end = self.gid_end + GLOBAL_ID_STEP;
            self.reserving = Some(end);
            txn.put(SERVICE, GID_END, encode_to_vec(&end));
        }
        txn
    }
}

impl KeyServer for Auth {
    fn lookup(&self, name: &AuthName) -> Option<EntityAuth> {
        self.db.entities.get(name).cloned()
    }

    fn service_secrets(&self) -> &ServiceSecrets {
        &self.db.secrets
    }

    fn lifetimes(&self) -> TicketLifetimes {
        self.lifetimes
    }

    fn new_global_id(&self) -> Option<u64> {
        self.ids.borrow_mut().take()
    }

    fn allow_insecure_global_id_reclaim(&self) -> bool {
        self.insecure_reclaim
    }
}

impl Monitor {
    pub(crate) fn auth_maintenance(&mut self) {
        let txn = self.auth.maintenance(self.now);
        self.writes.txn.extend(txn);
    }
}
