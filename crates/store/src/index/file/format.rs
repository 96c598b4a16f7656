//! The index file's own blocks: its map, and the tables of its leaves. See FORMAT.md, "Index file".

use spirula_buf::{Pool, PoolBuf};

use super::{Leaf, Mapped, State};
use crate::codec::{Dec, Enc};
use crate::config::BLOCK;
use crate::layout::INDEX_MAP_LEN;

const MAP_MAGIC: u32 = 0x4d49_5053;
const LEAF_MAGIC: u32 = 0x4c49_5053;
const HEADER_MAGIC: u32 = 0x4849_5053;
const MAP_HEADER: usize = 40;
const LEAF_HEADER: usize = 32;

/// Bytes of the library's header, at the start of page 0; the rest of the page is zeros.
pub(in crate::index) const HEADER_LEN: usize = 512;
/// The place of the copy of that header in a table of the first leaf: behind the checksums, before
/// the table's own.
const HEADER_AT: usize = BLOCK - 4 - HEADER_LEN - 4;

/// Most groups the index can have.
pub(crate) const MAX_INDEX_GROUPS: usize = (INDEX_MAP_LEN - MAP_HEADER - 4) / 8;

/// Checksum of a page, which depends on its number so that a misplaced page is noticed. Never 0,
/// which means "not written".
pub(super) fn page_crc(page: u64, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page.to_le_bytes()), data).max(1)
}

/// The library's header in page 0; `None` if the page has more than that.
pub(super) fn header_of(page: &[u8]) -> Option<Box<[u8]>> {
    let (header, rest) = page.split_at_checked(HEADER_LEN)?;
    rest.iter().all(|b| *b == 0).then(|| header.into())
}

fn aligned_copy(bytes: &[u8], len: usize) -> PoolBuf {
    let mut buf = Pool::new(0).get(len);
    buf.fill(0);
    buf[..bytes.len()].copy_from_slice(bytes);
    buf
}

fn seal(mut bytes: Vec<u8>, len: usize) -> PoolBuf {
    bytes.resize(len - 4, 0);
    let crc = crc32c::crc32c(&bytes);
    Enc(&mut bytes).u32(crc);
    aligned_copy(&bytes, len)
}

fn unseal(block: &[u8]) -> Option<Dec<'_>> {
    let (body, crc) = block.split_at_checked(block.len().checked_sub(4)?)?;
    (crc32c::crc32c(body).to_le_bytes() == *crc).then(|| Dec::new(body))
}

pub(super) fn encode_map(state: &State) -> PoolBuf {
    let mut out = Vec::with_capacity(INDEX_MAP_LEN);
    let mut e = Enc(&mut out);
    e.u32(MAP_MAGIC);
    e.u32(state.version);
    e.u64(state.len);
    e.u32(state.map.len() as u32);
    let spare = || state.spare.iter().chain(&state.ready).chain(&state.dropped);
    e.u32(spare().count() as u32);
    e.u64(state.nonce);
    e.0.resize(MAP_HEADER, 0);
    for m in &state.map {
        let m = m.unwrap_or(Mapped {
            group: u32::MAX,
            birth: 0,
        });
        e.u32(m.group);
        e.u32(m.birth);
    }
    for group in spare() {
        e.u32(*group);
        e.u32(0);
    }
    seal(out, INDEX_MAP_LEN)
}

pub(super) fn decode_map(block: &[u8]) -> Option<State> {
    let mut d = unseal(block)?;
    if d.u32()? != MAP_MAGIC {
        return None;
    }
    let mut state = State {
        version: d.u32()?,
        len: d.u64()?,
        ..State::default()
    };
    let count = d.u32()? as usize;
    let spare = d.u32()? as usize;
    state.nonce = d.u64()?;
    d.take(MAP_HEADER - 32)?;
    if count.checked_add(spare)? > MAX_INDEX_GROUPS {
        return None;
    }
    for _ in 0..count {
        let m = Mapped {
            group: d.u32()?,
            birth: d.u32()?,
        };
        state.map.push((m.group != u32::MAX).then_some(m));
    }
    for _ in 0..spare {
        state.spare.push(d.u32()?);
        d.u32()?;
    }
    Some(state)
}

/// The table of the leaf with this number, in a group of this birth and a file with this nonce.
pub(super) fn encode_leaf(leaf: &Leaf, number: u32, (birth, nonce): (u32, u64)) -> PoolBuf {
    let mut out = Vec::with_capacity(BLOCK);
    let mut e = Enc(&mut out);
    e.u32(LEAF_MAGIC);
    e.u32(number);
    e.u32(birth);
    e.u32(leaf.crcs.len() as u32);
    e.u64(leaf.seq);
    e.u64(nonce);
    e.0.resize(LEAF_HEADER, 0);
    e.crcs(&leaf.crcs);
    if let Some(header) = &leaf.header {
        e.0.resize(HEADER_AT, 0);
        e.u32(HEADER_MAGIC);
        e.0.extend_from_slice(header);
    }
    seal(out, BLOCK)
}

pub(super) fn decode_leaf(
    block: &[u8],
    number: u32,
    (birth, nonce): (u32, u64),
    pages: usize,
) -> Option<Leaf> {
    let mut d = unseal(block)?;
    let fields = [d.u32()?, d.u32()?, d.u32()?, d.u32()?];
    if fields != [LEAF_MAGIC, number, birth, pages as u32] {
        return None;
    }
    let seq = d.u64()?;
    if d.u64()? != nonce {
        return None;
    }
    let crcs = d.crcs(pages)?;
    d.take(HEADER_AT - LEAF_HEADER - 4 * pages)?;
    // Earlier versions have none.
    let has_header = number == 0 && d.u32()? == HEADER_MAGIC;
    let header = match has_header {
        true => Some(d.take(HEADER_LEN)?.into()),
        false => None,
    };
    Some(Leaf {
        crcs,
        seq,
        dirty: false,
        header,
    })
}
