//! The fast code beside a slow and obvious one.

mod changes;
mod codes;
mod divided;
mod fragments;
mod kernels;
mod layouts;
mod model;
mod oracle;
mod shapes;

use spirula_random::Rng;

use crate::{MAX_UNITS, Unit, UnitSet};

/// All shapes that a code may have.
fn shapes() -> impl Iterator<Item = (u8, u8)> {
    (1..MAX_UNITS).flat_map(|k| (1..=MAX_UNITS - k).map(move |m| (k, m)))
}

/// All units of a code.
fn units(k: u8, m: u8) -> UnitSet {
    let data = (0..k).map(Unit::Data);
    data.chain((0..m).map(Unit::Parity)).collect()
}

/// Data units of different lengths, up to `most` bytes.
fn some_data(rng: &mut Rng, k: u8, most: usize) -> Vec<Vec<u8>> {
    let unit = |_| {
        let len = if rng.one_in(2) { most } else { rng.index(most + 1) };
        rng.bytes(len)
    };
    (0..k).map(unit).collect()
}

fn slices(of: &[Vec<u8>]) -> Vec<&[u8]> {
    of.iter().map(Vec::as_slice).collect()
}

fn slices_mut(of: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    of.iter_mut().map(Vec::as_mut_slice).collect()
}

/// All choices of `n` of `0..of`, in order.
fn choices(n: usize, of: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut next = (n <= of).then(|| (0..n).collect::<Vec<_>>());
    std::iter::from_fn(move || {
        let this = next.take()?;
        // The last that can still go on does, and those after it follow it.
        if let Some(at) = (0..n).rfind(|at| this[*at] < of - n + at) {
            let mut after = this.clone();
            for (i, v) in after[at..].iter_mut().enumerate() {
                *v = this[at] + 1 + i;
            }
            next = Some(after);
        }
        Some(this)
    })
}
