//! The client's side of a login at a monitor, and its tickets afterwards (`CephxClientHandler` of
//! Ceph's `src/auth/cephx`, `MonClient::_check_auth_tickets`).

use std::collections::BTreeMap;

use spirula_denc::{EntityType, Reader, UTime, Writer, decode_all};
use spirula_errno::Errno;

use crate::authorizer::Authorizer;
use crate::env::Env;
use crate::key::{ConnectionSecret, CryptoKey};
use crate::name::AuthName;
use crate::rotating::RotatingSecrets;
use crate::seal::{Usage, answer, open_from};
use crate::wire::{
    Authenticate, Challenge, ChallengeBlob, ResponseHeader, ServiceTicket, ServiceTicketRequest, TicketBlob,
    mode, read_service, request, services_in,
};
use crate::{Error, Result};

/// A ticket for a service.
#[derive(Debug, Clone)]
struct Ticket {
    session_key: CryptoKey,
    blob: TicketBlob,
    /// When to renew it; `None` for a ticket that never expires.
    renew_after: Option<UTime>,
    expires: Option<UTime>,
}

impl Ticket {
    fn is_valid(&self, now: UTime) -> bool {
        self.expires.is_none_or(|t| now < t)
    }
}

/// The tickets of one entity. They outlive connections: a login on a new one reclaims the global id
/// with them.
#[derive(Debug, Clone, Default)]
pub struct TicketStore {
    tickets: BTreeMap<EntityType, Ticket>,
    global_id: u64,
}

impl TicketStore {
    /// The number that the monitors gave this client, 0 before the first login.
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// Whether there is a valid ticket for a service.
    pub fn has(&self, service: EntityType, now: UTime) -> bool {
        self.tickets.get(&service).is_some_and(|t| t.is_valid(now))
    }

    /// The services of `want` that need a ticket now, as a mask.
    fn needed(&self, want: u32, now: UTime) -> u32 {
        services_in(want)
            .filter(|s| {
                self.tickets
                    .get(s)
                    .is_none_or(|t| !t.is_valid(now) || t.renew_after.is_some_and(|r| now >= r))
            })
            .fold(0, |mask, s| mask | u32::from(s.0))
    }

    /// Starts an authorizer exchange with a service.
    ///
    /// # Errors
    /// [`Error::NoTicket`] where no valid ticket is held: renew first.
    pub fn authorizer(&self, service: EntityType, env: &Env<'_>) -> Result<Authorizer> {
        let ticket = self
            .tickets
            .get(&service)
            .filter(|t| t.is_valid(env.now))
            .ok_or(Error::NoTicket(service))?;
        Authorizer::new(service, self.global_id, &ticket.blob, &ticket.session_key, env)
    }

    /// Forgets the ticket of a service that refused it.
    pub fn invalidate(&mut self, service: EntityType) {
        self.tickets.remove(&service);
    }

    /// Takes over the tickets that a monitor handed out.
    fn read_tickets(&mut self, r: &mut Reader<'_>, key: &CryptoKey, now: UTime) -> Result<()> {
        r.u8()?;
        for _ in 0..r.count(11)? {
            let service = read_service(r)?;
            r.u8()?;
            let session: ServiceTicket = open_from(r, key, Usage::SessionKey)?;
            let blob: bytes::Bytes = if r.bool()? {
                let old = self.tickets.get(&service).ok_or(Error::NoTicket(service))?;
                open_from(r, &old.session_key, Usage::TicketBlob)?
            } else {
                r.get()?
            };
            let blob = decode_all(&blob)?;
            let validity = session.validity.to_duration();
            // As the official client: a quarter of the lifetime is left for the renewal.
            let (renew_after, expires) = match validity.is_zero() {
                true => (None, None),
                false => (Some(now.plus(validity - validity / 4)), Some(now.plus(validity))),
            };
            self.tickets.insert(
                service,
                Ticket {
                    session_key: session.session_key,
                    blob,
                    renew_after,
                    expires,
                },
            );
        }
        Ok(())
    }
}

/// A client's login at a monitor.
///
/// [`Self::initial`] makes the payload of `AUTH_REQUEST`, [`Self::handle_more`] answers
/// `AUTH_REPLY_MORE` with the payload of `AUTH_REQUEST_MORE`, [`Self::handle_done`] takes
/// `AUTH_DONE`.
#[derive(Debug)]
pub struct ClientHandshake {
    session: ClientSession,
}

