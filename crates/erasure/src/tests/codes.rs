//! Units that are made and lost.

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_random::Rng;

use super::{choices, oracle, shapes, slices, slices_mut, some_data, units};
use crate::kernel::Kernel;
use crate::{Code, CodeKind, Error, FragmentExtents, FragmentPieces, Gather, Unit, UnitSet};

fn new_code(k: u8, m: u8) -> Code {
    Code::new(CodeKind::of(k, m), k, m).unwrap()
}

fn encoded(code: &Code, data: &[Vec<u8>], len: usize) -> Vec<Vec<u8>> {
    // What was there must not matter.
    let mut parity = vec![vec![0x5a; len]; usize::from(code.m())];
    code.encode(&slices(data), &mut slices_mut(&mut parity));
    parity
}

/// Makes the units that are `lost` from all others.
fn check_lost(code: &Code, data: &[Vec<u8>], parity: &[Vec<u8>], lost: UnitSet) {
    let unit = |unit: &Unit| match *unit {
        Unit::Data(n) => &data[usize::from(n)],
        Unit::Parity(n) => &parity[usize::from(n)],
    };
    let present: UnitSet = units(code.k(), code.m())
        .iter()
        .filter(|unit| !lost.contains(*unit))
        .collect();
    let plan = code.plan(present, lost).unwrap();
    assert!(plan.sources().iter().all(|source| present.contains(*source)));
    assert_eq!(plan.wanted(), Vec::from_iter(lost.iter()));
    let sources: Vec<&[u8]> = plan.sources().iter().map(|s| unit(s).as_slice()).collect();
    let mut out: Vec<Vec<u8>> = plan
        .wanted()
        .iter()
        .map(|wanted| vec![0xa5; unit(wanted).len()])
        .collect();
    plan.run(&sources, &mut slices_mut(&mut out));
    for (wanted, out) in plan.wanted().iter().zip(&out) {
        assert!(
            out == unit(wanted),
            "{}+{}: {wanted:?} of {lost:?}",
            code.k(),
            code.m()
        );
    }
}

#[test]
fn every_shape_makes_the_coding_units_of_the_oracle() {
    let mut rng = Rng::new(10);
    for (k, m) in shapes() {
        let code = new_code(k, m);
        let rows: Vec<Vec<u8>> = (0..m).map(|n| code.row(n).to_vec()).collect();
        let data = some_data(&mut rng, k, 70);
        assert_eq!(
            encoded(&code, &data, 75),
            oracle::encode(&rows, &data, 75),
            "{k}+{m}"
        );
    }
}

#[test]
fn all_kernels_make_the_same_units() {
    let mut rng = Rng::new(11);
    for (k, m) in [(2, 1), (4, 2), (8, 4), (10, 6)] {
        let mut code = new_code(k, m);
        let data = some_data(&mut rng, k, 20_000);
        let expected = encoded(&code, &data, 20_001);
        for kernel in Kernel::all() {
            code.kernel = kernel;
            assert!(encoded(&code, &data, 20_001) == expected, "{kernel:?}");
            check_lost(&code, &data, &expected, (0..m).map(Unit::Data).collect());
        }
    }
}

#[test]
fn small_shapes_rebuild_all_that_may_be_lost() {
    let mut rng = Rng::new(12);
    let kinds = [CodeKind::Vandermonde, CodeKind::Cauchy].into_iter();
    for (kind, k, m) in kinds.flat_map(|kind| (1..=12).flat_map(move |k| (1..=4).map(move |m| (kind, k, m))))
    {
        let code = Code::new(kind, k, m).unwrap();
        let data = some_data(&mut rng, k, 40);
        let parity = encoded(&code, &data, 40);
        let all = Vec::from_iter(units(k, m).iter());
        for n in 0..=usize::from(m) {
            for lost in choices(n, all.len()) {
                let lost = lost.into_iter().map(|n| all[n]).collect();
                check_lost(&code, &data, &parity, lost);
            }
        }
    }
}

#[test]
fn large_shapes_rebuild_what_is_lost() {
    let mut rng = Rng::new(13);
    for (k, m) in shapes().filter(|(k, m)| *k > 12 || *m > 4) {
        let code = new_code(k, m);
        let data = some_data(&mut rng, k, 40);
        let parity = encoded(&code, &data, 40);
        let all = Vec::from_iter(units(k, m).iter());
        for _ in 0..8 {
            let mut lost = UnitSet::new();
            while lost.len() < m {
                lost.extend(rng.pick(&all).copied());
            }
            check_lost(&code, &data, &parity, lost);
        }
    }
}

#[test]
fn what_is_rebuilt_solves_the_equations() {
    let mut rng = Rng::new(14);
    for (k, m) in [(3, 2), (6, 3), (9, 4), (8, 8)] {
        let code = new_code(k, m);
        // Any bytes are the units of some data: of these the oracle makes the rest, too.
        let all = Vec::from_iter(units(k, m).iter());
        let mut present = UnitSet::new();
        while present.len() < k {
            present.extend(rng.pick(&all).copied());
        }
        let wanted = (0..k).map(Unit::Data).collect();
        let plan = code.plan(present, wanted).unwrap();
        let bytes: Vec<Vec<u8>> = (0..k).map(|_| rng.bytes(33)).collect();
        let rows = plan.sources().iter().map(|unit| match *unit {
            Unit::Data(n) => (0..k).map(|data| u8::from(data == n)).collect(),
            Unit::Parity(n) => code.row(n).to_vec(),
        });
        let solved = oracle::solve(rows.collect(), bytes.clone()).unwrap();
        let mut out = vec![vec![0; 33]; usize::from(k)];
        plan.run(&slices(&bytes), &mut slices_mut(&mut out));
        assert_eq!(out, solved, "{k}+{m}");
    }
}

