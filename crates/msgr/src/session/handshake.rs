//! Banner, HELLO, authentication, signatures and ident frames, for both sides.

use std::rc::Rc;

use bytes::Bytes;
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType, encode_to_vec};
use spirula_errno::{EACCES, EOPNOTSUPP, Errno};
use spirula_invariant::{impossible, invariant};
use spirula_maps::features;
use spirula_secret::Secret;

use super::{Inbound, Outbound, SessionError};
use crate::config::{ConMode, Config, Peer};
use crate::control::{
    AuthBadMethod, AuthDone, AuthReplyMore, AuthRequest, AuthRequestMore, AuthSignature, ClientIdent,
    Control, Digest, FLAG_LOSSY, Hello, MissingFeatures, Reconnect, Reset, ServerIdent,
};
use crate::frame::{
    BANNER_PREFIX, Decoder, Encoder, FEATURE_REVISION_1, Frame, FrameError, Progress, SECRET_LEN, Tag,
    gcm_pair,
};

/// Authentication attempts (AUTH_REQUEST frames) on one connection.
const ATTEMPTS_MAX: u32 = 8;

/// The next thing that the handshake needs from its owner.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes from the peer (after the pending ones are written).
    NeedBytes,
    /// Acceptor: a client starts authenticating; answer with [`Handshake::reply`].
    AuthRequest {
        /// The type that the client claims.
        peer: EntityType,
        /// Authentication method (2 = cephx).
        method: u32,
        /// The mode that the connection will have: the client's first choice that we accept.
        con_mode: ConMode,
        /// The method's payload.
        payload: Bytes,
    },
    /// Acceptor: the next round; answer with [`Handshake::reply`].
    AuthMore(Bytes),
    /// Connector: begin with [`Handshake::start_auth`].
    StartAuth,
    /// Connector: the server refused; try otherwise with [`Handshake::start_auth`], or give up.
    AuthBad {
        /// The refused method.
        method: u32,
        /// Why.
        errno: Errno,
        /// Methods that the server accepts.
        allowed_methods: Vec<u32>,
        /// Modes that the server accepts.
        allowed_modes: Vec<u32>,
    },
    /// Connector: the server's next round; answer with [`Handshake::more`].
    AuthReply(Bytes),
    /// Connector: success; answer with [`Handshake::keys`].
    AuthDone {
        /// Our global id.
        global_id: u64,
        /// The mode that the server chose, one of ours.
        con_mode: ConMode,
        /// The method's payload.
        payload: Bytes,
    },
    /// The session is established: take it with [`Handshake::finish`].
    Ready,
}

/// The keys that authentication gave a connection.
#[derive(Debug, Clone, Default)]
pub struct SessionKeys {
    /// The key that signs the handshake. Empty for a method without keys: nothing is signed.
    pub session_key: Secret<Vec<u8>>,
    /// Key material of secure mode, 40 bytes or more of it. Unused in crc mode.
    pub connection_secret: Secret<Vec<u8>>,
}

/// The acceptor's answer to a round of authentication.
#[derive(Debug, Clone)]
pub enum AcceptReply {
    /// Another round with this payload.
    More(Bytes),
    /// The client has proved its identity.
    Done {
        /// The client's global id.
        global_id: u64,
        /// The method's payload.
        payload: Bytes,
        /// The connection's keys.
        keys: SessionKeys,
    },
    /// Close the connection without an answer, so that the client comes back later; with an errno
    /// for our log.
    HangUp(Errno),
    /// Refused; the client may try otherwise.
    Bad {
        /// Why.
        errno: Errno,
        /// The methods that would be accepted.
        allowed_methods: Vec<u32>,
    },
}

/// The connector's opening of an authentication.
#[derive(Debug, Clone)]
pub struct AuthStart {
    /// Authentication method (2 = cephx).
    pub method: u32,
    /// The method's payload.
    pub payload: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Banner,
    Hello,
    /// The connector's owner is to start.
    StartAuth,
    /// A frame of the authentication is awaited; for the acceptor: of its first or a later round.
    Auth {
        more: bool,
    },
    /// The owner is to answer.
    Answer,
    /// The connector's owner is to give the keys.
    Keys,
    Signature,
    Ident,
    Ready,
}

