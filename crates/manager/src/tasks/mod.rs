//! What is done to images in the background, one task after the other: flattening them and removing them.
//!
//! Tasks are kept in the object `rbd_task` of each image's pool and namespace, so the next manager goes on with them. Formats,
//! answers and the order in which things are tried are those of Ceph's `src/pybind/mgr/rbd_support/task.py`.

mod queue;
mod run;
mod spec;
mod task;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use serde_json::Value;
use spirula_client::{IoCtx, Rados};
use spirula_rbd::{Image, Options, is_old_image, migration_status, namespaces, trash_get};
use tokio::sync::{Mutex, Notify};
use uuid::Uuid;

use self::queue::Queue;
use self::spec::ImageSpec;
use self::task::{Action, Refs, Task, refs};
use crate::failure::Failure;
use crate::pools::{image_pools, open_pool, pool_name};
use crate::python;
use crate::question::{Authority, Question, Reply, errno};
use crate::service::Tell;

/// The object that holds the tasks of a pool and namespace.
const OBJECT: &str = "rbd_task";
/// Tasks read at a time.
const BATCH: u64 = 128;

/// The tasks, and who works on them.
pub(crate) struct Tasks {
    rados: Rados,
    tell: Tell,
    queue: RefCell<Queue>,
    /// The task that is under way.
    running: Cell<Option<u64>>,
    /// One command at a time: whether there is an equal task is found out and a new one added without another between.
    turn: Mutex<()>,
    /// There may be something to do.
    wake: Notify,
}

impl Tasks {
    /// Reads the tasks that there are.
    pub(crate) async fn load(rados: Rados, tell: Tell) -> Result<Rc<Self>, Failure> {
        let tasks = Self {
            rados,
            tell,
            queue: RefCell::default(),
            running: Cell::default(),
            turn: Mutex::new(()),
            wake: Notify::new(),
        };
        for (id, name) in image_pools(&tasks.rados) {
            let Ok(io) = tasks.rados.pool_by_id(id).await else {
                continue;
            };
            let found = namespaces(&io)
                .await
                .map_err(|e| Failure::rbd(&e, "error listing namespaces"));
            let found = found.unwrap_or_else(|e| {
                tracing::warn!("namespaces of pool {name}: {}", e.text());
                Vec::new()
            });
            for namespace in std::iter::once(String::new()).chain(found) {
                let io = io.clone().with_namespace(namespace.as_str());
                if let Err(e) = tasks.load_from(&io).await {
                    let failure = Failure::rados(&e, "Failed to operate read op for oid rbd_task");
                    if failure.is_shut_out() {
                        return Err(failure);
                    }
                    tracing::error!("tasks of pool {name}/{namespace}: {e}");
                }
            }
        }
        Ok(Rc::new(tasks))
    }

    async fn load_from(&self, io: &IoCtx) -> spirula_client::Result<()> {
        let mut after = Bytes::new();
        loop {
            let batch = match io.omap_vals(OBJECT, after.clone(), Bytes::new(), BATCH).await {
                Ok(batch) => batch,
                Err(e) if e.errno() == -errno::ENOENT => return Ok(()),
                Err(e) => return Err(e),
            };
            for value in batch.vals.values() {
                let text = String::from_utf8_lossy(value);
                match Task::from_json(&text) {
                    Some(task) => self.queue.borrow_mut().insert(task),
                    None => tracing::error!("a task that can't be read: {text}"),
                }
            }
            match batch.vals.keys().next_back() {
                Some(last) if batch.more => after = last.clone(),
                _ => return Ok(()),
            }
        }
    }

    /// Answers a command.
    pub(crate) async fn command(&self, command: &str, question: &Question) -> Result<Reply, Failure> {
        let _turn = self.turn.lock().await;
        let text = |name: &str| question.optional(name).unwrap_or_default();
        let image = |name: &str| {
            let spec = ImageSpec::parse(text(name), &question.default_pool)?;
            authorize(&question.authority, &spec)?;
            Ok(spec)
        };
        match command {
            "add flatten" => self.add_flatten(&image("image_spec")?).await,
            "add remove" => self.add_remove(&image("image_spec")?).await,
            "add migration execute" => {
                self.add_migration(Action::MigrationExecute, &image("image_spec")?)
                    .await
            }
            "add migration commit" => {
                self.add_migration(Action::MigrationCommit, &image("image_spec")?)
                    .await
            }
            "add migration abort" => {
                self.add_migration(Action::MigrationAbort, &image("image_spec")?)
                    .await
            }
            "add trash remove" => self.add_trash_remove(&image("image_id_spec")?).await,
            "cancel" => self.cancel(text("task_id"), &question.authority).await,
            "list" => Ok(self.list(question.optional("task_id"), &question.authority)),
            _ => Err(Failure::Value(format!("no such command: rbd task {command}"))),
        }
    }

