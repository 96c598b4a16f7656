//! Ceph's wire encoding and the base types that every other crate shares.
//!
//! All integers are little-endian. A [`Reader`] never reads past its end and never allocates more
//! than the bytes it holds, so a decoder built from it is bounded by its input. Types implement
//! [`Encode`] and [`Decode`]; versioned structures are declared with [`versioned!`], on
//! [`Writer::section`] and [`Reader::section`], the counterpart of the
//! `ENCODE_START`/`DECODE_START` blocks documented in Ceph's `src/include/encoding.h`. Sets of
//! flags are declared with [`flags!`].
//!
//! Features are not a parameter: Spirula freezes the encoding at Pacific's level (see
//! ARCHITECTURE.md), and every client negotiates down to it.

mod addr;
mod codec;
mod extent;
mod flags;
mod micros;
mod name;
mod reader;
mod time;
mod versioned;
mod writer;

pub use addr::{AddrType, EntityAddr, EntityAddrVec};
pub use codec::{Decode, Encode, decode_all, encode_to_vec};
pub use extent::Extent;
pub use flags::write_joined;
pub use micros::Micros;
pub use name::{EntityName, EntityType, Fsid};
pub use reader::{Error, Reader, Result};
pub use time::UTime;
pub use versioned::at_least;
pub use writer::{Hole, Writer};
