//! Random transactions against a model, with power cuts at every kind of moment.
//!
//! A failure prints its seed; `SPIRULA_SEED=n cargo test -p spirula-store --test model` runs only
//! that one, and `SPIRULA_SEEDS=n` runs n of them.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use bytes::Bytes;
use spirula_random::Rng;
use spirula_store::device::{BlockIo, Fault, SimDisk};
use spirula_store::{
    Config, Depth, Devices, EncryptionKey, Event, Lookup, MkfsOptions, Notify, ObjectKey, Op, PageLimit,
    Pairs, Payload, Placed, Read, Store, StoreError, Token, Transaction, Way, fsck_on, mkfs_on, unlock,
};

const DISK: usize = 12 << 20;
/// The size of a log's own disk, in bytes.
const LOG_DISK: usize = 512 << 10;
const BLOCK: usize = 4096;

fn bytes(rng: &mut Rng, len: usize) -> Bytes {
    rng.bytes(len).into()
}

/// Blocks that end with the checksum of what is before: contents differ, and the store's checksums
/// of them do not.
fn checksummed_blocks(rng: &mut Rng, count: usize) -> Bytes {
    let mut out = Vec::with_capacity(count * BLOCK);
    for _ in 0..count {
        let text = rng.bytes(BLOCK - 4);
        out.extend_from_slice(&text);
        out.extend(crc32c::crc32c(&text).to_le_bytes());
    }
    out.into()
}

#[derive(Clone, Default, Debug)]
struct Object {
    data: Vec<u8>,
    /// Whether each byte is data.
    written: Vec<bool>,
    /// Whether a block had about as many holes as the store records: after that, some may count as
    /// data.
    coarse: bool,
    info: Bytes,
    attrs: BTreeMap<Bytes, Bytes>,
    omap: BTreeMap<Bytes, Bytes>,
    header: Bytes,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        let written = self.coarse || other.coarse || self.written == other.written;
        let rest = |o: &Self| (o.info.clone(), o.attrs.clone(), o.omap.clone(), o.header.clone());
        written && self.data == other.data && rest(self) == rest(other)
    }
}

impl Object {
    fn resize(&mut self, size: usize) {
        self.data.resize(size, 0);
        self.written.resize(size, false);
    }

    /// Grows to hold the range, and marks it as data or not.
    fn mark(&mut self, range: std::ops::Range<usize>, written: bool) {
        if range.is_empty() {
            return;
        }
        self.resize(self.data.len().max(range.end));
        self.written[range].fill(written);
        self.note_holes();
    }

    fn note_holes(&mut self) {
        let holes = |block: &[bool]| block.chunk_by(|a, b| a == b).filter(|run| !run[0]).count();
        self.coarse |= self.written.chunks(BLOCK).any(|block| holes(block) >= 8);
    }
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    meta: BTreeMap<Bytes, Bytes>,
}

impl Model {
    fn at(&mut self, key: &ObjectKey) -> &mut Object {
        Arc::make_mut(self.objects.entry(key.clone()).or_default())
    }

    /// Makes a range of `to` one of `from`. Returns whether that is allowed.
    fn clone_range(
        &mut self,
        from: &ObjectKey,
        to: &ObjectKey,
        offset: usize,
        len: usize,
        at: usize,
    ) -> bool {
        let end = at + len;
        let longer = self.objects.get(to).is_some_and(|o| o.data.len() > end);
        if from == to || !len.is_multiple_of(BLOCK) && longer {
            return false;
        }
        let source = self.objects.get(from).cloned().unwrap_or_default();
        let object = self.at(to);
        if len == 0 {
            return true;
        }
        object.mark(at..end, false);
        object.data[at..end].fill(0);
        let part = offset.min(source.data.len())..(offset + len).min(source.data.len());
        let place = at..at + part.len();
        object.data[place.clone()].copy_from_slice(&source.data[part.clone()]);
        object.written[place].copy_from_slice(&source.written[part]);
        object.coarse |= source.coarse;
        object.note_holes();
        true
    }

    fn write(&mut self, key: &ObjectKey, offset: u64, bytes: &[u8]) {
        let object = self.at(key);
        let end = offset as usize + bytes.len();
        object.mark(offset as usize..end, true);
        if !bytes.is_empty() {
            object.data[offset as usize..end].copy_from_slice(bytes);
        }
    }

