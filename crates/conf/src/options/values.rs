//! The values of options in one daemon, and their sources.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::Kind::{Millisecs, Secs, Uint};
use super::parse::seconds;
use super::table::is_live;
use super::{all, find};
use crate::amount;

/// The sources of values, the weakest first (`src/common/config_values.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The monitors' configuration database.
    Mon,
    /// `ceph.conf` and the command line.
    File,
    /// Set in the running daemon: `ceph tell … config set`, `ceph daemon … config set`.
    Override,
}

impl Source {
    /// All, the weakest first.
    pub const ALL: [Self; 3] = [Self::Mon, Self::File, Self::Override];

    /// The name that `config show` and `config diff` print.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mon => "mon",
            Self::File => "file",
            Self::Override => "override",
        }
    }
}

/// The values of one daemon: those set at run time override the file and command line, which
/// override the central configuration, which overrides the defaults.
#[derive(Debug, Clone, Default)]
pub struct Values {
    /// From `ceph.conf` and the command line.
    pub local: BTreeMap<String, String>,
    /// From the monitors' configuration database.
    pub central: BTreeMap<String, String>,
    /// Set at run time; gone with the process.
    pub overrides: BTreeMap<String, String>,
    /// Options of the configuration database that a running daemon does not follow, or whose values
    /// it cannot use.
    pub ignored: BTreeSet<String>,
}

impl Values {
    /// Values of a file.
    pub fn from_file(local: BTreeMap<String, String>) -> Self {
        Self {
            local,
            ..Self::default()
        }
    }

    /// Adopts the values of the monitors' configuration database that a running daemon follows.
    pub fn set_central(&mut self, all: BTreeMap<String, String>) {
        let follows = |name: &str, value: &str| match find(name) {
            Some(o) => o.is_central() && is_live(o) && o.parse(value).is_ok(),
            // Of use to somebody else.
            None => false,
        };
        let (used, ignored): (BTreeMap<_, _>, _) = all.into_iter().partition(|(k, v)| follows(k, v));
        self.central = used;
        self.ignored = ignored.into_keys().filter(|k| find(k).is_some()).collect();
    }

    /// Each source that sets an option with its value in canonical spelling, the strongest first.
    pub fn sources(&self, name: &str) -> Vec<(Source, String)> {
        let opt = find(name);
        let spell = |v: &String| opt.and_then(|o| o.parse(v).ok()).unwrap_or_else(|| v.clone());
        let found = |s: &Source| self.layer(*s).get(name).map(|v| (*s, spell(v)));
        Source::ALL.iter().rev().filter_map(found).collect()
    }

    /// The values of one source.
    pub fn layer(&self, source: Source) -> &BTreeMap<String, String> {
        match source {
            Source::Mon => &self.central,
            Source::File => &self.local,
            Source::Override => &self.overrides,
        }
    }

    /// The strongest source that sets an option, and its value.
    fn set(&self, name: &str) -> Option<(Source, &str)> {
        let found = |s: &Source| self.layer(*s).get(name).map(|v| (*s, v.as_str()));
        Source::ALL.iter().rev().find_map(found)
    }

    /// A value as text; empty for an unknown option.
    pub fn get(&self, name: &str) -> &str {
        let set = self.set(name).map(|(_, v)| v);
        set.or_else(|| find(name).map(|o| o.default)).unwrap_or_default()
    }

    /// The source of a value, as `config show` names it.
    pub fn source(&self, name: &str) -> &'static str {
        self.set(name).map_or("default", |(s, _)| s.name())
    }

    /// Whether an option has its default value.
    pub fn is_default(&self, name: &str) -> bool {
        self.set(name).is_none()
    }

    /// A boolean value.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1" | "yes" | "on")
    }

    /// An unsigned value; if the text is invalid, the default, or else 0. Suffixes count as the
    /// option's type says.
    pub fn uint(&self, name: &str) -> u64 {
        let opt = find(name);
        let parse = |text: &str| match opt.map(|o| o.kind) {
            Some(Secs | Millisecs) => seconds(text).ok(),
            Some(Uint) => amount::si(text).ok(),
            _ => amount::iec(text).ok(),
        };
        let default = || opt.and_then(|o| parse(o.default));
        parse(self.get(name)).or_else(default).unwrap_or(0)
    }

    /// A signed value; if the text is invalid, the default, or else 0.
    pub fn int(&self, name: &str) -> i64 {
        let parse = |text: &str| text.trim().parse().ok();
        let default = || find(name).and_then(|o| parse(o.default));
        parse(self.get(name)).or_else(default).unwrap_or(0)
    }

    /// The ports for daemons without one of their own; `None` if the options give no range.
    pub fn bind_ports(&self) -> Option<RangeInclusive<u16>> {
        let port = |name: &str| u16::try_from(self.int(name)).ok();
        let range = port("ms_bind_port_min")?..=port("ms_bind_port_max")?;
        Some(range).filter(|r| !r.is_empty())
    }

    /// A float; if the text is not a finite one, the default, or else 0.
    pub fn float(&self, name: &str) -> f64 {
        let parse = |text: &str| text.trim().parse().ok().filter(|v: &f64| v.is_finite());
        let default = || find(name).and_then(|o| parse(o.default));
        parse(self.get(name)).or_else(default).unwrap_or(0.0)
    }

    /// A value in its canonical spelling; `None` for an option that is unknown or not set.
    pub fn canonical(&self, name: &str) -> Option<String> {
        let opt = find(name);
        let text = self.set(name).map(|(_, v)| v).or(opt.map(|o| o.default))?;
        let parsed = opt.and_then(|o| o.parse(text).ok());
        Some(parsed.unwrap_or_else(|| text.to_owned()))
    }

    /// Every option with its value, for `config show`.
    pub fn all(&self) -> BTreeMap<String, String> {
        let known = all().iter().map(|o| o.name.to_owned());
        let set = Source::ALL.iter().flat_map(|s| self.layer(*s).keys().cloned());
        known
            .chain(set)
            .filter_map(|name| self.canonical(&name).map(|v| (name, v)))
            .collect()
    }
}
