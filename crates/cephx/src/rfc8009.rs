//! The encryption of key type `aes256k`: `aes256-cts-hmac-sha384-192` of RFC 8009, which Kerberos
//! uses.
//!
//! ```text
//! Ke = KDF(secret, usage | 0xaa, 256 bits)     Ki = KDF(secret, usage | 0x55, 192 bits)
//! sealed = C | HMAC-SHA384(Ki, 16 zeros | C) of 24 bytes,  C = AES-256-CBC-CS3(Ke, zero vector, 16 random bytes | plain)
//! ```
//!
//! Any change is noticed, and a value sealed for one usage opens for no other. The public source of
//! how Ceph uses it is `src/auth/Crypto.cc` and `src/auth/cephx/CephxProtocol.h`.

use aes::Aes256;
use aws_lc_rs::{constant_time, hmac};
use cts::{CbcCs3, Decrypt, Encrypt, KeyIvInit};
use zeroize::Zeroizing;

use crate::env::Env;
use crate::key::AES256_KEY_LEN;
use crate::{Error, Result};

/// Bytes of a block, and of the random bytes before the plain ones.
const BLOCK_LEN: usize = 16;
/// Bytes of the authentication code after the encrypted ones.
const MAC_LEN: usize = 24;
/// The cipher's initial vector, which the authentication code covers.
const IV: [u8; BLOCK_LEN] = [0; BLOCK_LEN];
/// The last byte of a derived key's label.
const ENCRYPTION: u8 = 0xaa;
const INTEGRITY: u8 = 0x55;

/// The keys of one secret and usage.
pub(crate) struct UsageKeys {
    encryption: Zeroizing<[u8; AES256_KEY_LEN]>,
    integrity: hmac::Key,
}

impl UsageKeys {
    pub(crate) fn derive(secret: &[u8; AES256_KEY_LEN], usage: u32) -> Self {
        Self {
            encryption: kdf(secret, usage, ENCRYPTION),
            integrity: hmac::Key::new(
                hmac::HMAC_SHA384,
                kdf::<MAC_LEN>(secret, usage, INTEGRITY).as_slice(),
            ),
        }
    }

    fn cipher(&self) -> CbcCs3<Aes256> {
        CbcCs3::new((&*self.encryption).into(), (&IV).into())
    }

    fn mac(&self, encrypted: &[u8]) -> [u8; MAC_LEN] {
        let mut mac = hmac::Context::with_key(&self.integrity);
        mac.update(&IV);
        mac.update(encrypted);
        let mut short = [0; MAC_LEN];
        short.copy_from_slice(&mac.sign().as_ref()[..MAC_LEN]);
        short
    }

    /// Seals `plain`, which must not be empty: for a single block the library differs from the RFC.
    ///
    /// # Errors
    /// [`Error::NoRandomness`], [`Error::BadKey`] for nothing.
    pub(crate) fn seal(&self, plain: &[u8], env: &Env<'_>) -> Result<Vec<u8>> {
        let mut confounder = [0; BLOCK_LEN];
        env.random.fill(&mut confounder)?;
        if plain.is_empty() {
            return Err(Error::BadKey);
        }
        let mut out = Vec::with_capacity(BLOCK_LEN + plain.len() + MAC_LEN);
        out.extend_from_slice(&confounder);
        out.extend_from_slice(plain);
        self.cipher().encrypt(&mut out).map_err(|_| Error::BadKey)?;
        let mac = self.mac(&out);
        out.extend_from_slice(&mac);
        Ok(out)
    }

    /// Opens the output of [`Self::seal`] for the same secret and usage.
    ///
    /// # Errors
    /// [`Error::Decrypt`] for everything else.
    pub(crate) fn open(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
        let mut plain = self.open_with_confounder(sealed)?;
        plain.drain(..BLOCK_LEN);
        Ok(plain)
    }

    /// As [`Self::open`], with the random bytes before it.
    pub(crate) fn open_with_confounder(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
        let (encrypted, mac) = sealed.split_last_chunk::<MAC_LEN>().ok_or(Error::Decrypt)?;
        if encrypted.len() <= BLOCK_LEN {
            return Err(Error::Decrypt);
        }
        constant_time::verify_slices_are_equal(&self.mac(encrypted), mac).map_err(|_| Error::Decrypt)?;
        let mut plain = Zeroizing::new(encrypted.to_vec());
        self.cipher().decrypt(&mut plain).map_err(|_| Error::Decrypt)?;
        Ok(plain)
    }
}

