//! A transaction of a PG: the atomic change of the store by one client op, or one step of peering.
//!
//! The primary builds it once; it goes to the local store and, encoded, to the replicas. Payload
//! bytes are [`Bytes`] throughout: they are shared with the message they arrived in.

use bytes::Bytes;
use spirula_denc::{Error, Reader, Result, Writer};
use spirula_erasure::{FragmentOp, Step};
use spirula_invariant::impossible;
use spirula_maps::SnapId;
use spirula_proto::BytesList;
use spirula_store::{MAX_ATTR_NAME, MAX_OBJECT_SIZE, ObjectKey};

use super::coded::message as coded;
use super::key;
use super::placed_data::PlacedData;

/// A change to one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectOp {
    /// Creates the object if it does not exist.
    Touch,
    /// Writes bytes at an offset.
    Write {
        /// Offset in the object.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Writes data that the store has placed, to whole blocks. A primary names it by its number, and
    /// each member has a placement of its own.
    WritePlaced {
        /// Offset in the object, a multiple of 4 KiB.
        offset: u64,
        /// Bytes, as many as were placed.
        len: u64,
        /// The primary's number for the data.
        number: u32,
        /// The data; `None` on the wire.
        placement: Option<PlacedData>,
    },
    /// Makes a range read as zeros; does not extend the object.
    Zero {
        /// Offset in the object.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Cuts or extends (with zeros) to a size.
    Truncate {
        /// The new size in bytes.
        size: u64,
    },
    /// Removes the object with all its attributes and its omap.
    Remove,
    /// Sets the encoded object info.
    SetInfo(Bytes),
    /// Sets an attribute.
    SetAttr {
        /// Its name.
        name: Bytes,
        /// Its value.
        value: Bytes,
    },
    /// Removes an attribute, if there.
    RmAttr(Bytes),
    /// Sets omap pairs.
    OmapSet(Vec<(Bytes, Bytes)>),
    /// Removes omap keys, those that are there.
    OmapRm(Vec<Bytes>),
    /// Removes the omap keys of a range.
    OmapRmRange {
        /// The first key.
        from: Bytes,
        /// The key after the last.
        to: Bytes,
    },
    /// Removes all omap keys and the header.
    OmapClear,
    /// Sets the omap header.
    OmapHeader(Bytes),
    /// Makes the object an independent copy of the object with this key (data, info, attributes,
    /// omap), replacing its earlier content.
    CloneOf(Bytes),
    /// As [`ObjectOp::CloneOf`], without the pairs of the omap, which may be many.
    CloneOfData(Bytes),
    /// Moves the object with this key here, replacing the earlier content; the other object is gone
    /// then.
    MoveOf(Bytes),
    /// A step of a change of an object that is erasure-coded: each member makes changes of its
    /// fragment of it.
    Step(Step),
    /// What the members stage of a large change of an object that is erasure-coded. Each is sent what
    /// becomes of its own fragment ([`ObjectOp::Stage`]).
    Portion {
        /// The steps.
        steps: Vec<Step>,
        /// The object that is to be changed.
        base: Bytes,
    },
    /// Writes of whole blocks of a fragment, into a staging object. Differences are added to what the
    /// fragment of another object has.
    Stage {
        /// Writes and additions.
        ops: Vec<FragmentOp>,
        /// The key of that object.
        base: Bytes,
    },
    /// Takes over each block that the staging object with this key has, in its place. The staging
    /// object is gone then.
    Take(Bytes),
    /// Notes which snapshots a clone stands for, so that it is found when one is removed.
    NoteSnaps {
        /// The snapshots that it now stands for.
        add: Vec<SnapId>,
        /// The snapshots for which it no longer does.
        remove: Vec<SnapId>,
    },
    /// Notes that no clone from this key up to another one stands for these snapshots.
    ForgetSnaps {
        /// The key after the last.
        to: Bytes,
        /// Snapshots.
        snaps: Vec<SnapId>,
    },
}

/// The store's block size, which decides what goes through its log.
const BLOCK: usize = 4096;
const DIRECT_MIN: usize = 64 << 10;
const GROUP_BYTES: usize = 1 << 20;

/// A change to the PG's own records: info and log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetaOp {
    /// Sets a record.
    Put(Bytes, Bytes),
    /// Removes a record, if there.
    Delete(Bytes),
    /// Removes the records of a range of keys.
    DeleteRange(Bytes, Bytes),
}

