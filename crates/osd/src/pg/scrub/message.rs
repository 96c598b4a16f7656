//! The messages of a primary and the other members about scrubbing.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Micros, Reader, Result, Writer};
use spirula_maps::EVersion;

use super::account::Account;
use super::history::ScrubHistory;
use crate::pg::key::KeyRange;
use crate::pg::log::{Usage, decode_clone_usage, encode_clone_usage};

/// A message about a scrub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScrubBody {
    /// Primary to member: may this PG be scrubbed on your OSD now?
    Reserve,
    /// The answer to [`ScrubBody::Reserve`]: yes, until [`ScrubBody::Release`]; or no, as others are
    /// scrubbed.
    Reserved(bool),
    /// Primary to member: the scrub has ended, or is not to begin.
    Release,
    /// Primary to member: give account of the objects in a range.
    Wanted(Wanted),
    /// The answer to [`ScrubBody::Wanted`].
    Given(Given),
    /// Primary to member: remember this.
    Told {
        /// The number of the message within the interval.
        number: u32,
        /// What is to be remembered.
        news: News,
    },
    /// The answer to [`ScrubBody::Told`], with its number.
    Confirmed(u32),
}

/// A member's accounts of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The number of the question.
    pub number: u32,
    /// How many times as long as it reads the member may rest, to be in time with all its scrubs.
    pub rest: u32,
    /// How long the member rests before it reads on.
    pub pause: Micros,
    /// The accounts, in the order of keys; `None` if the member can't list its objects.
    pub accounts: Option<Vec<Account>>,
    /// The first key that there was no room for.
    pub next: Option<Bytes>,
}

/// What a member is to remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The PG's scrubs.
    Noted {
        /// The scrubs.
        history: Box<ScrubHistory>,
        /// The PG's version, and its usage then.
        usage: (EVersion, Usage),
    },
    /// A change of the list of what was found.
    Listed {
        /// Whether the list begins anew.
        anew: bool,
        /// The changes.
        notes: Vec<FindingNote>,
    },
}

/// A change of the list of what a scrub has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingNote {
    /// The kind of finding.
    pub kind: u8,
    /// Its place in the list of its kind.
    pub place: Bytes,
    /// The finding, as clients are told of it; `None` removes it.
    pub finding: Option<Bytes>,
}

/// A question for accounts of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The question's number within the interval.
    pub number: u32,
    /// The version that the member's copy must have.
    pub at: EVersion,
    /// The range of keys.
    pub range: KeyRange,
    /// Whether contents are read.
    pub deep: bool,
    /// The seed of the digests of fragments.
    pub seed: u64,
    /// Whether attributes are wanted, not only their digest.
    pub attrs: bool,
    /// How many times as long as it has worked the member rests at least while its clients work.
    pub rest: u32,
}

impl ScrubBody {
    /// Whether only the primary sends such a message.
    pub(in crate::pg) fn is_primarys(&self) -> bool {
        matches!(
            self,
            Self::Reserve | Self::Release | Self::Wanted(_) | Self::Told { .. }
        )
    }

    pub(in crate::pg) fn encode(&self, w: &mut Writer) {
        match self {
            Self::Reserve => w.u8(0),
            Self::Reserved(may) => {
                w.u8(1);
                w.bool(*may);
            }
            Self::Release => w.u8(2),
            Self::Wanted(wanted) => {
                w.u8(3);
                w.u32(wanted.number);
                w.put(&wanted.at);
                w.put(&wanted.range.from);
                w.put(&wanted.range.to);
                w.bool(wanted.deep);
                w.u64(wanted.seed);
                w.bool(wanted.attrs);
                w.u32(wanted.rest);
            }
            Self::Given(given) => {
                w.u8(4);
                w.u32(given.number);
                w.u32(given.rest);
                w.put(&given.pause);
                w.put(&given.accounts);
                w.put(&given.next);
            }
            Self::Told { number, news } => {
                w.u8(5);
                w.u32(*number);
                w.put(news);
            }
            Self::Confirmed(number) => {
                w.u8(6);
                w.u32(*number);
            }
        }
    }

    pub(in crate::pg) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(match r.u8()? {
            0 => Self::Reserve,
            1 => Self::Reserved(r.bool()?),
            2 => Self::Release,
            3 => Self::Wanted(Wanted {
                number: r.u32()?,
                at: r.get()?,
                range: KeyRange {
                    from: r.get()?,
                    to: r.get()?,
                },
                deep: r.bool()?,
                seed: r.u64()?,
                attrs: r.bool()?,
                rest: r.u32()?,
            }),
            4 => Self::Given(Given {
                number: r.u32()?,
                rest: r.u32()?,
                pause: r.get()?,
                accounts: r.get()?,
                next: r.get()?,
            }),
            5 => Self::Told {
                number: r.u32()?,
                news: r.get()?,
            },
            6 => Self::Confirmed(r.u32()?),
            _ => return Err(Error::Invalid("message about a scrub")),
        })
    }
}

impl Encode for News {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Noted {
                history,
                usage: (version, usage),
            } => {
                w.u8(0);
                w.put(&**history);
                w.put(version);
                w.i64(usage.objects);
                w.i64(usage.bytes);
                encode_clone_usage(w, *usage);
            }
            Self::Listed { anew, notes } => {
                w.u8(1);
                w.bool(*anew);
                w.count(notes.len());
                for note in notes {
                    w.u8(note.kind);
                    w.put(&note.place);
                    w.put(&note.finding);
                }
            }
        }
    }
}

impl Decode for News {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(match r.u8()? {
            0 => {
                let history = Box::new(r.get()?);
                let version = r.get()?;
                let mut usage = Usage {
                    objects: r.i64()?,
                    bytes: r.i64()?,
                    ..Usage::default()
                };
                decode_clone_usage(r, &mut usage)?;
                let usage = (version, usage);
                Self::Noted { history, usage }
            }
            1 => {
                let anew = r.bool()?;
                let n = r.count(6)?;
                let note = |_| {
                    Ok(FindingNote {
                        kind: r.u8()?,
                        place: r.get()?,
                        finding: r.get()?,
                    })
                };
                let notes = (0..n).map(note).collect::<Result<_>>()?;
                Self::Listed { anew, notes }
            }
            _ => return Err(Error::Invalid("news of a scrub")),
        })
    }
}
