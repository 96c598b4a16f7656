//! Redo steps: the form of a transaction once its blocks are allocated. The log holds these.
//!
//! Applying the steps of a transaction to the state in which it was made gives the same result
//! every time, so replaying the log from any durable state of the index is safe.

use bytes::Bytes;

use crate::ObjectKey;
use crate::alloc::Run;
use crate::codec::{Dec, Enc};

/// One redo step. Steps about objects refer to the one named by the last [`Step::Object`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// The steps that follow are about this object; they create it (except `Remove`).
    Object(ObjectKey),
    Touch,
    /// Bytes kept in the log. Blocks in `new` are newly mapped for it; the others are overwritten
    /// in place.
    Inline {
        offset: u64,
        data: Bytes,
        new: Vec<NewRun>,
    },
    /// Whole blocks that were written to their place before the record.
    Direct {
        lblk: u32,
        runs: Vec<Run>,
        crcs: Vec<u32>,
    },
    Punch {
        lblk: u32,
        len: u32,
    },
    Size(u64),
    /// Bytes that earlier steps zeroed count as unwritten.
    Hole {
        offset: u64,
        len: u64,
    },
    Remove,
    /// Makes the object a copy of another one; its pairs are copied under this omap number (0: the
    /// copy has none).
    CloneOf {
        source: ObjectKey,
        omap: u64,
    },
    /// Makes the object what another one is, which is then gone.
    MoveOf(ObjectKey),
    /// Replaces blocks of the object by those of another one.
    RangeOf(RangeOf),
    SetAttr {
        name: Bytes,
        value: Bytes,
    },
    RmAttr(Bytes),
    RmAttrs,
    Info(Bytes),
    Omap(u64),
    OmapHeader(Bytes),
    Put {
        key: Bytes,
        value: Bytes,
    },
    Delete(Bytes),
    DeleteRange {
        from: Bytes,
        to: Bytes,
    },
}

/// Blocks of one object that another one gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeOf {
    pub(crate) source: ObjectKey,
    /// First block in the source.
    pub(crate) from: u32,
    /// First block in the object.
    pub(crate) to: u32,
    /// Number of blocks.
    pub(crate) len: u32,
    /// Whether the source keeps the blocks, which both share then.
    pub(crate) kept: bool,
}

/// Blocks newly mapped at a place in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewRun {
    pub(crate) lblk: u32,
    pub(crate) run: Run,
}

fn enc_runs(e: &mut Enc<'_>, runs: &[Run]) {
    e.varint(runs.len() as u64);
    for r in runs {
        e.varint(r.pblk);
        e.varint(u64::from(r.len));
    }
}

fn dec_run(d: &mut Dec<'_>) -> Option<Run> {
    Some(Run {
        pblk: d.varint()?,
        len: u32::try_from(d.varint()?).ok()?,
    })
}

fn dec_u32(d: &mut Dec<'_>) -> Option<u32> {
    u32::try_from(d.varint()?).ok()
}

