//! `entity_addr_t` and `entity_addrvec_t` of Ceph's `src/msg/msg_types.h`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::{Decode, Encode, Error, Reader, Result, Writer};

/// Which protocol is spoken at an address. Unknown values survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AddrType(pub u32);

impl AddrType {
    /// No address.
    pub const NONE: Self = Self(0);
    /// msgr1.
    pub const LEGACY: Self = Self(1);
    /// msgr2.
    pub const MSGR2: Self = Self(2);
    /// Either; the form blocklists use.
    pub const ANY: Self = Self(3);
    /// A network (blocklist ranges).
    pub const CIDR: Self = Self(4);
}

/// One address of an entity: protocol, nonce (which tells restarts apart) and socket address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityAddr {
    /// The protocol.
    pub kind: AddrType,
    /// Tells one life of a daemon from the next; 0 for monitors.
    pub nonce: u32,
    /// The socket address, `None` for the blank address.
    pub socket: Option<SocketAddr>,
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// `sizeof(sockaddr_in6)`, which the official encoder uses for blank addresses too.
const LEN_IN6: u32 = 28;
const LEN_IN: u32 = 16;
/// `sizeof(sockaddr_storage)` after its family, in the form from before msgr2.
const LEGACY_STORAGE: usize = 126;

impl EntityAddr {
    /// A msgr2 address.
    pub const fn v2(socket: SocketAddr, nonce: u32) -> Self {
        Self {
            kind: AddrType::MSGR2,
            nonce,
            socket: Some(socket),
        }
    }

    /// The same address under another protocol.
    #[must_use]
    pub fn with_kind(self, kind: AddrType) -> Self {
        Self { kind, ..self }
    }

    /// Whether it is the blank address.
    pub fn is_blank(&self) -> bool {
        self.socket.is_none()
    }

    fn decode_legacy_after_marker(r: &mut Reader<'_>) -> Result<Self> {
        r.skip(3)?;
        let nonce = r.u32()?;
        let family = u16::from_be_bytes(r.array()?);
        let socket = decode_sockaddr(family, r.bytes(LEGACY_STORAGE)?)?;
        let kind = if socket.is_some() {
            AddrType::LEGACY
        } else {
            AddrType::NONE
        };
        Ok(Self { kind, nonce, socket })
    }

    fn decode_after_marker(r: &mut Reader<'_>) -> Result<Self> {
        r.section("entity_addr_t", 1, |_, r| {
            let kind = AddrType(r.u32()?);
            let nonce = r.u32()?;
            let len = r.u32()?;
            let socket = match len {
                0 => None,
                1 => return Err(Error::Invalid("sockaddr length")),
                _ if len > LEN_IN6 => return Err(Error::Invalid("sockaddr length")),
                _ => {
                    let family = r.u16()?;
                    decode_sockaddr(family, r.bytes(len as usize - 2)?)?
                }
            };
            Ok(Self { kind, nonce, socket })
        })
    }
}

/// Reads what follows the family: port and address in network order.
fn decode_sockaddr(family: u16, data: &[u8]) -> Result<Option<SocketAddr>> {
    let mut r = Reader::new(data);
    match family {
        0 => Ok(None),
        AF_INET => {
            let port = u16::from_be_bytes(r.array()?);
            Ok(Some(SocketAddr::from((Ipv4Addr::from(r.array::<4>()?), port))))
        }
        AF_INET6 => {
            let port = u16::from_be_bytes(r.array()?);
            let flow = u32::from_be_bytes(r.array()?);
            let ip = Ipv6Addr::from(r.array::<16>()?);
            Ok(Some(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, r.u32()?))))
        }
        _ => Err(Error::Invalid("address family")),
    }
}

impl Encode for EntityAddr {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.section(1, 1, |w| {
            w.u32(self.kind.0);
            w.u32(self.nonce);
            match self.socket {
                None => {
                    w.u32(LEN_IN6);
                    w.zeros(LEN_IN6 as usize);
                }
                Some(SocketAddr::V4(a)) => {
                    w.u32(LEN_IN);
                    w.u16(AF_INET);
                    w.bytes(&a.port().to_be_bytes());
                    w.bytes(&a.ip().octets());
                    w.zeros(8);
                }
                Some(SocketAddr::V6(a)) => {
                    w.u32(LEN_IN6);
                    w.u16(AF_INET6);
                    w.bytes(&a.port().to_be_bytes());
                    w.bytes(&a.flowinfo().to_be_bytes());
                    w.bytes(&a.ip().octets());
                    w.u32(a.scope_id());
                }
            }
        });
    }
}

