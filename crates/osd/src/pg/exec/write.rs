//! Ops that change an object's bytes or existence.

use bytes::{Bytes, BytesMut};
use spirula_errno::*;
use spirula_proto::osd::{AllocHintArgs, ExtentArgs, OpCode, OpFlags, WriteSameArgs};

use super::{Changing, OpResult, Stop, fail};
use crate::pg::object::AllocHint;
use crate::pg::op::OsdOp;
use crate::pg::txn::ObjectOp;

/// The bytes of a repeated pattern that are in memory, unless the pattern is longer: all of the
/// written data is made of these.
const REPEATED: u64 = 1 << 20;

/// A pattern, as often as it fits into the piece that stands for all of its repetitions, `length`
/// bytes. It begins at a page, so that the store need not copy it.
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

impl Changing<'_, '_> {
    pub(super) fn write(&mut self, op: &OsdOp) -> OpResult {
        self.write_extent(op.extent(), op.indata.clone())
    }

    fn write_extent(&mut self, e: ExtentArgs, data: Bytes) -> OpResult {
        if e.length != data.len() as u64 {
            return fail(EINVAL);
        }
        self.write_over_and_over(e, &data)
    }

    /// Writes data into an extent, again and again until it is full.
    fn write_over_and_over(&mut self, e: ExtentArgs, data: &Bytes) -> OpResult {
        let mut length = e.length;
        let seq = self.draft.info.truncate_seq;
        if seq != 0 && seq > e.truncate_seq && e.offset.saturating_add(length) > self.draft.info.size {
            // The write was sent before a truncation that came first: the bytes beyond are cut off
            // already.
            length = length.min(self.draft.info.size.saturating_sub(e.offset));
        }
        if e.truncate_seq > seq {
            if self.draft.exists {
                if e.truncate_size > self.given.cfg.max_object_size {
                    return fail(EFBIG);
                }
                self.draft.dirty = true;
                self.draft.truncate(e.truncate_size);
            }
            self.draft.info.truncate_seq = e.truncate_seq;
            self.draft.info.truncate_size = e.truncate_size;
        }
        self.check_extent(e.offset, length)?;
        self.work.note_written(length)?;
        self.draft.maybe_create();
        if length == 0 {
            if e.offset > self.draft.info.size {
                self.draft.truncate(e.offset);
            }
        } else {
            for at in (0..length).step_by(data.len()) {
                let left = usize::try_from(length - at).unwrap_or(usize::MAX);
                self.draft.changes.push(ObjectOp::Write {
                    offset: e.offset + at,
                    data: data.slice(..data.len().min(left)),
                });
            }
            if e.offset + length > self.draft.info.size {
                self.draft.set_size(e.offset + length);
            }
        }
        self.left.io.count_write(length);
        Ok(0)
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
        self.work.note_written(length)?;
        let shrinks = self.draft.exists && length < self.draft.info.size;
        self.draft.maybe_create();
        if shrinks {
            self.draft.changes.push(ObjectOp::Truncate { size: length });
        }
        if length > 0 {
            self.draft.changes.push(ObjectOp::Write { offset: 0, data });
        }
        self.draft.set_size(length);
        self.left.io.count_write(length);
        Ok(0)
    }

    pub(super) fn append(&mut self, op: &OsdOp) -> OpResult {
        let e = ExtentArgs {
            offset: self.draft.info.size,
            length: op.extent().length,
            truncate_size: 0,
            truncate_seq: self.draft.info.truncate_seq,
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
        let e = ExtentArgs {
            offset,
            length,
            ..ExtentArgs::default()
        };
        self.write_over_and_over(e, &repeated(&op.indata, length))
    }

    pub(super) fn zero(&mut self, op: &mut OsdOp) -> OpResult {
        let e = op.extent();
        if self.zero_is_truncate(&e) {
            if e.offset >= self.draft.info.size {
                return Ok(0);
            }
            op.code = OpCode::TRUNCATE;
            return self.truncate(op);
        }
        self.check_extent(e.offset, e.length)?;
        if e.length > 0 && self.draft.exists {
            self.draft.changes.push(ObjectOp::Zero {
                offset: e.offset,
                len: e.length,
            });
            self.draft.dirty = true;
            self.left.io.wr += 1;
        }
        Ok(0)
    }

    /// A range that ends at or beyond the object's end is cut off rather than zeroed.
    fn zero_is_truncate(&self, e: &ExtentArgs) -> bool {
        let max = self.given.cfg.max_object_size;
        self.draft.exists
            && e.offset < max
            && (1..=max).contains(&e.length)
            && e.offset.saturating_add(e.length) >= self.draft.info.size
    }

    fn check_extent(&self, offset: u64, length: u64) -> Result<(), Stop> {
        let max = self.given.cfg.max_object_size;
        if offset >= max || length > max || offset + length > max {
            return fail(EFBIG);
        }
        Ok(())
    }

    pub(super) fn truncate(&mut self, op: &OsdOp) -> OpResult {
        let e = op.extent();
        if !self.draft.exists {
            return Ok(0);
        }
        self.check_extent(e.offset, e.length)?;
        if e.truncate_seq != 0 {
            if e.offset != e.truncate_size {
                return fail(EINVAL);
            }
            if e.truncate_seq <= self.draft.info.truncate_seq {
                return Ok(0);
            }
            self.draft.info.truncate_seq = e.truncate_seq;
            self.draft.info.truncate_size = e.truncate_size;
        }
        self.draft.dirty = true;
        self.draft.truncate(e.offset);
        self.left.io.wr += 1;
        Ok(0)
    }

    pub(super) fn create(&mut self, op: &OsdOp) -> OpResult {
        if self.draft.exists && op.flags.intersects(OpFlags::EXCL) {
            return fail(EEXIST);
        }
        // The data, once a category, must be an encoded string still.
        let category_is_bad = !op.indata.is_empty() && spirula_denc::Reader::new(&op.indata).blob().is_err();
        if category_is_bad {
            return fail(EINVAL);
        }
        self.draft.maybe_create();
        Ok(0)
    }

    pub(super) fn delete(&mut self) -> OpResult {
        if !self.draft.exists {
            return fail(ENOENT);
        }
        self.left.disconnect(&self.draft.info.watchers);
        self.draft.remove();
        self.left.io.wr += 1;
        Ok(0)
    }

    pub(super) fn set_alloc_hint(&mut self, op: &OsdOp) -> OpResult {
        let hint: AllocHintArgs = op.args();
        self.draft.maybe_create();
        self.draft.info.hint = AllocHint {
            object_size: hint.expected_object_size,
            write_size: hint.expected_write_size,
            flags: hint.flags,
        };
        Ok(0)
    }
}
