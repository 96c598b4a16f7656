//! Checks that the documents' links lead to files, and that the functions and tests in their tables
//! of invariants exist.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Lines of prose are no longer than this, in characters.
const WIDTH: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Adds the files below `dir` whose names end with `end`, except build output and hidden ones.
fn files(dir: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" {
                files(&path, end, found);
            }
        } else if name.ends_with(end) {
            found.push(path);
        }
    }
}

fn below(end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), end, &mut found);
    assert!(!found.is_empty());
    found
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(n, line)| {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            return None;
        }
        (!is_code && !line.starts_with("    ")).then_some((n + 1, line))
    })
}

/// The target of a definition: `[name]: target`.
fn definition(line: &str) -> Option<&str> {
    let (name, target) = line.strip_prefix('[')?.split_once("]: ")?;
    (!name.contains(']')).then_some(target.trim())
}

/// The targets of a line's links: `[text](target)`, or a definition.
fn links(line: &str) -> Vec<&str> {
    let inline = line
        .split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0));
    inline.chain(definition(line)).collect()
}

/// The texts in backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn links_lead_to_files_that_are_there() {
    let (mut checked, mut dead) = (0, Vec::new());
    for document in below(".md") {
        let text = std::fs::read_to_string(&document).unwrap();
        for (n, line) in prose(&text) {
            for link in links(line) {
                let path = link.split('#').next().unwrap();
                if path.is_empty() || path.contains("://") {
                    continue;
                }
                checked += 1;
                if !document.parent().unwrap().join(path).exists() {
                    dead.push(format!("{}:{n}: {link}", document.display()));
                }
            }
        }
    }
    assert!(checked > 300, "only {checked} links were found");
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn functions_and_tests_that_design_pages_name_exist() {
    let mut known = BTreeSet::new();
    for source in below(".rs") {
        let text = std::fs::read_to_string(source).unwrap();
        for declared in text.split("fn ").skip(1) {
            let end = declared.find(|c: char| !c.is_alphanumeric() && c != '_');
            known.insert(declared[..end.unwrap_or(declared.len())].to_owned());
        }
    }
    let (mut checked, mut missing) = (0, Vec::new());
    let pages = below(".md")
        .into_iter()
        .filter(|p| p.parent().is_some_and(|dir| dir.ends_with("docs/design")));
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let rows = prose(&text).filter(|(_, line)| line.starts_with('|'));
        for (n, row) in rows {
            for word in quoted(row) {
                let name = word.rsplit("::").next().unwrap();
                // Of other words with underscores, as options have, none is as long as the names of
                // tests.
                let is_name = name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
                if !is_name
                    || name.matches('_').count() < 3
                    || name.starts_with("osd_")
                    || name.starts_with("mon_")
                {
                    continue;
                }
                checked += 1;
                if !known.contains(name) {
                    missing.push(format!("{}:{n}: {name}", page.display()));
                }
            }
        }
    }
    assert!(checked > 60, "only {checked} names were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn lines_of_prose_are_not_too_long() {
    let mut long = Vec::new();
    for document in below(".md") {
        let text = std::fs::read_to_string(&document).unwrap();
        for (n, line) in prose(&text) {
            let may_be = line.starts_with('|') || definition(line).is_some() || line.contains("://");
            if !may_be && line.chars().count() > WIDTH {
                long.push(format!("{}:{n}", document.display()));
            }
        }
    }
    assert!(
        long.is_empty(),
        "more than {WIDTH} characters: {}",
        long.join(", ")
    );
}
