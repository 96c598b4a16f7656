//! Authorizers: how a ticket's holder and a service prove their identity to each other
//! (`cephx_verify_authorizer` and `CephXAuthorizer` in Ceph's `src/auth/cephx/CephxProtocol.cc`).
//!
//! The client sends `{1, global_id, service, ticket, {nonce}}`, the service answers with a
//! challenge, the client repeats its message with the challenge plus one, and the service proves
//! with the nonce plus one that it could read the ticket. The inner braces are sealed with the
//! ticket's session key. Without the challenge an eavesdropper could replay an authorizer, so the
//! round is never skipped.

use spirula_denc::{EntityType, Reader, Writer};
use subtle::ConstantTimeEq;

use crate::env::Env;
use crate::key::{ConnectionMode, ConnectionSecret, CryptoKey};
use crate::outcome::{Accepted, GlobalIdStatus, Outcome};
use crate::seal::{Usage, open, open_from, seal, seal_into};
use crate::ticket::is_expired;
use crate::ticket_seal::open_ticket;
use crate::wire::{
    Authorize, AuthorizeReply, Challenge, ServiceTicketInfo, TicketBlob, method, mode, read_service,
};
use crate::{AuthName, Error, Result};

/// The client's side of one authorizer exchange.
#[derive(Debug, Clone)]
pub struct Authorizer {
    session_key: CryptoKey,
    nonce: u64,
    /// The part before the sealed one.
    prefix: Vec<u8>,
}

impl Authorizer {
    pub(crate) fn new(
        service: EntityType,
        global_id: u64,
        blob: &TicketBlob,
        session_key: &CryptoKey,
        env: &Env<'_>,
    ) -> Result<Self> {
        let mut w = Writer::with_capacity(64 + blob.blob.len());
        w.u8(mode::AUTHORIZER);
        w.u64(global_id);
        w.u32(u32::from(service.0));
        w.put(blob);
        Ok(Self {
            session_key: session_key.clone(),
            nonce: env.random_u64()?,
            prefix: w.into_vec(),
        })
    }

    /// The payload of the first `AUTH_REQUEST`.
    ///
    /// # Errors
    /// [`Error::BadKey`], [`Error::NoRandomness`].
    pub fn initial(&self, env: &Env<'_>) -> Result<Vec<u8>> {
        self.with_challenge(None, env)
    }

    fn with_challenge(&self, challenge: Option<u64>, env: &Env<'_>) -> Result<Vec<u8>> {
        let mut w = Writer::with_capacity(self.prefix.len() + 64);
        w.bytes(&self.prefix);
        let challenge_plus_one = challenge.map(|c| c.wrapping_add(1));
        seal_into(
            &mut w,
            &self.session_key,
            Usage::Authorize,
            &Authorize {
                nonce: self.nonce,
                challenge_plus_one,
            },
            env,
        )?;
        Ok(w.into_vec())
    }

    /// The payload that answers the service's challenge.
    ///
    /// # Errors
    /// [`Error::Decrypt`] where the sender of the challenge could not read the ticket.
    pub fn handle_more(&mut self, payload: &[u8], env: &Env<'_>) -> Result<Vec<u8>> {
        let challenge: Challenge = open(&self.session_key, Usage::AuthorizeChallenge, payload)?;
        self.with_challenge(Some(challenge.server_challenge), env)
    }

    /// Checks the service's proof: the session key and the connection's secret.
    ///
    /// # Errors
    /// [`Error::Decrypt`], [`Error::WrongAnswer`] where the service could not read the ticket.
    pub fn handle_done(self, payload: &[u8]) -> Result<(CryptoKey, ConnectionSecret)> {
        let reply: AuthorizeReply = open_from(
            &mut Reader::new(payload),
            &self.session_key,
            Usage::AuthorizeReply,
        )?;
        if !same_number(reply.nonce_plus_one, self.nonce.wrapping_add(1)) {
            return Err(Error::WrongAnswer);
        }
        Ok((self.session_key, reply.connection_secret))
    }
}

/// Compares two numbers in constant time.
pub(crate) fn same_number(a: u64, b: u64) -> bool {
    a.ct_eq(&b).into()
}

/// The secrets with which a service opens tickets.
pub trait TicketKeys {
    /// The secret of this id, if it belongs to a service that this side serves.
    fn ticket_key(&self, service: EntityType, secret_id: u64) -> Option<CryptoKey>;
}

/// The part of an authorizer that is readable without the ticket's session key.
pub(crate) struct OpenedAuthorizer {
    pub(crate) info: ServiceTicketInfo,
    pub(crate) body: Authorize,
}

