//! Encoding of control payloads and messages to bytes for `writev`.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use bytes::Bytes;
use spirula_buf::crc;
use spirula_buf::{Pool, PoolBuf};
use spirula_denc::{Encode, Writer};
use spirula_invariant::{impossible, invariant};
use spirula_proto::{BytesList, MsgHeader2, RawMessage};

use super::{
    EPILOGUE_SECURE, FrameError, GcmTx, INLINE, PREAMBLE, Preamble, STATUS_COMPLETE, TAG_LEN, Tag, padded,
    segment_crc,
};
use crate::TRANSCRIPT_MAX;

/// Payloads up to this size are copied between the headers: cheaper than an entry of their own in
/// the iovec.
const COPY_MAX: usize = 1024;
/// Encrypted bodies from this size on get a pooled buffer instead of growing the scratch area.
const POOL_MIN: usize = 32 << 10;
/// The capacity above which the scratch area is freed.
const SCRATCH_KEEP: usize = 256 << 10;

enum Part {
    /// Headers, small payloads, encrypted small bodies.
    Scratch(Range<usize>),
    /// A payload as the sender gave it.
    Shared(Bytes),
    /// A large encrypted body.
    Pooled(PoolBuf),
}

/// Encodes frames into a batch that is written as one list of slices. Payloads are not copied in
/// crc mode and copied once, to be encrypted, in secure mode.
///
/// Fill with [`Encoder::control`] and [`Encoder::message`], then write [`Encoder::slices`] and
/// report each write with [`Encoder::wrote`] until [`Encoder::pending`] is 0.
pub struct Encoder {
    tx: Option<GcmTx>,
    pool: Pool,
    scratch: Vec<u8>,
    parts: VecDeque<Part>,
    /// The bytes of the first part that were written.
    offset: usize,
    pending: usize,
    transcript: Option<Vec<u8>>,
}

impl Encoder {
    /// An encoder in crc mode that records its output for the signature.
    pub fn new(pool: Pool) -> Self {
        Self {
            tx: None,
            pool,
            scratch: Vec::new(),
            parts: VecDeque::new(),
            offset: 0,
            pending: 0,
            transcript: Some(Vec::new()),
        }
    }

    /// Ends the recording and returns everything encoded so far.
    pub(crate) fn take_transcript(&mut self) -> Vec<u8> {
        match self.transcript.take() {
            Some(sent) => sent,
            None => impossible!("a recording that ends once"; pending = self.pending),
        }
    }

    /// Switches to secure mode for all later frames.
    pub(crate) fn set_secure(&mut self, tx: GcmTx) {
        invariant!(
            self.tx.is_none() && self.transcript.is_none(),
            "a change of modes behind what is signed";
            pending = self.pending,
        );
        self.tx = Some(tx);
    }

    /// Bytes encoded and not yet written.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// The number of slices in the batch.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Adds the banner.
    pub(crate) fn banner(&mut self, bytes: &[u8]) {
        self.scratch_part(|s| s.extend_from_slice(bytes));
    }

    /// Adds a control frame.
    ///
    /// # Errors
    /// [`FrameError::OutOfNonces`], [`FrameError::HandshakeTooLong`].
    pub fn control(&mut self, tag: Tag, payload: &[u8]) -> Result<(), FrameError> {
        let preamble = Preamble::new(tag, [payload.len(), 0, 0, 0]).encode();
        match self.tx.take() {
            None => self.scratch_part(|s| {
                s.extend_from_slice(&preamble);
                if !payload.is_empty() {
                    s.extend_from_slice(payload);
                    s.extend_from_slice(&segment_crc(payload).to_le_bytes());
                }
            }),
            Some(mut tx) => {
                let sealed = self.seal_control(&mut tx, &preamble, payload);
                self.tx = Some(tx);
                sealed?;
            }
        }
        match &self.transcript {
            Some(t) if t.len() > TRANSCRIPT_MAX => Err(FrameError::HandshakeTooLong),
            _ => Ok(()),
        }
    }

