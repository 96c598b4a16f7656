//! Vandermonde codes beside ISA-L's: `golden/isal.txt`, which `golden/isal.c` made.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use spirula_erasure::{Code, CodeKind};

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn units_are_those_of_isa_l() {
    let mut lines = include_str!("golden/isal.txt").lines();
    let mut shapes = 0;
    while let Some(shape) = lines.next() {
        let (k, m) = shape.split_once(' ').unwrap();
        let (k, m): (u8, u8) = (k.parse().unwrap(), m.parse().unwrap());
        assert_eq!(CodeKind::of(k, m), CodeKind::Vandermonde);
        let code = Code::new(CodeKind::Vandermonde, k, m).unwrap();
        let byte = |i: usize, j: usize| (i * 31 + j * 17 + i * j) as u8;
        let data: Vec<Vec<u8>> = (0..usize::from(k))
            .map(|j| (0..24).map(|i| byte(i, j)).collect())
            .collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity = vec![[0; 24]; usize::from(m)];
        code.encode(&data, &mut Vec::from_iter(parity.iter_mut().map(|p| &mut p[..])));
        for (n, parity) in (0..m).zip(&parity) {
            let (row, unit) = lines.next().unwrap().split_once(' ').unwrap();
            let own: Vec<u8> = (0..k).map(|data| code.coefficient(n, data)).collect();
            assert_eq!(own, hex(row), "{k}+{m}, row {n}");
            assert_eq!(*parity, hex(unit)[..], "{k}+{m}, unit {n}");
        }
        shapes += 1;
    }
    assert_eq!(shapes, 8);
}
