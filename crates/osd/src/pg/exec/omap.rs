//! Ops on the omap: ordered keys and values beside the data, and a header.

use std::cmp::Ordering;

use bytes::Bytes;
use spirula_denc::Writer;
use spirula_errno::*;
use spirula_proto::BytesList;
use spirula_proto::osd::{CmpOp, OpCode};
use spirula_proto::osd_op_data::{OmapCmp, OmapGetKeys, OmapGetVals, OmapKeys};

use super::before::Before;
use super::omap_input::{input, pairs};
use super::{Changing, Looking, OpResult, Stop, fail};
use crate::pg::config::PgConfig;
use crate::pg::fetch::{Answer, KeysWant, OmapPage, OmapRange, Want, key_after, prefix_end};
use crate::pg::op::OsdOp;
use crate::pg::txn::ObjectOp;

/// The part of the omap that a listing asks for.
fn listed_range(cfg: &PgConfig, op: &OsdOp, max_bytes: usize) -> Result<OmapRange, Stop> {
    let (start_after, max, prefix, values) = if op.code == OpCode::OMAPGETKEYS {
        let i: OmapGetKeys = input(op)?;
        (i.start_after, i.max, Bytes::new(), false)
    } else {
        let i: OmapGetVals = input(op)?;
        (i.start_after, i.max, i.prefix, true)
    };
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    Ok(OmapRange {
        // An empty key is never listed: all listings start after a key.
        from: if prefix > start_after {
            prefix.clone()
        } else {
            key_after(&start_after)
        },
        to: prefix_end(&prefix),
        max: max.min(cfg.max_omap_entries),
        max_bytes: max_bytes.min(cfg.max_omap_page),
        values,
    })
}

/// The keys whose values an op asks for.
fn asked_keys(op: &OsdOp) -> Result<Vec<Bytes>, Stop> {
    Ok(if op.code == OpCode::OMAP_CMP {
        input::<OmapCmp>(op)?.into_keys().collect()
    } else {
        input::<OmapKeys>(op)?.into_iter().collect()
    })
}

/// What an op reads of the omap.
pub(super) fn wanted(cfg: &PgConfig, op: &OsdOp) -> Option<Want> {
    match op.code {
        OpCode::OMAPGETKEYS | OpCode::OMAPGETVALS => {
            listed_range(cfg, op, cfg.max_omap_bytes).ok().map(Want::Omap)
        }
        OpCode::OMAPGETVALSBYKEYS | OpCode::OMAP_CMP => asked_keys(op)
            .ok()
            .map(|keys| Want::OmapKeys(KeysWant::values(keys, cfg.max_omap_bytes))),
        OpCode::OMAPGETHEADER => Some(Want::OmapHeader),
        _ => None,
    }
}

/// Values from this size on are not copied into the output but become pieces of it.
const PIECE: usize = 4096;

/// Appends a value after the bytes that `w` has.
fn put_value(out: &mut BytesList, w: &mut Writer, value: &Bytes) {
    if value.len() < PIECE {
        w.put(value);
        return; // Copied, as it is small.
    }
    w.count(value.len());
    out.push(std::mem::take(w).into_vec().into());
    out.push(value.clone());
}

/// The order of two values, as the official OSD on x86 sees it: its bytes are signed.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    let signed = |b: &u8| b.cast_signed();
    a.iter().map(signed).cmp(b.iter().map(signed))
}

impl<'a> Before<'a> {
    /// The first pairs of a range of keys.
    fn omap_page(&mut self, range: OmapRange) -> Result<&'a OmapPage, Stop> {
        self.omap(Want::Omap(range))
    }

    /// The pairs of these keys that exist. The keys ascend.
    ///
    /// # Errors
    /// ENOMEM where they are larger than what a listing may return: Ceph has no limit, but here all
    /// of it is in memory.
    fn omap_values(&mut self, keys: Vec<Bytes>) -> Result<&'a [(Bytes, Bytes)], Stop> {
        let max = self.omap_bytes();
        let want = KeysWant::values(keys, max);
        let mut found = self.omap_found(want.clone())?;
        if found.more && want.max_bytes < max {
            // The values are larger than most.
            found = self.omap_found(KeysWant {
                max_bytes: max,
                ..want
            })?;
        }
        if found.more {
            return fail(ENOMEM);
        }
        Ok(&found.pairs)
    }

    /// The pairs of these keys, or as many as are read at once.
    pub(super) fn omap_found(&mut self, want: KeysWant) -> Result<&'a OmapPage, Stop> {
        self.omap(Want::OmapKeys(want))
    }

    fn omap(&mut self, want: Want) -> Result<&'a OmapPage, Stop> {
        match self.fetch(want)? {
            Answer::Omap(page) => Ok(page),
            _ => fail(EIO),
        }
    }

    fn omap_header(&mut self) -> Result<Bytes, Stop> {
        match self.fetch(Want::OmapHeader)? {
            Answer::OmapHeader(header) => Ok(header.clone()),
            _ => fail(EIO),
        }
    }
}

/// The page of an omap that does not exist.
const NO_PAIRS: &OmapPage = &OmapPage {
    pairs: Vec::new(),
    more: false,
};

