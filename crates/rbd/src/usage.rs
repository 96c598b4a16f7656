//! The space that images take.

use spirula_classes::rbd::object_state::EXISTS;
use spirula_classes::rbd::{Features, ImageFlags};
use spirula_client::errno;
use spirula_maps::snap::NOSNAP;

use crate::error::unless;
use crate::image::Image;
use crate::site::Site;
use crate::{DiffOptions, Error, Result, object_map};

/// The space of an image or snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes that it could take when full.
    pub provisioned: u64,
    /// Bytes that it takes beyond the snapshot before it.
    pub used: u64,
}

impl Site {
    /// The bytes of an object within an image of `size` bytes.
    fn object_bytes(&self, object: u64, size: u64) -> u64 {
        self.fixed.layout.object_len(object, size)
    }

    /// The used bytes by the object map: whole objects that were written since the snapshot before.
    async fn mapped(&self, snap: Option<u64>, size: u64) -> Result<u64> {
        let map = object_map::load(&self.io, &self.fixed.id, snap).await?;
        let written = (0..map.len()).filter(|i| map.get(*i) == EXISTS);
        Ok(written.map(|i| self.object_bytes(i, size)).sum())
    }

    /// The used bytes by asking the OSDs: the parts of objects that are not shared with the
    /// snapshot before.
    async fn scanned(&self, snap: Option<u64>, before: Option<u64>, size: u64) -> Result<u64> {
        let mut used = 0;
        for object in 0..self.objects(size) {
            let listed = self.data.list_snaps(self.fixed.object(object)).await;
            let Some(listed) = unless(listed.map_err(Error::from), errno::ENOENT)? else {
                continue;
            };
            let id = snap.unwrap_or(NOSNAP);
            let holds = |clone: &spirula_proto::osd_op_data::CloneInfo, id: u64| {
                clone.id == id || clone.snaps.contains(&id)
            };
            let at = listed.clones.iter().position(|c| holds(c, id));
            let Some(clone) = at.and_then(|i| listed.clones.get(i)) else {
                continue;
            };
            let shared = match before {
                // The same clone stands for both.
                Some(before) if holds(clone, before) => clone.size,
                Some(_) => {
                    let older = at
                        .and_then(|i| i.checked_sub(1))
                        .and_then(|i| listed.clones.get(i));
                    older.map_or(0, |o| o.overlap.iter().map(|o| o.len).sum())
                }
                None => 0,
            };
            used += clone.size.saturating_sub(shared);
        }
        Ok(used)
    }
}

impl Image {
    /// The exact space of the image, or of the snapshot that is read, beyond an earlier snapshot.
    ///
    /// # Errors
    /// As [`Image::differences`].
    pub async fn exact_usage(&self, since: Option<String>) -> Result<Usage> {
        let options = DiffOptions {
            from: since,
            own: true,
            ..DiffOptions::default()
        };
        let mut differences = self.differences(&options).await?;
        let mut used = 0;
        while let Some(difference) = differences.next().await? {
            used += if difference.has_data { difference.len } else { 0 };
        }
        Ok(Usage {
            provisioned: self.size(),
            used,
        })
    }

    /// The space of a snapshot, or of the image as it is.
    ///
    /// # Errors
    /// `ENOENT` where there is no such snapshot.
    pub async fn usage(&self, snap: Option<u64>) -> Result<Usage> {
        let inner = &self.inner;
        let header = inner.view.header();
        let size = header.size_at(snap)?;
        let flags = match snap {
            None => header.flags,
            Some(id) => header.snapshots.get(&id).map_or(ImageFlags::empty(), |s| s.flags),
        };
        let has_map = header.has(Features::FAST_DIFF);
        let before = header.snapshots.range(..snap.unwrap_or(NOSNAP)).next_back();
        let used = if has_map && !flags.contains(ImageFlags::OBJECT_MAP_INVALID) {
            inner.site.mapped(snap, size).await?
        } else {
            inner.site.scanned(snap, before.map(|(id, _)| *id), size).await?
        };
        Ok(Usage {
            provisioned: size,
            used,
        })
    }
}
