//! What damaged pages of the index mean.

use std::fmt::{self, Display};

use redb::{ReadableDatabase, TableHandle};

use super::file::Rotten;
use super::tree::{self, Place, Tree};
use super::{Index, OBJECTS, PAIRS};
use crate::apply::META;
use crate::{ObjectKey, Result, StoreError};

/// How often damage is judged again because the index was opened anew meanwhile.
const TRIES: u32 = 8;

/// A damaged page of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexPage(pub(crate) Rotten);

impl IndexPage {
    /// Its number in the index file.
    pub fn number(&self) -> u64 {
        self.0.page
    }
}

/// What damaged pages of the index mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexDamage {
    /// Pages that nothing refers to: they are forgotten.
    pub unused: usize,
    /// Pages with entries of objects, or with omap pairs, and nothing else: what is in them can be
    /// given up, and nothing else is lost.
    pub leaves: Vec<u64>,
    /// What lay there, in words.
    pub lost: Vec<String>,
    /// Damage in what all depends on, in words. If there is any, the store is ruined, although it
    /// may go on for a while.
    pub ruins: Vec<String>,
}

impl IndexDamage {
    /// Whether nothing is lost.
    pub fn is_harmless(&self) -> bool {
        self.leaves.is_empty() && self.ruins.is_empty()
    }
}

impl Index {
    /// Tells what damaged pages mean, and forgets those that nothing refers to.
    pub(crate) fn judge(&self, pages: &[IndexPage]) -> Result<IndexDamage> {
        let mut rotten: Vec<Rotten> = pages.iter().map(|p| p.0).collect();
        rotten.sort_unstable_by_key(|r| r.page);
        let places = self.places(&rotten)?;
        let is_used = |r: &Rotten| places.iter().any(|p| p.extent.contains(&r.page));
        let (used, unused): (Vec<Rotten>, Vec<Rotten>) = rotten.into_iter().partition(is_used);
        self.file.forget(&unused);
        let mut damage = IndexDamage {
            unused: unused.len(),
            ..IndexDamage::default()
        };
        // Such a leaf can't be written any more, whatever is in it.
        if let Some(r) = used.iter().chain(&unused).find(|r| r.crc == 0) {
            damage
                .ruins
                .push(format!("page {} and others around it have no checksum", r.page));
        }
        for place in &places {
            match Kind::of(place) {
                Kind::Objects | Kind::Pairs => {
                    damage.leaves.extend(place.extent.clone());
                    damage.lost.push(describe(place));
                }
                Kind::Vital => damage.ruins.push(describe(place)),
            }
        }
        Ok(damage)
    }

    /// The places of damaged pages in the trees of one commit.
    pub(super) fn places(&self, rotten: &[Rotten]) -> Result<Vec<Place>> {
        let is_damaged = |extent: &std::ops::Range<u64>| {
            let at = rotten.partition_point(|r| r.page < extent.start);
            rotten.get(at).is_some_and(|r| extent.contains(&r.page))
        };
        for _ in 0..TRIES {
            let times = self.library.times();
            // As long as it lives, no page of the present trees is used again.
            let pin = self.library.with(|db| Ok(db.begin_read()?))?;
            let found = tree::find(&self.file, is_damaged);
            drop(pin);
            if times == self.library.times() {
                return found;
            }
        }
        Err(StoreError::damaged("index", "too much to be judged"))
    }
}

/// The kind of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A leaf with entries of objects.
    Objects,
    /// A leaf with omap pairs alone.
    Pairs,
    /// Anything else.
    Vital,
}

impl Kind {
    pub(super) fn of(place: &Place) -> Self {
        match &place.tree {
            Tree::Table(name) if place.is_leaf && name == OBJECTS.name() => Self::Objects,
            Tree::Table(name) if place.is_leaf && name == PAIRS.name() => {
                // The greatest keys are those of omaps. A bound may be shorter than any key.
                let lower = place.keys.0.as_ref().and_then(|key| key.first());
                match lower.is_some_and(|first| *first > META) {
                    true => Self::Pairs,
                    false => Self::Vital,
                }
            }
            _ => Self::Vital,
        }
    }
}

pub(super) fn describe(place: &Place) -> String {
    let pages = &place.extent;
    let what = match (&place.tree, place.is_leaf) {
        (Tree::Table(name), true) => format!("entries of '{name}'"),
        (Tree::Table(name), false) => format!("a part of '{name}'"),
        (Tree::Library, _) => "what the library keeps for itself".to_owned(),
    };
    let count = pages.end - pages.start;
    match &place.tree {
        Tree::Table(name) if name == OBJECTS.name() => {
            let key = |key: &Option<Vec<u8>>, none: &str| match key {
                Some(key) => ObjectKey::new(key).to_string(),
                None => none.to_owned(),
            };
            let (from, to) = (key(&place.keys.0, "the first"), key(&place.keys.1, "the last"));
            format!("page {}+{count}: {what}, after {from} up to {to}", pages.start)
        }
        _ => format!("page {}+{count}: {what}", pages.start),
    }
}

impl Display for IndexDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = self.ruins.iter().chain(&self.lost);
        match all.next() {
            Some(first) => f.write_str(first)?,
            None => return write!(f, "{} pages that nothing needs", self.unused),
        }
        all.try_for_each(|text| write!(f, "; {text}"))
    }
}
