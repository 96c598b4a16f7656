//! The side of a connection that is attacked: drives the state machine as the daemons' shells do.

use std::rc::Rc;

use bytes::Bytes;
use spirula_buf::Pool;
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType, UTime};
use spirula_msgr::frame::{Decoder, Encoder};
use spirula_msgr::session::{Handshake, Inbound, InboundEvent, Outbound, Step};
use spirula_msgr::{AcceptReply, AuthStart, ConMode, Config, Limits, ModeLists, SessionError, SessionKeys};

use super::bound;
use crate::messages::decode_any;

/// Small, so that a breach shows in the memory used.
const LIMITS: Limits = Limits {
    control: 4 << 10,
    front: 64 << 10,
    middle: 64 << 10,
    data: 256 << 10,
};

/// Key and both nonces of secure mode.
pub(super) const SECRET: &[u8; 40] = b"0123456789abcdefconnector..acceptor.....";
const ACCEPTOR_NONCE: usize = 28;
const CONNECTOR_NONCE: usize = 16;
/// The most questions in one handshake.
const MAX_QUESTIONS: usize = 10_000;

enum State {
    Handshake(Box<Handshake>),
    Session(Box<(Inbound, Outbound)>),
    Failed,
}

/// One side of a connection.
pub(super) struct Owner {
    state: State,
    acceptor: bool,
    /// The mode of the authentication under way.
    chosen: ConMode,
    /// Set when the handshake enters secure mode.
    secured: bool,
    /// Bytes that come with one read, 0 for all that fit.
    piece: usize,
}

impl Owner {
    pub(super) fn new(acceptor: bool, secure: bool, piece: usize) -> Self {
        let (name, addrs) = if acceptor {
            (EntityName::new(EntityType::MON, 0), EntityAddrVec(vec![bound()]))
        } else {
            (EntityName::new(EntityType::CLIENT, -1), EntityAddrVec::default())
        };
        let mut config = Config::new(name, addrs, Pool::new(512 << 10));
        config.limits = LIMITS;
        if secure {
            config.modes = ModeLists::only(&[ConMode::SECURE, ConMode::CRC]).into();
        }
        let config = Rc::new(config);
        let handshake = if acceptor {
            Handshake::acceptor(config, EntityAddr::v2(([10, 0, 0, 9], 40_000).into(), 0), 1)
        } else {
            Handshake::connector(config, bound(), EntityType::MON, 1)
        };
        Self {
            state: State::Handshake(Box::new(handshake)),
            acceptor,
            chosen: ConMode::CRC,
            secured: false,
            piece,
        }
    }

    pub(super) fn stands(&self) -> bool {
        matches!(self.state, State::Session(_))
    }

    pub(super) fn failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// The offset of the peer's nonce in [`SECRET`], once both encrypt.
    pub(super) fn take_secured(&mut self) -> Option<usize> {
        let nonce_at = if self.acceptor {
            ACCEPTOR_NONCE
        } else {
            CONNECTOR_NONCE
        };
        std::mem::take(&mut self.secured).then_some(nonce_at)
    }

    fn decoder(&mut self) -> Option<&mut Decoder> {
        match &mut self.state {
            State::Handshake(hs) => Some(hs.decoder()),
            State::Session(s) => Some(s.0.decoder()),
            State::Failed => None,
        }
    }

    fn encoder(&mut self) -> Option<&mut Encoder> {
        match &mut self.state {
            State::Handshake(hs) => Some(hs.encoder()),
            State::Session(s) => Some(s.1.encoder()),
            State::Failed => None,
        }
    }

