//! AES-128-GCM as secure mode uses it (`src/msg/async/crypto_onwire.cc`): one key for both
//! directions, one 12-byte nonce per direction whose last 8 bytes count up with every sealed block.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::{FrameError, TAG_LEN};

/// Bytes of a connection secret that secure mode needs: a key and two nonces.
pub const SECRET_LEN: usize = KEY_LEN + 2 * NONCE_LEN;
const KEY_LEN: usize = 16;
const NONCE_LEN: usize = 12;

/// A nonce: fixed part and counter.
struct NonceSequence {
    fixed: [u8; 4],
    next: u64,
    first: u64,
    started: bool,
}

impl NonceSequence {
    fn new(b: &[u8; NONCE_LEN]) -> Self {
        let [a, b, c, d, counter @ ..] = *b;
        let first = u64::from_le_bytes(counter);
        Self {
            fixed: [a, b, c, d],
            next: first,
            first,
            started: false,
        }
    }

    fn advance(&mut self) -> Result<Nonce, FrameError> {
        if self.started && self.next == self.first {
            return Err(FrameError::OutOfNonces);
        }
        self.started = true;
        let mut out = [0; NONCE_LEN];
        out[..4].copy_from_slice(&self.fixed);
        out[4..].copy_from_slice(&self.next.to_le_bytes());
        self.next = self.next.wrapping_add(1);
        Ok(Nonce::assume_unique_for_key(out))
    }
}

/// Encrypts sent blocks.
pub struct GcmTx {
    key: LessSafeKey,
    nonces: NonceSequence,
}

/// Decrypts received blocks.
pub struct GcmRx {
    key: LessSafeKey,
    nonces: NonceSequence,
}

/// The two directions of a connection whose handshake agreed on `secret`; the acceptor's are
/// swapped.
pub(crate) fn gcm_pair(secret: &[u8; SECRET_LEN], acceptor: bool) -> Option<(GcmRx, GcmTx)> {
    let (key, nonces) = secret.split_first_chunk::<KEY_LEN>()?;
    let (rx, nonces) = nonces.split_first_chunk::<NONCE_LEN>()?;
    let (tx, _) = nonces.split_first_chunk::<NONCE_LEN>()?;
    let (rx, tx) = if acceptor { (tx, rx) } else { (rx, tx) };
    let key = || UnboundKey::new(&AES_128_GCM, key).ok().map(LessSafeKey::new);
    Some((
        GcmRx {
            key: key()?,
            nonces: NonceSequence::new(rx),
        },
        GcmTx {
            key: key()?,
            nonces: NonceSequence::new(tx),
        },
    ))
}

impl GcmTx {
    /// Encrypts `buf` in place and returns the tag.
    ///
    /// # Errors
    /// [`FrameError::OutOfNonces`].
    pub fn seal(&mut self, buf: &mut [u8]) -> Result<[u8; TAG_LEN], FrameError> {
        let nonce = self.nonces.advance()?;
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), buf)
            .map_err(|_| FrameError::AuthTag)?;
        tag.as_ref().try_into().map_err(|_| FrameError::AuthTag)
    }
}

impl GcmRx {
    /// Decrypts `buf`, whose last 16 bytes are the tag, in place.
    ///
    /// # Errors
    /// [`FrameError::AuthTag`] where the tag does not match; `buf` then holds nothing of use.
    pub fn open<'a>(&mut self, buf: &'a mut [u8]) -> Result<&'a mut [u8], FrameError> {
        let nonce = self.nonces.advance()?;
        self.key
            .open_in_place(nonce, Aad::empty(), buf)
            .map_err(|_| FrameError::AuthTag)
    }
}
