//! Ends the mirroring of a removed image (Ceph's `src/librbd/mirror/DisableRequest.cc`).

use std::rc::Rc;

use spirula_classes::rbd::{MirrorImage, MirrorImageState, SnapshotNamespace};
use spirula_client::{IoCtx, errno};
use spirula_denc::Writer;

use super::{MIRROR_BY_JOURNAL, MIRROR_BY_SNAPSHOTS, PRIMARY, mirror_snapshots, mirrored_image};
use crate::cls::{announce, tell};
use crate::error::unless;
use crate::header::{Header, text};
use crate::image::Inner;
use crate::{Error, Result, journal, names};

/// The type of the notification about one image.
const IMAGE_UPDATED: u32 = 1;

/// Checks whether mirroring allows the removal of an image. Returns its record if it is mirrored.
///
/// # Errors
/// `EINVAL` where the primary image is elsewhere.
pub(crate) async fn removable(io: &IoCtx, id: &str, header: &Header) -> Result<Option<MirrorImage>> {
    let Some(image) = mirrored_image(io, id).await? else {
        return Ok(None);
    };
    let primary = match image.mode {
        // Without any snapshot nobody says otherwise.
        MIRROR_BY_SNAPSHOTS => mirror_snapshots(header)
            .next_back()
            .is_none_or(|(_, newest)| newest.state == PRIMARY),
        MIRROR_BY_JOURNAL => journal::is_primary(io, id).await?,
        _ => return Err(Error::os("mirror", errno::EOPNOTSUPP)),
    };
    match primary {
        true => Ok(Some(image)),
        false => Err(Error::os("mirror", errno::EINVAL)),
    }
}

impl Inner {
    /// Ends the mirroring of a removed image; the peers then remove their copies.
    pub(crate) async fn end_mirroring(self: &Rc<Self>, mut image: MirrorImage) -> Result<()> {
        let id = &self.fixed.id;
        if image.state != MirrorImageState::DISABLING {
            image.state = MirrorImageState::DISABLING;
            let set = (id.clone(), image.clone());
            tell(&self.io, names::MIRRORING, "mirror_image_set", &set).await?;
            self.announce_mirroring(&image).await;
        }
        let header = self.header();
        for snapshot in header.snapshots.values() {
            if matches!(snapshot.namespace, SnapshotNamespace::Mirror(_)) {
                self.remove_snapshot(&snapshot.name, &snapshot.namespace).await?;
            }
        }
        let removed = tell(&self.io, names::MIRRORING, "mirror_image_remove", id).await;
        unless(removed, errno::ENOENT)?;
        image.state = MirrorImageState::DISABLED;
        self.announce_mirroring(&image).await;
        Ok(())
    }

    /// Notifies the watchers of the pool's mirroring.
    async fn announce_mirroring(&self, image: &MirrorImage) {
        let mut w = Writer::new();
        w.section(1, 1, |w| {
            w.u32(IMAGE_UPDATED);
            w.u32(u32::from(image.state.0));
            w.string(&self.fixed.id);
            w.string(&text(&image.global_id));
        });
        announce(&self.io, names::MIRRORING, w.into_vec()).await;
    }
}
