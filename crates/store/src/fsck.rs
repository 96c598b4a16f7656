//! Checks a store without changing it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rangemap::RangeSet;
use spirula_buf::Pool;

use crate::alloc::Run;
use crate::config::{BLOCK, BLOCK64, Config};
use crate::device::{BlockIo, FileIo};
use crate::index::{IndexPage, PageLimit};
use crate::layout::Superblock;
use crate::onode::{Extent, Onode};
use crate::open::Mounted;
use crate::state::{Content, State};
use crate::unlock::{Unlocked, unlock};
use crate::{EncryptionKey, ObjectKey, Result, StoreError};

/// Objects per page of the walk over the index.
const PAGE: usize = 512;
/// The most problems that are described; further ones are only counted.
const MAX_PROBLEMS: usize = 1000;

/// How thorough a check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// All metadata.
    Shallow,
    /// All metadata, and the checksum of every block of data.
    Deep,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// The problems, in words, in the order found.
    pub problems: Vec<String>,
    /// Number of problems, those not listed included.
    pub errors: u64,
    /// Objects found.
    pub objects: u64,
    /// Pairs found (omap and store-wide).
    pub pairs: u64,
    /// Blocks of data that objects refer to.
    pub data_blocks: u64,
    /// Blocks whose checksum was verified.
    pub verified_blocks: u64,
    /// Transactions that were replayed from the log.
    pub replayed: u64,
    /// What is as it has to be, in words: damaged parts of the index were cut out, or a crash may have
    /// torn a map of the index.
    pub notes: Vec<String>,
}

impl FsckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.errors == 0
    }

    /// A problem that is none, if `is_known`.
    fn problem_unless(&mut self, is_known: bool, text: impl fmt::Display) {
        match is_known {
            true => self.notes.push(text.to_string()),
            false => self.problem(text),
        }
    }

    fn problem(&mut self, text: impl fmt::Display) {
        self.errors += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(text.to_string());
        }
    }
}

impl fmt::Display for FsckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for p in &self.problems {
            writeln!(f, "error: {p}")?;
        }
        for n in &self.notes {
            writeln!(f, "note: {n}")?;
        }
        writeln!(
            f,
            "{} objects, {} pairs, {} data blocks",
            self.objects, self.pairs, self.data_blocks
        )?;
        writeln!(
            f,
            "{} blocks verified, {} transactions replayed from the log",
            self.verified_blocks, self.replayed
        )?;
        match self.errors {
            0 => writeln!(f, "clean"),
            n => writeln!(f, "{n} errors"),
        }
    }
}

/// The progress of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FsckProgress {
    /// Objects.
    pub objects: Seen,
    /// Blocks of data.
    pub blocks: Seen,
}

/// The number of things checked, and of those to check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Checked so far.
    pub count: u64,
    /// The expected number.
    pub of: u64,
}

/// Checks the store at `path` (and its log at `log`, if that is separate), with its key if it is
/// encrypted. `progress` is called now and then.
///
/// # Errors
/// Only errors that keep the check from starting, such as a device that cannot be opened or is in
/// use, or the wrong key. All others are in the report.
pub fn fsck(
    path: &Path,
    log: Option<&Path>,
    key: Option<&EncryptionKey>,
    depth: Depth,
    progress: &mut dyn FnMut(FsckProgress),
) -> Result<FsckReport> {
    let (dev, log) = open_read_only(path, log, key)?;
    Ok(check(&dev, log.as_ref(), depth, progress))
}

pub(crate) fn open_read_only(
    path: &Path,
    log: Option<&Path>,
    key: Option<&EncryptionKey>,
) -> Result<Unlocked> {
    let open = |path: &Path| match FileIo::open_unchanging(path) {
        Ok(io) => Ok(Arc::new(io) as Arc<dyn BlockIo>),
        Err(e) => Err(StoreError::open(path, e)),
    };
    unlock(open(path)?, log.map(open).transpose()?, key)
}

