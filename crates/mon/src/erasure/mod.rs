//! Erasure-code profiles, read as the plugins of Ceph 16.2 read them: the same defaults, limits and
//! texts (`src/erasure-code` there).
//!
//! A plugin and its technique only name a code: objects are stored in one code of our own, with as
//! many pieces and so that as many may be lost. See [docs/erasure-codes.md].
//!
//! [docs/erasure-codes.md]: ../../../../docs/erasure-codes.md

mod clay;
mod isa;
mod jerasure;
mod json;
mod lrc;
mod reader;
mod shec;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use reader::Reader;
use spirula_conf::amount;
use spirula_crush::{CrushMap, RULE_ERASURE, RuleMode, SimpleRule};

use crate::command::{Reply, errno, refuse};

/// The properties of a profile by name.
pub(crate) type Profile = BTreeMap<String, String>;

/// The most members of a placement group that the kernel's clients know.
pub(crate) const MAX_CHUNKS: u32 = 32;

/// Bytes that stripe units should be a multiple of.
const PAGE: u64 = 4096;

/// A code that a profile describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Code {
    /// The pieces with data of each stripe.
    pub(crate) data: u32,
    /// All pieces of a stripe.
    pub(crate) chunks: u32,
    padding: Padding,
    /// The steps of its rule, where they are not those of all others.
    steps: Option<Vec<lrc::Step>>,
}

/// How a plugin pads data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Padding {
    /// What the length becomes a multiple of. Of some profiles that the official plugins accept it
    /// is 0.
    alignment: u64,
    /// In how many pieces the data are cut.
    parts: u32,
    /// Whether each piece is padded, and not all of them together.
    each: bool,
}

impl Padding {
    /// The length of a piece of so many bytes.
    fn chunk_size(self, bytes: u64) -> Option<u64> {
        let parts = u64::from(self.parts);
        match self.each {
            true => bytes.div_ceil(parts).checked_next_multiple_of(self.alignment),
            false => Some(bytes.checked_next_multiple_of(self.alignment)? / parts),
        }
    }
}

impl Code {
    /// A code of `k` pieces with data and `m` others.
    fn new(k: u32, m: u32, padding: Padding) -> Self {
        Self {
            data: k,
            chunks: k + m,
            padding,
            steps: None,
        }
    }

    /// Whether lost pieces are to be made from those near them.
    pub(crate) fn is_local(&self) -> bool {
        self.steps.is_some()
    }

    /// How many members a placement group needs to serve: one more than hold the data, if there are
    /// as many.
    pub(crate) fn min_size(&self) -> u32 {
        self.data + (self.chunks - self.data).saturating_sub(1).min(1)
    }

    /// The bytes of data in one stripe, for a unit of so many bytes.
    pub(crate) fn stripe_width(&self, unit: u64) -> Result<u32, Reply> {
        let data = u64::from(self.data);
        let chunk = unit.checked_mul(data).and_then(|n| self.padding.chunk_size(n));
        let width = chunk.and_then(|n| u32::try_from(n.checked_mul(data)?).ok());
        width.filter(|n| *n > 0).ok_or_else(|| {
            Reply::error(
                errno::EINVAL,
                format!("a stripe unit of {unit} bytes cannot be laid out"),
            )
        })
    }

    /// Adds the rule that the profile asks for; returns its number.
    pub(crate) fn add_rule(
        &self,
        crush: &mut CrushMap,
        name: &str,
        profile: &Profile,
    ) -> Result<u32, spirula_crush::Error> {
        let get = |key: &str| profile.get(key).map(String::as_str).filter(|v| !v.is_empty());
        let rule = SimpleRule {
            name,
            root: get("crush-root").unwrap_or("default"),
            failure_domain: get("crush-failure-domain").unwrap_or("host"),
            device_class: get("crush-device-class"),
            mode: RuleMode::Indep,
            rule_type: RULE_ERASURE,
            number: None,
        };
        let number = match &self.steps {
            None => crush.add_simple_rule(&rule)?,
            Some(steps) => lrc::add_rule(crush, &rule, steps)?,
        };
        crush.set_rule_max_size(number, u8::try_from(self.chunks).unwrap_or(u8::MAX))?;
        Ok(number)
    }
}

