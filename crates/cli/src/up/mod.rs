//! `spirula up`: one command from nothing, or from an existing directory, to a healthy cluster.

mod census;
mod progress;
mod provision;
pub(crate) mod remove;
mod replace;
mod roll_call;
mod room;
mod state;
pub(crate) mod supervisor;
mod wait;
mod words;

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use spirula_cephx::KeyType;
use spirula_conf::{ConfFile, parse_size};
use spirula_maps::OsdId;

use crate::admin::Admin;
use crate::daemon::{DaemonName, Kind, key_type};
use crate::error::Error;
use crate::layout::{Layout, MAX_MONS, Spec, await_address};
use crate::pidfile::{self, PidFile};
pub(crate) use census::Map;
use progress::Progress;
pub(crate) use room::{Room, rooms};
pub(crate) use state::{DaemonState, State, ask};
use supervisor::Supervisor;
use wait::{Outcome, Wait};

/// Make what is missing and start the cluster
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the cluster keeps its data, configuration, logs and pid files
    #[arg(long, default_value = "./spirula-data")]
    dir: PathBuf,
    /// How many OSDs; more than before adds some, fewer is refused [default: 3, or what the cluster
    /// has]
    #[arg(long)]
    osds: Option<u32>,
    /// How many monitors, when the cluster is made [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_MONS)))]
    mons: Option<u8>,
    /// Make the store of this OSD anew, as it is lost, and let the others fill it. Data that is
    /// still in its directory is never overwritten; may be given more than once
    #[arg(long, value_name = "N")]
    replace_osd: Vec<OsdId>,
    /// Replace an OSD also where the lost store may hold what no other one has
    #[arg(long, requires = "replace_osd")]
    yes_i_really_mean_it: bool,
    /// Size of each new OSD's store
    #[arg(long, default_value = "10G", value_parser = size)]
    osd_size: u64,
    /// Encrypt the stores of OSDs that are made from now on; their keys go to the monitors
    #[arg(long)]
    encrypt: bool,
    /// Type of the keys that are made from now on, in a new cluster also of client.admin's: aes,
    /// which clients of all releases know, or aes256k, which Ceph's know since 19.2.6 and 20.2.4
    /// and Linux since 7.0 [default: aes]
    #[arg(long, value_parser = key_type)]
    key_type: Option<KeyType>,
    /// Address to listen on, when the cluster is made
    #[arg(long, default_value = "127.0.0.1")]
    bind: IpAddr,
    /// Return when the cluster is healthy and leave it running
    #[arg(long)]
    detach: bool,
    /// Leave a daemon that dies dead
    #[arg(long)]
    no_respawn: bool,
    /// Be the supervisor of an existing directory and nothing else; what --detach starts
    #[arg(long, hide = true)]
    supervise: bool,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("{text:?} is not a size such as 10G"))
}

/// The smallest size of a store with room for its log and index.
const MIN_OSD_SIZE: u64 = 256 << 20;

/// More OSDs than any machine has disks are a typing error.
const MAX_OSDS: u32 = 1000;

/// Runs the command.
pub(crate) async fn run(args: Args) -> Result<(), Error> {
    let layout = Layout::new(&args.dir)?;
    spirula_files::check_path(layout.root())?;
    if args.supervise {
        return Supervisor::new(layout, !args.no_respawn)?.run().await;
    }
    let progress = Progress::new();
    let begun = Instant::now();
    // A refused command line is found before anything is written.
    Settled::new(&layout, &args)?;
    loop {
        let lock = lock(&layout, &progress).await?;
        let settled = prepare(&layout, &args)?;
        let Some(pid) = pidfile::holder(&layout.pid_file(supervisor::NAME)) else {
            return start(&args, &layout, &settled, &progress, lock).await;
        };
        drop(lock);
        progress.step(format!(
            "The cluster in {} is already running (supervisor {pid})",
            layout.root().display()
        ));
        if let Some(outcome) = join(&layout, &settled.spec, &args, &progress, pid).await? {
            return progress.done(&layout, &settled.spec, begun.elapsed(), outcome);
        }
    }
}

