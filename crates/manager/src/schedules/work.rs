//! Does the scheduled work at its time.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spirula_client::{IoCtx, errno};
use spirula_denc::UTime;
use spirula_maps::PoolId;
use spirula_rbd::{
    Image, MIRROR_BY_SNAPSHOTS, Options, Progress, image_name, is_mirror_primary, mirrored_image,
    mirrored_images, namespaces, trash_due, trash_purge,
};
use tokio::time::Instant;

use super::level::Level;
use super::{Kind, Scheduler, Target, now};
use crate::clients::Work;
use crate::failure::Failure;
use crate::rights::{Basis, Place};
use crate::service::News;

/// Removes the images in the trash whose deferment has ended.
async fn purge(io: &IoCtx) -> spirula_rbd::Result<()> {
    let due = trash_due(io, UTime::now(), None).await?;
    trash_purge(io, due, &Progress::untold()).await
}

/// How often pools, namespaces and images are listed.
const REFRESH: Duration = Duration::from_secs(60);
/// The longest wait on the clock, which may be set meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of all targets in all pools together. One pool or namespace has far fewer
/// (`mirrored_images`), so that it does not crowd out the others.
const MAX_TARGET_BYTES: usize = 48 << 20;

/// The existing targets, with their names.
#[derive(Default)]
struct Targets {
    names: BTreeMap<Target, String>,
    /// Bytes of all targets.
    bytes: usize,
}

impl Targets {
    fn is_full(&self) -> bool {
        self.bytes >= MAX_TARGET_BYTES
    }

    /// Adds a target, if there is room.
    fn insert(&mut self, target: Target, shown: String) {
        let text = target.namespace.len() + target.image.as_ref().map_or(0, String::len) + shown.len();
        self.bytes += text + size_of::<(Target, String)>();
        if !self.is_full() {
            self.names.insert(target, shown);
        }
    }
}

impl Scheduler {
    /// Reads the schedules, so that commands may be answered. Fails where this client is on the
    /// blocklist.
    pub(super) async fn prepare(&self) -> Result<(), Failure> {
        match self.refresh().await {
            Err(e) if e.is_shut_out() => return Err(e),
            Err(e) => tracing::warn!("schedules ({:?}): {}", self.kind, e.text()),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Works until this client is on the blocklist.
    pub(super) async fn keep(self: Rc<Self>) -> Failure {
        let mut refreshed = Instant::now();
        loop {
            if self.is_stale.take() || refreshed.elapsed() >= REFRESH {
                refreshed = Instant::now();
                if let Err(e) = self.prepare().await {
                    return e;
                }
            }
            let next = self.state.borrow_mut().agenda.take(now());
            match next {
                Ok(target) => {
                    if let Err(e) = self.run(&target).await {
                        if e.is_shut_out() {
                            return e;
                        }
                        tracing::warn!("{:?} of {target:?}: {}", self.kind, e.text());
                        self.note_denied(&target, &e);
                    }
                    self.state.borrow_mut().enqueue(&target, now());
                }
                Err(at) => {
                    let wait = at.and_then(|at| (at - now()).to_std().ok()).unwrap_or(PATIENCE);
                    // Another schedule, or it is time to look.
                    let _ = tokio::time::timeout(wait.min(PATIENCE), self.wake.notified()).await;
                }
            }
        }
    }

    async fn run(self: &Rc<Self>, target: &Target) -> Result<(), Failure> {
        let Some(basis) = self.basis(target) else {
            return Ok(());
        };
        match &target.image {
            None => {
                let client = self.clients.open(Work::Purge, &place(target), basis).await?;
                let purged = purge(&client.io).await;
                purged.map_err(|e| Failure::rbd(&e, "error purging images from trash"))
            }
            Some(id) => {
                self.begin_snapshot(basis, target.clone(), id.clone());
                Ok(())
            }
        }
    }

    /// Warns, once for each target, that its schedule lacks the rights for its work: its origin is
    /// unknown.
    fn note_denied(&self, target: &Target, why: &Failure) {
        if why.is_denied() && self.denied.borrow_mut().insert(target.clone()) {
            let known = self.cluster.known();
            let (pool, namespace) = (known.pool_name(target.pool), &target.namespace);
            self.tell(News::Suspect(format!(
                "schedule of pool '{pool}' namespace '{namespace}' takes more rights than it has: add it again"
            )));
        }
    }

    /// Makes a mirror snapshot of an image in the background, unless the one before is still being
    /// made.
    fn begin_snapshot(self: &Rc<Self>, basis: Basis, target: Target, id: String) {
        if self.pending.borrow().contains(&target) {
            tracing::info!("image {id}: the snapshot before is not made yet");
            return;
        }
        self.pending.borrow_mut().push(target.clone());
        let scheduler = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let permit = scheduler.permits.acquire().await;
            if let Err(e) = scheduler.snapshot(basis, &target, &id).await {
                tracing::warn!("mirror snapshot of image {id}: {}", e.text());
                scheduler.note_denied(&target, &e);
            }
            drop(permit);
            scheduler.pending.borrow_mut().retain(|t| *t != target);
        });
    }

