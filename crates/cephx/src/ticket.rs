//! Issues tickets, on the side of the monitors.

use spirula_denc::{EntityType, UTime, Writer};

use crate::env::Env;
use crate::key::{CryptoKey, KeyType};
use crate::rotating::CurrentSecret;
use crate::seal::{Usage, seal_into};
use crate::ticket_seal::seal_ticket;
use crate::wire::{AuthCaps, AuthTicket, ServiceTicket, ServiceTicketInfo, TicketBlob};
use crate::{AuthName, Result};

/// A new ticket, with the data for its holder (`CephXSessionAuthInfo`).
#[derive(Debug, Clone)]
pub(crate) struct IssuedTicket {
    pub(crate) service: EntityType,
    pub(crate) session: ServiceTicket,
    pub(crate) blob: TicketBlob,
}

/// The holder of a new ticket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder<'a> {
    pub(crate) name: &'a AuthName,
    pub(crate) global_id: u64,
    /// The strongest type of key that the holder knows.
    pub(crate) known: KeyType,
}

impl IssuedTicket {
    /// Issues a ticket of `service` for `holder`, sealed with `secret`. Its session key has the
    /// strongest type that both know: a service knows the type of its secrets, the monitors' own
    /// service knows all.
    pub(crate) fn issue(
        service: EntityType,
        holder: Holder<'_>,
        caps: AuthCaps,
        secret: &CurrentSecret,
        env: &Env<'_>,
    ) -> Result<Self> {
        let kind = match service {
            EntityType::AUTH => holder.known,
            _ => holder.known.min(secret.key.kind()),
        };
        let session_key = CryptoKey::generate(kind, env)?;
        let ticket = AuthTicket {
            name: holder.name.clone(),
            global_id: holder.global_id,
            created: env.now,
            expires: env.now.plus(secret.ttl),
            caps,
            flags: 0,
        };
        let info = ServiceTicketInfo { ticket, session_key };
        let blob = seal_ticket(service, secret.id, &secret.key, &info, env)?;
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
}

/// Appends a list of tickets for the holder of `principal_key`. With `ticket_key`, each ticket's
/// blob is sealed with it as well, where the holder must prove that it had an earlier session
/// (`cephx_build_service_ticket_reply`).
pub(crate) fn put_tickets(
    w: &mut Writer,
    principal_key: &CryptoKey,
    tickets: &[IssuedTicket],
    ticket_key: Option<&CryptoKey>,
    env: &Env<'_>,
) -> Result<()> {
    w.u8(1);
    w.count(tickets.len());
    for ticket in tickets {
        w.u32(u32::from(ticket.service.0));
        w.u8(1);
        seal_into(w, principal_key, Usage::SessionKey, &ticket.session, env)?;
        let mut blob = Writer::new();
        blob.put(&ticket.blob);
        let blob = bytes::Bytes::from(blob.into_vec());
        w.bool(ticket_key.is_some());
        match ticket_key {
            Some(key) => seal_into(w, key, Usage::TicketBlob, &blob, env)?,
            None => w.put(&blob),
        }
    }
    Ok(())
}

/// Whether a ticket is too old to start a session with.
///
/// In Ceph only the rotation of secrets ends a ticket's life, so that the daemons' clocks need not
/// agree. Here it also ends one full lifetime after the date in it: clocks may differ by that much,
/// and a service that can't reach the monitors for new secrets does not accept old tickets for
/// ever.
pub(crate) fn is_expired(ticket: &AuthTicket, now: UTime) -> bool {
    let lifetime = ticket.expires.since(ticket.created);
    now > ticket.expires.plus(lifetime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_ticket_is_honoured_for_a_lifetime_after_its_date() {
        let ticket = AuthTicket {
            created: UTime::from_secs(100),
            expires: UTime::from_secs(160),
            ..AuthTicket::default()
        };
        assert!(!is_expired(&ticket, ticket.expires));
        assert!(!is_expired(&ticket, UTime::from_secs(220)));
        assert!(is_expired(&ticket, ticket.expires.plus(Duration::from_secs(61))));
    }
}
