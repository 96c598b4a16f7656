//! An object that is pushed, in parts.
//!
//! A part becomes one transaction of the target, which has to fit into the store's log. The space
//! that it takes there has little to do with its bytes: a single byte takes a block, a range that
//! became zeros up to three, a pair of an omap its key and value and some overhead. So parts are
//! cut by their log space, whatever the shape of the object. An attribute or a pair of an omap,
//! which a client stored in one request, fits alone in any case, as the request did
//! ([`crate::pg::config::PgConfig::max_logged`]).
//!
//! Data comes first, then the omap, then its header and the attributes, and with the last part the
//! info: without it, the target's object is no version of the object.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use spirula_denc::{Extent, decode_all};
use spirula_invariant::{impossible, invariant};
use spirula_maps::{EVersion, IntervalSet};

use crate::pg::dirty::Dirty;
use crate::pg::fetch::{Answer, Fetched, OmapRange, Pieces, ReadError, ReadRange, Want, key_after};
use crate::pg::layout::Shape;
use crate::pg::object::ObjectInfo;
use crate::pg::object::StoredObject;
use crate::pg::push::{Lacking, Patch, PushEnd, PushPart};
use crate::pg::repair::message::Place;
use crate::pg::txn;
use crate::pg::txn::{ObjectOp, PAIR_LOGGED};

/// The most ranges of an object that are read for one part.
const MOST_READS: usize = 256;
/// The most omap keys that are read for one part.
const OMAP_PAGE: usize = 4096;

/// Changes with which a part may begin, besides those of its content.
const BEGIN_OPS: usize = 4;

/// An object that is read and pushed part by part.
#[derive(Debug)]
pub(in crate::pg) struct Parts {
    pub(in crate::pg) key: Bytes,
    /// `None` until it was looked up.
    object: Option<(Bytes, ObjectInfo)>,
    /// The PG's version when the object was looked up, by which later writes of it are noticed.
    pub(in crate::pg) since: EVersion,
    /// The version of the PG as of which the target has the object, if known ([`Lacking::had`]).
    pub(in crate::pg) had: Option<EVersion>,
    /// Whether a part was made.
    begun: bool,
    /// The place where the first part begins: nothing before it is pushed.
    from: Place,
    data: Data,
    /// The omap key from which on pairs are to be read, after the data; `None` if there are none.
    omap: Option<Bytes>,
    /// The omap pairs that were read, and are to be pushed.
    pairs: VecDeque<(Bytes, Bytes)>,
    /// The header and attributes that are to be pushed after all that.
    rest: Remainder,
    /// Whether the last part was made.
    ended: bool,
    /// Whether the omap changed, if only changes are pushed; `None` if the whole object is.
    patch: Option<bool>,
    /// Bytes of data that are pushed in all.
    total: u64,
}

/// The data of an object that is pushed.
#[derive(Debug, Default)]
struct Data {
    /// What of the data is pushed. Ranges and sizes are of that.
    shape: Shape,
    /// The ranges that are to be read.
    left: VecDeque<Range<u64>>,
    /// The ranges that are being read.
    reading: Vec<Extent>,
    /// The spans that were read, and are to be pushed.
    spans: VecDeque<Span>,
}

/// A range of the object: its bytes, or zeros that nobody wrote.
#[derive(Debug)]
struct Span {
    offset: u64,
    len: u64,
    data: Option<Bytes>,
}

/// The rest of an object, which is pushed after data and pairs.
#[derive(Debug, Default)]
struct Remainder {
    /// The omap's header, if it was read.
    header: Option<Bytes>,
    left: VecDeque<Rest>,
    /// How many of header and attributes were pushed.
    done: u64,
}

/// A piece of an object besides data and pairs.
#[derive(Debug)]
enum Rest {
    /// The omap's header.
    Header,
    /// An attribute.
    Attr(Bytes, Bytes),
}

/// A part of an object, as it is pushed.
#[derive(Debug)]
pub(in crate::pg) struct Part {
    pub(in crate::pg) part: PushPart,
    /// The bytes of data and pairs, or the space in the target's log, whichever is more.
    pub(in crate::pg) weight: u64,
}

/// The room in one part.
struct Room {
    /// Bytes that are logged with each change: the object's key, and a fixed overhead.
    record: usize,
    /// The used and the most bytes in the log.
    logged: usize,
    most: usize,
    /// Bytes of data and pairs.
    bytes: usize,
    is_empty: bool,
}

impl Room {
    fn new(key: &Bytes, most: usize) -> Self {
        let record = key.len() + PAIR_LOGGED;
        Self {
            record,
            logged: BEGIN_OPS * record,
            most,
            bytes: 0,
            is_empty: true,
        }
    }