    /// Returns whether the operation is allowed.
    fn apply(&mut self, op: &Op) -> bool {
        match op {
            Op::CloneRange {
                from,
                to,
                offset,
                len,
                at,
            } => return self.clone_range(from, to, *offset as usize, *len as usize, *at as usize),
            Op::WritePlaced { .. } => panic!("placed data is known to its owner alone"),
            Op::Touch(key) => drop(self.at(key)),
            Op::Write { key, offset, data } => self.write(key, *offset, &data.parts.concat()),
            Op::Zero { key, offset, len } => {
                let object = self.at(key);
                let end = (*offset + *len) as usize;
                object.mark(*offset as usize..end, false);
                if *len > 0 {
                    object.data[*offset as usize..end].fill(0);
                }
            }
            Op::Truncate { key, size } => self.at(key).resize(*size as usize),
            Op::Remove(key) => drop(self.objects.remove(key)),
            Op::Clone { from, to, pairs } => {
                if let Some(mut object) = self.objects.get(from).cloned().filter(|_| from != to) {
                    if !pairs {
                        Arc::make_mut(&mut object).omap.clear();
                    }
                    self.objects.insert(to.clone(), object);
                }
            }
            Op::Move { from, to } => {
                if let Some(object) = self.objects.remove(from) {
                    self.objects.insert(to.clone(), object);
                }
            }
            Op::SetAttr { key, name, value } => drop(self.at(key).attrs.insert(name.clone(), value.clone())),
            Op::RmAttr { key, name } => drop(self.at(key).attrs.remove(name)),
            Op::RmAttrs(key) => self.at(key).attrs.clear(),
            Op::SetInfo { key, info } => self.at(key).info = info.clone(),
            Op::OmapSet { key, pairs } => self.at(key).omap.extend(pairs.iter().cloned()),
            Op::OmapRm { key, names } => {
                if let Some(o) = self.objects.get_mut(key).map(Arc::make_mut) {
                    names.iter().for_each(|n| drop(o.omap.remove(n)));
                }
            }
            Op::OmapRmRange { key, from, to } => {
                if let Some(o) = self.objects.get_mut(key).map(Arc::make_mut) {
                    o.omap.retain(|k, _| k < from || k >= to);
                }
            }
            Op::OmapClear(key) => {
                let o = self.at(key);
                o.omap.clear();
                o.header = Bytes::new();
            }
            Op::OmapHeader { key, header } => self.at(key).header = header.clone(),
            Op::MetaPut { key, value } => drop(self.meta.insert(key.clone(), value.clone())),
            Op::MetaDelete(key) => drop(self.meta.remove(key)),
            Op::MetaDeleteRange { from, to } => self.meta.retain(|k, _| k < from || k >= to),
        }
        true
    }
}

fn key(rng: &mut Rng) -> ObjectKey {
    ObjectKey::from(format!("object-{:02}", rng.below(12)).as_str())
}

fn name(rng: &mut Rng) -> Bytes {
    format!("name-{}", rng.below(20)).into()
}

fn offset(rng: &mut Rng) -> u64 {
    match rng.below(3) {
        0 => rng.below(60_000),
        1 => rng.below(16) * 4096,
        _ => rng.below(3) * 65_536,
    }
}

fn length(rng: &mut Rng) -> usize {
    match rng.below(10) {
        0..4 => rng.below(600) as usize,
        4..7 => rng.below(5) as usize * 4096,
        7..9 => rng.below(20_000) as usize,
        _ => 30_000 + rng.below(100_000) as usize,
    }
}

/// One of a few blocks that are written and read again and again.
fn hot_block(rng: &mut Rng) -> (ObjectKey, u64) {
    (ObjectKey::from("object-00"), rng.below(4) * BLOCK as u64)
}

