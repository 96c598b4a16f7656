//! The images of a pool or namespace by their names and ids.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_client::{IoCtx, errno};

use crate::cls::{Nothing, ask, change, create, rbd, tell};
use crate::error::unless;
use crate::header::text;
use crate::{Error, Result, names};

/// Entries asked for at a time.
const BATCH: u64 = 1024;

/// The id of an image.
///
/// # Errors
/// `ENOENT` where there is none of this name.
pub async fn image_id(io: &IoCtx, name: &str) -> Result<String> {
    let id: Bytes = ask(io, names::id_object(name), "get_id", &Nothing).await?;
    Ok(text(&id))
}

/// The id of an image, also where an interrupted removal has left only its entry in the directory.
///
/// # Errors
/// `ENOENT` where nothing has this name.
pub(crate) async fn listed_id(io: &IoCtx, name: &str) -> Result<String> {
    if let Some(id) = unless(image_id(io, name).await, errno::ENOENT)? {
        return Ok(id);
    }
    let id: Bytes = ask(io, names::DIRECTORY, "dir_get_id", &name.to_owned()).await?;
    Ok(text(&id))
}

/// Whether there is an image of the first format with this name. It has no id, and this library
/// does not open it.
///
/// # Errors
/// Where that can't be read.
pub async fn is_old_image(io: &IoCtx, name: &str) -> Result<bool> {
    let found = io.stat(names::old_header(name)).await;
    Ok(unless(found.map_err(Error::from), errno::ENOENT)?.is_some())
}

/// The name of an image.
///
/// # Errors
/// `ENOENT` where there is none with this id.
pub async fn image_name(io: &IoCtx, id: &str) -> Result<String> {
    let name: Bytes = ask(io, names::DIRECTORY, "dir_get_name", &id.to_owned()).await?;
    Ok(text(&name))
}

/// The images of a pool and namespace: ids by names.
///
/// # Errors
/// Where the directory can't be read.
pub async fn list(io: &IoCtx) -> Result<BTreeMap<String, String>> {
    let mut images = BTreeMap::new();
    let mut after = Bytes::new();
    loop {
        let listed = ask(io, names::DIRECTORY, "dir_list", &(after.clone(), BATCH)).await;
        let Some(batch) = unless::<BTreeMap<Bytes, Bytes>>(listed, errno::ENOENT)? else {
            return Ok(images);
        };
        let is_last = (batch.len() as u64) < BATCH;
        if let Some(last) = batch.keys().next_back() {
            after = last.clone();
        }
        images.extend(batch.iter().map(|(name, id)| (text(name), text(id))));
        if is_last {
            return Ok(images);
        }
    }
}

/// Adds an image that is being made.
pub(crate) async fn add(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    let mut ops = Vec::new();
    if !io.namespace().as_bytes().is_empty() {
        // Fails where the namespace was never made, or is being removed.
        ops.push(rbd("dir_state_assert", &READY)?);
    }
    ops.push(rbd("dir_add_image", &(name.to_owned(), id.to_owned()))?);
    change(io, "add image", names::DIRECTORY, ops).await?;
    let id = id.to_owned();
    let ops = vec![create(true), rbd("set_id", &id)?];
    let made = change(io, "add image", names::id_object(name), ops).await;
    if made.is_err() {
        // The first failure is returned, not this one's.
        let _ = tell(io, names::DIRECTORY, "dir_remove_image", &(name.to_owned(), id)).await;
    }
    made
}

/// Adds what is missing of the entry of an existing image.
///
/// # Errors
/// `EEXIST` where another image has that name.
pub(crate) async fn add_again(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    let id = id.to_owned();
    match unless(image_id(io, name).await, errno::ENOENT)? {
        Some(known) if known == id => {}
        Some(_) => return Err(Error::os("add image", errno::EEXIST)),
        None => {
            let ops = vec![create(true), rbd("set_id", &id)?];
            change(io, "add image", names::id_object(name), ops).await?;
        }
    }
    match unless(image_name(io, &id).await, errno::ENOENT)? {
        Some(known) if known == name => Ok(()),
        Some(_) => Err(Error::os("add image", errno::EEXIST)),
        None => tell(io, names::DIRECTORY, "dir_add_image", &(name.to_owned(), id)).await,
    }
}

/// The state of a directory to which images may be added.
pub(crate) const READY: u8 = 0;
/// The state of a directory to which no images may be added any more.
pub(crate) const ADD_DISABLED: u8 = 1;

/// Removes the name of a removed image. The entry in the directory goes last, as in Ceph's clients,
/// which find the remains of an interrupted removal by it.
pub(crate) async fn remove(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    let removed = io.remove(names::id_object(name)).await;
    unless(removed.map_err(Error::from), errno::ENOENT)?;
    let entry = (name.to_owned(), id.to_owned());
    unless(
        tell(io, names::DIRECTORY, "dir_remove_image", &entry).await,
        errno::ENOENT,
    )?;
    Ok(())
}

/// Moves an image's entries to another name.
pub(crate) async fn rename_entry(io: &IoCtx, id: &str, from: &str, to: &str) -> Result<()> {
    if from == to {
        return Err(Error::os("rename", errno::EEXIST));
    }
    let ops = vec![create(true), rbd("set_id", &id.to_owned())?];
    change(io, "rename", names::id_object(to), ops).await?;
    let entry = (from.to_owned(), (to.to_owned(), id.to_owned()));
    let renamed = tell(io, names::DIRECTORY, "dir_rename_image", &entry).await;
    let gone = if renamed.is_ok() { from } else { to };
    let removed = io.remove(names::id_object(gone)).await;
    renamed?;
    unless(removed.map_err(Error::from), errno::ENOENT)?;
    Ok(())
}
