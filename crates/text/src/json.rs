//! The official JSON formatter's output (`src/common/Formatter.cc`).

use serde_json::{Number, Value};

use crate::general;
use crate::xml::{self, Names};

/// What a command's `format` argument asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Text for people.
    #[default]
    Plain,
    /// JSON in one line.
    Json,
    /// JSON with line breaks and four spaces of indentation.
    JsonPretty,
    /// XML in one line.
    Xml,
    /// XML with line breaks and one space of indentation.
    XmlPretty,
}

impl Format {
    /// The format with this name; unknown ones are plain, as the official monitor decides.
    pub fn parse(name: Option<&str>) -> Self {
        match name {
            Some("json") => Self::Json,
            Some("json-pretty") => Self::JsonPretty,
            Some("xml") => Self::Xml,
            Some("xml-pretty") => Self::XmlPretty,
            _ => Self::Plain,
        }
    }

    /// Whether a tree is wanted, not text for people.
    pub fn is_structured(self) -> bool {
        self != Self::Plain
    }

    /// Like `self`, but pretty JSON where plain text was asked for: for commands that only know
    /// JSON.
    #[must_use]
    pub fn or_pretty(self) -> Self {
        match self {
            Self::Plain => Self::JsonPretty,
            other => other,
        }
    }

    /// Like `self`, but compact JSON where plain text was asked for.
    #[must_use]
    pub fn or_json(self) -> Self {
        match self {
            Self::Plain => Self::Json,
            other => other,
        }
    }

    /// Whether it is XML.
    pub fn is_xml(self) -> bool {
        matches!(self, Self::Xml | Self::XmlPretty)
    }

    /// Renders a value, as XML under these names. Plain counts as compact JSON.
    pub fn render_named(self, v: &Value, names: Names<'_>) -> Vec<u8> {
        match self.is_xml() {
            true => xml::render(v, names, self == Self::XmlPretty),
            false => self.render(v),
        }
    }

    /// Renders a value as JSON. Everything but the pretty kind counts as compact.
    pub fn render(self, v: &Value) -> Vec<u8> {
        let mut out = String::new();
        write(&mut out, v, (self == Self::JsonPretty).then_some(0));
        if self == Self::JsonPretty {
            out.push('\n');
        }
        out.into_bytes()
    }
}

fn write(out: &mut String, v: &Value, depth: Option<usize>) {
    let list = |out: &mut String, open: char, close: char, items: Vec<(Option<&String>, &Value)>| {
        out.push(open);
        let inner = depth.map(|d| d + 1);
        for (i, (key, item)) in items.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            newline(out, inner);
            if let Some(key) = key {
                string(out, key);
                out.push_str(if depth.is_some() { ": " } else { ":" });
            }
            write(out, item, inner);
        }
        if !items.is_empty() {
            newline(out, depth);
        }
        out.push(close);
    };
    match v {
        Value::Array(a) => list(out, '[', ']', a.iter().map(|i| (None, i)).collect()),
        Value::Object(o) => list(out, '{', '}', o.iter().map(|(k, i)| (Some(k), i)).collect()),
        Value::String(s) => string(out, s),
        Value::Number(n) => out.push_str(&number(n)),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Null => out.push_str("null"),
    }
}

/// A number as the official formatters have it; a [`Value`] holds finite ones alone.
pub(crate) fn number(n: &Number) -> String {
    match n.as_f64().filter(|_| n.is_f64()) {
        Some(f) => general(f, 17),
        None => n.to_string(),
    }
}

fn newline(out: &mut String, depth: Option<usize>) {
    if let Some(d) = depth {
        out.push('\n');
        out.extend(std::iter::repeat_n("    ", d));
    }
}

fn string(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn layout_is_the_official_one() {
        let v = json!({"a": [1, {}], "b": [], "c": "x\"y"});
        assert_eq!(Format::Json.render(&v), br#"{"a":[1,{}],"b":[],"c":"x\"y"}"#);
        let pretty =
            "{\n    \"a\": [\n        1,\n        {}\n    ],\n    \"b\": [],\n    \"c\": \"x\\\"y\"\n}\n";
        assert_eq!(String::from_utf8(Format::JsonPretty.render(&v)).unwrap(), pretty);
    }
}
