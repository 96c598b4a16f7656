//! Background tasks on images, one after the other: flattening, removal, migration.
//!
//! Tasks are kept in the object `rbd_task` of each image's pool and namespace, so that the next
//! manager goes on with them. Formats, answers and the order of attempts are those of Ceph's
//! `src/pybind/mgr/rbd_support/task.py`.

mod queue;
mod run;
mod spec;
mod task;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use spirula_client::IoCtx;
use spirula_maps::PoolId;
use spirula_rbd::{Image, Options, is_old_image, migration_status, namespaces, trash_get};
use spirula_text::python;
use tokio::sync::{Mutex, Notify, Semaphore};
use uuid::Uuid;

use self::queue::{Queue, Turn};
use self::spec::ImageSpec;
pub(crate) use self::task::Task;
use self::task::{Action, Refs, refs};
use crate::clients::{Client, Clients, Work};
use crate::cluster::{Cluster, Snapshot};
use crate::failure::Failure;
use crate::module::{Asked, LocalFuture, Module};
use crate::question::{Authority, Reply, errno};
use crate::rights::{Basis, Place};
use crate::service::News;

/// The object that holds the tasks of a pool and namespace.
const OBJECT: &str = "rbd_task";
/// Tasks that are read at a time: one record may have several MiB.
const BATCH: u64 = 2;
/// The most bytes of tasks that are read from a pool and namespace.
const MAX_BYTES: usize = 1 << 20;

/// MiB of objects that all tasks copy at a time: the size of the largest object, as each is in
/// memory twice.
const COPIED_MIB: usize = 32;
/// The most objects that an image's object map may cover: with objects of 4 MiB these are 128 TiB.
const MAX_MAPPED: u64 = 32 << 20;

/// The tasks, and their execution.
pub(crate) struct Tasks {
    /// Reads and writes tasks, and nothing else.
    cluster: Cluster,
    clients: Rc<Clients>,
    queue: RefCell<Queue>,
    /// The tasks under way by pool: one in each, so that no tenant's tasks wait for another's.
    running: RefCell<BTreeMap<PoolId, Turn>>,
    /// Memory for the objects that all tasks copy.
    copies: Arc<Semaphore>,
    /// Held by a command: no other one comes between the search for an equal task and the addition
    /// of a new one.
    turn: Mutex<()>,
    /// Notified when a task may be due.
    wake: Notify,
}

impl Tasks {
    pub(crate) fn new(cluster: Cluster, clients: Rc<Clients>) -> Rc<Self> {
        Rc::new(Self {
            cluster,
            clients,
            queue: RefCell::default(),
            running: RefCell::default(),
            copies: Arc::new(Semaphore::new(COPIED_MIB)),
            turn: Mutex::new(()),
            wake: Notify::new(),
        })
    }

    /// Reads the existing tasks.
    async fn read_all(&self) -> Result<(), Failure> {
        let mut is_complete = true;
        for (id, name) in self.cluster.known().image_pools() {
            let Ok(io) = self.cluster.pool(id).await else {
                continue;
            };
            let found = namespaces(&io)
                .await
                .map_err(|e| Failure::rbd(&e, "error listing namespaces"));
            let found = found.unwrap_or_else(|e| {
                tracing::warn!("namespaces of pool {name}: {}", e.text());
                is_complete = false;
                Vec::new()
            });
            for namespace in std::iter::once(String::new()).chain(found) {
                let io = io.clone().with_namespace(namespace.as_str());
                let home = Place { pool: id, namespace };
                let loaded = self.load_from(&io, &home, name).await;
                is_complete &= matches!(loaded, Ok(true));
                if let Err(e) = loaded {
                    let failure = Failure::rados(&e, "Failed to operate read op for oid rbd_task");
                    if failure.is_shut_out() {
                        return Err(failure);
                    }
                    tracing::error!("tasks of pool {name}/{}: {e}", home.namespace);
                }
            }
        }
        if is_complete {
            let keys: BTreeSet<String> = self.queue.borrow().iter().map(|t| t.origin().key).collect();
            self.tell(News::Tasks(keys));
        }
        Ok(())
    }

