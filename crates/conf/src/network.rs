//! `public_network` and `cluster_network`: choice of a daemon's address among the host's.

use std::net::IpAddr;

/// An address of one of the host's interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAddr {
    /// The interface: `eth0`.
    pub interface: String,
    /// The address.
    pub addr: IpAddr,
}

/// Why no address was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// A word that is no network.
    #[error("unable to parse network: {0}")]
    Parse(String),
    /// Interfaces are named without networks.
    #[error("interface names specified but not network names")]
    NoNetworks,
    /// None of the interfaces exists.
    #[error("no interfaces matching [{0}]")]
    NoInterface(String),
    /// The host has no address in any of the networks.
    #[error(
        "unable to find any IP address in networks '{networks}' interfaces '{interfaces}'; this host has {has}"
    )]
    NoAddress {
        /// The networks, as configured.
        networks: String,
        /// The interfaces, as configured.
        interfaces: String,
        /// The addresses of the host.
        has: String,
    },
}

/// A network such as `10.0.0.0/8`. Bits of the host may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    addr: IpAddr,
    prefix: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (addr, prefix) = text.split_once('/')?;
        let addr: IpAddr = addr.trim_matches(['[', ']']).parse().ok()?;
        let prefix = prefix.parse().ok()?;
        let longest = if addr.is_ipv4() { 32 } else { 128 };
        (prefix <= longest).then_some(Self { addr, prefix })
    }

    fn contains(&self, other: IpAddr) -> bool {
        match (self.addr, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let differing = a.to_bits() ^ b.to_bits();
                differing.leading_zeros() >= self.prefix
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let differing = a.to_bits() ^ b.to_bits();
                differing.leading_zeros() >= self.prefix
            }
            _ => false,
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_separator = |c: char| c == ',' || c == ';' || c.is_whitespace();
    text.split(is_separator).filter(|w| !w.is_empty())
}

/// The daemon's address: the first one in the first of `networks` with any, on one of `interfaces`
/// if some are named. A loopback address is only taken if there is no other.
///
/// # Errors
/// Where there is none, or the lists make no sense.
pub fn pick_address(networks: &str, interfaces: &str, here: &[HostAddr]) -> Result<IpAddr, NetworkError> {
    let wanted: Vec<&str> = words(interfaces).collect();
    let parse = |w: &str| Network::parse(w).ok_or_else(|| NetworkError::Parse(w.to_owned()));
    let nets = words(networks).map(parse).collect::<Result<Vec<_>, _>>()?;
    if nets.is_empty() && !wanted.is_empty() {
        return Err(NetworkError::NoNetworks);
    }
    let is_wanted = |a: &&HostAddr| wanted.is_empty() || wanted.contains(&a.interface.as_str());
    let usable: Vec<&HostAddr> = here.iter().filter(is_wanted).collect();
    if usable.is_empty() && !wanted.is_empty() {
        return Err(NetworkError::NoInterface(wanted.join(",")));
    }
    let find = |is_loopback: bool| {
        nets.iter().find_map(|n| {
            let matching = |a: &&&HostAddr| a.addr.is_loopback() == is_loopback && n.contains(a.addr);
            usable.iter().find(matching)
        })
    };
    let found = find(false).or_else(|| find(true));
    found.map(|a| a.addr).ok_or_else(|| {
        let all = usable.iter().map(|a| format!("{} on {}", a.addr, a.interface));
        let has: Vec<String> = all.collect();
        NetworkError::NoAddress {
            networks: networks.to_owned(),
            interfaces: interfaces.to_owned(),
            has: match has.is_empty() {
                true => "none".to_owned(),
                false => has.join(", "),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Vec<HostAddr> {
        let on = |interface: &str, addr: &str| HostAddr {
            interface: interface.to_owned(),
            addr: addr.parse().unwrap(),
        };
        vec![
            on("lo", "127.0.0.1"),
            on("eth0", "10.1.0.5"),
            on("eth0", "fd00::5"),
            on("eth1", "192.168.7.9"),
            on("eth2", "10.1.0.6"),
        ]
    }

    fn pick(networks: &str, interfaces: &str) -> Result<String, String> {
        let picked = pick_address(networks, interfaces, &here());
        picked.map(|a| a.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_first_network_with_an_address_decides() {
        let ok = |t: &str| Ok(t.to_owned());
        assert_eq!(pick("10.1.0.0/16", ""), ok("10.1.0.5"));
        assert_eq!(
            pick("10.1.99.99/16", ""),
            ok("10.1.0.5"),
            "bits of the host count for nothing"
        );
        assert_eq!(
            pick("10.9.0.0/16, 192.168.0.0/16;10.1.0.0/16", ""),
            ok("192.168.7.9")
        );
        assert_eq!(pick("fd00::/64", ""), ok("fd00::5"));
        assert_eq!(
            pick("0.0.0.0/0", ""),
            ok("10.1.0.5"),
            "loopback is the last choice"
        );
        assert_eq!(pick("127.0.0.0/8", ""), ok("127.0.0.1"));
        assert_eq!(pick("10.1.0.6/32", ""), ok("10.1.0.6"));
        assert_eq!(pick("10.1.0.0/16", "eth1 eth2"), ok("10.1.0.6"));
    }

    #[test]
    fn what_can_not_be_is_said() {
        let refused = |networks, interfaces| pick(networks, interfaces).unwrap_err();
        let none = refused("10.7.0.0/16", "");
        assert!(none.starts_with("unable to find any IP address in networks '10.7.0.0/16' interfaces ''"));
        assert!(none.contains("192.168.7.9 on eth1"), "{none}");
        for bad in ["10.0.0.0", "10.0.0.0/33", "fd00::/129", "eth0/8", "10.0.0.0/-1"] {
            assert_eq!(refused(bad, ""), format!("unable to parse network: {bad}"));
        }
        assert_eq!(refused("10.1.0.0/16", "eth9"), "no interfaces matching [eth9]");
        assert!(refused("", "eth0").starts_with("interface names specified"));
        assert!(refused("192.168.7.0/24", "eth0").contains("interfaces 'eth0'"));
    }
}
