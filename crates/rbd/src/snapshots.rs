//! Snapshots of images.

use std::ops::Bound;
use std::rc::Rc;

use spirula_classes::rbd::object_state::{EXISTS, EXISTS_CLEAN, NONEXISTENT};
use spirula_classes::rbd::protection::{PROTECTED, UNPROTECTED, UNPROTECTING};
use spirula_classes::rbd::{BitVector, Features, ImageFlags, SnapshotNamespace};
use spirula_client::errno;

use crate::clones::listed_in_pools;
use crate::cls::{Nothing, ask, tell};
use crate::error::unless;
use crate::header::{Header, Snapshot};
use crate::image::{Image, Inner};
use crate::journal::Operation;
use crate::message::Task;
use crate::object_map::{self, invalidate};
use crate::operating::Operating;
use crate::{Error, Progress, Result, cls, names};

/// Stands for an unlimited number of snapshots.
pub const NO_LIMIT: u64 = u64::MAX;

fn found<'a>(header: &'a Header, name: &str, namespace: &SnapshotNamespace) -> Result<&'a Snapshot> {
    let snap = header.snapshot(name, namespace);
    snap.ok_or(Error::os("snapshot", errno::ENOENT))
}

/// Fails with `EOPNOTSUPP` where a client does not take snapshots of this kind.
pub(crate) fn check_namespace(namespace: &SnapshotNamespace) -> Result<()> {
    match namespace {
        SnapshotNamespace::User | SnapshotNamespace::Group { .. } | SnapshotNamespace::Mirror(_) => Ok(()),
        _ => Err(Error::os("snapshot", errno::EOPNOTSUPP)),
    }
}

