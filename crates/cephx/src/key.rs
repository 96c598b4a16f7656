//! Secret keys: `CryptoKey` of Ceph's `src/auth/Crypto.h`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use spirula_denc::{Decode, Encode, Reader, UTime, Writer, decode_all, encode_to_vec};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::env::Env;
use crate::{Error, Result};

/// What a key is for (`CEPH_CRYPTO_*` in `src/include/ceph_fs.h`). Unknown values are refused when decoded: a key
/// that can't be used must not be stored as if it could.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KeyType(pub u16);

impl KeyType {
    /// No key.
    pub const NONE: Self = Self(0);
    /// AES-128.
    pub const AES: Self = Self(1);
    // Type 2, AES-256 after RFC 8009, exists since 19.2.6 and 20.2.4; it gets its constant with its cipher.

    /// Bytes that a secret of this type must have at least, `None` for a type that is not implemented.
    fn min_len(self) -> Option<usize> {
        match self {
            Self::NONE => Some(0),
            Self::AES => Some(AES_KEY_LEN),
            _ => None,
        }
    }
}

/// Bytes of an AES-128 key.
pub(crate) const AES_KEY_LEN: usize = 16;

/// A secret key with its type and its time of creation. Wiped from memory when dropped; never printed by `Debug`,
/// compared in constant time.
#[derive(Clone, Default)]
pub struct CryptoKey {
    kind: KeyType,
    created: UTime,
    secret: Zeroizing<Vec<u8>>,
}

impl CryptoKey {
    /// A fresh AES-128 key.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn generate(env: &Env<'_>) -> Result<Self> {
        let mut secret = Zeroizing::new(vec![0; AES_KEY_LEN]);
        env.random.fill(&mut secret)?;
        Ok(Self {
            kind: KeyType::AES,
            created: env.now,
            secret,
        })
    }

    /// A key from its parts.
    ///
    /// # Errors
    /// [`Error::BadKey`] for an unknown type or a secret too short for its type.
    pub fn from_parts(kind: KeyType, created: UTime, secret: &[u8]) -> Result<Self> {
        let usable = secret.is_empty() || kind.min_len().is_some_and(|min| secret.len() >= min && min > 0);
        if !usable || secret.len() > usize::from(u16::MAX) {
            return Err(Error::BadKey);
        }
        Ok(Self {
            kind,
            created,
            secret: Zeroizing::new(secret.to_vec()),
        })
    }

    /// Parses the text of keyrings and `ceph auth get-key`; white space around it is ignored.
    ///
    /// # Errors
    /// [`Error::BadKey`].
    pub fn from_base64(text: &str) -> Result<Self> {
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| Error::BadKey)?);
        decode_all(&bytes).map_err(|_| Error::BadKey)
    }

    /// The text of keyrings. It is the secret itself: for files and answers to those who may read it.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(Zeroizing::new(encode_to_vec(self)))
    }

    /// The key's type.
    pub fn kind(&self) -> KeyType {
        self.kind
    }

    /// When it was made.
    pub fn created(&self) -> UTime {
        self.created
    }

    /// Whether there is no secret in it.
    pub fn is_empty(&self) -> bool {
        self.secret.is_empty()
    }

    /// The secret's bytes.
    pub fn secret(&self) -> &[u8] {
        &self.secret
    }
}

impl fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CryptoKey(type {}, created {}, {} secret bytes)",
            self.kind.0,
            self.created,
            self.secret.len()
        )
    }
}

impl PartialEq for CryptoKey {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.created == other.created && self.secret.ct_eq(&other.secret).into()
    }
}

impl Eq for CryptoKey {}

impl Encode for CryptoKey {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.kind.0);
        w.put(&self.created);
        // The constructors keep the length within 16 bits.
        w.u16(u16::try_from(self.secret.len()).unwrap_or(u16::MAX));
        w.bytes(&self.secret);
    }
}

impl Decode for CryptoKey {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        let kind = KeyType(r.u16()?);
        let created = r.get()?;
        let len = r.u16()?;
        Self::from_parts(kind, created, r.bytes(usize::from(len))?)
            .map_err(|_| spirula_denc::Error::Invalid("CryptoKey"))
    }
}

/// The 64 bytes (secure mode) or nothing (crc mode) from which msgr2 takes its connection's keys. Wiped when dropped
/// and never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConnectionSecret(pub Zeroizing<Vec<u8>>);

impl ConnectionSecret {
    /// Random bytes, as many as the mode needs.
    pub(crate) fn generate(mode: ConnectionMode, env: &Env<'_>) -> Result<Self> {
        let mut bytes = Zeroizing::new(vec![0; mode.secret_len()]);
        env.random.fill(&mut bytes)?;
        Ok(Self(bytes))
    }
}

impl std::ops::Deref for ConnectionSecret {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ConnectionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionSecret({} bytes)", self.0.len())
    }
}

/// How a connection is protected after the handshake (`CEPH_CON_MODE_*` in `src/include/ceph_fs.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionMode {
    /// Checksums only.
    Crc,
    /// AES-GCM.
    Secure,
}

impl ConnectionMode {
    /// The mode's number on the wire.
    pub fn to_wire(self) -> u32 {
        match self {
            Self::Crc => 1,
            Self::Secure => 2,
        }
    }

    /// The mode of this number.
    pub fn from_wire(mode: u32) -> Option<Self> {
        [Self::Crc, Self::Secure]
            .into_iter()
            .find(|m| m.to_wire() == mode)
    }

    /// Bytes of connection secret that the mode needs.
    pub fn secret_len(self) -> usize {
        match self {
            Self::Crc => 0,
            Self::Secure => 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "AQAvCMNjrS5iHBAAEXS4PqyH8GSTR0M2Nzdx0g==";

    #[test]
    fn text_of_ceph_authtool_round_trips() {
        let key = CryptoKey::from_base64(TEXT).unwrap();
        assert_eq!(key.kind(), KeyType::AES);
        assert_eq!(key.secret().len(), 16);
        assert_eq!(key.to_base64(), TEXT);
        assert_eq!(CryptoKey::default().to_base64(), "AAAAAAAAAAAAAAAA");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "AQAvCMNjrS5i", "AQAvCMNjrS5iHBAAEXS4PqyH8GSTR0M2Nzdx0g", "!"] {
            assert_eq!(CryptoKey::from_base64(text), Err(Error::BadKey), "{text}");
        }
        assert_eq!(
            CryptoKey::from_parts(KeyType::AES, UTime::ZERO, &[1; 15]),
            Err(Error::BadKey)
        );
        assert_eq!(
            CryptoKey::from_parts(KeyType(2), UTime::ZERO, &[1; 32]),
            Err(Error::BadKey)
        );
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let key = CryptoKey::from_base64(TEXT).unwrap();
        let shown = format!("{key:?} {:?}", ConnectionSecret(Zeroizing::new(vec![0x11; 64])));
        assert!(
            !shown.contains("17") && !shown.contains("0x11") && !shown.contains("EXS4"),
            "{shown}"
        );
    }
}