/// Reads an authorizer and opens its ticket. `r` is left after it.
pub(crate) fn open_authorizer(
    r: &mut Reader<'_>,
    keys: &dyn TicketKeys,
    env: &Env<'_>,
) -> Result<OpenedAuthorizer> {
    if r.u8()? != mode::AUTHORIZER {
        return Err(Error::MalformedStart);
    }
    let global_id = r.u64()?;
    let service = read_service(r)?;
    let blob: TicketBlob = r.get()?;
    let unknown = Error::UnknownSecret {
        service,
        id: blob.secret_id,
    };
    let secret = keys
        .ticket_key(service, blob.secret_id)
        .filter(|k| !k.is_empty())
        .ok_or(unknown)?;
    let info = open_ticket(service, &secret, &blob)?;
    if info.ticket.global_id != global_id {
        return Err(Error::ForeignTicket);
    }
    if is_expired(&info.ticket, env.now) {
        return Err(Error::Expired);
    }
    let body = open_from(r, &info.session_key, Usage::Authorize)?;
    Ok(OpenedAuthorizer { info, body })
}

#[derive(Debug)]
enum State {
    Start,
    Challenged(u64),
    Over,
}

/// The service's side of one authorizer exchange, one per connection.
#[derive(Debug)]
pub struct AuthorizerVerifier {
    state: State,
    holder: Option<AuthName>,
}

impl Default for AuthorizerVerifier {
    fn default() -> Self {
        Self::new()
    }
}

impl AuthorizerVerifier {
    /// Waits for the first `AUTH_REQUEST`.
    pub fn new() -> Self {
        Self {
            state: State::Start,
            holder: None,
        }
    }

    /// The ticket's holder, once a ticket was opened.
    pub fn holder(&self) -> Option<&AuthName> {
        self.holder.as_ref()
    }

    /// Handles the payload of an `AUTH_REQUEST` (then `auth_method` is its method) or of an
    /// `AUTH_REQUEST_MORE` (then the same method again). `mode` is the connection mode chosen from
    /// those that the peer asked for.
    pub fn handle(
        &mut self,
        auth_method: u32,
        mode: ConnectionMode,
        payload: &[u8],
        keys: &dyn TicketKeys,
        env: &Env<'_>,
    ) -> Outcome {
        if auth_method != method::CEPHX {
            return Outcome::denied(Error::UnsupportedMethod(auth_method));
        }
        match self.step(mode, payload, keys, env) {
            Ok(outcome) => outcome,
            Err(e) => {
                self.state = State::Over;
                Outcome::denied(match e {
                    // The official service answers anything unreadable with -EACCES.
                    Error::Malformed(_) => Error::MalformedStart,
                    e => e,
                })
            }
        }
    }

    fn step(
        &mut self,
        mode: ConnectionMode,
        payload: &[u8],
        keys: &dyn TicketKeys,
        env: &Env<'_>,
    ) -> Result<Outcome> {
        let state = std::mem::replace(&mut self.state, State::Over);
        let opened = open_authorizer(&mut Reader::new(payload), keys, env)?;
        self.holder = Some(opened.info.ticket.name.clone());
        let session_key = opened.info.session_key;
        match (state, opened.body.challenge_plus_one) {
            (State::Start, _) => {
                let server_challenge = env.random_u64()?;
                self.state = State::Challenged(server_challenge);
                Ok(Outcome::More(seal(
                    &session_key,
                    Usage::AuthorizeChallenge,
                    &Challenge { server_challenge },
                    env,
                )?))
            }
            (State::Challenged(challenge), Some(answer)) => {
                if !same_number(challenge.wrapping_add(1), answer) {
                    return Err(Error::WrongAnswer);
                }
                let connection_secret = ConnectionSecret::generate(mode, env)?;
                let reply = AuthorizeReply {
                    nonce_plus_one: opened.body.nonce.wrapping_add(1),
                    connection_secret: connection_secret.clone(),
                };
                let mut w = Writer::with_capacity(144);
                seal_into(&mut w, &session_key, Usage::AuthorizeReply, &reply, env)?;
                let ticket = opened.info.ticket;
                Ok(Outcome::Done(Box::new(Accepted {
                    payload: w.into_vec(),
                    name: ticket.name,
                    global_id: ticket.global_id,
                    session_key,
                    connection_secret,
                    caps: ticket.caps,
                    expires: ticket.expires,
                    global_id_status: GlobalIdStatus::FromTicket,
                })))
            }
            _ => Err(Error::OutOfOrder),
        }
    }
}
