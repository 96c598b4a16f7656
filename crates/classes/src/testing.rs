//! An object in memory, and the replay of transcripts recorded from Ceph.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use spirula_denc::{EntityAddr, EntityName, EntityType, UTime};

use crate::{Caller, Error, Flags, Object, Page, Result, Stat, find};

/// The content of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) exists: bool,
    pub(crate) data: Vec<u8>,
    pub(crate) attrs: BTreeMap<Bytes, Bytes>,
    pub(crate) omap: BTreeMap<Bytes, Bytes>,
    pub(crate) header: Bytes,
    /// The snapshot sequence.
    pub(crate) snapset_seq: u64,
}

/// An object, and everything else that a method may see.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) caller: Caller,
    pub(crate) watchers: Vec<Caller>,
    pub(crate) now: UTime,
    pub(crate) random: Vec<u8>,
    pub(crate) user_version: u64,
    /// The omap pairs that the last call read.
    pub(crate) pairs_read: usize,
    /// When the object was last changed.
    pub(crate) mtime: UTime,
    /// Whether the request creates the object before the call.
    pub(crate) creates: bool,
}

impl Default for World {
    fn default() -> Self {
        Self {
            state: State::default(),
            caller: Caller {
                name: EntityName::new(EntityType::CLIENT, 4117),
                addr: "127.0.0.1:0/77".parse().unwrap(),
            },
            watchers: Vec::new(),
            now: UTime::from_secs(1_795_255_241),
            random: vec![0; 18],
            user_version: 7,
            pairs_read: 0,
            mtime: UTime::ZERO,
            creates: false,
        }
    }
}

impl World {
    /// Calls a method as an OSD does: again and again, each time with one more answer, until it has
    /// all data. Returns result and output; the writes of a successful call are kept.
    pub(crate) fn call(&mut self, class: &str, method: &str, input: &[u8]) -> (i32, Bytes) {
        let method = find(class.as_bytes()).unwrap().method(method.as_bytes()).unwrap();
        let input = Bytes::copy_from_slice(input);
        let mut fetched = 0;
        let mut noted = None;
        for _ in 0..1000 {
            let mut new = self.state.clone();
            new.exists |= self.creates;
            let mut run = Run {
                world: self,
                new,
                reads: 0,
                wrote: false,
                drawn: 0,
                fetched,
                steps: 0,
                pairs_read: 0,
                noted: noted.clone(),
                note: None,
            };
            // A request that only reads is not executed without an object.
            let reads = !method.flags.contains(Flags::WR);
            let result = match reads && !run.new.exists {
                true => Err(Error::ENOENT),
                false => method.call(&mut run, &input),
            };
            let misbehaved = (run.reads > 0 && !method.flags.contains(Flags::RD))
                || (run.wrote && !method.flags.contains(Flags::WR));
            let (new, note) = (run.new, run.note);
            self.pairs_read = run.pairs_read;
            return match result {
                Err(Error::NotFetched) => {
                    // What was read for a note is forgotten.
                    fetched = if note.is_some() { 0 } else { fetched + 1 };
                    noted = note.or(noted);
                    continue;
                }
                _ if misbehaved => (-5, Bytes::new()),
                Err(Error::Errno(e)) => (-e, Bytes::new()),
                Ok(r) => {
                    if r.code >= 0 {
                        self.state = new;
                    }
                    (r.code, r.data)
                }
            };
        }
        panic!("no end of wants");
    }
}

struct Run<'a> {
    world: &'a World,
    new: State,
    reads: u32,
    wrote: bool,
    /// Random bytes that the call got.
    drawn: usize,
    /// The number of reads of the store that have an answer already.
    fetched: u32,
    steps: u32,
    pairs_read: usize,
    /// The note of an earlier run, and that of this one.
    noted: Option<Bytes>,
    note: Option<Bytes>,
}

