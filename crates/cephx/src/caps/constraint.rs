//! Conditions on a command's arguments.

use std::collections::BTreeMap;

use regex_lite::{Regex, RegexBuilder};

use crate::AuthName;

/// A command's arguments as text.
pub type Args = BTreeMap<String, String>;

/// A condition on one argument, which must be given.
#[derive(Debug, Clone)]
pub(super) struct Constraint {
    pub(super) key: String,
    pub(super) matches: Match,
}

#[derive(Debug, Clone)]
pub(super) enum Match {
    Equal(String),
    Prefix(String),
    /// A POSIX extended regular expression for the whole value; `None` where it is none, which nothing matches.
    Regex(Option<Regex>),
    /// The entity's own part of the configuration keys, `daemon-private/NAME/`.
    DaemonPrivate,
}

impl Match {
    pub(super) fn regex(pattern: &str) -> Self {
        // What POSIX leaves undefined (`\d`, `(?…)`) means something here: it must not allow more than there.
        let extended = |b: &[u8]| (b[0] == b'\\' && b[1].is_ascii_alphanumeric()) || b == b"(?";
        if pattern.as_bytes().windows(2).any(extended) {
            return Self::Regex(None);
        }
        let whole = format!("^(?:{pattern})$");
        Self::Regex(RegexBuilder::new(&whole).size_limit(1 << 16).build().ok())
    }
}

impl Constraint {
    pub(super) fn new(key: &str, matches: Match) -> Self {
        Self {
            key: key.to_owned(),
            matches,
        }
    }

    fn allows(&self, name: &AuthName, args: &Args) -> bool {
        let Some(value) = args.get(&self.key) else {
            return false;
        };
        match &self.matches {
            Match::Equal(want) => value == want,
            Match::Prefix(want) => value.starts_with(want.as_str()),
            Match::Regex(want) => want.as_ref().is_some_and(|r| r.is_match(value)),
            Match::DaemonPrivate => value.starts_with(&format!("daemon-private/{name}/")),
        }
    }
}

/// Whether the arguments fulfil all conditions.
pub(super) fn all_allow(constraints: &[Constraint], name: &AuthName, args: &Args) -> bool {
    constraints.iter().all(|c| c.allows(name, args))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex_allows(pattern: &str, value: &str) -> bool {
        let args = Args::from([("k".to_owned(), value.to_owned())]);
        Constraint::new("k", Match::regex(pattern)).allows(&AuthName::default(), &args)
    }

    #[test]
    fn a_regex_must_match_the_whole_value() {
        assert!(regex_allows("^[^/]+/[0-9]+$", "10.0.0.1:0/42"));
        assert!(!regex_allows("^[^/]+/[0-9]+$", "10.0.0.1"));
        assert!(regex_allows("a|ab", "ab"));
        assert!(!regex_allows("a|b", "ab"));
        assert!(!regex_allows("a", "a\n"));
    }

    #[test]
    fn what_is_no_posix_regex_allows_nothing() {
        for pattern in ["(", "[", "\\d", "(?i)a", "a{100000}"] {
            assert!(
                !regex_allows(pattern, "1") && !regex_allows(pattern, "a"),
                "{pattern}"
            );
        }
    }
}
