//! Frames of a hostile peer, with any content but valid checksums and tags. Independent of the
//! encoder of `spirula-msgr`, which only makes valid frames.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

const INLINE: usize = 48;

/// The bytes on their way, and the state of their encryption.
#[derive(Default)]
pub(super) struct Wire {
    out: Vec<u8>,
    gcm: Option<Gcm>,
}

struct Gcm {
    key: LessSafeKey,
    fixed: [u8; 4],
    counter: u64,
}

fn segment_crc(data: &[u8]) -> [u8; 4] {
    (!crc32c::crc32c(data)).to_le_bytes()
}

/// The preamble's bytes with their checksum.
fn preamble(mut head: [u8; 32]) -> [u8; 32] {
    let crc = !crc32c::crc32c_append(!0, &head[..28]);
    head[28..].copy_from_slice(&crc.to_le_bytes());
    head
}

fn describe(tag: u8, segments: &[&[u8]]) -> [u8; 32] {
    let mut head = [0; 32];
    head[0] = tag;
    head[1] = u8::try_from(segments.len()).unwrap_or(u8::MAX);
    for (i, s) in segments.iter().enumerate() {
        let len = u32::try_from(s.len()).unwrap_or(u32::MAX);
        head[2 + 6 * i..6 + 6 * i].copy_from_slice(&len.to_le_bytes());
        head[6 + 6 * i] = 8;
    }
    preamble(head)
}

impl Wire {
    /// Encrypts from now on, with the key at the start of `secret` and the nonce at `nonce_at`.
    pub(super) fn secure(&mut self, secret: &[u8], nonce_at: usize) {
        let nonce: [u8; 12] = secret[nonce_at..].first_chunk().copied().unwrap_or_default();
        let [a, b, c, d, counter @ ..] = nonce;
        self.gcm = UnboundKey::new(&AES_128_GCM, &secret[..16]).ok().map(|key| Gcm {
            key: LessSafeKey::new(key),
            fixed: [a, b, c, d],
            counter: u64::from_le_bytes(counter),
        });
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Encrypts a block, padded to 16 bytes.
    fn seal(&mut self, gcm: &mut Gcm, mut block: Vec<u8>) {
        block.resize(block.len().next_multiple_of(16), 0);
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&gcm.fixed);
        nonce[4..].copy_from_slice(&gcm.counter.to_le_bytes());
        gcm.counter = gcm.counter.wrapping_add(1);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = gcm.key.seal_in_place_append_tag(nonce, Aad::empty(), &mut block);
        assert!(sealed.is_ok(), "AES-GCM does not encrypt");
        self.raw(&block);
    }

    /// A preamble and the part of the first segment that is sent with it.
    fn head(&mut self, head: &[u8; 32], first: &[u8]) {
        match self.gcm.take() {
            None => {
                self.raw(head);
                if !first.is_empty() {
                    self.raw(first);
                    self.raw(&segment_crc(first));
                }
            }
            Some(mut gcm) => {
                let (inline, rest) = first.split_at(first.len().min(INLINE));
                let mut block = [head.as_slice(), inline].concat();
                block.resize(32 + INLINE, 0);
                self.seal(&mut gcm, block);
                if !rest.is_empty() {
                    self.seal(&mut gcm, rest.to_vec());
                }
                self.gcm = Some(gcm);
            }
        }
    }

    /// A preamble that announces anything, without the announced bytes.
    pub(super) fn preamble(&mut self, bytes: [u8; 28]) {
        let mut head = [0; 32];
        head[..28].copy_from_slice(&bytes);
        self.head(&preamble(head), &[]);
    }

    pub(super) fn control(&mut self, tag: u8, payload: &[u8]) {
        self.head(&describe(tag, &[payload]), payload);
    }

    /// A message with this status in its epilogue. Empty segments at its end are left out, unless
    /// `odd`.
    pub(super) fn message(
        &mut self,
        header: &[u8; 41],
        [front, middle, data]: [&[u8]; 3],
        status: u8,
        odd: bool,
    ) {
        let all = [header.as_slice(), front, middle, data];
        let used = all.iter().rposition(|s| !s.is_empty()).map_or(1, |i| i + 1);
        let segments = &all[..if odd { all.len() } else { used }];
        self.head(&describe(17, segments), header);
        if segments.len() == 1 {
            return;
        }
        let (body, mut epilogue) = (&segments[1..], vec![status]);
        match self.gcm.take() {
            None => {
                for s in body {
                    self.raw(s);
                    epilogue.extend_from_slice(&segment_crc(s));
                }
                epilogue.resize(13, 0);
                self.raw(&epilogue);
            }
            Some(mut gcm) => {
                let mut block = Vec::new();
                for s in body {
                    block.extend_from_slice(s);
                    block.resize(block.len().next_multiple_of(16), 0);
                }
                block.extend_from_slice(&epilogue);
                self.seal(&mut gcm, block);
                self.gcm = Some(gcm);
            }
        }
    }
}