/// A connection until its session is established. Write what is pending, feed bytes,
/// [`Handshake::poll`], answer.
pub struct Handshake {
    config: Rc<Config>,
    acceptor: bool,
    peer_kind: EntityType,
    /// The address dialled, or the peer's as seen.
    target: EntityAddr,
    global_seq: u64,
    dec: Decoder,
    enc: Encoder,
    state: State,
    attempts: u32,
    method: u32,
    con_mode: ConMode,
    global_id: u64,
    /// The signature that the peer must send.
    expected: Option<Digest>,
    seen_as: EntityAddr,
    peer: Option<Peer>,
}

impl Handshake {
    /// Our side of a connection that we dialled at `target`, where an entity of type `peer` is
    /// expected. `global_seq` counts the connections of this process.
    pub fn connector(config: Rc<Config>, target: EntityAddr, peer: EntityType, global_seq: u64) -> Self {
        Self::new(config, false, target, peer, global_seq)
    }

    /// Our side of a connection accepted from `from`.
    pub fn acceptor(config: Rc<Config>, from: EntityAddr, global_seq: u64) -> Self {
        Self::new(config, true, from, EntityType::default(), global_seq)
    }

    fn new(
        config: Rc<Config>,
        acceptor: bool,
        target: EntityAddr,
        peer_kind: EntityType,
        global_seq: u64,
    ) -> Self {
        let dec = Decoder::new(config.limits, config.pool.clone());
        let mut enc = Encoder::new(config.pool.clone());
        let mut banner = BANNER_PREFIX.to_vec();
        banner.extend_from_slice(&16u16.to_le_bytes());
        banner.extend_from_slice(&FEATURE_REVISION_1.to_le_bytes());
        banner.extend_from_slice(&0u64.to_le_bytes());
        enc.banner(&banner);
        Self {
            config,
            acceptor,
            peer_kind,
            target,
            global_seq,
            dec,
            enc,
            state: State::Banner,
            attempts: 0,
            method: 0,
            con_mode: ConMode(0),
            global_id: 0,
            expected: None,
            seen_as: EntityAddr::default(),
            peer: None,
        }
    }

    /// The decoder that received bytes go to.
    pub fn decoder(&mut self) -> &mut Decoder {
        &mut self.dec
    }

    /// The encoder that bytes to send come from.
    pub fn encoder(&mut self) -> &mut Encoder {
        &mut self.enc
    }