impl Run<'_> {
    fn read_old(&mut self, from_store: bool) -> Result<&State> {
        self.steps += 1;
        self.reads += 1;
        if from_store && self.reads > self.fetched {
            return Err(Error::NotFetched);
        }
        Ok(&self.world.state)
    }

    fn written(&mut self) -> Result<&mut State> {
        self.steps += 1;
        self.wrote = true;
        self.new.exists = true;
        Ok(&mut self.new)
    }
}

/// EFBIG where an object would be larger than objects may be.
fn check_extent(offset: u64, length: u64) -> Result<()> {
    match offset.saturating_add(length) <= 128 << 20 {
        true => Ok(()),
        false => Err(Error::Errno(spirula_errno::EFBIG)),
    }
}

fn page<T>(all: impl Iterator<Item = T>, max: u64) -> Page<T> {
    let mut all = all.peekable();
    Page {
        items: all.by_ref().take(usize::try_from(max).unwrap()).collect(),
        more: all.peek().is_some(),
    }
}

impl Object for Run<'_> {
    fn caller(&self) -> Caller {
        self.world.caller
    }

    fn now(&self) -> UTime {
        self.world.now
    }

    fn random(&mut self, out: &mut [u8]) {
        let rest = self.world.random.iter().cycle().skip(self.drawn);
        self.drawn += out.len();
        out.iter_mut().zip(rest).for_each(|(out, byte)| *out = *byte);
    }

    fn subop_version(&self) -> String {
        format!("{}.{}", self.world.user_version, self.steps)
    }

    fn current_version(&self) -> u64 {
        self.world.user_version
    }

    fn noted(&self) -> Option<Bytes> {
        self.noted.clone()
    }

    fn note(&mut self, note: Bytes) {
        self.note = Some(note);
    }

    fn stat(&mut self) -> Result<Stat> {
        self.steps += 1;
        self.new.exists.then_some(()).ok_or(Error::ENOENT)?;
        Ok(Stat {
            size: self.new.data.len() as u64,
            mtime: self.world.mtime,
        })
    }

    fn reserve(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn snapset_seq(&mut self) -> Result<u64> {
        self.new.exists.then_some(()).ok_or(Error::ENOENT)?;
        Ok(self.world.state.snapset_seq)
    }

    fn read(&mut self, offset: u64, length: u64) -> Result<Bytes> {
        let data = self
            // Where there is no object, there is nothing to read: no error.
            .read_old(true)?
            .data
            .iter()
            .skip(usize::try_from(offset).unwrap());
        let length = if length == 0 {
            usize::MAX
        } else {
            usize::try_from(length).unwrap()
        };
        Ok(data.take(length).copied().collect())
    }

    fn getxattr(&mut self, name: &[u8]) -> Result<Bytes> {
        let old = self.read_old(false)?;
        old.exists.then_some(()).ok_or(Error::ENOENT)?;
        old.attrs.get(name).cloned().ok_or(Error::ENODATA)
    }

    fn getxattrs(&mut self) -> Result<BTreeMap<Bytes, Bytes>> {
        let old = self.read_old(false)?;
        old.exists.then_some(()).ok_or(Error::ENOENT)?;
        Ok(old.attrs.clone())
    }

    fn omap_vals(&mut self, after: &[u8], prefix: &[u8], max: u64) -> Result<Page<(Bytes, Bytes)>> {
        let omap = &self.read_old(true)?.omap;
        let behind = omap.range::<[u8], _>((Bound::Excluded(after), Bound::Unbounded));
        let chosen = behind.filter(|(k, _)| k.starts_with(prefix));
        let page = page(chosen.map(|(k, v)| (k.clone(), v.clone())), max);
        self.pairs_read += page.items.len();
        Ok(page)
    }

    fn omap_keys(&mut self, after: &[u8], max: u64) -> Result<Page<Bytes>> {
        let Page { items, more } = self.omap_vals(after, b"", max)?;
        let items = items.into_iter().map(|(k, _)| k).collect();
        Ok(Page { items, more })
    }

    fn omap_by_keys(&mut self, keys: &BTreeSet<Bytes>) -> Result<BTreeMap<Bytes, Bytes>> {
        let omap = &self.read_old(true)?.omap;
        let found = keys.iter().filter_map(|k| omap.get_key_value(k));
        let found: BTreeMap<Bytes, Bytes> = found.map(|(k, v)| (k.clone(), v.clone())).collect();
        self.pairs_read += found.len();
        Ok(found)
    }

    fn watchers(&mut self) -> Result<Vec<Caller>> {
        self.read_old(false)?;
        Ok(self.world.watchers.clone())
    }

    fn omap_header(&mut self) -> Result<Bytes> {
        Ok(self.read_old(true)?.header.clone())
    }

    fn create(&mut self, exclusive: bool) -> Result<()> {
        if exclusive && self.new.exists {
            return Err(Error::EEXIST);
        }
        self.written().map(drop)
    }

    fn write(&mut self, offset: u64, data: Bytes) -> Result<()> {
        check_extent(offset, data.len() as u64)?;
        let old = &mut self.written()?.data;
        let offset = usize::try_from(offset).unwrap();
        old.resize(old.len().max(offset + data.len()), 0);
        old[offset..offset + data.len()].copy_from_slice(&data);
        Ok(())
    }

    fn write_full(&mut self, data: Bytes) -> Result<()> {
        self.written()?.data = data.to_vec();
        Ok(())
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<()> {
        check_extent(offset, length)?;
        let (offset, length) = (usize::try_from(offset).unwrap(), usize::try_from(length).unwrap());
        let data = &mut self.written()?.data;
        if offset + length >= data.len() {
            data.truncate(offset);
        } else {
            data[offset..offset + length].fill(0);
        }
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.written()?.data.resize(usize::try_from(size).unwrap(), 0);
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        if !self.new.exists {
            self.wrote = true;
            return Err(Error::ENOENT);
        }
        *self.written()? = State::default();
        Ok(())
    }

    fn setxattr(&mut self, name: &[u8], value: Bytes) -> Result<()> {
        let long = name.len() > 100;
        let new = self.written()?;
        if long {
            return Err(Error::Errno(spirula_errno::ENAMETOOLONG));
        }
        new.attrs.insert(Bytes::copy_from_slice(name), value);
        Ok(())
    }

    fn rmxattr(&mut self, name: &[u8]) -> Result<()> {
        self.written()?.attrs.remove(name);
        Ok(())
    }

    fn omap_set(&mut self, values: &BTreeMap<Bytes, Bytes>) -> Result<()> {
        self.written()?.omap.extend(values.clone());
        Ok(())
    }

    fn omap_remove(&mut self, keys: &BTreeSet<Bytes>) -> Result<()> {
        if !self.new.exists {
            self.wrote = true;
            return Err(Error::ENOENT);
        }
        self.written()?.omap.retain(|k, _| !keys.contains(k));
        Ok(())
    }

    fn omap_remove_range(&mut self, begin: &[u8], end: &[u8]) -> Result<()> {
        self.written()?
            .omap
            .retain(|k, _| k[..] < *begin || k[..] >= *end);
        Ok(())
    }

    fn omap_clear(&mut self) -> Result<()> {
        if !self.new.exists {
            self.wrote = true;
            return Err(Error::ENOENT);
        }
        let new = self.written()?;
        new.omap.clear();
        new.header = Bytes::new();
        Ok(())
    }

    fn omap_set_header(&mut self, header: Bytes) -> Result<()> {
        self.written()?.header = header;
        Ok(())
    }
}

/// Decodes parts with `+` between them: hexadecimal digits, or those of a byte, `*`, and how often it
/// comes. `-` stands for no bytes.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let parts = text.split('+').map(|part| match part.split_once('*') {
        Some((byte, count)) => digits(byte).repeat(count.parse().unwrap()),
        None => digits(part),
    });
    parts.collect::<Vec<_>>().concat()
}