impl Operating<'_> {
    /// Takes a snapshot.
    pub(crate) async fn create_snapshot(&self, name: &str, namespace: &SnapshotNamespace) -> Result<()> {
        if self.view.header().snapshot(name, namespace).is_some() {
            return Err(Error::os("snapshot", errno::EEXIST));
        }
        let alone = self.alone().await;
        let operation = Operation::SnapCreate {
            namespace: namespace.clone(),
            name: name.to_owned(),
        };
        let create = self.add_snapshot_with_map(name, namespace);
        let id = self.noted(operation, create).await?;
        // From here on writes preserve it.
        self.view.reread().await?;
        drop(alone);
        let completed = match namespace {
            SnapshotNamespace::Mirror(mirror) if mirror.is_primary() => {
                self.view.complete_mirror_snapshot(id).await
            }
            _ => Ok(()),
        };
        self.view.reread().await?;
        self.site.announce_header().await;
        completed
    }

    async fn add_snapshot_with_map(&self, name: &str, namespace: &SnapshotNamespace) -> Result<u64> {
        let id = self.add_snapshot(name, namespace).await?;
        let header = self.view.header();
        if let Some(map) = self.view.map() {
            let kept = map.add_snapshot(id, header.has(Features::FAST_DIFF)).await;
            if let Err(e) = kept {
                tracing::warn!("object map of a snapshot of image {}: {e}", self.site.fixed.id);
                invalidate(&self.site.io, &self.site.fixed.id, header.features, Some(id)).await?;
            }
        }
        Ok(id)
    }

    /// Allocates a snapshot id and adds the snapshot to the header. Fails where another client was
    /// faster with a newer id.
    async fn add_snapshot(&self, name: &str, namespace: &SnapshotNamespace) -> Result<u64> {
        loop {
            let id = self.site.data.self_managed_snap_create().await?;
            let add = cls::rbd("snapshot_add", &(name.to_owned(), (id, namespace.clone())))?;
            match self.change_header("snapshot", add).await {
                Ok(()) => return Ok(id),
                Err(e) => {
                    self.site.data.self_managed_snap_remove(id).await?;
                    if !e.is(errno::ESTALE) {
                        return Err(e);
                    }
                }
            }
        }
    }

    /// Removes a snapshot. With clones it goes to the trash namespace, and is removed with the last
    /// clone.
    pub(crate) async fn remove_snapshot(&self, name: &str, namespace: &SnapshotNamespace) -> Result<()> {
        let header = self.view.header();
        let snap = found(&header, name, namespace)?;
        if snap.protected {
            return Err(Error::os("remove snapshot", errno::EBUSY));
        }
        let operation = Operation::SnapRemove {
            namespace: namespace.clone(),
            name: name.to_owned(),
        };
        self.noted(operation, self.drop_snapshot(&header, snap)).await?;
        self.site.announce_header().await;
        Ok(())
    }

    /// Puts a snapshot into the trash namespace, and removes it unless it has clones.
    async fn drop_snapshot(&self, header: &Header, snap: &Snapshot) -> Result<()> {
        if !snap.namespace.is_trash() {
            // If the removal is interrupted, no client uses the half-removed snapshot.
            let trash = cls::rbd("snapshot_trash_add", &snap.id)?;
            self.change_header("remove snapshot", trash).await?;
            self.view.reread().await?;
        }
        let now = self.view.header();
        let now = now.snapshots.get(&snap.id);
        if now.is_some_and(|s| s.children > 0) {
            return Ok(());
        }
        if header.has(Features::OBJECT_MAP) {
            self.remove_map_of(header, snap).await?;
        }
        if matches!(snap.namespace, SnapshotNamespace::Mirror(_)) {
            self.site.forget_mirror_state(snap.id).await?;
        }
        self.site.data.self_managed_snap_remove(snap.id).await?;
        let remove = cls::rbd("snapshot_remove", &snap.id)?;
        self.change_header("remove snapshot", remove).await?;
        self.view.reread().await?;
        // It may have been the last that saw anything of the parent.
        if header.parent_is_seen() && !self.view.header().parent_is_seen() {
            self.site.detach_from_parent(header).await?;
        }
        Ok(())
    }

    /// Removes a snapshot's object map. Writes before it count as writes since the snapshot before.
    async fn remove_map_of(&self, header: &Header, snap: &Snapshot) -> Result<()> {
        let id = &self.site.fixed.id;
        if header.has(Features::FAST_DIFF) {
            let next = header
                .snapshots
                .range((Bound::Excluded(snap.id), Bound::Unbounded))
                .next()
                .map(|(id, _)| *id);
            match object_map::load(&self.site.io, id, Some(snap.id)).await {
                // It was done before.
                Err(e) if e.is(errno::ENOENT) => {}
                Ok(removed) if !snap.flags.contains(ImageFlags::OBJECT_MAP_INVALID) => {
                    self.merge_map(next, &removed).await?;
                }
                _ => invalidate(&self.site.io, id, header.features, next).await?,
            }
        }
        let removed = self.site.io.remove(names::object_map(id, Some(snap.id))).await;
        unless(removed.map_err(Error::from), errno::ENOENT).map(drop)
    }

    async fn merge_map(&self, next: Option<u64>, removed: &BitVector) -> Result<()> {
        match (next, self.view.map()) {
            (None, Some(map)) => map.remove_snapshot(removed).await,
            (None, None) => Ok(()),
            (Some(next), _) => {
                let oid = names::object_map(&self.site.fixed.id, Some(next));
                let merged = tell(&self.site.io, oid, "object_map_snap_remove", removed).await;
                unless(merged, errno::ENOENT).map(drop)
            }
        }
    }

    pub(crate) async fn rename_snapshot(&self, id: u64, name: &str) -> Result<()> {
        let header = self.view.header();
        if header.snapshot(name, &SnapshotNamespace::User).is_some() {
            return Err(Error::os("rename snapshot", errno::EEXIST));
        }
        let operation = Operation::SnapRename {
            id,
            from: header
                .snapshots
                .get(&id)
                .map(|s| s.name.clone())
                .unwrap_or_default(),
            to: name.to_owned(),
        };
        let rename = cls::rbd("snapshot_rename", &(id, name.to_owned()))?;
        let rename = self.change_header("rename snapshot", rename);
        self.noted(operation, rename).await?;
        self.view.header_changed().await
    }

    async fn set_protection(&self, id: u64, status: u8) -> Result<()> {
        let set = cls::rbd("set_protection_status", &(id, status))?;
        self.change_header("protect snapshot", set).await
    }

    pub(crate) async fn protect_snapshot(&self, name: &str) -> Result<()> {
        let header = self.view.header();
        let snap = found(&header, name, &SnapshotNamespace::User)?;
        if !header.has(Features::LAYERING) {
            return Err(Error::os("protect snapshot", errno::ENOSYS));
        }
        if snap.protected {
            return Err(Error::os("protect snapshot", errno::EBUSY));
        }
        let operation = Operation::SnapProtect {
            namespace: SnapshotNamespace::User,
            name: name.to_owned(),
        };
        let protect = self.set_protection(snap.id, PROTECTED);
        self.noted(operation, protect).await?;
        self.view.header_changed().await
    }

    pub(crate) async fn unprotect_snapshot(&self, name: &str) -> Result<()> {
        let header = self.view.header();
        let snap = found(&header, name, &SnapshotNamespace::User)?;
        if !snap.protected {
            return Err(Error::os("unprotect snapshot", errno::EINVAL));
        }
        let operation = Operation::SnapUnprotect {
            namespace: SnapshotNamespace::User,
            name: name.to_owned(),
        };
        let unprotected = self.noted(operation, self.try_to_unprotect(snap.id)).await;
        self.view.header_changed().await?;
        unprotected
    }

    async fn try_to_unprotect(&self, id: u64) -> Result<()> {
        // From now on no client can make a clone that the search below misses.
        self.set_protection(id, UNPROTECTING).await?;
        self.site.announce_header().await;
        let clones = listed_in_pools(self.site, id).await;
        let has_none = clones.as_ref().is_ok_and(|c| c.is_empty());
        let status = if has_none { UNPROTECTED } else { PROTECTED };
        self.set_protection(id, status).await?;
        match clones?.is_empty() {
            true => Ok(()),
            false => Err(Error::os("unprotect snapshot", errno::EBUSY)),
        }
    }

    /// Rolls the image back to a snapshot.
    pub(crate) async fn roll_back(&self, name: &str) -> Result<()> {
        let snap = found(&self.view.header(), name, &SnapshotNamespace::User)?.clone();
        let operation = Operation::SnapRollback {
            namespace: SnapshotNamespace::User,
            name: name.to_owned(),
        };
        self.noted(operation, self.roll_back_to(&snap)).await?;
        self.site.announce_header().await;
        Ok(())
    }

    async fn roll_back_to(&self, snap: &Snapshot) -> Result<()> {
        if self.view.header().size != snap.size {
            self.resize_in_operation(snap.size).await?;
        }
        let alone = self.alone().await;
        let writing = self.write_alone(&alone);
        let wanted = match &writing.map {
            None => None,
            Some(_) => self.map_at(snap).await?,
        };
        if let (Some(map), Some(wanted)) = (&writing.map, &wanted) {
            // Until all is done, either may be true of an object.
            let mut both = wanted.clone();
            for i in 0..both.len() {
                if map.state(i) != NONEXISTENT {
                    both.replace(i, i + 1, |_| EXISTS);
                }
            }
            map.replace(both).await?;
        } else if let Some(map) = &writing.map {
            // The snapshot's map is not known.
            map.update(0, self.site.objects(snap.size), EXISTS, None).await?;
        }
        let may_exist = |object: &u64| writing.may_exist(*object);
        let objects = (0..self.site.objects(snap.size)).filter(may_exist);
        let id = snap.id;
        let roll_back = self.site.limits.for_each(objects, |object| {
            let (io, oid) = (writing.writer(), self.site.fixed.object(object));
            async move {
                let rolled = io.rollback(oid, id).await;
                unless(rolled.map_err(Error::from), errno::ENOENT).map(drop)
            }
        });
        roll_back.await?;
        if let (Some(map), Some(wanted)) = (&writing.map, wanted) {
            map.replace(wanted).await?;
        }
        self.view.reread().await?;
        drop(alone);
        Ok(())
    }

    pub(crate) async fn set_snapshot_limit(&self, limit: u64) -> Result<()> {
        let set_limit = tell(
            &self.site.io,
            self.site.header_oid(),
            "snapshot_set_limit",
            &limit,
        );
        self.noted(Operation::SnapLimit(limit), set_limit).await
    }

    /// The objects of a snapshot according to its map, if that is valid. All count as written
    /// since.
    async fn map_at(&self, snap: &Snapshot) -> Result<Option<BitVector>> {
        if snap.flags.contains(ImageFlags::OBJECT_MAP_INVALID) {
            return Ok(None);
        }
        let loaded = object_map::load(&self.site.io, &self.site.fixed.id, Some(snap.id)).await;
        let Some(mut map) = unless(loaded, errno::ENOENT)? else {
            return Ok(None);
        };
        let objects = self.site.objects(snap.size);
        if objects > self.site.limits.max_mapped {
            return Err(Error::os("object map", errno::E2BIG));
        }
        map.resize(objects, EXISTS);
        map.replace(0, u64::MAX, |s| if s == EXISTS_CLEAN { EXISTS } else { s });
        Ok(Some(map))
    }
}

