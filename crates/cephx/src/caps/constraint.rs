//! Conditions on a command's arguments.

use std::collections::BTreeMap;

use regex_lite::RegexBuilder;

use crate::AuthName;

/// A command's arguments as text.
pub type Args = BTreeMap<String, String>;

/// A condition on one argument, which must be given unless the condition is [`Match::Optional`] or
/// [`Match::Absent`].
#[derive(Debug, Clone)]
pub(super) struct Constraint {
    pub(super) key: String,
    pub(super) matches: Match,
}

#[derive(Debug, Clone)]
pub(super) enum Match {
    Equal(String),
    Prefix(String),
    /// A POSIX extended regular expression for the whole value. It is compiled at each use: a
    /// compiled one may take thousands of times the memory of its text, and capabilities may hold
    /// any number of them.
    Regex(String),
    /// The entity's own part of the configuration keys, `daemon-private/NAME/`.
    DaemonPrivate,
    /// Nothing but profiles for images, by the grammar of this function: a grammar that stops
    /// earlier would take the rest for a pool's name.
    RbdProfiles(fn(&str) -> bool),
    /// The argument must not be given.
    Absent,
    /// The argument need not be given; if it is, the inner condition holds.
    Optional(Box<Match>),
}

/// The most bytes that a compiled regular expression may take.
const REGEX_LIMIT: usize = 64 << 10;

/// Whether a regular expression matches the whole value; an invalid one matches nothing.
fn matches_whole(pattern: &str, value: &str) -> bool {
    // Sequences that POSIX leaves undefined (`\d`, `(?…)`) have a meaning in this library: they
    // must not allow more than in Ceph.
    let extended = |b: &[u8]| (b[0] == b'\\' && b[1].is_ascii_alphanumeric()) || b == b"(?";
    if pattern.as_bytes().windows(2).any(extended) {
        return false;
    }
    let whole = RegexBuilder::new(&format!("^(?:{pattern})$"))
        .size_limit(REGEX_LIMIT)
        .build();
    whole.is_ok_and(|r| r.is_match(value))
}

impl Match {
    fn allows(&self, name: &AuthName, value: &str) -> bool {
        match self {
            Self::Equal(want) => value == want,
            Self::Prefix(want) => value.starts_with(want.as_str()),
            Self::Regex(pattern) => matches_whole(pattern, value),
            Self::DaemonPrivate => value.starts_with(&format!("daemon-private/{name}/")),
            Self::RbdProfiles(are) => are(value),
            Self::Absent => false,
            Self::Optional(inner) => inner.allows(name, value),
        }
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
        match args.get(&self.key) {
            Some(value) => self.matches.allows(name, value),
            None => matches!(self.matches, Match::Absent | Match::Optional(_)),
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

    #[test]
    fn a_regex_must_match_the_whole_value() {
        assert!(matches_whole("^[^/]+/[0-9]+$", "10.0.0.1:0/42"));
        assert!(!matches_whole("^[^/]+/[0-9]+$", "10.0.0.1"));
        assert!(matches_whole("a|ab", "ab"));
        assert!(!matches_whole("a|b", "ab"));
        assert!(!matches_whole("a", "a\n"));
    }

    #[test]
    fn what_is_no_posix_regex_allows_nothing() {
        for pattern in ["(", "[", "\\d", "(?i)a", "a{100000}"] {
            assert!(
                !matches_whole(pattern, "1") && !matches_whole(pattern, "a"),
                "{pattern}"
            );
        }
    }
}
