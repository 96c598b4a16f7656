//! The pools that hold images.

use spirula_client::{IoCtx, Rados};

use crate::failure::Failure;

/// The application that pools of images are for.
const APPLICATION: &str = "rbd";

/// The pools for images, by id.
pub(crate) fn image_pools(rados: &Rados) -> Vec<(i64, String)> {
    let Some(map) = rados.map() else {
        return Vec::new();
    };
    let of_images = map
        .pools
        .iter()
        .filter(|(_, p)| p.application_metadata.contains_key(APPLICATION));
    of_images
        .map(|(id, _)| (*id, map.pool_names.get(id).cloned().unwrap_or_default()))
        .collect()
}

/// Opens a pool.
pub(crate) async fn open_pool(rados: &Rados, name: &str) -> Result<IoCtx, Failure> {
    let opened = rados.pool(name).await;
    opened.map_err(|e| Failure::rados(&e, format!("error opening pool '{name}'")))
}
