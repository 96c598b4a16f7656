//! Issuing tickets: what the monitors do, and what a monitor does for itself towards its peers.

use spirula_denc::{EntityType, UTime, Writer};

use crate::env::Env;
use crate::key::CryptoKey;
use crate::rotating::{CurrentSecret, TicketLifetimes};
use crate::seal::{open, seal, seal_into};
use crate::wire::{AuthCaps, AuthTicket, MONITOR_SECRET_ID, ServiceTicket, ServiceTicketInfo, TicketBlob};
use crate::{AuthName, Result};

/// A ticket just made, with what its holder gets to know (`CephXSessionAuthInfo`).
#[derive(Debug, Clone)]
pub(crate) struct IssuedTicket {
    pub(crate) service: EntityType,
    pub(crate) session: ServiceTicket,
    pub(crate) blob: TicketBlob,
}

/// Whom a ticket is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder<'a> {
    pub(crate) name: &'a AuthName,
    pub(crate) global_id: u64,
}

impl IssuedTicket {
    /// A ticket of `service` for `holder`, sealed with `secret`.
    pub(crate) fn issue(
        service: EntityType,
        holder: Holder<'_>,
        caps: AuthCaps,
        secret: &CurrentSecret,
        env: &Env<'_>,
    ) -> Result<Self> {
        let session_key = CryptoKey::generate(env)?;
        let ticket = AuthTicket {
            name: holder.name.clone(),
            global_id: holder.global_id,
            created: env.now,
            expires: env.now.plus(secret.ttl),
            caps,
            flags: 0,
        };
        let info = ServiceTicketInfo { ticket, session_key };
        let blob = TicketBlob {
            secret_id: secret.id,
            blob: seal(&secret.key, &info)?.into(),
        };
        let session = ServiceTicket {
            session_key: info.session_key,
            validity: UTime::from(secret.ttl),
        };
        Ok(Self {
            service,
            session,
            blob,
        })
    }

    /// The ticket with which one monitor authenticates to another, sealed with the key that all of them share. Its
    /// capabilities are blank: a monitor trusts its peers.
    pub(crate) fn for_monitor(
        name: &AuthName,
        shared_key: &CryptoKey,
        lifetimes: &TicketLifetimes,
        env: &Env<'_>,
    ) -> Result<Self> {
        let ttl = lifetimes.of(EntityType::MON);
        let secret = CurrentSecret {
            id: MONITOR_SECRET_ID,
            key: shared_key.clone(),
            ttl,
        };
        Self::issue(
            EntityType::MON,
            Holder { name, global_id: 0 },
            AuthCaps::default(),
            &secret,
            env,
        )
    }
}

/// Appends a list of tickets: to the holder of `principal_key`, each ticket's blob additionally sealed with
/// `ticket_key` where the holder must prove to have had an older session (`cephx_build_service_ticket_reply`).
pub(crate) fn put_tickets(
    w: &mut Writer,
    principal_key: &CryptoKey,
    tickets: &[IssuedTicket],
    ticket_key: Option<&CryptoKey>,
) -> Result<()> {
    w.u8(1);
    w.count(tickets.len());
    for ticket in tickets {
        w.u32(u32::from(ticket.service.0));
        w.u8(1);
        seal_into(w, principal_key, &ticket.session)?;
        let mut blob = Writer::new();
        blob.put(&ticket.blob);
        let blob = bytes::Bytes::from(blob.into_vec());
        w.bool(ticket_key.is_some());
        match ticket_key {
            Some(key) => seal_into(w, key, &blob)?,
            None => w.put(&blob),
        }
    }
    Ok(())
}

/// Opens a ticket with the secret it names.
pub(crate) fn open_ticket(secret: &CryptoKey, blob: &TicketBlob) -> Result<ServiceTicketInfo> {
    open(secret, &blob.blob)
}

/// Whether a ticket is too old to start a session with.
///
/// Officially only the rotation of secrets ends a ticket's life, so that the daemons' clocks need not agree. Here it
/// also ends one full lifetime after the date in it: clocks may differ by that much, and a service that can't reach
/// the monitors for new secrets does not honour old tickets for ever.
pub(crate) fn is_expired(ticket: &AuthTicket, now: UTime) -> bool {
    let lifetime = ticket.expires.since(ticket.created);
    now > ticket.expires.plus(lifetime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyType;
    use spirula_denc::decode_all;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    }

    /// Tickets that official monitors made, with the rotating secrets they used, both from ceph/ceph-object-corpus
    /// (`CephXTicketBlob` and `RotatingSecrets` of the set 16.2.0).
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
    fn official_tickets_open_and_are_sealed_to_the_same_bytes() {
        for (secret, blob, holder, caps) in OFFICIAL {
            let secret = CryptoKey::from_parts(KeyType::AES, UTime::ZERO, &hex(secret)).unwrap();
            let blob: TicketBlob = decode_all(&hex(blob)).unwrap();
            let info = open_ticket(&secret, &blob).unwrap();
            assert_eq!(info.ticket.name.to_string(), holder);
            assert_eq!(info.ticket.caps.text().unwrap(), caps);
            assert_eq!(seal(&secret, &info).unwrap(), blob.blob);
            assert!(!is_expired(&info.ticket, info.ticket.expires));
            assert!(is_expired(
                &info.ticket,
                info.ticket
                    .expires
                    .plus(std::time::Duration::from_secs(30 * 86_400))
            ));
        }
    }
}
