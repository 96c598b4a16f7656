//! The official JSON formatter's output (`src/common/Formatter.cc`).

use serde_json::Value;

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

    /// Like `self`, but pretty JSON where plain text was asked for: for commands that only know JSON.
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

    /// Whether it is XML, and if so, whether the pretty kind.
    pub fn xml(self) -> Option<bool> {
        match self {
            Self::Xml => Some(false),
            Self::XmlPretty => Some(true),
            Self::Plain | Self::Json | Self::JsonPretty => None,
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
        Value::Number(n) => match n.as_f64().filter(|_| n.is_f64()) {
            Some(f) => out.push_str(&float(f, 17)),
            None => out.push_str(&n.to_string()),
        },
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Null => out.push_str("null"),
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

/// A float as C prints it with `%.{digits}g`: at most so many significant digits, no trailing zeros.
pub fn float(v: f64, digits: usize) -> String {
    if !v.is_finite() {
        return "null".to_owned();
    }
    if v == 0.0 {
        return "0".to_owned();
    }
    let digits = digits.max(1);
    let sci = format!("{:.*e}", digits - 1, v);
    let Some((mantissa, exp)) = sci.split_once('e') else {
        return sci;
    };
    let exp: i32 = exp.parse().unwrap_or(0);
    let trim = |s: &str| match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => s.to_owned(),
    };
    if exp < -4 || exp >= i32::try_from(digits).unwrap_or(i32::MAX) {
        let sign = if exp < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exp.abs());
    }
    let decimals = usize::try_from(i32::try_from(digits).unwrap_or(17) - 1 - exp).unwrap_or(0);
    trim(&format!("{v:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn floats_print_as_c_does() {
        assert_eq!(float(0.95, 17), "0.94999999999999996");
        assert_eq!(float(f64::from(0.95f32), 17), "0.94999998807907104");
        assert_eq!(float(0.95, 6), "0.95");
        assert_eq!(float(1.0, 17), "1");
        assert_eq!(float(1234567.0, 6), "1.23457e+06");
        assert_eq!(float(0.00001, 6), "1e-05");
        assert_eq!(float(3.66667, 6), "3.66667");
    }

    #[test]
    fn layout_is_the_official_one() {
        let v = json!({"a": [1, {}], "b": [], "c": "x\"y"});
        assert_eq!(Format::Json.render(&v), br#"{"a":[1,{}],"b":[],"c":"x\"y"}"#);
        let pretty =
            "{\n    \"a\": [\n        1,\n        {}\n    ],\n    \"b\": [],\n    \"c\": \"x\\\"y\"\n}\n";
        assert_eq!(String::from_utf8(Format::JsonPretty.render(&v)).unwrap(), pretty);
    }
}
