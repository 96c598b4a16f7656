//! The migration of an image to another pool, format or layout: the record in the headers of source
//! and destination.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer};
use spirula_maps::PoolOrNone;

use super::features::{self, Features};
use super::keys;
use crate::method::Nothing;
use crate::{Error, Object, Result};

/// The key of the record.
const KEY: &str = "migration";

/// The record is in the source's header.
pub const SOURCE: u8 = 1;
/// The record is in the destination's header.
pub const DESTINATION: u8 = 2;

/// The states of a migration (`MigrationState`).
pub mod state {
    /// The destination is being made.
    pub const PREPARING: u8 = 1;
    /// Clients use the destination, which shows the source's data.
    pub const PREPARED: u8 = 2;
    /// The source's data is being copied.
    pub const EXECUTING: u8 = 3;
    /// The destination does not need the source any more.
    pub const EXECUTED: u8 = 4;
    /// The migration is being aborted.
    pub const ABORTING: u8 = 5;
}

/// The first bytes of headers of the first format; a NUL follows.
const OLD_HEADER: &[u8; 33] = b"<<< Rados Block Device Image >>>\n";
/// The first bytes of such a header during a migration, so that clients that do not know of it
/// refuse the image.
const OLD_HEADER_MIGRATING: &[u8; 33] = b"<<< Migrating RBD Image      >>>\n";

/// A migration: `MigrationSpec` of Ceph's `src/cls/rbd/cls_rbd_types.h`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Whether this is the header of the source or of the destination.
    pub header_type: u8,
    /// The pool of the other image; none where the source is no image of this cluster.
    pub pool_id: PoolOrNone,
    /// The namespace in it.
    pub pool_namespace: Bytes,
    /// The other image's name.
    pub image_name: Bytes,
    /// The other image's id; empty for the first format.
    pub image_id: Bytes,
    /// The destination's snapshots by the source's.
    pub snap_seqs: BTreeMap<u64, u64>,
    /// Bytes of the source that the destination shows.
    pub overlap: u64,
    /// Whether data of the source's parent is copied as well.
    pub flatten: bool,
    /// Whether the source was mirrored.
    pub mirroring: bool,
    /// The state, one of [`state`].
    pub state: u8,
    /// The state in words.
    pub state_description: Bytes,
    /// The mirroring mode of the source.
    pub mirror_image_mode: u8,
    /// The source as JSON, if it is no image of this cluster.
    pub source_spec: Bytes,
}

/// The first version with sources that are no images; clients that do not know it refuse the image.
const WITH_SOURCE: u8 = 3;

// By hand: the compat version depends on the source.
impl Encode for Migration {
    fn encode(&self, w: &mut Writer) {
        let compat = if self.source_spec.is_empty() {
            1
        } else {
            WITH_SOURCE
        };
        w.section(WITH_SOURCE, compat, |w| {
            w.u8(self.header_type);
            w.put(&self.pool_id);
            w.put(&self.pool_namespace);
            w.put(&self.image_name);
            w.put(&self.image_id);
            w.put(&self.snap_seqs);
            w.u64(self.overlap);
            w.bool(self.flatten);
            w.bool(self.mirroring);
            w.u8(self.state);
            w.put(&self.state_description);
            w.u8(self.mirror_image_mode);
            w.put(&self.source_spec);
        });
    }
}

impl Decode for Migration {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("MigrationSpec", WITH_SOURCE, |version, r| {
            Ok(Self {
                header_type: r.u8()?,
                pool_id: r.get()?,
                pool_namespace: r.get()?,
                image_name: r.get()?,
                image_id: r.get()?,
                snap_seqs: r.get()?,
                overlap: r.u64()?,
                flatten: r.bool()?,
                mirroring: r.bool()?,
                state: r.u8()?,
                state_description: r.get()?,
                mirror_image_mode: if version >= 2 { r.u8()? } else { 0 },
                source_spec: if version >= WITH_SOURCE {
                    r.get()?
                } else {
                    Bytes::new()
                },
            })
        })
    }
}

