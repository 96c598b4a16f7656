//! Request ids and snapshot contexts.

use std::fmt;

use spirula_denc::{Decode, Encode, EntityName, Reader, Result, Writer, versioned};

/// A snapshot's number; see [`snap`] for the reserved ones.
pub type SnapId = u64;

/// The reserved snapshot ids (`CEPH_NOSNAP` and its neighbours in `src/include/rados.h`).
pub mod snap {
    use super::SnapId;

    /// The object's head, which is read and written without a snapshot.
    pub const NOSNAP: SnapId = SnapId::MAX - 1;
    /// The object's snapshot directory.
    pub const SNAPDIR: SnapId = SnapId::MAX;
    /// The largest id that a real snapshot may have.
    pub const MAXSNAP: SnapId = SnapId::MAX - 2;

    /// An id as Ceph prints it: `head`, `snapdir` or hexadecimal.
    #[derive(Debug, Clone, Copy)]
    pub struct Display(pub SnapId);

    impl std::fmt::Display for Display {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            match self.0 {
                NOSNAP => f.write_str("head"),
                SNAPDIR => f.write_str("snapdir"),
                n => write!(f, "{n:x}"),
            }
        }
    }
}

versioned! {
    /// `osd_reqid_t`: tells one client request from all others, also when it is sent again.
    #[derive(Copy, Eq, PartialOrd, Ord, Hash)]
    pub struct ReqId("osd_reqid_t", version 2, compat 2) {
        /// The requester.
        pub name: EntityName;
        /// The requester's transaction number.
        pub tid: u64;
        /// The requester's incarnation.
        pub inc: i32;
    }
}

impl fmt::Display for ReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.name, self.inc, self.tid)
    }
}

/// The snapshots that exist when a write is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SnapContext {
    /// The newest snapshot id the writer knows; 0 where there is no context.
    pub seq: SnapId,
    /// The existing snapshots, newest first.
    pub snaps: Vec<SnapId>,
}

impl SnapContext {
    /// Whether ids are in range and strictly descending from `seq`.
    pub fn is_valid(&self) -> bool {
        self.seq <= snap::MAXSNAP
            && self.snaps.first().is_none_or(|&s| s <= self.seq)
            && self.snaps.windows(2).all(|w| w[0] > w[1])
    }

    /// Whether no snapshot was ever taken.
    pub fn is_empty(&self) -> bool {
        self.seq == 0
    }
}

/// `5=[5,3]`, ids in hexadecimal.
impl fmt::Display for SnapContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=[", snap::Display(self.seq))?;
        for (i, s) in self.snaps.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { "," }, snap::Display(*s))?;
        }
        f.write_str("]")
    }
}

impl Encode for SnapContext {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.seq);
        w.put(&self.snaps);
    }
}

impl Decode for SnapContext {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            seq: r.u64()?,
            snaps: r.get()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snap_context_must_descend_from_its_seq() {
        let valid = |seq, snaps: &[u64]| {
            SnapContext {
                seq,
                snaps: snaps.to_vec(),
            }
            .is_valid()
        };
        assert!(valid(0, &[]));
        assert!(valid(5, &[5, 3, 1]));
        assert!(!valid(5, &[6]));
        assert!(!valid(5, &[3, 3]));
        assert!(!valid(snap::NOSNAP, &[]));
    }
}