    async fn io(&self, (pool, namespace): (&str, &str)) -> Result<IoCtx, Failure> {
        Ok(open_pool(&self.rados, pool).await?.with_namespace(namespace))
    }

    async fn add_flatten(&self, spec: &ImageSpec) -> Result<Reply, Failure> {
        let io = self.io((&spec.pool, &spec.namespace)).await?;
        let image = look_at(&io, spec, false).await?;
        let refs = refs(Action::Flatten, spec, image.as_ref().map(|i| i.id.as_str()));
        if let Some(known) = self.known(&refs) {
            return Ok(known);
        }
        let image = image.ok_or_else(|| missing(spec))?;
        if !image.has_parent {
            let why = format!("Image {spec} does not have a parent");
            return Err(Failure::Rbd(errno::ENOENT, why));
        }
        self.add(&io, format!("Flattening image {spec}"), refs).await
    }

    async fn add_remove(&self, spec: &ImageSpec) -> Result<Reply, Failure> {
        let io = self.io((&spec.pool, &spec.namespace)).await?;
        let image = look_at(&io, spec, true).await?;
        let refs = refs(Action::Remove, spec, image.as_ref().map(|i| i.id.as_str()));
        if let Some(known) = self.known(&refs) {
            return Ok(known);
        }
        if image.ok_or_else(|| missing(spec))?.has_snapshots {
            return Err(Failure::Rbd(errno::EBUSY, format!("Image {spec} has snapshots")));
        }
        self.add(&io, format!("Removing image {spec}"), refs).await
    }

    async fn add_trash_remove(&self, spec: &ImageSpec) -> Result<Reply, Failure> {
        let refs = refs(Action::TrashRemove, spec, Some(&spec.image));
        if let Some(known) = self.known(&refs) {
            return Ok(known);
        }
        let io = self.io((&spec.pool, &spec.namespace)).await?;
        let found = trash_get(&io, &spec.image).await;
        found.map_err(|e| Failure::rbd(&e, "error retrieving image from trash"))?;
        self.add(&io, format!("Removing image {spec} from trash"), refs)
            .await
    }

    async fn add_migration(&self, action: Action, spec: &ImageSpec) -> Result<Reply, Failure> {
        let io = self.io((&spec.pool, &spec.namespace)).await?;
        let status = match migration_status(&io, &spec.image).await {
            Ok(status) => Some(status),
            Err(e) if e.is(errno::ENOENT) || e.is(errno::EINVAL) => None,
            Err(e) => return Err(Failure::rbd(&e, "error getting migration status")),
        };
        let refs = refs(action, spec, status.as_ref().map(|s| s.destination_id.as_str()));
        if let Some(known) = self.known(&refs) {
            return Ok(known);
        }
        let refused = |why: &str| Failure::Rbd(errno::EINVAL, format!("Image {spec} {why}"));
        let status = status.ok_or_else(|| refused("is not migrating"))?;
        let message = match action {
            Action::MigrationExecute if !status.is_prepared => return Err(refused("is not in ready state")),
            Action::MigrationExecute => {
                let (from, to) = (self.name(&status.source), self.name(&status.destination));
                format!("Migrating image {from} to {to}")
            }
            Action::MigrationCommit if !status.is_executed => {
                return Err(refused("has not completed migration"));
            }
            Action::MigrationCommit => format!("Committing image migration for {spec}"),
            _ => format!("Aborting image migration for {spec}"),
        };
        self.add(&io, message, refs).await
    }

    /// What an image is called, by its pool's id.
    fn name(&self, (pool, namespace, image): &(i64, String, String)) -> ImageSpec {
        ImageSpec {
            pool: pool_name(&self.rados, *pool),
            namespace: namespace.clone(),
            image: image.clone(),
        }
    }

    /// The answer where there is such a task already.
    fn known(&self, refs: &Refs) -> Option<Reply> {
        let queue = self.queue.borrow();
        queue.find(refs).map(|t| Reply::output(t.to_json()))
    }

    async fn add(&self, io: &IoCtx, message: String, refs: Refs) -> Result<Reply, Failure> {
        let sequence = self.queue.borrow_mut().next_sequence();
        let id = Uuid::new_v4().to_string();
        let task = Task::new(sequence, id, message, refs);
        let task = task.ok_or_else(|| Failure::Value("Invalid task".to_owned()))?;
        let json = task.to_json();
        let stored = [(Bytes::from(task.key()), Bytes::from(json.clone()))].into();
        let written = io.omap_set(OBJECT, &stored).await;
        written.map_err(|e| Failure::rados(&e, "Failed to operate write op for oid rbd_task"))?;
        self.queue.borrow_mut().insert(task);
        self.wake.notify_one();
        Ok(Reply::output(json))
    }

