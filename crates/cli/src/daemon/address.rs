//! The addresses on which daemons listen: `public_addr`, `cluster_addr`, `public_network`,
//! `cluster_network`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use spirula_conf::{HostAddr, pick_address};
use spirula_denc::EntityAddr;

use super::section::Section;
use crate::error::Error;

/// The addresses of this host's interfaces that are up, without link-local ones.
pub(super) fn host_addresses() -> Result<Vec<HostAddr>, Error> {
    let failed = |e: nix::Error| Error::Daemon(format!("unable to fetch interfaces and addresses: {e}"));
    let up = getifaddrs()
        .map_err(failed)?
        .filter(|i| i.flags.contains(InterfaceFlags::IFF_UP));
    let of = |a: SockaddrStorage| match (a.as_sockaddr_in(), a.as_sockaddr_in6()) {
        (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
        (_, Some(v6)) => Some(IpAddr::V6(v6.ip())).filter(|_| !v6.ip().is_unicast_link_local()),
        _ => None,
    };
    let found = up.filter_map(|i| {
        Some(HostAddr {
            addr: of(i.address?)?,
            interface: i.interface_name,
        })
    });
    Ok(found.collect())
}

/// The value of `public_addr` or `cluster_addr`.
fn address(section: &Section, key: &str) -> Result<Option<SocketAddr>, Error> {
    let Some(text) = section.get(key) else {
        return Ok(None);
    };
    let plain = text
        .trim_matches(['[', ']'])
        .parse()
        .ok()
        .map(|ip: IpAddr| SocketAddr::new(ip, 0));
    let parsed = plain.or_else(|| text.parse::<EntityAddr>().ok()?.socket);
    match parsed {
        // As the default of Ceph's option.
        Some(a) if a.ip().is_unspecified() => Ok(None),
        Some(a) => Ok(Some(a)),
        None => Err(section.bad(format!("{key}: {text:?} is not an address"))),
    }
}

/// The value of `public_addr` or `cluster_addr` for a daemon that has no port of its own.
fn host_address(section: &Section, key: &str) -> Result<Option<IpAddr>, Error> {
    match address(section, key)? {
        Some(a) if a.port() != 0 => Err(section.bad(format!(
            "{key}: {a} has a port; OSDs have several, from ms_bind_port_min to ms_bind_port_max"
        ))),
        other => Ok(other.map(|a| a.ip())),
    }
}

/// The address of this host in a network; `None` where none is configured. `which` is `public` or
/// `cluster`.
fn in_network(section: &Section, which: &str, here: &[HostAddr]) -> Result<Option<IpAddr>, Error> {
    let option = |what: &str| section.get(&format!("{which}_{what}")).unwrap_or_default();
    let (networks, interfaces) = (option("network"), option("network_interface"));
    if networks.is_empty() && interfaces.is_empty() {
        return Ok(None);
    }
    let picked = pick_address(&networks, &interfaces, here);
    picked
        .map(Some)
        .map_err(|e| section.bad(format!("{e}\nFailed to pick {which} address.")))
}

/// The address from which this host reaches another one.
fn towards(target: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Sends nothing: the system looks up the route.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

/// An OSD's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OsdAddresses {
    /// For clients.
    pub(super) public: IpAddr,
    /// For other OSDs.
    pub(super) cluster: IpAddr,
}

/// Chooses the addresses as Ceph's OSDs do: the option's, or else the host's in the network, or
/// else the one from which the host reaches a monitor. Without options for the cluster network the
/// public address serves for both.
pub(super) fn osd_addresses(section: &Section, here: &[HostAddr]) -> Result<OsdAddresses, Error> {
    let by_network = in_network(section, "public", here)?;
    let public = match host_address(section, "public_addr")?.or(by_network) {
        Some(ip) => ip,
        None => towards_monitor(section)?,
    };
    let cluster = match host_address(section, "cluster_addr")? {
        Some(ip) => Some(ip),
        None => in_network(section, "cluster", here)?.or(by_network),
    };
    Ok(OsdAddresses {
        public,
        cluster: cluster.unwrap_or(public),
    })
}

fn towards_monitor(section: &Section) -> Result<IpAddr, Error> {
    let mut last = None;
    for monitor in section.monitors()?.iter().filter_map(|m| m.socket) {
        match towards(monitor) {
            Ok(ip) => return Ok(ip),
            Err(e) => last = Some(format!("{monitor}: {e}")),
        }
    }
    Err(section.bad(format!(
        "neither public_addr nor public_network is set, and no monitor can be reached ({})",
        last.unwrap_or_default()
    )))
}

/// The port of a monitor without a configured one.
const MON_PORT: u16 = 3300;

/// A monitor's address where neither its section nor a monitor map has it: this host's in
/// `mon_host`, or else `public_addr`, or else this host's in `public_network`.
pub(super) fn mon_address(section: &Section, here: &[HostAddr]) -> Result<Option<SocketAddr>, Error> {
    let hosts = section.monitors().unwrap_or_default();
    let mut own = hosts
        .iter()
        .filter_map(|m| m.socket)
        .filter(|s| here.iter().any(|a| a.addr == s.ip()));
    // Several of them on one host: which is meant can't be told.
    if let (Some(socket), None) = (own.next(), own.next()) {
        return Ok(Some(socket));
    }
    let with_port = |mut a: SocketAddr| {
        if a.port() == 0 {
            a.set_port(MON_PORT);
        }
        a
    };
    match address(section, "public_addr")? {
        Some(a) => Ok(Some(with_port(a))),
        None => Ok(in_network(section, "public", here)?.map(|ip| SocketAddr::new(ip, MON_PORT))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::section::test_section;
    use super::*;

    fn here() -> Vec<HostAddr> {
        let on = |interface: &str, addr: &str| HostAddr {
            interface: interface.to_owned(),
            addr: addr.parse().unwrap(),
        };
        vec![
            on("lo", "127.0.0.1"),
            on("eth0", "10.1.0.5"),
            on("eth1", "192.168.7.9"),
        ]
    }

    /// Its public and its cluster address.
    fn osd(text: &str) -> Result<[String; 2], String> {
        let chosen = osd_addresses(&test_section("osd.0", text), &here());
        let text = |a: OsdAddresses| [a.public.to_string(), a.cluster.to_string()];
        chosen.map(text).map_err(|e| e.to_string())
    }

    #[test]
    fn an_osd_takes_addresses_as_ceph_does() {
        let both = |a: &str, b: &str| Ok([a.to_owned(), b.to_owned()]);
        let networks = "public_network = 10.1.0.0/16\ncluster_network = 192.168.7.0/24";
        assert_eq!(osd(networks), both("10.1.0.5", "192.168.7.9"));
        assert_eq!(osd("public network = 10.1.0.0/16"), both("10.1.0.5", "10.1.0.5"));
        let explicit = "public_addr = v2:10.9.9.9:0/0\ncluster_addr = 10.8.8.8\npublic_network = 10.1.0.0/16";
        assert_eq!(osd(explicit), both("10.9.9.9", "10.8.8.8"));
        // Where only the address is said, the network still serves for the other OSDs.
        let mixed = "public_addr = 10.9.9.9\npublic_network = 10.1.0.0/16";
        assert_eq!(osd(mixed), both("10.9.9.9", "10.1.0.5"));
        assert_eq!(osd("mon_host = 127.0.0.1"), both("127.0.0.1", "127.0.0.1"));
    }

    #[test]
    fn an_osd_says_why_it_has_no_address() {
        let none = osd("public_network = 10.1.0.0/16\ncluster_network = 10.77.0.0/16").unwrap_err();
        assert!(
            none.contains("unable to find any IP address in networks '10.77.0.0/16'"),
            "{none}"
        );
        assert!(none.contains("Failed to pick cluster address."), "{none}");
        assert!(
            osd("public_addr = 10.1.0.5:6800")
                .unwrap_err()
                .contains("has a port")
        );
        assert!(osd("public_addr = x").unwrap_err().contains("is not an address"));
        assert!(osd("").unwrap_err().contains("mon_host is missing"));
    }

    #[test]
    fn a_monitor_finds_itself() {
        let mon = |text: &str| {
            let section = test_section("mon.a", text);
            mon_address(&section, &here()).unwrap().map(|a| a.to_string())
        };
        let some = |t: &str| Some(t.to_owned());
        assert_eq!(
            mon("mon_host = 10.1.0.4,10.1.0.5,10.1.0.6"),
            some("10.1.0.5:3300")
        );
        assert_eq!(
            mon("mon_host = 10.1.0.4\npublic_network = 192.168.0.0/16"),
            some("192.168.7.9:3300")
        );
        assert_eq!(mon("mon_host = 127.0.0.1:1,127.0.0.1:2"), None);
        assert_eq!(mon("public_addr = 10.1.0.5:3301"), some("10.1.0.5:3301"));
    }
}
