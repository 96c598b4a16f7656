//! `spirula up`: one command from nothing, or from what is there, to a healthy cluster.

mod progress;
mod provision;
pub(crate) mod supervisor;

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use spirula_cephx::KeyType;
use spirula_conf::parse_size;

use crate::admin::{self, Admin};
use crate::daemon::key_type;
use crate::error::Error;
use crate::layout::{Layout, MAX_MONS, Spec, await_address};
use crate::pidfile;
use progress::Progress;
use supervisor::Supervisor;

/// How long a cluster may take to become healthy before `up` says that it did not.
const HEALTH_PATIENCE: Duration = Duration::from_secs(60);

/// How often it is checked meanwhile that there is still a supervisor.
const ALIVE_INTERVAL: Duration = Duration::from_millis(100);

/// Make what is missing and start the cluster
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the cluster keeps its data, configuration, logs and pid files
    #[arg(long, default_value = "./spirula-data")]
    dir: PathBuf,
    /// How many OSDs; more than before adds some, fewer is refused [default: 3, or what the cluster has]
    #[arg(long)]
    osds: Option<u32>,
    /// How many monitors, when the cluster is made [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_MONS)))]
    mons: Option<u8>,
    /// Size of each new OSD's store
    #[arg(long, default_value = "10G", value_parser = size)]
    osd_size: u64,
    /// Encrypt the stores of OSDs that are made from now on; their keys go to the monitors
    #[arg(long)]
    encrypt: bool,
    /// Type of the keys that are made from now on, in a new cluster also of client.admin's: aes, which clients of all releases
    /// know, or aes256k, which Ceph's know since 19.2.6 and 20.2.4 and Linux since 7.0 [default: aes]
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

/// Below this a store has no room for its log and index.
const MIN_OSD_SIZE: u64 = 256 << 20;

/// More OSDs than any machine has disks are a slip of the finger.
const MAX_OSDS: u32 = 1000;

/// Runs the command.
pub(crate) async fn run(args: Args) -> Result<(), Error> {
    let layout = Layout::new(&args.dir)?;
    spirula_files::check_path(layout.root())?;
    if args.supervise {
        return Supervisor::new(layout, !args.no_respawn)?.run().await;
    }
    let progress = Progress::new();
    let (mut spec, is_new) = settle_spec(&layout, &args)?;
    spec.encrypt |= args.encrypt;
    if let Some(kind) = args.key_type {
        spec.key_type = Some(kind.name().to_owned());
    }
    layout.create(&spec)?;
    layout.save_spec(&spec)?;
    let made = if is_new { "Creating" } else { "Starting" };
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    progress.step(format!(
        "{made} a cluster of {} and {} in {}",
        plural(spec.mons().len(), "monitor"),
        plural(spec.osds as usize, "OSD"),
        layout.root().display()
    ));
    let begun = Instant::now();

    let supervisor_file = layout.pid_file(supervisor::NAME);
    let supervisor_pid = || pidfile::holder(&supervisor_file);
    if let Some(pid) = supervisor_pid() {
        pidfile::signal(pid, Signal::HUP)
            .map_err(|e| Error::path("signal the supervisor of", layout.root(), e))?;
        let stays = || supervisor_pid() == Some(pid) && !pidfile::is_leaving(&supervisor_file);
        let alive = || match stays() {
            true => Ok(()),
            false => Err(Error::Daemon("the supervisor ended".into())),
        };
        match wait_until_healthy(&layout, &spec, &progress, alive).await {
            Ok(health) => {
                progress.done(&layout, begun.elapsed(), &health);
                return Ok(());
            }
            Err(e) if stays() => return Err(e),
            // It was stopping or dying when it was found: another one takes over.
            Err(_) => await_end(|| supervisor_pid() == Some(pid)).await,
        }
    }
    for (id, addr) in spec.mons() {
        if pidfile::holder(&layout.pid_file(&format!("mon.{id}"))).is_none() {
            await_address(addr).await?;
        }
    }
    if args.detach {
        let mut child = detach(&layout, &args)?;
        let log = layout.log_file(supervisor::NAME);
        let alive = || match child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(Error::Daemon(format!(
                "the cluster stopped while starting: {}",
                last_line(&log)
            ))),
        };
        let health = wait_until_healthy(&layout, &spec, &progress, alive).await?;
        progress.done(&layout, begun.elapsed(), &health);
        return Ok(());
    }
    let running = Supervisor::new(layout.clone(), !args.no_respawn)?.run();
    let greeting = async {
        match wait_until_healthy(&layout, &spec, &progress, || Ok(())).await {
            Ok(health) => progress.done(&layout, begun.elapsed(), &health),
            Err(e) => progress.warn(format!("{e}")),
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        r = running => r,
        () = greeting => Ok(()),
    }
}

