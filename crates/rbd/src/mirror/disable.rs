//! Ends the mirroring of a removed image (Ceph's `src/librbd/mirror/DisableRequest.cc`).

use std::rc::Rc;

use spirula_classes::rbd::{MirrorImage, MirrorImageState};
use spirula_client::{IoCtx, errno};
use spirula_denc::Writer;

use super::{MIRROR_BY_JOURNAL, MIRROR_BY_SNAPSHOTS, PRIMARY, mirror_snapshots, mirrored_image};
use crate::cls::{announce, tell};
use crate::error::unless;
use crate::header::{Header, text};
use crate::image::Inner;
use crate::operating::Operating;
use crate::site::Site;
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

impl Site {
    /// Tells the peers that an image is not mirrored any more. Its mirror snapshots go then.
    async fn begin_end_of_mirroring(&self, image: &mut MirrorImage) -> Result<()> {
        if image.state == MirrorImageState::DISABLING {
            return Ok(());
        }
        image.state = MirrorImageState::DISABLING;
        let set = (self.fixed.id.clone(), image.clone());
        tell(&self.io, names::MIRRORING, "mirror_image_set", &set).await?;
        self.announce_mirroring(image).await;
        Ok(())
    }

    /// Removes the record of an image that is not mirrored any more.
    async fn finish_end_of_mirroring(&self, image: &mut MirrorImage) -> Result<()> {
        let removed = tell(&self.io, names::MIRRORING, "mirror_image_remove", &self.fixed.id).await;
        unless(removed, errno::ENOENT)?;
        image.state = MirrorImageState::DISABLED;
        self.announce_mirroring(image).await;
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

impl Inner {
    /// Ends the mirroring of a removed image; the peers then remove their copies.
    pub(crate) async fn end_mirroring(self: &Rc<Self>, mut image: MirrorImage) -> Result<()> {
        self.site.begin_end_of_mirroring(&mut image).await?;
        for (snapshot, _) in mirror_snapshots(&self.view.header()) {
            let operation = self.begin_operation().await?;
            operation
                .remove_snapshot(&snapshot.name, &snapshot.namespace)
                .await?;
        }
        self.site.finish_end_of_mirroring(&mut image).await
    }
}

impl Operating<'_> {
    /// Ends the mirroring of the image within an operation; the peers then remove their copies.
    pub(crate) async fn end_mirroring(&self, mut image: MirrorImage) -> Result<()> {
        self.site.begin_end_of_mirroring(&mut image).await?;
        for (snapshot, _) in mirror_snapshots(&self.view.header()) {
            self.remove_snapshot(&snapshot.name, &snapshot.namespace).await?;
        }
        self.site.finish_end_of_mirroring(&mut image).await
    }
}
