//! Ops that return data or facts.

use bytes::Bytes;
use spirula_denc::Writer;
use spirula_proto::osd::OpCode;

use super::{Exec, ObjectState, kib, normalise};
use crate::pg::errno::*;
use crate::pg::op::{Extent, OsdOp};

/// A range that an op needs from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRange {
    /// Offset in the object.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Only the stored parts are wanted, holes left out.
    pub sparse: bool,
}

/// The size that a reader who knows of a newer truncation sees. SPARSE_READ and READ see it only where it cuts.
fn visible_size(size: u64, truncate_seq: u32, e: &Extent) -> u64 {
    let newer = truncate_seq < e.truncate_seq && e.offset.saturating_add(e.length) > e.truncate_size;
    if newer { size.min(e.truncate_size) } else { size }
}

/// The extent cut to what there is; a length of 0 means all.
fn read_extent(state_size: u64, truncate_seq: u32, e: &Extent) -> (u64, u64) {
    let size = visible_size(state_size, truncate_seq, e);
    let length = if e.length == 0 { size } else { e.length };
    (e.offset, length.min(size.saturating_sub(e.offset)))
}

fn sparse_extent(size: u64, truncate_seq: u32, e: &Extent) -> (u64, u64) {
    let size = visible_size(size, truncate_seq, e);
    (e.offset, e.length.min(size.saturating_sub(e.offset)))
}

fn checksum_extent(size: u64, op: &OsdOp) -> (u64, u64) {
    let (offset, length, ..) = op.checksum();
    let length = if offset == 0 && length == 0 { size } else { length };
    (offset, length.min(size.saturating_sub(offset)))
}

/// What must be fetched before the op can be executed on this object.
pub(crate) fn plan(state: &ObjectState, op: &mut OsdOp) -> Option<ReadRange> {
    normalise(op);
    if !state.exists {
        return None;
    }
    let (size, seq) = (state.info.size, state.info.truncate_seq);
    let (offset, len) = match op.code {
        OpCode::READ | OpCode::SYNC_READ => read_extent(size, seq, &op.extent()),
        OpCode::SPARSE_READ => sparse_extent(size, seq, &op.extent()),
        OpCode::CMPEXT => sparse_extent(size, seq, &op.extent()),
        OpCode::CHECKSUM => checksum_extent(size, op),
        _ => return None,
    };
    (len > 0).then_some(ReadRange {
        offset,
        len,
        sparse: op.code == OpCode::SPARSE_READ,
    })
}

type Pieces = Option<Result<Vec<(u64, Bytes)>, i32>>;

/// The pieces cut to `len` bytes from `offset`.
fn cut(pieces: Vec<(u64, Bytes)>, offset: u64, len: u64) -> impl Iterator<Item = (u64, Bytes)> {
    let end = offset.saturating_add(len);
    pieces.into_iter().filter_map(move |(at, mut b)| {
        if at >= end {
            return None;
        }
        b.truncate(usize::try_from(end - at).unwrap_or(usize::MAX));
        (!b.is_empty()).then_some((at, b))
    })
}

impl Exec<'_> {
    pub(super) fn read(&mut self, op: &mut OsdOp, fetched: Pieces) -> i32 {
        let e = op.extent();
        self.data_off.get_or_insert(e.offset);
        let (offset, len) = read_extent(self.info.size, self.info.truncate_seq, &e);
        let pieces = match fetched {
            Some(Err(err)) => {
                op.set_length(0);
                return err;
            }
            Some(Ok(pieces)) => pieces,
            None => Vec::new(),
        };
        for (_, b) in cut(pieces, offset, len) {
            op.outdata.push(b);
        }
        let got = op.outdata.len() as u64;
        op.set_length(got);
        self.io.rd += 1;
        self.io.rd_kb += kib(got);
        0
    }

    pub(super) fn sparse_read(&mut self, op: &mut OsdOp, fetched: Pieces) -> i32 {
        let (offset, len) = sparse_extent(self.info.size, self.info.truncate_seq, &op.extent());
        let pieces = match fetched {
            Some(Err(err)) => return err,
            Some(Ok(pieces)) => pieces,
            None => Vec::new(),
        };
        // Adjacent pieces are one extent.
        let mut extents: Vec<(u64, u64)> = Vec::new();
        let mut data = Vec::new();
        let mut total = 0u64;
        for (at, b) in cut(pieces, offset, len) {
            match extents.last_mut() {
                Some((start, n)) if *start + *n == at => *n += b.len() as u64,
                _ => extents.push((at, b.len() as u64)),
            }
            total += b.len() as u64;
            data.push(b);
        }
        let mut w = Writer::with_capacity(8 + extents.len() * 16);
        w.count(extents.len());
        for (at, n) in extents {
            w.u64(at);
            w.u64(n);
        }
        w.u32(u32::try_from(total).unwrap_or(u32::MAX));
        op.outdata.push(w.into_vec().into());
        data.into_iter().for_each(|b| op.outdata.push(b));
        op.set_length(total);
        self.io.rd += 1;
        self.io.rd_kb += kib(total);
        0
    }

    pub(super) fn stat(&mut self, op: &mut OsdOp) -> i32 {
        self.io.rd += 1;
        if !self.exists {
            return -ENOENT;
        }
        let mut w = Writer::with_capacity(16);
        w.u64(self.info.size);
        w.put(&self.info.mtime);
        op.outdata.push(w.into_vec().into());
        0
    }

    pub(super) fn assert_ver(&mut self, op: &OsdOp) -> i32 {
        match op.assert_ver() {
            0 => -EINVAL,
            v if v < self.info.user_version => -ERANGE,
            v if v > self.info.user_version => -EOVERFLOW,
            _ => 0,
        }
    }

    pub(super) fn cmpext(&mut self, op: &mut OsdOp, fetched: Pieces) -> i32 {
        let (offset, len) = sparse_extent(self.info.size, self.info.truncate_seq, &op.extent());
        op.set_length(len);
        let pieces = match fetched {
            Some(Err(err)) => return err,
            Some(Ok(pieces)) => pieces,
            None => Vec::new(),
        };
        let found: Vec<(u64, Bytes)> = cut(pieces, offset, len).collect();
        // Beyond the object's end there are zeros.
        let zeros = std::iter::repeat(&0u8);
        let have = found.iter().flat_map(|(_, b)| b.iter()).chain(zeros);
        match op.indata.iter().zip(have).position(|(want, have)| want != have) {
            Some(at) => i32::try_from(at).map_or(-ECANCELED, |at| -MAX_ERRNO - at),
            None => 0,
        }
    }
}
