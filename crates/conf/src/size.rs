//! Sizes as options and commands write them.

/// Parses a size in bytes with an optional binary suffix: `4096`, `64K`, `10G`, `10GiB`, `1.5T`.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let shift = match suffix.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" | "ki" => 10,
        "m" | "mb" | "mib" | "mi" => 20,
        "g" | "gb" | "gib" | "gi" => 30,
        "t" | "tb" | "tib" | "ti" => 40,
        "p" | "pb" | "pib" | "pi" => 50,
        "e" | "eb" | "eib" | "ei" => 60,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let scaled = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
    (scaled.is_finite() && scaled >= 0.0 && scaled < u64::MAX as f64).then_some(scaled as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_binary() {
        assert_eq!(parse_size("10G"), Some(10 << 30));
        assert_eq!(parse_size("4096"), Some(4096));
        assert_eq!(parse_size("1.5 KiB"), Some(1536));
        for bad in ["", "G", "-1", "1Q", "99999999999E", "1.2.3"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}
