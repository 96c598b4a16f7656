//! The central configuration: options by the daemons and clients that they are for, and its
//! history.
//!
//! A key is `WHO\nOPTION`; WHO is a section (`global`, `osd`, `osd.3`) with optional masks
//! (`osd/class:ssd`).

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Reader, UTime, Writer, encode_to_vec};

use super::state::{Service, Source};
use super::stored;
use crate::core::LoadError;
use crate::kv::{KvRead, Txn};

const SERVICE: &str = "config";
/// The history: a change set a version, from the second one on.
const HISTORY: &str = "config_history";
/// How many change sets are kept.
const MAX_HISTORY: u64 = 1000;

/// The daemons and clients that a value is for. Ordered by how specific they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// `global`, a type such as `osd`, or an entity such as `osd.3`.
    pub section: String,
    /// `class:NAME` or `host:NAME`.
    pub mask: Option<String>,
}

impl Who {
    /// Parses a section with masks; `None` if the text is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/').filter(|p| !p.is_empty());
        let first = parts.next()?;
        let mut who = Self {
            section: "global".to_owned(),
            mask: None,
        };
        let mut rest: Vec<&str> = parts.collect();
        if first.contains(':') {
            rest.insert(0, first);
        } else {
            let kind = first.split('.').next().unwrap_or_default();
            let known = ["global", "mon", "osd", "mds", "mgr", "client"].contains(&kind);
            if !known || (kind == "global" && first != kind) {
                return None;
            }
            who.section = first.to_owned();
        }
        for mask in rest {
            let (key, value) = mask.split_once(':')?;
            if !["class", "host"].contains(&key) || value.is_empty() || who.mask.is_some() {
                return None;
            }
            who.mask = Some(mask.to_owned());
        }
        Some(who)
    }

    fn matches(&self, kind: &str, id: &str, host: &str, class: &str) -> Option<(usize, bool)> {
        let specific = match self.section.as_str() {
            "global" => 0,
            s if s == kind => 1,
            s => {
                let own = s.strip_prefix(kind)?.strip_prefix('.')?;
                // `client.rgw` also names `client.rgw.x`, less specifically.
                if own == id || id.strip_prefix(own).is_some_and(|r| r.starts_with('.')) {
                    1 + own.split('.').count()
                } else {
                    return None;
                }
            }
        };
        match self.mask.as_deref().and_then(|m| m.split_once(':')) {
            None => Some((specific, false)),
            Some(("class", c)) if c == class && !class.is_empty() => Some((specific, true)),
            Some(("host", h)) if h == host && !host.is_empty() => Some((specific, true)),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.section)?;
        if let Some(mask) = &self.mask {
            write!(f, "/{mask}")?;
        }
        Ok(())
    }
}

/// One stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The daemons and clients that it is for.
    pub who: Who,
    /// The option.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// All stored values.
#[derive(Debug, Clone, Default)]
pub struct Config {
    entries: BTreeMap<(Who, String), String>,
    /// The newest change set.
    version: u64,
}

/// The change of one option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The daemons and clients that it is for.
    pub who: Who,
    /// The option.
    pub name: String,
    /// The value before, if it was set.
    pub old: Option<String>,
    /// The value since, if it is set.
    pub new: Option<String>,
}

/// One entry of the history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeSet {
    /// The time of the change.
    pub stamp: UTime,
    /// The name of the change, if it is no plain setting.
    pub name: String,
    /// The changes.
    pub changes: Vec<Change>,
}

/// Version byte of an encoded [`ChangeSet`]. 1: the first form.
const CHANGES_VERSION: u8 = 1;

impl Encode for ChangeSet {
    fn encode(&self, w: &mut Writer) {
        CHANGES_VERSION.encode(w);
        self.stamp.encode(w);
        self.name.encode(w);
        (self.changes.len() as u32).encode(w);
        for c in &self.changes {
            c.who.to_string().encode(w);
            c.name.encode(w);
            for value in [&c.old, &c.new] {
                value.is_some().encode(w);
                value.as_deref().unwrap_or_default().encode(w);
            }
        }
    }
}

impl Decode for ChangeSet {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        if r.u8()? != CHANGES_VERSION {
            return Err(Error::Invalid("configuration history version"));
        }
        let (stamp, name) = (r.get()?, r.string()?);
        let n = r.count(18)?;
        let mut changes = Vec::with_capacity(n);
        let value = |r: &mut Reader<'_>| -> spirula_denc::Result<Option<String>> {
            let set = r.bool()?;
            Ok(Some(r.string()?).filter(|_| set))
        };
        for _ in 0..n {
            let who = Who::parse(&r.string()?).ok_or(Error::Invalid("configuration section"))?;
            let name = r.string()?;
            let (old, new) = (value(r)?, value(r)?);
            changes.push(Change { who, name, old, new });
        }
        Ok(Self { stamp, name, changes })
    }
}

fn history_key(version: u64) -> String {
    format!("{version:012}")
}

fn key(who: &Who, name: &str) -> String {
    format!("{who}\n{name}")
}

impl Service for Config {
    const NAMES: &'static [&'static str] = &[SERVICE, HISTORY];

    fn load(from: Source<'_>) -> Result<Self, LoadError> {
        Self::read(from.kv.as_ref())
    }

    fn apply(&mut self, name: &str, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        match name {
            HISTORY => self.apply_history(key),
            _ => self.apply_value(key, value),
        }
        Ok(())
    }
}

