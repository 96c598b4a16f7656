//! Data of an object that is put together of several members' fragments.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_erasure::{self as erasure, FragmentExtents, FragmentPieces, Gather, Unit, UnitSet};
use spirula_maps::{EVersion, OsdId};

use super::fold::Fragments;
use super::want::{FragmentWant, fragment_want};
use crate::pg::account::Room;
use crate::pg::fetch::{Answer, Fetched, Pieces, ReadError, Want};
use crate::pg::layout::Shape;

/// Zeros, for what fragments do not have.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The other members that an object is gathered from, with the units that they hold of it in the same
/// version.
pub(in crate::pg) type Holders = Arc<BTreeMap<Unit, OsdId>>;

/// The data that one question to the store wants, while it is gathered.
#[derive(Debug)]
struct Gathering {
    /// The question's number.
    token: u32,
    /// How often members were asked. An answer of an earlier round may have other parts.
    round: u32,
    key: Bytes,
    wants: Vec<Want>,
    /// What the wants' ranges are of.
    shape: Shape,
    /// The answers of the store to the wants that are not data.
    others: Vec<Fetched>,
    at: EVersion,
    members: Holders,
    gather: Gather,
    /// The units that can be read; none if they are too few.
    present: UnitSet,
    read: FragmentPieces,
    /// The units that are awaited, and whether the store is asked for other wants.
    awaited: Vec<Unit>,
    awaits_others: bool,
    /// The room for all that is read, and whether it is awaited: nobody is asked before.
    room: Room,
    awaits_room: bool,
}

/// A read of a fragment: by this OSD's store, or by another member.
#[derive(Debug)]
pub(in crate::pg) enum Ask {
    /// By this OSD's store. The wants that are not data come first.
    Here {
        /// The number of the question and its round.
        number: (u32, u32),
        key: Bytes,
        wants: Vec<Want>,
        /// Whether there is room for what is read.
        has_room: bool,
    },
    /// By a member.
    Member(OsdId, FragmentWant),
}

/// The data that is being gathered, and the members that it is gathered from.
#[derive(Debug, Default)]
pub(in crate::pg) struct Gathers {
    /// The members that objects are gathered from, if nothing else is said.
    pub(in crate::pg) members: Holders,
    /// The version of this copy, and so the one that the others must have at least.
    pub(in crate::pg) at: EVersion,
    /// By the questions, in whose order members are asked again.
    under_way: BTreeMap<u32, Gathering>,
}

impl Gathers {
    /// Begins to gather the data that the question `token` wants of an object. `own`: what this
    /// OSD's copy holds. If the members are too few, the data can't be read.
    pub(in crate::pg) fn begin(
        &mut self,
        token: u32,
        (key, wants): (Bytes, Vec<Want>),
        (shape, members): (Shape, Holders),
        own: &Fragments,
    ) -> Vec<Ask> {
        let mut present: UnitSet = members.keys().copied().collect();
        present.insert(own.unit);
        let gather = match gather(own, present, shape, &wants) {
            Ok(gather) => gather,
            Err(TooFew) => {
                present = UnitSet::new();
                Gather::default()
            }
        };
        let mut all = Gathering {
            token,
            round: 0,
            key,
            wants,
            shape,
            others: Vec::new(),
            at: self.at,
            members,
            gather,
            present,
            read: FragmentPieces::new(),
            awaited: Vec::new(),
            awaits_others: false,
            room: Room::default(),
            awaits_room: false,
        };
        let asks = all.begin(own.unit);
        self.under_way.insert(token, all);
        asks
    }

    /// Forgets all.
    pub(in crate::pg) fn clear(&mut self) {
        self.under_way.clear();
    }

    /// The questions that a member has not answered.
    pub(in crate::pg) fn unanswered(&self, osd: OsdId) -> Vec<FragmentWant> {
        let asked = |g: &Gathering| {
            let unit = g.awaited.iter().find(|u| g.members.get(u) == Some(&osd))?;
            Some(g.want(*unit))
        };
        self.under_way.values().filter_map(asked).collect()
    }

