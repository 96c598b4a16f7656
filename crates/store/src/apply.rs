//! Applies redo steps to the state. Submitted and replayed transactions both go through here, so
//! that they cannot differ.
//!
//! Steps that do not fit the state end the daemon before their record reaches the log: a submitted
//! transaction always makes fitting steps, and records of the log are checked before they are
//! replayed.

use std::sync::Arc;

use bytes::Bytes;
use spirula_invariant::{impossible, invariant};

use crate::ObjectKey;
use crate::alloc::Run;
use crate::config::{BLOCK, BLOCK64};
use crate::onode::{Extent, Onode};
use crate::state::{BaseRead, Content, Current, Edge, State};
use crate::step::{NewRun, RangeOf, Step};
use crate::table::{Dirty, Patched};

/// First byte of keys of the store-wide pairs.
pub(crate) const META: u8 = b'm';
/// First byte of keys of omap pairs; the omap number follows, big-endian.
const OMAP: u8 = b'o';

/// Key of a store-wide pair in the index.
pub(crate) fn meta_key(key: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(1 + key.len());
    out.push(META);
    out.extend_from_slice(key);
    out.into()
}

/// Key of an omap pair in the index.
pub(crate) fn omap_key(omap: u64, key: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(9 + key.len());
    out.push(OMAP);
    out.extend_from_slice(&omap.to_be_bytes());
    out.extend_from_slice(key);
    out.into()
}

/// Bytes before the key proper of an omap pair in the index.
pub(crate) const OMAP_PREFIX: usize = 9;

/// Whether a key of the index is one of an omap pair.
pub(crate) fn is_omap_key(key: &[u8]) -> bool {
    key.first() == Some(&OMAP)
}

/// First key behind all pairs of an omap.
pub(crate) fn omap_end(omap: u64) -> Bytes {
    omap_key(omap + 1, &[])
}

/// Whether a key is of the form that the store writes.
pub(crate) fn is_pair_key(key: &[u8]) -> bool {
    matches!(key.first(), Some(&META | &OMAP))
}

/// First key behind the store-wide pairs.
pub(crate) fn meta_end() -> Bytes {
    Bytes::from_static(&[META + 1])
}

impl State {
    /// Applies one step.
    pub(crate) fn apply(&mut self, step: &Step) {
        match step {
            Step::Object(key) => self.open_object(key),
            Step::Touch => {
                self.onode_mut();
            }
            Step::Inline { offset, data, new } => self.apply_inline(*offset, data, new),
            Step::Direct { lblk, runs, crcs } => self.apply_direct(*lblk, runs, crcs),
            Step::Punch { lblk, len } => self.unmap(*lblk, *len),
            Step::Size(size) => self.apply_size(*size),
            Step::Hole { offset, len } => {
                self.onode_mut().add_hole(*offset..offset.saturating_add(*len));
            }
            Step::Remove => self.apply_remove(),
            Step::CloneOf { source, omap } => self.apply_clone(source, *omap),
            Step::MoveOf(source) => self.apply_move(source),
            Step::RangeOf(range) => self.apply_range(range),
            Step::SetAttr { name, value } => {
                self.onode_mut().set_attr(name.clone(), value.clone());
            }
            Step::RmAttr(name) => {
                self.onode_mut().rm_attr(name);
            }
            Step::RmAttrs => {
                self.onode_mut().attrs.clear();
            }
            Step::Info(info) => {
                self.onode_mut().info = info.clone();
            }
            Step::Omap(omap) => {
                self.onode_mut().omap = *omap;
            }
            Step::OmapHeader(header) => {
                self.onode_mut().omap_header = header.clone();
            }
            Step::Put { key, value } => self.put(key.clone(), Some(value.clone())),
            Step::Delete(key) => self.put(key.clone(), None),
            Step::DeleteRange { from, to } => {
                self.active().pairs_mut().remove_range(from.clone(), to.clone());
            }
        }
    }

    fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        invariant!(is_pair_key(&key), "a pair of an omap or a store-wide one"; transaction = self.seq + 1);
        self.active().pairs_mut().put(key, value);
    }

    /// The current object.
    fn current_mut(&mut self) -> &mut Current {
        match self.current.as_mut() {
            Some(current) => current,
            None => impossible!("a step behind the name of its object"; transaction = self.seq + 1),
        }
    }

    /// The current object, created if it is missing.
    fn onode_mut(&mut self) -> &mut Onode {
        self.counters.objects += u64::from(self.current_mut().onode.is_none());
        Arc::make_mut(self.current_mut().onode.get_or_insert_default())
    }

    fn apply_size(&mut self, size: u64) {
        let o = self.onode_mut();
        let old = o.size;
        o.set_size(size);
        self.counters.stored = (self.counters.stored + size).saturating_sub(old);
    }

    fn grow(&mut self, end: u64) {
        if self.current_size() < end {
            self.apply_size(end);
        }
    }

    fn unmap(&mut self, lblk: u32, len: u32) {
        let mut freed = Vec::new();
        let o = self.onode_mut();
        o.unmap(lblk, len, |e| freed.push(e));
        o.fill_holes(u64::from(lblk) * BLOCK64..(u64::from(lblk) + u64::from(len)) * BLOCK64);
        for e in &freed {
            self.drop_extent(e);
        }
    }

    fn map(&mut self, extent: Extent) {
        let mut freed = Vec::new();
        self.onode_mut().map(extent, |e| freed.push(e));
        for e in &freed {
            self.drop_extent(e);
        }
    }

    fn apply_direct(&mut self, lblk: u32, runs: &[Run], crcs: &[u32]) {
        let start = u64::from(lblk) * BLOCK64;
        self.onode_mut()
            .fill_holes(start..start + crcs.len() as u64 * BLOCK64);
        let (mut lblk, mut rest) = (lblk, crcs);
        for run in runs {
            let Some((crcs, tail)) = rest.split_at_checked(run.len as usize) else {
                impossible!("a checksum of each block"; object = self.current_mut().key, block = run.pblk)
            };
            rest = tail;
            self.map(Extent {
                lblk,
                pblk: run.pblk,
                shared: false,
                crcs: crcs.into(),
            });
            self.active().allocated.push(*run);
            lblk += run.len;
        }
        invariant!(rest.is_empty(), "a block for each checksum"; object = self.current_mut().key, left = rest.len());
    }

    fn apply_remove(&mut self) {
        let Some(onode) = self.current_mut().onode.take() else {
            return; // An object that does not exist may be removed.
        };
        self.counters.objects = self.counters.objects.saturating_sub(1);
        self.counters.stored = self.counters.stored.saturating_sub(onode.size);
        for e in &onode.extents {
            self.drop_extent(e);
        }
        if onode.omap != 0 {
            let (from, to) = (omap_key(onode.omap, &[]), omap_end(onode.omap));
            self.active().pairs_mut().remove_range(from, to);
        }
    }

    /// Makes the source of a copy, a move or a range the current object. Returns the key of the
    /// target.
    fn open_source(&mut self, source: &ObjectKey) -> ObjectKey {
        let target = self.current_mut().key.clone();
        invariant!(*source != target, "another object as the source"; object = target);
        self.open_object(source);
        invariant!(self.current_mut().onode.is_some(), "a source that exists"; object = target, source = source);
        target
    }

    fn apply_clone(&mut self, source: &ObjectKey, omap: u64) {
        self.apply_remove();
        let target = self.open_source(source);
        let mut onode = Arc::clone(self.current_mut().onode.get_or_insert_default());
        let o = Arc::make_mut(&mut onode);
        o.extents.iter_mut().for_each(|e| e.shared = true);
        self.current_mut().onode = Some(Arc::clone(&onode));
        self.own_unresolved(&target, &onode.extents);
        self.count_reference(&onode.extents);
        self.counters.objects += 1;
        self.counters.stored += onode.size;
        Arc::make_mut(&mut onode).omap = omap;
        self.open_object(&target);
        self.current_mut().onode = Some(onode);
    }

    fn apply_move(&mut self, source: &ObjectKey) {
        let target = self.open_source(source);
        let moved = self.current_mut().onode.take();
        self.open_object(&target);
        self.apply_remove();
        if let Some(onode) = &moved {
            self.own_unresolved(&target, &onode.extents);
        }
        self.current_mut().onode = moved;
    }

    fn apply_range(&mut self, range: &RangeOf) {
        let target = self.open_source(&range.source);
        let source = self.onode_mut();
        let mut blocks = source.take(range.from, range.len);
        if range.kept {
            blocks.extents.iter_mut().for_each(|e| e.shared = true);
            source.put(&blocks);
            self.count_reference(&blocks.extents);
        }
        blocks.shift(range.from, range.to);
        self.own_unresolved(&target, &blocks.extents);
        self.open_object(&target);
        self.unmap(range.to, range.len);
        self.onode_mut().put(&blocks);
    }

    /// Counts one more reference to shared blocks.
    fn count_reference(&mut self, extents: &[Extent]) {
        let table = self.active();
        for e in extents {
            table.counted_blocks += u64::from(e.len());
            table.shared.push(Run {
                pblk: e.pblk,
                len: e.len(),
            });
        }
    }

    /// Registers another owner for the checksums of blocks whose contents are not complete yet.
    fn own_unresolved(&mut self, key: &ObjectKey, extents: &[Extent]) {
        for table in self.tables.iter_mut().filter(|t| t.unresolved > 0) {
            for e in extents {
                for (i, pblk) in (e.pblk..e.pblk + u64::from(e.len())).enumerate() {
                    if let Some(Dirty::Patched(p)) = table.dirty.get_mut(&pblk) {
                        p.owners.push((key.clone(), e.lblk + i as u32));
                    }
                }
            }
        }
    }

    fn apply_inline(&mut self, offset: u64, data: &[u8], new: &[NewRun]) {
        invariant!(!data.is_empty(), "bytes to write"; object = self.current_mut().key, offset = offset);
        self.onode_mut();
        let end = offset + data.len() as u64;
        let (first, last) = ((offset / BLOCK64) as u32, ((end - 1) / BLOCK64) as u32);
        let count = (last - first + 1) as usize;
        let mut buf = self.arena.cut(count * BLOCK);
        let head = (offset % BLOCK64) as usize;
        let tail = head + data.len();
        // Only the first and the last block can be written in part.
        let mut edges = Vec::new();
        if head > 0 || tail < BLOCK {
            edges.push((0, head..tail.min(BLOCK)));
        }
        if count > 1 && tail < count * BLOCK {
            edges.push((count - 1, 0..tail - (count - 1) * BLOCK));
        }
        let mut waiting = Vec::new();
        let mut unmapped = Vec::new();
        for (i, written) in edges {
            if self.current_block(first + i as u32).is_none() {
                unmapped.push(u64::from(first) + i as u64);
            }
            let block = &mut buf[i * BLOCK..(i + 1) * BLOCK];
            match self.content(self.current_block(first + i as u32)) {
                Content::Here(old) => block.copy_from_slice(&old),
                other => {
                    block[..written.start].fill(0);
                    block[written.end..].fill(0);
                    if !matches!(other, Content::Zero) {
                        waiting.push(Edge {
                            at: i,
                            written,
                            old: other,
                        });
                    }
                }
            }
        }
        buf[head..tail].copy_from_slice(data);
        let bytes = buf.freeze();
        self.place_blocks(first, &bytes, new, waiting);
        self.grow(end);
        let o = self.onode_mut();
        for lblk in unmapped {
            o.add_hole(lblk * BLOCK64..(lblk + 1) * BLOCK64);
        }
        o.fill_holes(offset..end);
    }

    /// Maps blocks that are written through the log, and keeps their contents until they are
    /// written back.
    fn place_blocks(&mut self, first: u32, bytes: &Bytes, new: &[NewRun], waiting: Vec<Edge>) {
        let count = bytes.len() / BLOCK;
        let mut waiting = waiting.into_iter().peekable();
        let mut dirty = Vec::with_capacity(count);
        let mut crcs = Vec::with_capacity(count);
        for i in 0..count {
            let block = bytes.slice(i * BLOCK..(i + 1) * BLOCK);
            let crc = crc32c::crc32c(&block);
            let (crc, contents) = match waiting.next_if(|edge| edge.at == i) {
                None => (crc, Dirty::Full(block)),
                Some(edge) => self.patch(first + i as u32, block, edge.written, edge.old),
            };
            crcs.push(crc);
            dirty.push(contents);
        }
        invariant!(waiting.next().is_none(), "a block for all old contents"; object = self.current_mut().key);
        let mut dirty = dirty.into_iter();
        let mut at = 0;
        while at < count {
            let lblk = first + at as u32;
            let fresh = new.iter().find(|n| n.lblk <= lblk && lblk < n.lblk + n.run.len);
            let (pblk, len) = match fresh {
                Some(n) => {
                    let skip = lblk - n.lblk;
                    let len = ((n.run.len - skip) as usize).min(count - at);
                    let pblk = n.run.pblk + u64::from(skip);
                    self.map(Extent {
                        lblk,
                        pblk,
                        shared: false,
                        crcs: crcs[at..at + len].into(),
                    });
                    (pblk, len)
                }
                None => (self.overwrite(lblk, crcs[at]), 1),
            };
            for (pblk, contents) in (pblk..pblk + len as u64).zip(&mut dirty) {
                self.watch(pblk, &contents);
                let was_dirty = self.set_dirty(pblk, contents);
                invariant!(
                    fresh.is_none() || !was_dirty,
                    "a block that is handed out once";
                    object = self.current_mut().key,
                    block = pblk,
                );
            }
            at += len;
        }
        invariant!(dirty.next().is_none(), "a place for all contents"; object = self.current_mut().key);
        let runs = new.iter().map(|n| n.run);
        self.active().allocated.extend(runs);
    }

    /// Sets the checksum of a block that is overwritten in place. Returns the block's place.
    fn overwrite(&mut self, lblk: u32, crc: u32) -> u64 {
        let Some(old) = self.current_block(lblk) else {
            impossible!("a block that is mapped or new"; object = self.current_mut().key, block = lblk)
        };
        invariant!(
            !old.shared,
            "a block of one object where it is written in its place";
            object = self.current_mut().key,
            block = old.pblk,
        );
        self.onode_mut().set_crc(lblk, crc);
        old.pblk
    }

    /// The contents of a block of which only `range` is known yet.
    fn patch(&self, lblk: u32, block: Bytes, range: std::ops::Range<usize>, old: Content) -> (u32, Dirty) {
        let patch = (range.start, block.slice(range));
        let key = self.current.as_ref().map(|c| c.key.clone());
        let owner = key.map(|key| (key, lblk));
        match old {
            Content::Patched(mut p) => {
                p.patches.push(patch);
                if let Some(owner) = owner.filter(|o| !p.owners.contains(o)) {
                    p.owners.push(owner);
                }
                (0, Dirty::Patched(p))
            }
            Content::OnDisk(m) => {
                let owners = owner.into_iter().collect();
                (
                    0,
                    Dirty::Patched(Patched {
                        base: m.pblk,
                        base_crc: m.crc,
                        patches: vec![patch],
                        owners,
                    }),
                )
            }
            Content::Zero | Content::Here(_) | Content::Lost => {
                let crc = !crc32c::crc32c(&block);
                (crc, Dirty::Lost(block))
            }
        }
    }

    /// Requests the old contents of a patched block, unless that was done before.
    fn watch(&mut self, pblk: u64, contents: &Dirty) {
        let Dirty::Patched(p) = contents else {
            return; // All of the block is known.
        };
        let table = self.active();
        if matches!(table.dirty.get(&pblk), Some(Dirty::Patched(_))) {
            return; // An earlier write asked for them.
        }
        let read = BaseRead {
            target: pblk,
            generation: table.generation,
            base: p.base,
            crc: p.base_crc,
        };
        self.base_reads.push(read);
    }
}
