//! Events of a journal: `EventEntry` of Ceph's `src/librbd/journal/Types.h`, whose other file says
//! which fields came with which version.

use bytes::Bytes;
use spirula_classes::rbd::{Features, SnapshotNamespace};
use spirula_denc::{Decode, Error, Reader, Result, UTime, Writer};

/// The version of events that is written.
const VERSION: u8 = 5;
const COMPAT: u8 = 1;
/// Bytes of a write's event besides its data: two sections, type, offset, length, the data's
/// length, the time.
const WRITE_OVERHEAD: usize = 44;

const DISCARD: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const OP_FINISH: u32 = 3;
const SNAP_CREATE: u32 = 4;
const SNAP_REMOVE: u32 = 5;
const SNAP_RENAME: u32 = 6;
const SNAP_PROTECT: u32 = 7;
const SNAP_UNPROTECT: u32 = 8;
const SNAP_ROLLBACK: u32 = 9;
const RENAME: u32 = 10;
const RESIZE: u32 = 11;
const FLATTEN: u32 = 12;
const DEMOTE_PROMOTE: u32 = 13;
const SNAP_LIMIT: u32 = 14;
const UPDATE_FEATURES: u32 = 15;
const METADATA_SET: u32 = 16;
const METADATA_REMOVE: u32 = 17;
const WRITE_SAME: u32 = 18;
const COMPARE_AND_WRITE: u32 = 19;

/// A change of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Discard {
        offset: u64,
        len: u64,
        /// In each object only the part aligned to this many bytes is discarded; 0 for every byte.
        granularity: u32,
    },
    Write {
        offset: u64,
        data: Bytes,
    },
    /// A write of the same data, repeated over the range.
    WriteSame {
        offset: u64,
        len: u64,
        data: Bytes,
    },
    CompareAndWrite {
        offset: u64,
        old: Bytes,
        new: Bytes,
    },
    /// All writes before are durable.
    Flush,
    /// An operation begins. Its [`Event::End`] says whether it was done.
    Begin {
        /// The operation's number among those of its writer.
        number: u64,
        operation: Operation,
    },
    /// An operation has ended, with 0 or a negative errno.
    End {
        number: u64,
        result: i32,
    },
    /// The role of primary passes to another cluster, or to this one.
    DemotePromote,
    /// An event of a type that is not known here.
    Unknown(u32),
}

/// An operation on the whole image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    SnapCreate {
        namespace: SnapshotNamespace,
        name: String,
    },
    SnapRemove {
        namespace: SnapshotNamespace,
        name: String,
    },
    SnapRename {
        id: u64,
        from: String,
        to: String,
    },
    SnapProtect {
        namespace: SnapshotNamespace,
        name: String,
    },
    SnapUnprotect {
        namespace: SnapshotNamespace,
        name: String,
    },
    SnapRollback {
        namespace: SnapshotNamespace,
        name: String,
    },
    SnapLimit(u64),
    Rename(String),
    Resize(u64),
    Flatten,
    UpdateFeatures {
        features: Features,
        enabled: bool,
    },
    MetadataSet {
        key: String,
        value: String,
    },
    MetadataRemove {
        key: String,
    },
}

impl Event {
    /// A write, as events of at most `max` bytes.
    pub(crate) fn writes(offset: u64, mut data: Bytes, max: usize) -> Vec<Self> {
        let max = max.saturating_sub(WRITE_OVERHEAD).max(1);
        let mut events = Vec::with_capacity(data.len().div_ceil(max));
        let mut at = offset;
        while !data.is_empty() {
            let part = data.split_to(max.min(data.len()));
            let len = part.len() as u64;
            events.push(Self::Write {
                offset: at,
                data: part,
            });
            at += len;
        }
        events
    }

    /// Encodes the event for an entry, with the time at which it is appended.
    pub(crate) fn encode(&self, time: UTime) -> Vec<u8> {
        let mut w = Writer::new();
        w.section(VERSION, COMPAT, |w| self.put(w));
        w.section(1, 1, |w| w.put(&time));
        w.into_vec()
    }