    fn tell(&self, news: News) {
        self.clients.desk().tell(news);
    }

    /// Reads the tasks in a place, in a pool of this name. Records that no manager can have written
    /// are left in place. Returns whether there were none of these.
    async fn load_from(&self, io: &IoCtx, home: &Place, pool: &str) -> spirula_client::Result<bool> {
        let mut refused: Vec<&str> = Vec::new();
        let read = self.read_from(io, home, pool, &mut refused).await;
        if let Some(why) = refused.first() {
            let (n, namespace) = (refused.len(), &home.namespace);
            self.tell(News::Suspect(format!(
                "pool '{pool}' namespace '{namespace}': {n} stored tasks on images are not done; the first is {why}"
            )));
        }
        read
    }

    /// Reads the tasks in a place. Returns whether all were read: records beyond the limit are not.
    async fn read_from(
        &self,
        io: &IoCtx,
        home: &Place,
        pool: &str,
        refused: &mut Vec<&str>,
    ) -> spirula_client::Result<bool> {
        let (mut after, mut room) = (Bytes::new(), MAX_BYTES);
        loop {
            let batch = match io.omap_vals(OBJECT, after.clone(), Bytes::new(), BATCH).await {
                Ok(batch) => batch,
                Err(e) if e.errno() == errno::ENOENT => return Ok(true),
                Err(e) => return Err(e),
            };
            for (key, value) in &batch.vals {
                let Some(left) = room.checked_sub(key.len() + value.len()) else {
                    refused.push("one too many");
                    return Ok(false);
                };
                room = left;
                match Task::stored(key, value, home, pool) {
                    Ok(task) => drop(self.queue.borrow_mut().insert(task)),
                    Err(why) => refused.push(why),
                }
            }
            match batch.vals.keys().next_back() {
                Some(last) if batch.more => after = last.clone(),
                _ => return Ok(true),
            }
        }
    }

    async fn answer(&self, command: &str, asked: &Asked<'_>) -> Result<Reply, Failure> {
        let _turn = self.turn.lock().await;
        let question = asked.question;
        let text = |name: &str| question.optional(name).unwrap_or_default();
        let image = |name: &str| {
            let spec = ImageSpec::parse(text(name), &question.default_pool)?;
            authorize(&question.authority, &spec)?;
            Ok(spec)
        };
        match command {
            "add flatten" => self.add_flatten(asked, &image("image_spec")?).await,
            "add remove" => self.add_remove(asked, &image("image_spec")?).await,
            "add migration execute" => {
                self.add_migration(asked, Action::MigrationExecute, &image("image_spec")?)
                    .await
            }
            "add migration commit" => {
                self.add_migration(asked, Action::MigrationCommit, &image("image_spec")?)
                    .await
            }
            "add migration abort" => {
                self.add_migration(asked, Action::MigrationAbort, &image("image_spec")?)
                    .await
            }
            "add trash remove" => self.add_trash_remove(asked, &image("image_id_spec")?).await,
            "cancel" => self.cancel(text("task_id"), &question.authority).await,
            "list" => Ok(self.list(question.optional("task_id"), &question.authority)),
            _ => Err(Failure::Value(format!("no such command: rbd task {command}"))),
        }
    }

    /// A client with the rights of the question's asker, and those in the image's pool and
    /// namespace.
    async fn client(&self, asked: &Asked<'_>, spec: &ImageSpec) -> Result<Client, Failure> {
        let place = place(&asked.cluster, spec)?;
        let basis = Basis::Asked(asked.number);
        self.clients.open(Work::Command, &place, basis).await
    }

    /// The context of the tasks of a place.
    async fn store(&self, home: &Place) -> spirula_client::Result<IoCtx> {
        let io = self.cluster.rados().pool_by_id(home.pool).await?;
        Ok(io.with_namespace(home.namespace.as_str()))
    }

