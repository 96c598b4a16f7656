//! A simulated disk: in memory, deterministic by seed, with power cuts, bit flips and errors.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spirula_random::Rng;

use super::{BlockIo, Device, Done, Io, IoKind, Way};

/// Misdirected writes land at multiples of this.
const BLOCK: usize = 4096;

/// The faults, and when they happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fault {
    /// The power goes after this many more operations; everything fails afterwards.
    pub cut_after: Option<u64>,
    /// The n-th next write fails with an I/O error.
    pub fail_write: Option<u64>,
    /// The n-th next flush (or durable write) fails with an I/O error.
    pub fail_flush: Option<u64>,
    /// The n-th next read fails with an I/O error.
    pub fail_read: Option<u64>,
    /// The n-th next write goes to another place.
    pub misdirect: Option<u64>,
    /// After the n-th next write the page cache has the old contents of its place, as when another
    /// process reads the disk at that moment.
    pub stale: Option<u64>,
}

struct Written {
    offset: u64,
    data: Vec<u8>,
    /// Whether the write was acknowledged as durable by itself.
    forced: bool,
}

struct Disk {
    /// The contents that surely survive a power cut.
    durable: Vec<u8>,
    /// The contents that reads return.
    current: Vec<u8>,
    /// The page cache: contents of blocks by their number.
    pages: BTreeMap<usize, Vec<u8>>,
    /// Writes since the last flush, in order.
    unflushed: Vec<Written>,
    /// Blocks that occupy space below, as those of a sparse file do.
    backed: Vec<bool>,
    /// Blocks for which there is still space below.
    room: u64,
    rng: Rng,
    fault: Fault,
    cut: bool,
    ops: u64,
}

impl Disk {
    /// Counts an operation; an error if the power is off or goes off now.
    fn tick(&mut self) -> io::Result<()> {
        if !self.cut && self.fault.cut_after == Some(0) {
            self.cut = true;
        }
        if self.cut {
            return Err(io::Error::other("power is off"));
        }
        self.ops += 1;
        count_down(&mut self.fault.cut_after);
        Ok(())
    }

