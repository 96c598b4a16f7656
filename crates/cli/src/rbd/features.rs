//! The names of image features, and `rbd feature`.

use spirula_rbd::{JournalOptions, Options, features};

use super::{Done, Tool, bad, close, complain, failed, invalid, size};
use crate::rbd::Exit;

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

/// Parses features: names separated by commas, or a number.
pub(super) fn parse(texts: &[String]) -> Option<u64> {
    let mut bits = 0;
    for name in texts.iter().flat_map(|t| t.split(',')) {
        let known = NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit);
        bits |= known.or_else(|| name.parse().ok())?;
    }
    Some(bits)
}

/// Allowed sizes of a journal's objects, as powers of two.
const JOURNAL_ORDERS: std::ops::RangeInclusive<u8> = 12..=26;

impl Tool {
    /// The options of a new journal.
    pub(super) fn journal_options(&self) -> Result<JournalOptions, Exit> {
        let (args, usual) = (&self.args, JournalOptions::default());
        if args.journal_splay_width == Some(0) {
            return Err(invalid("journal-splay-width"));
        }
        let order = match &args.journal_object_size {
            None => usual.order,
            Some(text) => {
                let bytes = size("journal-object-size", text, 1)?.checked_next_power_of_two();
                let order = bytes.and_then(|b| u8::try_from(b.trailing_zeros()).ok());
                let order = order.filter(|o| JOURNAL_ORDERS.contains(o));
                order.ok_or_else(|| invalid("journal-object-size"))?
            }
        };
        Ok(JournalOptions {
            order,
            splay_width: args.journal_splay_width.unwrap_or(usual.splay_width),
            pool: args.journal_pool.clone(),
        })
    }

    pub(super) async fn feature_update(&self, enable: bool) -> Done {
        let (target, rest) = self.image().await?;
        let target = target.without_snap()?;
        if rest.is_empty() {
            return Err(bad("at least one feature name must be specified"));
        }
        let wanted =
            parse(rest).ok_or_else(|| complain(Exit::USAGE, "the argument for option is invalid"))?;
        let options = self.journal_options()?;
        let image = target.open(Options::default()).await?;
        let updated = image.update_features(wanted, enable, &options).await;
        close(
            image,
            updated.map_err(|e| failed("failed to update image features", &e)),
        )
        .await
    }
}