fn digits(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|d| d as u8)
        .collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

/// What two objects or outputs may differ in, taken out of both before they are compared.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) state: fn(&State) -> State,
    /// Gets the method.
    pub(crate) output: fn(&str, Bytes) -> Bytes,
}

impl View {
    /// Everything counts.
    const ALL: Self = Self {
        state: State::clone,
        output: |_, output| output,
    };
}

/// Replays a transcript that `record.py` recorded from real Ceph: the same calls must have the same
/// results and outputs, and leave the same object.
pub(crate) fn replay(transcript: &str) {
    replay_in_view(transcript, View::ALL);
}

/// As [`replay`], but not everything counts.
pub(crate) fn replay_in_view(transcript: &str, view: View) {
    let mut world = World::default();
    let mut seen = State::default();
    let mut calls = 0;
    for (n, line) in transcript.lines().enumerate() {
        let at = || format!("line {}: {}", n + 1, &line[..line.len().min(120)]);
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", ..] | [""] => {}
            ["object", _] => world.state = State::default(),
            ["caller", num, addr] => {
                world.caller.name.num = num.parse().unwrap();
                world.caller.addr = addr.parse::<EntityAddr>().unwrap();
            }
            ["watches", "yes"] => world.watchers.push(world.caller),
            ["watches", _] => world.watchers.retain(|w| *w != world.caller),
            ["now", sec, nsec] => {
                world.now = UTime {
                    sec: sec.parse().unwrap(),
                    nsec: nsec.parse().unwrap(),
                }
            }
            ["random", bytes] => world.random = unhex(bytes),
            ["user_version", v] => world.user_version = v.parse().unwrap(),
            ["call", class, method, input, "->", code, output] => {
                let (got, data) = world.call(class, method, &unhex(input));
                let flags = find(class.as_bytes())
                    .unwrap()
                    .method(method.as_bytes())
                    .unwrap()
                    .flags;
                // A client sees of a write that it succeeded, not more; and of a failure no output.
                let data = if got < 0 || flags.contains(Flags::WR) {
                    Bytes::new()
                } else {
                    data
                };
                // librados returns the output's length.
                let code = code.parse::<i32>().unwrap().min(0);
                assert_eq!(got.min(0), code, "{}", at());
                let wanted = Bytes::from(unhex(output));
                assert_eq!(
                    (view.output)(method, data),
                    (view.output)(method, wanted),
                    "{}",
                    at()
                );
                world.creates = false;
                calls += 1;
            }
            ["vec", class, method, input, "->", code, output] => {
                // A client that asks for the results of a write gets result and output.
                let (got, data) = world.call(class, method, &unhex(input));
                assert_eq!(got, code.parse::<i32>().unwrap(), "{}", at());
                let wanted = Bytes::from(unhex(output));
                assert_eq!(
                    (view.output)(method, data),
                    (view.output)(method, wanted),
                    "{}",
                    at()
                );
                world.creates = false;
                calls += 1;
            }
            ["creates"] => world.creates = true,
            ["mtime", sec] => {
                world.state.exists = true;
                world.mtime = UTime::from_secs(sec.parse().unwrap());
            }
            ["exists"] => {
                seen = State {
                    exists: true,
                    ..State::default()
                }
            }
            ["absent"] => seen = State::default(),
            ["data", bytes] => seen.data = unhex(bytes),
            ["header", bytes] => seen.header = unhex(bytes).into(),
            ["attr", name, value] => drop(seen.attrs.insert(unhex(name).into(), unhex(value).into())),
            ["omap", key, value] => drop(seen.omap.insert(unhex(key).into(), unhex(value).into())),
            ["seen"] => assert_eq!((view.state)(&world.state), (view.state)(&seen), "{}", at()),
            ["omapset", key, value] => {
                world.state.exists = true;
                drop(world.state.omap.insert(unhex(key).into(), unhex(value).into()));
            }
            ["setxattr", name, value] => {
                world.state.exists = true;
                drop(world.state.attrs.insert(unhex(name).into(), unhex(value).into()));
            }
            ["write", bytes] => {
                world.state.exists = true;
                world.state.data = unhex(bytes);
            }
            _ => panic!("{}", at()),
        }
    }
    assert!(calls > 0, "an empty transcript");
}

