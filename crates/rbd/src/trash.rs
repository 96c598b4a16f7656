//! Images in the trash: they have no names any more, and are removed by their ids (Ceph's
//! `src/librbd/api/Trash.cc`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use spirula_classes::rbd::{Features, TrashImage};
use spirula_client::{
    IoCtx,
    errno::{self, Errno},
};
use spirula_denc::{UTime, Writer};
use spirula_maps::PoolId;

use crate::cls::{announce, ask, tell};
use crate::error::unless;
use crate::header::{Header, text};
use crate::image::Image;
use crate::mirror::disable;
use crate::progress::Meter;
use crate::remove::{remove_content, remove_objects};
use crate::site::{Options, Purpose};
use crate::{Error, Progress, Result, directory, names};

/// Entries asked for at a time.
const BATCH: u64 = 1024;
/// The types of the notifications that an image came, and that one is gone.
const ADDED: u32 = 0;
const REMOVED: u32 = 1;

/// The origin of a trash entry: a user.
const BY_USER: u8 = 0;
/// Mirroring: the image was removed in the primary cluster.
const BY_MIRRORING: u8 = 1;
/// The removal of a clone's parent by a user.
const BY_USER_AS_PARENT: u8 = 4;
/// Origins of entries that a user's purge removes.
const BY_USERS: [u8; 2] = [BY_USER, BY_USER_AS_PARENT];
/// Origins of entries that a user may restore.
const RESTORABLE: [u8; 3] = [BY_USER, BY_MIRRORING, BY_USER_AS_PARENT];

/// States of an image in the trash (`TrashImageState`).
const NORMAL: u8 = 0;
const MOVING: u8 = 1;
const REMOVING: u8 = 2;
const RESTORING: u8 = 3;

/// The trash entry of an image.
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