impl Config {
    /// The configuration in a store.
    pub(crate) fn read(kv: &dyn KvRead) -> Result<Self, LoadError> {
        let mut c = Self::default();
        for (k, v) in kv.scan(SERVICE)? {
            c.apply_value(&k, Some(&v));
        }
        // The first version is the empty configuration, of which nothing is stored.
        c.version = 1;
        if let Some((k, _)) = kv.scan(HISTORY)?.pop() {
            c.apply_history(&k);
        }
        Ok(c)
    }

    fn apply_value(&mut self, key: &str, value: Option<&Bytes>) {
        let Some((who, name)) = key.split_once('\n') else {
            return;
        };
        let Some(who) = Who::parse(who) else { return };
        match value {
            Some(v) => {
                self.entries
                    .insert((who, name.to_owned()), String::from_utf8_lossy(v).into_owned());
            }
            None => {
                self.entries.remove(&(who, name.to_owned()));
            }
        }
    }

    /// Notes that a change set was committed.
    fn apply_history(&mut self, key: &str) {
        self.version = self.version.max(key.parse().unwrap_or(0));
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The changes of one version; `None` if they are forgotten, or there is no such version.
    ///
    /// # Errors
    /// Where the store is damaged.
    pub fn changes(kv: &dyn KvRead, version: u64) -> Result<Option<ChangeSet>, LoadError> {
        let value = kv.get(HISTORY, &history_key(version))?;
        value.map(|v| stored("configuration history", &v)).transpose()
    }

    /// Sets and clears values in one transaction, as a version of its own.
    pub(crate) fn change(
        &self,
        values: Vec<(Who, String, Option<String>)>,
        name: String,
        stamp: UTime,
        txn: &mut Txn,
    ) {
        let mut set = ChangeSet {
            stamp,
            name,
            changes: Vec::new(),
        };
        for (who, name, new) in values {
            match &new {
                Some(v) => txn.put(SERVICE, key(&who, &name), v.clone().into_bytes()),
                None => txn.remove(SERVICE, key(&who, &name)),
            }
            let at = (who, name);
            let old = self.entries.get(&at).cloned();
            let (who, name) = at;
            set.changes.push(Change { who, name, old, new });
        }
        let version = self.version + 1;
        txn.put(HISTORY, history_key(version), encode_to_vec(&set));
        if version > MAX_HISTORY {
            txn.remove(HISTORY, history_key(version - MAX_HISTORY));
        }
    }

    /// All values, by section.
    pub fn entries(&self) -> impl Iterator<Item = ConfigEntry> + '_ {
        self.entries.iter().map(|((who, name), value)| ConfigEntry {
            who: who.clone(),
            name: name.clone(),
            value: value.clone(),
        })
    }

    /// The values that apply to one daemon or client with the section each comes from.
    pub fn sources(&self, kind: &str, id: &str, host: &str, class: &str) -> BTreeMap<String, ConfigEntry> {
        let mut best: BTreeMap<String, ((usize, bool), ConfigEntry)> = BTreeMap::new();
        for e in self.entries() {
            let Some(rank) = e.who.matches(kind, id, host, class) else {
                continue;
            };
            match best.get(&e.name) {
                Some((old, _)) if *old > rank => {}
                _ => {
                    best.insert(e.name.clone(), (rank, e));
                }
            }
        }
        best.into_iter().map(|(k, (_, e))| (k, e)).collect()
    }

    /// The values that apply to one daemon or client.
    pub fn for_daemon(&self, kind: &str, id: &str, host: &str, class: &str) -> BTreeMap<String, String> {
        self.sources(kind, id, host, class)
            .into_iter()
            .map(|(k, e)| (k, e.value))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_value_wins() {
        let mut c = Config::default();
        for (who, v) in [
            ("global", "1"),
            ("osd", "2"),
            ("osd/class:ssd", "3"),
            ("osd.1", "4"),
        ] {
            c.apply_value(&format!("{who}\nx"), Some(&Bytes::copy_from_slice(v.as_bytes())));
        }
        assert_eq!(c.for_daemon("client", "admin", "", "")["x"], "1");
        assert_eq!(c.for_daemon("osd", "0", "", "")["x"], "2");
        assert_eq!(c.for_daemon("osd", "0", "", "ssd")["x"], "3");
        assert_eq!(c.for_daemon("osd", "1", "", "ssd")["x"], "4");
        assert_eq!(c.for_daemon("osd", "11", "", "")["x"], "2");
    }

    #[test]
    fn changes_are_numbered_and_round_trip() {
        let mut kv = crate::kv::MemKv::default();
        let mut c = Config::read(&kv).unwrap();
        let osd = || Who::parse("osd").unwrap();
        for value in [Some("1"), Some("2"), None] {
            let mut txn = Txn::default();
            let value = value.map(str::to_owned);
            c.change(
                vec![(osd(), "x".into(), value)],
                String::new(),
                UTime::ZERO,
                &mut txn,
            );
            kv.apply(&txn);
            c = Config::read(&kv).unwrap();
        }
        assert_eq!(c.version(), 4);
        assert_eq!(c.entries().count(), 0);
        let set = Config::changes(&kv, 3).unwrap().unwrap();
        let (old, new) = (Some("1".to_owned()), Some("2".to_owned()));
        let want = Change {
            who: osd(),
            name: "x".into(),
            old,
            new,
        };
        assert_eq!(set.changes, [want]);
        assert_eq!(Config::changes(&kv, 1).unwrap(), None);
    }

    #[test]
    fn sections_are_checked() {
        assert!(Who::parse("nonsense").is_none());
        assert_eq!(Who::parse("host:a").unwrap().to_string(), "global/host:a");
        assert!(Who::parse("osd/rack:b").is_none());
    }
}