/// Waits while a supervisor stops its daemons; longer than that takes it is not waited for.
async fn await_end(is_there: impl Fn() -> bool) {
    let deadline = Instant::now() + supervisor::STOP_PATIENCE + Duration::from_secs(5);
    while is_there() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the cluster shall be: what it is, with what the command line adds. The flag tells a new one.
fn settle_spec(layout: &Layout, args: &Args) -> Result<(Spec, bool), Error> {
    if args.osd_size < MIN_OSD_SIZE {
        return Err(Error::Usage(format!(
            "--osd-size must be at least {} MiB",
            MIN_OSD_SIZE >> 20
        )));
    }
    if args.osds.is_some_and(|n| !(1..=MAX_OSDS).contains(&n)) {
        return Err(Error::Usage(format!("--osds must be 1 to {MAX_OSDS}")));
    }
    let Some(mut spec) = layout.load_spec()? else {
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
        return Ok((Spec::new(args.bind, mons, osds, args.osd_size)?, true));
    };
    if let Some(mons) = args.mons
        && usize::from(mons) != spec.mons().len()
    {
        return Err(Error::Usage(format!(
            "the cluster in {} has {} monitors; others are added with `spirula mon mkfs` and `spirula mon run`",
            layout.root().display(),
            spec.mons().len()
        )));
    }
    if let Some(osds) = args.osds {
        if osds < spec.osds {
            return Err(Error::Usage(format!(
                "the cluster in {} has {} OSDs; taking OSDs away is not what `up` does",
                layout.root().display(),
                spec.osds
            )));
        }
        spec.osds = osds;
    }
    spec.osd_size = args.osd_size;
    Ok((spec, false))
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

fn last_line(log: &std::path::Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text
        .lines()
        .last()
        .unwrap_or("it could not even log; is its disk full?");
    last.trim_start_matches("Error: ").to_owned()
}

/// The health of a cluster that is up, and the lines that explain it.
type Health = (String, Vec<String>);

/// Polls the cluster's status until every OSD is up and every PG is active and clean.
async fn wait_until_healthy(
    layout: &Layout,
    spec: &Spec,
    progress: &Progress,
    mut alive: impl FnMut() -> Result<(), Error>,
) -> Result<Health, Error> {
    let deadline = Instant::now() + HEALTH_PATIENCE;
    let mut admin = None;
    let mut why = String::from("the monitor does not answer");
    while Instant::now() < deadline {
        let look = look(layout, spec, &mut admin);
        tokio::pin!(look);
        // A look may last long where nobody answers: an early end of the cluster is told at once.
        let seen = loop {
            alive()?;
            match tokio::time::timeout(ALIVE_INTERVAL, &mut look).await {
                Ok(seen) => break seen,
                Err(_) => progress.wait(&why),
            }
        };
        match seen {
            Some(Ok(admin::Progress::Up { health, summaries })) => {
                // The daemons of a supervisor that stops them are healthy for a while.
                alive()?;
                return Ok((health, summaries));
            }
            Some(Ok(admin::Progress::Waiting(not_yet))) => why = not_yet,
            Some(Err(e)) => why = e.to_string(),
            None => {}
        }
        progress.wait(&why);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(Error::Unhealthy {
        what: why,
        seconds: HEALTH_PATIENCE.as_secs(),
        log: layout.log_file(supervisor::NAME),
    })
}

/// One look at the cluster over a connection that is kept while it works; `None` where there is none.
async fn look(
    layout: &Layout,
    spec: &Spec,
    admin: &mut Option<Admin>,
) -> Option<Result<admin::Progress, Error>> {
    if admin.is_none() {
        *admin = Admin::connect(layout).await.ok();
    }
    let progress = admin.as_ref()?.progress(layout, spec.osds).await;
    if progress.is_err() {
        *admin = None;
    }
    Some(progress)
}
