//! The inputs of ops on omaps.

use bytes::Bytes;
use spirula_denc::{Decode, Reader};

use super::Stop;
use crate::pg::op::OsdOp;
use spirula_errno::*;

/// An op's input. Bytes after it are ignored, as by the official OSD.
pub(super) fn input<T: Decode>(op: &OsdOp) -> Result<T, Stop> {
    Reader::new(&op.indata).get().map_err(|_| Stop::Failed(EINVAL))
}

/// The keys and values of the input in their order, not copied.
pub(super) fn pairs(op: &OsdOp) -> Result<Vec<(Bytes, Bytes)>, Stop> {
    let mut r = Reader::new(&op.indata);
    let mut all = || {
        let n = r.count(8)?;
        let mut pairs = Vec::with_capacity(n);
        for _ in 0..n {
            let (key, value) = (r.blob()?, r.blob()?);
            pairs.push((op.indata.slice_ref(key), op.indata.slice_ref(value)));
        }
        Ok(pairs)
    };
    all().map_err(|_: spirula_denc::Error| Stop::Failed(EINVAL))
}
