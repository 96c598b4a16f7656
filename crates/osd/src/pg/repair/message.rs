//! The messages of members to each other for repairing an object.

use bytes::Bytes;
use spirula_denc::{Error, Reader, Result, Writer};
use spirula_maps::{EVersion, OsdId};
use spirula_proto::{BytesList, RawMessage};

use crate::pg::layout::Part;
use crate::pg::push::{Push, PushPart};

/// A message about a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairBody {
    /// Member to primary: the object with this key can't be read here.
    Unreadable(Bytes),
    /// Primary to member: take this object from another member.
    Wanted {
        /// The repair's number within the interval.
        number: u32,
        /// The object's store key.
        key: Bytes,
        /// The member to take it from.
        source: OsdId,
        /// The parts that members hold, if they hold different ones.
        parts: Vec<(OsdId, Part)>,
        /// Whether the member's own part is wrong, though it may be readable.
        anew: bool,
    },
    /// The answer to [`RepairBody::Wanted`]: the progress of the repair with this number.
    Told(u32, Outcome),
    /// Member to another one: asks for part of an object.
    Read {
        /// The repair's number.
        number: u32,
        /// The object's store key.
        key: Bytes,
        /// Where the part begins.
        from: Place,
        /// The parts that members hold, if they hold different ones.
        parts: Vec<(OsdId, Part)>,
        /// Whether the asking member's own part is wrong, though it may be readable.
        anew: bool,
    },
    /// The answer to [`RepairBody::Read`].
    Part {
        /// The repair's number.
        number: u32,
        /// The part; `None` if the object can't be read or does not exist.
        found: Option<FoundPart>,
    },
}

/// The progress of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// One more part is there.
    Working,
    /// The object is whole, durably.
    Done,
    /// The source can't read it either.
    SourceUnreadable,
    /// The repair was interrupted; it may be tried again.
    Failed,
}

/// A place in an object: an offset, and after all data a key of the omap. An offset beyond the
/// object's end stands for a place after both, among the omap's header and the attributes: the end,
/// plus one, plus the number of these that are before it. Only the member that has made a place
/// interprets it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// The offset.
    pub offset: u64,
    /// The key.
    pub key: Bytes,
}

/// Part of an object that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPart {
    /// The object's version.
    pub version: EVersion,
    /// Where the next part begins.
    pub next: Place,
    /// The part.
    pub push: Push,
}

impl Place {
    /// The place after data and omap of an object of this size, and after `done` of its header and
    /// attributes.
    pub(in crate::pg) fn of_rest(size: u64, done: u64) -> Self {
        Self {
            offset: size.saturating_add(1).saturating_add(done),
            key: Bytes::new(),
        }
    }

    /// How many of header and attributes are before the place, if it is after data and omap.
    pub(in crate::pg) fn rest_done(&self, size: u64) -> Option<u64> {
        self.offset.checked_sub(size)?.checked_sub(1)
    }

    fn encode(&self, w: &mut Writer) {
        w.u64(self.offset);
        w.put(&self.key);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            offset: r.u64()?,
            key: r.get()?,
        })
    }
}

impl Outcome {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(match r.u8()? {
            0 => Self::Working,
            1 => Self::Done,
            2 => Self::SourceUnreadable,
            3 => Self::Failed,
            _ => return Err(Error::Invalid("outcome of a repair")),
        })
    }
}

impl FoundPart {
    fn decode(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        let part = Self {
            version: r.get()?,
            next: Place::decode(r)?,
            push: Push::decode(r, msg)?,
        };
        match part.push.part {
            PushPart::Data { patch: None, .. } => Ok(part),
            _ => Err(Error::Invalid("part of an object to repair")),
        }
    }
}

/// Parts are only sent where members hold different ones: the other messages are as old OSDs know
/// them.
fn encode_parts(parts: &Vec<(OsdId, Part)>, anew: bool, w: &mut Writer) {
    if !parts.is_empty() {
        w.put(parts);
        w.bool(anew);
    }
}

/// Reads what [`encode_parts`] wrote, if it wrote any.
fn decode_parts(r: &mut Reader<'_>, has_parts: bool) -> Result<(Vec<(OsdId, Part)>, bool)> {
    Ok(match has_parts {
        true => (r.get()?, r.bool()?),
        false => (Vec::new(), false),
    })
}

