//! The sum of the sizes of a user's buckets: the omap header. Formats: Ceph's
//! `src/cls/user/cls_user_types.h` and `cls_user_ops.h`.

use std::ops::ControlFlow;

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use super::bucket::BucketEntry;
use crate::method::{Nothing, stored, to_bytes};
use crate::omap::{self, Range};
use crate::{Object, Result};

/// Buckets that one call of `reset_user_stats2` sums up.
const PAGE: u64 = 1000;

versioned! {
    /// A sum. It wraps around, as sizes are taken off it that were never added.
    #[derive(Eq)]
    pub(super) struct Stats("cls_user_stats", version 1, compat 1) {
        /// Objects.
        pub(super) total_entries: u64;
        /// Bytes.
        pub(super) total_bytes: u64;
        /// Bytes, each object's rounded up to blocks.
        pub(super) total_bytes_rounded: u64;
    }

    /// The omap header.
    #[derive(Eq)]
    pub(super) struct Header("cls_user_header", version 1, compat 1) {
        pub(super) stats: Stats;
        /// When the sizes of all buckets were last determined anew.
        pub(super) last_stats_sync: UTime;
        /// When a size was last changed.
        pub(super) last_stats_update: UTime;
    }

    /// Input of `get_header`.
    #[derive(Eq)]
    pub(super) struct GetHeaderOp("cls_user_get_header_op", version 1, compat 1) {}

    /// Output of `get_header`.
    #[derive(Eq)]
    pub(super) struct GetHeaderReply("cls_user_get_header_ret", version 1, compat 1) {
        pub(super) header: Header;
    }

    /// Input of `complete_stats_sync` and `reset_user_stats`.
    #[derive(Eq)]
    pub(super) struct TimeOp("cls_user_complete_stats_sync_op", version 1, compat 1) {
        pub(super) time: UTime;
    }

    /// Input of `reset_user_stats2`.
    #[derive(Eq)]
    pub(super) struct ResetOp("cls_user_reset_stats2_op", version 1, compat 1) {
        pub(super) time: UTime;
        /// The name of the last bucket that was summed up, empty at first.
        pub(super) marker: Bytes;
        /// The sum so far.
        pub(super) stats: Stats;
    }

    /// Output of `reset_user_stats2`.
    #[derive(Eq)]
    pub(super) struct ResetReply("cls_user_reset_stats2_ret", version 1, compat 1) {
        pub(super) marker: Bytes;
        pub(super) stats: Stats;
        /// Whether more buckets follow.
        pub(super) truncated: bool;
    }
}

impl Stats {
    pub(super) fn add(&mut self, entry: &BucketEntry) {
        self.total_entries = self.total_entries.wrapping_add(entry.count);
        self.total_bytes = self.total_bytes.wrapping_add(entry.size);
        self.total_bytes_rounded = self.total_bytes_rounded.wrapping_add(entry.size_rounded);
    }

    pub(super) fn subtract(&mut self, entry: &BucketEntry) {
        self.total_entries = self.total_entries.wrapping_sub(entry.count);
        self.total_bytes = self.total_bytes.wrapping_sub(entry.size);
        self.total_bytes_rounded = self.total_bytes_rounded.wrapping_sub(entry.size_rounded);
    }
}

impl Header {
    pub(super) fn read(object: &mut dyn Object) -> Result<Self> {
        let bytes = object.omap_header()?;
        match bytes.is_empty() {
            true => Ok(Self::default()),
            false => stored(&bytes),
        }
    }

    pub(super) fn write(&self, object: &mut dyn Object) -> Result<Nothing> {
        object.omap_set_header(to_bytes(self)).map(|()| Nothing)
    }
}

pub(super) fn get_header(object: &mut dyn Object, _: GetHeaderOp) -> Result<GetHeaderReply> {
    let header = Header::read(object)?;
    Ok(GetHeaderReply { header })
}

pub(super) fn complete_sync(object: &mut dyn Object, op: TimeOp) -> Result<Nothing> {
    let mut header = Header::read(object)?;
    header.last_stats_sync = header.last_stats_sync.max(op.time);
    header.write(object)
}

/// Writes the sum of all buckets' sizes as a new header, whatever the old one is.
pub(super) fn reset(object: &mut dyn Object, op: TimeOp) -> Result<Nothing> {
    let header = Header {
        last_stats_update: op.time,
        ..Header::default()
    };
    let all = Range {
        after: b"",
        prefix: b"",
    };
    let header = omap::fold(object, &[all], header, |header, _, _, value| {
        header.stats.add(&stored(&value)?);
        Ok(ControlFlow::Continue(()))
    })?;
    header.write(object)
}

/// As [`reset`], but for a page of buckets, so that a call takes little time. The last page writes
/// the header.
///
/// Ceph's class ignores the sum that the client brings from the pages before. Here it counts, or
/// the header would have the last page's sum only.
pub(super) fn reset_page(object: &mut dyn Object, op: ResetOp) -> Result<ResetReply> {
    let page = object.omap_vals(&op.marker, b"", PAGE)?;
    let mut reply = ResetReply {
        stats: op.stats,
        truncated: page.more,
        ..ResetReply::default()
    };
    for (name, value) in page.items {
        reply.stats.add(&stored(&value)?);
        reply.marker = name;
    }
    if !reply.truncated {
        let header = Header {
            stats: reply.stats.clone(),
            last_stats_update: op.time,
            ..Header::default()
        };
        header.write(object)?;
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;
    use crate::testing::World;

    #[test]
    fn sums_go_on_from_page_to_page() {
        let mut world = World::default();
        world.state.exists = true;
        let entry = BucketEntry {
            count: 2,
            size: 3,
            size_rounded: 4,
            ..BucketEntry::default()
        };
        for n in 0..2500 {
            world
                .state
                .omap
                .insert(format!("{n:04}").into(), to_bytes(&entry));
        }
        let mut op = ResetOp {
            time: UTime::from_secs(5),
            ..ResetOp::default()
        };
        for truncated in [true, true, false] {
            let (code, out) = world.call("user", "reset_user_stats2", &encode_to_vec(&op));
            let reply: ResetReply = decode_all(&out).unwrap();
            assert_eq!((code, reply.truncated), (0, truncated));
            (op.marker, op.stats) = (reply.marker, reply.stats);
        }
        let pages = world.state.header.clone();
        let time = encode_to_vec(&TimeOp { time: op.time });
        assert_eq!(world.call("user", "reset_user_stats", &time).0, 0);
        assert_eq!(pages, world.state.header);
        assert_eq!(decode_all::<Header>(&pages).unwrap().stats.total_entries, 5000);
    }
}
