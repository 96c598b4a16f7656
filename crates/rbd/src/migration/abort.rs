//! Aborts a migration: the source gets the destination's data, and the destination is removed.
//!
//! Snapshots that were taken of the destination meanwhile are lost, as with Ceph's clients.

use std::rc::Rc;

use bytes::Bytes;
use spirula_classes::rbd::migration::{Migration, state};
use spirula_classes::rbd::{OpFeatures, SnapshotNamespace};
use spirula_client::{IoCtx, errno};
use spirula_denc::Extent;

use super::checks::{refuse_mirroring, refuse_watchers, under_way};
use super::children::{Twins, give_back, unlist};
use super::pair::{Mark, Pair, Side};
use super::record::{remove_record, set_state};
use super::source::{has_head, history};
use super::steps::newest_copied;
use crate::clones::children_of;
use crate::error::unless;
use crate::image::{Image, Inner};
use crate::progress::Meter;
use crate::remove::{is_gone, remove_named, remove_objects};
use crate::site::{Options, Purpose};
use crate::view::View;
use crate::{Error, Progress, Result, directory, trash};

/// The description in the source's record once the source holds all the destination's data, and the
/// destination's clones are clones of the source. From then on only the destination's removal is
/// left.
const REVERTED: &str = "the source has the data again";

/// Gives a migration up: what was written to the destination is written to the source, which takes
/// its place. The image is named by the destination's name, or by the source's.
///
/// # Errors
/// `ENOENT` where there is no such image, `EINVAL` where it is not migrating, `EBUSY` where other
/// clients use the destination or clones need snapshots that the source has not got, `EEXIST` where
/// another image has the source's name, `EOPNOTSUPP` where the destination belongs to a group, the
/// source would have to be mirrored again, or is no image here, `ECANCELED` where the progress'
/// listener ends it.
pub async fn migration_abort(io: &IoCtx, name: &str, progress: &Progress) -> Result<()> {
    let pair = match Pair::find(io, name).await {
        Err(e) if e.is(errno::ENOENT) => return remove_remains(io, name).await,
        found => found?,
    };
    match pair.records() {
        (Some(source), destination) => {
            refuse_mirroring(&pair.source.io, destination.unwrap_or(source)).await?;
            under_way(abort(&pair, source, destination, progress).await)
        }
        // The source is out of it already.
        (None, Some(destination)) if destination.state == state::ABORTING => {
            under_way(remove_destination(&pair, progress).await)
        }
        _ if matches!(pair.source.mark, Mark::Gone) => Err(Error::os("migration", errno::ENOENT)),
        // It is being committed.
        _ => Err(Error::os("migration", errno::EINVAL)),
    }
}

async fn abort(
    pair: &Pair,
    source: &Migration,
    destination: Option<&Migration>,
    progress: &Progress,
) -> Result<()> {
    let mut is_reverted = source.state == state::ABORTING && source.state_description == REVERTED;
    if let Mark::None = pair.destination.mark {
        if source.state != state::PREPARING {
            return Err(Error::os("migration", errno::EIO));
        }
        // It was not made completely, and nobody has used it.
        is_reverted = true;
    }
    check_name(pair).await?;
    if let Some(record) = destination.filter(|_| !is_reverted) {
        let destination = open(&pair.destination, false).await?;
        let done = take_back(pair, (source, record), &destination, progress).await;
        let closed = destination.close().await;
        done.and(closed)?;
    }
    if !matches!(pair.destination.mark, Mark::Gone) {
        unlist(pair).await?;
        empty_destination(&pair.destination, progress).await?;
    }
    restore_names(pair).await
}

async fn open(side: &Side, exclusive: bool) -> Result<Image> {
    let options = Options {
        exclusive,
        in_flight: Some(1),
        ..Options::default()
    };
    Image::open_for(&side.io, (&side.name, &side.id), options, Purpose::Migrate).await
}

/// Checks that no other image has the source's former name.
async fn check_name(pair: &Pair) -> Result<()> {
    let found = directory::image_id(&pair.source.io, &pair.source.name).await;
    match unless(found, errno::ENOENT)? {
        Some(id) if id != pair.source.id && id != pair.destination.id => {
            Err(Error::os("migration", errno::EEXIST))
        }
        _ => Ok(()),
    }
}

/// Copies the destination's data and properties to the source.
async fn take_back(
    pair: &Pair,
    (before, record): (&Migration, &Migration),
    destination: &Image,
    progress: &Progress,
) -> Result<()> {
    let to = &pair.destination;
    refuse_watchers(&to.io, &to.id).await?;
    check_destination(&destination.inner.view, record).await?;
    let from = &pair.source;
    // Whether the destination does without the source must be known whatever happens.
    let is_complete = match record.state {
        state::EXECUTED => true,
        state::ABORTING => before.state == state::EXECUTED,
        _ => false,
    };
    let known = if is_complete {
        state::EXECUTED
    } else {
        state::EXECUTING
    };
    set_state(&from.io, &from.id, known, "").await?;
    // From here on nobody begins to write to the destination.
    set_state(&to.io, &to.id, state::ABORTING, "").await?;
    refuse_watchers(&to.io, &to.id).await?;
    destination.inner.view.reread().await?;
    destination.inner.acquire().await?;
    let source = open(from, true).await?;
    let work = async {
        let images = (&destination.inner.view, &source.inner);
        revert(images, record, is_complete, progress).await?;
        let twins = record.snap_seqs.iter().map(|(s, d)| Twins { from: *d, to: *s });
        give_back(&destination.inner.view, &source.inner.site, twins).await
    };
    let done = work.await;
    let closed = source.close().await;
    done.and(closed)?;
    set_state(&from.io, &from.id, state::ABORTING, REVERTED).await
}

