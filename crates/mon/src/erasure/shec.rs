//! The plugin shec: `ErasureCodeShec.cc`. It tells no reason of a refusal.

use super::reader::integer;
use super::{Code, Padding, Profile};
use crate::command::{Reply, errno, refuse};

pub(super) fn read(profile: &mut Profile) -> Result<Code, Reply> {
    let technique = profile
        .entry("technique".to_owned())
        .or_insert_with(|| "multiple".to_owned());
    if !["single", "multiple"].contains(&technique.as_str()) {
        return refuse(
            errno::ENOENT,
            format!(
                "technique={technique} is not a valid coding technique. Choose one of the following: single, multiple "
            ),
        );
    }
    let Some((k, m)) = counts(profile) else {
        return refuse(errno::EINVAL, "(22) Invalid argument");
    };
    let w = profile.get("w").and_then(|w| integer(w).ok());
    let w = w.filter(|w| [8, 16, 32].contains(w)).unwrap_or(8);
    let padding = Padding {
        alignment: u64::from(k) * u64::from(w.unsigned_abs()) * 4,
        parts: k,
        each: false,
    };
    Ok(Code::new(k, m, padding))
}

/// The numbers of pieces with data and without, that there may be. They are not filled in.
fn counts(profile: &Profile) -> Option<(u32, u32)> {
    let given = ["k", "m", "c"].map(|name| profile.get(name));
    if given.iter().all(Option::is_none) {
        return Some((4, 3));
    }
    let [k, m, c] = given.map(|text| u32::try_from(integer(text?).ok()?).ok().filter(|n| *n > 0));
    let (k, m, c) = (k?, m?, c?);
    (m >= c && k <= 12 && k + m <= 20 && k >= m).then_some((k, m))
}
