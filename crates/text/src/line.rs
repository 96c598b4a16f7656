//! Text of others in lines of ours, and addresses.

use serde_json::{Value, json};
use spirula_denc::{AddrType, EntityAddr};

/// At most `most` bytes of a text; of a longer one the length is told.
pub fn cut(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    format!("{}… ({} bytes)", &text[..end], text.len())
}

/// A text as part of one line: what would end the line or steer a terminal is written as in source
/// code.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

/// An address without its type, as older tools print it: `127.0.0.1:6789/0`, or `-` for none.
pub fn addr_legacy(a: &EntityAddr) -> String {
    match a.socket {
        Some(s) => format!("{s}/{}", a.nonce),
        None => "-".to_owned(),
    }
}

/// An address as a tree (`entity_addr_t::dump` in `src/msg/msg_types.cc`).
pub fn addr_value(a: &EntityAddr) -> Value {
    let kind = match a.kind {
        AddrType::LEGACY => "v1",
        AddrType::MSGR2 => "v2",
        AddrType::ANY => "any",
        AddrType::CIDR => "cidr",
        _ => "none",
    };
    let socket = a
        .socket
        .map_or_else(|| "(unrecognized address family 0)".to_owned(), |s| s.to_string());
    json!({"type": kind, "addr": socket, "nonce": a.nonce})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one() {
        assert_eq!(
            one_line("pool 'ä\n2026 mon.a\u{1b}[2J\u{2028}'"),
            "pool 'ä\\n2026 mon.a\\u{1b}[2J\\u{2028}'"
        );
        assert_eq!(cut("äää".to_owned(), 3), "ä… (6 bytes)");
        assert_eq!(cut("äää".to_owned(), 6), "äää");
    }
}
