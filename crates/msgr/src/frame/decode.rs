//! Decoding of received bytes to frames.

use std::io::{self, IoSliceMut};

use bytes::Bytes;
use spirula_buf::{ALIGN, Pool};
use spirula_denc::decode_all;
use spirula_invariant::{impossible, invariant};
use spirula_proto::{MsgHeader2, RawMessage};

use super::large::{Large, Segments};
use super::{
    BANNER_PAYLOAD, BANNER_PREFIX, EPILOGUE_CRC, EPILOGUE_SECURE, FrameError, GcmRx, INLINE, Limits,
    PREAMBLE, Preamble, TAG_LEN, Tag, check_status, le32, padded, segment_crc,
};
use crate::TRANSCRIPT_MAX;

/// Size of the receive buffer before the peer is known, and of an idle connection's.
const BUFFER_MIN: usize = 4 << 10;
/// Size up to which the receive buffer grows while reads fill it.
const BUFFER_MAX: usize = 64 << 10;
/// Message bodies up to this size are taken from the receive buffer; larger ones are read into
/// their own.
const SMALL_MAX: usize = 32 << 10;
/// Data up to this size is kept on the heap: a pooled buffer would be mostly empty.
const HEAP_MAX: usize = 1 << 10;

/// A decoded frame.
#[derive(Debug)]
pub enum Frame {
    /// The peer's messenger features.
    Banner {
        /// Features that the peer supports.
        supported: u64,
        /// Features that the peer requires.
        required: u64,
    },
    /// A control frame and its payload.
    Control(Tag, Vec<u8>),
    /// A message. Its data is one buffer, aligned for direct I/O if it is larger than 1 KiB; for a
    /// large one, [`spirula_buf::crc`] knows the verified checksums.
    Message(RawMessage),
}

/// The outcome of [`Decoder::poll`].
#[derive(Debug)]
pub enum Progress {
    /// A frame is complete. There may be more: poll again.
    Frame(Frame),
    /// Nothing is complete: read more.
    NeedBytes,
    /// A message waits for this many bytes of room in the pool. Do not read; poll again once there
    /// is room.
    NeedRoom(usize),
}

enum State {
    Banner,
    Preamble,
    /// A control frame of this many bytes; in secure mode the first of them came with the preamble.
    Control {
        tag: Tag,
        len: usize,
        inline: [u8; INLINE],
    },
    /// The header of a message in crc mode.
    Header(Preamble),
    /// The rest of a message.
    Body(Preamble, MsgHeader2),
    /// The rest of a large message, which has its own buffers.
    Large(Box<Large>, MsgHeader2),
    /// After an error.
    Failed(FrameError),
}

/// Decodes frames from a byte stream, however it is cut. Owns the receive buffer: fill it with
/// [`Decoder::read_with`], then [`Decoder::poll`] until it wants bytes again.
pub struct Decoder {
    rx: Option<GcmRx>,
    limits: Limits,
    pool: Pool,
    messages: bool,
    buf: Vec<u8>,
    start: usize,
    end: usize,
    state: State,
    transcript: Option<Vec<u8>>,
}

impl Decoder {
    /// A decoder that expects the banner, then frames in crc mode, and records its input for the
    /// signature.
    pub fn new(limits: Limits, pool: Pool) -> Self {
        Self {
            rx: None,
            limits,
            pool,
            messages: false,
            buf: Vec::new(),
            start: 0,
            end: 0,
            state: State::Banner,
            transcript: Some(Vec::new()),
        }
    }

    /// Ends the recording and returns everything decoded so far.
    pub(crate) fn take_transcript(&mut self) -> Vec<u8> {
        match self.transcript.take() {
            Some(received) => received,
            None => impossible!("a recording that ends once"; unread = self.end - self.start),
        }
    }

    /// Switches to secure mode for all later frames.
    pub(crate) fn set_secure(&mut self, rx: GcmRx) {
        invariant!(
            self.rx.is_none() && matches!(self.state, State::Preamble),
            "a change of modes between two frames";
            unread = self.end - self.start,
        );
        self.rx = Some(rx);
    }

    /// Accepts messages from now on.
    pub(crate) fn allow_messages(&mut self) {
        invariant!(
            self.transcript.is_none(),
            "messages from a peer that has signed the handshake";
            unread = self.end - self.start,
        );
        self.messages = true;
    }

