//! Features that come and go while an image is in use (Ceph's
//! `src/librbd/operation/{Enable,Disable}FeaturesRequest.cc`).

use spirula_classes::rbd::object_state::NONEXISTENT;
use spirula_classes::rbd::{FeatureChange, Features, ImageFlags};
use spirula_client::errno;
use spirula_maps::snap::NOSNAP;

use crate::bounds::MAX_MAPPED;
use crate::cls::{self, tell};
use crate::error::unless;
use crate::header::Header;
use crate::image::Image;
use crate::journal::{self, Operation};
use crate::message::Task;
use crate::mirror::{self, MIRROR_BY_JOURNAL, MIRROR_MODE_IMAGE, disable, mirror_mode, mirrored_image};
use crate::operating::Operating;
use crate::{Error, JournalOptions, Progress, Result, names};

/// Features that users may enable and disable.
const MUTABLE: Features = Features::EXCLUSIVE_LOCK
    .with(Features::OBJECT_MAP)
    .with(Features::FAST_DIFF)
    .with(Features::JOURNALING);
/// Features that users may only disable.
const DISABLE_ONLY: Features = Features::DEEP_FLATTEN;
/// Features that are only on or off together.
const MAPS: Features = Features::OBJECT_MAP.with(Features::FAST_DIFF);

fn invalid() -> Error {
    Error::os("features", errno::EINVAL)
}

/// The features that change when a user enables or disables `features`.
fn wanted(header: &Header, mut features: Features, enabled: bool) -> Result<Features> {
    let allowed = if enabled {
        MUTABLE
    } else {
        MUTABLE.with(DISABLE_ONLY)
    };
    if !allowed.contains(features) {
        return Err(invalid());
    }
    if features.intersects(MAPS) {
        features.insert(MAPS);
    }
    let present = header.features.intersection(features);
    let is_done = if enabled {
        !present.is_empty()
    } else {
        present != features
    };
    match features.is_empty() || is_done {
        true => Err(invalid()),
        false => Ok(features),
    }
}

/// The flags that mark these features' data as not to be relied on.
fn flags(features: Features) -> ImageFlags {
    let mut flags = ImageFlags::empty();
    if features.contains(Features::OBJECT_MAP) {
        flags.insert(ImageFlags::OBJECT_MAP_INVALID);
    }
    if features.contains(Features::FAST_DIFF) {
        flags.insert(ImageFlags::FAST_DIFF_INVALID);
    }
    flags
}

/// The snapshots with their sizes, and the image itself.
fn maps(header: &Header) -> Vec<(Option<u64>, u64)> {
    let snapshots = header.snapshots.values().map(|s| (Some(s.id), s.size));
    snapshots.chain([(None, header.size)]).collect()
}

