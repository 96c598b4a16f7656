//! Changes in two phases, beside the same changes made at once.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_random::Rng;

use super::choices;
use super::model::{ClientOp, Fragment, Members, Object, asked};
use crate::{Change, Divided, FragmentOp, Layout, Step, Unit, add};

const BLOCK: usize = Layout::MIN_UNIT as usize;

/// What a member has staged: blocks, by their places.
type Staged = BTreeMap<usize, Bytes>;

/// Stages one portion; no block is staged twice.
fn stage(staged: &mut Staged, fragment: &Fragment, ops: &[FragmentOp]) {
    let before = [(0, Bytes::copy_from_slice(&fragment.bytes))];
    for op in ops {
        let (offset, data) = match op {
            FragmentOp::Write { offset, data } => (*offset, data.clone()),
            FragmentOp::Add { offset, delta } => (*offset, add(*offset, delta, &before)),
            _ => panic!("{op:?} is staged"),
        };
        assert!((offset as usize).is_multiple_of(BLOCK) && data.len().is_multiple_of(BLOCK));
        for from in (0..data.len()).step_by(BLOCK) {
            let block = data.slice(from..from + BLOCK);
            assert_eq!(staged.insert(offset as usize + from, block), None);
        }
    }
}

/// Makes a change in two phases, on all members.
fn make(members: &mut Members, divided: &Divided, max: u64) {
    let layout = members.layout;
    let portions = layout.portions(&divided.staged, max);
    for (role, fragment) in &mut members.fragments {
        let unit = layout.unit_of(*role).unwrap();
        let mut staged = Staged::new();
        for portion in &portions {
            stage(
                &mut staged,
                fragment,
                &layout.staged(&members.code, unit, portion),
            );
        }
        for op in layout.carry_out(&members.code, unit, &divided.inline) {
            fragment.carry_out(&op);
        }
        for (at, block) in staged {
            fragment.write(at as u64, &block);
        }
        for op in layout.carry_out(&members.code, unit, &divided.holes) {
            fragment.carry_out(&op);
        }
    }
}

/// Checks that a fragment is what it is to be, with nothing but zeros behind its end. It has all
/// blocks that it is to have. Zeros that were once behind the end are the only others. Data of a new
/// object have the same holes, to the byte.
fn check(unit: Unit, found: &Fragment, expected: &Fragment, is_first: bool, what: &str) {
    let end = expected.bytes.len();
    let mut expected = expected.clone();
    expected.resize(end.max(found.bytes.len()));
    let mut found = found.clone();
    found.resize(expected.bytes.len());
    assert!(found.bytes == expected.bytes, "{what}: bytes differ");
    if is_first && matches!(unit, Unit::Data(_)) {
        assert!(
            found.stored[..end] == expected.stored[..end],
            "{what}: holes differ"
        );
    }
    for at in (0..end).step_by(BLOCK) {
        let block = at..(at + BLOCK).min(end);
        let has = |of: &Fragment| of.stored[block.clone()].contains(&true);
        assert!(has(&found) || !has(&expected), "{what}: no block at {at}");
        assert!(
            !is_first || has(&expected) || !has(&found),
            "{what}: no hole at {at}"
        );
    }
}

/// The bytes of each portion are at most `max`, or of one stripe; together they are all.
fn check_portions(layout: Layout, staged: &[Step], max: u64) {
    let bytes = |steps: &[Step]| steps.iter().map(Step::bytes).sum::<usize>();
    let portions = layout.portions(staged, max);
    for portion in &portions {
        let stripes = portion.iter().map(|s| layout.stripes(s.range()).touched);
        let touched: BTreeSet<u64> = stripes.flatten().collect();
        assert!(bytes(portion) as u64 <= max || touched.len() == 1, "{touched:?}");
    }
    assert_eq!(portions.iter().map(|p| bytes(p)).sum::<usize>(), bytes(staged));
}

fn layouts() -> impl Iterator<Item = Layout> {
    let shapes = [(2, 1), (3, 2), (4, 2), (8, 4), (1, 2)];
    let units = [1, 2, 4, 16].map(|blocks| blocks * Layout::MIN_UNIT);
    shapes
        .into_iter()
        .flat_map(move |(k, m)| units.map(|unit| Layout::new(k, m, unit).unwrap()))
}

