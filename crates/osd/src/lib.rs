//! The object storage daemon: PG core, backends and daemon.

pub mod core;
pub mod daemon;
pub mod heartbeat;
pub mod pg;

pub use daemon::{MkfsConfig, OsdConfig, OsdError, mkfs, run};

#[cfg(test)]
mod sim;