impl<'a> Looking<'_, 'a> {
    /// Whether there is an omap to read: it was there before the request, and no op has cleared it.
    fn has_omap(&self) -> bool {
        self.draft.info.has_omap() && self.before.state.info.has_omap()
    }

    /// The first pairs of a range of keys, as they were before the request.
    pub(super) fn omap_page(&mut self, range: OmapRange) -> Result<&'a OmapPage, Stop> {
        if !self.has_omap() {
            return Ok(NO_PAIRS);
        }
        self.before.omap_page(range)
    }

    fn omap_values(&mut self, keys: Vec<Bytes>) -> Result<&'a [(Bytes, Bytes)], Stop> {
        if !self.has_omap() || keys.is_empty() {
            return Ok(&[]);
        }
        self.before.omap_values(keys)
    }

    /// The omap header, as before the request.
    pub(super) fn omap_header(&mut self) -> Result<Bytes, Stop> {
        if !self.has_omap() {
            return Ok(Bytes::new());
        }
        self.before.omap_header()
    }

    /// OMAPGETKEYS and OMAPGETVALS.
    pub(super) fn omap_list(&mut self, op: &mut OsdOp) -> OpResult {
        let range = listed_range(self.given.cfg, op, self.before.omap_bytes())?;
        let values = range.values;
        let page = self.omap_page(range)?;
        let mut w = Writer::new();
        w.count(page.pairs.len());
        for (key, value) in &page.pairs {
            w.put(key);
            if values {
                put_value(&mut op.outdata, &mut w, value);
            }
        }
        w.bool(page.more);
        op.outdata.push(w.into_vec().into());
        self.left.io.count_read(op.outdata.len() as u64);
        Ok(0)
    }

    pub(super) fn omap_get_by_keys(&mut self, op: &mut OsdOp) -> OpResult {
        let found = self.omap_values(asked_keys(op)?)?;
        let mut w = Writer::new();
        w.count(found.len());
        for (key, value) in found {
            w.put(key);
            put_value(&mut op.outdata, &mut w, value);
        }
        op.outdata.push(w.into_vec().into());
        self.left.io.count_read(op.outdata.len() as u64);
        Ok(0)
    }

    pub(super) fn omap_get_header(&mut self, op: &mut OsdOp) -> OpResult {
        if self.draft.info.has_omap() {
            let header = self.omap_header()?;
            op.outdata.push(header);
            self.left.io.count_read(op.outdata.len() as u64);
        }
        Ok(0)
    }

    pub(super) fn omap_cmp(&mut self, op: &OsdOp) -> OpResult {
        if !self.draft.exists {
            return fail(ENOENT);
        }
        let found = self.omap_values(asked_keys(op)?)?;
        self.left.io.rd += 1;
        for (key, (given, cmp)) in input::<OmapCmp>(op)? {
            let at = found.binary_search_by(|(k, _)| k.cmp(&key)).ok();
            let stored = at.and_then(|at| found.get(at)).map_or(&[][..], |(_, v)| v);
            let order = order(stored, &given);
            let holds = match u8::try_from(cmp).map(CmpOp) {
                Ok(CmpOp::EQ) => order.is_eq(),
                Ok(CmpOp::LT) => order.is_lt(),
                Ok(CmpOp::GT) => order.is_gt(),
                _ => return fail(EINVAL),
            };
            if !holds {
                return fail(ECANCELED);
            }
        }
        Ok(0)
    }
}

impl Changing<'_, '_> {
    pub(super) fn omap_set_vals(&mut self, op: &OsdOp) -> OpResult {
        self.work.spend(op.indata.len() as u64)?;
        let pairs = pairs(op)?;
        self.draft.maybe_create();
        self.draft.set_omap(true);
        if !pairs.is_empty() {
            self.draft.changes.push(ObjectOp::OmapSet(pairs));
        }
        self.left.io.count_write(op.indata.len() as u64);
        Ok(0)
    }

    pub(super) fn omap_set_header(&mut self, op: &OsdOp) -> OpResult {
        self.draft.maybe_create();
        self.draft.set_omap(true);
        self.draft.changes.push(ObjectOp::OmapHeader(op.indata.clone()));
        self.left.io.count_write(0);
        Ok(0)
    }

    /// Without an omap nothing changes, not even the version.
    pub(super) fn omap_clear(&mut self) -> OpResult {
        if !self.draft.exists {
            return fail(ENOENT);
        }
        if self.draft.info.has_omap() {
            self.draft.changes.push(ObjectOp::OmapClear);
            self.draft.set_omap(false);
            self.draft.dirty = true;
            self.left.io.count_write(0);
        }
        Ok(0)
    }

    pub(super) fn omap_rm_keys(&mut self, op: &OsdOp) -> OpResult {
        if !self.draft.exists {
            return fail(ENOENT);
        }
        let keys: OmapKeys = input(op)?;
        if self.draft.info.has_omap() {
            let keys = keys.into_iter().collect();
            self.draft.changes.push(ObjectOp::OmapRm(keys));
        }
        self.draft.dirty = true;
        self.left.io.count_write(0);
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_compare_as_signed_bytes() {
        assert!(order(b"\x80", b"\x01").is_lt());
        assert!(order(b"a", b"ab").is_lt());
        assert!(order(b"", b"").is_eq());
    }
}
