//! A model of an object: what its client sees, and the fragments of all members.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_random::Rng;

use crate::{Change, Code, FragmentExtents, FragmentOp, FragmentPieces, Gather, Layout, Step, Unit, add};

/// A member's fragment: its bytes, and which of them are stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fragment {
    pub(super) bytes: Vec<u8>,
    pub(super) stored: Vec<bool>,
}

impl Fragment {
    pub(super) fn resize(&mut self, len: usize) {
        self.bytes.resize(len, 0);
        self.stored.resize(len, false);
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let (from, to) = (offset as usize, offset as usize + data.len());
        self.resize(self.bytes.len().max(to));
        self.bytes[from..to].copy_from_slice(data);
        self.stored[from..to].fill(true);
    }

    pub(super) fn carry_out(&mut self, op: &FragmentOp) {
        match op {
            FragmentOp::Write { offset, data } => self.write(*offset, data),
            FragmentOp::Zero { range } => {
                let end = (range.end() as usize).min(self.bytes.len());
                let from = (range.offset as usize).min(end);
                self.bytes[from..end].fill(0);
                self.stored[from..end].fill(false);
            }
            FragmentOp::Add { offset, delta } => {
                let from = (*offset as usize).min(self.bytes.len());
                let to = (from + delta.len()).min(self.bytes.len());
                let old = vec![(*offset, Bytes::copy_from_slice(&self.bytes[from..to]))];
                let new = add(*offset, delta, &old);
                self.write(*offset, &new);
            }
            FragmentOp::Truncate { size } => self.resize(*size as usize),
        }
    }
}

/// An object as its client sees it, with what is stored of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Object {
    pub(super) all: Fragment,
}

/// An op of a client.
#[derive(Debug, Clone)]
pub(super) enum ClientOp {
    Write(u64, Bytes),
    Zero(u64, u64),
    Truncate(u64),
}

impl ClientOp {
    pub(super) fn random(rng: &mut Rng, most: u64) -> Self {
        let at = |rng: &mut Rng| {
            // Borders of units and blocks are where it goes wrong.
            let grain = if rng.one_in(2) {
                16
            } else {
                u64::from(Layout::MIN_UNIT)
            };
            let near = rng.index(most as usize) as u64 / grain * grain;
            let off = rng.index(5) as u64;
            if rng.index(2) == 0 {
                (near + off).saturating_sub(2)
            } else {
                rng.index(most as usize) as u64
            }
        };
        let (a, b) = (at(rng), at(rng));
        let (from, to) = (a.min(b), a.max(b).max(a.min(b) + 1));
        match rng.index(6) {
            0 => Self::Zero(from, to - from),
            1 => Self::Truncate(a),
            _ => {
                let data: Vec<u8> = (from..to).map(|_| rng.index(256) as u8).collect();
                Self::Write(from, data.into())
            }
        }
    }

    pub(super) fn on(&self, o: &mut Object, change: &mut Change) {
        match self {
            Self::Write(offset, data) => {
                o.all.write(*offset, data);
                change.write(*offset, data.clone());
            }
            Self::Zero(offset, len) => {
                o.all.carry_out(&FragmentOp::Zero {
                    range: Extent {
                        offset: *offset,
                        len: *len,
                    },
                });
                change.zero(*offset, *len);
            }
            Self::Truncate(size) => {
                o.all.resize(*size as usize);
                change.truncate(*size);
            }
        }
    }
}

/// All members of an object.
#[derive(Clone)]
pub(super) struct Members {
    pub(super) layout: Layout,
    pub(super) code: Code,
    pub(super) fragments: BTreeMap<u8, Fragment>,
}

