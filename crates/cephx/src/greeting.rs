//! How monitors authenticate to each other: a handshake of our own, instead of an authorizer.
//!
//! The dialling monitor sends its name and a nonce, the accepting one answers with the connection's
//! mode and a nonce of its own. Then each proves to hold the key of `mon.`, with an HMAC-SHA256
//! over both messages under a key that is derived from both nonces and the side's role. The session
//! keys are derived likewise and never sent. So recorded messages are useless for another
//! connection, and there is no ciphertext to cut and paste.
//!
//! ```text
//! AUTH_REQUEST       u8 mode 32, u8 version 1, string id of the dialling monitor, 32 bytes nonce
//! AUTH_REPLY_MORE    u8 version 1, u32 mode of the connection, 32 bytes nonce
//! AUTH_REQUEST_MORE  32 bytes proof of the dialling monitor
//! AUTH_DONE          32 bytes proof of the accepting monitor
//! ```

use aws_lc_rs::hmac;
use spirula_denc::{EntityType, Reader, UTime, Writer};
use zeroize::Zeroizing;

use crate::derive::derive;
use crate::env::Env;
use crate::key::{AES_KEY_LEN, ConnectionMode, ConnectionSecret, CryptoKey, KeyType};
use crate::outcome::{Accepted, GlobalIdStatus, Outcome};
use crate::wire::{AuthCaps, mode};
use crate::{AuthName, Error, Result};

const VERSION: u8 = 1;
const NONCE_LEN: usize = 32;
const PROOF_LEN: usize = 32;

/// The purposes of derived keys.
const DIALLER: &[u8] = b"spirula monitors 1: proof of the dialling one";
const ACCEPTOR: &[u8] = b"spirula monitors 1: proof of the accepting one";
const SESSION: &[u8] = b"spirula monitors 1: session key";
const CONNECTION: &[u8] = b"spirula monitors 1: connection secret";

/// Both sides' opening messages, and the keys that follow from them and the shared key.
struct Transcript<'a> {
    shared: &'a CryptoKey,
    hello: &'a [u8],
    answer: &'a [u8],
}

impl Transcript<'_> {
    fn derive(&self, purpose: &[u8], len: usize) -> Result<Zeroizing<Vec<u8>>> {
        // Both end in their side's nonce.
        let nonce = |message: &[u8]| message.last_chunk::<NONCE_LEN>().copied().ok_or(Error::BadKey);
        let salt = [nonce(self.hello)?, nonce(self.answer)?].concat();
        derive(self.shared.secret(), &salt, &[purpose], len)
    }

    fn mac(&self, role: &[u8]) -> Result<hmac::Context> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.derive(role, PROOF_LEN)?);
        let mut mac = hmac::Context::with_key(&key);
        for message in [self.hello, self.answer] {
            mac.update(&(message.len() as u64).to_le_bytes());
            mac.update(message);
        }
        Ok(mac)
    }

    fn prove(&self, role: &[u8]) -> Result<Vec<u8>> {
        Ok(self.mac(role)?.sign().as_ref().to_vec())
    }

    fn check(&self, role: &[u8], proof: &[u8]) -> Result<()> {
        let expected = self.mac(role)?.sign();
        aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_ref(), proof)
            .map_err(|_| Error::WrongAnswer)
    }

    fn session_keys(&self, mode: ConnectionMode) -> Result<(CryptoKey, ConnectionSecret)> {
        let session = self.derive(SESSION, AES_KEY_LEN)?;
        let secret = self.derive(CONNECTION, mode.secret_len())?;
        let session = CryptoKey::from_parts(KeyType::Aes, UTime::ZERO, &session)?;
        Ok((session, ConnectionSecret(secret.into())))
    }
}

/// The dialling monitor's side.
#[derive(Debug)]
pub struct Greeting {
    shared: CryptoKey,
    hello: Vec<u8>,
    answer: Vec<u8>,
}

