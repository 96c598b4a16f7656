//! The monitor: cluster maps as services over a replicated log.

pub mod kv;
pub mod raft;
