//! OSDs in commands: `3` or `osd.3`, and the official texts about words that name none.

use spirula_conf::amount;
use spirula_maps::OsdId;

use super::errno;

/// Why a word names no OSD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoOsd {
    /// The official text.
    pub text: String,
    /// The number that the official parser returns, which some answers show.
    pub code: i32,
}

impl NoOsd {
    fn new(text: String, code: i32) -> Self {
        Self { text, code }
    }
}

/// Reads `3` or `osd.3`.
///
/// # Errors
/// Where the word names no OSD.
pub fn parse_osd(word: &str) -> Result<OsdId, NoOsd> {
    let word = word.strip_prefix("osd.").unwrap_or(word);
    if word.starts_with(['-', '+']) {
        let text = format!("expected numerical value, got: {word}");
        return Err(NoOsd::new(text, -errno::EINVAL));
    }
    let number = amount::integer(word).map_err(|text| NoOsd::new(text, -1))?;
    if number < 0 {
        return Err(NoOsd::new(
            format!("unable to parse positive integer '{word}'"),
            -1,
        ));
    }
    match u16::try_from(number) {
        Ok(number) => Ok(OsdId::new(number)),
        Err(_) => Err(NoOsd::new(
            format!("osd id {number} is too large"),
            -errno::ERANGE,
        )),
    }
}

/// OSDs as the official answers list them: `0,1,2`.
pub(super) fn joined(osds: &[OsdId]) -> String {
    osds.iter().map(OsdId::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ceph osd scrub` of 16.2.15 takes and refuses them.
    #[test]
    fn osds_are_read_as_officially() {
        for (word, number) in [("0", 0), ("osd.12", 12), (" 1", 1), ("65535", 65535)] {
            assert_eq!(parse_osd(word), Ok(OsdId::new(number)), "{word}");
        }
        for (word, text) in [
            ("x", "Expected option value to be integer, got 'x'"),
            ("", "Expected option value to be integer, got ''"),
            ("osd.", "Expected option value to be integer, got ''"),
            ("osd.x", "Expected option value to be integer, got 'x'"),
            ("1x", "Expected option value to be integer, got '1x'"),
            ("0x1", "Expected option value to be integer, got '0x1'"),
            ("-1", "expected numerical value, got: -1"),
            ("+1", "expected numerical value, got: +1"),
            (" -1", "unable to parse positive integer ' -1'"),
            ("70000", "osd id 70000 is too large"),
            (
                "99999999999999999999",
                "The option value '99999999999999999999' seems to be invalid",
            ),
        ] {
            assert_eq!(parse_osd(word).unwrap_err().text, text, "{word}");
        }
    }
}
