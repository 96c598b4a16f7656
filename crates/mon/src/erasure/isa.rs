//! The plugin isa: `ErasureCodeIsa.cc`.

use super::reader::Reader;
use super::{Code, Padding, Profile};
use crate::command::{Reply, errno, refuse};

pub(super) fn read(profile: &mut Profile) -> Result<Code, Reply> {
    let technique = profile
        .entry("technique".to_owned())
        .or_insert_with(|| "reed_sol_van".to_owned())
        .clone();
    if !["reed_sol_van", "cauchy"].contains(&technique.as_str()) {
        return refuse(
            errno::ENOENT,
            format!(
                "technique={technique} is not a valid coding technique.  Choose one of the following: reed_sol_van,cauchy"
            ),
        );
    }
    let mut r = Reader::new(profile);
    let (k, m) = (r.int("k", 7), r.int("m", 3));
    r.counts(k, m);
    if technique == "reed_sol_van" {
        if k > 32 {
            // The official text names the other number.
            r.complain(format!(
                "Vandermonde: m={m} should be less/equal than 32 : revert to k=32"
            ));
        }
        if m > 4 {
            r.complain(format!(
                "Vandermonde: m={m} should be less than 5 to guarantee an MDS codec: revert to m=4"
            ));
        }
        if m >= 4 && k > 21 {
            r.complain(format!(
                "Vandermonde: k={k} should be less than 22 to guarantee an MDS codec with m=4: revert to k=21"
            ));
        }
    }
    let (k, m) = r.finish(k, m)?;
    let padding = Padding {
        alignment: 32,
        parts: k,
        each: true,
    };
    Ok(Code::new(k, m, padding))
}
