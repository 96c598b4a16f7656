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