#[test]
fn a_change_in_two_phases_is_the_same_as_at_once() {
    for (n, layout) in layouts().enumerate() {
        for seed in 0..12 {
            let mut rng = Rng::new(1000 * n as u64 + seed);
            let what = format!("{layout:?}, seed {seed}");
            turns(layout, &mut rng, &what);
        }
    }
}

/// Makes changes of one object, some of which begin with another one that takes its place.
fn turns(layout: Layout, rng: &mut Rng, what: &str) {
    let (mut object, mut at_once, mut in_two) =
        (Object::default(), Members::new(layout), Members::new(layout));
    let mut other = (object.clone(), at_once.clone(), in_two.clone());
    let most = layout.stripe_width() * 2 + layout.unit();
    for turn in 0..10 {
        let what = format!("{what}, turn {turn}");
        if rng.one_in(4) {
            let here = (object, at_once, in_two);
            (object, at_once, in_two) = std::mem::replace(&mut other, here);
        }
        let before = object.all.clone();
        let mut change = Change::new(before.bytes.len() as u64);
        for _ in 0..=rng.index(4) {
            ClientOp::random(rng, most).on(&mut object, &mut change);
        }
        let steps = change.steps(layout, &asked(&change, layout, &before));
        at_once.carry_out(&steps);
        let divided = layout.divide(steps);
        let max = [1, BLOCK as u64, layout.stripe_width(), 100_000, u64::MAX][rng.index(5)];
        check_portions(layout, &divided.staged, max);
        make(&mut in_two, &divided, max);
        for (role, fragment) in &in_two.fragments {
            let what = format!("{what}, role {role}");
            let unit = layout.unit_of(*role).unwrap();
            check(unit, fragment, &at_once.fragments[role], turn == 0, &what);
        }
        let gone: Vec<Vec<usize>> = choices(layout.m().into(), layout.roles().into()).collect();
        let gone = gone[rng.index(gone.len())].iter().map(|role| *role as u8);
        let found = in_two.read_without(&gone.collect(), (0..change.size()).into());
        assert!(found == object.all.bytes, "{what}: decoded");
    }
}

/// The steps of a write to an object of zeros.
fn steps_of(layout: Layout, size: u64, offset: u64, data: &Bytes) -> Vec<Step> {
    let mut change = Change::new(size);
    change.write(offset, data.clone());
    change.steps(layout, &[])
}

#[test]
fn a_write_leaves_at_most_three_columns_to_be_done_inline() {
    for (n, layout) in layouts().enumerate() {
        let (mut rng, mut most) = (Rng::new(n as u64), 0);
        for _ in 0..300 {
            let all = 3 * layout.stripe_width() as usize;
            let (size, offset) = (rng.index(all) as u64, rng.index(all) as u64);
            let data = Bytes::from(vec![7; 1 + rng.index(all)]);
            let inline = layout.divide(steps_of(layout, size, offset, &data)).inline;
            most = most.max(inline.iter().map(Step::bytes).sum::<usize>());
        }
        assert!(most <= 3 * usize::from(layout.k()) * BLOCK, "{layout:?}: {most}");
        assert!(most > 0, "{layout:?}");
    }
}

#[test]
fn whole_blocks_leave_nothing_to_be_done_inline() {
    for layout in layouts() {
        let (width, block) = (layout.stripe_width(), BLOCK as u64);
        let data = Bytes::from(vec![7; 2 * width as usize + 3 * BLOCK]);
        let divided = layout.divide(steps_of(layout, 4 * width, block, &data));
        let inline: usize = divided.inline.iter().map(Step::bytes).sum();
        assert_eq!(inline, 0, "{layout:?}");
    }
}

/// The bytes that members stage which are copies of those of the client.
fn copied(layout: Layout, staged: &[Step], data: &Bytes) -> usize {
    let there = data.as_ptr_range();
    let units = (0..layout.k()).map(Unit::Data);
    let ops = units.flat_map(|unit| layout.staged(&layout.code(), unit, staged));
    ops.map(|op| match op {
        FragmentOp::Write { data, .. } if there.contains(&data.as_ptr()) => 0,
        FragmentOp::Write { data, .. } => data.len(),
        _ => panic!("{op:?} is no write"),
    })
    .sum()
}