    /// Takes room for a change that logs `logged` bytes and has `bytes`; returns whether there is
    /// room. There always is for the first one.
    fn takes(&mut self, logged: usize, bytes: usize) -> bool {
        let sum = self.logged.saturating_add(logged);
        let fits = self.is_empty || sum <= self.most;
        if fits {
            (self.logged, self.is_empty) = (sum, false);
            self.bytes += bytes;
        }
        fits
    }

    fn takes_span(&mut self, span: &Span) -> bool {
        let len = span.data.as_ref().map_or(0, Bytes::len);
        let logged = match &span.data {
            Some(data) => txn::small_write_logged(data.len()),
            None => txn::ZERO_LOGGED,
        };
        self.takes(self.record + logged, len)
    }

    fn takes_pair(&mut self, (key, value): &(Bytes, Bytes)) -> bool {
        let bytes = key.len() + value.len();
        self.takes(bytes + PAIR_LOGGED, bytes)
    }

    fn weight(&self) -> u64 {
        self.logged.max(self.bytes) as u64
    }
}

impl Parts {
    pub(in crate::pg) fn new(object: Lacking, shape: Shape, since: EVersion) -> Self {
        Self {
            key: object.key,
            object: None,
            since,
            had: object.had,
            begun: false,
            from: Place::default(),
            data: Data {
                shape,
                ..Data::default()
            },
            omap: None,
            pairs: VecDeque::new(),
            rest: Remainder::default(),
            ended: false,
            patch: None,
            total: 0,
        }
    }

    /// The parts from a place on, where an earlier part ended.
    pub(in crate::pg) fn from_place(key: Bytes, shape: Shape, from: Place) -> Self {
        Self {
            begun: from != Place::default(),
            from,
            ..Self::new(Lacking { key, had: None }, shape, EVersion::ZERO)
        }
    }

    /// The bytes of data that there are to push.
    fn size(&self) -> u64 {
        self.object
            .as_ref()
            .map_or(0, |(_, info)| self.data.shape.size(info.size))
    }

    /// The place where the next part begins.
    pub(in crate::pg) fn place(&self) -> Place {
        let size = self.size();
        let data = self.data.spans.front().map(|s| s.offset);
        let data = data.or_else(|| self.data.left.front().map(|r| r.start));
        let key = self.pairs.front().map(|(k, _)| k).or(self.omap.as_ref());
        match (data, key) {
            (Some(offset), _) => Place {
                offset,
                key: Bytes::new(),
            },
            (None, Some(key)) => Place {
                offset: size,
                key: key.clone(),
            },
            (None, None) => Place::of_rest(size, self.rest.done),
        }
    }

    /// Whether the object was looked up.
    pub(in crate::pg) fn is_found(&self) -> bool {
        self.object.is_some()
    }

    /// Whether the last part was made.
    pub(in crate::pg) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes of data that are pushed in all.
    pub(in crate::pg) fn total(&self) -> u64 {
        self.total
    }

    /// Sets the object as the store has it, and what of it changed, if only that is to be pushed.
    pub(in crate::pg) fn set_object(&mut self, o: StoredObject, info: ObjectInfo, changed: Option<Dirty>) {
        let size = self.data.shape.size(info.size);
        invariant!(self.object.is_none(), "an object that is pushed to be looked up once"; version = info.version);
        self.data.left = match &changed {
            Some(dirty) => self.data.shape.changed(dirty, info.size).into(),
            None => Some(self.from.offset..size)
                .filter(|r| !r.is_empty())
                .into_iter()
                .collect(),
        };
        self.patch = changed.map(|d| d.omap());
        let pushes_omap = info.has_omap() && self.patch != Some(false);
        self.rest.done = self.from.rest_done(size).unwrap_or(0);
        self.omap = (pushes_omap && self.from.rest_done(size).is_none()).then(|| self.from.key.clone());
        let attrs = o.attrs.into_iter().map(|(name, value)| Rest::Attr(name, value));
        let rest = pushes_omap.then_some(Rest::Header).into_iter().chain(attrs);
        let done = usize::try_from(self.rest.done).unwrap_or(usize::MAX);
        self.rest.left = rest.skip(done).collect();
        self.total = self.data.left.iter().map(|r| r.end - r.start).sum();
        self.object = Some((o.info, info));
    }

    /// The object's version, when it was looked up.
    pub(in crate::pg) fn version(&self) -> Option<EVersion> {
        self.object.as_ref().map(|(_, info)| info.version)
    }