/// Takes the lock on the directory, which is made if it is missing; waits while another `up` has
/// the lock.
async fn lock(layout: &Layout, progress: &Progress) -> Result<PidFile, Error> {
    const PAUSE: Duration = Duration::from_millis(20);
    spirula_files::directory(layout.root())?;
    let mut told = false;
    loop {
        if let Some(lock) = layout.try_lock()? {
            return Ok(lock);
        }
        if !told {
            let holder = pidfile::holder(&layout.lock_file());
            let by = holder.map_or_else(String::new, |pid| format!(" (process {pid})"));
            progress.step(format!(
                "Waiting: {} is being changed by another command{by}",
                layout.root().display()
            ));
            told = true;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes the cluster's specification and configuration.
fn prepare(layout: &Layout, args: &Args) -> Result<Settled, Error> {
    let mut settled = Settled::new(layout, args)?;
    let spec = &mut settled.spec;
    spec.encrypt |= args.encrypt;
    if let Some(kind) = args.key_type {
        spec.key_type = Some(kind.name().to_owned());
    }
    layout.create(spec)?;
    // A daemon would say the same, after a while.
    ConfFile::read(&layout.conf())?;
    layout.save_spec(spec)?;
    for osd in &settled.added {
        provision::osd::begin(layout, *osd)?;
    }
    Ok(settled)
}

/// Makes the running supervisor start missing daemons, and waits for them; `None` if it has ended,
/// so that another one may begin.
async fn join(
    layout: &Layout,
    spec: &Spec,
    args: &Args,
    progress: &Progress,
    pid: Pid,
) -> Result<Option<Outcome>, Error> {
    let file = layout.pid_file(supervisor::NAME);
    let is_there = || pidfile::holder(&file) == Some(pid);
    let before = ask(layout).await;
    hang_up(layout, pid)?;
    let stays = || is_there() && !pidfile::is_leaving(&file);
    let alive = || match stays() {
        true => Ok(()),
        false => Err(Error::Daemon("the supervisor ended".into())),
    };
    let wait = Wait::new(layout, spec, progress).after(before);
    match serve(layout, spec, args, wait, alive).await {
        Ok(outcome) => Ok(Some(outcome)),
        Err(e) if stays() => Err(e),
        // It was stopping or dying when it was found.
        Err(_) => {
            await_end(is_there).await;
            Ok(None)
        }
    }
}

/// Signals the supervisor to start missing daemons.
fn hang_up(layout: &Layout, pid: Pid) -> Result<(), Error> {
    pidfile::signal(pid, Signal::HUP).map_err(|e| Error::path("signal the supervisor of", layout.root(), e))
}

/// Waits until the cluster serves, and replaces the OSDs of `--replace-osd`.
async fn serve(
    layout: &Layout,
    spec: &Spec,
    args: &Args,
    wait: Wait<'_>,
    mut alive: impl FnMut() -> Result<(), Error>,
) -> Result<Outcome, Error> {
    let progress = wait.progress();
    let outcome = wait.without(&args.replace_osd).until_up(&mut alive).await?;
    if args.replace_osd.is_empty() {
        return Ok(outcome);
    }
    let admin = Admin::connect(layout).await?;
    for osd in &args.replace_osd {
        let _lock = lock(layout, progress).await?;
        replace::check(layout, spec, *osd)?;
        replace::replace(layout, progress, &admin, *osd, args.yes_i_really_mean_it).await?;
    }
    let before = ask(layout).await;
    if let Some(pid) = pidfile::holder(&layout.pid_file(supervisor::NAME)) {
        hang_up(layout, pid)?;
    }
    let wait = Wait::new(layout, spec, progress).after(before);
    wait.until_up(alive).await
}

/// Becomes the supervisor, or starts one. The lock is held until other commands can find the
/// supervisor.
async fn start(
    args: &Args,
    layout: &Layout,
    settled: &Settled,
    progress: &Progress,
    lock: PidFile,
) -> Result<(), Error> {
    let begun = Instant::now();
    let spec = &settled.spec;
    let parts = Kind::ALL.map(|kind| kind.count(spec.daemons(kind).len()));
    progress.step(format!(
        "{} a cluster of {} in {}",
        if settled.is_new { "Creating" } else { "Starting" },
        parts.join(" and "),
        layout.root().display()
    ));
    for (id, addr) in spec.mons() {
        if pidfile::holder(&layout.pid_file(DaemonName::mon(id))).is_none() {
            await_address(addr).await?;
        }
    }
    if args.detach {
        let log = layout.log_file(supervisor::NAME);
        let log_begins = log.metadata().map_or(0, |m| m.len());
        let mut child = detach(layout, args)?;
        let mut alive = || match child.try_wait() {
            Ok(None) => Ok(()),
            Ok(status) => Err(Error::Daemon(format!(
                "the cluster stopped while starting: {}",
                words::last(&log, log_begins, status)
            ))),
            Err(e) => Err(Error::path("wait for the supervisor of", layout.root(), e)),
        };
        while pidfile::holder(&layout.pid_file(supervisor::NAME)).is_none() {
            alive()?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(lock);
        let wait = Wait::new(layout, spec, progress);
        let outcome = serve(layout, spec, args, wait, alive).await?;
        return progress.done(layout, spec, begun.elapsed(), outcome);
    }
    let supervisor = Supervisor::new(layout.clone(), !args.no_respawn)?;
    drop(lock);
    let greeting = async {
        let wait = Wait::new(layout, spec, progress);
        let up = serve(layout, spec, args, wait, || Ok(())).await;
        if let Err(e) = up.and_then(|outcome| progress.done(layout, spec, begun.elapsed(), outcome)) {
            progress.warn(e.to_string());
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        r = supervisor.run() => r,
        () = greeting => Ok(()),
    }
}

/// Waits while a supervisor stops its daemons, for at most the time that this takes.
async fn await_end(is_there: impl Fn() -> bool) {
    let deadline = Instant::now() + supervisor::STOP_PATIENCE + Duration::from_secs(5);
    while is_there() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The new specification: the present one with the command line's additions.
struct Settled {
    spec: Spec,
    /// There was no cluster before.
    is_new: bool,
    /// The OSDs that are new.
    added: Vec<OsdId>,
}

impl Settled {
    fn new(layout: &Layout, args: &Args) -> Result<Self, Error> {
        if args.osd_size < MIN_OSD_SIZE {
            return Err(Error::Usage(format!(
                "--osd-size must be at least {} MiB",
                MIN_OSD_SIZE >> 20
            )));
        }
        if args.osds.is_some_and(|n| !(1..=MAX_OSDS).contains(&n)) {
            return Err(Error::Usage(format!("--osds must be 1 to {MAX_OSDS}")));
        }
        match layout.load_spec()? {
            None => Self::of_none(layout, args),
            Some(spec) => Self::of_old(layout, args, spec),
        }
    }

    fn of_none(layout: &Layout, args: &Args) -> Result<Self, Error> {
        let osds = args.osds.unwrap_or(3);
        if args.bind.is_unspecified() || args.bind.is_multicast() {
            return Err(Error::Usage(format!(
                "--bind {}: one address of this machine is needed, for clients find the daemons by it",
                args.bind
            )));
        }
        layout.check_name()?;
        layout.check_free()?;
        let mons = args.mons.unwrap_or(1);
        Ok(Self {
            spec: Spec::new(args.bind, mons, osds, args.osd_size)?,
            is_new: true,
            added: Vec::new(),
        })
    }

    fn of_old(layout: &Layout, args: &Args, mut spec: Spec) -> Result<Self, Error> {
        if let Some(mons) = args.mons
            && usize::from(mons) != spec.mons().len()
        {
            return Err(Error::Usage(format!(
                "the cluster in {} has {} monitors; others are added with `spirula mon mkfs` and `spirula mon run`",
                layout.root().display(),
                spec.mons().len()
            )));
        }
        let has = spec.osds.len();
        let wanted = args.osds.map_or(has, |n| n as usize);
        let Some(more) = wanted.checked_sub(has) else {
            return Err(Error::Usage(format!(
                "the cluster in {} has {has} OSDs; `spirula osd rm N` takes one away",
                layout.root().display(),
            )));
        };
        let is_free =
            |n: &OsdId| !spec.osds.contains(n) && census::is_vacant(&layout.data(&DaemonName::osd(*n)));
        let added: Vec<OsdId> = OsdId::below(u32::MAX).filter(is_free).take(more).collect();
        spec.osds.extend(&added);
        spec.osd_size = args.osd_size;
        for osd in &args.replace_osd {
            replace::check(layout, &spec, *osd)?;
        }
        Ok(Self {
            spec,
            is_new: false,
            added,
        })
    }
}

/// Starts this program again as the supervisor, away from the terminal.
fn detach(layout: &Layout, args: &Args) -> Result<std::process::Child, Error> {
    let failed = |source| Error::Spawn {
        daemon: supervisor::NAME.into(),
        source,
    };
    let log_path = layout.log_file(supervisor::NAME);
    let mut options = std::fs::OpenOptions::new();
    let log = spirula_files::open(&log_path, options.create(true).append(true))?;
    let err = log.try_clone().map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["up", "--supervise", "--dir"]).arg(layout.root());
    if args.no_respawn {
        command.arg("--no-respawn");
    }
    command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(err)
        .process_group(0)
        .spawn()
        .map_err(failed)
}
