//! Digests of an object's data and omap in its info, by which a copy can be told to be another one
//! than was written, though all that is read of it is sound.
//!
//! As in Ceph (`object_info_t`), they are CRC-32Cs that begin with all ones and are not inverted at
//! the end. A write knows the digest of the data if it writes all of it, or goes on at its end; every
//! other change makes that unknown, as each change of an omap does with the omap's. A deep scrub that
//! finds all copies alike notes what is unknown.

use bytes::Bytes;
use spirula_buf::crc;

use super::txn::ObjectOp;

/// The digest of no bytes.
const EMPTY: u32 = u32::MAX;
/// The most bytes of a change that are passed over for a digest, unless their checksums came with
/// them: a request of a few bytes may write the same ones over and over.
const MOST_BYTES: usize = 4 << 20;

/// The digests of an object that are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digests {
    /// That of the data.
    pub data: Option<u32>,
    /// That of the omap: its header, and its keys and values in order.
    pub omap: Option<u32>,
}

impl Digests {
    /// Those of an object that has just been made.
    const UNKNOWN: Self = Self {
        data: None,
        omap: None,
    };

    /// Whether no digest is known of both to be different.
    pub(super) fn agree(self, other: Self) -> bool {
        let agree = |a: Option<u32>, b: Option<u32>| a.zip(b).is_none_or(|(a, b)| a == b);
        agree(self.data, other.data) && agree(self.omap, other.omap)
    }

    /// These and, where they are unknown, others.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            data: self.data.or(other.data),
            omap: self.omap.or(other.omap),
        }
    }

    /// Whether something is unknown of an object of this size that has an omap or not.
    pub(super) fn lack(self, size: u64, has_omap: bool) -> bool {
        self.data.is_none() && size > 0 || self.omap.is_none() && has_omap
    }
}

/// The digests of an object while changes of it are followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Followed {
    /// The object's size so far.
    size: u64,
    digests: Digests,
    /// Whether a write in the middle of the data leaves the digest as it was: a bug.
    is_kept: bool,
}

impl Followed {
    /// Begins with an object of this size.
    pub(super) fn new(size: u64, digests: Digests, is_kept: bool) -> Self {
        Self {
            size,
            digests,
            is_kept,
        }
    }

    /// Follows changes of the object. `base`: the size and digests of the object that takes its place
    /// by one of them.
    pub(super) fn follow(mut self, changes: &[ObjectOp], base: (u64, Digests)) -> Digests {
        let mut left = MOST_BYTES;
        for change in changes {
            match change {
                ObjectOp::Write { offset, data } => self.write(*offset, data, &mut left),
                ObjectOp::Zero { .. } => self.digests.data = None,
                ObjectOp::Truncate { size } => {
                    self.size = *size;
                    self.digests.data = None;
                }
                ObjectOp::Remove => (self.size, self.digests) = (0, Digests::UNKNOWN),
                ObjectOp::CloneOf(_) | ObjectOp::MoveOf(_) => (self.size, self.digests) = base,
                ObjectOp::OmapSet(_)
                | ObjectOp::OmapRm(_)
                | ObjectOp::OmapRmRange { .. }
                | ObjectOp::OmapClear
                | ObjectOp::OmapHeader(_) => self.digests.omap = None,
                ObjectOp::Touch
                | ObjectOp::SetInfo(_)
                | ObjectOp::SetAttr { .. }
                | ObjectOp::RmAttr(_)
                | ObjectOp::NoteSnaps { .. }
                | ObjectOp::ForgetSnaps { .. } => {}
                // Not as objects change, but as members carry it out.
                ObjectOp::WritePlaced { .. }
                | ObjectOp::CloneOfData(_)
                | ObjectOp::Step(_)
                | ObjectOp::Portion { .. }
                | ObjectOp::Stage { .. }
                | ObjectOp::Take(_) => self.digests = Digests::UNKNOWN,
            }
        }
        self.digests
    }

    fn write(&mut self, offset: u64, data: &Bytes, left: &mut usize) {
        let len = data.len() as u64;
        let before = match self.digests.data {
            _ if offset == 0 && len >= self.size => Some(EMPTY),
            known if offset == self.size => known,
            known => known.filter(|_| self.is_kept),
        };
        self.digests.data = before.and_then(|before| append(before, data, left));
        self.size = self.size.max(offset.saturating_add(len));
    }
}

