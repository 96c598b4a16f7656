//! Ops that return data or facts.

use spirula_denc::{Extent, Writer};
use spirula_errno::*;
use spirula_proto::osd::{AssertVersionArgs, ChecksumArgs, ExtentArgs};

use super::{Looking, OpResult, Stop, fail};
use crate::pg::fetch::{Answer, Want};
use crate::pg::op::OsdOp;

/// The size as seen by a reader that knows of a newer truncation. SPARSE_READ and READ see it only
/// if it cuts.
fn visible_size(size: u64, truncate_seq: u32, e: &ExtentArgs) -> u64 {
    let newer = truncate_seq < e.truncate_seq && e.offset.saturating_add(e.length) > e.truncate_size;
    if newer { size.min(e.truncate_size) } else { size }
}

/// The extent cut to the object's size; a length of 0 means all.
pub(super) fn read_extent(state_size: u64, truncate_seq: u32, e: &ExtentArgs) -> Extent {
    let size = visible_size(state_size, truncate_seq, e);
    let length = if e.length == 0 { size } else { e.length };
    Extent {
        offset: e.offset,
        len: length.min(size.saturating_sub(e.offset)),
    }
}

pub(super) fn sparse_extent(size: u64, truncate_seq: u32, e: &ExtentArgs) -> Extent {
    let size = visible_size(size, truncate_seq, e);
    Extent {
        offset: e.offset,
        len: e.length.min(size.saturating_sub(e.offset)),
    }
}

pub(super) fn checksum_extent(size: u64, op: &OsdOp) -> Extent {
    let ChecksumArgs { offset, length, .. } = op.args();
    let length = if offset == 0 && length == 0 { size } else { length };
    Extent {
        offset,
        len: length.min(size.saturating_sub(offset)),
    }
}

/// Encodes extents as the official OSD does: as a map of lengths by offset.
fn put_extents(w: &mut Writer, extents: &[Extent]) {
    w.count(extents.len());
    extents.iter().for_each(|e| w.put(e));
}

impl Looking<'_, '_> {
    pub(super) fn read(&mut self, op: &mut OsdOp) -> OpResult {
        let e = op.extent();
        let Extent { offset, len } = read_extent(self.draft.info.size, self.draft.info.truncate_seq, &e);
        let pieces = match self.before.data(offset, len, false) {
            Err(Stop::Unfetched) => return Err(Stop::Unfetched),
            other => other,
        };
        self.left.data_off.get_or_insert(e.offset);
        if pieces.is_err() {
            op.set_length(0);
        }
        pieces?.iter().for_each(|(_, b)| op.outdata.push(b.clone()));
        let got = op.outdata.len() as u64;
        op.set_length(got);
        self.left.io.count_read(got);
        Ok(0)
    }

    pub(super) fn sparse_read(&mut self, op: &mut OsdOp) -> OpResult {
        let Extent { offset, len } =
            sparse_extent(self.draft.info.size, self.draft.info.truncate_seq, &op.extent());
        let pieces = self.before.data(offset, len, true)?;
        // Adjacent pieces are one extent.
        let mut extents: Vec<Extent> = Vec::new();
        let mut total = 0u64;
        for (offset, b) in pieces {
            let (offset, len) = (*offset, b.len() as u64);
            match extents.last_mut() {
                Some(last) if last.end() == offset => last.len += len,
                _ => extents.push(Extent { offset, len }),
            }
            total += len;
        }
        let mut w = Writer::with_capacity(8 + extents.len() * 16);
        put_extents(&mut w, &extents);
        w.u32(u32::try_from(total).unwrap_or(u32::MAX));
        op.outdata.push(w.into_vec().into());
        pieces.iter().for_each(|(_, b)| op.outdata.push(b.clone()));
        op.set_length(total);
        self.left.io.count_read(total);
        Ok(0)
    }

    /// MAPEXT: the extents in which data is stored. A newer truncation is ignored, as by the
    /// official OSD.
    pub(super) fn map_extents(&mut self, op: &mut OsdOp) -> OpResult {
        let e = op.extent();
        let want = Want::Extents(Extent {
            offset: e.offset,
            len: e.length,
        });
        let Answer::Extents(extents) = self.before.fetch(want)? else {
            return fail(EIO);
        };
        let mut w = Writer::with_capacity(4 + extents.len() * 16);
        put_extents(&mut w, extents);
        self.left.io.count_read(w.len() as u64);
        op.outdata.push(w.into_vec().into());
        Ok(0)
    }

    pub(super) fn stat(&mut self, op: &mut OsdOp) -> OpResult {
        self.left.io.rd += 1;
        if !self.draft.exists {
            return fail(ENOENT);
        }
        let mut w = Writer::with_capacity(16);
        w.u64(self.draft.info.size);
        w.put(&self.draft.info.mtime);
        op.outdata.push(w.into_vec().into());
        Ok(0)
    }

    pub(super) fn assert_ver(&mut self, op: &OsdOp) -> OpResult {
        match op.args::<AssertVersionArgs>().version {
            0 => fail(EINVAL),
            v if v < self.draft.info.user_version => fail(ERANGE),
            v if v > self.draft.info.user_version => fail(EOVERFLOW),
            _ => Ok(0),
        }
    }

    pub(super) fn cmpext(&mut self, op: &mut OsdOp) -> OpResult {
        let Extent { offset, len } =
            sparse_extent(self.draft.info.size, self.draft.info.truncate_seq, &op.extent());
        let pieces = self.before.data(offset, len, false)?;
        op.set_length(len);
        // Beyond the object's end there are zeros.
        let zeros = std::iter::repeat(&0u8);
        let have = pieces.iter().flat_map(|(_, b)| b.iter()).chain(zeros);
        match op.indata.iter().zip(have).position(|(want, have)| want != have) {
            Some(at) => {
                let beyond = i32::try_from(at).ok().and_then(|at| MAX_ERRNO.checked_add(at));
                fail(beyond.and_then(Errno::new).unwrap_or(ECANCELED))
            }
            None => Ok(0),
        }
    }
}
