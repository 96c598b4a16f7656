//! Encryption as cephx does it: AES-128-CBC with PKCS#7 padding and a fixed initial vector, around an envelope with a
//! magic number (`encode_encrypt` in Ceph's `src/auth/cephx/CephxProtocol.h`, `src/auth/Crypto.cc`).
//!
//! CBC with a fixed vector and no authentication is weak by today's standards; it is what key type 1 means on the
//! wire, for what a client seals or opens. What no client opens is sealed otherwise ([`crate::ticket_seal`]), and
//! both sides sign the handshake afterwards. What is opened here must be exactly what the official code writes.

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
        KeyType::AES => key.secret().try_into().map_err(|_| Error::BadKey),
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

/// Opens what [`seal`] made. The official reader ignores the version and bytes after the value; no release writes
/// any, and each that is not looked at is one that a forger may choose.
pub(crate) fn open<T: Decode>(key: &CryptoKey, sealed: &[u8]) -> Result<T> {
    let plain = decrypt(key, sealed)?;
    let mut r = Reader::new(&plain);
    let mut read = || Ok::<_, spirula_denc::Error>((r.u8()?, r.u64()?, r.get()?));
    let (version, magic, value) = read().map_err(|_| Error::Decrypt)?;
    if version != VERSION || magic != MAGIC || !r.is_empty() {
        return Err(Error::Decrypt);
    }
    Ok(value)
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
    use crate::wire::{ServiceTicketInfo, TicketBlob};
    use spirula_denc::{UTime, decode_all};

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

    #[test]
    fn another_version_and_bytes_after_the_value_are_refused() {
        let envelope = |version: u8, rest: &[u8]| {
            let mut w = Writer::new();
            w.u8(version);
            w.u64(MAGIC);
            w.u64(7);
            w.bytes(rest);
            encrypt(&key(1), w.as_slice()).unwrap()
        };
        assert_eq!(open::<u64>(&key(1), &envelope(VERSION, &[])), Ok(7));
        assert_eq!(open::<u64>(&key(1), &envelope(2, &[])), Err(Error::Decrypt));
        assert_eq!(
            open::<u64>(&key(1), &envelope(VERSION, &[0])),
            Err(Error::Decrypt)
        );
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    }

    /// What official monitors sealed (tickets of theirs), with the rotating secrets they used, both from
    /// ceph/ceph-object-corpus (`CephXTicketBlob` and `RotatingSecrets` of the set 16.2.0).
    const OFFICIAL: [(&str, &str, &str, &str); 2] = [
        (
            "f011b4ad2e4c49425eaccf4ff3f30713",
            "010200000000000000800000007f696d8b9cd5f3af88fe561d7d484b8097375c62c218c079914aeed71831f2d1731435f4f1637d8d43bb\
             9640cd696eac02d06706e879736716d4758d6f1943865b4d35b5ac90162b2fb881359f4ab08563153f236d1b729da949331b5585b9c9a2\
             f13a6134458591d6d3833915a74cf0a36c7c30f8462754d489557c631d0bdc",
            "mds.c",
            "allow rw tag cephfs *=*",
        ),
        (
            "10161322e38198679745ff80ee2d08a9",
            "01020000000000000070000000d0d0b8166e58c1c963e0423c5dbb174f287103f30f1522ce16d5e685c5fbf1a9b371a0a7ea9b0f15eca4\
             579f7d521a1d29cac61b5ce720528aefe01a73898b1f73c12475a715625b5b377f0c065abbc97466cae079fce41a131b437acda2ba847e\
             ba1446ec11ec0ae500b3f843fcac37",
            "client.admin",
            "allow *",
        ),
    ];

    #[test]
    fn what_official_monitors_sealed_opens_and_is_sealed_to_the_same_bytes() {
        for (secret, blob, holder, caps) in OFFICIAL {
            let secret = CryptoKey::from_parts(KeyType::AES, UTime::ZERO, &hex(secret)).unwrap();
            let blob: TicketBlob = decode_all(&hex(blob)).unwrap();
            let info: ServiceTicketInfo = open(&secret, &blob.blob).unwrap();
            assert_eq!(info.ticket.name.to_string(), holder);
            assert_eq!(info.ticket.caps.text().unwrap(), caps);
            assert_eq!(seal(&secret, &info).unwrap(), blob.blob);
        }
    }
}
