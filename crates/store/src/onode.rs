//! The onode: the metadata of one object, and its encoding in the index.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use rangemap::RangeSet;
use smallvec::SmallVec;
use spirula_invariant::{impossible, invariant};

use crate::codec::{Dec, Enc};
use crate::config::{BLOCK, BLOCK64};
use crate::{Result, StoreError};

/// Version of the onode encoding.
///
/// 1: the first. 2: holes within blocks.
const VERSION: u8 = 2;

/// The most holes that are recorded within a block. Of more, the smallest count as data: they read
/// as zeros all the same, and the object's onode does not become larger than its blocks.
const MAX_HOLES: usize = 8;

/// Checksums of a run's blocks. Those of a short run, as overwrites make them, lie in the extent
/// itself.
pub type Crcs = SmallVec<[u32; 4]>;

/// A run of an object's blocks that lie one after the other on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// First block of the object, in 4 KiB units.
    pub lblk: u32,
    /// First block of the device, in 4 KiB units.
    pub pblk: u64,
    /// Whether another object may refer to the blocks too: they are never overwritten in place, and
    /// freed by count.
    pub shared: bool,
    /// CRC-32C of each block: the length of the run.
    pub crcs: Crcs,
}

impl Extent {
    /// Number of blocks.
    pub fn len(&self) -> u32 {
        self.crcs.len() as u32
    }

    /// Whether the run has no blocks (never stored).
    pub fn is_empty(&self) -> bool {
        self.crcs.is_empty()
    }

    /// One past the last block of the object.
    pub fn end(&self) -> u32 {
        self.lblk + self.len()
    }

    /// The range of the object's bytes in this run.
    pub(crate) fn bytes(&self) -> Range<u64> {
        u64::from(self.lblk) * BLOCK64..u64::from(self.end()) * BLOCK64
    }

    fn append(&mut self, next: &Self) {
        let (len, more) = (self.crcs.len(), next.crcs.len());
        if self.crcs.capacity() - len < more {
            self.crcs.reserve_exact(more + len / 8);
        }
        self.crcs.extend_from_slice(&next.crcs);
    }

    fn continues(&self, next: &Self) -> bool {
        self.end() == next.lblk
            && self.pblk + u64::from(self.len()) == next.pblk
            && self.shared == next.shared
    }
}

/// Blocks that are taken out of an object.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) extents: Vec<Extent>,
    /// Holes in them, in bytes of the object.
    holes: Vec<Range<u64>>,
}

impl Blocks {
    /// Makes block `from` of their object block `to`.
    pub(crate) fn shift(&mut self, from: u32, to: u32) {
        for e in &mut self.extents {
            e.lblk = e.lblk - from + to;
        }
        let (from, to) = (u64::from(from) * BLOCK64, u64::from(to) * BLOCK64);
        for hole in &mut self.holes {
            *hole = hole.start - from + to..hole.end - from + to;
        }
    }
}

/// One block of an object on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) pblk: u64,
    pub(crate) crc: u32,
    pub(crate) shared: bool,
}

/// An object's metadata, as of the last submitted transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Onode {
    pub(crate) size: u64,
    pub(crate) info: Bytes,
    pub(crate) attrs: Vec<(Bytes, Bytes)>,
    /// 0: the object has no omap. Otherwise the prefix of its pairs.
    pub(crate) omap: u64,
    pub(crate) omap_header: Bytes,
    pub(crate) extents: Vec<Extent>,
    /// Bytes of mapped blocks, before the object's end, that hold zeros which no client wrote.
    pub(crate) holes: RangeSet<u64>,
}

impl Onode {
    /// Size of the object, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The owner's info blob; empty if none was set.
    pub fn info(&self) -> &Bytes {
        &self.info
    }

    /// The value of an attribute.
    pub fn attr(&self, name: &[u8]) -> Option<&Bytes> {
        let at = self.attrs.binary_search_by(|(n, _)| n.as_ref().cmp(name)).ok()?;
        Some(&self.attrs[at].1)
    }

    /// All attributes, ordered by name.
    pub fn attrs(&self) -> &[(Bytes, Bytes)] {
        &self.attrs
    }

    /// The omap header; empty if none was set.
    pub fn omap_header(&self) -> &Bytes {
        &self.omap_header
    }

    /// Whether the object ever had omap pairs (they may have been removed since).
    pub fn has_omap(&self) -> bool {
        self.omap != 0
    }

