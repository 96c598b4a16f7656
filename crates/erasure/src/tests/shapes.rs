//! The coefficients of all shapes.

use std::collections::BTreeSet;

use spirula_random::Rng;

use super::{choices, oracle, shapes};
use crate::{Code, CodeKind, Error};

fn kinds(k: u8, m: u8) -> impl Iterator<Item = (CodeKind, Code)> {
    [CodeKind::Vandermonde, CodeKind::Cauchy]
        .into_iter()
        .filter_map(move |kind| Some((kind, Code::new(kind, k, m).ok()?)))
}

fn rows(code: &Code) -> Vec<Vec<u8>> {
    (0..code.m()).map(|n| code.row(n).to_vec()).collect()
}

/// The rows and columns of these numbers.
fn part(of: &[Vec<u8>], rows: &[usize], columns: &[usize]) -> Vec<Vec<u8>> {
    let row = |row: &usize| columns.iter().map(|column| of[*row][*column]).collect();
    rows.iter().map(row).collect()
}

fn is_regular(matrix: &[Vec<u8>]) -> bool {
    let n = matrix.len();
    oracle::solve(matrix.to_vec(), vec![vec![]; n]).is_some()
}

#[test]
fn coefficients_are_those_of_their_kind() {
    for (k, m) in shapes() {
        for (kind, code) in kinds(k, m) {
            let expected = match kind {
                CodeKind::Vandermonde => oracle::vandermonde(k, m),
                // To divide by search is slow, and a smaller matrix is a corner of this.
                CodeKind::Cauchy if k + m < 32 => continue,
                CodeKind::Cauchy => oracle::cauchy(k, m),
            };
            assert_eq!(rows(&code), expected, "{kind:?} {k}+{m}");
        }
    }
}

#[test]
fn a_coefficient_depends_on_its_units_only() {
    for (k, m) in shapes() {
        for (kind, code) in kinds(k, m) {
            for (parity, data) in (0..m).flat_map(|i| (0..k).map(move |j| (i, j))) {
                let smallest = Code::new(kind, data + 1, parity + 1).unwrap();
                assert_eq!(
                    code.coefficient(parity, data),
                    smallest.coefficient(parity, data),
                    "{kind:?}"
                );
            }
        }
    }
}

#[test]
fn the_first_row_and_column_are_ones() {
    for (k, m) in shapes() {
        for (_, code) in kinds(k, m) {
            assert!((0..k).all(|data| code.coefficient(0, data) == 1));
            assert!((0..m).all(|parity| code.coefficient(parity, 0) == 1));
        }
    }
}

#[test]
fn kinds_keep_their_numbers_and_shapes() {
    let numbers = [CodeKind::Vandermonde, CodeKind::Cauchy].map(CodeKind::number);
    assert_eq!(numbers, [1, 2]);
    let back: Vec<_> = (0..=255).filter_map(CodeKind::from_number).collect();
    assert_eq!(back, [CodeKind::Vandermonde, CodeKind::Cauchy]);

    let vandermonde: BTreeSet<(u8, u8)> = shapes()
        .filter(|(k, m)| CodeKind::of(*k, *m) == CodeKind::Vandermonde)
        .collect();
    let expected: BTreeSet<(u8, u8)> = shapes().filter(|(k, m)| *m < 4 || *m == 4 && *k < 22).collect();
    assert_eq!(vandermonde, expected);
    let kind = CodeKind::Vandermonde;
    assert_eq!(
        Code::new(kind, 22, 4).unwrap_err(),
        Error::Kind { kind, k: 22, m: 4 }
    );
    for (k, m) in [(0, 1), (1, 0), (0, 0), (31, 2), (32, 0), (255, 255)] {
        let error = Code::new(CodeKind::Cauchy, k, m).unwrap_err();
        assert_eq!(error, Error::Shape { k, m });
    }
    assert!(shapes().all(|(k, m)| Code::new(CodeKind::of(k, m), k, m).is_ok()));
}

/// A code can rebuild all from any k units if no square part of its coefficients is singular. All
/// smaller shapes are corners of these.
#[test]
fn vandermonde_codes_have_no_singular_part() {
    for (k, m) in [(31, 1), (30, 2), (29, 3), (21, 4)] {
        let rows = rows(&Code::new(CodeKind::Vandermonde, k, m).unwrap());
        for n in 1..=usize::from(m) {
            for chosen in choices(n, usize::from(m)) {
                for columns in choices(n, usize::from(k)) {
                    let part = part(&rows, &chosen, &columns);
                    assert_ne!(oracle::determinant(&part), 0, "{k}+{m}: {chosen:?}, {columns:?}");
                }
            }
        }
    }
}

/// This is why there are two kinds.
#[test]
fn a_vandermonde_code_of_22_and_4_would_lose_data() {
    let rows = oracle::vandermonde(22, 4);
    let singular = |columns: &Vec<usize>| {
        (1..=4).any(|n| {
            choices(n, 4)
                .any(|chosen| columns.len() == n && oracle::determinant(&part(&rows, &chosen, columns)) == 0)
        })
    };
    assert!((1..=4).any(|n| choices(n, 22).any(|columns| singular(&columns))));
}

/// All small square parts of a quarter of the matrix, and some of all sizes of each largest shape.
#[test]
fn cauchy_codes_have_no_singular_part() {
    let corner = rows(&Code::new(CodeKind::Cauchy, 16, 16).unwrap());
    for (n, of) in [(1, 16), (2, 16), (3, 12), (4, 9)] {
        for chosen in choices(n, of) {
            for columns in choices(n, of) {
                let part = part(&corner, &chosen, &columns);
                assert_ne!(oracle::determinant(&part), 0, "{chosen:?}, {columns:?}");
            }
        }
    }
    let mut rng = Rng::new(5);
    for (k, m) in shapes().filter(|(k, m)| k + m == 32) {
        let rows = rows(&Code::new(CodeKind::Cauchy, k, m).unwrap());
        for _ in 0..4 {
            let n = rng.between(1, u64::from(k.min(m)) + 1) as usize;
            let mut some = |of: u8| {
                let mut chosen = BTreeSet::new();
                while chosen.len() < n {
                    chosen.insert(rng.index(usize::from(of)));
                }
                Vec::from_iter(chosen)
            };
            let (chosen, columns) = (some(m), some(k));
            assert!(
                is_regular(&part(&rows, &chosen, &columns)),
                "{chosen:?}, {columns:?}"
            );
        }
    }
}
