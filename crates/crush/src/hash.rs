//! Robert Jenkins' 32-bit mixing hash as CRUSH uses it ("rjenkins1", hash type 0).
//!
//! The mix is the public-domain function of <http://burtleburtle.net/bob/hash/evahash.html>; the
//! order in which the arguments are mixed in is that of Ceph's `src/crush/hash.c`. Placement of
//! every object depends on it.

/// The only hash type that exists in maps (`CRUSH_HASH_RJENKINS1`).
pub const HASH_RJENKINS1: u8 = 0;

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1_232;

/// The hash's name for dumps; `unknown` for a type that no mapper implements.
pub fn hash_name(kind: u8) -> &'static str {
    if kind == HASH_RJENKINS1 {
        "rjenkins1"
    } else {
        "unknown"
    }
}

#[inline(always)]
fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    // Three rounds, each of which folds every word into the next with its own shifts.
    macro_rules! round {
        ($s1:literal, $s2:literal, $s3:literal) => {
            *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> $s1);
            *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << $s2);
            *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> $s3);
        };
    }
    round!(13, 8, 13);
    round!(12, 16, 5);
    round!(3, 10, 15);
}

/// Hashes two words: placement seeds from (PG seed, pool), the reweight test from (x, device).
#[inline]
pub fn hash32_2(mut a: u32, mut b: u32) -> u32 {
    let (mut x, mut y, mut h) = (X, Y, SEED ^ a ^ b);
    mix(&mut a, &mut b, &mut h);
    mix(&mut x, &mut a, &mut h);
    mix(&mut b, &mut y, &mut h);
    h
}

/// Hashes three words: the draw of straw, straw2 and permutation choices.
#[inline]
pub fn hash32_3(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let (mut x, mut y, mut h) = (X, Y, SEED ^ a ^ b ^ c);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    h
}

/// Hashes four words: the draw of list and tree choices.
#[inline]
pub fn hash32_4(mut a: u32, mut b: u32, mut c: u32, mut d: u32) -> u32 {
    let (mut x, mut y, mut h) = (X, Y, SEED ^ a ^ b ^ c ^ d);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut a, &mut x, &mut h);
    mix(&mut y, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut d, &mut h);
    h
}
