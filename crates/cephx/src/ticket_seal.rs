//! The sealing of tickets: AES-256-GCM.
//!
//! A ticket's blob is opaque to its holder, so its format is our own. Ceph encrypts it like
//! everything under key type 1 (see [`crate::seal`]), so that blocks of one ticket can be moved to
//! another (CVE-2025-30156). Here a blob only opens if a monitor sealed it, for the service and
//! under the secret that the ticket names.
//!
//! The blob: one byte for the format, 12 bytes of random nonce, the encrypted
//! [`ServiceTicketInfo`], 16 bytes of tag. The key is derived from the secret; the associated data
//! is the label with the format's version, the service and the secret's id.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use spirula_denc::{EntityType, Writer, decode_all, encode_to_vec};
use zeroize::Zeroizing;

use crate::derive::derive;
use crate::env::Env;
use crate::key::CryptoKey;
use crate::wire::{ServiceTicketInfo, TicketBlob};
use crate::{Error, Result};

/// The version of the format. The official format begins with an encrypted byte, so the version
/// does not reliably tell the two apart; the tag does.
const FORMAT: u8 = 1;
/// The purpose of the derived key, which the associated data names as well.
const LABEL: &[u8] = b"spirula cephx ticket 1";
const KEY_LEN: usize = 32;

fn cipher(secret: &CryptoKey) -> Result<LessSafeKey> {
    let key = derive(secret.secret(), &[], &[LABEL], KEY_LEN)?;
    let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| Error::BadKey)?;
    Ok(LessSafeKey::new(key))
}

fn associated(service: EntityType, secret_id: u64) -> Aad<Vec<u8>> {
    let mut w = Writer::with_capacity(LABEL.len() + 12);
    w.bytes(LABEL);
    w.u32(u32::from(service.0));
    w.u64(secret_id);
    Aad::from(w.into_vec())
}

/// Seals a ticket of `service` with its secret of the id `secret_id`.
///
/// # Errors
/// [`Error::BadKey`], [`Error::NoRandomness`].
pub(crate) fn seal_ticket(
    service: EntityType,
    secret_id: u64,
    secret: &CryptoKey,
    info: &ServiceTicketInfo,
    env: &Env<'_>,
) -> Result<TicketBlob> {
    let mut nonce = [0; NONCE_LEN];
    env.random.fill(&mut nonce)?;
    let mut sealed = Zeroizing::new(encode_to_vec(info));
    let tag = cipher(secret)?
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            associated(service, secret_id),
            &mut sealed,
        )
        .map_err(|_| Error::BadKey)?;
    let mut w = Writer::with_capacity(1 + NONCE_LEN + sealed.len() + tag.as_ref().len());
    w.u8(FORMAT);
    w.bytes(&nonce);
    w.bytes(&sealed);
    w.bytes(tag.as_ref());
    Ok(TicketBlob {
        secret_id,
        blob: w.into_vec().into(),
    })
}

/// Opens a ticket of `service` with the secret that it names.
///
/// # Errors
/// [`Error::Decrypt`] for a blob that no monitor sealed for this service under this secret;
/// [`Error::BadKey`].
pub(crate) fn open_ticket(
    service: EntityType,
    secret: &CryptoKey,
    ticket: &TicketBlob,
) -> Result<ServiceTicketInfo> {
    let (format, rest) = ticket.blob.split_first().ok_or(Error::Decrypt)?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>().ok_or(Error::Decrypt)?;
    if *format != FORMAT {
        return Err(Error::Decrypt);
    }
    let mut plain = Zeroizing::new(sealed.to_vec());
    let opened = cipher(secret)?
        .open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            associated(service, ticket.secret_id),
            &mut plain,
        )
        .map_err(|_| Error::Decrypt)?;
    decode_all(opened).map_err(|_| Error::Decrypt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyType;
    use crate::wire::{AuthCaps, AuthTicket};
    use spirula_denc::UTime;

    fn info() -> ServiceTicketInfo {
        let env = Env::system(UTime::from_secs(5));
        let ticket = AuthTicket {
            name: "client.x".parse().unwrap(),
            global_id: 7,
            caps: AuthCaps::from_text("allow r pool=a"),
            ..AuthTicket::default()
        };
        ServiceTicketInfo {
            ticket,
            session_key: CryptoKey::generate(KeyType::Aes256k, &env).unwrap(),
        }
    }

    #[test]
    fn a_ticket_opens_for_its_service_under_its_secret_only() {
        let env = Env::system(UTime::from_secs(5));
        let (secret, other) = (
            CryptoKey::generate(KeyType::Aes256k, &env).unwrap(),
            CryptoKey::generate(KeyType::Aes256k, &env).unwrap(),
        );
        let (info, osd) = (info(), EntityType::OSD);
        let ticket = seal_ticket(osd, 3, &secret, &info, &env).unwrap();
        assert_eq!(open_ticket(osd, &secret, &ticket), Ok(info.clone()));
        assert_eq!(open_ticket(osd, &other, &ticket), Err(Error::Decrypt));
        assert_eq!(
            open_ticket(EntityType::MGR, &secret, &ticket),
            Err(Error::Decrypt)
        );
        let renamed = TicketBlob {
            secret_id: 4,
            ..ticket.clone()
        };
        assert_eq!(open_ticket(osd, &secret, &renamed), Err(Error::Decrypt));
        // The same ticket is never sealed to the same bytes.
        assert_ne!(seal_ticket(osd, 3, &secret, &info, &env).unwrap(), ticket);
    }

    #[test]
    fn no_bit_can_be_changed_added_or_left_out() {
        let env = Env::system(UTime::from_secs(5));
        let secret = CryptoKey::generate(KeyType::Aes256k, &env).unwrap();
        let ticket = seal_ticket(EntityType::OSD, 3, &secret, &info(), &env).unwrap();
        let opens = |blob: Vec<u8>| {
            let ticket = TicketBlob {
                secret_id: 3,
                blob: blob.into(),
            };
            open_ticket(EntityType::OSD, &secret, &ticket).is_ok()
        };
        assert!(opens(ticket.blob.to_vec()));
        for bit in 0..ticket.blob.len() * 8 {
            let mut bent = ticket.blob.to_vec();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(bent), "bit {bit}");
        }
        for len in 0..ticket.blob.len() {
            assert!(!opens(ticket.blob[..len].to_vec()), "{len} bytes");
        }
        assert!(!opens([&ticket.blob[..], &[0; 16]].concat()));
    }
}