/// Changes that happen together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// Objects by store key, and what happens to each, in order.
    pub objects: Vec<(Bytes, Vec<ObjectOp>)>,
    /// Records.
    pub meta: Vec<MetaOp>,
}

/// Bytes that a change, or a pair of an omap, takes in the log besides its keys and values.
pub const PAIR_LOGGED: usize = 128;

/// The bytes that zeros, or another size, take in the log besides [`PAIR_LOGGED`] and the object's
/// key.
pub(super) const ZERO_LOGGED: usize = 3 * BLOCK;

/// The bytes that a write of `len` bytes takes in the log besides, if the store writes from
/// `direct_min` on directly.
fn write_logged(len: usize, direct_min: usize) -> usize {
    let blocks = if len < direct_min { len + BLOCK } else { 3 * BLOCK };
    blocks + len / 100
}

/// The bytes that a step takes in the log besides those that it carries.
pub(super) fn step_logged(step: &Step) -> usize {
    match step {
        Step::Write { offset, data: bytes } | Step::Patch { offset, delta: bytes } => {
            let (first, block) = (*offset % BLOCK as u64, BLOCK as u64);
            let blocks = (first + bytes.len() as u64).div_ceil(block);
            usize::try_from(blocks * block).unwrap_or(usize::MAX)
        }
        Step::Punch { .. } | Step::Truncate { .. } | Step::Discard { .. } => ZERO_LOGGED,
        Step::Stripes {
            pieces, fresh: true, ..
        } => pieces.len() * 2 * BLOCK,
        Step::Stripes { pieces, .. } => (pieces.len() + 1) * ZERO_LOGGED,
    }
}

/// The bytes that a write among few others takes in the log besides.
pub(super) fn small_write_logged(len: usize) -> usize {
    write_logged(len, DIRECT_MIN)
}

/// The most bytes that changes of objects take in a store's log, all in one transaction: large
/// writes go to their place directly.
pub fn log_bytes(objects: &[(Bytes, Vec<ObjectOp>)]) -> usize {
    let direct_min = direct_min(objects.iter().flat_map(|(_, ops)| ops));
    let of = |(key, ops): &(Bytes, Vec<ObjectOp>)| {
        let bytes = ops.iter().map(|op| op.log_bytes(key.len(), direct_min));
        bytes.sum::<usize>()
    };
    objects.iter().map(of).sum()
}

/// The bytes of these changes that are copied wherever they go, as they are not in buffers of a
/// pool: xattrs, omap, infos.
pub fn copied_bytes(objects: &[(Bytes, Vec<ObjectOp>)]) -> usize {
    let pooled = |op: &&ObjectOp| {
        matches!(
            op,
            ObjectOp::Write { .. }
                | ObjectOp::WritePlaced { .. }
                | ObjectOp::Step(_)
                | ObjectOp::Stage { .. }
                | ObjectOp::Portion { .. }
        )
    };
    let of = |(key, ops): &(Bytes, Vec<ObjectOp>)| {
        let copied = ops.iter().filter(|op| !pooled(op));
        copied.map(|op| op.log_bytes(key.len(), 0)).sum::<usize>()
    };
    objects.iter().map(of).sum()
}

