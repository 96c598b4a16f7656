//! Sizes, counts, times and ages as the official tools print them (`src/include/types.h`, `utime.h`).

use std::time::Duration;

use spirula_denc::{EntityAddr, UTime};

use super::float;

/// Scales `v` down by `base` and picks as many decimals, up to two, as fit into seven characters with the unit. Whole
/// multiples have none.
fn scaled(v: u64, base: u64, units: &[&str]) -> String {
    let mut n = v;
    let mut mult = 1u64;
    let mut index = 0;
    while n >= base && index + 1 < units.len() {
        n /= base;
        mult *= base;
        index += 1;
    }
    let unit = units[index];
    if v.is_multiple_of(mult) {
        return format!("{n}{unit}");
    }
    let value = v as f64 / mult as f64;
    let texts = [2usize, 1].map(|decimals| format!("{value:.decimals$}{unit}"));
    texts
        .into_iter()
        .find(|t| t.len() <= 7)
        .unwrap_or_else(|| format!("{value:.0}{unit}"))
}

/// A byte count with binary units: `0 B`, `871 MiB`, `1.3 KiB`.
pub fn bytes(v: u64) -> String {
    scaled(v, 1024, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// A count with decimal units: `12`, `1.23k`.
pub fn count(v: u64) -> String {
    scaled(v, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

/// A share as the tables print it: 0, or two decimals of a percent.
pub fn percent(share: f64) -> String {
    let p = share * 100.0;
    if p == 0.0 {
        "0".to_owned()
    } else {
        format!("{p:.2}")
    }
}

/// An age with one unit: `1.5s`, `16m`, `2h`, `3d`.
pub fn age(d: Duration) -> String {
    const DAY: u64 = 86_400;
    let s = d.as_secs();
    match s {
        0..2 => format!("{}s", float(d.as_secs_f64(), 6)),
        2..120 => format!("{s}s"),
        120..7200 => format!("{}m", s / 60),
        7200..172_800 => format!("{}h", s / 3600),
        _ if s < 14 * DAY => format!("{}d", s / DAY),
        _ if s < 84 * DAY => format!("{}w", s / (7 * DAY)),
        _ if s < 720 * DAY => format!("{}M", s / (30 * DAY)),
        _ => format!("{}y", s / (365 * DAY)),
    }
}

/// A time as ISO 8601 with microseconds and `Z`.
pub fn time_iso(t: UTime) -> String {
    let text = t.to_string();
    match text.strip_suffix("+0000") {
        Some(head) => format!("{head}Z"),
        None => text,
    }
}

/// A time in UTC as ISO 8601 writes it: `2026-11-25T19:00:00.123456Z`, the fraction, the `Z` and the `T` (a blank) optional. `None`
/// for what is none, or out of range.
pub fn parse_time(text: &str) -> Option<UTime> {
    let (date, time) = text.trim_end_matches('Z').split_once(['T', ' '])?;
    let numbers = |text: &str, by: char| -> Option<[i64; 3]> {
        let parts: Option<Vec<i64>> = text
            .split(by)
            .map(|n| Some(i64::from(n.parse::<u16>().ok()?)))
            .collect();
        parts?.try_into().ok()
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let ([y, m, d], [hour, min, sec]) = (numbers(date, '-')?, numbers(time, ':')?);
    let in_range = (1..=12).contains(&m) && (1..=31).contains(&d) && hour < 24 && min < 60 && sec < 61;
    if !in_range || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Days since 1970-01-01 by years that begin in March (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let year = if m <= 2 { y - 1 } else { y };
    let day_of_year = (153 * ((m + 9) % 12) + 2) / 5 + d - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    let nsec: u32 = format!("{fraction:0<9}").parse().ok()?;
    let sec = u32::try_from(days * 86_400 + hour * 3600 + min * 60 + sec).ok()?;
    Some(UTime { sec, nsec })
}

/// An address without its type, as older tools print it: `127.0.0.1:6789/0`, or `-` for none.
pub fn addr_legacy(a: &EntityAddr) -> String {
    match a.socket {
        Some(s) => format!("{s}/{}", a.nonce),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_printed() {
        for sec in [951_782_399, 951_782_400, 1_800_000_000, 4_000_000_000] {
            let time = UTime {
                sec,
                nsec: 123_456_000,
            };
            assert_eq!(parse_time(&time_iso(time)), Some(time));
        }
        assert_eq!(parse_time("1970-01-01 00:00:01"), Some(UTime::from_secs(1)));
        for bad in [
            "",
            "foo",
            "2026-13-01T00:00:00",
            "2026-11-25",
            "1969-12-31T23:59:59",
            "2026-11-25T24:00:00Z",
        ] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_print_as_the_official_tools_do() {
        for (v, text) in [
            (0, "0 B"),
            (446, "446 B"),
            (1339, "1.3 KiB"),
            (4096, "4 KiB"),
            (488 << 10, "488 KiB"),
            (871 << 20, "871 MiB"),
            (12 << 30, "12 GiB"),
            ((11 << 30) + (153 << 20), "11 GiB"),
            (3_805_000_000, "3.5 GiB"),
            (3_984_588_800, "3.7 GiB"),
        ] {
            assert_eq!(bytes(v), text, "{v}");
        }
    }
}
