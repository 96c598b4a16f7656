//! Entities, rotating secrets and global ids.
//!
//! Keys: `entity/NAME` holds an encoded `EntityAuth`, `rotating` the secrets, `ciphers` the policy
//! about types of keys, `gid_end` the end of the reserved global ids, `gid_for/MONITOR` the end of
//! the range that was last reserved for a monitor and the number under which it asked for it. A
//! restart leaves the rest of a range unused, so that no id is given twice.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use spirula_cephx::{
    AuthName, CryptoKey, EntityAuth, Env, GLOBAL_ID_STEP, GlobalIds, KeyDatabase, KeyServer, KeyType,
    Keyring, ServiceSecrets, TicketLifetimes,
};
use spirula_denc::{UTime, encode_to_vec};

use super::state::{Service, Source};
use super::{Ciphers, stored};
use crate::core::{LoadError, Monitor, Output, Role};
use crate::kv::Txn;
use crate::options::Values;

const SERVICE: &str = "auth";
const ENTITY: &str = "entity/";
const ROTATING: &str = "rotating";
const CIPHERS: &str = "ciphers";
const GID_END: &str = "gid_end";
const GID_FOR: &str = "gid_for/";

/// The first global id of a cluster, as official clusters have it.
const FIRST_GID: u64 = 4100;

/// The key database.
#[derive(Debug, Default)]
pub struct Auth {
    db: KeyDatabase,
    ciphers: Ciphers,
    lifetimes: TicketLifetimes,
    insecure_reclaim: bool,
    ids: RefCell<GlobalIds>,
    /// The committed end of reserved ids.
    gid_end: u64,
    /// The name of this monitor.
    me: String,
    /// The number under which this process has asked for ids.
    asked: Option<u64>,
    /// The requests of other monitors for ids, by name.
    wishes: BTreeMap<String, u64>,
    /// The numbers of the requests with which monitors got their last ranges.
    granted: BTreeMap<String, u64>,
    /// The clients of the manager here, while they work: only this monitor knows them.
    guests: BTreeMap<AuthName, EntityAuth>,
}

impl Service for Auth {
    const NAMES: &'static [&'static str] = &[SERVICE];

    fn load(from: Source<'_>) -> Result<Self, LoadError> {
        let mut auth = Self {
            me: from.me.name.clone(),
            ..Self::default()
        };
        auth.reload(from)?;
        Ok(auth)
    }

    /// The ids that were reserved for this process stay.
    fn reload(&mut self, from: Source<'_>) -> Result<(), LoadError> {
        self.db = KeyDatabase::default();
        self.ciphers = Ciphers::default();
        self.gid_end = FIRST_GID;
        self.granted.clear();
        for (key, value) in from.kv.scan(SERVICE)? {
            self.apply(SERVICE, &key, Some(&value))?;
        }
        Ok(())
    }

    fn apply(&mut self, _: &str, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
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
        } else if let (CIPHERS, Some(v)) = (key, value) {
            self.ciphers = stored("ciphers", v)?;
        } else if let (GID_END, Some(v)) = (key, value) {
            self.gid_end = stored("global id range", v)?;
        } else if let Some(monitor) = key.strip_prefix(GID_FOR) {
            self.apply_grant(monitor, value)?;
        }
        Ok(())
    }
}

impl Auth {
    fn apply_grant(&mut self, monitor: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        let Some(value) = value else {
            self.granted.remove(monitor);
            return Ok(());
        };
        let (end, nonce): (u64, u64) = stored("global id range", value)?;
        self.granted.insert(monitor.to_owned(), nonce);
        if monitor == self.me && self.asked == Some(nonce) {
            self.ids
                .borrow_mut()
                .reserve(end.saturating_sub(GLOBAL_ID_STEP), end);
            self.asked = None;
        }
        Ok(())
    }

    /// The number under which this process has to ask for ids, while it needs some.
    fn wish(&mut self, env: &Env<'_>) -> Option<u64> {
        if self.asked.is_none() && self.ids.borrow().is_low() {
            self.asked = env.random_u64().ok();
        }
        self.asked
    }

