//! Executes a migration: copies data and snapshots from the source, while clients use the
//! destination.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use spirula_classes::rbd::Features;
use spirula_classes::rbd::migration::{Migration, state};
use spirula_classes::rbd::object_state::{EXISTS, EXISTS_CLEAN, NONEXISTENT};
use spirula_client::{IoCtx, errno};

use super::checks::under_way;
use super::content::{Content, changes, trimmed};
use super::pair::{Pair, Side};
use super::record::{notify, record, set_state};
use super::source::{Look, Region, has_head, history};
use super::steps::{Step, steps};
use crate::cls::{self, change};
use crate::image::{Image, Inner};
use crate::message::Task;
use crate::object_map;
use crate::progress::Meter;
use crate::progress::Share;
use crate::site::{Options, Purpose, Site};
use crate::view::View;
use crate::writing::Writing;
use crate::{Error, Progress, Result};

/// `assert_snapc_seq`: the write's newest snapshot must be newer than the object's.
const NEWER: u8 = 0;
/// Progress is told in this many parts.
const PARTS: u64 = 1000;
/// The pause before another attempt while the holder of the lock does not copy.
const RETRY: Duration = Duration::from_secs(1);
/// The number of attempts in a row.
const ATTEMPTS: u32 = 10;

/// Copies what a destination lacks from its source. The image is named by the destination's name,
/// or by the source's. `limits` says how the images are opened, as far as it is about memory
/// ([`Options::in_flight`], [`Options::copies`], [`Options::max_mapped`]).
///
/// # Errors
/// `ENOENT` where there is no such image, `EINVAL` where it is not migrating or the source was
/// copied, `EROFS` where the migration is being given up, `EOPNOTSUPP` where the source is of the
/// first format or no image here, `ENOSYS` where one of the two has features that are not known
/// here, `EBUSY` where somebody has the destination's lock who does not copy when asked,
/// `ECANCELED` where the progress' listener ends it. Copied objects remain.
pub async fn migration_execute(io: &IoCtx, name: &str, limits: &Options, progress: &Progress) -> Result<()> {
    let pair = Pair::find(io, name).await?;
    let (Some(_), Some(record)) = pair.records() else {
        return Err(Error::os("migration", errno::EINVAL));
    };
    match record.state {
        state::PREPARED | state::EXECUTING => {}
        state::ABORTING => return Err(Error::os("migration", errno::EROFS)),
        _ => return Err(Error::os("migration", errno::EINVAL)),
    }
    under_way(execute(&pair, record, limits, progress).await)
}

async fn execute(pair: &Pair, record: &Migration, limits: &Options, progress: &Progress) -> Result<()> {
    let write = Options {
        in_flight: limits.in_flight,
        copies: limits.copies.clone(),
        max_mapped: limits.max_mapped,
        ..Options::default()
    };
    let read = Options {
        read_only: true,
        ..write.clone()
    };
    let open = |side: &Side, options: Options| {
        let (io, name, id) = (side.io.clone(), side.name.clone(), side.id.clone());
        async move { Image::open_for(&io, (&name, &id), options, Purpose::Migrate).await }
    };
    let source = open(&pair.source, read).await?;
    let destination = open(&pair.destination, write).await?;
    let done = run(pair, record, (&source, &destination), progress).await;
    let closed = destination.close().await;
    done.and(closed)
}

/// Stores the state of the migration in both headers.
async fn tell_state(pair: &Pair, state: u8) -> Result<()> {
    for side in [&pair.source, &pair.destination] {
        set_state(&side.io, &side.id, state, "").await?;
    }
    Ok(())
}

async fn run(
    pair: &Pair,
    record: &Migration,
    (source, destination): (&Image, &Image),
    progress: &Progress,
) -> Result<()> {
    tell_state(pair, state::EXECUTING).await?;
    let destination = &destination.inner;
    let copier = Rc::new(Copier::new(Rc::clone(&source.inner.view), record.clone()));
    let teller = Rc::new(Teller::new(pair, progress));
    let (mut from, mut in_vain) = (0, 0);
    loop {
        if !destination.acquire_if_free().await? {
            // A client that writes the image copies as well; to take its lock amid that would fail
            // its writes.
            if have_copied(destination, &teller).await? {
                break;
            }
            in_vain += 1;
            if in_vain == ATTEMPTS {
                return Err(Error::os("migration", errno::EBUSY));
            }
            tokio::time::sleep(RETRY).await;
            continue;
        }
        in_vain = 0;
        match copy_all(&copier, destination, from, &teller).await? {
            None => break,
            Some(object) => from = object,
        }
    }
    copier.check_executing(&destination.site).await?;
    tell_state(pair, state::EXECUTED).await?;
    notify(&pair.destination.io, &pair.destination.id).await;
    Ok(())
}

