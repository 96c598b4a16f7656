//! Replies of the transmission phase, as the bytes to send.

use bytes::{BufMut, Bytes, BytesMut};

use crate::wire::{self, ExtentFlags, allocation, chunk};
use crate::{ErrorCode, Extent};

/// The block size in which runs of zeroes are searched, aligned on the device.
const HOLE_UNIT: u64 = 4096;
/// The most extents in one reply: clients then ask for the rest.
const MAX_EXTENTS: usize = 1 << 16;

/// A reply without data.
pub fn simple(cookie: u64, code: ErrorCode) -> Bytes {
    let mut out = BytesMut::with_capacity(16);
    out.put_u32(wire::SIMPLE_REPLY_MAGIC);
    out.put_u32(code.0);
    out.put_u64(cookie);
    out.freeze()
}

/// Begins a chunk with `payload` bytes behind its header.
fn chunk_header(out: &mut BytesMut, cookie: u64, flags: u16, kind: u16, payload: u32) {
    out.put_u32(wire::STRUCTURED_REPLY_MAGIC);
    out.put_u16(flags);
    out.put_u16(kind);
    out.put_u64(cookie);
    out.put_u32(payload);
}

/// A failure with a text for people.
pub fn error(cookie: u64, code: ErrorCode, message: &str) -> Bytes {
    let mut end = message.len().min(wire::MAX_STRING);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let message = &message.as_bytes()[..end];
    let mut out = BytesMut::with_capacity(26 + message.len());
    // `MAX_STRING` is far below both limits.
    chunk_header(
        &mut out,
        cookie,
        chunk::FLAG_DONE,
        chunk::ERROR,
        6 + message.len() as u32,
    );
    out.put_u32(code.0);
    out.put_u16(message.len() as u16);
    out.put_slice(message);
    out.freeze()
}

/// A run of a read's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    begin: usize,
    end: usize,
    zero: bool,
}

fn is_zero(data: &[u8]) -> bool {
    data.iter().fold(0, |all, &byte| all | byte) == 0
}

/// Runs of zeroes and of other data, split at multiples of [`HOLE_UNIT`].
fn runs(offset: u64, data: &[u8]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut begin = 0;
    while begin < data.len() {
        let until_boundary = HOLE_UNIT - (offset + begin as u64) % HOLE_UNIT;
        let end = data.len().min(begin + until_boundary as usize);
        let zero = is_zero(&data[begin..end]);
        match runs.last_mut() {
            Some(last) if last.zero == zero => last.end = end,
            _ => runs.push(Run { begin, end, zero }),
        }
        begin = end;
    }
    runs
}

/// The reply to a read of `data`, at most [`wire::MAX_PAYLOAD`] bytes. In a structured reply,
/// zeroes are sent as holes; with `whole` there is one chunk.
pub fn read(cookie: u64, offset: u64, data: Bytes, structured: bool, whole: bool) -> Vec<Bytes> {
    if !structured {
        return vec![simple(cookie, ErrorCode::OK), data];
    }
    let mut runs = runs(offset, &data);
    if whole && runs.len() > 1 {
        runs = vec![Run {
            begin: 0,
            end: data.len(),
            zero: false,
        }];
    }
    let mut out = Vec::with_capacity(2 * runs.len().max(1));
    let mut head = BytesMut::new();
    if runs.is_empty() {
        chunk_header(&mut head, cookie, chunk::FLAG_DONE, chunk::NONE, 0);
    }
    let last = runs.len().saturating_sub(1);
    for (index, run) in runs.iter().enumerate() {
        let flags = if index == last { chunk::FLAG_DONE } else { 0 };
        let at = offset + run.begin as u64;
        let len = (run.end - run.begin) as u32;
        if run.zero {
            chunk_header(&mut head, cookie, flags, chunk::OFFSET_HOLE, 12);
            head.put_u64(at);
            head.put_u32(len);
        } else {
            chunk_header(&mut head, cookie, flags, chunk::OFFSET_DATA, 8 + len);
            head.put_u64(at);
            out.push(head.split().freeze());
            out.push(data.slice(run.begin..run.end));
        }
    }
    if !head.is_empty() {
        out.push(head.freeze());
    }
    out
}

