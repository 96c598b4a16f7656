//! Numbers as the official tool, a Python program, reads them.

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
    fn numbers_are_read_as_in_python() {
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
    }
}