/// Whether a header of the first format is marked as migrating; ENXIO where there is none.
fn is_old_migrating(object: &mut dyn Object) -> Result<bool> {
    let text = object.read(0, OLD_HEADER.len() as u64 + 1)?;
    match text.strip_suffix(&[0]) {
        Some(text) if text == OLD_HEADER => Ok(false),
        Some(text) if text == OLD_HEADER_MIGRATING => Ok(true),
        _ => Err(Error::ENXIO),
    }
}

pub(super) fn set(object: &mut dyn Object, new: Migration) -> Result<Nothing> {
    if keys::has(object, KEY)? {
        return Err(Error::EEXIST);
    }
    match features::read(object)? {
        None => {
            if is_old_migrating(object)? {
                return Err(Error::EEXIST);
            }
            if new.header_type != SOURCE {
                return Err(Error::EINVAL);
            }
            object.write(0, Bytes::from_static(OLD_HEADER_MIGRATING))?;
        }
        Some(have) if !have.contains(Features::MIGRATING) => {
            features::write(object, have.with(Features::MIGRATING))?;
        }
        Some(_) if new.header_type != DESTINATION => return Err(Error::EEXIST),
        Some(_) => {}
    }
    keys::set(object, KEY, &new).map(|()| Nothing)
}

/// The migration; EINVAL where the image is not being migrated.
fn read(object: &mut dyn Object) -> Result<Migration> {
    let is_migrating = match features::read(object)? {
        None => is_old_migrating(object)?,
        Some(have) => have.contains(Features::MIGRATING),
    };
    match is_migrating {
        true => keys::require(object, KEY),
        false => Err(Error::EINVAL),
    }
}

pub(super) fn set_state(object: &mut dyn Object, (state, description): (u8, Bytes)) -> Result<Nothing> {
    let migration = Migration {
        state,
        state_description: description,
        ..read(object)?
    };
    keys::set(object, KEY, &migration).map(|()| Nothing)
}

pub(super) fn get(object: &mut dyn Object, _: Nothing) -> Result<Migration> {
    read(object)
}

pub(super) fn remove(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    keys::remove_any(object, KEY)?;
    match features::read(object)? {
        None => {
            if !is_old_migrating(object)? {
                return Err(Error::EINVAL);
            }
            object.write(0, Bytes::from_static(OLD_HEADER))?;
        }
        Some(have) if have.contains(Features::MIGRATING) => {
            features::write(object, have.without(Features::MIGRATING))?;
        }
        Some(_) => {}
    }
    Ok(Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{input, to_bytes};
    use crate::testing::World;

    /// As `rbd migration prepare --import-only` of 16.2 writes it: its pool is -1.
    #[test]
    fn an_imported_image_has_no_pool() {
        let spec = Migration {
            header_type: DESTINATION,
            pool_id: PoolOrNone::NONE,
            pool_namespace: Bytes::new(),
            image_name: Bytes::new(),
            image_id: Bytes::new(),
            snap_seqs: BTreeMap::new(),
            overlap: 0,
            flatten: false,
            mirroring: false,
            state: state::PREPARED,
            state_description: Bytes::new(),
            mirror_image_mode: 0,
            source_spec: Bytes::from_static(br#"{"type":"raw"}"#),
        };
        let written = to_bytes(&spec);
        // A section's head of six bytes, the kind of the header, the pool.
        assert_eq!(written[7..15], [0xff; 8]);
        let mut world = World::default();
        let (size, order, layering) = (1u64 << 20, 22u8, 1u64);
        let image = (size, (order, (layering, Bytes::from_static(b"rbd_data.1"))));
        assert_eq!(world.call("rbd", "create", &to_bytes(&image)).0, 0);
        assert_eq!(world.call("rbd", "migration_set", &written).0, 0);
        let (rc, read) = world.call("rbd", "migration_get", &[]);
        assert_eq!((rc, input::<Migration>(&read).ok()), (0, Some(spec)));
    }
}
