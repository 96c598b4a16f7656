//! Secret keys: `CryptoKey` of Ceph's `src/auth/Crypto.h`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use spirula_denc::{Decode, Encode, Reader, UTime, Writer, decode_all, encode_to_vec};
use spirula_secret::Secret;
use zeroize::Zeroizing;

use crate::env::Env;
use crate::{Error, Result};

/// How a key is used (`CEPH_CRYPTO_*` in `src/include/ceph_fs.h`). Unknown values are refused when
/// decoded: a key that can't be used must not be stored as if it could.
///
/// The order is that of strength: two sides that know different types use the weaker one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum KeyType {
    /// No key.
    #[default]
    None,
    /// AES-128-CBC with a fixed vector and without authentication, which clients of all releases
    /// know.
    Aes,
    /// AES-256 after RFC 8009 (`rfc8009.rs`), which clients know since Ceph 19.2.6 and 20.2.4 and
    /// Linux 7.0.
    Aes256k,
}

impl KeyType {
    /// The types that keys may have, the weakest first.
    pub const ALL: [Self; 2] = [Self::Aes, Self::Aes256k];

    /// The type's number on the wire.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Aes => 1,
            Self::Aes256k => 2,
        }
    }

    /// The type of this number.
    pub fn from_wire(number: u16) -> Option<Self> {
        [Self::None, Self::Aes, Self::Aes256k]
            .into_iter()
            .find(|t| t.to_wire() == number)
    }

    /// The name that commands and options use.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Aes => "aes",
            Self::Aes256k => "aes256k",
        }
    }

    /// The type of this name, if keys may have it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }

    /// Whether the type has known weaknesses (CVE-2025-30156): its ciphertexts can be cut and
    /// pasted.
    pub fn is_insecure(self) -> bool {
        self != Self::Aes256k
    }

    /// Bytes of a fresh secret.
    fn secret_len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Aes => AES_KEY_LEN,
            Self::Aes256k => AES256_KEY_LEN,
        }
    }

    /// Whether a secret of this length can be of this type. Longer secrets of type AES are kept as
    /// they are.
    fn takes(self, len: usize) -> bool {
        match self {
            Self::None => false,
            Self::Aes => len >= AES_KEY_LEN,
            Self::Aes256k => len == AES256_KEY_LEN,
        }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes of an AES-128 key.
pub(crate) const AES_KEY_LEN: usize = 16;
/// Bytes of an AES-256 key.
pub(crate) const AES256_KEY_LEN: usize = 32;

/// A secret key with its type and its time of creation. Wiped from memory when dropped; never
/// printed by `Debug`, compared in constant time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CryptoKey {
    kind: KeyType,
    created: UTime,
    secret: Secret<Vec<u8>>,
}

impl CryptoKey {
    /// A fresh key.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn generate(kind: KeyType, env: &Env<'_>) -> Result<Self> {
        let mut secret = Secret::from(vec![0; kind.secret_len()]);
        env.random.fill(&mut secret)?;
        Ok(Self {
            kind,
            created: env.now,
            secret,
        })
    }

    /// A key from its parts.
    ///
    /// # Errors
    /// [`Error::BadKey`] for a secret of a length that its type does not have.
    pub fn from_parts(kind: KeyType, created: UTime, secret: &[u8]) -> Result<Self> {
        let usable = secret.is_empty() || kind.takes(secret.len());
        if !usable || secret.len() > usize::from(u16::MAX) {
            return Err(Error::BadKey);
        }
        Ok(Self {
            kind,
            created,
            secret: secret.to_vec().into(),
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

    /// The text for keyrings. It is the secret itself: for files and answers to entities that may
    /// read it.
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

impl Encode for CryptoKey {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.kind.to_wire());
        w.put(&self.created);
        // The constructors keep the length within 16 bits.
        w.u16(u16::try_from(self.secret.len()).unwrap_or(u16::MAX));
        w.bytes(&self.secret);
    }
}

impl Decode for CryptoKey {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        let kind = KeyType::from_wire(r.u16()?).ok_or(spirula_denc::Error::Invalid("key type"))?;
        let created = r.get()?;
        let len = r.u16()?;
        Self::from_parts(kind, created, r.bytes(usize::from(len))?)
            .map_err(|_| spirula_denc::Error::Invalid("CryptoKey"))
    }
}

/// The 64 bytes (secure mode) or nothing (crc mode) from which msgr2 takes its connection's keys.
/// Wiped when dropped and never printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionSecret(pub Secret<Vec<u8>>);

impl ConnectionSecret {
    /// Random bytes, as many as the mode needs.
    pub(crate) fn generate(mode: ConnectionMode, env: &Env<'_>) -> Result<Self> {
        let mut bytes = Secret::from(vec![0; mode.secret_len()]);
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

/// How a connection is protected after the handshake (`CEPH_CON_MODE_*` in
/// `src/include/ceph_fs.h`).
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
    /// By `ceph-authtool --gen-print-key --key-type aes256k` of 20.2.4.
    const TEXT256: &str = "AgA/sgZrpVKDFSAAppb21iFsIbF6ayugm/cTjF1Nw1ruhEPNr/cra19Js+c=";

    #[test]
    fn text_of_ceph_authtool_round_trips() {
        let key = CryptoKey::from_base64(TEXT).unwrap();
        assert_eq!(key.kind(), KeyType::Aes);
        assert_eq!(key.secret().len(), 16);
        assert_eq!(key.to_base64(), TEXT);
        let key = CryptoKey::from_base64(TEXT256).unwrap();
        assert_eq!((key.kind(), key.secret().len()), (KeyType::Aes256k, 32));
        assert_eq!(key.to_base64(), TEXT256);
        assert_eq!(CryptoKey::default().to_base64(), "AAAAAAAAAAAAAAAA");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "AQAvCMNjrS5i", "AQAvCMNjrS5iHBAAEXS4PqyH8GSTR0M2Nzdx0g", "!"] {
            assert_eq!(CryptoKey::from_base64(text), Err(Error::BadKey), "{text}");
        }
        assert_eq!(
            CryptoKey::from_parts(KeyType::Aes, UTime::ZERO, &[1; 15]),
            Err(Error::BadKey)
        );
        for len in [1, 16, 31, 33] {
            assert_eq!(
                CryptoKey::from_parts(KeyType::Aes256k, UTime::ZERO, &vec![1; len]),
                Err(Error::BadKey)
            );
        }
        assert_eq!(
            CryptoKey::from_parts(KeyType::None, UTime::ZERO, &[1; 16]),
            Err(Error::BadKey)
        );
        // Type 3 with 32 bytes: no release has it.
        let unknown = TEXT256.replacen("Ag", "Aw", 1);
        assert_eq!(CryptoKey::from_base64(&unknown), Err(Error::BadKey));
    }

    #[test]
    fn names_and_numbers_of_types_round_trip() {
        for kind in KeyType::ALL {
            assert_eq!(KeyType::from_wire(kind.to_wire()), Some(kind));
            assert_eq!(KeyType::from_name(kind.name()), Some(kind));
        }
        for other in ["", "none", "AES", "aes256", "aes256k "] {
            assert_eq!(KeyType::from_name(other), None, "{other}");
        }
        assert_eq!(KeyType::from_wire(3), None);
        assert!(KeyType::Aes < KeyType::Aes256k);
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let key = CryptoKey::from_base64(TEXT).unwrap();
        let shown = format!("{key:?} {:?}", ConnectionSecret(vec![0x11; 64].into()));
        assert!(shown.ends_with("secret: … } ConnectionSecret(…)"), "{shown}");
    }
}
