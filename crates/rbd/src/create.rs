//! New images, and clones.

use bytes::Bytes;
use spirula_classes::rbd::object_state::NONEXISTENT;
use spirula_classes::rbd::{Features, ParentImageSpec, Striping};
use spirula_client::{IoCtx, Layout, errno};
use spirula_maps::{PoolId, PoolOrNone, release};

use crate::bounds::{MAX_MAPPED, MAX_ORDER, MIN_ORDER};
use crate::clones::{self, Link};
use crate::cls::{self, change, tell};
use crate::image::Image;
use crate::remove::remove_named;
use crate::site::Options;
use crate::{Error, JournalOptions, Result, directory, journal, mirror, names};

/// The default size of objects as a power of two.
const DEFAULT_ORDER: u8 = 22;
/// The smallest stripe unit.
const MIN_STRIPE_UNIT: u64 = 512;
/// The default features of new images.
const DEFAULT_FEATURES: Features = Features::LAYERING
    .with(Features::EXCLUSIVE_LOCK)
    .with(Features::OBJECT_MAP)
    .with(Features::FAST_DIFF)
    .with(Features::DEEP_FLATTEN);
/// Features that follow from other options and are never asked for.
const IMPLICIT: Features = Features::STRIPINGV2
    .with(Features::DATA_POOL)
    .with(Features::FAST_DIFF);
/// Features with which images can be made.
const CREATABLE: Features = DEFAULT_FEATURES
    .with(Features::STRIPINGV2)
    .with(Features::DATA_POOL)
    .with(Features::JOURNALING);
/// Letters of an id's random part.
const ID_LETTERS: usize = 3;

/// The features of an image that can be asked for when another one is made.
pub(crate) fn creatable(features: Features) -> Features {
    features.intersection(CREATABLE)
}

/// Where a clone is listed, so that its parent's snapshot stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CloneFormat {
    /// Format 2 where the cluster requires clients that know it, else format 1.
    #[default]
    Auto,
    /// In a list of the clone's pool; the snapshot must be protected.
    V1,
    /// In the parent's header.
    V2,
}

/// Options of a new image. An option that is not given has its default, or the parent's value.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// The size of its objects as a power of two.
    pub order: Option<u8>,
    /// Its features.
    pub features: Option<Features>,
    /// The stripe unit in bytes, and the stripe count: objects of an object set.
    pub striping: Option<Striping>,
    /// The pool of its data.
    pub data_pool: Option<String>,
    /// Where a clone is listed.
    pub clone_format: CloneFormat,
    /// Options of its journal, where it has one.
    pub journal: JournalOptions,
}

/// A new image with all its options decided.
struct Plan {
    id: String,
    order: u8,
    features: Features,
    striping: Option<Striping>,
    data_pool: Option<PoolId>,
    layout: Layout,
    journal: JournalOptions,
}

fn invalid() -> Error {
    Error::os("create", errno::EINVAL)
}

/// A new id: the client's global id and random digits, in hexadecimal.
fn new_id(io: &IoCtx) -> Result<String> {
    let mut random = [0; ID_LETTERS * 2];
    let failed = |_| Error::os("create", errno::EIO);
    spirula_random::fill(&mut random).map_err(failed)?;
    let digits: String = random.iter().map(|b| format!("{b:02x}")).collect();
    Ok(format!("{:x}{digits}", io.rados().monitors().global_id()))
}

fn checked_features(wanted: Option<Features>) -> Result<Features> {
    let mut features = wanted.unwrap_or(DEFAULT_FEATURES).without(IMPLICIT);
    if !CREATABLE.contains(features) {
        return Err(Error::os("create", errno::ENOSYS));
    }
    let needs_lock = features.intersects(Features::OBJECT_MAP.with(Features::JOURNALING));
    if needs_lock && !features.contains(Features::EXCLUSIVE_LOCK) {
        return Err(invalid());
    }
    if features.contains(Features::OBJECT_MAP) {
        features.insert(Features::FAST_DIFF);
    }
    Ok(features)
}