    /// The members that have not answered.
    pub(in crate::pg) fn asked(&self) -> impl Iterator<Item = OsdId> {
        let asked = |g: &Gathering| {
            let of = |unit| g.members.get(unit).copied();
            g.awaited.iter().filter_map(of).collect::<Vec<_>>()
        };
        self.under_way.values().flat_map(asked)
    }

    /// The unit that a member is asked for in a question.
    pub(in crate::pg) fn unit_of(&self, osd: OsdId, token: u32) -> Option<Unit> {
        let mut held = self.under_way.get(&token)?.members.iter();
        held.find(|(_, o)| **o == osd).map(|(unit, _)| *unit)
    }

    /// The object that a question is about.
    pub(in crate::pg) fn object(&self, token: u32) -> Option<&Bytes> {
        self.under_way.get(&token).map(|g| &g.key)
    }

    /// Takes what the store has read for a question. Returns what is to be asked now; `None` if the
    /// question was answered, or asked anew.
    pub(in crate::pg) fn read_here(
        &mut self,
        number: (u32, u32),
        answers: Vec<Fetched>,
        room: Room,
        own: &Fragments,
    ) -> Option<Vec<Ask>> {
        let g = self.under_way.get_mut(&number.0)?;
        g.room.join(room);
        if std::mem::take(&mut g.awaits_room) {
            return Some(g.ask(own.unit, true, true));
        }
        let mut pieces = Ok(Pieces::new());
        let mut answers = answers.into_iter();
        // They are asked for in the first round, whatever comes of that.
        let has_others = number.1 == 0 && std::mem::take(&mut g.awaits_others);
        if has_others {
            let others = g.wants.iter().filter(|w| !is_data(w)).count();
            g.others.extend(answers.by_ref().take(others));
        }
        if has_others && !g.awaited.contains(&own.unit) {
            // Nothing of this OSD's fragment is wanted with them, or nothing more.
            return Some(Vec::new());
        }
        for f in answers {
            match (f.answer, &mut pieces) {
                (Ok(Answer::Data(data)), Ok(all)) => all.extend(data),
                _ => pieces = Err(ReadError),
            }
        }
        self.took(number, own.unit, pieces, own)
    }

    /// Takes what a unit's member has read for a question. Returns what is to be asked now: where
    /// it can't be read, other members can make it. `None` if the question was answered, or asked
    /// anew.
    pub(in crate::pg) fn took(
        &mut self,
        number: (u32, u32),
        unit: Unit,
        found: Result<Pieces, ReadError>,
        own: &Fragments,
    ) -> Option<Vec<Ask>> {
        let under_way = self.under_way.get_mut(&number.0);
        let g = under_way.filter(|g| g.round == number.1)?;
        let before = g.awaited.len();
        g.awaited.retain(|u| *u != unit);
        if g.awaited.len() == before {
            return None;
        }
        match found {
            Ok(pieces) => drop(g.read.insert(unit, pieces)),
            Err(ReadError) => {
                g.present.remove(unit);
                if let Ok(again) = gather(own, g.present, g.shape, &g.wants) {
                    g.gather = again;
                    g.round += 1;
                    g.read.clear();
                    return Some(g.ask(own.unit, false, true));
                }
                g.read.clear();
                g.awaited.clear();
                g.present = UnitSet::new();
            }
        }
        Some(Vec::new())
    }

    /// The answers to the question `token`, once all are there, and the room that they take.
    pub(in crate::pg) fn end(&mut self, token: u32, own: &Fragments) -> Option<(Vec<Fetched>, Room)> {
        let g = self.under_way.get(&token)?;
        if !g.awaited.is_empty() || g.awaits_others || g.awaits_room {
            return None;
        }
        let mut g = self.under_way.remove(&token)?;
        let mut room = std::mem::take(&mut g.room);
        room.gathered();
        Some((g.answers(own), room))
    }

    /// Forgets a question: its client has gone.
    pub(in crate::pg) fn forget(&mut self, token: u32) {
        self.under_way.remove(&token);
    }
}

/// Whether a want is for bytes of the object, or for where they are.
pub(in crate::pg) fn is_data(want: &Want) -> bool {
    matches!(want, Want::Data(_) | Want::Extents(_))
}

