//! `spirula osd rm N`: takes an OSD of a directory out of its cluster, once no data depends on it
//! any more.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use spirula_maps::OsdId;

use super::census::{Here, InMap, is_vacant};
use super::progress::{Progress, quoted};
use super::replace::SURE;
use super::supervisor;
use crate::admin::Admin;
use crate::daemon::DaemonName;
use crate::error::Error;
use crate::layout::{Layout, Spec};
use crate::pidfile;

/// How often the state of its PGs is read.
const LOOK: Duration = Duration::from_millis(500);
/// How long the state may stay the same before the command gives up.
const STUCK: Duration = Duration::from_secs(60);
/// How long the daemon may take to end, and the monitors to notice: longer than the supervisor
/// waits.
const END: Duration = Duration::from_secs(supervisor::STOP_PATIENCE.as_secs() + 15);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The OSD's number
    id: OsdId,
    /// The directory of a cluster that `spirula up` has made
    #[arg(long, default_value = "./spirula-data")]
    dir: PathBuf,
    /// Do not wait until others have what it has: that may be lost for good
    #[arg(long, requires = "sure")]
    force: bool,
    /// Be sure of --force
    #[arg(long = "yes-i-really-mean-it", id = "sure", requires = "force")]
    sure: bool,
}

struct Removal {
    layout: Layout,
    progress: Progress,
    admin: Admin,
    id: OsdId,
    name: DaemonName,
    force: bool,
}

/// Runs the command, which may be interrupted and repeated: marks the OSD out, waits until other
/// OSDs have all its data, stops it, purges it from the cluster, and only then removes its
/// directory.
///
/// # Errors
/// Where data would depend on it, or might, or where a step fails.
pub(crate) async fn run(args: Args) -> Result<(), Error> {
    let layout = Layout::new(&args.dir)?;
    spirula_files::check_path(layout.root())?;
    let spec = spec(&layout)?;
    let admin = Admin::connect(&layout).await.map_err(|e| {
        Error::Usage(format!(
            "the monitors must say that nothing depends on it: {e}. Does the cluster run? `spirula up --detach --dir {}` starts it",
            quoted(layout.root())
        ))
    })?;
    let name = DaemonName::osd(args.id);
    let removal = Removal {
        progress: Progress::new(),
        id: args.id,
        force: args.force,
        name,
        admin,
        layout,
    };
    removal.run(spec).await
}

fn spec(layout: &Layout) -> Result<Spec, Error> {
    let none = || Error::Usage(format!("no cluster in {}", layout.root().display()));
    layout.load_spec()?.ok_or_else(none)
}

impl Removal {
    async fn run(self, spec: Spec) -> Result<(), Error> {
        let (id, name) = (self.id, &self.name);
        let here = Here::look(&self.layout, id);
        let known = self.admin.osd_map().await?.osds.get(&id).copied();
        let root = self.layout.root().display();
        match (known, spec.osds.contains(&id), here) {
            (None, false, Here::Nothing) => {
                return Err(Error::Usage(format!("there is no {name} in {root}")));
            }
            (Some(_), false, Here::Nothing) => {
                return Err(Error::Usage(format!(
                    "{name} is not one of the cluster's in {root}: remove it where it runs, and with `ceph osd purge`"
                )));
            }
            _ => {}
        }
        if !self.force {
            self.wait_until_safe(known).await?;
        }
        self.stop().await?;
        if known.is_some() {
            self.purge().await?;
        }
        self.remove_directory()
    }