/// A profile as messages print it: `{k=2,m=2}`.
pub(crate) fn braces(profile: &Profile) -> String {
    let parts: Vec<String> = profile.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", parts.join(","))
}

/// The properties in a text of words `name=value`.
pub(crate) fn parse_words(text: &str) -> Profile {
    let words = text.split([' ', ',', ';', '\t', '\n']).filter(|w| !w.is_empty());
    let parts = words.map(|w| w.split_once('=').unwrap_or((w, "")));
    parts.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// The profile that a user asks for: what he says, over the default profile where he names its
/// plugin or none.
pub(crate) fn merged(default: &str, words: &[String]) -> Result<Profile, Reply> {
    let mut of_default = parse_words(default);
    let mut of_user = Profile::new();
    for word in words {
        let (key, value) = match word.split_once('=') {
            Some((key, _)) if key.starts_with("ruleset-") => {
                let new = &key["ruleset-".len()..];
                return refuse(
                    errno::EINVAL,
                    format!("property '{key}' is no longer supported; try 'crush-{new}' instead"),
                );
            }
            parts => parts.unwrap_or((word, "")),
        };
        of_user.insert(key.to_owned(), value.to_owned());
    }
    let plugin = of_user.get("plugin");
    if plugin.is_some() && plugin != of_default.get("plugin") {
        return Ok(of_user);
    }
    of_default.extend(of_user);
    Ok(of_default)
}

/// A plugin without what earlier releases added for a processor.
fn base(plugin: &str) -> &str {
    let known = ["_generic", "_sse3", "_sse4"];
    let rest = known.iter().find_map(|suffix| plugin.strip_suffix(suffix));
    rest.filter(|rest| ["jerasure", "shec"].contains(rest))
        .unwrap_or(plugin)
}

/// The code of a profile; what the profile does not say is filled in.
pub(crate) fn read(profile: &mut Profile) -> Result<Code, Reply> {
    let Some(plugin) = profile.get("plugin").cloned() else {
        return refuse(
            errno::EINVAL,
            format!(
                "cannot determine the erasure code plugin because there is no 'plugin' entry in the erasure_code_profile {}",
                braces(profile)
            ),
        );
    };
    let read = match base(&plugin) {
        "jerasure" => jerasure::read,
        "isa" => isa::read,
        "lrc" => lrc::read,
        "shec" => shec::read,
        "clay" => clay::read,
        _ => {
            // The official text goes on with the words of the system's loader.
            let text = format!("load dlopen(libec_{plugin}.so): there is no such plugin");
            return refuse(errno::EIO, text);
        }
    };
    let code = read(profile)?;
    let mut reader = Reader::new(profile);
    for (name, default) in [
        ("crush-root", "default"),
        ("crush-failure-domain", "host"),
        ("crush-device-class", ""),
    ] {
        reader.text(name, default);
    }
    Ok(code)
}

/// [`read`], with the checks of a profile that is to be stored.
pub(crate) fn normalise(profile: &mut Profile, force: bool) -> Result<Code, Reply> {
    let code = read(profile)?;
    let Some(given) = profile.get("stripe_unit") else {
        return Ok(code);
    };
    let invalid = |text: String| refuse(errno::EINVAL, text);
    let unit = match amount::iec(given) {
        Ok(unit) => unit,
        Err(why) => return invalid(format!("could not parse stripe_unit '{given}': {why}")),
    };
    let chunk = u64::from(code.stripe_width(unit)? / code.data);
    if chunk != unit {
        return invalid(format!(
            "stripe_unit {unit} does not match ec profile alignment. Would be padded to {chunk}"
        ));
    }
    if !unit.is_multiple_of(PAGE) && !force {
        return invalid(format!(
            "stripe_unit should be a multiple of {PAGE} bytes for best performance.use --force to override this check"
        ));
    }
    Ok(code)
}