fn range_of(want: &Want) -> Option<Extent> {
    match want {
        Want::Data(r) => Some(Extent {
            offset: r.offset,
            len: r.len,
        }),
        Want::Extents(e) => Some(*e),
        _ => None,
    }
}

/// The members that can be read are too few to make what is wanted.
struct TooFew;

fn gather(own: &Fragments, present: UnitSet, shape: Shape, wants: &[Want]) -> Result<Gather, TooFew> {
    let ranges: Vec<Extent> = wants.iter().filter_map(range_of).collect();
    let wanted = match shape {
        Shape::Whole => own.layout.data_extents(&ranges),
        Shape::Fragment(_, unit) => FragmentExtents::from([(unit, ranges)]),
    };
    Gather::new(&own.code, present, wanted).map_err(|_| TooFew)
}

impl Gathering {
    fn want(&self, unit: Unit) -> FragmentWant {
        FragmentWant {
            number: (self.token, self.round),
            key: self.key.clone(),
            extents: self.gather.reads().get(&unit).cloned().unwrap_or_default(),
            at: self.at,
        }
    }

    /// What is asked first: the store alone, or else for room, which all that is read takes as long
    /// as others have not answered.
    fn begin(&mut self, own: Unit) -> Vec<Ask> {
        let reads = self.gather.reads();
        if reads.keys().all(|unit| *unit == own) {
            return self.ask(own, true, false);
        }
        self.awaits_room = true;
        let data = reads.values().flatten().map(|e| e.len).sum::<u64>();
        let others = self.wants.iter().filter(|w| !is_data(w));
        let others: usize = others.map(|w| w.room().total()).sum();
        vec![Ask::Here {
            number: (self.token, self.round),
            key: self.key.clone(),
            wants: vec![Want::Room(data.saturating_add(others as u64))],
            has_room: false,
        }]
    }

    /// The reads of fragments. `first`: those of other wants, too. `has_room`: for what this OSD reads.
    fn ask(&mut self, own: Unit, first: bool, has_room: bool) -> Vec<Ask> {
        let (mut here, mut asks) = (Vec::new(), Vec::new());
        let reads = self.gather.reads();
        if first {
            here.extend(self.wants.iter().filter(|w| !is_data(w)).cloned());
            // Something is asked in any case: the answer comes later.
            self.awaits_others = !here.is_empty() || reads.is_empty();
        }
        self.awaited = self.gather.reads().keys().copied().collect();
        for (unit, extents) in self.gather.reads() {
            if *unit == own {
                here.extend(extents.iter().map(|e| fragment_want(*e)));
            } else if let Some(osd) = self.members.get(unit) {
                asks.push(Ask::Member(*osd, self.want(*unit)));
            }
        }
        if !here.is_empty() || first && self.awaits_others {
            let (number, key) = ((self.token, self.round), self.key.clone());
            asks.push(Ask::Here {
                number,
                key,
                wants: here,
                has_room,
            });
        }
        asks
    }

    fn answers(self, own: &Fragments) -> Vec<Fetched> {
        let could_read = self.present != UnitSet::new();
        let (made, nothing) = (self.gather.made(&self.read), Pieces::new());
        let mut others = self.others.into_iter();
        let answer = |want: Want| {
            let Some(range) = range_of(&want) else {
                return others.next();
            };
            let pieces = match self.shape {
                Shape::Whole => own.layout.object_pieces(&made, range),
                Shape::Fragment(_, unit) => {
                    erasure::within(made.get(&unit).unwrap_or(&nothing), range).collect()
                }
            };
            let answer = match &want {
                Want::Data(r) if !r.sparse => Answer::Data(filled(pieces, range)),
                Want::Data(_) => Answer::Data(pieces),
                _ => Answer::Extents(extents_of(&pieces)),
            };
            let answer = if could_read { Ok(answer) } else { Err(ReadError) };
            Some(Fetched { want, answer })
        };
        self.wants.into_iter().filter_map(answer).collect()
    }
}

