//! The log: a ring of groups, each one write. See FORMAT.md, "Log".

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use spirula_buf::Pool;
use spirula_invariant::{impossible, invariant};

use crate::codec::{Dec, Enc};
use crate::config::{BLOCK, BLOCK64};
use crate::device::BlockIo;
use crate::index::Applied;
use crate::layout::Superblock;
use crate::memory::Usage;
use crate::{Result, StoreError, Token};

const MAGIC: u32 = 0x474f_4c53;
const HEADER: usize = 64;

/// A transaction on its way to the log.
pub(crate) struct Record {
    pub(crate) seq: u64,
    pub(crate) token: Token,
    pub(crate) steps: Vec<u8>,
    /// The number of large writes, and the flush after them, that must complete first: data is
    /// durable before the log refers to it.
    pub(crate) waiting: usize,
}

/// A group of the log that is still needed.
#[derive(Debug, Clone, Copy)]
struct Kept {
    number: u64,
    block: u64,
    /// The blocks it takes, with those skipped before it.
    blocks: u64,
    last_seq: u64,
}

/// The place of a group in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LogPosition {
    /// The block of the log (from its start).
    pub(crate) block: u64,
    /// The number of the group.
    pub(crate) group: u64,
}

/// The transactions at the front of the queue that make the next group.
struct Ready {
    count: usize,
    /// Bytes of the group.
    bytes: usize,
}

/// A group that is to be written.
pub(crate) struct Group {
    /// Its offset on the log's device, in bytes.
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
    pub(crate) last_seq: u64,
    pub(crate) tokens: Vec<Token>,
}

pub(crate) struct Log {
    start: u64,
    blocks: u64,
    mount: u64,
    /// The place of the next group, if it fits before the end.
    head: u64,
    next_group: u64,
    used: u64,
    kept: VecDeque<Kept>,
    queue: VecDeque<Record>,
    /// Last transaction that was queued.
    pushed_seq: u64,
    /// Last group and transaction known to be durable.
    durable_group: u64,
    pub(crate) durable_seq: u64,
    group_bytes: usize,
    pool: Pool,
}

/// The most space that a record needs, in a group of its own, in bytes.
pub(crate) fn record_space(steps: usize) -> u64 {
    ((HEADER + 8 + steps).next_multiple_of(BLOCK)) as u64
}

impl Log {
    pub(crate) fn new(sb: &Superblock, group_bytes: usize, scan: &Scan) -> Self {
        let capacity = (sb.log_blocks * BLOCK64) as usize;
        Self {
            start: sb.log_start(),
            blocks: sb.log_blocks,
            mount: sb.mounts,
            head: scan.head,
            next_group: scan.next_group,
            used: scan.kept.iter().map(|k| k.blocks).sum(),
            kept: scan.kept.clone(),
            queue: VecDeque::new(),
            pushed_seq: scan.last_seq,
            durable_group: scan.next_group - 1,
            durable_seq: scan.last_seq,
            group_bytes: group_bytes.min(capacity / 16),
            pool: Pool::new(4 << 20),
        }
    }

    /// Largest record, in bytes.
    pub(crate) fn max_record(sb: &Superblock) -> usize {
        (sb.log_blocks * BLOCK64 / 8) as usize - BLOCK
    }

    /// The space that the records of one generation may take, in bytes, and one more record:
    /// little, so that the index can always take a generation in when the log becomes full.
    pub(crate) fn generation_space(sb: &Superblock) -> u64 {
        sb.log_blocks * BLOCK64 / 8
    }

    /// Whether the index should take in what it can, so that the log does not become full.
    pub(crate) fn is_half_full(&self) -> bool {
        self.used >= self.blocks / 2
    }

    pub(crate) fn push(&mut self, record: Record) {
        let (seq, last) = (record.seq, self.pushed_seq);
        invariant!(seq == last + 1, "a record for each transaction, in order"; transaction = seq, last = last);
        self.pushed_seq = seq;
        self.queue.push_back(record);
    }

