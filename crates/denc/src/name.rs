//! Who an entity is: `entity_name_t` of Ceph's `src/msg/msg_types.h`, and the cluster's id.

use std::fmt;

use crate::{Decode, Encode, Reader, Result, Writer};

/// The kind of an entity, as the integer on the wire (`CEPH_ENTITY_TYPE_*` in
/// `src/include/msgr.h`). Unknown values survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityType(pub u8);

impl EntityType {
    /// A monitor.
    pub const MON: Self = Self(0x01);
    /// A metadata server.
    pub const MDS: Self = Self(0x02);
    /// An object storage daemon.
    pub const OSD: Self = Self(0x04);
    /// A client.
    pub const CLIENT: Self = Self(0x08);
    /// A manager.
    pub const MGR: Self = Self(0x10);
    /// The ticket service of the monitors.
    pub const AUTH: Self = Self(0x20);

    /// The type's name as it stands in keyrings and commands, `unknown` for a value without one.
    pub fn name(self) -> &'static str {
        match self {
            Self::MON => "mon",
            Self::MDS => "mds",
            Self::OSD => "osd",
            Self::CLIENT => "client",
            Self::MGR => "mgr",
            Self::AUTH => "auth",
            _ => "unknown",
        }
    }

    /// The type called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::MON,
            Self::MDS,
            Self::OSD,
            Self::CLIENT,
            Self::MGR,
            Self::AUTH,
        ]
        .into_iter()
        .find(|t| t.name() == name)
    }
}

/// A numbered entity: `osd.3`, `client.4117` (the number of a client is its global id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityName {
    /// What it is.
    pub kind: EntityType,
    /// Its number; negative where it has none yet.
    pub num: i64,
}

impl EntityName {
    /// `kind.num`.
    pub const fn new(kind: EntityType, num: i64) -> Self {
        Self { kind, num }
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.num < 0 {
            write!(f, "{}.?", self.kind.name())
        } else {
            write!(f, "{}.{}", self.kind.name(), self.num)
        }
    }
}

impl Encode for EntityName {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.kind.0);
        w.i64(self.num);
    }
}

impl Decode for EntityName {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            kind: EntityType(r.u8()?),
            num: r.i64()?,
        })
    }
}

/// A cluster's id, or any other 16-byte UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fsid(pub [u8; 16]);

impl Fsid {
    /// Parses the hyphenated text form.
    pub fn parse(text: &str) -> Option<Self> {
        let b = text.as_bytes();
        if b.len() != 36 || [8, 13, 18, 23].iter().any(|&i| b[i] != b'-') {
            return None;
        }
        let mut digits = b
            .iter()
            .filter(|&&c| c != b'-')
            .map(|&c| char::from(c).to_digit(16));
        let mut out = [0u8; 16];
        for byte in &mut out {
            let (hi, lo) = (digits.next()??, digits.next()??);
            *byte = u8::try_from(hi * 16 + lo).ok()?;
        }
        digits.next().is_none().then_some(Self(out))
    }

    /// Whether it is all zero, which means unset.
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Fsid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&i) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}

impl Encode for Fsid {
    fn encode(&self, w: &mut Writer) {
        w.bytes(&self.0);
    }
}

impl Decode for Fsid {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self(r.array()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fsid_text_round_trips() {
        let text = "822710f7-b7e5-46c2-8ca2-5a9ea427888a";
        assert_eq!(Fsid::parse(text).unwrap().to_string(), text);
        assert_eq!(Fsid::parse("822710f7-b7e5-46c2-8ca2-5a9ea427888"), None);
        assert_eq!(Fsid::parse("822710f7-b7e5-46c2-8ca2-5a9ea42788-a"), None);
    }
}
