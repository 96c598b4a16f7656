//! The types of arguments in command descriptions (`CephInt`, `CephChoices`, …): the words that
//! each accepts, their values, and its name in help and messages.

use serde_json::{Number, Value};
use spirula_text::python;

use super::pytext;

/// Why a word or a command line does not fit a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// A literal word of the command differs: another command is meant.
    Prefix,
    /// A required argument is missing.
    Missing(String),
    /// The words end before the description does.
    TooFew,
    /// The right command with a wrong argument.
    Bad(String),
}

/// A type with its limits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    /// A literal word of the command.
    Prefix(String),
    Int(Vec<i128>),
    Float(Vec<f64>),
    /// A string; the field has the allowed characters as a regular expression.
    String(String),
    Choices(Vec<String>),
    Bool,
    Poolname,
    Objectname,
    Pgid,
    Name,
    OsdName,
    IpAddr,
    EntityAddr,
    Uuid,
    Fragment,
    Filepath,
    Socketpath,
}

fn bad(text: impl Into<String>) -> Mismatch {
    Mismatch::Bad(text.into())
}

impl Kind {
    /// The type called `name` in a description with these attributes.
    pub(crate) fn parse(name: &str, attribute: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let range = attribute("range").unwrap_or_default();
        let limits = || range.split('|').filter(|l| !l.is_empty());
        Some(match name {
            "CephPrefix" => Self::Prefix(attribute("prefix")?),
            "CephInt" => Self::Int(limits().filter_map(pytext::parse_decimal).collect()),
            "CephFloat" => Self::Float(limits().filter_map(pytext::parse_float).collect()),
            "CephString" => Self::String(attribute("goodchars").unwrap_or_default()),
            "CephChoices" => Self::Choices(attribute("strings")?.split('|').map(str::to_owned).collect()),
            "CephBool" => Self::Bool,
            "CephPoolname" => Self::Poolname,
            "CephObjectname" => Self::Objectname,
            "CephPgid" => Self::Pgid,
            "CephName" => Self::Name,
            "CephOsdName" => Self::OsdName,
            "CephIPAddr" => Self::IpAddr,
            "CephEntityAddr" => Self::EntityAddr,
            "CephUUID" => Self::Uuid,
            "CephFragment" => Self::Fragment,
            "CephFilepath" => Self::Filepath,
            "CephSocketpath" => Self::Socketpath,
            _ => return None,
        })
    }

    /// The value of a word. With `partial` the beginning of a literal or choice is enough.
    pub(crate) fn read(&self, s: &str, partial: bool) -> Result<Value, Mismatch> {
        let fits = |whole: &str| if partial { whole.starts_with(s) } else { whole == s };
        match self {
            Self::Prefix(prefix) if fits(prefix) => Ok(s.into()),
            Self::Prefix(_) => Err(Mismatch::Prefix),
            Self::Int(range) => int(s, range),
            Self::Float(range) => float(s, range),
            Self::String(goodchars) => string(s, goodchars),
            Self::Choices(strings) if strings.iter().any(|c| fits(c)) => Ok(s.into()),
            Self::Choices(strings) => Err(bad(format!("{s} not in {}", strings.join("|")))),
            Self::Bool => match s.to_lowercase().as_str() {
                "true" | "1" => Ok(true.into()),
                "false" | "0" => Ok(false.into()),
                _ => Err(bad(format!("{s} not one of 'true', 'false'"))),
            },
            Self::Poolname | Self::Objectname => Ok(s.into()),
            Self::Pgid => pgid(s),
            Self::Name => name(s).map(|_| s.into()),
            Self::OsdName => osd_name(s),
            Self::IpAddr => ip_addr(s),
            Self::EntityAddr => entity_addr(s),
            Self::Uuid => uuid(s),
            Self::Fragment => fragment(s),
            Self::Filepath => filepath(s),
            Self::Socketpath => socketpath(s),
        }
    }

    /// The type's name in messages.
    pub(crate) fn shown(&self) -> String {
        let fixed = match self {
            Self::Prefix(prefix) => prefix,
            Self::Int(range) => {
                let shown: Vec<String> = range.iter().map(ToString::to_string).collect();
                return format!("<int{}>", range_shown(&shown));
            }
            Self::Float(range) => {
                let shown: Vec<String> = range.iter().map(|v| python::float(*v)).collect();
                return format!("<float{}>", range_shown(&shown));
            }
            Self::String(goodchars) if goodchars.is_empty() => "<string>",
            Self::String(goodchars) => return format!("<string(goodchars {goodchars})>"),
            Self::Choices(strings) => return strings.join("|"),
            Self::Bool => "<bool>",
            Self::Poolname => "<poolname>",
            Self::Objectname => "<objectname>",
            Self::Pgid => "<pgid>",
            Self::Name => "<name (type.id)>",
            Self::OsdName => "<osdname (id|osd.id)>",
            Self::IpAddr => "<IPaddr[:port]>",
            Self::EntityAddr => "<EntityAddr>",
            Self::Uuid => "<uuid>",
            Self::Fragment => "<CephFS fragment ID (0xvvv/bbb)>",
            Self::Filepath => "<outfilename>",
            Self::Socketpath => "<admin-socket-path>",
        };
        fixed.to_owned()
    }
}