/// Copies the objects from this one on. Where another client asks for the lock it gets it, and the
/// number of the first object that is not copied is returned.
async fn copy_all(
    copier: &Rc<Copier>,
    destination: &Rc<Inner>,
    from: u64,
    teller: &Rc<Teller>,
) -> Result<Option<u64>> {
    let objects = destination.site.objects(copier.size(&destination.view));
    let lost = Rc::new(Cell::new(None::<u64>));
    let copy = destination.site.limits.for_each(from..objects, |object| {
        let destination = Rc::clone(destination);
        let (copier, teller, lost) = (Rc::clone(copier), Rc::clone(teller), Rc::clone(&lost));
        async move {
            let done = copier.copy(&destination, object).await;
            if done.as_ref().is_err_and(|e| e.is(errno::EAGAIN)) {
                lost.set(Some(lost.get().map_or(object, |first| first.min(object))));
            }
            done?;
            let share = Share {
                done: object + 1,
                total: objects,
            };
            teller.reached(share).await
        }
    });
    match (copy.await, lost.get()) {
        (Err(e), Some(object)) if e.is(errno::EAGAIN) => Ok(Some(object)),
        (done, _) => done.map(|()| None),
    }
}

/// Asks the owner of the lock to copy everything. Returns false where it has not done so.
async fn have_copied(destination: &Rc<Inner>, teller: &Teller) -> Result<bool> {
    let told = async |share| teller.reached(share).await;
    Ok(destination.ask(&Task::Migrate, told).await? == Some(0))
}

/// Reports the progress to the caller and to the headers.
struct Teller {
    /// The two images' headers, the source's first.
    headers: [(IoCtx, String); 2],
    meter: Rc<Meter>,
    percent: Cell<u64>,
}

impl Teller {
    fn new(pair: &Pair, progress: &Progress) -> Self {
        let header = |side: &Side| (side.io.clone(), side.id.clone());
        Self {
            headers: [header(&pair.source), header(&pair.destination)],
            meter: Meter::new(progress, PARTS),
            percent: Cell::new(0),
        }
    }

    /// Reports that `done` of `total` is copied. Fails with `ECANCELED` where the listener ends the
    /// operation.
    async fn reached(&self, share: Share) -> Result<()> {
        self.meter.reached_share(share)?;
        let Share { done, total } = share;
        let now = done.min(total).saturating_mul(100) / total.max(1);
        if now <= self.percent.get() {
            return Ok(());
        }
        self.percent.set(now);
        let text = format!("{now}% complete");
        for (io, id) in &self.headers {
            set_state(io, id, state::EXECUTING, &text).await?;
        }
        Ok(())
    }
}

/// Copies objects from the source to the destination.
struct Copier {
    source: Rc<View>,
    record: Migration,
}

/// An object that is being copied, and its destination.
struct Copy<'a> {
    destination: &'a Site,
    writing: &'a Writing,
    object: u64,
}

impl Copier {
    fn new(source: Rc<View>, record: Migration) -> Self {
        Self { source, record }
    }

    /// The bytes of the destination that come from the source, at the snapshot with most of them.
    fn size(&self, destination: &View) -> u64 {
        let header = destination.header();
        let all = steps(&self.record, &header.snapshots).into_iter();
        let sizes = all.filter_map(|s| header.size_at(s.target).ok());
        sizes.max().unwrap_or_default().min(self.source_size())
    }

    /// The size of the source at the snapshot at which it was largest.
    fn source_size(&self) -> u64 {
        let header = self.source.header();
        let sizes = header.snapshots.values().map(|s| s.size);
        sizes.fold(header.size, u64::max)
    }

    /// Fails with `ESTALE` where another client has ended the migration, or marked it as executed.
    async fn check_executing(&self, destination: &Site) -> Result<()> {
        let now = record(&destination.io, &destination.fixed.id).await;
        match now {
            Ok(now) if now.state == state::EXECUTING && now.image_id == self.record.image_id => Ok(()),
            Ok(_) => Err(Error::os("migration", errno::ESTALE)),
            Err(e) => Err(e),
        }
    }

