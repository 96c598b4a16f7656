//! Whether an object's clones are those of which its head knows.
//!
//! What is wrong is told in Ceph's words (`PrimaryLogScrub::scrub_snapshot_metadata`).

use spirula_denc::encode_to_vec;
use spirula_maps::{HObject, IntervalSet, PgId, snap};
use spirula_proto::mon::LogPriority;
use spirula_proto::osd_op_data::{InconsistentSnapSet, ObjectId, SnapSetErrors};

use super::official;
use crate::pg::object::ObjectInfo;
use crate::pg::snaps::set::SnapClone;

/// A head or clone, of which the PG has at least one copy.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) object: HObject,
    /// The info of the copy that counts, or else of the primary's.
    pub(super) info: Info,
    /// If no copy counts, the bytes that the primary's has, and those that it should have.
    pub(super) sizes: Option<(u64, u64)>,
}

/// An object's info, as far as it can be read.
#[derive(Debug, Clone)]
pub(super) enum Info {
    Known(Box<ObjectInfo>),
    Missing,
    /// It can't be decoded: why.
    Corrupted(String),
}

/// What is wrong with the clones of an object.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The number of errors.
    pub(super) count: u32,
    /// The bytes that only clones have which are missing.
    pub(super) missing_bytes: i64,
    /// Lines for the cluster log.
    pub(super) lines: Vec<(LogPriority, String)>,
    /// The objects that do not fit.
    pub(super) entries: Vec<InconsistentSnapSet>,
}

/// A check that is under way.
struct Check<'a> {
    pgid: PgId,
    /// What the scrub is called.
    name: &'a str,
    found: Found,
}

/// What a client calls an object.
pub(super) fn id_of(o: &HObject) -> ObjectId {
    ObjectId {
        name: o.oid.clone(),
        nspace: o.nspace.clone(),
        locator: o.key.clone(),
        snap: o.snap,
    }
}

fn entry(o: &HObject) -> InconsistentSnapSet {
    InconsistentSnapSet {
        object: id_of(o),
        ..InconsistentSnapSet::default()
    }
}

/// Checks an object and its clones: the clones ascend, the head is the last. `name`: what the scrub
/// is called.
pub(super) fn check(pgid: PgId, name: &str, group: &[Member]) -> Found {
    let found = Found::default();
    let mut check = Check { pgid, name, found };
    let (head, clones) = match group.split_last() {
        Some((head, clones)) if head.object.snap == snap::NOSNAP => (Some(head), clones),
        _ => (None, group),
    };
    match head {
        Some(head) => check.head(head, clones),
        None => clones.iter().rev().for_each(|c| check.clone_without_head(c)),
    }
    check.found
}

