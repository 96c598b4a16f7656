//! Scans of an image's objects as the OSDs have them, to rebuild and check object maps (Ceph's
//! `src/librbd/operation/{RebuildObjectMap,ObjectMapIterate}.cc`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use spirula_classes::rbd::object_state::{EXISTS, EXISTS_CLEAN, NONEXISTENT, PENDING};
use spirula_classes::rbd::{BitVector, Features, ImageFlags};
use spirula_client::errno;
use spirula_maps::snap::NOSNAP;
use spirula_proto::osd_op_data::ListSnapsResponse;

use crate::error::unless;
use crate::header::Snapshot;
use crate::image::{Image, Inner};
use crate::message::Task;
use crate::operating::Operating;
use crate::progress::Meter;
use crate::view::View;
use crate::{Error, Progress, Result, cls, names, object_map};

/// The state of an object at a snapshot, or in the image as it is (`NOSNAP`).
fn state_at(listed: &ListSnapsResponse, at: u64, snapshots: &BTreeMap<u64, Snapshot>, has_clean: bool) -> u8 {
    let first_from = |id: u64| snapshots.range(id..).next().map_or(NOSNAP, |(id, _)| *id);
    for clone in &listed.clones {
        let (from, to) = match (clone.snaps.first(), clone.snaps.last()) {
            (Some(first), Some(last)) if clone.id != NOSNAP => (first_from(*first), *last),
            _ => (first_from(listed.seq.saturating_add(1)), NOSNAP),
        };
        if to < at {
            continue;
        }
        return match (from > at, has_clean && from != at) {
            (true, _) => NONEXISTENT,
            (false, true) => EXISTS_CLEAN,
            (false, false) => EXISTS,
        };
    }
    NONEXISTENT
}

/// Whether a map that says `said` of an object whose state `is` another may be relied on: a map may
/// name objects that do not exist, but must miss none.
fn may_stay(said: u8, is: u8) -> bool {
    said == is || is == NONEXISTENT && matches!(said, EXISTS | PENDING)
}

impl View {
    /// The state of an object at a snapshot, or now, as the OSDs know it.
    pub(crate) async fn state_of(&self, object: u64, snap: Option<u64>) -> Result<u8> {
        let header = self.header();
        let listed = self.site.data.list_snaps(self.site.fixed.object(object)).await;
        let listed = unless(listed.map_err(Error::from), errno::ENOENT)?;
        let has_clean = header.has(Features::FAST_DIFF);
        let at = snap.unwrap_or(NOSNAP);
        Ok(listed.map_or(NONEXISTENT, |listed| {
            state_at(&listed, at, &header.snapshots, has_clean)
        }))
    }

    /// Reads the state of each object, at a snapshot or now.
    async fn each_state(
        self: &Rc<Self>,
        snap: Option<u64>,
        progress: &Progress,
        told: impl Fn(u64, u8) + 'static,
    ) -> Result<()> {
        let header = self.header();
        let objects = self.site.objects(header.size_at(snap)?);
        let meter = Meter::new(progress, objects);
        let told = Rc::new(told);
        let look = self.site.limits.for_each(0..objects, |object| {
            let (view, meter, told) = (Rc::clone(self), Rc::clone(&meter), Rc::clone(&told));
            async move {
                told(object, view.state_of(object, snap).await?);
                meter.reached(object + 1)
            }
        });
        look.await
    }

    /// Fails with `EINVAL` where the image has no object map, and with `E2BIG` where the map would
    /// be larger than this client supports.
    fn check_mapped(&self, snap: Option<u64>) -> Result<u64> {
        let header = self.header();
        if !header.has(Features::OBJECT_MAP) {
            return Err(Error::os("object map", errno::EINVAL));
        }
        let objects = self.site.objects(header.size_at(snap)?);
        match objects <= self.site.limits.max_mapped {
            true => Ok(objects),
            false => Err(Error::os("object map", errno::E2BIG)),
        }
    }
}