    /// The reads for the next part; empty if the data at hand already makes one.
    pub(in crate::pg) fn wants(&mut self, chunk: u64) -> Vec<Want> {
        self.data.reading.clear();
        if !self.data.spans.is_empty() || !self.pairs.is_empty() {
            return Vec::new();
        }
        let mut room = chunk;
        while let Some(range) = self.data.left.front_mut()
            && room > 0
            && self.data.reading.len() < MOST_READS
        {
            let len = room.min(range.end - range.start);
            let offset = range.start;
            self.data.reading.push(Extent { offset, len });
            room -= len;
            range.start += len;
            if range.is_empty() {
                self.data.left.pop_front();
            }
        }
        if !self.data.reading.is_empty() {
            let want = |e: &Extent| {
                Want::Data(ReadRange {
                    offset: e.offset,
                    len: e.len,
                    sparse: true,
                })
            };
            return self.data.reading.iter().map(want).collect();
        }
        let is_header_wanted =
            matches!(self.rest.left.front(), Some(Rest::Header)) && self.rest.header.is_none();
        let header = is_header_wanted.then_some(Want::OmapHeader);
        let page = self.omap.clone().map(|from| {
            Want::Omap(OmapRange {
                from,
                to: None,
                max: OMAP_PAGE,
                max_bytes: usize::try_from(chunk).unwrap_or(usize::MAX),
                values: true,
            })
        });
        header.into_iter().chain(page).collect()
    }

    /// Adds the answers of the reads.
    fn take(&mut self, answers: Vec<Fetched>) -> Result<(), ReadError> {
        let mut pieces = Pieces::new();
        for f in answers {
            match f.answer? {
                Answer::Data(data) => pieces.extend(data),
                Answer::Omap(page) => {
                    let next = page.pairs.last().map(|(k, _)| key_after(k));
                    self.omap = next.filter(|_| page.more);
                    self.pairs.extend(page.pairs);
                }
                Answer::OmapHeader(header) => self.rest.header = Some(header),
                Answer::Extents(_)
                | Answer::Object(_)
                | Answer::Room
                | Answer::Copy(_)
                | Answer::Staged(_) => {
                    return Err(ReadError);
                }
            }
        }
        let reading = std::mem::take(&mut self.data.reading);
        let zeros = match self.patch {
            Some(_) => holes(&reading, &pieces),
            None => Vec::new(),
        };
        let data = pieces.into_iter().map(|(offset, data)| Span {
            offset,
            len: data.len() as u64,
            data: Some(data),
        });
        let zeros = zeros.into_iter().map(|Extent { offset, len }| Span {
            offset,
            len,
            data: None,
        });
        let mut spans: Vec<Span> = data.chain(zeros).collect();
        spans.sort_by_key(|s| s.offset);
        self.data.spans.extend(spans);
        Ok(())
    }

    /// The next part, made of the answers. If it has more than one change, it takes at most `most`
    /// bytes in the target's log.
    pub(in crate::pg) fn part(&mut self, answers: Vec<Fetched>, most: usize) -> Result<Part, ReadError> {
        invariant!(!self.ended, "no part of an object after the last one"; since = self.since);
        self.take(answers)?;
        let Some((stored, info)) = &self.object else {
            impossible!("an object that is pushed to have been looked up"; since = self.since);
        };
        let mut room = Room::new(&self.key, most);
        let (mut pieces, mut zeros, mut pairs) = (Pieces::new(), Vec::new(), Vec::new());
        while let Some(span) = pop_if(&mut self.data.spans, |s| room.takes_span(s)) {
            match span.data {
                Some(data) => pieces.push((span.offset, data)),
                None => zeros.push(Extent {
                    offset: span.offset,
                    len: span.len,
                }),
            }
        }
        let has_data = !self.data.spans.is_empty() || !self.data.left.is_empty();
        while !has_data && let Some(pair) = pop_if(&mut self.pairs, |p| room.takes_pair(p)) {
            pairs.push(pair);
        }
        let has_more = has_data || !self.pairs.is_empty() || self.omap.is_some();
        let mut end = PushEnd {
            size: self.data.shape.size(info.size),
            info: Bytes::new(),
            attrs: Vec::new(),
            omap_header: Bytes::new(),
        };
        let mut has_end = false;
        while !has_more && let Some(rest) = self.rest.left.front() {
            let logged = match rest {
                Rest::Header => self.rest.header.as_ref().ok_or(ReadError)?.len(),
                Rest::Attr(name, value) => name.len() + value.len(),
            };
            if !room.takes(room.record + logged, 0) {
                break;
            }
            match self.rest.left.pop_front() {
                Some(Rest::Header) => end.omap_header = self.rest.header.take().unwrap_or_default(),
                Some(Rest::Attr(name, value)) => end.attrs.push((name, value)),
                None => {}
            }
            self.rest.done += 1;
            has_end = true;
        }
        let snaps = (info.snaps.len() + 1).saturating_mul(room.record);
        let logged = stored.len() + 2 * room.record + txn::ZERO_LOGGED + snaps;
        if !has_more && self.rest.left.is_empty() && room.takes(logged, 0) {
            end.info = stored.clone();
            (self.ended, has_end) = (true, true);
        }
        let first = !std::mem::replace(&mut self.begun, true);
        let part = PushPart::Data {
            first,
            pieces,
            pairs,
            last: has_end.then_some(end),
            patch: self.patch.map(|omap| Patch { omap, zeros }),
        };
        Ok(Part {
            part,
            weight: room.weight(),
        })
    }
}

