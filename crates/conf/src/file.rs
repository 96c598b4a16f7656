//! A parsed `ceph.conf`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use spirula_secret::Named;

/// Why a configuration file was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error("can't read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line of a text is neither a section, an option nor a comment.
    #[error("line {line}: {what}")]
    Syntax {
        /// Line number, from 1.
        line: usize,
        /// The reason.
        what: &'static str,
    },
    /// A line of a file is neither a section, an option nor a comment, or is refused.
    #[error("{path}:{line}: {what}")]
    Line {
        /// The file.
        path: String,
        /// Line number, from 1.
        line: usize,
        /// The reason.
        what: &'static str,
    },
}

/// The sections of a `ceph.conf`, with keys in their canonical form (`mon_host`).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConfFile {
    sections: BTreeMap<String, BTreeMap<String, String>>,
    /// The numbers of the options' lines, from 1, in their sections.
    lines: BTreeMap<String, BTreeMap<String, usize>>,
}

impl fmt::Debug for ConfFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sections = self.sections.iter().map(|(name, values)| (name, Named(values)));
        f.debug_map().entries(sections).finish()
    }
}

/// Longest value that metavariables make, in bytes: options that name each other several times grow
/// exponentially.
const EXPANDED_MAX: usize = 16 << 10;

/// The default of a daemon's option, if it is not empty.
fn default_of(key: &str) -> Option<&'static str> {
    let option = crate::options::find(key)?;
    Some(option.default).filter(|d| !d.is_empty())
}

/// `mon host`, `mon-host` and `mon_host` are one key.
fn canonical(key: &str) -> String {
    key.split([' ', '\t', '_', '-'])
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("_")
}

/// The sections that apply to the entity `name`, the nearest first.
fn nearest(name: &str) -> [&str; 3] {
    let kind = name.split('.').next().unwrap_or(name);
    [name, kind, "global"]
}

/// Cuts an unquoted comment and the quotes around a whole value.
fn value_of(raw: &str) -> String {
    let mut out = String::new();
    let mut quote = None;
    let mut escaped = false;
    for c in raw.chars() {
        match (quote, c) {
            _ if escaped => {
                escaped = false;
                out.push(c);
            }
            (_, '\\') => escaped = true,
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '#' | ';') => break,
            _ => out.push(c),
        }
    }
    out.trim().to_owned()
}

