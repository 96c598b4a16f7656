//! Steps of coded changes in messages and records; their bytes lie in the payload.

use bytes::Bytes;
use spirula_denc::{Error, Extent, Reader, Result, Writer};
use spirula_erasure::{FragmentOp, Pieces, Step};
use spirula_invariant::impossible;
use spirula_proto::BytesList;

/// Encodes a step; its bytes are pushed to `payload`.
pub(in crate::pg) fn encode_step(step: &Step, w: &mut Writer, payload: &mut BytesList) {
    let mut bytes = |w: &mut Writer, kind: u8, offset: u64, data: &Bytes| {
        w.u8(kind);
        w.u64(offset);
        w.count(data.len());
        payload.push(data.clone());
    };
    match step {
        Step::Write { offset, data } => bytes(w, 1, *offset, data),
        Step::Patch { offset, delta } => bytes(w, 2, *offset, delta),
        Step::Punch { offset, delta } => bytes(w, 3, *offset, delta),
        Step::Truncate { size } => {
            w.u8(4);
            w.u64(*size);
        }
        Step::Discard { range, coding } => {
            w.u8(5);
            w.put(range);
            w.bool(*coding);
        }
        Step::Stripes { range, fresh, pieces } => {
            w.u8(0);
            w.put(range);
            w.bool(*fresh);
            encode_pieces(pieces, w, payload);
        }
    }
}

/// Decodes what [`encode_step`] wrote; the payload is read from `at` on.
///
/// # Errors
/// Where the input is truncated, its payload is not in `payload`, or pieces overlap or leave their
/// range.
pub(in crate::pg) fn decode_step(r: &mut Reader<'_>, payload: &BytesList, at: &mut usize) -> Result<Step> {
    let kind = r.u8()?;
    let mut bytes = |r: &mut Reader<'_>| decode_piece(r, payload, at);
    match kind {
        0 => {
            let (range, fresh): (Extent, bool) = (r.get()?, r.bool()?);
            let n = r.count(12)?;
            let pieces = (0..n).map(|_| bytes(r)).collect::<Result<Pieces>>()?;
            if !is_in(&pieces, range.offset, range.end()) {
                return Err(Error::Invalid("pieces of stripes"));
            }
            Ok(Step::Stripes { range, fresh, pieces })
        }
        1 => bytes(r).map(|(offset, data)| Step::Write { offset, data }),
        2 => bytes(r).map(|(offset, delta)| Step::Patch { offset, delta }),
        3 => bytes(r).map(|(offset, delta)| Step::Punch { offset, delta }),
        4 => Ok(Step::Truncate { size: r.u64()? }),
        5 => {
            let (range, coding) = (r.get()?, r.bool()?);
            Ok(Step::Discard { range, coding })
        }
        _ => Err(Error::Invalid("step of a change")),
    }
}

/// The bytes of a write or an addition.
pub(in crate::pg) fn data_of(op: &FragmentOp) -> &[u8] {
    match op {
        FragmentOp::Write { data: bytes, .. } | FragmentOp::Add { delta: bytes, .. } => bytes,
        FragmentOp::Zero { .. } | FragmentOp::Truncate { .. } => &[],
    }
}

/// Writes next to each other together, and each addition alone.
pub(in crate::pg) fn runs(ops: &[FragmentOp]) -> impl Iterator<Item = &[FragmentOp]> {
    ops.chunk_by(|a, b| {
        let are_writes = matches!((a, b), (FragmentOp::Write { .. }, FragmentOp::Write { .. }));
        are_writes && a.range().end() == b.range().offset
    })
}

/// Encodes writes and additions; their bytes are pushed to `payload`. Writes next to each other
/// become one.
pub(in crate::pg) fn encode_fragment_ops(ops: &[FragmentOp], w: &mut Writer, payload: &mut BytesList) {
    let runs: Vec<&[FragmentOp]> = runs(ops).collect();
    w.count(runs.len());
    for run in runs {
        let Some(first) = run.first() else { continue };
        w.bool(matches!(first, FragmentOp::Add { .. }));
        w.u64(first.range().offset);
        w.count(run.iter().map(|op| data_of(op).len()).sum());
        for op in run {
            match op {
                FragmentOp::Write { data, .. } | FragmentOp::Add { delta: data, .. } => {
                    payload.push(data.clone());
                }
                other => impossible!("only bytes to be staged"; op = format!("{other:?}")),
            }
        }
    }
}

/// Decodes what [`encode_fragment_ops`] wrote; the payload is read from `at` on.
///
/// # Errors
/// Where the input is truncated, or its payload is not in `payload`.
pub(in crate::pg) fn decode_fragment_ops(
    r: &mut Reader<'_>,
    payload: &BytesList,
    at: &mut usize,
) -> Result<Vec<FragmentOp>> {
    let n = r.count(13)?;
    let mut ops = Vec::with_capacity(n.min(64));
    for _ in 0..n {
        let adds = r.bool()?;
        let (offset, data) = decode_piece(r, payload, at)?;
        ops.push(match adds {
            true => FragmentOp::Add { offset, delta: data },
            false => FragmentOp::Write { offset, data },
        });
    }
    Ok(ops)
}

/// Encodes pieces of a fragment; their bytes are pushed to `payload`.
pub(in crate::pg) fn encode_pieces(pieces: &Pieces, w: &mut Writer, payload: &mut BytesList) {
    w.count(pieces.len());
    for (offset, data) in pieces {
        w.u64(*offset);
        w.count(data.len());
        payload.push(data.clone());
    }
}

/// Decodes what [`encode_pieces`] wrote.
///
/// # Errors
/// Where the input is truncated, its payload is not in `payload`, or pieces overlap.
pub(in crate::pg) fn decode_pieces(r: &mut Reader<'_>, payload: &BytesList) -> Result<Pieces> {
    let n = r.count(12)?;
    let mut at = 0;
    let pieces = (0..n)
        .map(|_| decode_piece(r, payload, &mut at))
        .collect::<Result<Pieces>>()?;
    match is_in(&pieces, 0, u64::MAX) {
        true => Ok(pieces),
        false => Err(Error::Invalid("pieces of a fragment")),
    }
}

/// Whether pieces ascend, do not overlap, and lie in a range.
fn is_in(pieces: &Pieces, start: u64, end: u64) -> bool {
    let mut free = start;
    pieces.iter().all(|(offset, data)| {
        let ascends = *offset >= free;
        free = offset + data.len() as u64;
        ascends && free <= end
    })
}

fn decode_piece(r: &mut Reader<'_>, payload: &BytesList, at: &mut usize) -> Result<(u64, Bytes)> {
    let offset = r.u64()?;
    let len = usize::try_from(r.u32()?).map_err(|_| Error::Invalid("payload length"))?;
    let data = payload.slice(*at, len).ok_or(Error::Invalid("payload length"))?;
    *at += len;
    let end = offset.checked_add(len as u64);
    end.map(|_| (offset, data))
        .ok_or(Error::Invalid("payload offset"))
}
