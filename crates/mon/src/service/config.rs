//! The central configuration: options by whom they are for.
//!
//! A key is `WHO\nOPTION`; WHO is a section (`global`, `osd`, `osd.3`) with optional masks (`osd/class:ssd`).

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use crate::core::LoadError;
use crate::kv::{KvRead, Txn};

const SERVICE: &str = "config";

/// Whom a value is for. Ordered by how specific it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// `global`, a type such as `osd`, or an entity such as `osd.3`.
    pub section: String,
    /// `class:NAME` or `host:NAME`.
    pub mask: Option<String>,
}

impl Who {
    /// Parses a section with masks; `None` for what is neither.
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
    /// Whom it is for.
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
}

fn key(who: &Who, name: &str) -> String {
    format!("{who}\n{name}")
}

impl Config {
    pub(crate) fn load(kv: &dyn KvRead) -> Result<Self, LoadError> {
        let mut c = Self::default();
        for (k, v) in kv.scan(SERVICE)? {
            c.apply(&k, Some(&v));
        }
        Ok(c)
    }

    pub(crate) fn apply(&mut self, key: &str, value: Option<&Bytes>) {
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

    pub(crate) fn set(who: &Who, name: &str, value: &str, txn: &mut Txn) {
        txn.put(SERVICE, key(who, name), value.to_owned().into_bytes());
    }

    pub(crate) fn remove(who: &Who, name: &str, txn: &mut Txn) {
        txn.remove(SERVICE, key(who, name));
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
            c.apply(&format!("{who}\nx"), Some(&Bytes::copy_from_slice(v.as_bytes())));
        }
        assert_eq!(c.for_daemon("client", "admin", "", "")["x"], "1");
        assert_eq!(c.for_daemon("osd", "0", "", "")["x"], "2");
        assert_eq!(c.for_daemon("osd", "0", "", "ssd")["x"], "3");
        assert_eq!(c.for_daemon("osd", "1", "", "ssd")["x"], "4");
        assert_eq!(c.for_daemon("osd", "11", "", "")["x"], "2");
    }

    #[test]
    fn sections_are_checked() {
        assert!(Who::parse("nonsense").is_none());
        assert_eq!(Who::parse("host:a").unwrap().to_string(), "global/host:a");
        assert!(Who::parse("osd/rack:b").is_none());
    }
}
