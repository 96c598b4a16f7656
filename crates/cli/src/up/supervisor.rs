//! Keeps the daemons of one directory running: starts them, notices when one dies, and starts it again after
//! a delay that doubles with every early death. One that ended in order was told to (`ceph osd stop`, SIGTERM), or stopped
//! itself because it did only harm: it stays down until the next `spirula up`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tokio::signal::unix::{SignalKind, signal};

use super::provision;
use crate::error::Error;
use crate::layout::Layout;
use crate::pidfile::{self, PidFile};

/// The supervisor's own name among the pid files.
pub(crate) const NAME: &str = "supervisor";

/// How often children are looked at.
const TICK: Duration = Duration::from_millis(200);
/// The first delay before a dead daemon is started again; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A daemon that lived this long is not dying early: its delay starts afresh.
const STEADY: Duration = Duration::from_secs(10);
/// A daemon that ends so soon after it was found running had been killed before.
const ADOPTION: Duration = Duration::from_secs(5);
/// How long a daemon may take to stop before it is killed.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// What is known of one daemon's process.
enum Process {
    /// Our child.
    Child(Child, Instant),
    /// Found running when we came (an earlier supervisor was killed): watched through its pid file.
    Adopted(Pid, Instant),
    /// Dead; to be started at this time.
    Waiting(Instant),
    /// Dead, and respawning is off; or ended in order.
    Dead,
}

struct Daemon {
    process: Process,
    backoff: Duration,
}

/// The running supervisor.
pub(crate) struct Supervisor {
    layout: Layout,
    respawn: bool,
    daemons: BTreeMap<String, Daemon>,
    pid_file: PidFile,
}

impl Supervisor {
    /// Becomes the supervisor of `layout`.
    ///
    /// # Errors
    /// Where another one is at work.
    pub(crate) fn new(layout: Layout, respawn: bool) -> Result<Self, Error> {
        let path = layout.pid_file(NAME);
        let pid_file = PidFile::take(&path).map_err(|e| Error::path("take", &path, e))?;
        Ok(Self {
            layout,
            respawn,
            daemons: BTreeMap::new(),
            pid_file,
        })
    }