/// As [`fsck`], on open devices as [`unlock`] gives them.
pub fn fsck_on(dev: &Arc<dyn BlockIo>, log: Option<&Arc<dyn BlockIo>>, depth: Depth) -> FsckReport {
    check(dev, log, depth, &mut |_| {})
}

fn check(
    dev: &Arc<dyn BlockIo>,
    log: Option<&Arc<dyn BlockIo>>,
    depth: Depth,
    progress: &mut dyn FnMut(FsckProgress),
) -> FsckReport {
    let mut report = FsckReport::default();
    let mounted = match Mounted::read(dev, log, Arc::clone(dev), Config::default(), true) {
        Ok(mounted) => mounted,
        Err(e) => {
            report.problem(e);
            return report;
        }
    };
    report.replayed = mounted.scan.records.len() as u64;
    let mut check = Check {
        dev,
        depth,
        used: Used::new(&mounted.sb),
        stored: 0,
        report,
        progress,
        was_cut: false,
        expected_objects: mounted.state.counters.objects,
        expected_blocks: mounted.state.alloc.used(),
    };
    if let Err(e) = check.run(mounted) {
        check.report.problem(e);
    }
    check.report
}

/// The blocks to which objects refer.
struct Used {
    once: Vec<u64>,
    /// The number of references to blocks with more than one.
    more: BTreeMap<u64, u32>,
    /// Blocks that some object has marked as unshared.
    own: Vec<u64>,
}

impl Used {
    fn new(sb: &Superblock) -> Self {
        let words = sb.blocks.div_ceil(64) as usize;
        Self {
            once: vec![0; words],
            more: BTreeMap::new(),
            own: vec![0; words],
        }
    }

    fn has(bits: &[u64], block: u64) -> bool {
        bits.get(block as usize / 64)
            .is_some_and(|w| w >> (block % 64) & 1 == 1)
    }

    /// Notes a reference; returns whether it conflicts with an earlier one.
    fn add(&mut self, block: u64, shared: bool) -> bool {
        let again = Self::has(&self.once, block);
        let conflict = again && (!shared || Self::has(&self.own, block));
        let (word, bit) = (block as usize / 64, 1 << (block % 64));
        self.once[word] |= bit;
        if !shared {
            self.own[word] |= bit;
        }
        if again {
            *self.more.entry(block).or_insert(1) += 1;
        }
        conflict
    }
}

struct Check<'a> {
    dev: &'a Arc<dyn BlockIo>,
    depth: Depth,
    used: Used,
    stored: u64,
    report: FsckReport,
    progress: &'a mut dyn FnMut(FsckProgress),
    /// Whether parts of the index were cut out: nobody knows what was in them.
    was_cut: bool,
    /// The expected number of objects.
    expected_objects: u64,
    /// The expected number of blocks of data.
    expected_blocks: u64,
}

