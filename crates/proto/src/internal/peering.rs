//! Peering, recovery and leases between the OSDs of a PG.

use bytes::Bytes;
use spirula_denc::{Error, Reader, Result, UTime};
use spirula_maps::{EVersion, HObject, SpgId};

use super::{CheckedData, Part, plain_parts, protocol};
use crate::macros::{packed, wire_enum};
use crate::{Blob, Body, RawMessage};

protocol! {
    /// The peering protocol. A receiver drops what belongs to an interval older than its own, and keeps what is
    /// ahead of its map until it has the map.
    ///
    /// - Version 1: first.
    pub enum Peering: PEERING, version 1, compat 1, priority HIGH {
        /// The primary asks for info or log.
        Query(PgQuery) = 1,
        /// The answer, or an OSD that holds the PG makes itself known to its primary.
        Info(PgInfoReport) = 2,
        /// A part of a log.
        Log(PgLogPart) = 3,
        /// The primary starts the interval on a replica.
        Activate(Activate) = 4,
        /// The replica has it durable.
        ActivateAck(PgInfoReport) = 5,
        /// Wants objects.
        Pull(Pull) = 6,
        /// A piece of an object.
        Push(Push) = 7,
        /// The piece is durable.
        PushAck(PushAck) = 8,
        /// The primary wants to go on serving reads.
        Lease(Lease) = 9,
        /// Granted.
        LeaseAck(LeaseAck) = 10,
        /// Delete this copy of the PG: it is not needed any more.
        Remove(PgContext) = 11,
    }
}

packed! {
    /// Which PG, and as of when.
    pub struct PgContext {
        /// The PG and the shard that the receiver holds.
        pub spg: SpgId,
        /// The sender's osdmap epoch.
        pub epoch: u32,
        /// The epoch in which the interval began that the sender means.
        pub interval: u32,
    }
}

wire_enum! {
    /// What the primary wants to know.
    pub struct QueryKind(u8) {
        /// [`PgInfo`] only.
        INFO = 0, "info";
        /// Info and the log after a version.
        LOG = 1, "log";
        /// Info and the whole log.
        FULL_LOG = 2, "fulllog";
    }
}

packed! {
    /// A question of the primary.
    pub struct PgQuery {
        /// The PG.
        pub pg: PgContext,
        /// What is wanted.
        pub kind: QueryKind,
        /// For [`QueryKind::LOG`]: entries after this one.
        pub since: EVersion,
        /// The history as the primary knows it.
        pub history: PgHistory,
    }
}

packed! {
    /// Epochs that all holders of a PG merge by taking the larger ones.
    pub struct PgHistory {
        /// When the PG was made.
        pub epoch_created: u32,
        /// When its pool was made.
        pub pool_created: u32,
        /// The last epoch in which it went active, as known to this OSD.
        pub last_epoch_started: u32,
        /// The first epoch of that interval.
        pub last_interval_started: u32,
        /// The last epoch in which all replicas were complete.
        pub last_epoch_clean: u32,
        /// The first epoch of that interval.
        pub last_interval_clean: u32,
        /// The last split.
        pub last_epoch_split: u32,
        /// Since when the up set is the same.
        pub same_up_since: u32,
        /// Since when up and acting set are the same.
        pub same_interval_since: u32,
        /// Since when the primary is the same.
        pub same_primary_since: u32,
        /// The last scrub.
        pub last_scrub: EVersion,
        /// Its time.
        pub last_scrub_stamp: UTime,
        /// The last deep scrub.
        pub last_deep_scrub: EVersion,
        /// Its time.
        pub last_deep_scrub_stamp: UTime,
        /// The last scrub without a finding.
        pub last_clean_scrub_stamp: UTime,
    }
}

