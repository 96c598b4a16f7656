//! The allocator: which blocks are free, by groups.
//!
//! A group is either fixed (superblocks, log), given to the index as a whole, or holds object data by bitmap. Only groups
//! that are partly used have their bitmap in memory.

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

#[derive(Debug)]
struct Group {
    owner: Owner,
    free: u32,
    /// One bit per block, set if used. `None`: all free or all used, as `free` says.
    bits: Option<Box<[u64]>>,
}

/// Where an allocation goes: small ones together, large ones to whole free groups.
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
    /// Next place to look for small and large allocations.
    cursors: [u64; 2],
}

impl Allocator {
    /// All blocks free, except the fixed groups.
    pub(crate) fn new(sb: &Superblock) -> Self {
        let fixed = sb.fixed_groups();
        let group = |i| {
            let owner = if i < fixed { Owner::Fixed } else { Owner::Data };
            let free = if i < fixed { 0 } else { sb.group_blocks };
            Group {
                owner,
                free,
                bits: None,
            }
        };
        let groups: Vec<Group> = (0..sb.groups()).map(group).collect();
        let free = groups.iter().map(|g| u64::from(g.free)).sum();
        let start = u64::from(fixed) * u64::from(sb.group_blocks);
        Self {
            group_blocks: sb.group_blocks,
            groups,
            free,
            cursors: [start; 2],
        }
    }

    /// Blocks that data may be allocated from.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Blocks used by data.
    pub(crate) fn used(&self) -> u64 {
        let used = |g: &Group| u64::from(self.group_blocks - g.free);
        self.groups
            .iter()
            .filter(|g| g.owner == Owner::Data)
            .map(used)
            .sum()
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

    /// Takes a wholly free group for the index, the last one there is.
    pub(crate) fn take_group(&mut self) -> Option<u32> {
        let size = self.group_blocks;
        let at = self
            .groups
            .iter()
            .rposition(|g| g.owner == Owner::Data && g.free == size)?;
        self.give_to_index(at as u32);
        Some(at as u32)
    }

    /// Marks a free group as the index's. `false` if it is not free.
    pub(crate) fn give_to_index(&mut self, group: u32) -> bool {
        let size = self.group_blocks;
        let Some(g) = self.groups.get_mut(group as usize) else {
            return false;
        };
        if g.owner != Owner::Data || g.free != size {
            return false;
        }
        *g = Group {
            owner: Owner::Index,
            free: 0,
            bits: None,
        };
        self.free -= u64::from(size);
        true
    }

    /// Allocates `want` blocks; the caller has checked that there are as many.
    pub(crate) fn alloc(&mut self, mut want: u32, kind: Kind, out: &mut Vec<Run>) {
        debug_assert!(u64::from(want) <= self.free);
        while want > 0 && self.free > 0 {
            let Some(start) = self.place(want, kind) else {
                return;
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

    /// A free block to start at.
    fn place(&self, want: u32, kind: Kind) -> Option<u64> {
        let cursor = self.cursors[kind as usize];
        let first = self.group_of(cursor) as usize;
        let count = self.groups.len();
        let order = || (0..=count).map(|i| (first + i) % count);
        if kind == Kind::Large {
            // Where the last one ended, else a whole free group, else whatever there is.
            if self.groups.get(first).is_some_and(|g| g.free > 0) && self.is_free(cursor) {
                return Some(cursor);
            }
            let whole = self.group_blocks.min(want.next_power_of_two());
            if let Some(g) = order().find(|g| self.groups[*g].free >= whole && self.groups[*g].bits.is_none())
            {
                return Some(g as u64 * u64::from(self.group_blocks));
            }
        }
        for (i, g) in order().enumerate() {
            if self.groups[g].free == 0 {
                continue;
            }
            let skip = if i == 0 {
                (cursor % u64::from(self.group_blocks)) as u32
            } else {
                0
            };
            if let Some(bit) = self.free_bit(&self.groups[g], skip) {
                return Some(g as u64 * u64::from(self.group_blocks) + u64::from(bit));
            }
        }
        None
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

    /// The first free block of a group from `skip` on.
    fn free_bit(&self, g: &Group, skip: u32) -> Option<u32> {
        let Some(bits) = &g.bits else {
            return (g.free > 0).then_some(skip);
        };
        let mut mask = !0 << (skip % 64);
        for (i, word) in bits.iter().enumerate().skip(skip as usize / 64) {
            let free = !word & mask;
            mask = !0;
            if free != 0 {
                return Some(i as u32 * 64 + free.trailing_zeros());
            }
        }
        None
    }

    /// Takes the free run at `start`, of `want` blocks at most, within one group.
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
        g.free -= len;
        if g.free == 0 {
            g.bits = None;
        }
        self.free -= u64::from(len);
        Run { pblk: start, len }
    }

    /// Marks a run as used: a log record says so. `false` if some of it was used already or is not for data.
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
                continue;
            };
            let full = g.free == 0;
            let bits = g
                .bits
                .get_or_insert_with(|| vec![if full { !0 } else { 0 }; size as usize / 64].into());
            let word = &mut bits[bit as usize / 64];
            debug_assert!(*word >> (bit % 64) & 1 == 1, "block {pblk} freed twice");
            if *word >> (bit % 64) & 1 == 1 {
                *word &= !(1 << (bit % 64));
                g.free += 1;
                self.free += 1;
            }
            if g.free == size {
                g.bits = None;
            }
        }
    }
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
