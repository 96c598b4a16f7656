//! Keeps the daemons of one directory running: starts them, notices when one dies, and restarts it
//! after a delay that doubles with every early death. A daemon that ended in order was told to
//! (`ceph osd stop`, SIGTERM), or stopped itself because it only did harm: it stays down until the
//! next `spirula up`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use spirula_maps::OsdId;
use tokio::signal::unix::{SignalKind, signal};

use super::census::Verdict;
use super::roll_call::{Answer, roll_call};
use super::state::{self, DaemonState, State};
use super::{provision, words};
use crate::daemon::{DaemonName, Kind};
use crate::error::Error;
use crate::layout::{Layout, Spec};
use crate::pidfile::{self, PidFile};

/// The supervisor's own name among the pid files.
pub(crate) const NAME: &str = "supervisor";

/// How often children are looked at.
const TICK: Duration = Duration::from_millis(200);
/// The first delay before a dead daemon is started again; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A daemon that lived this long did not die early: its delay starts afresh.
const STEADY: Duration = Duration::from_secs(10);
/// A daemon that ends this soon after it was found running had been signalled before.
const ADOPTION: Duration = Duration::from_secs(5);
/// How long a daemon may take to stop before it is killed.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// After this many early deaths in a row the monitors are asked whether the cluster still has the
/// daemon, for kinds that they decide about.
const DEATHS_TO_ASK: u32 = 2;

/// The state of one daemon's process.
enum Process {
    /// A child of this supervisor, and its start.
    Child(Child, Instant),
    /// A process that was running at the supervisor's start, as an earlier supervisor was killed:
    /// watched through its pid file.
    Adopted(Pid, Instant),
    /// Dead; to be started at this time.
    Waiting(Instant),
    /// Dead, and not to be restarted: respawning is off, or the daemon ended in order.
    Dead,
}

struct Daemon {
    process: Process,
    backoff: Duration,
    /// The length of its log before the process was started.
    log_begins: u64,
    /// Deaths soon after the start, in a row.
    deaths: u32,
    last_words: Option<String>,
}

impl Daemon {
    fn new(process: Process, log_begins: u64) -> Self {
        Self {
            process,
            backoff: BACKOFF_MIN,
            log_begins,
            deaths: 0,
            last_words: None,
        }
    }

    fn pid(&self) -> Option<Pid> {
        match &self.process {
            Process::Child(c, _) => Pid::from_raw(c.id().cast_signed()),
            Process::Adopted(pid, _) => Some(*pid),
            Process::Waiting(_) | Process::Dead => None,
        }
    }
}

/// A pending request to the monitors for the cluster's OSDs.
type RollCall = Pin<Box<dyn Future<Output = Vec<Answer>>>>;

