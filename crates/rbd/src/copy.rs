//! Copies of images: of their data only, or with their snapshots (Ceph's `rbd_copy` and
//! `rbd_deep_copy`).

use std::rc::Rc;

use spirula_classes::rbd::OpFeatures;
use spirula_client::IoCtx;
use spirula_denc::Extent;

use crate::cls::tell;
use crate::create::clone_open;
use crate::diff::DiffOptions;
use crate::header::Snapshot;
use crate::image::Image;
use crate::progress::Meter;
use crate::progress::Share;
use crate::site::Options;
use crate::transfer::{SPARSE, Writes, parts};
use crate::{CloneFormat, CreateOptions, Progress, Result, clones, create, names};

/// How a part of an image is copied.
struct Step<'a> {
    source: &'a Image,
    target: &'a Image,
    options: DiffOptions,
    /// Runs of zeros of this many bytes are not written.
    block: u64,
    /// The destination is still empty there.
    is_new: bool,
}

impl Step<'_> {
    /// Copies the differences. `told` hears the progress, in bytes of the image.
    async fn run(&self, told: impl Fn(u64) -> Result<()>) -> Result<()> {
        let mut differences = self.source.differences(&self.options).await?;
        let mut writes = Writes::new(Rc::clone(&self.target.inner));
        while let Some(difference) = differences.next().await? {
            if !difference.has_data {
                writes.discard(difference.offset, difference.len).await?;
            } else {
                for Extent { offset, len } in parts(difference.offset, difference.len) {
                    let data = self.source.inner.view.read(offset, len).await?;
                    writes.write(offset, data, self.block, self.is_new).await?;
                }
            }
            told(difference.offset + difference.len)?;
        }
        writes.finish().await
    }
}

impl Image {
    /// Copies data and metadata of the image, or of the snapshot that is read, to a new image. Runs
    /// of zeros of `block` bytes are not written.
    ///
    /// # Errors
    /// As [`create`], and as [`Image::write`]; `ECANCELED` where the progress' listener ends it.
    /// Copied objects remain.
    pub async fn copy(
        &self,
        io: &IoCtx,
        name: &str,
        options: &CreateOptions,
        block: u64,
        progress: &Progress,
    ) -> Result<()> {
        self.refresh().await?;
        create(io, name, self.size(), &options.of_copy(self)).await?;
        let target = Self::open(io, name, Options::default()).await?;
        let done = self.copy_to(&target, block, progress).await;
        let closed = target.close().await;
        done.and(closed)
    }

    async fn copy_to(&self, target: &Self, block: u64, progress: &Progress) -> Result<()> {
        self.copy_metadata(target).await?;
        let meter = Meter::new(progress, self.size());
        let step = Step {
            source: self,
            target,
            options: DiffOptions::default(),
            block,
            is_new: true,
        };
        step.run(|at| meter.reached(at)).await
    }

    async fn copy_metadata(&self, target: &Self) -> Result<()> {
        let noted = clones::metadata(self.pool(), &names::header(&self.fixed().id)).await?;
        if noted.is_empty() {
            return Ok(());
        }
        tell(
            target.pool(),
            names::header(&target.fixed().id),
            "metadata_set",
            &noted,
        )
        .await
    }

    /// Copies the image with its users' snapshots, or what there was at the snapshot that is read
    /// with those before it. A clone's copy is a clone of the same snapshot, unless it is to be
    /// flat.
    ///
    /// # Errors
    /// As [`Image::copy`].
    pub async fn deep_copy(
        &self,
        io: &IoCtx,
        name: &str,
        options: &CreateOptions,
        flat: bool,
        progress: &Progress,
    ) -> Result<()> {
        self.refresh().await?;
        let header = self.header();
        let last = self.snapshot_id();
        let wanted = |s: &&Snapshot| last.is_none_or(|last| s.id <= last);
        let snapshots: Vec<Snapshot> = header.user_snapshots().filter(wanted).cloned().collect();
        let copy = DeepCopy {
            source: self,
            snapshots,
            flat,
        };
        let is_clone = copy.create(io, name, options).await?;
        let target = Self::open(io, name, Options::default()).await?;
        let done = copy.run(&target, is_clone, progress).await;
        let closed = target.close().await;
        done.and(closed)
    }
}

struct DeepCopy<'a> {
    source: &'a Image,
    /// The snapshots that are copied before the image itself, oldest first.
    snapshots: Vec<Snapshot>,
    flat: bool,
}

