//! Code and layout together: whole objects.

use spirula_denc::Extent;
use spirula_random::Rng;

use super::{slices, slices_mut};
use crate::{Layout, Unit, UnitSet};

/// The fragments of an object, by roles.
fn fragments(layout: Layout, object: &[u8]) -> Vec<Vec<u8>> {
    let size = object.len() as u64;
    let len = |unit| layout.fragment_len(unit, size) as usize;
    let mut data: Vec<Vec<u8>> = (0..layout.k()).map(|n| vec![0; len(Unit::Data(n))]).collect();
    let all = Extent { offset: 0, len: size };
    for piece in layout.pieces(all) {
        let (to, from) = (piece.fragment_offset as usize, piece.offset as usize);
        let n = piece.len as usize;
        data[usize::from(piece.data)][to..to + n].copy_from_slice(&object[from..from + n]);
    }
    let mut parity: Vec<Vec<u8>> = (0..layout.m()).map(|n| vec![0; len(Unit::Parity(n))]).collect();
    layout.code().encode(&slices(&data), &mut slices_mut(&mut parity));
    let of = |role| match layout.unit_of(role).unwrap() {
        Unit::Data(n) => data[usize::from(n)].clone(),
        Unit::Parity(n) => parity[usize::from(n)].clone(),
    };
    (0..layout.roles()).map(of).collect()
}

/// Sizes at borders, and others.
fn sizes(rng: &mut Rng, layout: Layout) -> Vec<u64> {
    let (unit, width) = (layout.unit(), layout.stripe_width());
    let mut sizes = vec![
        0,
        1,
        unit - 1,
        unit,
        unit + 1,
        width - 1,
        width,
        width + 1,
        2 * width + unit,
    ];
    sizes.extend((0..10).map(|_| rng.below(4 * width)));
    sizes
}

#[test]
fn objects_of_one_unit_are_the_same_in_the_first_roles() {
    let mut rng = Rng::new(30);
    for (k, m) in [(2, 1), (4, 2), (8, 4), (5, 6)] {
        let layout = Layout::new(k, m, 4096).unwrap();
        for len in [0, 1, 100, 4095, 4096] {
            let object = rng.bytes(len);
            let fragments = fragments(layout, &object);
            let (first, others) = fragments.split_at(usize::from(m) + 1);
            assert!(first.iter().all(|fragment| *fragment == object), "{k}+{m}, {len}");
            assert!(others.iter().all(Vec::is_empty));
        }
    }
}

#[test]
fn lost_fragments_are_rebuilt_whole() {
    let mut rng = Rng::new(31);
    for (k, m) in [(2, 1), (3, 2), (4, 4)] {
        let layout = Layout::new(k, m, 4096).unwrap();
        let code = layout.code();
        for size in sizes(&mut rng, layout) {
            let object = rng.bytes(size as usize);
            let fragments = fragments(layout, &object);
            let (mut present, mut lost) = (UnitSet::new(), UnitSet::new());
            for role in 0..layout.roles() {
                let set = if rng.one_in(2) && lost.len() < m {
                    &mut lost
                } else {
                    &mut present
                };
                set.extend(layout.unit_of(role));
            }
            let fragment = |unit: &Unit| &fragments[usize::from(layout.role_of(*unit).unwrap())];
            let plan = code.plan(present, lost).unwrap();
            let sources: Vec<&[u8]> = plan.sources().iter().map(|s| fragment(s).as_slice()).collect();
            let mut out: Vec<Vec<u8>> = plan
                .wanted()
                .iter()
                .map(|unit| vec![7; layout.fragment_len(*unit, size) as usize])
                .collect();
            plan.run(&sources, &mut slices_mut(&mut out));
            for (unit, out) in plan.wanted().iter().zip(&out) {
                assert!(out == fragment(unit), "{k}+{m}, {size} bytes: {unit:?}");
            }
        }
    }
}

#[test]
fn a_write_changes_what_depends_on_it_and_nothing_else() {
    let mut rng = Rng::new(32);
    let layout = Layout::new(3, 2, 4096).unwrap();
    let code = layout.code();
    for size in sizes(&mut rng, layout).into_iter().filter(|size| *size > 0) {
        let mut object = rng.bytes(size as usize);
        let mut fragments_now = fragments(layout, &object);
        let from = rng.below(size);
        let range = Extent::from(from..rng.between(from, size) + 1);
        let written = rng.bytes(range.len as usize);
        for piece in layout.pieces(range) {
            let at = (piece.offset - range.offset) as usize;
            let new = &written[at..at + piece.len as usize];
            let place = piece.fragment_offset as usize..(piece.fragment_offset + piece.len) as usize;
            let role = layout.role_of(Unit::Data(piece.data)).unwrap();
            let fragment = &mut fragments_now[usize::from(role)][place.clone()];
            let mut delta = fragment.to_vec();
            crate::xor(&mut delta, new);
            fragment.copy_from_slice(new);
            let inside =
                |extent: Extent| extent.offset <= piece.fragment_offset && place.end as u64 <= extent.end();
            assert!(layout.parity_extents(range).any(inside));
            for parity in 0..layout.m() {
                let role = layout.role_of(Unit::Parity(parity)).unwrap();
                let fragment = &mut fragments_now[usize::from(role)][place.clone()];
                code.add_delta(parity, piece.data, &delta, fragment);
            }
        }
        object[from as usize..range.end() as usize].copy_from_slice(&written);
        assert!(
            fragments_now == fragments(layout, &object),
            "{size} bytes, {range:?}"
        );
    }
}
