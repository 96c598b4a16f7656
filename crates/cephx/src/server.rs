//! The monitor's side of a login (`CephxServiceHandler` of Ceph's `src/auth/cephx`,
//! `Monitor::handle_auth_request`).

use spirula_denc::{EntityType, Reader, Writer, encode_to_vec};

use crate::authorizer::{TicketKeys, open_authorizer, same_number};
use crate::entity::EntityAuth;
use crate::env::Env;
use crate::greeting::Greeted;
use crate::key::{ConnectionMode, ConnectionSecret, CryptoKey, KeyType};
use crate::keyserver::KeyServer;
use crate::name::AuthName;
use crate::outcome::{Accepted, GlobalIdStatus, Outcome};
use crate::seal::{Usage, answer, seal_into};
use crate::ticket::{Holder, IssuedTicket, is_expired, put_tickets};
use crate::ticket_seal::open_ticket;
use crate::wire::{
    AuthCaps, Authenticate, Challenge, ChallengeBlob, ResponseHeader, ServiceTicketInfo,
    ServiceTicketRequest, method, mode, request, services_in,
};
use crate::{Error, Result};

/// The authentication state of an entity's session with a monitor.
#[derive(Debug, Clone)]
struct Session {
    name: AuthName,
    /// The session's global id. Before the login: the one that the client claims, 0 for none.
    global_id: u64,
    server_challenge: u64,
}

#[derive(Debug)]
enum State {
    Start,
    /// A login has begun: waits for the answer to the challenge.
    Challenged(Session),
    /// Another monitor has greeted: waits for its proof.
    Greeted(Greeted),
    /// Logged in; the session may renew its tickets.
    LoggedIn(Session),
    Failed,
}

/// The content of an `MAuthReply`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthReply {
    /// 0 or a negative errno.
    pub result: i32,
    /// The payload; empty with most errors.
    pub payload: Vec<u8>,
}

/// The handshake of one connection that a monitor accepted, and after it the session's renewals:
/// keep it as long as the session.
///
/// Call [`Self::handle`] with each `AUTH_REQUEST` and `AUTH_REQUEST_MORE` until it is
/// [`Outcome::Done`] or [`Outcome::Denied`], then [`Self::handle_auth`] with each `MAuth` of the
/// session.
#[derive(Debug)]
pub struct ServerHandshake {
    state: State,
    claimed: Option<AuthName>,
}

impl Default for ServerHandshake {
    fn default() -> Self {
        Self::new()
    }
}

/// The result of a login.
struct Login {
    payload: Vec<u8>,
    session_key: CryptoKey,
    connection_secret: ConnectionSecret,
    expires: spirula_denc::UTime,
}

impl ServerHandshake {
    /// Waits for the first `AUTH_REQUEST`.
    pub fn new() -> Self {
        Self {
            state: State::Start,
            claimed: None,
        }
    }

    /// The peer's claimed name, once it has sent one.
    pub fn claimed(&self) -> Option<&AuthName> {
        self.claimed.as_ref()
    }

    /// Handles the payload of an `AUTH_REQUEST` (then `auth_method` is its method) or of an
    /// `AUTH_REQUEST_MORE` (then the same method again). `mode` is the connection mode chosen from
    /// those that the peer asked for.
    ///
    /// A method that is not offered leaves the handshake open for another one, everything else that
    /// is denied ends it.
    pub fn handle(
        &mut self,
        auth_method: u32,
        mode: ConnectionMode,
        payload: &[u8],
        keys: &dyn KeyServer,
        env: &Env<'_>,
    ) -> Outcome {
        if auth_method != method::CEPHX {
            return Outcome::denied(Error::UnsupportedMethod(auth_method));
        }
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Start if Greeted::is_greeting(payload) => match Greeted::begin(payload, mode, env) {
                Ok((greeted, answer)) => {
                    self.claimed = Some(greeted.name().clone());
                    self.state = State::Greeted(greeted);
                    Outcome::More(answer)
                }
                Err(e) => Outcome::denied(e),
            },
            State::Greeted(greeted) => greet(greeted, payload, keys, env).unwrap_or_else(Outcome::denied),
            State::Start => match begin(payload, env) {
                Ok((session, reply)) => {
                    self.claimed = Some(session.name.clone());
                    self.state = State::Challenged(session);
                    Outcome::More(reply)
                }
                Err(e) => Outcome::denied(e),
            },
            State::Challenged(session) => match session.first_login(mode, payload, keys, env) {
                Ok((session, accepted)) => {
                    self.state = State::LoggedIn(session);
                    Outcome::Done(Box::new(accepted))
                }
                Err(e) => Outcome::denied(e),
            },
            state @ State::LoggedIn(_) => {
                self.state = state;
                Outcome::denied(Error::OutOfOrder)
            }
            State::Failed => Outcome::denied(Error::OutOfOrder),
        }
    }

    /// Handles the payload of an `MAuth` on the session: a renewal of its tickets, or a daemon's
    /// request for the rotating secrets of its service.
    pub fn handle_auth(&mut self, payload: &[u8], keys: &dyn KeyServer, env: &Env<'_>) -> AuthReply {
        let State::LoggedIn(session) = &self.state else {
            return AuthReply {
                result: -Error::OutOfOrder.errno(),
                payload: Vec::new(),
            };
        };
        match session.renew(payload, keys, env) {
            Ok(reply) => reply,
            Err(e) => AuthReply {
                result: -e.errno(),
                payload: Vec::new(),
            },
        }
    }
}