    /// The runs of blocks, ordered by place in the object.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Bytes allocated on the device.
    pub fn allocated(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(e.len()) * BLOCK64).sum()
    }

    /// The ranges that hold data, in bytes, merged and clipped to the object's size
    /// and to `len` bytes from `offset` on: written bytes, zeros included, that were not zeroed or
    /// truncated since. Gaps read as zeros.
    pub fn data_ranges(&self, offset: u64, len: u64) -> Vec<Range<u64>> {
        let end = offset.saturating_add(len).min(self.size);
        let mut out: Vec<Range<u64>> = Vec::new();
        let mut add = |r: Range<u64>| match out.last_mut() {
            Some(last) if last.end == r.start => last.end = r.end,
            _ => out.push(r),
        };
        for e in &self.extents {
            let part = e.bytes().start.max(offset)..e.bytes().end.min(end);
            if part.is_empty() {
                continue;
            }
            if self.holes.is_empty() {
                add(part);
            } else {
                self.holes.gaps(&part).for_each(&mut add);
            }
        }
        out
    }

    /// Notes that bytes of mapped blocks are zeros which no client wrote. Bytes behind the object's
    /// end are no data anyway.
    pub(crate) fn add_hole(&mut self, range: Range<u64>) {
        let range = range.start..range.end.min(self.size);
        if !range.is_empty() {
            self.holes.insert(range.clone());
            self.limit_holes(&range);
        }
    }

    /// Notes that bytes were written, or that their blocks are gone.
    pub(crate) fn fill_holes(&mut self, range: Range<u64>) {
        if !self.holes.is_empty() && !range.is_empty() {
            self.holes.remove(range.clone());
            self.limit_holes(&range);
        }
    }

    /// Removes the smallest holes from the blocks at both ends of a change, if they have too many.
    fn limit_holes(&mut self, changed: &Range<u64>) {
        for at in [changed.start, changed.end - 1] {
            let start = at / BLOCK64 * BLOCK64;
            let block = start..start + BLOCK64;
            while self.holes.overlapping(&block).count() > MAX_HOLES {
                let smallest = self.holes.overlapping(&block).min_by_key(|h| h.end - h.start);
                let Some(hole) = smallest.cloned() else { break };
                self.holes.remove(hole);
            }
        }
    }

    /// Changes the size. There are no holes behind it.
    pub(crate) fn set_size(&mut self, size: u64) {
        if size < self.size && !self.holes.is_empty() {
            self.holes.remove(size..u64::MAX);
        }
        self.size = size;
    }

    /// Size in memory, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        let attrs: usize = self.attrs.iter().map(|(n, v)| n.len() + v.len() + 96).sum();
        let outside = self.extents.iter().filter(|e| e.crcs.spilled());
        let crcs: usize = outside.map(|e| e.crcs.capacity() * 4 + 16).sum();
        let extents = self.extents.capacity() * size_of::<Extent>() + crcs;
        let holes = self.holes.len() * 32;
        184 + self.info.len() + self.omap_header.len() + attrs + extents + holes
    }

    pub(crate) fn set_attr(&mut self, name: Bytes, value: Bytes) {
        match self.attrs.binary_search_by(|(n, _)| n.cmp(&name)) {
            Ok(at) => self.attrs[at].1 = value,
            Err(at) => self.attrs.insert(at, (name, value)),
        }
    }

    pub(crate) fn rm_attr(&mut self, name: &[u8]) {
        if let Ok(at) = self.attrs.binary_search_by(|(n, _)| n.as_ref().cmp(name)) {
            self.attrs.remove(at);
        }
    }

    /// Index of the first extent that ends after `lblk`.
    fn first_after(&self, lblk: u32) -> usize {
        self.extents.partition_point(|e| e.end() <= lblk)
    }

    /// The block that holds `lblk`, or `None` for a hole.
    pub(crate) fn block(&self, lblk: u32) -> Option<Mapped> {
        let e = self.extents.get(self.first_after(lblk))?;
        if e.lblk > lblk {
            return None;
        }
        let i = lblk - e.lblk;
        Some(Mapped {
            pblk: e.pblk + u64::from(i),
            crc: e.crcs[i as usize],
            shared: e.shared,
        })
    }

    /// Extents that overlap `[lblk, lblk + len)`.
    pub(crate) fn overlapping(&self, lblk: u32, len: u32) -> impl Iterator<Item = &Extent> {
        let end = lblk.saturating_add(len);
        self.extents[self.first_after(lblk)..]
            .iter()
            .take_while(move |e| e.lblk < end)
    }

    /// Sets the checksum of a mapped block.
    pub(crate) fn set_crc(&mut self, lblk: u32, crc: u32) {
        let at = self.first_after(lblk);
        let Some(e) = self.extents.get_mut(at).filter(|e| e.lblk <= lblk) else {
            impossible!("a mapped block to have a checksum"; block = lblk)
        };
        e.crcs[(lblk - e.lblk) as usize] = crc;
    }

    /// Makes `[lblk, lblk + len)` a hole; `freed` gets the runs that lay there.
    pub(crate) fn unmap(&mut self, lblk: u32, len: u32, mut freed: impl FnMut(Extent)) {
        let end = lblk.saturating_add(len);
        let from = self.first_after(lblk);
        let to = from + self.extents[from..].partition_point(|e| e.lblk < end);
        if from == to {
            return; // It is a hole.
        }
        let mut keep = Vec::new();
        for mut e in self.extents.splice(from..to, []) {
            if e.lblk < lblk {
                let tail = split_off(&mut e, lblk);
                keep.push(std::mem::replace(&mut e, tail));
            }
            if e.end() > end {
                let tail = split_off(&mut e, end);
                keep.push(tail);
            }
            freed(e);
        }
        make_room(&mut self.extents, keep.len());
        self.extents.splice(from..from, keep);
    }

    /// Maps a run in place of older ones; `freed` gets the runs it replaces.
    pub(crate) fn map(&mut self, run: Extent, freed: impl FnMut(Extent)) {
        invariant!(!run.is_empty(), "blocks to be mapped"; at = run.lblk, block = run.pblk);
        self.unmap(run.lblk, run.len(), freed);
        let at = self.first_after(run.lblk);
        if at > 0 && self.extents[at - 1].continues(&run) {
            self.extents[at - 1].append(&run);
            self.join(at - 1);
        } else {
            make_room(&mut self.extents, 1);
            self.extents.insert(at, run);
            self.join(at);
        }
    }

    /// Takes the runs of `[lblk, lblk + len)` out, with the holes in them.
    pub(crate) fn take(&mut self, lblk: u32, len: u32) -> Blocks {
        let mut extents = Vec::new();
        self.unmap(lblk, len, |e| extents.push(e));
        let range = u64::from(lblk) * BLOCK64..(u64::from(lblk) + u64::from(len)) * BLOCK64;
        let clipped = |h: &Range<u64>| h.start.max(range.start)..h.end.min(range.end);
        let holes = self.holes.overlapping(&range).map(clipped).collect();
        self.fill_holes(range);
        Blocks { extents, holes }
    }

    /// Puts runs where nothing lies, with the holes in them.
    pub(crate) fn put(&mut self, blocks: &Blocks) {
        for e in &blocks.extents {
            self.map(
                e.clone(),
                |old| impossible!("nothing where blocks are put"; at = old.lblk, block = old.pblk),
            );
        }
        for hole in &blocks.holes {
            self.add_hole(hole.clone());
        }
    }

    /// Joins extent `at` with its successor if they are one run.
    fn join(&mut self, at: usize) {
        if at + 1 < self.extents.len() && self.extents[at].continues(&self.extents[at + 1]) {
            let next = self.extents.remove(at + 1);
            self.extents[at].append(&next);
        }
    }

    /// Appends the encoding (see FORMAT.md, "Onode").
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        // With large attributes the vector would grow to twice its need.
        out.reserve_exact(self.footprint());
        let mut e = Enc(out);
        e.u8(VERSION);
        e.varint(self.size);
        e.bytes(&self.info);
        e.varint(self.omap);
        e.bytes(&self.omap_header);
        e.varint(self.attrs.len() as u64);
        for (name, value) in &self.attrs {
            e.bytes(name);
            e.bytes(value);
        }
        e.varint(self.extents.len() as u64);
        let mut lblk = 0;
        for x in &self.extents {
            invariant!(
                x.lblk >= lblk && !x.is_empty(),
                "runs of blocks that ascend";
                at = x.lblk,
                behind = lblk,
                block = x.pblk,
            );
            e.varint(u64::from(x.lblk - lblk));
            e.varint(u64::from(x.len()) << 1 | u64::from(x.shared));
            e.varint(x.pblk);
            lblk = x.end();
        }
        e.varint(self.holes.len() as u64);
        let mut end = 0;
        for hole in self.holes.iter() {
            e.varint(hole.start - end);
            e.varint(hole.end - hole.start);
            end = hole.end;
        }
        for x in &self.extents {
            e.crcs(&x.crcs);
        }
    }

    /// Decodes the output of [`Onode::encode`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        Self::try_decode(bytes).ok_or_else(|| damaged(bytes))
    }

    /// The info alone, in an encoded onode.
    fn info_part(bytes: &[u8]) -> Option<&[u8]> {
        let mut d = Dec::new(bytes);
        version(&mut d)?;
        d.varint()?;
        d.bytes()
    }

    fn try_decode(bytes: &[u8]) -> Option<Self> {
        let mut d = Dec::new(bytes);
        let version = version(&mut d)?;
        let mut onode = Self {
            size: d.varint()?,
            ..Self::default()
        };
        onode.info = Bytes::copy_from_slice(d.bytes()?);
        onode.omap = d.varint()?;
        onode.omap_header = Bytes::copy_from_slice(d.bytes()?);
        for _ in 0..d.count(2)? {
            onode.attrs.push((
                Bytes::copy_from_slice(d.bytes()?),
                Bytes::copy_from_slice(d.bytes()?),
            ));
        }
        let count = d.count(3)?;
        let mut shape = Vec::with_capacity(count);
        let mut lblk = 0u32;
        for _ in 0..count {
            let start = lblk.checked_add(u32::try_from(d.varint()?).ok()?)?;
            let word = d.varint()?;
            let len = u32::try_from(word >> 1).ok().filter(|n| *n > 0)?;
            lblk = start.checked_add(len)?;
            let pblk = d.varint()?;
            pblk.checked_add(u64::from(len))?;
            shape.push((start, len, word & 1 == 1, pblk));
        }
        if version > 1 {
            let mut end = 0u64;
            for _ in 0..d.count(2)? {
                let start = end.checked_add(d.varint()?)?;
                end = start.checked_add(d.varint()?).filter(|end| *end > start)?;
                onode.holes.insert(start..end);
            }
        }
        onode.extents.reserve_exact(count);
        for (lblk, len, shared, pblk) in shape {
            onode.extents.push(Extent {
                lblk,
                pblk,
                shared,
                crcs: d.crcs(len as usize)?,
            });
        }
        d.is_done().then_some(onode)
    }
}