#[test]
fn one_lost_data_unit_is_a_xor_of_the_others_and_the_first_coding_unit() {
    for (k, m) in shapes() {
        let code = new_code(k, m);
        let mut present = units(k, m);
        present.remove(Unit::Data(k - 1));
        let plan = code
            .plan(present, UnitSet::from_iter([Unit::Data(k - 1)]))
            .unwrap();
        let expected: Vec<Unit> = (0..k - 1).map(Unit::Data).chain([Unit::Parity(0)]).collect();
        assert_eq!(plan.sources(), expected);
        assert_eq!(plan.rows, [vec![1; usize::from(k)]]);
    }
}

#[test]
fn a_difference_brings_coding_units_up_to_date() {
    let mut rng = Rng::new(15);
    for (k, m) in shapes() {
        let code = new_code(k, m);
        let old = some_data(&mut rng, k, 90);
        let mut parity = encoded(&code, &old, 90);
        let mut new = old.clone();
        let changed = rng.index(usize::from(k));
        let from = rng.index(60);
        // Growth, too: what was not there were zeros.
        let written = rng.bytes(30);
        if new[changed].len() < from + 30 {
            new[changed].resize(from + 30, 0);
        }
        let mut delta = new[changed][from..from + 30].to_vec();
        crate::xor(&mut delta, &written);
        new[changed][from..from + 30].copy_from_slice(&written);
        for (n, parity) in (0..m).zip(&mut parity) {
            code.add_delta(n, changed as u8, &delta, &mut parity[from..]);
        }
        assert!(parity == encoded(&code, &new, 90), "{k}+{m}, unit {changed}");
    }
}

#[test]
fn too_few_or_unknown_units_are_refused() {
    let code = new_code(4, 2);
    let three: UnitSet = [Unit::Data(0), Unit::Parity(0), Unit::Parity(1)]
        .into_iter()
        .collect();
    let wanted = UnitSet::from_iter([Unit::Data(1)]);
    let too_few = Error::TooFew {
        present: 3,
        needed: 4,
    };
    assert_eq!(code.plan(three, wanted).unwrap_err(), too_few);
    for unknown in [Unit::Data(4), Unit::Parity(2), Unit::Parity(31)] {
        let with = UnitSet::from_iter([unknown]);
        assert_eq!(code.plan(units(4, 2), with).unwrap_err(), Error::NoUnit(unknown));
        let mut present = units(4, 2);
        present.insert(unknown);
        assert_eq!(code.plan(present, wanted).unwrap_err(), Error::NoUnit(unknown));
    }
}

#[test]
fn units_that_are_there_may_be_wanted_too() {
    let mut rng = Rng::new(16);
    let code = new_code(3, 2);
    let data = some_data(&mut rng, 3, 50);
    let parity = encoded(&code, &data, 50);
    let plan = code.plan(units(3, 2), units(3, 2)).unwrap();
    let mut out = vec![vec![0; 50]; 5];
    plan.run(&slices(&data), &mut slices_mut(&mut out));
    for (out, unit) in out.iter().zip(data.iter().chain(&parity)) {
        assert_eq!(out[..unit.len()], **unit);
        assert!(out[unit.len()..].iter().all(|b| *b == 0));
    }
}

#[test]
fn sets_hold_units_of_both_kinds() {
    let mut set = units(31, 1);
    assert_eq!((set.len(), set.is_empty()), (32, false));
    set.remove(Unit::Data(30));
    set.remove(Unit::Data(200));
    assert!(!set.contains(Unit::Data(30)) && !set.contains(Unit::Parity(33)));
    assert!(set.contains(Unit::Parity(0)) && set.contains(Unit::Data(29)));
    assert_eq!(set.iter().last(), Some(Unit::Parity(0)));
    set.remove(Unit::Parity(0));
    assert_eq!((set.len(), set.contains(Unit::Data(0))), (30, true));
    assert!(UnitSet::new().is_empty());
}

#[test]
#[should_panic(expected = "room in each coding unit")]
fn data_is_never_cut_off() {
    new_code(2, 1).encode(&[&[1, 2, 3], &[]], &mut [&mut [0; 2]]);
}

#[test]
fn a_long_range_is_made_part_by_part() {
    let (code, mut rng) = (new_code(2, 1), Rng::new(11));
    let data = [rng.bytes(900_000), rng.bytes(700_000)];
    let parity = encoded(&code, &data, 900_000).remove(0);
    let read = FragmentPieces::from([
        (Unit::Data(0), vec![(0, Bytes::from(data[0].clone()))]),
        (Unit::Parity(0), vec![(0, Bytes::from(parity))]),
    ]);
    // Behind its end the unit has zeros.
    for (offset, len) in [(1000, 899_000), (0, 1 << 18), (1, (1 << 18) + 1)] {
        let wanted = FragmentExtents::from([(Unit::Data(1), vec![Extent { offset, len }])]);
        let gather = Gather::new(&code, read.keys().copied().collect(), wanted).unwrap();
        let made = gather.made(&read);
        let [(at, bytes)] = &made[&Unit::Data(1)][..] else {
            panic!("one piece is made");
        };
        let from = usize::try_from(offset).unwrap();
        let mut expected = data[1][from..].to_vec();
        expected.resize(usize::try_from(len).unwrap(), 0);
        assert!((*at, &bytes[..]) == (offset, &expected[..]), "{offset}~{len}");
    }
}
