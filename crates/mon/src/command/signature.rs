//! Command signatures in a short notation, and as the JSON that the official `ceph` tool parses
//! (`src/mon/MonCommands.h` describes the fields).
//!
//! A signature is the command's literal words followed by its parameters: `name:Type`, `name?:Type`
//! for an optional one, `name:Type...` for a list; `{a|b}` instead of a type for a choice;
//! `Int(0|10)` gives a range and `String[A-Z]` the allowed characters.

use serde_json::{Map, Value, json};

/// One parameter.
#[derive(Debug, PartialEq, Eq)]
struct Param<'a> {
    name: &'a str,
    optional: bool,
    list: bool,
    kind: &'a str,
    /// `strings`, `range` or `goodchars`, with its value.
    detail: Option<(&'static str, &'a str)>,
}

/// Number of literal words at the start.
fn split(signature: &str) -> (Vec<&str>, Vec<Param<'_>>) {
    let (params, words): (Vec<&str>, Vec<&str>) = signature.split(' ').partition(|w| w.contains(':'));
    (words, params.into_iter().filter_map(param).collect())
}

fn param(text: &str) -> Option<Param<'_>> {
    let (name, kind) = text.split_once(':')?;
    let (kind, list) = kind.strip_suffix("...").map_or((kind, false), |k| (k, true));
    let (name, optional) = name.strip_suffix('?').map_or((name, false), |n| (n, true));
    let inner = |open: char, close: char| {
        let at = kind.find(open)?;
        Some((&kind[..at], kind[at + 1..].strip_suffix(close)?))
    };
    let (kind, detail) = if let Some((_, choices)) = inner('{', '}') {
        ("Choices", Some(("strings", choices)))
    } else if let Some((k, range)) = inner('(', ')') {
        (k, Some(("range", range)))
    } else if kind.ends_with(']') {
        let at = kind.find('[')?;
        (&kind[..at], Some(("goodchars", &kind[at..])))
    } else {
        (kind, None)
    };
    Some(Param {
        name,
        optional,
        list,
        kind,
        detail,
    })
}

/// The command's name: its literal words.
pub(super) fn prefix(signature: &str) -> String {
    split(signature).0.join(" ")
}

/// The names of a command's parameters.
pub(super) fn names(signature: &str) -> impl Iterator<Item = &str> {
    split(signature).1.into_iter().map(|p| p.name)
}

/// The `sig` array of a description.
pub(super) fn describe(signature: &str) -> Value {
    let (words, params) = split(signature);
    let mut out: Vec<Value> = words.into_iter().map(Value::from).collect();
    for p in params {
        let mut m = Map::new();
        m.insert("name".into(), json!(p.name));
        m.insert("type".into(), json!(format!("Ceph{}", p.kind)));
        if let Some((key, value)) = p.detail {
            m.insert(key.into(), json!(value));
        }
        if p.list {
            m.insert("n".into(), json!("N"));
        }
        if p.optional {
            m.insert("req".into(), json!("false"));
        }
        out.push(Value::Object(m));
    }
    Value::Array(out)
}

/// Checks that a choice is one of the listed ones; the tool does so too, other clients need not.
pub(super) fn check(signature: &str, args: &super::Args) -> Result<(), super::Reply> {
    for p in split(signature).1 {
        let values = args.list(p.name);
        if values.is_empty() && !p.optional && !p.list {
            return args.str(p.name).map(|_| ());
        }
        if let Some(("strings", choices)) = p.detail
            && let Some(v) = values
                .iter()
                .find(|v| !choices.split('|').any(|c| c == v.as_str()))
        {
            let text = format!("{v} not in {choices}");
            return Err(super::Reply::error(super::errno::EINVAL, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_described_as_the_tool_wants() {
        let v = describe("osd x pool:Poolname n?:Int(0|9) m?:{on|off} c:String[A-Z-_.]...");
        assert_eq!(
            v,
            json!(["osd", "x",
                {"name": "pool", "type": "CephPoolname"},
                {"name": "n", "type": "CephInt", "range": "0|9", "req": "false"},
                {"name": "m", "type": "CephChoices", "strings": "on|off", "req": "false"},
                {"name": "c", "type": "CephString", "goodchars": "[A-Z-_.]", "n": "N"}])
        );
        assert_eq!(prefix("osd x pool:Poolname"), "osd x");
    }
}
