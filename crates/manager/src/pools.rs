//! The pools that hold images.

use spirula_client::{IoCtx, Rados};

use crate::failure::Failure;

/// The application that pools of images are for.
pub const IMAGES: &str = "rbd";

/// The pools for images, by id.
pub(crate) fn image_pools(rados: &Rados) -> Vec<(i64, String)> {
    let Some(map) = rados.map() else {
        return Vec::new();
    };
    let pools = map.pools_for(IMAGES);
    pools.map(|(id, name)| (id, name.to_owned())).collect()
}

/// Opens a pool.
pub(crate) async fn open_pool(rados: &Rados, name: &str) -> Result<IoCtx, Failure> {
    let opened = rados.pool(name).await;
    opened.map_err(|e| Failure::rados(&e, format!("error opening pool '{name}'")))
}

/// What a pool is called, by its id.
pub(crate) fn pool_name(rados: &Rados, id: i64) -> String {
    let found = rados.map().and_then(|map| map.pool_names.get(&id).cloned());
    found.unwrap_or_else(|| "<unknown>".to_owned())
}
