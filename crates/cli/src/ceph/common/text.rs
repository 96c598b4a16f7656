//! Numbers, sizes, times and tables as official tools print them.

use spirula_denc::UTime;

/// A number as a C++ stream prints a `double`: six significant digits, no trailing zeros.
pub(crate) fn general(v: f64) -> String {
    const DIGITS: i32 = 6;
    if v == 0.0 {
        return "0".into();
    }
    if !v.is_finite() {
        return if v.is_nan() {
            "nan".into()
        } else if v > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    // The exponent after rounding to the digits wanted, as C defines `%g`.
    let scientific = format!("{v:.*e}", 5);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
        return trim_zeros(&format!("{v:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// A number of bytes in binary units: `2.4 MiB`, at most five characters before the unit.
pub(crate) fn bytes(v: u64) -> String {
    const UNITS: [&str; 7] = [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"];
    let mut index = 0;
    while index + 1 < UNITS.len() && v >> (10 * index) >= 1024 {
        index += 1;
    }
    let (whole, unit) = (v >> (10 * index), UNITS[index]);
    if v & ((1 << (10 * index)) - 1) == 0 {
        return format!("{whole}{unit}");
    }
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let scaled = v as f64 / (1u64 << (10 * index)) as f64;
    let fits = |text: &String| text.len() <= 7;
    (0..=2)
        .rev()
        .map(|decimals| format!("{scaled:.decimals$}{unit}"))
        .find(fits)
        .unwrap_or_else(|| format!("{scaled:.0}{unit}"))
}

/// A time in the local time zone: `2026-11-21T16:31:00.373616+0000`.
pub(crate) fn local_time(t: UTime) -> String {
    let at = chrono::DateTime::from_timestamp(i64::from(t.sec), t.nsec.min(999_999_999));
    let at = at.unwrap_or_default().with_timezone(&chrono::Local);
    at.format("%Y-%m-%dT%H:%M:%S%.6f%z").to_string()
}

/// A table with two blanks between columns; the first column is set left, the others right, heads likewise.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(i, (cell, w))| {
                if i == 0 {
                    format!("{cell:<w$}")
                } else {
                    format!("{cell:>w$}")
                }
            })
            .collect();
        out.push_str(&line.join("  "));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_print_as_streams_print_them() {
        let shown = [
            (0.0, "0"),
            (-1.0, "-1"),
            (4.050_78, "4.05078"),
            (0.004_265_6, "0.0042656"),
            (9.2876e-5, "9.2876e-05"),
            (0.000_278_937, "0.000278937"),
            (131.521_9, "131.522"),
            (1_234_567.0, "1.23457e+06"),
            (999_999.5, "1e+06"),
            (13412.0, "13412"),
        ];
        for (v, text) in shown {
            assert_eq!(general(v), text);
        }
    }

    #[test]
    fn sizes_print_as_the_official_tools_print_them() {
        let shown = [
            (0, "0 B"),
            (1023, "1023 B"),
            (2048, "2 KiB"),
            (52224, "51 KiB"),
            (10239, "10 KiB"),
            (906_560 << 10, "885 MiB"),
            (11_676_352 << 10, "11 GiB"),
            (12_582_912 << 10, "12 GiB"),
            (2_516_582, "2.4 MiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (v, text) in shown {
            assert_eq!(bytes(v), text);
        }
    }

    #[test]
    fn tables_line_up() {
        let rows = [
            vec!["POOL".to_owned(), "USED".into()],
            vec!["p".into(), "10 B".into()],
        ];
        assert_eq!(table(&rows), "POOL  USED\np     10 B\n");
        let rows = [
            vec!["P".to_owned(), "U".into()],
            vec!["pool".into(), "10 B".into()],
        ];
        assert_eq!(table(&rows), "P        U\npool  10 B\n");
    }
}
