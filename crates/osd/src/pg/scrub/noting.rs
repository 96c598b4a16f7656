//! The digests that a deep scrub has found of objects whose infos lack them: they are noted in the
//! infos of all copies, so that the next scrub can tell which copy is wrong if some differ.

pub(in crate::pg) mod handler;

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_maps::EVersion;

use crate::pg::object::ObjectInfo;

/// The most infos of an object and its clones that are changed at once. A later scrub notes the rest.
pub(super) const MOST_INFOS: usize = 64;
/// How long a scrub waits for objects that are in use. What it could not note is left to a later one.
const PATIENCE: Micros = Micros::from_secs(10);

/// Digests that are to be noted, or are on their way to the members.
#[derive(Debug, Default)]
pub(in crate::pg) struct Noting {
    /// By the keys of heads.
    notes: BTreeMap<Bytes, Note>,
    /// The version of the last note.
    last: EVersion,
    /// When the first of those that are under way was made; `None` if none is.
    began: Option<Micros>,
}

/// The digests of an object and its clones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    /// The version of the head, as the members have read it.
    pub(super) version: EVersion,
    /// The infos as they are to be, by key: of those that lack digests.
    pub(super) infos: BTreeMap<Bytes, ObjectInfo>,
}

impl Noting {
    /// Adds what is to be noted of the object with this head.
    pub(super) fn add(&mut self, head: Bytes, note: Note, usec: Micros) {
        self.began.get_or_insert(usec);
        self.notes.insert(head, note);
    }

    /// What is to be noted of an object.
    pub(super) fn find(&self, head: &Bytes) -> Option<&Note> {
        self.notes.get(head)
    }

    /// Takes what is to be noted of an object.
    pub(super) fn take(&mut self, head: &Bytes) -> Option<Note> {
        self.notes.remove(head)
    }

    /// Notes the version of the change by which something is noted.
    pub(super) fn note_sent(&mut self, version: EVersion) {
        self.last = version;
    }

    /// Once all of it is durable, as everything up to `committed` is, the time since it began. `None`
    /// if nothing is under way; `Some(None)` if something still is.
    pub(super) fn took(&mut self, committed: EVersion, usec: Micros) -> Option<Option<Micros>> {
        let took = usec.saturating_sub(self.began?);
        if took > PATIENCE {
            self.notes.clear();
        }
        if !self.notes.is_empty() || self.last > committed {
            return Some(None);
        }
        self.began = None;
        Some(Some(took))
    }
}

#[cfg(test)]
mod tests {
    use spirula_maps::Epoch;

    use super::*;

    #[test]
    fn it_is_under_way_until_all_is_durable_but_waits_for_no_object_for_ever() {
        let version = |n| EVersion::new(Epoch::new(1), n);
        let (mut noting, note) = (
            Noting::default(),
            Note {
                version: version(1),
                infos: BTreeMap::new(),
            },
        );
        let secs = Micros::from_secs;
        assert_eq!(noting.took(version(0), secs(1)), None);
        let keys = [b"a", b"b"].map(|k| Bytes::from_static(k));
        for key in &keys {
            noting.add(key.clone(), note.clone(), secs(1));
        }
        assert_eq!(noting.take(&keys[0]), Some(note));
        noting.note_sent(version(7));
        assert_eq!(noting.took(version(7), secs(2)), Some(None));
        // The other object is in use.
        assert_eq!(noting.took(version(6), secs(12)), Some(None));
        assert_eq!(noting.took(version(7), secs(13)), Some(Some(secs(12))));
        assert_eq!(noting.took(version(7), secs(13)), None);
    }
}
