//! Sizes and counts with units.

/// Scales `v` down by `base` and picks as many decimals, up to two, as fit into seven characters
/// with the unit. Whole multiples have none.
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

/// Bytes with a binary unit, whole ones, of which there are more than ten: `10240 `, `11 Mi`. So
/// the manager's `iostat` has them.
pub fn whole(n: u64) -> String {
    let units = [
        (60, "Ei"),
        (50, "Pi"),
        (40, "Ti"),
        (30, "Gi"),
        (20, "Mi"),
        (10, "Ki"),
    ];
    match units.iter().find(|(bits, _)| n > 10 << bits) {
        Some((bits, unit)) => format!("{} {unit}", n >> bits),
        None => format!("{n} "),
    }
}

/// A number in at most four digits with a unit: `290M`, `1.23k`. So the manager's `osd status` has
/// them.
pub fn short(n: u64, base: u64) -> String {
    const WIDTH: usize = 4;
    let units = [" ", "k", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let whole = |unit: usize| n / base.pow(unit as u32);
    while unit + 1 < units.len() && whole(unit).to_string().len() > WIDTH {
        unit += 1;
    }
    if unit == 0 {
        return format!("{n:>WIDTH$} ");
    }
    let value = format!("{:.6}", n as f64 / base.pow(unit as u32) as f64);
    let digits: String = value.chars().take(WIDTH).collect();
    match digits.strip_suffix('.') {
        Some(whole) => format!(" {whole}{}", units[unit]),
        None => digits + units[unit],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_as_the_official_tools_print_them() {
        for (v, text) in [
            (0, "0 B"),
            (446, "446 B"),
            (1023, "1023 B"),
            (1339, "1.3 KiB"),
            (2048, "2 KiB"),
            (4096, "4 KiB"),
            (10239, "10 KiB"),
            (52224, "51 KiB"),
            (488 << 10, "488 KiB"),
            (1536 << 10, "1.5 MiB"),
            (2_516_582, "2.4 MiB"),
            (871 << 20, "871 MiB"),
            (906_560 << 10, "885 MiB"),
            (11_676_352 << 10, "11 GiB"),
            (12 << 30, "12 GiB"),
            ((11 << 30) + (153 << 20), "11 GiB"),
            (3_805_000_000, "3.5 GiB"),
            (3_984_588_800, "3.7 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(v), text, "{v}");
        }
        assert_eq!([12, 1230, 4000].map(count), ["12", "1.23k", "4k"]);
    }

    /// As the manager of Ceph 16.2.15 prints them.
    #[test]
    fn sizes_print_as_the_modules_of_the_manager_print_them() {
        let texts = [0, 10_240, 10_241, 11 << 20, u64::MAX].map(whole);
        assert_eq!(texts, ["0 ", "10240 ", "10 Ki", "11 Mi", "15 Ei"]);
        let bytes = [
            0,
            1023,
            9999,
            10_000,
            290 << 20,
            (3805 << 20) + 5,
            5_000_000_000_000,
            u64::MAX,
        ];
        let shown = bytes.map(|n| short(n, 1024));
        let want = [
            "   0 ", "1023 ", "9999 ", "9.76k", " 290M", "3805M", "4656G", "16.0E",
        ];
        assert_eq!(shown, want);
        let counts = [996, 12_345, 1_234_567].map(|n| short(n, 1000));
        assert_eq!(counts, [" 996 ", "12.3k", "1234k"]);
    }
}
