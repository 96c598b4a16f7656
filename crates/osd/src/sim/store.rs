//! A store in memory: changes are visible at once, and survive a crash once flushed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use spirula_denc::{Extent, decode_all};
use spirula_maps::{Interval, IntervalSet, PgId};

use crate::core::Core;
use crate::pg::account::Room;
use crate::pg::coded::redo::Redo;
use crate::pg::fetch::{Answer, Fetched, OmapPage, OmapRange, ReadError, Want};
use crate::pg::info::PgInfo;
use crate::pg::key::{self, KeyRange};
use crate::pg::log::LogEntry;
use crate::pg::object::Attrs;
use crate::pg::staged::Staged;
use crate::pg::txn::{MetaOp, ObjectOp, Txn};
use crate::pg::{StoreReply, StoredObject, Token};

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Object {
    pub(super) data: Vec<u8>,
    /// Where somebody wrote.
    written: IntervalSet,
    pub(super) info: Bytes,
    pub(super) attrs: Attrs,
    pub(super) omap: BTreeMap<Bytes, Bytes>,
    pub(super) omap_header: Bytes,
}

#[derive(Debug, Clone, Default)]
struct State {
    objects: BTreeMap<Bytes, Object>,
    meta: BTreeMap<Bytes, Bytes>,
}

#[derive(Debug, Default)]
pub(super) struct FakeStore {
    visible: State,
    durable: State,
    unflushed: VecDeque<(Token, Txn)>,
    /// Objects whose data and omaps can't be read.
    pub(super) rotten: BTreeSet<Bytes>,
    /// Objects that can't be looked up.
    pub(super) unknown: BTreeSet<Bytes>,
    /// It can list no objects.
    pub(super) unlistable: bool,
}

impl Object {
    fn stored(&self) -> StoredObject {
        StoredObject {
            info: self.info.clone(),
            attrs: self.attrs.clone(),
            size: self.data.len() as u64,
        }
    }

    fn written_in(&self, offset: u64, len: u64) -> Vec<Extent> {
        let (start, end) = (offset, offset.saturating_add(len));
        let cut = |r: Interval| r.start.max(start)..r.end().min(end);
        let cut = self.written.ranges().map(cut).filter(|r| !r.is_empty());
        cut.map(Extent::from).collect()
    }

    fn answer(&self, want: &Want) -> Answer {
        match want {
            Want::Data(r) => {
                let ranges = match r.sparse {
                    true => self.written_in(r.offset, r.len),
                    false => {
                        let end = r.offset.saturating_add(r.len).min(self.data.len() as u64);
                        Vec::from_iter((r.offset < end).then(|| Extent::from(r.offset..end)))
                    }
                };
                let piece = |e: Extent| {
                    let data = &self.data[e.offset as usize..e.end() as usize];
                    (e.offset, Bytes::copy_from_slice(data))
                };
                Answer::Data(ranges.into_iter().map(piece).collect())
            }
            Want::Extents(e) => Answer::Extents(self.written_in(e.offset, e.len)),
            Want::Omap(r) => {
                let (mut page, mut bytes) = (OmapPage::default(), 0);
                for (k, v) in self.omap.range(r.from.clone()..) {
                    if r.to.as_ref().is_some_and(|to| k >= to) {
                        break;
                    }
                    if page.pairs.len() == r.max || bytes >= r.max_bytes {
                        page.more = true;
                        break;
                    }
                    let v = if r.values { v.clone() } else { Bytes::new() };
                    bytes += k.len() + v.len() + OmapRange::PAIR_OVERHEAD;
                    page.pairs.push((k.clone(), v));
                }
                Answer::Omap(page)
            }
            Want::OmapKeys(want) => {
                let (mut page, mut bytes) = (OmapPage::default(), 0);
                for (k, v) in want.keys.iter().filter_map(|k| self.omap.get_key_value(k)) {
                    page.more = bytes >= want.max_bytes;
                    if page.more {
                        break;
                    }
                    let v = if want.values { v.clone() } else { Bytes::new() };
                    bytes += k.len() + v.len();
                    page.pairs.push((k.clone(), v));
                }
                Answer::Omap(page)
            }
            Want::Base(..) | Want::Copy(_) | Want::Staged { .. } | Want::Large(..) => {
                panic!("not for the store")
            }
            Want::OmapHeader => Answer::OmapHeader(self.omap_header.clone()),
            Want::Room(_) => Answer::Room,
            Want::Object(_) => unreachable!("is about another object"),
        }
    }
}

impl State {
    fn apply(&mut self, txn: &Txn) {
        for (key, ops) in &txn.objects {
            for op in ops {
                self.change(key, op);
            }
        }
        for op in &txn.meta {
            match op {
                MetaOp::Put(k, v) => drop(self.meta.insert(k.clone(), v.clone())),
                MetaOp::Delete(k) => drop(self.meta.remove(k)),
                MetaOp::DeleteRange(from, to) => self.meta.retain(|k, _| k < from || k >= to),
            }
        }
    }

