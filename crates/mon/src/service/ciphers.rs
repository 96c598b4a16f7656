//! The types of keys that entities may have and get: Ceph keeps these in the monitor map
//! (`auth_allowed_ciphers`, `auth_preferred_cipher`, `auth_service_cipher` of `src/mon/MonMap.h`),
//! here they are a value of the key database.

use std::collections::BTreeSet;

use spirula_cephx::KeyType;
use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};

/// The cluster's policy. The preferred type is always among the allowed ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ciphers {
    allowed: BTreeSet<KeyType>,
    preferred: KeyType,
    service: KeyType,
}

impl Default for Ciphers {
    /// All clients may log in, and new keys are of the type that all releases know. Services are of
    /// one version, so their secrets may be of the stronger type.
    fn default() -> Self {
        Self {
            allowed: KeyType::ALL.into(),
            preferred: KeyType::Aes,
            service: KeyType::Aes256k,
        }
    }
}

impl Ciphers {
    /// The default, with another type for new keys.
    pub fn preferring(kind: KeyType) -> Self {
        Self {
            preferred: kind,
            ..Self::default()
        }
    }

    /// The types of keys that entities may log in with.
    pub fn allowed(&self) -> &BTreeSet<KeyType> {
        &self.allowed
    }

    /// The type of a new key whose type is not given.
    pub fn preferred(&self) -> KeyType {
        self.preferred
    }

    /// The type of new rotating secrets.
    pub fn service(&self) -> KeyType {
        self.service
    }

    /// The strongest type that is allowed.
    pub fn strongest(&self) -> KeyType {
        self.allowed.last().copied().unwrap_or(self.preferred)
    }

    /// The policy with these types allowed, of which there must be some. If the preferred type is
    /// not among them any more, the strongest of them becomes it.
    #[must_use]
    pub fn allowing(&self, allowed: BTreeSet<KeyType>) -> Self {
        let mut new = Self {
            allowed,
            ..self.clone()
        };
        if !new.allowed.contains(&new.preferred) {
            new.preferred = new.strongest();
        }
        new
    }

    /// The policy with this type preferred, which must be allowed.
    #[must_use]
    pub fn with_preferred(&self, preferred: KeyType) -> Self {
        Self {
            preferred,
            ..self.clone()
        }
    }

    /// The policy with this type for services.
    #[must_use]
    pub fn with_service(&self, service: KeyType) -> Self {
        Self {
            service,
            ..self.clone()
        }
    }
}

impl Encode for Ciphers {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.count(self.allowed.len());
        for kind in &self.allowed {
            w.u16(kind.to_wire());
        }
        w.u16(self.preferred.to_wire());
        w.u16(self.service.to_wire());
    }
}

fn kind(r: &mut Reader<'_>) -> Result<KeyType> {
    KeyType::from_wire(r.u16()?)
        .filter(|k| *k != KeyType::None)
        .ok_or(Error::Invalid("key type"))
}

impl Decode for Ciphers {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        if r.u8()? != 1 {
            return Err(Error::Invalid("ciphers"));
        }
        let mut allowed = BTreeSet::new();
        for _ in 0..r.count(2)? {
            allowed.insert(kind(r)?);
        }
        let (preferred, service) = (kind(r)?, kind(r)?);
        if !allowed.contains(&preferred) {
            return Err(Error::Invalid("ciphers"));
        }
        Ok(Self {
            allowed,
            preferred,
            service,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spirula_denc::{decode_all, encode_to_vec};

    #[test]
    fn the_preferred_type_is_always_allowed() {
        let policy = Ciphers::default();
        assert_eq!(policy.preferred(), KeyType::Aes);
        let strict = policy.allowing([KeyType::Aes256k].into());
        assert_eq!(strict.preferred(), KeyType::Aes256k);
        assert_eq!(policy.allowing(KeyType::ALL.into()), policy);
        for p in [policy, strict] {
            assert_eq!(decode_all::<Ciphers>(&encode_to_vec(&p)), Ok(p));
        }
    }

    #[test]
    fn what_makes_no_sense_is_not_loaded() {
        // None allowed; the preferred one not allowed; type 3; type 0.
        for bytes in [
            &[1, 0, 0, 0, 0, 1, 0, 1, 0][..],
            &[1, 1, 0, 0, 0, 2, 0, 1, 0, 1, 0],
            &[1, 1, 0, 0, 0, 3, 0, 3, 0, 1, 0],
            &[1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0],
            &[2, 1, 0, 0, 0, 1, 0, 1, 0, 1, 0],
        ] {
            assert!(decode_all::<Ciphers>(bytes).is_err(), "{bytes:?}");
        }
    }
}
