//! Limits on the size of parts: methods and fields of the types of some crates are counted, so that
//! no part grows until nobody knows what it may touch.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The crates that are made of such parts, with a type of each that has many methods.
const CRATES: [(&str, &str); 3] = [("osd", "Osd"), ("rbd", "Operating"), ("mon", "Monitor")];
/// The most methods of its own that a type may have, in all files together.
const METHODS: usize = 60;
/// The most fields that a type may have, unless it is a [`RECORDS`].
const FIELDS: usize = 15;
/// Types that are larger: their crate, and the methods and fields that they have. The numbers follow
/// them down, never up.
const LARGE: [(&str, &str, Size); 3] = [
    ("mon", "View", Size::new(95, 18)),
    ("mon", "Monitor", Size::new(89, 12)),
    ("mon", "Hub", Size::new(56, 16)),
];
/// Types that only say something, all at once: settings.
const RECORDS: [&str; 1] = ["PgConfig"];
/// Types that only pass calls on to parts: the public face of a library has a method for each thing
/// that the library does.
const DOORS: [&str; 1] = ["Image"];

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Only for tests.
            if !path.ends_with("src/sim") {
                files(&path, out);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// The name of the type of an `impl` block that begins in this line, if it has methods of the
/// type's own.
fn type_of_impl(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generics) => generics.split_once("> ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    let is_own = !rest.contains(" for ");
    let end = rest.find(|c: char| !c.is_alphanumeric());
    is_own.then(|| &rest[..end.unwrap_or(rest.len())])
}

/// The name of a struct that begins in this line.
fn type_of_struct(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("struct ")?;
    let is_here = before.is_empty() || before.starts_with("pub");
    let end = rest.find(|c: char| !c.is_alphanumeric())?;
    (is_here && line.ends_with('{')).then(|| &rest[..end])
}

/// The rest of a line within a block, without a visibility.
fn item(line: &str) -> Option<&str> {
    let line = line.strip_prefix("    ")?;
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    line.starts_with(|c: char| c.is_alphabetic()).then_some(line)
}

/// The numbers of a type's methods and fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    methods: usize,
    fields: usize,
}

impl Size {
    const fn new(methods: usize, fields: usize) -> Self {
        Self { methods, fields }
    }
}

/// The sizes of a crate's types. Of types of the same name the fields of the largest count, and all
/// methods.
fn measure(sources: &Path) -> BTreeMap<String, Size> {
    let mut all = Vec::new();
    files(sources, &mut all);
    let mut sizes = BTreeMap::<String, Size>::new();
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let (mut block, mut record, mut fields) = (None, None, 0);
        for line in code.lines() {
            if let Some(name) = type_of_impl(line) {
                block = Some(name);
            } else if let Some(name) = type_of_struct(line) {
                (record, fields) = (Some(name), 0);
            } else if line == "}" {
                if let Some(name) = record {
                    let size = sizes.entry(name.to_owned()).or_default();
                    size.fields = size.fields.max(fields);
                }
                (block, record) = (None, None);
            } else if let Some(item) = item(line) {
                let is_method = ["fn ", "const fn ", "async fn ", "unsafe fn "]
                    .iter()
                    .any(|f| item.starts_with(f));
                if let Some(name) = block.filter(|_| is_method) {
                    sizes.entry(name.to_owned()).or_default().methods += 1;
                }
                fields += usize::from(record.is_some());
            }
        }
    }
    sizes
}

/// What is wrong with the size of a type, if anything is.
fn complaint(of: &str, name: &str, size: Size) -> Option<String> {
    if let Some((.., known)) = LARGE.iter().find(|(c, n, _)| (*c, *n) == (of, name)) {
        return (size != *known).then(|| format!("{of}: {name} has {size:?}, not {known:?}"));
    }
    let has_methods = size.methods > METHODS && !DOORS.contains(&name);
    let has_fields = size.fields > FIELDS && !RECORDS.contains(&name);
    (has_methods || has_fields).then(|| format!("{of}: {name} is too large: {size:?}"))
}

#[test]
fn types_keep_to_their_number_of_methods_and_fields() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut complaints = Vec::new();
    for (of, known) in CRATES {
        let sizes = measure(&crates.join(of).join("src"));
        assert!(sizes.len() > 40 && sizes[known].methods > 10, "{sizes:?}");
        complaints.extend(sizes.iter().filter_map(|(name, size)| complaint(of, name, *size)));
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}