    fn change(&mut self, key: &Bytes, op: &ObjectOp) {
        match op {
            ObjectOp::Remove => return drop(self.objects.remove(key)),
            ObjectOp::CloneOf(source) | ObjectOp::CloneOfData(source) => {
                if let Some(mut o) = self.objects.get(source).cloned() {
                    if matches!(op, ObjectOp::CloneOfData(_)) {
                        o.omap.clear();
                    }
                    self.objects.insert(key.clone(), o);
                }
                return;
            }
            ObjectOp::MoveOf(source) => {
                let moved = self.objects.remove(source).expect("what is moved is there");
                self.objects.insert(key.clone(), moved);
                return;
            }
            ObjectOp::Take(stage) => {
                let staged = self.objects.remove(stage).expect("what is taken is staged");
                let o = self.objects.entry(key.clone()).or_default();
                if o.data.len() < staged.data.len() {
                    o.data.resize(staged.data.len(), 0);
                }
                for r in staged.written.ranges() {
                    let range = r.start as usize..r.end() as usize;
                    o.data[range.clone()].copy_from_slice(&staged.data[range]);
                    o.written.insert_range(r.start, r.end() - r.start);
                }
                return;
            }
            ObjectOp::NoteSnaps { add, remove } => {
                for s in add {
                    self.meta.insert(key::snap_key(*s, key), Bytes::new());
                }
                remove
                    .iter()
                    .for_each(|s| drop(self.meta.remove(&key::snap_key(*s, key))));
                return;
            }
            ObjectOp::ForgetSnaps { to, snaps } => {
                for s in snaps {
                    let gone = key::snap_records(*s, key, to);
                    self.meta.retain(|k, _| !gone.contains(k));
                }
                return;
            }
            _ => {}
        }
        let o = self.objects.entry(key.clone()).or_default();
        match op {
            ObjectOp::Touch
            | ObjectOp::Remove
            | ObjectOp::CloneOf(_)
            | ObjectOp::CloneOfData(_)
            | ObjectOp::MoveOf(_)
            | ObjectOp::Take(_)
            | ObjectOp::NoteSnaps { .. }
            | ObjectOp::ForgetSnaps { .. } => {}
            ObjectOp::Step(_) | ObjectOp::Portion { .. } | ObjectOp::Stage { .. } => {
                panic!("the store is to get fragments, not {op:?}")
            }
            ObjectOp::Write { offset, data } => {
                let (from, to) = (*offset as usize, *offset as usize + data.len());
                if o.data.len() < to {
                    o.data.resize(to, 0);
                }
                o.data[from..to].copy_from_slice(data);
                o.written.insert_range(*offset, data.len() as u64);
            }
            ObjectOp::WritePlaced {
                offset,
                len,
                placement,
                ..
            } => {
                let data = placement
                    .as_ref()
                    .and_then(|p| p.get::<Bytes>())
                    .expect("data that was placed");
                assert_eq!(data.len() as u64, *len);
                let (offset, data) = (*offset, data.clone());
                self.change(key, &ObjectOp::Write { offset, data });
            }
            ObjectOp::Zero { offset, len } => {
                let to = (*offset + *len) as usize;
                if o.data.len() < to {
                    o.data.resize(to, 0);
                }
                o.data[*offset as usize..to].fill(0);
                o.written.remove_range(*offset, *len);
            }
            ObjectOp::Truncate { size } => {
                o.data.resize(*size as usize, 0);
                o.written.remove_range(*size, u64::MAX - size);
            }
            ObjectOp::SetInfo(info) => o.info = info.clone(),
            ObjectOp::SetAttr { name, value } => drop(o.attrs.insert(name.clone(), value.clone())),
            ObjectOp::RmAttr(name) => drop(o.attrs.remove(name)),
            ObjectOp::OmapSet(pairs) => o.omap.extend(pairs.iter().cloned()),
            ObjectOp::OmapRm(keys) => keys.iter().for_each(|k| drop(o.omap.remove(k))),
            ObjectOp::OmapRmRange { from, to } => o.omap.retain(|k, _| k < from || k >= to),
            ObjectOp::OmapClear => {
                o.omap.clear();
                o.omap_header = Bytes::new();
            }
            ObjectOp::OmapHeader(header) => o.omap_header = header.clone(),
        }
    }
}

impl FakeStore {
    pub(super) fn submit(&mut self, token: Token, txn: Txn) {
        for (key, ops) in &txn.objects {
            let size = self.visible.objects.get(key).map_or(0, |o| o.data.len());
            let all_new = |op: &ObjectOp| match op {
                ObjectOp::Remove | ObjectOp::CloneOf(_) | ObjectOp::MoveOf(_) => true,
                ObjectOp::Write { offset: 0, data } => data.len() >= size,
                _ => false,
            };
            if ops.iter().any(all_new) {
                self.rotten.remove(key);
                self.unknown.remove(key);
            }
        }
        self.visible.apply(&txn);
        self.unflushed.push_back((token, txn));
    }

    pub(super) fn has_unflushed(&self) -> bool {
        !self.unflushed.is_empty()
    }