macro_rules! transcripts {
    ($($class:ident),+) => {$(
        #[test]
        fn $class() {
            replay(include_str!(concat!("../testdata/", stringify!($class), ".txt")));
        }
    )+};
}

/// Each recorded from Ceph 16.2.15.
mod recorded {
    use super::replay;

    transcripts!(
        cas,
        cmpomap,
        fifo,
        hello,
        journal,
        lock,
        log,
        numops,
        otp,
        queue,
        rbd,
        rbd_pool,
        refcount,
        rgw_garbage,
        rgw_index,
        rgw_lifecycle,
        rgw_object,
        rgw_reshard,
        rgw_usage,
        timeindex,
        user,
        version
    );
}

/// The calls of a transcript, each on an object some of whose bytes are wrong, fail or not, but end.
#[test]
fn damaged_objects_end_no_method() {
    let mut seed = 1u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 33).unwrap() % below.max(1)
    };
    for transcript in [
        include_str!("../testdata/fifo.txt"),
        include_str!("../testdata/otp.txt"),
        include_str!("../testdata/queue.txt"),
        include_str!("../testdata/rgw_gc.txt"),
        include_str!("../testdata/two_phase_queue.txt"),
        include_str!("../testdata/user.txt"),
    ] {
        let mut world = World::default();
        for line in transcript.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["object", _] => world.state = State::default(),
                ["call" | "vec", class, method, input, ..] => {
                    let mut damaged = world.clone();
                    let state = &mut damaged.state;
                    for _ in 0..3 {
                        let at = random(state.data.len().min(200));
                        state
                            .data
                            .get_mut(at)
                            .into_iter()
                            .for_each(|b| *b = random(256) as u8);
                    }
                    for value in state.attrs.values_mut().chain(state.omap.values_mut()) {
                        let mut bytes = value.to_vec();
                        let at = random(bytes.len());
                        bytes.get_mut(at).into_iter().for_each(|b| *b = random(256) as u8);
                        *value = bytes.into();
                    }
                    damaged.call(class, method, &unhex(input));
                    world.call(class, method, &unhex(input));
                }
                _ => {}
            }
        }
    }
}

