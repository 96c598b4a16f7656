//! Ops on attributes.

use bytes::Bytes;
use spirula_denc::Writer;
use spirula_errno::*;
use spirula_proto::osd::{CmpMode, XattrArgs};
use spirula_proto::osd_op_data::XattrInput;

use super::{Changing, Looking, OpResult, Stop, fail, kib, work};
use crate::pg::op::OsdOp;

/// The number that an attribute starts with, as text; an empty one is 0.
fn leading_u64(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return Some(0);
    }
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
}

/// The name and value in the op's data.
fn name_and_value(op: &OsdOp) -> Option<(Bytes, Bytes)> {
    let XattrInput { name, value, .. } = XattrInput::new(op.args(), &op.indata)?;
    Some((copy(&name), copy(&value)))
}

/// A copy of a name or value, which lives longer than the message.
fn copy(b: &[u8]) -> Bytes {
    Bytes::copy_from_slice(b)
}

fn name_only(op: &OsdOp) -> Option<Bytes> {
    XattrInput::name(&op.args(), &op.indata).map(|name| copy(&name))
}

impl Looking<'_, '_> {
    /// An attribute as it was before the request.
    fn old_attr(&self, name: &[u8]) -> Result<&Bytes, Stop> {
        if !self.before.state.exists {
            return fail(ENOENT);
        }
        self.before.state.attrs.get(name).ok_or(Stop::Failed(ENODATA))
    }

    pub(super) fn getxattr(&mut self, op: &mut OsdOp) -> OpResult {
        let Some(name) = name_only(op) else {
            return fail(EINVAL);
        };
        self.left.io.rd += 1;
        let value = self.old_attr(&name)?.clone();
        self.left.io.rd_kb += kib(value.len() as u64);
        let args = XattrArgs {
            value_len: u32::try_from(value.len()).unwrap_or(u32::MAX),
            ..op.args()
        };
        op.set_args(&args);
        op.outdata.push(value);
        Ok(0)
    }

    pub(super) fn getxattrs(&mut self, op: &mut OsdOp) -> OpResult {
        let mut w = Writer::new();
        w.count(self.before.state.attrs.len());
        for (name, value) in &self.before.state.attrs {
            w.put(name);
            w.put(value);
        }
        self.left.io.count_read(w.len() as u64);
        op.outdata.push(w.into_vec().into());
        if self.before.state.exists {
            Ok(0)
        } else {
            fail(ENOENT)
        }
    }

    pub(super) fn cmpxattr(&mut self, op: &mut OsdOp) -> OpResult {
        let Some(name) = name_only(op) else {
            return fail(EINVAL);
        };
        let empty = Bytes::new();
        let have = match self.old_attr(&name) {
            Ok(value) => value.clone(),
            Err(Stop::Failed(e)) if e == ENODATA => empty,
            Err(e) => return Err(e),
        };
        self.left.io.count_read(have.len() as u64);
        let XattrArgs { cmp_op, cmp_mode, .. } = op.args();
        let given = &op.indata[name.len()..];
        let order = match cmp_mode {
            CmpMode::STRING => match name_and_value(op) {
                Some((_, given)) => given.cmp(&have),
                None => return fail(EINVAL),
            },
            CmpMode::U64 => match (given.first_chunk::<8>(), leading_u64(&have)) {
                (Some(given), Some(have)) => u64::from_le_bytes(*given).cmp(&have),
                _ => return fail(EINVAL),
            },
            _ => return fail(EINVAL),
        };
        match cmp_op.holds(order) {
            // A true comparison's result is positive, which only requests without writes show.
            Some(true) => Ok(1),
            Some(false) => fail(ECANCELED),
            None => fail(EINVAL),
        }
    }
}

impl Changing<'_, '_> {
    pub(super) fn setxattr(&mut self, op: &OsdOp) -> OpResult {
        let args: XattrArgs = op.args();
        let longer = |len: u32, most: usize| usize::try_from(len).map_or(true, |len| len > most);
        if longer(args.value_len, self.given.cfg.max_attr_size) {
            return fail(EFBIG);
        }
        if longer(args.name_len, self.given.cfg.max_attr_name_len) {
            return fail(ENAMETOOLONG);
        }
        let Some((name, value)) = name_and_value(op) else {
            return fail(EINVAL);
        };
        let count = self.before.state.attrs.len() + self.draft.attrs.len();
        if count >= self.given.cfg.max_attrs
            && !self.before.state.attrs.contains_key(&name)
            && !self.draft.attrs.contains_key(&name)
        {
            return fail(EFBIG);
        }
        self.work.spend(count as u64 * work::SHORT_ITEM)?;
        let changed = |k: &Bytes| *k == name || self.draft.attrs.contains_key(k);
        let kept = self
            .before
            .state
            .attrs
            .iter()
            .filter(|(k, _)| !changed(k))
            .map(|(_, v)| v);
        let others = self.draft.attrs.iter().filter(|(k, _)| **k != name);
        let others = others.filter_map(|(_, v)| v.as_ref());
        let total: usize = kept.chain(others).map(Bytes::len).sum();
        if total + value.len() > self.given.cfg.max_attrs_total {
            return fail(EFBIG);
        }
        self.draft.maybe_create();
        self.draft.attrs.insert(name, Some(value));
        self.left.io.wr += 1;
        Ok(0)
    }

    pub(super) fn rmxattr(&mut self, op: &OsdOp) -> OpResult {
        let Some(name) = name_only(op) else {
            return fail(EINVAL);
        };
        if !self.draft.exists {
            return fail(ENOENT);
        }
        self.draft.attrs.insert(name, None);
        self.draft.dirty = true;
        self.left.io.wr += 1;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_compare_as_numbers_by_their_leading_digits() {
        assert_eq!(leading_u64(b""), Some(0));
        assert_eq!(leading_u64(b"12x"), Some(12));
        assert_eq!(leading_u64(b"x"), None);
        assert_eq!(leading_u64(b"99999999999999999999"), None);
    }
}