    fn put(&self, w: &mut Writer) {
        match self {
            Self::Discard {
                offset,
                len,
                granularity,
            } => {
                w.u32(DISCARD);
                w.u64(*offset);
                w.u64(*len);
                w.bool(*granularity > 0);
                w.u32(*granularity);
            }
            Self::Write { offset, data } => {
                w.u32(WRITE);
                w.u64(*offset);
                w.u64(data.len() as u64);
                w.put(data);
            }
            Self::WriteSame { offset, len, data } => {
                w.u32(WRITE_SAME);
                w.u64(*offset);
                w.u64(*len);
                w.put(data);
            }
            Self::CompareAndWrite { offset, old, new } => {
                w.u32(COMPARE_AND_WRITE);
                w.u64(*offset);
                w.u64(new.len() as u64);
                w.put(old);
                w.put(new);
            }
            Self::Flush => w.u32(FLUSH),
            Self::Begin { number, operation } => {
                w.u32(operation.kind());
                w.u64(*number);
                operation.put(w);
            }
            Self::End { number, result } => {
                w.u32(OP_FINISH);
                // Ceph writes it twice.
                w.u64(*number);
                w.u64(*number);
                w.i32(*result);
            }
            Self::DemotePromote => w.u32(DEMOTE_PROMOTE),
            Self::Unknown(kind) => w.u32(*kind),
        }
    }

    fn get(version: u8, r: &mut Reader<'_>) -> Result<Self> {
        let kind = r.u32()?;
        Ok(match kind {
            DISCARD => {
                let (offset, len) = (r.u64()?, r.u64()?);
                let skips_parts = version >= 4 && r.bool()?;
                let granularity = match version {
                    5.. => r.u32()?,
                    _ if skips_parts => u32::MAX,
                    _ => 0,
                };
                Self::Discard {
                    offset,
                    len,
                    granularity,
                }
            }
            WRITE => {
                let offset = r.u64()?;
                let len = r.u64()?;
                let data: Bytes = r.get()?;
                if data.len() as u64 != len {
                    return Err(Error::Invalid("length of a write"));
                }
                Self::Write { offset, data }
            }
            WRITE_SAME => Self::WriteSame {
                offset: r.u64()?,
                len: r.u64()?,
                data: r.get()?,
            },
            COMPARE_AND_WRITE => {
                let offset = r.u64()?;
                let _len = r.u64()?;
                Self::CompareAndWrite {
                    offset,
                    old: r.get()?,
                    new: r.get()?,
                }
            }
            FLUSH => Self::Flush,
            OP_FINISH => {
                let _number = r.u64()?;
                Self::End {
                    number: r.u64()?,
                    result: r.i32()?,
                }
            }
            DEMOTE_PROMOTE => Self::DemotePromote,
            _ => match Operation::is_one(kind) {
                true => Self::Begin {
                    number: r.u64()?,
                    operation: Operation::get(kind, version, r)?,
                },
                false => Self::Unknown(kind),
            },
        })
    }
}

impl Decode for Event {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        // When it happened, which follows, is of no use here.
        r.section("librbd::journal::EventEntry", VERSION, Self::get)
    }
}

impl Operation {
    fn kind(&self) -> u32 {
        match self {
            Self::SnapCreate { .. } => SNAP_CREATE,
            Self::SnapRemove { .. } => SNAP_REMOVE,
            Self::SnapRename { .. } => SNAP_RENAME,
            Self::SnapProtect { .. } => SNAP_PROTECT,
            Self::SnapUnprotect { .. } => SNAP_UNPROTECT,
            Self::SnapRollback { .. } => SNAP_ROLLBACK,
            Self::SnapLimit(_) => SNAP_LIMIT,
            Self::Rename(_) => RENAME,
            Self::Resize(_) => RESIZE,
            Self::Flatten => FLATTEN,
            Self::UpdateFeatures { .. } => UPDATE_FEATURES,
            Self::MetadataSet { .. } => METADATA_SET,
            Self::MetadataRemove { .. } => METADATA_REMOVE,
        }
    }