fn range_shown(range: &[String]) -> String {
    match range {
        [min] => format!("[{min}-]"),
        [min, max] => format!("[{min}-{max}]"),
        _ => String::new(),
    }
}

fn outside<T: PartialOrd>(v: &T, range: &[T]) -> bool {
    match range {
        [min] => v < min,
        [min, max] => v < min || v > max,
        _ => false,
    }
}

fn int(s: &str, range: &[i128]) -> Result<Value, Mismatch> {
    let v = pytext::parse_int(s).ok_or_else(|| bad(format!("{s} doesn't represent an int")))?;
    if outside(&v, range) {
        let range: Vec<String> = range.iter().map(ToString::to_string).collect();
        return Err(bad(format!("{v} not in range [{}]", range.join(", "))));
    }
    Number::from_i128(v)
        .map(Value::Number)
        .ok_or_else(|| bad(format!("{s} doesn't represent an int")))
}

fn float(s: &str, range: &[f64]) -> Result<Value, Mismatch> {
    let v = pytext::parse_float(s).ok_or_else(|| bad(format!("{s} doesn't represent a float")))?;
    if outside(&v, range) {
        let range: Vec<String> = range.iter().map(|v| python::float(*v)).collect();
        let v = python::float(v);
        return Err(bad(format!("{v} not in range [{}]", range.join(", "))));
    }
    // JSON has no infinity.
    Number::from_f64(v)
        .map(Value::Number)
        .ok_or_else(|| bad(format!("{s} doesn't represent a float")))
}

/// Whether Python counts the character as printable.
fn printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

fn string(s: &str, goodchars: &str) -> Result<Value, Mismatch> {
    // The expression is anchored here: it must match at the character.
    let allowed = regex_lite::Regex::new(&format!("^(?:{goodchars})")).ok();
    let good = |c: char| {
        let mut buffer = [0; 4];
        printable(c)
            && allowed
                .as_ref()
                .is_none_or(|r| r.is_match(c.encode_utf8(&mut buffer)))
    };
    let mut wrong: Vec<char> = s.chars().filter(|c| !good(*c)).collect();
    if wrong.is_empty() {
        return Ok(s.into());
    }
    wrong.sort_unstable();
    wrong.dedup();
    let wrong: String = wrong.into_iter().collect();
    Err(bad(format!("invalid chars {wrong} in {s}")))
}

fn pgid(s: &str) -> Result<Value, Mismatch> {
    let (pool, seed) = s.split_once('.').ok_or_else(|| bad("pgid has no ."))?;
    match pytext::parse_decimal(pool) {
        None => return Err(bad(format!("pool {pool} not integer"))),
        Some(id) if id < 0 => return Err(bad(format!("pool {id} < 0"))),
        Some(_) => {}
    }
    let digits = seed.trim_start_matches("0x");
    if u128::from_str_radix(digits, 16).is_err() {
        return Err(bad(format!("pgnum {seed} not hex integer")));
    }
    Ok(s.into())
}

/// Type and id of an entity's name; no id for `mon` and `mgr` alone, no type for `*`.
pub(crate) fn name(s: &str) -> Result<(Option<String>, Option<String>), Mismatch> {
    if s == "*" {
        return Ok((None, None));
    }
    if s == "mgr" || s == "mon" {
        return Ok((Some(s.to_owned()), None));
    }
    let (kind, id) = s
        .split_once('.')
        .ok_or_else(|| bad(format!("CephName: no . in {s}")))?;
    if !["osd", "mon", "client", "mds", "mgr"].contains(&kind) {
        return Err(bad(format!("unknown type {kind}")));
    }
    if kind != "osd" || id == "*" {
        return Ok((Some(kind.to_owned()), Some(id.to_owned())));
    }
    let id = pytext::parse_decimal(id).ok_or_else(|| bad(format!("osd id {id} not integer")))?;
    Ok((Some(kind.to_owned()), Some(id.to_string())))
}