/// Refuses keys of types that the cluster does not allow any more.
fn allowed(kind: KeyType, keys: &dyn KeyServer) -> Result<()> {
    match keys.allows(kind) {
        true => Ok(()),
        false => Err(Error::UnallowedKeyType(kind)),
    }
}

fn greet(greeted: Greeted, payload: &[u8], keys: &dyn KeyServer, env: &Env<'_>) -> Result<Outcome> {
    let shared = keys.lookup(&AuthName::monitors()).ok_or(Error::UnknownEntity)?;
    greeted.finish(payload, &shared.key, env)
}

/// Decodes a login's first message and makes the challenge. An unauthenticated client costs no
/// memory and no global id.
fn begin(payload: &[u8], env: &Env<'_>) -> Result<(Session, Vec<u8>)> {
    let (name, global_id) = read_start(payload).map_err(|_| Error::MalformedStart)?;
    // 0 means "no challenge was made" to the official code.
    let server_challenge = env.random_u64()?.max(1);
    let session = Session {
        name,
        global_id,
        server_challenge,
    };
    Ok((session, encode_to_vec(&Challenge { server_challenge })))
}

fn read_start(payload: &[u8]) -> Result<(AuthName, u64)> {
    let mut r = Reader::new(payload);
    if !mode::MONS.contains(&r.u8()?) {
        return Err(Error::MalformedStart);
    }
    Ok((r.get()?, r.u64()?))
}

impl Session {
    fn first_login(
        mut self,
        mode: ConnectionMode,
        payload: &[u8],
        keys: &dyn KeyServer,
        env: &Env<'_>,
    ) -> Result<(Self, Accepted)> {
        let mut r = Reader::new(payload);
        match r.u16()? {
            request::AUTH_SESSION_KEY => {}
            other => return Err(Error::UnknownRequest(other)),
        }
        let (req, entity) = self.authenticate(&mut r, keys)?;
        let (status, old) = self.first_status(&req, keys, env)?;
        if matches!(status, GlobalIdStatus::New | GlobalIdStatus::NewUnexposed) {
            self.global_id = keys.new_global_id().ok_or(Error::NotReady)?;
        }
        let login = self.grant(&req, &entity, old.as_ref(), Some(mode), keys, env)?;
        let accepted = Accepted {
            payload: login.payload,
            name: self.name.clone(),
            global_id: self.global_id,
            session_key: login.session_key,
            connection_secret: login.connection_secret,
            caps: entity.caps_for("mon"),
            expires: login.expires,
            global_id_status: status,
        };
        Ok((self, accepted))
    }

    fn renew(&self, payload: &[u8], keys: &dyn KeyServer, env: &Env<'_>) -> Result<AuthReply> {
        let mut r = Reader::new(payload);
        let payload = match r.u16()? {
            request::AUTH_SESSION_KEY => {
                let (req, entity) = self.authenticate(&mut r, keys)?;
                let (_, old) = self.reclaim(&req, keys, env)?;
                self.grant(&req, &entity, old.as_ref(), None, keys, env)?.payload
            }
            request::PRINCIPAL_SESSION_KEY => return self.service_tickets(&mut r, keys, env),
            request::ROTATING_KEY => self.rotating_secrets(keys, env)?,
            other => return Err(Error::UnknownRequest(other)),
        };
        Ok(AuthReply { result: 0, payload })
    }

