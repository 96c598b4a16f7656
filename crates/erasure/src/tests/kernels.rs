//! Each kernel of the machine that the tests run on.

use spirula_random::Rng;

use super::{oracle, slices, slices_mut, some_data};
use crate::kernel::Kernel;
use crate::{gf, xor};

#[test]
fn the_field_is_that_of_the_polynomial() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(gf::mul(a, b), oracle::mul(a, b), "{a} * {b}");
        }
        if a != 0 {
            assert_eq!(oracle::mul(a, gf::inverse(a)), 1, "1 / {a}");
        }
    }
    assert_eq!([gf::pow(2, 8), gf::pow(2, 255), gf::pow(7, 0)], [0x1d, 1, 1]);
}

#[test]
fn a_machine_has_the_kernels_of_its_instructions() {
    let names: Vec<String> = Kernel::all().map(|kernel| format!("{kernel:?}")).collect();
    assert_eq!(names.last().unwrap(), "Portable");
    assert_eq!(format!("{:?}", Kernel::best()), names[0]);
    #[cfg(target_arch = "x86_64")]
    assert_eq!(
        names.iter().any(|n| n.starts_with("Avx2")),
        is_x86_feature_detected!("avx2")
    );
    #[cfg(target_arch = "aarch64")]
    assert!(names[0].starts_with("Neon"));
}

#[test]
fn every_kernel_multiplies_by_every_constant() {
    let mut rng = Rng::new(1);
    for kernel in Kernel::all() {
        for c in 0..=255 {
            // With whole vectors and a rest, and each byte at least once.
            let mut src: Vec<u8> = (0..=255).collect();
            src.extend(rng.bytes(513));
            let old = rng.bytes(src.len() + 3);
            let mut dst = old.clone();
            kernel.mul_add(c, &mut dst, &src);
            for (at, v) in dst.iter().enumerate() {
                let product = src.get(at).map_or(0, |s| oracle::mul(c, *s));
                assert_eq!(*v, old[at] ^ product, "{kernel:?}: {c}, byte {at}");
            }
        }
    }
}

#[test]
fn every_kernel_multiplies_slices_of_any_length_and_alignment() {
    let mut rng = Rng::new(2);
    let (src, old) = (rng.bytes(9000), rng.bytes(9000));
    let edges = [511, 512, 513, 4095, 4096, 4097, 8191, 8193];
    for kernel in Kernel::all() {
        for len in (0..200).chain(edges) {
            let (from, to, c) = (rng.index(65), rng.index(65), rng.between(1, 4) as u8);
            let mut dst = old.clone();
            kernel.mul_add(c, &mut dst[to..], &src[from..from + len]);
            let expected = |at: usize| match at.checked_sub(to) {
                Some(n) if n < len => old[at] ^ oracle::mul(c, src[from + n]),
                _ => old[at],
            };
            assert!(
                (0..old.len()).all(|at| dst[at] == expected(at)),
                "{kernel:?}: {len} bytes"
            );
        }
    }
}

#[test]
fn every_kernel_makes_any_number_of_sums() {
    let mut rng = Rng::new(3);
    for kernel in Kernel::all() {
        for round in 0..200 {
            let (sources, sums) = (rng.between(0, 9) as u8, rng.index(10));
            let longest = if rng.one_in(20) { 5000 } else { 300 };
            let most = rng.index(longest);
            let data = some_data(&mut rng, sources, most);
            // Rows of ones, too.
            let rows: Vec<Vec<u8>> = (0..sums)
                .map(|n| match n % 3 {
                    0 => vec![1; data.len()],
                    _ => rng.bytes(data.len()).iter().map(|c| c & 3).collect(),
                })
                .collect();
            let mut out: Vec<Vec<u8>> = (0..sums)
                .map(|_| {
                    let len = if rng.one_in(2) { most } else { rng.index(most + 50) };
                    rng.bytes(len)
                })
                .collect();
            kernel.combine(&slices(&rows), &slices(&data), &mut slices_mut(&mut out));
            for (n, out) in out.iter().enumerate() {
                let row = std::slice::from_ref(&rows[n]);
                assert_eq!(
                    *out,
                    oracle::encode(row, &data, out.len())[0],
                    "{kernel:?}: round {round}, sum {n}"
                );
            }
        }
    }
}

#[test]
fn xor_changes_nothing_behind_its_source() {
    let mut rng = Rng::new(4);
    for len in 0..100 {
        let (src, old) = (rng.bytes(len), rng.bytes(100));
        let mut dst = old.clone();
        xor(&mut dst, &src);
        let expected = |at: usize| old[at] ^ src.get(at).copied().unwrap_or(0);
        assert!((0..100).all(|at| dst[at] == expected(at)));
    }
}