/// Checks that the destination can be removed.
async fn check_destination(destination: &View, record: &Migration) -> Result<()> {
    let header = destination.header();
    if header.op_features.contains(OpFeatures::GROUP) {
        return Err(Error::os("migration", errno::EOPNOTSUPP));
    }
    let newest = newest_copied(record);
    for (id, snapshot) in &header.snapshots {
        let is_users = snapshot.namespace == SnapshotNamespace::User;
        let is_new = *id > newest;
        if !is_users || is_new && !children_of(&destination.site, *id).await?.is_empty() {
            return Err(Error::os("migration", errno::EBUSY));
        }
    }
    Ok(())
}

/// Writes to the source the data in which the destination differs.
async fn revert(
    (destination, source): (&Rc<View>, &Rc<Inner>),
    record: &Migration,
    is_complete: bool,
    progress: &Progress,
) -> Result<()> {
    let size = destination.header().size;
    if size > source.view.header().size {
        source.begin_operation().await?.resize(size, false).await?;
    }
    let objects = destination.site.objects(size);
    let meter = Meter::new(progress, objects);
    for object in 0..objects {
        if let Some(data) = held((destination, record), object, is_complete).await? {
            let len = data.len() as u64;
            let mut rest = data;
            for Extent { offset, len } in destination.site.fixed.layout.whole_extents(object, 0, len) {
                let take = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
                write_where_different(source, offset, rest.split_to(take)).await?;
            }
        }
        meter.reached(object + 1)?;
    }
    Ok(())
}

/// The destination's content of an object, where it overrides the source's. An object that does not
/// exist shows the source's data, unless everything was copied; so does an object that was not
/// copied completely.
async fn held(
    (destination, record): (&Rc<View>, &Migration),
    object: u64,
    is_complete: bool,
) -> Result<Option<Bytes>> {
    let layout = destination.site.fixed.layout;
    let len = layout.object_len(object, destination.header().size);
    if !is_complete {
        let known = history(&destination.site.data, destination.site.fixed.object(object)).await?;
        let newest = newest_copied(record);
        if !known.is_some_and(|k| has_head(&k) && k.seq >= newest) {
            return Ok(None);
        }
    }
    let mut whole = bytes::BytesMut::new();
    for Extent { offset, len } in layout.whole_extents(object, 0, len) {
        whole.extend_from_slice(&destination.read(offset, len).await?);
    }
    Ok(Some(whole.freeze()))
}

async fn write_where_different(source: &Rc<Inner>, offset: u64, data: Bytes) -> Result<()> {
    let len = data.len() as u64;
    if source.view.read(offset, len).await? == data {
        return Ok(());
    }
    if data.iter().all(|b| *b == 0) {
        source.start(|inner| inner.discard(offset, len)).await
    } else {
        source.start(|inner| inner.write(offset, data.into())).await
    }
}

/// Removes the destination's snapshots and data.
async fn empty_destination(side: &Side, progress: &Progress) -> Result<()> {
    let image = open(side, true).await?;
    let emptied = async {
        image.inner.remove_snapshots().await?;
        image.inner.view.reread().await?;
        image.inner.empty(progress).await
    };
    let emptied = emptied.await;
    let closed = image.close().await;
    emptied.and(closed)
}

/// Removes the destination's name and header, and gives the source its name back. At each moment
/// the name by which the caller found the migration leads to what is left, so that an interrupted
/// abort can be repeated.
async fn restore_names(pair: &Pair) -> Result<()> {
    let (source, destination) = (&pair.source, &pair.destination);
    if pair.is_known_by_source() {
        remove_name(destination).await?;
        remove_objects(&destination.io, &destination.id).await?;
    }
    trash::restore(&source.io, &source.id).await?;
    remove_record(&source.io, &source.id).await?;
    if !pair.is_known_by_source() {
        remove_last(destination).await?;
    }
    Ok(())
}

async fn remove_name(side: &Side) -> Result<()> {
    match unless(directory::image_name(&side.io, &side.id).await, errno::ENOENT)? {
        Some(name) => directory::remove(&side.io, &name, &side.id).await,
        None => Ok(()),
    }
}

/// Removes the destination's header, and then its name.
async fn remove_last(destination: &Side) -> Result<()> {
    remove_objects(&destination.io, &destination.id).await?;
    remove_name(destination).await
}

/// Continues an interrupted abort after the source has been restored.
async fn remove_destination(pair: &Pair, progress: &Progress) -> Result<()> {
    empty_destination(&pair.destination, progress).await?;
    remove_last(&pair.destination).await
}

/// Continues an interrupted abort after the destination's header is gone: removes its names.
async fn remove_remains(io: &IoCtx, name: &str) -> Result<()> {
    let id = directory::listed_id(io, name).await?;
    if !is_gone(io, &id).await? {
        // Its header names another image, which is not there.
        return Err(Error::os("migration", errno::EIO));
    }
    remove_named(io, name, &id).await
}
