//! The plugin clay: `ErasureCodeClay.cc`. It is made of two codes of another plugin.

use super::reader::Reader;
use super::{Code, Padding, Profile};
use crate::command::{Reply, errno, refuse};

/// The most nodes of the code.
const MAX_NODES: u64 = 254;

/// The plugins that it can be made of, with their techniques (the first is the default) and how the
/// official texts list those.
const SCALARS: [(&str, &[&str], &str); 3] = [
    (
        "jerasure",
        &[
            "reed_sol_van",
            "reed_sol_r6_op",
            "cauchy_orig",
            "cauchy_good",
            "liber8tion",
        ],
        " reed_sol_van', 'reed_sol_r6_op','cauchy_orig','cauchy_good','liber8tion'",
    ),
    ("isa", &["reed_sol_van", "cauchy"], "'reed_sol_van','cauchy'"),
    ("shec", &["single", "multiple"], "'single','multiple'"),
];

pub(super) fn read(profile: &mut Profile) -> Result<Code, Reply> {
    let mut r = Reader::new(profile);
    let (k, m) = (r.int("k", 4), r.int("m", 2));
    r.counts(k, m);
    let d = r.int("d", k.saturating_add(m).saturating_sub(1));
    let scalar = scalar(&mut r);
    if d < k || d >= k.saturating_add(m) {
        r.complain(format!(
            "value of d {d} must be within [ {k},{}]",
            i64::from(k) + i64::from(m) - 1
        ));
    }
    let (k, m) = r.finish(k, m)?;
    let (plugin, technique) = scalar.unwrap_or_default();
    // Helpers of a repair in one group; nodes without data fill the last group.
    let group = u64::from(d.unsigned_abs() - k + 1);
    let nodes = (u64::from(k) + u64::from(m)).next_multiple_of(group);
    if nodes > MAX_NODES {
        return refuse(errno::EINVAL, "(22) Invalid argument");
    }
    let inner = |k: u64, m: u32| {
        let c = if plugin == "shec" { "2" } else { "" };
        let properties = [
            ("plugin", plugin.to_owned()),
            ("technique", technique.clone()),
            ("k", k.to_string()),
            ("m", m.to_string()),
            ("w", "8".to_owned()),
            ("c", c.to_owned()),
        ];
        super::read(&mut properties.map(|(k, v)| (k.to_owned(), v)).into())
    };
    inner(nodes - u64::from(m), m)?;
    let least = inner(2, 2)?.padding.chunk_size(1);
    let groups = u32::try_from(nodes / group).unwrap_or(u32::MAX);
    let alignment = group
        .checked_pow(groups)
        .and_then(|pieces| pieces.checked_mul(least?)?.checked_mul(u64::from(k)));
    let padding = Padding {
        alignment: alignment.unwrap_or(0),
        parts: k,
        each: false,
    };
    Ok(Code::new(k, m, padding))
}

/// The plugin and the technique that it is made of.
fn scalar(r: &mut Reader<'_>) -> Option<(&'static str, String)> {
    let given = |r: &Reader<'_>, name: &str| r.profile.get(name).cloned().unwrap_or_default();
    let name = match given(r, "scalar_mds") {
        name if name.is_empty() => "jerasure".to_owned(),
        name => name,
    };
    let Some((plugin, techniques, listed)) = SCALARS.iter().find(|(plugin, ..)| *plugin == name) else {
        // The official text has no name there.
        r.complain("scalar_mds is not currently supported, use one of 'jerasure', 'isa', 'shec'");
        return None;
    };
    let technique = given(r, "technique");
    match technique.as_str() {
        "" => Some((plugin, techniques[0].to_owned())),
        t if techniques.contains(&t) => Some((plugin, technique)),
        t => {
            r.complain(format!(
                "technique {t}is not currently supported, use one of{listed}"
            ));
            None
        }
    }
}