impl Operating<'_> {
    /// Rebuilds the object map of a snapshot, or of the image, from the objects that exist. No
    /// write is under way meanwhile.
    pub(crate) async fn rebuild_map(&self, snap: Option<u64>, progress: &Progress) -> Result<()> {
        let alone = self.alone().await;
        let objects = self.view.check_mapped(snap)?;
        let mut states = BitVector::default();
        states.resize(objects, NONEXISTENT);
        let states = Rc::new(RefCell::new(states));
        let kept = Rc::clone(&states);
        let keep = move |object, state| {
            kept.borrow_mut().replace(object, object + 1, |_| state);
        };
        self.view.each_state(snap, progress, keep).await?;
        let states = states.take();
        match (snap, self.view.map()) {
            (None, Some(map)) => map.rebuilt(states).await?,
            (None, None) => return Err(Error::os("object map", errno::EROFS)),
            (Some(_), _) => {
                let oid = names::object_map(&self.site.fixed.id, snap);
                cls::tell(&self.site.io, oid, "object_map_save", &states).await?;
            }
        }
        let mask = ImageFlags::OBJECT_MAP_INVALID.with(ImageFlags::FAST_DIFF_INVALID);
        let valid = cls::rbd(
            "set_flags",
            &(ImageFlags::empty(), (mask, snap.unwrap_or(NOSNAP))),
        )?;
        self.change_header("flags", valid).await?;
        self.view.reread().await?;
        drop(alone);
        self.site.announce_header().await;
        Ok(())
    }

    /// Checks the object map of a snapshot, or of the image, against the objects that exist. A map
    /// that misses one is marked as invalid.
    pub(crate) async fn check_map(&self, snap: Option<u64>, progress: &Progress) -> Result<()> {
        let alone = self.alone().await;
        let objects = self.view.check_mapped(snap)?;
        let said = match (snap, self.view.map()) {
            (None, Some(map)) => map.states(),
            _ => object_map::load(&self.site.io, &self.site.fixed.id, snap).await?,
        };
        let is_good = Rc::new(Cell::new(said.len() >= objects));
        let good = Rc::clone(&is_good);
        let compare = move |object, state| {
            if object < said.len() && !may_stay(said.get(object), state) {
                good.set(false);
            }
        };
        self.view.each_state(snap, progress, compare).await?;
        if is_good.get() {
            return Ok(());
        }
        object_map::invalidate(
            &self.site.io,
            &self.site.fixed.id,
            self.view.header().features,
            snap,
        )
        .await?;
        if let (None, Some(map)) = (snap, self.view.map()) {
            map.distrust();
        }
        self.view.reread().await?;
        drop(alone);
        self.site.announce_header().await;
        Ok(())
    }
}

impl Image {
    /// Rebuilds the object map of a snapshot, or of the image, from the objects that exist.
    ///
    /// # Errors
    /// `EINVAL` where the image has none, `ENOENT` where there is no such snapshot, `EROFS` where
    /// it can't be written, `ECANCELED` where the progress' listener ends it.
    pub async fn rebuild_object_map(&self, snap: Option<u64>, progress: &Progress) -> Result<()> {
        let progress = progress.clone();
        match snap {
            None => self.operate(Task::RebuildObjectMap, progress).await,
            Some(_) => {
                let rebuild = |inner: Rc<Inner>| async move {
                    inner.begin_operation().await?.rebuild_map(snap, &progress).await
                };
                self.inner.start(rebuild).await
            }
        }
    }

    /// Checks the object map of a snapshot, or of the image, against the objects that exist. Where
    /// it misses one, the header marks it as invalid from now on.
    ///
    /// # Errors
    /// As [`Image::rebuild_object_map`].
    pub async fn check_object_map(&self, snap: Option<u64>, progress: &Progress) -> Result<()> {
        let progress = progress.clone();
        let check =
            |inner: Rc<Inner>| async move { inner.begin_operation().await?.check_map(snap, &progress).await };
        self.inner.start(check).await
    }
}

#[cfg(test)]
mod tests {
    use spirula_classes::rbd::SnapshotNamespace;
    use spirula_denc::UTime;
    use spirula_proto::osd_op_data::CloneInfo;

    use super::*;

    /// Written before snapshot 4, again between 4 and 6, removed before 8, written again: 4, 6 and
    /// 8 are snapshots of the image.
    #[test]
    fn an_object_is_as_it_was_since_the_snapshot_before() {
        let clone = |id: u64, snaps: &[u64]| CloneInfo {
            id,
            snaps: snaps.to_vec(),
            overlap: Vec::new(),
            size: 1,
        };
        let listed = ListSnapsResponse {
            seq: 8,
            clones: vec![clone(4, &[4]), clone(6, &[6]), clone(NOSNAP, &[])],
        };
        let snapshot = |id: u64| {
            let snapshot = Snapshot {
                id,
                name: id.to_string(),
                namespace: SnapshotNamespace::User,
                size: 1,
                timestamp: UTime::default(),
                children: 0,
                protected: false,
                flags: ImageFlags::empty(),
                parent_overlap: None,
            };
            (id, snapshot)
        };
        let snapshots = [4, 6, 8].map(snapshot).into();
        let state = |at, has_clean| state_at(&listed, at, &snapshots, has_clean);
        assert_eq!(
            [4, 6, 8, NOSNAP].map(|at| state(at, true)),
            [EXISTS, EXISTS, NONEXISTENT, EXISTS]
        );
        let untouched = ListSnapsResponse {
            seq: 4,
            clones: vec![clone(4, &[4]), clone(NOSNAP, &[])],
        };
        let state = |at, has_clean| state_at(&untouched, at, &snapshots, has_clean);
        assert_eq!(
            [4, 6, 8, NOSNAP].map(|at| state(at, true)),
            [EXISTS, EXISTS, EXISTS_CLEAN, EXISTS_CLEAN]
        );
        assert_eq!([4, 6, 8, NOSNAP].map(|at| state(at, false)), [EXISTS; 4]);
    }

    #[test]
    fn a_map_may_name_what_there_is_not_and_nothing_else() {
        assert!(may_stay(EXISTS, NONEXISTENT) && may_stay(PENDING, NONEXISTENT) && may_stay(EXISTS, EXISTS));
        assert!(
            !may_stay(NONEXISTENT, EXISTS)
                && !may_stay(EXISTS_CLEAN, EXISTS)
                && !may_stay(EXISTS, EXISTS_CLEAN)
        );
    }
}
