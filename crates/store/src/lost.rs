//! What is lost of a store that was mended, until its owner has acted on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::index::LostRange;
use crate::onode::Onode;
use crate::state::State;
use crate::step::{RangeOf, Step};
use crate::store::Store;
use crate::{ObjectKey, Result};

/// Objects looked at in one go.
const PAGE: usize = 512;

/// A range of objects, as they were before damage was cut out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostObjects {
    /// The objects have greater keys than this one.
    pub after: Option<ObjectKey>,
    /// The objects have no greater keys than this one.
    pub upto: Option<ObjectKey>,
}

/// What is lost of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// Ranges in which there may have been objects that are gone.
    pub ranges: Vec<LostObjects>,
    /// Objects that are there, and are not what they should be: they lack omap pairs, or the last
    /// changes.
    pub torn: Vec<ObjectKey>,
}

/// Lost ranges, and the objects of which the log has changes that can't be made any more.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    ranges: Vec<LostRange>,
    torn: BTreeSet<ObjectKey>,
}

impl Losses {
    pub(crate) fn new(ranges: Vec<LostRange>) -> Self {
        Self {
            ranges,
            torn: BTreeSet::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether an object is not there because it is lost, or because the changes that made it can't
    /// be made.
    fn is_lost(&self, state: &mut State, key: &ObjectKey) -> Result<bool> {
        if self.torn.contains(key) {
            return Ok(true);
        }
        if !self.ranges.iter().any(|r| r.has_object(key.as_slice())) {
            return Ok(false);
        }
        state.ensure_loaded(key)?;
        Ok(state.loaded(key).is_none())
    }

    /// Takes the steps out of a transaction that is replayed which are about lost objects, or need
    /// them: such an object stays as it was before the transaction. Steps about pairs are kept.
    pub(crate) fn sift(&mut self, state: &mut State, steps: Vec<Step>) -> Result<Vec<Step>> {
        if self.is_empty() {
            return Ok(steps);
        }
        loop {
            let before = self.torn.len();
            let mut current = None;
            for step in &steps {
                let needed = match step {
                    Step::Object(key) => {
                        current = Some(key);
                        key
                    }
                    Step::CloneOf { source: key, .. }
                    | Step::MoveOf(key)
                    | Step::RangeOf(RangeOf { source: key, .. }) => key,
                    _ => continue,
                };
                if self.is_lost(state, needed)?
                    && let Some(object) = current
                {
                    self.torn.insert(object.clone());
                }
            }
            if before == self.torn.len() {
                break;
            }
        }
        let mut is_kept = true;
        let keeps = |step: &Step| match step {
            Step::Object(key) => {
                is_kept = !self.torn.contains(key);
                is_kept
            }
            Step::Put { .. } | Step::Delete(_) | Step::DeleteRange { .. } => true,
            _ => is_kept,
        };
        let mut steps = steps;
        steps.retain(keeps);
        Ok(steps)
    }
}

impl Store {
    /// What is lost since the store was mended ([`mend`](crate::mend())), as far as the owner has not
    /// acted on it; `None` if nothing is. To be asked at the start, before anything is changed:
    /// lost objects seem not to exist. Blocks on the device, and may read the whole index.
    ///
    /// # Errors
    /// An index that cannot be read.
    pub fn lost(&mut self) -> Result<Option<Lost>> {
        self.check()?;
        if self.losses.is_empty() {
            return Ok(None);
        }
        let key = |key: &Option<bytes::Bytes>| key.as_deref().map(ObjectKey::new);
        let objects = self.losses.ranges.iter().filter(|r| r.is_of_objects());
        let ranges = objects.map(|r| LostObjects {
            after: key(&r.after),
            upto: key(&r.upto),
        });
        let mut lost = Lost {
            ranges: ranges.collect(),
            torn: self.losses.torn.iter().cloned().collect(),
        };
        if self.losses.ranges.iter().any(|r| !r.is_of_objects()) {
            lost.torn.extend(self.without_pairs()?);
        }
        Ok(Some(lost))
    }

    /// Objects that may lack pairs of their omaps.
    fn without_pairs(&self) -> Result<Vec<ObjectKey>> {
        let (mut found, mut from) = (Vec::new(), Some(ObjectKey::new(&[])));
        while let Some(key) = from {
            let page = self
                .state
                .index
                .list_objects::<Arc<Onode>>(key.as_slice(), None, PAGE)?;
            let listing = self.state.merge_objects(key.as_slice(), None, page, usize::MAX);
            let lacks =
                |onode: &Onode| onode.omap != 0 && self.losses.ranges.iter().any(|r| r.has_omap(onode.omap));
            let objects = listing.objects.iter().filter(|(_, onode)| lacks(onode));
            found.extend(objects.map(|(key, _)| ObjectKey::new(key)));
            from = listing.next;
        }
        Ok(found)
    }

    /// Notes that the owner has acted on what [`Store::lost`] said, and that its changes are durable.
    /// Blocks on the device.
    ///
    /// # Errors
    /// The index or the superblock can't be written: the store has failed.
    pub fn settle_lost(&mut self) -> Result<()> {
        self.check()?;
        if self.losses.is_empty() {
            return Ok(());
        }
        self.losses = Losses::default();
        self.sb.lost = false;
        let settled = self.state.index.settle_lost();
        settled
            .and_then(|()| self.sb.write(&self.ground.io))
            .map_err(|e| self.fail(e))
    }
}
