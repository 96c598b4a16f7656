//! Networks that a grant is limited to.

use std::net::IpAddr;

/// A network in CIDR notation. Invalid text is kept, and contains no address: its grant allows
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network(Option<(IpAddr, u32)>);

impl Network {
    pub(super) fn new(text: &str) -> Self {
        let parsed = text
            .split_once('/')
            .and_then(|(ip, prefix)| Some((ip.parse().ok()?, prefix.parse().ok()?)));
        Self(parsed)
    }

    pub(super) fn contains(&self, addr: Option<IpAddr>) -> bool {
        fn bits(ip: IpAddr) -> (u128, u32) {
            match ip {
                IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
                IpAddr::V6(v6) => (v6.to_bits(), 128),
            }
        }
        let (Some((net, prefix)), Some(addr)) = (self.0, addr) else {
            return false;
        };
        let ((net, width), (addr, addr_width)) = (bits(net), bits(addr));
        let host_bits = width.saturating_sub(prefix);
        // A shift by all 128 bits leaves nothing to compare.
        width == addr_width && (net ^ addr).checked_shr(host_bits).unwrap_or(0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_same_family_inside_the_prefix() {
        let within = |net: &str, addr: &str| Network::new(net).contains(addr.parse().ok());
        assert!(within("10.1.0.0/16", "10.1.255.3"));
        assert!(!within("10.1.0.0/16", "10.2.0.1"));
        assert!(within("0.0.0.0/0", "1.2.3.4"));
        assert!(within("::/0", "fe80::1"));
        assert!(!within("::/0", "1.2.3.4"));
        assert!(within("10.0.0.7/32", "10.0.0.7") && !within("10.0.0.7/99", "10.0.0.8"));
        assert!(!within("10.0.0.0", "10.0.0.0") && !within("10.0.0.0/x", "10.0.0.0"));
        assert!(!within("10.0.0.0/8", "-"));
    }
}
