//! Reads: from memory if the newest contents are there, else from the device, with each block
//! checked.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use spirula_buf::{Divided, PoolBuf};
use spirula_invariant::{impossible, invariant};

use crate::config::{BLOCK, BLOCK64};
use crate::device::{IoKind, Way};
use crate::event::{Event, Read, Token};
use crate::onode::Onode;
use crate::state::{BaseRead, Known, State};
use crate::store::{Purpose, Store};
use crate::table::Dirty;
use crate::{ObjectKey, Result, StoreError};

/// Reads of more bytes than this go past the page cache: what is streamed does not push out what is
/// hot, and the device hands over large parts with less work than a copy of them.
const CACHED_READ: usize = 64 << 10;

/// Blocks after which a buffer in a file is unmapped while it is checked.
const CHECKED_AT_ONCE: usize = 1024;

/// Bytes that the device reads at a time for one read: a device is busy with that, and others get
/// their turn.
const AT_ONCE: usize = 8 << 20;

/// The part of an object that is asked for, in bytes, and the way that the read may take.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) way: Way,
}

/// An operation of the device for a read: the read's number, the piece of it, and the way taken.
#[derive(Clone, Copy)]
pub(crate) struct ReadPart {
    read: u64,
    piece: usize,
    way: Way,
}

/// A read under way.
pub(crate) struct ReadOp {
    key: ObjectKey,
    token: Token,
    pieces: Vec<Piece>,
    /// The first piece that is not in the buffer nor being read.
    next: usize,
    /// The way to the device.
    way: Way,
    /// The pieces, one after the other.
    buf: Divided,
    /// Bytes at the start of the buffer that were not asked for.
    skip: usize,
    len: usize,
    /// Bytes that the device is reading now.
    reading: usize,
    /// Bytes that were filled since buffers in files were last unmapped.
    filled: usize,
    error: Option<StoreError>,
}

/// A part of what is read, by where it is.
pub(crate) enum Piece {
    Here(Bytes),
    Zero(usize),
    /// Blocks on the device: place in the object, checksums, and bytes to lay over them (of a
    /// single block).
    Device {
        lblk: u32,
        pblk: u64,
        crcs: Vec<u32>,
        patches: Vec<(usize, Bytes)>,
    },
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Here(b) => b.len(),
            Self::Zero(n) => *n,
            Self::Device { crcs, .. } => crcs.len() * BLOCK,
        }
    }

    /// Checksums of the blocks, if their contents are those on the device.
    fn crcs(&self) -> Option<&[u32]> {
        match self {
            Self::Device { crcs, patches, .. } if patches.is_empty() => Some(crcs),
            _ => None,
        }
    }
}

impl ReadOp {
    /// Notes that bytes of the buffer were filled.
    fn filled(&mut self, bytes: usize) {
        self.filled += bytes;
        if self.filled >= CHECKED_AT_ONCE * BLOCK {
            self.filled = 0;
            spirula_buf::let_go();
        }
    }

    /// Whether all pieces are there, or the read has failed and the device does not read for it any
    /// more.
    fn is_done(&self) -> bool {
        self.reading == 0 && (self.next == self.pieces.len() || self.error.is_some())
    }

    fn into_result(self) -> Result<Bytes> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let crcs: Option<Vec<&[u32]>> = self.pieces.iter().map(Piece::crcs).collect();
        let Some(buf) = self.buf.join() else {
            impossible!("a buffer of which the device has no part any more"; object = self.key)
        };
        invariant!(
            self.skip + self.len <= buf.len(),
            "as many bytes as were asked for";
            object = self.key,
            asked = self.skip + self.len,
            read = buf.len(),
        );
        let whole = match crcs {
            Some(crcs) => buf.freeze_checked(crcs.concat()),
            None => buf.freeze(),
        };
        Ok(whole.slice(self.skip..self.skip + self.len))
    }
}

impl State {
    /// Caches the index's answer about an object.
    pub(crate) fn remember(&mut self, key: &ObjectKey, known: &Known) {
        let bytes = 128 + key.as_slice().len() + known.as_ref().map_or(0, |o| o.footprint());
        self.cache.insert(key.clone(), known.clone(), bytes);
    }

