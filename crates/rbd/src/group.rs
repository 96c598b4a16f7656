//! The group that an image belongs to (Ceph's `src/cls/rbd/cls_rbd_types.h`, `GroupSpec`).

use bytes::Bytes;
use spirula_classes::rbd::GroupSpec;
use spirula_client::errno;

use crate::cls::{Nothing, ask};
use crate::error::unless;
use crate::header::text;
use crate::image::Image;
use crate::{Result, names};

/// The names of a group and of its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupNames {
    /// Its pool.
    pub pool: String,
    /// The namespace in it.
    pub namespace: String,
    /// The group.
    pub group: String,
}

impl Image {
    /// The group that the image belongs to, if it does.
    ///
    /// # Errors
    /// `ENOENT` where the group can't be found.
    pub async fn group(&self) -> Result<Option<GroupNames>> {
        let inner = &self.inner;
        let asked = ask(
            &inner.site.io,
            inner.site.header_oid(),
            "image_group_get",
            &Nothing,
        )
        .await;
        let spec: Option<GroupSpec> = unless(asked, errno::ENOENT)?;
        // Without one the image names no pool.
        let Some((spec, id)) = spec.and_then(|s| s.pool_id.0.map(|id| (s, id))) else {
            return Ok(None);
        };
        let rados = inner.site.io.rados();
        let pool = rados.pool_by_id(id).await?;
        let pool = pool.with_namespace(inner.site.io.namespace());
        let name: Bytes = ask(&pool, names::GROUPS, "dir_get_name", &spec.group_id).await?;
        let map = rados.latest_map().await?;
        Ok(Some(GroupNames {
            pool: map.pool_names.get(&id).cloned().unwrap_or_default(),
            namespace: String::from_utf8_lossy(inner.site.io.namespace().as_bytes()).into_owned(),
            group: text(&name),
        }))
    }
}
