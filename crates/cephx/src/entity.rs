//! The record of an entity at the monitors: `EntityAuth` of Ceph's `src/auth/Auth.h`.

use std::collections::BTreeMap;

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer, decode_all, encode_to_vec};

use crate::key::CryptoKey;
use crate::wire::AuthCaps;

/// An entity's key and capabilities.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntityAuth {
    /// The key.
    pub key: CryptoKey,
    /// Capability text by service: `mon`, `osd`, `mds`, `mgr`.
    pub caps: BTreeMap<String, String>,
}

impl EntityAuth {
    /// The capabilities for a service, in the form of tickets. Empty if it has none.
    pub fn caps_for(&self, service: &str) -> AuthCaps {
        self.caps
            .get(service)
            .map(|text| AuthCaps::from_text(text))
            .unwrap_or_default()
    }
}

/// Version 2, which Pacific writes; 3 adds a pending key.
impl Encode for EntityAuth {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.u64(u64::MAX);
        w.put(&self.key);
        w.count(self.caps.len());
        for (service, text) in &self.caps {
            w.string(service);
            // The text is an encoded string inside a byte string.
            w.blob(&encode_to_vec(text));
        }
    }
}

impl Decode for EntityAuth {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let version = r.u8()?;
        if version >= 2 {
            r.u64()?;
        }
        let key = r.get()?;
        let mut caps = BTreeMap::new();
        for _ in 0..r.count(8)? {
            let service = r.string()?;
            caps.insert(service, decode_all(r.blob()?)?);
        }
        if version >= 3 && !r.get::<CryptoKey>()?.is_empty() {
            return Err(Error::Invalid("pending key"));
        }
        Ok(Self { key, caps })
    }
}