/// The result of a login.
#[derive(Debug)]
pub struct ClientKeys {
    /// The key with which both sides sign the handshake.
    pub session_key: CryptoKey,
    /// The source of the keys of secure mode.
    pub connection_secret: ConnectionSecret,
    /// The session, which renews its tickets.
    pub session: ClientSession,
}

impl ClientHandshake {
    /// A first login that asks for tickets of the services in `want`.
    pub fn new(name: AuthName, key: CryptoKey, want: &[EntityType]) -> Self {
        let want = want
            .iter()
            .fold(u32::from(EntityType::AUTH.0), |mask, s| mask | u32::from(s.0));
        let tickets = TicketStore::default();
        Self {
            session: ClientSession {
                name,
                key,
                want,
                server_challenge: None,
                tickets,
            },
        }
    }

    /// Another login of an earlier session, which keeps its global id.
    pub fn resume(mut session: ClientSession) -> Self {
        session.server_challenge = None;
        if !session.tickets.tickets.contains_key(&EntityType::AUTH) {
            // Nothing is left that could prove whose global id it was.
            session.tickets.global_id = 0;
        }
        Self { session }
    }

    /// The payload of `AUTH_REQUEST`; the method is [`crate::method::CEPHX`].
    pub fn initial(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(32);
        w.u8(mode::MON);
        w.put(&self.session.name);
        w.u64(self.session.tickets.global_id);
        w.into_vec()
    }

    /// The payload that answers the monitor's challenge.
    ///
    /// # Errors
    /// [`Error::Malformed`]; [`Error::OutOfOrder`] where the monitor challenges twice.
    pub fn handle_more(&mut self, payload: &[u8], env: &Env<'_>) -> Result<Vec<u8>> {
        if self.session.server_challenge.is_some() {
            return Err(Error::OutOfOrder);
        }
        let challenge: Challenge = decode_all(payload)?;
        self.session.server_challenge = Some(challenge.server_challenge);
        self.session.login_request(self.session.want, env)
    }

    /// Takes the payload of `AUTH_DONE` with its global id.
    ///
    /// # Errors
    /// [`Error::Decrypt`] where the monitor does not know our key; [`Error::Refused`].
    pub fn handle_done(mut self, global_id: u64, payload: &[u8], env: &Env<'_>) -> Result<ClientKeys> {
        if self.session.server_challenge.is_none() {
            return Err(Error::OutOfOrder);
        }
        self.session.tickets.global_id = global_id;
        let mut r = Reader::new(payload);
        self.session
            .read_header(&mut r, Some(request::AUTH_SESSION_KEY))?;
        let connection_secret = self.session.read_login(&mut r, env.now)?;
        let session_key = self.session.auth_key()?.clone();
        Ok(ClientKeys {
            session_key,
            connection_secret,
            session: self.session,
        })
    }
}

/// The content of an `MAuthReply`.
#[derive(Debug)]
pub enum Renewed {
    /// New tickets are in the store.
    Tickets,
    /// The rotating secrets of the service to which the client belongs.
    Secrets(RotatingSecrets),
}

/// A session with a monitor after its login.
#[derive(Debug, Clone)]
pub struct ClientSession {
    name: AuthName,
    key: CryptoKey,
    want: u32,
    server_challenge: Option<u64>,
    tickets: TicketStore,
}

impl ClientSession {
    /// The entity that is logged in.
    pub fn name(&self) -> &AuthName {
        &self.name
    }

    /// The tickets.
    pub fn tickets(&self) -> &TicketStore {
        &self.tickets
    }

    /// The tickets, to invalidate one.
    pub fn tickets_mut(&mut self) -> &mut TicketStore {
        &mut self.tickets
    }

    /// The payload of an `MAuth` (protocol cephx) where tickets are missing or due for renewal. To
    /// be asked once in a while, and again after each [`Renewed::Tickets`]: the monitors' own
    /// ticket comes first, then the others.
    ///
    /// # Errors
    /// [`Error::NoRandomness`], [`Error::OutOfOrder`] before the login.
    pub fn renewal(&self, env: &Env<'_>) -> Result<Option<Vec<u8>>> {
        let need = self.tickets.needed(self.want, env.now);
        if need == 0 {
            return Ok(None);
        }
        if need & u32::from(EntityType::AUTH.0) != 0 {
            return self.login_request(need, env).map(Some);
        }
        let mut w = Writer::with_capacity(256);
        w.u16(request::PRINCIPAL_SESSION_KEY);
        w.bytes(&self.tickets.authorizer(EntityType::AUTH, env)?.initial(env)?);
        w.put(&ServiceTicketRequest { keys: need });
        Ok(Some(w.into_vec()))
    }