impl Check<'_> {
    fn error(&mut self, object: &HObject, what: &str) {
        self.found.count += 1;
        let line = format!("{} {} {object} : {what}", self.name, self.pgid);
        self.found.lines.push((LogPriority::ERROR, line));
    }

    /// Checks an object by itself.
    fn object(&mut self, of: &Member, entry: &mut InconsistentSnapSet) {
        match &of.info {
            Info::Known(info) => {
                if let Some((is, should)) = of.sizes.filter(|(is, should)| is != should) {
                    let what = format!(
                        "on disk size ({is}) does not match object info size ({}) adjusted for ondisk to ({should})",
                        info.size
                    );
                    self.error(&of.object, &what);
                    entry.errors.insert(SnapSetErrors::SIZE_MISMATCH);
                }
            }
            Info::Missing => {
                self.error(&of.object, "no '_' attr");
                entry.errors.insert(SnapSetErrors::INFO_MISSING);
            }
            Info::Corrupted(why) => {
                self.error(&of.object, &format!("can't decode '_' attr {why}"));
                entry.errors.insert(SnapSetErrors::INFO_MISSING);
                entry.errors.insert(SnapSetErrors::INFO_CORRUPTED);
            }
        }
    }

    /// Checks a clone that should not be there.
    fn unexpected(&mut self, of: &Member, why: &str) {
        let mut found = entry(&of.object);
        self.object(of, &mut found);
        self.error(&of.object, why);
        found.errors.insert(SnapSetErrors::HEADLESS_CLONE);
        self.found.entries.push(found);
    }

    fn clone_without_head(&mut self, of: &Member) {
        self.unexpected(of, "is an unexpected clone");
    }

    fn head(&mut self, head: &Member, clones: &[Member]) {
        let mut found = entry(&head.object);
        self.object(head, &mut found);
        let Info::Known(info) = &head.info else {
            // The snap set is part of the info.
            self.error(&head.object, "no 'snapset' attr");
            found.errors.insert(SnapSetErrors::SNAPSET_MISSING);
            for clone in clones.iter().rev() {
                self.unexpected(clone, "clone ignored due to missing snapset");
                found.clones.push(clone.object.snap);
                found.errors.insert(SnapSetErrors::EXTRA_CLONES);
            }
            return self.found.entries.push(found);
        };
        let set = &info.snap_set;
        found.ss_bl = encode_to_vec(&official::snap_set(set)).into();
        if set.seq == 0 && !set.clones.is_empty() {
            self.error(&head.object, "snaps.seq not set");
            found.errors.insert(SnapSetErrors::SNAP_ERROR);
        }
        let before = self.found.entries.len();
        // Newest first, both.
        let mut expected = set.clones.iter().rev().peekable();
        for clone in clones.iter().rev() {
            let snap = clone.object.snap;
            while let Some(missing) = expected.next_if(|c| c.id > snap) {
                self.missing(head, missing, &mut found);
            }
            match expected.next_if(|c| c.id == snap) {
                Some(known) => self.known_clone(clone, known),
                None => {
                    self.unexpected(clone, "is an unexpected clone");
                    found.errors.insert(SnapSetErrors::EXTRA_CLONES);
                    found.clones.push(snap);
                }
            }
        }
        for missing in expected {
            self.missing(head, missing, &mut found);
        }
        if !found.missing.is_empty() {
            let (name, pgid, object) = (self.name, self.pgid, &head.object);
            let line = format!(
                "{name} {pgid} {object} : {} missing clone(s)",
                found.missing.len()
            );
            self.found.lines.push((LogPriority::INFO, line));
        }
        if !found.errors.is_empty() || self.found.entries.len() > before {
            self.found.entries.push(found);
        }
    }

    fn missing(&mut self, head: &Member, known: &SnapClone, found: &mut InconsistentSnapSet) {
        let clone = HObject {
            snap: known.id,
            ..head.object.clone()
        };
        self.found.missing_bytes += known.own_bytes();
        self.error(&head.object, &format!("expected clone {clone} {{}} missing"));
        found.errors.insert(SnapSetErrors::CLONE_MISSING);
        found.missing.push(known.id);
    }

    /// Checks a clone of which the head knows.
    fn known_clone(&mut self, of: &Member, known: &SnapClone) {
        let mut found = entry(&of.object);
        self.object(of, &mut found);
        if let Info::Known(info) = &of.info
            && info.size != known.size
        {
            let what = format!("size {} != clone_size {}", info.size, known.size);
            self.error(&of.object, &what);
            found.errors.insert(SnapSetErrors::SIZE_MISMATCH);
        }
        if overlap_len(&known.overlap).is_none_or(|len| len > known.size) {
            self.error(&of.object, "bad interval_set in clone_overlap");
            found.errors.insert(SnapSetErrors::SIZE_MISMATCH);
        }
        if !found.errors.is_empty() {
            self.found.entries.push(found);
        }
    }
}

/// The bytes of all ranges, if they can be counted.
fn overlap_len(overlap: &IntervalSet) -> Option<u64> {
    overlap
        .ranges()
        .try_fold(0u64, |sum, range| sum.checked_add(range.len))
}

#[cfg(test)]
mod tests {
    use spirula_maps::{PoolId, SnapId};

    use super::*;
    use crate::pg::snaps::set::SnapSet;

