//! How the parts that hold data leave a function early, and how much of their state they check:
//! both by a look at their sources.
//!
//! A bare `return` says nothing: was this impossible, merely old, or is nothing to be done? The
//! first is an `invariant!` or `impossible!`, the second a `dropped!`, and the third says so in a
//! comment: at the end of the line, or in the line before.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::fs;
use std::path::{Path, PathBuf};

/// A directory or file, and the number of bare returns in it without an explanation. The number
/// only falls: a change that explains one lowers it here.
const UNEXPLAINED: [(&str, usize); 9] = [
    ("store/src", 0),
    ("msgr/src", 0),
    ("mon/src/core", 0),
    ("mon/src/daemon", 31),
    ("osd/src/pg", 0),
    ("osd/src/core.rs", 0),
    ("osd/src/core", 0),
    ("osd/src/heartbeat", 0),
    ("osd/src/daemon", 0),
];

/// Directories with so many assertions for 1,000 lines at least, comments aside.
const CHECKED: [(&str, usize); 4] = [
    ("store/src", 5),
    ("msgr/src", 5),
    ("mon/src/core", 5),
    ("osd/src/pg", 5),
];

/// What a directory's code comes to, without its tests.
#[derive(Default)]
struct Found {
    /// Lines that are no comments.
    lines: usize,
    assertions: usize,
    /// The places of bare returns that nothing explains.
    unexplained: Vec<String>,
}

impl Found {
    /// Looks at the code of a file: what stands before its tests.
    fn look_at(&mut self, name: &str, text: &str) {
        let mut before = "";
        for (number, line) in text.lines().map(str::trim).enumerate() {
            if before == "#[cfg(test)]" && line == "mod tests {" {
                break;
            }
            if !is_comment(line) {
                self.lines += 1;
                let asserts = |word: &str| line.matches(word).count();
                self.assertions += asserts("invariant!(") + asserts("impossible!(");
                if is_unexplained(before, line) {
                    self.unexplained.push(format!("{name}:{}", number + 1));
                }
            }
            before = line;
        }
    }
}

fn is_comment(line: &str) -> bool {
    line.starts_with("//")
}

/// Whether a line, after the one before, ends a function with nothing, and without a word.
fn is_unexplained(before: &str, line: &str) -> bool {
    let (code, comment) = line.split_once("//").unwrap_or((line, ""));
    let is_bare = code.match_indices("return").any(|(at, word)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        let is_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        is_word && after.trim_start().starts_with([';', ',', '}', ')'])
    });
    is_bare && comment.trim().is_empty() && !is_comment(before)
}

/// The sources below a directory, without files of tests alone; or the file itself.
fn sources(of: &Path) -> Vec<PathBuf> {
    if of.is_file() {
        return vec![of.to_owned()];
    }
    let mut out = Vec::new();
    for entry in fs::read_dir(of).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if stem == "tests" {
            continue;
        }
        if path.is_dir() {
            out.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    out.sort();
    out
}

fn look_at(directory: &str) -> Found {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Found::default();
    for path in sources(&crates.join(directory)) {
        let name = path.strip_prefix(crates).unwrap().display().to_string();
        found.look_at(&name, &fs::read_to_string(&path).unwrap());
    }
    assert!(found.lines > 100, "{directory} is not where it was");
    found
}

#[test]
fn whoever_returns_with_nothing_says_why() {
    for (directory, known) in UNEXPLAINED {
        let found = look_at(directory).unexplained;
        assert!(
            found.len() <= known,
            "{} bare returns without a word in {directory}, where {known} are known: {found:#?}",
            found.len()
        );
        assert!(
            found.len() == known,
            "{} bare returns without a word are left in {directory}: lower the number in this test from {known}",
            found.len()
        );
    }
}

#[test]
fn parts_that_hold_data_check_their_state() {
    for (directory, least) in CHECKED {
        let Found {
            lines, assertions, ..
        } = look_at(directory);
        assert!(
            assertions * 1000 >= least * lines,
            "{assertions} assertions in {lines} lines of {directory}: fewer than {least} for 1,000"
        );
    }
}

#[test]
fn a_comment_is_at_the_end_of_the_line_or_in_the_one_before() {
    for (before, line, expected) in [
        ("if old {", "return;", true),
        ("if old {", "return; // It is old.", false),
        ("if old {", "return; //", true),
        ("// It is old.", "return;", false),
        ("", "let Some(x) = x else { return };", true),
        ("", "let Some(x) = x else { return; };", true),
        ("", "None => return,", true),
        ("", "_ if old => return, // It is old.", false),
        ("", "let x = x.unwrap_or_else(|| return);", true),
        ("", "return Ok(());", false),
        ("", "_ => return self.send(reply),", false),
        ("", "return self.send(reply);", false),
        ("", "self.no_return;", false),
    ] {
        assert_eq!(is_unexplained(before, line), expected, "{before:?} {line:?}");
    }
    let mut found = Found::default();
    found.look_at(
        "a.rs",
        "fn f() {\n    invariant!(true, \"it\");\n    return;\n}\n// return;\n#[cfg(test)]\nmod tests {\n    fn g() {\n        return;\n    }\n}\n",
    );
    assert_eq!((found.lines, found.assertions), (5, 1));
    assert_eq!(found.unexplained, ["a.rs:3"]);
}
