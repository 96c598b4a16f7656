//! How a bucket of each algorithm picks an item for an input `x` and an attempt `r`.
//!
//! The published algorithms (Weil et al., "CRUSH", 2006; straw2: Ceph's `src/crush/mapper.c`).
//! Every participant must compute the same, so arithmetic wraps where the reference wraps.

use crate::hash::{hash32_3, hash32_4};
use crate::ln::crush_ln;
use crate::{Bucket, ChooseArg, HASH_RJENKINS1, Weights};

/// `crush_ln` of the largest draw is just below this; subtracting makes the logarithm negative.
const LN_ONE: i64 = 0x1_0000_0000_0000;

/// A permutation of a bucket's items, computed as far as needed.
#[derive(Debug, Default)]
pub(crate) struct Permutation {
    bucket: i32,
    /// How many places are final; 0: none yet; [`FIRST_ONLY`]: the first, and the others are not
    /// even filled in.
    known: u32,
    order: Vec<u32>,
}

/// Most calls want the first place only, which needs no permutation to be laid out.
const FIRST_ONLY: u32 = 0xffff;

/// The permutations of one mapping; they are kept because retries ask for further places. The
/// memory is reused by later mappings.
#[derive(Debug, Default)]
pub(crate) struct Permutations {
    used: usize,
    all: Vec<Permutation>,
}

impl Permutations {
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    fn of(&mut self, bucket: i32) -> &mut Permutation {
        let at = self.all[..self.used]
            .iter()
            .position(|p| p.bucket == bucket)
            .unwrap_or_else(|| {
                if self.used == self.all.len() {
                    self.all.push(Permutation::default());
                }
                let p = &mut self.all[self.used];
                (p.bucket, p.known) = (bucket, 0);
                p.order.clear();
                self.used += 1;
                self.used - 1
            });
        &mut self.all[at]
    }

    /// The item at place `r` (modulo the size) of the permutation that `x` gives the bucket.
    pub(crate) fn choose(&mut self, b: &Bucket, x: i32, r: i32) -> Option<i32> {
        let size = u32::try_from(b.len()).ok().filter(|n| *n > 0)?;
        let want = r as u32 % size;
        let p = self.of(b.id);
        if p.known == 0 {
            if want == 0 {
                let first = hash3(b, x, b.id, 0) % size;
                p.order.clear();
                p.order.push(first);
                p.known = FIRST_ONLY;
                return b.items.get(first as usize).copied();
            }
            p.order.clear();
            p.order.extend(0..size);
        } else if p.known == FIRST_ONLY {
            let first = p.order.first().copied()?;
            p.order.clear();
            p.order.extend(0..size);
            p.order.swap(0, first as usize);
            p.known = 1;
        }
        while p.known <= want {
            let at = p.known;
            if at < size - 1 {
                let far = hash3(b, x, b.id, at as i32) % (size - at);
                p.order.swap(at as usize, (at + far) as usize);
            }
            p.known += 1;
        }
        b.items.get(*p.order.get(want as usize)? as usize).copied()
    }
}

/// Picks an item of a non-uniform bucket; `None` where the bucket has no item to pick.
pub(crate) fn choose(b: &Bucket, x: i32, r: i32, arg: Option<&ChooseArg>, position: usize) -> Option<i32> {
    match &b.weights {
        // Uniform buckets need state: Permutations::choose.
        Weights::Uniform(_) => None,
        Weights::List { items, sums } => list(b, items, sums, x, r),
        Weights::Tree(nodes) => tree(b, nodes, x, r),
        Weights::Straw { straws, .. } => straw(b, straws, x, r),
        Weights::Straw2(own) => {
            let weights = arg.and_then(|a| a.weights(position, b.len())).unwrap_or(own);
            let ids = arg.and_then(|a| a.ids(b.len())).unwrap_or(&b.items);
            straw2(b, weights, ids, x, r)
        }
    }
}

#[inline(always)]
fn hash3(b: &Bucket, x: i32, y: i32, z: i32) -> u32 {
    if b.hash == HASH_RJENKINS1 {
        hash32_3(x as u32, y as u32, z as u32)
    } else {
        0
    }
}

#[inline(always)]
fn hash4(b: &Bucket, x: i32, y: i32, z: i32) -> u32 {
    if b.hash == HASH_RJENKINS1 {
        hash32_4(x as u32, y as u32, z as u32, b.id as u32)
    } else {
        0
    }
}

/// From the newest item to the oldest: take it with the probability of its share in all that is
/// left.
fn list(b: &Bucket, weights: &[u32], sums: &[u32], x: i32, r: i32) -> Option<i32> {
    for ((item, weight), sum) in b.items.iter().zip(weights).zip(sums).rev() {
        let draw = (u64::from(hash4(b, x, *item, r) & 0xffff) * u64::from(*sum)) >> 16;
        if draw < u64::from(*weight) {
            return Some(*item);
        }
    }
    b.items.first().copied()
}

/// From the root of the weight tree down to a leaf.
fn tree(b: &Bucket, nodes: &[u32], x: i32, r: i32) -> Option<i32> {
    let mut node = nodes.len() / 2;
    while node & 1 == 0 {
        if node == 0 {
            return None;
        }
        let half = 1 << (node.trailing_zeros() - 1);
        let draw = (u64::from(hash4(b, x, node as i32, r)) * u64::from(*nodes.get(node)?)) >> 32;
        let left = node - half;
        node = if draw < u64::from(*nodes.get(left)?) {
            left
        } else {
            node + half
        };
    }
    b.items.get(node / 2).copied()
}

/// The longest scaled straw; the first of equals.
fn straw(b: &Bucket, straws: &[u32], x: i32, r: i32) -> Option<i32> {
    let mut best = (0, *b.items.first()?);
    for (item, straw) in b.items.iter().zip(straws) {
        let draw = u64::from(hash3(b, x, *item, r) & 0xffff) * u64::from(*straw);
        if draw > best.0 {
            best = (draw, *item);
        }
    }
    Some(best.1)
}

/// The largest `ln(u) / weight`: of exponential variables with the weights as rates, the first to
/// arrive.
fn straw2(b: &Bucket, weights: &[u32], ids: &[i32], x: i32, r: i32) -> Option<i32> {
    let mut best = (i64::MIN, *b.items.first()?);
    for ((item, id), weight) in b.items.iter().zip(ids).zip(weights) {
        if *weight == 0 {
            continue;
        }
        let ln = crush_ln((hash3(b, x, *id, r) & 0xffff) as u16) as i64 - LN_ONE;
        // The reference takes the weight as a signed number.
        let draw = ln / i64::from(*weight as i32);
        if draw > best.0 {
            best = (draw, *item);
        }
    }
    Some(best.1)
}