packed! {
    /// The state of one copy of a PG.
    pub struct PgInfo {
        /// The newest log entry.
        pub last_update: EVersion,
        /// Every object is up to date as of this entry.
        pub last_complete: EVersion,
        /// The last epoch in which this copy went active.
        pub last_epoch_started: u32,
        /// The first epoch of that interval.
        pub last_interval_started: u32,
        /// The log holds what comes after this entry.
        pub log_tail: EVersion,
        /// The newest user version.
        pub last_user_version: u64,
        /// Objects up to here are present: `MAX` unless the copy is being backfilled.
        pub last_backfill: HObject,
        /// See [`PgHistory`].
        pub history: PgHistory,
        /// Encoded statistics, opaque here.
        pub stats: Blob,
        /// The acting set with which it last went active.
        pub acting: Vec<i32>,
    }
}

packed! {
    /// The state of the sender's copy.
    pub struct PgInfoReport {
        /// The PG.
        pub pg: PgContext,
        /// The epoch of the query that is answered; the sender's own where nobody asked.
        pub query_epoch: u32,
        /// The state.
        pub info: PgInfo,
        /// Milliseconds for which the sender still grants a lease to an earlier primary: the new one must not
        /// acknowledge writes before they are over.
        pub lease_left_ms: u32,
    }
}

packed! {
    /// An object whose newest version a copy lacks.
    pub struct MissingObject {
        /// The object.
        pub object: HObject,
        /// The version needed.
        pub need: EVersion,
        /// The version the copy has; zero for none.
        pub have: EVersion,
    }
}

/// A part of a log. Parts are sent in order, the newest entries last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgLogPart {
    /// The PG.
    pub pg: PgContext,
    /// The epoch of the query that is answered.
    pub query_epoch: u32,
    /// The sender's state.
    pub info: PgInfo,
    /// The part starts after this entry.
    pub after: EVersion,
    /// The part's last entry.
    pub to: EVersion,
    /// Whether more parts follow.
    pub more: bool,
    /// What the sender lacks of the part's objects.
    pub missing: Vec<MissingObject>,
    /// Encoded entries, oldest first, opaque here; in the data segment.
    pub entries: Bytes,
}

impl Part for PgLogPart {
    fn encode_part(&self, out: &mut Body) {
        let w = &mut out.front;
        w.put(&self.pg);
        w.u32(self.query_epoch);
        w.put(&self.info);
        w.put(&self.after);
        w.put(&self.to);
        w.bool(self.more);
        w.put(&self.missing);
        out.data = self.entries.clone().into();
    }

    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        Ok(Self {
            pg: r.get()?,
            query_epoch: r.u32()?,
            info: r.get()?,
            after: r.get()?,
            to: r.get()?,
            more: r.bool()?,
            missing: r.get()?,
            entries: msg.data.to_bytes(),
        })
    }
}

/// The authoritative state for a replica: it takes over the log and answers when that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activate {
    /// The PG.
    pub pg: PgContext,
    /// The authoritative info.
    pub info: PgInfo,
    /// The replica's log is right up to here; it drops what it has beyond.
    pub rewind_to: EVersion,
    /// The acting set of the interval.
    pub acting: Vec<i32>,
    /// The first lease.
    pub lease: Lease,
    /// Encoded entries after `rewind_to`, oldest first, opaque here; in the data segment.
    pub entries: Bytes,
}

impl Part for Activate {
    fn encode_part(&self, out: &mut Body) {
        let w = &mut out.front;
        w.put(&self.pg);
        w.put(&self.info);
        w.put(&self.rewind_to);
        w.put(&self.acting);
        w.put(&self.lease);
        out.data = self.entries.clone().into();
    }

    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        Ok(Self {
            pg: r.get()?,
            info: r.get()?,
            rewind_to: r.get()?,
            acting: r.get()?,
            lease: r.get()?,
            entries: msg.data.to_bytes(),
        })
    }
}

packed! {
    /// An object wanted, or the rest of one.
    pub struct PullItem {
        /// The object.
        pub object: HObject,
        /// The version wanted.
        pub version: EVersion,
        /// Where to go on.
        pub progress: PushProgress,
    }
}

packed! {
    /// Objects wanted from an OSD that has them.
    pub struct Pull {
        /// The PG.
        pub pg: PgContext,
        /// The objects.
        pub items: Vec<PullItem>,
        /// Most payload bytes wanted in one message.
        pub max_bytes: u32,
    }
}