impl Check<'_> {
    fn run(&mut self, mounted: Mounted) -> Result<()> {
        let Mounted { sb, mut state, .. } = mounted;
        self.index(&state)?;
        let (cuts, lost) = (state.index.cuts()?, state.index.lost()?.len());
        if cuts > 0 {
            self.was_cut = true;
            let text = format!("{cuts} damaged leaves of the index were cut out: what was in them is lost");
            self.report.notes.push(text);
        }
        if lost > 0 {
            self.report.problem(format_args!(
                "{lost} of them are not acted on: the OSD does at its next start"
            ));
        }
        self.resolve(&mut state);
        self.objects(&state)?;
        self.pairs(&state)?;
        self.counts(&state)?;
        self.space(&state, &sb);
        let counters = (state.counters.objects, state.counters.stored);
        if counters != (self.report.objects, self.stored) {
            let found = (self.report.objects, self.stored);
            self.report.problem_unless(
                self.was_cut,
                format_args!("counters say {counters:?} (objects, bytes), found {found:?}"),
            );
        }
        Ok(())
    }

    /// Reads all pages of the index.
    fn index(&mut self, state: &State) -> Result<()> {
        let (mut from, mut rotten) = (Some(0), Vec::new());
        while let Some(page) = from {
            let found = state.index.examine(page);
            let found = found.map_err(|e| StoreError::io("read the index", e))?;
            if found.mended > 0 {
                let text = "a copy of the index map is damaged";
                self.report.problem_unless(found.torn, text);
            }
            rotten.extend(found.rotten.into_iter().map(IndexPage).take(MAX_PROBLEMS));
            from = found.next;
        }
        if !rotten.is_empty() {
            let damage = state.index.judge(&rotten)?;
            for text in damage.ruins.iter().chain(&damage.lost) {
                self.report.problem(format_args!("the index is damaged: {text}"));
            }
        }
        Ok(())
    }

    /// Completes partial writes that the replay left open.
    fn resolve(&mut self, state: &mut State) {
        for read in std::mem::take(&mut state.base_reads) {
            let mut buf = Pool::new(0).get(BLOCK);
            let good =
                self.dev.read_at(read.base * BLOCK64, &mut buf).is_ok() && crc32c::crc32c(&buf) == read.crc;
            if !good {
                self.report.problem(format_args!(
                    "block {}: checksum mismatch under a partial write",
                    read.base
                ));
            }
            state.resolve(&read, good.then_some(&buf[..]));
        }
    }

    fn objects(&mut self, state: &State) -> Result<()> {
        let mut from = Some(ObjectKey::new(&[]));
        while let Some(key) = from {
            let page = state
                .index
                .list_objects::<Arc<Onode>>(key.as_slice(), None, PAGE)?;
            let listing = state.merge_objects(key.as_slice(), None, page, usize::MAX);
            for (key, onode) in &listing.objects {
                self.object(state, &ObjectKey::new(key), onode);
                (self.progress)(FsckProgress {
                    objects: Seen {
                        count: self.report.objects,
                        of: self.expected_objects,
                    },
                    blocks: Seen {
                        count: self.report.data_blocks,
                        of: self.expected_blocks,
                    },
                });
            }
            from = listing.next;
        }
        Ok(())
    }

    /// Checks that holes lie in mapped blocks, before the object's end.
    fn holes(&mut self, key: &ObjectKey, onode: &Onode) {
        let mapped: RangeSet<u64> = onode.extents.iter().map(Extent::bytes).collect();
        let is_stray = |h: &Range<u64>| h.end > onode.size || mapped.gaps(h).next().is_some();
        if let Some(h) = onode.holes.iter().find(|h| is_stray(h)) {
            self.report.problem(format_args!(
                "object {key}: a hole at {}+{} where no data is",
                h.start,
                h.end - h.start
            ));
        }
    }

    fn object(&mut self, state: &State, key: &ObjectKey, onode: &Onode) {
        self.report.objects += 1;
        self.stored += onode.size;
        let mut end = 0;
        for e in &onode.extents {
            if e.lblk < end {
                self.report
                    .problem(format_args!("object {key}: extents overlap at block {}", e.lblk));
            }
            end = e.end();
            if !state.alloc.holds_data(Run {
                pblk: e.pblk,
                len: e.len(),
            }) {
                self.report.problem(format_args!(
                    "object {key}: blocks {}+{} are not for data",
                    e.pblk,
                    e.len()
                ));
                continue;
            }
            self.extent(state, key, e);
        }
        if !onode.holes.is_empty() {
            self.holes(key, onode);
        }
        if u64::from(end) * BLOCK64 >= onode.size + BLOCK64 {
            self.report.problem(format_args!(
                "object {key}: block {end} lies behind its end {}",
                onode.size
            ));
        }
    }

    fn extent(&mut self, state: &State, key: &ObjectKey, e: &Extent) {
        self.report.data_blocks += u64::from(e.len());
        for pblk in e.pblk..e.pblk + u64::from(e.len()) {
            if self.used.add(pblk, e.shared) {
                self.report.problem(format_args!(
                    "object {key}: block {pblk} belongs to another object, too"
                ));
            }
        }
        if self.depth == Depth::Shallow {
            return; // Contents are not looked at.
        }
        let mut buf = Pool::new(0).get(e.len() as usize * BLOCK);
        if let Err(error) = self.dev.read_at(e.pblk * BLOCK64, &mut buf) {
            self.report.problem(format_args!(
                "object {key}: blocks {}+{}: {error}",
                e.pblk,
                e.len()
            ));
            return; // There is nothing to be compared.
        }
        for (i, disk) in buf.chunks(BLOCK).enumerate() {
            let lblk = e.lblk + i as u32;
            let block = e.pblk + i as u64;
            let mapped = crate::onode::Mapped {
                pblk: block,
                crc: e.crcs[i],
                shared: e.shared,
            };
            let good = match state.content(Some(mapped)) {
                Content::Here(newer) => crc32c::crc32c(&newer) == e.crcs[i],
                Content::OnDisk(_) => crc32c::crc32c(disk) == e.crcs[i],
                Content::Zero | Content::Patched(_) | Content::Lost => false,
            };
            self.report.verified_blocks += 1;
            if !good {
                let offset = u64::from(lblk) * BLOCK64;
                self.report.problem(StoreError::Corrupt {
                    key: key.clone(),
                    offset,
                    block,
                });
            }
        }
    }

    fn pairs(&mut self, state: &State) -> Result<()> {
        let end = Bytes::from_static(&[0xff]);
        let mut from = Some(Bytes::new());
        while let Some(key) = from {
            let page = state
                .index
                .list_pairs(&key, Some(&end), PageLimit::new(PAGE, usize::MAX))?;
            let found = state.merge_pairs(&key, &end, page, PageLimit::NONE, 0);
            self.report.pairs += found.pairs.len() as u64;
            from = found.next;
        }
        Ok(())
    }

    /// Compares the counts of shared blocks with the references found.
    fn counts(&mut self, state: &State) -> Result<()> {
        let mut counts = state.index.shared()?;
        let blocks = |runs: &[Run]| -> Vec<u64> {
            runs.iter()
                .flat_map(|r| r.pblk..r.pblk + u64::from(r.len))
                .collect()
        };
        for table in &state.tables {
            for b in blocks(&table.shared) {
                *counts.entry(b).or_insert(1) += 1;
            }
            for b in blocks(&table.unshared) {
                let n = counts.entry(b).or_insert(1);
                *n = n.saturating_sub(1);
            }
        }
        counts.retain(|_, n| *n > 1);
        if counts != self.used.more {
            let differ = |(b, n): (&u64, &u32)| self.used.more.get(b) != Some(n);
            let some = counts.iter().find(|e| differ(*e)).map(|(b, n)| (*b, *n));
            let count = (counts.len(), self.used.more.len());
            self.report.problem_unless(
                self.was_cut,
                format_args!("counts of shared blocks differ: {count:?} entries, e.g. {some:?}"),
            );
        }
        Ok(())
    }

    /// Compares the bitmaps with the references found.
    fn space(&mut self, state: &State, sb: &Superblock) {
        let mut pending = vec![0u64; self.used.once.len()];
        for table in &state.tables {
            for run in table.freed.iter().chain(&table.unshared) {
                for b in run.pblk..run.pblk + u64::from(run.len) {
                    pending[b as usize / 64] |= 1 << (b % 64);
                }
            }
        }
        let (mut leaked, mut missing) = (0u64, 0u64);
        for b in 0..u64::from(sb.groups()) * u64::from(sb.group_blocks) {
            if !state.alloc.holds_data(Run { pblk: b, len: 1 }) {
                continue;
            }
            let free = state.alloc.is_free(b);
            let referenced = Used::has(&self.used.once, b);
            leaked += u64::from(!free && !referenced && !Used::has(&pending, b));
            missing += u64::from(free && referenced);
        }
        if leaked > 0 {
            self.report.problem_unless(
                self.was_cut,
                format_args!("{leaked} blocks are marked used but belong to no object"),
            );
        }
        if missing > 0 {
            self.report.problem(format_args!(
                "{missing} blocks belong to objects but are marked free"
            ));
        }
    }
}
