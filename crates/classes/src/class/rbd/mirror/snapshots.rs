//! Mirror snapshots, in the images' headers.

use bytes::Bytes;

use super::super::arguments::arguments;
use super::super::snapshot_namespace::{MirrorSnapshot, SnapshotNamespace};
use super::super::snapshot_record;
use crate::method::Nothing;
use crate::{Error, Object, Result};

/// The state of a snapshot that is copied from the primary image.
const NON_PRIMARY: u8 = 2;
/// The state of a copied snapshot that was the last one of a demoted image.
const NON_PRIMARY_DEMOTED: u8 = 3;

/// Changes the mirroring data of a snapshot; EINVAL where it is no mirror snapshot.
fn update(
    object: &mut dyn Object,
    id: u64,
    change: impl FnOnce(&mut MirrorSnapshot) -> Result<()>,
) -> Result<Nothing> {
    let mut snap = snapshot_record::read(object, id)?;
    let SnapshotNamespace::Mirror(mirror) = &mut snap.namespace else {
        return Err(Error::EINVAL);
    };
    change(mirror)?;
    snapshot_record::write(object, id, snap).map(|()| Nothing)
}

/// Notes that a peer does not need the snapshot any more.
pub(crate) fn unlink_peer(object: &mut dyn Object, (id, peer): (u64, Bytes)) -> Result<Nothing> {
    update(object, id, |mirror| match mirror.peers.remove(&peer) {
        true => Ok(()),
        false => Err(Error::ENOENT),
    })
}

arguments! {
    /// Input of `mirror_image_snapshot_set_copy_progress`.
    pub(crate) struct Progress {
        pub(super) id: u64,
        pub(super) complete: bool,
        pub(super) last_copied_object_number: u64,
    }
}

pub(crate) fn set_copy_progress(object: &mut dyn Object, op: Progress) -> Result<Nothing> {
    update(object, op.id, |mirror| {
        mirror.complete = op.complete;
        if matches!(mirror.state, NON_PRIMARY | NON_PRIMARY_DEMOTED) {
            mirror.last_copied_object_number = op.last_copied_object_number;
        }
        Ok(())
    })
}