/// The version of an encoded onode, if it is a known one.
fn version(d: &mut Dec<'_>) -> Option<u8> {
    d.u8().filter(|v| (1..=VERSION).contains(v))
}

/// Cuts `e` at the object's block `at`; returns the part from there on.
fn split_off(e: &mut Extent, at: u32) -> Extent {
    let keep = at - e.lblk;
    let tail = Extent {
        lblk: at,
        pblk: e.pblk + u64::from(keep),
        shared: e.shared,
        crcs: Crcs::from_slice(&e.crcs[keep as usize..]),
    };
    e.crcs.truncate(keep as usize);
    e.crcs.shrink_to_fit();
    tail
}

/// Checksums of consecutive blocks of `data`, whose length is a multiple of the block size.
pub(crate) fn block_crcs(data: &[u8]) -> impl Iterator<Item = u32> {
    data.chunks(BLOCK).map(crc32c::crc32c)
}

/// Makes room for `n` more and a few to come. Vectors would double: many onodes wait in memory, and
/// few grow again.
fn make_room<T>(v: &mut Vec<T>, n: usize) {
    if v.capacity() - v.len() < n {
        v.reserve_exact(n + v.len() / 8);
    }
}

fn damaged(bytes: &[u8]) -> StoreError {
    StoreError::damaged("onode", format!("cannot decode {} bytes", bytes.len()))
}