impl Decode for EntityAddr {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            0 => Self::decode_legacy_after_marker(r),
            1 => Self::decode_after_marker(r),
            _ => Err(Error::Invalid("entity_addr_t marker")),
        }
    }
}

/// `v2:127.0.0.1:6800/123`; `-` for the blank address; no prefix for [`AddrType::ANY`].
impl fmt::Display for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.kind {
            AddrType::NONE => return f.write_str("-"),
            AddrType::LEGACY => "v1:",
            AddrType::MSGR2 => "v2:",
            AddrType::ANY => "",
            AddrType::CIDR => "cidr:",
            _ => "???:",
        };
        f.write_str(prefix)?;
        match self.socket {
            Some(s) => write!(f, "{s}/{}", self.nonce),
            None => write!(f, ":/{}", self.nonce),
        }
    }
}

impl std::str::FromStr for EntityAddr {
    type Err = Error;

    /// Parses `[v1:|v2:|any:]IP[:PORT][/NONCE]`, IPv6 addresses in brackets where a port follows.
    /// Without a prefix the type is [`AddrType::ANY`].
    fn from_str(text: &str) -> Result<Self> {
        if text == "-" {
            return Ok(Self::default());
        }
        let prefixes = [
            ("v1:", AddrType::LEGACY),
            ("v2:", AddrType::MSGR2),
            ("any:", AddrType::ANY),
        ];
        let (kind, rest) = prefixes
            .iter()
            .find_map(|(p, k)| text.strip_prefix(p).map(|rest| (*k, rest)))
            .unwrap_or((AddrType::ANY, text));
        let (host, nonce) = match rest.rsplit_once('/') {
            Some((host, n)) => (host, n.parse().map_err(|_| Error::Invalid("nonce"))?),
            None => (rest, 0),
        };
        let socket = host
            .parse::<SocketAddr>()
            .or_else(|_| {
                host.trim_start_matches('[')
                    .trim_end_matches(']')
                    .parse::<IpAddr>()
                    .map(|ip| SocketAddr::new(ip, 0))
            })
            .map_err(|_| Error::Invalid("address"))?;
        Ok(Self {
            kind,
            nonce,
            socket: Some(socket),
        })
    }
}

/// All addresses of an entity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityAddrVec(pub Vec<EntityAddr>);

impl EntityAddrVec {
    /// The msgr2 address, the only one that Spirula itself uses.
    pub fn v2(&self) -> Option<&EntityAddr> {
        self.0.iter().find(|a| a.kind == AddrType::MSGR2)
    }

    /// Whether there is no usable address.
    pub fn is_blank(&self) -> bool {
        self.0.iter().all(EntityAddr::is_blank)
    }
}

impl From<EntityAddr> for EntityAddrVec {
    fn from(a: EntityAddr) -> Self {
        Self(vec![a])
    }
}

impl Encode for EntityAddrVec {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        self.0.encode(w);
    }
}

impl Decode for EntityAddrVec {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            0 => Ok(EntityAddr::decode_legacy_after_marker(r)?.into()),
            1 => Ok(EntityAddr::decode_after_marker(r)?.into()),
            2 => Ok(Self(r.get()?)),
            _ => Err(Error::Invalid("entity_addrvec_t marker")),
        }
    }
}

/// One address plain, several in brackets with commas, none as `-`.
impl fmt::Display for EntityAddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("-"),
            [one] => write!(f, "{one}"),
            many => {
                f.write_str("[")?;
                for (i, a) in many.iter().enumerate() {
                    write!(f, "{}{a}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode_all, encode_to_vec};

    #[test]
    fn every_shape_of_address_round_trips() {
        for text in [
            "v2:127.0.0.1:6800/77",
            "v1:10.0.0.1:0/0",
            "v2:[::1]:3300/0",
            "192.168.1.1:0/3710147553",
            "-",
        ] {
            let a: EntityAddr = text.parse().unwrap();
            assert_eq!(a.to_string(), text);
            assert_eq!(decode_all::<EntityAddr>(&encode_to_vec(&a)), Ok(a));
            let v = EntityAddrVec(vec![a, a]);
            assert_eq!(decode_all::<EntityAddrVec>(&encode_to_vec(&v)), Ok(v));
        }
    }

    /// The bytes that `monmaptool --create --addv a [v2:127.0.0.1:43300/0]` writes for the address.
    #[test]
    fn encodes_as_the_official_tools_do() {
        let a: EntityAddr = "v2:127.0.0.1:43300/0".parse().unwrap();
        let want = [
            1, 1, 1, 28, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0xa9, 0x24, 127, 0, 0, 1, 0, 0,
            0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(encode_to_vec(&a), want);
    }
}