    /// Takes the next step. After an error, pending bytes should still be written: they may tell
    /// the peer why.
    ///
    /// # Errors
    /// See [`SessionError`]; the connection is to be closed.
    pub fn poll(&mut self) -> Result<Step, SessionError> {
        loop {
            match self.state {
                State::StartAuth => return Ok(Step::StartAuth),
                State::Answer | State::Keys => return Err(SessionError::OutOfTurn),
                State::Ready => return Ok(Step::Ready),
                _ => {}
            }
            let step = match self.dec.poll()? {
                // No message is accepted yet, and nothing else asks the pool.
                Progress::NeedBytes | Progress::NeedRoom(_) => return Ok(Step::NeedBytes),
                Progress::Frame(Frame::Banner { supported, required }) => {
                    self.on_banner(supported, required)?
                }
                Progress::Frame(Frame::Control(tag, payload)) => self.on_control(tag, &payload)?,
                Progress::Frame(Frame::Message(_)) => return Err(FrameError::Unexpected(Tag::MESSAGE).into()),
            };
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    /// The modes of connections with the peer.
    fn modes(&self) -> Vec<ConMode> {
        self.config.modes.between(self.config.name.kind, self.peer_kind)
    }

    /// The stage of the handshake, for comparing: a later stage has a greater number.
    pub fn stage(&self) -> u8 {
        match self.state {
            State::Banner => 0,
            State::Hello => 1,
            State::StartAuth | State::Auth { more: false } => 2,
            State::Auth { more: true } | State::Answer | State::Keys => 3,
            State::Signature => 4,
            State::Ident => 5,
            State::Ready => 6,
        }
    }

    fn send<C: Control>(&mut self, frame: &C) -> Result<(), SessionError> {
        Ok(self.enc.control(C::TAG, &encode_to_vec(frame))?)
    }

    fn on_banner(&mut self, supported: u64, required: u64) -> Result<Option<Step>, SessionError> {
        let ours = FEATURE_REVISION_1;
        if supported & ours != ours || required & !ours != 0 {
            return Err(SessionError::MessengerFeatures { supported, required });
        }
        let entity_type = self.config.name.kind.0;
        self.send(&Hello {
            entity_type,
            peer_addr: self.target,
        })?;
        self.state = State::Hello;
        Ok(None)
    }

    fn on_control(&mut self, tag: Tag, payload: &[u8]) -> Result<Option<Step>, SessionError> {
        match (self.state, tag, self.acceptor) {
            (State::Hello, Tag::HELLO, _) => self.on_hello(&Hello::parse(payload)?),
            (State::Auth { more: false }, Tag::AUTH_REQUEST, true) => {
                self.on_request(AuthRequest::parse(payload)?)
            }
            (State::Auth { more: true }, Tag::AUTH_REQUEST_MORE, true) => {
                self.state = State::Answer;
                Ok(Some(Step::AuthMore(AuthRequestMore::parse(payload)?.payload)))
            }
            (State::Auth { .. }, Tag::AUTH_BAD_METHOD, false) => {
                let f = AuthBadMethod::parse(payload)?;
                // Polling without an answer repeats the question, as at the start.
                self.state = State::StartAuth;
                Ok(Some(Step::AuthBad {
                    method: f.method,
                    // A refusal without an error is one nonetheless.
                    errno: Errno::of_result(f.result).unwrap_or(EACCES),
                    allowed_methods: f.allowed_methods,
                    allowed_modes: f.allowed_modes,
                }))
            }
            (State::Auth { .. }, Tag::AUTH_REPLY_MORE, false) => {
                self.state = State::Answer;
                Ok(Some(Step::AuthReply(AuthReplyMore::parse(payload)?.payload)))
            }
            (State::Auth { .. }, Tag::AUTH_DONE, false) => self.on_done(AuthDone::parse(payload)?),
            (State::Signature, Tag::AUTH_SIGNATURE, _) => self.on_signature(&AuthSignature::parse(payload)?),
            (State::Ident, Tag::CLIENT_IDENT, true) => self.on_client_ident(ClientIdent::parse(payload)?),
            (State::Ident, Tag::SESSION_RECONNECT, true) => {
                // A lossy server keeps no sessions: the client is to start a new one on this
                // connection.
                Reconnect::parse(payload)?;
                self.send(&Reset { full: true })?;
                Ok(None)
            }
            (State::Ident, Tag::SERVER_IDENT, false) => self.on_server_ident(ServerIdent::parse(payload)?),
            (State::Ident, Tag::IDENT_MISSING_FEATURES, false) => Err(SessionError::MissingFeatures(
                MissingFeatures::parse(payload)?.features,
            )),
            (
                State::Ident,
                Tag::WAIT | Tag::SESSION_RESET | Tag::SESSION_RETRY | Tag::SESSION_RETRY_GLOBAL,
                false,
            ) => Err(SessionError::Retry(tag)),
            _ => Err(FrameError::Unexpected(tag).into()),
        }
    }

    fn on_hello(&mut self, hello: &Hello) -> Result<Option<Step>, SessionError> {
        if self.acceptor {
            self.peer_kind = EntityType(hello.entity_type);
        } else if self.peer_kind.0 != hello.entity_type {
            return Err(SessionError::PeerType {
                wanted: self.peer_kind.0,
                found: hello.entity_type,
            });
        }
        self.seen_as = hello.peer_addr;
        self.state = if self.acceptor {
            State::Auth { more: false }
        } else {
            State::StartAuth
        };
        Ok(None)
    }

    fn on_request(&mut self, request: AuthRequest) -> Result<Option<Step>, SessionError> {
        self.attempt()?;
        self.method = request.method;
        let modes = self.modes();
        let chosen = request
            .preferred_modes
            .iter()
            .map(|&m| ConMode(m))
            .find(|m| modes.contains(m));
        self.state = State::Answer;
        let Some(con_mode) = chosen else {
            // None of the modes that the peer offers.
            let allowed_methods = vec![request.method];
            self.reply(AcceptReply::Bad {
                errno: EOPNOTSUPP,
                allowed_methods,
            })?;
            return Ok(None);
        };
        self.con_mode = con_mode;
        Ok(Some(Step::AuthRequest {
            peer: self.peer_kind,
            method: request.method,
            con_mode,
            payload: request.payload,
        }))
    }

    fn attempt(&mut self) -> Result<(), SessionError> {
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            Err(SessionError::TooManyAttempts)
        } else {
            Ok(())
        }
    }

    /// Acceptor: answers [`Step::AuthRequest`] and [`Step::AuthMore`].
    ///
    /// # Errors
    /// [`SessionError::OutOfTurn`], [`SessionError::Mode`] for keys that do not fit the mode.
    pub fn reply(&mut self, reply: AcceptReply) -> Result<(), SessionError> {
        if !self.acceptor || self.state != State::Answer {
            return Err(SessionError::OutOfTurn);
        }
        match reply {
            AcceptReply::HangUp(errno) => Err(SessionError::Denied(errno)),
            AcceptReply::More(payload) => {
                self.state = State::Auth { more: true };
                self.send(&AuthReplyMore { payload })
            }
            AcceptReply::Bad {
                errno,
                allowed_methods,
            } => {
                self.state = State::Auth { more: false };
                let allowed_modes = self.modes().iter().map(|m| m.0).collect();
                self.send(&AuthBadMethod {
                    method: self.method,
                    result: -errno,
                    allowed_methods,
                    allowed_modes,
                })
            }
            AcceptReply::Done {
                global_id,
                payload,
                keys,
            } => {
                self.global_id = global_id;
                self.send(&AuthDone {
                    global_id,
                    con_mode: self.con_mode.0,
                    payload,
                })?;
                self.secure(&keys)
            }
        }
    }

    /// Connector: answers [`Step::StartAuth`] and [`Step::AuthBad`].
    ///
    /// # Errors
    /// [`SessionError::OutOfTurn`], [`SessionError::TooManyAttempts`].
    pub fn start_auth(&mut self, start: AuthStart) -> Result<(), SessionError> {
        if self.state != State::StartAuth {
            return Err(SessionError::OutOfTurn);
        }
        self.attempt()?;
        self.state = State::Auth { more: false };
        let preferred_modes = self.modes().iter().map(|m| m.0).collect();
        self.send(&AuthRequest {
            method: start.method,
            preferred_modes,
            payload: start.payload,
        })
    }

    /// Connector: answers [`Step::AuthReply`].
    ///
    /// # Errors
    /// [`SessionError::OutOfTurn`].
    pub fn more(&mut self, payload: Bytes) -> Result<(), SessionError> {
        if self.acceptor || self.state != State::Answer {
            return Err(SessionError::OutOfTurn);
        }
        self.state = State::Auth { more: true };
        self.send(&AuthRequestMore { payload })
    }

    fn on_done(&mut self, done: AuthDone) -> Result<Option<Step>, SessionError> {
        let con_mode = ConMode(done.con_mode);
        if !self.modes().contains(&con_mode) {
            return Err(SessionError::Mode(con_mode));
        }
        self.con_mode = con_mode;
        self.global_id = done.global_id;
        self.state = State::Keys;
        Ok(Some(Step::AuthDone {
            global_id: done.global_id,
            con_mode,
            payload: done.payload,
        }))
    }

    /// Connector: answers [`Step::AuthDone`].
    ///
    /// # Errors
    /// [`SessionError::OutOfTurn`], [`SessionError::Mode`] for keys that do not fit the mode.
    pub fn keys(&mut self, keys: &SessionKeys) -> Result<(), SessionError> {
        if self.state != State::Keys {
            return Err(SessionError::OutOfTurn);
        }
        self.secure(keys)
    }

    /// Enters the negotiated mode. The signatures are its first frames: each side signs all that it
    /// has received.
    fn secure(&mut self, keys: &SessionKeys) -> Result<(), SessionError> {
        invariant!(
            matches!(self.state, State::Answer | State::Keys) && self.expected.is_none(),
            "keys at the end of an authentication";
            peer = self.target,
            stage = self.stage(),
        );
        let (received, sent) = (self.dec.take_transcript(), self.enc.take_transcript());
        if self.con_mode == ConMode::SECURE {
            let secret = keys.connection_secret.first_chunk::<SECRET_LEN>();
            let pair = secret.and_then(|s| gcm_pair(s, self.acceptor));
            let (rx, tx) = pair.ok_or(SessionError::Mode(self.con_mode))?;
            self.dec.set_secure(rx);
            self.enc.set_secure(tx);
        }
        self.expected = Some(sign(&keys.session_key, &sent));
        self.state = State::Signature;
        self.send(&AuthSignature {
            signature: sign(&keys.session_key, &received),
        })
    }

    fn on_signature(&mut self, frame: &AuthSignature) -> Result<Option<Step>, SessionError> {
        let Some(Digest(expected)) = self.expected else {
            impossible!("a signature to compare with"; peer = self.target, stage = self.stage())
        };
        aws_lc_rs::constant_time::verify_slices_are_equal(&expected, &frame.signature.0)
            .map_err(|_| SessionError::Signature)?;
        self.state = State::Ident;
        if !self.acceptor {
            self.send_client_ident()?;
        }
        Ok(None)
    }

    fn send_client_ident(&mut self) -> Result<(), SessionError> {
        let addrs = self.own_addrs();
        self.send(&ClientIdent {
            addrs,
            target_addr: self.target,
            gid: self.own_gid(),
            global_seq: self.global_seq,
            supported: features::PACIFIC_ALL,
            required: features::REQUIRED,
            flags: FLAG_LOSSY,
            cookie: 0,
        })
    }

    fn own_gid(&self) -> i64 {
        let name = self.config.name;
        if name.kind == EntityType::CLIENT && !self.acceptor {
            i64::try_from(self.global_id).unwrap_or(-1)
        } else {
            name.num
        }
    }

    /// The bound addresses, or a client's as the peer sees it.
    fn own_addrs(&self) -> EntityAddrVec {
        if !self.config.addrs.is_blank() {
            return self.config.addrs.clone();
        }
        let mut addr = self.seen_as.with_kind(spirula_denc::AddrType::ANY);
        addr.nonce = self.config.nonce;
        if let Some(s) = &mut addr.socket {
            s.set_port(0);
        }
        addr.into()
    }

    fn on_client_ident(&mut self, ident: ClientIdent) -> Result<Option<Step>, SessionError> {
        if ident.addrs.0.first().is_none_or(EntityAddr::is_blank)
            || !self.config.addrs.0.contains(&ident.target_addr)
        {
            return Err(SessionError::WrongAddress);
        }
        let missing = features::REQUIRED & !ident.supported;
        if missing != 0 {
            self.send(&MissingFeatures { features: missing })?;
            return Err(SessionError::MissingFeatures(missing));
        }
        let lacking = ident.required & !features::PACIFIC_ALL;
        if lacking != 0 {
            return Err(SessionError::MissingFeatures(lacking));
        }
        self.send(&ServerIdent {
            addrs: self.config.addrs.clone(),
            gid: self.own_gid(),
            global_seq: self.global_seq,
            supported: features::PACIFIC_ALL,
            required: features::REQUIRED,
            flags: FLAG_LOSSY,
            cookie: 0,
        })?;
        self.ready(ident.addrs, ident.gid, ident.supported, true);
        Ok(None)
    }

    fn on_server_ident(&mut self, ident: ServerIdent) -> Result<Option<Step>, SessionError> {
        if !ident.addrs.0.contains(&self.target) {
            return Err(SessionError::WrongAddress);
        }
        let missing = (features::REQUIRED & !ident.supported) | (ident.required & !features::PACIFIC_ALL);
        if missing != 0 {
            return Err(SessionError::MissingFeatures(missing));
        }
        let lossy = ident.flags & FLAG_LOSSY != 0;
        self.ready(ident.addrs, ident.gid, ident.supported, lossy);
        Ok(None)
    }

    fn ready(&mut self, addrs: EntityAddrVec, gid: i64, supported: u64, lossy: bool) {
        invariant!(
            self.state == State::Ident && self.peer.is_none(),
            "a peer that has signed and says who it is";
            peer = self.target,
            stage = self.stage(),
        );
        self.peer = Some(Peer {
            name: EntityName::new(self.peer_kind, gid),
            addrs,
            socket_addr: self.target,
            features: supported & features::PACIFIC_ALL,
            global_id: self.global_id,
            con_mode: self.con_mode,
            lossy,
            seen_as: self.seen_as,
        });
        self.dec.allow_messages();
        self.state = State::Ready;
    }

    /// The established session. Unwritten bytes (an acceptor's SERVER_IDENT) stay pending in the
    /// outbound half.
    ///
    /// # Errors
    /// [`SessionError::OutOfTurn`] before [`Step::Ready`].
    pub fn finish(self) -> Result<(Peer, Inbound, Outbound), SessionError> {
        let peer = self.peer.ok_or(SessionError::OutOfTurn)?;
        let inbound = Inbound::new(self.dec, peer.lossy);
        Ok((peer, inbound, Outbound::new(self.enc)))
    }
}

/// HMAC-SHA256 under the session key; all zero without one.
fn sign(key: &[u8], transcript: &[u8]) -> Digest {
    use aws_lc_rs::hmac;
    let mut out = [0; 32];
    if !key.is_empty() {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), transcript);
        out.copy_from_slice(tag.as_ref());
    }
    Digest(out)
}