/// Whether a store accepts these changes of objects, whatever it contains: no key or name is too
/// long, and nothing ends beyond the largest possible object.
pub fn is_storable(objects: &[(Bytes, Vec<ObjectOp>)]) -> bool {
    let ends_well = |offset: u64, len: u64| offset.checked_add(len).is_some_and(|end| end <= MAX_OBJECT_SIZE);
    let takes = |op: &ObjectOp| match op {
        ObjectOp::Write { offset, data } => ends_well(*offset, data.len() as u64),
        ObjectOp::WritePlaced {
            offset,
            len,
            placement,
            ..
        } => placement.is_some() && offset.is_multiple_of(BLOCK as u64) && ends_well(*offset, *len),
        ObjectOp::Zero { offset, len } => ends_well(*offset, *len),
        ObjectOp::Truncate { size } => ends_well(*size, 0),
        ObjectOp::Step(step) => ends_well(step.range().offset, step.range().len),
        ObjectOp::Stage { ops, base } => {
            base.len() <= ObjectKey::MAX_LEN
                && ops.iter().all(|op| {
                    let range = op.range();
                    ends_well(range.offset, range.len)
                })
        }
        ObjectOp::SetAttr { name, .. } => name.len() <= MAX_ATTR_NAME,
        ObjectOp::CloneOf(source)
        | ObjectOp::CloneOfData(source)
        | ObjectOp::MoveOf(source)
        | ObjectOp::Take(source) => source.len() <= ObjectKey::MAX_LEN,
        _ => true,
    };
    objects
        .iter()
        .all(|(key, ops)| key.len() <= ObjectKey::MAX_LEN && ops.iter().all(takes))
}

/// As [`log_bytes`], for an object whose key is short.
pub fn log_bytes_of(ops: &[ObjectOp]) -> usize {
    let direct_min = direct_min(ops.iter());
    ops.iter().map(|op| op.log_bytes(0, direct_min)).sum()
}

/// The length from which on the store writes data of these changes to its place directly.
fn direct_min<'a>(ops: impl Iterator<Item = &'a ObjectOp>) -> usize {
    let small: usize = ops.map(ObjectOp::written).filter(|n| *n < DIRECT_MIN).sum();
    if small > GROUP_BYTES {
        2 * BLOCK
    } else {
        DIRECT_MIN
    }
}

/// Divides changes of records among transactions that log about `max` bytes each, unless a single
/// record is larger.
pub fn divide_records(all: impl Iterator<Item = MetaOp>, max: usize) -> Vec<Txn> {
    let (mut out, mut used) = (Vec::<Txn>::new(), usize::MAX);
    for op in all {
        let bytes = op.log_bytes();
        used = used.saturating_add(bytes);
        if let Some(last) = out.last_mut().filter(|_| used <= max) {
            last.meta.push(op);
        } else {
            out.push(Txn {
                objects: Vec::new(),
                meta: vec![op],
            });
            used = bytes;
        }
    }
    out
}

impl MetaOp {
    /// The most bytes that the change takes in the store's log.
    fn log_bytes(&self) -> usize {
        let payload = match self {
            Self::Put(a, b) | Self::DeleteRange(a, b) => a.len() + b.len(),
            Self::Delete(key) => key.len(),
        };
        payload + PAIR_LOGGED
    }
}

impl Txn {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.meta.is_empty()
    }

    /// Bytes of payload.
    pub fn data_len(&self) -> usize {
        let ops = self.objects.iter().flat_map(|(_, ops)| ops);
        ops.map(ObjectOp::written).sum()
    }

    /// Encodes the changes to objects (records are each OSD's own); payload bytes are pushed to
    /// `data`.
    pub fn encode_objects(&self, w: &mut Writer, data: &mut BytesList) {
        /// Room for what is encoded besides: a writer that grows takes twice what it needs.
        const BESIDES: usize = 16 << 10;
        let copied = copied_bytes(&self.objects);
        if copied > BESIDES {
            w.reserve(copied + BESIDES);
        }
        w.count(self.objects.len());
        for (key, ops) in &self.objects {
            w.blob(key);
            w.count(ops.len());
            for op in ops {
                op.encode(w, data);
            }
        }
    }

    /// Decodes what [`Txn::encode_objects`] wrote.
    ///
    /// # Errors
    /// Where the input is truncated, or its payload is not in `data`.
    pub fn decode_objects(r: &mut Reader<'_>, data: &BytesList) -> Result<Self> {
        let n = r.count(8)?;
        let mut objects = Vec::with_capacity(n);
        let mut at = 0;
        for _ in 0..n {
            let key = Bytes::copy_from_slice(r.blob()?);
            let m = r.count(1)?;
            let mut ops = Vec::with_capacity(m.min(64));
            for _ in 0..m {
                ops.push(ObjectOp::decode(r, data, &mut at)?);
            }
            objects.push((key, ops));
        }
        Ok(Self {
            objects,
            meta: Vec::new(),
        })
    }
}