impl DeepCopy<'_> {
    /// How much of a parent the oldest copied snapshot sees.
    fn overlap(&self) -> Result<u64> {
        let first = self.snapshots.first().map(|s| s.id);
        self.source
            .header()
            .overlap_at(first.or(self.source.snapshot_id()))
    }

    /// Makes the copy, without data of its own. Returns whether it is a clone.
    async fn create(&self, io: &IoCtx, name: &str, options: &CreateOptions) -> Result<bool> {
        let options = options.of_copy(self.source);
        let overlap = self.overlap()?;
        let parent = self.parent().await?.filter(|_| !self.flat && overlap > 0);
        let Some(parent) = parent else {
            let first = self.snapshots.first().map_or(self.source.size(), |s| s.size);
            return create(io, name, first, &options).await.map(|()| false);
        };
        let header = self.source.header();
        let is_v2 = header.op_features.contains(OpFeatures::CLONE_CHILD)
            || parent.pool().namespace() != io.namespace();
        let options = CreateOptions {
            clone_format: if is_v2 { CloneFormat::V2 } else { CloneFormat::V1 },
            ..options
        };
        clone_open(&parent, io, name, &options, false).await?;
        Ok(true)
    }

    /// The parent of the image, or of a snapshot of it.
    async fn parent(&self) -> Result<Option<Image>> {
        if let Some(parent) = self.source.inner.view.parent() {
            return Ok(Some(Image::of(parent)));
        }
        match self.snapshots.first() {
            Some(first) => Ok(self
                .open_at(&first.name)
                .await?
                .inner
                .view
                .parent()
                .map(Image::of)),
            None => Ok(None),
        }
    }

    async fn open_at(&self, snapshot: &str) -> Result<Image> {
        let options = Options {
            read_only: true,
            snapshot: Some(snapshot.to_owned()),
            ..Options::default()
        };
        let (io, id) = (self.source.pool(), &self.source.fixed().id);
        Image::open_by_id(io, &self.source.name(), id, options).await
    }

    async fn run(&self, target: &Image, is_clone: bool, progress: &Progress) -> Result<()> {
        self.source.copy_metadata(target).await?;
        let all = self.snapshots.len() as u64 + 1;
        let meter = Meter::new(progress, PARTS);
        // The copy sees as much of the parent as the image does.
        if is_clone {
            let overlap = self.overlap()?;
            if overlap < target.size() {
                target.resize(overlap, true).await?;
            }
        }
        let mut from = None;
        for (n, snapshot) in (0..).zip(&self.snapshots) {
            let source = self.open_at(&snapshot.name).await?;
            let told = |at: u64| {
                meter.reached_share(Share {
                    done: n * PARTS + share(at, source.size()),
                    total: all * PARTS,
                })
            };
            self.take(&source, target, (from.take(), is_clone), told).await?;
            target.create_snapshot(&snapshot.name).await?;
            if snapshot.protected {
                target.protect_snapshot(&snapshot.name).await?;
            }
            from = Some(snapshot.name.clone());
        }
        let told = |at: u64| {
            meter.reached_share(Share {
                done: (all - 1) * PARTS + share(at, self.source.size()),
                total: all * PARTS,
            })
        };
        self.take(self.source, target, (from, is_clone), told).await?;
        let sees_parent = self.source.header().overlap_at(self.source.snapshot_id())? > 0;
        if is_clone && !sees_parent && target.header().overlap_at(None)? > 0 {
            // It was flattened after its snapshots were taken.
            target.flatten(&Progress::untold()).await?;
        }
        meter.reached(PARTS)
    }

    /// Copies the source into this image. The source is open at the snapshot that is to be copied,
    /// or as it is.
    async fn take(
        &self,
        source: &Image,
        target: &Image,
        (from, is_clone): (Option<String>, bool),
        told: impl Fn(u64) -> Result<()>,
    ) -> Result<()> {
        if source.size() != target.size() {
            target.resize(source.size(), true).await?;
        }
        let step = Step {
            source,
            target,
            is_new: from.is_none() && !is_clone,
            options: DiffOptions {
                from,
                own: is_clone,
                ..DiffOptions::default()
            },
            block: SPARSE,
        };
        step.run(told).await
    }
}

/// Progress is told in this many parts, of a step and of the whole copy.
const PARTS: u64 = 1 << 20;

fn share(at: u64, of: u64) -> u64 {
    u64::try_from(u128::from(at.min(of)) * u128::from(PARTS) / u128::from(of.max(1))).unwrap_or(PARTS)
}