    async fn cancel(&self, id: &str, authority: &Authority) -> Result<Reply, Failure> {
        let sequence = {
            let queue = self.queue.borrow();
            let task = queue.by_id(id).filter(|t| may_see(authority, t));
            task.map(|t| t.sequence)
        };
        let Some(sequence) = sequence else {
            return Ok(no_such_task(id));
        };
        let (place, key) = {
            let mut queue = self.queue.borrow_mut();
            let Some(task) = queue.get_mut(sequence) else {
                return Ok(no_such_task(id));
            };
            task.canceled = true;
            task.failure = Some("Operation canceled".to_owned());
            let (pool, namespace) = task.place();
            ((pool.to_owned(), namespace.to_owned()), task.key())
        };
        self.post_end(sequence);
        let io = self.io((&place.0, &place.1)).await?;
        remove_stored(&io, key).await?;
        // The one that is under way ends when it notices.
        if self.running.get() != Some(sequence) {
            self.queue.borrow_mut().remove(sequence);
        }
        Ok(Reply::default())
    }

    fn list(&self, id: Option<&str>, authority: &Authority) -> Reply {
        let queue = self.queue.borrow();
        let seen = |t: &&Task| may_see(authority, t);
        let shown = match id.filter(|id| !id.is_empty()) {
            Some(id) => match queue.by_id(id).filter(seen) {
                Some(task) => task.to_value(),
                None => return no_such_task(id),
            },
            None => Value::Array(queue.iter().filter(seen).map(Task::to_value).collect()),
        };
        Reply::output(python::dumps_indented(&shown))
    }
}

fn no_such_task(id: &str) -> Reply {
    Reply::error(errno::ENOENT, format!("No such task {id}"))
}

fn may_see(authority: &Authority, task: &Task) -> bool {
    let (pool, namespace) = task.place();
    authority.allows(pool, namespace)
}

fn authorize(authority: &Authority, spec: &ImageSpec) -> Result<(), Failure> {
    if authority.allows(&spec.pool, &spec.namespace) {
        return Ok(());
    }
    let (pool, namespace) = (&spec.pool, &spec.namespace);
    Err(Failure::Denied(format!(
        "not authorized on pool={pool}, namespace={namespace}"
    )))
}

fn missing(spec: &ImageSpec) -> Failure {
    Failure::Rbd(errno::ENOENT, format!("Image {spec} does not exist"))
}

/// Forgets a task in its pool.
async fn remove_stored(io: &IoCtx, key: String) -> Result<(), Failure> {
    let keys = [Bytes::from(key)].into();
    match io.omap_rm_keys(OBJECT, &keys).await {
        Err(e) if e.errno() != -errno::ENOENT => {
            Err(Failure::rados(&e, "Failed to operate write op for oid rbd_task"))
        }
        _ => Ok(()),
    }
}

/// What has to be known of an image before a task is made of it.
struct Look {
    id: String,
    has_parent: bool,
    has_snapshots: bool,
}

/// Looks at an image, where there is one. Where it is to be written it is opened for that, so that what keeps from it is told at
/// once.
async fn look_at(io: &IoCtx, spec: &ImageSpec, read_only: bool) -> Result<Option<Look>, Failure> {
    let options = Options {
        read_only,
        ..Options::default()
    };
    let image = match Image::open(io, &spec.image, options).await {
        Ok(image) => image,
        Err(e) if e.is(errno::ENOENT) => {
            return match is_old_image(io, &spec.image).await {
                Ok(true) => Err(Failure::Rbd(errno::EINVAL, no_id(&spec.image))),
                Ok(false) => Ok(None),
                Err(e) => Err(Failure::rbd(&e, opening(&spec.image))),
            };
        }
        Err(e) => return Err(Failure::rbd(&e, opening(&spec.image))),
    };
    let header = image.header();
    let look = Look {
        id: image.fixed().id.clone(),
        has_parent: header.parent.is_some(),
        has_snapshots: !header.snapshots.is_empty(),
    };
    if let Err(e) = image.close().await {
        tracing::debug!("image {spec}: {e}");
    }
    Ok(Some(look))
}

/// What was being done where an image of the first format is asked for its id.
fn no_id(image: &str) -> String {
    format!("error getting id for image b'{image}'")
}

/// What was being done where an image can't be opened.
fn opening(image: &str) -> String {
    format!("error opening image b'{image}' at snapshot None")
}
