//! Amounts with units, read as Ceph reads them (`strict_iec_cast`, `strict_si_cast` of its
//! `src/common/strtol.cc` in 16.2).

/// The units of both systems, each a power above the one before.
const UNITS: &str = "KMGTPE";

/// The power of a unit: 0 for bytes.
fn power(unit: char) -> Option<u32> {
    match unit {
        'B' => Some(0),
        _ => UNITS.find(unit).map(|at| at as u32 + 1),
    }
}

/// Whether a character belongs to the number.
fn is_number(c: char) -> bool {
    c.is_ascii_digit() || c == '+' || c == '-'
}

/// An integer without a unit. As in C white space may be before it.
///
/// # Errors
/// The official text where it is none, or has more than 64 bits.
pub fn integer(text: &str) -> Result<i64, String> {
    let number = text.trim_ascii_start();
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Expected option value to be integer, got '{text}'"));
    }
    let invalid = |_| format!("The option value '{text}' seems to be invalid");
    number.parse().map_err(invalid)
}

/// A number that may have a fraction and an exponent (`strict_strtod`). As in C white space may be
/// before it. Ceph also takes infinity, and what is no number.
///
/// # Errors
/// The official text where it is none, or not finite.
pub fn double(text: &str) -> Result<f64, String> {
    let fail = |why: &str| Err(format!("strict_strtod: {why} '{text}'"));
    let start = text.trim_ascii_start();
    let (number, rest) = start.split_at(double_len(start));
    match number.parse::<f64>() {
        Err(_) => fail("expected double, got:"),
        Ok(v) if !v.is_finite() => fail("floating point overflow or underflow parsing"),
        Ok(_) if !rest.is_empty() => fail("garbage at end of string. got:"),
        Ok(v) => Ok(v),
    }
}

/// The length of the number at the beginning of a text, as C's `strtod` reads it: 0 for none.
fn double_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is = |at: usize, what: &[u8]| bytes.get(at).is_some_and(|b| what.contains(b));
    let digits_from = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let whole = usize::from(is(0, b"+-"));
    let mut end = digits_from(whole);
    let mut digits = end - whole;
    if is(end, b".") {
        let fraction = digits_from(end + 1);
        digits += fraction - (end + 1);
        end = fraction;
    }
    if digits == 0 {
        return 0;
    }
    if is(end, b"eE") {
        let exponent = end + 1 + usize::from(is(end + 1, b"+-"));
        let after = digits_from(exponent);
        if after > exponent {
            end = after;
        }
    }
    end
}

/// An amount in binary units: `4096`, `64K`, `64Ki`, `10G`.
///
/// # Errors
/// The official text.
pub fn iec(text: &str) -> Result<u64, String> {
    let fail = |why: &str| Err(format!("strict_iecstrtoll: {why}"));
    if text.is_empty() {
        return fail("value not specified");
    }
    let at = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    if unit == "Bi" {
        return fail("illegal prefix \"Bi\"");
    }
    if unit.len() > 2 {
        return fail("illegal prefix (length > 2)");
    }
    let Some(power) = unit.chars().next().map_or(Some(0), power) else {
        return fail("unit prefix not recognized");
    };
    let Ok(number) = u64::try_from(integer(number)?) else {
        return fail("value should not be negative");
    };
    match number.checked_mul(1 << (10 * power)) {
        Some(amount) => Ok(amount),
        None => fail("value seems to be too large"),
    }
}

/// The official text about a decimal amount that does not fit.
fn out_of_range() -> String {
    "strict_sistrtoll: value out of range".to_owned()
}

/// The number and the factor of its decimal unit.
fn si_parts(text: &str) -> Result<(i64, i64), String> {
    if text.is_empty() {
        return Err("strict_sistrtoll: value not specified".to_owned());
    }
    let mut number = text;
    let mut factor = 1;
    // Only the last character is the unit: what is before it is to be a number.
    if let Some(unit) = text.chars().next_back().filter(|_| !text.chars().all(is_number)) {
        let Some(power) = power(unit) else {
            return Err("strict_si_cast: unit prefix not recognized".to_owned());
        };
        if power > 0 {
            number = &text[..text.len() - unit.len_utf8()];
        }
        factor = 1000i64.pow(power);
    }
    Ok((integer(number)?, factor))
}

