//! Changes of objects, carried out by all members, against a plain array of bytes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_random::Rng;

use crate::{Change, Code, FragmentExtents, FragmentOp, FragmentPieces, Gather, Layout, Step, Unit, add};

/// A member's fragment: its bytes, and which of them are stored.
#[derive(Debug, Clone, Default, PartialEq)]
struct Fragment {
    bytes: Vec<u8>,
    stored: Vec<bool>,
}

impl Fragment {
    fn resize(&mut self, len: usize) {
        self.bytes.resize(len, 0);
        self.stored.resize(len, false);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let (from, to) = (offset as usize, offset as usize + data.len());
        self.resize(self.bytes.len().max(to));
        self.bytes[from..to].copy_from_slice(data);
        self.stored[from..to].fill(true);
    }

    fn carry_out(&mut self, op: &FragmentOp) {
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
            FragmentOp::Truncate { size } => {
                if (*size as usize) < self.bytes.len() {
                    self.resize(*size as usize);
                }
            }
        }
    }
}

/// An object as its client sees it, with what is stored of it.
#[derive(Debug, Clone, Default)]
struct Object {
    all: Fragment,
}

/// An op of a client.
#[derive(Debug, Clone)]
enum ClientOp {
    Write(u64, Bytes),
    Zero(u64, u64),
    Truncate(u64),
}