/// `KDF-HMAC-SHA2` of the RFC's section 3: the first bytes of one HMAC over a counter, the label, a
/// zero and the length in bits.
fn kdf<const LEN: usize>(secret: &[u8], usage: u32, purpose: u8) -> Zeroizing<[u8; LEN]> {
    const { assert!(LEN <= 48, "one HMAC-SHA384 is enough") };
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA384, secret));
    mac.update(&1u32.to_be_bytes());
    mac.update(&usage.to_be_bytes());
    mac.update(&[purpose, 0]);
    mac.update(&(LEN as u32 * 8).to_be_bytes());
    let mut key = Zeroizing::new([0; LEN]);
    key.copy_from_slice(&mac.sign().as_ref()[..LEN]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::RandomSource;
    use spirula_denc::UTime;

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// The key of the RFC's appendix A, for both the derivations and the encryptions.
    fn base() -> [u8; 32] {
        unhex("6D404D37FAF79F9DF0D33568D320669800EB4836472EA8A026D16B7182460C52")
            .try_into()
            .unwrap()
    }

    #[test]
    fn keys_are_derived_as_in_the_rfc() {
        let kc: Zeroizing<[u8; 24]> = kdf(&base(), 2, 0x99);
        assert_eq!(
            kc.to_vec(),
            unhex("EF5718BE86CC84963D8BBB5031E9F5C4BA41F28FAF69E73D")
        );
        let ke: Zeroizing<[u8; 32]> = kdf(&base(), 2, ENCRYPTION);
        assert_eq!(
            ke.to_vec(),
            unhex("56AB22BEE63D82D7BC5227F6773F8EA7A5EB1C825160C38312980C442E5C7E49")
        );
        let ki: Zeroizing<[u8; 24]> = kdf(&base(), 2, INTEGRITY);
        assert_eq!(
            ki.to_vec(),
            unhex("69B16514E3CD8E56B82010D5C73012B622C4D00FFC23ED1F")
        );
    }

    struct Fixed(Vec<u8>);

    impl RandomSource for Fixed {
        fn fill(&self, buf: &mut [u8]) -> Result<()> {
            buf.copy_from_slice(&self.0);
            Ok(())
        }
    }

    /// Plain length (bytes 0, 1, 2 …), random bytes, sealed bytes. The RFC's encryption of nothing
    /// is left out: cephx never does it.
    const SAMPLES: [(usize, &str, &str); 3] = [
        (
            6,
            "B80D3251C1F6471494256FFE712D0B9A",
            "4ED7B37C2BCAC8F74F23C1CF07E62BC7 B75FB3F637B9F559C7F664F69EAB7B60 92237526EA0D1F61CB20D69D10F2",
        ),
        (
            16,
            "53BF8A0D105265D4E276428624CE5E63",
            "BC47FFEC7998EB91E8115CF8D19DAC4B BBE2E163E87DD37F49BECA92027764F6 8CF51F14D798C2273F35DF574D1F932E 40C4FF255B36A266",
        ),
        (
            21,
            "763E65367E864F02F55153C7E3B58AF1",
            "40013E2DF58E8751957D2878BCD2D6FE 101CCFD556CB1EAE79DB3C3EE86429F2 B2A602AC86FEF6ECB647D6295FAE077A 1FEB517508D2C16B4192E01F62",
        ),
    ];

    #[test]
    fn seals_and_opens_as_the_rfc() {
        let keys = UsageKeys::derive(&base(), 2);
        for (len, random, sealed) in SAMPLES {
            let plain: Vec<u8> = (0..21).take(len).collect();
            let random = Fixed(unhex(random));
            let env = Env {
                now: UTime::ZERO,
                random: &random,
            };
            assert_eq!(keys.seal(&plain, &env).unwrap(), unhex(sealed), "{len} bytes");
            assert_eq!(*keys.open(&unhex(sealed)).unwrap(), plain);
        }
    }

    #[test]
    fn another_usage_or_a_changed_bit_opens_nothing() {
        let keys = UsageKeys::derive(&base(), 2);
        let sealed = unhex(SAMPLES[2].2);
        assert!(keys.open(&sealed).is_ok());
        assert_eq!(UsageKeys::derive(&base(), 3).open(&sealed), Err(Error::Decrypt));
        for bit in 0..sealed.len() * 8 {
            let mut bent = sealed.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.open(&bent), Err(Error::Decrypt), "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert_eq!(keys.open(&sealed[..len]), Err(Error::Decrypt), "{len} bytes");
        }
    }
}