/// An amount in decimal units: `10`, `10K`.
///
/// # Errors
/// The official text.
pub fn si(text: &str) -> Result<u64, String> {
    let (number, factor) = si_parts(text)?;
    let Ok(number) = u64::try_from(number) else {
        return Err("strict_sistrtoll: value should not be negative".to_owned());
    };
    let amount = number.checked_mul(factor.unsigned_abs());
    amount.ok_or_else(out_of_range)
}

/// An amount in decimal units that may be negative.
///
/// # Errors
/// The official text.
pub fn signed_si(text: &str) -> Result<i64, String> {
    let (number, factor) = si_parts(text)?;
    number.checked_mul(factor).ok_or_else(out_of_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ceph osd pool set … scrub_min_interval` of 16.2.15 says.
    #[test]
    fn fractions_are_read_as_officially() {
        for (text, want) in [
            ("3600", 3600.0),
            ("86400.5", 86400.5),
            ("1e6", 1e6),
            ("-5", -5.0),
            (" 5", 5.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("+1E-2", 0.01),
        ] {
            assert_eq!(double(text), Ok(want), "{text}");
        }
        for text in ["x", "", "abc", ".", "-", "e5", "unset", "ä"] {
            let said = format!("strict_strtod: expected double, got: '{text}'");
            assert_eq!(double(text), Err(said));
        }
        for text in ["1h", "5 ", "1e", "1e+", "1.2.3", "5-5"] {
            let said = format!("strict_strtod: garbage at end of string. got: '{text}'");
            assert_eq!(double(text), Err(said));
        }
        let said = "strict_strtod: floating point overflow or underflow parsing '1e999'";
        assert_eq!(double("1e999").unwrap_err(), said);
    }

    /// As `ceph osd pool set-quota` of 16.2.15 says.
    #[test]
    fn amounts_are_read_as_officially() {
        let none = "strict_si_cast: unit prefix not recognized";
        let binary_none = "strict_iecstrtoll: unit prefix not recognized";
        let long = "strict_iecstrtoll: illegal prefix (length > 2)";
        let integer = |text| Err(format!("Expected option value to be integer, got '{text}'"));
        for (text, decimal, binary) in [
            ("10", Ok(10), Ok(10)),
            ("10K", Ok(10_000), Ok(10_240)),
            ("10M", Ok(10_000_000), Ok(10 << 20)),
            ("10 K", integer("10 "), Err(binary_none.to_owned())),
            ("10k", Err(none.to_owned()), Err(binary_none.to_owned())),
            ("10Ki", Err(none.to_owned()), Ok(10_240)),
            ("10KiB", integer("10KiB"), Err(long.to_owned())),
            ("10MB", integer("10MB"), Ok(10 << 20)),
            ("1.5K", integer("1.5"), Err(long.to_owned())),
            ("10X", Err(none.to_owned()), Err(binary_none.to_owned())),
            ("ä", Err(none.to_owned()), Err(binary_none.to_owned())),
        ] {
            assert_eq!((si(text), iec(text)), (decimal, binary), "{text}");
        }
        assert_eq!(si("").unwrap_err(), "strict_sistrtoll: value not specified");
        assert_eq!(iec("").unwrap_err(), "strict_iecstrtoll: value not specified");
        assert_eq!(
            si("-1").unwrap_err(),
            "strict_sistrtoll: value should not be negative"
        );
        assert_eq!(
            iec("-1").unwrap_err(),
            "strict_iecstrtoll: value should not be negative"
        );
        assert_eq!((signed_si("-1K"), iec("15E")), (Ok(-1000), Ok(15 << 60)));
        assert_eq!(
            iec("16E").unwrap_err(),
            "strict_iecstrtoll: value seems to be too large"
        );
        assert_eq!(si("99E").unwrap_err(), "strict_sistrtoll: value out of range");
        assert_eq!(
            signed_si("-99E").unwrap_err(),
            "strict_sistrtoll: value out of range"
        );
    }
}