    fn seal_control(&mut self, tx: &mut GcmTx, preamble: &[u8], payload: &[u8]) -> Result<(), FrameError> {
        let (inline, rest) = payload.split_at(payload.len().min(INLINE));
        self.seal_head(tx, preamble, inline)?;
        if rest.is_empty() {
            return Ok(());
        }
        self.scratch_part(|s| {
            let at = s.len();
            s.extend_from_slice(rest);
            s.resize(at + padded(rest.len()), 0);
            let tag = tx.seal(&mut s[at..])?;
            s.extend_from_slice(&tag);
            Ok(())
        })
    }

    /// The first block of secure mode: the preamble and up to 48 bytes of the first segment.
    fn seal_head(&mut self, tx: &mut GcmTx, preamble: &[u8], inline: &[u8]) -> Result<(), FrameError> {
        self.scratch_part(|s| {
            let at = s.len();
            s.extend_from_slice(preamble);
            s.extend_from_slice(inline);
            s.resize(at + PREAMBLE + INLINE, 0);
            let tag = tx.seal(&mut s[at..])?;
            s.extend_from_slice(&tag);
            Ok(())
        })
    }

    /// Adds a message. Checksums of its data that [`spirula_buf::crc`] knows are not computed
    /// again.
    ///
    /// # Errors
    /// [`FrameError::OutOfNonces`]; [`FrameError::TooLong`] for a segment of 4 GiB or more.
    pub fn message(&mut self, msg: RawMessage) -> Result<(), FrameError> {
        let lens = [
            MsgHeader2::SIZE,
            msg.front.len(),
            msg.middle.len(),
            msg.data.len(),
        ];
        if let Some(segment) = lens.iter().position(|&l| u32::try_from(l).is_err()) {
            return Err(FrameError::TooLong {
                tag: Tag::MESSAGE,
                segment,
                len: lens[segment],
            });
        }
        let preamble = Preamble::new(Tag::MESSAGE, lens);
        let mut w = Writer::with_capacity(MsgHeader2::SIZE);
        msg.header.encode(&mut w);
        invariant!(w.as_slice().len() == lens[0], "a header of its fixed size"; bytes = w.as_slice().len());
        invariant!(self.transcript.is_none(), "a message behind the handshake"; front = lens[1]);
        let (before, secure) = (self.pending, self.tx.is_some());
        match self.tx.take() {
            None => self.plain_message(&preamble, w.as_slice(), msg),
            Some(mut tx) => {
                let sealed = self.sealed_message(&mut tx, &preamble, w.as_slice(), &msg);
                self.tx = Some(tx);
                sealed?;
            }
        }
        // Otherwise the peer would take a part of this message for the next frame.
        let (sent, announced) = (self.pending - before, preamble.wire_len(secure));
        invariant!(sent == announced, "as many bytes as a frame announces"; sent = sent, announced = announced);
        Ok(())
    }

    fn plain_message(&mut self, preamble: &Preamble, header: &[u8], msg: RawMessage) {
        self.scratch_part(|s| {
            s.extend_from_slice(&preamble.encode());
            s.extend_from_slice(header);
            s.extend_from_slice(&segment_crc(header).to_le_bytes());
        });
        if preamble.segments == 1 {
            return; // There is no body.
        }
        let mut crcs = [segment_crc(&msg.front), 0, 0];
        if preamble.segments > 2 {
            crcs[1] = segment_crc(&msg.middle);
        }
        if preamble.segments > 3 {
            crcs[2] = !list_crc(&msg.data);
        }
        self.payload(&msg.front);
        self.payload(&msg.middle);
        for b in msg.data.iter() {
            self.payload(b);
        }
        self.scratch_part(|s| {
            s.push(STATUS_COMPLETE);
            for crc in crcs {
                s.extend_from_slice(&crc.to_le_bytes());
            }
        });
    }

    fn sealed_message(
        &mut self,
        tx: &mut GcmTx,
        preamble: &Preamble,
        header: &[u8],
        msg: &RawMessage,
    ) -> Result<(), FrameError> {
        self.seal_head(tx, &preamble.encode(), header)?;
        if preamble.segments == 1 {
            return Ok(());
        }
        let plain = preamble.lens[1..].iter().map(|&l| padded(l)).sum::<usize>() + EPILOGUE_SECURE;
        if plain < POOL_MIN {
            return self.scratch_part(|s| {
                let at = s.len();
                s.resize(at + plain + TAG_LEN, 0);
                seal_body(tx, msg, &mut s[at..])
            });
        }
        let mut buf = self.pool.get(plain + TAG_LEN);
        seal_body(tx, msg, &mut buf)?;
        self.pending += buf.len();
        self.parts.push_back(Part::Pooled(buf));
        Ok(())
    }