impl ObjectOp {
    /// Bytes of data.
    fn written(&self) -> usize {
        match self {
            Self::Write { data, .. } => data.len(),
            Self::WritePlaced { len, .. } => usize::try_from(*len).unwrap_or(usize::MAX),
            Self::Step(step) => step.bytes(),
            Self::Portion { steps, .. } => steps.iter().map(Step::bytes).sum(),
            Self::Stage { ops, .. } => ops.iter().map(|op| coded::data_of(op).len()).sum(),
            _ => 0,
        }
    }

    /// The object's key, of `key` bytes, is logged with each change of it, and is part of the key
    /// of each record about a snapshot.
    fn log_bytes(&self, key: usize, direct_min: usize) -> usize {
        let record = key + PAIR_LOGGED;
        let payload = match self {
            Self::Write { data, .. } => write_logged(data.len(), direct_min),
            Self::WritePlaced { .. } => write_logged(self.written(), direct_min),
            Self::Zero { .. } | Self::Truncate { .. } => ZERO_LOGGED,
            // As it comes, as parts of blocks of the fragment, and to be made again.
            Self::Step(step) => 3 * step.bytes() + step_logged(step),
            Self::SetInfo(b) | Self::OmapHeader(b) => b.len(),
            Self::SetAttr { name, value } => name.len() + value.len(),
            Self::OmapSet(pairs) => pairs.iter().map(|(k, v)| k.len() + v.len() + PAIR_LOGGED).sum(),
            Self::OmapRm(keys) => keys.iter().map(|k| k.len() + PAIR_LOGGED).sum(),
            Self::OmapRmRange { from, to } => from.len() + to.len(),
            Self::CloneOf(source) | Self::CloneOfData(source) | Self::MoveOf(source) => source.len(),
            // A range of blocks, or a few.
            Self::Take(source) => source.len() + 2 * ZERO_LOGGED,
            Self::Portion { steps, .. } => {
                let bytes = steps.iter().map(|step| write_logged(step.bytes(), direct_min));
                bytes.sum()
            }
            Self::Stage { ops, .. } => {
                let bytes = ops
                    .iter()
                    .map(|op| write_logged(coded::data_of(op).len(), direct_min));
                bytes.sum()
            }
            Self::NoteSnaps { add, remove } => (add.len() + remove.len()) * record,
            Self::ForgetSnaps { to, snaps } => snaps.len() * (record + to.len() + PAIR_LOGGED),
            Self::RmAttr(name) => name.len(),
            Self::Touch | Self::Remove | Self::OmapClear => 0,
        };
        payload + record
    }

    fn encode(&self, w: &mut Writer, payload: &mut BytesList) {
        match self {
            Self::Touch => w.u8(0),
            Self::Write { offset, data } => {
                w.u8(1);
                w.u64(*offset);
                w.count(data.len());
                payload.push(data.clone());
            }
            Self::Zero { offset, len } => {
                w.u8(2);
                w.u64(*offset);
                w.u64(*len);
            }
            Self::Truncate { size } => {
                w.u8(3);
                w.u64(*size);
            }
            Self::Remove => w.u8(4),
            Self::SetInfo(info) => {
                w.u8(5);
                w.put(info);
            }
            Self::SetAttr { name, value } => {
                w.u8(6);
                w.put(name);
                w.put(value);
            }
            Self::RmAttr(name) => {
                w.u8(7);
                w.put(name);
            }
            Self::OmapSet(pairs) => {
                w.u8(8);
                w.put(pairs);
            }
            Self::OmapRm(keys) => {
                w.u8(9);
                w.put(keys);
            }
            Self::OmapRmRange { from, to } => {
                w.u8(10);
                w.put(from);
                w.put(to);
            }
            Self::OmapClear => w.u8(11),
            Self::OmapHeader(header) => {
                w.u8(12);
                w.put(header);
            }
            Self::CloneOf(source) => {
                w.u8(13);
                w.put(source);
            }
            Self::NoteSnaps { add, remove } => {
                w.u8(14);
                w.put(add);
                w.put(remove);
            }
            Self::ForgetSnaps { to, snaps } => {
                w.u8(15);
                w.put(to);
                w.put(snaps);
            }
            Self::CloneOfData(source) => {
                w.u8(16);
                w.put(source);
            }
            Self::MoveOf(source) => {
                w.u8(17);
                w.put(source);
            }
            Self::Step(step) => {
                w.u8(18);
                coded::encode_step(step, w, payload);
            }
            Self::Stage { ops, base } => {
                w.u8(19);
                w.put(base);
                coded::encode_fragment_ops(ops, w, payload);
            }
            Self::Take(stage) => {
                w.u8(20);
                w.put(stage);
            }
            Self::WritePlaced {
                offset, len, number, ..
            } => {
                w.u8(21);
                w.u64(*offset);
                w.u64(*len);
                w.u32(*number);
            }
            Self::Portion { base, .. } => {
                impossible!("each member to be sent its own share of a large change"; object = key::named(base))
            }
        }
    }