fn random_op(rng: &mut Rng) -> Op {
    let key = key(rng);
    match rng.below(40) {
        0 => Op::Touch(key),
        1..4 => {
            let (key, offset) = hot_block(rng);
            let data = checksummed_blocks(rng, 1).into();
            Op::Write { key, offset, data }
        }
        4 => {
            let count = rng.below(32) as usize;
            let (offset, data) = (
                rng.below(16) * BLOCK as u64,
                checksummed_blocks(rng, count).into(),
            );
            Op::Write { key, offset, data }
        }
        5..18 => {
            let len = length(rng);
            let bytes = bytes(rng, len);
            let cut = rng.below(len as u64 + 1) as usize;
            let parts = if rng.below(3) == 0 {
                vec![bytes.slice(..cut), bytes.slice(cut..)]
            } else {
                vec![bytes]
            };
            Op::Write {
                key,
                offset: offset(rng),
                data: Payload::from(parts),
            }
        }
        18..20 => Op::Zero {
            key,
            offset: offset(rng),
            len: rng.below(30_000),
        },
        20..23 => Op::Truncate {
            key,
            size: offset(rng),
        },
        23..25 => Op::Remove(key),
        25 if rng.below(3) == 0 => Op::Move {
            from: key,
            to: self::key(rng),
        },
        25 => Op::Clone {
            from: key,
            to: self::key(rng),
            pairs: rng.below(3) > 0,
        },
        26 => Op::SetAttr {
            key,
            name: name(rng),
            value: bytes(rng, 20),
        },
        27 => Op::RmAttr { key, name: name(rng) },
        28 => Op::RmAttrs(key),
        29..31 => Op::SetInfo {
            key,
            info: bytes(rng, 100),
        },
        31..33 => Op::OmapSet {
            key,
            pairs: (0..3).map(|_| (name(rng), bytes(rng, 30))).collect(),
        },
        33 => Op::OmapRm {
            key,
            names: vec![name(rng)],
        },
        34 => Op::OmapRmRange {
            key,
            from: name(rng),
            to: name(rng),
        },
        35 => {
            if rng.below(3) == 0 {
                Op::OmapClear(key)
            } else {
                Op::OmapHeader {
                    key,
                    header: bytes(rng, 9),
                }
            }
        }
        36..38 => Op::MetaPut {
            key: name(rng),
            value: bytes(rng, 50),
        },
        38 => Op::MetaDelete(name(rng)),
        _ => Op::MetaDeleteRange {
            from: name(rng),
            to: name(rng),
        },
    }
}

/// Ranges that one object gets from another one, which is often removed then.
fn random_ranges(rng: &mut Rng, model: &Model) -> Vec<Op> {
    let block = |rng: &mut Rng| rng.below(20) * BLOCK as u64;
    let (from, to) = (key(rng), key(rng));
    let mut ops = Vec::new();
    for _ in 0..1 + rng.below(2) {
        let (offset, at) = (block(rng), block(rng));
        let at = if rng.below(3) == 0 { offset } else { at };
        let size = |key| model.objects.get(key).map_or(0, |o| o.data.len() as u64);
        let len = match rng.below(8) {
            0..4 => block(rng),
            // Up to the end of the source, the usual way.
            4..6 => size(&from).saturating_sub(offset),
            // Up to the end of the target or behind it.
            6 => size(&to).saturating_sub(at) + rng.below(2) * rng.below(6000),
            _ => length(rng) as u64,
        };
        ops.push(Op::CloneRange {
            from: from.clone(),
            to: if rng.below(4) == 0 { key(rng) } else { to.clone() },
            offset,
            len,
            at,
        });
    }
    if rng.below(3) == 0 {
        ops.push(random_op(rng));
    }
    if rng.below(3) > 0 {
        ops.push(Op::Remove(from));
    }
    ops
}

struct Disks {
    main: SimDisk,
    log: Option<SimDisk>,
    key: Option<EncryptionKey>,
}

impl Disks {
    fn io(disk: &SimDisk) -> Arc<dyn BlockIo> {
        Arc::new(disk.clone())
    }

    fn log_io(&self) -> Option<Arc<dyn BlockIo>> {
        self.log.as_ref().map(Self::io)
    }

    fn open(&self, cfg: &Config) -> Result<Store, StoreError> {
        let devices = Devices {
            main: Box::new(self.main.device()),
            log: self.log.as_ref().map(|l| Box::new(l.device()) as Box<_>),
        };
        let devices = devices.unlock(self.key.as_ref())?;
        Store::open_on(devices, cfg.clone(), Notify::new().unwrap(), false)
    }

