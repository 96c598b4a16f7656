//! The names of what images can do.

use spirula_rbd::features;

/// Features by name.
const NAMES: [(u64, &str); 12] = [
    (features::LAYERING, "layering"),
    (features::STRIPINGV2, "striping"),
    (features::EXCLUSIVE_LOCK, "exclusive-lock"),
    (features::OBJECT_MAP, "object-map"),
    (features::FAST_DIFF, "fast-diff"),
    (features::DEEP_FLATTEN, "deep-flatten"),
    (features::JOURNALING, "journaling"),
    (features::DATA_POOL, "data-pool"),
    (features::OPERATIONS, "operations"),
    (features::MIGRATING, "migrating"),
    (features::NON_PRIMARY, "non-primary"),
    (features::DIRTY_CACHE, "dirty-cache"),
];

/// Features of operations.
const OPERATIONS: [(u64, &str); 4] = [
    (features::CLONE_PARENT, "clone-parent"),
    (features::CLONE_CHILD, "clone-child"),
    (features::GROUP, "group"),
    (features::SNAP_TRASH, "snap-trash"),
];

/// Flags of the object map.
const FLAGS: [(u64, &str); 2] = [(1, "object map invalid"), (2, "fast diff invalid")];

fn among(names: &[(u64, &'static str)], bits: u64) -> Vec<&'static str> {
    let set = names.iter().filter(|(bit, _)| bits & bit != 0);
    set.map(|(_, name)| *name).collect()
}

/// The names of features.
pub(super) fn names(bits: u64) -> Vec<&'static str> {
    among(&NAMES, bits)
}

/// The names of features of operations.
pub(super) fn operation_names(bits: u64) -> Vec<&'static str> {
    among(&OPERATIONS, bits)
}

/// The names of flags.
pub(super) fn flag_names(bits: u64) -> Vec<&'static str> {
    among(&FLAGS, bits)
}

/// Features that are named, with commas between them, or given as a number.
pub(super) fn parse(texts: &[String]) -> Option<u64> {
    let mut bits = 0;
    for name in texts.iter().flat_map(|t| t.split(',')) {
        let known = NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit);
        bits |= known.or_else(|| name.parse().ok())?;
    }
    Some(bits)
}