fn u32s(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn section(body: &[u8]) -> Vec<u8> {
    let mut out = vec![1, 1];
    out.extend(u32s(&[u32::try_from(body.len()).unwrap()]));
    out.extend(body);
    out
}

/// Of 1100 entries, one listing returns a thousand, whatever the client wants.
#[test]
fn listings_and_trims_are_bounded() {
    for (class, zero) in [("log", 1000), ("timeindex", 0)] {
        let mut world = World::default();
        world.state.exists = true;
        let entry = unhex("020118000000000000000000000000000000000000000000000000000000");
        for n in 0..1100 {
            let key = format!("1_{n:010}.000000_");
            world.state.omap.insert(key.into(), entry.clone().into());
        }
        for (max, want) in [(0, zero), (7, 7), (1000, 1000), (1001, 1000), (u32::MAX, 1000)] {
            let (code, out) = world.call(class, "list", &section(&u32s(&[1, 0, 0, 0, 0, max])));
            assert_eq!(code, 0);
            assert_eq!(out[6..10], u32::to_le_bytes(want), "{class} {max}");
            assert_eq!(out.last(), Some(&1), "{class} {max}: truncated");
        }
    }
    let mut world = World::default();
    world.state.exists = true;
    for n in 0..1100 {
        let key = format!("1_{n:010}.000000_");
        world.state.omap.insert(key.into(), Bytes::new());
    }
    // It begins after the key of the time itself.
    let all = section(&u32s(&[0, 0, 5000, 0, 0, 0]));
    for left in [100, 1] {
        assert_eq!(world.call("timeindex", "trim", &all).0, 0);
        assert_eq!(world.state.omap.len(), left);
    }
    assert_eq!(world.call("timeindex", "trim", &all).0, -61);
}