    /// The payload of an `MAuth` that asks for the rotating secrets of the service to which the
    /// client belongs.
    pub fn rotating_request(&self) -> Vec<u8> {
        request::ROTATING_KEY.to_le_bytes().to_vec()
    }

    /// Takes an `MAuthReply`.
    ///
    /// # Errors
    /// [`Error::Refused`] with the monitor's errno, [`Error::Decrypt`], [`Error::Malformed`].
    pub fn handle_reply(&mut self, result: i32, payload: &[u8], env: &Env<'_>) -> Result<Renewed> {
        if let Some(errno) = Errno::of_result(result) {
            return Err(Error::Refused(errno));
        }
        let mut r = Reader::new(payload);
        match self.read_header(&mut r, None)? {
            request::AUTH_SESSION_KEY => {
                self.read_login(&mut r, env.now)?;
            }
            request::PRINCIPAL_SESSION_KEY => {
                let key = self.auth_key()?.clone();
                self.tickets.read_tickets(&mut r, &key, env.now)?;
            }
            request::ROTATING_KEY => {
                return Ok(Renewed::Secrets(open_from(
                    &mut r,
                    &self.key,
                    Usage::RotatingSecrets,
                )?));
            }
            other => return Err(Error::UnknownRequest(other)),
        }
        Ok(Renewed::Tickets)
    }

    fn auth_key(&self) -> Result<&CryptoKey> {
        let auth = self.tickets.tickets.get(&EntityType::AUTH);
        auth.map(|t| &t.session_key)
            .ok_or(Error::NoTicket(EntityType::AUTH))
    }

    fn read_header(&self, r: &mut Reader<'_>, expected: Option<u16>) -> Result<u16> {
        let header: ResponseHeader = r.get()?;
        if let Some(errno) = Errno::of_result(header.status) {
            return Err(Error::Refused(errno));
        }
        match expected {
            Some(e) if e != header.request_type => Err(Error::UnknownRequest(header.request_type)),
            _ => Ok(header.request_type),
        }
    }

    /// A request that proves to hold the entity's key. The ticket of the earlier session goes along
    /// to keep the global id.
    fn login_request(&self, need: u32, env: &Env<'_>) -> Result<Vec<u8>> {
        let server_challenge = self.server_challenge.ok_or(Error::OutOfOrder)?;
        let client_challenge = env.random_u64()?;
        let key = answer(
            &self.key,
            &ChallengeBlob {
                server_challenge,
                client_challenge,
            },
        )?;
        let old_ticket = self
            .tickets
            .tickets
            .get(&EntityType::AUTH)
            .map(|t| t.blob.clone())
            .unwrap_or_default();
        let mut w = Writer::with_capacity(256);
        w.u16(request::AUTH_SESSION_KEY);
        w.put(&Authenticate {
            version: Authenticate::VERSION,
            client_challenge,
            key,
            old_ticket,
            other_keys: need,
        });
        Ok(w.into_vec())
    }

    /// The answer to [`Self::login_request`]: our own ticket, the connection's secret and the other
    /// tickets.
    fn read_login(&mut self, r: &mut Reader<'_>, now: UTime) -> Result<ConnectionSecret> {
        let key = self.key.clone();
        self.tickets.read_tickets(r, &key, now)?;
        if r.is_empty() {
            // A monitor from before Nautilus, or one that was asked for nothing else.
            return Ok(ConnectionSecret::default());
        }
        let session_key = self.auth_key()?.clone();
        let secret = match r.blob()? {
            [] => ConnectionSecret::default(),
            sealed => open_from(&mut Reader::new(sealed), &session_key, Usage::ConnectionSecret)?,
        };
        let extra = r.blob()?;
        if !extra.is_empty() {
            self.tickets
                .read_tickets(&mut Reader::new(extra), &session_key, now)?;
        }
        Ok(secret)
    }
}
