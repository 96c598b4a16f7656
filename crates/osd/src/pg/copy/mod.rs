//! COPY_FROM: fetching another object, in parts, from the primary of its PG, which may be any OSD.
//!
//! The destination's primary asks ([`CopyRead`]) and asks again until it is answered, as messages
//! may be lost and the source may move. The source's primary treats the question as a client's read
//! of the object, so that it is ordered among the object's writes as such. Each part is asked for
//! together with the version that the first one had. An object of one small part is copied in one
//! change; of a larger one each part goes into a staging object before the next is asked for
//! ([`super::stage`]).

pub(super) mod handler;

use spirula_denc::{Micros, Reader, decode_all};
use spirula_errno::*;
use spirula_maps::OsdId;
use spirula_proto::osd_op_data::{CopyCursor, CopyData};

use super::digests::Digests;
use super::fetch::{Copied, CopyWant};
use super::txn::ObjectOp;

/// An object that is fetched for an op that waits.
#[derive(Debug)]
pub(super) struct CopyFetch {
    want: CopyWant,
    /// The number of parts that came.
    parts: u32,
    /// When a part was asked for last.
    asked: Micros,
    /// The OSD that was asked.
    asked_of: Option<OsdId>,
    /// Whether the question is not answered yet.
    waiting: bool,
    cursor: CopyCursor,
    /// The object as known so far, without its content.
    pub(super) copied: Copied,
}

impl CopyFetch {
    pub(super) fn new(want: CopyWant) -> Self {
        Self {
            copied: Copied {
                user_version: want.version,
                ..Copied::default()
            },
            want,
            parts: 0,
            asked: Micros::ZERO,
            asked_of: None,
            waiting: false,
            cursor: CopyCursor::default(),
        }
    }

    /// What the fetching waits for at the time `usec`: an answer; `None` if none is under way.
    pub(super) fn waits_for(&self, usec: Micros) -> Option<String> {
        let (oid, ago) = (&self.want.oid, usec.saturating_sub(self.asked).as_secs());
        let who = match self.asked_of {
            _ if !self.waiting => return None,
            Some(osd) => format!("osd.{osd}"),
            None => "an OSD that leads the PG".to_owned(),
        };
        let part = self.parts + 1;
        Some(format!(
            "{who} to send part {part} of {oid} to be copied, asked {ago} s ago"
        ))
    }

    /// Whether the whole object was fetched.
    pub(super) fn is_complete(&self) -> bool {
        self.cursor.is_complete()
    }

    /// Adds a part. Returns the changes that add it to the copy.
    fn take(&mut self, user_version: u64, data: &[u8]) -> Result<Vec<ObjectOp>, Errno> {
        let part: CopyData = decode_all(data).map_err(|_| EIO)?;
        let (c, mut ops) = (&mut self.copied, Vec::new());
        if self.parts == 0 {
            (c.size, c.mtime) = (part.size, part.mtime);
            c.truncate = (part.truncate_seq, part.truncate_size);
            let (data, omap) = part.digests();
            c.digests = Digests { data, omap };
            c.attrs = part.attrs;
            c.user_version = user_version;
        }
        if !part.data.is_empty() {
            ops.push(ObjectOp::Write {
                offset: self.cursor.data_offset,
                data: part.data,
            });
        }
        if !part.omap_header.is_empty() {
            c.has_omap = true;
            ops.push(ObjectOp::OmapHeader(part.omap_header));
        }
        if !part.omap_data.is_empty() {
            c.has_omap = true;
            let pairs = Reader::new(&part.omap_data).get().map_err(|_| EIO)?;
            ops.push(ObjectOp::OmapSet(pairs));
        }
        self.cursor = part.cursor;
        self.parts += 1;
        self.waiting = false;
        Ok(ops)
    }
}