impl Step {
    /// Appends the encoding (see FORMAT.md, "Redo steps").
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut e = Enc(out);
        e.u8(self.tag());
        match self {
            Self::Object(key) => e.bytes(key.as_slice()),
            Self::Touch | Self::Remove | Self::RmAttrs => {}
            Self::Inline { offset, data, new } => {
                e.varint(*offset);
                e.varint(new.len() as u64);
                for n in new {
                    e.varint(u64::from(n.lblk));
                    e.varint(n.run.pblk);
                    e.varint(u64::from(n.run.len));
                }
                e.bytes(data);
            }
            Self::Direct { lblk, runs, crcs } => {
                e.varint(u64::from(*lblk));
                enc_runs(&mut e, runs);
                e.crcs(crcs);
            }
            Self::Punch { lblk, len } => {
                e.varint(u64::from(*lblk));
                e.varint(u64::from(*len));
            }
            Self::Size(n) | Self::Omap(n) => e.varint(*n),
            Self::Hole { offset, len } => {
                e.varint(*offset);
                e.varint(*len);
            }
            Self::CloneOf { source, omap } => {
                e.bytes(source.as_slice());
                e.varint(*omap);
            }
            Self::MoveOf(source) => e.bytes(source.as_slice()),
            Self::RangeOf(range) => {
                e.bytes(range.source.as_slice());
                e.varint(u64::from(range.from));
                e.varint(u64::from(range.to));
                e.varint(u64::from(range.len));
                e.u8(u8::from(range.kept));
            }
            Self::RmAttr(b) | Self::Info(b) | Self::OmapHeader(b) | Self::Delete(b) => e.bytes(b),
            Self::SetAttr { name: a, value: b }
            | Self::Put { key: a, value: b }
            | Self::DeleteRange { from: a, to: b } => {
                e.bytes(a);
                e.bytes(b);
            }
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Self::Object(_) => 1,
            Self::Touch => 2,
            Self::Inline { .. } => 3,
            Self::Direct { .. } => 4,
            Self::Punch { .. } => 5,
            Self::Size(_) => 6,
            Self::Remove => 7,
            Self::CloneOf { .. } => 8,
            Self::SetAttr { .. } => 9,
            Self::RmAttr(_) => 10,
            Self::RmAttrs => 11,
            Self::Info(_) => 12,
            Self::Omap(_) => 13,
            Self::OmapHeader(_) => 14,
            Self::Put { .. } => 15,
            Self::Delete(_) => 16,
            Self::DeleteRange { .. } => 17,
            Self::MoveOf(_) => 18,
            Self::Hole { .. } => 19,
            Self::RangeOf(_) => 20,
        }
    }

    fn decode(d: &mut Dec<'_>) -> Option<Self> {
        Some(match d.u8()? {
            1 => Self::Object(ObjectKey::new(d.bytes()?)),
            2 => Self::Touch,
            3 => {
                let offset = d.varint()?;
                let mut new = Vec::new();
                for _ in 0..d.count(3)? {
                    new.push(NewRun {
                        lblk: dec_u32(d)?,
                        run: dec_run(d)?,
                    });
                }
                Self::Inline {
                    offset,
                    data: d.owned()?,
                    new,
                }
            }
            4 => {
                let lblk = dec_u32(d)?;
                let mut runs = Vec::new();
                let mut blocks = 0usize;
                for _ in 0..d.count(2)? {
                    let run = dec_run(d)?;
                    blocks = blocks.checked_add(run.len as usize)?;
                    runs.push(run);
                }
                Self::Direct {
                    lblk,
                    runs,
                    crcs: d.crcs(blocks)?,
                }
            }
            5 => Self::Punch {
                lblk: dec_u32(d)?,
                len: dec_u32(d)?,
            },
            6 => Self::Size(d.varint()?),
            7 => Self::Remove,
            8 => Self::CloneOf {
                source: ObjectKey::new(d.bytes()?),
                omap: d.varint()?,
            },
            9 => Self::SetAttr {
                name: d.owned()?,
                value: d.owned()?,
            },
            10 => Self::RmAttr(d.owned()?),
            11 => Self::RmAttrs,
            12 => Self::Info(d.owned()?),
            13 => Self::Omap(d.varint()?),
            14 => Self::OmapHeader(d.owned()?),
            15 => Self::Put {
                key: d.owned()?,
                value: d.owned()?,
            },
            16 => Self::Delete(d.owned()?),
            17 => Self::DeleteRange {
                from: d.owned()?,
                to: d.owned()?,
            },
            18 => Self::MoveOf(ObjectKey::new(d.bytes()?)),
            19 => Self::Hole {
                offset: d.varint()?,
                len: d.varint()?,
            },
            20 => Self::RangeOf(RangeOf {
                source: ObjectKey::new(d.bytes()?),
                from: dec_u32(d)?,
                to: dec_u32(d)?,
                len: dec_u32(d)?,
                kept: d.u8()? != 0,
            }),
            _ => return None,
        })
    }

    /// Reads the steps of one transaction.
    pub(crate) fn decode_all(bytes: &[u8]) -> Option<Vec<Self>> {
        let mut d = Dec::new(bytes);
        let mut steps = Vec::new();
        while !d.is_done() {
            steps.push(Self::decode(&mut d)?);
        }
        Some(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_round_trips_and_no_cut_panics() {
        let b = |s: &'static str| Bytes::from_static(s.as_bytes());
        let steps = vec![
            Step::Object("a key".into()),
            Step::Touch,
            Step::Inline {
                offset: 5000,
                data: b("data"),
                new: vec![NewRun {
                    lblk: 1,
                    run: Run {
                        pblk: 1 << 40,
                        len: 1,
                    },
                }],
            },
            Step::Direct {
                lblk: 7,
                runs: vec![Run { pblk: 9, len: 2 }],
                crcs: vec![1, u32::MAX],
            },
            Step::Punch { lblk: 3, len: 4 },
            Step::Size(u64::MAX),
            Step::Hole { offset: 70, len: 300 },
            Step::Remove,
            Step::CloneOf {
                source: "other".into(),
                omap: 77,
            },
            Step::MoveOf("third".into()),
            Step::RangeOf(RangeOf {
                source: "fourth".into(),
                from: 1,
                to: 300,
                len: 70_000,
                kept: true,
            }),
            Step::SetAttr {
                name: b("n"),
                value: b("v"),
            },
            Step::RmAttr(b("n")),
            Step::RmAttrs,
            Step::Info(b("info")),
            Step::Omap(3),
            Step::OmapHeader(b("h")),
            Step::Put {
                key: b("k"),
                value: b(""),
            },
            Step::Delete(b("k")),
            Step::DeleteRange {
                from: b("a"),
                to: b("b"),
            },
        ];
        let mut out = Vec::new();
        for s in &steps {
            s.encode(&mut out);
        }
        assert_eq!(Step::decode_all(&out).as_ref(), Some(&steps));
        for cut in 0..out.len() {
            assert_ne!(Step::decode_all(&out[..cut]).as_ref(), Some(&steps));
        }
        assert_eq!(Step::decode_all(&[99]), None);
        assert_eq!(Step::decode_all(&[4, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]), None);
    }
}