impl Plan {
    async fn new(io: &IoCtx, size: u64, options: &CreateOptions) -> Result<Self> {
        let order = options.order.unwrap_or(DEFAULT_ORDER);
        if !(MIN_ORDER..=MAX_ORDER).contains(&order) {
            return Err(Error::os("create", errno::EDOM));
        }
        let object_size = 1u32 << order;
        let mut features = checked_features(options.features)?;
        if features.contains(Features::JOURNALING) {
            mirror::check_unmirrored(io).await?;
        }
        let usual = Striping {
            unit: object_size.into(),
            count: 1,
        };
        let striping = options.striping.filter(|s| *s != usual);
        let Striping { unit, count } = striping.unwrap_or(usual);
        let narrow = |n: u64| u32::try_from(n).map_err(|_| invalid());
        let layout = Layout {
            stripe_unit: narrow(unit)?,
            stripe_count: narrow(count)?,
            object_size,
        };
        if !layout.is_valid() || unit < MIN_STRIPE_UNIT {
            return Err(invalid());
        }
        if striping.is_some() {
            features.insert(Features::STRIPINGV2);
        }
        let data_pool = match &options.data_pool {
            None => None,
            Some(name) => Some(io.rados().pool(name).await?.pool_id()),
        };
        let data_pool = data_pool.filter(|id| *id != io.pool_id());
        if data_pool.is_some() {
            features.insert(Features::DATA_POOL);
        }
        if features.contains(Features::OBJECT_MAP) && layout.objects(size) > MAX_MAPPED {
            return Err(invalid());
        }
        Ok(Self {
            id: new_id(io)?,
            order,
            features,
            striping,
            data_pool,
            layout,
            journal: options.journal.clone(),
        })
    }

    /// Makes header and object map.
    async fn make(&self, io: &IoCtx, size: u64) -> Result<()> {
        let header = names::header(&self.id);
        let prefix = names::data_prefix(&self.id, self.data_pool.map(|_| io.pool_id()));
        let input = (
            (size, self.order),
            (self.features, (prefix, PoolOrNone(self.data_pool))),
        );
        let ops = vec![cls::create(true), cls::rbd("create", &input)?];
        change(io, "create", &header, ops).await?;
        if let Some(striping) = &self.striping {
            tell(io, &header, "set_stripe_unit_count", striping).await?;
        }
        if self.features.contains(Features::OBJECT_MAP) {
            let input = (self.layout.objects(size), NONEXISTENT);
            tell(io, names::object_map(&self.id, None), "object_map_resize", &input).await?;
        }
        if self.features.contains(Features::JOURNALING) {
            journal::create(io, &self.id, &self.journal).await?;
        }
        Ok(())
    }
}

/// Marks the pool as one for images, as all clients do. The check also shows whether snapshots can
/// be taken in it.
///
/// # Errors
/// Where they can't.
pub async fn mark_pool(io: &IoCtx) -> Result<()> {
    /// The content of the marking object afterwards.
    const VALIDATED: &[u8] = b"overwrite validated";
    match io.read(names::INFO, 0, 0).await {
        Ok(held) if held == VALIDATED => return Ok(()),
        Ok(_) => {}
        Err(e) if e.errno() == errno::ENOENT => {
            // From the first such id on clients manage the pool's snapshots.
            let snap = io.self_managed_snap_create().await?;
            io.self_managed_snap_remove(snap).await?;
        }
        Err(e) => return Err(e.into()),
    }
    Ok(io.write_full(names::INFO, Bytes::from_static(VALIDATED)).await?)
}

/// Makes an image.
///
/// # Errors
/// `EEXIST` where there is one of this name, `EINVAL` and `EDOM` for what can't be, `ENOSYS` for
/// unknown features.
pub async fn create(io: &IoCtx, name: &str, size: u64, options: &CreateOptions) -> Result<()> {
    make(io, name, size, options).await.map(drop)
}

async fn make(io: &IoCtx, name: &str, size: u64, options: &CreateOptions) -> Result<String> {
    let plan = Plan::new(io, size, options).await?;
    let data = match plan.data_pool {
        None => io.clone(),
        Some(id) => io.rados().pool_by_id(id).await?,
    };
    // One mark is for all namespaces.
    mark_pool(&data.with_namespace("")).await?;
    directory::add(io, name, &plan.id).await?;
    if let Err(e) = plan.make(io, size).await {
        // The first failure is returned, not this one's.
        let _ = remove_named(io, name, &plan.id).await;
        return Err(e);
    }
    Ok(plan.id)
}

