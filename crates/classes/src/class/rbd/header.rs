//! An image's header: its size, and the layout and place of its data.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer};
use spirula_maps::PoolOrNone;
use spirula_maps::snap::NOSNAP;

use super::arguments::{Trailing, arguments};
use super::features::{self, Features};
use super::parent::Parent;
use super::{keys, parent, snapshot, snapshot_record, timestamps};
use crate::method::{Nothing, to_bytes};
use crate::{Error, Object, Result};

pub(super) const SIZE: &str = "size";
const ORDER: &str = "order";
const OBJECT_PREFIX: &str = "object_prefix";
const DATA_POOL: &str = "data_pool_id";
const STRIPE_UNIT: &str = "stripe_unit";
const STRIPE_COUNT: &str = "stripe_count";

arguments! {
    /// Input of `create`.
    pub(super) struct Create {
        pub(super) size: u64,
        /// The size of its objects as a power of two.
        pub(super) order: u8,
        pub(super) features: Features,
        /// The prefix of its objects' names.
        pub(super) object_prefix: Bytes,
        pub(super) data_pool: Trailing<PoolOrNone>,
    }
}

pub(super) fn create(object: &mut dyn Object, op: Create) -> Result<Nothing> {
    if !Features::ALL.contains(op.features) {
        return Err(Error::ENOSYS);
    }
    if op.object_prefix.is_empty() {
        return Err(Error::EINVAL);
    }
    if keys::has(object, OBJECT_PREFIX)? {
        return Err(Error::EEXIST);
    }
    let data_pool = op.data_pool.0.and_then(|pool| pool.0);
    let has_data_pool = op.features.contains(Features::DATA_POOL);
    if op.features.contains(Features::OPERATIONS) || has_data_pool != data_pool.is_some() {
        return Err(Error::EINVAL);
    }
    let now = to_bytes(&object.now());
    let mut values = BTreeMap::from([
        (SIZE, to_bytes(&op.size)),
        (ORDER, to_bytes(&op.order)),
        (features::FEATURES, to_bytes(&op.features)),
        (OBJECT_PREFIX, to_bytes(&op.object_prefix)),
        (snapshot::SEQ, to_bytes(&0u64)),
        (timestamps::CREATE, now.clone()),
        (timestamps::ACCESS, now.clone()),
        (timestamps::MODIFY, now),
    ]);
    if let Some(pool) = data_pool {
        values.insert(DATA_POOL, to_bytes(&pool));
    }
    let values = values
        .into_iter()
        .map(|(k, v)| (Bytes::from_static(k.as_bytes()), v));
    object.omap_set(&values.collect()).map(|()| Nothing)
}

/// The size of its objects as a power of two, and that of the image or of a snapshot.
pub(super) fn get_size(object: &mut dyn Object, snap: u64) -> Result<(u8, u64)> {
    let order = keys::require(object, ORDER)?;
    let size = match snap {
        NOSNAP => keys::require(object, SIZE)?,
        _ => snapshot_record::read(object, snap)?.image_size,
    };
    Ok((order, size))
}

/// Resizes the image. The parent is visible at most up to the new size, even if the image grows
/// again.
pub(super) fn set_size(object: &mut dyn Object, size: u64) -> Result<Nothing> {
    let old: u64 = keys::require(object, SIZE)?;
    keys::set(object, SIZE, &size)?;
    if size < old
        && let Some(mut above) = keys::get::<Parent>(object, parent::KEY)?
        && above.exists()
        && above.head_overlap.unwrap_or_default() > size
    {
        above.head_overlap = Some(size);
        keys::set(object, parent::KEY, &above)?;
    }
    Ok(Nothing)
}

pub(super) fn get_object_prefix(object: &mut dyn Object, _: Nothing) -> Result<Bytes> {
    keys::require(object, OBJECT_PREFIX)
}

/// The pool of the data; none for the header's pool.
pub(super) fn get_data_pool(object: &mut dyn Object, _: Nothing) -> Result<PoolOrNone> {
    Ok(keys::get(object, DATA_POOL)?.unwrap_or_default())
}

/// The size of an object in bytes; EINVAL for an impossible order.
fn object_size(order: u8) -> Result<u64> {
    1u64.checked_shl(order.into()).ok_or(Error::EINVAL)
}

/// How the bytes of an image are spread over objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Striping {
    /// The size of a stripe unit, in bytes.
    pub unit: u64,
    /// The number of objects that are written in turn.
    pub count: u64,
}

impl Encode for Striping {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.unit);
        w.u64(self.count);
    }
}

impl Decode for Striping {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        Ok(Self {
            unit: r.u64()?,
            count: r.u64()?,
        })
    }
}

pub(super) fn get_stripe_unit_count(object: &mut dyn Object, _: Nothing) -> Result<Striping> {
    object.stat()?;
    features::require(object, Features::STRIPINGV2)?;
    let unit = match keys::get(object, STRIPE_UNIT)? {
        Some(unit) => unit,
        None => object_size(keys::get(object, ORDER)?.ok_or(Error::EIO)?)?,
    };
    let count = keys::get(object, STRIPE_COUNT)?.unwrap_or(1);
    Ok(Striping { unit, count })
}

pub(super) fn set_stripe_unit_count(
    object: &mut dyn Object,
    Striping { unit, count }: Striping,
) -> Result<Nothing> {
    if unit == 0 || count == 0 {
        return Err(Error::EINVAL);
    }
    object.stat()?;
    features::require(object, Features::STRIPINGV2)?;
    let size = object_size(keys::require(object, ORDER)?)?;
    if !size.is_multiple_of(unit) {
        return Err(Error::EINVAL);
    }
    keys::set(object, STRIPE_UNIT, &unit)?;
    keys::set(object, STRIPE_COUNT, &count)?;
    Ok(Nothing)
}
