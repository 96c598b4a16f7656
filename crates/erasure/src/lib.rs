//! Erasure-coded pools: their code, and where an object's bytes lie. No I/O, and nothing of a PG.
//!
//! A [`Layout`] divides an object into stripes of k data units, and says which part of it a member
//! holds in a role. A [`Code`] makes m coding units of the data units of a stripe, so that any k
//! units of the stripe give all the others: systematic Reed-Solomon over GF(2^8).
//!
//! Its first coding unit is the XOR of the data units, and the coding units of data unit 0 alone
//! are its copies. So an object of one unit is the same on m + 1 members, as in a replicated pool.
//!
//! A byte of a coding unit depends on the bytes of the data units at the same offset only, and
//! [`Layout`] gives all units of a stripe the same offset in their fragments. So whole fragments,
//! or any part of them, can be coded at once; a fragment that ends earlier goes on with zeros.
//!
//! The code is our own, with kernels for the instructions of x86-64 and 64-bit ARM. `rusty_erasure`
//! 0.4 can do the same and is somewhat faster, but it is a few months old, of a single vendor, and
//! needs a newer Rust; the libraries that are older have no updates by differences, no matrix of
//! ours, or need C. Once there is a library with a history this crate may become its user: what it
//! calculates is defined by [`Code::coefficient`].

mod change;
mod code;
mod digest;
mod error;
mod gather;
mod gf;
mod kernel;
mod layout;
mod matrix;
mod plan;
#[cfg(test)]
mod tests;
mod unit;

pub use change::{Change, Divided, FragmentOp, Pieces, Step, add, within};
pub use code::{Code, CodeKind};
pub use digest::{FragmentDigest, Verdict};
pub use error::Error;
pub use gather::{FragmentExtents, FragmentPieces, Gather};
pub use kernel::xor;
pub use layout::{Layout, Piece, Stripes};
pub use plan::DecodePlan;
pub use unit::{Unit, UnitSet};

/// The most units of a stripe, data and coding units together.
pub const MAX_UNITS: u8 = 32;
