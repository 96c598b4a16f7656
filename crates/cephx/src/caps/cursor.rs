//! A cursor for grammars with ordered choice: each rule advances the cursor or leaves it where it
//! was. As in the official parsers, text that a rule has accepted stays accepted when a later rule
//! fails, so that both stop at the same place.

use std::collections::BTreeMap;

use super::constraint::{Constraint, Match};
use super::network::Network;
use super::{Access, CapsError};

#[derive(Clone)]
pub(super) struct Cursor<'a> {
    rest: &'a str,
}

/// White space between words in the grammars of monitors, managers and metadata servers.
pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\t')
}

/// White space of the C locale.
pub(super) fn is_c_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./-".contains(c)
}

fn is_network(c: char) -> bool {
    c.is_ascii_hexdigit() || "/.:][".contains(c)
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Runs a rule; where it fails the cursor stays.
    pub(super) fn attempt<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let saved = self.rest;
        let result = rule(self);
        if result.is_none() {
            self.rest = saved;
        }
        result
    }

    pub(super) fn literal(&mut self, word: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    /// Any number of characters of a class.
    pub(super) fn take_while(&mut self, class: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !class(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// At least one character of a class.
    pub(super) fn some(&mut self, class: impl Fn(char) -> bool) -> Option<&'a str> {
        Some(self.take_while(class)).filter(|s| !s.is_empty())
    }

    pub(super) fn spaces(&mut self) -> Option<()> {
        self.some(is_space).map(drop)
    }

    /// A string in quotes, of at least `min` characters.
    pub(super) fn quoted(&mut self, min: usize) -> Option<String> {
        ['"', '\''].into_iter().find_map(|quote| {
            self.attempt(|c| {
                c.rest = c.rest.strip_prefix(quote)?;
                let body = c.take_while(|x| x != quote);
                c.rest = c.rest.strip_prefix(quote)?;
                (body.len() >= min).then(|| body.to_owned())
            })
        })
    }

    /// A word, or a non-empty string in quotes.
    pub(super) fn string(&mut self) -> Option<String> {
        self.quoted(1).or_else(|| self.word())
    }

    /// A word, or a string in quotes that may be empty.
    pub(super) fn string_or_empty(&mut self) -> Option<String> {
        self.quoted(0).or_else(|| self.word())
    }

    fn word(&mut self) -> Option<String> {
        self.some(is_word).map(str::to_owned)
    }

    /// `=` or white space of this class between a keyword and its value.
    pub(super) fn equals_or(&mut self, space: impl Fn(char) -> bool) -> Option<()> {
        self.literal("=").or_else(|| self.some(space).map(drop))
    }

    /// `*`, `all`, or some of `r`, `w`, `x` in this order.
    pub(super) fn access(&mut self) -> Option<Access> {
        if self.literal("*").or_else(|| self.literal("all")).is_some() {
            return Some(Access::ANY);
        }
        self.flags(&[("r", Access::R), ("w", Access::W), ("x", Access::X)])
    }

    fn flags(&mut self, flags: &[(&str, Access)]) -> Option<Access> {
        let found = flags.iter().filter(|(letter, _)| self.literal(letter).is_some());
        Some(found.fold(Access::empty(), |acc, (_, flag)| acc.with(*flag))).filter(|a| !a.is_empty())
    }

    /// ` network CIDR`, which may be missing.
    pub(super) fn network(&mut self, space: impl Fn(char) -> bool) -> Option<Network> {
        self.attempt(|c| {
            c.some(&space)?;
            c.literal("network")?;
            c.some(&space)?;
            c.some(is_network).map(Network::new)
        })
    }

    /// `key=value`, `key prefix value` or `key regex value`, several with white space between them.
    /// `loose` allows white space around `=`.
    pub(super) fn constraints(&mut self, loose: bool) -> Option<Vec<Constraint>> {
        let first = self.constraint(loose)?;
        let mut found = BTreeMap::from([(first.key, first.matches)]);
        while let Some(next) = self.attempt(|c| c.spaces().and_then(|()| c.constraint(loose))) {
            // The first one of a name holds.
            found.entry(next.key).or_insert(next.matches);
        }
        let constraint = |(key, matches)| Constraint { key, matches };
        Some(found.into_iter().map(constraint).collect())
    }

    fn constraint(&mut self, loose: bool) -> Option<Constraint> {
        self.attempt(|c| {
            let key = c.string()?;
            let equal = c.attempt(|c| {
                if loose {
                    c.take_while(is_space);
                }
                c.literal("=")?;
                if loose {
                    c.take_while(is_space);
                }
                c.string()
            });
            let matches = match equal {
                Some(value) => Match::Equal(value),
                None => match c.keyword_value("prefix") {
                    Some(value) => Match::Prefix(value),
                    None => Match::Regex(c.keyword_value("regex")?),
                },
            };
            Some(Constraint { key, matches })
        })
    }

    fn keyword_value(&mut self, keyword: &str) -> Option<String> {
        self.attempt(|c| {
            c.spaces()?;
            c.literal(keyword)?;
            c.spaces()?;
            c.string()
        })
    }

    /// ` with` and constraints, which may be missing.
    pub(super) fn with_constraints(&mut self, loose: bool) -> Vec<Constraint> {
        let found = self.attempt(|c| {
            c.spaces()?;
            c.literal("with")?;
            c.spaces()?;
            c.constraints(loose)
        });
        found.unwrap_or_default()
    }

    /// `allow KEYWORD VALUE`, with white space or `=` before the value.
    pub(super) fn allow_keyword(&mut self, keyword: &str) -> Option<String> {
        self.literal("allow")?;
        self.spaces()?;
        self.literal(keyword)?;
        self.equals_or(is_space)?;
        self.string()
    }
}

/// Parses a list of grants separated by `,` or `;`, each separator with characters of the class
/// `around` around it. `trim` is the class of characters that are skipped before the first grant
/// and after the last.
pub(super) fn grants<T>(
    service: &'static str,
    text: &str,
    around: impl Fn(char) -> bool,
    trim: impl Fn(char) -> bool,
    grant: impl Fn(&mut Cursor<'_>) -> Option<T>,
) -> Result<Vec<T>, CapsError> {
    let mut cursor = Cursor::new(text);
    cursor.take_while(&trim);
    let mut found = Vec::new();
    if let Some(first) = cursor.attempt(&grant) {
        found.push(first);
        while let Some(next) = cursor.attempt(|c| {
            c.take_while(&around);
            c.literal(",").or_else(|| c.literal(";"))?;
            c.take_while(&around);
            grant(c)
        }) {
            found.push(next);
        }
        cursor.take_while(&trim);
    }
    if !found.is_empty() && cursor.rest().is_empty() {
        return Ok(found);
    }
    // If not even the first grant can be read, the whole text is shown, without the skipped
    // characters.
    Err(CapsError::Syntax {
        service,
        rest: cursor.rest().to_owned(),
        text: text.to_owned(),
    })
}
