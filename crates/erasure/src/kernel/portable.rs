//! The kernel of machines without vectors that look up bytes, as 32-bit ARM.

use spirula_invariant::invariant;

use super::Term;
use crate::gf::{PRODUCTS, Products};

/// Bytes that are finished before the next ones are begun: they stay in the fastest cache.
const BLOCK: usize = 4096;

/// Fewer bytes than this are multiplied by halves: to make a table of all products would take
/// longer.
const TABLE_MIN: usize = 512;

/// Adds `src` to `dst`, which is not shorter.
pub fn xor(dst: &mut [u8], src: &[u8]) {
    const WORD: usize = size_of::<usize>();
    invariant!(src.len() <= dst.len(), "room for all sums"; source = src.len(), room = dst.len());
    let dst = &mut dst[..src.len()];
    // Compilers make vectors of words where the machine has them; of bytes they make no words.
    let (words, rest) = src.as_chunks::<WORD>();
    let (sums, sums_rest) = dst.as_chunks_mut::<WORD>();
    for (d, s) in sums.iter_mut().zip(words) {
        *d = (usize::from_ne_bytes(*d) ^ usize::from_ne_bytes(*s)).to_ne_bytes();
    }
    for (d, s) in sums_rest.iter_mut().zip(rest) {
        *d ^= s;
    }
}

/// Makes sums of slices that have one length: instead of what is there or, with `ADD`, added to it.
pub(super) fn combine<'a, const N: usize, const ADD: bool>(
    terms: impl Iterator<Item = Term<'a, N>> + Clone,
    out: [&mut [u8]; N],
) {
    for (n, out) in out.into_iter().enumerate() {
        for (block, out) in out.chunks_mut(BLOCK).enumerate() {
            if !ADD {
                out.fill(0);
            }
            for term in terms.clone() {
                let source = &term.source[block * BLOCK..][..out.len()];
                match term.coefficients[n] {
                    0 => {}
                    1 => xor(out, source),
                    c => mul_add(&PRODUCTS[usize::from(c)], out, source),
                }
            }
        }
    }
}

fn mul_add(products: &Products, dst: &mut [u8], src: &[u8]) {
    if src.len() < TABLE_MIN {
        for (d, s) in dst.iter_mut().zip(src) {
            *d ^= products.times(*s);
        }
        return;
    }
    let mut table = [0; 256];
    for (product, b) in table.iter_mut().zip(0..=255) {
        *product = products.times(b);
    }
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= table[usize::from(*s)];
    }
}
