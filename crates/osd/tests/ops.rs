//! What the execution of ops may know of.

#![allow(clippy::unwrap_used)]

use std::path::Path;

/// Ops speak of an object, offsets, names and answers. The backend knows which members hold the
/// object, and how: another backend changes nothing here.
#[test]
fn the_execution_of_ops_knows_no_members() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pg/exec");
    let all: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(all.len() > 15, "{all:?}");
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        for (n, line) in text
            .lines()
            .enumerate()
            .filter(|(_, l)| !l.trim_start().starts_with("//"))
        {
            for word in [
                "backend",
                "replicated",
                "Positions",
                "peers",
                "acting",
                "primary",
                "Serving",
            ] {
                assert!(!line.contains(word), "{}:{}: {line}", path.display(), n + 1);
            }
        }
    }
}