    /// Notes that an operation for transaction `seq` has completed. Returns the number of pending
    /// ones.
    pub(crate) fn operation_done(&mut self, seq: u64) -> usize {
        let first = self.queue.front().map_or(seq, |r| r.seq);
        let place = seq.checked_sub(first).map(|n| n as usize);
        let Some(r) = place
            .and_then(|n| self.queue.get_mut(n))
            .filter(|r| r.waiting > 0)
        else {
            impossible!("a record that waits for its writes"; transaction = seq, first = first)
        };
        r.waiting -= 1;
        r.waiting
    }

    /// Their number and memory.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            items: self.queue.len(),
            bytes: self.queue.iter().map(|r| r.steps.capacity()).sum(),
        }
    }

    /// Transactions that are not in the log yet.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    fn ready(&self) -> Ready {
        let (mut count, mut bytes) = (0, HEADER);
        for r in self.queue.iter().take_while(|r| r.waiting == 0) {
            if count > 0 && bytes + 8 + r.steps.len() > self.group_bytes {
                break;
            }
            bytes += 8 + r.steps.len();
            count += 1;
        }
        Ready { count, bytes }
    }

    /// Forms the next group of ready transactions. `None` if there are none, or the log is full.
    pub(crate) fn next_group(&mut self) -> Option<Group> {
        let Ready { count, bytes } = self.ready();
        if count == 0 {
            return None;
        }
        let blocks = bytes.div_ceil(BLOCK) as u64;
        let wraps = self.head + blocks > self.blocks;
        let skip = if wraps { self.blocks - self.head } else { 0 };
        if self.used + skip + blocks > self.blocks {
            return None;
        }
        let block = if wraps { 0 } else { self.head };
        let records: Vec<Record> = self.queue.drain(..count).collect();
        let first_seq = records.first().map_or(0, |r| r.seq);
        let last_seq = first_seq + count as u64 - 1;
        // Replay numbers them by the first one.
        invariant!(
            records.last().is_some_and(|r| r.seq == last_seq),
            "consecutive transactions in a group";
            first = first_seq,
            last = last_seq,
        );
        let needed = self.kept.front().map(|k| k.block);
        let is_over = needed.is_some_and(|oldest| (block..block + blocks).contains(&oldest));
        invariant!(!is_over, "room before the oldest group"; group = self.next_group, block = block, blocks = blocks);
        let bytes = self.encode(&records, first_seq, blocks as usize * BLOCK);
        self.kept.push_back(Kept {
            number: self.next_group,
            block,
            blocks: skip + blocks,
            last_seq,
        });
        self.used += skip + blocks;
        self.head = block + blocks;
        self.next_group += 1;
        let tokens = records.iter().map(|r| r.token).collect();
        Some(Group {
            offset: self.start + block * BLOCK64,
            bytes,
            last_seq,
            tokens,
        })
    }

    fn encode(&self, records: &[Record], first_seq: u64, len: usize) -> Bytes {
        let mut buf = self.pool.get(len);
        let mut at = HEADER;
        for r in records {
            buf[at..at + 4].copy_from_slice(&(r.steps.len() as u32).to_le_bytes());
            buf[at + 4..at + 8].fill(0);
            buf[at + 8..at + 8 + r.steps.len()].copy_from_slice(&r.steps);
            at += 8 + r.steps.len();
        }
        invariant!(at <= len && len - at < BLOCK, "a group of its records' length"; group = self.next_group, bytes = at);
        buf[at..].fill(0);
        let header = Header {
            mount: self.mount,
            number: self.next_group,
            first_seq,
            durable: self.durable_group,
            payload_len: (at - HEADER) as u32,
            count: records.len() as u32,
            payload_crc: crc32c::crc32c(&buf[HEADER..at]),
        };
        buf[..HEADER].copy_from_slice(&header.encode());
        buf.freeze()
    }

    /// Notes that the last group is durable.
    pub(crate) fn group_durable(&mut self, last_seq: u64) {
        invariant!(
            self.kept.back().is_some_and(|k| k.last_seq == last_seq) && last_seq > self.durable_seq,
            "the group that was written last";
            last = last_seq,
            durable = self.durable_seq,
        );
        self.durable_seq = last_seq;
        self.durable_group = self.next_group - 1;
    }

    /// The start of a replay once the index has everything up to `seq`.
    pub(crate) fn position_after(&self, seq: u64) -> LogPosition {
        match self.kept.iter().find(|k| k.last_seq > seq) {
            Some(k) => LogPosition {
                block: k.block,
                group: k.number,
            },
            None => LogPosition {
                block: self.head,
                group: self.next_group,
            },
        }
    }

    /// Frees groups without transactions after `seq`.
    pub(crate) fn trim(&mut self, seq: u64) {
        invariant!(
            seq <= self.durable_seq,
            "durable transactions in the index";
            taken_in = seq,
            durable = self.durable_seq,
        );
        while let Some(k) = self.kept.front().filter(|k| k.last_seq <= seq) {
            self.used -= k.blocks;
            self.kept.pop_front();
        }
    }
}

