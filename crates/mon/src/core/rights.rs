//! The rights with which the manager works.
//!
//! The records that it reads in pools may be written by tenants, so the manager has no rights of
//! its own to do what they say. For each piece of work this monitor makes a client that may touch
//! the pool and namespace where the record lies, and whatever the client that asked for the work
//! might touch when it asked. That client is remembered with the record's exact text
//! (`mgr/origin/KEY`), out of tenants' reach: a record that was planted or changed in a pool has no
//! such origin, and is executed with the rights of its place alone.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use spirula_cephx::caps::OsdCap;
use spirula_cephx::{AuthName, CryptoKey, Env};
use spirula_denc::{EntityType, encode_to_vec, versioned};
use spirula_manager::{Basis, Login, Origin, Place, Request};
use spirula_proto::mon::LogPriority;

use super::{LoadError, Monitor, Output, Turn, View};
use crate::service::stored;

/// The rights of a client of the manager at the monitors: those of any client that uses images.
const MON: &str = "profile rbd";
/// The rights of the manager itself at the monitors: to read maps, and set schedules for all pools.
const MANAGER_MON: &str = "allow r, \
    allow command \"config set\" with who=mgr name prefix mgr/rbd_support/, \
    allow command \"config rm\" with who=mgr name prefix mgr/rbd_support/";
/// The rights of the manager itself at the OSDs: to read the images and the records of work on
/// them, and to write the latter.
const MANAGER_OSD: &str = "allow r class-read object_prefix rbd_namespace, \
    allow r class-read object_prefix rbd_directory, \
    allow r class-read object_prefix rbd_id., \
    allow r class-read object_prefix rbd_header., \
    allow r class-read object_prefix rbd_trash, \
    allow r class-read object_prefix rbd_mirroring, \
    allow rw object_prefix rbd_task, \
    allow rw object_prefix rbd_trash_purge_schedule, \
    allow rw object_prefix rbd_mirror_snapshot_schedule";

/// The most clients at a time: more than the manager has addresses for.
const MAX_CLIENTS: usize = 64;
/// The most bytes of remembered origins, in all.
const MAX_BYTES: usize = 8 << 20;
/// The most bytes of one entity's remembered origins.
const MAX_BYTES_OF_ONE: usize = 512 << 10;
/// The most characters of a warning.
const MAX_WARNING: usize = 512;
/// The most warnings in the cluster log within a time: tenants control the reasons for warnings.
const WARNINGS: (u32, Duration) = (100, Duration::from_secs(3600));

/// The keys of records in the store.
pub(crate) const ORIGIN: &str = "origin/";

versioned! {
    /// The origin of a stored record.
    #[derive(Eq)]
    struct Record("origin", version 1, compat 1) {
        who: String;
        /// The capabilities at the OSDs of the entity that had it stored.
        caps: String;
        /// The record's text.
        text: String;
    }
}

impl Record {
    fn bytes(&self) -> usize {
        self.who.len() + self.caps.len() + self.text.len()
    }
}

/// The origins of stored records, and the questions of the modules that wait.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    records: BTreeMap<String, Record>,
    /// Questions that wait until a record is committed.
    noting: Vec<(u64, String, Record)>,
    /// The existing clients, by their numbers.
    clients: BTreeMap<u64, AuthName>,
    /// The number of warnings, and since when.
    warned: u32,
    warned_since: Duration,
}

impl Origins {
    pub(super) fn apply(&mut self, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        match value {
            Some(value) => drop(self.records.insert(key.to_owned(), stored("origin", value)?)),
            None => drop(self.records.remove(key)),
        }
        Ok(())
    }

    /// Prepares for reading everything committed again.
    pub(super) fn reload(&mut self) {
        self.records.clear();
    }

    /// Clears the state of modules that have ended.
    pub(super) fn clear(&mut self) {
        self.noting.clear();
        self.clients.clear();
    }

    fn has_room_for(&self, record: &Record) -> bool {
        let bytes = |of: Option<&str>| -> usize {
            let all = self.records.values();
            all.filter(|r| of.is_none_or(|who| r.who == who))
                .map(Record::bytes)
                .sum()
        };
        let more = record.bytes();
        bytes(None) + more <= MAX_BYTES && bytes(Some(&record.who)) + more <= MAX_BYTES_OF_ONE
    }

    /// The capabilities that apply beside those of the place; `None` if there is to be no client.
    fn caps_of(&self, place: &Place, origin: &Origin, at: Option<&Place>) -> Option<&str> {
        match self.records.get(&origin.key) {
            Some(record) if record.text == origin.text => Some(&record.caps),
            _ => at.is_none_or(|at| at == place).then_some(""),
        }
    }
}

/// A text of the modules as one line for the cluster log.
pub(super) fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(MAX_WARNING).map(shown).collect()
}

/// A name as capabilities quote it; `None` if they can't.
fn quoted(name: &str) -> Option<String> {
    let quote = ['"', '\''].into_iter().find(|q| !name.contains(*q))?;
    (!name.contains(char::is_control)).then(|| format!("{quote}{name}{quote}"))
}

