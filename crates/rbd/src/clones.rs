//! Links between clones and the snapshots that they are made of.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_classes::rbd::protection::UNPROTECTED;
use spirula_classes::rbd::{ChildImageSpec, FeatureChange, OpFeatures, ParentImageSpec, SnapshotInfo};
use spirula_client::{IoCtx, errno};
use spirula_maps::{PoolId, PoolOrNone};

use crate::cls::{announce, ask, tell};
use crate::error::unless;
use crate::header::{Header, pool_of, text};
use crate::image::Image;
use crate::site::{Options, Site};
use crate::{Error, Result, names};

/// Pairs of metadata asked for at a time.
const BATCH: u64 = 1024;

/// A clone, wherever it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    /// Its pool.
    pub pool: PoolId,
    /// The namespace in it.
    pub namespace: String,
    /// Its id.
    pub id: String,
}

/// A clone and its parent.
pub(crate) struct Link<'a> {
    /// The parent's pool and namespace.
    pub(crate) parent: &'a IoCtx,
    pub(crate) spec: ParentImageSpec,
    /// The clone's pool and namespace.
    pub(crate) io: &'a IoCtx,
    /// Its id.
    pub(crate) child: &'a str,
}

/// The parent's header.
pub(crate) fn parent_header(link: &Link<'_>) -> String {
    names::header(&text(&link.spec.image_id))
}

/// The key in a pool's list of children: the parent's pool, image and snapshot.
fn key(spec: &ParentImageSpec) -> (PoolOrNone, (Bytes, u64)) {
    (spec.pool_id, (spec.image_id.clone(), spec.snap_id))
}

impl Link<'_> {
    /// The clone as the parent's header names it.
    fn child_spec(&self) -> ChildImageSpec {
        ChildImageSpec {
            pool_id: self.io.pool_id(),
            pool_namespace: self.io.namespace().as_bytes().to_vec().into(),
            image_id: Bytes::from(self.child.to_owned()),
        }
    }

    async fn tell_parent(&self, method: &'static str) -> Result<()> {
        let input = (self.spec.snap_id, self.child_spec());
        tell(self.parent, parent_header(self), method, &input).await
    }

    async fn tell_pool(&self, method: &'static str) -> Result<()> {
        let input = (key(&self.spec), self.child.to_owned());
        tell(self.io, names::CHILDREN, method, &input).await
    }
}

/// Lists the clone in its pool's `rbd_children`: format 1, for a protected snapshot.
pub(crate) async fn attach_v1(link: &Link<'_>) -> Result<()> {
    if link.parent.namespace() != link.io.namespace() {
        return Err(Error::os("clone", errno::EXDEV));
    }
    link.tell_pool("add_child").await?;
    // A client that unprotects the snapshot marks it so before it looks for clones.
    let header = parent_header(link);
    let status: u8 = ask(link.parent, header, "get_protection_status", &link.spec.snap_id).await?;
    match status {
        UNPROTECTED => Err(Error::os("clone", errno::EINVAL)),
        _ => Ok(()),
    }
}

/// Lists the clone in the header of its parent: format 2.
pub(crate) async fn attach_v2(link: &Link<'_>) -> Result<()> {
    let input = FeatureChange {
        new: OpFeatures::CLONE_CHILD,
        mask: OpFeatures::CLONE_CHILD,
    };
    tell(link.io, names::header(link.child), "op_features_set", &input).await?;
    link.tell_parent("child_attach").await?;
    notify(link).await;
    Ok(())
}

async fn notify(link: &Link<'_>) {
    announce(link.parent, parent_header(link), Bytes::new()).await;
}

/// Lists a clone under its new parent. It may be listed already.
pub(crate) async fn attach_again(link: &Link<'_>, is_v2: bool) -> Result<()> {
    let attached = match is_v2 {
        true => attach_v2(link).await,
        false => attach_v1(link).await,
    };
    unless(attached, errno::EEXIST).map(drop)
}

/// Removes a clone from the list of its former parent. It may not be listed.
pub(crate) async fn forget_child(link: &Link<'_>, is_v2: bool) -> Result<()> {
    let told = match is_v2 {
        true => link.tell_parent("child_detach").await,
        false => link.tell_pool("remove_child").await,
    };
    unless(told, errno::ENOENT)?;
    notify(link).await;
    Ok(())
}