    fn range(&self, offset: u64, len: usize) -> io::Result<Range<usize>> {
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        match from.checked_add(len) {
            Some(to) if to <= self.current.len() => Ok(from..to),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn read(&mut self, offset: u64, buf: &mut [u8], way: Way) -> io::Result<()> {
        self.tick()?;
        if count_down(&mut self.fault.fail_read) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let range = self.range(offset, buf.len())?;
        match way {
            Way::Direct => buf.copy_from_slice(&self.current[range]),
            Way::Cached => {
                for (block, part) in blocks(&range).zip(buf.chunks_mut(BLOCK)) {
                    let page = self.pages.entry(block);
                    let page = page.or_insert_with(|| self.current[block * BLOCK..][..part.len()].to_vec());
                    part.copy_from_slice(page);
                }
            }
        }
        Ok(())
    }

    /// Fills `buf` from the page cache, if that has all of it.
    fn read_cached(&mut self, offset: u64, buf: &mut [u8]) -> bool {
        let Ok(range) = self.range(offset, buf.len()) else {
            return false;
        };
        let mut parts = blocks(&range).zip(buf.chunks_mut(BLOCK));
        !self.cut
            && parts.all(|(block, part)| {
                let page = self.pages.get(&block);
                page.is_some_and(|page| {
                    part.copy_from_slice(page);
                    true
                })
            })
    }

    fn drop_cached(&mut self, range: &Range<usize>) {
        for block in blocks(range) {
            self.pages.remove(&block);
        }
    }

    fn write(&mut self, mut offset: u64, data: &[u8], forced: bool) -> io::Result<()> {
        let mut range = self.range(offset, data.len())?;
        let power = self.tick();
        if power.is_ok() {
            let lost = forced && count_down(&mut self.fault.fail_flush);
            if count_down(&mut self.fault.fail_write) || lost {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            if count_down(&mut self.fault.misdirect) {
                let places = (self.current.len() - data.len()) / BLOCK + 1;
                offset = self.rng.below(places as u64) * BLOCK as u64;
                range = self.range(offset, data.len())?;
            }
            self.back(range.clone())?;
            self.drop_cached(&range);
            if count_down(&mut self.fault.stale) {
                for block in blocks(&range) {
                    let old = self.current[block * BLOCK..][..BLOCK].to_vec();
                    self.pages.insert(block, old);
                }
            }
            self.current[range].copy_from_slice(data);
        }
        // A write under way when the power goes may have reached the medium in part.
        self.unflushed.push(Written {
            offset,
            data: data.to_vec(),
            forced: forced && power.is_ok(),
        });
        power
    }

    /// Takes the space of blocks that have none.
    fn back(&mut self, range: Range<usize>) -> io::Result<()> {
        let blocks = &mut self.backed[range.start / BLOCK..range.end.div_ceil(BLOCK)];
        let missing = blocks.iter().filter(|b| !**b).count() as u64;
        if missing > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room -= missing;
        blocks.fill(true);
        Ok(())
    }

    fn discard(&mut self, range: Range<usize>) -> io::Result<()> {
        self.tick()?;
        self.drop_cached(&range);
        self.current[range.clone()].fill(0);
        self.unflushed.push(Written {
            offset: range.start as u64,
            data: vec![0; range.len()],
            forced: false,
        });
        let blocks = &mut self.backed[range.start / BLOCK..range.end / BLOCK];
        self.room = self
            .room
            .saturating_add(blocks.iter().filter(|b| **b).count() as u64);
        blocks.fill(false);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tick()?;
        if count_down(&mut self.fault.fail_flush) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        for w in self.unflushed.drain(..) {
            let at = w.offset as usize;
            self.durable[at..at + w.data.len()].copy_from_slice(&w.data);
        }
        Ok(())
    }

    /// The contents after a power cut: each unflushed write is there, lost, or torn at sector
    /// boundaries.
    fn after_cut(&mut self) -> Vec<u8> {
        let mut image = std::mem::take(&mut self.durable);
        for w in std::mem::take(&mut self.unflushed) {
            let fate = if w.forced { 0 } else { self.rng.below(4) };
            let sector = if self.rng.below(2) == 0 { 512 } else { 4096 };
            for (i, part) in w.data.chunks(sector).enumerate() {
                let keep = match fate {
                    0 => true,
                    1 => false,
                    _ => self.rng.below(2) == 0,
                };
                let at = w.offset as usize + i * sector;
                if keep {
                    image[at..at + part.len()].copy_from_slice(part);
                }
            }
        }
        image
    }
}

/// Numbers of the blocks of a range that consists of whole ones.
fn blocks(range: &Range<usize>) -> Range<usize> {
    range.start / BLOCK..range.end / BLOCK
}

/// Counts down to zero; returns whether zero is reached now.
fn count_down(n: &mut Option<u64>) -> bool {
    match n {
        Some(0) => {
            *n = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

/// A handle on a simulated disk, which outlives the devices opened on it. Clones share the disk.
#[derive(Clone)]
pub struct SimDisk {
    disk: Arc<Mutex<Disk>>,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimDisk({} ops)", self.lock().ops)
    }
}

impl SimDisk {
    /// An empty disk of `size` bytes (a multiple of 4096). All randomness follows from `seed`.
    pub fn new(size: usize, seed: u64) -> Self {
        // Not one copied from the other, so that unwritten memory is not allocated.
        let below = (vec![false; size / BLOCK], u64::MAX);
        Self::with_images(vec![0; size], vec![0; size], below, seed)
    }

    fn with_images(durable: Vec<u8>, current: Vec<u8>, (backed, room): (Vec<bool>, u64), seed: u64) -> Self {
        let disk = Disk {
            durable,
            current,
            backed,
            room,
            pages: BTreeMap::new(),
            unflushed: Vec::new(),
            rng: Rng::new(seed),
            fault: Fault::default(),
            cut: false,
            ops: 0,
        };
        Self {
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Arms a fault; replaces an earlier one.
    pub fn arm(&self, fault: Fault) {
        self.lock().fault = fault;
    }

    /// Operations carried out so far.
    pub fn ops(&self) -> u64 {
        self.lock().ops
    }

    /// Sets how many bytes can still be allocated below, for a disk that is a sparse file.
    pub fn set_room(&self, bytes: u64) {
        self.lock().room = bytes / BLOCK as u64;
    }

    /// Bytes that it occupies below.
    pub fn occupied(&self) -> u64 {
        let blocks = self.lock().backed.iter().filter(|b| **b).count();
        (blocks * BLOCK) as u64
    }

    /// Whether the power has gone.
    pub fn is_cut(&self) -> bool {
        self.lock().cut
    }

    /// Changes the length of the disk, as that of a file. New bytes read as zeros, and the length
    /// survives a power cut.
    pub fn set_len(&self, len: usize) {
        let mut disk = self.lock();
        disk.current.resize(len, 0);
        disk.durable.resize(len, 0);
        disk.backed.resize(len / BLOCK, false);
        for w in &mut disk.unflushed {
            let left = len.saturating_sub(usize::try_from(w.offset).unwrap_or(len));
            w.data.truncate(left);
        }
        disk.unflushed.retain(|w| !w.data.is_empty());
    }

    /// Cuts the power now (if it is on) and returns the disk with its contents after the cut.
    /// Devices that are still open on the old handle only see errors.
    #[must_use]
    pub fn power_cycle(&self, seed: u64) -> Self {
        let mut disk = self.lock();
        disk.cut = true;
        let image = disk.after_cut();
        let below = (disk.backed.clone(), disk.room);
        Self::with_images(image.clone(), image, below, seed)
    }

    /// Another disk with the present contents of this one, all of them durable.
    #[must_use]
    pub fn copied(&self, seed: u64) -> Self {
        let disk = self.lock();
        let below = (disk.backed.clone(), disk.room);
        Self::with_images(disk.current.clone(), disk.current.clone(), below, seed)
    }

    /// Flips one bit of the medium at byte `offset`.
    pub fn flip_bit(&self, offset: usize, bit: u32) {
        let mut disk = self.lock();
        disk.current[offset] ^= 1 << (bit % 8);
        disk.durable[offset] ^= 1 << (bit % 8);
    }

    /// Replaces what the medium has from byte `offset` on.
    pub fn overwrite(&self, offset: usize, bytes: &[u8]) {
        let mut disk = self.lock();
        disk.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        disk.durable[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// An asynchronous device on this disk: operations complete in random order, some later than
    /// others.
    pub fn device(&self) -> SimDevice {
        SimDevice {
            disk: self.clone(),
            queued: Vec::new(),
        }
    }
}

impl BlockIo for SimDisk {
    fn size(&self) -> u64 {
        self.lock().current.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.lock().read(offset, buf, Way::Direct)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.lock().write(offset, data, false)
    }

    fn sync(&self) -> io::Result<()> {
        self.lock().flush()
    }

    fn is_sparse(&self) -> bool {
        true
    }

    fn holes(&self) -> io::Result<Vec<Range<u64>>> {
        let disk = self.lock();
        let mut holes: Vec<Range<u64>> = Vec::new();
        for (i, _) in disk.backed.iter().enumerate().filter(|(_, backed)| !**backed) {
            let at = (i * BLOCK) as u64;
            match holes.last_mut() {
                Some(last) if last.end == at => last.end += BLOCK as u64,
                _ => holes.push(at..at + BLOCK as u64),
            }
        }
        Ok(holes)
    }

    fn allocate(&self, part: Range<u64>) -> io::Result<()> {
        let mut disk = self.lock();
        disk.tick()?;
        let range = disk.range(part.start, (part.end - part.start) as usize)?;
        disk.back(range)
    }

    fn discard(&self, part: Range<u64>) -> io::Result<()> {
        let mut disk = self.lock();
        let range = disk.range(part.start, (part.end - part.start) as usize)?;
        disk.discard(range)
    }
}

/// An open [`SimDisk`].
pub struct SimDevice {
    disk: SimDisk,
    queued: Vec<Io>,
}

impl Device for SimDevice {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn queue(&mut self, io: Io) {
        self.queued.push(io);
    }

    fn kick(&mut self) {}

    fn reap(&mut self, out: &mut Vec<Done>) {
        if self.queued.is_empty() {
            return; // A disk's dice are only thrown for what happens.
        }
        let mut disk = self.disk.lock();
        // At least one operation completes per call, so that a caller that polls long enough sees
        // all of them.
        for _ in 0..=disk.rng.below(self.queued.len() as u64) {
            let at = disk.rng.below(self.queued.len() as u64) as usize;
            let io = self.queued.swap_remove(at);
            out.push(perform(&mut disk, io));
        }
    }

    fn blocking(&self) -> Arc<dyn BlockIo> {
        Arc::new(self.disk.clone())
    }

    fn read_cached(&mut self, offset: u64, buf: &mut [u8]) -> bool {
        self.disk.lock().read_cached(offset, buf)
    }

    fn drop_cached(&mut self, part: Range<u64>) {
        let mut disk = self.disk.lock();
        disk.drop_cached(&(part.start as usize..part.end as usize));
    }
}

fn perform(disk: &mut Disk, io: Io) -> Done {
    let (result, buf) = match io.kind {
        IoKind::Read { offset, mut buf, way } => (disk.read(offset, &mut buf, way), Some(buf)),
        IoKind::Write {
            offset,
            bufs,
            durable,
        } => {
            let data: Vec<u8> = bufs.concat();
            (disk.write(offset, &data, durable), None)
        }
        IoKind::Flush => (disk.flush(), None),
    };
    Done {
        tag: io.tag,
        result,
        buf,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 2 * BLOCK;

    /// The contents after a power cut that comes after a write of ones over what was flushed
    /// before.
    fn after_cut(seed: u64, flush: bool) -> Vec<u8> {
        let disk = SimDisk::new(LEN, seed);
        disk.write_at(0, &[7; LEN]).unwrap();
        disk.sync().unwrap();
        disk.write_at(0, &[1; LEN]).unwrap();
        if flush {
            disk.sync().unwrap();
        }
        let mut found = vec![0; LEN];
        disk.power_cycle(seed).read_at(0, &mut found).unwrap();
        assert!(disk.read_at(0, &mut [0]).is_err(), "the power is off");
        found
    }

    #[test]
    fn what_was_not_flushed_is_kept_lost_or_torn_at_sectors() {
        let (mut kept, mut lost, mut torn) = (0, 0, 0);
        for seed in 0..100 {
            assert_eq!(after_cut(seed, true), [1; LEN], "seed {seed}");
            let found = after_cut(seed, false);
            let sectors = || {
                found
                    .chunks(512)
                    .map(|s| s.iter().collect::<std::collections::BTreeSet<_>>())
            };
            assert!(
                sectors().all(|s| s.len() == 1),
                "seed {seed}: torn within a sector"
            );
            match found.iter().filter(|b| **b == 1).count() {
                0 => lost += 1,
                LEN => kept += 1,
                _ => torn += 1,
            }
            assert!(found.iter().all(|b| [1, 7].contains(b)), "seed {seed}");
        }
        assert!(kept > 0 && lost > 0 && torn > 0, "{kept} {lost} {torn}");
    }

    #[test]
    fn a_write_that_is_durable_by_itself_survives_the_cut() {
        for seed in 0..100 {
            let disk = SimDisk::new(BLOCK, seed);
            disk.lock().write(0, &[5; BLOCK], true).unwrap();
            let mut found = [0; BLOCK];
            disk.power_cycle(seed).read_at(0, &mut found).unwrap();
            assert_eq!(found, [5; BLOCK], "seed {seed}");
        }
    }
}