    pub(super) fn unflushed_len(&self) -> usize {
        self.unflushed.len()
    }

    pub(super) fn flush(&mut self) -> Vec<Token> {
        let mut tokens = Vec::new();
        for (token, txn) in self.unflushed.drain(..) {
            self.durable.apply(&txn);
            tokens.push(token);
        }
        tokens
    }

    /// Makes the first transactions that are not durable so, of which nobody hears.
    pub(super) fn flush_first(&mut self, n: usize) {
        for (_, txn) in self.unflushed.drain(..n.min(self.unflushed.len())) {
            self.durable.apply(&txn);
        }
    }

    pub(super) fn crash(&mut self) {
        self.unflushed.clear();
        self.visible = self.durable.clone();
    }

    pub(super) fn lookup(&self, key: &Bytes) -> StoreReply {
        if self.unknown.contains(key) {
            return StoreReply::Object(Err(ReadError));
        }
        let found = self.visible.objects.get(key);
        StoreReply::Object(Ok(found.map(Object::stored)))
    }

    pub(super) fn read(&self, key: &Bytes, wants: &[Want]) -> StoreReply {
        let none = Object::default();
        let o = self.visible.objects.get(key).unwrap_or(&none);
        let rotten = self.rotten.contains(key);
        let one = |want: &Want| Fetched {
            want: want.clone(),
            answer: Ok(match want {
                Want::Data(_) | Want::Omap(_) | Want::OmapKeys(_) if rotten => {
                    return Fetched {
                        want: want.clone(),
                        answer: Err(ReadError),
                    };
                }
                Want::Object(other) => Answer::Object(self.visible.objects.get(other).map(Object::stored)),
                want => o.answer(want),
            }),
        };
        StoreReply::Fetched(wants.iter().map(one).collect(), Room::default())
    }

    pub(super) fn list(&self, from: &Bytes, to: &Bytes, max: usize) -> StoreReply {
        if self.unlistable {
            return StoreReply::Objects(Err(ReadError));
        }
        let range = if from < to {
            Some(self.visible.objects.range(from.clone()..to.clone()))
        } else {
            None
        };
        let mut all = range
            .into_iter()
            .flatten()
            .map(|(k, o)| (k.clone(), o.info.clone()));
        let page: Vec<_> = all.by_ref().take(max).collect();
        let next = all.next().map(|(k, _)| k);
        StoreReply::Objects(Ok((page, next)))
    }

    pub(super) fn list_records(&self, from: &Bytes, to: &Bytes, max: usize) -> StoreReply {
        let found = self.visible.meta.range(from.clone()..to.clone());
        StoreReply::Records(Ok(found.take(max).map(|(k, v)| (k.clone(), v.clone())).collect()))
    }

    pub(super) fn load(&self, core: &mut Core) {
        let records = |KeyRange { from, to }| self.visible.meta.range(from..to);
        for (k, v) in records(key::all_infos()) {
            let pgid = key::parse_info_key(k).unwrap();
            let info: PgInfo = decode_all(v).unwrap();
            let entries = records(key::log_range(pgid));
            let entries: Vec<LogEntry> = entries.map(|(_, v)| decode_all(v).unwrap()).collect();
            let redo: Vec<(Bytes, Bytes)> = records(key::redo_range(pgid))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let redo = Redo::load(&redo, &entries).unwrap();
            let KeyRange { from, to } = key::coded_stage_range(pgid, info.pg_num);
            let staged = self.visible.objects.range(from..to).map(|(k, _)| k.clone());
            let staged = Staged::load(staged);
            core.load(pgid, info, entries);
            let batches = records(key::dups_range(pgid));
            let batches = batches.map(|(_, v)| decode_all(v).unwrap()).collect();
            core.load_beside(pgid, batches, redo, staged);
        }
    }

    /// Changes the objects behind everybody's back.
    pub(super) fn damage(&mut self, f: impl Fn(&mut BTreeMap<Bytes, Object>)) {
        f(&mut self.visible.objects);
        f(&mut self.durable.objects);
    }

    /// Loses the records of clones' snapshots.
    pub(super) fn lose_snap_records(&mut self) {
        for state in [&mut self.visible, &mut self.durable] {
            state.meta.retain(|k, _| key::parse_snap_key(k).is_none());
        }
    }

    /// All objects in the order of their keys.
    pub(super) fn objects(&self) -> &BTreeMap<Bytes, Object> {
        &self.visible.objects
    }

    /// Records of clones' snapshots.
    pub(super) fn snap_records(&self) -> usize {
        self.visible
            .meta
            .keys()
            .filter(|k| key::parse_snap_key(k).is_some())
            .count()
    }

    /// What the store says of its copy of a PG.
    pub(super) fn info(&self, pgid: PgId) -> Option<PgInfo> {
        let record = self.visible.meta.get(&key::info_key(pgid))?;
        Some(decode_all(record).unwrap())
    }

    pub(super) fn meta_len(&self) -> usize {
        self.visible.meta.len()
    }
}