    /// Reads `bytes` in pieces, and carries out all actions.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        self.work();
        let piece = if self.piece == 0 { usize::MAX } else { self.piece };
        while !bytes.is_empty() {
            let Some(decoder) = self.decoder() else { return };
            let read = decoder.read_with(|places| {
                let mut at = 0;
                for place in places {
                    let n = place.len().min(bytes.len() - at).min(piece - at);
                    place[..n].copy_from_slice(&bytes[at..at + n]);
                    at += n;
                }
                Ok(at)
            });
            let read = read.unwrap_or(0);
            assert!(read > 0, "nothing can be read, and nothing was decoded");
            bytes = &bytes[read..];
            self.work();
        }
    }

    fn work(&mut self) {
        let failed = match &mut self.state {
            State::Handshake(hs) => match shake(hs, &mut self.chosen, &mut self.secured) {
                Ok(true) => return self.establish(),
                Ok(false) => false,
                Err(_) => true,
            },
            State::Session(s) => serve(&mut s.0, &mut s.1).is_err(),
            State::Failed => false,
        };
        // Pending output is still written after an error.
        if let Some(encoder) = self.encoder() {
            let mut slices = Vec::new();
            encoder.slices(&mut slices, usize::MAX);
            let pending: usize = slices.iter().map(|s| s.len()).sum();
            drop(slices);
            assert_eq!(pending, encoder.pending());
            encoder.wrote(pending);
        }
        if failed {
            self.state = State::Failed;
        }
    }

    fn establish(&mut self) {
        let State::Handshake(hs) = std::mem::replace(&mut self.state, State::Failed) else {
            return;
        };
        if let Ok((_, inbound, outbound)) = hs.finish() {
            self.state = State::Session(Box::new((inbound, outbound)));
            self.work();
        }
    }
}

/// Answers the handshake's questions: a payload that begins with `m` gets a further question, one
/// with `b` is refused, and any other one is accepted. Returns whether the session is established.
fn shake(hs: &mut Handshake, chosen: &mut ConMode, secured: &mut bool) -> Result<bool, SessionError> {
    let keys = SessionKeys {
        session_key: Vec::new().into(),
        connection_secret: SECRET.to_vec().into(),
    };
    let mut questions = 0;
    loop {
        questions += 1;
        assert!(questions < MAX_QUESTIONS, "a handshake asks for ever");
        let payload = match hs.poll()? {
            Step::NeedBytes => return Ok(false),
            Step::Ready => return Ok(true),
            Step::StartAuth | Step::AuthBad { .. } => {
                hs.start_auth(AuthStart {
                    method: 2,
                    payload: Bytes::from_static(b"x"),
                })?;
                continue;
            }
            Step::AuthReply(payload) => {
                hs.more(payload)?;
                continue;
            }
            Step::AuthDone { con_mode, .. } => {
                hs.keys(&keys)?;
                *secured |= con_mode == ConMode::SECURE;
                continue;
            }
            Step::AuthRequest {
                con_mode, payload, ..
            } => {
                *chosen = con_mode;
                payload
            }
            Step::AuthMore(payload) => payload,
        };
        hs.reply(match payload.first() {
            Some(b'm') => AcceptReply::More(payload),
            Some(b'b') => AcceptReply::Bad {
                errno: spirula_errno::EACCES,
                allowed_methods: vec![2],
            },
            _ => {
                *secured |= *chosen == ConMode::SECURE;
                AcceptReply::Done {
                    global_id: 4100,
                    payload: Bytes::new(),
                    keys: keys.clone(),
                }
            }
        })?;
    }
}

/// Decodes messages by their claimed types, and sends them back.
fn serve(inbound: &mut Inbound, outbound: &mut Outbound) -> Result<(), SessionError> {
    loop {
        match inbound.poll()? {
            InboundEvent::NeedBytes => break,
            InboundEvent::NeedRoom(n) => {
                // Only messages that were handed out may take room, and none of them is kept.
                assert_eq!(n, 0, "the connection waits for its own buffers");
            }
            InboundEvent::Repeated => {}
            InboundEvent::Keepalive(stamp) => outbound.keepalive_ack(stamp)?,
            InboundEvent::KeepaliveAck(_) => outbound.keepalive(UTime::ZERO)?,
            InboundEvent::Message(incoming) => {
                decode_any(&incoming);
                outbound.message(incoming, inbound.seq())?;
                let encoder = outbound.encoder();
                encoder.wrote(encoder.pending());
            }
        }
    }
    if let Some(seq) = inbound.take_ack() {
        outbound.ack(seq)?;
    }
    Ok(())
}