    fn object(snap: SnapId, size: u64, clones: &[(SnapId, u64)]) -> Member {
        let clone = |(id, size): &(SnapId, u64)| SnapClone {
            id: *id,
            size: *size,
            snaps: vec![*id],
            ..SnapClone::default()
        };
        let snap_set = SnapSet {
            seq: 9,
            clones: clones.iter().map(clone).collect(),
        };
        let info = ObjectInfo {
            size,
            snap_set,
            ..ObjectInfo::default()
        };
        Member {
            object: HObject {
                oid: "obj".into(),
                hash: 0xaabc_5e21,
                pool: 123,
                snap,
                ..HObject::default()
            },
            info: Info::Known(Box::new(info)),
            sizes: None,
        }
    }

    /// The number of errors, the objects that do not fit with their errors, and what is said.
    fn of(group: &[Member]) -> (u32, Vec<(SnapId, String)>, Vec<String>) {
        let found = check(PgId::new(PoolId::new(123), 0), "deep-scrub", group);
        let entries = found.entries.iter();
        (
            found.count,
            entries.map(|e| (e.object.snap, e.errors.to_string())).collect(),
            found.lines.into_iter().map(|(_, line)| line).collect(),
        )
    }

    #[test]
    fn clones_and_heads_are_held_against_each_other() {
        let head = |clones: &[(SnapId, u64)]| object(snap::NOSNAP, 7, clones);
        let (one, two) = (object(1, 5, &[]), object(2, 6, &[]));
        let whole = [one.clone(), two.clone(), head(&[(1, 5), (2, 6)])];
        assert_eq!(of(&whole), (0, vec![], vec![]));
        assert_eq!(of(&[head(&[])]), (0, vec![], vec![]));
        let said = |errors: &[(SnapId, &str)]| -> Vec<(SnapId, String)> {
            errors.iter().map(|(snap, e)| (*snap, (*e).to_owned())).collect()
        };
        let (count, entries, _) = of(&whole[..2]);
        assert_eq!((count, entries), (2, said(&[(2, "headless"), (1, "headless")])));
        let (count, entries, lines) = of(&whole[1..]);
        assert_eq!((count, entries), (1, said(&[(snap::NOSNAP, "clone_missing")])));
        // As OSDs of 16.2.15 say it.
        let lines_of_ceph = [
            "deep-scrub 123.0 123:847a3d55:::obj:head : expected clone 123:847a3d55:::obj:1 {} missing",
            "deep-scrub 123.0 123:847a3d55:::obj:head : 1 missing clone(s)",
        ];
        assert_eq!(lines, lines_of_ceph);
        let (count, entries, _) = of(&[one.clone(), two, head(&[(2, 6)])]);
        let wrong = said(&[(1, "headless"), (snap::NOSNAP, "extra_clones")]);
        assert_eq!((count, entries), (1, wrong));
        let (count, entries, _) = of(&[one, head(&[(1, 4)])]);
        let wrong = said(&[(1, "size_mismatch"), (snap::NOSNAP, "")]);
        assert_eq!((count, entries), (1, wrong));
    }

    #[test]
    fn what_can_t_be_read_is_told_apart() {
        let mut head = object(snap::NOSNAP, 7, &[]);
        head.info = Info::Missing;
        head.sizes = Some((144, 0));
        let (count, entries, lines) = of(&[object(1, 5, &[]), head.clone()]);
        assert_eq!(count, 3);
        assert_eq!(entries[0], (1, "headless".to_owned()));
        let errors = "snapset_missing,info_missing,extra_clones";
        assert_eq!(entries[1], (snap::NOSNAP, errors.to_owned()));
        assert!(lines[0].ends_with("obj:head : no '_' attr"), "{lines:?}");
        head.info = Info::Known(Box::default());
        let (count, _, lines) = of(&[head]);
        assert_eq!(count, 1);
        assert!(
            lines[0].ends_with(
                "on disk size (144) does not match object info size (0) adjusted for ondisk to (0)"
            )
        );
    }
}