/// The data of an object in a listing.
pub(crate) trait Listed: Sized {
    /// The relevant part of an encoded onode in the index.
    fn part(stored: &[u8]) -> Result<&[u8]>;
    /// Decodes that part.
    fn decode(part: Bytes) -> Result<Self>;
    /// The data of an object that waits for the index.
    fn of(onode: &Arc<Onode>) -> Self;
}

impl Listed for Arc<Onode> {
    fn part(stored: &[u8]) -> Result<&[u8]> {
        Ok(stored)
    }

    fn decode(part: Bytes) -> Result<Self> {
        Onode::decode(&part).map(Arc::new)
    }

    fn of(onode: &Arc<Onode>) -> Self {
        Arc::clone(onode)
    }
}

/// The info.
impl Listed for Bytes {
    fn part(stored: &[u8]) -> Result<&[u8]> {
        Onode::info_part(stored).ok_or_else(|| damaged(stored))
    }

    fn decode(part: Bytes) -> Result<Self> {
        Ok(part)
    }

    fn of(onode: &Arc<Onode>) -> Self {
        onode.info.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lblk: u32, pblk: u64, len: u32) -> Extent {
        Extent {
            lblk,
            pblk,
            shared: false,
            crcs: (0..len).map(|i| pblk as u32 + i).collect(),
        }
    }

