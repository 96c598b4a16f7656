//! The common wire format of a full map and an incremental: a section for clients and one for OSDs
//! inside an outer one, and behind these a checksum over everything around it.

use std::collections::BTreeMap;

use spirula_denc::{EntityAddr, Error, Reader, Result, UTime, Writer, at_least, encode_to_vec};

const VERSION: u8 = 8;
const COMPAT: u8 = 7;

/// Writes the output of `sections`, the checksum, and the output of `behind`; returns the checksum.
pub(super) fn encode(
    w: &mut Writer,
    sections: impl FnOnce(&mut Writer),
    behind: impl FnOnce(&mut Writer),
) -> u32 {
    let start = w.len();
    let mut hole = None;
    w.section(VERSION, COMPAT, |w| {
        sections(w);
        hole = Some(w.hole_u32());
        behind(w);
    });
    // Only now the outer length, which the checksum covers, is known.
    hole.map_or(0, |hole| {
        let crc = crc_around(&w.as_slice()[start..], hole.offset() - start);
        w.fill_u32(hole, crc);
        crc
    })
}

/// Reads the output of [`encode`], and returns the verified checksum.
pub(super) fn decode<T>(
    what: &'static str,
    r: &mut Reader<'_>,
    sections: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    behind: impl FnOnce(&mut T, &mut Reader<'_>) -> Result<()>,
) -> Result<(T, u32)> {
    // Version, compat and length, which are before the inner reader's first byte.
    const OUTER_HEADER: usize = 6;
    let mut whole = r.clone();
    let before = r.remaining();
    let (found, hole, crc) = r.section(what, VERSION, |version, r| {
        at_least(what, version, VERSION)?;
        let mut found = sections(r)?;
        let hole = OUTER_HEADER + r.position();
        let crc = r.u32()?;
        behind(&mut found, r)?;
        Ok((found, hole, crc))
    })?;
    if crc_around(whole.bytes(before - r.remaining())?, hole) != crc {
        return Err(Error::Invalid("map checksum"));
    }
    Ok((found, crc))
}

/// The checksum of `buf` without the four bytes at `hole`: CRC-32C as Ceph has it, without the
/// inversions before and after.
fn crc_around(buf: &[u8], hole: usize) -> u32 {
    !crc32c::crc32c_append(crc32c::crc32c(&buf[..hole]), &buf[hole + 4..])
}

/// A map by address.
pub(super) mod by_addr {
    use super::*;

    /// Writes it in the order of the official encoder: that of the bytes of type, nonce and socket
    /// address in memory.
    pub(in super::super) fn encode(map: &BTreeMap<EntityAddr, UTime>, w: &mut Writer) {
        // Marker and section header, type, nonce, the length of the socket address; then the socket
        // address.
        const TYPE_AT: usize = 7;
        const LENGTH_AT: usize = TYPE_AT + 8;
        let mut entries: Vec<_> = map
            .iter()
            .map(|(addr, until)| (encode_to_vec(addr), until))
            .collect();
        entries.sort_by(|(a, _), (b, _)| {
            let key = |e: &[u8]| (e[TYPE_AT..LENGTH_AT].to_vec(), e[LENGTH_AT + 4..].to_vec());
            key(a).cmp(&key(b))
        });
        w.count(entries.len());
        for (addr, until) in entries {
            w.bytes(&addr);
            w.put(until);
        }
    }

    pub(in super::super) fn decode(r: &mut Reader<'_>) -> Result<BTreeMap<EntityAddr, UTime>> {
        r.get()
    }
}
