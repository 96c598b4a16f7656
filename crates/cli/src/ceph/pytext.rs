//! Values as the official tool, a Python program, reads and prints them. Its messages show them.

/// A string as Python shows it inside a list.
pub(crate) fn quoted(s: &str) -> String {
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
pub(crate) fn list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|s| quoted(s.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// A float as Python shows it: the shortest digits that read back as it.
pub(crate) fn float(v: f64) -> String {
    if !v.is_finite() {
        return format!("{v}").to_lowercase();
    }
    if v != 0.0 && !(1e-4..1e16).contains(&v.abs()) {
        let text = format!("{v:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{v:?}")
}

/// Digits with single underscores between them, without these.
fn plain_digits(digits: &str) -> Option<String> {
    let well_placed = !digits.starts_with('_') && !digits.ends_with('_') && !digits.contains("__");
    (well_placed && !digits.is_empty()).then(|| digits.replace('_', ""))
}

/// An integer literal: decimal, `0x`, `0o` or `0b`, with a sign, blanks around it.
pub(crate) fn parse_int(s: &str) -> Option<i128> {
    let s = s.trim();
    let (negative, digits) = match s.strip_prefix(['-', '+']) {
        Some(rest) => (s.starts_with('-'), rest),
        None => (false, s),
    };
    let lower = digits.to_ascii_lowercase();
    let based = [("0x", 16), ("0o", 8), ("0b", 2)]
        .into_iter()
        .find_map(|(p, b)| Some((lower.strip_prefix(p)?, b)));
    let value = match based {
        Some((rest, base)) => {
            let rest = rest.strip_prefix('_').unwrap_or(rest);
            i128::from_str_radix(&plain_digits(rest)?, base).ok()?
        }
        None => {
            let plain = plain_digits(digits)?;
            let zeros = plain.bytes().all(|b| b == b'0');
            if !plain.bytes().all(|b| b.is_ascii_digit()) || (plain.starts_with('0') && !zeros) {
                return None;
            }
            plain.parse().ok()?
        }
    };
    Some(if negative { -value } else { value })
}

/// A decimal integer, as `int(s)` takes it.
pub(crate) fn parse_decimal(s: &str) -> Option<i128> {
    let s = s.trim();
    let digits = s.strip_prefix(['-', '+']).unwrap_or(s);
    let value: i128 = plain_digits(digits)
        .filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?
        .parse()
        .ok()?;
    Some(if s.starts_with('-') { -value } else { value })
}

/// A float, as `float(s)` takes it.
pub(crate) fn parse_float(s: &str) -> Option<f64> {
    let s = s.trim();
    if s.contains('_') {
        return plain_digits(s)?.parse().ok();
    }
    s.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn numbers_read_and_show_as_in_python() {
        for (text, value) in [
            ("12", 12),
            (" -5 ", -5),
            ("0x1F", 31),
            ("1_000", 1000),
            ("0b11", 3),
            ("00", 0),
        ] {
            assert_eq!(parse_int(text), Some(value), "{text}");
        }
        for text in ["", "a", "1a", "012", "1__0", "_1", "0x", "1.5", "+-1"] {
            assert_eq!(parse_int(text), None, "{text}");
        }
        assert_eq!(parse_decimal("012"), Some(12));
        assert_eq!(parse_decimal("0x12"), None);
        assert_eq!(parse_float("1e3"), Some(1000.0));
        assert_eq!(parse_float("x"), None);
        for (v, text) in [
            (1.5, "1.5"),
            (0.0, "0.0"),
            (1.0, "1.0"),
            (1e16, "1e+16"),
            (1e-5, "1e-05"),
        ] {
            assert_eq!(float(v), text);
        }
    }
}