/// Removes the clone from both lists. A snapshot in the trash goes with its last clone.
pub(crate) async fn detach(link: &Link<'_>) -> Result<()> {
    unless(link.tell_pool("remove_child").await, errno::ENOENT)?;
    if unless(link.tell_parent("child_detach").await, errno::ENOENT)?.is_none() {
        return Ok(());
    }
    notify(link).await;
    let info: SnapshotInfo = ask(
        link.parent,
        parent_header(link),
        "snapshot_get",
        &link.spec.snap_id,
    )
    .await?;
    if info.namespace.is_trash() && info.child_count == 0 {
        let id = text(&link.spec.image_id);
        let parent = Image::open_by_id(link.parent, "", &id, Options::default()).await?;
        let name = text(&info.name);
        let removed = Box::pin(parent.remove_snapshot(&name, &info.namespace)).await;
        parent.close().await?;
        removed?;
    }
    Ok(())
}

/// Makes a parent forget a clone, as [`detach`].
pub(crate) async fn detach_from(spec: &ParentImageSpec, io: &IoCtx, child: &str) -> Result<()> {
    let pool = io.rados().pool_by_id(pool_of(spec)?).await?;
    let link = Link {
        parent: &pool.with_namespace(text(&spec.pool_namespace)),
        spec: spec.clone(),
        io,
        child,
    };
    detach(&link).await
}

/// The metadata that users keep with an image.
pub(crate) async fn metadata(io: &IoCtx, header: &str) -> Result<BTreeMap<Bytes, Bytes>> {
    let mut all = BTreeMap::new();
    let mut after = Bytes::new();
    loop {
        let batch: BTreeMap<Bytes, Bytes> = ask(io, header, "metadata_list", &(after.clone(), BATCH)).await?;
        let is_last = (batch.len() as u64) < BATCH;
        if let Some(last) = batch.keys().next_back() {
            after = last.clone();
        }
        all.extend(batch);
        if is_last {
            return Ok(all);
        }
    }
}

/// The clones of a protected snapshot, from the lists of all pools.
pub(crate) async fn listed_in_pools(site: &Site, snap: u64) -> Result<BTreeSet<Child>> {
    let spec = ParentImageSpec {
        pool_id: site.io.pool_id().into(),
        image_id: Bytes::from(site.fixed.id.clone()),
        snap_id: snap,
        ..ParentImageSpec::default()
    };
    let namespace = site.io.namespace().clone();
    let mut found = BTreeSet::new();
    for (pool, _) in site.io.rados().pools().await? {
        let io = site.io.rados().pool_by_id(pool).await?;
        let io = io.with_namespace(namespace.clone());
        let listed = ask::<BTreeSet<Bytes>>(&io, names::CHILDREN, "get_children", &key(&spec)).await;
        let ids = match listed {
            Ok(ids) => ids,
            // None, or a pool that can't hold a list.
            Err(e) if e.is(errno::ENOENT) || e.is(errno::EOPNOTSUPP) => continue,
            Err(e) => return Err(e),
        };
        found.extend(ids.iter().map(|id| Child {
            pool,
            namespace: text(&Bytes::copy_from_slice(namespace.as_bytes())),
            id: text(id),
        }));
    }
    Ok(found)
}

/// The clones of a snapshot.
///
/// # Errors
/// `ENOENT` where there is no such snapshot.
pub async fn children(image: &Image, snap: u64) -> Result<BTreeSet<Child>> {
    children_of(&image.inner.site, snap).await
}

pub(crate) async fn children_of(site: &Site, snap: u64) -> Result<BTreeSet<Child>> {
    let listed = ask::<BTreeSet<ChildImageSpec>>(&site.io, site.header_oid(), "children_list", &snap);
    let specs = unless(listed.await, errno::ENOENT)?.unwrap_or_default();
    let mut found = listed_in_pools(site, snap).await?;
    found.extend(specs.into_iter().map(|spec| Child {
        pool: spec.pool_id,
        namespace: text(&spec.pool_namespace),
        id: text(&spec.image_id),
    }));
    Ok(found)
}

impl Site {
    /// Removes this image from its parent's list of clones, where `header` names a parent.
    pub(crate) async fn detach_from_parent(&self, header: &Header) -> Result<()> {
        match &header.parent {
            Some(parent) => detach_from(&parent.spec, &self.io, &self.fixed.id).await,
            None => Ok(()),
        }
    }
}