    fn is_one(kind: u32) -> bool {
        matches!(kind, SNAP_CREATE..=FLATTEN | SNAP_LIMIT..=METADATA_REMOVE)
    }

    fn put(&self, w: &mut Writer) {
        match self {
            Self::SnapCreate { namespace, name }
            | Self::SnapRemove { namespace, name }
            | Self::SnapProtect { namespace, name }
            | Self::SnapUnprotect { namespace, name }
            | Self::SnapRollback { namespace, name } => {
                w.string(name);
                w.put(namespace);
            }
            Self::SnapRename { id, from, to } => {
                w.string(to);
                w.u64(*id);
                w.string(from);
            }
            Self::SnapLimit(limit) => w.u64(*limit),
            Self::Rename(name) => w.string(name),
            Self::Resize(size) => w.u64(*size),
            Self::Flatten => {}
            Self::UpdateFeatures { features, enabled } => {
                w.put(features);
                w.bool(*enabled);
            }
            Self::MetadataSet { key, value } => {
                w.string(key);
                w.string(value);
            }
            Self::MetadataRemove { key } => w.string(key),
        }
    }

    /// The name and the kind of a snapshot.
    fn snapshot(kind: u32, version: u8, r: &mut Reader<'_>) -> Result<(String, SnapshotNamespace)> {
        let name = r.string()?;
        let has_namespace = version >= 4 || (version == 3 && kind == SNAP_CREATE);
        let namespace = match has_namespace {
            true => r.get()?,
            false => SnapshotNamespace::User,
        };
        Ok((name, namespace))
    }