/// Removes the first item of the queue, if it is wanted.
fn pop_if<T>(queue: &mut VecDeque<T>, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
    let wanted = queue.front().is_some_and(is_wanted);
    wanted.then(|| queue.pop_front()).flatten()
}

/// The parts of the ranges that are not stored, given the stored pieces.
fn holes(ranges: &[Extent], pieces: &Pieces) -> Vec<Extent> {
    let mut all = IntervalSet::new();
    ranges.iter().for_each(|r| all.insert_range(r.offset, r.len));
    pieces
        .iter()
        .for_each(|(at, data)| all.remove_range(*at, data.len() as u64));
    all.ranges().map(Extent::from).collect()
}

/// Divides changes of objects among transactions. Those that change more than one object take at
/// most `most` bytes in the log.
pub(in crate::pg) fn divide(
    objects: Vec<(Bytes, Vec<ObjectOp>)>,
    most: usize,
) -> Vec<Vec<(Bytes, Vec<ObjectOp>)>> {
    let (mut out, mut logged): (Vec<Vec<_>>, usize) = (Vec::new(), 0);
    let count = objects.len();
    for object in objects {
        let bytes = txn::log_bytes(std::slice::from_ref(&object));
        logged = logged.saturating_add(bytes);
        match out.last_mut().filter(|_| logged <= most) {
            Some(last) => last.push(object),
            None => {
                out.push(vec![object]);
                logged = bytes;
            }
        }
    }
    let divided = out.iter().map(Vec::len).sum::<usize>();
    invariant!(divided == count, "each change to be in one of the transactions"; changes = count, divided = divided);
    out
}

/// The changes in the store for a part of an object, and those of the snapshots that a clone stands
/// for, which are kept with the clone's key.
pub(in crate::pg) fn part_changes(
    first: bool,
    patch: Option<Patch>,
    pieces: Pieces,
    pairs: Vec<(Bytes, Bytes)>,
    last: Option<PushEnd>,
) -> (Vec<ObjectOp>, Option<ObjectOp>) {
    let mut ops = Vec::new();
    match &patch {
        None if first => ops.extend([ObjectOp::Remove, ObjectOp::Touch]),
        // Half a patch is no version of the object: it has no info, as one that is begun anew.
        Some(_) if first => ops.push(ObjectOp::SetInfo(Bytes::new())),
        _ => {}
    }
    if patch.as_ref().is_some_and(|p| first && p.omap) {
        ops.push(ObjectOp::OmapClear);
    }
    let zeros = patch.into_iter().flat_map(|p| p.zeros);
    ops.extend(zeros.map(|Extent { offset, len }| ObjectOp::Zero { offset, len }));
    let pieces = pieces.into_iter();
    ops.extend(pieces.map(|(offset, data)| ObjectOp::Write { offset, data }));
    if !pairs.is_empty() {
        ops.push(ObjectOp::OmapSet(pairs));
    }
    let Some(end) = last else { return (ops, None) };
    if !end.omap_header.is_empty() {
        ops.push(ObjectOp::OmapHeader(end.omap_header));
    }
    ops.push(ObjectOp::Truncate { size: end.size });
    let attrs = end.attrs.into_iter();
    ops.extend(attrs.map(|(name, value)| ObjectOp::SetAttr { name, value }));
    let add = decode_all::<ObjectInfo>(&end.info).unwrap_or_default().snaps;
    ops.push(ObjectOp::SetInfo(end.info));
    let remove = Vec::new();
    let snaps = (!add.is_empty()).then_some(ObjectOp::NoteSnaps { add, remove });
    (ops, snaps)
}