    async fn add_flatten(&self, asked: &Asked<'_>, spec: &ImageSpec) -> Result<Reply, Failure> {
        let client = self.client(asked, spec).await?;
        let image = look_at(&client.io, spec, false).await?;
        let refs = refs(Action::Flatten, spec, image.as_ref().map(|i| i.id.as_str()));
        if let Some(known) = self.known(&refs) {
            return Ok(known);
        }
        let image = image.ok_or_else(|| missing(spec))?;
        if !image.has_parent {
            let why = format!("Image {spec} does not have a parent");
            return Err(Failure::Rbd(errno::ENOENT, why));
        }
        self.add((asked, spec), format!("Flattening image {spec}"), refs)
            .await
    }

    async fn add_remove(&self, asked: &Asked<'_>, spec: &ImageSpec) -> Result<Reply, Failure> {
        let client = self.client(asked, spec).await?;
        let image = look_at(&client.io, spec, true).await?;
        let refs = refs(Action::Remove, spec, image.as_ref().map(|i| i.id.as_str()));
        if let Some(known) = self.known(&refs) {
            return Ok(known);
        }
        if image.ok_or_else(|| missing(spec))?.has_snapshots {
            return Err(Failure::Rbd(errno::EBUSY, format!("Image {spec} has snapshots")));
        }
        self.add((asked, spec), format!("Removing image {spec}"), refs)
            .await
    }

    async fn add_trash_remove(&self, asked: &Asked<'_>, spec: &ImageSpec) -> Result<Reply, Failure> {
        let refs = refs(Action::TrashRemove, spec, Some(&spec.image));
        if let Some(known) = self.known(&refs) {
            return Ok(known);
        }
        let client = self.client(asked, spec).await?;
        let found = trash_get(&client.io, &spec.image).await;
        found.map_err(|e| Failure::rbd(&e, "error retrieving image from trash"))?;
        self.add((asked, spec), format!("Removing image {spec} from trash"), refs)
            .await
    }

    async fn add_migration(
        &self,
        asked: &Asked<'_>,
        action: Action,
        spec: &ImageSpec,
    ) -> Result<Reply, Failure> {
        let client = self.client(asked, spec).await?;
        let status = match migration_status(&client.io, &spec.image).await {
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
                let (from, to) = (
                    name(&asked.cluster, &status.source),
                    name(&asked.cluster, &status.destination),
                );
                format!("Migrating image {from} to {to}")
            }
            Action::MigrationCommit if !status.is_executed => {
                return Err(refused("has not completed migration"));
            }
            Action::MigrationCommit => format!("Committing image migration for {spec}"),
            _ => format!("Aborting image migration for {spec}"),
        };
        self.add((asked, spec), message, refs).await
    }

    /// The answer if there is an equal task already.
    fn known(&self, refs: &Refs) -> Option<Reply> {
        let queue = self.queue.borrow();
        queue.find(refs).map(|t| Reply::output(t.to_json()))
    }

    /// Adds the task that a question asks for.
    async fn add(
        &self,
        (asked, spec): (&Asked<'_>, &ImageSpec),
        message: String,
        refs: Refs,
    ) -> Result<Reply, Failure> {
        let home = place(&asked.cluster, spec)?;
        let invalid = || Failure::Value("Invalid task".to_owned());
        let sequence = self.queue.borrow().next_sequence(&home).ok_or_else(invalid)?;
        let id = Uuid::new_v4().to_string();
        let task = Task::new(sequence, id, message, refs, home).ok_or_else(invalid)?;
        let json = task.to_json();
        // A task that the next manager would refuse is none.
        Task::stored(task.key().as_bytes(), json.as_bytes(), &task.home, &spec.pool)
            .map_err(|_| invalid())?;
        // First, so that nobody has to guess whose it is.
        self.clients.desk().note(asked.number, task.origin()).await?;
        let stored = [(Bytes::from(task.key()), Bytes::from(json.clone()))].into();
        let failed = |e| Failure::rados(&e, "Failed to operate write op for oid rbd_task");
        let io = self.store(&task.home).await.map_err(failed)?;
        io.omap_set(OBJECT, &stored).await.map_err(failed)?;
        self.queue.borrow_mut().insert(task);
        self.wake.notify_one();
        Ok(Reply::output(json))
    }

    async fn cancel(&self, id: &str, authority: &Authority) -> Result<Reply, Failure> {
        let found = {
            let queue = self.queue.borrow();
            let found = queue.by_id(id, |t| may_see(authority, t));
            found.map(|(turn, _)| turn)
        };
        let Some(turn) = found else {
            return Ok(no_such_task(id));
        };
        let (home, key, origin) = {
            let mut queue = self.queue.borrow_mut();
            let Some(task) = queue.get_mut(turn) else {
                return Ok(no_such_task(id));
            };
            task.canceled = true;
            task.failure = Some("Operation canceled".to_owned());
            (task.home.clone(), task.key(), task.origin())
        };
        self.post_end(turn);
        let io = self.store(&home).await;
        let io = io.map_err(|e| Failure::rados(&e, format!("error opening pool id '{}'", home.pool)))?;
        remove_stored(&io, key).await?;
        self.tell(News::Forget(origin.key));
        // The one that is under way ends when it notices.
        if !self.running.borrow().values().any(|t| *t == turn) {
            self.queue.borrow_mut().remove(turn);
        }
        Ok(Reply::default())
    }

    fn list(&self, id: Option<&str>, authority: &Authority) -> Reply {
        let queue = self.queue.borrow();
        let seen = |t: &&Task| may_see(authority, t);
        let shown = match id.filter(|id| !id.is_empty()) {
            Some(id) => match queue.by_id(id, |t| may_see(authority, t)) {
                Some((_, task)) => task.to_value(),
                None => return no_such_task(id),
            },
            None => Value::Array(queue.iter().filter(seen).map(Task::to_value).collect()),
        };
        Reply::output(python::dumps_indented(&shown))
    }
}

