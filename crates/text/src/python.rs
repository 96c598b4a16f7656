//! Values as Python writes them: JSON as of `json.dumps`, which is what the official manager
//! answers and stores, and `repr`, which the messages of `ceph` show.

use std::fmt::Write as _;

use serde_json::Value;

/// How deep values may be nested: those that come from outside were read with this limit already.
const MAX_DEPTH: usize = 128;

/// On one line, keys in their order: `json.dumps(value)`.
pub fn dumps(value: &Value) -> String {
    let mut out = String::new();
    put(&mut out, value, None, 0);
    out
}

/// Indented by four and with sorted keys: `json.dumps(value, indent=4, sort_keys=True)`.
pub fn dumps_indented(value: &Value) -> String {
    let mut out = String::new();
    put(&mut out, value, Some(4), 0);
    out
}

fn put(out: &mut String, value: &Value, indent: Option<usize>, depth: usize) {
    match value {
        _ if depth > MAX_DEPTH => out.push_str("null"),
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() => out.push_str(&json_float(f)),
            _ => out.push_str(&n.to_string()),
        },
        Value::String(s) => put_string(out, s),
        Value::Array(items) => {
            let items = items.iter().map(|v| (None, v));
            put_items(out, ('[', ']'), items, indent, depth);
        }
        Value::Object(map) => {
            let mut items: Vec<_> = map.iter().map(|(k, v)| (Some(k.as_str()), v)).collect();
            if indent.is_some() {
                items.sort_by_key(|(k, _)| *k);
            }
            put_items(out, ('{', '}'), items.into_iter(), indent, depth);
        }
    }
}

fn put_items<'a>(
    out: &mut String,
    (open, close): (char, char),
    items: impl Iterator<Item = (Option<&'a str>, &'a Value)>,
    indent: Option<usize>,
    depth: usize,
) {
    let line = |out: &mut String, depth: usize| {
        if let Some(width) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width * depth));
        }
    };
    out.push(open);
    let mut is_empty = true;
    for (key, value) in items {
        if !std::mem::take(&mut is_empty) {
            out.push_str(if indent.is_some() { "," } else { ", " });
        }
        line(out, depth + 1);
        if let Some(key) = key {
            put_string(out, key);
            out.push_str(": ");
        }
        put(out, value, indent, depth + 1);
    }
    if !is_empty {
        line(out, depth);
    }
    out.push(close);
}

/// ASCII alone; the rest in UTF-16.
fn put_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string can't fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// A float as `json.dumps` writes it: as [`float`], but for those that are not finite.
fn json_float(f: f64) -> String {
    match f.is_finite() {
        true => float(f),
        false if f.is_nan() => "NaN".to_owned(),
        false if f > 0.0 => "Infinity".to_owned(),
        false => "-Infinity".to_owned(),
    }
}

/// A float as Python shows it: the shortest that is read back as the same, with an exponent below
/// 1e-4 and from 1e16 on.
pub fn float(f: f64) -> String {
    if !f.is_finite() {
        return format!("{f}").to_lowercase();
    }
    let scientific = format!("{f:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if f != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{f:?}")
}

/// A string as Python shows it inside a list.
pub fn quoted(s: &str) -> String {
    let quote = if s.contains('\'') && !s.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::from(quote);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 || c == '\x7f' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

/// A list of strings as Python shows it.
pub fn list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|s| quoted(s.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What Python 3.11 printed.
    #[test]
    fn values_are_spelled_as_python_does() {
        let v = json!({"b": [1, 2.0, null, true], "a": {}, "c": [], "t": "ä\"\u{1f600}\n/"});
        assert_eq!(
            dumps(&v),
            r#"{"b": [1, 2.0, null, true], "a": {}, "c": [], "t": "\u00e4\"\ud83d\ude00\n/"}"#
        );
        assert_eq!(
            dumps_indented(&json!({"b": [1, {"x": 0.5}], "a": {}, "c": []})),
            "{\n    \"a\": {},\n    \"b\": [\n        1,\n        {\n            \"x\": 0.5\n        }\n    ],\n    \"c\": []\n}"
        );
    }

    #[test]
    fn floats_are_spelled_as_python_does() {
        for (f, text) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.3333333333333333"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (1e16, "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e15, "1000000000000000.0"),
            (1e22, "1e+22"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(float(f), text);
        }
    }

    #[test]
    fn strings_show_as_in_python() {
        assert_eq!(
            list(&["a", "it's", "x\ty", "\u{1}"]),
            r#"['a', "it's", 'x\ty', '\x01']"#
        );
        assert_eq!(quoted("both ' and \""), r#"'both \' and "'"#);
        assert_eq!(list::<&str>(&[]), "[]");
    }

    #[test]
    fn floats_without_an_end_are_spelled_by_who_prints_them() {
        for (f, shown, json) in [
            (f64::INFINITY, "inf", "Infinity"),
            (f64::NEG_INFINITY, "-inf", "-Infinity"),
            (f64::NAN, "nan", "NaN"),
        ] {
            assert_eq!((float(f).as_str(), json_float(f).as_str()), (shown, json));
        }
    }
}