    /// Forgets the range of a monitor that was removed.
    pub(crate) fn forget_monitor(&self, name: &str, txn: &mut Txn) {
        if self.granted.contains_key(name) {
            txn.remove(SERVICE, format!("{GID_FOR}{name}"));
        }
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
    pub fn entities(&self) -> &BTreeMap<AuthName, EntityAuth> {
        &self.db.entities
    }

    /// The policy about types of keys.
    pub fn ciphers(&self) -> &Ciphers {
        &self.ciphers
    }

    /// Changes the policy about types of keys.
    pub(crate) fn put_ciphers(ciphers: &Ciphers, txn: &mut Txn) {
        txn.put(SERVICE, CIPHERS.to_owned(), encode_to_vec(ciphers));
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
    pub(crate) fn create(keyring: &Keyring, ciphers: &Ciphers, txn: &mut Txn) {
        Self::put_ciphers(ciphers, txn);
        for (name, auth) in &keyring.entries {
            Self::put(name, auth, txn);
        }
    }

    /// Lets a client of the manager here log in with these capabilities. Returns its key.
    pub(crate) fn admit(
        &mut self,
        name: &AuthName,
        caps: &[(&str, &str)],
        env: &Env<'_>,
    ) -> spirula_cephx::Result<CryptoKey> {
        let key = CryptoKey::generate(self.ciphers.strongest(), env)?;
        let caps = caps
            .iter()
            .map(|(service, caps)| ((*service).into(), (*caps).into()));
        let entity = EntityAuth {
            key: key.clone(),
            caps: caps.collect(),
        };
        self.guests.insert(name.clone(), entity);
        Ok(key)
    }

    /// Removes a client of the manager that has ended.
    pub(crate) fn dismiss(&mut self, name: &AuthName) {
        self.guests.remove(name);
    }

    /// Removes all clients of the manager, which have ended.
    pub(crate) fn dismiss_all(&mut self) {
        self.guests.clear();
    }

    pub(crate) fn maintenance(&mut self, now: UTime) -> Txn {
        let mut txn = Txn::default();
        let env = Env::system(now);
        match self
            .db
            .secrets
            .rotated(&self.lifetimes, self.ciphers.service(), &env)
        {
            Ok(Some(next)) => txn.put(SERVICE, ROTATING, encode_to_vec(&next)),
            Ok(None) => {}
            Err(e) => tracing::error!("rotating secrets: {e}"),
        }
        let own = self.wish(&env).map(|nonce| (self.me.clone(), nonce));
        let mut end = self.gid_end;
        for (monitor, nonce) in std::mem::take(&mut self.wishes).into_iter().chain(own) {
            if self.granted.get(&monitor) != Some(&nonce) {
                end += GLOBAL_ID_STEP;
                txn.put(
                    SERVICE,
                    format!("{GID_FOR}{monitor}"),
                    encode_to_vec(&(end, nonce)),
                );
            }
        }
        if end != self.gid_end {
            txn.put(SERVICE, GID_END, encode_to_vec(&end));
        }
        txn
    }
}

impl KeyServer for Auth {
    fn lookup(&self, name: &AuthName) -> Option<EntityAuth> {
        let known = self.db.entities.get(name);
        known.or_else(|| self.guests.get(name)).cloned()
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

    fn allows(&self, kind: KeyType) -> bool {
        self.ciphers.allowed().contains(&kind)
    }

    fn allow_insecure_global_id_reclaim(&self) -> bool {
        self.insecure_reclaim
    }
}

impl Monitor {
    /// Asks the leader for global ids, if some are needed.
    pub(crate) fn ask_ids(&mut self) {
        if self.view.quorum.role == Role::Peon
            && let Some(nonce) = self.view.state.auth.wish(&Env::system(self.view.now))
        {
            self.out.push(Output::AskIds(nonce));
        }
    }

    /// Notes that another monitor asks for global ids; it asks again until it has them.
    pub fn ids_wanted(&mut self, monitor: &str, nonce: u64) {
        if self.view.quorum.leads() && self.view.state.monmap.map.mons.contains_key(monitor) {
            self.view.state.auth.wishes.insert(monitor.to_owned(), nonce);
        }
    }
}
