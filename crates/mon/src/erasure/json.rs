//! JSON as the official monitor reads it in profiles: commas may end a list, and what follows the
//! value does not count.

use serde::Deserialize;
use serde_json::{Deserializer, Value};

/// Reads a value.
///
/// # Errors
/// The line and the column of what is none, and why.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let text = without_last_commas(text);
    Value::deserialize(&mut Deserializer::from_str(&text)).map_err(|e| {
        // The official reader says no more.
        format!("at line {}, column {} : not a value", e.line(), e.column().max(1))
    })
}

/// The text without the commas that end a list. Those become spaces, so that all else stays where
/// it is.
fn without_last_commas(text: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let mut out: Vec<char> = Vec::with_capacity(text.len());
    let mut comma = None;
    for c in text.chars() {
        match c {
            '"' if !is_escaped => is_text = !is_text,
            ']' | '}' if !is_text => {
                if let Some(at) = comma {
                    out[at] = ' ';
                }
            }
            _ => {}
        }
        is_escaped = is_text && c == '\\' && !is_escaped;
        if c == ',' && !is_text {
            comma = Some(out.len());
        } else if !c.is_ascii_whitespace() {
            comma = None;
        }
        out.push(c);
    }
    out.into_iter().collect()
}

/// The number by which the official texts name a value's type.
pub(super) fn type_number(v: &Value) -> u8 {
    match v {
        Value::Object(_) => 0,
        Value::Array(_) => 1,
        Value::String(_) => 2,
        Value::Bool(_) => 3,
        Value::Number(n) if n.is_f64() => 5,
        Value::Number(_) => 4,
        Value::Null => 6,
    }
}