/// The format of new clones in this cluster.
async fn clone_format(io: &IoCtx, wanted: CloneFormat) -> Result<CloneFormat> {
    if wanted != CloneFormat::Auto {
        return Ok(wanted);
    }
    let map = io.rados().latest_map().await?;
    Ok(match map.require_min_compat_client >= release::MIMIC {
        true => CloneFormat::V2,
        false => CloneFormat::V1,
    })
}

/// Makes an image that begins as a snapshot of another one, without copying its data.
///
/// # Errors
/// `ENOENT` where there is no such snapshot, `EINVAL` where it would have to be protected, and as
/// [`create`].
pub async fn clone(
    parent: &IoCtx,
    image: &str,
    snapshot: &str,
    io: &IoCtx,
    name: &str,
    options: &CreateOptions,
) -> Result<()> {
    let open = Options {
        read_only: true,
        snapshot: Some(snapshot.to_owned()),
        ..Options::default()
    };
    let parent = Image::open(parent, image, open).await?;
    clone_open(&parent, io, name, options, true).await
}

/// Makes a clone of the snapshot at which an image is open. It gets the parent's metadata, unless
/// other metadata is given.
pub(crate) async fn clone_open(
    parent: &Image,
    io: &IoCtx,
    name: &str,
    options: &CreateOptions,
    with_metadata: bool,
) -> Result<()> {
    let format = clone_format(io, options.clone_format).await?;
    let header = parent.header();
    let snap = parent.snapshot_id().and_then(|id| header.snapshots.get(&id));
    let snap = snap.ok_or(Error::os("clone", errno::ENOENT))?;
    if !header.has(Features::LAYERING) {
        return Err(Error::os("clone", errno::ENOSYS));
    }
    if format == CloneFormat::V1 && !snap.protected {
        return Err(Error::os("clone", errno::EINVAL));
    }
    let inherited = header.features.intersection(DEFAULT_FEATURES);
    let options = CreateOptions {
        features: Some(options.features.unwrap_or(inherited).with(Features::LAYERING)),
        ..options.like(parent)
    };
    let size = snap.size;
    let id = make(io, name, size, &options).await?;
    let link = Link {
        parent: parent.pool(),
        spec: ParentImageSpec {
            pool_id: parent.pool().pool_id().into(),
            pool_namespace: parent.pool().namespace().as_bytes().to_vec().into(),
            image_id: Bytes::from(parent.fixed().id.clone()),
            snap_id: snap.id,
        },
        io,
        child: &id,
    };
    let linked = attach(&link, size, format, with_metadata).await;
    if linked.is_err() {
        // The first failure is returned, not this one's.
        let _ = clones::detach(&link).await;
        let _ = remove_named(io, name, &id).await;
    }
    linked
}

impl CreateOptions {
    /// These options, with the layout of `image` where none is given.
    fn like(&self, image: &Image) -> Self {
        let (layout, header) = (image.fixed().layout, image.header());
        let striping = Striping {
            unit: layout.stripe_unit.into(),
            count: layout.stripe_count.into(),
        };
        let is_striped = header.has(Features::STRIPINGV2);
        Self {
            order: self.order.or(Some(image.fixed().order)),
            striping: self.striping.or(is_striped.then_some(striping)),
            ..self.clone()
        }
    }

    /// These options, with the layout and features of the copied `image` where none are given.
    pub(crate) fn of_copy(&self, image: &Image) -> Self {
        let copied = DEFAULT_FEATURES.with(Features::JOURNALING);
        let features = image.header().features.intersection(copied);
        Self {
            features: self.features.or(Some(features)),
            ..self.like(image)
        }
    }
}

/// Makes `link.child` a clone of `link.parent`.
async fn attach(link: &Link<'_>, overlap: u64, format: CloneFormat, with_metadata: bool) -> Result<()> {
    let header = names::header(link.child);
    let input = (link.spec.clone(), (overlap, false));
    tell(link.io, &header, "parent_attach", &input).await?;
    match format {
        CloneFormat::V1 => clones::attach_v1(link).await?,
        CloneFormat::V2 | CloneFormat::Auto => clones::attach_v2(link).await?,
    }
    if !with_metadata {
        return Ok(());
    }
    let metadata = clones::metadata(link.parent, &clones::parent_header(link)).await?;
    if !metadata.is_empty() {
        tell(link.io, &header, "metadata_set", &metadata).await?;
    }
    Ok(())
}
