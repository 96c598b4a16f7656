//! The keys of an encrypted store: the operator's key opens a slot of the superblock, which holds
//! the data key; the keys of the blocks are derived from that.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use spirula_secret::Secret;
use zeroize::Zeroizing;

use super::XtsKey;
use crate::{Result, StoreError};

/// The shortest key that is accepted, in bytes: keys are random, not passwords.
const MIN_KEY: usize = 32;
const DATA_KEY: usize = 32;
const TAG: usize = 16;
/// Bytes of a slot.
pub(crate) const SLOT_LEN: usize = NONCE_LEN + DATA_KEY + TAG;
/// A wrapped data key: nonce, ciphertext and tag of AES-256-GCM.
pub(crate) type Slot = [u8; SLOT_LEN];

/// The key that opens a store: what a key file holds, or the monitors keep. Cleared when the last
/// clone goes.
#[derive(Debug, Clone)]
pub struct EncryptionKey(Arc<Secret<Vec<u8>>>);

impl EncryptionKey {
    /// A key of these bytes, without newlines at the end that an editor may have added.
    ///
    /// # Errors
    /// Less than 32 bytes.
    pub fn new(bytes: Vec<u8>) -> Result<Self> {
        let mut bytes = Secret::from(bytes);
        while bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        if bytes.len() < MIN_KEY {
            return Err(StoreError::Invalid("a key has at least 32 random bytes"));
        }
        Ok(Self(Arc::new(bytes)))
    }

    /// A new key: 64 random bytes as text, so that anything that stores text can store it.
    ///
    /// # Errors
    /// No randomness.
    pub fn random() -> Result<Self> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut bytes = Zeroizing::new([0; 64]);
        spirula_random::fill(&mut *bytes).map_err(|_| broken())?;
        let digits = bytes.iter().flat_map(|b| [b >> 4, b & 15]);
        Self::new(digits.map(|d| DIGITS[usize::from(d)]).collect())
    }

    /// The bytes to store, from which [`EncryptionKey::new`] makes the key again.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key that wraps the data key of the store with this identity.
    fn wrapping(&self, identity: &[u8]) -> Result<RandomizedNonceKey> {
        let mut key = Zeroizing::new([0; 32]);
        let salted = Salt::new(HKDF_SHA256, identity).extract(&self.0);
        derive(&salted, b"spirula store: wrapping", &mut *key)?;
        RandomizedNonceKey::new(&AES_256_GCM, &*key).map_err(|_| broken())
    }
}

/// Which blocks a key is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// The main device.
    Main,
    /// The log's own device.
    Log,
}

/// The key that a store has for life.
#[derive(Debug)]
pub(crate) struct DataKey(Secret<[u8; DATA_KEY]>);

impl DataKey {
    /// A new data key.
    pub(crate) fn random() -> Result<Self> {
        let mut key = Secret::from([0; DATA_KEY]);
        spirula_random::fill(&mut *key).map_err(|_| broken())?;
        Ok(Self(key))
    }

    /// The data key, wrapped into a slot that `key` opens.
    pub(crate) fn wrap(&self, key: &EncryptionKey, identity: &[u8]) -> Result<Slot> {
        let mut slot = [0; SLOT_LEN];
        let (nonce_out, rest) = slot.split_at_mut(NONCE_LEN);
        let (data, tag_out) = rest.split_at_mut(DATA_KEY);
        let mut sealed = Zeroizing::new(self.0.to_vec());
        let (nonce, tag) = key
            .wrapping(identity)?
            .seal_in_place_separate_tag(Aad::from(identity), &mut sealed)
            .map_err(|_| broken())?;
        nonce_out.copy_from_slice(nonce.as_ref());
        data.copy_from_slice(&sealed);
        tag_out.copy_from_slice(tag.as_ref());
        Ok(slot)
    }

    /// The data key in `slot`. `None` if it was wrapped with another key than `key`, or belongs to
    /// another store.
    pub(crate) fn unwrap(slot: &Slot, key: &EncryptionKey, identity: &[u8]) -> Result<Option<Self>> {
        let (nonce, sealed) = slot.split_at(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken())?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let opened = key
            .wrapping(identity)?
            .open_in_place(nonce, Aad::from(identity), &mut sealed);
        Ok(opened.ok().and_then(|data| {
            let mut key = Secret::from([0; DATA_KEY]);
            key.copy_from_slice(data.get(..DATA_KEY)?);
            Some(Self(key))
        }))
    }

    /// The key of the blocks of one part.
    pub(crate) fn blocks(&self, part: Part) -> Result<XtsKey> {
        let label: &[u8] = match part {
            Part::Main => b"spirula store: main blocks",
            Part::Log => b"spirula store: log blocks",
        };
        let mut key = XtsKey::new([0; 64]);
        derive(&Prk::new_less_safe(HKDF_SHA256, &*self.0), label, &mut *key)?;
        Ok(key)
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(from: &Prk, label: &[u8], out: &mut [u8]) -> Result<()> {
    let derived = from.expand(&[label], Length(out.len())).and_then(|d| d.fill(out));
    derived.map_err(|_| broken())
}

fn broken() -> StoreError {
    StoreError::Invalid("the library of ciphers has failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> EncryptionKey {
        EncryptionKey::new(vec![byte; 32]).unwrap()
    }

    #[test]
    fn keys_are_not_printed() {
        let shown = format!("{:?} {:?}", key(1), DataKey::random().unwrap());
        assert_eq!(shown, "EncryptionKey(…) DataKey(…)");
    }

    #[test]
    fn a_slot_opens_with_its_key_for_its_store_alone() {
        let data = DataKey::random().unwrap();
        let slot = data.wrap(&key(1), b"a store").unwrap();
        let opened = DataKey::unwrap(&slot, &key(1), b"a store").unwrap().unwrap();
        assert_eq!(*opened.0, *data.0);
        assert!(DataKey::unwrap(&slot, &key(2), b"a store").unwrap().is_none());
        assert!(DataKey::unwrap(&slot, &key(1), b"another").unwrap().is_none());
        for at in 0..SLOT_LEN {
            let mut changed = slot;
            changed[at] ^= 1;
            assert!(DataKey::unwrap(&changed, &key(1), b"a store").unwrap().is_none());
        }
        assert_ne!(slot, data.wrap(&key(1), b"a store").unwrap(), "nonces are random");
        let parts = [Part::Main, Part::Log].map(|p| data.blocks(p).unwrap());
        assert_ne!(parts[0], parts[1]);
    }

    #[test]
    fn random_keys_are_text() {
        let key = EncryptionKey::random().unwrap();
        assert!(key.as_bytes().len() == 128 && key.as_bytes().iter().all(u8::is_ascii_hexdigit));
        assert_ne!(key.as_bytes(), EncryptionKey::random().unwrap().as_bytes());
    }

    #[test]
    fn keys_are_long_and_not_shown() {
        assert!(EncryptionKey::new(b"secret\n".to_vec()).is_err());
        let (bare, line) = (vec![65; 32], [&[65; 32][..], b"\n"].concat());
        let (bare, line) = (
            EncryptionKey::new(bare).unwrap(),
            EncryptionKey::new(line).unwrap(),
        );
        assert_eq!(*bare.0, *line.0);
        assert!(!format!("{bare:?}").contains('A'));
    }
}
