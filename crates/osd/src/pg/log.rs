//! The PG log: the last changes of a PG in order, from which members agree after an interval, and
//! in which requests that are sent again are recognised.
//!
//! After Ceph's `pg_log_entry_t` and `PGLog` (`src/osd/osd_types.h`, `src/osd/PGLog.h`); the
//! encoding is ours.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_denc::{Decode, Encode, Error, Reader, Result, UTime, Writer, decode_all};
use spirula_invariant::invariant;
use spirula_maps::{EVersion, HObject, ReqId, SnapId, snap};

use super::dirty::Dirty;
use super::key;
use super::object::ObjectInfo;

/// Version of the encoding of [`LogEntry`]. 1: the first. 2: clones, and their share of the usage.
/// 3: the parts of the object that the change left as they were.
const VERSION: u8 = 3;

/// The effect of an entry on its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOp {
    /// The change created or changed the object.
    Modify,
    /// The change removed the object.
    Delete,
    /// The entry changes no object: a write failed, and must fail alike when it is sent again; or
    /// the PG changed something else of its own.
    Error,
}

impl LogOp {
    /// The name that `pg query` prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Modify => "modify",
            Self::Delete => "delete",
            Self::Error => "error",
        }
    }
}

/// A PG's statistics that must be exact after a crash; kept with every entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Objects.
    pub objects: i64,
    /// The objects' bytes; bytes that a clone shares with the next newer one count once.
    pub bytes: i64,
    /// The number of objects that are clones.
    pub clones: i64,
    /// The number of objects that are whiteouts: removed, while clones remain.
    pub whiteouts: i64,
}

impl Usage {
    /// The change of the usage since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            objects: self.objects - before.objects,
            bytes: self.bytes - before.bytes,
            clones: self.clones - before.clones,
            whiteouts: self.whiteouts - before.whiteouts,
        }
    }

    /// The usage after a change.
    pub(super) fn plus(self, change: Self) -> Self {
        Self {
            objects: self.objects + change.objects,
            bytes: self.bytes + change.bytes,
            clones: self.clones + change.clones,
            whiteouts: self.whiteouts + change.whiteouts,
        }
    }
}

/// An object's share of the usage.
pub(super) fn usage_of(key: &Bytes, info: &[u8]) -> Usage {
    let info = decode_all::<ObjectInfo>(info).unwrap_or_default();
    let is_head = key::snap_of(key) == Some(snap::NOSNAP);
    let bytes = if is_head {
        i64::try_from(info.size).unwrap_or(i64::MAX) + info.snap_set.clone_bytes()
    } else {
        0
    };
    Usage {
        objects: 1,
        bytes,
        clones: i64::from(!is_head),
        whiteouts: i64::from(info.whiteout),
    }
}

/// Encodes the usage of clones, which follows objects and bytes in log entries and infos since the
/// versions that have clones.
pub(super) fn encode_clone_usage(w: &mut Writer, usage: Usage) {
    w.i64(usage.clones);
    w.i64(usage.whiteouts);
}

/// Reads what [`encode_clone_usage`] wrote.
pub(super) fn decode_clone_usage(r: &mut Reader<'_>, usage: &mut Usage) -> Result<()> {
    usage.clones = r.i64()?;
    usage.whiteouts = r.i64()?;
    Ok(())
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The change's place in the log.
    pub version: EVersion,
    /// The object's version before.
    pub prior_version: EVersion,
    /// The version reported to the client.
    pub user_version: u64,
    /// The request.
    pub reqid: ReqId,
    /// The object.
    pub object: HObject,
    /// The effect on the object.
    pub op: LogOp,
    /// The client's time of the change.
    pub mtime: UTime,
    /// The result of the request.
    pub return_code: i32,
    /// Result and data of each op, for requests that asked for them.
    pub op_returns: Vec<(i32, Bytes)>,
    /// The PG's usage after the change.
    pub usage: Usage,
    /// The object's clones that were made, changed or removed with it.
    pub clones: Vec<SnapId>,
    /// The changed parts of the object.
    pub dirty: Dirty,
}

impl LogEntry {
    /// The approximate bytes that it takes in memory, which the log's byte limit counts.
    pub fn weight(&self) -> usize {
        let names = self.object.oid.len() + self.object.key.len() + self.object.nspace.len();
        size_of::<Self>()
            + names
            + 8 * self.clones.len()
            + self.dirty.weight()
            + self.op_returns.iter().map(|(_, d)| 40 + d.len()).sum::<usize>()
    }

    /// The entry as stored.
    pub fn to_bytes(&self) -> Bytes {
        let mut w = Writer::with_capacity(192 + self.object.oid.len());
        w.put(self);
        w.into_vec().into()
    }
}

// By hand: a part of the usage came with a later version.
impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.section(VERSION, VERSION, |w| {
            w.put(&self.version);
            w.put(&self.prior_version);
            w.u64(self.user_version);
            w.put(&self.reqid);
            w.put(&self.object);
            w.u8(self.op as u8);
            w.put(&self.mtime);
            w.i32(self.return_code);
            w.put(&self.op_returns);
            w.i64(self.usage.objects);
            w.i64(self.usage.bytes);
            encode_clone_usage(w, self.usage);
            w.put(&self.clones);
            w.put(&self.dirty);
        });
    }
}