/// Pieces with zeros in between.
fn filled(pieces: Pieces, range: Extent) -> Pieces {
    let (mut all, mut at) = (Pieces::with_capacity(pieces.len() + 1), range.offset);
    let fill = |all: &mut Pieces, mut from: u64, to: u64| {
        while from < to {
            let len = (to - from).min(ZEROS.len() as u64);
            all.push((
                from,
                Bytes::from_static(&ZEROS[..usize::try_from(len).unwrap_or(0)]),
            ));
            from += len;
        }
    };
    for (offset, data) in pieces {
        fill(&mut all, at, offset);
        at = offset + data.len() as u64;
        all.push((offset, data));
    }
    fill(&mut all, at, range.end());
    all
}

/// The extents of pieces, none next to another.
fn extents_of(pieces: &Pieces) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    for (offset, data) in pieces {
        let len = data.len() as u64;
        match all.last_mut().filter(|last| last.end() == *offset) {
            Some(last) => last.len += len,
            None => all.push(Extent { offset: *offset, len }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::account::Totals;
    use crate::pg::fetch::ReadRange;

    const TOKEN: u32 = 7;

    /// What the first of three members, two of which make an object, has begun to gather, and has
    /// room for.
    fn begun(totals: &Arc<Totals>) -> (Gathers, Fragments) {
        let layout = erasure::Layout::new(2, 1, 4096).unwrap();
        let own = Fragments {
            layout,
            code: layout.code(),
            unit: Unit::Data(0),
        };
        let others = [(Unit::Data(1), OsdId::new(1)), (Unit::Parity(0), OsdId::new(2))];
        let want = Want::Data(ReadRange {
            offset: 0,
            len: 8192,
            sparse: false,
        });
        let mut gathers = Gathers::default();
        let of = (Shape::Whole, Arc::new(others.into()));
        let asks = gathers.begin(TOKEN, (Bytes::from_static(b"key"), vec![want]), of, &own);
        let [Ask::Here { wants, number, .. }] = &asks[..] else {
            panic!("only room is asked for: {asks:?}");
        };
        assert_eq!((&wants[..], *number), (&[Want::Room(8192)][..], (TOKEN, 0)));
        let mut room = Room::default();
        room.gather(totals);
        let asks = gathers.read_here((TOKEN, 0), Vec::new(), room, &own).unwrap();
        assert_eq!(asks.len(), 2);
        (gathers, own)
    }

    fn piece() -> Pieces {
        vec![(0, Bytes::from_static(&ZEROS[..4096]))]
    }

    #[test]
    fn a_gathering_counts_until_all_fragments_are_there() {
        let totals = Arc::default();
        let (mut gathers, own) = begun(&totals);
        gathers.took((TOKEN, 0), Unit::Data(0), Ok(piece()), &own);
        assert!(gathers.end(TOKEN, &own).is_none());
        // The other member is asked instead, and so is this one once more.
        let again = gathers.took((TOKEN, 0), Unit::Data(1), Err(ReadError), &own);
        assert_eq!((again.map(|asks| asks.len()), totals.gathers()), (Some(2), 1));
        gathers.took((TOKEN, 1), Unit::Data(0), Ok(piece()), &own);
        assert!(gathers.end(TOKEN, &own).is_none() && totals.gathers() == 1);
        gathers.took((TOKEN, 1), Unit::Parity(0), Ok(piece()), &own);
        // Whoever wanted it may wait for more room, so it does not count while that holds this.
        let ended = gathers.end(TOKEN, &own);
        assert_eq!((ended.is_some(), totals.gathers()), (true, 0));
    }

    #[test]
    fn a_gathering_that_is_forgotten_does_not_count() {
        let totals = Arc::default();
        for forget in [|g: &mut Gathers| g.forget(TOKEN), Gathers::clear] {
            let (mut gathers, own) = begun(&totals);
            assert_eq!(totals.gathers(), 1);
            forget(&mut gathers);
            assert_eq!(totals.gathers(), 0);
            // Room that comes for it then is given back at once.
            let mut room = Room::default();
            room.gather(&totals);
            assert!(gathers.read_here((TOKEN, 0), Vec::new(), room, &own).is_none());
            assert_eq!(totals.gathers(), 0);
        }
    }
}