    #[test]
    fn mapping_replaces_splits_and_joins() {
        let mut o = Onode {
            size: 1 << 20,
            ..Onode::default()
        };
        o.map(run(0, 100, 10), |_| panic!("nothing there"));
        o.map(run(10, 110, 5), |_| panic!("nothing there"));
        assert_eq!(o.extents, [run(0, 100, 15)]);
        let mut freed = Vec::new();
        o.map(run(4, 500, 2), |e| freed.push(e));
        assert_eq!(freed, [run(4, 104, 2)]);
        assert_eq!(o.extents, [run(0, 100, 4), run(4, 500, 2), run(6, 106, 9)]);
        assert_eq!(o.block(5).map(|b| (b.pblk, b.crc)), Some((501, 501)));
        freed.clear();
        o.unmap(3, 4, |e| freed.push(e));
        assert_eq!(freed, [run(3, 103, 1), run(4, 500, 2), run(6, 106, 1)]);
        assert_eq!(o.block(3), None);
        assert_eq!(o.data_ranges(0, 1 << 20), [0..3 * 4096, 7 * 4096..15 * 4096]);
        assert_eq!(o.overlapping(2, 6).count(), 2);
    }

    #[test]
    fn holes_are_bytes_that_nobody_wrote() {
        let mut o = Onode {
            size: 10_000,
            ..Onode::default()
        };
        o.map(run(0, 100, 3), |_| ());
        o.add_hole(4000..5000);
        o.add_hole(9000..12_000);
        assert_eq!(o.data_ranges(0, 1 << 20), [0..4000, 5000..9000]);
        o.fill_holes(4500..4600);
        assert_eq!(o.data_ranges(100, 4450), [100..4000, 4500..4550]);
        o.set_size(9500);
        o.set_size(12_000);
        assert_eq!(o.data_ranges(8000, 9000), [8000..9000, 9500..12_000]);
        // Every second byte of a block: the first ones are forgotten, as none is smaller.
        o.add_hole(0..4096);
        (0..100).for_each(|i| o.fill_holes(40 * i..40 * i + 20));
        assert_eq!(o.data_ranges(0, 4096).len(), MAX_HOLES);
        assert_eq!(o.data_ranges(3980, 116), []);
    }

    #[test]
    fn the_first_version_has_no_holes() {
        let mut o = Onode {
            size: 5000,
            ..Onode::default()
        };
        o.map(run(0, 100, 2), |_| ());
        let mut bytes = Vec::new();
        o.encode(&mut bytes);
        let crcs = bytes.len() - 8;
        assert_eq!(bytes.remove(crcs - 1), 0, "no holes");
        bytes[0] = 1;
        assert_eq!(Onode::decode(&bytes).unwrap(), o);
        bytes[0] = VERSION + 1;
        assert!(Onode::decode(&bytes).is_err());
    }

    #[test]
    fn encoding_round_trips_and_rejects_cut_input() {
        let mut o = Onode {
            size: 70_000,
            omap: 9,
            info: Bytes::from_static(b"info"),
            ..Onode::default()
        };
        o.set_attr(Bytes::from_static(b"_b"), Bytes::from_static(b"2"));
        o.set_attr(Bytes::from_static(b"_a"), Bytes::from_static(b"1"));
        o.map(run(0, 100, 3), |_| ());
        o.map(run(9, 7, 2), |_| ());
        o.add_hole(100..4096);
        o.add_hole(40_000..40_001);
        let mut bytes = Vec::new();
        o.encode(&mut bytes);
        assert_eq!(Onode::decode(&bytes).unwrap(), o);
        for cut in 0..bytes.len() {
            assert!(Onode::decode(&bytes[..cut]).is_err());
        }
    }
}