    /// Decodes and checks the answer to the challenge: its sender holds the entity's key, and the
    /// entity may talk to monitors.
    fn authenticate(&self, r: &mut Reader<'_>, keys: &dyn KeyServer) -> Result<(Authenticate, EntityAuth)> {
        let req = r.get()?;
        let entity = keys.lookup(&self.name).ok_or(Error::UnknownEntity)?;
        self.check_answer(&req, &entity.key)?;
        allowed(entity.key.kind(), keys)?;
        if entity.caps_for("mon").text()?.is_empty() {
            return Err(Error::NoCaps);
        }
        Ok((req, entity))
    }

    /// Issues the ticket of the monitors' own service and, to clients that ask for them, those of
    /// other services. `mode` is `None` in a renewal, where there is no new connection.
    fn grant(
        &self,
        req: &Authenticate,
        entity: &EntityAuth,
        old: Option<&ServiceTicketInfo>,
        mode: Option<ConnectionMode>,
        keys: &dyn KeyServer,
        env: &Env<'_>,
    ) -> Result<Login> {
        // The holder of a key knows the key's type.
        let known = entity.key.kind();
        let auth = self.issue(EntityType::AUTH, AuthCaps::default(), known, keys, env)?;
        let session_key = auth.session.session_key.clone();
        let expires = env.now.plus(auth.session.validity.to_duration());
        let mut w = Writer::with_capacity(1024);
        w.put(&ResponseHeader {
            request_type: request::AUTH_SESSION_KEY,
            status: 0,
        });
        put_tickets(&mut w, &entity.key, &[auth], old.map(|t| &t.session_key), env)?;

        let mut connection_secret = ConnectionSecret::default();
        if req.other_keys != 0 {
            let mut sealed = Writer::new();
            if let Some(mode) = mode {
                connection_secret = ConnectionSecret::generate(mode, env)?;
                seal_into(
                    &mut sealed,
                    &session_key,
                    Usage::ConnectionSecret,
                    &connection_secret,
                    env,
                )?;
            }
            w.blob(sealed.as_slice());
            let (tickets, _) = self.issue_all(req.other_keys, entity, known, keys, env)?;
            let mut extra = Writer::new();
            if !tickets.is_empty() {
                put_tickets(&mut extra, &session_key, &tickets, None, env)?;
            }
            w.blob(extra.as_slice());
        }
        Ok(Login {
            payload: w.into_vec(),
            session_key,
            connection_secret,
            expires,
        })
    }

    fn check_answer(&self, req: &Authenticate, key: &CryptoKey) -> Result<()> {
        let challenges = ChallengeBlob {
            server_challenge: self.server_challenge,
            client_challenge: req.client_challenge,
        };
        let expected = answer(key, &challenges)?;
        if same_number(expected, req.key) {
            Ok(())
        } else {
            Err(Error::WrongAnswer)
        }
    }

    /// Decides the global id of a login. A new one needs no proof; a claimed one needs the ticket
    /// of the earlier session. A ticket whose secret has ended, or which an earlier version sealed,
    /// proves nothing any more: its owner holds the entity's key, and starts anew under another id.
    fn first_status(
        &self,
        req: &Authenticate,
        keys: &dyn KeyServer,
        env: &Env<'_>,
    ) -> Result<(GlobalIdStatus, Option<ServiceTicketInfo>)> {
        let has_ticket = !req.old_ticket.blob.is_empty();
        let new = match req.may_omit_ticket() {
            true => GlobalIdStatus::NewUnexposed,
            false => GlobalIdStatus::New,
        };
        if self.global_id == 0 {
            return match has_ticket {
                true => Err(Error::SuperfluousTicket),
                false => Ok((new, None)),
            };
        }
        match self.reclaim(req, keys, env) {
            Err(Error::Expired | Error::Decrypt | Error::UnknownSecret { .. }) if has_ticket => {
                Ok((new, None))
            }
            reclaimed => reclaimed,
        }
    }

    /// Opens the ticket of the earlier session, whose key then also seals the new ticket: only its
    /// true owner can read that.
    fn reclaim(
        &self,
        req: &Authenticate,
        keys: &dyn KeyServer,
        env: &Env<'_>,
    ) -> Result<(GlobalIdStatus, Option<ServiceTicketInfo>)> {
        let old = &req.old_ticket;
        if req.may_omit_ticket() && old.blob.is_empty() {
            return match keys.allow_insecure_global_id_reclaim() {
                true => Ok((GlobalIdStatus::ReclaimedInsecurely, None)),
                false => Err(Error::UnprovenGlobalId),
            };
        }
        let (service, id) = (EntityType::AUTH, old.secret_id);
        let secret = keys.service_secrets().secret(service, id);
        let secret = secret.ok_or(Error::UnknownSecret { service, id })?;
        let info = open_ticket(service, secret, old)?;
        if info.ticket.global_id != self.global_id || info.ticket.name != self.name {
            return Err(Error::UnprovenGlobalId);
        }
        if is_expired(&info.ticket, env.now) {
            return Err(Error::Expired);
        }
        Ok((GlobalIdStatus::Reclaimed, Some(info)))
    }