impl Greeting {
    /// The monitor `name` greets another one, under the key of `mon.`.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn new(name: &AuthName, shared: CryptoKey, env: &Env<'_>) -> Result<Self> {
        let mut nonce = [0; NONCE_LEN];
        env.random.fill(&mut nonce)?;
        let mut w = Writer::with_capacity(64);
        w.u8(mode::GREETING);
        w.u8(VERSION);
        w.string(&name.id);
        w.bytes(&nonce);
        Ok(Self {
            shared,
            hello: w.into_vec(),
            answer: Vec::new(),
        })
    }

    /// The payload of `AUTH_REQUEST`; the method is [`crate::method::CEPHX`].
    pub fn initial(&self) -> Vec<u8> {
        self.hello.clone()
    }

    /// Takes the payload of `AUTH_REPLY_MORE`; returns that of `AUTH_REQUEST_MORE`.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] for a second one, [`Error::Malformed`].
    pub fn handle_more(&mut self, payload: &[u8]) -> Result<Vec<u8>> {
        if !self.answer.is_empty() {
            return Err(Error::OutOfOrder);
        }
        read_answer(payload)?;
        self.answer = payload.to_vec();
        self.transcript().prove(DIALLER)
    }

    /// Takes the payload of `AUTH_DONE`, on a connection of this mode: the other monitor's proof.
    ///
    /// # Errors
    /// [`Error::WrongAnswer`] where it does not hold the key or means another mode.
    pub fn handle_done(self, mode: ConnectionMode, payload: &[u8]) -> Result<(CryptoKey, ConnectionSecret)> {
        if read_answer(&self.answer)? != mode {
            return Err(Error::WrongAnswer);
        }
        let transcript = self.transcript();
        transcript.check(ACCEPTOR, payload)?;
        transcript.session_keys(mode)
    }

    fn transcript(&self) -> Transcript<'_> {
        Transcript {
            shared: &self.shared,
            hello: &self.hello,
            answer: &self.answer,
        }
    }
}

fn read_answer(payload: &[u8]) -> Result<ConnectionMode> {
    let mut r = Reader::new(payload);
    let version = r.u8()?;
    let mode = ConnectionMode::from_wire(r.u32()?);
    r.bytes(NONCE_LEN)?;
    match mode {
        Some(mode) if version == VERSION && r.is_empty() => Ok(mode),
        _ => Err(Error::MalformedStart),
    }
}

/// The accepting monitor's side, once it has answered.
#[derive(Debug)]
pub(crate) struct Greeted {
    name: AuthName,
    mode: ConnectionMode,
    hello: Vec<u8>,
    answer: Vec<u8>,
}

impl Greeted {
    /// Whether a first message is a greeting.
    pub(crate) fn is_greeting(payload: &[u8]) -> bool {
        payload.first() == Some(&mode::GREETING)
    }

    /// The dialling monitor's claimed name.
    pub(crate) fn name(&self) -> &AuthName {
        &self.name
    }

    /// Reads the first message and answers it.
    pub(crate) fn begin(payload: &[u8], mode: ConnectionMode, env: &Env<'_>) -> Result<(Self, Vec<u8>)> {
        let name = read_hello(payload).map_err(|_| Error::MalformedStart)?;
        let mut nonce = [0; NONCE_LEN];
        env.random.fill(&mut nonce)?;
        let mut w = Writer::with_capacity(64);
        w.u8(VERSION);
        w.u32(mode.to_wire());
        w.bytes(&nonce);
        let answer = w.into_vec();
        let greeted = Self {
            name,
            mode,
            hello: payload.to_vec(),
            answer: answer.clone(),
        };
        Ok((greeted, answer))
    }

    /// Checks the dialling monitor's proof and returns ours.
    pub(crate) fn finish(self, payload: &[u8], shared: &CryptoKey, env: &Env<'_>) -> Result<Outcome> {
        let transcript = Transcript {
            shared,
            hello: &self.hello,
            answer: &self.answer,
        };
        transcript.check(DIALLER, payload)?;
        let (session_key, connection_secret) = transcript.session_keys(self.mode)?;
        Ok(Outcome::Done(Box::new(Accepted {
            payload: transcript.prove(ACCEPTOR)?,
            name: self.name,
            global_id: 0,
            session_key,
            connection_secret,
            caps: AuthCaps::default(),
            expires: env.now,
            global_id_status: GlobalIdStatus::Monitor,
        })))
    }
}

fn read_hello(payload: &[u8]) -> Result<AuthName> {
    let mut r = Reader::new(payload);
    let (kind, version) = (r.u8()?, r.u8()?);
    let id = r.string()?;
    r.bytes(NONCE_LEN)?;
    if kind != mode::GREETING || version != VERSION || !r.is_empty() {
        return Err(Error::MalformedStart);
    }
    Ok(AuthName::new(EntityType::MON, id))
}