/// The capabilities for the images of a pool and namespace.
fn caps_in(pool: &str, namespace: &str) -> Option<String> {
    // Capabilities take it for all that begin so.
    if namespace.ends_with('*') {
        return None;
    }
    let (pool, namespace) = (quoted(pool)?, quoted(namespace)?);
    Some(format!("profile rbd pool={pool} namespace={namespace}"))
}

/// These capabilities for another client: none if they only apply at some addresses.
fn portable(caps: &str) -> &str {
    match OsdCap::parse(caps) {
        Ok(cap) if !cap.is_bound_to_networks() => caps,
        _ => "",
    }
}

impl View {
    /// The entity that asks a question, and its capabilities at the OSDs.
    fn asker(&self, question: u64) -> Option<(AuthName, String)> {
        let sender = self.sender(self.state.manager.module.asker(question)?)?;
        let entity = self.state.auth.entities().get(&sender.name)?;
        let caps = entity.caps.get("osd").cloned().unwrap_or_default();
        Some((sender.name, caps))
    }

    /// A new entity of the manager, known only to this monitor. Its name is unique.
    fn admit_client(&mut self, caps: &[(&str, &str)]) -> spirula_cephx::Result<(AuthName, CryptoKey)> {
        let env = Env::system(self.now);
        let id = format!("{}.{:016x}", self.me.name, env.random_u64()?);
        let name = AuthName::new(EntityType::MGR, id);
        let key = self.state.auth.admit(&name, caps, &env)?;
        Ok((name, key))
    }

    /// The entity of the manager itself.
    pub(super) fn admit_manager(&mut self) -> spirula_cephx::Result<(AuthName, CryptoKey)> {
        self.admit_client(&[("mon", MANAGER_MON), ("osd", MANAGER_OSD)])
    }

    pub(super) fn client_for(&mut self, client: u64, place: &Place, basis: &Basis) -> Option<Login> {
        let origins = &self.state.manager.origins;
        if origins.clients.len() >= MAX_CLIENTS || origins.clients.contains_key(&client) {
            return None;
        }
        let own = caps_in(self.state.osd.map.pool_name(place.pool)?, &place.namespace)?;
        let more = match basis {
            Basis::Asked(question) => self.asker(*question)?.1,
            Basis::Stored { origin, at } => origins.caps_of(place, origin, at.as_ref())?.to_owned(),
        };
        let osd = match portable(&more) {
            "" => own,
            more => format!("{own}, {more}"),
        };
        match self.admit_client(&[("mon", MON), ("osd", &osd)]) {
            Ok((name, key)) => {
                self.state.manager.origins.clients.insert(client, name.clone());
                Some(Login { name, key })
            }
            Err(e) => {
                tracing::error!("a key for the manager: {e}");
                None
            }
        }
    }

    /// Removes a client of the modules that has ended.
    pub(super) fn close_client(&mut self, client: u64) {
        if let Some(name) = self.state.manager.origins.clients.remove(&client) {
            self.state.auth.dismiss(&name);
        }
    }

    /// Logs a warning: the modules have found something in a pool that looks like an attack.
    pub(super) fn suspect(&mut self, what: &str) {
        let now = self.steady.now();
        let origins = &mut self.state.manager.origins;
        if now >= origins.warned_since + WARNINGS.1 {
            (origins.warned_since, origins.warned) = (now, 0);
        }
        origins.warned = origins.warned.saturating_add(1);
        let what = match origins.warned.cmp(&WARNINGS.0) {
            Ordering::Less => one_line(what),
            Ordering::Equal => format!("more than it may say within {:?}", WARNINGS.1),
            Ordering::Greater => {
                tracing::warn!("manager: {}", one_line(what));
                return; // This daemon's log has it.
            }
        };
        self.log_event(LogPriority::WARN, format!("manager: {what}"));
    }

    /// Takes the questions whose origins are now remembered.
    pub(super) fn take_noted(&mut self) -> Vec<u64> {
        let origins = &mut self.state.manager.origins;
        let records = &origins.records;
        let is_done = |(_, key, record): &(u64, String, Record)| records.get(key) == Some(record);
        let (done, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut origins.noting).into_iter().partition(is_done);
        origins.noting = rest;
        done.into_iter().map(|(question, ..)| question).collect()
    }
}

impl Turn<'_> {
    /// Forgets the origin of a record.
    pub(super) fn forget_origin(&mut self, key: &str) {
        if self.view.state.manager.origins.records.contains_key(key) {
            self.changes
                .txn
                .remove(super::manager::SERVICE, format!("{ORIGIN}{key}"));
        }
    }

    /// Forgets the origins of tasks that no longer exist.
    pub(super) fn keep_tasks(&mut self, keys: &BTreeSet<String>) {
        let records = self.view.state.manager.origins.records.keys();
        let gone = records.filter(|k| k.starts_with("task/") && !keys.contains(*k));
        for key in gone.cloned().collect::<Vec<_>>() {
            self.forget_origin(&key);
        }
    }
}

