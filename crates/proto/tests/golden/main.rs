//! Messages and structures recorded from official daemons and clients: decoding and encoding again
//! gives the same bytes, and no mutation of them makes a decoder panic.

// Helpers outside `#[test]` functions fail tests by panicking too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod hex;
mod internal;
mod messages;
mod mutations;
mod payloads;
mod scrub;
mod structures;
