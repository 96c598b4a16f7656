//! A change of an object's data, as its members carry it out.
//!
//! The ops of a request are first added up: what each byte becomes in the end, and what goes
//! ([`Change`]). [`Change::old`] names the bytes that must be known of the object as it was. With
//! them [`Change::steps`] makes steps that are the same for all members, so a member that has them
//! can give them to any other. [`Layout::carry_out`] says what they mean for the fragment of one
//! member.
//!
//! A stripe of which everything is new is coded anew: nothing of it need be known, and coding
//! fragments are written without being read. For other stripes the members get differences, old xor
//! new. Each adds them, times its coefficient, to what its fragment has, and must store the result
//! rather than the difference: a difference that is added twice does damage.
//!
//! Large changes are made in two phases, so that not all bytes go to all members:
//! [`Layout::divide`](crate::Layout::divide).
//!
//! Bytes behind an object's end are zeros in every fragment, or not there.

mod blocks;
mod carry_out;
mod divide;
mod net;
mod portions;
mod steps;

pub use carry_out::{FragmentOp, add};
pub use divide::Divided;
pub use net::Change;
pub use steps::Step;

use bytes::Bytes;
use spirula_denc::Extent;

/// Bytes by their offset, in order and disjoint. What lies between is zeros.
pub type Pieces = Vec<(u64, Bytes)>;

/// Copies a range of pieces, with zeros where there are none.
pub(crate) fn copy_of(pieces: &[(u64, Bytes)], range: Extent) -> Vec<u8> {
    let mut out = vec![0; len(range.len)];
    for (at, bytes) in within(pieces, range) {
        let from = len(at - range.offset);
        out[from..from + bytes.len()].copy_from_slice(&bytes);
    }
    out
}

/// The parts of pieces that lie in a range.
pub fn within(pieces: &[(u64, Bytes)], range: Extent) -> impl Iterator<Item = (u64, Bytes)> {
    let first = pieces.partition_point(|(at, bytes)| at + bytes.len() as u64 <= range.offset);
    let until = pieces[first..]
        .iter()
        .take_while(move |(at, _)| *at < range.end());
    until.map(move |(at, bytes)| {
        let end = at + bytes.len() as u64;
        let (from, to) = ((*at).max(range.offset), end.min(range.end()));
        (from, bytes.slice(len(from - at)..len(to - at)))
    })
}

/// A length in memory: what is asked for here was given in one piece before.
pub(crate) fn len(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
