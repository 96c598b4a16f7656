//! Resolves users' specifications and stored keys to levels of existing pools, namespaces and
//! images.

use spirula_client::IoCtx;
use spirula_rbd::{
    MIRROR_BY_SNAPSHOTS, MIRROR_MODE_IMAGE, image_id, image_name, mirror_mode, mirrored_image,
};

use super::Kind;
use super::level::{Level, LevelNames};
use crate::cluster::{Cluster, Snapshot};
use crate::failure::Failure;
use crate::question::errno;

fn value<T>(text: String) -> Result<T, Failure> {
    Err(Failure::Value(text))
}

/// `None` if the failure says that the image does not exist.
fn unless_missing<T>(found: spirula_rbd::Result<T>) -> Result<Option<T>, Failure> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.is(errno::ENOENT) => Ok(None),
        Err(e) => Err(Failure::rbd(&e, "error opening image")),
    }
}

/// Checks that a namespace exists and may have schedules of this kind.
async fn check_namespace(kind: Kind, io: &IoCtx, namespace: &str) -> Result<(), Failure> {
    if namespace.is_empty() {
        return Ok(());
    }
    let known = spirula_rbd::namespaces(io).await;
    let known = known.map_err(|e| Failure::rbd(&e, "error listing namespaces"))?;
    if !known.iter().any(|n| n == namespace) {
        return value(format!("namespace {namespace} does not exist"));
    }
    if kind == Kind::MirrorSnapshot {
        let mode = mirror_mode(&io.clone().with_namespace(namespace)).await;
        let mode = mode.map_err(|e| Failure::rbd(&e, "error getting mirror mode"))?;
        if mode != MIRROR_MODE_IMAGE {
            return value(format!("namespace {namespace} is not in mirror image mode"));
        }
    }
    Ok(())
}

/// Checks that an image may have schedules: it is mirrored by snapshots. `shown` is the user's name
/// for it.
async fn check_image(io: &IoCtx, id: &str, shown: &str) -> Result<(), Failure> {
    let image = mirrored_image(io, id).await;
    let image =
        image.map_err(|e| Failure::rbd(&e, format!("error getting mirror mode for image {shown}")))?;
    match image {
        // The mode of one that is not mirrored can't be told, which Ceph takes for the image's
        // absence.
        None => value(format!("image {shown} does not exist")),
        Some(image) if image.mode != MIRROR_BY_SNAPSHOTS => {
            value(format!("image {shown} is not in snapshot mirror mode"))
        }
        Some(_) => Ok(()),
    }
}

/// The level of a user's specification.
pub(crate) async fn by_name(
    kind: Kind,
    (cluster, now): (&Cluster, &Snapshot),
    text: &str,
) -> Result<Level, Failure> {
    let names = LevelNames::parse(text)?;
    if names.image.is_some() && kind == Kind::TrashPurge {
        return value(format!("invalid name {text}: image level is not allowed"));
    }
    let Some(pool) = names.pool else {
        return Ok(Level::default());
    };
    let absent = || Failure::Value(format!("pool {pool} does not exist"));
    let id = now.pool_id(pool).ok_or_else(absent)?;
    if !now.image_pools().any(|(p, _)| p == id) {
        return value(format!("{pool} is not an RBD pool"));
    }
    let Ok(io) = cluster.pool(id).await else {
        return Err(absent());
    };
    let mut level = Level {
        name: text.to_owned(),
        pool: Some(id),
        namespace: names.namespace.map(str::to_owned),
        image: None,
    };
    let namespace = names.namespace.unwrap_or_default();
    check_namespace(kind, &io, namespace).await?;
    if let Some(image) = names.image {
        let io = io.with_namespace(namespace);
        let found = unless_missing(image_id(&io, image).await)?;
        let Some(id) = found else {
            return value(format!("image {image} does not exist"));
        };
        check_image(&io, &id, image).await?;
        level.image = Some(id);
        if namespace.is_empty() {
            level.name = format!("{pool}/{image}");
        }
    }
    Ok(level)
}

/// The level of a stored schedule. [`Failure::Value`] if it does not exist any more.
pub(crate) async fn by_key(kind: Kind, io: &IoCtx, pool_name: &str, key: &str) -> Result<Level, Failure> {
    let Some((pool, names)) = LevelNames::parse_key(key) else {
        return value(format!("failed to parse: {key}"));
    };
    if pool != io.pool_id() {
        return value(format!("pool {pool} does not exist"));
    }
    let mut level = Level::of_pool(pool, pool_name);
    let Some(namespace) = names.namespace else {
        return Ok(level);
    };
    check_namespace(kind, io, namespace).await?;
    level.namespace = Some(namespace.to_owned());
    if !namespace.is_empty() || names.image.is_none() {
        level.name.push_str(namespace);
        level.name.push('/');
    }
    if let Some(id) = names.image {
        let io = io.clone().with_namespace(namespace);
        let found = unless_missing(image_name(&io, id).await)?;
        let Some(name) = found else {
            return value(format!("image {id} does not exist"));
        };
        if kind == Kind::MirrorSnapshot {
            check_image(&io, id, id).await?;
        }
        level.name.push_str(&name);
        level.image = Some(id.to_owned());
    }
    Ok(level)
}
