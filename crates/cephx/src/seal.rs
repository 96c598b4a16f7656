//! Encryption as cephx does it: AES-128-CBC with PKCS#7 padding and a fixed initial vector, around an envelope with a
//! magic number (`encode_encrypt` in Ceph's `src/auth/cephx/CephxProtocol.h`, `src/auth/Crypto.cc`).
//!
//! CBC with a fixed vector and no authentication is weak by today's standards; it is what key type 1 means on the
//! wire. Every value sealed here either starts with random bytes or is a key, and its reader checks the magic number.

use aes::Aes128;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit, block_padding::Pkcs7};
use spirula_denc::{Decode, Encode, Reader, Writer};
use zeroize::Zeroizing;

use crate::key::{AES_KEY_LEN, CryptoKey, KeyType};
use crate::{Error, Result};

/// The initial vector of key type 1.
const IV: &[u8; 16] = b"cephsageyudagreg";
/// Marks a correctly decrypted envelope.
const MAGIC: u64 = 0xff00_9cad_8826_aa55;
const VERSION: u8 = 1;

/// The AES key inside a cephx key. Another key type becomes another branch here.
fn aes_key(key: &CryptoKey) -> Result<&[u8; AES_KEY_LEN]> {
    match key.kind() {
        KeyType::AES => key.secret().first_chunk().ok_or(Error::BadKey),
        _ => Err(Error::BadKey),
    }
}

fn encrypt(key: &CryptoKey, plain: &[u8]) -> Result<Vec<u8>> {
    let cipher = cbc::Encryptor::<Aes128>::new(aes_key(key)?.into(), IV.into());
    Ok(cipher.encrypt_padded_vec::<Pkcs7>(plain))
}

fn decrypt(key: &CryptoKey, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
    let cipher = cbc::Decryptor::<Aes128>::new(aes_key(key)?.into(), IV.into());
    // One error for everything: which check failed would be an oracle.
    cipher
        .decrypt_padded_vec::<Pkcs7>(sealed)
        .map(Zeroizing::new)
        .map_err(|_| Error::Decrypt)
}

/// The value in its envelope, encrypted, without a length before it.
pub(crate) fn seal<T: Encode + ?Sized>(key: &CryptoKey, value: &T) -> Result<Vec<u8>> {
    let mut w = Writer::with_capacity(128);
    w.u8(VERSION);
    w.u64(MAGIC);
    w.put(value);
    encrypt(key, &Zeroizing::new(w.into_vec()))
}

/// Appends [`seal`]'s bytes with their length before them.
pub(crate) fn seal_into<T: Encode + ?Sized>(w: &mut Writer, key: &CryptoKey, value: &T) -> Result<()> {
    w.blob(&seal(key, value)?);
    Ok(())
}

/// Opens what [`seal`] made. Bytes after the value are ignored, as the official reader does.
pub(crate) fn open<T: Decode>(key: &CryptoKey, sealed: &[u8]) -> Result<T> {
    let plain = decrypt(key, sealed)?;
    let mut r = Reader::new(&plain);
    let header = r.u8().and_then(|_| r.u64()).map_err(|_| Error::Decrypt)?;
    if header != MAGIC {
        return Err(Error::Decrypt);
    }
    r.get().map_err(|_| Error::Decrypt)
}

/// Opens what [`seal_into`] made.
pub(crate) fn open_from<T: Decode>(r: &mut Reader<'_>, key: &CryptoKey) -> Result<T> {
    open(key, r.blob()?)
}

/// Folds a sealed value into 64 bits: the exclusive or of the little-endian words of its bytes **with** the length
/// before them; a rest of less than a word is dropped.
pub(crate) fn fold<T: Encode>(key: &CryptoKey, value: &T) -> Result<u64> {
    let mut w = Writer::with_capacity(64);
    seal_into(&mut w, key, value)?;
    let words = w.as_slice().as_chunks::<8>().0;
    Ok(words.iter().fold(0, |acc, word| acc ^ u64::from_le_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spirula_denc::UTime;

    fn key(byte: u8) -> CryptoKey {
        CryptoKey::from_parts(KeyType::AES, UTime::ZERO, &[byte; 16]).unwrap()
    }

    /// Ciphertexts by `openssl enc -aes-128-cbc -K 0b..0b -iv $(printf cephsageyudagreg | xxd -p)`.
    #[test]
    fn encrypts_as_openssl_with_the_official_vector() {
        let hex = |b: Vec<u8>| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(encrypt(&key(0x0b), b"").unwrap()), OPENSSL_EMPTY);
        assert_eq!(
            hex(encrypt(&key(0x0b), b"0123456789abcdef").unwrap()),
            OPENSSL_BLOCK
        );
        assert_eq!(
            hex(encrypt(&key(0x0b), b"hello cephx, this is longer").unwrap()),
            OPENSSL_LONG
        );
    }

    const OPENSSL_EMPTY: &str = "81ae42314f4baba16525e8dcf9bc47aa";
    const OPENSSL_BLOCK: &str = "9a6c2cc71ee6077679263f2cd64bea1d2d489b1e00f201bb2d9713abfd2630e8";
    const OPENSSL_LONG: &str = "74daf998232797a2dc0ee941c3c5f36f56563ccda65ef86869261c6bc954f7f7";

    #[test]
    fn another_key_or_a_flipped_bit_opens_nothing() {
        let sealed = seal(&key(1), &7u64).unwrap();
        assert_eq!(open::<u64>(&key(1), &sealed), Ok(7));
        assert_eq!(open::<u64>(&key(2), &sealed), Err(Error::Decrypt));
        let mut bent = sealed.clone();
        bent[1] ^= 1;
        assert_eq!(open::<u64>(&key(1), &bent), Err(Error::Decrypt));
        assert_eq!(open::<u64>(&key(1), &sealed[..17]), Err(Error::Decrypt));
        assert_eq!(open::<u64>(&key(1), &[]), Err(Error::Decrypt));
    }
}
