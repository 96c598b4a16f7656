//! Bodies that are read from the socket straight into their own buffers.

use std::io::IoSliceMut;

use bytes::Bytes;
use spirula_buf::crc::BlockSums;
use spirula_buf::{ALIGN, Arrival, Pool, PoolBuf};
use spirula_invariant::{impossible, invariant};

use super::{
    EPILOGUE_CRC, EPILOGUE_SECURE, FrameError, GcmRx, MOVED_AT_ONCE, Preamble, TAG_LEN, check_status, le32,
    padded,
};

/// The received segments of a message, checked.
#[derive(Default)]
pub(super) struct Segments {
    pub(super) front: Bytes,
    pub(super) middle: Bytes,
    pub(super) data: Bytes,
}

/// A buffer that is being filled.
struct Filling {
    buf: PoolBuf,
    filled: usize,
    /// Checksums of the filled part, updated while the bytes are in the CPU's cache.
    sums: BlockSums,
}

/// A body under way. In crc mode each segment has its buffer and the epilogue comes through the
/// receive buffer. In secure mode the whole body is one buffer, because it is one encrypted block;
/// it starts so that the data segment is aligned.
pub(super) struct Large {
    preamble: Preamble,
    /// Bytes before the block in secure mode; `None` in crc mode.
    lead: Option<usize>,
    bufs: Vec<Filling>,
    /// Held until the body is complete.
    _arrival: Arrival,
}

impl Large {
    pub(super) fn plain(p: &Preamble, pool: &Pool, arrival: Arrival) -> Self {
        let bufs = p.lens[1..p.segments]
            .iter()
            .map(|&l| Filling {
                buf: pool.get(l),
                filled: 0,
                sums: BlockSums::default(),
            })
            .collect();
        Self {
            preamble: *p,
            lead: None,
            bufs,
            _arrival: arrival,
        }
    }

    pub(super) fn sealed(p: &Preamble, pool: &Pool, arrival: Arrival) -> Self {
        let head = padded(p.lens[1]) + padded(p.lens[2]);
        let lead = head.next_multiple_of(ALIGN) - head;
        let buf = pool.get(lead + head + padded(p.lens[3]) + EPILOGUE_SECURE + TAG_LEN);
        Self {
            preamble: *p,
            lead: Some(lead),
            bufs: vec![Filling {
                buf,
                filled: lead,
                sums: BlockSums::default(),
            }],
            _arrival: arrival,
        }
    }

    /// The bytes that follow in the receive buffer once all others are there.
    pub(super) fn epilogue_len(&self) -> usize {
        // Before that, whatever the receive buffer holds must not keep the caller from reading on.
        if self.lead.is_none() && self.is_full() {
            EPILOGUE_CRC
        } else {
            0
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.bufs.iter().all(|f| f.filled == f.buf.len())
    }

    /// The unfilled places in order, up to [`MOVED_AT_ONCE`] bytes, and whether these are all.
    pub(super) fn spare(&mut self) -> (Vec<IoSliceMut<'_>>, bool) {
        let mut out = Vec::with_capacity(self.bufs.len() + 1);
        let (mut most, mut all) = (MOVED_AT_ONCE, true);
        for f in &mut self.bufs {
            let rest = &mut f.buf[f.filled..];
            let len = rest.len().min(most);
            all &= len == rest.len();
            most -= len;
            if len > 0 {
                out.push(IoSliceMut::new(&mut rest[..len]));
            }
        }
        (out, all)
    }

    /// Notes that `n` bytes were read into the places; returns how many went beyond them.
    pub(super) fn filled(&mut self, mut n: usize) -> usize {
        let plain = self.lead.is_none();
        for f in &mut self.bufs {
            let take = n.min(f.buf.len() - f.filled);
            if plain {
                f.sums.add(&f.buf[f.filled..f.filled + take]);
            }
            f.filled += take;
            n -= take;
        }
        // Bytes beyond the places are in the receive buffer, after a body that is whole.
        invariant!(n == 0 || self.is_full(), "a body that is filled before what follows it"; beyond = n);
        spirula_buf::let_go();
        n
    }

    /// Copies bytes that the receive buffer already holds; returns how many of `have` were used.
    pub(super) fn fill_from(&mut self, have: &[u8]) -> usize {
        let mut at = 0;
        for f in &mut self.bufs {
            let take = (have.len() - at).min(f.buf.len() - f.filled);
            f.buf[f.filled..f.filled + take].copy_from_slice(&have[at..at + take]);
            at += take;
        }
        self.filled(at);
        at
    }

    /// Checks the whole body; `None` if its sender aborted the frame.
    pub(super) fn finish(
        self,
        epilogue: &[u8],
        rx: Option<&mut GcmRx>,
    ) -> Result<Option<Segments>, FrameError> {
        invariant!(
            self.is_full() && epilogue.len() == self.epilogue_len(),
            "a body that is whole";
            front = self.preamble.lens[1],
            data = self.preamble.lens[3],
        );
        match (self.lead, rx) {
            (None, _) => self.finish_plain(epilogue),
            (Some(lead), Some(rx)) => self.finish_sealed(lead, rx),
            (Some(lead), None) => impossible!("the key of an encrypted body"; lead = lead),
        }
    }

    fn finish_plain(self, epilogue: &[u8]) -> Result<Option<Segments>, FrameError> {
        if !check_status(epilogue[0])? {
            return Ok(None);
        }
        let mut out = Segments::default();
        for (i, f) in self.bufs.into_iter().enumerate() {
            if le32(&epilogue[1 + 4 * i..]) != !f.sums.total() {
                return Err(FrameError::SegmentCrc(i + 1));
            }
            match i {
                0 => out.front = f.buf.freeze(),
                1 => out.middle = f.buf.freeze(),
                _ => out.data = f.buf.freeze_checked(f.sums.into_blocks()),
            }
        }
        Ok(Some(out))
    }

    fn finish_sealed(self, lead: usize, rx: &mut GcmRx) -> Result<Option<Segments>, FrameError> {
        let Some(mut f) = self.bufs.into_iter().next() else {
            impossible!("the buffer of an encrypted body"; lead = lead)
        };
        let lens = self.preamble.lens;
        let plain = rx.open(&mut f.buf[lead..])?;
        let complete = check_status(plain[plain.len() - EPILOGUE_SECURE])?;
        if !complete {
            return Ok(None);
        }
        let all = f.buf.freeze();
        let mut at = lead;
        let mut cut = |len: usize| {
            let out = if len == 0 {
                Bytes::new()
            } else {
                all.slice(at..at + len)
            };
            at += padded(len);
            out
        };
        Ok(Some(Segments {
            front: cut(lens[1]),
            middle: cut(lens[2]),
            data: cut(lens[3]),
        }))
    }
}
