//! A command's arguments: one JSON object, read by name and type.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use spirula_maps::OsdId;
use spirula_text::Format;

use super::{Reply, errno};

/// The parsed JSON object of a command.
#[derive(Debug, Clone, Default)]
pub struct Args {
    map: Map<String, Value>,
}

/// The prefix of arguments that only the monitor makes, from `caps`.
const DERIVED: &str = "caps_";

/// A JSON object without duplicate keys: otherwise the checked arguments could differ from the
/// executed ones.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Map<String, Value>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Self::Value, A::Error> {
                let mut map = Map::new();
                while let Some((key, value)) = pairs.next_entry::<String, Value>()? {
                    if map.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("'{key}' is given twice")));
                    }
                    map.insert(key, value);
                }
                Ok(map)
            }
        }
        d.deserialize_map(Pairs).map(Self)
    }
}

/// A value as text; the items of a list with spaces between them.
fn text(v: &Value) -> String {
    match v {
        Value::String(s) => s.clone(),
        Value::Array(a) => a.iter().map(item).collect::<Vec<_>>().join(" "),
        v => v.to_string(),
    }
}

/// An item of a list as text.
fn item(v: &Value) -> String {
    v.as_str().map_or_else(|| v.to_string(), str::to_owned)
}

/// The result of reading an argument; the error is the reply to send.
pub type ArgResult<T> = Result<T, Reply>;

impl Args {
    /// Parses a command as clients send it: the strings are joined and must form one JSON object
    /// with a `prefix`.
    ///
    /// # Errors
    /// The official replies to text that is no command; also to an object that could be read in two
    /// ways, or has arguments that only the monitor makes.
    pub fn parse(cmd: &[String]) -> ArgResult<Self> {
        let text = cmd.concat();
        // Text after the object is ignored, as by official daemons: `rbd perf image iostat` sends a
        // quotation mark too much.
        let first = serde_json::Deserializer::from_str(&text)
            .into_iter::<Object>()
            .next();
        match first {
            Some(Ok(Object(map))) if !map.is_empty() && !map.keys().any(|k| k.starts_with(DERIVED)) => {
                Ok(Self { map })
            }
            _ => Err(Reply::error(errno::EINVAL, "command not understood")),
        }
    }

    /// The command's name.
    pub fn prefix(&self) -> &str {
        self.map.get("prefix").and_then(Value::as_str).unwrap_or_default()
    }

    /// The output format asked for.
    pub fn format(&self) -> Format {
        Format::parse(self.map.get("format").and_then(Value::as_str))
    }

    /// All arguments as text, for capability checks (`allow command X with k=v`), as handlers read
    /// them. In place of `caps` there is a `caps_SERVICE` for each of its pairs.
    pub fn as_strings(&self) -> Vec<(String, String)> {
        let given = self.map.iter().filter(|(k, v)| *k != "caps" && !v.is_null());
        let caps = self.list("caps");
        let pairs = caps.chunks_exact(2);
        // A half pair is refused later, if the session may run the command at all.
        let pairs = pairs.map(|pair| (format!("{DERIVED}{}", pair[0]), pair[1].clone()));
        given.map(|(k, v)| (k.clone(), text(v))).chain(pairs).collect()
    }

    /// Drops the arguments that are not among these names: nothing has checked them.
    #[must_use]
    pub fn only(mut self, names: &BTreeSet<&str>) -> Self {
        self.map.retain(|k, _| names.contains(k.as_str()));
        self
    }

