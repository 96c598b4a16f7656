//! The lock file of the fuzz targets (`fuzz/Cargo.lock`): a build of the workspace does not touch
//! it, and a build of the targets is refused where it is stale.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Names = BTreeSet<String>;

/// The packages of a lock file with those that they depend on.
fn locked(lock: &str) -> BTreeMap<String, Names> {
    let package = |text: &str| {
        let name = text.lines().find_map(|l| l.strip_prefix("name = "))?;
        let used = text.lines().filter_map(|l| l.strip_prefix(" \""));
        let used = used.filter_map(|l| l.split([' ', '"']).next());
        let used = used.map(str::to_owned).collect();
        Some((name.trim_matches('"').to_owned(), used))
    };
    lock.split("[[package]]").filter_map(package).collect()
}

/// What a manifest depends on.
fn wanted(manifest: &str) -> Names {
    let lines = manifest.lines().skip_while(|l| *l != "[dependencies]").skip(1);
    let lines = lines.take_while(|l| !l.starts_with('['));
    lines
        .filter_map(|l| l.split_once(" = "))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn the_lock_file_of_the_targets_has_what_the_crates_depend_on() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lock = locked(&fs::read_to_string(root.join("fuzz/Cargo.lock")).unwrap());
    let mut seen = 0;
    let mut to_see = vec!["fuzzing".to_owned()];
    let mut known = Names::from(["fuzzing".to_owned()]);
    while let Some(name) = to_see.pop() {
        let manifest = root.join("crates").join(&name).join("Cargo.toml");
        let wanted = wanted(&fs::read_to_string(&manifest).unwrap());
        let has = lock.get(&format!("spirula-{name}")).cloned().unwrap_or_default();
        // A crate for one platform or feature may be locked besides.
        assert!(
            has.is_superset(&wanted),
            "run `cargo update --workspace` in fuzz/: {name} lacks {:?}",
            wanted.difference(&has).collect::<Vec<_>>()
        );
        let ours = wanted.iter().filter_map(|n| n.strip_prefix("spirula-"));
        to_see.extend(ours.map(str::to_owned).filter(|n| known.insert(n.clone())));
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}
