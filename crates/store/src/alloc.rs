//! The allocator: the free blocks of the device, by groups.
//!
//! A group is either fixed (superblocks, log), given to the index as a whole, or holds object data
//! by bitmap. Only groups that are partly used have their bitmap in memory.
//!
//! Free blocks that occupy no space below the store (holes of a sparse file) are *hollow*. They are
//! not allocated until the space is taken, so that no write of an accepted transaction fails for
//! lack of it. Blocks whose space is just being taken or given back are *held*.

use std::ops::Range;

use rangemap::RangeSet;
use spirula_invariant::{impossible, invariant};

use crate::layout::Superblock;

/// A run of device blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) pblk: u64,
    pub(crate) len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Fixed,
    Index,
    Data,
}

/// Blocks that are searched in one go for space to give back.
const MOST_SEEN: u32 = 1 << 18;
/// Stands for a tick of the last freeing: the group was searched, and is not searched again until a
/// block in it is freed.
const LOOKED_AT: u32 = u32::MAX;

#[derive(Debug)]
struct Group {
    owner: Owner,
    free: u32,
    hollow: u32,
    /// When a block of it was last freed, in ticks; 0: not since the opening.
    freed_at: u32,
    /// One bit per block, set unless it is free. `None`: all blocks are free or none is, as `free`
    /// tells.
    bits: Option<Box<[u64]>>,
}

impl Group {
    fn new(owner: Owner, free: u32) -> Self {
        Self {
            owner,
            free,
            hollow: 0,
            freed_at: 0,
            bits: None,
        }
    }
}

/// The kind of an allocation: small ones go together, large ones to whole free groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Small,
    Large,
}

#[derive(Debug)]
pub(crate) struct Allocator {
    group_blocks: u32,
    groups: Vec<Group>,
    free: u64,
    hollow: RangeSet<u64>,
    hollow_blocks: u64,
    held: u64,
    /// The number of ticks so far.
    clock: u32,
    /// The ends of the last small and the last large allocation, where the next one may continue.
    cursors: [u64; 2],
    /// Groups below the first have no free block, and none below the second is wholly free.
    lowest: usize,
    lowest_whole: usize,
}

impl Allocator {
    /// All blocks free, except the fixed groups.
    pub(crate) fn new(sb: &Superblock) -> Self {
        let fixed = sb.fixed_groups();
        let group = |i| {
            let owner = if i < fixed { Owner::Fixed } else { Owner::Data };
            Group::new(owner, if i < fixed { 0 } else { sb.group_blocks })
        };
        let groups: Vec<Group> = (0..sb.groups()).map(group).collect();
        let free = groups.iter().map(|g| u64::from(g.free)).sum();
        let start = u64::from(fixed) * u64::from(sb.group_blocks);
        Self {
            group_blocks: sb.group_blocks,
            groups,
            free,
            hollow: RangeSet::new(),
            hollow_blocks: 0,
            held: 0,
            clock: 1,
            cursors: [start; 2],
            lowest: 0,
            lowest_whole: 0,
        }
    }

    /// Blocks that data may be allocated from.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Blocks used by data.
    pub(crate) fn used(&self) -> u64 {
        let used = |g: &Group| u64::from(self.group_blocks - g.free - g.hollow);
        let taken: u64 = self
            .groups
            .iter()
            .filter(|g| g.owner == Owner::Data)
            .map(used)
            .sum();
        taken - self.held
    }

    /// Free blocks that data may be allocated from once they have space below.
    pub(crate) fn without_space(&self) -> u64 {
        self.hollow_blocks + self.held
    }

    pub(crate) fn group_of(&self, pblk: u64) -> u32 {
        (pblk / u64::from(self.group_blocks)) as u32
    }

    /// Whether `run` lies within groups that hold data.
    pub(crate) fn holds_data(&self, run: Run) -> bool {
        let Some(last) = run.pblk.checked_add(u64::from(run.len).saturating_sub(1)) else {
            return false;
        };
        let data = |g: u64| {
            self.groups
                .get(g as usize)
                .is_some_and(|g| g.owner == Owner::Data)
        };
        let size = u64::from(self.group_blocks);
        (run.pblk / size..=last / size).all(data)
    }