    fn decode(r: &mut Reader<'_>, payload: &BytesList, at: &mut usize) -> Result<Self> {
        Ok(match r.u8()? {
            0 => Self::Touch,
            1 => {
                let offset = r.u64()?;
                let len = usize::try_from(r.u32()?).map_err(|_| Error::Invalid("payload length"))?;
                let data = payload.slice(*at, len).ok_or(Error::Invalid("payload length"))?;
                *at += len;
                offset
                    .checked_add(len as u64)
                    .ok_or(Error::Invalid("payload offset"))?;
                Self::Write { offset, data }
            }
            2 => Self::Zero {
                offset: r.u64()?,
                len: r.u64()?,
            },
            3 => Self::Truncate { size: r.u64()? },
            4 => Self::Remove,
            5 => Self::SetInfo(r.get()?),
            6 => Self::SetAttr {
                name: r.get()?,
                value: r.get()?,
            },
            7 => Self::RmAttr(r.get()?),
            8 => Self::OmapSet(r.get()?),
            9 => Self::OmapRm(r.get()?),
            10 => Self::OmapRmRange {
                from: r.get()?,
                to: r.get()?,
            },
            11 => Self::OmapClear,
            12 => Self::OmapHeader(r.get()?),
            13 => Self::CloneOf(r.get()?),
            14 => Self::NoteSnaps {
                add: r.get()?,
                remove: r.get()?,
            },
            15 => Self::ForgetSnaps {
                to: r.get()?,
                snaps: r.get()?,
            },
            16 => Self::CloneOfData(r.get()?),
            17 => Self::MoveOf(r.get()?),
            18 => Self::Step(coded::decode_step(r, payload, at)?),
            19 => Self::Stage {
                base: r.get()?,
                ops: coded::decode_fragment_ops(r, payload, at)?,
            },
            20 => Self::Take(r.get()?),
            21 => Self::WritePlaced {
                offset: r.u64()?,
                len: r.u64()?,
                number: r.u32()?,
                placement: None,
            },
            _ => return Err(Error::Invalid("object op")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_writes_weigh_as_the_store_logs_them() {
        let write = |len: usize| ObjectOp::Write {
            offset: 0,
            data: vec![0; len].into(),
        };
        let weight = |n, len| log_bytes_of(&vec![write(len); n]);
        assert!((4096..10_000).contains(&weight(1, 4096)));
        assert!(weight(1, 90 << 20) < 2 << 20);
        assert!(weight(2000, 4096) > 8 << 20);
        assert!(weight(100, 60 << 10) < 2 << 20);
    }

    #[test]
    fn what_no_store_takes_is_told() {
        let takes = |key: usize, op: ObjectOp| is_storable(&[(vec![1; key].into(), vec![op])]);
        let write = |offset| ObjectOp::Write {
            offset,
            data: vec![0; 8].into(),
        };
        let (offset, len) = (MAX_OBJECT_SIZE, 1);
        assert!(takes(ObjectKey::MAX_LEN, write(MAX_OBJECT_SIZE - 8)));
        assert!(!takes(ObjectKey::MAX_LEN + 1, ObjectOp::Touch));
        assert!(!takes(1, write(MAX_OBJECT_SIZE - 7)) && !takes(1, write(u64::MAX)));
        assert!(!takes(1, ObjectOp::Zero { offset, len }));
        assert!(!takes(1, ObjectOp::Truncate { size: offset + 1 }));
        let (name, value) = (vec![1; MAX_ATTR_NAME + 1].into(), Bytes::new());
        assert!(!takes(1, ObjectOp::SetAttr { name, value }));
    }

    #[test]
    fn object_changes_survive_the_wire_without_copying_payload() {
        let data = Bytes::from(vec![7u8; 4096]);
        let ops = vec![
            ObjectOp::Touch,
            ObjectOp::Write {
                offset: 3,
                data: data.clone(),
            },
            ObjectOp::Zero { offset: 1, len: 2 },
            ObjectOp::Truncate { size: 9 },
            ObjectOp::SetInfo(Bytes::from_static(b"i")),
            ObjectOp::SetAttr {
                name: Bytes::from_static(b"n"),
                value: Bytes::from_static(b"v"),
            },
            ObjectOp::RmAttr(Bytes::from_static(b"n")),
            ObjectOp::OmapSet(vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))]),
            ObjectOp::OmapRm(vec![Bytes::from_static(b"k")]),
            ObjectOp::OmapRmRange {
                from: Bytes::new(),
                to: Bytes::from_static(b"z"),
            },
            ObjectOp::OmapHeader(Bytes::from_static(b"h")),
            ObjectOp::OmapClear,
            ObjectOp::CloneOf(Bytes::from_static(b"c")),
            ObjectOp::CloneOfData(Bytes::from_static(b"c")),
            ObjectOp::MoveOf(Bytes::from_static(b"m")),
            ObjectOp::Step(Step::Stripes {
                range: (0..8192).into(),
                fresh: true,
                pieces: vec![(0, data.clone()), (5000, data.slice(..9))],
            }),
            ObjectOp::Step(Step::Write {
                offset: 1,
                data: data.clone(),
            }),
            ObjectOp::Step(Step::Patch {
                offset: 2,
                delta: data.clone(),
            }),
            ObjectOp::Step(Step::Punch {
                offset: 3,
                delta: data.clone(),
            }),
            ObjectOp::Step(Step::Truncate { size: 4 }),
            ObjectOp::Stage {
                ops: vec![
                    FragmentOp::Write {
                        offset: 4096,
                        data: Bytes::from_static(b"written"),
                    },
                    FragmentOp::Add {
                        offset: 8192,
                        delta: Bytes::from_static(b"added"),
                    },
                ],
                base: Bytes::from_static(b"base"),
            },
            ObjectOp::Take(Bytes::from_static(b"stage")),
            ObjectOp::WritePlaced {
                offset: 8192,
                len: 1 << 20,
                number: 7,
                placement: None,
            },
            ObjectOp::Step(Step::Discard {
                range: (5..11).into(),
                coding: true,
            }),
            ObjectOp::NoteSnaps {
                add: vec![7, 6],
                remove: vec![5],
            },
            ObjectOp::ForgetSnaps {
                to: Bytes::from_static(b"z"),
                snaps: vec![5],
            },
            ObjectOp::Remove,
        ];
        let t = Txn {
            objects: vec![(Bytes::from_static(b"k"), ops)],
            meta: Vec::new(),
        };
        let (mut w, mut payload) = (Writer::new(), BytesList::new());
        t.encode_objects(&mut w, &mut payload);
        let back = Txn::decode_objects(&mut Reader::new(w.as_slice()), &payload).unwrap();
        assert_eq!(back, t);
        let ObjectOp::Write { data: back, .. } = &back.objects[0].1[1] else {
            panic!()
        };
        assert_eq!(back.as_ptr(), data.as_ptr());
        assert!(Txn::decode_objects(&mut Reader::new(w.as_slice()), &BytesList::new()).is_err());
    }
}