    /// Waits until no PG is on the OSD and all are complete without it.
    async fn wait_until_safe(&self, known: Option<InMap>) -> Result<(), Error> {
        let Some(mut why) = self.needed().await? else {
            return Ok(());
        };
        if known.is_none() {
            return Err(Error::Usage(format!(
                "{why}: its store may have what they lack. Wait, or see `ceph health detail`; --force {SURE} deletes it all the same"
            )));
        }
        self.check_left().await?;
        let out = json!({"prefix": "osd out", "ids": [self.id.to_string()], "format": "json"});
        self.admin.tell(out).await?;
        self.progress.step(format!(
            "{} is out of use; what it has is copied to the others. Interrupted, the same command goes on; `ceph osd in {}` takes it back",
            self.name, self.id
        ));
        let mut changed = Instant::now();
        let mut was = Vec::new();
        loop {
            let pgs = self.admin.pgs().await?;
            let now: Vec<Value> = pgs.iter().map(what_moves).collect();
            if now != was {
                (was, changed) = (now, Instant::now());
            }
            match self.needed().await? {
                None => return Ok(()),
                Some(still) => why = still,
            }
            if changed.elapsed() > STUCK {
                return Err(Error::Daemon(format!(
                    "{why}, and for {} s nothing has changed: see `ceph health detail`. {} stays out of use and keeps what it has; \
                     `ceph osd in {}` takes it back",
                    STUCK.as_secs(),
                    self.name,
                    self.id
                )));
            }
            self.progress.wait(&why);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Why the OSD is still needed, or may be, as Ceph's `osd safe-to-destroy` judges: a PG is on
    /// it, or a PG is incomplete, and the OSD might have the missing data.
    async fn needed(&self) -> Result<Option<String>, Error> {
        let map = self.admin.osd_map().await?;
        let pgs = self.admin.pgs().await?;
        // A place without an OSD is `None`.
        let members = |pg: &Value| -> Vec<Option<OsdId>> {
            let of = |key: &str| pg[key].as_array().cloned().unwrap_or_default();
            let all = of("up").into_iter().chain(of("acting"));
            all.filter_map(|o| o.as_u64())
                .map(|o| OsdId::try_from(o).ok())
                .collect()
        };
        let on_it = pgs.iter().filter(|pg| members(pg).contains(&Some(self.id)));
        let on_it = on_it.count();
        if on_it > 0 {
            return Ok(Some(format!("{on_it} PGs are on {}", self.name)));
        }
        // The reported state of a PG is old where one of its members is gone.
        let is_up = |osd: Option<OsdId>| {
            let known = osd.and_then(|osd| map.osds.get(&osd));
            known.is_some_and(|o| o.is_up)
        };
        let is_whole = |pg: &Value| {
            let state = pg["state"].as_str().unwrap_or_default();
            state.starts_with("active+clean") && members(pg).into_iter().all(is_up)
        };
        let lacking: Vec<&Value> = pgs.iter().filter(|pg| !is_whole(pg)).collect();
        let text = |v: &Value| v.as_str().unwrap_or("unknown").to_owned();
        Ok(lacking.first().map(|pg| {
            format!(
                "{} PGs are not active+clean ({} is {})",
                lacking.len(),
                text(&pg["pgid"]),
                text(&pg["state"])
            )
        }))
    }

    /// Fails where fewer OSDs would remain than a pool has replicas: its PGs would stay degraded
    /// for ever.
    async fn check_left(&self) -> Result<(), Error> {
        let dump = json!({"prefix": "osd dump", "format": "json"});
        let dump = self.admin.command(dump, bytes::Bytes::new()).await?;
        let osds = dump["osds"].as_array().into_iter().flatten();
        let left = osds
            .filter(|o| o["in"] == 1 && o["osd"] != self.id.item())
            .count() as u64;
        let pools = dump["pools"].as_array().into_iter().flatten();
        let wants = |pool: &&Value| pool["size"].as_u64().is_some_and(|size| size > left);
        let Some(pool) = pools.into_iter().find(wants) else {
            return Ok(());
        };
        let more = spec(&self.layout)?.osds.len() + 1;
        let root = quoted(self.layout.root());
        Err(Error::Usage(format!(
            "pool {} has {} replicas, and without {} {left} OSDs are left for them: nothing was changed. Add one first (`spirula up \
             --osds {more} --dir {root}`), or, if the OSD is lost, make it anew (`spirula up --replace-osd {} --dir {root}`)",
            pool["pool_name"], pool["size"], self.name, self.id
        )))
    }

    /// Takes the OSD out of the specification, so that its supervisor stops it and it is not
    /// started again.
    async fn stop(&self) -> Result<(), Error> {
        self.set_wanted(false).await?;
        let file = self.layout.pid_file(&self.name);
        // Without a supervisor nobody else tells it to.
        if pidfile::holder(&self.layout.pid_file(supervisor::NAME)).is_none()
            && let Some(pid) = pidfile::holder(&file)
        {
            pidfile::signal(pid, Signal::TERM).map_err(|e| Error::path("stop the daemon of", &file, e))?;
        }
        let deadline = Instant::now() + END;
        while pidfile::holder(&file).is_some() {
            if Instant::now() > deadline {
                return Err(Error::Daemon(format!("{} does not end; try again", self.name)));
            }
            self.progress.wait("the daemon ends");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Writes whether the OSD belongs to the specification, and signals the supervisor.
    async fn set_wanted(&self, wanted: bool) -> Result<(), Error> {
        let _lock = super::lock(&self.layout, &self.progress).await?;
        let mut spec = spec(&self.layout)?;
        match wanted {
            true => spec.osds.insert(self.id),
            false => spec.osds.remove(&self.id),
        };
        self.layout.save_spec(&spec)?;
        match pidfile::holder(&self.layout.pid_file(supervisor::NAME)) {
            Some(pid) => pidfile::signal(pid, Signal::HUP)
                .map_err(|e| Error::path("signal the supervisor of", self.layout.root(), e)),
            None => Ok(()),
        }
    }

    async fn purge(&self) -> Result<(), Error> {
        let purged = self.try_purge().await;
        if purged.is_err() {
            // It is still the cluster's.
            self.set_wanted(true).await?;
        }
        purged
    }

    async fn try_purge(&self) -> Result<(), Error> {
        let id = self.id.to_string();
        let deadline = Instant::now() + END;
        loop {
            let map = self.admin.osd_map().await?;
            if !map.osds.get(&self.id).is_some_and(|o| o.is_up) {
                break;
            }
            if Instant::now() > deadline {
                return Err(Error::Daemon(format!(
                    "{} has ended, and is up in the cluster's map",
                    self.name
                )));
            }
            let down = json!({"prefix": "osd down", "ids": [id], "format": "json"});
            self.admin.tell(down).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // Without the flags the monitors check for themselves that nothing depends on it.
        let mut purge = json!({"prefix": "osd purge", "id": id, "format": "json"});
        if self.force {
            purge["force"] = true.into();
            purge["yes_i_really_mean_it"] = true.into();
        } else if let Some(why) = self.needed().await? {
            return Err(Error::Daemon(format!(
                "{why}: {} is not removed; try again",
                self.name
            )));
        }
        self.admin.tell(purge).await
    }

    /// Removes the OSD's directory: the cluster no longer has the OSD, so its store is useless.
    fn remove_directory(&self) -> Result<(), Error> {
        let dir = self.layout.data(&self.name);
        let devices: Vec<String> = ["block", "log"]
            .iter()
            .filter_map(|name| std::fs::read_link(dir.join(name)).ok())
            .map(|device| device.display().to_string())
            .collect();
        use std::io::ErrorKind;
        match std::fs::remove_dir_all(&dir) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            // A file system of its own is mounted there: the directory stays, with nothing in it.
            Err(e) if e.kind() == ErrorKind::ResourceBusy && is_vacant(&dir) => {}
            Err(e) => return Err(Error::path("remove", &dir, e)),
        }
        let still = match devices.is_empty() {
            true => String::new(),
            false => format!(
                "; what it stored is still on {}: wipe that before it is used again",
                devices.join(" and ")
            ),
        };
        self.progress.step(format!(
            "{} is removed from the cluster, and {} with it{still}",
            self.name,
            dir.display()
        ));
        Ok(())
    }
}

/// The fields of a PG that change while copies are made.
fn what_moves(pg: &Value) -> Value {
    let sum = &pg["stat_sum"];
    json!([
        pg["pgid"],
        pg["state"],
        pg["up"],
        pg["acting"],
        sum["num_objects_degraded"],
        sum["num_objects_misplaced"],
        sum["num_objects_recovered"]
    ])
}
