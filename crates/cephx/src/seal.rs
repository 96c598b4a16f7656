//! Encryption as cephx does it, around an envelope with a magic number (`encode_encrypt` in Ceph's
//! `src/auth/cephx/CephxProtocol.h`, `src/auth/Crypto.cc`). The key's type says how:
//!
//! - `aes`: AES-128-CBC with PKCS#7 padding and a fixed initial vector. CBC with a fixed vector and
//!   no authentication is weak by today's standards; it is what key type 1 means on the wire, for
//!   what a client seals or opens. Structures that no client opens are sealed otherwise
//!   ([`crate::ticket_seal`]), and both sides sign the handshake afterwards.
//! - `aes256k`: RFC 8009 ([`crate::rfc8009`]), with a key for each usage.
//!
//! Opened values must be exactly as the official code writes them.

use aes::Aes128;
use aws_lc_rs::hmac;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit, block_padding::Pkcs7};
use spirula_denc::{Decode, Encode, Reader, Writer, encode_to_vec};
use zeroize::Zeroizing;

use crate::env::Env;
use crate::key::{AES_KEY_LEN, AES256_KEY_LEN, CryptoKey, KeyType};
use crate::rfc8009::UsageKeys;
use crate::wire::ChallengeBlob;
use crate::{Error, Result};

/// The initial vector of key type `aes`.
const IV: &[u8; 16] = b"cephsageyudagreg";
/// The magic number of a correctly decrypted envelope.
const MAGIC: u64 = 0xff00_9cad_8826_aa55;
const VERSION: u8 = 1;

/// The purpose of a sealed value (`CEPHX_KEY_USAGE_*`): `aes256k` has keys for each, `aes` does not
/// distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Usage {
    /// The secret of a connection to a monitor, under the session key.
    ConnectionSecret = 0x03,
    /// A ticket's session key, for its holder.
    SessionKey = 0x04,
    /// A ticket, under the session key of the earlier session whose global id is reclaimed.
    TicketBlob = 0x05,
    /// An authorizer, under the ticket's session key.
    Authorize = 0x10,
    /// A service's challenge.
    AuthorizeChallenge = 0x11,
    /// A service's proof.
    AuthorizeReply = 0x12,
    /// A service's rotating secrets, under its entity's key.
    RotatingSecrets = 0x20,
}

fn aes_key(key: &CryptoKey) -> Result<&[u8; AES_KEY_LEN]> {
    key.secret().try_into().map_err(|_| Error::BadKey)
}

fn aes256k_keys(key: &CryptoKey, usage: Usage) -> Result<UsageKeys> {
    let secret: &[u8; AES256_KEY_LEN] = key.secret().try_into().map_err(|_| Error::BadKey)?;
    Ok(UsageKeys::derive(secret, usage as u32))
}

fn cbc_encrypt(key: &CryptoKey, plain: &[u8]) -> Result<Vec<u8>> {
    let cipher = cbc::Encryptor::<Aes128>::new(aes_key(key)?.into(), IV.into());
    Ok(cipher.encrypt_padded_vec::<Pkcs7>(plain))
}

fn cbc_decrypt(key: &CryptoKey, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
    let cipher = cbc::Decryptor::<Aes128>::new(aes_key(key)?.into(), IV.into());
    // One error for everything: which check failed would be an oracle.
    cipher
        .decrypt_padded_vec::<Pkcs7>(sealed)
        .map(Zeroizing::new)
        .map_err(|_| Error::Decrypt)
}

/// The value in its envelope.
fn envelope<T: Encode + ?Sized>(value: &T) -> Zeroizing<Vec<u8>> {
    let mut w = Writer::with_capacity(128);
    w.u8(VERSION);
    w.u64(MAGIC);
    w.put(value);
    Zeroizing::new(w.into_vec())
}

/// The value in its envelope, encrypted, without a length before it.
pub(crate) fn seal<T: Encode + ?Sized>(
    key: &CryptoKey,
    usage: Usage,
    value: &T,
    env: &Env<'_>,
) -> Result<Vec<u8>> {
    let plain = envelope(value);
    match key.kind() {
        KeyType::Aes => cbc_encrypt(key, &plain),
        KeyType::Aes256k => aes256k_keys(key, usage)?.seal(&plain, env),
        KeyType::None => Err(Error::BadKey),
    }
}

/// Appends [`seal`]'s bytes with their length before them.
pub(crate) fn seal_into<T: Encode + ?Sized>(
    w: &mut Writer,
    key: &CryptoKey,
    usage: Usage,
    value: &T,
    env: &Env<'_>,
) -> Result<()> {
    w.blob(&seal(key, usage, value, env)?);
    Ok(())
}

/// Opens the output of [`seal`] for the same usage. The official reader ignores the version and
/// bytes behind the value; no release writes any, and every unchecked byte would be a forger's
/// choice.
pub(crate) fn open<T: Decode>(key: &CryptoKey, usage: Usage, sealed: &[u8]) -> Result<T> {
    let plain = match key.kind() {
        KeyType::Aes => cbc_decrypt(key, sealed)?,
        KeyType::Aes256k => aes256k_keys(key, usage)?.open(sealed)?,
        KeyType::None => return Err(Error::BadKey),
    };
    let mut r = Reader::new(&plain);
    let mut read = || Ok::<_, spirula_denc::Error>((r.u8()?, r.u64()?, r.get()?));
    let (version, magic, value) = read().map_err(|_| Error::Decrypt)?;
    if version != VERSION || magic != MAGIC || !r.is_empty() {
        return Err(Error::Decrypt);
    }
    Ok(value)
}