impl ConfFile {
    /// Reads and parses the file at `path`.
    ///
    /// # Errors
    /// Where it can't be read or has a line that is no configuration.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let shown = || path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
            path: shown(),
            source,
        })?;
        Self::parse(&text).map_err(|e| match e {
            Error::Syntax { line, what } => Error::Line {
                path: shown(),
                line,
                what,
            },
            other => other,
        })
    }

    /// Parses the text of a configuration file.
    ///
    /// # Errors
    /// On a line that is neither a section, an option nor a comment.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut conf = Self::default();
        let mut section = String::from("global");
        let mut lines = text.lines().enumerate();
        while let Some((at, first)) = lines.next() {
            let mut line = first.to_owned();
            while line.ends_with('\\') {
                line.pop();
                match lines.next() {
                    Some((_, more)) => line.push_str(more),
                    None => break,
                }
            }
            let line = line.trim();
            let syntax = |what| Error::Syntax { line: at + 1, what };
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let (name, _) = rest.split_once(']').ok_or(syntax("a section without its ]"))?;
                section = name.trim().to_owned();
                continue;
            }
            let (key, value) = line.split_once('=').ok_or(syntax("an option without ="))?;
            let key = canonical(key);
            if key.is_empty() {
                return Err(syntax("an option without a name"));
            }
            conf.lines
                .entry(section.clone())
                .or_default()
                .insert(key.clone(), at + 1);
            conf.sections
                .entry(section.clone())
                .or_default()
                .insert(key, value_of(value));
        }
        Ok(conf)
    }

    /// The raw value of `key` in exactly this section.
    pub fn in_section(&self, section: &str, key: &str) -> Option<&str> {
        self.sections
            .get(section)?
            .get(&canonical(key))
            .map(String::as_str)
    }

    /// All sections with their options in canonical spelling and their raw values.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, String>)> {
        self.sections
            .iter()
            .map(|(name, options)| (name.as_str(), options))
    }

    /// Every option that applies to the entity `name` (`osd.0`), nearest section first, expanded.
    pub fn all_for(&self, name: &str) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        for section in nearest(name).into_iter().rev() {
            for (k, v) in self.sections.get(section).into_iter().flatten() {
                out.insert(k.clone(), self.expand(v, name));
            }
        }
        out
    }

    /// The value of `key` for the entity `name`: its own section, its kind's, then `global`, with
    /// metavariables (`$cluster`, `$type`, `$id`, `$name`, `$host` and any option's name) replaced.
    pub fn get(&self, name: &str, key: &str) -> Option<String> {
        self.raw(name, key).map(|v| self.expand(v, name))
    }

    /// The expanded value of `key` for the entity `name`, or else the option's default if that is
    /// not empty.
    pub fn get_or_default(&self, name: &str, key: &str) -> Option<String> {
        let raw = self.raw(name, key).or_else(|| default_of(key));
        raw.map(|v| self.expand(v, name))
    }

    fn raw(&self, name: &str, key: &str) -> Option<&str> {
        nearest(name).into_iter().find_map(|s| self.in_section(s, key))
    }

    /// The number of the line, from 1, with the value that [`ConfFile::get`] returns.
    pub fn line(&self, name: &str, key: &str) -> Option<usize> {
        let key = canonical(key);
        let line = |section| self.lines.get(section)?.get(&key).copied();
        nearest(name).into_iter().find_map(line)
    }

    /// Checks the options about security that apply to the entity `name`.
    ///
    /// # Errors
    /// The number of the line and the reason, if an option asks for something that is not
    /// supported; see [`crate::security`].
    pub fn check_security(&self, name: &str) -> Result<(), (usize, String)> {
        for (key, _) in crate::security::OPTIONS {
            let (Some(option), Some(value)) = (crate::options::find(key), self.get(name, key)) else {
                continue;
            };
            if let Err(what) = option.parse(&value) {
                return Err((self.line(name, key).unwrap_or_default(), what));
            }
        }
        Ok(())
    }

    fn expand(&self, value: &str, name: &str) -> String {
        // An option may name options; a loop among them stops at this depth and stays as it is.
        let mut out = value.to_owned();
        for _ in 0..8 {
            match self.expand_once(&out, name) {
                Some(next) if next != out => out = next,
                _ => break,
            }
        }
        out
    }

    /// Replaces the metavariables in `value` itself; `None` if it becomes too long.
    fn expand_once(&self, value: &str, name: &str) -> Option<String> {
        let (kind, id) = name.split_once('.').unwrap_or((name, ""));
        let mut out = String::new();
        let mut rest = value;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let (var, tail) = match after.strip_prefix('{').and_then(|a| a.split_once('}')) {
                Some(braced) => braced,
                None => {
                    let end = after
                        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                        .unwrap_or(after.len());
                    after.split_at(end)
                }
            };
            match var {
                "cluster" => out.push_str("ceph"),
                "type" => out.push_str(kind),
                "id" => out.push_str(id),
                "name" => out.push_str(name),
                "pid" => out.push_str(&std::process::id().to_string()),
                "host" => out.push_str(&hostname()),
                _ => match self.raw(name, var).or_else(|| default_of(var)) {
                    Some(v) => out.push_str(v),
                    None => out.push_str(&rest[at..rest.len() - tail.len()]),
                },
            }
            rest = tail;
            if out.len() + rest.len() > EXPANDED_MAX.max(value.len()) {
                return None;
            }
        }
        out.push_str(rest);
        Some(out)
    }
}