    /// Calls `read` with the places for the next bytes of the stream, in order, and adds as many
    /// bytes as it reports to have read. The places are never empty after [`Progress::NeedBytes`].
    ///
    /// # Errors
    /// Whatever `read` returns.
    pub fn read_with(
        &mut self,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.make_room();
        let spare = &mut self.buf[self.end..];
        let capacity = spare.len();
        let n = match &mut self.state {
            State::Large(large, _) => {
                let (mut slices, all) = large.spare();
                if all {
                    slices.push(IoSliceMut::new(spare));
                }
                let n = read(&mut slices)?;
                let extra = large.filled(n);
                self.end += extra;
                n
            }
            _ => {
                let n = read(&mut [IoSliceMut::new(spare)])?;
                self.end += n;
                n
            }
        };
        invariant!(
            self.end <= self.buf.len(),
            "no more bytes than there was room for";
            read = n,
            end = self.end,
            buffer = self.buf.len(),
        );
        // A read that filled the buffer suggests that a larger one would save system calls.
        if n >= capacity && self.buf.len() < BUFFER_MAX && self.messages {
            self.buf.resize(BUFFER_MAX, 0);
        }
        Ok(n)
    }

    /// Makes room behind the unread bytes, by moving them to the front or growing the buffer.
    fn make_room(&mut self) {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        let wanted = self.wanted().max(self.end - self.start + 1);
        if self.buf.len() < BUFFER_MIN {
            self.buf.resize(BUFFER_MIN, 0);
        }
        let unread = self.end - self.start;
        // A short tail would make the next read a small one; moving a few bytes is cheaper.
        let cramped = self.start > 0 && unread < BUFFER_MIN && self.buf.len() - self.end < self.buf.len() / 2;
        if self.start + wanted <= self.buf.len() && !cramped {
            return; // There is room behind what is unread.
        }
        self.buf.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if wanted > self.buf.len() {
            // Bounded by the limit on control frames and by SMALL_MAX.
            self.buf.resize(wanted.next_multiple_of(BUFFER_MIN), 0);
        }
    }

    /// Whether a large message has begun, which has its room in the pool.
    pub fn holds_room(&self) -> bool {
        matches!(self.state, State::Large(..))
    }

    /// Receives payloads into `pool` from now on, which depends on the peer.
    pub fn set_pool(&mut self, pool: Pool) {
        self.pool = pool;
    }

    /// Frees an unused receive buffer, for idle connections.
    pub fn shrink(&mut self) {
        if self.start == self.end && self.buf.len() > BUFFER_MIN {
            self.buf = Vec::new();
            self.start = 0;
            self.end = 0;
        }
    }

    /// The bytes that must be in the buffer for the next step.
    fn wanted(&self) -> usize {
        let secure = self.rx.is_some();
        match &self.state {
            State::Banner => BANNER_PREFIX.len() + 2,
            State::Preamble if secure => PREAMBLE + INLINE + TAG_LEN,
            State::Preamble => PREAMBLE,
            State::Control { len, .. } if secure => match padded(*len) {
                n if n > INLINE => n - INLINE + TAG_LEN,
                _ => 0,
            },
            State::Control { len: 0, .. } | State::Failed(_) => 0,
            State::Control { len, .. } => len + 4,
            State::Header(_) => MsgHeader2::SIZE + 4,
            State::Body(p, _) => p.body_len(secure).min(SMALL_MAX),
            State::Large(large, _) => large.epilogue_len(),
        }
    }

    /// Length of the whole banner once its length field is there.
    fn banner_len(&self) -> Option<usize> {
        let head = self.unread().get(..BANNER_PREFIX.len() + 2)?;
        let len = head
            .last_chunk()
            .map_or(0, |c| usize::from(u16::from_le_bytes(*c)));
        Some(head.len() + len)
    }

