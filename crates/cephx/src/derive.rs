//! Derived keys: HKDF-SHA256 (RFC 5869), with one label for each purpose.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

use crate::{Error, Result};

/// The number of wanted bytes.
struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// `len` bytes derived from `secret` for the purpose that `info` names.
///
/// # Errors
/// [`Error::BadKey`] for an empty secret, and for more than HKDF gives.
pub(crate) fn derive(secret: &[u8], salt: &[u8], info: &[&[u8]], len: usize) -> Result<Zeroizing<Vec<u8>>> {
    if secret.is_empty() {
        return Err(Error::BadKey);
    }
    let mut out = Zeroizing::new(vec![0; len]);
    let made = Salt::new(HKDF_SHA256, salt)
        .extract(secret)
        .expand(info, Len(len))
        .and_then(|key| key.fill(&mut out));
    made.map_err(|_| Error::BadKey)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test case 1 of RFC 5869.
    #[test]
    fn derives_as_rfc_5869() {
        let salt: Vec<u8> = (0..=0x0c).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let out = derive(&[0x0b; 22], &salt, &[&info[..4], &info[4..]], 42).unwrap();
        let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        );
        assert_eq!(derive(&[], &salt, &[], 16).err(), Some(Error::BadKey));
    }
}