    fn issue(
        &self,
        service: EntityType,
        caps: AuthCaps,
        known: KeyType,
        keys: &dyn KeyServer,
        env: &Env<'_>,
    ) -> Result<IssuedTicket> {
        let secret = keys
            .service_secrets()
            .current(service, &keys.lifetimes(), env.now);
        let secret = secret.ok_or(Error::NotReady)?;
        IssuedTicket::issue(
            service,
            Holder {
                name: &self.name,
                global_id: self.global_id,
                known,
            },
            caps,
            &secret,
            env,
        )
    }

    /// Tickets for the services in `mask`, and the error for services without a secret. The ticket
    /// of the monitors' own service is never among them: that takes the entity's key.
    fn issue_all(
        &self,
        mask: u32,
        entity: &EntityAuth,
        known: KeyType,
        keys: &dyn KeyServer,
        env: &Env<'_>,
    ) -> Result<(Vec<IssuedTicket>, Option<Error>)> {
        let (mut tickets, mut missing) = (Vec::new(), None);
        for service in services_in(mask).filter(|s| *s != EntityType::AUTH) {
            if keys.service_secrets().of(service).is_none() {
                missing = Some(Error::UnknownSecret { service, id: 0 });
                continue;
            }
            // Monitors look up capabilities themselves.
            let caps = if service == EntityType::MON {
                AuthCaps::default()
            } else {
                entity.caps_for(service.name())
            };
            tickets.push(self.issue(service, caps, known, keys, env)?);
        }
        Ok((tickets, missing))
    }

    /// Tickets of other services for a client with the ticket of the monitors' own. There is no
    /// challenge here: the session is authenticated already, and only the ticket's owner can read
    /// the answer.
    fn service_tickets(&self, r: &mut Reader<'_>, keys: &dyn KeyServer, env: &Env<'_>) -> Result<AuthReply> {
        let opened = open_authorizer(r, &AuthService(keys), env).map_err(|e| match e {
            Error::Malformed(_) => Error::MalformedStart,
            e => e,
        })?;
        let ticket = &opened.info.ticket;
        if ticket.name != self.name || ticket.global_id != self.global_id {
            return Err(Error::ForeignTicket);
        }
        let wanted: ServiceTicketRequest = r.get()?;
        let entity = keys.lookup(&self.name).ok_or(Error::UnknownEntity)?;
        // The key with which the session began: the entity's may be another by now, of a type that
        // the client does not know.
        let known = opened.info.session_key.kind();
        allowed(known, keys)?;
        let (tickets, missing) = self.issue_all(wanted.keys, &entity, known, keys, env)?;
        let result = match missing {
            Some(e) if tickets.is_empty() => -e.errno(),
            _ => 0,
        };
        let mut w = Writer::with_capacity(1024);
        w.put(&ResponseHeader {
            request_type: request::PRINCIPAL_SESSION_KEY,
            status: result,
        });
        put_tickets(&mut w, &opened.info.session_key, &tickets, None, env)?;
        Ok(AuthReply {
            result,
            payload: w.into_vec(),
        })
    }

    /// The rotating secrets of the entity's own service, sealed with the entity's key.
    fn rotating_secrets(&self, keys: &dyn KeyServer, env: &Env<'_>) -> Result<Vec<u8>> {
        let entity = keys.lookup(&self.name).ok_or(Error::UnknownEntity)?;
        let service = self.name.kind;
        let unknown = Error::UnknownSecret { service, id: 0 };
        let secrets = keys.service_secrets().of(service).ok_or(unknown)?;
        let mut w = Writer::with_capacity(256);
        w.put(&ResponseHeader {
            request_type: request::ROTATING_KEY,
            status: 0,
        });
        seal_into(&mut w, &entity.key, Usage::RotatingSecrets, secrets, env)?;
        Ok(w.into_vec())
    }
}

/// Opens only tickets of the monitors' own service: a ticket of another one must not buy more
/// tickets.
struct AuthService<'a>(&'a dyn KeyServer);

impl TicketKeys for AuthService<'_> {
    fn ticket_key(&self, service: EntityType, secret_id: u64) -> Option<CryptoKey> {
        let secrets = self.0.service_secrets();
        (service == EntityType::AUTH)
            .then(|| secrets.secret(service, secret_id).cloned())
            .flatten()
    }
}