impl ClientOp {
    fn random(rng: &mut Rng, most: u64) -> Self {
        let at = |rng: &mut Rng| {
            // Borders of units are where it goes wrong.
            let near = rng.index(most as usize) as u64 / 16 * 16;
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

    fn on(&self, o: &mut Object, change: &mut Change) {
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
struct Members {
    layout: Layout,
    code: Code,
    fragments: BTreeMap<u8, Fragment>,
}

impl Members {
    fn new(layout: Layout) -> Self {
        Self {
            layout,
            code: layout.code(),
            fragments: (0..layout.roles())
                .map(|role| (role, Fragment::default()))
                .collect(),
        }
    }

    fn unit(&self, role: u8) -> Unit {
        self.layout.unit_of(role).unwrap()
    }

    /// The object's stored bytes, from the data fragments.
    fn object(&self, size: u64) -> Fragment {
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

    fn carry_out(&mut self, steps: &[Step]) {
        for (role, fragment) in &mut self.fragments {
            let unit = self.layout.unit_of(*role).unwrap();
            for op in self.layout.carry_out(&self.code, unit, steps) {
                fragment.carry_out(&op);
            }
        }
    }

    /// Checks the coding fragments, and that no fragment has anything behind its end.
    fn check(&self, size: u64, what: &str) {
        let len = |unit| self.layout.fragment_len(unit, size) as usize;
        let longest = len(Unit::Parity(0));
        let data: Vec<&[u8]> = (0..self.layout.k())
            .map(|i| {
                let fragment = &self.fragments[&self.layout.role_of(Unit::Data(i)).unwrap()].bytes;
                assert!(
                    fragment.len() <= len(Unit::Data(i)),
                    "{what}: unit {i} has {}",
                    fragment.len()
                );
                fragment.as_slice()
            })
            .collect();
        let mut coded = vec![vec![0; longest]; self.layout.m().into()];
        let mut parity: Vec<&mut [u8]> = coded.iter_mut().map(Vec::as_mut_slice).collect();
        self.code.encode(&data, &mut parity);
        for (i, coded) in coded.iter().enumerate() {
            let role = self.layout.role_of(Unit::Parity(i as u8)).unwrap();
            let mut found = self.fragments[&role].bytes.clone();
            assert!(
                found.len() <= longest,
                "{what}: coding unit {i} has {}, not {longest}",
                found.len()
            );
            found.resize(longest, 0);
            assert_eq!(&found, coded, "{what}: coding unit {i}");
        }
        assert_eq!(self.unit(0), Unit::Data(0));
    }
}

fn small(k: u8, m: u8) -> Layout {
    Layout::new(k, m, Layout::MIN_UNIT).unwrap()
}

/// The bytes that a change must know, and others that it must not use.
fn asked(change: &Change, layout: Layout, before: &Fragment) -> Vec<(u64, Bytes)> {
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

#[test]
fn members_hold_what_the_client_wrote_whatever_the_ops() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let (k, m) = [(2, 1), (3, 2), (4, 2), (1, 2), (5, 3)][seed as usize % 5];
        let layout = small(k, m);
        let (mut object, mut members) = (Object::default(), Members::new(layout));
        let most = layout.stripe_width() * 2 + layout.unit();
        for turn in 0..25 {
            let before = object.all.clone();
            let mut change = Change::new(before.bytes.len() as u64);
            let ops: Vec<ClientOp> = (0..=rng.index(3))
                .map(|_| ClientOp::random(&mut rng, most))
                .collect();
            ops.iter().for_each(|op| op.on(&mut object, &mut change));
            let what = format!("seed {seed}, turn {turn}");
            assert_eq!(change.size(), object.all.bytes.len() as u64, "{what}");
            let old = asked(&change, layout, &before);
            let steps = change.steps(layout, &old);
            assert_eq!(steps.is_empty(), change.is_nothing(), "{what}");
            members.carry_out(&steps);
            let found = members.object(change.size());
            assert!(found == object.all, "{what}: {ops:?} differ");
            members.check(change.size(), &what);
        }
    }
}

#[test]
fn what_is_new_as_a_whole_needs_no_old_bytes() {
    let layout = small(2, 1);
    let width = layout.stripe_width();
    let full = |len: u64| Bytes::from(vec![7; len as usize]);
    let needs = |size: u64, offset: u64, len: u64| {
        let mut change = Change::new(size);
        change.write(offset, full(len));
        change.old(layout)
    };
    // A new object, an append at the end of a stripe, whole stripes, and the end of an object.
    assert_eq!(needs(0, 0, 100), []);
    assert_eq!(needs(width, width, 100), []);
    assert_eq!(needs(4 * width, width, 2 * width), []);
    assert_eq!(needs(width + 100, width, 100), []);
    // An append within a stripe: there was nothing there.
    assert_eq!(needs(100, 100, 50), []);
    // Part of a stripe: what is overwritten, at both ends.
    assert_eq!(
        needs(3 * width, 10, 2 * width),
        [(10..width).into(), (2 * width..2 * width + 10).into()]
    );
    let mut gone = Change::new(3 * width);
    gone.truncate(0);
    assert_eq!(gone.old(layout), []);
    assert_eq!(gone.steps(layout, &[]), [Step::Truncate { size: 0 }]);
    let mut cut = Change::new(3 * width);
    cut.truncate(width + 5);
    assert_eq!(cut.old(layout), [(width + 5..2 * width).into()]);
}

#[test]
fn an_object_of_one_unit_is_the_same_on_m_and_one_members() {
    let layout = small(4, 2);
    let mut change = Change::new(0);
    change.write(10, Bytes::from_static(b"hello"));
    let mut members = Members::new(layout);
    members.carry_out(&change.steps(layout, &[]));
    for role in 0..layout.roles() {
        let fragment = &members.fragments[&role].bytes;
        match role {
            0..=2 => assert_eq!(fragment[10..], *b"hello", "role {role}"),
            _ => assert_eq!(fragment[..], [], "role {role}"),
        }
    }
}

/// What members have in parts of their fragments.
fn read(members: &Members, reads: &FragmentExtents) -> FragmentPieces {
    let part = |fragment: &Fragment, e: &Extent| {
        let end = (e.end() as usize).min(fragment.bytes.len());
        let from = (e.offset as usize).min(end);
        (e.offset, Bytes::copy_from_slice(&fragment.bytes[from..end]))
    };
    let of = |(unit, extents): (&Unit, &Vec<Extent>)| {
        let fragment = &members.fragments[&members.layout.role_of(*unit).unwrap()];
        assert!(extents.is_sorted_by(|a, b| a.end() < b.offset), "{extents:?}");
        let pieces = extents.iter().map(|e| part(fragment, e));
        (*unit, pieces.filter(|(_, b)| !b.is_empty()).collect())
    };
    reads.iter().map(of).collect()
}

#[test]
fn whatever_m_members_are_gone_the_object_can_be_read_and_they_rebuilt() {
    for (k, m) in [(2, 1), (3, 2), (4, 2), (1, 2), (4, 3)] {
        let layout = small(k, m);
        let mut rng = Rng::new(u64::from(k * 16 + m));
        let (mut object, mut members) = (Object::default(), Members::new(layout));
        let mut change = Change::new(0);
        for _ in 0..4 {
            ClientOp::random(&mut rng, 2 * layout.stripe_width() + 100).on(&mut object, &mut change);
        }
        members.carry_out(&change.steps(layout, &[]));
        let size = object.all.bytes.len() as u64;
        let sets = (0..1u32 << layout.roles()).filter(|s| s.count_ones() <= u32::from(m));
        for set in sets {
            let gone: BTreeSet<u8> = (0..layout.roles()).filter(|r| set & 1 << r != 0).collect();
            let present = layout.units_without(&gone);
            let (a, b) = (rng.index(size as usize) as u64, rng.index(size as usize) as u64);
            let range = Extent::from(a.min(b)..a.max(b));
            let gather = Gather::new(&members.code, present, layout.data_extents(&[range])).unwrap();
            assert!(gather.reads().keys().all(|unit| present.contains(*unit)));
            let made = gather.made(&read(&members, gather.reads()));
            let mut found = vec![0; range.len as usize];
            for (at, bytes) in layout.object_pieces(&made, range) {
                let from = (at - range.offset) as usize;
                found[from..from + bytes.len()].copy_from_slice(&bytes);
            }
            let expected = &object.all.bytes[range.offset as usize..range.end() as usize];
            assert!(found == expected, "{k}+{m} without {gone:?}: {range:?}");
            for role in gone {
                let (unit, fragment) = (members.unit(role), &members.fragments[&role].bytes);
                let all = Extent::from(0..layout.fragment_len(unit, size));
                let wanted = FragmentExtents::from([(unit, vec![all])]);
                let gather = Gather::new(&members.code, present, wanted).unwrap();
                let made = gather.made(&read(&members, gather.reads()));
                let (at, rebuilt) = &made[&unit][0];
                assert_eq!(*at, 0);
                let mut fragment = fragment.clone();
                fragment.resize(all.len as usize, 0);
                assert!(*rebuilt == fragment, "{k}+{m}: {unit:?} was rebuilt");
            }
        }
        let too_few = layout.units_without(&(0..=m).collect());
        assert!(Gather::new(&members.code, too_few, layout.data_extents(&[(0..size).into()])).is_err());
    }
}