impl Module for Tasks {
    fn prefix(&self) -> &'static str {
        "rbd task "
    }

    fn load(&self) -> LocalFuture<'_, Result<(), Failure>> {
        Box::pin(self.read_all())
    }

    fn command<'a>(&'a self, command: &'a str, asked: Asked<'a>) -> LocalFuture<'a, Result<Reply, Failure>> {
        Box::pin(async move { self.answer(command, &asked).await })
    }

    fn work(self: Rc<Self>) -> LocalFuture<'static, Failure> {
        Box::pin(self.run())
    }
}

/// The place of an image.
fn place(cluster: &Snapshot, spec: &ImageSpec) -> Result<Place, Failure> {
    Ok(Place {
        pool: cluster.need_pool(&spec.pool)?,
        namespace: spec.namespace.clone(),
    })
}

/// The name of an image, by its pool's id.
fn name(cluster: &Snapshot, (pool, namespace, image): &(PoolId, String, String)) -> ImageSpec {
    ImageSpec {
        pool: cluster.pool_name(*pool).to_owned(),
        namespace: namespace.clone(),
        image: image.clone(),
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

/// Removes a task's record from its pool.
async fn remove_stored(io: &IoCtx, key: String) -> Result<(), Failure> {
    let keys = [Bytes::from(key)].into();
    match io.omap_rm_keys(OBJECT, &keys).await {
        Err(e) if e.errno() != errno::ENOENT => {
            Err(Failure::rados(&e, "Failed to operate write op for oid rbd_task"))
        }
        _ => Ok(()),
    }
}

/// The properties of an image that decide about a new task.
struct Look {
    id: String,
    has_parent: bool,
    has_snapshots: bool,
}

/// Reads an image, if it exists. An image that the task will write is opened for writing, so that
/// obstacles are reported at once.
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

/// The failed operation for an image of the first format, which has no id.
fn no_id(image: &str) -> String {
    format!("error getting id for image b'{image}'")
}

/// The failed operation for an image that can't be opened.
fn opening(image: &str) -> String {
    format!("error opening image b'{image}' at snapshot None")
}