impl Decode for LogEntry {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("PG log entry", VERSION, |v, r| {
            let mut e = Self {
                version: r.get()?,
                prior_version: r.get()?,
                user_version: r.u64()?,
                reqid: r.get()?,
                object: r.get()?,
                op: match r.u8()? {
                    0 => LogOp::Modify,
                    1 => LogOp::Delete,
                    2 => LogOp::Error,
                    _ => return Err(Error::Invalid("log op")),
                },
                mtime: r.get()?,
                return_code: r.i32()?,
                op_returns: r.get()?,
                usage: Usage {
                    objects: r.i64()?,
                    bytes: r.i64()?,
                    ..Usage::default()
                },
                clones: Vec::new(),
                dirty: Dirty::whole(),
            };
            if v >= 2 {
                decode_clone_usage(r, &mut e.usage)?;
                e.clones = r.get()?;
            }
            if v >= 3 {
                e.dirty = r.get()?;
            }
            Ok(e)
        })
    }
}

/// The log in memory: entries after `tail` up to `head`, and an index by request.
#[derive(Debug, Clone, Default)]
pub struct PgLog {
    /// Each by itself: a deque of entries would double, and half of each PG's could be empty.
    entries: VecDeque<Box<LogEntry>>,
    /// The newest version of each request that has an entry.
    by_reqid: HashMap<ReqId, EVersion>,
    head: EVersion,
    tail: EVersion,
    bytes: usize,
}

impl PgLog {
    /// An empty log that ends at `at`.
    pub fn empty_at(at: EVersion) -> Self {
        Self {
            head: at,
            tail: at,
            ..Self::default()
        }
    }

    /// A log of these entries, which must ascend and lie after `tail` and not after `head`.
    pub fn from_entries(tail: EVersion, head: EVersion, entries: Vec<LogEntry>) -> Self {
        let mut log = Self::empty_at(tail);
        for e in entries {
            log.append(e);
        }
        log.head = log.head.max(head);
        log
    }

    /// The version of the newest change.
    pub fn head(&self) -> EVersion {
        self.head
    }

    /// The version after which entries are kept.
    pub fn tail(&self) -> EVersion {
        self.tail
    }

    /// The number of entries kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that the entries take in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.entries.iter().map(Box::as_ref)
    }

    /// The newest entry.
    pub fn last(&self) -> Option<&LogEntry> {
        self.entries.back().map(Box::as_ref)
    }

    /// The entries after `v`, oldest first.
    pub fn after(&self, v: EVersion) -> impl Iterator<Item = &LogEntry> {
        let at = self.entries.partition_point(|e| e.version <= v);
        self.entries.range(at..).map(Box::as_ref)
    }

    /// Whether there is an entry with exactly this version.
    pub fn contains(&self, v: EVersion) -> bool {
        self.entries.binary_search_by_key(&v, |e| e.version).is_ok()
    }

    /// The entry of a request that was handled before.
    pub fn find(&self, reqid: &ReqId) -> Option<&LogEntry> {
        let v = *self.by_reqid.get(reqid)?;
        let at = self.entries.binary_search_by_key(&v, |e| e.version).ok()?;
        self.entries.get(at).map(Box::as_ref)
    }

    /// Adds an entry newer than all others.
    pub fn append(&mut self, e: LogEntry) {
        invariant!(
            e.version > self.head || self.entries.is_empty(),
            "versions that ascend in the log";
            head = self.head, version = e.version, object = e.object
        );
        self.head = e.version;
        self.bytes += e.weight();
        // The PG's own changes have no request.
        if e.reqid != ReqId::default() {
            self.by_reqid.insert(e.reqid, e.version);
        }
        self.entries.push_back(Box::new(e));
    }

    /// Removes the entries up to `v`, as the primary does, and returns them.
    pub fn trim_to(&mut self, v: EVersion) -> Vec<LogEntry> {
        let mut gone = Vec::new();
        while self.entries.front().is_some_and(|e| e.version <= v) {
            let Some(e) = self.entries.pop_front() else { break };
            self.let_go(&e);
            self.tail = e.version;
            gone.push(*e);
        }
        invariant!(self.tail <= self.head, "a log to begin before its end"; tail = self.tail, head = self.head);
        gone
    }

    /// Adjusts size and index for an entry that leaves the log.
    fn let_go(&mut self, e: &LogEntry) {
        let weight = e.weight();
        invariant!(
            self.bytes >= weight,
            "an entry that leaves the log to have been counted";
            version = e.version, bytes = self.bytes
        );
        self.bytes -= weight;
        self.forget_request(e.reqid, e.version);
    }

    fn forget_request(&mut self, reqid: ReqId, version: EVersion) {
        if self.by_reqid.get(&reqid) == Some(&version) {
            self.by_reqid.remove(&reqid);
        }
    }

    /// Drops the entries after `v`, which other members do not have; returns their versions.
    pub fn rewind_to(&mut self, v: EVersion) -> Vec<EVersion> {
        let mut gone = Vec::new();
        while let Some(e) = self.entries.pop_back() {
            if e.version <= v {
                self.entries.push_back(e);
                break;
            }
            self.let_go(&e);
            gone.push(e.version);
        }
        self.head = self.head.min(v);
        gone
    }

    /// Makes the log end at `v`, though the entry with that version is not kept.
    pub fn set_head(&mut self, v: EVersion) {
        self.head = self.head.max(v);
        if self.entries.is_empty() {
            self.tail = self.tail.max(v);
        }
    }

    /// Moves the entries for whose object `goes` is true to another log with the same ends, as a PG
    /// is split.
    pub fn split_off(&mut self, mut goes: impl FnMut(&HObject) -> bool) -> Self {
        let all = std::mem::take(&mut self.entries);
        let count = all.len();
        let (mut here, mut there) = (Self::empty_at(self.tail), Self::empty_at(self.tail));
        let head = self.head;
        for e in all {
            if goes(&e.object) {
                there.append(*e)
            } else {
                here.append(*e)
            }
        }
        invariant!(
            here.len() + there.len() == count,
            "each entry of a log that is split to be in one of both";
            here = here.len(), there = there.len(), before = count
        );
        here.head = head;
        there.head = head;
        *self = here;
        there
    }
}