    fn arm(&self, fault: Fault) {
        self.main.arm(fault);
    }

    fn power_cycle(&self, seed: u64) -> Self {
        Self {
            main: self.main.power_cycle(seed),
            log: self.log.as_ref().map(|l| l.power_cycle(seed + 1)),
            key: self.key.clone(),
        }
    }
}

struct Run {
    rng: Rng,
    disks: Disks,
    cfg: Config,
    /// The submitted state.
    now: Model,
    /// The acknowledged state.
    durable: Model,
    /// States after each transaction that was submitted but not acknowledged.
    unacknowledged: VecDeque<(Token, Model)>,
    /// Data on its way to its place.
    placing: BTreeMap<Token, Bytes>,
    /// Data that is there and was not used.
    placed: Vec<(Placed, Bytes)>,
    next: u64,
}

enum End {
    Power,
    Done,
}

impl Run {
    fn new(seed: u64, key: Option<EncryptionKey>) -> Self {
        let mut rng = Rng::new(seed);
        let main = SimDisk::new(DISK, seed);
        let log = (rng.below(4) == 0).then(|| SimDisk::new(LOG_DISK, seed + 7));
        let disks = Disks { main, log, key };
        let log_bytes = (256 << 10) + rng.below(4) * (256 << 10);
        let most = disks.log.as_ref().map_or(u64::MAX, |_| LOG_DISK as u64);
        let opts = MkfsOptions {
            log_bytes: log_bytes.min(most),
            key: disks.key.clone(),
            ..MkfsOptions::default()
        };
        mkfs_on(&Disks::io(&disks.main), disks.log_io().as_ref(), &opts).unwrap();
        let cfg = Config {
            memtable_bytes: (64 << 10) + rng.below(500_000) as usize,
            memtable_entries: 10 + rng.below(200) as usize,
            index_cache_bytes: 1 << 20,
            presence_bytes: 64 << rng.below(8),
            onode_cache_bytes: (1 + rng.below(3) as usize) * 10_000,
            cached_reads: rng.below(4) > 0,
            direct_min: 16_384 << rng.below(3),
            place_at_once: 16_384 << rng.below(4),
            group_bytes: 32 << 10,
            pool: None,
        };
        let (now, durable) = Default::default();
        Self {
            rng,
            disks,
            cfg,
            now,
            durable,
            unacknowledged: VecDeque::new(),
            placing: BTreeMap::new(),
            placed: Vec::new(),
            next: 0,
        }
    }