    fn get(kind: u32, version: u8, r: &mut Reader<'_>) -> Result<Self> {
        Ok(match kind {
            SNAP_CREATE | SNAP_REMOVE | SNAP_PROTECT | SNAP_UNPROTECT | SNAP_ROLLBACK => {
                let (name, namespace) = Self::snapshot(kind, version, r)?;
                match kind {
                    SNAP_CREATE => Self::SnapCreate { namespace, name },
                    SNAP_REMOVE => Self::SnapRemove { namespace, name },
                    SNAP_PROTECT => Self::SnapProtect { namespace, name },
                    SNAP_UNPROTECT => Self::SnapUnprotect { namespace, name },
                    _ => Self::SnapRollback { namespace, name },
                }
            }
            SNAP_RENAME => {
                let (to, id) = (r.string()?, r.u64()?);
                let from = if version >= 2 { r.string()? } else { String::new() };
                Self::SnapRename { id, from, to }
            }
            SNAP_LIMIT => Self::SnapLimit(r.u64()?),
            RENAME => Self::Rename(r.string()?),
            RESIZE => Self::Resize(r.u64()?),
            FLATTEN => Self::Flatten,
            UPDATE_FEATURES => Self::UpdateFeatures {
                features: r.get()?,
                enabled: r.bool()?,
            },
            METADATA_SET => Self::MetadataSet {
                key: r.string()?,
                value: r.string()?,
            },
            METADATA_REMOVE => Self::MetadataRemove { key: r.string()? },
            _ => return Err(Error::Invalid("operation of a journal")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::entry::{self, Parsed};

    /// The entries of an image's journal that Ceph 16.2.15's librbd wrote, in order: the first with
    /// tag 1 but the last two.
    const ENTRIES: &[u8] = include_bytes!("../../tests/data/journal_entries.bin");

    /// The events in them; operations with their ends.
    fn told() -> Vec<Event> {
        let user = || (SnapshotNamespace::User, "t".to_owned());
        let snapshot = |make: fn((SnapshotNamespace, String)) -> Operation| make(user());
        let operations = [
            Operation::SnapCreate {
                namespace: SnapshotNamespace::User,
                name: "s".to_owned(),
            },
            Operation::SnapRename {
                id: 4,
                from: "s".to_owned(),
                to: "t".to_owned(),
            },
            snapshot(|(namespace, name)| Operation::SnapProtect { namespace, name }),
            snapshot(|(namespace, name)| Operation::SnapUnprotect { namespace, name }),
            snapshot(|(namespace, name)| Operation::SnapRollback { namespace, name }),
            Operation::SnapLimit(3),
            Operation::Resize(8 << 20),
            snapshot(|(namespace, name)| Operation::SnapRemove { namespace, name }),
            Operation::MetadataSet {
                key: "k".to_owned(),
                value: "v".to_owned(),
            },
            Operation::MetadataRemove { key: "k".to_owned() },
            Operation::UpdateFeatures {
                features: Features::OBJECT_MAP.with(Features::FAST_DIFF),
                enabled: true,
            },
        ];
        let write = Event::Write {
            offset: 4096,
            data: Bytes::from_static(b"data"),
        };
        let discard = Event::Discard {
            offset: 0,
            len: 65536,
            granularity: 65536,
        };
        let begun_and_ended = |(number, operation)| {
            let end = Event::End { number, result: 0 };
            [Event::Begin { number, operation }, end]
        };
        let renamed = Operation::Rename("g1660x".to_owned());
        let operations = (1..).zip(operations).chain([(1, renamed)]);
        let first = [write, discard, Event::Flush];
        first
            .into_iter()
            .chain(operations.flat_map(begun_and_ended))
            .collect()
    }

    #[test]
    fn entries_are_read_and_written_as_librbd_does() {
        let mut rest = ENTRIES;
        let mut number = 0;
        let told = told();
        for (n, event) in told.iter().enumerate() {
            let Parsed::Entry { id, payload, len } = entry::parse(rest) else {
                panic!("no entry {n}");
            };
            let tag = if n < told.len() - 2 { 1 } else { 2 };
            number = if n == told.len() - 2 { 0 } else { number };
            assert_eq!((id.tag, id.number), (tag, number), "entry {n}");
            assert_eq!(Reader::new(payload).get::<Event>().as_ref(), Ok(event));
            let time = Reader::new(&payload[payload.len() - 8..]).get().unwrap();
            assert_eq!(event.encode(time), payload, "{event:?}");
            assert_eq!(entry::encode(id, payload), rest[..len], "{event:?}");
            rest = &rest[len..];
            number += 1;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn what_no_tool_writes_at_will_is_read_as_it_was_written() {
        let events = [
            Event::WriteSame {
                offset: 1,
                len: 8,
                data: Bytes::from_static(b"same"),
            },
            Event::CompareAndWrite {
                offset: 2,
                old: Bytes::from_static(b"old"),
                new: Bytes::from_static(b"new"),
            },
            Event::Begin {
                number: 3,
                operation: Operation::Flatten,
            },
            Event::DemotePromote,
            Event::Unknown(99),
        ];
        for event in events {
            let encoded = event.encode(UTime::ZERO);
            assert_eq!(Reader::new(&encoded).get(), Ok(event));
            // Cut anywhere it is an error, or an event of an older version.
            for len in 0..encoded.len() {
                let _ = Reader::new(&encoded[..len]).get::<Event>();
            }
        }
    }

    #[test]
    fn writes_are_cut_into_events() {
        let data = Bytes::from((0..=255).collect::<Vec<u8>>());
        let max = WRITE_OVERHEAD + 100;
        let events = Event::writes(1000, data.clone(), max);
        let mut back = Vec::new();
        for event in &events {
            assert!(event.encode(UTime::ZERO).len() <= max);
            let Event::Write { offset, data } = event else {
                panic!("{event:?}");
            };
            assert_eq!(*offset, 1000 + back.len() as u64);
            back.extend_from_slice(data);
        }
        assert_eq!((events.len(), &back[..]), (3, &data[..]));
    }
}
