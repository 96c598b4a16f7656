//! The commit position of a journal: all entries up to it are applied to the image.

use std::collections::BTreeMap;

use spirula_classes::journal::{ObjectPosition, ObjectSetPosition};

/// The appended entries, and which of them are applied.
pub(super) struct Commits {
    width: u64,
    next: u64,
    /// Entries behind the position in the order of appending, and whether each is applied.
    pending: BTreeMap<u64, (ObjectPosition, bool)>,
    position: ObjectSetPosition,
    /// The header has an older position.
    changed: bool,
}

impl Commits {
    /// Goes on from a position. Entries are spread over `width` objects.
    pub(super) fn new(width: u64, position: ObjectSetPosition) -> Self {
        Self {
            width,
            next: 0,
            pending: BTreeMap::new(),
            position,
            changed: false,
        }
    }

    /// Adds the next appended entry. Returns its number among the pending ones.
    pub(super) fn begin(&mut self, entry: ObjectPosition) -> u64 {
        let number = self.next;
        self.next += 1;
        self.pending.insert(number, (entry, false));
        number
    }

    /// Marks entries as applied. Returns whether the position has moved.
    pub(super) fn done(&mut self, entries: &[u64]) -> bool {
        for number in entries {
            if let Some((_, is_done)) = self.pending.get_mut(number) {
                *is_done = true;
            }
        }
        let mut moved = false;
        while let Some(first) = self.pending.first_entry().filter(|first| first.get().1) {
            let (entry, _) = first.remove();
            let width = self.width;
            let positions = &mut self.position.positions;
            // Of each object of a set there is the last entry, and the last of all stands first.
            positions.retain(|p| p.object_number % width != entry.object_number % width);
            positions.insert(0, entry);
            moved = true;
        }
        self.changed |= moved;
        moved
    }

    /// The last entry up to which all are applied.
    pub(super) fn last(&self) -> Option<&ObjectPosition> {
        self.position.positions.first()
    }

    /// The position, if the header still has an older one.
    pub(super) fn take_changed(&mut self) -> Option<ObjectSetPosition> {
        std::mem::take(&mut self.changed).then(|| self.position.clone())
    }

    /// Notes that the header could not be given the position.
    pub(super) fn set_changed(&mut self) {
        self.changed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> ObjectPosition {
        ObjectPosition {
            object_number: number % 4,
            tag_tid: 1,
            entry_tid: number,
        }
    }

    #[test]
    fn the_position_stays_before_the_first_that_is_not_done() {
        let mut commits = Commits::new(4, ObjectSetPosition::default());
        let entries: Vec<u64> = (0..6).map(|n| commits.begin(entry(n))).collect();
        assert!(!commits.done(&entries[1..5]));
        assert_eq!(commits.take_changed(), None);
        assert!(commits.done(&entries[..1]));
        let positions = |numbers: [u64; 4]| ObjectSetPosition {
            positions: numbers.into_iter().map(entry).collect(),
        };
        assert_eq!(commits.take_changed(), Some(positions([4, 3, 2, 1])));
        assert_eq!(commits.take_changed(), None);
        assert!(commits.done(&entries[5..]));
        assert!(!commits.done(&entries));
        assert_eq!(commits.take_changed(), Some(positions([5, 4, 3, 2])));
    }
}