impl Members {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            code: layout.code(),
            fragments: (0..layout.roles())
                .map(|role| (role, Fragment::default()))
                .collect(),
        }
    }

    pub(super) fn unit(&self, role: u8) -> Unit {
        self.layout.unit_of(role).unwrap()
    }

    /// The object's stored bytes, from the data fragments.
    pub(super) fn object(&self, size: u64) -> Fragment {
        let mut object = Fragment::default();
        object.resize(size as usize);
        for piece in self.layout.pieces(Extent { offset: 0, len: size }) {
            let role = self.layout.role_of(Unit::Data(piece.data)).unwrap();
            let fragment = &self.fragments[&role];
            for i in 0..piece.len {
                let (at, to) = ((piece.fragment_offset + i) as usize, (piece.offset + i) as usize);
                if at < fragment.bytes.len() {
                    object.bytes[to] = fragment.bytes[at];
                    object.stored[to] = fragment.stored[at];
                }
            }
        }
        object
    }

    pub(super) fn carry_out(&mut self, steps: &[Step]) {
        for (role, fragment) in &mut self.fragments {
            let unit = self.layout.unit_of(*role).unwrap();
            for op in self.layout.carry_out(&self.code, unit, steps) {
                fragment.carry_out(&op);
            }
        }
    }

    /// What members have in parts of their fragments.
    pub(super) fn read(&self, reads: &FragmentExtents) -> FragmentPieces {
        let part = |fragment: &Fragment, e: &Extent| {
            let end = (e.end() as usize).min(fragment.bytes.len());
            let from = (e.offset as usize).min(end);
            (e.offset, Bytes::copy_from_slice(&fragment.bytes[from..end]))
        };
        let of = |(unit, extents): (&Unit, &Vec<Extent>)| {
            let fragment = &self.fragments[&self.layout.role_of(*unit).unwrap()];
            assert!(extents.is_sorted_by(|a, b| a.end() < b.offset), "{extents:?}");
            let pieces = extents.iter().map(|e| part(fragment, e));
            (*unit, pieces.filter(|(_, b)| !b.is_empty()).collect())
        };
        reads.iter().map(of).collect()
    }

    /// A range of the object, read while some roles are gone.
    pub(super) fn read_without(&self, gone: &BTreeSet<u8>, range: Extent) -> Vec<u8> {
        let (layout, present) = (self.layout, self.layout.units_without(gone));
        let gather = Gather::new(&self.code, present, layout.data_extents(&[range])).unwrap();
        assert!(gather.reads().keys().all(|unit| present.contains(*unit)));
        let made = gather.made(&self.read(gather.reads()));
        let mut found = vec![0; range.len as usize];
        for (at, bytes) in layout.object_pieces(&made, range) {
            let from = (at - range.offset) as usize;
            found[from..from + bytes.len()].copy_from_slice(&bytes);
        }
        found
    }

    /// Checks the coding fragments, and that all fragments are as long as they have to be.
    pub(super) fn check(&self, size: u64, what: &str) {
        let len = |unit| self.layout.fragment_len(unit, size) as usize;
        let longest = len(Unit::Parity(0));
        let data: Vec<&[u8]> = (0..self.layout.k())
            .map(|i| {
                let fragment = &self.fragments[&self.layout.role_of(Unit::Data(i)).unwrap()].bytes;
                assert_eq!(fragment.len(), len(Unit::Data(i)), "{what}: unit {i}");
                fragment.as_slice()
            })
            .collect();
        let mut coded = vec![vec![0; longest]; self.layout.m().into()];
        let mut parity: Vec<&mut [u8]> = coded.iter_mut().map(Vec::as_mut_slice).collect();
        self.code.encode(&data, &mut parity);
        for (i, coded) in coded.iter().enumerate() {
            let role = self.layout.role_of(Unit::Parity(i as u8)).unwrap();
            assert_eq!(&self.fragments[&role].bytes, coded, "{what}: coding unit {i}");
        }
        assert_eq!(self.unit(0), Unit::Data(0));
    }
}

pub(super) fn small(k: u8, m: u8) -> Layout {
    Layout::new(k, m, Layout::MIN_UNIT).unwrap()
}

/// The bytes that a change must know, and others that it must not use.
pub(super) fn asked(change: &Change, layout: Layout, before: &Fragment) -> Vec<(u64, Bytes)> {
    let old = change.old(layout);
    assert!(old.is_sorted_by(|a, b| a.end() <= b.offset), "{old:?}");
    old.iter()
        .map(|e| {
            let end = (e.end() as usize).min(before.bytes.len());
            let from = (e.offset as usize).min(end);
            (e.offset, Bytes::copy_from_slice(&before.bytes[from..end]))
        })
        .collect()
}