/// The machine's short host name.
pub fn hostname() -> String {
    let full = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    full.trim().split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_printed() {
        let conf = ConfFile::parse("[client.x]\nkey = AQB==\nkeyring = k\n").unwrap();
        assert_eq!(format!("{conf:?}"), r#"{"client.x": {"key": …, "keyring": "k"}}"#);
    }

    #[test]
    fn what_is_wrong_about_security_is_named_by_its_line() {
        let text = "[global]\nms_cluster_mode = secure\n\n[osd]\nms cluster mode = secur\n[mon]\n\
                    auth_service_required = none\n[osd.1]\nms-cluster-mode = crc\n";
        let conf = ConfFile::parse(text).unwrap();
        let (line, what) = conf.check_security("osd.0").unwrap_err();
        assert!(
            line == 5 && what.contains("secur is no connection mode"),
            "{line}: {what}"
        );
        assert_eq!(conf.check_security("mon.a").unwrap_err().0, 7);
        assert_eq!(conf.check_security("osd.1"), Ok(()));
        assert_eq!(conf.check_security("client.x"), Ok(()));
    }

    const TEXT: &str = "\
# a comment
[global]
fsid = 1
mon host = 10.0.0.1 ; trailing
run_dir = /run/x
keyring = \"/etc/a b\"
[osd]
osd data = $run_dir/$name
[osd.1]
mon-host = 10.0.0.2, \\
10.0.0.3
";

    #[test]
    fn the_nearest_section_wins_and_keys_are_canonical() {
        let c = ConfFile::parse(TEXT).unwrap();
        assert_eq!(c.get("osd.0", "mon_host").as_deref(), Some("10.0.0.1"));
        assert_eq!(c.get("osd.1", "mon host").as_deref(), Some("10.0.0.2, 10.0.0.3"));
        assert_eq!(c.get("osd.1", "osd_data").as_deref(), Some("/run/x/osd.1"));
        assert_eq!(c.get("client.admin", "keyring").as_deref(), Some("/etc/a b"));
        assert_eq!(c.get("client.admin", "osd_data"), None);
    }

    #[test]
    fn unknown_metavariables_and_loops_stay() {
        let c = ConfFile::parse("a = $b\nb = ${a}\nc = x$nosuch/y").unwrap();
        assert_eq!(c.get("mon.a", "c").as_deref(), Some("x$nosuch/y"));
        assert!(c.get("mon.a", "a").is_some());
    }

    #[test]
    fn defaults_are_expanded_too() {
        let c = ConfFile::parse("run_dir = /run/x\n[osd]\nosd log device = $osd_data/log").unwrap();
        let of = |name: &str, key: &str| c.get_or_default(name, key).unwrap();
        assert_eq!(of("osd.3", "osd_data"), "/var/lib/ceph/osd/ceph-3");
        assert_eq!(of("osd.3", "osd_log_device"), "/var/lib/ceph/osd/ceph-3/log");
        assert_eq!(of("mon.a", "admin_socket"), "/run/x/ceph-mon.a.asok");
        assert_eq!(c.get_or_default("mon.a", "pid_file"), None);
        assert_eq!(c.get("osd.3", "osd_data"), None);
    }

    #[test]
    fn options_that_multiply_each_other_stay_short() {
        let c = ConfFile::parse(&format!("a = {}\nb = x$a", "$a".repeat(100))).unwrap();
        for key in ["a", "b"] {
            assert!(c.get("mon.a", key).is_some_and(|v| v.len() <= EXPANDED_MAX));
        }
        let long = "x".repeat(3 * EXPANDED_MAX);
        let c = ConfFile::parse(&format!("a = {long}")).unwrap();
        assert_eq!(c.get("mon.a", "a"), Some(long));
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        assert!(matches!(
            ConfFile::parse("\n[global\n"),
            Err(Error::Syntax { line: 2, .. })
        ));
        assert!(matches!(
            ConfFile::parse("no option"),
            Err(Error::Syntax { line: 1, .. })
        ));
    }

    #[test]
    fn a_file_is_named_with_its_line() {
        let path = std::env::temp_dir().join(format!("spirula-conf-{}", std::process::id()));
        std::fs::write(&path, "[global]\nno option\n").unwrap();
        let said = ConfFile::read(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(said, format!("{}:2: an option without =", path.display()));
    }
}