#[test]
fn what_lies_between_the_ends_is_not_copied() {
    let layout = Layout::new(4, 2, Layout::DEFAULT_UNIT).unwrap();
    let data = Bytes::from(vec![7; 4 << 20]);
    for (offset, blocks) in [(0, 0), (BLOCK as u64, 0), (100, 2)] {
        let divided = layout.divide(steps_of(layout, 0, offset, &data));
        assert_eq!(divided.inline, []);
        for max in [1 << 20, u64::MAX] {
            let portions = layout.portions(&divided.staged, max).concat();
            assert_eq!(copied(layout, &portions, &data), blocks * BLOCK, "at {offset}");
        }
    }
}

#[test]
fn ops_are_few_and_large() {
    let layout = Layout::new(4, 2, Layout::DEFAULT_UNIT).unwrap();
    let data = Bytes::from(vec![7; 4 << 20]);
    let divided = layout.divide(steps_of(layout, 4 << 20, 0, &data));
    let range = Extent {
        offset: 0,
        len: 4 << 20,
    };
    assert_eq!(divided.inline, [Step::Discard { range, coding: true }]);
    assert_eq!(divided.staged.len(), 1);
    let ops = |unit| layout.staged(&layout.code(), unit, &divided.staged);
    assert_eq!(ops(Unit::Data(1)).len(), 16);
    assert_eq!(ops(Unit::Parity(1)).len(), 16);
    let portions = layout.portions(&divided.staged, 1 << 20);
    assert_eq!(portions.iter().map(Vec::len).collect::<Vec<_>>(), [1; 4]);
    // Parts of two stripes: of each what is staged before, between and behind its column.
    let divided = layout.divide(steps_of(layout, 1 << 20, 100, &data.slice(..256 << 10)));
    let kinds = |steps: &[Step]| steps.iter().map(|s| s.range().len as usize).collect::<Vec<_>>();
    let unit = 16 * BLOCK;
    let last = unit - BLOCK;
    assert_eq!(kinds(&divided.staged), [last, last, last, last]);
    assert_eq!(kinds(&divided.inline), [BLOCK - 100, BLOCK, BLOCK, BLOCK, 100]);
}

#[test]
fn what_is_discarded_becomes_a_hole() {
    let layout = Layout::new(2, 1, 2 * Layout::MIN_UNIT).unwrap();
    let block = BLOCK as u64;
    // The end of the first unit, and all of the second.
    let range = Extent::from(block..4 * block);
    let ops = |unit, coding| layout.carry_out(&layout.code(), unit, &[Step::Discard { range, coding }]);
    let hole = |range: std::ops::Range<u64>| FragmentOp::Zero { range: range.into() };
    for coding in [false, true] {
        assert_eq!(ops(Unit::Data(0), coding), [hole(block..2 * block)]);
        assert_eq!(ops(Unit::Data(1), coding), [hole(0..2 * block)]);
    }
    assert_eq!(ops(Unit::Parity(0), true), [hole(block..2 * block)]);
    assert_eq!(ops(Unit::Parity(0), false), []);
}

#[test]
fn pieces_that_meet_in_a_block_become_one() {
    let layout = Layout::new(2, 1, 4 * Layout::MIN_UNIT).unwrap();
    let at = |blocks: u64, bytes: u64| blocks * BLOCK as u64 + bytes;
    let mut change = Change::new(0);
    for (from, to) in [
        (at(0, 10), at(0, 20)),
        (at(0, 30), at(1, 40)),
        (at(1, 50), at(3, 60)),
    ] {
        change.write(from, vec![from as u8; (to - from) as usize].into());
    }
    let divided = layout.divide(change.steps(layout, &[]));
    let [Step::Stripes { range, pieces, .. }] = &divided.staged[..] else {
        panic!("{divided:?}")
    };
    assert_eq!(*range, (0..at(4, 0)).into());
    let extents: Vec<_> = pieces.iter().map(|(at, b)| (*at, b.len())).collect();
    assert_eq!(extents, [(0, 2 * BLOCK), (at(2, 0), BLOCK), (at(3, 0), BLOCK)]);
    assert_eq!(
        &pieces[0].1[8..33],
        [[0; 2].as_slice(), &[10; 10], &[0; 10], &[30; 3]].concat()
    );
}