impl Image {
    /// Takes a snapshot.
    ///
    /// # Errors
    /// `EEXIST` where there is one of this name, `EDQUOT` where there are as many as there may be.
    pub async fn create_snapshot(&self, name: &str) -> Result<()> {
        let task = Task::SnapCreate {
            name: name.to_owned(),
            namespace: SnapshotNamespace::User,
        };
        self.operate(task, Progress::untold()).await
    }

    /// Removes a snapshot. With clones it goes to the trash namespace, and is removed with the last
    /// clone.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `EBUSY` where it is protected.
    pub async fn remove_snapshot(&self, name: &str, namespace: &SnapshotNamespace) -> Result<()> {
        let task = Task::SnapRemove {
            name: name.to_owned(),
            namespace: namespace.clone(),
        };
        self.operate(task, Progress::untold()).await
    }

    /// Gives a user's snapshot another name.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `EEXIST` where there is one of the other name.
    pub async fn rename_snapshot(&self, from: &str, to: &str) -> Result<()> {
        self.refresh().await?;
        let id = found(&self.header(), from, &SnapshotNamespace::User)?.id;
        let name = to.to_owned();
        self.operate(Task::SnapRename { id, name }, Progress::untold())
            .await
    }

    /// Protects a snapshot from removal, as clones of format 1 require.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `EBUSY` where it is protected.
    pub async fn protect_snapshot(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.operate(Task::SnapProtect { name }, Progress::untold()).await
    }

    /// Unprotects a snapshot.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `EINVAL` where it is not protected, `EBUSY` where it has
    /// clones.
    pub async fn unprotect_snapshot(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.operate(Task::SnapUnprotect { name }, Progress::untold())
            .await
    }

    /// Rolls the image back to a snapshot.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub async fn roll_back(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        let roll_back =
            |inner: Rc<Inner>| async move { inner.begin_operation().await?.roll_back(&name).await };
        self.inner.start(roll_back).await
    }

    /// The largest allowed number of snapshots; [`NO_LIMIT`] for any number.
    ///
    /// # Errors
    /// Where the header can't be read.
    pub async fn snapshot_limit(&self) -> Result<u64> {
        let inner = &self.inner;
        ask(
            &inner.site.io,
            inner.site.header_oid(),
            "snapshot_get_limit",
            &Nothing,
        )
        .await
    }

    /// Sets the largest allowed number of snapshots.
    ///
    /// # Errors
    /// `ERANGE` where there are more.
    pub async fn set_snapshot_limit(&self, limit: u64) -> Result<()> {
        let set_limit =
            |inner: Rc<Inner>| async move { inner.begin_operation().await?.set_snapshot_limit(limit).await };
        self.inner.start(set_limit).await
    }
}
