//! Ops that change an object's bytes or existence.

use bytes::{Bytes, BytesMut};
use spirula_proto::osd::{AllocHintArgs, Extent, OpFlags, WriteSameArgs};

use super::{Exec, OpResult, fail, kib};
use crate::pg::errno::*;
use crate::pg::op::OsdOp;
use crate::pg::txn::ObjectOp;

/// Bytes of a repeated pattern that are in memory, where the pattern is not longer: what is written is all made of these.
const REPEATED: u64 = 1 << 20;

/// A pattern as often as it fits into what stands for all of its repetitions, `length` bytes. It begins at a page, so that the store need not copy it.
fn repeated(pattern: &Bytes, length: u64) -> Bytes {
    const PAGE: usize = 4096;
    let times = usize::try_from(length.min(REPEATED)).unwrap_or(0) / pattern.len().max(1);
    if times <= 1 {
        return pattern.clone();
    }
    let mut out = BytesMut::with_capacity(times * pattern.len() + PAGE);
    let begin = out.as_ptr().align_offset(PAGE).min(PAGE);
    out.resize(begin, 0);
    (0..times).for_each(|_| out.extend_from_slice(pattern));
    out.freeze().slice(begin..)
}

impl Exec<'_> {
    pub(super) fn write(&mut self, op: &OsdOp) -> OpResult {
        self.write_extent(op.extent(), op.indata.clone())
    }

    fn write_extent(&mut self, e: Extent, data: Bytes) -> OpResult {
        if e.length != data.len() as u64 {
            return fail(EINVAL);
        }
        self.write_over_and_over(e, &data)
    }

    /// Writes data into an extent, again and again until it is full.
    fn write_over_and_over(&mut self, e: Extent, data: &Bytes) -> OpResult {
        let mut length = e.length;
        let seq = self.info.truncate_seq;
        if seq != 0 && seq > e.truncate_seq && e.offset.saturating_add(length) > self.info.size {
            // Sent before a truncation that came first: what lies beyond is gone already.
            length = length.min(self.info.size.saturating_sub(e.offset));
        }
        if e.truncate_seq > seq {
            if self.exists {
                if e.truncate_size > self.cfg.max_object_size {
                    return fail(EFBIG);
                }
                self.changes.push(ObjectOp::Truncate {
                    size: e.truncate_size,
                });
                self.dirty = true;
                self.set_size(e.truncate_size);
            }
            self.info.truncate_seq = e.truncate_seq;
            self.info.truncate_size = e.truncate_size;
        }
        self.check_extent(e.offset, length)?;
        self.note_written(length)?;
        self.maybe_create();
        if length == 0 {
            if e.offset > self.info.size {
                self.changes.push(ObjectOp::Truncate { size: e.offset });
                self.set_size(e.offset);
            }
        } else {
            for at in (0..length).step_by(data.len()) {
                let left = usize::try_from(length - at).unwrap_or(usize::MAX);
                self.changes.push(ObjectOp::Write {
                    offset: e.offset + at,
                    data: data.slice(..data.len().min(left)),
                });
            }
            if e.offset + length > self.info.size {
                self.set_size(e.offset + length);
            }
        }
        self.count_write(length);
        Ok(0)
    }

    pub(super) fn count_write(&mut self, length: u64) {
        self.io.wr += 1;
        self.io.wr_kb += kib(length);
    }

    pub(super) fn writefull(&mut self, op: &OsdOp) -> OpResult {
        if op.extent().length != op.indata.len() as u64 {
            return fail(EINVAL);
        }
        self.replace_data(op.indata.clone())
    }

    /// Replaces all bytes.
    pub(super) fn replace_data(&mut self, data: Bytes) -> OpResult {
        let length = data.len() as u64;
        self.check_extent(0, length)?;
        self.note_written(length)?;
        let shrinks = self.exists && length < self.info.size;
        self.maybe_create();
        if shrinks {
            self.changes.push(ObjectOp::Truncate { size: length });
        }
        if length > 0 {
            self.changes.push(ObjectOp::Write { offset: 0, data });
        }
        self.set_size(length);
        self.count_write(length);
        Ok(0)
    }

    pub(super) fn append(&mut self, op: &OsdOp) -> OpResult {
        let e = Extent {
            offset: self.info.size,
            length: op.extent().length,
            truncate_size: 0,
            truncate_seq: self.info.truncate_seq,
        };
        self.write_extent(e, op.indata.clone())
    }

    pub(super) fn writesame(&mut self, op: &OsdOp) -> OpResult {
        let WriteSameArgs {
            offset,
            length,
            data_length,
        } = op.args();
        if length == 0 {
            return Ok(0);
        }
        if data_length == 0 || length % data_length != 0 || data_length != op.indata.len() as u64 {
            return fail(EINVAL);
        }
        self.check_extent(offset, length)?;
        let e = Extent {
            offset,
            length,
            ..Extent::default()
        };
        self.write_over_and_over(e, &repeated(&op.indata, length))
    }

    /// Within the object; a range that reaches its end became a truncation before.
    pub(super) fn zero(&mut self, op: &OsdOp) -> OpResult {
        let e = op.extent();
        self.check_extent(e.offset, e.length)?;
        if e.length > 0 && self.exists {
            self.changes.push(ObjectOp::Zero {
                offset: e.offset,
                len: e.length,
            });
            self.dirty = true;
            self.io.wr += 1;
        }
        Ok(0)
    }

    pub(super) fn truncate(&mut self, op: &OsdOp) -> OpResult {
        let e = op.extent();
        if !self.exists {
            return Ok(0);
        }
        self.check_extent(e.offset, e.length)?;
        if e.truncate_seq != 0 {
            if e.offset != e.truncate_size {
                return fail(EINVAL);
            }
            if e.truncate_seq <= self.info.truncate_seq {
                return Ok(0);
            }
            self.info.truncate_seq = e.truncate_seq;
            self.info.truncate_size = e.truncate_size;
        }
        self.dirty = true;
        self.changes.push(ObjectOp::Truncate { size: e.offset });
        self.set_size(e.offset);
        self.io.wr += 1;
        Ok(0)
    }

    pub(super) fn create(&mut self, op: &OsdOp) -> OpResult {
        if self.exists && op.flags.has(OpFlags::EXCL) {
            return fail(EEXIST);
        }
        // The data, once a category, must be an encoded string still.
        let category_is_bad = !op.indata.is_empty() && spirula_denc::Reader::new(&op.indata).blob().is_err();
        if category_is_bad {
            return fail(EINVAL);
        }
        self.maybe_create();
        Ok(0)
    }

    pub(in crate::pg) fn delete(&mut self) -> OpResult {
        if !self.exists {
            return fail(ENOENT);
        }
        // Changes made by the ops before need not reach the store, but the object was there if it was before.
        self.changes.clear();
        self.changes.push(ObjectOp::Remove);
        self.dirty = true;
        self.io.wr += 1;
        self.drop_watchers();
        self.set_size(0);
        self.usage.objects -= 1;
        self.exists = false;
        self.attr_changes.clear();
        self.attrs_cleared = true;
        self.attrs_after = None;
        self.info = crate::pg::object::ObjectInfo {
            version: self.info.version,
            user_version: self.info.user_version,
            snap_set: std::mem::take(&mut self.info.snap_set),
            ..Default::default()
        };
        Ok(0)
    }

    pub(super) fn set_alloc_hint(&mut self, op: &OsdOp) -> OpResult {
        let hint: AllocHintArgs = op.args();
        self.maybe_create();
        self.info.expected_object_size = hint.expected_object_size;
        self.info.expected_write_size = hint.expected_write_size;
        self.info.alloc_hint_flags = hint.flags;
        Ok(0)
    }
}
