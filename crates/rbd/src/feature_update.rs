//! Features that come and go while an image is in use (Ceph's
//! `src/librbd/operation/{Enable,Disable}FeaturesRequest.cc`).

use spirula_classes::rbd::features::{
    DEEP_FLATTEN, EXCLUSIVE_LOCK, FAST_DIFF, FeatureChange, JOURNALING, OBJECT_MAP,
};
use spirula_classes::rbd::object_state::NONEXISTENT;
use spirula_client::errno;
use spirula_maps::snap::NOSNAP;

use crate::bounds::MAX_MAPPED;
use crate::cls::{self, tell};
use crate::error::unless;
use crate::header::{FLAG_FAST_DIFF_INVALID, FLAG_OBJECT_MAP_INVALID, Header};
use crate::image::Image;
use crate::journal::{self, Operation};
use crate::message::Task;
use crate::mirror::{self, MIRROR_BY_JOURNAL, MIRROR_MODE_IMAGE, disable, mirror_mode, mirrored_image};
use crate::operating::Operating;
use crate::{Error, JournalOptions, Progress, Result, names};

/// Features that users may enable and disable.
const MUTABLE: u64 = EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING;
/// Features that users may only disable.
const DISABLE_ONLY: u64 = DEEP_FLATTEN;
/// Features that are only on or off together.
const MAPS: u64 = OBJECT_MAP | FAST_DIFF;

fn invalid() -> Error {
    Error::os("features", errno::EINVAL)
}

/// The features that change when a user enables or disables `features`.
fn wanted(header: &Header, mut features: u64, enabled: bool) -> Result<u64> {
    let allowed = if enabled { MUTABLE } else { MUTABLE | DISABLE_ONLY };
    if features & !allowed != 0 {
        return Err(invalid());
    }
    if features & MAPS != 0 {
        features |= MAPS;
    }
    let present = header.features & features;
    let is_done = if enabled {
        present != 0
    } else {
        present != features
    };
    match features == 0 || is_done {
        true => Err(invalid()),
        false => Ok(features),
    }
}

/// The flags that mark these features' data as not to be relied on.
fn flags(features: u64) -> u64 {
    let flag = |feature, flag| if features & feature != 0 { flag } else { 0 };
    flag(OBJECT_MAP, FLAG_OBJECT_MAP_INVALID) | flag(FAST_DIFF, FLAG_FAST_DIFF_INVALID)
}

/// The snapshots with their sizes, and the image itself.
fn maps(header: &Header) -> Vec<(Option<u64>, u64)> {
    let snapshots = header.snapshots.values().map(|s| (Some(s.id), s.size));
    snapshots.chain([(None, header.size)]).collect()
}