/// The digest of data that goes on with more, of which `left` bytes may be passed over.
fn append(before: u32, data: &Bytes, left: &mut usize) -> Option<u32> {
    if crc::block_crcs(data).is_none() {
        *left = left.checked_sub(data.len())?;
    }
    Some(!crc::append(!before, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, text: &str) -> ObjectOp {
        ObjectOp::Write {
            offset,
            data: Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    fn of(text: &str) -> Option<u32> {
        Some(!crc32c::crc32c(text.as_bytes()))
    }

    const BASE: (u64, Digests) = (
        3,
        Digests {
            data: Some(1),
            omap: Some(2),
        },
    );

    /// The digests after changes of an object with these data.
    fn after(text: &str, changes: &[ObjectOp]) -> Digests {
        let omap = Some(5);
        let followed = Followed::new(text.len() as u64, Digests { data: of(text), omap }, false);
        followed.follow(changes, BASE)
    }

    #[test]
    fn what_is_written_whole_or_at_the_end_is_known() {
        let data = |text, changes: &[_]| after(text, changes).data;
        assert_eq!(data("old", &[write(0, "newer")]), of("newer"));
        assert_eq!(data("old", &[write(0, "new")]), of("new"));
        assert_eq!(
            data("old", &[write(3, " and"), write(7, " new")]),
            of("old and new")
        );
        let cut = ObjectOp::Truncate { size: 1 };
        assert_eq!(data("old", &[cut, write(0, "n")]), of("n"));
        assert_eq!(data("old", &[ObjectOp::Remove, write(0, "n")]), of("n"));
        let made = Followed::new(0, Digests::default(), false);
        assert_eq!(made.follow(&[ObjectOp::Touch], BASE).data, None);
        let [first, next] = [write(0, "a"), write(1, "b")];
        assert_eq!(made.follow(&[ObjectOp::Touch, first, next], BASE).data, of("ab"));
    }

    #[test]
    fn every_other_change_makes_it_unknown() {
        let (offset, len) = (0, 3);
        for change in [
            write(0, "ne"),
            write(1, "ew"),
            write(2, "wer"),
            write(4, "gap"),
            ObjectOp::Zero { offset, len },
            ObjectOp::Truncate { size: 3 },
            ObjectOp::Truncate { size: 9 },
        ] {
            let digests = after("old", std::slice::from_ref(&change));
            assert_eq!((digests.data, digests.omap), (None, Some(5)), "{change:?}");
            // At the end of what is unknown.
            assert_eq!(after("old", &[change, write(9, "x")]).data, None);
        }
    }

    #[test]
    fn each_change_of_an_omap_makes_its_digest_unknown() {
        let key = Bytes::from_static(b"k");
        for change in [
            ObjectOp::OmapSet(vec![(key.clone(), key.clone())]),
            ObjectOp::OmapRm(vec![key.clone()]),
            ObjectOp::OmapRmRange {
                from: key.clone(),
                to: key.clone(),
            },
            ObjectOp::OmapClear,
            ObjectOp::OmapHeader(key.clone()),
        ] {
            let digests = after("old", &[change]);
            assert_eq!((digests.data, digests.omap), (of("old"), None));
        }
    }

    #[test]
    fn a_copy_has_those_of_what_it_is_a_copy_of() {
        let source = Bytes::from_static(b"source");
        for change in [ObjectOp::CloneOf(source.clone()), ObjectOp::MoveOf(source)] {
            assert_eq!(after("old", std::slice::from_ref(&change)), BASE.1);
            assert_eq!(after("old", &[change.clone(), write(0, "new")]).data, of("new"));
            let more = after("old", &[change, write(3, "x")]).data;
            assert_eq!(more, Some(!crc32c::crc32c_append(!1, b"x")));
        }
    }

    #[test]
    fn little_is_passed_over() {
        let data = Bytes::from(vec![7; MOST_BYTES]);
        let write = |offset| ObjectOp::Write {
            offset,
            data: data.clone(),
        };
        let made = Followed::new(0, Digests::default(), false);
        assert!(made.follow(&[write(0)], BASE).data.is_some());
        let twice = [write(0), write(MOST_BYTES as u64)];
        assert_eq!(made.follow(&twice, BASE).data, None);
    }
}