/// Opens the output of [`seal_into`].
pub(crate) fn open_from<T: Decode>(r: &mut Reader<'_>, key: &CryptoKey, usage: Usage) -> Result<T> {
    open(key, usage, r.blob()?)
}

/// The answer to a monitor's challenge (`cephx_calc_client_server_challenge`), which proves
/// knowledge of the key: 64 bits computed from both sides' challenges. With `aes`, from the sealed
/// challenges **with** their length before them; with `aes256k`, whose seals are never equal, from
/// their HMAC-SHA256.
pub(crate) fn answer(key: &CryptoKey, challenges: &ChallengeBlob) -> Result<u64> {
    match key.kind() {
        KeyType::Aes => {
            let mut w = Writer::with_capacity(64);
            w.blob(&cbc_encrypt(key, &envelope(challenges))?);
            Ok(fold(w.as_slice()))
        }
        KeyType::Aes256k => {
            let mac = hmac::Key::new(hmac::HMAC_SHA256, key.secret());
            Ok(fold(hmac::sign(&mac, &encode_to_vec(challenges)).as_ref()))
        }
        KeyType::None => Err(Error::BadKey),
    }
}

/// The exclusive or of the little-endian words of some bytes; an incomplete last word is dropped.
fn fold(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<8>().0;
    words.iter().fold(0, |acc, word| acc ^ u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ServiceTicketInfo, TicketBlob};
    use spirula_denc::{UTime, decode_all};

    fn key(byte: u8) -> CryptoKey {
        CryptoKey::from_parts(KeyType::Aes, UTime::ZERO, &[byte; 16]).unwrap()
    }

    fn env() -> Env<'static> {
        Env::system(UTime::ZERO)
    }

    /// Key type `aes` does not tell usages apart.
    const USAGE: Usage = Usage::SessionKey;

    /// Ciphertexts by `openssl enc -aes-128-cbc -K 0b..0b -iv $(printf cephsageyudagreg | xxd -p)`.
    #[test]
    fn encrypts_as_openssl_with_the_official_vector() {
        let hex = |b: Vec<u8>| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(cbc_encrypt(&key(0x0b), b"").unwrap()), OPENSSL_EMPTY);
        assert_eq!(
            hex(cbc_encrypt(&key(0x0b), b"0123456789abcdef").unwrap()),
            OPENSSL_BLOCK
        );
        assert_eq!(
            hex(cbc_encrypt(&key(0x0b), b"hello cephx, this is longer").unwrap()),
            OPENSSL_LONG
        );
    }

    const OPENSSL_EMPTY: &str = "81ae42314f4baba16525e8dcf9bc47aa";
    const OPENSSL_BLOCK: &str = "9a6c2cc71ee6077679263f2cd64bea1d2d489b1e00f201bb2d9713abfd2630e8";
    const OPENSSL_LONG: &str = "74daf998232797a2dc0ee941c3c5f36f56563ccda65ef86869261c6bc954f7f7";

    #[test]
    fn another_key_or_a_flipped_bit_opens_nothing() {
        let sealed = seal(&key(1), USAGE, &7u64, &env()).unwrap();
        assert_eq!(open::<u64>(&key(1), USAGE, &sealed), Ok(7));
        assert_eq!(open::<u64>(&key(2), USAGE, &sealed), Err(Error::Decrypt));
        let mut bent = sealed.clone();
        bent[1] ^= 1;
        assert_eq!(open::<u64>(&key(1), USAGE, &bent), Err(Error::Decrypt));
        assert_eq!(open::<u64>(&key(1), USAGE, &sealed[..17]), Err(Error::Decrypt));
        assert_eq!(open::<u64>(&key(1), USAGE, &[]), Err(Error::Decrypt));
    }

    #[test]
    fn another_version_and_bytes_after_the_value_are_refused() {
        let envelope = |version: u8, rest: &[u8]| {
            let mut w = Writer::new();
            w.u8(version);
            w.u64(MAGIC);
            w.u64(7);
            w.bytes(rest);
            cbc_encrypt(&key(1), w.as_slice()).unwrap()
        };
        assert_eq!(open::<u64>(&key(1), USAGE, &envelope(VERSION, &[])), Ok(7));
        assert_eq!(
            open::<u64>(&key(1), USAGE, &envelope(2, &[])),
            Err(Error::Decrypt)
        );
        assert_eq!(
            open::<u64>(&key(1), USAGE, &envelope(VERSION, &[0])),
            Err(Error::Decrypt)
        );
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    }

    /// Tickets that official monitors sealed, with their rotating secrets, both from
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
            let secret = CryptoKey::from_parts(KeyType::Aes, UTime::ZERO, &hex(secret)).unwrap();
            let blob: TicketBlob = decode_all(&hex(blob)).unwrap();
            let info: ServiceTicketInfo = open(&secret, USAGE, &blob.blob).unwrap();
            assert_eq!(info.ticket.name.to_string(), holder);
            assert_eq!(info.ticket.caps.text().unwrap(), caps);
            assert_eq!(seal(&secret, USAGE, &info, &env()).unwrap(), blob.blob);
        }
    }
}
