//! The namespaces of a pool (Ceph's `src/librbd/api/Namespace.cc`).

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_classes::rbd::TrashImage;
use spirula_client::{IoCtx, errno};

use crate::bounds::Room;
use crate::cls::{ask, change, delete, rbd, tell};
use crate::directory::{ADD_DISABLED, READY};
use crate::error::unless;
use crate::header::text;
use crate::{Error, Result, names};

/// Names asked for at a time.
const BATCH: u64 = 1024;
/// Objects of a namespace besides the directory and the images.
const POOL_OBJECTS: [&str; 6] = [
    names::CHILDREN,
    names::GROUPS,
    names::INFO,
    names::MIRRORING,
    names::TASKS,
    names::TRASH,
];

/// Makes a namespace, in which images may be made from then on.
///
/// # Errors
/// `EINVAL` for an empty name, `EEXIST` where there is one of this name.
pub async fn namespace_create(io: &IoCtx, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::os("namespace", errno::EINVAL));
    }
    let (whole, inside) = (io.clone().with_namespace(""), io.clone().with_namespace(name));
    tell(&whole, names::NAMESPACES, "namespace_add", &name.to_owned()).await?;
    let ready = tell(&inside, names::DIRECTORY, "dir_state_set", &READY).await;
    if ready.is_err() {
        // The first failure is returned, not this one's.
        let _ = tell(&whole, names::NAMESPACES, "namespace_remove", &name.to_owned()).await;
    }
    ready
}

/// Removes a namespace. A namespace with an interrupted removal takes no more images, and can be
/// removed again.
///
/// # Errors
/// `EBUSY` where it has images, in the trash too, `ENOENT` where there is none of this name.
pub async fn namespace_remove(io: &IoCtx, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::os("namespace", errno::EINVAL));
    }
    let (whole, inside) = (io.clone().with_namespace(""), io.clone().with_namespace(name));
    let ops = vec![rbd("dir_state_set", &ADD_DISABLED)?, delete()];
    let disabled = change(&inside, "remove namespace", names::DIRECTORY, ops).await;
    let is_empty = match disabled {
        Err(e) if e.is(errno::EBUSY) => false,
        Err(e) if !e.is(errno::ENOENT) => return Err(e),
        _ => {
            let first = ask(&inside, names::TRASH, "trash_list", &(Bytes::new(), 1u64)).await;
            unless::<BTreeMap<Bytes, TrashImage>>(first, errno::ENOENT)?.is_none_or(|found| found.is_empty())
        }
    };
    if !is_empty {
        tell(&inside, names::DIRECTORY, "dir_state_set", &READY).await?;
        return Err(Error::os("remove namespace", errno::EBUSY));
    }
    for object in POOL_OBJECTS {
        unless(inside.remove(object).await.map_err(Error::from), errno::ENOENT)?;
    }
    tell(&whole, names::NAMESPACES, "namespace_remove", &name.to_owned()).await
}

/// The names of a pool's namespaces, in order.
///
/// # Errors
/// Where they can't be read. `E2BIG` where there are too many.
pub async fn namespaces(io: &IoCtx) -> Result<Vec<String>> {
    let io = io.clone().with_namespace("");
    let (mut found, mut room) = (Vec::new(), Room::new());
    let mut after = Bytes::new();
    loop {
        let listed = ask(&io, names::NAMESPACES, "namespace_list", &(after.clone(), BATCH)).await;
        let Some(batch) = unless::<Vec<Bytes>>(listed, errno::ENOENT)? else {
            return Ok(found);
        };
        let is_last = (batch.len() as u64) < BATCH;
        if let Some(last) = batch.last() {
            after = last.clone();
        }
        for namespace in &batch {
            room.take(namespace.len())?;
            found.push(text(namespace));
        }
        if is_last {
            return Ok(found);
        }
    }
}
