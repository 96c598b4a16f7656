//! The names of images.

use std::collections::BTreeMap;

use spirula_client::Rados;

use crate::ImagesToName;

/// The names by id of the wanted images that have one. An image in the trash has its former name.
pub(crate) async fn names(rados: &Rados, wanted: &ImagesToName) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let io = match rados.pool_by_id(wanted.pool).await {
        Ok(io) => io.with_namespace(wanted.namespace.as_str()),
        Err(e) => {
            tracing::debug!("images of pool {}: {e}", wanted.pool);
            return names;
        }
    };
    for id in &wanted.ids {
        match spirula_rbd::name_of(&io, id).await {
            Ok((name, _)) => drop(names.insert(id.clone(), name)),
            Err(e) => tracing::debug!("image {id}: {e}"),
        }
    }
    names
}
