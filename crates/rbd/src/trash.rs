//! Images that were put into the trash: they have no names any more, and are removed by their ids (Ceph's
//! `src/librbd/api/Trash.cc`).

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use spirula_classes::rbd::TrashImage;
use spirula_client::{IoCtx, errno};
use spirula_denc::{UTime, Writer};

use crate::cls::{announce, ask, tell};
use crate::error::unless;
use crate::header::text;
use crate::remove::{remove_content, remove_objects};
use crate::{Error, Progress, Result, directory, names};

/// Entries asked for at a time.
const BATCH: u64 = 1024;
/// The number of the notification that an image is gone.
const REMOVED: u32 = 1;

/// Who put an image there: a user, or the removal of a clone's parent.
const BY_USERS: [u8; 2] = [0, 4];

/// What is happening to an image in the trash (`TrashImageState`).
const NORMAL: u8 = 0;
const MOVING: u8 = 1;
const REMOVING: u8 = 2;

/// An image in the trash.
///
/// # Errors
/// `ENOENT` where there is none with this id.
pub async fn trash_get(io: &IoCtx, id: &str) -> Result<TrashImage> {
    ask(io, names::TRASH, "trash_get", &id.to_owned()).await
}

/// The images in the trash of a pool and namespace, by their ids.
///
/// # Errors
/// Where the trash can't be read.
pub async fn trash_list(io: &IoCtx) -> Result<BTreeMap<String, TrashImage>> {
    let mut images = BTreeMap::new();
    let mut after = Bytes::new();
    loop {
        let listed = ask(io, names::TRASH, "trash_list", &(after.clone(), BATCH)).await;
        let Some(batch) = unless::<BTreeMap<Bytes, TrashImage>>(listed, errno::ENOENT)? else {
            return Ok(images);
        };
        let is_last = (batch.len() as u64) < BATCH;
        if let Some(last) = batch.keys().next_back() {
            after = last.clone();
        }
        images.extend(batch.into_iter().map(|(id, image)| (text(&id), image)));
        if is_last {
            return Ok(images);
        }
    }
}

/// Removes an image in the trash with all its data; with `force` also one that should stay for some time.
///
/// # Errors
/// `ENOENT` where there is none, `EPERM` where it should stay, `EUCLEAN` and `EBUSY` where another client is moving it,
/// `ENOTEMPTY` where it has snapshots, `EBUSY` where other clients use it.
pub async fn trash_remove(io: &IoCtx, id: &str, force: bool, progress: &Progress) -> Result<()> {
    let image = trash_get(io, id).await?;
    if !force && UTime::now() < image.deferment_end_time {
        return Err(Error::os("remove from the trash", errno::EPERM));
    }
    match image.state {
        NORMAL | REMOVING => {}
        MOVING => return Err(Error::os("remove from the trash", errno::EUCLEAN)),
        _ => return Err(Error::os("remove from the trash", errno::EBUSY)),
    }
    let set_state = |state: u8, expected: u8| {
        let input = (id.to_owned(), (state, expected));
        async move { tell(io, names::TRASH, "trash_state_set", &input).await }
    };
    // From here on nobody restores it.
    set_state(REMOVING, NORMAL).await?;
    if let Err(e) = remove_content(io, "", id, progress).await {
        if let Err(e) = set_state(NORMAL, REMOVING).await {
            tracing::warn!("image {id} stays in the trash as one that is being removed: {e}");
        }
        return Err(e);
    }
    remove_objects(io, id).await?;
    unless(
        tell(io, names::TRASH, "trash_remove", &id.to_owned()).await,
        errno::ENOENT,
    )?;
    announce_removal(io, id).await;
    Ok(())
}

/// Tells those that follow the trash.
async fn announce_removal(io: &IoCtx, id: &str) {
    let mut w = Writer::new();
    w.section(1, 1, |w| {
        w.u32(REMOVED);
        w.string(id);
    });
    announce(io, names::TRASH, w.into_vec()).await;
}

/// Takes an image out of the trash, under the name that it had. It may be out already.
///
/// # Errors
/// `EEXIST` where another image has that name.
pub(crate) async fn restore(io: &IoCtx, id: &str) -> Result<()> {
    let Some(image) = unless(trash_get(io, id).await, errno::ENOENT)? else {
        return Ok(());
    };
    let name = text(&image.name);
    directory::add_again(io, &name, id).await?;
    let removed = tell(io, names::TRASH, "trash_remove", &id.to_owned()).await;
    unless(removed, errno::ENOENT).map(drop)
}

/// Why an image stays in the trash while others are removed.
const PASSED_OVER: [i32; 6] = [
    errno::ENOTEMPTY,
    errno::EBUSY,
    errno::EMLINK,
    errno::EUCLEAN,
    // It may say that its data, or what it is a clone of, is where the client has no rights.
    errno::EPERM,
    errno::EACCES,
];

/// Removes the images in the trash that need not stay any longer at `now`, as far as clones and groups do not need them
/// and the client may. An image may become free by the removal of another one.
///
/// # Errors
/// Why the first of those that remain was not removed.
pub async fn trash_purge(io: &IoCtx, now: UTime) -> Result<()> {
    let expired = |image: &TrashImage| BY_USERS.contains(&image.source) && image.deferment_end_time <= now;
    let listed = trash_list(io).await?;
    let mut due: VecDeque<String> = listed
        .into_iter()
        .filter(|(_, i)| expired(i))
        .map(|(id, _)| id)
        .collect();
    // How many in a row were tried in vain.
    let mut in_vain = 0;
    let mut first = None;
    while let Some(id) = due.pop_front() {
        match trash_remove(io, &id, true, &Progress::untold()).await {
            Ok(()) => (in_vain, first) = (0, None),
            // It went with another one.
            Err(e) if e.is(errno::ENOENT) => {}
            Err(e) if PASSED_OVER.iter().any(|n| e.is(*n)) => {
                due.push_back(id);
                in_vain += 1;
                first.get_or_insert(e);
            }
            Err(e) => return Err(e),
        }
        if in_vain >= due.len() {
            break;
        }
    }
    match first {
        Some(e) if !due.is_empty() => Err(e),
        _ => Ok(()),
    }
}