impl Operating<'_> {
    /// Enables or disables features, as far as they are not yet so.
    pub(crate) async fn update_features(self, features: Features, enabled: bool) -> Result<()> {
        match enabled {
            true => self.enable(features).await?,
            false => self.disable(features).await?,
        }
        let image = self.image;
        drop(self);
        if !image.view.header().has(Features::EXCLUSIVE_LOCK) {
            image.release().await?;
        }
        image.site.announce_header().await;
        Ok(())
    }

    async fn enable(&self, features: Features) -> Result<()> {
        let alone = self.alone().await;
        let header = self.view.header();
        let mut new = features.without(header.features);
        if new.intersects(MAPS) {
            new.insert(MAPS);
        }
        let all = header.features.with(new);
        if !all.contains(Features::EXCLUSIVE_LOCK) && new.intersects(MAPS.with(Features::JOURNALING)) {
            return Err(invalid());
        }
        if new.contains(Features::OBJECT_MAP) && self.site.objects(header.size) > MAX_MAPPED {
            return Err(invalid());
        }
        if new.contains(Features::JOURNALING) {
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

    async fn set_enabled(&self, header: &Header, new: Features) -> Result<()> {
        let flags = flags(new);
        self.set_flags(header, flags, flags).await?;
        if new.contains(Features::OBJECT_MAP) {
            // The new maps' content is not known yet, which the flags say.
            for (snap, size) in maps(header) {
                let input = (self.site.objects(size), NONEXISTENT);
                let oid = names::object_map(&self.site.fixed.id, snap);
                tell(&self.site.io, oid, "object_map_resize", &input).await?;
            }
        }
        self.set_features(header.features.with(new), new).await
    }

    async fn disable(&self, features: Features) -> Result<()> {
        let alone = self.alone().await;
        let header = self.view.header();
        let mut old = features.intersection(header.features);
        if old.intersects(MAPS) {
            old.insert(MAPS.intersection(header.features));
        }
        let rest = header.features.without(old);
        if old.contains(Features::EXCLUSIVE_LOCK) && rest.intersects(MAPS.with(Features::JOURNALING)) {
            return Err(invalid());
        }
        if old.contains(Features::JOURNALING) {
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

    async fn set_disabled(&self, header: &Header, old: Features) -> Result<()> {
        if old.contains(Features::OBJECT_MAP) {
            self.view.set_map(None);
        }
        self.set_features(header.features.without(old), old).await?;
        // Removes objects that no client reads any more.
        if old.contains(Features::JOURNALING) {
            journal::remove(&self.site.io, &self.site.fixed.id).await?;
        }
        if old.contains(Features::OBJECT_MAP) {
            for (snap, _) in maps(header) {
                let removed = self
                    .site
                    .io
                    .remove(names::object_map(&self.site.fixed.id, snap))
                    .await;
                unless(removed.map_err(Error::from), errno::ENOENT)?;
            }
        }
        self.set_flags(header, ImageFlags::empty(), flags(old)).await
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

    async fn set_features(&self, new: Features, mask: Features) -> Result<()> {
        let set = cls::rbd("set_features", &FeatureChange { new, mask })?;
        self.change_header("features", set).await
    }

    /// Sets flags of the image and all its snapshots.
    async fn set_flags(&self, header: &Header, flags: ImageFlags, mask: ImageFlags) -> Result<()> {
        if mask.is_empty() {
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
        features: Features,
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

    use spirula_classes::rbd::OpFeatures;

    use super::*;

    fn with(features: Features) -> Header {
        Header {
            size: 0,
            features,
            op_features: OpFeatures::empty(),
            flags: ImageFlags::empty(),
            snap_seq: 0,
            snapshots: BTreeMap::new(),
            parent: None,
        }
    }

    #[test]
    fn only_what_changes_and_may_change_is_wanted() {
        let usual = with(
            Features::LAYERING
                .with(Features::EXCLUSIVE_LOCK)
                .with(MAPS)
                .with(Features::DEEP_FLATTEN),
        );
        let bare = with(Features::LAYERING.with(Features::EXCLUSIVE_LOCK));
        let good = |header: &Header, features, enabled| wanted(header, features, enabled).ok();
        assert_eq!(good(&usual, Features::OBJECT_MAP, false), Some(MAPS));
        assert_eq!(good(&bare, Features::FAST_DIFF, true), Some(MAPS));
        assert_eq!(
            good(&usual, Features::DEEP_FLATTEN, false),
            Some(Features::DEEP_FLATTEN)
        );
        assert_eq!(
            good(&bare, Features::JOURNALING.with(Features::OBJECT_MAP), true),
            Some(Features::JOURNALING.with(MAPS))
        );
        for (header, features, enabled) in [
            (&usual, Features::OBJECT_MAP, true),
            (&bare, Features::OBJECT_MAP, false),
            (&bare, Features::DEEP_FLATTEN, true),
            (&usual, Features::LAYERING, false),
            (&usual, Features::JOURNALING.with(Features::EXCLUSIVE_LOCK), true),
            (&usual, Features::empty(), true),
        ] {
            assert_eq!(good(header, features, enabled), None, "{features} {enabled}");
        }
    }
}