    async fn snapshot(&self, basis: Basis, target: &Target, id: &str) -> Result<(), Failure> {
        let client = self.clients.open(Work::Snapshot, &place(target), basis).await?;
        let made = snapshot(&client.io, id).await;
        made.map_err(|e| Failure::rbd(&e, "error creating mirror snapshot"))
    }

    /// Reads the schedules and their targets.
    async fn refresh(&self) -> Result<(), Failure> {
        let _turn = self.turn.lock().await;
        let cluster = self.cluster.newest().await?;
        self.read_all(&cluster).await?;
        let mut targets = Targets::default();
        for (pool, name) in cluster.image_pools() {
            if !self.is_scheduled(&Level::of_pool(pool, name)) {
                continue;
            }
            let found = self.targets_of(pool, name, &mut targets).await;
            match found {
                Err(e) if e.is_shut_out() => return Err(e),
                Err(e) => tracing::error!("pool {name}: {}", e.text()),
                Ok(()) => {}
            }
        }
        if targets.is_full() {
            tracing::warn!(
                "{:?}: so many images have schedules that the last pools' are left alone",
                self.kind
            );
        }
        self.denied.borrow_mut().retain(|t| targets.names.contains_key(t));
        self.state.borrow_mut().set_targets(targets.names, now());
        Ok(())
    }

    /// Whether the level of a schedule overlaps this level.
    fn is_scheduled(&self, level: &Level) -> bool {
        let state = self.state.borrow();
        state.schedules.values().any(|(l, _)| l.meets(level))
    }

    async fn targets_of(&self, pool: PoolId, name: &str, targets: &mut Targets) -> Result<(), Failure> {
        let failed = |e: spirula_rbd::Error| Failure::rbd(&e, "error listing images");
        let io = self.cluster.pool(pool).await?;
        let found = namespaces(&io).await.map_err(failed)?;
        for namespace in std::iter::once(String::new()).chain(found) {
            let target = |image| Target {
                pool,
                namespace: namespace.clone(),
                image,
            };
            if self.kind == Kind::TrashPurge {
                targets.insert(target(None), name.to_owned());
                continue;
            }
            let level = Level {
                namespace: Some(namespace.clone()),
                ..Level::of_pool(pool, name)
            };
            if self.is_scheduled(&level) {
                let io = io.clone().with_namespace(namespace.as_str());
                let images = match primary_images(&io).await.map_err(failed) {
                    Err(e) if e.is_shut_out() => return Err(e),
                    // The other namespaces belong to others.
                    Err(e) => {
                        tracing::error!("pool {name} namespace '{namespace}': {}", e.text());
                        continue;
                    }
                    Ok(images) => images,
                };
                for (id, image) in images {
                    let shown = match namespace.is_empty() {
                        true => format!("{name}/{image}"),
                        false => format!("{name}/{namespace}/{image}"),
                    };
                    targets.insert(target(Some(id)), shown);
                }
            }
        }
        Ok(())
    }
}

fn place(target: &Target) -> Place {
    Place {
        pool: target.pool,
        namespace: target.namespace.clone(),
    }
}

/// The primary images of a pool and namespace that are mirrored by snapshots: names by ids.
async fn primary_images(io: &IoCtx) -> spirula_rbd::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for (id, image) in mirrored_images(io).await? {
        if image.mode != MIRROR_BY_SNAPSHOTS {
            continue;
        }
        let name = match is_mirror_primary(io, &id).await {
            Ok(true) => image_name(io, &id).await,
            Ok(false) => continue,
            Err(e) => Err(e),
        };
        match name {
            Ok(name) => drop(found.insert(id, name)),
            // In the trash, or removed meanwhile.
            Err(e) if e.is(errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// Makes a mirror snapshot of an image, if it is still mirrored by snapshots and primary.
async fn snapshot(io: &IoCtx, id: &str) -> spirula_rbd::Result<()> {
    let image = mirrored_image(io, id).await?;
    let is_due = image.is_some_and(|i| i.mode == MIRROR_BY_SNAPSHOTS) && is_mirror_primary(io, id).await?;
    if !is_due {
        return Ok(());
    }
    let image = Image::open_by_id(io, "", id, Options::default()).await?;
    let made = image.create_mirror_snapshot().await;
    let closed = image.close().await;
    made.and(closed)
}
