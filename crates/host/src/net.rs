//! The network interfaces of a daemon's addresses.

use std::net::IpAddr;
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use crate::text::read_value;
use crate::{Metadata, numa};

/// The directory of interfaces by name.
const SYSFS: &str = "/sys/class/net";

/// The interface that has an address. `None` for the loopback interface too, as in Ceph.
pub fn interface_of(ip: IpAddr) -> Option<String> {
    let all = getifaddrs().ok()?;
    let mut others = all.filter(|i| !i.flags.contains(InterfaceFlags::IFF_LOOPBACK));
    let has = |a: nix::sys::socket::SockaddrStorage| match ip {
        IpAddr::V4(v4) => a.as_sockaddr_in().is_some_and(|s| s.ip() == v4),
        IpAddr::V6(v6) => a.as_sockaddr_in6().is_some_and(|s| s.ip() == v6),
    };
    others
        .find(|i| i.address.is_some_and(has))
        .map(|i| i.interface_name)
}

/// The NUMA nodes of interfaces, each given as its use and its name.
pub fn network_numa<'a>(interfaces: impl IntoIterator<Item = (&'a str, &'a str)>) -> Metadata {
    let nodes = interfaces
        .into_iter()
        .map(|(used_as, name)| (used_as, node(Path::new(SYSFS), name)));
    numa("network", "ifaces", nodes)
}

/// The NUMA node of an interface; `None` if the kernel knows none (-1) or has no such device.
fn node(sysfs: &Path, name: &str) -> Option<u32> {
    if name.is_empty() || name.contains('/') {
        return None;
    }
    read_value(&sysfs.join(name).join("device/numa_node"))?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_and_foreign_addresses_have_no_name() {
        assert_eq!(interface_of("127.0.0.1".parse().unwrap()), None);
        assert_eq!(interface_of("::1".parse().unwrap()), None);
        assert_eq!(interface_of("203.0.113.77".parse().unwrap()), None);
        let unknown = network_numa([("front_iface", ""), ("back_iface", "../..")]);
        let want = [(
            "network_numa_unknown_ifaces".to_owned(),
            "back_iface,front_iface".to_owned(),
        )];
        assert_eq!(unknown, Metadata::from(want));
    }

    #[test]
    fn nodes_are_what_the_kernel_says() {
        let dir = std::env::temp_dir().join(format!("spirula-net-{}", std::process::id()));
        for (name, text) in [("eth0", "1\n"), ("eth1", "-1\n"), ("eth2", "many\n")] {
            std::fs::create_dir_all(dir.join(name).join("device")).unwrap();
            std::fs::write(dir.join(name).join("device/numa_node"), text).unwrap();
        }
        let nodes = ["eth0", "eth1", "eth2", "eth3"].map(|name| node(&dir, name));
        assert_eq!(nodes, [Some(1), None, None, None]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn one_node_is_named_where_all_are_near_to_it() {
        let of = |nodes: &[(&str, Option<u32>)]| {
            let all = numa("network", "ifaces", nodes.iter().copied());
            all.into_iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            of(&[("f", Some(1)), ("b", Some(1))]),
            "network_numa_node=1 network_numa_nodes=1"
        );
        assert_eq!(of(&[("f", Some(1)), ("b", Some(0))]), "network_numa_nodes=0,1");
        assert_eq!(
            of(&[("f", Some(1)), ("b", None)]),
            "network_numa_nodes=1 network_numa_unknown_ifaces=b"
        );
        assert_eq!(of(&[]), "");
    }
}
