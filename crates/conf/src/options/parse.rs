//! Values of options as text, read as Ceph reads them (`Option::parse_value` of its
//! `src/common/options.cc`, `src/common/strtol.cc`).

use spirula_denc::EntityAddr;

use crate::amount::integer;

/// Seconds in units: `90`, `5m`, `1h 30m`.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let mut rest = text.trim();
    let mut sum = 0u64;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let n: u64 = rest[..digits].parse().map_err(|_| "expected digit".to_owned())?;
        rest = rest[digits..].trim_start();
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let factor = match &rest[..letters] {
            "" | "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "wk" | "week" | "weeks" => 604_800,
            "mo" | "month" | "months" => 2_592_000,
            "y" | "yr" | "year" | "years" => 31_536_000,
            unit => return Err(format!("unrecognized unit '{unit}'")),
        };
        let part = n.checked_mul(factor);
        sum = part
            .and_then(|p| sum.checked_add(p))
            .ok_or_else(|| "value too large".to_owned())?;
        rest = rest[letters..].trim_start();
        if rest.is_empty() {
            return Ok(sum);
        }
    }
}

/// `true`, `false` or a number.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => integer(text).map(|n| n != 0),
    }
}

/// The log level and the level that is kept in memory: `5` or `1/5`.
pub(super) fn log_levels(text: &str) -> Result<String, String> {
    let (log, rest) =
        leading_int(text).ok_or("value must take the form N or N/M, where N and M are integers")?;
    let gather = rest
        .strip_prefix('/')
        .and_then(leading_int)
        .map_or(log, |(n, _)| n);
    match [log, gather].iter().all(|n| (0..=99).contains(n)) {
        true => Ok(format!("{log}/{gather}")),
        false => Err(super::LEVEL_RANGE.to_owned()),
    }
}

/// The integer at the beginning of a text, as C's `sscanf` parses it, and the rest.
fn leading_int(text: &str) -> Option<(i64, &str)> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let end = digits + usize::from(text.starts_with(['-', '+']));
    let number = text[..end].trim_start_matches('+').parse().ok()?;
    Some((number, &text[end..]))
}

/// An address; of msgr2 unless a type is given.
pub(super) fn address(text: &str) -> Result<String, String> {
    let addr = |text: &str| text.parse::<EntityAddr>().ok();
    let kinds = ["v1:", "v2:", "any:"];
    let found = match kinds.iter().any(|k| text.starts_with(k)) || text == "-" {
        true => addr(text),
        false => addr(&format!("v2:{text}")),
    };
    found.map(|a| a.to_string()).ok_or_else(String::new)
}

/// Addresses: one, or several in brackets.
pub(super) fn addresses(text: &str) -> Result<String, String> {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    match inner {
        Some(list) if list.contains(',') || list.contains("v1:") || list.contains("v2:") => {
            let all: Result<Vec<String>, String> = list.split(',').map(address).collect();
            Ok(format!("[{}]", all?.join(",")))
        }
        _ => address(text),
    }
}