    /// The places of the blocks `[first, last]`.
    pub(crate) fn pieces(
        &mut self,
        key: &ObjectKey,
        onode: &Onode,
        first: u32,
        last: u32,
    ) -> Result<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::new();
        let any_dirty = !self.nothing_dirty();
        let mut lblk = first;
        while lblk <= last {
            let extent = onode.overlapping(lblk, last - lblk + 1).next();
            let Some(e) = extent.filter(|e| e.lblk <= lblk) else {
                let end = extent.map_or(last + 1, |e| e.lblk);
                pieces.push(Piece::Zero((end - lblk) as usize * BLOCK));
                lblk = end;
                continue;
            };
            let skip = (lblk - e.lblk) as usize;
            let count = (e.end().min(last + 1) - lblk) as usize;
            if !any_dirty {
                let crcs = e.crcs[skip..skip + count].to_vec();
                pieces.push(Piece::Device {
                    lblk,
                    pblk: e.pblk + skip as u64,
                    crcs,
                    patches: Vec::new(),
                });
                lblk += count as u32;
                continue;
            }
            for i in skip..skip + count {
                let (pblk, crc) = (e.pblk + i as u64, e.crcs[i]);
                match self.find_dirty(pblk) {
                    Some(Dirty::Full(b)) => pieces.push(Piece::Here(b)),
                    Some(Dirty::Patched(p)) => {
                        let (pblk, crcs, patches) = (p.base, vec![p.base_crc], p.patches);
                        pieces.push(Piece::Device {
                            lblk,
                            pblk,
                            crcs,
                            patches,
                        });
                    }
                    Some(Dirty::Lost(_)) => {
                        let offset = u64::from(lblk) * BLOCK64;
                        return Err(StoreError::Corrupt {
                            key: key.clone(),
                            offset,
                            block: pblk,
                        });
                    }
                    None => clean_piece(&mut pieces, lblk, pblk, crc),
                }
                lblk += 1;
            }
        }
        Ok(pieces)
    }
}

/// Adds a block whose contents are those on the device.
fn clean_piece(pieces: &mut Vec<Piece>, at: u32, block: u64, crc: u32) {
    match pieces.last_mut() {
        Some(Piece::Device {
            pblk, crcs, patches, ..
        }) if *pblk + crcs.len() as u64 == block && patches.is_empty() => {
            crcs.push(crc);
        }
        _ => pieces.push(Piece::Device {
            lblk: at,
            pblk: block,
            crcs: vec![crc],
            patches: Vec::new(),
        }),
    }
}

impl Store {
    /// Answers a call that has returned before, if the read is complete.
    pub(crate) fn answer_read(&mut self, token: Token, read: Read) {
        if let Read::Ready(result) = read {
            self.events.push_back(Event::Read(token, result));
        }
    }

    /// Starts a read of an object whose onode is known.
    pub(crate) fn start_read(&mut self, key: &ObjectKey, known: &Known, asked: Asked, token: Token) -> Read {
        let Some(onode) = known else {
            return Read::Ready(Err(StoreError::NoObject(key.clone())));
        };
        let offset = asked.offset;
        let end = offset.saturating_add(asked.len).min(onode.size);
        if offset >= end {
            return Read::Ready(Ok(Bytes::new()));
        }
        let (first, last) = ((offset / BLOCK64) as u32, ((end - 1) / BLOCK64) as u32);
        let pieces = match self.state.pieces(key, onode, first, last) {
            Ok(pieces) => pieces,
            Err(e) => return Read::Ready(Err(e)),
        };
        let (skip, len) = ((offset % BLOCK64) as usize, (end - offset) as usize);
        if let [Piece::Here(bytes)] = &pieces[..] {
            return Read::Ready(Ok(bytes.slice(skip..skip + len)));
        }
        self.last_read += 1;
        let way = match len > CACHED_READ || !self.state.cfg.cached_reads {
            true => Way::Direct,
            false => asked.way,
        };
        let op = ReadOp {
            key: key.clone(),
            token,
            skip,
            len,
            next: 0,
            way,
            buf: self.state.pool.get(pieces.iter().map(Piece::len).sum()).divide(),
            reading: 0,
            filled: 0,
            error: None,
            pieces,
        };
        let read = self.go_on_reading(self.last_read, op);
        if way == Way::Cached {
            self.read_ahead(key, onode, offset..end, matches!(read, Read::Pending));
        }
        read
    }

    /// Fills the next pieces, or makes the device read them.
    fn go_on_reading(&mut self, id: u64, mut op: ReadOp) -> Read {
        while op.error.is_none() && op.reading < AT_ONCE {
            let Some(piece) = op.pieces.get(op.next) else {
                break;
            };
            let len = piece.len();
            let mut buf = op.buf.part(len);
            match piece {
                Piece::Here(bytes) => buf.copy_from_slice(bytes),
                Piece::Zero(_) => buf.fill(0),
                Piece::Device {
                    pblk, crcs, patches, ..
                } => {
                    let offset = pblk * BLOCK64;
                    if op.way == Way::Cached
                        && self.dev.read_cached(offset, &mut buf)
                        && first_bad(&buf, crcs).is_none()
                    {
                        lay_over(&mut buf, patches);
                        self.stats.cached_reads += 1;
                    } else {
                        let part = ReadPart {
                            read: id,
                            piece: op.next,
                            way: op.way,
                        };
                        self.read_part(part, offset, buf);
                        op.reading += len;
                        op.next += 1;
                        continue;
                    }
                }
            }
            op.next += 1;
            op.filled(len);
        }
        if op.is_done() {
            self.reading.remove(&id);
            Read::Ready(op.into_result())
        } else {
            // Blocks that it has not read yet must stay as they are, too.
            self.reading.insert(id);
            self.reads.insert(id, op);
            Read::Pending
        }
    }

    /// Makes the device fill a piece of a read.
    fn read_part(&mut self, part: ReadPart, offset: u64, buf: PoolBuf) {
        let way = part.way;
        self.queue(IoKind::Read { offset, buf, way }, Purpose::Read(part));
        self.stats.device_reads += 1;
    }