    /// Loads the bitmap of a group, as stored in the index: empty means all used.
    pub(crate) fn load(&mut self, group: u32, bitmap: &[u8]) -> Option<()> {
        let size = self.group_blocks;
        let g = self
            .groups
            .get_mut(group as usize)
            .filter(|g| g.owner == Owner::Data && g.free == size)?;
        if bitmap.is_empty() {
            g.free = 0;
        } else {
            if bitmap.len() != size as usize / 8 {
                return None;
            }
            let words: Vec<u64> = bitmap
                .as_chunks::<8>()
                .0
                .iter()
                .map(|w| u64::from_le_bytes(*w))
                .collect();
            g.free = size - words.iter().map(|w| w.count_ones()).sum::<u32>();
            g.bits = Some(words.into());
        }
        self.free -= u64::from(size - g.free);
        Some(())
    }

    /// Takes a group without data for the index, the last one there is.
    pub(crate) fn take_group(&mut self) -> Option<u32> {
        let size = self.group_blocks;
        let at = self
            .groups
            .iter()
            .rposition(|g| g.owner == Owner::Data && g.free + g.hollow == size)?;
        self.give_to_index(at as u32);
        Some(at as u32)
    }

    /// Marks a free group as the index's. `false` if it is not free.
    pub(crate) fn give_to_index(&mut self, group: u32) -> bool {
        let size = self.group_blocks;
        let Some(g) = self.groups.get_mut(group as usize) else {
            return false;
        };
        if g.owner != Owner::Data || g.free + g.hollow != size {
            return false;
        }
        self.free -= u64::from(g.free);
        if g.hollow > 0 {
            self.hollow_blocks -= u64::from(g.hollow);
            let first = u64::from(group) * u64::from(size);
            self.hollow.remove(first..first + u64::from(size));
        }
        *g = Group::new(Owner::Index, 0);
        true
    }

    /// Allocates `want` blocks; the caller has checked that enough are free.
    pub(crate) fn alloc(&mut self, mut want: u32, kind: Kind, out: &mut Vec<Run>) {
        invariant!(u64::from(want) <= self.free, "as many free blocks as were asked for"; want = want, free = self.free);
        while want > 0 {
            let Some(start) = self.place(kind) else {
                impossible!("a group for what is free"; want = want, free = self.free)
            };
            let run = self.take_run(start, want);
            want -= run.len;
            self.cursors[kind as usize] = run.pblk + u64::from(run.len);
            match out.last_mut() {
                Some(last) if last.pblk + u64::from(last.len) == run.pblk => last.len += run.len,
                _ => out.push(run),
            }
        }
    }

    /// A free block to start at: behind the last allocation of the kind if that ended within a
    /// group, else the first one, so that free blocks gather at the end of the device. Large
    /// allocations prefer groups that are wholly free.
    fn place(&mut self, kind: Kind) -> Option<u64> {
        let size = u64::from(self.group_blocks);
        let cursor = self.cursors[kind as usize];
        if !cursor.is_multiple_of(size) && self.is_free(cursor) {
            return Some(cursor);
        }
        if kind == Kind::Large {
            let whole = |g: &Group| g.free == self.group_blocks;
            let skipped = self.groups.get(self.lowest_whole..)?.iter().position(whole);
            self.lowest_whole = skipped.map_or(self.groups.len(), |n| self.lowest_whole + n);
            if skipped.is_some() {
                return Some(self.lowest_whole as u64 * size);
            }
        }
        let skipped = self.groups.get(self.lowest..)?.iter().position(|g| g.free > 0);
        self.lowest = skipped.map_or(self.groups.len(), |n| self.lowest + n);
        let bit = free_bit(self.groups.get(self.lowest)?)?;
        Some(self.lowest as u64 * size + u64::from(bit))
    }