impl RepairBody {
    pub(in crate::pg) fn encode(&self, w: &mut Writer, data: &mut BytesList) {
        match self {
            Self::Unreadable(key) => {
                w.u8(0);
                w.put(key);
            }
            Self::Wanted {
                number,
                key,
                source,
                parts,
                anew,
            } => {
                w.u8(if parts.is_empty() { 1 } else { 5 });
                w.u32(*number);
                w.put(key);
                w.put(source);
                encode_parts(parts, *anew, w);
            }
            Self::Told(number, outcome) => {
                w.u8(2);
                w.u32(*number);
                w.u8(*outcome as u8);
            }
            Self::Read {
                number,
                key,
                from,
                parts,
                anew,
            } => {
                w.u8(if parts.is_empty() { 3 } else { 6 });
                w.u32(*number);
                w.put(key);
                from.encode(w);
                encode_parts(parts, *anew, w);
            }
            Self::Part { number, found } => {
                w.u8(4);
                w.u32(*number);
                w.bool(found.is_some());
                if let Some(f) = found {
                    w.put(&f.version);
                    f.next.encode(w);
                    f.push.encode(w, data);
                }
            }
        }
    }

    pub(in crate::pg) fn decode(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        let kind = r.u8()?;
        Ok(match kind {
            0 => Self::Unreadable(r.get()?),
            1 | 5 => {
                let (number, key, source) = (r.u32()?, r.get()?, r.get()?);
                let (parts, anew) = decode_parts(r, kind == 5)?;
                Self::Wanted {
                    number,
                    key,
                    source,
                    parts,
                    anew,
                }
            }
            2 => Self::Told(r.u32()?, Outcome::decode(r)?),
            3 | 6 => {
                let (number, key, from) = (r.u32()?, r.get()?, Place::decode(r)?);
                let (parts, anew) = decode_parts(r, kind == 6)?;
                Self::Read {
                    number,
                    key,
                    from,
                    parts,
                    anew,
                }
            }
            4 => Self::Part {
                number: r.u32()?,
                found: if r.bool()? {
                    Some(FoundPart::decode(r, msg)?)
                } else {
                    None
                },
            },
            _ => return Err(Error::Invalid("message about a repair")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::message::{PeerBody, PeerMessage, PeeringId};
    use spirula_maps::{Epoch, PgId, PoolId};
    use spirula_proto::internal::{Edition, Protocol};

    #[test]
    fn messages_of_a_repair_round_trip() {
        let b = Bytes::from_static;
        let part = PushPart::Data {
            first: false,
            pieces: vec![(4, b(b"data"))],
            pairs: Vec::new(),
            last: None,
            patch: None,
        };
        let place = Place {
            offset: 8,
            key: b(b"next"),
        };
        let found = FoundPart {
            version: EVersion::new(Epoch::new(3), 4),
            next: place.clone(),
            push: Push { key: b(b"k"), part },
        };
        let (number, key) = (1, b(b"k"));
        let parts = vec![(OsdId::new(4), Part::default())];
        let bodies = [
            RepairBody::Unreadable(key.clone()),
            RepairBody::Wanted {
                number,
                key: key.clone(),
                source: OsdId::new(2),
                parts: Vec::new(),
                anew: false,
            },
            RepairBody::Wanted {
                number,
                key: key.clone(),
                source: OsdId::new(2),
                parts: parts.clone(),
                anew: true,
            },
            RepairBody::Read {
                number,
                key: key.clone(),
                from: place.clone(),
                parts: Vec::new(),
                anew: false,
            },
            RepairBody::Read {
                number,
                key,
                from: place,
                parts,
                anew: false,
            },
            RepairBody::Part {
                number,
                found: Some(found),
            },
            RepairBody::Part { number, found: None },
        ];
        let outcomes = [
            Outcome::Working,
            Outcome::Done,
            Outcome::SourceUnreadable,
            Outcome::Failed,
        ];
        let told = outcomes.map(|o| RepairBody::Told(7, o));
        for body in bodies.into_iter().chain(told) {
            let m = PeerMessage {
                pgid: PgId::new(PoolId::new(1), 2),
                id: PeeringId {
                    epoch: Epoch::new(5),
                    round: 6,
                },
                body: PeerBody::Repair(body),
            };
            let raw = m.compose(Edition::Current);
            assert_eq!(PeerMessage::parse(&raw, Edition::Current).as_ref(), Ok(&m));
        }
    }
}