impl Operating<'_> {
    /// Enables or disables features, as far as they are not yet so.
    pub(crate) async fn update_features(self, features: u64, enabled: bool) -> Result<()> {
        match enabled {
            true => self.enable(features).await?,
            false => self.disable(features).await?,
        }
        let image = self.image;
        drop(self);
        if !image.view.header().has(EXCLUSIVE_LOCK) {
            image.release().await?;
        }
        image.site.announce_header().await;
        Ok(())
    }

    async fn enable(&self, features: u64) -> Result<()> {
        let alone = self.alone().await;
        let header = self.view.header();
        let mut new = features & !header.features;
        if new & MAPS != 0 {
            new |= MAPS;
        }
        let all = header.features | new;
        if all & EXCLUSIVE_LOCK == 0 && new & (MAPS | JOURNALING) != 0 {
            return Err(invalid());
        }
        if new & OBJECT_MAP != 0 && self.site.objects(header.size) > MAX_MAPPED {
            return Err(invalid());
        }
        if new & JOURNALING != 0 {
            mirror::check_unmirrored(&self.site.io).await?;
            let options = self.image.journal_options.borrow().clone();
            journal::create(&self.site.io, &self.site.fixed.id, &options).await?;
        }
        let operation = Operation::UpdateFeatures {
            features,
            enabled: true,
        };
        self.noted(operation, self.set_enabled(&header, new)).await?;
        self.view.reread().await?;
        self.image.follow_features().await?;
        drop(alone);
        Ok(())
    }

    async fn set_enabled(&self, header: &Header, new: u64) -> Result<()> {
        let flags = flags(new);
        self.set_flags(header, flags, flags).await?;
        if new & OBJECT_MAP != 0 {
            // The new maps' content is not known yet, which the flags say.
            for (snap, size) in maps(header) {
                let input = (self.site.objects(size), NONEXISTENT);
                let oid = names::object_map(&self.site.fixed.id, snap);
                tell(&self.site.io, oid, "object_map_resize", &input).await?;
            }
        }
        self.set_features(header.features | new, new).await
    }

    async fn disable(&self, features: u64) -> Result<()> {
        let alone = self.alone().await;
        let header = self.view.header();
        let mut old = features & header.features;
        if old & MAPS != 0 {
            old |= MAPS & header.features;
        }
        let rest = header.features & !old;
        if old & EXCLUSIVE_LOCK != 0 && rest & (MAPS | JOURNALING) != 0 {
            return Err(invalid());
        }
        if old & JOURNALING != 0 {
            self.end_mirroring_by_journal(&header).await?;
            // All that it tells of is done, and nobody is under way.
            self.image.lock.close_journal().await;
        }
        let operation = Operation::UpdateFeatures {
            features,
            enabled: false,
        };
        self.noted(operation, self.set_disabled(&header, old)).await?;
        self.view.reread().await?;
        drop(alone);
        Ok(())
    }

    async fn set_disabled(&self, header: &Header, old: u64) -> Result<()> {
        if old & OBJECT_MAP != 0 {
            self.view.set_map(None);
        }
        self.set_features(header.features & !old, old).await?;
        // Removes objects that no client reads any more.
        if old & JOURNALING != 0 {
            journal::remove(&self.site.io, &self.site.fixed.id).await?;
        }
        if old & OBJECT_MAP != 0 {
            for (snap, _) in maps(header) {
                let removed = self
                    .site
                    .io
                    .remove(names::object_map(&self.site.fixed.id, snap))
                    .await;
                unless(removed.map_err(Error::from), errno::ENOENT)?;
            }
        }
        self.set_flags(header, 0, flags(old)).await
    }

    /// Ends the mirroring of an image by its journal, in a pool that is mirrored as a whole.
    /// `EINVAL` where images are chosen one by one: these keep their journals.
    async fn end_mirroring_by_journal(&self, header: &Header) -> Result<()> {
        let mirrored = mirrored_image(&self.site.io, &self.site.fixed.id).await?;
        if mirrored.is_none_or(|m| m.mode != MIRROR_BY_JOURNAL) {
            return Ok(());
        }
        if mirror_mode(&self.site.io).await? == MIRROR_MODE_IMAGE {
            return Err(invalid());
        }
        match disable::removable(&self.site.io, &self.site.fixed.id, header).await? {
            Some(mirrored) => self.end_mirroring(mirrored).await,
            None => Ok(()),
        }
    }

    async fn set_features(&self, new: u64, mask: u64) -> Result<()> {
        let set = cls::rbd("set_features", &FeatureChange { new, mask })?;
        self.change_header("features", set).await
    }

    /// Sets flags of the image and all its snapshots.
    async fn set_flags(&self, header: &Header, flags: u64, mask: u64) -> Result<()> {
        if mask == 0 {
            return Ok(());
        }
        for (snap, _) in maps(header) {
            let set = cls::rbd("set_flags", &(flags, (mask, snap.unwrap_or(NOSNAP))))?;
            self.change_header("flags", set).await?;
        }
        Ok(())
    }
}

impl Image {
    /// Enables or disables features of an image. `object-map` and `fast-diff` change together; a
    /// new object map has to be rebuilt before it is relied on.
    ///
    /// # Errors
    /// `EINVAL` where one of them is so already or never changes, or another feature needs it or is
    /// needed by it; `EOPNOTSUPP` for a journal in a pool all of whose images are mirrored; `EROFS`
    /// where the image can't be written.
    pub async fn update_features(
        &self,
        features: u64,
        enabled: bool,
        journal: &JournalOptions,
    ) -> Result<()> {
        self.refresh().await?;
        if self.is_read_only() {
            return Err(Error::os("features", errno::EROFS));
        }
        let features = wanted(&self.header(), features, enabled)?;
        self.inner.journal_options.replace(journal.clone());
        self.operate(Task::UpdateFeatures { features, enabled }, Progress::untold())
            .await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use spirula_classes::rbd::features::LAYERING;

    use super::*;

    fn with(features: u64) -> Header {
        Header {
            size: 0,
            features,
            op_features: 0,
            flags: 0,
            snap_seq: 0,
            snapshots: BTreeMap::new(),
            parent: None,
        }
    }

    #[test]
    fn only_what_changes_and_may_change_is_wanted() {
        let usual = with(LAYERING | EXCLUSIVE_LOCK | MAPS | DEEP_FLATTEN);
        let bare = with(LAYERING | EXCLUSIVE_LOCK);
        let good = |header: &Header, features, enabled| wanted(header, features, enabled).ok();
        assert_eq!(good(&usual, OBJECT_MAP, false), Some(MAPS));
        assert_eq!(good(&bare, FAST_DIFF, true), Some(MAPS));
        assert_eq!(good(&usual, DEEP_FLATTEN, false), Some(DEEP_FLATTEN));
        assert_eq!(
            good(&bare, JOURNALING | OBJECT_MAP, true),
            Some(JOURNALING | MAPS)
        );
        for (header, features, enabled) in [
            (&usual, OBJECT_MAP, true),
            (&bare, OBJECT_MAP, false),
            (&bare, DEEP_FLATTEN, true),
            (&usual, LAYERING, false),
            (&usual, JOURNALING | EXCLUSIVE_LOCK, true),
            (&usual, 0, true),
        ] {
            assert_eq!(good(header, features, enabled), None, "{features} {enabled}");
        }
    }
}