impl Monitor {
    /// Remembers the entity that asks a question, for the records that it has stored.
    pub(super) fn note_origin(&mut self, question: u64, origin: Origin) {
        let record = self.view.asker(question).map(|(who, caps)| Record {
            who: who.to_string(),
            caps: portable(&caps).to_owned(),
            text: origin.text,
        });
        match record.filter(|r| self.view.state.manager.origins.has_room_for(r)) {
            Some(record) => {
                let key = format!("{ORIGIN}{}", origin.key);
                self.changes
                    .txn
                    .put(super::manager::SERVICE, key, encode_to_vec(&record));
                self.view
                    .state
                    .manager
                    .origins
                    .noting
                    .push((question, origin.key, record));
            }
            None => {
                let done = false;
                self.out
                    .push(Output::AskModule(Request::Noted { question, done }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_cephx::caps::{ApplicationMetadata, MonCap, OsdRequest};

    use spirula_maps::PoolId;

    use super::*;

    fn may_write(caps: &str, pool: &str, namespace: &[u8], object: &[u8]) -> bool {
        OsdCap::parse(caps).unwrap().is_capable(&OsdRequest {
            pool,
            namespace,
            application: &ApplicationMetadata::new(),
            object,
            read: false,
            write: true,
            classes: &[],
            addr: None,
        })
    }

    #[test]
    fn a_place_gives_rights_there_and_nowhere_else() {
        let caps = caps_in("a b", "").unwrap();
        assert!(may_write(&caps, "a b", b"", b"rbd_data.1"));
        assert!(!may_write(&caps, "a b", b"n", b"rbd_data.1"));
        assert!(!may_write(&caps, "b", b"", b"rbd_data.1"));
        let caps = caps_in("a", "n").unwrap();
        assert!(may_write(&caps, "a", b"n", b"x") && !may_write(&caps, "a", b"", b"x"));
        // Names that would say something else, or can't be said.
        assert!(!may_write(
            &caps_in("a\", allow *, \"", "").unwrap(),
            "b",
            b"",
            b"x"
        ));
        for (pool, namespace) in [("a", "*"), ("a", "n*"), ("\"'", ""), ("a", "\"'"), ("a\n", "")] {
            assert_eq!(caps_in(pool, namespace), None);
        }
    }

    #[test]
    fn the_manager_writes_tasks_and_schedules_only() {
        for object in [
            "rbd_task",
            "rbd_trash_purge_schedule",
            "rbd_mirror_snapshot_schedule",
        ] {
            assert!(may_write(MANAGER_OSD, "p", b"n", object.as_bytes()));
        }
        for object in ["rbd_data.1.0", "rbd_header.1", "rbd_trash", "rbd_directory", "x"] {
            assert!(!may_write(MANAGER_OSD, "p", b"", object.as_bytes()), "{object}");
        }
        assert!(MonCap::parse(MANAGER_MON).is_ok());
    }

    #[test]
    fn capabilities_from_some_addresses_are_not_passed_on() {
        assert_eq!(portable("allow rw pool=b"), "allow rw pool=b");
        assert_eq!(portable("allow rw pool=b network 10.0.0.0/8"), "");
        assert_eq!(portable("nonsense"), "");
    }

    #[test]
    fn what_nobody_is_known_to_have_asked_for_is_confined_to_its_place() {
        let place = |pool: PoolId, namespace: &str| Place {
            pool,
            namespace: namespace.to_owned(),
        };
        let origin = |text: &str| Origin {
            key: "task/1".into(),
            text: text.into(),
        };
        let mut origins = Origins::default();
        let here = place(PoolId::new(1), "");
        let of = |o: &Origins, text: &str, at: Option<&Place>| {
            o.caps_of(&here, &origin(text), at).map(str::to_owned)
        };
        assert_eq!(of(&origins, "t", Some(&here)).as_deref(), Some(""));
        assert_eq!(of(&origins, "t", Some(&place(PoolId::new(1), "n"))), None);
        assert_eq!(of(&origins, "t", None).as_deref(), Some(""));
        let record = Record {
            who: "client.a".into(),
            caps: "allow rw pool=b".into(),
            text: "t".into(),
        };
        assert!(origins.has_room_for(&record));
        origins
            .apply("task/1", Some(&encode_to_vec(&record).into()))
            .unwrap();
        assert_eq!(of(&origins, "t", Some(&here)).as_deref(), Some("allow rw pool=b"));
        assert_eq!(
            of(&origins, "t ", Some(&here)).as_deref(),
            Some(""),
            "it was changed"
        );
        let large = Record {
            text: "x".repeat(MAX_BYTES_OF_ONE),
            ..record
        };
        assert!(!origins.has_room_for(&large));
        origins.apply("task/1", None).unwrap();
        assert_eq!(of(&origins, "t", Some(&here)).as_deref(), Some(""));
    }
}