/// The running supervisor.
pub(crate) struct Supervisor {
    layout: Layout,
    respawn: bool,
    daemons: BTreeMap<DaemonName, Daemon>,
    /// Why daemons are not run.
    troubles: BTreeMap<DaemonName, String>,
    /// Why daemons could not be made or started.
    failures: BTreeMap<DaemonName, String>,
    roll_call: Option<RollCall>,
    /// Calls of [`Supervisor::ensure`] so far.
    rounds: u64,
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
            troubles: BTreeMap::new(),
            failures: BTreeMap::new(),
            roll_call: None,
            rounds: 0,
            pid_file,
        })
    }

    /// Runs until SIGINT or SIGTERM, then stops every daemon. SIGHUP: start what is missing.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(Error::Signal)?;
        let socket = state::listen(&self.layout)?;
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
                answers = answered(&mut self.roll_call) => self.heed(answers),
                asked = socket.accept() => match asked {
                    Ok((stream, _)) => {
                        let state = self.state();
                        tokio::task::spawn_local(async move { state::tell(stream, &state).await });
                    }
                    Err(e) => tracing::warn!("supervisor's socket: {e}"),
                },
            }
        }
        self.stop_all().await;
        Ok(())
    }

    fn spec(&self) -> Result<Spec, Error> {
        let none = || Error::Usage(format!("no cluster in {}", self.layout.root().display()));
        self.layout.load_spec()?.ok_or_else(none)
    }

    /// Makes missing monitors, starts every daemon that isn't running, stops daemons that are no
    /// longer the cluster's, and asks the monitors for the cluster's OSDs: their answer is heeded
    /// when it comes.
    async fn ensure(&mut self) -> Result<(), Error> {
        let spec = self.spec()?;
        provision::mon::make(&self.layout, &spec).await?;
        let names = Layout::daemons(&spec);
        self.stop_those(|name| !names.contains(name));
        self.failures.clear();
        for name in names {
            let is_made = provision::is_ready(&self.layout, &name);
            if !is_made || self.troubles.contains_key(&name) {
                continue;
            }
            match self.start_if_down(&name) {
                // The others go on without this one.
                Err(e) if !name.kind().is_vital() => self.fail(name, &e),
                started => started?,
            }
        }
        self.call_the_roll(spec);
        self.rounds += 1;
        Ok(())
    }

    fn call_the_roll(&mut self, spec: Spec) {
        self.roll_call = Some(Box::pin(roll_call(self.layout.clone(), spec)));
    }

    /// Acts on the monitors' answers.
    fn heed(&mut self, answers: Vec<Answer>) {
        let mut gone = Vec::new();
        for Answer { osd, verdict } in answers {
            let name = DaemonName::osd(osd);
            match verdict {
                Ok(Verdict::Forget) => gone.push(osd),
                Ok(Verdict::Leave(trouble)) => {
                    self.leave(&name, trouble.text(&self.layout, osd));
                }
                Ok(Verdict::Run | Verdict::Make) => {
                    self.troubles.remove(&name);
                    self.failures.remove(&name);
                    // One that has died meanwhile waits for its turn.
                    if !self.daemons.contains_key(&name)
                        && let Err(e) = self.start_if_down(&name)
                    {
                        self.fail(name, &e);
                    }
                }
                Err(e) => self.fail(name, &e),
            }
        }
        if !gone.is_empty()
            && let Err(e) = self.forget(&gone)
        {
            tracing::error!("can't forget removed OSDs: {e}");
        }
    }

    /// Notes that a daemon can't be made or started.
    fn fail(&mut self, name: DaemonName, why: &Error) {
        tracing::error!("{name} does not start: {why}");
        self.failures.insert(name, why.to_string());
    }

    /// Leaves a daemon alone; stops it if it runs.
    fn leave(&mut self, name: &DaemonName, why: String) {
        tracing::warn!("{name} is not run: {why}");
        self.stop_those(|n| n == name);
        self.troubles.insert(name.clone(), why);
    }

    /// Takes OSDs that were removed, and whose directories are gone, out of the specification.
    fn forget(&mut self, gone: &[OsdId]) -> Result<(), Error> {
        // The holder of the lock changes the same file: the next roll call tries again.
        let Some(_lock) = self.layout.try_lock()? else {
            return Ok(());
        };
        let mut spec = self.spec()?;
        for osd in gone {
            let name = DaemonName::osd(*osd);
            tracing::warn!("{name} was removed from the cluster: it is forgotten here too");
            spec.osds.remove(osd);
            self.stop_those(|n| *n == name);
        }
        self.layout.save_spec(&spec)
    }

    /// The state for `up` and `status`.
    fn state(&self) -> State {
        let running = self.daemons.iter().map(|(name, d)| {
            let state = DaemonState {
                pid: d.pid().map(Pid::as_raw_pid),
                deaths: d.deaths,
                stays_down: matches!(d.process, Process::Dead),
                last_words: d.last_words.clone(),
                trouble: None,
            };
            (name.clone(), state)
        });
        let mut daemons: BTreeMap<DaemonName, DaemonState> = running.collect();
        for (name, why) in &self.troubles {
            daemons.entry(name.clone()).or_default().trouble = Some(why.clone());
        }
        for (name, why) in &self.failures {
            let failed = daemons.entry(name.clone()).or_default();
            failed.stays_down = true;
            failed.last_words = Some(why.clone());
        }
        let is_asking = self.roll_call.is_some();
        State {
            rounds: self.rounds,
            unknown: is_asking.then(|| "the monitors have not said yet which OSDs there are".to_owned()),
            daemons,
        }
    }

    fn start_if_down(&mut self, name: &DaemonName) -> Result<(), Error> {
        match self.daemons.get(name).map(|d| &d.process) {
            Some(Process::Child(..) | Process::Adopted(..)) => return Ok(()),
            Some(Process::Waiting(_) | Process::Dead) | None => {}
        }
        let log_begins = self.log_length(name);
        let process = match pidfile::holder(&self.layout.pid_file(name)) {
            Some(pid) => Process::Adopted(pid, Instant::now()),
            None => Process::Child(self.spawn(name)?, Instant::now()),
        };
        self.daemons
            .insert(name.clone(), Daemon::new(process, log_begins));
        Ok(())
    }

    fn log_length(&self, name: &DaemonName) -> u64 {
        let log = self.layout.log_file(name).metadata();
        log.map_or(0, |m| m.len())
    }

    fn spawn(&self, name: &DaemonName) -> Result<Child, Error> {
        let log_path = self.layout.log_file(name);
        let log = spirula_files::open(&log_path, OpenOptions::new().create(true).append(true))?;
        let failed = |source| Error::Spawn {
            daemon: name.to_string(),
            source,
        };
        let err = log.try_clone().map_err(failed)?;
        Command::new(std::env::current_exe().map_err(failed)?)
            .args(name.command_line())
            .arg(self.layout.conf())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(err)
            // Its own group: a Ctrl-C at the terminal is for the supervisor, which stops daemons in
            // order.
            .process_group(0)
            .spawn()
            .map_err(failed)
    }

    /// Checks every daemon once.
    fn look_after(&mut self) {
        let now = Instant::now();
        let names: Vec<DaemonName> = self.daemons.keys().cloned().collect();
        for name in names {
            let Some(daemon) = self.daemons.get_mut(&name) else {
                continue;
            };
            let (status, lived) = match &mut daemon.process {
                Process::Child(child, since) => match child.try_wait() {
                    Ok(None) => {
                        if since.elapsed() >= STEADY {
                            daemon.deaths = 0;
                        }
                        continue;
                    }
                    Ok(Some(status)) => (Some(status), since.elapsed()),
                    Err(e) => {
                        tracing::warn!("{name} can't be waited for: {e}");
                        (None, since.elapsed())
                    }
                },
                Process::Adopted(pid, since) => match pidfile::holder(&self.layout.pid_file(&name)) {
                    Some(held) if held == *pid => continue,
                    // It was dying when it was found: it is one of those to be started.
                    _ if since.elapsed() < ADOPTION => {
                        self.respawn(&name);
                        continue;
                    }
                    _ => (None, Duration::ZERO),
                },
                Process::Waiting(at) if *at <= now => {
                    self.respawn(&name);
                    continue;
                }
                Process::Waiting(_) | Process::Dead => continue,
            };
            self.mourn(&name, status, lived);
        }
    }

    /// Handles the death of a daemon after `lived`: decides whether and when it is restarted.
    fn mourn(&mut self, name: &DaemonName, status: Option<ExitStatus>, lived: Duration) {
        let log = self.layout.log_file(name);
        let Some(daemon) = self.daemons.get_mut(name) else {
            return;
        };
        let said = words::last(&log, daemon.log_begins, status);
        if lived >= STEADY {
            daemon.deaths = 0;
            daemon.backoff = BACKOFF_MIN;
        }
        daemon.deaths += 1;
        let (ended, deaths, delay) = (
            status.map_or_else(String::new, |s| format!(" ({s})")),
            daemon.deaths,
            daemon.backoff,
        );
        daemon.last_words = Some(said.clone());
        if status.is_some_and(|s| s.success()) {
            daemon.process = Process::Dead;
            tracing::warn!("{name} ended in order: `spirula up` starts it again");
        } else if self.respawn {
            daemon.process = Process::Waiting(Instant::now() + delay);
            daemon.backoff = (delay * 2).min(BACKOFF_MAX);
            tracing::warn!("{name} ended{ended} and is started again in {delay:?}: {said}");
        } else {
            daemon.process = Process::Dead;
            tracing::warn!("{name} ended{ended}: {said}");
        }
        // It may have been removed from the cluster while it ran.
        if name.kind().is_on_the_roll() && deaths == DEATHS_TO_ASK && self.roll_call.is_none() {
            match self.spec() {
                Ok(spec) => self.call_the_roll(spec),
                Err(e) => tracing::error!("{e}"),
            }
        }
    }

    fn respawn(&mut self, name: &DaemonName) {
        let log_begins = self.log_length(name);
        let spawned = self.spawn(name);
        let Some(daemon) = self.daemons.get_mut(name) else {
            return;
        };
        daemon.log_begins = log_begins;
        daemon.process = match spawned {
            Ok(child) => Process::Child(child, Instant::now()),
            Err(e) => {
                tracing::error!("{e}");
                daemon.last_words = Some(e.to_string());
                Process::Waiting(Instant::now() + daemon.backoff)
            }
        };
    }

    /// Removes the daemons that `which` selects from the state.
    fn take_those(&mut self, which: impl Fn(&DaemonName) -> bool) -> Vec<(DaemonName, Daemon)> {
        let all = std::mem::take(&mut self.daemons).into_iter();
        let (taken, kept): (BTreeMap<_, _>, _) = all.partition(|(name, _)| which(name));
        self.daemons = kept;
        taken.into_iter().collect()
    }

    /// Removes the daemons that `which` selects from the state, and stops them in the background.
    fn stop_those(&mut self, which: impl Fn(&DaemonName) -> bool) {
        let leaving = self.take_those(&which);
        self.troubles.retain(|name, _| !which(name));
        if !leaving.is_empty() {
            let layout = self.layout.clone();
            tokio::task::spawn_local(async move { stop(&layout, leaving).await });
        }
    }

    /// Stops all daemons, kind by kind, in the reverse order of their start.
    async fn stop_all(&mut self) {
        if let Err(e) = self.pid_file.leave() {
            tracing::warn!("can't say that the cluster is stopping: {e}");
        }
        for kind in Kind::ALL.into_iter().rev() {
            let leaving = self.take_those(|name| name.kind() == kind);
            stop(&self.layout, leaving).await;
        }
    }
}

/// Completes with the answers; never completes without a request.
async fn answered(roll_call: &mut Option<RollCall>) -> Vec<Answer> {
    let Some(asked) = roll_call else {
        return std::future::pending().await;
    };
    let answers = asked.await;
    *roll_call = None;
    answers
}

/// Asks every process to end, waits, and kills what is left after [`STOP_PATIENCE`].
async fn stop(layout: &Layout, mut daemons: Vec<(DaemonName, Daemon)>) {
    let tell = |daemons: &[(DaemonName, Daemon)], what: Signal| {
        for (name, pid) in daemons.iter().filter_map(|(n, d)| Some((n, d.pid()?))) {
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
