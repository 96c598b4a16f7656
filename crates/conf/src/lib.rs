//! `ceph.conf`: its grammar, the order of its sections, metavariables, and the monitors' addresses;
//! and the options with their types, defaults and sources.
//!
//! The grammar is documented at docs.ceph.com under "Configuring Ceph"; it is close to INI but for
//! keys in which space, `_` and `-` are one, values continued by a backslash, and values that name
//! other options.

pub mod amount;
mod auth_methods;
mod file;
mod mon_host;
mod network;
pub mod options;
pub mod security;
mod size;

pub use file::{ConfFile, Error, hostname};
pub use mon_host::parse_mon_host;
pub use network::{HostAddr, NetworkError, pick_address};
pub use size::parse_size;
