//! Checks that the documents' links and paths lead to files, and that the names in their tables of
//! invariants exist.

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

/// The directories that git ignores: build output, and data of clusters.
fn ignored() -> Vec<PathBuf> {
    let list = std::fs::read_to_string(root().join(".gitignore")).unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix('/'));
    names.map(|name| root().join(name)).collect()
}

/// Adds the files below `dir`, except hidden ones and those in `ignored`.
fn walk(dir: &Path, ignored: &[PathBuf], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let is_hidden = path.file_name().unwrap().to_string_lossy().starts_with('.');
        if is_hidden || ignored.contains(&path) {
            continue;
        }
        if path.is_dir() {
            walk(&path, ignored, found);
        } else {
            found.push(path);
        }
    }
}

fn all() -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(&root(), &ignored(), &mut found);
    found
}

/// The files whose names end with one of `ends`.
fn ending(ends: &[&str]) -> Vec<PathBuf> {
    let mut found = all();
    found.retain(|file| ends.iter().any(|end| file.to_string_lossy().ends_with(end)));
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

/// The identifiers in a text.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// The path that a text in backquotes begins with, if it means a file or directory of this tree: it
/// ends as sources and documents do, or its first part is in one of `bases`.
fn path_in<'a>(text: &'a str, bases: &[&Path]) -> Option<&'a str> {
    let word = text.split(' ').next()?;
    let word = word.strip_prefix("./").unwrap_or(word).trim_end_matches('/');
    let is_plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    if !is_plain || word.starts_with('/') || word.starts_with('.') && !word.contains('/') {
        return None;
    }
    let is_source = [".rs", ".py", ".md"].iter().any(|end| word.ends_with(end));
    let (first, _) = word.split_once('/').unwrap_or((word, ""));
    let begins_here = || bases.iter().any(|base| base.join(first).exists());
    (is_source || text.contains('/') && begins_here()).then_some(word)
}

#[test]
fn links_lead_to_files_that_are_there() {
    let (mut checked, mut dead) = (0, Vec::new());
    for document in ending(&[".md"]) {
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

/// A path in backquotes begins at the root, beside its page, or in a directory that the page links
/// to; or it is the end of one path alone.
#[test]
fn paths_in_backquotes_lead_to_files_that_are_there() {
    let (root, tree, ignored) = (root(), all(), ignored());
    let (mut checked, mut dead) = (0, Vec::new());
    for document in ending(&[".md"]) {
        let text = std::fs::read_to_string(&document).unwrap();
        let beside = document.parent().unwrap();
        let linked: Vec<PathBuf> = prose(&text)
            .flat_map(|(_, line)| links(line))
            .map(|link| beside.join(link))
            .filter(|path| path.is_dir())
            .collect();
        for (n, line) in prose(&text) {
            for word in quoted(line).filter_map(|text| path_in(text, &[&root, beside])) {
                let mut bases = [root.as_path(), beside]
                    .into_iter()
                    .chain(linked.iter().map(PathBuf::as_path));
                if ignored
                    .iter()
                    .any(|dir| root.join(word).starts_with(dir) || beside.join(word).starts_with(dir))
                {
                    continue;
                }
                checked += 1;
                if bases.any(|base| base.join(word).exists()) {
                    continue;
                }
                let ends = tree.iter().filter(|file| file.ends_with(word)).count();
                if ends != 1 {
                    dead.push(format!(
                        "{}:{n}: `{word}` is the end of {ends} paths",
                        document.display()
                    ));
                }
            }
        }
    }
    assert!(checked > 60, "only {checked} paths were found");
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// Tables of invariants say in their second column where an invariant is enforced, and in their
/// third which test breaks without it.
#[test]
fn names_in_tables_of_invariants_exist() {
    let (mut known, mut functions) = (BTreeSet::new(), BTreeSet::new());
    // The names that this test speaks of need not exist.
    let sources = ending(&[".rs", ".py", ".sh"]).into_iter();
    for source in sources.filter(|file| !file.ends_with("cli/tests/documents.rs")) {
        let text = std::fs::read_to_string(source).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            known.extend(identifiers(line).map(str::to_owned));
        }
        for declared in text.split("fn ").skip(1) {
            functions.extend(identifiers(declared).next().map(str::to_owned));
        }
    }
    let (mut checked, mut missing) = (0, Vec::new());
    for page in ending(&[".md"]) {
        let text = std::fs::read_to_string(&page).unwrap();
        let mut is_invariants = false;
        for (n, line) in prose(&text) {
            let cells: Vec<&str> = line.split('|').skip(1).map(str::trim).collect();
            is_invariants &= !cells.is_empty();
            if cells.first() == Some(&"invariant") {
                is_invariants = true;
            }
            if !is_invariants {
                continue;
            }
            for (column, cell) in cells.into_iter().enumerate() {
                for name in quoted(cell)
                    .filter(|text| path_in(text, &[]).is_none())
                    .flat_map(identifiers)
                {
                    let is_test = column == 2
                        && name
                            .chars()
                            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
                    let is_there = match is_test && name.contains('_') {
                        true => functions.contains(name),
                        false => known.contains(name),
                    };
                    checked += 1;
                    if !is_there {
                        missing.push(format!("{}:{n}: {name}", page.display()));
                    }
                }
            }
        }
    }
    assert!(checked > 250, "only {checked} names were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn lines_of_prose_are_not_too_long() {
    let mut long = Vec::new();
    for document in ending(&[".md"]) {
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