    /// Handles the outcome of one operation of a read.
    pub(crate) fn read_done(&mut self, part: ReadPart, result: io::Result<()>, buf: Option<PoolBuf>) {
        let (id, piece) = (part.read, part.piece);
        let Some(mut op) = self.reads.remove(&id) else {
            invariant!(self.failed.is_some(), "a read that waits for the device"; read = id);
            return; // All were answered when the store failed.
        };
        let Piece::Device {
            lblk,
            pblk,
            crcs,
            patches,
        } = &op.pieces[piece]
        else {
            impossible!("a piece on the device"; object = op.key, piece = piece)
        };
        let len = crcs.len() * BLOCK;
        invariant!(len <= op.reading, "a piece that the device reads"; object = op.key, block = pblk);
        let Some(mut buf) = buf.filter(|b| b.len() == len) else {
            impossible!("the buffer of a read"; object = op.key, block = pblk, bytes = len)
        };
        let offset = u64::from(*lblk) * BLOCK64;
        let bad = match &result {
            Ok(()) => first_bad(&buf, crcs),
            Err(_) => None,
        };
        if part.way == Way::Cached && bad.is_some() {
            // The device itself decides what it holds.
            let place = pblk * BLOCK64;
            self.dev.drop_cached(place..place + len as u64);
            self.stats.repeated_reads += 1;
            let way = Way::Direct;
            self.read_part(ReadPart { way, ..part }, place, buf);
            self.reads.insert(id, op);
            return; // The answer follows.
        }
        let outcome = match result {
            Ok(()) => match bad {
                None => {
                    lay_over(&mut buf, patches);
                    Ok(())
                }
                Some(i) => Err(StoreError::Corrupt {
                    key: op.key.clone(),
                    offset: offset + i as u64 * BLOCK64,
                    block: pblk + i as u64,
                }),
            },
            Err(e) => Err(StoreError::ReadFailed {
                key: op.key.clone(),
                offset,
                source: Arc::new(e),
            }),
        };
        // The parts of the buffer are joined once all have been given back.
        drop(buf);
        if let Err(e) = outcome {
            self.stats.corruptions += u64::from(matches!(e, StoreError::Corrupt { .. }));
            op.error.get_or_insert(e);
        }
        op.reading -= len;
        op.filled(len);
        let token = op.token;
        let read = self.go_on_reading(id, op);
        self.answer_read(token, read);
    }

    /// Starts the reads that partial writes need.
    pub(crate) fn start_base_reads(&mut self) {
        for read in std::mem::take(&mut self.state.base_reads) {
            self.last_read += 1;
            self.reading.insert(self.last_read);
            let buf = self.state.pool.get(BLOCK);
            let (offset, way) = (read.base * BLOCK64, Way::Direct);
            self.queue(
                IoKind::Read { offset, buf, way },
                Purpose::Base(self.last_read, read),
            );
        }
    }

    /// Handles the old contents for a partial write.
    pub(crate) fn base_done(
        &mut self,
        id: u64,
        read: &BaseRead,
        result: io::Result<()>,
        buf: Option<PoolBuf>,
    ) {
        let known = self.reading.remove(&id);
        invariant!(known, "a read of old contents that is under way"; read = id, block = read.target);
        let good = buf.filter(|b| result.is_ok() && first_bad(b, &[read.crc]).is_none());
        if good.is_none() {
            self.stats.corruptions += 1;
            tracing::error!(
                block = read.base,
                "old contents for a partial write are unreadable"
            );
        }
        self.state.resolve(read, good.as_deref());
    }

    /// Answers all waiting reads and lookups with an error.
    pub(crate) fn fail_readers(&mut self, error: &StoreError) {
        use crate::store::Waiting;
        for (_, op) in self.reads.drain() {
            self.events.push_back(Event::Read(op.token, Err(error.clone())));
        }
        for (_, (_, waiting)) in self.waiting.drain() {
            self.events.push_back(match waiting {
                Waiting::Lookup { token, .. } => Event::Lookup(token, Err(error.clone())),
                Waiting::Read { token, .. } => Event::Read(token, Err(error.clone())),
                Waiting::Objects { token, .. } => Event::List(token, Err(error.clone())),
                Waiting::Pairs { token, .. } | Waiting::Keys { token, .. } => {
                    Event::Pairs(token, Err(error.clone()))
                }
            });
        }
        self.lookups.clear();
    }
}

/// Lays bytes over the contents of a block.
fn lay_over(buf: &mut PoolBuf, patches: &[(usize, Bytes)]) {
    for (at, patch) in patches {
        buf[*at..*at + patch.len()].copy_from_slice(patch);
    }
}

/// Number of the first block that does not match its checksum.
pub(crate) fn first_bad(data: &[u8], crcs: &[u32]) -> Option<usize> {
    let mut blocks = data.chunks(BLOCK).zip(crcs).enumerate();
    let bad = blocks.find(|(i, (block, crc))| {
        if i % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1 {
            spirula_buf::let_go();
        }
        crc32c::crc32c(block) != **crc
    });
    bad.map(|(i, _)| i)
}
