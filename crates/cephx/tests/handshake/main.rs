//! Both sides of every handshake against each other, in memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail as tests do"
)]

mod authorizer;
mod cluster;
mod forgery;
mod greeting;
mod hostile;
mod key_types;
mod login;
mod session;
