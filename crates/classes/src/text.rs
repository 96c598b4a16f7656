//! Text as C's library reads it, which some classes let their clients see.

/// What a C string of these bytes is: all before the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

/// Whether `isspace` of the C locale holds.
pub(crate) fn is_space(b: u8) -> bool {
    matches!(b, b' ' | 9..=13)
}

/// The number that the hexadecimal digits at the start make, and what follows them; the largest
/// where they make a larger one.
pub(crate) fn leading_hex(bytes: &[u8]) -> (u64, &[u8]) {
    let len = bytes.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let (digits, rest) = bytes.split_at(len);
    let number = digits.iter().fold(0u64, |n, digit| {
        let digit = char::from(*digit).to_digit(16).unwrap_or_default();
        n.checked_mul(16).map_or(u64::MAX, |n| n | u64::from(digit))
    });
    (number, rest)
}

/// The number that all of a C string is to `strtod`: decimal, hexadecimal, infinite or none; zero
/// for an empty one.
pub(crate) fn parse_double(bytes: &[u8]) -> Option<f64> {
    let text = until_nul(bytes);
    if text.is_empty() {
        return Some(0.0);
    }
    let start = text.iter().position(|b| !is_space(*b))?;
    let text = std::str::from_utf8(&text[start..]).ok()?;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let negative = text.starts_with('-');
    let value = if let Some(hex) = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"))
    {
        parse_hex(hex)?
    } else if is_nan(unsigned) {
        f64::NAN
    } else if unsigned.starts_with(['+', '-']) {
        return None;
    } else {
        unsigned.parse().ok()?
    };
    Some(if negative { -value } else { value })
}

/// `nan`, or `nan(` with letters, digits and underscores `)`.
fn is_nan(text: &str) -> bool {
    let Some((nan, rest)) = text.split_at_checked(3) else {
        return false;
    };
    let payload = rest.strip_prefix('(').and_then(|r| r.strip_suffix(')'));
    nan.eq_ignore_ascii_case("nan")
        && (rest.is_empty()
            || payload.is_some_and(|p| p.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')))
}

/// What follows `0x`: digits with at most one point, then perhaps `p` and a decimal power of two.
fn parse_hex(text: &str) -> Option<f64> {
    let (digits, power) = match text.split_once(['p', 'P']) {
        Some((digits, power)) => (digits, power.parse::<i64>().ok()?.clamp(-100_000, 100_000)),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut mantissa, mut exponent) = (0u64, power);
    for (i, c) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(c.to_digit(16)?);
        let is_fraction = i >= whole.len();
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent -= if is_fraction { 4 } else { 0 };
        } else {
            // Beyond 60 bits a digit only matters as not being zero: that decides the rounding.
            mantissa |= u64::from(digit != 0);
            exponent += if is_fraction { 0 } else { 4 };
        }
    }
    Some(scale(mantissa, exponent))
}

/// `mantissa * 2^exponent`, rounded once, to the nearest and there to the even.
fn scale(mantissa: u64, exponent: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let top = exponent + 63 - i64::from(mantissa.leading_zeros());
    // The last place that the result can have: subnormal numbers have fewer.
    let last = (top - 52).max(-1074);
    let shift = last - exponent;
    let kept = match u32::try_from(shift) {
        Err(_) | Ok(0) => return mantissa as f64 * exp2(exponent),
        Ok(s) if s > 64 => 0,
        Ok(s) => {
            let whole = if s == 64 { 0 } else { mantissa >> s };
            let rest = u128::from(mantissa) & ((1u128 << s) - 1);
            let half = 1u128 << (s - 1);
            whole + u64::from(rest > half || (rest == half && whole & 1 == 1))
        }
    };
    kept as f64 * exp2(last)
}

/// A power of two, zero or infinite where there is no such number.
fn exp2(exponent: i64) -> f64 {
    let clamped = i32::try_from(exponent.clamp(-1100, 1100)).unwrap_or_default();
    // In two steps, as the smallest are not reciprocals of anything finite.
    2f64.powi(clamped / 2) * 2f64.powi(clamped - clamped / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with `strtod` and `printf("%.10g")` of glibc.
    #[test]
    fn numbers_are_those_of_c() {
        for (text, want) in [
            ("", "0"),
            ("  42", "42"),
            ("-0", "-0"),
            ("1e22", "1e+22"),
            ("1234567890123", "1.23456789e+12"),
            ("12345678905", "1.23456789e+10"),
            ("9999999999.9", "1e+10"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("1e999", "inf"),
            ("-inf", "-inf"),
            ("INFINITY", "inf"),
            ("-NaN(a_1)", "-nan"),
            ("0x1.8p1", "3"),
            ("-0X.8", "-0.5"),
            ("0x1p-1074", "4.940656458e-324"),
            ("0x1.8p-1074", "9.881312917e-324"),
            ("0x0.8p-1074", "0"),
            ("0xfffffffffffff8000001p0", "1.20892582e+24"),
            ("0x1p1024", "inf"),
            ("3\0x", "3"),
            ("1.", "1"),
            (".5", "0.5"),
        ] {
            let value = parse_double(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(spirula_text::general(value, 10), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_number_to_c_is_none() {
        for text in [
            " ", "1 ", "x", "1e", "+-1", "0x", "0x.", "0x1p", "nan(", "nan(-)", "1_0", "infi", "é",
        ] {
            assert_eq!(parse_double(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn long_hexadecimals_round_once() {
        assert_eq!(parse_double(b"0x20000000000001"), Some(9_007_199_254_740_992.0));
        assert_eq!(
            parse_double(b"0x20000000000001.00000000000000000001"),
            Some(9_007_199_254_740_994.0)
        );
        assert_eq!(parse_double(b"0x3fffffffffffff"), Some(18_014_398_509_481_984.0));
        assert_eq!(parse_double(b"0x1000000000000000000000000"), Some(2f64.powi(96)));
    }
}
