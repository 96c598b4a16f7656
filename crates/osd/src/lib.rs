//! The object storage daemon: PG core, backends and daemon.

pub mod core;
pub mod pg;

#[cfg(test)]
mod sim;