struct Header {
    mount: u64,
    number: u64,
    first_seq: u64,
    durable: u64,
    payload_len: u32,
    count: u32,
    payload_crc: u32,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER);
        let mut e = Enc(&mut out);
        e.u32(MAGIC);
        e.u32(self.payload_len);
        e.u64(self.mount);
        e.u64(self.number);
        e.u64(self.first_seq);
        e.u64(self.durable);
        e.u32(self.count);
        e.u32(self.payload_crc);
        e.0.resize(HEADER - 4, 0);
        let crc = crc32c::crc32c(&out);
        Enc(&mut out).u32(crc);
        out
    }

    fn decode(block: &[u8]) -> Option<Self> {
        let (body, crc) = block.get(..HEADER)?.split_at(HEADER - 4);
        if crc32c::crc32c(body).to_le_bytes() != crc {
            return None;
        }
        let mut d = Dec::new(body);
        if d.u32()? != MAGIC {
            return None;
        }
        let payload_len = d.u32()?;
        Some(Self {
            mount: d.u64()?,
            number: d.u64()?,
            first_seq: d.u64()?,
            durable: d.u64()?,
            payload_len,
            count: d.u32()?,
            payload_crc: d.u32()?,
        })
    }

    /// The last transaction of the group. `None` if there is none, or its number would overflow.
    fn last_seq(&self) -> Option<u64> {
        let more = u64::from(self.count).checked_sub(1)?;
        self.first_seq.checked_add(more)
    }

    fn blocks(&self) -> u64 {
        (HEADER as u64 + u64::from(self.payload_len)).div_ceil(BLOCK64)
    }
}

/// A transaction found in the log.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) seq: u64,
    pub(crate) group: u64,
    pub(crate) steps: Vec<u8>,
}

/// The result of a scan of the log.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Transactions that the index lacks, in order.
    pub(crate) records: Vec<Found>,
    head: u64,
    next_group: u64,
    last_seq: u64,
    kept: VecDeque<Kept>,
}

impl Scan {
    /// Last transaction that is in the log or the index.
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Number of groups and bytes that are still needed.
    pub(crate) fn extent(&self) -> (usize, u64) {
        (
            self.kept.len(),
            self.kept.iter().map(|k| k.blocks * BLOCK64).sum(),
        )
    }
}

/// Blocks of the log that are read at once.
const WINDOW: u64 = 256;

struct Reader<'a> {
    dev: &'a Arc<dyn BlockIo>,
    start: u64,
    blocks: u64,
    /// The blocks that were read last, with the first block's number.
    window: (u64, Vec<u8>),
}

