//! The machine of a daemon, as `ceph osd|mon|mgr metadata` shows it: system, block devices, network
//! interfaces.
//!
//! The keys and the forms of the values are those of Ceph 16.2 (`collect_sys_info` in
//! `common/util.cc`, `get_device_metadata` in `common/blkdev.cc`,
//! `KernelDevice::collect_metadata`). A fact that the machine does not tell has no key.

mod block;
mod net;
mod system;
mod text;

pub use block::{Disk, Disks};
pub use net::{interface_of, network_numa};
pub use system::{Resident, load, resident, system};

use std::collections::BTreeMap;

/// Properties by their names.
pub type Metadata = BTreeMap<String, String>;

/// The NUMA nodes of some devices: `{what}_numa_nodes`, `{what}_numa_node` if all have the same,
/// and `{what}_numa_unknown_{kind}` for devices without a known one.
fn numa<'a>(what: &str, kind: &str, nodes: impl Iterator<Item = (&'a str, Option<u32>)>) -> Metadata {
    let mut known = std::collections::BTreeSet::new();
    let mut unknown = std::collections::BTreeSet::new();
    for (name, node) in nodes {
        match node {
            Some(n) => drop(known.insert(n.to_string())),
            None => drop(unknown.insert(name.to_owned())),
        }
    }
    let joined = |s: &std::collections::BTreeSet<String>| s.iter().cloned().collect::<Vec<_>>().join(",");
    let mut found = Metadata::new();
    if !unknown.is_empty() {
        found.insert(format!("{what}_numa_unknown_{kind}"), joined(&unknown));
    }
    if !known.is_empty() {
        found.insert(format!("{what}_numa_nodes"), joined(&known));
    }
    if known.len() == 1 && unknown.is_empty() {
        found.insert(format!("{what}_numa_node"), joined(&known));
    }
    found
}