    /// The whole object.
    pub fn to_map(&self) -> Map<String, Value> {
        self.map.clone()
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    /// An optional string; a list counts with its items joined by spaces, as official clients send
    /// either.
    pub fn opt_str(&self, name: &str) -> Option<String> {
        self.get(name).map(text)
    }

    /// A required string.
    pub fn str(&self, name: &str) -> ArgResult<String> {
        self.opt_str(name).ok_or_else(|| missing(name))
    }

    /// An optional list of strings; empty if absent.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.get(name) {
            None => Vec::new(),
            Some(Value::Array(a)) => a.iter().map(item).collect(),
            Some(v) => vec![item(v)],
        }
    }

    /// An optional integer.
    pub fn opt_int(&self, name: &str) -> ArgResult<Option<i64>> {
        let parsed = match self.get(name) {
            None => return Ok(None),
            Some(Value::Number(n)) => n.as_i64(),
            Some(Value::String(s)) => s.trim().parse().ok(),
            Some(_) => None,
        };
        parsed.map(Some).ok_or_else(|| bad(name))
    }

    /// A required integer.
    pub fn int(&self, name: &str) -> ArgResult<i64> {
        self.opt_int(name)?.ok_or_else(|| missing(name))
    }

    /// An optional float.
    pub fn opt_float(&self, name: &str) -> ArgResult<Option<f64>> {
        let parsed = match self.get(name) {
            None => return Ok(None),
            Some(Value::Number(n)) => n.as_f64(),
            Some(Value::String(s)) => s.trim().parse().ok(),
            Some(_) => None,
        };
        parsed
            .filter(|f| f.is_finite())
            .map(Some)
            .ok_or_else(|| bad(name))
    }

    /// A required float.
    pub fn float(&self, name: &str) -> ArgResult<f64> {
        self.opt_float(name)?.ok_or_else(|| missing(name))
    }

    /// A list of floats; empty if absent.
    pub fn floats(&self, name: &str) -> ArgResult<Vec<f64>> {
        let parse = |t: &String| t.trim().parse().ok().filter(|f: &f64| f.is_finite());
        self.list(name)
            .iter()
            .map(|t| parse(t).ok_or_else(|| bad(name)))
            .collect()
    }

    /// A flag; absent is false. Old clients send the option's text instead of `true`.
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            None => false,
            Some(Value::Bool(b)) => *b,
            Some(Value::String(s)) => s == "true" || s.trim_start_matches('-').replace('-', "_") == name,
            Some(v) => v.as_i64() == Some(1),
        }
    }

    /// An optional OSD: a number, or text like `osd.3`.
    pub fn opt_osd(&self, name: &str) -> ArgResult<Option<OsdId>> {
        match self.opt_str(name) {
            None => Ok(None),
            Some(text) => text
                .strip_prefix("osd.")
                .unwrap_or(&text)
                .parse()
                .map(Some)
                .map_err(|_| {
                    Reply::error(
                        errno::EINVAL,
                        format!("osd id {text} is not a non-negative integer"),
                    )
                }),
        }
    }

    /// A required OSD.
    pub fn osd(&self, name: &str) -> ArgResult<OsdId> {
        self.opt_osd(name)?.ok_or_else(|| missing(name))
    }
}

fn missing(name: &str) -> Reply {
    Reply::error(errno::EINVAL, format!("missing required parameter {name}"))
}

fn bad(name: &str) -> Reply {
    Reply::error(errno::EINVAL, format!("bad or missing field '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_by_type() {
        let a = Args::parse(&[r#"{"prefix":"x","n":"8","f":0.5,"ids":["1","osd.2"],"sure":true}"#.into()])
            .unwrap();
        assert_eq!(a.prefix(), "x");
        assert_eq!(a.int("n").unwrap(), 8);
        assert_eq!(a.float("f").unwrap(), 0.5);
        assert_eq!(a.list("ids"), ["1", "osd.2"]);
        assert!(a.flag("sure") && !a.flag("n2"));
        assert_eq!(a.int("none").unwrap_err().code, -errno::EINVAL);
        assert!(Args::parse(&["no json".into()]).is_err());
        let more = Args::parse(&[r#" {"prefix": "x"}""#.into()]).unwrap();
        assert_eq!(more.prefix(), "x");
    }

    #[test]
    fn what_capabilities_are_checked_against_is_what_is_carried_out() {
        for lie in [
            r#"{"prefix":"auth get-or-create","caps":["mon","allow *"],"caps_mon":"profile rbd"}"#,
            r#"{"prefix":"auth get-or-create","caps_mon":"profile rbd"}"#,
            r#"{"prefix":"x","caps":["mon","profile rbd"],"caps":["mon","allow *"]}"#,
            r#"{"prefix":"x","prefix":"y"}"#,
        ] {
            assert!(Args::parse(&[lie.into()]).is_err(), "{lie}");
        }
        let of = |json: &str| Args::parse(&[json.into()]).unwrap().as_strings();
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(
            of(r#"{"prefix":"x","caps":["mon","allow r","osd","allow w"],"n":1,"l":["a",2],"no":null}"#),
            [
                pair("prefix", "x"),
                pair("n", "1"),
                pair("l", "a 2"),
                pair("caps_mon", "allow r"),
                pair("caps_osd", "allow w")
            ]
        );
        assert_eq!(of(r#"{"prefix":"x","caps":"mon"}"#), [pair("prefix", "x")]);
    }
}