/// The reply to a request of `len` bytes for block status: the first of `extents`, or all of them
/// within the range. Adjacent extents of one kind are joined. Without extents, the range counts as
/// data.
pub fn block_status(cookie: u64, len: u32, one: bool, extents: &[Extent]) -> Bytes {
    struct Descriptor {
        len: u32,
        flags: ExtentFlags,
    }
    let mut descriptors: Vec<Descriptor> = Vec::new();
    let mut left = len;
    for extent in extents {
        let part = u32::try_from(extent.len).unwrap_or(u32::MAX).min(left);
        if part == 0 {
            continue;
        }
        let mut flags = ExtentFlags::empty();
        if extent.hole {
            flags.insert(ExtentFlags::HOLE);
        }
        if extent.zero {
            flags.insert(ExtentFlags::ZERO);
        }
        let full = descriptors.len() == if one { 1 } else { MAX_EXTENTS };
        match descriptors.last_mut() {
            Some(last) if last.flags == flags => last.len += part,
            _ if full => break,
            _ => descriptors.push(Descriptor { len: part, flags }),
        }
        left -= part;
    }
    if descriptors.is_empty() {
        descriptors.push(Descriptor {
            len,
            flags: ExtentFlags::empty(),
        });
    }
    let payload = 4 + 8 * descriptors.len();
    let mut out = BytesMut::with_capacity(20 + payload);
    // At most `MAX_EXTENTS` of 8 bytes.
    chunk_header(
        &mut out,
        cookie,
        chunk::FLAG_DONE,
        chunk::BLOCK_STATUS,
        payload as u32,
    );
    out.put_u32(allocation::ID);
    for Descriptor { len, flags } in descriptors {
        out.put_u32(len);
        out.put_u32(flags.0);
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use bytes::Buf;

    use super::*;

    /// The chunks of a reply: flags, type and payload.
    fn chunks(parts: &[Bytes]) -> Vec<(u16, u16, Bytes)> {
        let mut input = Bytes::from(parts.concat());
        let mut out = Vec::new();
        while !input.is_empty() {
            assert_eq!(input.get_u32(), wire::STRUCTURED_REPLY_MAGIC);
            let (flags, kind) = (input.get_u16(), input.get_u16());
            assert_eq!(input.get_u64(), 9);
            let len = input.get_u32() as usize;
            out.push((flags, kind, input.split_to(len)));
        }
        let dones: Vec<bool> = out.iter().map(|c| c.0 == chunk::FLAG_DONE).collect();
        assert_eq!(dones.iter().filter(|d| **d).count(), 1);
        assert_eq!(dones.last(), Some(&true));
        out
    }

    /// The data that a client assembles from the chunks of a read.
    fn assembled(parts: &[Bytes], offset: u64, len: usize) -> Vec<u8> {
        let mut data = vec![0xee; len];
        let mut seen = 0;
        for (_, kind, mut payload) in chunks(parts) {
            let at = (payload.get_u64() - offset) as usize;
            if kind == chunk::OFFSET_HOLE {
                let hole = payload.get_u32() as usize;
                data[at..at + hole].fill(0);
                seen += hole;
            } else {
                data[at..at + payload.len()].copy_from_slice(&payload);
                seen += payload.len();
            }
        }
        assert_eq!(seen, len);
        data
    }

    #[test]
    fn zeroes_are_holes() {
        let mut data = vec![0; 40_000];
        data[10_000] = 1;
        data[30_000..30_010].fill(2);
        for offset in [0, 512, 4096, 1_000_003] {
            let parts = read(9, offset, data.clone().into(), true, false);
            assert_eq!(assembled(&parts, offset, data.len()), data);
            assert_eq!(chunks(&parts).len(), 5);
            let parts = read(9, offset, data.clone().into(), true, true);
            assert_eq!(assembled(&parts, offset, data.len()), data);
            assert_eq!(chunks(&parts).len(), 1);
        }
        let parts = read(9, 512, vec![0; 100_000].into(), true, true);
        assert_eq!(chunks(&parts)[0].1, chunk::OFFSET_HOLE);
        let parts = read(9, 512, Bytes::new(), true, false);
        assert_eq!(chunks(&parts)[0].1, chunk::NONE);
    }

    #[test]
    fn a_simple_reply_has_the_data_behind_it() {
        let parts = read(9, 0, Bytes::from_static(b"data"), false, false);
        assert_eq!(parts.concat(), b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x09data");
    }

    #[test]
    fn an_error_has_a_text() {
        let (_, kind, mut payload) = chunks(&[error(9, ErrorCode::EIO, "broken")]).remove(0);
        assert_eq!((kind, payload.get_u32(), payload.get_u16()), (chunk::ERROR, 5, 6));
        assert_eq!(&payload[..], b"broken");
        let long = "ä".repeat(4000);
        let (_, _, payload) = chunks(&[error(9, ErrorCode::EIO, &format!("x{long}"))]).remove(0);
        assert_eq!(payload.len(), 6 + 4095);
    }

    #[test]
    fn extents_stay_within_what_was_asked() {
        let status = |one, extents: &[Extent]| {
            let (_, kind, mut payload) = chunks(&[block_status(9, 1000, one, extents)]).remove(0);
            assert_eq!((kind, payload.get_u32()), (chunk::BLOCK_STATUS, allocation::ID));
            let mut out = Vec::new();
            while !payload.is_empty() {
                out.push((payload.get_u32(), payload.get_u32()));
            }
            out
        };
        let extents = [
            Extent::data(100),
            Extent::data(100),
            Extent::absent(u64::MAX),
            Extent::data(1),
        ];
        assert_eq!(status(false, &extents), [(200, 0), (800, 3)]);
        assert_eq!(status(true, &extents), [(200, 0)]);
        assert_eq!(status(true, &[Extent::absent(u64::MAX)]), [(1000, 3)]);
        assert_eq!(status(false, &[]), [(1000, 0)]);
        let many: Vec<Extent> = (0..2000)
            .map(|i| {
                if i % 2 == 0 {
                    Extent::data(1)
                } else {
                    Extent::absent(1)
                }
            })
            .collect();
        assert_eq!(status(false, &many).len(), 1000);
    }
}