fn osd_name(s: &str) -> Result<Value, Mismatch> {
    if s == "*" {
        return Ok(s.into());
    }
    let id = match s.split_once('.') {
        Some(("osd", id)) => id,
        Some((kind, _)) => return Err(bad(format!("unknown type {kind}"))),
        None => s,
    };
    let id = pytext::parse_decimal(id).ok_or_else(|| bad(format!("osd id {id} not integer")))?;
    if id < 0 {
        return Err(bad(format!("osd id {id} is less than 0")));
    }
    Number::from_i128(id)
        .map(Value::Number)
        .ok_or_else(|| bad(format!("osd id {id} not integer")))
}

fn ip_addr(s: &str) -> Result<Value, Mismatch> {
    let (v4, rest) = [("v1:", true), ("v2:", false), ("any:", true)]
        .into_iter()
        .find_map(|(prefix, v4)| Some((v4, s.strip_prefix(prefix)?)))
        .unwrap_or((!s.starts_with('[') && s.contains('.'), s));
    if v4 {
        let (ip, port) = rest
            .split_once(':')
            .map_or((rest, None), |(ip, port)| (ip, Some(port)));
        if let Some(port) = port.filter(|p| p.parse::<u16>().is_err()) {
            return Err(bad(format!("{port}: invalid IPv4 port")));
        }
        return match ip.parse::<std::net::Ipv4Addr>() {
            Ok(_) => Ok(s.into()),
            Err(_) => Err(bad(format!("{ip}: invalid IPv4 address"))),
        };
    }
    let (ip, port) = match rest.strip_prefix('[') {
        Some(inner) => inner
            .split_once(']')
            .ok_or_else(|| bad(format!("{rest} missing terminating ]")))?,
        None => (rest, ""),
    };
    if let Some(port) = port.strip_prefix(':').filter(|p| p.parse::<u16>().is_err()) {
        return Err(bad(format!("{port} not a valid port number")));
    }
    match ip.parse::<std::net::Ipv6Addr>() {
        Ok(_) => Ok(s.into()),
        Err(_) => Err(bad(format!("{rest} not valid IPv6 address"))),
    }
}

fn entity_addr(s: &str) -> Result<Value, Mismatch> {
    let Some((ip, nonce)) = s.split_once('/') else {
        return ip_addr(s);
    };
    let (ip, nonce) = match nonce.strip_suffix(']') {
        Some(nonce) => (format!("{ip}]"), nonce),
        None => (ip.to_owned(), nonce),
    };
    ip_addr(&ip)?;
    if !nonce.is_empty() && pytext::parse_decimal(nonce).is_none_or(|n| n < 0) {
        return Err(bad(format!("{s}: invalid entity, nonce {nonce} not integer > 0")));
    }
    Ok(s.into())
}

fn uuid(s: &str) -> Result<Value, Mismatch> {
    let hex = s.replace("urn:", "").replace("uuid:", "");
    let hex = hex.trim_matches(['{', '}']).replace('-', "");
    if hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(s.into());
    }
    Err(bad(format!(
        "invalid UUID {s}: badly formed hexadecimal UUID string"
    )))
}

fn fragment(s: &str) -> Result<Value, Mismatch> {
    let (value, bits) = s.split_once('/').ok_or_else(|| bad(format!("{s}: no /")))?;
    let hex = value
        .strip_prefix("0x")
        .ok_or_else(|| bad(format!("{value} not a hex integer")))?;
    for (text, ok) in [
        (value, u64::from_str_radix(hex, 16).is_ok()),
        (bits, bits.parse::<u32>().is_ok()),
    ] {
        if !ok {
            return Err(bad(format!("can't convert {text} to integer")));
        }
    }
    Ok(s.into())
}

fn filepath(s: &str) -> Result<Value, Mismatch> {
    use rustix::fs::{Access, access};
    let path = std::path::absolute(s).map_err(|e| bad(e.to_string()))?;
    let shown = path.display();
    let parent = path.parent().unwrap_or(&path);
    if access(&path, Access::READ_OK).is_err() {
        if path.exists() && !path.is_file() {
            return Err(bad(format!("{shown} is not file")));
        }
        if path.exists() && access(&path, Access::WRITE_OK).is_err() {
            return Err(bad(format!("{shown} is not writable")));
        }
        if !path.exists() && access(parent, Access::WRITE_OK).is_err() {
            return Err(bad(format!("cannot create file in {}", parent.display())));
        }
    }
    Ok(shown.to_string().into())
}

fn socketpath(s: &str) -> Result<Value, Mismatch> {
    use std::os::unix::fs::FileTypeExt;
    let meta = std::fs::metadata(s).map_err(|e| bad(format!("{s}: {e}")))?;
    if meta.file_type().is_socket() {
        return Ok(s.into());
    }
    Err(bad(format!("socket path {s} is not a socket")))
}
