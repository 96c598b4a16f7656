//! Keyring files (`KeyRing` of Ceph's `src/auth/KeyRing.cc`, in the syntax of
//! `src/common/ConfUtils.cc`).

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

use crate::entity::EntityAuth;
use crate::key::CryptoKey;
use crate::name::AuthName;

/// Why a keyring's text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("keyring, line {line}: {what}")]
pub struct KeyringError {
    /// The line, from 1.
    pub line: usize,
    /// The error. Never shows a key.
    pub what: &'static str,
}

/// Keys and capabilities of some entities, as `ceph-authtool` keeps them in a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keyring {
    /// The entities.
    pub entries: BTreeMap<AuthName, EntityAuth>,
}

impl Keyring {
    /// The key of an entity.
    pub fn key(&self, name: &AuthName) -> Option<&CryptoKey> {
        self.entries.get(name).map(|e| &e.key)
    }

    /// Parses a keyring's text.
    ///
    /// Sections are entities, `[global]` is skipped; `key`, `caps SERVICE` and the obsolete `auid`
    /// are known. Comments start with `#` or `;`, a `\` at the end of a line continues it, and in
    /// words `_` stands for a space. Unlike the official parser it minds neither a missing last
    /// newline nor a `;` or `#` inside quotes, which the official tools write but don't read.
    ///
    /// # Errors
    /// At the first line that is none of these.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let mut ring = Self::default();
        let mut section = Section::None;
        for (line, content) in logical_lines(text) {
            let fail = |what| KeyringError { line, what };
            let content = content.trim_matches(BLANK);
            if content.is_empty() || content.starts_with(COMMENT) {
                continue;
            }
            if let Some(rest) = content.strip_prefix('[') {
                let (name, rest) = rest.split_once(']').ok_or(fail("section name without ]"))?;
                expect_nothing(rest).map_err(fail)?;
                section = match name {
                    "global" => Section::Skipped,
                    name => Section::Entity(name.parse().map_err(|_| fail("bad entity name"))?),
                };
                if let Section::Entity(name) = &section {
                    ring.entries.entry(name.clone()).or_default();
                }
                continue;
            }
            let (word, value) = content
                .split_once('=')
                .ok_or(fail("neither section nor key = value"))?;
            let value = parse_value(value.trim_start_matches(BLANK)).map_err(fail)?;
            match &section {
                Section::None => return Err(fail("key = value outside of a section")),
                Section::Skipped => {}
                Section::Entity(name) => ring.set(name, &normalise(word), value).map_err(fail)?,
            }
        }
        // A section without a key or caps names nobody, as in the official parser.
        ring.entries.retain(|_, e| *e != EntityAuth::default());
        Ok(ring)
    }

    fn set(&mut self, name: &AuthName, word: &str, value: Zeroizing<String>) -> Result<(), &'static str> {
        let entry = self.entries.entry(name.clone()).or_default();
        match word.split_once(' ') {
            None if word == "key" => entry.key = CryptoKey::from_base64(&value).map_err(|_| "not a key")?,
            None if word == "auid" => {}
            Some(("caps", service)) if !service.is_empty() => {
                entry.caps.insert(service.to_owned(), value.to_string());
            }
            _ => return Err("unknown word"),
        }
        Ok(())
    }
}

enum Section {
    None,
    Skipped,
    Entity(AuthName),
}

const BLANK: [char; 2] = [' ', '\t'];
const COMMENT: [char; 2] = ['#', ';'];

/// Lines with their numbers, those that end in `\` joined with the next. One may hold a key, so
/// none stays in memory.
fn logical_lines(text: &str) -> impl Iterator<Item = (usize, Zeroizing<String>)> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (number, first) = lines.next()?;
        let mut joined = Zeroizing::new(first.to_owned());
        while joined.ends_with('\\') {
            joined.pop();
            match lines.next() {
                Some((_, next)) => joined.push_str(next),
                None => break,
            }
        }
        Some((number + 1, joined))
    })
}

/// One space between words, whatever blanks and underscores stood there.
fn normalise(word: &str) -> String {
    word.split([' ', '\t', '_'])
        .filter(|w| !w.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn expect_nothing(rest: &str) -> Result<(), &'static str> {
    let rest = rest.trim_matches(BLANK);
    if rest.is_empty() || rest.starts_with(COMMENT) {
        Ok(())
    } else {
        Err("junk at the end of the line")
    }
}

/// A value in quotes, or everything up to a comment. `\` takes the next character as it is.
fn parse_value(text: &str) -> Result<Zeroizing<String>, &'static str> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    // It never grows, which would leave a copy behind.
    let mut value = Zeroizing::new(String::with_capacity(text.len()));
    let mut chars = text.char_indices().skip(usize::from(quote.is_some()));
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped)) => value.push(escaped),
                None => return Err("nothing after \\"),
            },
            c if Some(c) == quote => {
                return expect_nothing(&text[at + c.len_utf8()..]).map(|()| value);
            }
            c if COMMENT.contains(&c) && quote.is_none() => break,
            c => value.push(c),
        }
    }
    if quote.is_some() {
        Err("missing quote")
    } else {
        let end = value.trim_end().len();
        value.truncate(end);
        Ok(value)
    }
}

/// The file as `ceph-authtool` writes it. It shows the keys.
impl fmt::Display for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, entry) in &self.entries {
            writeln!(f, "[{name}]\n\tkey = {}", entry.key.to_base64())?;
            for (service, caps) in &entry.caps {
                writeln!(f, "\tcaps {service} = \"{}\"", caps.replace('"', "\\\""))?;
            }
        }
        Ok(())
    }
}
