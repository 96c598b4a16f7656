//! Whether a bucket's index is being moved to other shards: `cls_rgw_bucket_instance_entry` of Ceph's
//! `src/cls/rgw/cls_rgw_types.h`.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer, versioned};
use spirula_errno::Errno;

use super::header::{self, DirHeader};
use crate::method::Nothing;
use crate::{Error, Object, Result, Return};

/// The index is not being moved.
const NOT_RESHARDING: u8 = 0;
/// Its entries are being copied, and must not change.
const IN_PROGRESS: u8 = 1;

/// The error that tells radosgw to wait until the index has moved, `CLS_RGW_ERR_BUSY_RESHARDING`.
const BUSY_RESHARDING: i32 = 2300;

/// The move of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BucketInstance {
    /// `cls_rgw_reshard_status`.
    status: u8,
    /// The bucket instance with the new index. Releases from 18.2 on find it elsewhere; for 16.2 it
    /// is kept.
    new_bucket_instance_id: Bytes,
    /// The number of its shards.
    num_shards: i32,
}

impl Default for BucketInstance {
    fn default() -> Self {
        Self {
            status: NOT_RESHARDING,
            new_bucket_instance_id: Bytes::new(),
            num_shards: -1,
        }
    }
}

// By hand: version 2 alone, of early 18.2, has only the status.
impl Encode for BucketInstance {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| {
            w.u8(self.status);
            w.put(&self.new_bucket_instance_id);
            w.i32(self.num_shards);
        });
    }
}

impl Decode for BucketInstance {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("cls_rgw_bucket_instance_entry", 3, |version, r| {
            let status = r.u8()?;
            if version == 2 {
                return Ok(Self {
                    status,
                    ..Self::default()
                });
            }
            Ok(Self {
                status,
                new_bucket_instance_id: r.get()?,
                num_shards: r.i32()?,
            })
        })
    }
}

versioned! {
    /// Input of `set_bucket_resharding`, output of `get_bucket_resharding`.
    #[derive(Eq)]
    pub(super) struct InstanceOp("cls_rgw_set_bucket_resharding_op", version 1, compat 1) {
        instance: BucketInstance;
    }

    /// Input of `clear_bucket_resharding` and `get_bucket_resharding`.
    #[derive(Eq)]
    pub(super) struct NoFieldsOp("cls_rgw_get_bucket_resharding_op", version 1, compat 1) {}

    /// Input of `guard_bucket_resharding`.
    #[derive(Eq)]
    pub(super) struct GuardOp("cls_rgw_guard_bucket_resharding_op", version 1, compat 1) {
        /// The result while the index moves.
        ret_err: i32;
    }
}

pub(super) fn set(object: &mut dyn Object, op: InstanceOp) -> Result<Nothing> {
    let mut header = header::read(object)?;
    header.new_instance = op.instance;
    header::write(object, header).map(|()| Nothing)
}

/// The number of shards stays: nobody reads it without a status.
pub(super) fn clear(object: &mut dyn Object, _: NoFieldsOp) -> Result<Nothing> {
    let mut header = header::read(object)?;
    header.new_instance = BucketInstance {
        num_shards: header.new_instance.num_shards,
        ..BucketInstance::default()
    };
    header::write(object, header).map(|()| Nothing)
}

pub(super) fn get(object: &mut dyn Object, _: NoFieldsOp) -> Result<InstanceOp> {
    let instance = header::read(object)?.new_instance;
    Ok(InstanceOp { instance })
}

/// Fails the request, in which other operations follow, while the index moves and once it has moved:
/// a radosgw 16.2 that still writes to the old index learns so that there is a new one. 20.2 lets
/// requests pass once the index has moved, as it removes the old one.
pub(super) fn guard(object: &mut dyn Object, op: GuardOp) -> Result<Return> {
    let is_moving = header::read(object)?.new_instance.status != NOT_RESHARDING;
    Ok(Return {
        code: if is_moving { op.ret_err } else { 0 },
        ..Return::default()
    })
}

/// Refuses what would change entries that are being copied.
///
/// Ceph does so from 20.2 on, in each method that writes entries. Every radosgw since 16.2 guards its
/// writes itself, and knows the error. The exceptions are changes that a listing suggests and the
/// rebuilding of the header, and these may be lost or refused: without the refusal, rebuilding would
/// even forget that the index moves.
pub(super) fn refuse_in_progress(header: &DirHeader) -> Result<()> {
    match header.new_instance.status {
        IN_PROGRESS => Err(Errno::new(BUSY_RESHARDING).map_or(Error::EBUSY, Error::Errno)),
        _ => Ok(()),
    }
}
