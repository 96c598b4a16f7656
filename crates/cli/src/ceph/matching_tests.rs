//! Compares the matcher with the official tool's, whose results for the same descriptions and lines
//! are in `testdata/ceph`.

use super::*;
use crate::ceph::signature;

const DESCRIPTIONS: &[u8] = include_bytes!("../../testdata/ceph/descriptions.json");
const MATCHES: &[u8] = include_bytes!("../../testdata/ceph/matches.json");

/// The words, the matched arguments, and the messages if none matched.
type Recorded = (Vec<String>, Option<Map<String, Value>>, Vec<String>);

#[test]
fn lines_mean_what_they_mean_to_the_official_tool() {
    let commands = signature::parse(DESCRIPTIONS).unwrap();
    let recorded: Vec<Recorded> = serde_json::from_slice(MATCHES).unwrap();
    let mut wrong = Vec::new();
    for (words, values, messages) in recorded {
        let expected = values.map(|v| (v, Vec::new())).ok_or(messages);
        let found = match find(&commands, &words) {
            Match::Found(_, values) => Ok((values, Vec::<String>::new())),
            Match::None(messages) => Err(messages),
        };
        if found != expected {
            wrong.push(format!(
                "{words:?}\n  official {expected:?}\n  ours     {found:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