/// Removes an image in the trash with all its data; with `force` also before its deferment ends.
///
/// # Errors
/// `ENOENT` where there is none, `EPERM` where it should stay, `EUCLEAN` and `EBUSY` where another
/// client is moving it, `ENOTEMPTY` where it has snapshots, `EBUSY` where other clients use it.
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
    // From here on nobody restores it.
    set_state(io, id, REMOVING, NORMAL).await?;
    if let Err(e) = remove_content(io, "", id, progress).await {
        if let Err(e) = set_state(io, id, NORMAL, REMOVING).await {
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

/// Sets the state of an image in the trash from `expected` to `state`: `ESTALE` where it has
/// neither.
async fn set_state(io: &IoCtx, id: &str, state: u8, expected: u8) -> Result<()> {
    let input = (id.to_owned(), (state, expected));
    tell(io, names::TRASH, "trash_state_set", &input).await
}

/// Puts an image into the trash, deferred until a time. Its name becomes free.
///
/// # Errors
/// `ENOENT` where there is none, `EOPNOTSUPP` for one of the first format, `EBUSY` where another
/// client does not give up its lock or the image is migrating, `EINVAL` where it is mirrored and
/// the primary one is elsewhere.
pub async fn trash_move(io: &IoCtx, name: &str, until: UTime) -> Result<()> {
    let id = match unless(directory::image_id(io, name).await, errno::ENOENT)? {
        Some(id) => id,
        None if directory::is_old_image(io, name).await? => {
            return Err(Error::os("trash", errno::EOPNOTSUPP));
        }
        None => half_moved(io, name).await?,
    };
    let header = unless(Header::read(io, &id).await, errno::ENOENT)?;
    if let Some(header) = &header {
        prepare(io, (name, &id), header).await?;
    }
    let image = TrashImage {
        source: BY_USER,
        name: Bytes::from(name.to_owned()),
        deletion_time: UTime::now(),
        deferment_end_time: until,
        state: MOVING,
    };
    let entry = (id.clone(), image.clone());
    unless(tell(io, names::TRASH, "trash_add", &entry).await, errno::EEXIST)?;
    directory::remove(io, name, &id).await?;
    set_state(io, &id, NORMAL, MOVING).await?;
    let mut w = Writer::new();
    w.section(1, 1, |w| {
        w.u32(ADDED);
        w.string(&id);
        w.put(&TrashImage {
            state: NORMAL,
            ..image
        });
    });
    announce(io, names::TRASH, w.into_vec()).await;
    Ok(())
}

/// The id of an image whose move into the trash was interrupted.
async fn half_moved(io: &IoCtx, name: &str) -> Result<String> {
    let is_it = |i: &TrashImage| i.source == BY_USER && i.state == MOVING && i.name == name.as_bytes();
    let listed = trash_list(io).await?;
    let found = listed.into_iter().find(|(_, image)| is_it(image));
    found.map(|(id, _)| id).ok_or(Error::os("trash", errno::ENOENT))
}

/// Checks that no client uses the image, and ends its mirroring.
async fn prepare(io: &IoCtx, (name, id): (&str, &str), header: &Header) -> Result<()> {
    if header.has(Features::MIGRATING) {
        return Err(Error::os("trash", errno::EBUSY));
    }
    let mirrored = disable::removable(io, id, header).await?;
    // Its journal may be unreadable, and is not needed.
    let image = Image::open_for(io, (name, id), Options::default(), Purpose::Remove).await?;
    let acquired = match image.inner.acquire().await {
        Err(e) if e.is(errno::EROFS) => Err(Error::os("trash", errno::EBUSY)),
        other => other,
    };
    let done = match (acquired, mirrored) {
        (Ok(()), Some(mirrored)) => image.inner.end_mirroring(mirrored).await,
        (done, _) => done,
    };
    let closed = image.close().await;
    done.and(closed)
}

/// Takes an image out of the trash, under the name that it had or another one.
///
/// # Errors
/// `ENOENT` where there is none, `EINVAL` where it is part of a migration or is being removed by
/// its clients, `EBUSY` where it is being removed, `EEXIST` where another image has that name.
pub async fn trash_restore(io: &IoCtx, id: &str, name: Option<&str>) -> Result<()> {
    let image = trash_get(io, id).await?;
    if !RESTORABLE.contains(&image.source) {
        return Err(Error::os("restore", errno::EINVAL));
    }
    if image.state != NORMAL && image.state != RESTORING {
        return Err(Error::os("restore", errno::EBUSY));
    }
    set_state(io, id, RESTORING, NORMAL).await?;
    let name = name.map_or_else(|| text(&image.name), str::to_owned);
    match directory::add_again(io, &name, id).await {
        Err(e) if e.is(errno::EEXIST) => {
            set_state(io, id, NORMAL, RESTORING).await?;
            return Err(e);
        }
        other => other?,
    }
    let removed = tell(io, names::TRASH, "trash_remove", &id.to_owned()).await;
    unless(removed, errno::ENOENT)?;
    announce_removal(io, id).await;
    Ok(())
}

/// Notifies the watchers of the trash that an image has left it.
async fn announce_removal(io: &IoCtx, id: &str) {
    let mut w = Writer::new();
    w.section(1, 1, |w| {
        w.u32(REMOVED);
        w.string(id);
    });
    announce(io, names::TRASH, w.into_vec()).await;
}

/// Takes an image out of the trash, under its former name. It may be out already.
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

/// Errors for which a purge passes over an image.
const PASSED_OVER: [Errno; 6] = [
    errno::ENOTEMPTY,
    errno::EBUSY,
    errno::EMLINK,
    errno::EUCLEAN,
    // The image names data, or a parent, in a place where the client has no rights.
    errno::EPERM,
    errno::EACCES,
];

/// The images in the trash whose deferment has ended at `now`. With a threshold instead: those with
/// the earliest ends of deferment that must go so that no pool is fuller than this share, and all
/// whose deferment has ended; none where no pool is fuller.
///
/// # Errors
/// `EINVAL` for a threshold that is no share.
pub async fn trash_due(io: &IoCtx, now: UTime, threshold: Option<f64>) -> Result<Vec<String>> {
    if threshold.is_some_and(|t| !(0.0..=1.0).contains(&t)) {
        return Err(Error::os("purge", errno::EINVAL));
    }
    let mut listed: Vec<_> = trash_list(io).await?.into_iter().collect();
    listed.retain(|(_, image)| BY_USERS.contains(&image.source));
    let mut due: BTreeSet<String> = BTreeSet::new();
    if let Some(threshold) = threshold {
        listed.sort_by_key(|(_, image)| image.deferment_end_time);
        due = too_much(io, &listed, threshold).await?;
        if due.is_empty() {
            return Ok(Vec::new());
        }
    }
    let expired = listed.iter().filter(|(_, image)| image.deferment_end_time <= now);
    due.extend(expired.map(|(id, _)| id.clone()));
    Ok(due.into_iter().collect())
}

/// The images, picked in the given order, that must go so that no pool is fuller than the
/// threshold.
async fn too_much(io: &IoCtx, images: &[(String, TrashImage)], threshold: f64) -> Result<BTreeSet<String>> {
    let mut excess: BTreeMap<PoolId, u64> = pools_in_use(io)
        .await?
        .into_iter()
        .filter(|(_, share, _)| *share > threshold)
        .map(|(pool, share, bytes)| (pool, (bytes as f64 * (share - threshold)) as u64))
        .collect();
    let mut due = BTreeSet::new();
    for (id, _) in images {
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        let Some(image) = unless(Image::open_by_id(io, "", id, options).await, errno::ENOENT)? else {
            continue;
        };
        let pool = image.fixed().data_pool.unwrap_or(io.pool_id());
        let Some(left) = excess.get_mut(&pool).filter(|left| **left > 0) else {
            continue;
        };
        let mut used = image.usage(None).await?.used;
        for snap in image.header().snapshots.keys() {
            used += image.usage(Some(*snap)).await?.used;
        }
        *left = left.saturating_sub(used);
        if used > 0 {
            due.insert(id.clone());
        }
    }
    Ok(due)
}

/// Pools' usage, as the monitors report it.
#[derive(serde::Deserialize)]
struct Usages {
    pools: Vec<PoolUsage>,
}

#[derive(serde::Deserialize)]
struct PoolUsage {
    id: PoolId,
    stats: Stats,
}

#[derive(serde::Deserialize)]
struct Stats {
    percent_used: f64,
    max_avail: u64,
    bytes_used: u64,
}

/// The pools, with the used share and the capacity in bytes.
async fn pools_in_use(io: &IoCtx) -> Result<Vec<(PoolId, f64, u64)>> {
    let command = r#"{"prefix": "df", "format": "json"}"#;
    let reply = io.rados().mon_command(command, Bytes::new()).await?;
    let unreadable = |_| Error::os("df", errno::EBADMSG);
    let usages: Usages = serde_json::from_slice(&reply.output).map_err(unreadable)?;
    let of = |p: PoolUsage| (p.id, p.stats.percent_used, p.stats.max_avail + p.stats.bytes_used);
    Ok(usages.pools.into_iter().map(of).collect())
}

/// Removes the given images from the trash, except those that clones and groups need, as far as the
/// client has the rights. The removal of one image may free another one.
///
/// # Errors
/// Why the first of those that remain was not removed; `ECANCELED` where the progress' listener
/// ends it.
pub async fn trash_purge(io: &IoCtx, ids: Vec<String>, progress: &Progress) -> Result<()> {
    let meter = Meter::new(progress, ids.len() as u64);
    let mut due: VecDeque<String> = ids.into();
    // How many in a row were tried in vain.
    let mut in_vain = 0;
    let mut first = None;
    let all = due.len();
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
        meter.reached((all - due.len()) as u64)?;
        if in_vain >= due.len() {
            break;
        }
    }
    match first {
        Some(e) if !due.is_empty() => Err(e),
        _ => Ok(()),
    }
}