    fn unread(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Decodes the next frame.
    ///
    /// # Errors
    /// See [`FrameError`]; every later call returns the same error.
    pub fn poll(&mut self) -> Result<Progress, FrameError> {
        let out = self.step();
        if let Err(e) = &out {
            self.state = State::Failed(e.clone());
        }
        out
    }

    fn step(&mut self) -> Result<Progress, FrameError> {
        loop {
            if self.end - self.start < self.wanted() && !matches!(self.state, State::Body(..)) {
                return Ok(Progress::NeedBytes);
            }
            let frame = match &self.state {
                State::Failed(e) => return Err(e.clone()),
                State::Banner => match self.banner()? {
                    Some(frame) => frame,
                    None => return Ok(Progress::NeedBytes),
                },
                State::Preamble => {
                    self.preamble()?;
                    continue;
                }
                State::Control { .. } => self.control()?,
                State::Header(_) => {
                    self.header()?;
                    continue;
                }
                State::Body(..) => match self.body()? {
                    Body::Wait(progress) => return Ok(progress),
                    Body::Large | Body::Aborted => continue,
                    Body::Done(frame) => frame,
                },
                State::Large(large, _) => {
                    if !large.is_full() {
                        return Ok(Progress::NeedBytes);
                    }
                    match self.finish_large()? {
                        Some(frame) => frame,
                        None => continue,
                    }
                }
            };
            return Ok(Progress::Frame(frame));
        }
    }

    /// Moves past `n` bytes, recording them while the handshake lasts.
    fn consume(&mut self, n: usize) -> Result<(), FrameError> {
        let unread = self.end - self.start;
        invariant!(n <= unread, "a frame that is in the buffer"; bytes = n, unread = unread);
        if let Some(t) = &mut self.transcript {
            if t.len() + n > TRANSCRIPT_MAX {
                return Err(FrameError::HandshakeTooLong);
            }
            t.extend_from_slice(&self.buf[self.start..self.start + n]);
        }
        self.start += n;
        Ok(())
    }

    fn banner(&mut self) -> Result<Option<Frame>, FrameError> {
        let head = BANNER_PREFIX.len() + 2;
        let seen = self.unread();
        if !seen.starts_with(BANNER_PREFIX) {
            return Err(FrameError::Banner);
        }
        let total = self.banner_len().ok_or(FrameError::Banner)?;
        // Newer peers may append to the payload, but a few words of features need no kilobytes.
        if !(head + BANNER_PAYLOAD..=head + 1024).contains(&total) {
            return Err(FrameError::Banner);
        }
        if seen.len() < total {
            return Ok(None);
        }
        let word = |at: usize| seen[at..].first_chunk().map_or(0, |c| u64::from_le_bytes(*c));
        let frame = Frame::Banner {
            supported: word(head),
            required: word(head + 8),
        };
        self.consume(total)?;
        self.state = State::Preamble;
        Ok(Some(frame))
    }

    fn preamble(&mut self) -> Result<(), FrameError> {
        let mut inline = [0; INLINE];
        let at = self.start;
        let wire = self.wanted();
        let block = &mut self.buf[at..at + wire];
        let secure = match &mut self.rx {
            Some(rx) => {
                let plain = rx.open(block)?;
                inline.copy_from_slice(&plain[PREAMBLE..]);
                true
            }
            None => false,
        };
        let head = block.first_chunk().ok_or(FrameError::PreambleCrc)?;
        let p = Preamble::decode(head, &self.limits)?;
        self.consume(wire)?;
        self.state = if p.tag != Tag::MESSAGE {
            State::Control {
                tag: p.tag,
                len: p.lens[0],
                inline,
            }
        } else if !self.messages {
            return Err(FrameError::Unexpected(p.tag));
        } else if secure {
            State::Body(p, decode_header(&inline[..MsgHeader2::SIZE])?)
        } else {
            State::Header(p)
        };
        Ok(())
    }

    fn control(&mut self) -> Result<Frame, FrameError> {
        let State::Control { tag, len, inline } = self.state else {
            impossible!("a control frame under way"; unread = self.end - self.start)
        };
        let wire = self.wanted();
        let rest = &mut self.buf[self.start..self.start + wire];
        let payload = match &mut self.rx {
            None => {
                let (payload, crc) = rest.split_at(len.min(wire));
                if len > 0 && le32(crc) != segment_crc(payload) {
                    return Err(FrameError::SegmentCrc(0));
                }
                payload.to_vec()
            }
            Some(rx) => {
                let mut payload = inline[..len.min(INLINE)].to_vec();
                if wire > 0 {
                    let more = rx.open(rest)?;
                    payload.extend_from_slice(&more[..len - INLINE]);
                }
                payload
            }
        };
        self.consume(wire)?;
        self.state = State::Preamble;
        Ok(Frame::Control(tag, payload))
    }

    fn header(&mut self) -> Result<(), FrameError> {
        let State::Header(p) = self.state else {
            impossible!("a message whose header is read"; unread = self.end - self.start)
        };
        let (header, crc) = self.unread()[..MsgHeader2::SIZE + 4].split_at(MsgHeader2::SIZE);
        if le32(crc) != segment_crc(header) {
            return Err(FrameError::SegmentCrc(0));
        }
        let header = decode_header(header)?;
        self.consume(MsgHeader2::SIZE + 4)?;
        self.state = State::Body(p, header);
        Ok(())
    }

    /// Takes a small body from the receive buffer, or sets up buffers for a large one.
    fn body(&mut self) -> Result<Body, FrameError> {
        let State::Body(p, header) = self.state else {
            impossible!("a message whose body is read"; unread = self.end - self.start)
        };
        let secure = self.rx.is_some();
        let wire = p.body_len(secure);
        let room: usize = p.lens[1..]
            .iter()
            .filter(|&&l| l > HEAP_MAX)
            .map(|l| l.next_multiple_of(ALIGN))
            .sum();
        if room > 0 && !self.pool.has_room(room) {
            return Ok(Body::Wait(Progress::NeedRoom(room)));
        }
        if wire > SMALL_MAX {
            let arrival = self.pool.arrive(room);
            let mut large = if secure {
                Large::sealed(&p, &self.pool, arrival)
            } else {
                Large::plain(&p, &self.pool, arrival)
            };
            self.start += large.fill_from(&self.buf[self.start..self.end]);
            self.state = State::Large(Box::new(large), header);
            return Ok(Body::Large);
        }
        if self.end - self.start < wire {
            return Ok(Body::Wait(Progress::NeedBytes));
        }
        let body = &mut self.buf[self.start..self.start + wire];
        let taken = match &mut self.rx {
            _ if wire == 0 => Some(Segments::default()),
            None => take_plain(&p, body, &self.pool)?,
            Some(rx) => take_sealed(&p, rx.open(body)?, &self.pool)?,
        };
        self.start += wire;
        self.state = State::Preamble;
        Ok(match taken {
            Some(segments) => Body::Done(message(header, segments)),
            None => Body::Aborted,
        })
    }

    fn finish_large(&mut self) -> Result<Option<Frame>, FrameError> {
        let State::Large(large, header) = std::mem::replace(&mut self.state, State::Preamble) else {
            impossible!("a large message whose body is read"; unread = self.end - self.start)
        };
        let epilogue = large.epilogue_len();
        let segments = large.finish(&self.buf[self.start..self.start + epilogue], self.rx.as_mut())?;
        self.start += epilogue;
        Ok(segments.map(|s| message(header, s)))
    }
}

enum Body {
    Wait(Progress),
    Large,
    Aborted,
    Done(Frame),
}

fn message(header: MsgHeader2, s: Segments) -> Frame {
    Frame::Message(RawMessage {
        header,
        front: s.front,
        middle: s.middle,
        data: s.data.into(),
    })
}

fn decode_header(b: &[u8]) -> Result<MsgHeader2, FrameError> {
    decode_all(b).map_err(|source| FrameError::Content {
        tag: Tag::MESSAGE,
        source,
    })
}

/// Checks and copies the segments of a crc mode body; `None` if the sender aborted the frame, so
/// that the contents of the segments do not matter.
fn take_plain(p: &Preamble, body: &[u8], pool: &Pool) -> Result<Option<Segments>, FrameError> {
    let (segments, epilogue) = body.split_at(body.len() - EPILOGUE_CRC);
    if !check_status(epilogue[0])? {
        return Ok(None);
    }
    let (front, rest) = segments.split_at(p.lens[1]);
    let (middle, data) = rest.split_at(p.lens[2]);
    for (i, s) in [front, middle, data].into_iter().enumerate().take(p.segments - 1) {
        if le32(&epilogue[1 + 4 * i..]) != segment_crc(s) {
            return Err(FrameError::SegmentCrc(i + 1));
        }
    }
    Ok(Some(Segments {
        front: copy(front, pool),
        middle: copy(middle, pool),
        data: copy(data, pool),
    }))
}

/// Copies the segments of a decrypted body.
fn take_sealed(p: &Preamble, plain: &[u8], pool: &Pool) -> Result<Option<Segments>, FrameError> {
    let (segments, epilogue) = plain.split_at(plain.len() - EPILOGUE_SECURE);
    if !check_status(epilogue[0])? {
        return Ok(None);
    }
    let (front, rest) = segments.split_at(padded(p.lens[1]));
    let (middle, data) = rest.split_at(padded(p.lens[2]));
    Ok(Some(Segments {
        front: copy(&front[..p.lens[1]], pool),
        middle: copy(&middle[..p.lens[2]], pool),
        data: copy(&data[..p.lens[3]], pool),
    }))
}

fn copy(b: &[u8], pool: &Pool) -> Bytes {
    if b.len() <= HEAP_MAX {
        return Bytes::copy_from_slice(b);
    }
    let mut out = pool.get(b.len());
    out.copy_from_slice(b);
    out.freeze()
}