    pub(crate) fn is_free(&self, pblk: u64) -> bool {
        let Some(g) = self.groups.get(self.group_of(pblk) as usize) else {
            return false;
        };
        let bit = (pblk % u64::from(self.group_blocks)) as u32;
        match &g.bits {
            Some(bits) => bits[bit as usize / 64] >> (bit % 64) & 1 == 0,
            None => g.free > 0,
        }
    }

    /// Takes up to `want` blocks of the free run at `start`, within one group.
    fn take_run(&mut self, start: u64, want: u32) -> Run {
        let size = self.group_blocks;
        let at = self.group_of(start) as usize;
        let bit = (start % u64::from(size)) as u32;
        let g = &mut self.groups[at];
        let bits = g.bits.get_or_insert_with(|| vec![0; size as usize / 64].into());
        let mut len = 0;
        while len < want && bit + len < size {
            let i = bit + len;
            let word = &mut bits[i as usize / 64];
            if *word >> (i % 64) & 1 == 1 {
                break;
            }
            *word |= 1 << (i % 64);
            len += 1;
        }
        invariant!(len > 0 && len <= g.free, "a free block to start at"; block = start, free = g.free);
        invariant!(g.owner == Owner::Data, "a group for objects"; block = start, group = at);
        g.free -= len;
        if g.free == 0 {
            g.bits = None;
        }
        self.free -= u64::from(len);
        Run { pblk: start, len }
    }

    /// Marks a run of a log record as used. `false` if some of it was used already or is not for
    /// data.
    pub(crate) fn mark_used(&mut self, run: Run) -> bool {
        if !self.holds_data(run) {
            return false;
        }
        let mut rest = run;
        while rest.len > 0 {
            if !self.is_free(rest.pblk) {
                return false;
            }
            let taken = self.take_run(rest.pblk, rest.len);
            rest = Run {
                pblk: rest.pblk + u64::from(taken.len),
                len: rest.len - taken.len,
            };
        }
        true
    }

    /// Makes a run allocatable again.
    pub(crate) fn release(&mut self, run: Run) {
        let size = self.group_blocks;
        for pblk in run.pblk..run.pblk + u64::from(run.len) {
            let at = self.group_of(pblk) as usize;
            let bit = (pblk % u64::from(size)) as u32;
            let Some(g) = self.groups.get_mut(at).filter(|g| g.owner == Owner::Data) else {
                impossible!("a group for objects where a block is freed"; block = pblk, group = at)
            };
            let full = g.free == 0;
            let bits = g
                .bits
                .get_or_insert_with(|| vec![if full { !0 } else { 0 }; size as usize / 64].into());
            let word = &mut bits[bit as usize / 64];
            invariant!(*word >> (bit % 64) & 1 == 1, "a block that is used where it is freed"; block = pblk);
            *word &= !(1 << (bit % 64));
            g.free += 1;
            self.free += 1;
            g.freed_at = self.clock;
            self.lowest = self.lowest.min(at);
            if g.free == size {
                g.bits = None;
                self.lowest_whole = self.lowest_whole.min(at);
            }
        }
    }

    /// Counts a tick.
    pub(crate) fn tick(&mut self) {
        self.clock = (self.clock + 1).min(LOOKED_AT - 1);
    }

