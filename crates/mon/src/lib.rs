//! The monitor: cluster maps as services over a replicated log.
//!
//! - [`core`]: the monitor as a state machine without I/O.
//! - [`raft`]: the replicated log and its store.
//! - [`service`]: the maps and databases; [`command`]: the commands of `ceph`; [`health`]: its
//!   checks.
//! - [`daemon`]: sockets, the clock and the loop around them.

// `json!` recurses once for each token of the larger dumps.
#![recursion_limit = "512"]

pub mod caps;
pub mod command;
pub mod core;
mod crashes;
pub mod daemon;
mod erasure;
pub mod health;
mod image_io;
pub mod kv;
mod pace;
mod progress;
pub mod raft;
pub mod service;
mod services;
pub mod version;

pub use spirula_conf::options;

pub use daemon::{MkfsConfig, MonConfig, first_state, known_address, mkfs, run};