    /// Runs `fill`, which appends to the scratch area, and adds what it appended to the batch.
    fn scratch_part<T>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        if self.parts.is_empty() {
            self.scratch.clear();
        }
        let start = self.scratch.len();
        let out = fill(&mut self.scratch);
        let end = self.scratch.len();
        if let Some(t) = &mut self.transcript {
            t.extend_from_slice(&self.scratch[start..end]);
        }
        self.pending += end - start;
        match self.parts.back_mut() {
            Some(Part::Scratch(r)) if r.end == start => r.end = end,
            _ => self.parts.push_back(Part::Scratch(start..end)),
        }
        out
    }

    fn payload(&mut self, b: &Bytes) {
        if b.len() <= COPY_MAX {
            self.scratch_part(|s| s.extend_from_slice(b));
        } else {
            self.pending += b.len();
            self.parts.push_back(Part::Shared(b.clone()));
        }
    }

    /// Appends the unwritten slices to `out`, in order, up to `most` bytes.
    pub fn slices<'a>(&'a self, out: &mut Vec<IoSlice<'a>>, mut most: usize) {
        let mut skip = self.offset;
        for part in &self.parts {
            let rest = &self.part_bytes(part)[skip..];
            let len = rest.len().min(most);
            out.push(IoSlice::new(&rest[..len]));
            most -= len;
            skip = 0;
            if most == 0 {
                break;
            }
        }
    }

    fn part_bytes<'a>(&'a self, part: &'a Part) -> &'a [u8] {
        match part {
            Part::Scratch(r) => &self.scratch[r.clone()],
            Part::Shared(b) => b,
            Part::Pooled(b) => b,
        }
    }

    /// Notes that the first `n` pending bytes were written; their payloads are released.
    pub fn wrote(&mut self, n: usize) {
        invariant!(n <= self.pending, "no more to be written than was pending"; written = n, pending = self.pending);
        self.pending -= n;
        spirula_buf::let_go();
        let mut left = self.offset + n;
        while let Some(part) = self.parts.front() {
            let len = self.part_bytes(part).len();
            if left < len {
                break;
            }
            left -= len;
            self.parts.pop_front();
        }
        self.offset = left;
        invariant!(
            self.parts.is_empty() == (self.pending == 0) && (left == 0 || !self.parts.is_empty()),
            "as many bytes pending as the parts have";
            pending = self.pending,
            parts = self.parts.len(),
            offset = left,
        );
        if self.parts.is_empty() && self.scratch.capacity() > SCRATCH_KEEP {
            self.scratch = Vec::new();
        }
    }
}

fn list_crc(data: &BytesList) -> u32 {
    data.iter().fold(0, crc::append)
}

/// Lays the padded segments and the epilogue out in `buf`, which is zero or holds an earlier user's
/// bytes, and encrypts them; the tag fills the last 16 bytes.
fn seal_body(tx: &mut GcmTx, msg: &RawMessage, buf: &mut [u8]) -> Result<(), FrameError> {
    let mut at = 0;
    let mut segment = |pieces: &mut dyn Iterator<Item = &Bytes>| {
        let start = at;
        for b in pieces {
            buf[at..at + b.len()].copy_from_slice(b);
            at += b.len();
        }
        let end = start + padded(at - start);
        buf[at..end].fill(0);
        at = end;
    };
    segment(&mut std::iter::once(&msg.front));
    segment(&mut std::iter::once(&msg.middle));
    segment(&mut msg.data.iter());
    buf[at..at + EPILOGUE_SECURE].fill(0);
    buf[at] = STATUS_COMPLETE;
    invariant!(
        at + EPILOGUE_SECURE + TAG_LEN == buf.len(),
        "a buffer of the body's length";
        body = at,
        buffer = buf.len(),
    );
    let (plain, tag) = buf.split_at_mut(at + EPILOGUE_SECURE);
    tag.copy_from_slice(&tx.seal(plain)?);
    Ok(())
}