    /// Runs until SIGINT or SIGTERM, then stops every daemon, OSDs first. SIGHUP: start what is missing.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(Error::Signal)?;
        let mut tick = tokio::time::interval(TICK);
        let started = tokio::select! {
            r = self.ensure() => Some(r),
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
        };
        match started {
            Some(Ok(())) => {}
            Some(Err(e)) => {
                self.stop_all().await;
                return Err(e);
            }
            None => {
                self.stop_all().await;
                return Ok(());
            }
        }
        loop {
            tokio::select! {
                _ = tick.tick() => self.look_after(),
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                _ = hangup.recv() => {
                    if let Err(e) = self.ensure().await {
                        tracing::error!("can't start what is missing: {e}");
                    }
                }
            }
        }
        self.stop_all().await;
        Ok(())
    }

    /// Starts every daemon of the spec that isn't running; makes the ones that don't exist yet.
    async fn ensure(&mut self) -> Result<(), Error> {
        let Some(spec) = self.layout.load_spec()? else {
            return Err(Error::Usage(format!(
                "no cluster in {}",
                self.layout.root().display()
            )));
        };
        provision::mons(&self.layout, &spec).await?;
        for name in Layout::daemons(&spec) {
            if name.starts_with("osd.") {
                provision::osds(&self.layout, &spec).await?;
            }
            self.start_if_down(&name)?;
        }
        Ok(())
    }

    fn start_if_down(&mut self, name: &str) -> Result<(), Error> {
        match self.daemons.get(name).map(|d| &d.process) {
            Some(Process::Child(..) | Process::Adopted(..)) => return Ok(()),
            Some(Process::Waiting(_) | Process::Dead) | None => {}
        }
        let process = match pidfile::holder(&self.layout.pid_file(name)) {
            Some(pid) => Process::Adopted(pid, Instant::now()),
            None => Process::Child(self.spawn(name)?, Instant::now()),
        };
        self.daemons.insert(
            name.to_owned(),
            Daemon {
                process,
                backoff: BACKOFF_MIN,
            },
        );
        Ok(())
    }

    fn spawn(&self, name: &str) -> Result<Child, Error> {
        let log_path = self.layout.log_file(name);
        let log = spirula_files::open(&log_path, OpenOptions::new().create(true).append(true))?;
        let failed = |source| Error::Spawn {
            daemon: name.to_owned(),
            source,
        };
        let err = log.try_clone().map_err(failed)?;
        let (kind, id) = name.split_once('.').unwrap_or((name, ""));
        Command::new(std::env::current_exe().map_err(failed)?)
            .args([kind, "run", "--id", id, "--conf"])
            .arg(self.layout.conf())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(err)
            // Its own group: a Ctrl-C at the terminal is for the supervisor, which stops daemons in order.
            .process_group(0)
            .spawn()
            .map_err(failed)
    }

    /// One look at every daemon.
    fn look_after(&mut self) {
        let now = Instant::now();
        let names: Vec<String> = self.daemons.keys().cloned().collect();
        for name in names {
            let Some(daemon) = self.daemons.get_mut(&name) else {
                continue;
            };
            let died = match &mut daemon.process {
                Process::Child(child, since) => match child.try_wait() {
                    Ok(None) => continue,
                    Ok(Some(status)) if status.success() => {
                        tracing::warn!("{name} ended in order: `spirula up` starts it again");
                        daemon.process = Process::Dead;
                        continue;
                    }
                    Ok(Some(status)) => {
                        tracing::warn!("{name} ended: {status}");
                        Some(since.elapsed())
                    }
                    Err(e) => {
                        tracing::warn!("{name} can't be waited for: {e}");
                        Some(since.elapsed())
                    }
                },
                Process::Adopted(pid, since) => match pidfile::holder(&self.layout.pid_file(&name)) {
                    Some(held) if held == *pid => continue,
                    // It was dying when it was found: it is one of those to be started.
                    _ if since.elapsed() < ADOPTION => None,
                    _ => Some(Duration::ZERO),
                },
                Process::Waiting(at) if *at <= now => None,
                Process::Waiting(_) | Process::Dead => continue,
            };
            match died {
                Some(lived) => self.mourn(&name, lived),
                None => self.respawn(&name),
            }
        }
    }

    /// A daemon died after `lived`: decides when it comes back.
    fn mourn(&mut self, name: &str, lived: Duration) {
        let Some(daemon) = self.daemons.get_mut(name) else {
            return;
        };
        if !self.respawn {
            daemon.process = Process::Dead;
            return;
        }
        daemon.backoff = if lived >= STEADY {
            BACKOFF_MIN
        } else {
            daemon.backoff
        };
        daemon.process = Process::Waiting(Instant::now() + daemon.backoff);
        tracing::warn!("{name} is started again in {:?}", daemon.backoff);
        daemon.backoff = (daemon.backoff * 2).min(BACKOFF_MAX);
    }

    fn respawn(&mut self, name: &str) {
        let spawned = self.spawn(name);
        let Some(daemon) = self.daemons.get_mut(name) else {
            return;
        };
        daemon.process = match spawned {
            Ok(child) => Process::Child(child, Instant::now()),
            Err(e) => {
                tracing::error!("{e}");
                Process::Waiting(Instant::now() + daemon.backoff)
            }
        };
    }

    /// Stops OSDs, then the monitor, so that every OSD can still tell that it leaves.
    async fn stop_all(&mut self) {
        if let Err(e) = self.pid_file.leave() {
            tracing::warn!("can't say that the cluster is stopping: {e}");
        }
        for kind in ["osd.", "mon."] {
            let mut leaving: Vec<(String, Daemon)> = Vec::new();
            for name in self
                .daemons
                .keys()
                .filter(|n| n.starts_with(kind))
                .cloned()
                .collect::<Vec<_>>()
            {
                leaving.extend(self.daemons.remove(&name).map(|d| (name, d)));
            }
            stop(&self.layout, leaving).await;
        }
    }
}

/// Asks every process to end, waits, and kills what is left after [`STOP_PATIENCE`].
async fn stop(layout: &Layout, mut daemons: Vec<(String, Daemon)>) {
    let pid_of = |d: &Daemon| match &d.process {
        Process::Child(c, _) => Pid::from_raw(c.id().cast_signed()),
        Process::Adopted(pid, _) => Some(*pid),
        Process::Waiting(_) | Process::Dead => None,
    };
    let tell = |daemons: &[(String, Daemon)], what: Signal| {
        for (name, pid) in daemons.iter().filter_map(|(n, d)| pid_of(d).map(|p| (n, p))) {
            if let Err(e) = pidfile::signal(pid, what) {
                tracing::error!("can't signal {name}: {e}");
            }
        }
    };
    tell(&daemons, Signal::TERM);
    let deadline = Instant::now() + STOP_PATIENCE;
    loop {
        daemons.retain_mut(|(name, d)| match &mut d.process {
            Process::Child(c, _) => matches!(c.try_wait(), Ok(None)),
            Process::Adopted(..) => pidfile::holder(&layout.pid_file(name)).is_some(),
            Process::Waiting(_) | Process::Dead => false,
        });
        if daemons.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            tracing::error!("killing what did not stop in {STOP_PATIENCE:?}");
            tell(&daemons, Signal::KILL);
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
