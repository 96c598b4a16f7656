//! The files of a PG use each other in one direction: no file uses an item of a file that uses,
//! directly or through others, one of its own. Data uses data, and handlers use data.
//!
//! A file uses the items that it imports, and those that it names by a path. Calls of methods, and
//! tests, don't count.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names from `pg` down; empty for `pg` itself.
type Names = Vec<String>;

/// A file, which is a module.
struct File {
    /// The items in it.
    items: BTreeSet<String>,
    /// What it imports, each with its name here.
    imports: Vec<(Names, String)>,
    /// Paths that it writes out.
    paths: Vec<Names>,
}

/// Where a path leads to.
enum Place {
    Module(Names),
    ItemOf(Names),
}

type Files = BTreeMap<Names, File>;

fn names(path: &str) -> Names {
    path.split("::").map(|n| n.trim().to_owned()).collect()
}

/// Adds what an import like `a::{b, c::{d as e}}` names.
fn import(before: &[String], text: &str, out: &mut Vec<(Names, String)>) {
    let text = text.trim();
    let Some((head, rest)) = text.split_once('{') else {
        if !text.is_empty() {
            let (path, alias) = text.split_once(" as ").unwrap_or((text, ""));
            let mut path = [before, &names(path)].concat();
            path.pop_if(|last| last == "self");
            let alias = if alias.is_empty() {
                path.last().unwrap()
            } else {
                alias
            };
            out.push((path.clone(), alias.to_owned()));
        }
        return;
    };
    let before = [before, &names(head.trim_end().trim_end_matches("::"))].concat();
    let (mut depth, mut from) = (0, 0);
    let inner = &rest[..rest.rfind('}').unwrap()];
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                import(&before, &inner[from..at], out);
                from = at + 1;
            }
            _ => {}
        }
    }
    import(&before, &inner[from..], out);
}

impl File {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = code.lines().map(|l| l.split("//").next().unwrap());
        let (mut items, mut imports, mut paths) = (BTreeSet::new(), Vec::new(), Vec::new());
        let mut unfinished = String::new();
        for line in lines {
            let item = line.split_once(") ").filter(|(v, _)| v.starts_with("pub("));
            let item = item.map_or(line, |(_, item)| item);
            let item = item.strip_prefix("pub ").unwrap_or(item);
            if !unfinished.is_empty() || item.starts_with("use ") {
                unfinished.push_str(item);
                if let Some(all) = unfinished.strip_suffix(';') {
                    import(&[], all.strip_prefix("use ").unwrap(), &mut imports);
                    unfinished.clear();
                }
                continue;
            }
            let words: Vec<&str> = item.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            if let [
                "struct" | "enum" | "trait" | "fn" | "const" | "static" | "type",
                name,
                ..,
            ] = words[..]
            {
                items.insert(name.to_owned());
            }
            let written = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let written = written.map(|p| p.trim_matches(':')).filter(|p| p.contains("::"));
            paths.extend(written.map(names));
        }
        Self {
            items,
            imports,
            paths,
        }
    }
}

fn read(dir: &Path, at: &Names, out: &mut Files) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let below = [at.as_slice(), &[name]].concat();
        match (path.is_dir(), path.ends_with("mod.rs")) {
            (true, _) => read(&path, &below, out),
            (false, true) => drop(out.insert(at.clone(), File::read(&path))),
            (false, false) => drop(out.insert(below, File::read(&path))),
        }
    }
}

/// A path as from `pg`, if it leads there.
fn absolute(files: &Files, at: &Names, path: &[String]) -> Option<Names> {
    let supers = path.iter().take_while(|n| *n == "super").count();
    match path.first()?.as_str() {
        "crate" => (path.get(1)? == "pg").then(|| path[2..].to_vec()),
        "super" => Some([at.get(..at.len().checked_sub(supers)?)?, &path[supers..]].concat()),
        "self" => Some([at, &path[1..]].concat()),
        child => {
            let below = [at.as_slice(), &[child.to_owned()]].concat();
            files.contains_key(&below).then(|| [at, path].concat())
        }
    }
}

fn resolve(files: &Files, path: &[String]) -> Option<Place> {
    if files.contains_key(path) {
        return Some(Place::Module(path.to_vec()));
    }
    let at = (0..path.len()).rev().find(|n| files.contains_key(&path[..*n]))?;
    let (module, name) = (path[..at].to_vec(), &path[at]);
    let file = &files[&module];
    if name == "*" || file.items.contains(name) {
        return Some(Place::ItemOf(module));
    }
    // It is passed on from another one.
    let (from, _) = file.imports.iter().find(|(_, alias)| alias == name)?;
    let from = absolute(files, &module, from)?;
    resolve(files, &[&from, &path[at + 1..]].concat())
}

/// The files in which that stands which this one names.
fn named(files: &Files, at: &Names) -> BTreeSet<Names> {
    let (file, mut modules, mut out) = (&files[at], BTreeMap::new(), BTreeSet::new());
    for (path, alias) in &file.imports {
        match absolute(files, at, path).and_then(|p| resolve(files, &p)) {
            Some(Place::Module(m)) => drop(modules.insert(alias.clone(), m)),
            Some(Place::ItemOf(m)) => drop(out.insert(m)),
            None => {}
        }
    }
    for path in &file.paths {
        let path = match modules.get(&path[0]) {
            Some(module) => Some([module, &path[1..]].concat()),
            None => absolute(files, at, path),
        };
        let path = path.unwrap_or_default();
        let places = (1..=path.len()).rev().map(|n| resolve(files, &path[..n]));
        let item = places.flatten().find_map(|p| match p {
            Place::ItemOf(m) => Some(m),
            Place::Module(_) => None,
        });
        out.extend(item);
    }
    out.remove(at);
    out
}

#[test]
fn no_files_of_a_pg_stand_in_a_circle() {
    let mut files = Files::new();
    let pg = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pg");
    read(&pg, &Names::new(), &mut files);
    let mut edges: BTreeMap<Names, BTreeSet<Names>> =
        files.keys().map(|f| (f.clone(), named(&files, f))).collect();
    let count = edges.values().map(BTreeSet::len).sum::<usize>();
    assert!(
        files.len() > 100 && count > 600,
        "{} files, {count} edges",
        files.len()
    );
    // A file that uses none of the remaining files, or is used by none, is in no circle.
    loop {
        let used: BTreeSet<Names> = edges.values().flatten().cloned().collect();
        let before = edges.len();
        edges.retain(|f, named| !named.is_empty() && used.contains(f));
        let left: BTreeSet<Names> = edges.keys().cloned().collect();
        edges
            .values_mut()
            .for_each(|named| named.retain(|f| left.contains(f)));
        if edges.len() == before {
            break;
        }
    }
    let circles: Vec<String> = edges
        .iter()
        .map(|(f, named)| {
            let named: Vec<String> = named.iter().map(|f| f.join("/")).collect();
            format!("{} names {}", f.join("/"), named.join(", "))
        })
        .collect();
    assert!(circles.is_empty(), "{circles:#?}");
}
