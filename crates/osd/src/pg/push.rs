//! Pushes: what a holder of the newest copy sends to targets that lack some of it.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Extent, Reader, Result, Writer};
use spirula_maps::EVersion;
use spirula_proto::{BytesList, RawMessage};

/// The objects that a target lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncPlan {
    /// These objects, as the logs tell.
    Objects(Vec<Lacking>),
    /// Any objects: all must be compared.
    Backfill,
    /// The changes after this version, which the target makes itself.
    Replay(EVersion),
}

/// An object that a target lacks in its newest version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// The object's store key.
    pub key: Bytes,
    /// The version of the PG at which the target's object was complete; ranges that changed since
    /// have some later state there. `None` if nothing is known of the target's object.
    pub had: Option<EVersion>,
}

/// A part of an object, or that the object does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The object's store key.
    pub key: Bytes,
    /// The part.
    pub part: PushPart,
}

/// What a [`Push`] carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushPart {
    /// The object does not exist.
    Absent,
    /// Bytes at an offset; the first part begins the object anew, unless it is a patch.
    Data {
        /// Whether it is the first part.
        first: bool,
        /// Pieces by offset; what lies between is zero.
        pieces: Vec<(u64, Bytes)>,
        /// Omap pairs.
        pairs: Vec<(Bytes, Bytes)>,
        /// The rest, with the last part or the last few.
        last: Option<PushEnd>,
        /// Set if the target keeps what else it has of the object.
        patch: Option<Patch>,
    },
}

/// A part of an object's changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// Whether the whole omap is pushed.
    pub omap: bool,
    /// Ranges that became zeros.
    pub zeros: Vec<Extent>,
}

/// The end of an object that is pushed. If it does not fit into one part there are several; the
/// last one has the info.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushEnd {
    /// Its size.
    pub size: u64,
    /// The object's encoded info; empty if the object is not whole.
    pub info: Bytes,
    /// Its attributes.
    pub attrs: Vec<(Bytes, Bytes)>,
    /// Its omap header.
    pub omap_header: Bytes,
}

impl PushEnd {
    /// Whether the object is whole with this end. It is not if the object has much besides data and
    /// pairs, or was changed while it was read: then further parts come.
    pub fn is_whole(&self) -> bool {
        !self.info.is_empty()
    }
}

impl Encode for SyncPlan {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Backfill => w.u8(1),
            Self::Replay(from) => {
                w.u8(2);
                w.put(from);
            }
            Self::Objects(all) => {
                w.u8(0);
                w.count(all.len());
                all.iter().for_each(|o| w.put(&o.key));
                all.iter().for_each(|o| w.put(&o.had));
            }
        }
    }
}

impl Decode for SyncPlan {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            0 => {}
            1 => return Ok(Self::Backfill),
            2 => return Ok(Self::Replay(r.get()?)),
            _ => return Err(Error::Invalid("plan of a copy")),
        }
        let keys: Vec<Bytes> = r.get()?;
        let all = keys.into_iter().map(|key| Ok(Lacking { key, had: r.get()? }));
        Ok(Self::Objects(all.collect::<Result<_>>()?))
    }
}

impl Push {
    pub(super) fn encode(&self, w: &mut Writer, data: &mut BytesList) {
        w.put(&self.key);
        match &self.part {
            PushPart::Absent => w.bool(false),
            PushPart::Data {
                first,
                pieces,
                pairs,
                last,
                patch,
            } => {
                w.bool(true);
                w.bool(*first);
                w.count(pieces.len());
                for (offset, b) in pieces {
                    w.u64(*offset);
                    w.count(b.len());
                    data.push(b.clone());
                }
                w.bool(last.is_some());
                if let Some(end) = last {
                    w.u64(end.size);
                    w.put(&end.info);
                    w.put(&end.attrs);
                    w.put(&end.omap_header);
                }
                w.put(pairs);
                w.bool(patch.is_some());
                if let Some(patch) = patch {
                    w.bool(patch.omap);
                    w.put(&patch.zeros);
                }
            }
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        let key = r.get()?;
        if !r.bool()? {
            return Ok(Self {
                key,
                part: PushPart::Absent,
            });
        }
        let first = r.bool()?;
        let n = r.count(12)?;
        let mut pieces = Vec::with_capacity(n);
        let mut at = 0;
        for _ in 0..n {
            let offset = r.u64()?;
            let len = usize::try_from(r.u32()?).map_err(|_| Error::Invalid("payload length"))?;
            pieces.push((
                offset,
                msg.data.slice(at, len).ok_or(Error::Invalid("payload length"))?,
            ));
            at += len;
        }
        let last = if r.bool()? {
            Some(PushEnd {
                size: r.u64()?,
                info: r.get()?,
                attrs: r.get()?,
                omap_header: r.get()?,
            })
        } else {
            None
        };
        let pairs = r.get()?;
        let patch = if r.bool()? {
            Some(Patch {
                omap: r.bool()?,
                zeros: r.get()?,
            })
        } else {
            None
        };
        let part = PushPart::Data {
            first,
            pieces,
            pairs,
            last,
            patch,
        };
        Ok(Self { key, part })
    }
}