    /// The parts of `blocks` in each group.
    fn by_group(&self, blocks: Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> + use<> {
        let size = u64::from(self.group_blocks);
        let groups = blocks.start / size..blocks.end.div_ceil(size);
        groups.map(move |g| {
            let part = blocks.start.max(g * size)..blocks.end.min((g + 1) * size);
            (g as usize, part)
        })
    }

    /// Notes that the free ones of `blocks` have no space below.
    pub(crate) fn note_hole(&mut self, blocks: Range<u64>) {
        for (at, part) in self.by_group(blocks) {
            let size = self.group_blocks;
            let Some(g) = self.groups.get_mut(at).filter(|g| g.owner == Owner::Data) else {
                continue;
            };
            if g.free == size && part.end - part.start == u64::from(size) {
                g.free = 0;
                self.free -= u64::from(size);
                self.held += u64::from(size);
                self.hollow_out(part);
                continue;
            }
            for run in self.free_runs(at, part) {
                let taken = self.take_run(run.start, (run.end - run.start) as u32);
                self.held += u64::from(taken.len);
                self.hollow_out(run);
            }
        }
    }

    /// Free runs of a group within `part`.
    fn free_runs(&self, group: usize, part: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        if self.groups.get(group).is_none_or(|g| g.free == 0) {
            return runs;
        }
        for pblk in part.filter(|b| self.is_free(*b)) {
            match runs.last_mut() {
                Some(last) if last.end == pblk => last.end += 1,
                _ => runs.push(pblk..pblk + 1),
            }
        }
        runs
    }

    /// Holds the first hollow blocks, `max` at most, to take space for them.
    pub(crate) fn hold_hollow(&mut self, max: u64) -> Option<Range<u64>> {
        let first = self.hollow.first()?;
        let blocks = first.start..first.end.min(first.start + max.max(1));
        self.hollow.remove(blocks.clone());
        let count = blocks.end - blocks.start;
        invariant!(count <= self.hollow_blocks, "a count of hollow blocks"; first = blocks.start, count = count);
        self.hollow_blocks -= count;
        self.held += count;
        for (at, part) in self.by_group(blocks.clone()) {
            self.groups[at].hollow -= (part.end - part.start) as u32;
        }
        Some(blocks)
    }

    /// Makes held blocks, which have space below now, allocatable.
    pub(crate) fn fill(&mut self, blocks: Range<u64>) {
        let count = blocks.end - blocks.start;
        invariant!(count <= self.held, "blocks that are held"; first = blocks.start, count = count, held = self.held);
        self.held -= count;
        self.release(Run {
            pblk: blocks.start,
            len: count as u32,
        });
    }

    /// Notes that held blocks have no space below.
    pub(crate) fn hollow_out(&mut self, blocks: Range<u64>) {
        let count = blocks.end - blocks.start;
        invariant!(count <= self.held, "blocks that are held"; first = blocks.start, count = count, held = self.held);
        invariant!(
            !self.hollow.overlaps(&blocks),
            "blocks that are not hollow yet";
            first = blocks.start,
            count = count,
        );
        self.held -= count;
        self.hollow_blocks += count;
        for (at, part) in self.by_group(blocks.clone()) {
            self.groups[at].hollow += (part.end - part.start) as u32;
        }
        self.hollow.insert(blocks);
    }

    /// Holds free blocks whose space may be given back: long enough runs, in groups without a freed
    /// block for `age` ticks, from the end of the device, about `max` blocks together.
    /// `fresh_only`: only in groups in which blocks were freed since the opening.
    pub(crate) fn hold_free(&mut self, max: u64, age: u32, fresh_only: bool) -> Vec<Range<u64>> {
        let shortest = self.shortest_worth();
        let (mut held, mut count, mut seen) = (Vec::new(), 0, 0);
        for at in (0..self.groups.len()).rev() {
            if count >= max || seen >= MOST_SEEN {
                break;
            }
            let g = &self.groups[at];
            let is_old = g.freed_at.saturating_add(age) <= self.clock;
            if g.owner != Owner::Data
                || u64::from(g.free) < shortest
                || !is_old
                || fresh_only && g.freed_at == 0
            {
                continue;
            }
            let size = u64::from(self.group_blocks);
            for run in self.free_runs(at, at as u64 * size..(at as u64 + 1) * size) {
                let len = (run.end - run.start).min(max.saturating_sub(count));
                if len < shortest {
                    continue;
                }
                self.take_run(run.start, len as u32);
                self.held += len;
                count += len;
                held.push(run.start..run.start + len);
            }
            seen += self.group_blocks;
            if count < max {
                self.groups[at].freed_at = LOOKED_AT;
            }
        }
        held
    }

    /// The shortest run that is given back, in blocks: the more runs there are, the longer they
    /// must be, as each takes memory here and in the file system.
    fn shortest_worth(&self) -> u64 {
        match self.hollow.len() {
            0..4096 => 16,
            4096..16_384 => u64::from(self.group_blocks / 4).max(16),
            _ => u64::from(self.group_blocks),
        }
    }
}

/// The first free block of a group.
fn free_bit(g: &Group) -> Option<u32> {
    let Some(bits) = &g.bits else {
        return (g.free > 0).then_some(0);
    };
    let free = bits.iter().enumerate().find(|(_, word)| **word != !0);
    free.map(|(i, word)| i as u32 * 64 + (!word).trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MkfsOptions;

    fn allocator() -> Allocator {
        let opts = MkfsOptions {
            log_bytes: 256 << 10,
            ..MkfsOptions::default()
        };
        Allocator::new(&Superblock::plan(16 << 20, None, &opts).unwrap())
    }

    fn alloc(a: &mut Allocator, n: u32, kind: Kind) -> Vec<Run> {
        let mut out = Vec::new();
        a.alloc(n, kind, &mut out);
        assert_eq!(out.iter().map(|r| r.len).sum::<u32>(), n);
        out
    }

    #[test]
    fn large_runs_are_contiguous_and_everything_can_be_used_and_returned() {
        let mut a = allocator();
        let all = a.free();
        let small = alloc(&mut a, 3, Kind::Small);
        let large = alloc(&mut a, 200, Kind::Large);
        assert_eq!((small.len(), large.len()), (1, 1));
        assert!(large[0].pblk >= small[0].pblk + 3);
        let rest = u32::try_from(a.free()).unwrap();
        let more = alloc(&mut a, rest, Kind::Small);
        assert_eq!((a.free(), a.used()), (0, all));
        for run in small.into_iter().chain(large).chain(more) {
            a.release(run);
        }
        assert_eq!((a.free(), a.used()), (all, 0));
        assert!(a.groups.iter().all(|g| g.bits.is_none()));
    }

    #[test]
    fn the_index_takes_whole_groups_from_the_end() {
        let mut a = allocator();
        let free = a.free();
        let g = a.take_group().unwrap();
        assert_eq!(g, 63);
        assert_eq!(a.free(), free - 64);
        assert!(!a.mark_used(Run {
            pblk: 63 * 64,
            len: 1
        }));
        assert!(a.mark_used(Run {
            pblk: 62 * 64,
            len: 64
        }));
        assert!(!a.mark_used(Run {
            pblk: 62 * 64 + 5,
            len: 1
        }));
    }

    #[test]
    #[should_panic(expected = "expected a block that is used where it is freed")]
    fn a_block_is_not_freed_twice() {
        let mut a = allocator();
        let runs = alloc(&mut a, 3, Kind::Small);
        alloc(&mut a, 1, Kind::Small);
        a.release(runs[0]);
        a.release(Run { len: 1, ..runs[0] });
    }

    #[test]
    #[should_panic(expected = "expected as many free blocks as were asked for")]
    fn no_more_is_given_out_than_there_is() {
        let mut a = allocator();
        let free = u32::try_from(a.free()).unwrap();
        a.alloc(free + 1, Kind::Large, &mut Vec::new());
    }

    #[test]
    #[should_panic(expected = "expected blocks that are held")]
    fn only_what_is_held_becomes_free_with_its_space() {
        let mut a = allocator();
        a.fill(100..101);
    }

    #[test]
    fn bitmaps_load() {
        let mut a = allocator();
        let free = a.free();
        a.load(10, &[0xff, 0, 0, 0, 0, 0, 0, 1]).unwrap();
        a.load(11, &[]).unwrap();
        assert_eq!(free - a.free(), 9 + 64);
        assert!(a.load(10, &[]).is_none());
        assert!(!a.mark_used(Run { pblk: 640, len: 1 }));
        assert!(a.mark_used(Run { pblk: 648, len: 48 }));
    }
}