packed! {
    /// How far the transfer of an object has come. The first piece carries the attributes.
    pub struct PushProgress {
        /// Data before this offset is there.
        pub data: u64,
        /// Omap keys up to this one are there.
        pub omap: Bytes,
        /// All data is there.
        pub data_done: bool,
        /// The whole omap is there.
        pub omap_done: bool,
    }
}

impl PushProgress {
    /// Whether nothing was transferred yet.
    pub fn is_start(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the object is complete.
    pub fn is_done(&self) -> bool {
        self.data_done && self.omap_done
    }
}

wire_enum! {
    /// What a push says about its object.
    pub struct PushKind(u8) {
        /// A piece of it.
        PIECE = 0, "piece";
        /// It was deleted at this version.
        DELETED = 1, "deleted";
        /// The sender doesn't have this version.
        ABSENT = 2, "absent";
    }
}

/// A piece of an object. The receiver makes the object visible when the last piece is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The PG.
    pub pg: PgContext,
    /// The object.
    pub object: HObject,
    /// Its version.
    pub version: EVersion,
    /// Piece, deletion or absence.
    pub kind: PushKind,
    /// The object's size in bytes.
    pub size: u64,
    /// The state before this piece.
    pub before: PushProgress,
    /// The state after it.
    pub after: PushProgress,
    /// In the first piece: the encoded object info and attributes, opaque here.
    pub attributes: Blob,
    /// Encoded omap entries of this piece, opaque here.
    pub omap: Blob,
    /// Extents of data as (offset, bytes and sums); the bytes are in the data segment.
    pub extents: Vec<(u64, CheckedData)>,
}

impl Part for Push {
    fn encode_part(&self, out: &mut Body) {
        let w = &mut out.front;
        w.put(&self.pg);
        w.put(&self.object);
        w.put(&self.version);
        w.put(&self.kind);
        w.u64(self.size);
        w.put(&self.before);
        w.put(&self.after);
        w.put(&self.attributes);
        w.put(&self.omap);
        w.count(self.extents.len());
        for (offset, piece) in &self.extents {
            w.u64(*offset);
            piece.encode(w);
            out.data.push(piece.data.clone());
        }
    }

    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        let mut push = Self {
            pg: r.get()?,
            object: r.get()?,
            version: r.get()?,
            kind: r.get()?,
            size: r.u64()?,
            before: r.get()?,
            after: r.get()?,
            attributes: Blob(msg.front.slice_ref(r.blob()?)),
            omap: Blob(msg.front.slice_ref(r.blob()?)),
            extents: Vec::new(),
        };
        let mut at = 0;
        for _ in 0..r.count(16)? {
            let offset = r.u64()?;
            push.extents
                .push((offset, CheckedData::decode(r, &msg.data, &mut at)?));
        }
        if at == msg.data.len() {
            Ok(push)
        } else {
            Err(Error::LeftOver(msg.data.len() - at))
        }
    }
}

packed! {
    /// A piece is durable.
    pub struct PushAck {
        /// The PG.
        pub pg: PgContext,
        /// The object.
        pub object: HObject,
        /// Its version.
        pub version: EVersion,
        /// The state reached.
        pub progress: PushProgress,
        /// 0, or a negative errno: send it again later.
        pub result: i32,
    }
}

packed! {
    /// The primary's wish to serve reads. Once every acting replica has acknowledged it, the primary may serve
    /// until `duration_ms` after `stamp` by its own clock: a replica promises not to take part in a later
    /// interval within `duration_ms` of the message's arrival, which is later.
    pub struct Lease {
        /// The PG.
        pub pg: PgContext,
        /// The primary's monotonic clock in nanoseconds, meaningless to others.
        pub stamp: u64,
        /// For how long, in milliseconds.
        pub duration_ms: u32,
        /// Every acting member has made durable what lies up to here.
        pub committed_to: EVersion,
    }
}

packed! {
    /// A lease granted.
    pub struct LeaseAck {
        /// The PG.
        pub pg: PgContext,
        /// The lease's.
        pub stamp: u64,
    }
}

plain_parts!(PgQuery, PgInfoReport, PgContext, Pull, PushAck, Lease, LeaseAck);