    /// Copies an object, unless that is done.
    async fn copy(&self, destination: &Rc<Inner>, object: u64) -> Result<()> {
        let site = &destination.site;
        let layout = site.fixed.layout;
        let _turn = site.limits.copy_turn(layout.object_size).await;
        let writing = destination.begin_write_as_owner().await?;
        let copy = Copy {
            destination: site,
            writing: &writing,
            object,
        };
        let oid = site.fixed.object(object);
        let known = history(&site.data, oid.clone()).await?;
        let header = &writing.header;
        let mut pending = steps(&self.record, &header.snapshots);
        pending.retain(|s| known.as_ref().is_none_or(|k| s.newest() > k.seq));
        if pending.is_empty() {
            return Ok(());
        }
        let region = Region::new(&self.source, layout, object, self.source_size()).await?;
        // A destination without a parent must hold the data that the source sees of its own.
        let flatten = self.record.flatten || header.parent.is_none() && self.source.parent().is_some();
        if !flatten && !region.has_objects() {
            return Ok(());
        }
        let mut held = None;
        if known.as_ref().is_some_and(has_head) {
            let whole = u64::from(layout.object_size);
            let data = site.data.read(oid, 0, whole).await?;
            // A copy outside the receive budget: the next read needs room there.
            held = Some(trimmed(Bytes::copy_from_slice(&data)));
        }
        self.take_steps(&copy, &region, &pending, held).await
    }

    async fn take_steps(
        &self,
        copy: &Copy<'_>,
        region: &Region<'_>,
        pending: &[Step],
        mut held: Content,
    ) -> Result<()> {
        let header = &copy.writing.header;
        let mut last: Option<(Look, Bytes)> = None;
        for step in pending {
            // No reader sees the data under a removed snapshot.
            let Ok(size) = header.size_at(step.target) else {
                continue;
            };
            let look = region.look(step.source, size)?;
            let data = match last.take() {
                Some((before, data)) if before == look => data,
                _ => trimmed(region.read(step.source, &look).await?),
            };
            // An empty object hides the parent's.
            let sees_parent = copy
                .destination
                .sees_parent_at(header, step.target, copy.object)?;
            let wanted = (!data.is_empty() || sees_parent).then(|| data.clone());
            let ops = changes(&held, &wanted);
            if !ops.is_empty() {
                // The source was whole when it was read, and none of the clients believes that all
                // was copied.
                self.check_executing(copy.destination).await?;
            }
            if wanted.is_some() {
                copy.note(step, !ops.is_empty()).await?;
            }
            copy.write(step, ops).await?;
            (held, last) = (wanted, Some((look, data)));
        }
        Ok(())
    }
}

impl Copy<'_> {
    /// Writes a step, unless another client has done so.
    async fn write(&self, step: &Step, mut ops: Vec<spirula_proto::osd::OsdOpIn>) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        ops.insert(0, cls::rbd("assert_snapc_seq", &(step.newest(), NEWER))?);
        let site = self.destination;
        let io = site.data.clone().with_snap_context(step.context());
        match change(&io, "migrate", site.fixed.object(self.object), ops).await {
            Err(e) if e.is(errno::ERANGE) || e.is(errno::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// Marks the object as existing after a step, in the object maps that do not have it yet.
    async fn note(&self, step: &Step, has_changed: bool) -> Result<()> {
        let Some(map) = &self.writing.map else {
            return Ok(());
        };
        let (site, header) = (self.destination, &self.writing.header);
        let clean = match header.has(Features::FAST_DIFF) {
            true => EXISTS_CLEAN,
            false => EXISTS,
        };
        let first = if has_changed { EXISTS } else { clean };
        let is_last = step.source.is_none();
        if let Some(target) = step.target {
            let mut state = first;
            for (snap, snapshot) in header.snapshots.range(target..) {
                if site.objects(snapshot.size) > self.object {
                    let states = (state, Some(NONEXISTENT));
                    let id = &site.fixed.id;
                    object_map::set_in_snapshot(&site.io, id, *snap, self.object, states).await?;
                }
                if !is_last {
                    return Ok(());
                }
                // Later ones see the same.
                state = clean;
            }
        }
        if !is_last || site.objects(header.size) <= self.object {
            return Ok(());
        }
        let state = if step.target.is_none() { first } else { clean };
        match map.state(self.object) {
            EXISTS => Ok(()),
            EXISTS_CLEAN if state == EXISTS_CLEAN => Ok(()),
            _ => map.set(self.object, state).await,
        }
    }
}
