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