impl Reader<'_> {
    fn read(&mut self, block: u64, blocks: u64) -> Result<&[u8]> {
        let have = (self.window.1.len() / BLOCK) as u64;
        if block < self.window.0 || block + blocks > self.window.0 + have {
            let count = blocks.max(WINDOW.min(self.blocks - block));
            let mut buf = Pool::new(0).get((count * BLOCK64) as usize);
            let offset = self.start + block * BLOCK64;
            self.dev
                .read_at(offset, &mut buf)
                .map_err(|e| StoreError::io("read log", e))?;
            self.window = (block, buf.to_vec());
        }
        let from = (block - self.window.0) as usize * BLOCK;
        Ok(&self.window.1[from..from + blocks as usize * BLOCK])
    }

    fn header(&mut self, block: u64) -> Result<Option<Header>> {
        if block >= self.blocks {
            return Ok(None);
        }
        let room = self.blocks - block;
        let header = Header::decode(self.read(block, 1)?);
        Ok(header.filter(|h| h.blocks() <= room))
    }

    /// The whole group at `block`, if it is intact.
    fn group(&mut self, block: u64, number: u64, mount: u64) -> Result<Option<(Header, Vec<u8>)>> {
        let Some(h) = self
            .header(block)?
            .filter(|h| h.number == number && h.mount >= mount)
        else {
            return Ok(None);
        };
        let bytes = self.read(block, h.blocks())?[HEADER..HEADER + h.payload_len as usize].to_vec();
        Ok((crc32c::crc32c(&bytes) == h.payload_crc).then_some((h, bytes)))
    }

    /// Whether a later group shows that group `number` was durable: then its loss is damage, not
    /// the end of the log.
    fn was_durable(&mut self, head: u64, number: u64) -> Result<bool> {
        let window = (self.blocks / 8 + 256).min(self.blocks);
        for i in 0..window {
            let at = (head + i) % self.blocks;
            if let Some(h) = Header::decode(self.read(at, 1)?)
                && h.number > number
                && h.durable >= number
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Reads all intact groups from the position of the index on.
pub(crate) fn scan(dev: &Arc<dyn BlockIo>, sb: &Superblock, applied: &Applied) -> Result<Scan> {
    let mut reader = Reader {
        dev,
        start: sb.log_start(),
        blocks: sb.log_blocks,
        window: (0, Vec::new()),
    };
    let mut out = Scan {
        head: applied.log.block.min(sb.log_blocks),
        next_group: applied.log.group,
        last_seq: applied.seq,
        ..Scan::default()
    };
    let mut mount = 0;
    loop {
        let mut at = out.head;
        let mut found = reader.group(at, out.next_group, mount)?;
        if found.is_none() && at != 0 {
            at = 0;
            found = reader.group(at, out.next_group, mount)?;
        }
        let Some((header, payload)) = found else { break };
        let skip = if at == out.head {
            0
        } else {
            sb.log_blocks - out.head
        };
        mount = header.mount;
        let last_seq = header
            .last_seq()
            .ok_or_else(|| damaged(&header, "has no transactions"))?;
        if header.first_seq > out.last_seq + 1 || last_seq < out.last_seq {
            return Err(damaged(&header, "does not follow the one before"));
        }
        split(&header, &payload, applied.seq, &mut out)?;
        out.kept.push_back(Kept {
            number: header.number,
            block: at,
            blocks: skip + header.blocks(),
            last_seq,
        });
        out.last_seq = out.last_seq.max(last_seq);
        out.head = at + header.blocks();
        out.next_group += 1;
    }
    if reader.was_durable(out.head, out.next_group)? {
        let detail = format!("group {} is unreadable but was durable", out.next_group);
        return Err(StoreError::damaged("log", detail));
    }
    Ok(out)
}

fn damaged(header: &Header, what: &str) -> StoreError {
    StoreError::damaged("log", format!("group {} {what}", header.number))
}

fn split(header: &Header, payload: &[u8], applied: u64, out: &mut Scan) -> Result<()> {
    let mut d = Dec::new(payload);
    for seq in header.first_seq..header.first_seq + u64::from(header.count) {
        let mut next = || {
            let (len, _) = (d.u32()?, d.u32()?);
            d.take(len as usize)
        };
        let steps = next().ok_or_else(|| damaged(header, "is cut short"))?;
        if seq > applied {
            out.records.push(Found {
                seq,
                group: header.number,
                steps: steps.to_vec(),
            });
        }
    }
    match d.is_done() {
        true => Ok(()),
        false => Err(damaged(header, "has more than its transactions")),
    }
}
