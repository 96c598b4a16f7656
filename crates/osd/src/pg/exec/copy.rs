//! Ops that copy objects: COPY_GET reads one in parts, for another OSD; COPY_FROM makes the object
//! a copy of another.

use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::{Reader, encode_to_vec};
use spirula_errno::*;
use spirula_proto::osd::{CopyFromArgs, CopyFromFlags, OpCode};
use spirula_proto::osd_op_data::{CopyCursor, CopyData, CopySource};

use super::draft::Origin;
use super::{Changing, Looking, OpResult, Stop, fail};
use crate::pg::fetch::{Answer, Copied, CopyWant, OmapRange, Want, key_after};
use crate::pg::op::OsdOp;
use crate::pg::txn::{ObjectOp, PAIR_LOGGED};

/// Whether an op's user version is the source's.
pub(super) fn keeps_version(code: OpCode) -> bool {
    code == OpCode::COPY_FROM || code == OpCode::COPY_FROM2
}

impl Looking<'_, '_> {
    pub(super) fn copy_get(&mut self, op: &mut OsdOp) -> OpResult {
        let mut r = Reader::new(&op.indata);
        let input = (|| Ok((r.get::<CopyCursor>()?, r.u64()?)))();
        let (mut cursor, max) = input.map_err(|_: spirula_denc::Error| Stop::Failed(EINVAL))?;
        let mut left = max.min(self.given.cfg.copy_chunk);
        let mut part = CopyData {
            size: self.draft.info.size,
            mtime: self.draft.info.mtime,
            truncate_seq: self.draft.info.truncate_seq,
            truncate_size: self.draft.info.truncate_size,
            ..CopyData::default()
        };
        // Reads see the object as it was before the request.
        let digests = self.before.state.info.digests;
        part.set_digests(digests.data, digests.omap);
        if !cursor.attr_complete {
            part.attrs.clone_from(&self.before.state.attrs);
            cursor.attr_complete = true;
        }
        if left > 0 && !cursor.data_complete {
            let len = left.min(self.draft.info.size.saturating_sub(cursor.data_offset));
            let pieces = self.before.data(cursor.data_offset, len, false)?;
            part.data = match pieces {
                [(_, only)] => only.clone(),
                all => all
                    .iter()
                    .map(|(_, b)| &b[..])
                    .collect::<Vec<_>>()
                    .concat()
                    .into(),
            };
            left -= len;
            cursor.data_offset += len;
            cursor.data_complete = cursor.data_offset >= self.draft.info.size;
        }
        if !self.draft.info.has_omap() {
            cursor.omap_complete = true;
        } else if left > 0 && cursor.data_complete && !cursor.omap_complete {
            if cursor.omap_offset.is_empty() {
                part.omap_header = self.omap_header()?;
            }
            let page = self.omap_page(OmapRange {
                from: if cursor.omap_offset.is_empty() {
                    Bytes::new()
                } else {
                    key_after(&cursor.omap_offset)
                },
                to: None,
                max: self.given.cfg.stage_page / PAIR_LOGGED,
                max_bytes: usize::try_from(left)
                    .map_or(self.given.cfg.stage_page, |n| n.min(self.given.cfg.stage_page)),
                values: true,
            })?;
            if let Some((last, _)) = page.pairs.last() {
                cursor.omap_offset.clone_from(last);
                part.omap_data = encode_to_vec(&page.pairs).into();
            }
            cursor.omap_complete = !page.more;
        }
        part.cursor = cursor;
        op.outdata.push(encode_to_vec(&part).into());
        self.left.io.count_read(op.outdata.len() as u64);
        Ok(0)
    }
}

impl Changing<'_, '_> {
    pub(super) fn copy_from(&mut self, op: &OsdOp) -> OpResult {
        let args: CopyFromArgs = op.args();
        let second = op.code == OpCode::COPY_FROM2;
        if second && !CopyFromFlags::ALL.contains(args.flags) {
            return fail(EINVAL);
        }
        let source: CopySource = Reader::new(&op.indata).get().map_err(|_| Stop::Failed(EINVAL))?;
        let given = match source.truncate {
            _ if !second || !args.flags.contains(CopyFromFlags::TRUNCATE_SEQ) => None,
            None => return fail(EINVAL),
            given => given,
        };
        let want = CopyWant {
            oid: source.oid,
            locator: source.locator,
            snapid: args.snapid,
            version: args.version,
        };
        match self.before.fetch(Want::Copy(Box::new(want)))? {
            Answer::Copy(Ok(copied)) => self.become_copy(&Arc::clone(copied), given),
            Answer::Copy(Err(e)) => return Err(Stop::Failed(*e)),
            _ => return fail(EIO),
        }
        Ok(0)
    }

    /// Adopts everything of the source but the object's name and watchers.
    fn become_copy(&mut self, source: &Copied, truncate: Option<(u32, u64)>) {
        // A staging object is there to be taken once.
        self.draft.begin_anew(Origin::Nothing);
        if self.before.state.exists {
            self.draft.changes.push(ObjectOp::Remove);
        }
        self.draft.exist();
        match &source.staged {
            Some(whole) => {
                self.draft.base = Some((whole.key.clone(), source.size));
                self.draft.base_digests = source.digests;
                self.draft.changes.push(ObjectOp::MoveOf(whole.key.clone()));
            }
            None => {
                self.draft.changes.push(ObjectOp::Touch);
                self.draft.changes.extend(source.content.iter().cloned());
            }
        }
        self.draft.set_omap(source.has_omap);
        let attrs = source.attrs.iter().map(|(k, v)| (k.clone(), Some(v.clone())));
        self.draft.attrs = attrs.collect();
        self.draft.set_size(source.size);
        let info = &mut self.draft.info;
        (info.truncate_seq, info.truncate_size) = truncate.unwrap_or(source.truncate);
        info.user_version = source.user_version;
        info.mtime = source.mtime;
        self.draft.keeps_mtime = true;
        self.left.io.count_write(source.size);
    }
}