/// The objects that entries name, with the clones.
pub(super) fn objects<'a>(entries: impl Iterator<Item = &'a LogEntry>, out: &mut BTreeSet<Bytes>) {
    for e in entries.filter(|e| e.op != LogOp::Error) {
        let head = key::object_key(&e.object);
        out.extend(e.clones.iter().map(|id| key::clone_key(&head, *id)));
        out.insert(head);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spirula_denc::{EntityName, EntityType, decode_all};
    use spirula_maps::{Epoch, ObjectName};

    use super::*;

    fn entry(v: u64) -> LogEntry {
        LogEntry {
            version: EVersion::new(Epoch::new(3), v),
            prior_version: EVersion::ZERO,
            user_version: v,
            reqid: ReqId {
                name: EntityName::new(EntityType::CLIENT, 4),
                tid: v,
                inc: 0,
            },
            object: HObject {
                oid: ObjectName::from(format!("o{v}")),
                pool: 1,
                hash: v as u32,
                ..HObject::min()
            },
            op: LogOp::Modify,
            mtime: UTime::from_secs(5),
            return_code: -3,
            op_returns: vec![(1, Bytes::from_static(b"x"))],
            usage: Usage {
                objects: 1,
                bytes: 2,
                clones: 3,
                whiteouts: 4,
            },
            clones: vec![9],
            dirty: Dirty::default(),
        }
    }

    #[test]
    fn entries_round_trip() {
        assert_eq!(decode_all(&entry(7).to_bytes()), Ok(entry(7)));
    }

    #[test]
    fn an_entry_of_the_second_version_says_nothing_of_what_is_clean() {
        let mut bytes = entry(7).to_bytes().to_vec();
        // Version, compat, length of four bytes; what is new is one byte at the end.
        bytes.pop();
        bytes[..2].copy_from_slice(&[2, 2]);
        let len = u32::from_le_bytes(bytes[2..6].try_into().unwrap()) - 1;
        bytes[2..6].copy_from_slice(&len.to_le_bytes());
        let old = LogEntry {
            dirty: Dirty::whole(),
            ..entry(7)
        };
        assert_eq!(decode_all(&bytes), Ok(old));
    }

    #[test]
    #[should_panic(expected = "expected versions that ascend in the log")]
    fn an_entry_that_is_no_newer_than_the_log_ends_the_osd() {
        let mut log = PgLog::from_entries(EVersion::ZERO, EVersion::ZERO, (1..=3).map(entry).collect());
        log.append(entry(3));
    }

    #[test]
    fn requests_are_found_until_trimmed_or_rewound() {
        let mut log = PgLog::from_entries(EVersion::ZERO, EVersion::ZERO, (1..=10).map(entry).collect());
        assert_eq!(log.find(&entry(4).reqid).map(|e| e.version.version), Some(4));
        assert_eq!(log.trim_to(EVersion::new(Epoch::new(3), 3)).len(), 3);
        assert_eq!(log.find(&entry(3).reqid), None);
        assert_eq!(log.rewind_to(EVersion::new(Epoch::new(3), 8)).len(), 2);
        assert_eq!(log.find(&entry(9).reqid), None);
        assert_eq!((log.tail().version, log.head().version, log.len()), (3, 8, 5));
        assert_eq!(log.after(EVersion::new(Epoch::new(3), 6)).count(), 2);
        let odd = log.split_off(|o| o.hash % 2 == 1);
        assert_eq!(
            (log.len(), odd.len(), odd.head(), log.head()),
            (
                3,
                2,
                EVersion::new(Epoch::new(3), 8),
                EVersion::new(Epoch::new(3), 8)
            )
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(b in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_all::<LogEntry>(&b);
        }
    }
}