    fn handle(&mut self, events: Vec<Event>) -> Option<End> {
        for event in events {
            match event {
                Event::Committed(token) => {
                    let (first, model) = self.unacknowledged.pop_front().expect("nothing to acknowledge");
                    assert_eq!(first, token, "acknowledged out of order");
                    self.durable = model;
                }
                Event::Placed(token, placed) => {
                    let data = self.placing.remove(&token).expect("it is on its way");
                    assert_eq!(placed.bytes(), data.len() as u64);
                    if self.rng.below(8) > 0 {
                        self.placed.push((placed, data));
                    }
                }
                Event::Fatal(e) => {
                    assert!(self.disks.main.is_cut(), "failed without a cause: {e}");
                    return Some(End::Power);
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        None
    }

    /// Submits and polls until the power goes or `steps` are over.
    fn work(&mut self, store: &mut Store, steps: u64) -> End {
        for _ in 0..steps {
            match self.rng.below(11) {
                10 => {
                    if self.place(store).is_err() {
                        return End::Power;
                    }
                }
                0..5 => {
                    if store.writable() && self.submit(store).is_err() {
                        return End::Power;
                    }
                }
                5 => {
                    if let Some(end) = self.check_one(store) {
                        return end;
                    }
                }
                6 if self.rng.below(20) == 0 => store.checkpoint(),
                7 if self.rng.below(10) == 0 => self.change_space(store),
                _ => {
                    let mut events = Vec::new();
                    store.poll(&mut events);
                    if let Some(end) = self.handle(events) {
                        return end;
                    }
                }
            }
        }
        End::Done
    }

    /// Lets time pass, so that free space is given back, and lets other programs fill or free the
    /// file system below.
    fn change_space(&mut self, store: &mut Store) {
        let room = [0, 64 << 10, 1 << 40][self.rng.below(3) as usize];
        self.disks.main.set_room(room);
        store.set_below(room, self.rng.below(2) << 20);
        (0..self.rng.below(14)).for_each(|_| store.tick(1 << 20));
    }

    fn next_token(&mut self) -> Token {
        self.next += 1;
        Token(self.next)
    }

    /// Brings data to its place, or drops some that is there.
    fn place(&mut self, store: &mut Store) -> Result<(), StoreError> {
        if self.placed.len() > 6 {
            let at = self.rng.below(self.placed.len() as u64) as usize;
            drop(self.placed.swap_remove(at));
        }
        let blocks = 2 + self.rng.below(24) as usize;
        let data = match self.rng.below(2) {
            0 => checksummed_blocks(&mut self.rng, blocks),
            _ => bytes(&mut self.rng, blocks * BLOCK),
        };
        let cut = self.rng.below(data.len() as u64) as usize;
        let token = self.next_token();
        match store.place(vec![data.slice(..cut), data.slice(cut..)], token) {
            Ok(()) => drop(self.placing.insert(token, data)),
            Err(StoreError::NoSpace { .. }) => {}
            Err(e) => {
                assert!(self.disks.main.is_cut(), "refused without a cause: {e}");
                return Err(e);
            }
        }
        Ok(())
    }

    /// Uses some of the placed data; what was used gets its data.
    fn use_placed(&mut self, txn: &mut Transaction, model: &mut Model, used: &mut Vec<Bytes>) {
        let at = self.rng.below(self.placed.len() as u64) as usize;
        let (placed, data) = self.placed.swap_remove(at);
        let (key, offset) = match self.rng.below(3) {
            0 => hot_block(&mut self.rng),
            _ => (key(&mut self.rng), self.rng.below(16) * BLOCK as u64),
        };
        model.write(&key, offset, &data);
        txn.write_placed(&key, offset, placed);
        used.push(data);
    }

    fn submit(&mut self, store: &mut Store) -> Result<(), StoreError> {
        let mut txn = Transaction::new();
        let mut model = self.now.clone();
        let mut allowed = true;
        let mut used = Vec::new();
        for _ in 0..=self.rng.below(4) {
            if !self.placed.is_empty() && self.rng.below(6) == 0 {
                self.use_placed(&mut txn, &mut model, &mut used);
                continue;
            }
            let ops = match self.rng.below(10) {
                0 => random_ranges(&mut self.rng, &model),
                _ => vec![random_op(&mut self.rng)],
            };
            for op in ops {
                allowed &= model.apply(&op);
                txn.push(op);
            }
        }
        let token = self.next_token();
        let submitted = store.try_submit(&mut txn, token);
        // What was refused can be used again.
        let handles = txn.ops.into_iter().filter_map(|op| match op {
            Op::WritePlaced { placed, .. } => Some(placed),
            _ => None,
        });
        self.placed.extend(handles.zip(used));
        match submitted {
            Ok(()) => {
                assert!(allowed, "an operation is not refused");
                self.now = model.clone();
                self.unacknowledged.push_back((token, model));
                Ok(())
            }
            Err(StoreError::NoSpace { .. }) => Ok(()),
            Err(StoreError::Invalid(why)) => {
                assert!(!allowed || why.contains("too large"), "refused: {why}");
                Ok(())
            }
            Err(e) => {
                assert!(self.disks.main.is_cut(), "refused without a cause: {e}");
                Err(e)
            }
        }
    }

    /// Polls until an event for which `pick` returns something.
    fn wait<T>(
        &mut self,
        store: &mut Store,
        pick: impl Fn(&Event) -> bool,
        get: impl Fn(Event) -> T,
    ) -> Result<T, End> {
        for _ in 0..100_000 {
            let mut events = Vec::new();
            store.poll(&mut events);
            let mut found = None;
            let mut rest = Vec::new();
            for e in events {
                if found.is_none() && pick(&e) {
                    found = Some(e)
                } else {
                    rest.push(e)
                }
            }
            if let Some(end) = self.handle(rest) {
                return Err(end);
            }
            if let Some(e) = found {
                return Ok(get(e));
            }
        }
        panic!("no answer");
    }

    /// The answer to a read, which may have come at once.
    fn wait_read(&mut self, store: &mut Store, read: Read) -> Result<Result<Bytes, StoreError>, End> {
        match read {
            Read::Ready(result) => Ok(result),
            Read::Pending => self.wait(
                store,
                |e| matches!(e, Event::Read(..)),
                |e| match e {
                    Event::Read(_, r) => r,
                    _ => unreachable!(),
                },
            ),
        }
    }

    /// Reads a random part of a random object while transactions are under way.
    fn check_one(&mut self, store: &mut Store) -> Option<End> {
        let rng = &mut self.rng;
        let (key, from, len) = if rng.below(2) == 0 {
            let (key, from) = hot_block(rng);
            (key, from, BLOCK as u64)
        } else {
            (key(rng), offset(rng), length(rng) as u64)
        };
        let way = match rng.below(3) {
            0 => Way::Direct,
            _ => Way::Cached,
        };
        store.load(&key).ok()?;
        let read = store.read(&key, from, len, way, Token(0)).ok()?;
        let expected = self.now.objects.get(&key).map(|o| {
            let end = (from + len).min(o.data.len() as u64);
            o.data[from.min(end) as usize..end as usize].to_vec()
        });
        // Changes submitted after the read do not show.
        if self.submit(store).is_err() {
            return Some(End::Power);
        }
        match self.wait_read(store, read) {
            Err(end) => return Some(end),
            Ok(Err(StoreError::NoObject(_))) => assert_eq!(expected, None, "{key} exists"),
            Ok(Ok(bytes)) => {
                let differ = expected
                    .as_ref()
                    .map(|e| (e.len(), e.iter().zip(&bytes).position(|(a, b)| a != b)));
                assert!(
                    Some(bytes.to_vec()) == expected,
                    "{key}: wrong data at {from}+{len}: {} bytes, expected (bytes, first difference) {differ:?}",
                    bytes.len()
                );
            }
            Ok(Err(e)) => assert!(self.disks.main.is_cut(), "{e}"),
        }
        None
    }

    /// The answer, unless the power has gone.
    fn good<T>(&self, result: Result<T, StoreError>) -> Result<T, End> {
        result.map_err(|e| {
            assert!(self.disks.main.is_cut(), "{e}");
            End::Power
        })
    }

    /// Reads everything.
    fn contents(&mut self, store: &mut Store) -> Result<Model, End> {
        let mut model = Model::default();
        let mut from = Some(ObjectKey::from(""));
        let limit = 1 + self.rng.below(6) as usize;
        while let Some(at) = from {
            let asked = store.list(&at, None, limit, Token(0));
            self.good(asked)?;
            let page = self.wait(
                store,
                |e| matches!(e, Event::List(..)),
                |e| match e {
                    Event::List(_, r) => r,
                    _ => unreachable!(),
                },
            )?;
            let page = self.good(page)?;
            for (key, info) in page.objects {
                let key = ObjectKey::new(&key);
                let onode = self.good(store.load(&key))?.expect("it is listed");
                assert_eq!(*onode.info(), info);
                let asked = store.read(&key, 0, u64::MAX, Way::Cached, Token(0));
                let asked = self.good(asked)?;
                let data = self.wait_read(store, asked)?;
                let data = self.good(data)?;
                assert_eq!(data.len() as u64, onode.size());
                let mut written = vec![false; data.len()];
                for range in onode.data_ranges(0, u64::MAX) {
                    written[range.start as usize..range.end as usize].fill(true);
                }
                let omap = self.all_pairs(store, |s, from| {
                    s.omap_list(&key, from, None, PageLimit::new(limit, 64), Token(0))
                })?;
                let names: Vec<Bytes> = omap.keys().cloned().collect();
                let asked = store.omap_get(&key, &names, PageLimit::of_bytes(usize::MAX), Token(0));
                self.good(asked)?;
                let found = self.wait_pairs(store)?;
                assert!(self.good(found)?.pairs.into_iter().eq(omap.clone()));
                let asked = store.omap_get(&key, &names, PageLimit::of_bytes(1), Token(0));
                self.good(asked)?;
                let found = self.wait_pairs(store)?;
                let found = self.good(found)?;
                assert!(found.pairs.into_iter().eq(omap.clone().into_iter().take(1)));
                // A value in the index may have been removed since: then the answer ends before it
                // had to.
                assert!(found.next.is_some() || names.len() <= 1);
                self.check_cut_pages(store, &key, &names, &omap)?;
                let attrs = onode.attrs().iter().cloned().collect();
                let (info, header) = (onode.info().clone(), onode.omap_header().clone());
                model.objects.insert(
                    key,
                    Arc::new(Object {
                        data: data.to_vec(),
                        written,
                        coarse: false,
                        info,
                        attrs,
                        omap,
                        header,
                    }),
                );
            }
            from = page.next;
        }
        model.meta = self.all_pairs(store, |s, from| s.meta_list(from, None, limit, Token(0)))?;
        Ok(model)
    }

    /// Checks that pages with a size limit keep to it, and miss nothing.
    fn check_cut_pages(
        &mut self,
        store: &mut Store,
        key: &ObjectKey,
        names: &[Bytes],
        omap: &BTreeMap<Bytes, Bytes>,
    ) -> Result<(), End> {
        let most = 1 + self.rng.below(200) as usize;
        let len = |found: &Pairs| found.pairs.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        let small = PageLimit::of_bytes(usize::MAX).within(most);
        let (mut left, mut at) = (omap.iter(), Bytes::new());
        loop {
            let asked = store.omap_list(key, &at, None, small, Token(0));
            self.good(asked)?;
            let found = self.wait_pairs(store)?;
            let mut found = self.good(found)?;
            assert!(len(&found) <= most);
            if found.cut {
                // The next pair does not fit, nor does it come if it is asked for in the same way.
                let from = found.next.take().expect("a page that is cut is not the last one");
                let asked = store.omap_list(key, &from, None, PageLimit::new(1, usize::MAX), Token(0));
                self.good(asked)?;
                let one = self.wait_pairs(store)?;
                let one = self.good(one)?;
                found.pairs.extend(one.pairs);
                found.next = one.next;
            }
            for (k, v) in found.pairs {
                assert_eq!(left.next(), Some((&k, &v)));
            }
            match found.next {
                Some(next) => at = next,
                None => break,
            }
        }
        assert_eq!(left.next(), None);
        let asked = store.omap_get(key, names, small, Token(0));
        self.good(asked)?;
        let found = self.wait_pairs(store)?;
        let found = self.good(found)?;
        assert!(len(&found) <= most);
        assert_eq!(found.cut, found.next.is_some());
        assert!(found.cut || found.pairs.len() == omap.len());
        assert!(
            found
                .pairs
                .iter()
                .map(|(k, v)| (k, v))
                .eq(omap.iter().take(found.pairs.len()))
        );
        Ok(())
    }

    fn all_pairs(
        &mut self,
        store: &mut Store,
        list: impl Fn(&mut Store, &[u8]) -> Result<(), StoreError>,
    ) -> Result<BTreeMap<Bytes, Bytes>, End> {
        let mut out = BTreeMap::new();
        let mut from = Some(Bytes::new());
        while let Some(at) = from {
            let asked = list(store, &at);
            self.good(asked)?;
            let page = self.wait_pairs(store)?;
            let page = self.good(page)?;
            out.extend(page.pairs);
            from = page.next;
        }
        Ok(out)
    }

    fn wait_pairs(&mut self, store: &mut Store) -> Result<Result<Pairs, StoreError>, End> {
        self.wait(
            store,
            |e| matches!(e, Event::Pairs(..)),
            |e| match e {
                Event::Pairs(_, r) => r,
                _ => unreachable!(),
            },
        )
    }

    /// Checks that the blocks in use are those of the objects, once nobody has placed data any more.
    fn check_space(&mut self, store: &mut Store) -> Result<(), End> {
        store.checkpoint();
        let mut polls = 0;
        while !self.placing.is_empty() || !store.is_idle() {
            let mut events = Vec::new();
            store.poll(&mut events);
            if let Some(end) = self.handle(events) {
                return Err(end);
            }
            polls += 1;
            assert!(polls < 100_000, "never idle");
        }
        self.placed.clear();
        store.poll(&mut Vec::new());
        let mut blocks = BTreeSet::new();
        for key in self.now.objects.keys() {
            let onode = self.good(store.load(key))?.expect("it is there");
            let extents = onode.extents().iter();
            blocks.extend(extents.flat_map(|e| e.pblk..e.pblk + u64::from(e.len())));
        }
        assert_eq!(store.statfs().allocated, (blocks.len() * BLOCK) as u64, "leaked");
        Ok(())
    }

    /// Checks that the store after a power cut has all acknowledged transactions, and a prefix of
    /// the others.
    fn recover(&mut self) {
        let (main, log) = unlock(
            Disks::io(&self.disks.main),
            self.disks.log_io(),
            self.disks.key.as_ref(),
        )
        .expect("the key opens the store");
        let report = fsck_on(&main, log.as_ref(), Depth::Deep);
        assert!(report.is_clean(), "fsck after a power cut: {report}");
        let mut store = self.disks.open(&self.cfg).expect("open after a power cut");
        // What was placed in the store before is of no use, and no harm.
        self.placing.clear();
        self.placed.clear();
        let candidates: Vec<Model> = std::iter::once(self.durable.clone())
            .chain(self.unacknowledged.drain(..).map(|(_, m)| m))
            .collect();
        let found = match self.contents(&mut store) {
            Ok(found) => found,
            Err(_) => panic!("power is on"),
        };
        if !candidates.contains(&found) {
            explain(&self.durable, &found);
        }
        (self.now, self.durable) = (found.clone(), found);
        if self.rng.below(3) == 0 && self.check_space(&mut store).is_err() {
            panic!("power is on");
        }
        for key in self.now.objects.keys() {
            assert!(matches!(
                store.lookup(key, Token(0)),
                Ok(Lookup::Ready(Some(_)) | Lookup::Pending)
            ));
        }
    }
}

fn explain(expected: &Model, found: &Model) -> ! {
    for (key, object) in &expected.objects {
        match found.objects.get(key) {
            None => eprintln!("{key} is missing"),
            Some(o) if o != object => {
                let at = o.data.iter().zip(&object.data).position(|(a, b)| a != b);
                eprintln!(
                    "{key} differs: size {} not {}, first at {at:?}",
                    o.data.len(),
                    object.data.len()
                );
            }
            _ => {}
        }
    }
    panic!("the store holds neither what was acknowledged nor a later state");
}

fn run(seed: u64, key: Option<EncryptionKey>) {
    let mut run = Run::new(seed, key);
    for life in 0..4 {
        let steps = 100 + run.rng.below(600);
        let cut = run.rng.below(3000);
        if life > 0 || run.rng.below(4) > 0 {
            run.disks.arm(Fault {
                cut_after: Some(cut),
                ..Fault::default()
            });
        }
        // The power may go while the store is being opened.
        if let Ok(mut store) = run.disks.open(&run.cfg.clone()) {
            if let End::Done = run.work(&mut store, steps)
                && let Ok(found) = run.contents(&mut store)
            {
                assert!(found == run.now, "contents differ while running");
                // The power may still go.
                let _ = run.check_space(&mut store);
            }
        } else {
            assert!(run.disks.main.is_cut(), "cannot be opened");
        }
        run.disks = run.disks.power_cycle(seed + life);
        run.recover();
        run.disks = run.disks.power_cycle(seed + life + 1000);
    }
}

fn run_seeds(count: u64, key: &Option<EncryptionKey>) {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse().ok());
    let count = number("SPIRULA_SEEDS").unwrap_or(count);
    let seeds = number("SPIRULA_SEED").map_or(1..=count, |seed: u64| seed..=seed);
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, key.clone()))) {
            eprintln!(
                "seed {seed}: run again with SPIRULA_SEED={seed} cargo test -p spirula-store --test model"
            );
            resume_unwind(panic);
        }
    }
}

#[test]
fn acknowledged_transactions_survive_power_cuts() {
    run_seeds(300, &None);
}

#[test]
fn acknowledged_transactions_survive_power_cuts_on_encrypted_disks() {
    run_seeds(40, &Some(EncryptionKey::new(vec![b'k'; 32]).unwrap()));
}
